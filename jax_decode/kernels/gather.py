"""Reads of tables in the style of the whole package: every index is known to be inside, and small loops are unrolled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.kernels.placement import rows_may_stand_last
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.target import of_one_row, target

_UNROLL, _LOOPED = 16, 6
_VALUE_BITS = 24
Carry = TypeVar("Carry")


def read(table: jax.Array, *index: jax.Array, rows: int | None = 0) -> jax.Array:
    """`table[index]` for int32 indices known to be inside (tables are padded for reads past a node's own entries).

    Args:
      table, index: as said.
      rows: the axis of the indices that counts rows: on a TPU numbers are read with that axis last, where its compiler has it
        (see `rows_may_stand_last`); None where it does not, as among lists that are sorted.
    """
    shape = jnp.broadcast_shapes(*(x.shape for x in index))
    # Along one axis: a TPU's compiler would lay out indices [B, 1] anew for every table. By `lax` itself: a step has hundreds of
    # reads, and every operation that `jnp` adds to one is traced and lowered.
    flat, rest = (math.prod(shape), 1), table.shape[len(index) :]
    order = None
    if rows is not None and len(shape) > 1 and shape[-1] < 2 * LANES and not rest and rows_may_stand_last():
        order = (*(i for i in range(len(shape)) if i != rows), rows)
    columns = [
        jax.lax.broadcast(x, flat)
        if not x.ndim
        else jax.lax.reshape(x if x.shape == shape else jnp.broadcast_to(x, shape), flat, order)
        for x in index
    ]
    entry = tuple(range(1, 1 + len(rest)))
    found = jax.lax.gather(
        table,
        columns[0] if len(columns) == 1 else jax.lax.concatenate(columns, 1),
        jax.lax.GatherDimensionNumbers(entry, tuple(range(len(index))), tuple(range(len(index)))),
        (*(1 for _ in index), *rest),
        mode="promise_in_bounds",
    )
    if order is not None and rows is not None:
        return jnp.moveaxis(whole(jax.lax.reshape(found, tuple(shape[i] for i in order))), -1, rows)
    found = jax.lax.reshape(found, (*shape, *rest))
    if rest or len(shape) == 1 or rows is None:
        return found
    return whole(found)  # or what is done with the numbers would be done along one axis


def fields(table: jax.Array, columns: Sequence[int], *index: jax.Array) -> tuple[jax.Array, ...]:
    """Fields of the records at an index, each of the index's shape.

    On a TPU every column is read by itself: its compiler would write a whole narrow table anew, every record padded to 128 lanes,
    to read records as rows; single numbers it reads where they lie. Elsewhere one gather reads records up to the last column.

    Args:
      table: its last axis are the columns.
      columns: which of them.
      index: int32 for every other axis, known to be inside.
    """
    if target() == "tpu":
        return _numbers(table, columns, index)
    shape, end = index[0].shape, max(columns) + 1
    flat = [jax.lax.reshape(x, (math.prod(shape), 1)) for x in index]
    axes = tuple(range(len(index)))
    found = jax.lax.gather(
        table,
        flat[0] if len(flat) == 1 else jax.lax.concatenate(flat, 1),
        jax.lax.GatherDimensionNumbers((1,), axes, axes),
        (*(1 for _ in index), end),
        mode="promise_in_bounds",
    )
    return tuple(jax.lax.reshape(jax.lax.slice_in_dim(found, i, i + 1, axis=1), shape) for i in columns)


def _numbers(table: jax.Array, columns: Sequence[int], index: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """`fields` number by number, all by one operation."""
    if len(columns) == 1 or index[0].size == len(index[0]) or not rows_may_stand_last():  # of one index a row, several cost less
        return tuple(read(table, *index, jnp.int32(c)) for c in columns)
    shape = (len(columns), *index[0].shape)
    order = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    column = order + columns[0]
    for i, c in enumerate(columns):
        if c != columns[0] + i:
            column = jnp.where(order == i, c, column)
    return unstacked(read(table, *(jnp.broadcast_to(x, shape) for x in index), column, rows=1))


def picked(where: jax.Array, *values: jax.Array) -> tuple[jax.Array, ...]:
    """Of every row, int32[B, 1], the values int32[B, n] at the one place where bool[B, n] holds; 0 where it holds nowhere."""
    if where.shape[1] == 1:
        return tuple(jnp.where(where, x, 0) for x in values)
    return tuple(found[:, None] for found in _sums(where, values))


def largest(entry: Callable[[jax.Array], jax.Array], count: int, shape: tuple[int, ...]) -> jax.Array:
    """The largest of `entry(0) .. entry(count - 1)` and 0, int32[*shape].

    `entry` takes places that broadcast to int32[*shape, n] and returns that.

    Args:
      entry: values of several entries of all rows.
      count: static number of entries.
      shape: of the result.
    """

    def together() -> jax.Array:
        at = _written_out(count, shape) if target() == "cpu" else places(count, shape)
        if of_one_row():
            return jnp.maximum(entry(at).max(-1), 0)
        return jax.lax.reduce(entry(at), np.int32(0), jax.lax.max, (len(shape),))

    def unrolled() -> jax.Array:
        best = jnp.zeros((*shape, 1), jnp.int32)
        for i in range(count):
            best = jnp.maximum(best, entry(_place(i, shape)))
        return best[..., 0]

    return _by_device(together, unrolled, count)


def last_of(entry: Callable[[jax.Array], tuple[jax.Array, jax.Array]], count: int, shape: tuple[int, ...]) -> jax.Array:
    """The value of the last of `entry(0) .. entry(count - 1)` that counts, int32[*shape]; 0 where none does.

    `entry`: like that of `largest`, but returns whether an entry counts, bool, and its value, int32 from 0 below 2 ** 24; there
    are at most 127 entries.
    """

    def placed(i: jax.Array) -> jax.Array:  # place and value in one number: one reduction tells both
        counts, value = entry(i)
        return jnp.where(counts, (whole(i) << _VALUE_BITS) | value, 0)

    return largest(placed, count, shape) & ((1 << _VALUE_BITS) - 1)


def places(count: int, shape: tuple[int, ...]) -> jax.Array:
    """0 .. count - 1 along a last axis of arrays of a shape, int32[*shape, count].

    Of the whole shape: a smaller one would be an operation of its own on a TPU. On a CPU of numbers that are written out: XLA
    works out what follows from them alone, and would otherwise compile a kernel for it.
    """
    if target() == "cpu":
        return jnp.broadcast_to(_written_out(count, shape), (*shape, count))
    return jax.lax.broadcasted_iota(jnp.int32, (*shape, count), len(shape))


def whole(numbers: jax.Array) -> jax.Array:
    """The same numbers; what is worked out from them alone is no operation of its own on a TPU, but done where it is used."""
    return jax.lax.optimization_barrier(numbers) if target() == "tpu" else numbers


def _written_out(count: int, shape: tuple[int, ...]) -> jax.Array:
    return cast(jax.Array, np.arange(count, dtype=np.int32).reshape((1,) * len(shape) + (count,)))


def _place(i: int, shape: tuple[int, ...]) -> jax.Array:
    return jnp.full((*(1,) * len(shape), 1), i, jnp.int32)


def _by_device(together: Callable[[], jax.Array], unrolled: Callable[[], jax.Array], count: int) -> jax.Array:
    """A GPU's compiler fuses an unrolled chain with its neighbours into one kernel, where a reduction stands alone; those of a
    TPU and a CPU make one operation of every entry instead."""
    return together() if count > _UNROLL or of_one_row() or target() in ("cpu", "tpu") else unrolled()


def repeated(
    step: Callable[[Carry, jax.Array | int], tuple[Carry, tuple[jax.Array, ...]]],
    carry: Carry,
    end: int,
    going: Callable[[Carry], jax.Array] | None = None,
) -> tuple[Carry, tuple[jax.Array, ...]]:
    """The last carry of `carry, out = step(carry, i)` for i from 0 below `end`, and all `out`, int32 of one shape, stacked
    behind.

    Unrolled for an accelerator, where every turn of a loop is a launch; a loop on a CPU, which compiles its body once.

    Args:
      step, carry: as said.
      end: static.
      going: whether steps on a carry still change anything, bool[]: a loop may stop where not, and what is not written is 0.
    """
    if end < _LOOPED or target() != "cpu":
        outs = []
        for i in range(end):
            carry, out = step(carry, i)
            outs.append(out)
        return carry, tuple(stacked(out) for out in zip(*outs))
    shapes = jax.eval_shape(lambda carry: step(carry, jnp.int32(0))[1], carry)

    def again(state: tuple[jax.Array, Carry, jax.Array]) -> tuple[jax.Array, Carry, jax.Array]:
        i, carry, outs = state
        carry, out = step(carry, i)
        return i + 1, carry, jax.lax.dynamic_update_index_in_dim(outs, jnp.stack(out), i, 0)  # one array in place of many

    def more(state: tuple[jax.Array, Carry, jax.Array]) -> jax.Array:
        return (state[0] < end) if going is None else (state[0] < end) & going(state[1])

    empty = jnp.zeros((end, len(shapes), *shapes[0].shape), jnp.int32)
    _, carry, written = jax.lax.while_loop(more, again, (jnp.int32(0), carry, empty))
    return carry, tuple(jnp.moveaxis(written[:, k], 0, -1) for k in range(len(shapes)))


def stacked(parts: Sequence[jax.Array], axis: int = -1) -> jax.Array:
    """Few arrays of one shape stacked along a new axis; on a TPU by selection, which is one elementwise operation, where its
    compiler would write one after another."""
    axis %= parts[0].ndim + 1

    def selected(*parts: jax.Array) -> jax.Array:
        shape = (*parts[0].shape[:axis], len(parts), *parts[0].shape[axis:])
        # Of comparisons with numbers that it knows, the compiler would make an operation each.
        place = jax.lax.optimization_barrier(jax.lax.broadcasted_iota(jnp.int32, shape, axis))
        out = jnp.broadcast_to(jnp.expand_dims(parts[0], axis), shape)
        for i, part in enumerate(parts[1:], 1):
            out = jnp.where(place == i, jnp.expand_dims(part, axis), out)
        return out

    if target() == "tpu":
        return selected(*parts)
    return jax.lax.concatenate([jax.lax.expand_dims(part, (axis,)) for part in parts], axis)


def unstacked(parts: jax.Array) -> tuple[jax.Array, ...]:
    """The arrays that were stacked along the first axis."""
    return tuple(jax.lax.index_in_dim(parts, i, keepdims=False) for i in range(len(parts)))


class Joint(NamedTuple):
    """Lists of different lengths, one after another, as one list: of every slot, [B, n], whether there is an entry, where it
    lies, and which list it is of."""

    exists: jax.Array
    place: jax.Array
    source: jax.Array


def joined(count: jax.Array, slots: jax.Array, offset: jax.Array) -> Joint:
    """The joint list of entries that lie one after another in a table.

    Args:
      count: int32[B, S], entries of each list.
      slots: int32[1 or B, n], places in the joint list.
      offset: int32[B, S], index of each list's first entry. A slot without an entry has the place 0.
    """
    shape = (count.shape[0], slots.shape[1])
    if count.shape[1] == 1:
        exists = slots < count
        return Joint(exists, jnp.where(exists, offset + slots, 0), jnp.zeros(shape, jnp.int32))
    order = np.arange(count.shape[1], dtype=np.int32)
    end = _summed(jnp.where((order[None] <= order[:, None])[None], count[:, None], 0))
    begin = end - count
    here = (slots[..., None] >= begin[:, None]) & (slots[..., None] < end[:, None])
    first, source = _sums(here, [(offset - begin)[:, None], jnp.asarray(order)[None, None]])
    exists = slots < end[:, -1:]
    return Joint(exists, jnp.where(exists, first + slots, 0), source)


def _sums(where: jax.Array, values: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Of int32 arrays that broadcast to the condition's shape, the sums over the last axis where it holds: on a GPU as one
    reduction for each, elsewhere as one with several results."""
    own = [jnp.where(where, value, 0) for value in values]
    if target() not in ("cpu", "tpu"):
        return [_summed(value) for value in own]
    zeros = [np.int32(0)] * len(own)
    return jax.lax.reduce(own, zeros, lambda a, b: [x + y for x, y in zip(a, b)], (where.ndim - 1,))


def _summed(x: jax.Array) -> jax.Array:
    """Over the last axis."""
    return jax.lax.reduce(x, np.int32(0), jax.lax.add, (x.ndim - 1,))
