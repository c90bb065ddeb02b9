"""One pass over the logits per step: the winning column of every row and the log-sums behind its log-probabilities.

Two forms of the same sums, because compilers differ: an accelerator's fuses all of it into one reduction that reads every logit
once; the CPU's vectorises elementwise loops but neither several results of one loop nor a reduction of several operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels import one_pass
from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.one_pass import folded
from jax_decode.kernels.planes import (
    NEVER,
    Planes,
    Sum,
    allowed_logits,
    both,
    column_best,
    column_log_sum,
    column_log_sums,
    column_sum,
    column_sums,
    cube,
    drawable,
    log_add,
    log_sum,
    planes,
)
from jax_decode.kernels.row_layout import LANES

NO_ITEM = 2**31 - 1
"""Larger than every token and column."""


class Noise(NamedTuple):
    """What the Gumbel noise of a draw depends on: key words uint32[B, 2] and step uint32[B]."""

    key: jax.Array
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
) -> Summary:
    """The step's pass over the logits.

    Args:
      logits: float[B, V'].
      words: uint32[B, W], bit planes of the allowed tokens; None allows all.
      num_words: W.
      noise: None takes the best token; else a column is drawn by its mass.
      inverse: inverse temperature, float32[] or None for 1.
      threshold: float32[B], least scaled logit that may be drawn, or None.
      with_raw: whether to sum all logits too; without, `raw` is NaN, and an exponential per logit is saved on some devices.
    """
    forms: dict[str, Callable[..., Summary]] = {"cpu": _on_cpu, "default": _fused}
    if one_pass.wanted():
        forms["tpu"] = in_one_pass
    elif noise is None and words is not None and with_raw:
        forms["tpu"] = _in_two_passes
    forms = {name: functools.partial(form, num_words, with_raw) for name, form in forms.items()}
    summary = jax.lax.platform_dependent(logits, words, noise, inverse, threshold, **forms)
    return summary if with_raw else summary._replace(raw=jnp.full_like(summary.raw, jnp.nan))


def _fused(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    words: jax.Array | None,
    noise: Noise | None,
    inverse: jax.Array | None,
    threshold: jax.Array | None,
) -> Summary:
    rows = _Rows(noise, inverse, threshold)
    return _reduced(_of_columns(num_words, with_raw, rows, planes(logits, words, num_words), _columns(num_words)))


class _Rows(NamedTuple):
    """What a draw depends on besides logits and mask; see `summarize`."""

    noise: Noise | None
    inverse: jax.Array | None
    threshold: jax.Array | None


class _Columns(NamedTuple):
    """Of every column, [B, n]: score and item, and the sums over the allowed logits and over the others (None: not asked for)."""

    score: jax.Array
    item: jax.Array
    inside: Sum
    outside: Sum | None


def _of_columns(num_words: int, with_raw: bool, rows: _Rows, parts: Planes, column: jax.Array) -> _Columns:
    values = allowed_logits(parts)
    inside, outside = column_sums(parts) if with_raw and parts[0][1] is not None else (column_sum(values), None)
    if rows.noise is None:
        score, plane = column_best(values)
        return _Columns(score, plane * num_words + column, inside, outside)
    plain = rows.inverse is None and rows.threshold is None
    drawn = inside.log if plain else column_log_sum(drawable(values, rows.inverse, rows.threshold))
    score = drawn + gumbel(*rows.noise, column.astype(jnp.uint32))
    return _Columns(score, jnp.broadcast_to(column, score.shape), inside, outside)


def _reduced(columns: _Columns) -> Summary:
    """Of all columns [B, n]."""
    logs = [columns.inside.log]
    if columns.outside is not None:
        logs.append(log_add(logs[0], columns.outside.log))
    start = (NEVER, NO_ITEM, NEVER, NEVER)[: 2 + len(logs)]
    score, item, *sums = _reduce((columns.score, columns.item, *logs), start, _better)
    return Summary(score, item, sums[0], sums[-1])


def in_one_pass(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    words: jax.Array | None,
    noise: Noise | None,
    inverse: jax.Array | None,
    threshold: jax.Array | None,
    *,
    interpret: bool = False,
) -> Summary:
    """`summarize` by a kernel that reads every logit once."""
    rows = [] if noise is None else [noise.key, noise.step[:, None]]
    rows += [] if inverse is None else [jnp.broadcast_to(inverse, (len(logits), 1))]
    rows += [] if threshold is None else [threshold[:, None]]

    def of_columns(parts: Planes, column: jax.Array, *own: jax.Array) -> _Columns:
        left = list(own)
        noise_of = None if noise is None else Noise(left.pop(0), left.pop(0))
        given = _Rows(noise_of, *(None if x is None else left.pop(0) for x in (inverse, threshold)))
        return _of_columns(num_words, with_raw, given, parts, column)

    def better(a: _Columns, b: _Columns) -> _Columns:
        takes = (a.score > b.score) | ((a.score == b.score) & (a.item < b.item))
        outside = None if a.outside is None or b.outside is None else both(a.outside, b.outside)
        return _Columns(jnp.maximum(a.score, b.score), jnp.where(takes, a.item, b.item), both(a.inside, b.inside), outside)

    empty: tuple[Any, ...] = (NEVER, 0.0, NO_ITEM)
    none = Sum(*empty[:2])
    start = _Columns(empty[0], empty[2], none, none if with_raw and words is not None else None)
    lanes = folded(of_columns, better, start, logits, words, num_words, rows, interpret=interpret)
    return _reduced(lanes)


def _reduce(operands: Sequence[jax.Array], start: Sequence[float], combine: Callable[..., Any]) -> list[jax.Array]:
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


def _in_two_passes(num_words: int, with_raw: bool, logits: jax.Array, words: jax.Array, *_: None) -> Summary:
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
    return Summary(score, item, *_reduce(sums, (NEVER, NEVER), _log_add_all))


def _log_add_all(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    return tuple(log_add(x, y) for x, y in zip(a, b))


def _on_cpu(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    words: jax.Array | None,
    noise: Noise | None,
    inverse: jax.Array | None,
    threshold: jax.Array | None,
) -> Summary:
    every, inside = jax.lax.optimization_barrier(cube(logits, words, num_words))
    values = [inside[:, b] for b in range(inside.shape[1])]
    kept = {"allowed": column_log_sum(values)}
    if words is not None and with_raw:
        kept["raw"] = column_log_sum([every[:, b] for b in range(every.shape[1])])
    if noise is None:
        kept |= dict(zip(("top", "plane"), column_best(values)))
    elif inverse is not None or threshold is not None:
        kept["drawn"] = column_log_sum(drawable(values, inverse, threshold))
    kept = jax.lax.optimization_barrier(kept)  # else each reduction below would repeat the pass in a scalar loop
    if noise is None:
        score, item = kept["top"], kept["plane"] * num_words + _columns(num_words)
    else:
        score = kept.get("drawn", kept["allowed"]) + _noise(noise, num_words)
        item = jnp.broadcast_to(_columns(num_words), score.shape)
    best = score.max(1)
    first = jnp.where((score == best[:, None]) & (score != NEVER), item, NO_ITEM).min(1)
    allowed = log_sum(kept["allowed"])
    return Summary(best, first, allowed, log_sum(kept["raw"]) if "raw" in kept else allowed)


def _columns(num_words: int) -> jax.Array:
    return jnp.arange(num_words, dtype=jnp.int32)[None]


def _noise(noise: Noise, num_words: int) -> jax.Array:
    return gumbel(noise.key, noise.step, _columns(num_words).astype(jnp.uint32))
