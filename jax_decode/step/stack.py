"""The stack of every row, on the device: cells that are only ever appended, and the sources that popping leads to.

The cells of a row form a tree (a cactus stack): popping moves `top` to a cell's parent, pushing appends cells at `alloc`. So
an earlier position is restored by its few small arrays alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.artifact.arrays import MAX_REGISTER, UNREACHABLE
from jax_decode.kernels.gather import fields, places, read, repeated, stacked, unstacked, whole
from jax_decode.kernels.placement import rows_may_stand_last
from jax_decode.step.guards import Words, allows, with_keys
from jax_decode.step.popping import NUM_FIELDS, cells_at, children_along, num_kept, popped
from jax_decode.step.state import ConstraintState
from jax_decode.tables.canonical import FILTER
from jax_decode.tables.concatenation import ACCEPT, DISTANCE, FREE
from jax_decode.tables.guard_layout import TWIN, WANTED, WANTED_DISTANCE
from jax_decode.tables.items import node_in, to_end
from jax_decode.tables.stack_layout import (
    CHILD,
    CHILD_DISTANCE,
    CHILD_OFFSET,
    CONTENT,
    DELTA_OFFSET,
    HASH_PARENT,
    HASH_REGISTER,
    HASH_SYMBOL,
    LADDER,
    SLOPE,
    SYMBOL_COST,
    SYMBOL_NEED,
)
from jax_decode.tables.tables import ConstraintTables


class Known(NamedTuple):
    """What a kernel has found of rows before their tokens, int32; see `masking.located`.

    accepted: [B, 1]; rows: [B, S], of `mask_rows`; cost, need: [B, S], of `limits`. exists, place, source, row: [B, G], the
    groups of all sources as a list like `Joint`, and their bit rows; need and source are None without stacks. arcs: [B, M + E]
    each, of the list of arcs of sources without bit row their places in the table, and what they may cost and need; a stop id t
    that may be taken has the place -1 - t. Nothing where no constraint has arcs.
    """

    accepted: jax.Array
    rows: jax.Array
    cost: jax.Array
    need: jax.Array | None
    exists: jax.Array
    place: jax.Array
    source: jax.Array | None
    row: jax.Array
    arcs: tuple[jax.Array, ...]


class Sources(NamedTuple):
    """The nodes whose tokens a row may take, int32[B, S]; S = K * (D + 1), those of one configuration together.

    node: 0 where there is none; cell: top of the stack after the source's pops, 0 for the empty stack; cost, depth, context: of
    the stack left; register, used: register and set of keys of the frame that the source belongs to. With sets of keys, the
    sources are followed by their twins, and where places have two nodes, by their partners. record: int32[B, S] each, the columns
    of `ConstraintTables.nodes`. item: int32[B], where rows stand in a trie of items, -1 elsewhere; None without tries. ends:
    bool[B], whether the tokenizer's filter lets a text end; None without one. carried: int32[B, *], the sources' numbers as a
    state carries them, before any were doubled; None without stacks. slope: int32[B, S], what counters add to costs, or 0.
    known: what a kernel has found of them, if it did; then slopes are left out, and of the records what nothing asks for.
    """

    node: jax.Array
    cell: jax.Array
    cost: jax.Array
    depth: jax.Array
    register: jax.Array
    context: jax.Array
    used: Words = ()
    record: tuple[jax.Array, ...] = ()
    item: jax.Array | None = None
    ends: jax.Array | None = None
    carried: jax.Array | None = None
    slope: jax.Array | int = 0
    known: Known | None = None


class Cells(NamedTuple):
    """What a token appends: 6 or 7 columns of cells, int32[B, n, PM] each; and of the stack after it, [B, n].

    length: how many cells; cost, depth: of the top cell; need: depth of stack that the suspended frames of the new cells may
    take; content: the bits of a hash of the stack, None where a single stack is followed.
    """

    columns: list[jax.Array]
    length: jax.Array
    cost: jax.Array
    depth: jax.Array
    need: jax.Array
    content: jax.Array | None


def sources(tables: ConstraintTables, state: ConstraintState) -> Sources:
    """All sources of every row."""
    at = places_of(tables, state)
    at = at._replace(slope=slope_at(tables, at.node, at.register))
    return at._replace(record=() if tables.only_items else fields(tables.nodes, range(8), at.node))


def places_of(tables: ConstraintTables, state: ConstraintState) -> Sources:
    """`sources` without their records and slopes: enough to know whether a text is accepted."""
    first, item = node_in(tables.items, state.node)
    item = None if item is None else item[:, 0]
    ends = None if tables.filter is None else read(tables.filter.final, state.canonical[:, FILTER])
    found, carried = [first] + [jnp.zeros_like(first)] * (NUM_FIELDS - 1), None
    if num_kept(tables):
        width, carried = tables.max_pops + 1, state.sources
        found = [carried[:, i : i + width] for i in range(0, num_kept(tables), width)]
    elif tables.has_stack:
        found = popped(tables, state.cell, first, state.top, state.register, ())
        carried = jnp.concatenate(found, 1)
    node, cell, cost, depth, register, context, *used = found
    at = Sources(node, cell, cost, depth, register, context, tuple(used), item=item, ends=ends, carried=carried)
    if used:
        twins = read(tables.set_nodes, node, jnp.int32(TWIN))
        at = at._replace(node=jnp.concatenate([node, twins], 1), used=tuple(jnp.concatenate([x, x], 1) for x in used))
        at = _twice(at)
    if tables.partners:  # the free and the dead node are their own
        partner = jnp.where(at.node > FREE, at.node + 1, at.node)
        at = _twice(at._replace(node=jnp.concatenate([at.node, partner], 1)))
    return at


def stack_at(tables: ConstraintTables, at: Sources, source: jax.Array) -> tuple[tuple[jax.Array, ...], Words]:
    """Of sources with indices int32[B, n]: cell, cost, depth, context and register, and the sets of keys, int32[B, n] each."""
    assert at.carried is not None
    count = NUM_FIELDS + tables.key_words
    width = at.carried.shape[1] // count  # doubled sources share what is carried
    batch = jnp.arange(source.shape[0], dtype=jnp.int32)[None, :, None]
    columns = np.arange(1, count, dtype=np.int32)[:, None, None] * np.int32(width)
    own = source if at.node.shape[1] <= width else jax.lax.rem(source, jnp.int32(width))
    found = read(at.carried, batch, own[None] + columns, rows=1)
    cell, cost, depth, register, context, *used = unstacked(found)
    return (cell, cost, depth, context, register), tuple(used)


_OF_STACK = ("cell", "cost", "depth", "context", "register")


def _twice(at: Sources) -> Sources:
    """Sources whose nodes are twice as many, with the rest of both halves."""
    cell, cost, depth, context, register = (jnp.concatenate([getattr(at, name)] * 2, 1) for name in _OF_STACK)
    return at._replace(cell=cell, cost=cost, depth=depth, context=context, register=register)


def _some(at: Sources, begin: int, end: int) -> Sources:
    """A part of the sources."""
    node, cell, cost, depth, context, register = (getattr(at, name)[:, begin:end] for name in ("node", *_OF_STACK))
    used, record = (tuple(x[:, begin:end] for x in every) for every in (at.used, at.record))
    slope = at.slope if isinstance(at.slope, int) else at.slope[:, begin:end]
    return Sources(node, cell, cost, depth, register, context, used, record, at.item, at.ends, at.carried, slope)


def halves(at: Sources) -> tuple[Sources, Sources]:
    """Where places have two nodes, the sources that popping leads to, and their partners."""
    size = at.node.shape[1]
    return _some(at, 0, size // 2), _some(at, size // 2, size)


def without_twins(tables: ConstraintTables, at: Sources) -> Sources:
    """The sources that are no twins: all that accept, or have bit rows."""
    return _some(at, 0, tables.max_pops + 1) if tables.key_words else at


def accepts(tables: ConstraintTables, at: Sources) -> jax.Array:
    """Whether the text so far belongs to the row's language, bool[B]."""
    at = without_twins(tables, at)
    accept = []
    if not tables.only_items:
        (accepting,) = (at.record[ACCEPT],) if at.record else fields(tables.nodes, (ACCEPT,), at.node)
        accept.append((accepting > 0).any(1))
    if tables.items is not None and at.item is not None:
        accept.append((at.item >= 0) & (to_end(tables.items, jnp.maximum(at.item, 0)) == 0))
    accepted = functools.reduce(jnp.logical_or, accept)
    return accepted if at.ends is None else accepted & at.ends


