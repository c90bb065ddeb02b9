"""Samplers that cut off, on a TPU: one pass over the logits keeps the largest few of every column, and those decide.

Where a row's threshold is not above what the pass did not keep, as when many thousand tokens share the mass, the row goes the way
of other devices, by `truncation` and `summary`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from jax_decode.kernels import one_pass
from jax_decode.kernels.blocks import SMALL
from jax_decode.kernels.column_tops import TOPS, Cut, settled, tops_of
from jax_decode.kernels.gather import read
from jax_decode.kernels.planes import (
    NEVER,
    Planes,
    Sum,
    allowed_logits,
    both,
    column_sum,
    column_sums,
    drawable,
    log_add,
    log_sum,
)
from jax_decode.sampling.choices import Allowed, listed_logits
from jax_decode.sampling.samplers import MinP, Sampler, TopK, TopP
from jax_decode.sampling.summary import Noise, Summary, reduced, sources_of, summarize
from jax_decode.sampling.top_p import cut_and_summed_in_memory
from jax_decode.sampling.truncation import threshold_of

_LEAST_COLUMNS = 8
"""Columns for every token that a top-k keeps, so that a column rarely has more of them than are kept of it."""


def cut_and_summed(
    sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool
) -> tuple[jax.Array | None, Summary]:
    """The threshold of a sampler, as of `truncation.threshold_of`, and `summary.summarize` with it."""
    plainly = functools.partial(_cut_and_summed_plainly, sampler, allowed, inverse, noise, with_raw)
    few = not isinstance(sampler, TopK) or sampler.k * _LEAST_COLUMNS <= allowed.num_words
    if not isinstance(sampler, (TopK, TopP, MinP)) or not few or allowed.part is not None or allowed.logits.size < SMALL:
        return plainly()
    forms = {}
    if isinstance(sampler, TopP):
        p = jnp.asarray(sampler.p, jnp.float32)
        forms["cpu"] = functools.partial(cut_and_summed_in_memory, allowed, inverse, p, noise, with_raw)
    if one_pass.wanted("tpu"):
        forms["tpu"] = functools.partial(_by_tops, sampler, allowed, inverse, noise, with_raw)
    return jax.lax.platform_dependent(default=plainly, **forms) if forms else plainly()


class _Lanes(NamedTuple):
    """Of the columns of a lane, [B, n]: the largest logit that is not kept, and sums over the allowed logits, over the others,
    and over the allowed ones at the temperature (None: not asked for)."""

    hidden: jax.Array
    inside: Sum
    outside: Sum | None
    drawn: Sum | None


class _Kept(NamedTuple):
    """What a pass keeps: `tops` float32[TOPS, B, W], scaled; and of every row, [B], the largest that it did not keep, and the
    log-sums over the allowed logits at the temperature, over the allowed and over all at temperature 1."""

    tops: jax.Array
    hidden: jax.Array
    drawn: jax.Array
    inside: jax.Array
    raw: jax.Array


def _by_tops(
    sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool, *, interpret: bool = False
) -> tuple[jax.Array, Summary]:
    """`cut_and_summed` by a TPU's kernels."""
    listed = listed_logits(allowed, inverse)
    kept = _kept(allowed, inverse, isinstance(sampler, TopP), with_raw, interpret)
    total = log_add(kept.drawn, log_sum(listed)) if listed.shape[1] else kept.drawn
    cut, number = _cut_of(sampler, total)
    found = settled(cut, kept.tops, listed, number, kept.hidden, cast(jax.Array, noise.key), noise.step, interpret=interpret)
    raw = kept.raw if with_raw else jnp.full_like(kept.raw, jnp.nan)
    summary, whole = Summary(found.score, found.column, kept.inside, raw), found.threshold > kept.hidden

    def again() -> tuple[jax.Array, Summary]:
        own = allowed._replace(words=_joined(allowed), union=None)
        threshold, rest = _cut_and_summed_plainly(sampler, own, inverse, noise, with_raw)
        return jax.tree.map(functools.partial(jnp.where, whole), (found.threshold, summary), (threshold, rest))

    return jax.lax.cond(whole.all(), lambda: (found.threshold, summary), again)


