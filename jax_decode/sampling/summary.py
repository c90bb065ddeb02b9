"""One pass over the logits per step: the winning column of every row and the log-sums behind its log-probabilities.

Two forms of the same sums, because compilers differ: an accelerator's fuses all of it into one reduction that reads every logit
once; the CPU's vectorises elementwise loops but neither several results of one loop nor a reduction of several operands, and is
given as many rows at a time as fit into a cache. A batch of few logits has one form on all devices, `at_once`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.kernels import one_pass
from jax_decode.kernels.blocks import SMALL, by_blocks
from jax_decode.kernels.gather import read
from jax_decode.kernels.noise import Words, gumbel
from jax_decode.kernels.one_pass import Read, folded
from jax_decode.kernels.placement import spread_by_xla
from jax_decode.kernels.planes import (
    NEVER,
    ORDINARY,
    Planes,
    Sum,
    allowed_logits,
    bit_planes,
    both,
    clean,
    column_best,
    column_log_sum,
    column_log_sums,
    column_max_in_memory,
    column_sum,
    column_sums,
    cut,
    drawable,
    finite,
    log_add,
    planes,
)
from jax_decode.kernels.projected import Projected, folded_projected
from jax_decode.kernels.row_layout import LANES
from jax_decode.sampling.row_sums import CutInMemory, cut_and_sums_of_rows, sums_of_rows

NO_ITEM = 2**31 - 1
"""Larger than every token and column."""


_PLACES = 2**31
"""A GPU's kernel counts places in its arguments in int32."""
_TIED = 4
"""Columns with the best logit of a row that are looked into, on a CPU."""


class Noise(NamedTuple):
    """What the Gumbel noise of a draw depends on: key words uint32[B, 2] and step uint32[B]."""

    key: Words
    step: jax.Array


class Summary(NamedTuple):
    """Of each row, [B]. The item of a row that allows nothing is meaningless.

    score: of the best column, -inf when nothing is allowed; item: the best token (without noise) or the winning column (with
    noise), int32; allowed, raw: log-sum-exp over the allowed and over all logits.
    """

    score: jax.Array
    item: jax.Array
    allowed: jax.Array
    raw: jax.Array


def summarize(
    logits: jax.Array,
    words: jax.Array | None,
    num_words: int,
    *,
    noise: Noise | None = None,
    inverse: jax.Array | None = None,
    threshold: jax.Array | None = None,
    with_raw: bool = True,
    union: tuple[jax.Array, jax.Array] | None = None,
) -> Summary:
    """The step's pass over the logits.

    Args:
      logits: float[B, V'].
      words: uint32[B, W], bit planes of the allowed tokens; None allows all.
      num_words: W.
      noise: None takes the best token; else a column is drawn by its mass.
      inverse: inverse temperature, float32[], or float32[B, 1] of every row; None for 1.
      threshold: float32[B], least scaled logit that may be drawn, or None.
      with_raw: whether to sum all logits too; without, `raw` is NaN, and an exponential per logit is saved on some devices.
      union: where the words come from, see `MaskParts`.
    """
    forms: dict[str, Callable[..., Summary]] = {"cpu": _on_cpu, "default": _fused}
    if one_pass.wanted("gpu") and max(logits.size, 0 if union is None else union[0].size) < _PLACES:
        forms["cuda"] = functools.partial(in_one_pass_of_gpu, union=union)
    if one_pass.wanted("tpu"):
        forms["tpu"] = functools.partial(in_one_pass, union=union)
    elif noise is None and words is not None and with_raw:
        forms["tpu"] = _in_two_passes
    forms = {name: functools.partial(form, num_words, with_raw) for name, form in forms.items()}
    summary = jax.lax.platform_dependent(logits, words, Rows(noise, inverse, threshold), **forms)
    return summary if with_raw else summary._replace(raw=jnp.full_like(summary.raw, jnp.nan))


def _fused(num_words: int, with_raw: bool, logits: jax.Array, words: jax.Array | None, rows: Rows) -> Summary:
    return _reduced(_of_columns(num_words, with_raw, rows, planes(logits, words, num_words), _columns(num_words)))


