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

from fsa_compile.artifact.arrays import MAX_REGISTER, UNREACHABLE
from jax_decode.kernels.gather import Fields, read, repeated
from jax_decode.step.guards import Words, allows, children_at, with_keys
from jax_decode.step.state import ConstraintState
from jax_decode.tables.canonical import FILTER
from jax_decode.tables.concatenation import ACCEPT, DISTANCE, FREE
from jax_decode.tables.guard_layout import TWIN, WANTED, WANTED_DISTANCE
from jax_decode.tables.items import node_in, to_end
from jax_decode.tables.stack_layout import (
    CONTENT,
    CONTEXT,
    COST,
    DELTA_OFFSET,
    DEPTH,
    ENTRY_COST,
    ENTRY_NEED,
    ENTRY_REGISTER,
    ENTRY_SYMBOL,
    FIRST_KEYS,
    HASH_PARENT,
    HASH_REGISTER,
    HASH_SYMBOL,
    LADDER,
    PARENT,
    REGISTER,
    SLOPE,
    SYMBOL,
    SYMBOL_COST,
    SYMBOL_NEED,
)
from jax_decode.tables.tables import ConstraintTables

_MOST_SELECTED = 64
"""Cells per token up to which a pass over all cells of a row is better than a scatter, on a TPU."""


class Sources(NamedTuple):
    """The nodes whose tokens a row may take, int32[B, S]; S = K * (D + 1), those of one configuration together.

    node: 0 where there is none; cell: top of the stack after the source's pops, 0 for the empty stack; cost, depth: of the
    stack left; register, used: register and set of keys of the frame that the source belongs to. With sets of keys, the sources
    are followed by their twins, and where places have two nodes, by their partners. item: int32[B], where rows stand in a trie of
    items, -1 elsewhere; None without tries. ends: bool[B], whether the tokenizer's filter lets a text end; None without one.
    """

    node: jax.Array
    cell: jax.Array
    cost: jax.Array
    depth: jax.Array
    register: jax.Array
    used: Words = ()
    item: jax.Array | None = None
    ends: jax.Array | None = None


class Cells(NamedTuple):
    """What a token appends: 6 or 7 columns of cells, int32[B, n, PM] each; and of the stack after it, [B, n].

    length: how many cells; cost, depth: of the top cell; need: depth of stack that the suspended frames of the new cells may
    take; content: a hash of the stack, uint32, None where a single stack is followed.
    """

    columns: list[jax.Array]
    length: jax.Array
    cost: jax.Array
    depth: jax.Array
    need: jax.Array
    content: jax.Array | None


def sources(tables: ConstraintTables, state: ConstraintState) -> Sources:
    """All sources of every row."""
    first, item = node_in(tables.items, state.node)
    item = None if item is None else item[:, 0]
    ends = None if tables.filter is None else read(tables.filter.final, state.canonical[:, FILTER])
    if not tables.has_stack:
        zero = jnp.zeros_like(first)
        return _with_partners(tables, Sources(first, zero, zero, zero, zero, item=item, ends=ends))
    used: Words = tuple(state.used[:, w : w + 1] for w in range(tables.key_words))

    def popped(carry: tuple[jax.Array, ...], _: jax.Array | int) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        node, top, register, *used = carry
        cell = _cells_at(state.cell, top)
        if used:
            offset = children_at(tables, node, tuple(used))
        else:
            offset = Fields(tables.frames, node)[DELTA_OFFSET]
        child = jnp.where(top > 0, read(tables.delta, jnp.where(top > 0, offset + cell[SYMBOL], 0)), 0)
        below = (child, cell[PARENT], cell[REGISTER], *(cell[FIRST_KEYS + w] for w in range(len(used))))
        return below, (node, top, cell[COST], cell[DEPTH], register, *used)

    _, found = repeated(popped, (first, state.top, state.register, *used), 0, tables.max_pops + 1)
    fields = [field.reshape(first.shape[0], -1) for field in found]
    if used:
        twins = read(tables.set_nodes, fields[0], jnp.full_like(fields[0], TWIN))
        fields = [jnp.concatenate([x, x if i else twins], 1) for i, x in enumerate(fields)]
    node, cell, cost, depth, own, *words = fields
    return _with_partners(tables, Sources(node, cell, cost, depth, own, tuple(words), item, ends))


