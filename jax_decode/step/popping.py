"""Where popping leads: the nodes whose tokens a row may take, one for each number of cells popped.

A state carries them from step to step, so that a token costs one walk down the stack: mask and step read the walk that the step
before has made.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jax_decode.kernels.gather import fields, read, repeated, stacked, unstacked
from jax_decode.kernels.placement import rows_may_stand_last
from jax_decode.kernels.target import target
from jax_decode.step.guards import Words, children_at
from jax_decode.tables.stack_layout import (
    CHILD,
    CHILD_DISTANCE,
    CHILD_OFFSET,
    CONTEXT,
    COST,
    DELTA_OFFSET,
    DEPTH,
    FIRST_KEYS,
    PARENT,
    REGISTER,
    SYMBOL,
)
from jax_decode.tables.tables import ConstraintTables

NUM_FIELDS = 6
"""Numbers of a source besides its set of keys: node, cell, the cell's cost, depth and context, and register."""


def popped(
    tables: ConstraintTables,
    cell: jax.Array,
    node: jax.Array,
    top: jax.Array,
    register: jax.Array,
    used: Words,
    most: int | None = None,
) -> list[jax.Array]:
    """The fields of all sources, int32[B, K * (D + 1)] each: node, cell, cost, depth, register, context, words of keys.

    Args:
      tables: from `to_device`, with stacks.
      cell: int32[B, M * C], the cells of every row.
      node, top, register: int32[B, K], those of no pops; used: their sets of keys.
      most: static, no stack has more cells; None where that is not known.
    """

    def pop(carry: tuple[jax.Array, ...], _: jax.Array | int) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        node, begin, top, register, *used = carry
        own = cells_at(tables, cell, top)
        begin = children_at(tables, node, tuple(used)) if used else begin
        child, below = fields(tables.delta, (CHILD, CHILD_OFFSET), jnp.where((top > 0) & (node > 0), begin + own[SYMBOL], 0))
        words = (own[FIRST_KEYS + w] for w in range(len(used)))
        out = (node, top, own[COST], own[DEPTH], register, own[CONTEXT], *used)
        return (child, below, own[PARENT], own[REGISTER], *words), out

    (begin,) = fields(tables.frames, (DELTA_OFFSET,), node)
    if not used and most is None and rows_may_stand_last():
        return _popped_at_once(tables, cell, (node, begin, top, register))
    turns = tables.max_pops + 1 if most is None else min(tables.max_pops, most) + 1
    _, found = repeated(pop, (node, begin, top, register, *used), turns, lambda carry: (carry[0] > 0).any())
    if turns <= tables.max_pops:
        found = tuple(jnp.pad(x, ((0, 0), (0, 0), (0, tables.max_pops + 1 - turns))) for x in found)
    there = found[0] > 0  # what would stand where there is no source depends on how far the loop went
    found = (found[0], *(jnp.where(there, field, 0) for field in found[1:]))
    return [field.reshape(node.shape[0], -1) for field in found]


def _popped_at_once(
    tables: ConstraintTables, cell: jax.Array, start: tuple[jax.Array, ...]
) -> list[jax.Array]:
    """`popped` without sets of keys from node, where its children begin, top and register, for a TPU: only what the next pop
    depends on is read pop by pop, and all else by one operation."""
    node, begin, top, register = start
    return along(tables, node, begin, register, *below(tables, cell, top))


def below(tables: ConstraintTables, cell: jax.Array, top: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """The D + 1 cells from the top int32[B, K] downwards, and their columns, int32[B, C, K * (D + 1)]."""
    tops, own = [top], jnp.arange(len(cell), dtype=jnp.int32)[:, None]
    for _ in range(tables.max_pops):
        tops.append(read(cell, own, tops[-1] * tables.cell_width + PARENT))
    return tops, jnp.moveaxis(_columns_at(tables, cell, stacked(tops).reshape(len(cell), -1)), 0, 1)


def along(
    tables: ConstraintTables,
    node: jax.Array,
    begin: jax.Array,
    register: jax.Array,
    tops: Sequence[jax.Array],
    columns: jax.Array,
) -> list[jax.Array]:
    """What `popped` returns of what `below` found; `begin`: where the children of a node begin."""
    every = stacked(tops)
    column = [columns[:, i].reshape(every.shape) for i in range(columns.shape[1])]
    symbol, exists = column[SYMBOL][..., :-1], every[..., :-1] > 0
    nodes = jnp.concatenate([node[..., None], children_along(tables, begin, symbol, exists)[0]], -1)
    registers = jnp.concatenate([register[..., None], column[REGISTER][..., :-1]], -1)
    there = nodes > 0
    found = (every, column[COST], column[DEPTH], registers, column[CONTEXT])
    return [field.reshape(len(node), -1) for field in (nodes, *(jnp.where(there, field, 0) for field in found))]


def children_along(
    tables: ConstraintTables, begin: jax.Array, symbol: jax.Array, exists: jax.Array
) -> tuple[jax.Array, ...]:
    """The nodes that symbols lead to one after another, and their distances, int32[B, n, m] each; 0 from where one is missing.

    A missing node's children begin at 0, where as many entries are 0 as there are symbols: so no step asks for the node itself.

    Args:
      tables: from `to_device`, with stacks.
      begin: int32[B, n], where the children of the first node begin in `delta`.
      symbol, exists: [B, n, m].
    """
    entries = []
    for i in range(symbol.shape[-1]):
        entries.append(jnp.where(exists[..., i], begin + symbol[..., i], 0))
        (begin,) = fields(tables.delta, (CHILD_OFFSET,), entries[-1])
    return fields(tables.delta, (CHILD, CHILD_DISTANCE), stacked(entries))


def num_kept(tables: ConstraintTables) -> int:
    """Numbers of the sources that a state carries; static. None with several stacks, whose rows are worked on twice."""
    alone = tables.has_stack and tables.stacks == 1
    return (tables.max_pops + 1) * (NUM_FIELDS + tables.key_words) if alone else 0


def kept(tables: ConstraintTables, found: Sequence[jax.Array]) -> jax.Array:
    """Fields of sources as a state carries them."""
    if not num_kept(tables):
        return jnp.zeros((len(found[0]), 0), jnp.int32)
    if target() == "tpu":
        return jax.lax.concatenate(found, 1)
    return stacked(found, 1).reshape(len(found[0]), -1)


def cells_at(tables: ConstraintTables, cell: jax.Array, index: jax.Array) -> tuple[jax.Array, ...]:
    """The columns of cells at indices int32[B, n]."""
    return unstacked(_columns_at(tables, cell, index))


def _columns_at(tables: ConstraintTables, cell: jax.Array, index: jax.Array) -> jax.Array:
    width = tables.cell_width
    batch = jnp.arange(cell.shape[0], dtype=jnp.int32)[None, :, None]
    columns = jnp.arange(width, dtype=jnp.int32)[:, None, None]
    return read(cell, batch, index[None] * width + columns, rows=1)