def shortest(tables: ConstraintTables, at: Sources) -> jax.Array:
    """Tokens within which a row's text can be completed, int32[B]."""
    if tables.items is not None and at.item is not None:
        of_item = to_end(tables.items, jnp.maximum(at.item, 0))
        other = jnp.zeros_like(of_item) if tables.only_items else shortest(tables, at._replace(item=None))
        return jnp.where(at.item >= 0, of_item, other)
    if not tables.has_stack:
        return at.record[DISTANCE][:, 0]
    at = halves(at)[0] if tables.partners else without_twins(tables, at)
    each = tables.max_pops + 1
    node, own = at.node[:, ::each], at.record[DISTANCE][:, ::each]
    total = own + at.cost[:, ::each] + (at.slope if isinstance(at.slope, int) else at.slope[:, ::each])
    if at.used:  # another distance where some required key is still to be read next
        guard, distance = fields(tables.set_nodes, (WANTED, WANTED_DISTANCE), node)
        wanted = (guard > 0) & allows(tables, guard, tuple(word[:, ::each] for word in at.used))
        total += jnp.where(wanted, distance - own, 0)
    return jnp.where(node > 0, total, UNREACHABLE).min(1)


def completion(tables: ConstraintTables, node: jax.Array, register: jax.Array, cost: jax.Array) -> jax.Array:
    """Tokens within which configurations can be completed, int32[B, n]; `cost` is that of their cells."""
    return read(tables.nodes, node, jnp.int32(DISTANCE)) + cost + slope_at(tables, node, register)


