"""Logits in 32 planes: elementwise expressions over columns that meet mask bit and logit without unpacking a mask.

Column j holds the tokens `b * W + j`; plane b of it is bit b of mask word j. Plane b of the logits is the contiguous slice
`[b * W, (b + 1) * W)`, so there is no `[B, V]` mask, no relayout, and a compiler can read every logit once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

LOWEST, HIGHEST = -3e38, 3e38
"""Logits are clamped to these, so that -inf and NaN are improbable yet allowed, and sums stay defined."""
NEVER = -jnp.inf
"""Score of what is not allowed; every allowed token scores more."""

_TOGETHER = 8
"""Planes whose largest logits are worked out together on a CPU."""

Planes = list[tuple[jax.Array, jax.Array | None]]
"""Clean logits float32[B, W] of every plane, -inf past the last logit, and which are allowed (None: all)."""


def clean(logits: jax.Array) -> jax.Array:
    """Logits as float32, finite: NaN and -inf become the lowest number, +inf the highest."""
    x = logits.astype(jnp.float32)
    return jnp.minimum(jnp.where(x > LOWEST, x, LOWEST), HIGHEST)


def scaled(x: jax.Array, inverse: jax.Array | None) -> jax.Array:
    """Clean logits times the inverse temperature, clamped again; None stands for temperature 1."""
    if inverse is None:
        return x
    return jnp.clip(x * inverse, LOWEST, HIGHEST)


def to_order(x: jax.Array) -> jax.Array:
    """int32 with the order of the floats."""
    i = jax.lax.bitcast_convert_type(x, jnp.int32)
    return jnp.where(i < 0, i ^ jnp.int32(0x7FFFFFFF), i)


def from_order(i: jax.Array) -> jax.Array:
    """The floats of `to_order`."""
    return jax.lax.bitcast_convert_type(jnp.where(i < 0, i ^ jnp.int32(0x7FFFFFFF), i), jnp.float32)


def finite(x: jax.Array) -> jax.Array:
    """x with 0 in place of -inf: a reference that can be subtracted."""
    return jnp.where(x == NEVER, 0.0, x)


def log_add(a: jax.Array, b: jax.Array) -> jax.Array:
    """log(exp a + exp b), also of two -inf."""
    hi, lo = jnp.maximum(a, b), jnp.minimum(a, b)
    return jnp.where(hi == NEVER, NEVER, hi + jnp.log1p(jnp.exp(lo - hi)))


def log_sum(x: jax.Array) -> jax.Array:
    """Log-sum-exp over the last axis, -inf for none; its gradient is 0 there and not NaN."""
    base = jax.lax.stop_gradient(x.max(-1))
    # The condition stands beside the exponential and not beside the base, which would be an operation of its own on a TPU.
    total = jnp.exp(jnp.where(x == NEVER, NEVER, x - base[..., None])).sum(-1)
    return base + jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1.0)), NEVER)


ORDINARY = (1e-20, 1e30)
"""Sums of exponentials between these lost nothing: no term overflowed, and those that underflowed are too small to be seen."""


def plain_log_sum(logits: jax.Array) -> jax.Array:
    """Log-sum-exp of rows float[R, V'], float32[R]; NaN where a logit is NaN or +inf, or all are -inf: clean those rows first."""
    x = logits.astype(jnp.float32)
    return jax.lax.platform_dependent(x, cpu=_mostly_without_maximum, default=_beside_maximum)


def _beside_maximum(x: jax.Array) -> jax.Array:
    most = x.max(1)
    return most + jnp.log(jnp.exp(x - most[:, None]).sum(1))


def _mostly_without_maximum(x: jax.Array) -> jax.Array:
    """For a CPU, which works for every pass. Which way a row goes depends on its own logits alone."""
    total = jnp.exp(x).sum(1)
    ordinary = (total > ORDINARY[0]) & (total < ORDINARY[1])
    of_ordinary = jnp.log(total)
    return jax.lax.cond(ordinary.all(), lambda: of_ordinary, lambda: jnp.where(ordinary, of_ordinary, _beside_maximum(x)))


def log_shares(x: jax.Array) -> jax.Array:
    """Log-probabilities over the last axis of clean logits; NaN where no logit is a number."""
    total = log_sum(x)[..., None]
    return jnp.where(total > LOWEST, x - total, jnp.nan)


def planes(logits: jax.Array, words: jax.Array | None, num_words: int) -> Planes:
    """The planes of logits float[B, V'] under bit planes uint32[B, W] of the allowed tokens (None: all are)."""
    out: Planes = []
    for b in range(-(-logits.shape[1] // num_words)):
        lo, hi = b * num_words, min((b + 1) * num_words, logits.shape[1])
        x = jnp.pad(clean(logits[:, lo:hi]), ((0, 0), (0, num_words - (hi - lo))), constant_values=NEVER)
        ok = None
        if words is not None:  # logits past plane 31 belong to no token of the vocabulary
            ok = (words & jnp.uint32(1 << b)) != 0 if b < 32 else jnp.zeros(words.shape, bool)
        out.append((x, ok))
    return out


def cut(x: jax.Array, words: jax.Array | None, num_words: int, fill: float) -> Iterator[jax.Array]:
    """The planes of numbers [B, V'] of every logit, [B, W] each, `fill` where not allowed (`words` None: none) and past the end.

    For a CPU's compiler: of numbers that lie in memory, or it works them out once for every plane, in a loop of its own each.
    """
    for b in range(-(-x.shape[1] // num_words)):
        part = x[:, b * num_words : (b + 1) * num_words]
        part = jnp.pad(part, ((0, 0), (0, num_words - part.shape[1])), constant_values=fill)
        if words is not None:  # logits past plane 31 belong to no token of the vocabulary
            part = jnp.where((words & jnp.uint32(1 << b)) != 0, part, fill) if b < 32 else jnp.full_like(part, fill)
        yield part


def bit_planes(words: jax.Array, count: int) -> jax.Array:
    """The first planes of words uint32[B, W], bool[B, count, W]; none past plane 31: logits there belong to no token."""
    return ((words[:, None] >> jnp.arange(count, dtype=jnp.uint32)[None, :, None]) & 1) != 0


def by_planes(x: jax.Array, words: jax.Array | None, num_words: int, fill: float | jax.Array) -> tuple[jax.Array, jax.Array]:
    """Numbers [n, V'] of every logit by planes, [n, planes, W], and those of none that is whole; `fill` where not allowed."""
    count = x.shape[1] // num_words if words is None else min(x.shape[1] // num_words, 32)
    whole, rest = x[:, : count * num_words].reshape(len(x), count, num_words), x[:, count * num_words :]
    if words is None:
        return whole, rest
    whole = jnp.where(bit_planes(words, count), whole, fill)
    if count == 32:  # logits past plane 31 belong to no token of the vocabulary
        return whole, jnp.full_like(rest, fill)
    return whole, jnp.where((words[:, : rest.shape[1]] & jnp.uint32(1 << count)) != 0, rest, fill)


def column_max_in_memory(x: jax.Array, words: jax.Array | None, num_words: int) -> jax.Array:
    """`column_max` of `cut` with fill -inf, for a CPU.

    Maxima of integers, of some planes each: the compiler works them out in one loop that reads every logit once. Those of floats
    are calls, which read what is written for them; a loop over all planes reads lines that drive each other out of a cache.
    """
    lowest = to_order(jnp.float32(NEVER))
    whole, rest = by_planes(to_order(x), words, num_words, lowest)
    most = jnp.full((len(x), num_words), lowest)
    for first in range(0, whole.shape[1], _TOGETHER):
        most = jnp.maximum(most, whole[:, first : first + _TOGETHER].max(1))
    if 0 < rest.shape[1] < num_words:
        most = jnp.concatenate([jnp.maximum(most[:, : rest.shape[1]], rest), most[:, rest.shape[1] :]], 1)
    return from_order(most)


def allowed_logits(parts: Planes) -> list[jax.Array]:
    """Logits per plane, -inf where not allowed."""
    return [x if ok is None else jnp.where(ok, x, NEVER) for x, ok in parts]


def drawable(values: Sequence[jax.Array], inverse: jax.Array | None, threshold: jax.Array | None) -> list[jax.Array]:
    """Values at a temperature, -inf below the row's threshold, float32[B] or [B, 1]; -inf stays."""
    out = [x if inverse is None else jnp.where(x == NEVER, NEVER, scaled(x, inverse)) for x in values]
    return out if threshold is None else [jnp.where(y >= threshold.reshape(-1, 1), y, NEVER) for y in out]


def column_max(values: Sequence[jax.Array]) -> jax.Array:
    """Largest value of every column, float32[B, W]."""
    return functools.reduce(jnp.maximum, values)


def column_best(values: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Largest value of every column, float32[B, W], and the first plane that has it, int32[B, W]."""
    best, plane = values[0], jnp.zeros(values[0].shape, jnp.int32)
    for b, value in enumerate(values[1:], 1):
        plane, best = jnp.where(value > best, b, plane), jnp.maximum(best, value)  # as in `column_max`: worked out once
    return best, plane


class Sum(NamedTuple):
    """A sum of exponentials: `total` of those relative to `finite(most)`, where `most` is the largest exponent, -inf for none."""

    most: jax.Array
    total: jax.Array

    @property
    def log(self) -> jax.Array:
        """Its logarithm, -inf for none."""
        return finite(self.most) + jnp.log(self.total)


def both(a: Sum, b: Sum) -> Sum:
    """The sum of both."""
    most = jnp.maximum(a.most, b.most)
    base = finite(most)
    return Sum(most, a.total * jnp.exp(a.most - base) + b.total * jnp.exp(b.most - base))


def column_sum(values: Sequence[jax.Array], exp: Callable[[jax.Array], jax.Array] = jnp.exp) -> Sum:
    """Sum of the exponentials of every column, [B, W]."""
    most = column_max(values)
    base = finite(most)
    return Sum(most, functools.reduce(jnp.add, [exp(x - base) for x in values]))


def column_sums(parts: Planes) -> tuple[Sum, Sum]:
    """The same over the allowed logits of every column, and over the others.

    A token is either allowed or not, so one exponential per logit serves both sums: each is taken relative to the maximum
    of its own kind, and neither can underflow.
    """
    most = column_max(allowed_logits(parts))
    other = column_max([x if ok is None else jnp.where(ok, NEVER, x) for x, ok in parts])
    inside, outside = [], []
    for x, ok in parts:
        assert ok is not None
        e = jnp.exp(x - jnp.where(ok, finite(most), finite(other)))
        inside.append(jnp.where(ok, e, 0.0))
        outside.append(jnp.where(ok, 0.0, e))
    return Sum(most, functools.reduce(jnp.add, inside)), Sum(other, functools.reduce(jnp.add, outside))


def column_log_sum(values: Sequence[jax.Array]) -> jax.Array:
    """Log-sum-exp of every column, float32[B, W], -inf for none."""
    return column_sum(values).log


def column_log_sums(parts: Planes) -> tuple[jax.Array, jax.Array]:
    """Log-sum-exp of every column over its allowed logits and over all, float32[B, W] each."""
    inside, outside = (x.log for x in column_sums(parts))
    return inside, log_add(inside, outside)
