"""Log-probabilities of given tokens as a function of logits, for losses: differentiable, with a constraint and without."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.artifact.arrays import UNREACHABLE
from jax_decode.errors import DecodeError, named_arguments
from jax_decode.kernels.planes import NEVER
from jax_decode.step.argument_checks import check_tables, is_floats, numbers_of
from jax_decode.step.masking import mask
from jax_decode.step.state import MAX_DEPTH, ConstraintState, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables

_FORBIDDEN = -1e30
"""In place of -inf, whose gradient is no number."""


class TokenLogprobs(NamedTuple):
    """Of the tokens of each row; 0 past its length.

    Attributes:
      raw: float32[B, T], log-probability under the model.
      constrained: float32[B, T], log-probability among the allowed tokens: of sampling under the mask. -inf, with gradient 0,
        for a token that is forbidden.
    """

    raw: jax.Array
    constrained: jax.Array


@named_arguments
def token_logprobs(
    logits: jax.Array,
    tokens: jax.Array,
    tables: ConstraintTables,
    *,
    which: Any = None,
    lengths: Any = None,
    limits: Any = None,
    max_depth: Any = MAX_DEPTH,
) -> TokenLogprobs:
    """Both log-probabilities of tokens that are given, from a model's logits.

    For losses: `jax.grad` of anything made of them reaches the logits, and through them the parameters. Works under `jit`. The
    sum of `raw - constrained` over a row is the logarithm of its importance weight, where it was sampled under the mask.

    Args:
      logits: float[B, T, V'], those that each token was chosen from: of the position before it.
      tokens: int32[B, T], the stop token included where there is one.
      tables: from `to_device`.
      which: int32[B], the constraint of each row, -1 for none; default: 0.
      lengths: int32[B], tokens of each row; default: T.
      limits: int32[B], most tokens of each row, as they were when it was sampled; None for no limit.
      max_depth: as in `generate`.

    Raises:
      DecodeError: a shape or dtype is wrong.
    """
    check_tables(tables, "token_logprobs")
    if not is_floats(logits, 3):
        raise DecodeError("the logits are no floating numbers of shape [B, T, V]", fix="Pass those of the model, [B, T, V].")
    rows, length, width = logits.shape
    tokens = jnp.asarray(numbers_of(tokens, "the tokens are no whole numbers"))
    if tokens.shape != (rows, length) or not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise DecodeError(f"the tokens are {tokens.dtype}{list(tokens.shape)}", fix=f"Pass int32[{rows}, {length}].")
    tokens = tokens.astype(jnp.int32)
    lengths = _of_rows(length if lengths is None else lengths, rows, "lengths")
    which = _of_rows(0 if which is None else which, rows, "which")
    state = init_state(tables, which, limits, max_depth=max_depth, max_tokens=length)
    if limits is None:  # `max_tokens` is for the room of stacks, and no limit of the text
        state = dataclasses.replace(state, remaining=jnp.full_like(state.remaining, UNREACHABLE))
    real = jnp.arange(length, dtype=jnp.int32)[None, :] < lengths[:, None]
    allowed = _allowed_along(tables, state, jnp.where(real, tokens, -1), width)
    x = logits.astype(jnp.float32)
    x = jnp.where(jnp.isnan(x), _FORBIDDEN, jnp.clip(x, _FORBIDDEN, -_FORBIDDEN))
    place = jnp.clip(tokens, 0, width - 1)[..., None]
    own = jnp.take_along_axis(x, place, 2)[..., 0]
    raw = own - jax.nn.logsumexp(x, axis=-1)
    inside = own - jax.nn.logsumexp(jnp.where(allowed, x, _FORBIDDEN), axis=-1)
    fits = jnp.take_along_axis(allowed, place, 2)[..., 0] & (tokens >= 0) & (tokens < width)
    return TokenLogprobs(jnp.where(real, raw, 0.0), jnp.where(real, jnp.where(fits, inside, NEVER), 0.0))


def _of_rows(value: Any, rows: int, what: str) -> jax.Array:
    """Whole numbers int32[B], given for each row or one for all."""
    numbers_of(value, f"{what} are no whole numbers")
    if np.shape(value) not in ((), (1,), (rows,)):
        raise DecodeError(f"{what} has shape {np.shape(value)} for {rows} rows", fix=f"Pass one number, or int32[{rows}].")
    return jnp.broadcast_to(jnp.asarray(value, jnp.int32), (rows,))


def _both(logprobs: Any, where: str, *, rows_alone: bool) -> tuple[jax.Array, jax.Array]:
    """The two of `TokenLogprobs`, float32[B, T], or more axes before these."""
    pair = logprobs if isinstance(logprobs, (tuple, list)) else ()
    of_floats = [x for x in pair if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)]
    axes = {x.shape for x in of_floats}
    most = 2 if rows_alone else 1 << 10
    if len(pair) != 2 or len(of_floats) != 2 or len(axes) != 1 or not 2 <= len(axes.pop()) <= most:
        what = f"{where}: the logprobs are a {type(logprobs).__name__}, not two float[B, T] of one shape"
        raise DecodeError(what, fix="Pass what token_logprobs(...) returned.")
    raw, constrained = of_floats
    return raw.astype(jnp.float32), constrained.astype(jnp.float32)


@named_arguments
def importance_weights(logprobs: TokenLogprobs, groups: Any = None) -> jax.Array:
    """Weights of texts that were sampled under the mask, as if the model had written them; no gradient goes through them.

    Without groups, a weight is the text's probability under the model over that of being sampled: the mean of weight × f is an
    unbiased estimate of the model's expectation of f over the constraint's texts, and the mean weight is one of its mass.
    With groups, those weights are divided by their mean within each group: for expectations given that the constraint holds, with
    a bias that falls with the group's size. Masses differ between prompts by orders of magnitude, hence groups.

    Args:
      logprobs: from `token_logprobs`, or two float[B, T] of your own, 0 behind the end of each row.
      groups: int[B], the group of each row, such as the number of its prompt.

    Returns:
      float32[B]; 0 for a row with a token that is forbidden.

    Raises:
      DecodeError: a shape or dtype is wrong.
    """
    raw, constrained = (x.sum(1) for x in _both(logprobs, "importance_weights", rows_alone=True))
    log_weights = jax.lax.stop_gradient(jnp.where(jnp.isneginf(constrained), NEVER, raw - constrained))
    if groups is None:
        return jnp.exp(log_weights)
    groups = jnp.asarray(numbers_of(groups, "importance_weights: groups are no whole numbers"))
    if groups.shape != raw.shape:
        what = f"importance_weights: groups has shape {groups.shape} for {len(raw)} rows"
        raise DecodeError(what, fix=f"Pass the group of each row, int32[{len(raw)}].")
    same = groups[:, None] == groups[None, :]
    total = jax.nn.logsumexp(jnp.where(same, log_weights[None, :], NEVER), axis=1)
    return jnp.where(jnp.isneginf(log_weights), 0.0, jnp.exp(log_weights - total) * same.sum(1, dtype=jnp.float32))


@named_arguments
def sampled_log_mass(logprobs: TokenLogprobs) -> jax.Array:
    """Estimate of a constraint's log-mass under the model, as a loss: differentiable through the model's log-probabilities.

    The logarithm of the mean importance weight of texts that were sampled under the mask. Its gradient is that of their
    log-probabilities, averaged with weights: an estimate of the gradient of the log-mass. Both have a bias that falls with n. For
    constraints whose texts can be listed, `logsumexp` of what `score` gives for all of them is exact; for distributions of each
    position by itself, `canvas.log_mass`.

    Args:
      logprobs: from `token_logprobs`, float[..., n, T]: n texts of one prompt.

    Returns:
      float32[...], nats.

    Raises:
      DecodeError: a shape or dtype is wrong.
    """
    raw, constrained = (x.sum(-1) for x in _both(logprobs, "sampled_log_mass", rows_alone=False))
    drawn = ~jnp.isneginf(constrained)
    weights = jnp.where(drawn, raw - jax.lax.stop_gradient(jnp.where(drawn, constrained, 0.0)), _FORBIDDEN)
    return jax.nn.logsumexp(weights, axis=-1) - jnp.log(jnp.float32(raw.shape[-1]))


def _allowed_along(tables: ConstraintTables, state: ConstraintState, tokens: jax.Array, width: int) -> jax.Array:
    """The mask before every token, bool[B, T, width]; a token of -1 is none."""

    def step(state: ConstraintState, token: jax.Array) -> tuple[ConstraintState, jax.Array]:
        allowed = mask(tables, state, width=width)
        return advance(tables, state, token), allowed

    return jax.lax.scan(step, state, tokens.T)[1].swapaxes(0, 1)
