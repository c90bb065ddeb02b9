"""Top-p: the largest threshold whose tokens still have a probability, by a search and by sorting the few that are left.

A CPU, which works for every pass, searches among exponentials, of a few rows whose numbers stay in its cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels.blocks import SMALL, by_blocks
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import read
from jax_decode.kernels.planes import LOWEST, NEVER, clean, cut, finite, from_order, scaled, to_order
from jax_decode.kernels.row_layout import LANES
from jax_decode.sampling.choices import (
    Allowed,
    best_of,
    best_of_columns,
    column_best_logits,
    largest,
    largest_columns,
    listed_logits,
    scaled_planes,
)
from jax_decode.sampling.mass_search import (
    FEW,
    TILES,
    ByExponential,
    ByLogit,
    Found,
    Guesses,
    Over,
    Tokens,
    about,
    search,
    start,
)
from jax_decode.sampling.row_sums import CutInMemory, Threshold, masked, rows_of
from jax_decode.sampling.summary import Noise, Rows, Summary, in_memory

_FIRST = 64
"""Columns that are sorted before anything is searched for, on a CPU."""
_COLLISIONS = 1.5
"""Times the best of some columns that the largest few tokens may have in mass, where columns hold two of them."""
_DEVIATIONS = 2
"""Standard deviations of a sample that a guess is looked at to both sides of."""
_WIDE = 3
"""Times as far, where the border is not between these."""
_NEAR = 1e-6
"""How far off the exponentials of two logits may be, generously: the larger logit may have the smaller one."""
_SHARE, _LEAST_SAMPLED = 16, 512
"""Of all columns about one in so many is a sample, where there are at least so many."""


def mass_threshold(allowed: Allowed, inverse: jax.Array | None, p: jax.Array) -> jax.Array:
    """A threshold whose tokens are those of the largest threshold that still has probability p, float32[B].

    A search leaves few tokens between the border and a threshold above it; those alone are sorted. A CPU sorts the largest few
    first: where they have the probability, as they mostly have in texts, nothing is searched.
    """
    top, listed = column_best_logits(allowed, inverse), listed_logits(allowed, inverse)
    best = best_of(allowed, top, listed)

    def of_all(logits: jax.Array, words: jax.Array | None, *rows: jax.Array) -> jax.Array:
        top, listed, best = rows
        base, own = finite(best), allowed._replace(logits=logits, words=words)
        tokens = ByLogit(_over_scaled(own, inverse, base), listed, base, own.part)

        def among(sample: Allowed, besides: jax.Array, each: float) -> Tokens:
            return ByLogit(_over_tiles(sample, inverse, base), besides, base, own.part, each)

        guesses = _guesses(own, among, inverse, p, top, best)
        found = search(tokens, tokens.total(), p, (best == NEVER) | (p >= 1), guesses)
        low, high = from_order(found.low), from_order(found.high)
        y = best_of_columns(own, inverse, FEW, high)
        y = largest(jnp.where(y >= low[:, None], y, NEVER), min(FEW, y.shape[1]))
        # If only rounding keeps all of them from having the mass, the last one is the border: `low` may be far below.
        last = y.min(1) if y.shape[1] == FEW else low
        return jnp.maximum(jnp.maximum(_border_within(found, y, base, FEW), last), low)

    def by_few(logits: jax.Array, words: jax.Array | None, *rows: jax.Array) -> jax.Array:
        of_rows = inverse is not None and inverse.ndim > 0  # else one number for all of them
        cut_off = _cut_off(allowed._replace(logits=logits, words=words), inverse, p, *rows)

        def of_block(index: jax.Array, scale: jax.Array | None, words: jax.Array | None, best: jax.Array, own: Any) -> jax.Array:
            scale = scale if of_rows else inverse
            exps = _exponentials(allowed._replace(logits=rows_of(logits, index), words=words), scale, finite(best))
            return cut_off.threshold(index, scale, exps, best, own).logit

        index = jnp.arange(len(logits), dtype=jnp.int32)
        return by_blocks(of_block, index, inverse if of_rows else None, words, cut_off.best, cut_off.rows)

    forms = {} if allowed.part is not None or allowed.logits.size < SMALL else {"cpu": by_few}
    border = jax.lax.platform_dependent(allowed.logits, allowed.words, top, listed, best, default=of_all, **forms)
    return jnp.where((p >= 1) | (best == NEVER), LOWEST, border)


def cut_and_summed_in_memory(
    allowed: Allowed, inverse: jax.Array | None, p: jax.Array, noise: Noise, with_raw: bool
) -> tuple[jax.Array, Summary]:
    """`mass_threshold` and `summary.summarize` with it, for a CPU: by one set of exponentials."""
    top, listed = column_best_logits(allowed, inverse), listed_logits(allowed, inverse)
    best = best_of(allowed, top, listed)
    cut_off = _cut_off(allowed, inverse, p, top, listed, best)
    every = (p >= 1) | (best == NEVER)
    find = cut_off.threshold

    def threshold(*block: Any) -> Threshold:
        *_, (every, rows) = block
        found = find(*block[:-1], rows)
        return Threshold(jnp.where(every, LOWEST, found.logit), jnp.where(every, 0.0, found.exponential), every | found.apart)

    cut_off = cut_off._replace(threshold=threshold, rows=(every, cut_off.rows))
    found, summary = in_memory(
        allowed.num_words, with_raw, allowed.logits, allowed.words, Rows(noise, inverse, None), cut_off
    )
    assert found is not None
    return found, summary if with_raw else summary._replace(raw=jnp.full_like(summary.raw, jnp.nan))


def _cut_off(
    allowed: Allowed, inverse: jax.Array | None, p: jax.Array, top: jax.Array, listed: jax.Array, best: jax.Array
) -> CutInMemory:
    """How a CPU finds thresholds; `top`, `listed`, `best`: of `column_best_logits`, `listed_logits` and `best_of`."""
    base = finite(best)
    of_best, column = largest_columns(top, min(_FIRST, top.shape[1]))
    few = _Few(column, jnp.exp(of_best - base[:, None]).sum(1) + jnp.exp(listed - base[:, None]).sum(1))

    def among(sample: Allowed, besides: jax.Array, each: float) -> Tokens:
        exps = _exponentials(sample, inverse, base)
        return ByExponential(exps, jnp.exp(besides - base[:, None]), sample.num_words, each)

    def threshold(index: jax.Array, inverse: jax.Array | None, exps: Any, best: jax.Array, rows: Any) -> Threshold:
        return _threshold_in_memory(allowed, index, inverse, p, exps, best, rows)

    # Of all rows at once: a loop over as few numbers would mostly begin and end operations.
    guesses = _guesses(allowed, among, inverse, p, top, best, few.mass)
    if guesses.near:
        above = (jnp.exp(top - base[:, None]) >= from_order(guesses.near[1])[:, None]).sum(1)  # the border is probably below them
        few = few._replace(mass=jnp.where(above > _FIRST, 0.0, few.mass))
    return CutInMemory(threshold, best, (listed, few, guesses))


class _Few(NamedTuple):
    """The columns int32[B, n] with the largest best tokens, and the mass float32[B] of these, relative to the best."""

    column: jax.Array
    mass: jax.Array


def _threshold_in_memory(
    allowed: Allowed,
    index: jax.Array,
    inverse: jax.Array | None,
    p: jax.Array,
    exps: tuple[jax.Array, ...],
    best: jax.Array,
    rows: tuple[jax.Array, _Few, Guesses],
) -> Threshold:
    """`mass_threshold` of rows, int32[n] of all, whose exponentials, relative to the best, stay in a cache.

    `rows`: scaled logits of their candidates, their columns with the largest best tokens, and places to look at.
    """
    listed, few, guesses = rows
    base = finite(best)
    tokens = ByExponential(exps, jnp.exp(listed - base[:, None]), allowed.num_words)

    def within(found: Found, column: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """`Threshold`, where the mass reaches what is wanted: at one of the tokens of some columns, -inf if at none; and rows
        whose other columns have nothing that may be it."""
        y, e = _of_columns(allowed.logits, index, inverse, tokens, column)
        by_column = e.reshape(len(e), -1, column.shape[1])
        y, e = jnp.concatenate([y, listed], 1), jnp.concatenate([e, tokens.listed], 1)
        low, high = (from_order(x)[:, None] for x in (found.low, found.high))
        between = (e >= low) & (e < high)
        border = _border_within(found, jnp.where(between, y, NEVER), base, column.shape[1])[:, None]
        own = jnp.where(between & (y == border), e, 0.0).max(1)
        alike = (~between | ((e >= own[:, None]) == (y >= border))).all(1)
        # No other column has more than the least of these, but for what is below `low` or not below `high`.
        some = (by_column >= low[..., None]) & (by_column < high[..., None])
        least = jnp.where(some, by_column, 0.0).max(1).min(1)
        told = own * (1 - _NEAR) > least  # else an exponential's last places might decide
        alike &= told & (own * (1 + _NEAR) < high[:, 0])
        return border[:, 0], own, alike, told

    mass, nothing = tokens.total(), jnp.full_like(best, NEVER)
    everything = Found(*tokens.ends(), jnp.zeros_like(best), p * mass)
    likely = _COLLISIONS * few.mass >= everything.wanted  # else the largest few are not sorted in vain
    none = Threshold(nothing, jnp.zeros_like(best), jnp.zeros(best.shape, bool))
    first = jax.lax.cond(likely.any(), lambda: Threshold(*within(everything, few.column)[:3]), lambda: none)
    first = first._replace(logit=jnp.where(likely, first.logit, nothing))  # whatever the neighbours are
    done = (first.logit > NEVER) | (best == NEVER) | (p >= 1)

    def searched() -> Threshold:
        found = search(tokens, mass, p, done, guesses)
        best = tokens.columns_below(found.high)
        best = jnp.where(best >= from_order(found.low)[:, None], best, 0.0)  # all others are not told apart
        border, own, apart, told = within(found, largest_columns(best, min(FEW, few.column.shape[1]))[1])
        near = ~done & ~told
        border = jax.lax.cond(
            near.any(),
            lambda: jnp.where(near, _among_near(rows_of(allowed.logits, index), inverse, tokens, listed, own, found), border),
            lambda: border,
        )
        border = jnp.where((found.low == 0) & (own == 0), LOWEST, border)
        others = Threshold(border, own, apart & ~near)
        return Threshold(*(jnp.where(done, old, new) for old, new in zip(first, others)))

    return jax.lax.cond(done.all(), lambda: first, searched)


def _of_columns(
    logits: jax.Array, index: jax.Array, inverse: jax.Array | None, tokens: ByExponential, column: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Scaled logits, -inf where there is no mass, and exponentials of the tokens of columns int32[n, m] of some rows."""
    count = -(-logits.shape[1] // tokens.num_words)
    token = column[:, None].astype(jnp.int32) + jnp.arange(count, dtype=jnp.int32)[None, :, None] * tokens.num_words
    token = token.reshape(len(column), -1)
    real, token = token < logits.shape[1], jnp.minimum(token, logits.shape[1] - 1)
    first, *others = tokens.exps
    e = jnp.take_along_axis(first, jnp.minimum(token, first.shape[1] - 1), 1)
    for piece in others:
        own = jnp.take_along_axis(piece, jnp.clip(token - first.shape[1], 0, piece.shape[1] - 1), 1)
        e = jnp.where(token < first.shape[1], e, own)
    e = jnp.where(real, e, 0.0)
    x = read(logits, index[:, None], token, rows=None)
    return jnp.where(e > 0, scaled(clean(x), inverse), NEVER), e


def _among_near(
    logits: jax.Array, inverse: jax.Array | None, tokens: ByExponential, listed: jax.Array, own: jax.Array, found: Found
) -> jax.Array:
    """Where the mass reaches what is wanted among all tokens whose exponentials are about `own`, float32[n]; 0: among all between
    the two thresholds. Many tokens may have one exponential, and that of a larger logit may be the smaller one."""
    y = jax.lax.optimization_barrier(scaled(clean(logits), inverse))
    y, e = jnp.concatenate([y, listed], 1), jnp.concatenate([*tokens.exps, tokens.listed], 1)  # 0 where not allowed
    y, e = jax.lax.optimization_barrier((y, e))
    least, most = jnp.where(own > 0, own * (1 - 2 * _NEAR), 0.0), jnp.where(own > 0, own * (1 + 2 * _NEAR), jnp.inf)
    least, most = jnp.maximum(from_order(found.low), least), jnp.minimum(from_order(found.high), most)
    above = found.above + tokens.mass(to_order(most), found.high)
    here = (e >= least[:, None]) & (e < most[:, None]) & (e > 0)
    # Sums are rounded in several ways: where none is left between the two, those above them have the mass.
    some = jnp.where(here.any(1, keepdims=True), here, (e > 0) & (e >= from_order(found.high)[:, None]))
    low = jnp.where(some, y, jnp.inf).min(1)
    high = jnp.maximum(jnp.where(here, y, NEVER).max(1), low)  # no turns for rows without any

    def another(ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        place = (low & high) + ((low ^ high) >> 1)
        mass = jnp.where(here & (y >= from_order(place)[:, None]), e, 0.0).sum(1)
        enough = above + mass >= found.wanted
        return jnp.where(enough, place, low), jnp.where(enough, high, place)

    ends = to_order(low), to_order(high) + 1
    return from_order(jax.lax.while_loop(lambda ends: (ends[0] < ends[1] - 1).any(), another, ends)[0])  # a difference overflows


def _border_within(found: Found, y: jax.Array, base: jax.Array, most: int) -> jax.Array:
    """Where the mass reaches what is wanted, float32[B]: at one of the tokens between two thresholds; -inf if at none.

    `y`: their scaled logits float32[B, n], the `most` largest of them at least, of which that is one; -inf elsewhere.
    """
    y = largest(y, min(most, y.shape[1]))
    enough = found.above[:, None] + jnp.cumsum(jnp.exp(y - base[:, None]), 1) >= found.wanted[:, None]
    return jnp.where(enough & (y > NEVER), y, NEVER).max(1)


def _exponentials(allowed: Allowed, inverse: jax.Array | None, base: jax.Array) -> tuple[jax.Array, ...]:
    """Exponentials relative to `base`, 0 where not allowed, in memory, in pieces."""
    e = jax.lax.optimization_barrier(jnp.exp(scaled(clean(allowed.logits), inverse) - base[:, None]))
    return masked(e, allowed.words, allowed.num_words)


def _over_scaled(allowed: Allowed, inverse: jax.Array | None, base: jax.Array) -> Over:
    return _over_planes(lambda: ((y, jnp.exp(y - base[:, None])) for y in scaled_planes(allowed, inverse)))


def _over_tiles(allowed: Allowed, inverse: jax.Array | None, base: jax.Array) -> Over:
    """Of scaled logits and their exponentials in memory, for a search that looks at them often."""
    y = jax.lax.optimization_barrier(scaled(clean(allowed.logits), inverse))
    y = jax.lax.optimization_barrier(jnp.concatenate(list(cut(y, allowed.words, allowed.num_words, NEVER)), 1))
    e = jax.lax.optimization_barrier(jnp.exp(y - base[:, None]))
    planes = y.shape[1] // allowed.num_words
    pieces = planes if planes % TILES else TILES  # of whole planes
    y, e = (x.reshape(len(x), pieces, -1, LANES) for x in (y, e))
    return _over_planes(lambda: ((y[:, b], e[:, b]) for b in range(pieces)))


def _over_planes(parts: Callable[[], Iterator[tuple[jax.Array, jax.Array]]]) -> Over:
    """Of the planes that a function gives: scaled logits, -inf where not allowed, and their exponentials."""
    def over(function: Callable[..., jax.Array], combine: Callable[..., jax.Array], *rows: jax.Array) -> jax.Array:
        of_planes = (function(y, e, *(x.reshape(-1, *[1] * (y.ndim - 1)) for x in rows)) for y, e in parts())
        return functools.reduce(combine, of_planes)

    return over


def _guesses(
    allowed: Allowed,
    among: Callable[[Allowed, jax.Array, float], Tokens],
    inverse: jax.Array | None,
    p: jax.Array,
    top: jax.Array,
    best: jax.Array,
    few: jax.Array | None = None,
) -> Guesses:
    """Places to look for the border of probability p at.

    From a search among the best tokens of all columns, which are most of those with much mass, and all others of a sixteenth of
    the columns, each of which stands for sixteen.

    Args:
      allowed: all choices; inverse: of `inverse_of`.
      among: the tokens of a sample, the scaled logits of others besides, and how many each of the sample stands for.
      top: of `column_best_logits`; best: of all.
      few: mass of tokens that are sorted first; a row is not looked at where they seem to be enough.
    """
    count = jnp.float32(allowed.logits.shape[1])
    if allowed.part is not None:
        count = count * allowed.part.shards.count
    num_words, some = allowed.num_words, max(allowed.num_words // _SHARE // LANES, 1) * LANES
    others = jnp.concatenate(
        [_others(allowed.logits[:, lo : lo + some], inverse, top) for lo in range(0, allowed.logits.shape[1], num_words)], 1
    )
    words = None if allowed.words is None else allowed.words[:, :some]
    sample = among(allowed._replace(logits=others, words=words, columns=Columns(some)), top, num_words / some)
    # All tokens below this together have less than what may be missing.
    least = sample.place(jnp.broadcast_to(-jnp.log(count / jnp.maximum(1 - p, 1e-7)), best.shape))
    if num_words < _LEAST_SAMPLED:
        return Guesses(least)
    mass = sample.total()
    none = (best == NEVER) | (p >= 1) | (mass == 0)
    if few is not None:
        none |= few >= p * mass
    near = about(sample, start(*sample.ends(), mass, p * mass), least, p * mass, none)
    low, high = sample.logit(near.low), sample.logit(near.high)
    middle = sample.logit(near.guess(sample, jnp.float32(0)))
    # The number of others above the border varies like its root from sample to sample.
    deviation = sample.each * jnp.sqrt(sample.number_from(near.low) + 1)
    between = jnp.maximum(near.between / sample.weight(near.low), 1.0)
    span = (high - low) * (_DEVIATIONS * deviation / between)
    two, wide = ((sample.place(middle - x), sample.place(middle + x)) for x in (span, _WIDE * span))
    return Guesses(least, two, wide)


def _others(logits: jax.Array, inverse: jax.Array | None, top: jax.Array) -> jax.Array:
    """The logits [B, n] of a plane's first tokens, but -inf for the best of their columns."""
    return jnp.where(scaled(clean(logits), inverse) < top[:, : logits.shape[1]], logits, NEVER)
