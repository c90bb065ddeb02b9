"""The choices of every row of a batch, and the best of them, by columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels import one_pass
from jax_decode.kernels.blocks import SMALL
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import read
from jax_decode.kernels.planes import (
    NEVER,
    Planes,
    allowed_logits,
    clean,
    column_max,
    column_max_in_memory,
    drawable,
    planes,
    scaled,
)
from jax_decode.kernels.target import target
from jax_decode.kernels.vocabulary_shards import Part
from jax_decode.sampling.samplers import Greedy, Sampler, is_one

_GROUP = 8
"""Columns that are one in a first choice of the largest few."""


class Allowed(NamedTuple):
    """The choices of every row.

    logits: float[B, V'], or `Projected` on the way of a kernel for it; words: uint32[B, W], bit planes, or None for all; word_at:
    the words of columns int32[B, n], read from the tables so that no consumer needs `words` in memory; columns: how tokens lie in
    the words; listed: (token, allowed, clean logit) [B, M] of the candidate list, or None; part: on a device that has a shard of
    the vocabulary, which: all else is then of this shard, its tokens counted from the shard's first; inverse, union: see
    `MaskParts`.
    """

    logits: Any
    words: jax.Array | None
    word_at: Callable[[jax.Array], jax.Array]
    columns: Columns
    listed: tuple[jax.Array, jax.Array, jax.Array] | None
    part: Part | None = None
    inverse: jax.Array | None = None
    union: tuple[jax.Array, jax.Array] | None = None

    @property
    def num_words(self) -> int:
        """W, words of a bit row."""
        return self.columns.num_words


def inverse_of(sampler: Sampler, allowed: Allowed) -> jax.Array | None:
    """Inverse temperature: float32[], or float32[B, 1] where constraints have temperatures; None for 1, and for `Greedy`."""
    if isinstance(sampler, Greedy):
        return None
    own = None if is_one(sampler.temperature) else 1.0 / jnp.asarray(sampler.temperature, jnp.float32)
    if allowed.inverse is None:
        return own
    return jnp.where(allowed.inverse == jnp.inf, 1.0 if own is None else own, allowed.inverse)[:, None]


def scaled_planes(allowed: Allowed, inverse: jax.Array | None) -> list[jax.Array]:
    """Scaled logits per plane, [B, W] each, -inf where not allowed."""
    return drawable(allowed_logits(planes(allowed.logits, allowed.words, allowed.num_words)), inverse, None)


def listed_logits(allowed: Allowed, inverse: jax.Array | None) -> jax.Array:
    """Scaled logits of the candidates, [B, M], -inf where not allowed; M may be 0."""
    if allowed.listed is None:
        return jnp.zeros((allowed.logits.shape[0], 0), jnp.float32)
    _, ok, x = allowed.listed
    return jnp.where(ok, scaled(x, inverse), NEVER)


def column_best_logits(allowed: Allowed, inverse: jax.Array | None, high: jax.Array | None = None) -> jax.Array:
    """Largest scaled logit of every column, float32[B, W], -inf where none is allowed; below `high` float32[B], if given."""

    def kept(x: jax.Array, *limits: jax.Array) -> jax.Array:
        """Without the logits that are not below the limit; `limits`: it, and the inverse temperature, [n, 1] each, if given."""
        if not limits:
            return x
        return jnp.where(scaled(x, limits[1] if len(limits) > 1 else None) < limits[0], x, NEVER)

    def of_planes(logits: jax.Array, words: jax.Array | None, *limits: jax.Array) -> jax.Array:
        return column_max([kept(x, *limits) for x in allowed_logits(planes(logits, words, num_words))])

    def by_kernel(logits: jax.Array, words: jax.Array | None) -> jax.Array:
        def most(parts: Planes, _: jax.Array) -> jax.Array:
            return column_max(allowed_logits(parts))

        return one_pass.mapped(most, one_pass.Read(logits, words, num_words))

    def in_memory(logits: jax.Array, words: jax.Array | None, *limits: jax.Array) -> jax.Array:
        return column_max_in_memory(kept(clean(logits), *limits), words, num_words)

    num_words = allowed.num_words
    limits = [] if high is None else [high[:, None]]
    if high is not None and inverse is not None:
        limits.append(jnp.broadcast_to(inverse, (len(high), 1)))
    forms: dict[str, Callable[..., jax.Array]] = {} if allowed.logits.size < SMALL else {"cpu": in_memory}
    if one_pass.wanted("tpu") and allowed.part is None and high is None:
        forms["tpu"] = by_kernel
    best = jax.lax.platform_dependent(allowed.logits, allowed.words, *limits, default=of_planes, **forms)
    return drawable([best], inverse, None)[0]


def best_logit(allowed: Allowed, inverse: jax.Array | None) -> jax.Array:
    listed = listed_logits(allowed, inverse)
    return best_of(allowed, column_best_logits(allowed, inverse), listed)


def best_of(allowed: Allowed, top: jax.Array, listed: jax.Array) -> jax.Array:
    best = jnp.maximum(top.max(1), listed.max(1, initial=-jnp.inf))
    return best if allowed.part is None else allowed.part.largest(best)


def best_of_columns(allowed: Allowed, inverse: jax.Array | None, k: int, high: jax.Array | None = None) -> jax.Array:
    """Scaled logits float32[B, n] among which the k largest allowed ones are, of those below `high` if given; else -inf."""
    most = column_best_logits(allowed, inverse, high)
    logits, num_words = allowed.logits, allowed.num_words
    _, column = jax.lax.top_k(most, min(k, num_words))
    count = -(-logits.shape[1] // num_words)
    token = column.astype(jnp.int32)[:, :, None] + (jnp.arange(min(count, 32), dtype=jnp.int32) * num_words)[None, None]
    ok = token < logits.shape[1]
    if allowed.words is not None:
        word = allowed.word_at(column)[:, :, None]
        ok &= ((word >> jnp.arange(token.shape[2], dtype=jnp.uint32)[None, None]) & 1) != 0
    batch = jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None, None]
    x = clean(read(logits, batch, jnp.minimum(token, logits.shape[1] - 1), rows=None))
    y = jnp.where(ok.reshape(len(x), -1), scaled(x.reshape(len(x), -1), inverse), NEVER)
    y = jnp.concatenate([y, listed_logits(allowed, inverse)], 1)
    y = y if high is None else jnp.where(y < high[:, None], y, NEVER)
    return y if allowed.part is None else allowed.part.beside(largest(y, min(k, y.shape[1])))


def largest_columns(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k largest numbers of rows float32[B, W], descending, and their places int32[B, k]. For a CPU, whose time for this grows
    with W: the largest of groups tell the groups that they are in."""
    groups = x.shape[1] // _GROUP
    if x.shape[1] % _GROUP or groups < 2 * k:
        return jax.lax.top_k(x, k)
    _, group = jax.lax.top_k(x.reshape(len(x), _GROUP, groups).max(1), k)
    place = (group[:, None] + groups * jnp.arange(_GROUP, dtype=jnp.int32)[None, :, None]).reshape(len(x), -1)
    most, among = jax.lax.top_k(jnp.take_along_axis(x, place, 1), k)
    return most, jnp.take_along_axis(place, among, 1)


def largest(y: jax.Array, k: int) -> jax.Array:
    """The k largest, descending; the last of them is best taken as the least, or XLA sorts all for it."""
    if target() == "tpu":  # whose compiler sorts all in any case, for this function with their places
        return jax.lax.rev(jax.lax.sort(y, is_stable=False)[:, y.shape[1] - k :], (1,))
    return jax.lax.top_k(y, k)[0]