def _with_partners(tables: ConstraintTables, at: Sources) -> Sources:
    """Sources with the partners of their nodes, where places have two: the free and the dead node are their own."""
    if not tables.partners:
        return at
    partner = jnp.where(at.node > FREE, at.node + 1, at.node)
    cell, cost, depth, register = (jnp.concatenate([x, x], 1) for x in (at.cell, at.cost, at.depth, at.register))
    node = jnp.concatenate([at.node, partner], 1)
    return at._replace(node=node, cell=cell, cost=cost, depth=depth, register=register)


def halves(at: Sources) -> tuple[Sources, Sources]:
    """Where places have two nodes, the sources that `sources` found, and their partners."""
    half = at.node.shape[1] // 2
    cell, cost, depth, register = (x[:, :half] for x in (at.cell, at.cost, at.depth, at.register))  # partners have the same
    first = at._replace(node=at.node[:, :half], cell=cell, cost=cost, depth=depth, register=register)
    return first, first._replace(node=at.node[:, half:])


def without_twins(tables: ConstraintTables, at: Sources) -> Sources:
    """The sources that are no twins: all that accept, or have bit rows."""
    if not tables.key_words:
        return at
    size = tables.max_pops + 1
    node, cell, cost, depth, register = (x[:, :size] for x in (at.node, at.cell, at.cost, at.depth, at.register))
    return Sources(node, cell, cost, depth, register, tuple(word[:, :size] for word in at.used), at.item, at.ends)


def accepts(tables: ConstraintTables, at: Sources) -> jax.Array:
    """Whether the text so far belongs to the row's language, bool[B]."""
    at = without_twins(tables, at)

    def together() -> jax.Array:
        return (Fields(tables.nodes, at.node)[ACCEPT] > 0).any(1)

    def one_by_one() -> jax.Array:  # stays elementwise over [B]
        columns = [at.node[:, s] for s in range(at.node.shape[1])]
        return functools.reduce(jnp.logical_or, [Fields(tables.nodes, x)[ACCEPT] > 0 for x in columns])

    accept = [] if tables.only_items else [jax.lax.platform_dependent(cpu=together, tpu=together, default=one_by_one)]
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
        return Fields(tables.nodes, at.node[:, 0])[DISTANCE]
    at = halves(at)[0] if tables.partners else without_twins(tables, at)
    each = tables.max_pops + 1
    node = at.node[:, ::each]
    total = completion(tables, node, at.register[:, ::each], at.cost[:, ::each])
    if at.used:  # another distance where some required key is still to be read next
        own = [read(tables.set_nodes, node, jnp.full_like(node, column)) for column in (WANTED, WANTED_DISTANCE)]
        wanted = (own[0] > 0) & allows(tables, own[0], tuple(word[:, ::each] for word in at.used))
        total += jnp.where(wanted, own[1] - Fields(tables.nodes, node)[DISTANCE], 0)
    return jnp.where(node > 0, total, UNREACHABLE).min(1)


def completion(tables: ConstraintTables, node: jax.Array, register: jax.Array, cost: jax.Array) -> jax.Array:
    """Tokens within which configurations can be completed, int32[B, n]; `cost` is that of their cells."""
    own = Fields(tables.nodes, node)[DISTANCE]
    return own + cost + slope_at(tables, node, register)


def slope_at(tables: ConstraintTables, node: jax.Array, register: jax.Array) -> jax.Array | int:
    """What the slopes of nodes add to costs at the registers of their frames."""
    return _sloped(Fields(tables.counters, node).of(SLOPE), register) if tables.has_counters else 0


def node_at(tables: ConstraintTables, base: jax.Array, register: jax.Array) -> jax.Array:
    """Nodes of base nodes whose frames have these registers."""
    return base + _rung(Fields(tables.counters, base).of(LADDER), register) if tables.has_counters else base


