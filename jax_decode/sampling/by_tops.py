"""Samplers that cut off, on a TPU: one pass over the logits keeps the largest few of every column, and those decide.

Where a row's threshold is not above what the pass did not keep, as when many thousand tokens share the mass, all of its logits
are looked at once more. Vocabularies too wide for that go the way of other devices, by `truncation` and `summary`.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp

from jax_decode.kernels import one_pass
from jax_decode.kernels.blocks import SMALL
from jax_decode.kernels.column_draw import drawn_in_column
from jax_decode.kernels.column_tops import TOPS, Cut, tops_of
from jax_decode.kernels.gather import places, read, whole
from jax_decode.kernels.planes import NEVER, Planes, Sum, allowed_logits, both, column_sum, column_sums, drawable
from jax_decode.kernels.settled_rows import Given, Lanes, Written, settled
from jax_decode.kernels.settled_whole import fits, settled_whole
from jax_decode.sampling.candidates import Drawn, with_candidates
from jax_decode.sampling.choices import Allowed
from jax_decode.sampling.few_columns import MOST_KEPT, cut_and_summed_by_few
from jax_decode.sampling.samplers import MinP, Sampler, TopK, TopP
from jax_decode.sampling.summary import Noise, sources_of, summarize
from jax_decode.sampling.top_p import cut_and_summed_in_memory
from jax_decode.sampling.truncation import threshold_of
from jax_decode.sampling.within_column import Choice, chosen_of, taken

_LEAST_COLUMNS = 8
"""Columns for every token that a top-k keeps, so that a column rarely has more of them than are kept of it."""


def cut_and_chosen(sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool) -> Choice:
    """What is drawn of many logits."""
    if allowed.listed is not None and not allowed.listed[0].shape[1]:
        allowed = allowed._replace(listed=None)

    def elsewhere() -> Choice:
        return chosen_of(allowed, inverse, noise, cut_and_summed(sampler, allowed, inverse, noise, with_raw))

    def by_kernels() -> Choice:
        rows = _settled_by_tops(sampler, allowed, inverse, noise, with_raw)
        return _drawn(rows, allowed, inverse, noise, with_raw)

    listed = 0 if allowed.listed is None else allowed.listed[0].shape[1]
    if not (fits(allowed.logits.shape[1], listed) and _cuts(sampler, allowed) and one_pass.wanted("tpu")):
        return elsewhere()
    return jax.lax.platform_dependent(tpu=by_kernels, default=elsewhere)


def cut_and_summed(sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool) -> Drawn:
    """The threshold of a sampler, as of `truncation.threshold_of`, `summary.summarize` with it, and the candidates."""
    plainly = functools.partial(_cut_and_summed_plainly, sampler, allowed, inverse, noise, with_raw)
    if not _cuts(sampler, allowed) or (isinstance(sampler, TopK) and sampler.k > MOST_KEPT):
        return plainly()

    def on_cpu() -> Drawn:
        if isinstance(sampler, TopP):
            found = cut_and_summed_in_memory(allowed, inverse, jnp.asarray(sampler.p, jnp.float32), noise, with_raw)
        else:
            found = cut_and_summed_by_few(sampler, allowed, inverse, noise, with_raw)
        return with_candidates(allowed, inverse, noise, *found)

    return jax.lax.platform_dependent(default=plainly, cpu=on_cpu)


def _cuts(sampler: Sampler, allowed: Allowed) -> bool:
    """Whether it cuts off, and few of many logits are left."""
    few = not isinstance(sampler, TopK) or sampler.k * _LEAST_COLUMNS <= allowed.num_words
    return isinstance(sampler, (TopK, TopP, MinP)) and few and allowed.part is None and allowed.logits.size >= SMALL


def _settled_by_tops(
    sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool, *, interpret: bool = False
) -> Written:
    """What is settled of every row."""
    source, tops, lanes = _kept(allowed, inverse, isinstance(sampler, TopP), with_raw, interpret)
    cut, number = _cut_of(sampler)
    given = Given.of(number, inverse, (cast(jax.Array, noise.key), noise.step), _raw(allowed))
    rows, untold = settled(cut, given, tops, lanes, interpret=interpret)
    return settled_whole(cut, given, source, lanes, rows, untold, interpret=interpret)


def _drawn(
    rows: Written, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool, *, interpret: bool = False
) -> Choice:
    """The choices of rows that `_settled_by_tops` has settled."""
    columns, word = (allowed.num_words, allowed.logits.shape[1]), None
    column = rows.column.T
    plane = whole(places(min(-(-columns[1] // columns[0]), 32), column.shape[:1]))
    logits = taken(allowed.logits, jnp.minimum(column + plane * columns[0], columns[1] - 1))
    if allowed.union is not None:
        of_sources = allowed.union[1]
        word = read(allowed.union[0], of_sources, jnp.broadcast_to(column, of_sources.shape))
    elif allowed.words is not None:
        word = allowed.word_at(column)
    of_noise = cast(jax.Array, noise.key), noise.step
    token, logprob, raw = drawn_in_column(rows.rows, logits, word, of_noise, inverse, columns, interpret=interpret)
    return Choice(token, logprob, raw if with_raw else jnp.full_like(raw, jnp.nan))


def _cut_and_summed_plainly(
    sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool
) -> Drawn:
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
    return with_candidates(allowed, inverse, noise, threshold, found)


def _cut_of(sampler: Sampler) -> tuple[Cut, jax.Array]:
    """What the kernel is to keep."""
    match sampler:
        case TopK(k=k):
            return Cut.COUNT, jnp.float32(k)
        case TopP(p=p):
            return Cut.MASS, jnp.asarray(p, jnp.float32)
        case MinP(p=p):
            return Cut.OF_BEST, jnp.asarray(p, jnp.float32)
    raise AssertionError(sampler)


def _raw(allowed: Allowed) -> tuple[jax.Array, jax.Array] | None:
    """The candidates as the kernel takes them: tokens, -1 where not allowed, and logits float32 as they are read. What is done
    with them is the kernel's part: it would be an operation of its own, and outside of the branch that needs it, too."""
    if allowed.listed is None:
        return None
    token = jnp.where(allowed.listed[1], allowed.listed[0], -1)
    rows = jnp.arange(len(token), dtype=jnp.int32)[:, None]
    return token, read(allowed.logits, rows, jnp.maximum(token, 0)).astype(jnp.float32)


