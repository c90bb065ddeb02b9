"""Thresholds of top-k, top-p and min-p: the least scaled logit that may still be drawn, exact, per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels.columns import Columns
from jax_decode.kernels.planes import HIGHEST, LOWEST, NEVER, allowed_logits, clean, column_max, drawable, planes, scaled
from jax_decode.kernels.vocabulary_shards import Part
from jax_decode.sampling.samplers import MinP, Sampler, TopK, TopP


class Allowed(NamedTuple):
    """The choices of every row.

    logits: float[B, V']; words: uint32[B, W], bit planes, or None for all; word_at: the words of columns int32[B, n], read from
    the tables so that no consumer needs `words` in memory; columns: how tokens lie in the words; listed: (token, allowed, clean
    logit) [B, M] of the candidate list, or None; part: on a device that has a shard of the vocabulary, which: all else is then of
    this shard, its tokens counted from the shard's first.
    """

    logits: jax.Array
    words: jax.Array | None
    word_at: Callable[[jax.Array], jax.Array]
    columns: Columns
    listed: tuple[jax.Array, jax.Array, jax.Array] | None
    part: Part | None = None

    @property
    def num_words(self) -> int:
        """W, words of a bit row."""
        return self.columns.num_words


def threshold_of(sampler: Sampler, allowed: Allowed, inverse: jax.Array | None) -> jax.Array | None:
    """The least scaled logit that `sampler` may draw, float32[B]; None when it draws among all allowed tokens.

    Tokens of equal logits are kept or dropped together.
    """
    match sampler:
        case TopK(k=k):
            return _kth_largest(allowed, inverse, k)
        case TopP(p=p):
            return _mass_threshold(allowed, inverse, jnp.asarray(p, jnp.float32))
        case MinP(p=p):
            best = _best(allowed, inverse)
            return jnp.maximum(best + jnp.log(jnp.asarray(p, jnp.float32)), LOWEST)
    return None


def _scaled_planes(allowed: Allowed, inverse: jax.Array | None) -> list[jax.Array]:
    """Scaled logits per plane, [B, W] each, -inf where not allowed."""
    return drawable(allowed_logits(planes(allowed.logits, allowed.words, allowed.num_words)), inverse, None)


def _listed(allowed: Allowed, inverse: jax.Array | None) -> jax.Array:
    """Scaled logits of the candidates, [B, M], -inf where not allowed; M may be 0."""
    if allowed.listed is None:
        return jnp.zeros((allowed.logits.shape[0], 0), jnp.float32)
    _, ok, x = allowed.listed
    return jnp.where(ok, scaled(x, inverse), NEVER)


def _column_best(allowed: Allowed, inverse: jax.Array | None) -> jax.Array:
    return column_max(_scaled_planes(allowed, inverse))


def _best(allowed: Allowed, inverse: jax.Array | None) -> jax.Array:
    listed = _listed(allowed, inverse)
    best = jnp.maximum(_column_best(allowed, inverse).max(1), listed.max(1, initial=-jnp.inf))
    return best if allowed.part is None else allowed.part.largest(best)


def _kth_largest(allowed: Allowed, inverse: jax.Array | None, k: int) -> jax.Array:
    """The k-th largest scaled logit, float32[B]; the lowest number where fewer than k tokens are allowed.

    The k largest tokens lie in the k columns of largest maximum, so only 32 k tokens are sorted.
    """
    logits, num_words = allowed.logits, allowed.num_words
    _, column = jax.lax.top_k(_column_best(allowed, inverse), min(k, num_words))
    count = -(-logits.shape[1] // num_words)
    token = column.astype(jnp.int32)[:, :, None] + (jnp.arange(min(count, 32), dtype=jnp.int32) * num_words)[None, None]
    ok = token < logits.shape[1]
    if allowed.words is not None:
        word = allowed.word_at(column)[:, :, None]
        ok &= ((word >> jnp.arange(token.shape[2], dtype=jnp.uint32)[None, None]) & 1) != 0
    batch = jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None, None]
    x = clean(logits[batch, jnp.minimum(token, logits.shape[1] - 1)])
    y = jnp.where(ok, scaled(x, inverse), NEVER).reshape(logits.shape[0], -1)
    y = jnp.concatenate([y, _listed(allowed, inverse)], 1)
    if allowed.part is not None:
        y = allowed.part.beside(jax.lax.top_k(y, min(k, y.shape[1]))[0])
    if y.shape[1] < k:
        return jnp.full(logits.shape[:1], LOWEST, jnp.float32)
    return jnp.maximum(jax.lax.top_k(y, k)[0][:, -1], LOWEST)


def _mass_threshold(allowed: Allowed, inverse: jax.Array | None, p: jax.Array) -> jax.Array:
    """The largest threshold whose tokens still have probability p, float32[B], by bisection over all float32 values.

    Every step is one pass over the logits; 32 steps pin down the exact border, whatever the distribution.
    """
    best = _best(allowed, inverse)
    base = jnp.where(best == NEVER, 0.0, best)
    listed = _listed(allowed, inverse)

    def mass(threshold: jax.Array) -> jax.Array:
        total = jnp.zeros((allowed.logits.shape[0], allowed.num_words), jnp.float32)
        for y in _scaled_planes(allowed, inverse):
            total += jnp.where(y >= threshold[:, None], jnp.exp(y - base[:, None]), 0.0)
        rest = jnp.where(listed >= threshold[:, None], jnp.exp(listed - base[:, None]), 0.0)
        whole = total.sum(1) + rest.sum(1)
        return whole if allowed.part is None else allowed.part.total(whole)

    lowest = jnp.full(best.shape, LOWEST, jnp.float32)
    wanted = p * mass(lowest)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        lo, hi = ends
        middle = (lo & hi) + ((lo ^ hi) >> 1)  # of two integers without overflow, rounded down
        enough = mass(_from_order(middle)) >= wanted
        return jnp.where(enough, middle, lo), jnp.where(enough, hi, middle)

    ends = _to_order(lowest), _to_order(jnp.full(best.shape, HIGHEST, jnp.float32)) + 1
    lo, _ = jax.lax.fori_loop(0, 32, halve, ends)
    return jnp.where(p >= 1, lowest, _from_order(lo))


def _to_order(x: jax.Array) -> jax.Array:
    """int32 with the order of the floats."""
    i = jax.lax.bitcast_convert_type(x, jnp.int32)
    return jnp.where(i < 0, i ^ jnp.int32(0x7FFFFFFF), i)


def _from_order(i: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(jnp.where(i < 0, i ^ jnp.int32(0x7FFFFFFF), i), jnp.float32)
