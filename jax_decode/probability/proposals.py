"""How a particle's next token is drawn: by masking, or by rejection. Each draw has a weight whose mean is the allowed mass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fsa_compile.errors import named_fields
from jax_decode.errors import DecodeError, is_whole, named_arguments, shown
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import read
from jax_decode.kernels.planes import NEVER, clean, log_add, log_sum
from jax_decode.kernels.row_layout import words_for
from jax_decode.sampling.samplers import Categorical
from jax_decode.sampling.sampling import Choice, among, choose, sample
from jax_decode.step.argument_checks import kind_of
from jax_decode.step.masking import mask_parts
from jax_decode.step.state import ConstraintState
from jax_decode.tables.tables import ConstraintTables

_PLAIN = Categorical(None)  # temperature 1, as `samplers.prepared` writes it


@named_fields
@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Masked:
    """Draws among the allowed tokens; the weight is their mass."""


@named_fields
@functools.partial(jax.tree_util.register_dataclass, data_fields=["max_rejects"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Rejection:
    """Adaptive weighted rejection sampling: draws from the model's own distribution, without replacement, until one is allowed.

    The token has the same distribution as with `Masked`; the weight is a random number whose mean, given the token, is the
    allowed mass. In this package a mask costs less than one draw, so `Masked` is both faster and less noisy; this is for checks
    that have no mask, see `weighted_rejection`.

    Attributes:
      max_rejects: after this many rejected tokens the mask is used after all; traced.
    """

    max_rejects: Any = 32


@named_fields
@functools.partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["candidates", "slots"])
@dataclasses.dataclass(frozen=True)
class LookAhead:
    """Draws among the allowed tokens, weighted by an estimate of the probability that a text completes behind them.

    The estimates are a table on the device, one number for each place in the constraint and last token, learned while rows are
    drawn. Weights are unbiased whatever it says; they are the more even the better it is. A mask alone goes where completions are
    improbable, and loses particles there.

    Attributes:
      candidates: how many of the most probable allowed tokens are looked behind, in every step of every row; each costs a step of
        the constraint.
      slots: numbers in the table; places that share one share its estimate.
      values: float32[slots], logarithms of the estimates, 0 where nothing is known; None at first. `WeightedGeneration.proposal`
        has what was learned, for the next call.
    """

    candidates: int = 32
    slots: int = 4096
    values: Any = None

    def with_values(self, values: Any) -> LookAhead:
        """With another table."""
        return dataclasses.replace(self, values=values)


Proposal = Masked | Rejection | LookAhead


class Draw(NamedTuple):
    """token: int32[B], -1 where nothing is allowed; log_weight: float32[B], -inf there; raw_logprob: float32[B]; draws: int32[B],
    tokens drawn from the model's own distribution; twist: float32[B], logarithm of what the token's probability was multiplied
    by."""

    token: jax.Array
    log_weight: jax.Array
    raw_logprob: jax.Array
    draws: jax.Array
    twist: Any = 0.0


def check_proposal(proposal: Any) -> None:
    """Raises `DecodeError` unless it is a proposal whose numbers make sense."""
    if not isinstance(proposal, Proposal):
        raise DecodeError(f"the proposal is {shown(proposal)}", fix="Give Masked(), Rejection(max_rejects) or LookAhead().")
    if isinstance(proposal, LookAhead):
        for name in ("candidates", "slots"):
            value = getattr(proposal, name)
            if not is_whole(value, 1, 1 << 24):
                raise DecodeError(f"{name} is {shown(value)}", where="LookAhead", fix="Give a whole number from 1 to 16,777,216.")
        values = proposal.values
        if values is not None and kind_of(values) not in (f"float32[{proposal.slots}]", f"float64[{proposal.slots}]"):
            what = f"the values are {kind_of(values)}, not float32[{proposal.slots}], one for each slot"
            raise DecodeError(what, where="LookAhead", fix="Pass WeightedGeneration.proposal of an earlier call, or no values.")
    if isinstance(proposal, Rejection):
        most = proposal.max_rejects
        if not is_whole(most, 0, 1 << 16):
            raise DecodeError(f"max_rejects is {shown(most)}", where="Rejection", fix="Give a whole number from 0 to 65,536.")


def draw(
    proposal: Masked | Rejection,
    logits: jax.Array,
    key: jax.Array,
    step: jax.Array,
    tables: ConstraintTables,
    state: ConstraintState,
) -> Draw:
    """Draws a token for every row; see `sampling.sample` for the arguments."""
    if isinstance(proposal, Masked):
        return _by_mask(sample(_PLAIN, logits, key, step, tables, state))
    parts = mask_parts(tables, state)

    def allowed(token: jax.Array) -> jax.Array:
        column, plane = tables.columns.place(token)
        bit = (parts.word_at(column[:, None])[:, 0] >> jnp.minimum(plane, 31).astype(jnp.uint32)) & 1
        listed = (parts.allowed & (parts.token == token[:, None])).any(1)
        return ((bit != 0) & (plane < 32)) | listed

    def masked(counter: jax.Array) -> Choice:
        return sample(_PLAIN, logits, key, counter, tables, state)

    most = jnp.asarray(proposal.max_rejects, jnp.int32)
    return weighted_rejection(logits, key, step, allowed, masked, most, state.running, columns=tables.columns)


class _Trials(NamedTuple):
    """left: float32[B, V'], logits of the tokens not rejected; tries: int32[], draws so far; rejects: int32[B]; fresh: bool[B],
    whether the next draw is the first one with these tokens left; log_sum: float32[B], log of the sum of 1 / (mass left) so far;
    first: int32[B], the first token that was allowed, or -1; done: bool[B], whether a second one was; draws: int32[B]."""

    left: jax.Array
    tries: jax.Array
    rejects: jax.Array
    fresh: jax.Array
    log_sum: jax.Array
    first: jax.Array
    done: jax.Array
    draws: jax.Array


@named_arguments
def weighted_rejection(
    logits: jax.Array,
    key: jax.Array,
    step: jax.Array,
    allowed: Callable[[jax.Array], jax.Array],
    masked: Callable[[jax.Array], Choice],
    max_rejects: jax.Array,
    needed: jax.Array,
    *,
    columns: Columns | None = None,
) -> Draw:
    """A properly weighted draw of an allowed token, with `allowed` asked about one token per row at a time.

    Tokens are drawn by the model's probabilities p; a rejected one is not drawn again. The first allowed token x is the draw.
    Then, with x put back and the rejected ones still away, drawing goes on to a second allowed token. With r rejections in all,
    and m_i the mass left after i of them, the weight is w = 1 / (1/m_0 + … + 1/m_r).

    Why E[w | x] = Z, the allowed mass. Fix the order in which tokens would be rejected. A draw after i rejections is allowed with
    probability a_i = Z / m_i, whichever x is. The first allowed token comes after i rejections and the second after r >= i with
    probability (1 - a_0) … (1 - a_{r-1}) a_r · a_i. Summed over i that is P(first one after r) · Z · (1/m_0 + … + 1/m_r), which
    w turns into P(first one after r) · Z; summed over r, Z. With replacement, m_i = 1, w is the usual estimator (2 - 1) / (n - 1)
    of n draws up to the second success. Where D rejections come first, the mask gives x, if there is none yet, and Z, and
    w = 1 / (1/m_0 + … + 1/m_{D-1} + 1/Z). That event has probability (1 - a_0) … (1 - a_{D-1}) (1 + a_0 + … + a_{D-1}), so it
    adds (1 - a_0) … (1 - a_{D-1}) Z to the mean, just what the sum over r < D leaves out.

    Source: Lipkin et al. 2025, Fast Controlled Generation from Language Models with Adaptive Weighted Rejection Sampling (the
    scheme; the bounded form and this derivation are our own).

    Args:
      logits: float[B, V'].
      key: uint32[B, 2]; step: uint32[B]; see `sampling.sample`.
      allowed: tokens int32[B] -> bool[B]; any JAX function.
      masked: counter uint32[B] -> a choice by mask with raw log-probabilities, for rows that reach the limit.
      max_rejects: int32[], D.
      needed: bool[B], rows whose draw matters.
      columns: `tables.columns`, where the logits are spread over devices as those of tables; else they are exchanged.
    """
    x = clean(logits)
    whole, first = log_sum(x), step * (2 * max_rejects + 3).astype(jnp.uint32)  # no two draws of a row share a counter
    columns = Columns(words_for(x.shape[1])) if columns is None or columns.shards is None else columns
    t = _trials(x, key, first, allowed, max_rejects, needed, columns)

    def by_mask() -> Draw:
        return _by_mask(masked(first + (2 * max_rejects + 2).astype(jnp.uint32)))

    def nothing() -> Draw:
        return Draw(t.first, whole, whole, jnp.zeros_like(t.first))

    exact = jax.lax.cond((needed & ~t.done).any(), by_mask, nothing)
    own = read(x, jnp.arange(x.shape[0], dtype=jnp.int32), jnp.maximum(t.first, 0)) - whole
    return Draw(
        token=jnp.where(t.first >= 0, t.first, exact.token),
        log_weight=-jnp.where(t.done, t.log_sum, log_add(t.log_sum, -exact.log_weight)),
        raw_logprob=jnp.where(t.first >= 0, own, exact.raw_logprob),
        draws=t.draws,
    )


def _trials(
    x: jax.Array,
    key: jax.Array,
    first: jax.Array,
    allowed: Callable[[jax.Array], jax.Array],
    max_rejects: jax.Array,
    needed: jax.Array,
    columns: Columns,
) -> _Trials:
    """Draws until every row has met two allowed tokens, or has rejected the most.

    Args:
      x: float32[B, V'], clean logits; first: uint32[B], the counter of a row's first draw, which the others follow.
      key, allowed, max_rejects, needed, columns: see `weighted_rejection`.
    """
    whole, rows = log_sum(x), jnp.arange(x.shape[0], dtype=jnp.int32)

    def try_once(t: _Trials) -> _Trials:
        choice = choose(_PLAIN, among(t.left, None, columns), key, first + t.tries.astype(jnp.uint32))
        token = choice.token
        log_left = read(x, rows, token) - choice.raw_logprob - whole
        active = ~t.done & (t.rejects < max_rejects)
        ok = allowed(token)
        reject = active & ~ok
        return _Trials(
            left=t.left.at[rows, jnp.where(reject, token, x.shape[1])].set(NEVER, mode="drop"),
            tries=t.tries + 1,
            rejects=t.rejects + reject.astype(jnp.int32),
            fresh=reject,
            log_sum=jnp.where(active & t.fresh, log_add(t.log_sum, -log_left), t.log_sum),
            first=jnp.where(active & ok & (t.first < 0), token, t.first),
            done=t.done | (active & ok & (t.first >= 0)),
            draws=t.draws + active.astype(jnp.int32),
        )

    def going(t: _Trials) -> jax.Array:
        return (needed & ~t.done & (t.rejects < max_rejects)).any()

    zeros = jnp.zeros(len(rows), jnp.int32)
    start = _Trials(
        left=x,
        tries=jnp.int32(0),
        rejects=zeros,
        fresh=jnp.ones(len(rows), bool),
        log_sum=jnp.full(len(rows), NEVER, jnp.float32),
        first=zeros - 1,
        done=jnp.zeros(len(rows), bool),
        draws=zeros,
    )
    return jax.lax.while_loop(going, try_once, start)


def _by_mask(choice: Choice) -> Draw:
    drawn = choice.token >= 0
    weight = jnp.where(drawn, choice.raw_logprob - choice.logprob, NEVER)
    return Draw(choice.token, weight, jnp.where(drawn, choice.raw_logprob, 0.0), jnp.zeros_like(choice.token))
