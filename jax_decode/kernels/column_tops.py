"""The largest few logits of every column: what a sampler that cuts off needs of a row, without reading all logits again.

A pass over the logits keeps the `TOPS` largest of each column's 32, and per row the largest that it did not keep. A threshold
above that one has all of its tokens among those kept, so a kernel decides threshold and draw from an eighth of the logits, which
lie in a core's memory (`settled_rows`). The search is written for blocks of rows of any kind (`Cells`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jax_decode.kernels.noise import Words, gumbel
from jax_decode.kernels.planes import LOWEST, NEVER, Sum, finite, from_order, to_order

TOPS = 4
_MOST_TURNS = 160
"""Turns of a search; every fourth halves the floats between its ends, so that 128 are enough."""
_LEAST = 0x0080_0000
"""The least normal number in the order of the floats: smaller ones are zeros to a device, and a search among them would stay."""


class Cut(Enum):
    """What the number of a row says of the tokens that are kept: how many, which share of the mass (1: all), or how probable they
    are at least, relative to the best one."""

    COUNT = "count"
    MASS = "mass"
    OF_BEST = "of_best"


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


class Cells(Protocol):
    """The tops of a block of rows, and its listed tokens. Numbers of rows are [R, 1]."""

    def fold(self, of: Callable[[jax.Array, jax.Array | float], Sequence[jax.Array]], kinds: Sequence[str]) -> list[jax.Array]:
        """Over all cells the `kinds` ("max", "min", "sum") of what `of` makes of logits [n, R, m] and their weights, 1 before
        `weigh`."""

    def weigh(self, base: jax.Array) -> None:
        """From now on weights are exponentials of logits relative to the rows' `base`."""

    def any(self, rows: jax.Array) -> jax.Array:
        """Whether it is true of any row, bool[]."""


START = {"max": NEVER, "min": jnp.inf, "sum": 0.0}
COMBINE: dict[str, Callable[..., jax.Array]] = {"max": jnp.maximum, "min": jnp.minimum, "sum": jnp.add}
REDUCE: dict[str, Callable[..., jax.Array]] = {"max": jnp.max, "min": jnp.min, "sum": jnp.sum}


def threshold_of(cells: Cells, cut: Cut, number: jax.Array, hidden: jax.Array, real: jax.Array) -> jax.Array:
    """The threshold; not above `hidden` where the cells do not tell.

    Args:
      cells: the tops, and what is listed beside them.
      cut, number: how much is kept, float32[R, 1]: a count, the logarithm of a mass, or of a probability relative to the best.
      hidden: the largest allowed logit that is no cell, float32[R, 1], -inf for none.
      real: rows that are, bool[R, 1]; others are left alone.
    """
    [best] = cells.fold(lambda y, _: (y,), ("max",))
    if cut is Cut.OF_BEST:
        return jnp.maximum(best + number, LOWEST)
    wanted = number
    if cut is Cut.MASS:
        cells.weigh(finite(best))
        wanted = jnp.exp(number - finite(best))
    everything, least = _from(cells, from_order(to_order(hidden) + 1))
    enough = (everything >= wanted) & (best > NEVER) & real
    low, high = jnp.where(enough, to_order(least), to_order(best)), to_order(best) + 1
    return jnp.where(enough, _narrowed(cells, wanted, low, high), LOWEST)  # without enough, all that is allowed


def _from(cells: Cells, place: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weight of the cells from a place on, and the least of them."""

    def of(y: jax.Array, weight: jax.Array | float) -> tuple[jax.Array, jax.Array]:
        inside = y >= place[None]
        return jnp.where(inside, weight, 0.0), jnp.where(inside, y, jnp.inf)

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
        between = jnp.clip(jnp.where(turn % 4 == 3, half_way, middle), low + 1, jnp.maximum(high - 1, low + 1))
        place = from_order(jnp.where((between > 0) & (between < _LEAST), _LEAST, between))

        def of(y: jax.Array, weight: jax.Array | float) -> tuple[jax.Array, ...]:
            inside = y >= place[None]
            return jnp.where(inside, weight, 0.0), jnp.where(inside, y, jnp.inf), jnp.where(inside, NEVER, y)

        weight, least, below = cells.fold(of, ("sum", "min", "max"))
        enough, goes = weight >= wanted, high > low + 1
        moved = jnp.where(enough, to_order(least), low), jnp.where(enough, high, to_order(below) + 1)
        return turn + 1, jnp.where(goes, moved[0], low), jnp.where(goes, moved[1], high)

    _, low, _ = jax.lax.while_loop(goes_on, another, (jnp.int32(0), low, high))
    return from_order(low)


def score_of(tops: jax.Array, threshold: jax.Array, key: Words, step: jax.Array, column: jax.Array) -> jax.Array:
    """Score of columns int32[R, n] in a draw by the mass of their tops [m, R, n] from the threshold on; -inf for none."""
    drawn = jnp.where(tops >= threshold[None], tops, NEVER)
    most = drawn.max(0)
    mass = Sum(most, jnp.exp(drawn - finite(most)[None]).sum(0)).log
    return mass + gumbel(key, step, column.astype(jnp.uint32))