def _cut_and_summed_plainly(
    sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool
) -> tuple[jax.Array | None, Summary]:
    threshold = threshold_of(sampler, allowed, inverse)
    found = summarize(
        allowed.logits,
        allowed.words,
        allowed.num_words,
        noise=noise,
        inverse=inverse,
        threshold=threshold,
        with_raw=with_raw,
        union=allowed.union,
    )
    return threshold, found


def _cut_of(sampler: Sampler, total: jax.Array) -> tuple[Cut, jax.Array]:
    """How the kernel is told what to keep, and the number of every row, float32[B]; `total`: log-sum of all that may be drawn."""
    match sampler:
        case TopK(k=k):
            return Cut.COUNT, jnp.full_like(total, k)
        case TopP(p=p):
            share = jnp.asarray(p, jnp.float32)
            return Cut.LOG_MASS, jnp.where(share >= 1, jnp.inf, total + jnp.log(share))
        case MinP(p=p):
            return Cut.BELOW_BEST, jnp.broadcast_to(jnp.log(jnp.asarray(p, jnp.float32)), total.shape)
    raise AssertionError(sampler)


def _joined(allowed: Allowed) -> jax.Array | None:
    """The words once more, for a branch that is rarely taken: what is made before it is made always."""
    if allowed.words is None or allowed.union is None:
        return allowed.words
    rows, of_each = allowed.union
    return functools.reduce(jnp.bitwise_or, [read(rows, of_each[:, s]) for s in range(of_each.shape[1])])


def _kept(allowed: Allowed, inverse: jax.Array | None, with_mass: bool, with_raw: bool, interpret: bool) -> _Kept:
    words = sources_of(allowed.words, allowed.union)
    with_raw, apart = with_raw and words is not None, with_mass and inverse is not None

    def of_columns(parts: Planes, _: jax.Array, *scale: jax.Array) -> tuple[_Lanes, list[jax.Array]]:
        values = allowed_logits(parts)
        inside, outside = column_sums(parts) if with_raw else (column_sum(values), None)
        y = drawable(values, scale[0] if scale else None, None)
        tops, hidden = tops_of(y)
        return _Lanes(hidden, inside, outside, column_sum(y) if apart else None), tops

    def together(a: _Lanes, b: _Lanes) -> _Lanes:
        outside = None if a.outside is None or b.outside is None else both(a.outside, b.outside)
        drawn = None if a.drawn is None or b.drawn is None else both(a.drawn, b.drawn)
        return _Lanes(jnp.maximum(a.hidden, b.hidden), both(a.inside, b.inside), outside, drawn)

    empty: tuple[Any, ...] = (NEVER, 0.0)
    none = Sum(*empty)
    start = _Lanes(empty[0], none, none if with_raw else None, none if apart else None)
    scale = [] if inverse is None else [jnp.broadcast_to(inverse, (len(allowed.logits), 1))]
    rest = allowed.logits, words, allowed.num_words, scale
    lanes, tops = one_pass.passed(of_columns, together, start, TOPS, *rest, interpret=interpret)
    assert tops is not None
    logs = [x.log for x in lanes[1:] if x is not None]
    hidden, *sums = reduced((lanes.hidden, *logs), [NEVER] * (1 + len(logs)), _most_and_sums)
    inside = sums[0]
    raw = log_add(inside, sums[1]) if with_raw else inside
    return _Kept(tops, hidden, sums[-1] if apart else inside, inside, raw)


def _most_and_sums(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return jnp.maximum(a[0], b[0]), *(log_add(x, y) for x, y in zip(a[1:], b[1:]))
