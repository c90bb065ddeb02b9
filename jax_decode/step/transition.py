"""Takes one token per row: the next `ConstraintState`."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.errors import named_arguments
from jax_decode.kernels.gather import fields, picked, read, stacked
from jax_decode.kernels.lanes import by_lanes, in_lanes
from jax_decode.kernels.row_cells import written_and_followed
from jax_decode.kernels.row_program import NotARowProgramError
from jax_decode.kernels.rows_gpu import by_programs, in_programs
from jax_decode.kernels.target import target
from jax_decode.step.argument_checks import check_advance
from jax_decode.step.guards import after_guard, with_keys
from jax_decode.step.masking import budget, located
from jax_decode.step.packing import PackedState, packed, unpacked, without_cells
from jax_decode.step.parallel_stacks import by_rows, with_all_stacks
from jax_decode.step.popping import along, below, kept, num_kept, popped
from jax_decode.step.stack import (
    Cells,
    Sources,
    Under,
    accepts,
    added,
    appended,
    completion,
    halves,
    node_at,
    number,
    places_of,
    pushed,
    sources,
    stack_at,
)
from jax_decode.step.state import NO_NUMBER, ConstraintState, Status
from jax_decode.step.token_sets import Keys, Taken, every_set, guarded, of_arcs, of_groups, only, only_arc, taken_by
from jax_decode.tables.canonical import BOUNDED, FILTER, LAST, forbids
from jax_decode.tables.canonical_filter import state_after
from jax_decode.tables.concatenation import ARC_NEXT, FREE, GROUP_NEXT
from jax_decode.tables.items import child, node_in
from jax_decode.tables.stack_layout import DELTA_OFFSET, NEED, PARALLEL, PARENT
from jax_decode.tables.tables import ConstraintTables

_MOVED = ("node", "top", "register", "canonical", "used", "alloc", "sources", "cell", "dropped")
_FIELDS = operator.attrgetter(*_MOVED)


class _Moved(NamedTuple):
    """Whether the text was and is accepted, bool[B], and fields of the next state."""

    accept: jax.Array
    complete: jax.Array
    node: jax.Array
    top: jax.Array
    register: jax.Array
    canonical: jax.Array
    used: jax.Array
    alloc: jax.Array
    sources: jax.Array
    cell: jax.Array
    dropped: jax.Array


@named_arguments
def advance(
    tables: ConstraintTables | None, state: ConstraintState, tokens: jax.Array, at: Sources | None = None
) -> ConstraintState:
    """Takes one token in every running row.

    Args:
      tables: from `to_device`; None when no row has a constraint.
      state: the rows.
      tokens: int32[B]; -1 says that nothing could be taken: the row ends, accepted if its text is; -2 that the model's logits
        were NaN: the row ends as `Status.NOT_A_NUMBER`. Rows that are not running ignore theirs.
      at: the rows' sources, where they are known and `tables.stacks` is 1.

    Returns:
      The next state. A forbidden token makes its row a `Status.DEAD_END`, for good.

    Raises:
      DecodeError: while tracing, for arguments that do not go together; says what to pass.
    """
    check_advance(tables, state, tokens)
    if tables is None:
        nothing = jnp.zeros_like(state.running)
        after = dataclasses.replace(state, node=jnp.where(tokens >= 0, FREE, 0)[:, None])
        return _concluded(state, tokens, _Moved(nothing, nothing, *_FIELDS(after)))
    at = located(tables, state) if at is None and tables.stacks == 1 else at
    if at is not None and at.known is not None:
        try:
            return (_by_programs if in_programs() else _by_lanes)(tables, state, tokens, at)
        except NotARowProgramError:
            at = sources(tables, state)
    moved = by_rows(tables, _moved, state, tokens) if tables.stacks > 1 else _moved(tables, state, tokens, at)
    return _concluded(state, tokens, moved)


def _concluded(state: ConstraintState, tokens: jax.Array, moved: _Moved) -> ConstraintState:
    """The next state: what the token makes of rows that are running and go on."""
    running = state.running
    free = state.node[:, 0] == FREE
    stop = jnp.zeros_like(running)
    for e in range(state.stop_ids.shape[1]):  # unrolled: stays elementwise over [B]
        stop |= (tokens == state.stop_ids[:, e]) & (tokens >= 0)
    remaining = state.remaining - 1
    accept = moved.accept
    status = jnp.where(remaining > 0, Status.RUNNING, jnp.where(moved.complete, Status.ACCEPTED, Status.TRUNCATED))
    status = jnp.where(moved.node[:, 0] == 0, Status.DEAD_END, status)
    status = jnp.where((stop | (tokens < 0)) & accept, Status.ACCEPTED, status)
    status = jnp.where(stop & free, Status.FINISHED, status)
    status = jnp.where(tokens == NO_NUMBER, Status.NOT_A_NUMBER, status).astype(jnp.int32)
    keeps = (stop & (accept | free)) | ((tokens < 0) & accept)
    moves = running & ~keeps

    def moved_on(name: str) -> jax.Array:
        old, new = getattr(state, name), getattr(moved, name)
        return old if new is old else jnp.where(moves if old.ndim == 1 else moves[:, None], new, old)

    return dataclasses.replace(
        state,
        **{name: moved_on(name) for name in _MOVED if name != "cell"},
        cell=moved.cell,
        remaining=jnp.where(running, remaining, state.remaining),
        status=jnp.where(running, status, state.status),
    )


def _by_lanes(tables: ConstraintTables, state: ConstraintState, tokens: jax.Array, at: Sources) -> ConstraintState:
    """`advance` by kernels of one row in every lane; bit rows and cells, and arcs that are too many, are read outside."""
    tokens = jax.lax.optimization_barrier(tokens)  # as one array: a TPU's compiler makes one operation of all indices then
    batch, token = len(tokens), jnp.clip(tokens, 0, tables.vocab_size - 1)
    word = _place(tables, token)[0][:, None]
    assert at.known is not None
    bits = read(tables.rows, at.known.row, jnp.broadcast_to(word, at.known.row.shape))
    searched = not tables.search_depth or in_lanes(tables.arcs)
    small, found = without_cells(state), (at.record, at.known)
    rows = (small, found, tokens, bits)
    if not tables.has_stack:
        node = None if searched else of_arcs(tables, at.record, token)
        return _with(state, by_lanes(_regular_row, tables, (*rows, node)), state.cell)
    arc = increments = None
    if not searched:
        index, of_arc = only_arc(tables, at, token)
        every = fields(tables.arcs, range(ARC_NEXT, ARC_NEXT + 4), jnp.maximum(index - 1, 0))
        arc = jnp.minimum(index, 1), of_arc, jnp.concatenate(every, 1)
    if tables.increments.shape[0]:
        which = jax.lax.broadcasted_iota(jnp.int32, (batch, tables.increments.shape[0]), 1)
        increments = read(tables.increments, which, jnp.broadcast_to(token[:, None] >> 1, which.shape))
    moved, alloc, given = by_lanes(_written_row, tables, (*rows, arc, increments))
    cell, path = _written_and_below(tables, state.cell, given)
    return _with(state, by_lanes(_last_row_of_path, tables, (small, found, tokens, moved, alloc, path)), cell)


def _with(state: ConstraintState, small: jax.Array, cell: jax.Array) -> ConstraintState:
    """The state with other numbers int32[B, F], as `PackedState` has them, and cells."""
    return unpacked(dataclasses.replace(packed(state), small=small, cell=cell))


def _written_and_below(tables: ConstraintTables, cell: jax.Array, given: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`written_and_followed`, as far down as a token may pop."""

    def by_xla(cell: jax.Array, given: jax.Array) -> tuple[jax.Array, jax.Array]:
        place, top, new = given[:, :1], given[:, 1:2], given[:, 2:]
        row, order = (jax.lax.broadcasted_iota(jnp.int32, new.shape, axis) for axis in (0, 1))
        at = (place + row * cell.shape[1] + order).reshape(-1)
        cell = cell.reshape(-1).at[at].set(new.reshape(-1), mode="promise_in_bounds", unique_indices=True).reshape(cell.shape)
        tops, columns = below(tables, cell, top)
        return cell, jnp.concatenate([*tops, jnp.moveaxis(columns, 1, 2).reshape(len(cell), -1)], 1)

    return written_and_followed(by_xla, cell, given, PARENT, tables.cell_width, tables.max_pops + 1)


