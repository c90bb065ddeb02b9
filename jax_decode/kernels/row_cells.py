"""The cells of every row's stack as one kernel of a TPU: it writes those of a token, and reads the path down from the new top.

A parent can only be read after the cell above it, and XLA makes two operations of each. In their time the kernel looks at all
cells of a row once for every cell on the path, and selects the 128 numbers among which it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.turned_rows import turn

MOST_NUMBERS = 1 << 14
"""Of a row's cells, all of which the kernel looks at for every cell on the path: of more, operations of XLA read them faster."""
_AT_ONCE = 8
"""Registers of a row that one turn of a loop looks at."""
ROWS = 32
"""Rows that are worked on at a time: what one waits for, another does."""


def written_and_followed(
    elsewhere: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    cell: jax.Array,
    given: jax.Array,
    parent: int,
    width: int,
    count: int,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Cells with new numbers in them, and the path down from the top.

    Args:
      elsewhere: does the same with `cell` and `given`, for other devices and for rows of sizes that the kernel is not made for.
      cell: int32[B, N], cells of `width` numbers one after another.
      given: int32[B, 2 + n], of every row where n new numbers begin, all of them inside; the cell that the path begins at; and
        the numbers. A cell leads to the one that stands in its column `parent`.
      count: cells on the path.
      interpret: run without a TPU, slowly.

    Returns:
      The cells int32[B, N], and int32[B, count * (1 + width)], the cells on the path and then the numbers of each of them.
    """
    numbers, results = cell.shape[1], count * (1 + width)
    if numbers % LANES or numbers > MOST_NUMBERS or max(given.shape[1], results) > LANES:
        return elsewhere(cell, given)

    def by_kernel(cell: jax.Array, given: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _called(cell, given, parent, width, count, interpret)

    if interpret:
        return by_kernel(cell, given)
    return jax.lax.platform_dependent(cell, given, tpu=by_kernel, default=elsewhere)


def _called(
    cell: jax.Array, given: jax.Array, parent: int, width: int, count: int, interpret: bool
) -> tuple[jax.Array, jax.Array]:
    (batch, numbers), results = cell.shape, count * (1 + width)
    height = min(batch, ROWS)
    of_lanes = [pl.BlockSpec((n, LANES), lambda i: (0, jax.lax.div(i, LANES // ROWS))) for n in (given.shape[1], results)]
    of_cells = pl.BlockSpec((height, numbers), lambda i: (i, 0))
    cell, found = pl.pallas_call(
        _kernel(height, given.shape[1] - 2, parent, width, count),
        grid=(-(-batch // height),),
        in_specs=[of_lanes[0], of_cells],
        out_specs=[of_cells, of_lanes[1]],
        out_shape=[jax.ShapeDtypeStruct(x, jnp.int32) for x in (cell.shape, (results, batch))],
        input_output_aliases={1: 0},
        scratch_shapes=[pltpu.VMEM((LANES, LANES), jnp.int32)] * 3,
        interpret=interpret,
        name="cells_followed",
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
    )(given.T, cell)
    return cell, found.T


def _kernel(height: int, new: int, parent: int, width: int, count: int) -> Callable[..., None]:
    def kernel(given: Any, cell: Any, out: Any, found: Any, sheet: Any, turned: Any, results: Any) -> None:
        step = pl.program_id(0)
        first = pl.multiple_of(jax.lax.rem(step, LANES // ROWS) * ROWS, ROWS)
        pl.when(first == 0)(lambda: turn([[given]], sheet, turned))
        own = turned[pl.ds(first, height)]
        lane = jax.lax.broadcasted_iota(jnp.int32, (height, LANES), 1)

        _write(cell, out, own, new)
        top, kept = own[:, 1:2], jnp.where(lane == 0, own[:, 1:2], 0)
        for i in range(count):
            numbers = _from(out, top * width)
            top, begin = numbers[:, parent : parent + 1], count + i * width
            kept = jnp.where((lane >= begin) & (lane < begin + width), _numbers(numbers, lane - begin), kept)
            kept = jnp.where(lane == i + 1, top, kept) if i + 1 < count else kept
        results[pl.ds(first, height)] = kept

        @pl.when((first == LANES - ROWS) | (step == pl.num_programs(0) - 1))
        def _() -> None:
            found[...] = results[...].T[: count * (1 + width)]

    return kernel


def _write(cell: Any, out: Any, own: jax.Array, new: int) -> None:
    """All cells, with the numbers from the third of each row's own on in the place that the first says: in two blocks at most."""
    lane = jax.lax.broadcasted_iota(jnp.int32, own.shape, 1)
    block, at = own[:, :1] >> 7, lane - (own[:, :1] & (LANES - 1))
    number, following = _numbers(own, at + 2), _numbers(own, at + LANES + 2)
    place = jnp.where((at >= 0) & (at < new), block, -1)
    next_place = jnp.where(at + LANES < new, block + 1, -1)

    def write(k: Any, carry: jax.Array) -> jax.Array:
        old = cell[:, _registers(k)]
        out[:, _registers(k)] = jnp.where(place == k, number, jnp.where(next_place == k, following, old))
        return carry

    _over(cell.shape[1], write, jnp.int32(0))


def _from(cells: Any, begin: jax.Array) -> jax.Array:
    """Of every row the 128 numbers from one on, int32[R, 1]; what is beyond the last of all means nothing."""
    shape = (len(begin), LANES)
    lane = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    block = jnp.broadcast_to(begin >> 7, shape)
    following = block + 1

    def look(k: Any, found: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        own = cells[:, _registers(k)]
        return jnp.where(block == k, own, found[0]), jnp.where(following == k, own, found[1])

    here, there = _over(cells.shape[1], look, (jnp.zeros(shape, jnp.int32),) * 2)
    at = lane + (begin & (LANES - 1))
    return jnp.where(at < LANES, _numbers(here, at), _numbers(there, at))


def _numbers(own: jax.Array, index: jax.Array) -> jax.Array:
    """Of 128 numbers of every row those at the last seven bits of an index."""
    return jnp.take_along_axis(own, index & (LANES - 1), 1, mode="promise_in_bounds")


def _registers(k: Any) -> Any:
    return pl.ds(pl.multiple_of(k * LANES, LANES), LANES)


def _over(numbers: int, step: Callable[[Any, Any], Any], carry: Any) -> Any:
    """`carry = step(k, carry)` for every 128 of the numbers, a few in one turn of a loop."""
    blocks = numbers // LANES
    together = max(n for n in range(1, _AT_ONCE + 1) if blocks % n == 0)

    def turns(k: Any, carry: Any) -> Any:
        for i in range(together):
            carry = step(k * together + i, carry)
        return carry

    return jax.lax.fori_loop(0, blocks // together, turns, carry)
