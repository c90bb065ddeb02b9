"""Reads of tables in the style of the whole package: every index is known to be inside, and small loops are unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

_UNROLL, _LOOPED = 16, 3
Carry = TypeVar("Carry")


def read(table: jax.Array, *index: jax.Array) -> jax.Array:
    """`table[index]` for indices known to be inside (tables are padded for reads past a node's own entries)."""
    return table.at[index].get(mode="promise_in_bounds")


def largest(entry: Callable[[jax.Array], jax.Array], count: int, shape: tuple[int, ...]) -> jax.Array:
    """The largest of `entry(0) .. entry(count - 1)` and 0, int32[*shape].

    `entry` takes int32[1, …, n] and returns int32[*shape, n].

    Args:
      entry: values of several entries of all rows.
      count: static number of entries.
      shape: of the result.
    """

    def together() -> jax.Array:
        return jnp.maximum(entry(places(count, shape)).max(-1), 0)

    def unrolled() -> jax.Array:
        best = jnp.zeros((*shape, 1), jnp.int32)
        for i in range(count):
            best = jnp.maximum(best, entry(_place(i, shape)))
        return best[..., 0]

    return _by_device(together, unrolled, count)


def last_of(entry: Callable[[jax.Array], tuple[jax.Array, jax.Array]], count: int, shape: tuple[int, ...]) -> jax.Array:
    """The value of the last of `entry(0) .. entry(count - 1)` that counts, int32[*shape], at least 0; 0 where none does.

    `entry`: like that of `largest`, but returns whether an entry counts, bool, and its value, int32.
    """

    def together() -> jax.Array:
        place = places(count, shape)
        counts, value = entry(place)
        last = jnp.where(counts, place, -1).max(-1)
        return jnp.where(counts & (place == last[..., None]), value, 0).max(-1)

    def unrolled() -> jax.Array:
        kept = jnp.zeros((*shape, 1), jnp.int32)
        for i in range(count):
            counts, value = entry(_place(i, shape))
            kept = jnp.where(counts, value, kept)
        return kept[..., 0]

    return _by_device(together, unrolled, count)


def places(count: int, shape: tuple[int, ...]) -> jax.Array:
    """0 .. count - 1, int32[1, …, count], along a last axis of arrays of a shape."""
    return jnp.asarray(np.arange(count, dtype=np.int32).reshape(*(1,) * len(shape), count))


def _place(i: int, shape: tuple[int, ...]) -> jax.Array:
    return jnp.full((*(1,) * len(shape), 1), i, jnp.int32)


def _by_device(together: Callable[[], jax.Array], unrolled: Callable[[], jax.Array], count: int) -> jax.Array:
    """A GPU's compiler fuses an unrolled chain with its neighbours into one kernel, where a reduction stands alone; those of a
    TPU and a CPU make one operation of every entry instead."""
    return together() if count > _UNROLL else jax.lax.platform_dependent(cpu=together, tpu=together, default=unrolled)


def repeated(
    step: Callable[[Carry, jax.Array | int], tuple[Carry, tuple[jax.Array, ...]]], carry: Carry, first: int, end: int
) -> tuple[Carry, tuple[jax.Array, ...]]:
    """The last carry of `carry, out = step(carry, i)` for i from `first` below `end`, and all `out`, int32 of one shape, stacked
    in front.

    Unrolled for an accelerator, where every turn of a loop is a launch; a loop on a CPU, which compiles its body once.
    """

    def looped() -> tuple[Carry, tuple[jax.Array, ...]]:
        def together(carry: Carry, i: jax.Array) -> tuple[Carry, jax.Array]:
            carry, out = step(carry, i)
            return carry, jnp.stack(jnp.broadcast_arrays(*out))  # one array to write to in place of many

        last, outs = jax.lax.scan(together, carry, jnp.arange(first, end, dtype=jnp.int32))
        return last, tuple(outs[:, k] for k in range(outs.shape[1]))

    def unrolled() -> tuple[Carry, tuple[jax.Array, ...]]:
        last, outs = carry, []
        for i in range(first, end):
            last, out = step(last, i)
            outs.append(out)
        return last, tuple(jnp.stack(out) for out in zip(*outs))

    return unrolled() if end - first < _LOOPED else jax.lax.platform_dependent(cpu=looped, default=unrolled)


def joined(count: jax.Array, slots: jax.Array, *fields: jax.Array) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
    """Lists of different lengths, one after another, as one list.

    Args:
      count: int32[B, S], entries of each list.
      slots: int32[1, n], places in the joint list.
      fields: int32[B, S] each, a number of each list.

    Returns:
      Whether there is an entry at each slot, bool[B, n]; its place in its own list, int32[B, n]; its list's fields, int32[B, n]
      each.
    """
    place, end = slots, count[:, :1]
    chosen = [field[:, :1] for field in fields]
    for s in range(1, count.shape[1]):
        past = slots >= end
        place = jnp.where(past, slots - end, place)
        chosen = [jnp.where(past, field[:, s : s + 1], old) for field, old in zip(fields, chosen)]
        end = end + count[:, s : s + 1]
    shape = (count.shape[0], slots.shape[1])
    return slots < end, jnp.broadcast_to(place, shape), [jnp.broadcast_to(field, shape) for field in chosen]
