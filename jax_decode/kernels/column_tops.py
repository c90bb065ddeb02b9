"""The largest few logits of every column: what a sampler that cuts off needs of a row, without reading all logits again.

A pass over the logits keeps the `TOPS` largest of each column's 32, and per row the largest that it did not keep. A threshold
above that one has all of its tokens among those kept, so a kernel decides threshold and draw from an eighth of the logits, which
lie in a core's memory. The search and the draw are written for blocks of rows of any kind (`Cells`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jax_decode.kernels.noise import Words, gumbel
from jax_decode.kernels.planes import LOWEST, NEVER, column_sum, finite
from jax_decode.kernels.row_layout import LANES

TOPS = 4
_SUBLANES = 8
_TOGETHER = 4
"""Registers of a row of 128 lanes that are worked on side by side."""
_MOST_TURNS = 160
"""Turns of a search; every fourth halves the floats between its ends, so that 128 are enough but for numbers beside zero, which a
device may take for zeros."""
_NO_COLUMN = 2**30


class Cut(Enum):
    """What the number of a row says of its threshold: the count of tokens kept, the log-mass of those, or how far below the best
    logit the threshold is."""

    COUNT = "count"
    LOG_MASS = "log_mass"
    BELOW_BEST = "below_best"


class Settled(NamedTuple):
    """Of each row, [B]: threshold, float32; score, float32, of the column that is drawn among its tokens, -inf for none; and that
    column, int32. Where the threshold is not above what is hidden, all three mean nothing."""

    threshold: jax.Array
    score: jax.Array
    column: jax.Array


def tops_of(values: Sequence[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
    """The `TOPS` largest of arrays of equal shape, descending, elementwise, and the largest of the others; -inf for none.

    Source: Batcher 1968, Sorting Networks and Their Applications: fours are sorted, and merged two by two.
    """
    groups = [_sorted_four(values[i : i + TOPS]) for i in range(0, len(values), TOPS)]
    tops, hidden = groups[0], jnp.full_like(values[0], NEVER)
    for group in groups[1:]:
        pairs = [_exchanged(x, y) for x, y in zip(tops, reversed(group))]  # the larger of each are the four largest, bitonic
        (a, c), (b, d) = (_exchanged(pairs[i][0], pairs[i + 2][0]) for i in (0, 1))
        tops = [*_exchanged(a, b), *_exchanged(c, d)]
        hidden = functools.reduce(jnp.maximum, [least for _, least in pairs], hidden)
    # Zeros have one sign: what lies between the two has no place in the order of the floats on devices that flush denormals.
    return [jnp.where(top == 0, 0.0, top) for top in tops], hidden


def _sorted_four(values: Sequence[jax.Array]) -> list[jax.Array]:
    """At most `TOPS` arrays, descending, filled up with -inf."""
    a, b, c, d = [*values, *[jnp.full_like(values[0], NEVER)] * (TOPS - len(values))]
    (a, b), (c, d) = _exchanged(a, b), _exchanged(c, d)
    (a, c), (b, d) = _exchanged(a, c), _exchanged(b, d)
    return [a, *_exchanged(b, c), d]


def _exchanged(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.maximum(x, y), jnp.minimum(x, y)


def to_order(x: jax.Array) -> jax.Array:
    """int32 with the order of the floats."""
    i = jax.lax.bitcast_convert_type(x, jnp.int32)
    return jnp.where(i < 0, i ^ jnp.int32(0x7FFFFFFF), i)


def from_order(i: jax.Array) -> jax.Array:
    """The floats of `to_order`."""
    return jax.lax.bitcast_convert_type(jnp.where(i < 0, i ^ jnp.int32(0x7FFFFFFF), i), jnp.float32)


class Cells(Protocol):
    """The tops of a block of rows, and its listed tokens. Numbers of rows are [R, 1]."""

    def fold(self, of: Callable[[jax.Array, jax.Array | float], Sequence[jax.Array]], kinds: Sequence[str]) -> list[jax.Array]:
        """Over all cells the `kinds` ("max", "min", "sum") of what `of` makes of logits and their weights, 1 before `weigh`."""

    def weigh(self, base: jax.Array) -> None:
        """From now on weights are exponentials of logits relative to the rows' `base`."""

    def any(self, rows: jax.Array) -> jax.Array:
        """Whether it is true of any row, bool[]."""


_START = {"max": NEVER, "min": jnp.inf, "sum": 0.0}
_COMBINE: dict[str, Callable[..., jax.Array]] = {"max": jnp.maximum, "min": jnp.minimum, "sum": jnp.add}
_REDUCE: dict[str, Callable[..., jax.Array]] = {"max": jnp.max, "min": jnp.min, "sum": jnp.sum}