def number(tables: ConstraintTables, value: jax.Array, tokens: jax.Array) -> jax.Array:
    """Additions and settings: constants, or per token where negative; `tokens` int32[B], `value` int32[B, n]."""
    if not tables.increments.shape[0]:
        return value
    table = jnp.clip(-1 - value, 0, tables.increments.shape[0] - 1)
    looked_up = read(tables.increments, table, jnp.broadcast_to(tokens[:, None], value.shape)).astype(jnp.int32)
    return jnp.where(value < 0, looked_up, value)


def added(register: jax.Array, number: jax.Array) -> jax.Array:
    """A register after an addition; it stops at `MAX_REGISTER`."""
    return jnp.minimum(register + number, jnp.int32(MAX_REGISTER))


def pushed(
    tables: ConstraintTables,
    state: ConstraintState,
    push: jax.Array,
    below: jax.Array,
    register: jax.Array,
    alloc: jax.Array,
    used: Words = (),
) -> Cells:
    """The cells that push strings append.

    Args:
      tables: from `to_device`.
      state: the rows.
      push: int32[B, n], push strings, 0 for none.
      below: int32[B, n], the cell they are put on.
      register: int32[B, n], of the frame that a string's first symbol suspends.
      alloc: int32[B, n], where their first cells will be.
      used: the set of keys of the frame that a string's first symbol suspends.
    """
    under, none = _cells_at(state.cell, below), jnp.zeros_like(push)
    several = tables.stacks > 1
    record = Fields(tables.pushes, push, jnp.zeros_like(push))
    symbol, deep, more = record[ENTRY_SYMBOL], record[ENTRY_NEED] - 1, record[ENTRY_COST]
    if tables.has_counters:
        symbol += _rung(Fields(tables.symbols, symbol).of(LADDER), register)
        of_symbol = Fields(tables.symbols, symbol)
        more, deep = of_symbol[SYMBOL_COST] + _sloped(of_symbol.of(SLOPE), register), of_symbol[SYMBOL_NEED]
    top = _Top(under[COST], under[DEPTH], none, none, under[CONTEXT], under[CONTENT] if several else None)
    exists = record[ENTRY_NEED] > 0
    top, first = _put(tables, top, exists, (symbol, below, register, *used), more, deep)

    def another(top: _Top, i: jax.Array | int) -> tuple[_Top, tuple[jax.Array, ...]]:
        entry = Fields(tables.pushes, push, jnp.full_like(push, i))
        keys = with_keys(tables, read(tables.push_keys, push, jnp.full_like(push, i))) if used else ()
        cell = (entry[ENTRY_SYMBOL], alloc + (i - 1), entry[ENTRY_REGISTER], *keys)
        return _put(tables, top, entry[ENTRY_NEED] > 0, cell, entry[ENTRY_COST], entry[ENTRY_NEED] - 1)

    columns = [column[..., None] for column in first]
    if tables.max_push > 1:
        top, others = repeated(another, top, 1, tables.max_push)
        columns = [jnp.concatenate([x, y], -1) for x, y in zip(columns, others)]
    content = None if top.content is None else top.content.astype(jnp.uint32)
    return Cells(columns, top.length, top.cost, top.depth, top.need, content)


class _Top(NamedTuple):
    """Of the stack under construction, int32[B, n] each: as in `Cells`; `content` has the bits of the hash, None where a single
    stack is followed."""

    cost: jax.Array
    depth: jax.Array
    need: jax.Array
    length: jax.Array
    context: jax.Array
    content: jax.Array | None