def slope_at(tables: ConstraintTables, node: jax.Array, register: jax.Array) -> jax.Array | int:
    """What the slopes of nodes add to costs at the registers of their frames."""
    return _sloped(fields(tables.counters, SLOPE, node), register) if tables.has_counters else 0


def node_at(tables: ConstraintTables, base: jax.Array, register: jax.Array) -> jax.Array:
    """Nodes of base nodes whose frames have these registers."""
    return base + _rung(fields(tables.counters, LADDER, base), register) if tables.has_counters else base


def number(tables: ConstraintTables, value: jax.Array, tokens: jax.Array) -> jax.Array:
    """Additions and settings: constants, or per token where negative; `tokens` int32[B], `value` int32[*, B, n]."""
    if not tables.increments.shape[0]:
        return value
    table = jnp.clip(-1 - value, 0, tables.increments.shape[0] - 1)
    token = jnp.broadcast_to(tokens[None, :, None], value.shape)
    word = read(tables.increments, table, token >> 1, rows=1)
    looked_up = (word >> ((token & 1) << 4).astype(jnp.uint32)) & 0xFFFF
    return jnp.where(value < 0, looked_up.astype(jnp.int32), value)


def added(register: jax.Array, number: jax.Array) -> jax.Array:
    """A register after an addition; it stops at `MAX_REGISTER`."""
    return jnp.minimum(register + number, jnp.int32(MAX_REGISTER))