class Rows(NamedTuple):
    """What a draw depends on besides logits and mask; see `summarize`."""

    noise: Noise | None = None
    inverse: jax.Array | None = None
    threshold: jax.Array | None = None

    def given(self, batch: int) -> list[jax.Array]:
        """Those that there are, [B, n] each."""
        rows = [] if self.noise is None else [cast(jax.Array, self.noise.key), self.noise.step[:, None]]
        rows += [] if self.inverse is None else [jnp.broadcast_to(self.inverse, (batch, 1))]
        return rows + ([] if self.threshold is None else [self.threshold[:, None]])



class _Columns(NamedTuple):
    """Of every column, [B, n]: score and item, and the sums over the allowed logits and over the others (None: not asked for)."""

    score: jax.Array
    item: jax.Array
    inside: Sum
    outside: Sum | None


def _of_columns(num_words: int, with_raw: bool, rows: Rows, parts: Planes, column: jax.Array) -> _Columns:
    values = allowed_logits(parts)
    inside, outside = column_sums(parts) if with_raw and parts[0][1] is not None else (column_sum(values), None)
    return _Columns(*_chosen_columns(num_words, rows, values, inside, column), inside, outside)


def _chosen_columns(
    num_words: int, rows: Rows, values: Sequence[jax.Array], inside: Sum, column: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Score and item of every column, [B, n]."""
    if rows.noise is None:
        score, plane = column_best(values)
        return score, plane * num_words + column
    plain = rows.inverse is None and rows.threshold is None
    drawn = inside.log if plain else column_log_sum(drawable(values, rows.inverse, rows.threshold))
    score = drawn + gumbel(*rows.noise, column.astype(jnp.uint32))
    return score, jnp.broadcast_to(column, score.shape)


def _reduced(columns: _Columns) -> Summary:
    """Of all columns [B, n]."""
    logs = [columns.inside.log]
    if columns.outside is not None:
        logs.append(log_add(logs[0], columns.outside.log))
    start = (NEVER, NO_ITEM, NEVER, NEVER)[: 2 + len(logs)]
    score, item, *sums = reduced((columns.score, columns.item, *logs), start, _better)
    return Summary(score, item, sums[0], sums[-1])


def in_one_pass(
    num_words: int,
    with_raw: bool,
    logits: jax.Array | Projected,
    words: jax.Array | None,
    rows: Rows,
    *,
    union: tuple[jax.Array, jax.Array] | None = None,
    interpret: bool = False,
) -> Summary:
    """`summarize` by a kernel that reads every logit once, or makes it itself."""
    words = words if rows.threshold is not None else sources_of(words, union)  # what chose a threshold has joined them already

    def of_columns(parts: Planes, column: jax.Array, *own: jax.Array) -> _Columns:
        left = list(own)
        noise_of = None if rows.noise is None else Noise(left.pop(0), left.pop(0))
        given = Rows(noise_of, *(None if x is None else left.pop(0) for x in rows[1:]))
        return _of_columns(num_words, with_raw, given, parts, column)

    def better(a: _Columns, b: _Columns) -> _Columns:
        takes = (a.score > b.score) | ((a.score == b.score) & (a.item < b.item))
        outside = None if a.outside is None or b.outside is None else both(a.outside, b.outside)
        return _Columns(jnp.maximum(a.score, b.score), jnp.where(takes, a.item, b.item), both(a.inside, b.inside), outside)

    empty: tuple[Any, ...] = (NEVER, 0.0, NO_ITEM)
    none = Sum(*empty[:2])
    start = _Columns(empty[0], empty[2], none, none if with_raw and words is not None else None)
    fold = folded_projected if isinstance(logits, Projected) else folded
    lanes = fold(of_columns, better, start, Read(logits, words, num_words, rows.given(len(logits))), interpret=interpret)
    return _reduced(lanes)


def sources_of(words: jax.Array | None, union: tuple[jax.Array, jax.Array] | None) -> jax.Array | None:
    """The words for a TPU's kernel: few bit rows it joins itself, uint32[S, B, W]; `union`: see `MaskParts`."""
    if words is None or union is None or not 1 < union[1].shape[1] <= one_pass.MOST_SOURCES or spread_by_xla():
        return words
    return read(union[0], union[1].T)


def in_one_pass_of_gpu(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    words: jax.Array | None,
    rows: Rows,
    *,
    union: tuple[jax.Array, jax.Array] | None = None,
    interpret: bool = False,
) -> Summary:
    """`summarize` by a GPU's kernel that reads every logit once."""
    from jax_decode.kernels import one_pass_gpu  # what it needs takes time to import

    def together(parts: Planes, column: jax.Array, *own: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        left = list(own)
        noise_of = None
        if rows.noise is not None:
            (k0, k1), (step,) = left.pop(0), left.pop(0)
            noise_of = Noise((k0, k1), step)
        given = Rows(noise_of, *(None if x is None else left.pop(0)[0] for x in rows[1:]))
        values = allowed_logits(parts)
        sums = [column_sum(values, _exp)]
        if words is not None and with_raw:  # another exponential is less than selecting what is outside of the mask
            sums.append(column_sum([x for x, _ in parts], _exp))
        score, item = _chosen_columns(num_words, given, values, sums[0], column)
        best = score.max(1)
        first = jnp.where(score == best[:, None], item, NO_ITEM).min(1)
        return best, first, *(_row_sum(x).log for x in sums)

    if words is not None and union is None:
        union = words, jnp.arange(len(words), dtype=jnp.int32)[:, None]
    score, item, *sums = one_pass_gpu.folded(together, logits, union, num_words, rows.given(len(logits)), interpret=interpret)
    start = tuple(jnp.asarray(x, y.dtype) for x, y in zip((NEVER, NO_ITEM, NEVER, NEVER), (score, item, *sums)))
    score, item, *sums = jax.lax.reduce((score, item, *sums), start, _better, (1,))
    return Summary(score, item, sums[0], sums[-1])


def _row_sum(x: Sum) -> Sum:
    """Of all columns [n, m], [n]."""
    most = x.most.max(1)
    return Sum(most, (x.total * _exp(x.most - finite(most)[:, None])).sum(1))


def _exp(x: jax.Array) -> jax.Array:
    """By the power of two, for which a GPU has an instruction."""
    return jnp.exp2(x * np.float32(np.log2(np.e)))


def reduced(operands: Sequence[jax.Array], start: Sequence[float], combine: Callable[..., Any]) -> list[jax.Array]:
    """One variadic reduction over the columns, [B] each, from `start`.

    Within groups of columns first: that gives even a single row enough parallel work.
    """
    begin = [jnp.asarray(x, operand.dtype) for x, operand in zip(start, operands)]
    parts = [x.reshape(x.shape[0], -1, LANES) for x in operands]
    for _ in range(2):
        parts = list(jax.lax.reduce(parts, begin, combine, (parts[0].ndim - 1,)))
    return parts


def _better(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Associative and commutative: the larger score (the smaller item among equals), and sums in log space."""
    takes = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    item = jnp.where(takes, a[1], b[1])
    return jnp.maximum(a[0], b[0]), item, *_log_add_all(a[2:], b[2:])


def _in_two_passes(num_words: int, with_raw: bool, logits: jax.Array, words: jax.Array, _: Rows) -> Summary:
    """The best token first, then the sums.

    The TPU's compiler splits the greedy form of `_fused` into kernels that pass comparisons of every plane through memory; this
    form reads the logits twice instead. The barrier keeps the two passes from sharing the mask's bits that way.
    """
    best, plane = column_best(allowed_logits(planes(logits, words, num_words)))
    score = best.max(1)
    token = plane * num_words + _columns(num_words)
    item = jnp.where((best == score[:, None]) & (best != NEVER), token, NO_ITEM).min(1)
    words, score = jax.lax.optimization_barrier((words, score))
    sums = column_log_sums(planes(logits, words, num_words))
    return Summary(score, item, *reduced(sums, (NEVER, NEVER), _log_add_all))


def _log_add_all(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    return tuple(log_add(x, y) for x, y in zip(a, b))


def _on_cpu(num_words: int, with_raw: bool, logits: jax.Array, words: jax.Array | None, rows: Rows) -> Summary:
    """`summarize` for a CPU, which works for every pass."""
    if logits.size < SMALL:
        return at_once(num_words, with_raw, logits, words, rows)
    return in_memory(num_words, with_raw, logits, words, rows)[1]


def in_memory(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    words: jax.Array | None,
    rows: Rows | None,
    cut_off: CutInMemory | None = None,
) -> tuple[jax.Array | None, Summary]:
    """The threshold of every row, float32[B] (of `cut_off`, else that of `rows`), and `summarize` with it, for a CPU.

    `rows` None: the sums alone, without a choice.

    Exponentials of the logits as they are need no maximum first; those for a `cut_off` are relative to one. Rows where they
    overflow, or where those of the allowed tokens vanish, are worked on again, relative to the maximum; which way a row goes
    depends on its own logits alone.
    """
    chooses, rows = rows is not None, rows or Rows()
    noise, inverse = rows.noise, rows.inverse
    of_rows = inverse is not None and inverse.ndim > 0  # else one number for all of them

    def of_block(index: jax.Array, words: Any, threshold: Any, own: Any) -> dict[str, jax.Array]:
        scale = own if of_rows else inverse
        return sums_of_rows(num_words, with_raw, logits, index, words, scale, threshold, noise is not None)

    own = inverse if of_rows else None
    if cut_off is None:
        kept = by_blocks(of_block, jnp.arange(len(logits), dtype=jnp.int32), words, rows.threshold, own)
    else:
        searched = cut_off.threshold

        def cut_block(index: jax.Array, words: Any, own: Any, *found: Any) -> dict[str, jax.Array]:
            scale = own if of_rows else inverse
            return cut_and_sums_of_rows(num_words, with_raw, logits, index, words, scale, CutInMemory(searched, *found))

        kept = by_blocks(cut_block, jnp.arange(len(logits), dtype=jnp.int32), words, own, cut_off.best, cut_off.rows)
    threshold = kept.get("threshold", rows.threshold)
    allowed, none = kept["allowed"].sum(1), jnp.zeros(len(logits), bool) if words is None else ~words.any(1)
    raw = kept["raw"].sum(1) if "raw" in kept else allowed
    ordinary = ((allowed > ORDINARY[0]) | none) & (raw < ORDINARY[1])
    if "raw" in kept:
        ordinary &= raw > ORDINARY[0]
    if not chooses:
        chosen = jnp.full_like(allowed, NEVER), jnp.full(allowed.shape, NO_ITEM, jnp.int32)
    elif noise is None:
        chosen = _best_token(num_words, logits, words, column_max_in_memory(clean(logits), words, num_words))
    else:
        chosen = _best_column(kept["drawn"] if "drawn" in kept else jnp.log(kept["allowed"]), noise)
    relative = 0.0 if cut_off is None or inverse is not None else finite(cut_off.best)
    usual = Summary(*chosen, jnp.log(allowed) + relative, jnp.log(raw) + relative)

    def again(usual: Summary, ordinary: Any, logits: jax.Array, words: Any, noise: Any, threshold: Any, own: Any) -> Summary:
        def at_last() -> Summary:
            others = at_once(num_words, with_raw, logits, words, Rows(noise, own if of_rows else inverse, threshold))
            return Summary(*(jnp.where(ordinary, x, y) for x, y in zip(usual, others)))

        return jax.lax.cond(ordinary.all(), lambda: usual, at_last)

    every = (usual, ordinary, logits, words, noise, threshold, own)
    return threshold, jax.lax.cond(ordinary.all(), lambda: usual, lambda: by_blocks(again, *every))


def _best_column(mass: jax.Array, noise: Noise) -> tuple[jax.Array, jax.Array]:
    score = mass + _noise(noise, mass.shape[1])
    best = score.max(1)
    item = _columns(mass.shape[1])
    return best, jnp.where((score == best[:, None]) & (score != NEVER), item, NO_ITEM).min(1)


def _best_token(num_words: int, logits: jax.Array, words: jax.Array | None, top: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best allowed logit, and the lowest token that has it; `top` float32[B, W]: the best of every column.

    The columns that have it tell the token; only where more than a few do are all planes looked at once more.
    """
    best = top.max(1)
    here = (top == best[:, None]) & (top != NEVER)
    columns, width = _columns(num_words), logits.shape[1]
    count = -(-width // num_words)
    column, found = jnp.full(best.shape, -1, jnp.int32), []
    for _ in range(_TIED):
        column = jnp.where(here & (columns > column[:, None]), columns, NO_ITEM).min(1)
        found.append(column)
    several = (here & (columns > column[:, None])).any()

    def of_columns() -> jax.Array:
        at = jnp.minimum(jnp.stack(found, 1), num_words - 1)
        plane = jnp.arange(min(count, 32), dtype=jnp.int32)[None, :, None]
        token = (at[:, None] + plane * num_words).reshape(len(best), -1)
        value = clean(jnp.take_along_axis(logits, jnp.minimum(token, width - 1), 1))
        ok = (value == best[:, None]) & (token < width)
        if words is not None:
            word = jnp.take_along_axis(words, at, 1)[:, None]
            ok &= ((word >> plane.astype(jnp.uint32)) & 1).reshape(ok.shape) != 0
        return jnp.where(ok, token, NO_ITEM).min(1)

    def of_block(logits: jax.Array, words: jax.Array | None, best: jax.Array, here: jax.Array) -> jax.Array:
        every = cut(clean(logits), words, num_words, NEVER)
        own = [jnp.where(y == best[:, None], b, count) for b, y in enumerate(every)]
        plane = functools.reduce(jnp.minimum, own)
        return jnp.where(here, plane * num_words + columns, NO_ITEM).min(1)

    def of_all() -> jax.Array:
        return by_blocks(of_block, logits, words, best, here)

    return best, jax.lax.cond(several, of_all, of_columns)


def at_once(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    words: jax.Array | None,
    rows: Rows,
    listed: tuple[jax.Array, jax.Array] | None = None,
) -> Summary:
    """Of any logits, by as few operations as there can be: what compiles fastest where a batch is small.

    `listed`: tokens int32[B, M] and which are allowed, 0 where not; they count in the sums, and without noise may be the best.
    """
    x = clean(logits)
    batch, count = len(x), -(-x.shape[1] // num_words)
    every = jnp.pad(x, ((0, 0), (0, count * num_words - x.shape[1])), constant_values=NEVER)

    def among(own: jax.Array | None) -> jax.Array:
        return every if own is None else jnp.where(own, every, NEVER)

    bits = own = None if words is None else bit_planes(words, count).reshape(every.shape)
    if own is not None and listed is not None:
        place = jnp.where(listed[1], listed[0], every.shape[1])
        own = own.at[jnp.arange(batch, dtype=jnp.int32)[:, None], place].set(True, mode="drop")
    allowed = among(own)
    sums = jnp.stack([allowed, every], 1) if with_raw and words is not None else allowed[:, None]
    best = sums.max(2)
    logs = finite(best) + jnp.log(jnp.exp(sums - finite(best)[..., None]).sum(2))
    if rows.noise is None:
        here = (allowed == best[:, :1]) & (allowed != NEVER)
        minus = -jnp.arange(every.shape[1], dtype=jnp.float32)[None]  # a reduction of floats is one operation
        chosen = best[:, 0], -jnp.where(here, minus, NEVER).max(1).astype(jnp.int32)
    else:
        drawn = drawable([among(bits)], rows.inverse, rows.threshold)[0].reshape(batch, count, num_words)
        base = finite(drawn.max(1))
        mass = jax.lax.optimization_barrier(jnp.exp(drawn - base[:, None])).sum(1)  # else exponentials one by one
        score = base + jnp.log(mass) + _noise(rows.noise, num_words)
        columns = (score, jnp.broadcast_to(_columns(num_words), score.shape))
        chosen = jax.lax.reduce(columns, (np.float32(NEVER), np.int32(NO_ITEM)), _better, (1,))
    return Summary(*chosen, logs[:, 0], logs[:, -1])


def _columns(num_words: int) -> jax.Array:
    return jnp.arange(num_words, dtype=jnp.int32)[None]


def _noise(noise: Noise, num_words: int) -> jax.Array:
    return gumbel(noise.key, noise.step, _columns(num_words).astype(jnp.uint32))