def _by_programs(tables: ConstraintTables, state: ConstraintState, tokens: jax.Array, at: Sources) -> ConstraintState:
    """`advance` by a kernel of one row in every program."""
    rows = without_cells(state), (at.record, at.known), tokens
    small, *cell = by_programs(_stepped_row, tables, rows, state.cell if tables.has_stack else None)
    return _with(state, small, cell[0] if cell else state.cell)


def _stepped_row(tables: ConstraintTables, rows: Any, cell: jax.Array | None = None) -> tuple[Any, ...]:
    """The numbers of rows after a token, as `PackedState` has them; with a stack, and its cells."""
    small, found, tokens = rows
    word = _place(tables, jnp.clip(tokens, 0, tables.vocab_size - 1))[0][:, None]
    bits = read(tables.rows, found[1].row, jnp.broadcast_to(word, found[1].row.shape))
    before = small, found, tokens, bits, None
    if cell is None:
        return (_regular_row(tables, before),)
    moved, alloc, new = _landed_row(tables, (*before, None))
    cell = appended(cell, new, unpacked(small).alloc)
    return _last_row(tables, (small, found, tokens, moved, alloc, below(tables, cell, moved["top"]))), cell


def _before(tables: ConstraintTables, small: PackedState, found: Any) -> tuple[ConstraintState, Sources]:
    """The state and the sources of rows; `found`: `Sources.record` and `Sources.known`."""
    state, (record, known) = unpacked(small), found
    return state, places_of(tables, state)._replace(record=record, known=known)