def _kept(
    allowed: Allowed, inverse: jax.Array | None, with_mass: bool, with_raw: bool, interpret: bool
) -> tuple[one_pass.Read, jax.Array, Lanes]:
    """What is read; what a pass keeps, float32[TOPS, B, W], scaled; and what it does not keep."""
    words = sources_of(allowed.words, allowed.union)
    with_raw, apart = with_raw and words is not None, with_mass and inverse is not None

    def of_columns(parts: Planes, _: jax.Array, *scale: jax.Array) -> tuple[Lanes, list[jax.Array]]:
        values = allowed_logits(parts)
        inside, outside = column_sums(parts) if with_raw else (column_sum(values), None)
        y = drawable(values, scale[0] if scale else None, None)
        tops, hidden = tops_of(y)
        return Lanes(hidden, inside, outside, column_sum(y) if apart else None), tops

    def together(a: Lanes, b: Lanes) -> Lanes:
        outside = None if a.outside is None or b.outside is None else both(a.outside, b.outside)
        drawn = None if a.drawn is None or b.drawn is None else both(a.drawn, b.drawn)
        return Lanes(jnp.maximum(a.hidden, b.hidden), both(a.inside, b.inside), outside, drawn)

    empty: tuple[Any, ...] = (NEVER, 0.0)
    none = Sum(*empty)
    start = Lanes(empty[0], none, none if with_raw else None, none if apart else None)
    scale = [] if inverse is None else [jnp.broadcast_to(inverse, (len(allowed.logits), 1))]
    source = one_pass.Read(allowed.logits, words, allowed.num_words, scale)
    lanes, tops = one_pass.passed(of_columns, together, start, TOPS, source, interpret=interpret)
    assert tops is not None
    return source._replace(rows=()), tops, lanes
