"""Sets of keys on the device: a set is W' words int32[B, n] each, and guards are conditions on it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jax_decode.kernels.gather import fields, read
from jax_decode.tables.guard_layout import ADDED, ALL, FIRST_UNSET, NUM_UNSET, POPS
from jax_decode.tables.tables import ConstraintTables

Words = tuple[jax.Array, ...]


def allows(tables: ConstraintTables, guard: jax.Array, used: Words) -> jax.Array:
    """Whether guards int32[B, n] allow sets, bool[B, n]; guard 0 allows every one."""
    first, count, every = fields(tables.guards, (FIRST_UNSET, NUM_UNSET, ALL), guard)
    fits = ~_misses(tables, every, used)
    for i in range(tables.max_unset):
        there = i < count
        fits &= ~there | _misses(tables, jnp.where(there, first + i, 0), used)
    return fits


def _misses(tables: ConstraintTables, mask: jax.Array, used: Words) -> jax.Array:
    """Whether some bit of a mask, a row of `keys`, is not in a set: bool[B, n]."""
    words = [needed & ~own for needed, own in zip(with_keys(tables, mask), used)]
    return functools.reduce(jnp.bitwise_or, words) != 0


def after_guard(tables: ConstraintTables, guard: jax.Array, used: Words) -> Words:
    """Sets after guards int32[B, n]."""
    return tuple(own | more for own, more in zip(used, with_keys(tables, read(tables.guards, guard, jnp.int32(ADDED)))))


def with_keys(tables: ConstraintTables, row: jax.Array) -> Words:
    """The sets that rows of `keys` int32[B, n] hold."""
    return fields(tables.keys, range(tables.key_words), row)


def children_at(tables: ConstraintTables, node: jax.Array, used: Words) -> jax.Array:
    """Where the children of nodes int32[B, n] begin in `delta`, by the conditions on the sets of their frames."""
    case = jnp.zeros_like(node)
    for i in range(tables.max_conditions):
        guard = read(tables.set_nodes, node, jnp.full_like(node, POPS + i))
        case += jnp.where((guard > 0) & allows(tables, guard, used), 1 << i, 0)
    return read(tables.set_nodes, node, POPS + tables.max_conditions + case)