def pushed(
    tables: ConstraintTables, state: ConstraintState, push: jax.Array, under: Under, register: jax.Array, alloc: jax.Array
) -> Cells:
    """The cells that push strings append.

    Args:
      tables: from `to_device`.
      state: the rows.
      push: int32[B, n], push strings, 0 for none.
      under: what they are put on.
      register: int32[B, n], of the frame that a string's first symbol suspends.
      alloc: int32[B, n], where their first cells will be.
    """
    at = places(tables.max_push, push.shape)
    first, of_string = whole(at) == 0, jnp.broadcast_to(push[..., None], at.shape)
    symbol, registers, more, deep = fields(tables.pushes, range(4), of_string, at)
    exists, deep = deep > 0, deep - 1
    if tables.has_counters:
        of_first = symbol[..., 0] + _rung(fields(tables.symbols, LADDER, symbol[..., 0]), register)
        *slope, cost, need = fields(tables.symbols, (*SLOPE, SYMBOL_COST, SYMBOL_NEED), of_first)
        own = (of_first, cost + _sloped(slope, register), need)
        symbol, more, deep = (jnp.where(first, x[..., None], y) for x, y in zip(own, (symbol, more, deep)))
    registers = jnp.where(first, register[..., None], registers)
    parent = jnp.where(first, under.cell[..., None], alloc[..., None] + at - 1)
    depth = under.depth[..., None] + at + 1

    content = (cells_at(tables, state.cell, under.cell)[CONTENT],) if tables.stacks > 1 else ()
    (begin,) = fields(tables.frames, (DELTA_OFFSET,), under.context)
    known = children_along(tables, begin, symbol, exists) if rows_may_stand_last() else None

    def another(carry: tuple[jax.Array, ...], i: jax.Array | int) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        context, begin, cost, *content = carry
        every = (exists, symbol, more, registers)
        if isinstance(i, int):
            own = [jax.lax.index_in_dim(x, i, -1, keepdims=False) for x in every]
        else:
            own = [jax.lax.dynamic_index_in_dim(x, i, -1, keepdims=False) for x in every]
        if known is not None:
            context, distance = (x[..., i] for x in known)
        else:
            child = jnp.where(own[0] & (context > 0), begin + own[1], 0)  # where there is nothing, all is 0
            context, begin, distance = fields(tables.delta, (CHILD, CHILD_OFFSET, CHILD_DISTANCE), child)
        cost = jnp.where(own[0], jnp.minimum(cost + (own[2] - distance), UNREACHABLE), cost)
        content = [jnp.where(own[0], _mix(x, own[1], own[3]), x) for x in content]
        return (context, begin, cost, *content), (context, cost, *content)

    (_, _, cost, *top), (context, costs, *kept) = repeated(another, (under.context, begin, under.cost, *content), at.shape[-1])
    columns = [symbol, parent, depth, costs, registers, context]
    if under.used:
        others = with_keys(tables, read(tables.push_keys, of_string, at))
        columns += [jnp.where(first, x[..., None], y) for x, y in zip(under.used, others)]
    length = exists.sum(-1, dtype=jnp.int32)
    need = jnp.where(exists, depth - 1 + deep, 0).max(-1)
    return Cells(columns + kept, length, cost, under.depth + length, need, top[0] if top else None)


class Under(NamedTuple):
    """The stack that a push string is put on, int32[B, n] each, see `Sources`; `used`: the set of keys of the frame that the
    string's first symbol suspends."""

    cell: jax.Array
    cost: jax.Array
    depth: jax.Array
    context: jax.Array
    used: Words = ()


def appended(cell: jax.Array, columns: Sequence[jax.Array], alloc: jax.Array) -> jax.Array:
    """The cells [B, M * C] with new ones from `alloc` int32[B] on, whose columns are int32[B, n, PM] each."""
    batch, width = len(cell), len(columns)
    if rows_may_stand_last():  # along one axis: its compiler would check and add up two indices by six operations
        new = stacked([column.reshape(batch, -1) for column in columns], 0)
        number, row, entry = (jax.lax.broadcasted_iota(jnp.int32, new.shape, axis) for axis in range(3))
        place = row * cell.shape[1] + (alloc[None, :, None] + entry) * width + number
        place, new = (jax.lax.reshape(x, (x.size,), (0, 2, 1)) for x in (place, new))
        return cell.reshape(-1).at[place].set(new, mode="promise_in_bounds", unique_indices=True).reshape(cell.shape)
    new = stacked([column.reshape(batch, -1) for column in columns]).reshape(batch, -1)
    rows = jnp.arange(batch, dtype=jnp.int32)[:, None]
    place = alloc[:, None] * width + jnp.arange(new.shape[1], dtype=jnp.int32)[None]
    return cell.at[rows, place].set(new, mode="promise_in_bounds", unique_indices=True)


def _mix(content: jax.Array, symbol: jax.Array, register: jax.Array) -> jax.Array:
    """Hash of a stack with one more cell, the bits of which are an int32."""
    hashed, symbol, register = (x.astype(jnp.uint32) for x in (content, symbol, register))
    own = symbol * jnp.uint32(HASH_SYMBOL) + register * jnp.uint32(HASH_REGISTER)
    return (hashed * jnp.uint32(HASH_PARENT) + own + jnp.uint32(1)).astype(jnp.int32)


def _rung(ladder: Sequence[jax.Array], register: jax.Array) -> jax.Array:
    return jnp.clip(register - ladder[0], 0, ladder[1]) + jnp.clip(register - ladder[2], 0, ladder[3])


def _sloped(slope: Sequence[jax.Array], register: jax.Array) -> jax.Array:
    distance, step = jnp.maximum(slope[0] - register, 0), slope[1]
    return slope[2] * jax.lax.div(distance + step - 1, step)
