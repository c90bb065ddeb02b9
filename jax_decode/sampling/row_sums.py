"""Sums over the columns of some rows on a CPU, whose caches hold few logits and which works for every pass over them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels.blocks import over_planes
from jax_decode.kernels.planes import NEVER, by_planes, clean, cut, finite, scaled
from jax_decode.sampling.mass_search import pieces_lanes, row_lanes


class Threshold(NamedTuple):
    """Where rows are cut off, [n] each.

    logit: float32, scaled; exponential: float32, of that logit; apart: bool, whether the exponentials that are not below it are
    those of the logits that are not: a lower logit may have the same one.
    """

    logit: jax.Array
    exponential: jax.Array
    apart: jax.Array


class CutInMemory(NamedTuple):
    """How a row's threshold is found where its numbers are in memory.

    threshold: function of a block: rows int32[n], inverse temperature, exponentials [n, V'] of scaled logits relative to `best`,
    in pieces, 0 where not allowed, `best` and `rows`; returns a `Threshold`. best: the best scaled logit of every row,
    float32[B]; rows: a tree of arrays with one row each.
    """

    threshold: Callable[..., Threshold]
    best: jax.Array
    rows: Any


def sums_of_rows(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    index: jax.Array,
    words: jax.Array | None,
    inverse: jax.Array | None,
    threshold: jax.Array | None,
    draws: bool,
) -> dict[str, jax.Array]:
    """Of every column of some rows, [n, W] each: sums of exponentials, and the log-mass that is drawn.

    Args:
      logits: of all rows.
      index: int32[n], which of them, one after another.
      words, inverse, threshold: of these rows; see `summary.summarize`.
      draws: whether a column is drawn.
    """
    marked = None if inverse is not None else threshold
    x = clean(rows_of(logits, index))
    if (words is not None and with_raw) or marked is not None:
        kept = over_planes(*_sums(num_words, with_raw, words, marked), logits, index, num_words)
    else:
        e = jax.lax.optimization_barrier(jnp.exp(x))  # else one loop over every plane, compiled and launched each
        kept = {"allowed": _added(cut(e, words, num_words, 0.0))}
    if draws and inverse is not None:
        kept["drawn"] = _scaled_masses(num_words, jax.lax.optimization_barrier(x), words, inverse, threshold)
    elif draws and threshold is not None:
        kept["drawn"] = jnp.log(kept["drawn"])
    return kept


def _sums(
    num_words: int, with_raw: bool, words: jax.Array | None, threshold: jax.Array | None
) -> tuple[Callable[..., dict[str, jax.Array]], dict[str, float]]:
    """For `over_planes`, two sums and more: exponentials of so few logits at a time that all but the first sum find them in a
    core's own cache. One sum alone would have them worked out in its loop, which the compiler does not vectorise."""

    def another(kept: dict[str, jax.Array], logits: jax.Array, first: jax.Array) -> dict[str, jax.Array]:
        x, own = clean(logits), None if words is None else words >> first
        e = jnp.exp(x)
        if threshold is not None:  # the sign tells what passes; by a division, which the compiler does not work out for every sum
            e = e / jnp.where(x >= threshold[:, None], -1.0, 1.0)
        inside = list(cut(e, own, num_words, 0.0))
        sums = {"allowed": functools.reduce(lambda total, e: total + jnp.abs(e), inside, kept["allowed"])}
        if "raw" in kept:
            sums["raw"] = functools.reduce(jnp.add, cut(jnp.abs(e), None, num_words, 0.0), kept["raw"])
        if "drawn" in kept:
            sums["drawn"] = functools.reduce(lambda total, e: total - jnp.minimum(e, 0.0), inside, kept["drawn"])
        return sums

    names = ["allowed", *(["raw"] if words is not None and with_raw else []), *([] if threshold is None else ["drawn"])]
    return another, dict.fromkeys(names, 0.0)


def cut_and_sums_of_rows(
    num_words: int,
    with_raw: bool,
    logits: jax.Array,
    index: jax.Array,
    words: jax.Array | None,
    inverse: jax.Array | None,
    cut_off: CutInMemory,
) -> dict[str, jax.Array]:
    """`sums_of_rows`, and the threshold, float32[n]: all that a search for it reads is in memory."""
    base = finite(cut_off.best)[:, None]
    x = clean(rows_of(logits, index))
    e = jax.lax.optimization_barrier(jnp.exp(scaled(x, inverse) - base))
    exps = masked(e, words, num_words)
    own = e if inverse is None else jax.lax.optimization_barrier(jnp.exp(x))
    allowed = exps if inverse is None else masked(own, words, num_words)
    kept = {"allowed": pieces_lanes(allowed), "raw": row_lanes(own)}
    if words is None or not with_raw:
        del kept["raw"]
    found = cut_off.threshold(index, inverse, exps, cut_off.best, cut_off.rows)

    def by_exponential() -> jax.Array:
        every = itertools.chain.from_iterable(cut(piece, None, num_words, 0.0) for piece in exps)
        return _added(jnp.where(z >= found.exponential[:, None], z, 0.0) for z in every)

    def by_logit() -> jax.Array:
        y = jax.lax.optimization_barrier(scaled(clean(rows_of(logits, index)), inverse))
        return _from(found.logit, y, exps, None, num_words)

    kept["threshold"] = found.logit
    kept["drawn"] = base + jnp.log(jax.lax.cond(found.apart.all(), by_exponential, by_logit))
    return kept


def masked(e: jax.Array, words: jax.Array | None, num_words: int) -> tuple[jax.Array, ...]:
    """Numbers [n, V'] in memory, 0 where not allowed, in one piece or two: the compiler would copy them to join these."""
    if words is None:
        return (e,)

    def among(words: jax.Array) -> tuple[jax.Array, jax.Array]:
        return by_planes(e, words, num_words, 0.0)

    # A branch of its own, or the compiler works masks out again in every loop that reads the numbers, and does not vectorise it.
    every = jnp.full_like(words, 2**32 - 1)
    whole, rest = jax.lax.cond((words != every).any(), lambda: among(words), lambda: among(every))
    return tuple(piece for piece in (whole.reshape(len(e), -1), rest) if piece.shape[1])


def rows_of(logits: jax.Array, index: jax.Array) -> jax.Array:
    """Rows int32[n] of all, one after another: read from where all lie, they need no copy."""
    return jax.lax.dynamic_slice_in_dim(logits, index[0], len(index))


def _added(values: Iterable[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, values)


def _from(
    threshold: jax.Array, x: jax.Array, e: Sequence[jax.Array], words: jax.Array | None, num_words: int
) -> jax.Array:
    """Sums over columns of numbers `e`, in pieces, where the allowed `x` are not below the threshold."""
    every = itertools.chain.from_iterable(cut(piece, None, num_words, 0.0) for piece in e)
    return _added(jnp.where(y >= threshold[:, None], z, 0.0) for y, z in zip(cut(x, words, num_words, NEVER), every))


def _scaled_masses(
    num_words: int, x: jax.Array, words: jax.Array | None, inverse: jax.Array, threshold: jax.Array | None
) -> jax.Array:
    """Log-masses of columns at a temperature, relative to the best allowed logit: noise lies within 26 of each other, so a column
    whose mass vanishes beside it has no chance."""
    top = functools.reduce(jnp.maximum, cut(x, words, num_words, NEVER))
    best = finite(jax.lax.optimization_barrier(top).max(1, keepdims=True))
    y = scaled(x, inverse)
    y, z = jax.lax.optimization_barrier((y, jnp.exp(y - scaled(best, inverse))))
    if threshold is None:
        return scaled(best, inverse) + jnp.log(_added(cut(z, words, num_words, 0.0)))
    return scaled(best, inverse) + jnp.log(_from(threshold, y, (z,), words, num_words))