def threshold_of(cells: Cells, cut: Cut, number: jax.Array, hidden: jax.Array, real: jax.Array) -> jax.Array:
    """The threshold; not above `hidden` where the cells do not tell.

    Args:
      cells: the tops, and what is listed beside them.
      cut, number: how much is kept, float32[R, 1].
      hidden: the largest allowed logit that is no cell, float32[R, 1], -inf for none.
      real: rows that are, bool[R, 1]; others are left alone.
    """
    [best] = cells.fold(lambda y, _: (y,), ("max",))
    if cut is Cut.BELOW_BEST:
        return jnp.maximum(best + number, LOWEST)
    wanted = number
    if cut is Cut.LOG_MASS:
        cells.weigh(finite(best))
        wanted = jnp.exp(number - finite(best))
    everything, least = _from(cells, from_order(to_order(hidden) + 1))
    enough = (everything >= wanted) & (best > NEVER) & real
    low, high = jnp.where(enough, to_order(least), to_order(best)), to_order(best) + 1
    return jnp.where(enough, _narrowed(cells, wanted, low, high), LOWEST)  # without enough, all that is allowed


def _from(cells: Cells, place: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weight of the cells from a place on, and the least of them."""

    def of(y: jax.Array, weight: jax.Array | float) -> tuple[jax.Array, jax.Array]:
        return jnp.where(y >= place, weight, 0.0), jnp.where(y >= place, y, jnp.inf)

    weight, least = cells.fold(of, ("sum", "min"))
    return weight, least


def _narrowed(cells: Cells, wanted: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """The largest logit from which on cells have the weight wanted: it is one from `low` on and below `high`, int32 in the order
    of the floats. Both ends go from cell to cell, so the search ends when one logit is left, however many cells have it."""

    def goes_on(carry: tuple[Any, jax.Array, jax.Array]) -> jax.Array:
        turn, low, high = carry
        return cells.any(high > low + 1) & (turn < _MOST_TURNS)

    def another(carry: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
        turn, low, high = carry
        middle = to_order(0.5 * (from_order(low) + from_order(high - 1)))
        half_way = (low & high) + ((low ^ high) >> 1)  # of two integers without overflow
        place = from_order(jnp.clip(jnp.where(turn % 4 == 3, half_way, middle), low + 1, jnp.maximum(high - 1, low + 1)))

        def of(y: jax.Array, weight: jax.Array | float) -> tuple[jax.Array, ...]:
            inside = y >= place
            return jnp.where(inside, weight, 0.0), jnp.where(inside, y, jnp.inf), jnp.where(inside, NEVER, y)

        weight, least, below = cells.fold(of, ("sum", "min", "max"))
        enough, goes = weight >= wanted, high > low + 1
        moved = jnp.where(enough, to_order(least), low), jnp.where(enough, high, to_order(below) + 1)
        return turn + 1, jnp.where(goes, moved[0], low), jnp.where(goes, moved[1], high)

    _, low, high = jax.lax.while_loop(goes_on, another, (jnp.int32(0), low, high))
    return jnp.where(high > low + 1, NEVER, from_order(low))  # a search that was given up tells nothing


def score_of(tops: Sequence[jax.Array], threshold: jax.Array, key: Words, step: jax.Array, column: jax.Array) -> jax.Array:
    """Score of columns int32[R, n] in a draw by the mass of their tops from the threshold on; -inf for none."""
    mass = column_sum([jnp.where(y >= threshold, y, NEVER) for y in tops]).log
    return mass + gumbel(key, step, column.astype(jnp.uint32))


class _Block:
    """`Cells` of a TPU's kernel. refs: tops [TOPS, R, W], listed [R, M] or None, and memory for the weights of both."""

    def __init__(self, tops: Any, listed: Any, weights: Any, listed_weights: Any) -> None:
        self.tops, self.listed, self.weights, self.listed_weights = tops, listed, weights, listed_weights
        self.weighed = False
        lanes = tops.shape[2] // LANES
        self.wide = LANES * next(n for n in range(min(lanes, _TOGETHER), 0, -1) if lanes % n == 0)

    def slices(self, of: Callable[[Any, Any], Any], start: Any) -> Any:
        """`of(at, carry)` after one another for every `self.wide` columns."""
        count = self.tops.shape[2] // self.wide
        return jax.lax.fori_loop(0, count, lambda k, carry: of(pl.ds(k * self.wide, self.wide), carry), start)

    def fold(self, of: Callable[[jax.Array, jax.Array | float], Sequence[jax.Array]], kinds: Sequence[str]) -> list[jax.Array]:
        def of_slice(at: Any, carry: list[jax.Array]) -> list[jax.Array]:
            for t in range(TOPS):
                found = of(self.tops[t, :, at], self.weights[t, :, at] if self.weighed else 1.0)
                carry = [_COMBINE[kind](x, y) for kind, x, y in zip(kinds, carry, found)]
            return carry

        height = self.tops.shape[1]
        lanes = self.slices(of_slice, [jnp.full((height, self.wide), _START[kind], jnp.float32) for kind in kinds])
        out = [_REDUCE[kind](x, 1, keepdims=True) for kind, x in zip(kinds, lanes)]
        if self.listed is None:
            return out
        found = of(self.listed[...], self.listed_weights[...] if self.weighed else 1.0)
        return [_COMBINE[kind](x, _REDUCE[kind](y, 1, keepdims=True)) for kind, x, y in zip(kinds, out, found)]

    def weigh(self, base: jax.Array) -> None:
        def of_slice(at: Any, carry: jax.Array) -> jax.Array:
            for t in range(TOPS):
                self.weights[t, :, at] = jnp.exp(self.tops[t, :, at] - base)
            return carry

        self.slices(of_slice, jnp.int32(0))
        if self.listed is not None:
            self.listed_weights[...] = jnp.exp(self.listed[...] - base)
        self.weighed = True

    def any(self, rows: jax.Array) -> jax.Array:
        return jnp.max(jnp.where(rows, 1.0, 0.0)) > 0

    def drawn(self, threshold: jax.Array, key: Words, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Best score of a column and the first that has it, [R, 1] each."""
        shape = (self.tops.shape[1], self.wide)

        def of_slice(at: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            best, first = carry
            column = at.start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
            score = score_of([self.tops[t, :, at] for t in range(TOPS)], threshold, key, step, column)
            return jnp.maximum(best, score), jnp.where(score > best, column, first)

        start = jnp.full(shape, NEVER, jnp.float32), jnp.full(shape, _NO_COLUMN, jnp.int32)
        score, column = self.slices(of_slice, start)
        best = jnp.max(score, 1, keepdims=True)
        return best, jnp.min(jnp.where(score == best, column, _NO_COLUMN), 1, keepdims=True)


def settled(
    cut: Cut,
    tops: jax.Array,
    listed: jax.Array,
    number: jax.Array,
    hidden: jax.Array,
    key: jax.Array,
    step: jax.Array,
    *,
    interpret: bool = False,
) -> Settled:
    """The threshold and the draw of every row, by a TPU's kernel.

    Args:
      cut, number: how much is kept, float32[B].
      tops: float32[TOPS, B, W], scaled, of `tops_of`.
      listed: scaled logits of the candidates, float32[B, M], -inf for none; M may be 0.
      hidden: float32[B], the largest logit of a column that is not among `tops`.
      key: uint32[B, 2]; step: uint32[B].
      interpret: run without a TPU, slowly.
    """
    batch, width = tops.shape[1:]
    height, lists = min(batch, _SUBLANES), [listed] if listed.shape[1] else []

    def kernel(*refs: Any) -> None:
        tops, *rest = refs
        of_list = rest.pop(0) if lists else None
        number, hidden, key, step, threshold, score, column, weights, *listed_weights = rest
        cells = _Block(tops, of_list, weights, *(listed_weights or [None]))
        row = pl.program_id(0) * height + jax.lax.broadcasted_iota(jnp.int32, (height, 1), 0)
        border = threshold_of(cells, cut, number[...], hidden[...], row < batch)
        threshold[...], words = border, key[...]
        score[...], column[...] = cells.drawn(border, (words[:, :1], words[:, 1:]), step[...])

    rows = [number[:, None], hidden[:, None], key, step[:, None]]
    of_rows = [pl.BlockSpec((height, x.shape[1]), lambda i: (i, 0)) for x in (*lists, *rows)]
    memory = [pltpu.VMEM((TOPS, height, width), jnp.float32), *(pltpu.VMEM((height, x.shape[1]), jnp.float32) for x in lists)]
    out = [jax.ShapeDtypeStruct((batch, 1), dtype) for dtype in (jnp.float32, jnp.float32, jnp.int32)]
    found = pl.pallas_call(
        kernel,
        grid=(-(-batch // height),),
        in_specs=[pl.BlockSpec((TOPS, height, width), lambda i: (0, i, 0)), *of_rows],
        out_specs=[pl.BlockSpec((height, 1), lambda i: (i, 0)) for _ in out],
        out_shape=out,
        scratch_shapes=memory,
        interpret=interpret,
        name="tops_settled",
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
    )(tops, *lists, *rows)
    return Settled(*(x[:, 0] for x in found))
