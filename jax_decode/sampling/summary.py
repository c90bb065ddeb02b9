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

from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import (
    NEVER,
    allowed_logits,
    column_best,
    column_log_sum,
    column_log_sums,
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
    if noise is None and words is not None and with_raw:
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
    parts = planes(logits, words, num_words)
    values = allowed_logits(parts)
    if words is None or not with_raw:
        allowed = raw = column_log_sum(values)
    else:
        allowed, raw = column_log_sums(parts)
    if noise is None:
        score, plane = column_best(values)
        item = plane * num_words + _columns(num_words)
    else:
        plain = inverse is None and threshold is None
        drawn = allowed if plain else column_log_sum(drawable(values, inverse, threshold))
        score = drawn + _noise(noise, num_words)
        item = jnp.broadcast_to(_columns(num_words), score.shape)
    if raw is allowed:
        score, item, total = _reduce((score, item, allowed), (NEVER, NO_ITEM, NEVER), _better)
        return Summary(score, item, total, total)
    return Summary(*_reduce((score, item, allowed, raw), (NEVER, NO_ITEM, NEVER, NEVER), _better))


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