def _put(
    tables: ConstraintTables, top: _Top, exists: jax.Array, cell: tuple[jax.Array, ...], more: jax.Array, deep: jax.Array
) -> tuple[_Top, tuple[jax.Array, ...]]:
    """The stack with one more cell where one `exists`, and the columns of this cell.

    `cell`: symbol, parent, register and set of keys; `more`, `deep`: tokens and depth of stack that it may take, whatever lies
    below.
    """
    symbol, parent, register, *keys = cell
    told = exists & (top.context > 0)
    offset = jnp.where(told, Fields(tables.frames, top.context)[DELTA_OFFSET] + symbol, 0)
    context = jnp.where(told, read(tables.delta, offset), 0)
    more -= jnp.where(context > 0, Fields(tables.nodes, context)[DISTANCE], 0)
    need = jnp.where(exists, jnp.maximum(top.need, top.depth + deep), top.need)
    cost = jnp.where(exists, jnp.minimum(top.cost + more, UNREACHABLE), top.cost)
    one = exists.astype(jnp.int32)
    depth, content = top.depth + one, top.content
    columns = [symbol, parent, depth, cost, register, context, *keys]
    if content is not None:
        content = jnp.where(exists, _mix(content.astype(jnp.uint32), symbol, register).astype(jnp.int32), content)
        columns.append(content)
    return _Top(cost, depth, need, top.length + one, jnp.where(exists, context, top.context), content), tuple(columns)


def appended(cell: jax.Array, columns: Sequence[jax.Array], alloc: jax.Array) -> jax.Array:
    """The cells [B, M, *] with new ones from `alloc` int32[B] on, whose columns are int32[B, n, PM] each."""
    new = [column.reshape(len(cell), -1) for column in columns]
    if new[0].shape[1] > _MOST_SELECTED:
        return _scattered(cell, new, alloc)
    return jax.lax.platform_dependent(cell, new, alloc, tpu=_selected, default=_scattered)


def _scattered(cell: jax.Array, new: list[jax.Array], alloc: jax.Array) -> jax.Array:
    batch = jnp.arange(cell.shape[0], dtype=jnp.int32)[:, None]
    place = alloc[:, None] + jnp.arange(new[0].shape[1], dtype=jnp.int32)[None]
    return cell.at[batch, place].set(jnp.stack(new, -1), mode="promise_in_bounds", unique_indices=True)


def _selected(cell: jax.Array, new: list[jax.Array], alloc: jax.Array) -> jax.Array:
    """One elementwise pass, for a compiler that would lay out the cells anew for a scatter."""
    place = jax.lax.broadcasted_iota(jnp.int32, cell.shape, 1) - alloc[:, None, None]
    column = jax.lax.broadcasted_iota(jnp.int32, cell.shape, 2)
    for c, numbers in enumerate(new):
        for i in range(numbers.shape[1]):
            cell = jnp.where((place == i) & (column == c), numbers[:, i][:, None, None], cell)
    return cell


def _mix(content: jax.Array, symbol: jax.Array, register: jax.Array) -> jax.Array:
    """Hash of a stack with one more cell."""
    own = symbol.astype(jnp.uint32) * jnp.uint32(HASH_SYMBOL) + register.astype(jnp.uint32) * jnp.uint32(HASH_REGISTER)
    return content * jnp.uint32(HASH_PARENT) + own + jnp.uint32(1)


def _cells_at(cell: jax.Array, index: jax.Array) -> list[jax.Array]:
    """The columns of cells at indices int32[B, n]."""
    batch = jnp.arange(cell.shape[0], dtype=jnp.int32)[:, None]
    batch = jnp.broadcast_to(batch, index.shape)

    def by_slices() -> list[jax.Array]:  # for single numbers out of three axes the TPU's compiler would write the cells anew
        return [read(cell[:, :, c], batch, index) for c in range(cell.shape[2])]

    def by_numbers() -> list[jax.Array]:
        return list(Fields(cell, batch, index).of(range(cell.shape[2])))

    return jax.lax.platform_dependent(tpu=by_slices, default=by_numbers)


def _rung(ladder: Sequence[jax.Array], register: jax.Array) -> jax.Array:
    return jnp.clip(register - ladder[0], 0, ladder[1]) + jnp.clip(register - ladder[2], 0, ladder[3])


def _sloped(slope: Sequence[jax.Array], register: jax.Array) -> jax.Array:
    distance, step = jnp.maximum(slope[0] - register, 0), slope[1]
    return slope[2] * jax.lax.div(distance + step - 1, step)
