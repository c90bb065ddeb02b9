"""Chooses one allowed token per row, with its log-probabilities, without ever building a `[B, V]` array.

Drawing is exact and in two levels. The allowed tokens fall into W columns of 32 (one mask word each) and a short candidate list.
First a column or a candidate wins by the Gumbel maximum of its log-mass, then a token of the winning column by the Gumbel
maximum of its logit. That takes W + 32 random numbers per row where drawing among the logits takes V, has no running sum whose
rounding could select a token without mass, and does not depend on the order in which a device adds.

Source: Gumbel-max: Maddison, Tarlow, Minka 2014, A* Sampling §2; max-stability is what makes two levels exact.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.masking import MaskParts, mask_parts
from jax_decode.noise import gumbel
from jax_decode.planes import NEVER, clean, log_add, log_sum, scaled
from jax_decode.reading import read
from jax_decode.samplers import Greedy, Sampler
from jax_decode.state import NO_NUMBER, ConstraintState
from jax_decode.summary import NO_ITEM, Noise, summarize
from jax_decode.tables import ConstraintTables, words_for
from jax_decode.truncation import Allowed, threshold_of


class Choice(NamedTuple):
    """What `sample` returns.

    token: int32[B], -1 where nothing is allowed; logprob: float32[B], log-probability over the allowed tokens in nats;
    raw_logprob: float32[B], log-probability over all logits. Both at temperature 1, before any truncation.
    """

    token: jax.Array
    logprob: jax.Array
    raw_logprob: jax.Array


def sample(
    sampler: Sampler,
    logits: jax.Array,
    key: jax.Array,
    step: jax.Array,
    tables: ConstraintTables | None = None,
    state: ConstraintState | None = None,
    *,
    with_raw: bool = True,
) -> Choice:
    """Chooses a token for every row.

    Args:
      sampler: one of `jax_decode.samplers`.
      logits: float[B, V'] (float32 or bfloat16), V' at least `tables.vocab_size`.
      key: uint32[B, 2] from `noise.key_words`, one per row.
      step: uint32[B], position in each row's own text; a row's noise depends on its key and this alone.
      tables: the constraints, or None: then every id is allowed.
      state: where every row stands; needed with tables.
      with_raw: static; False saves the work of the raw log-probabilities, which are then NaN in constrained batches.

    Returns:
      The tokens and their log-probabilities.
    """
    if tables is None or state is None:
        allowed = among(logits, None, words_for(logits.shape[1]))
    else:
        allowed = among(logits, mask_parts(tables, state), tables.num_words)
    return choose(sampler, allowed, key, step, with_raw=with_raw)


def among(logits: jax.Array, parts: MaskParts | None, num_words: int) -> Allowed:
    """Logits float[B, V'] and what a mask (None: everything) allows of them; `num_words` is W."""
    if parts is None:
        return Allowed(logits, None, lambda column: column.astype(jnp.uint32), num_words, None)
    listed = (parts.token, parts.allowed, clean(_take(logits, parts.token)))
    return Allowed(logits, parts.words, parts.word_at, num_words, listed)


def choose(sampler: Sampler, allowed: Allowed, key: jax.Array, step: jax.Array, *, with_raw: bool = True) -> Choice:
    """Chooses a token for every row of `among(...)`; the other arguments are those of `sample`."""
    logits, words, num_words, listed = allowed.logits, allowed.words, allowed.num_words, allowed.listed
    if isinstance(sampler, Greedy):
        inverse, threshold = None, None
    else:
        inverse = None if sampler.temperature is None else 1.0 / jnp.asarray(sampler.temperature, jnp.float32)
        threshold = threshold_of(sampler, allowed, inverse)
    noise = None if isinstance(sampler, Greedy) else Noise(key, step)
    score, item, allowed_sum, raw_sum = summarize(
        logits, words, num_words, noise=noise, inverse=inverse, threshold=threshold, with_raw=with_raw or words is None
    )
    if noise is None:
        chosen, value = item, score
    else:
        chosen, value = _within_column(allowed, item, inverse, threshold, noise)
    if listed is not None:
        token, ok, x = listed
        best, candidate = _best_candidate(token, ok, x, inverse, threshold, noise, num_words + 32)
        wins = (best > score) | ((best == score) & (candidate < chosen))
        chosen = jnp.where(wins, candidate, chosen)
        listed_value = jnp.where(ok & (token == candidate[:, None]), x, NEVER).max(1)
        value = jnp.where(wins, listed_value, value)
        score = jnp.maximum(score, best)
        allowed_sum = log_add(allowed_sum, log_sum(jnp.where(ok, x, NEVER)))
    return Choice(jnp.where(score == NEVER, -1, chosen), value - allowed_sum, value - raw_sum)


def checked(token: jax.Array, logits: jax.Array) -> jax.Array:
    """Chosen tokens int32[B], `NO_NUMBER` where the logit is NaN.

    Choosing takes NaN for the least probable, so there was nothing else.

    Args:
      token: -1 where nothing is allowed.
      logits: float[B, V'], those it was chosen by.
    """
    own = _take(logits, jnp.clip(token, 0, logits.shape[1] - 1)[:, None])[:, 0]
    return jnp.where((token >= 0) & jnp.isnan(own), NO_NUMBER, token)


def _within_column(
    allowed: Allowed,
    column: jax.Array,
    inverse: jax.Array | None,
    threshold: jax.Array | None,
    noise: Noise,
) -> tuple[jax.Array, jax.Array]:
    """Draws one token of each row's column: the token and its clean logit, [B] each."""
    logits, num_words = allowed.logits, allowed.num_words
    column = jnp.minimum(column, num_words - 1)  # a row that allows nothing has no column
    count = -(-logits.shape[1] // num_words)
    plane = jnp.arange(min(count, 32), dtype=jnp.int32)[None]
    token = column[:, None] + plane * num_words
    x = clean(_take(logits, jnp.minimum(token, logits.shape[1] - 1)))
    ok = token < logits.shape[1]
    if allowed.words is not None:
        word = allowed.word_at(column[:, None])
        ok &= ((word >> plane.astype(jnp.uint32)) & 1) != 0
    y = scaled(x, inverse)
    if threshold is not None:
        ok &= y >= threshold[:, None]
    score = jnp.where(ok, y + gumbel(*noise, (num_words + plane).astype(jnp.uint32)), NEVER)
    at = jnp.argmax(score, 1).astype(jnp.int32)[:, None]
    return column + at[:, 0] * num_words, jnp.take_along_axis(x, at, 1)[:, 0]


def _best_candidate(
    token: jax.Array,
    ok: jax.Array,
    x: jax.Array,
    inverse: jax.Array | None,
    threshold: jax.Array | None,
    noise: Noise | None,
    base: int,
) -> tuple[jax.Array, jax.Array]:
    """Score and token of each row's best candidate; among equals the lowest id."""
    y = scaled(x, inverse)
    if threshold is not None:
        ok = ok & (y >= threshold[:, None])
    if noise is not None:
        y = y + gumbel(*noise, jnp.arange(base, base + x.shape[1], dtype=jnp.uint32)[None])
    score = jnp.where(ok, y, NEVER)
    best = score.max(1)
    return best, jnp.where(score == best[:, None], token, jnp.int32(NO_ITEM)).min(1)


def _take(logits: jax.Array, index: jax.Array) -> jax.Array:
    """logits[b, index[b, i]]."""
    return read(logits, jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None], index)