def _place(tables: ConstraintTables, token: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`Columns.place` of tokens that are not negative, on one device, by operations that a kernel of rows has."""
    plane = jax.lax.div(token, jnp.int32(tables.num_words))
    return token - plane * tables.num_words, plane


def _group_of(tables: ConstraintTables, at: Sources, bits: jax.Array, token: jax.Array) -> tuple[jax.Array, ...]:
    """What `_only_group` returns of the groups that are known, by the words with the bit of the row's token; without stacks, no
    source."""
    assert at.known is not None
    plane = _place(tables, token)[1][:, None]
    hit = (at.known.exists != 0) & ((bits >> plane.astype(jnp.uint32)) & 1 != 0)
    return picked(hit, at.known.place + 1, *([] if at.known.source is None else [at.known.source]))


def _regular_row(tables: ConstraintTables, rows: Any) -> jax.Array:
    """`_last_row` for regular constraints; `arc`: where arcs lead to, if that is known."""
    small, found, tokens, bits, arc = rows
    state, at = _before(tables, small, found)
    token = jnp.clip(tokens, 0, tables.vocab_size - 1)
    (group,) = _group_of(tables, at, bits, token)
    (following,) = fields(tables.groups, (GROUP_NEXT,), jnp.maximum(group - 1, 0))
    node = jnp.where(group > 0, following, 0)[:, 0]
    if arc is None and tables.search_depth:
        arc = of_arcs(tables, at.record, token)
    node = node if arc is None else jnp.maximum(node, arc)
    return _last_row(tables, (small, found, tokens, {"node": node[:, None]}, state.alloc, None))


def _landed_row(tables: ConstraintTables, rows: Any) -> tuple[dict[str, jax.Array], jax.Array, list[jax.Array]]:
    """Node, top and register after a token; where the next cell will be written; the columns of the new cells."""
    small, found, tokens, bits, arc, increments = rows
    state, at = _before(tables, small, found)
    token = jnp.clip(tokens, 0, tables.vocab_size - 1)
    group, source = _group_of(tables, at, bits, token)
    if arc is not None:  # its record is all there is
        arc, of_arc, effects = arc
        tables = dataclasses.replace(tables, arcs=jnp.concatenate([jnp.zeros((1, ARC_NEXT), jnp.int32), effects], 1))
    elif tables.search_depth:
        arc, of_arc = only_arc(tables, at, token)
    else:
        arc = of_arc = jnp.zeros_like(group)
    if increments is not None:  # the words with the row's own token are all there are
        tables, token = dataclasses.replace(tables, increments=increments.T), token & 1
    taken = taken_by(tables, group, arc, stack_at(tables, at, jnp.where(arc > 0, of_arc, source))[0])
    length, moved, cells = _landed(tables, state, taken, token, state.alloc[:, None])
    return moved, state.alloc + length[:, 0], cells.columns


def _written_row(tables: ConstraintTables, rows: Any) -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
    """`_landed_row` with what `row_cells` is to write, the numbers of one new cell after another, and to follow."""
    moved, alloc, columns = _landed_row(tables, rows)
    new, place = stacked([x[:, 0] for x in columns]).reshape(len(alloc), -1), unpacked(rows[0]).alloc[:, None]
    return moved, alloc, jnp.concatenate([place * tables.cell_width, moved["top"], new], 1)


def _last_row_of_path(tables: ConstraintTables, rows: Any) -> jax.Array:
    """`_last_row` with the path down that `row_cells` has found."""
    *others, path = rows
    count = tables.max_pops + 1
    columns = path[:, count:].reshape(len(path), count, tables.cell_width)
    tops = [path[:, i : i + 1] for i in range(count)]
    return _last_row(tables, (*others, (tops, jnp.moveaxis(columns, 1, 2))))


def _last_row(tables: ConstraintTables, rows: Any) -> jax.Array:
    """The numbers of rows after a token, as `PackedState` has them; `moved`: what it leads to; `below_top`: of the stacks, see
    `below`."""
    small, found, tokens, moved, alloc, below_top = rows
    state, at = _before(tables, small, found)
    text = (tokens >= 0) & (tokens < tables.vocab_size)
    after = dataclasses.replace(state, **moved | {"node": jnp.where(text[:, None], moved["node"], 0), "alloc": alloc})
    if below_top is not None:
        (begin,) = fields(tables.frames, (DELTA_OFFSET,), after.node)
        after = dataclasses.replace(after, sources=kept(tables, along(tables, after.node, begin, after.register, *below_top)))
    complete = accepts(tables, places_of(tables, after))
    return packed(_concluded(state, tokens, _Moved(accepts(tables, at), complete, *_FIELDS(after)))).small


def _moved(tables: ConstraintTables, state: ConstraintState, tokens: jax.Array, at: Sources | None = None) -> _Moved:
    """What a token makes of rows of one stack, or of K."""
    at = sources(tables, state) if at is None else at
    text = (tokens >= 0) & (tokens < tables.vocab_size)
    token = jnp.clip(tokens, 0, tables.vocab_size - 1)
    if tables.only_items:
        after = dataclasses.replace(state, node=jnp.where(at.node == FREE, FREE, 0))
    else:
        after = _step(tables, dataclasses.replace(state, node=node_in(tables.items, state.node)[0]), at, token)
    if tables.items is not None and at.item is not None:
        own = child(tables.items, jnp.maximum(at.item, 0), token)
        first = jnp.where(at.item < 0, after.node[:, 0], own)
        after = dataclasses.replace(after, node=jnp.concatenate([first[:, None], after.node[:, 1:]], 1))
    after = dataclasses.replace(after, node=jnp.where(text[:, None], after.node, 0))
    if num_kept(tables):
        first, used = node_in(tables.items, after.node)[0], tuple(after.used[:, w : w + 1] for w in range(tables.key_words))
        found = popped(tables, after.cell, first, after.top, after.register, used)
        after = dataclasses.replace(after, sources=kept(tables, found))
    complete = accepts(tables, places_of(tables, after))
    wide = {name: getattr(after, name) for name in _MOVED}
    if tables.stacks > 1:
        wide |= {name: with_all_stacks(tables, wide[name]) for name in ("node", "top", "register")}
    return _Moved(accepts(tables, at), complete, **wide)


def _step(tables: ConstraintTables, state: ConstraintState, at: Sources, tokens: jax.Array) -> ConstraintState:
    """The rows after a text token in [0, V): node 0 where it is forbidden. Their status and budget are left alone."""
    if tables.pairs is None or tables.filter is None:
        return _own_step(tables, state, at, tokens)
    first = at.node[:, 0]
    apart = forbids(tables.pairs, state.canonical[:, LAST], tokens, tables.columns)
    if tables.partners:
        own, other = halves(at)
        node = jnp.where(apart[:, None], other.node, own.node)
        record, slope = jax.tree.map(
            lambda x, y: jnp.where(apart[:, None], x, y), (other.record, other.slope), (own.record, own.slope)
        )
        at = own._replace(node=node, record=record, slope=slope)
    moved = _own_step(tables, state, at, tokens)
    after = state_after(tables.filter, state.canonical[:, FILTER], tokens, apart)
    may = after >= 0
    if tables.unless.shape[0]:
        noted = read(tables.unless, first)
        column, plane = tables.columns.place(tokens)
        for k in range(noted.shape[1]):
            bit = read(tables.rows, noted[:, k, 0], column) >> plane.astype(jnp.uint32)
            may &= ((bit & 1) == 0) | ~read(tables.filter.excepted, jnp.maximum(after, 0), noted[:, k, 1])
    node = jnp.where((may | (first == FREE))[:, None], moved.node, 0)
    canonical = jnp.stack([tokens, state.canonical[:, BOUNDED], jnp.maximum(after, 0)], 1)
    return dataclasses.replace(moved, node=node, canonical=canonical)


def _own_step(tables: ConstraintTables, state: ConstraintState, at: Sources, tokens: jax.Array) -> ConstraintState:
    """The same by the constraints alone, whatever the tokenizer would write."""
    if not tables.has_stack:
        return dataclasses.replace(state, node=_next(tables, at.record, tokens)[:, None])
    if state.node.shape[1] > 1:
        return _several(tables, state, at, tokens)
    taken, keys = guarded(tables, at, tokens) if tables.key_words else (only(tables, at, tokens), None)
    length, moved, cells = _landed(tables, state, taken, tokens, state.alloc[:, None], keys)
    cell = appended(state.cell, cells.columns, state.alloc)
    return dataclasses.replace(state, **moved, alloc=state.alloc + length[:, 0], cell=cell)


def next_node(tables: ConstraintTables, node: jax.Array, tokens: jax.Array) -> jax.Array:
    """Target of a text token in [0, V) from each node int32[B] of a regular constraint, int32[B]; 0 where it is forbidden."""
    return _next(tables, tuple(x[:, None] for x in fields(tables.nodes, range(8), node)), tokens)


def _next(tables: ConstraintTables, record: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """`next_node` of nodes with the records int32[B, 1]."""

    found = of_groups(tables, record, tokens)  # token sets are disjoint: at most one is not 0
    return jnp.maximum(found, of_arcs(tables, record, tokens)) if tables.search_depth else found


def _landed(
    tables: ConstraintTables,
    state: ConstraintState,
    taken: Taken,
    tokens: jax.Array,
    alloc: jax.Array,
    keys: Keys | None = None,
) -> tuple[jax.Array, dict[str, jax.Array], Cells]:
    """How many cells token sets append at `alloc` int32[B, n], the node, top and register after them, and the cells."""
    effects = (taken.add, taken.set_to)
    more: Sequence[jax.Array] | jax.Array
    if target() == "tpu":
        more = [number(tables, x[None], tokens)[0] for x in effects]
    else:
        more = number(tables, stacked(effects, 0), tokens)
    register = added(taken.register, more[0])
    used = after_guard(tables, keys.guard, keys.used) if keys is not None else ()
    under = Under(taken.cell, taken.cost, taken.depth, taken.context, used)
    cells = pushed(tables, state, taken.push, under, register, alloc)
    register = jnp.where(taken.push > 0, added(jnp.zeros_like(register), more[1]), register)
    moved = {
        "node": node_at(tables, taken.target, register),
        "top": jnp.where(cells.length > 0, alloc + cells.length - 1, taken.cell),
        "register": register,
    }
    if keys is not None:
        opened = with_keys(tables, keys.held)
        moved["used"] = jnp.concatenate([jnp.where(taken.push > 0, new, own) for new, own in zip(opened, used)], 1)
    return cells.length, moved, cells


def _several(tables: ConstraintTables, state: ConstraintState, at: Sources, tokens: jax.Array) -> ConstraintState:
    """The first K distinct configurations among all that the token leads to.

    Those that cannot be completed within the limits are left out, unless there is no other.
    """
    taken = every_set(tables, at, tokens)
    count = tables.stacks
    _, moved, cells = _landed(tables, state, taken, tokens, jnp.zeros_like(taken.cell))
    node, register = moved["node"], moved["register"]
    assert cells.content is not None
    fits = completion(tables, node, register, cells.cost) < budget(tables, state, at)[:, None]
    need = jnp.maximum(cells.need, cells.depth + read(tables.frames, node, jnp.int32(NEED)))
    fits &= need <= state.depth_limit[:, None]
    left = taken.target > 0
    fits &= left
    left = jnp.where(fits.any(1)[:, None], fits, left)
    own = read(tables.frames, state.node[:, 0], jnp.int32(PARALLEL))  # of tables that follow more
    chosen, exists = [], []
    for i in range(count):
        first = jnp.argmax(left, 1).astype(jnp.int32)[:, None]
        chosen.append(first)
        exists.append(left.any(1) & (i < own))
        alike = [x == jnp.take_along_axis(x, first, 1) for x in (node, register, cells.content, cells.depth)]
        left &= ~functools.reduce(jnp.logical_and, alike)
    index, exist = jnp.concatenate(chosen, 1), jnp.stack(exists, 1)
    several = Taken(*(jnp.where(exist, jnp.take_along_axis(x, index, 1), 0) for x in taken))
    stride = jnp.arange(count, dtype=jnp.int32)[None] * tables.max_push
    _, moved, cells = _landed(tables, state, several, tokens, state.alloc[:, None] + stride)
    return dataclasses.replace(
        state,
        **{name: jnp.where(exist, field, 0) for name, field in moved.items()},
        alloc=state.alloc + jnp.where(cells.length.any(1), count * tables.max_push, 0),
        cell=appended(state.cell, cells.columns, state.alloc),
        dropped=state.dropped | left.any(1),
    )
