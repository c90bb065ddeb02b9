"""One pass over the logits in 32 planes: per column statistics of the allowed tokens and of all of them.

Column j holds the tokens `b * W + j`, plane b of it is bit b of mask word j. Plane b of the logits is the contiguous slice
`[b * W, (b + 1) * W)`, so mask bit and logit meet elementwise: no `[B, V]` mask, no relayout, every logit read once.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.tables import LANES

LOWEST, HIGHEST = -3e38, 3e38
"""Logits are clamped to these, so that -inf and NaN are improbable yet allowed, and sums stay defined."""
NEVER = -jnp.inf
"""Score of what is not allowed; every allowed token scores more."""


class Columns(NamedTuple):
    """Statistics per column, float32[B, W] each (-inf where no token counts).

    allowed: log-sum-exp of the allowed logits; raw: of all logits; drawn: of the allowed logits at the sampler's
    temperature and above its threshold; best: the largest allowed logit at that temperature; plane: int32, the first plane
    that has it.
    """

    allowed: jax.Array
    raw: jax.Array
    drawn: jax.Array
    best: jax.Array
    plane: jax.Array


def clean(logits: jax.Array) -> jax.Array:
    """Logits as float32, finite: NaN and -inf become the lowest number, +inf the highest."""
    x = logits.astype(jnp.float32)
    return jnp.minimum(jnp.where(x > LOWEST, x, LOWEST), HIGHEST)


def scaled(x: jax.Array, inverse: jax.Array | None) -> jax.Array:
    """Clean logits times the inverse temperature, clamped again; None stands for temperature 1."""
    if inverse is None:
        return x
    return jnp.clip(x * inverse, LOWEST, HIGHEST)


def plane_of(logits: jax.Array, b: int, num_words: int) -> jax.Array:
    """Plane b of the logits, float32[B, W]; -inf past the last logit."""
    lo, hi = b * num_words, min((b + 1) * num_words, logits.shape[1])
    x = clean(logits[:, lo:hi])
    return jnp.pad(x, ((0, 0), (0, num_words - (hi - lo))), constant_values=NEVER)


def planes(logits: jax.Array, words: jax.Array | None, num_words: int) -> list[tuple[jax.Array, jax.Array | None]]:
    """Every plane as (clean logits, allowed or None for all), [B, W] each."""
    out = []
    for b in range(-(-logits.shape[1] // num_words)):
        bit = None
        if words is not None:  # logits past plane 31 belong to no token of the vocabulary
            bit = (words & jnp.uint32(1 << b)) != 0 if b < 32 else jnp.zeros(words.shape, bool)
        out.append((plane_of(logits, b, num_words), bit))
    return out


def columns(
    logits: jax.Array,
    words: jax.Array | None,
    num_words: int,
    *,
    inverse: jax.Array | None = None,
    threshold: jax.Array | None = None,
) -> Columns:
    """Statistics of every column, in one elementwise expression that reads each logit once.

    A token is either allowed or not, so one exponential per logit serves both sums: each is taken relative to the maximum of
    its own kind. Another temperature needs a second exponential.

    Args:
      logits: float[B, V'].
      words: uint32[B, W] bit planes of the allowed tokens; None allows all.
      num_words: W.
      inverse: inverse temperature, float32[] or None for 1.
      threshold: float32[B], least scaled logit that may be drawn; None for no threshold.
    """
    parts = planes(logits, words, num_words)
    xs = [x for x, _ in parts]
    mine = [x if ok is None else jnp.where(ok, x, NEVER) for x, ok in parts]
    top = functools.reduce(jnp.maximum, mine)
    plane = _first_plane(mine, top)
    if words is None:
        exps = [jnp.exp(x - _finite(top)) for x in xs]
        allowed = raw = _finite(top) + jnp.log(_total(exps))
    else:
        others = [jnp.where(ok, NEVER, x) for x, ok in parts]
        top_other = functools.reduce(jnp.maximum, others)
        base, base_other = _finite(top), _finite(top_other)
        exps = [jnp.exp(x - jnp.where(ok, base, base_other)) for x, ok in parts]
        allowed = base + jnp.log(_total([jnp.where(ok, e, 0.0) for e, (_, ok) in zip(exps, parts)]))
        other = base_other + jnp.log(_total([jnp.where(ok, 0.0, e) for e, (_, ok) in zip(exps, parts)]))
        raw = log_add(allowed, other)
    best = jnp.where(top == NEVER, NEVER, scaled(top, inverse))
    drawn = allowed
    if inverse is not None or threshold is not None:
        least = None if threshold is None else threshold[:, None]
        ys = [jnp.where(x == NEVER, NEVER, scaled(x, inverse)) for x in mine]
        if least is not None:
            ys = [jnp.where(y >= least, y, NEVER) for y in ys]
        base = _finite(best)
        drawn = base + jnp.log(_total([jnp.exp(y - base) for y in ys]))
    return Columns(allowed, raw, drawn, best, plane)


def log_add(a: jax.Array, b: jax.Array) -> jax.Array:
    """log(exp a + exp b), also of two -inf."""
    hi, lo = jnp.maximum(a, b), jnp.minimum(a, b)
    return jnp.where(hi == NEVER, NEVER, hi + jnp.log1p(jnp.exp(lo - hi)))


def log_sum(x: jax.Array) -> jax.Array:
    """Log-sum-exp over the last axis, -inf for none."""
    base = _finite(x.max(-1))
    return base + jnp.log(jnp.exp(x - base[..., None]).sum(-1))


def reduce_columns(score: jax.Array, item: jax.Array, allowed: jax.Array, raw: jax.Array) -> tuple[jax.Array, ...]:
    """The best-scored column of each row and both log-sums, in one variadic reduction.

    Reduced first within groups of `LANES` columns, which gives even a single row enough parallel work.

    Args:
      score: float32[B, W]; item: int32[B, W], what to return of the best column, ties go to the smallest;
      allowed, raw: float32[B, W], summed in log space.

    Returns:
      score, item, allowed, raw, [B] each.
    """
    operands = [x.reshape(x.shape[0], -1, LANES) for x in (score, item, allowed, raw)]
    start = [jnp.float32(NEVER), jnp.int32(2**31 - 1), jnp.float32(NEVER), jnp.float32(NEVER)]
    for _ in range(2):
        operands = list(jax.lax.reduce(operands, start, _better, (operands[0].ndim - 1,)))
    return tuple(operands)


def _better(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Associative and commutative: the larger score (the smaller item among equals), and sums in log space."""
    takes = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    item = jnp.where(takes, a[1], b[1])
    return jnp.maximum(a[0], b[0]), item, log_add(a[2], b[2]), log_add(a[3], b[3])


def _finite(x: jax.Array) -> jax.Array:
    """x with 0 in place of -inf: a reference that can be subtracted."""
    return jnp.where(x == NEVER, 0.0, x)


def _total(terms: list[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, terms)


def _first_plane(values: list[jax.Array], top: jax.Array) -> jax.Array:
    plane = jnp.zeros(top.shape, jnp.int32)
    for b in reversed(range(len(values))):
        plane = jnp.where(values[b] == top, b, plane)
    return plane
