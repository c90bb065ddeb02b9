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
from jax_decode.kernels import lanes
from jax_decode.kernels.gather import Joint, fields, joined, largest, picked, places, read, stacked, whole
from jax_decode.kernels.lanes import NotInLanesError, by_lanes, in_lanes
from jax_decode.kernels.target import target
from jax_decode.step.argument_checks import check_advance
from jax_decode.step.guards import Words, after_guard, allows, with_keys
from jax_decode.step.masking import budget, located
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
    without_twins,
)
from jax_decode.step.state import NO_NUMBER, ConstraintState, Status
from jax_decode.tables.canonical import BOUNDED, FILTER, LAST, forbids
from jax_decode.tables.canonical_filter import state_after
from jax_decode.tables.concatenation import (
    ARC_COUNT,
    ARC_GUARD,
    ARC_HELD,
    ARC_NEXT,
    ARC_OFFSET,
    ARC_TOKEN,
    FREE,
    GROUP_COUNT,
    GROUP_NEXT,
    GROUP_OFFSET,
    GROUP_ROW,
    SEARCH_FANOUT,
)
from jax_decode.tables.items import child, node_in
from jax_decode.tables.stack_layout import DELTA_OFFSET, NEED, PARALLEL
from jax_decode.tables.tables import ConstraintTables


class _Taken(NamedTuple):
    """Token sets that hold a row's token, int32[B, n]: base target (0: none), its effects, and of the source that it was taken at
    cell, cost, depth, context and register."""

    target: jax.Array
    push: jax.Array
    add: jax.Array
    set_to: jax.Array
    cell: jax.Array
    cost: jax.Array
    depth: jax.Array
    context: jax.Array
    register: jax.Array


class _Keys(NamedTuple):
    """Of token sets, int32[B, 1]: guard, row of the set of keys of a frame they open, and the set of their source."""

    guard: jax.Array
    held: jax.Array
    used: Words


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
            return _by_lanes(tables, state, tokens, at)
        except NotInLanesError:
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
    batch, token = len(tokens), jnp.clip(tokens, 0, tables.vocab_size - 1)
    word, plane = (x[:, None] for x in tables.columns.place(token))
    assert at.known is not None
    bits = read(tables.rows, at.known.row, jnp.broadcast_to(word, at.known.row.shape))
    searched = not tables.search_depth or in_lanes(tables.arcs)
    small = dataclasses.replace(state, cell=jnp.zeros((batch, 0), jnp.int32))
    rows = (small, at, tokens, bits, plane)
    if not tables.has_stack:
        found = None if searched else _of_arcs(tables, at.record, token)
        return dataclasses.replace(state, **by_lanes(_regular_row, tables, (*rows, found)))
    arc = increments = None
    if not searched:
        index, of_arc = _only_arc(tables, at, token)
        every = fields(tables.arcs, range(ARC_NEXT, ARC_NEXT + 4), jnp.maximum(index - 1, 0))
        arc = jnp.minimum(index, 1), of_arc, jnp.concatenate(every, 1)
    if tables.increments.shape[0]:
        which = jax.lax.broadcasted_iota(jnp.int32, (batch, tables.increments.shape[0]), 1)
        increments = read(tables.increments, which, jnp.broadcast_to(token[:, None], which.shape))
    moved, alloc, *cells = by_lanes(_landed_row, tables, (*rows, arc, increments))
    place, new = (jnp.moveaxis(x, 0, -1) for x in cells)
    place = (place + jax.lax.broadcasted_iota(jnp.int32, place.shape, place.ndim - 1) * state.cell.shape[1]).reshape(-1)
    cell = state.cell.reshape(-1).at[place].set(new.reshape(-1), mode="promise_in_bounds", unique_indices=True)
    cell = cell.reshape(state.cell.shape)
    below_top = below(tables, cell, moved["top"])
    last = by_lanes(_last_row, tables, (small, at, tokens, moved, alloc, below_top))
    return dataclasses.replace(state, cell=cell, **last)


def _group_of(at: Sources, bits: jax.Array, plane: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What `_only_group` returns of the groups that are known, by the words with the bit of the row's token."""
    assert at.known is not None
    hit = (at.known.exists != 0) & ((bits >> plane.astype(jnp.uint32)) & 1 != 0)
    group, source = picked(hit, at.known.place + 1, at.known.source)
    return group, source


def _regular_row(tables: ConstraintTables, rows: Any) -> dict[str, jax.Array]:
    """What `advance` changes in rows of regular constraints; `found`: where arcs lead to, if that is known."""
    state, at, tokens, bits, plane, found = rows
    group, _ = _group_of(at, bits, plane)
    (following,) = fields(tables.groups, (GROUP_NEXT,), jnp.maximum(group - 1, 0))
    node = jnp.where(group > 0, following, 0)[:, 0]
    if found is None and tables.search_depth:
        found = _of_arcs(tables, at.record, jnp.clip(tokens, 0, tables.vocab_size - 1))
    node = node if found is None else jnp.maximum(node, found)
    return _last_row(tables, (state, at, tokens, {"node": node[:, None]}, state.alloc, None))


def _landed_row(tables: ConstraintTables, rows: Any) -> tuple[dict[str, jax.Array], jax.Array, jax.Array, jax.Array]:
    """Node, top and register after a token; where the next cell will be written; the places of new cells, int32[B, C, PM], in
    the row's own, and the cells."""
    state, at, tokens, bits, plane, arc, increments = rows
    group, source = _group_of(at, bits, plane)
    token = jnp.clip(tokens, 0, tables.vocab_size - 1)
    if arc is not None:  # its record is all there is
        arc, of_arc, effects = arc
        tables = dataclasses.replace(tables, arcs=jnp.concatenate([jnp.zeros((1, ARC_NEXT), jnp.int32), effects], 1))
    elif tables.search_depth:
        arc, of_arc = _only_arc(tables, at, token)
    else:
        arc = of_arc = jnp.zeros_like(group)
    if increments is not None:  # those of the row's own token are all there are
        tables, token = dataclasses.replace(tables, increments=increments.T), jnp.zeros_like(token)
    taken = _taken_by(tables, group, arc, stack_at(tables, at, jnp.where(arc > 0, of_arc, source))[0])
    length, moved, cells = _landed(tables, state, taken, token, state.alloc[:, None])
    new = stacked([x[:, 0] for x in cells.columns], 1)
    number, entry = (jax.lax.broadcasted_iota(jnp.int32, new.shape, axis) for axis in (1, 2))
    place = (state.alloc[:, None, None] + entry) * tables.cell_width + number
    return moved, state.alloc + length[:, 0], place, new


def _last_row(tables: ConstraintTables, rows: Any) -> dict[str, jax.Array]:
    """What `advance` changes in rows; `moved`: what their tokens lead to; `below_top`: of their stacks, see `below`."""
    state, at, tokens, moved, alloc, below_top = rows
    text = (tokens >= 0) & (tokens < tables.vocab_size)
    after = dataclasses.replace(state, **moved | {"node": jnp.where(text[:, None], moved["node"], 0), "alloc": alloc})
    if below_top is not None:
        (begin,) = fields(tables.frames, (DELTA_OFFSET,), after.node)
        after = dataclasses.replace(after, sources=kept(tables, along(tables, after.node, begin, after.register, *below_top)))
    complete = accepts(tables, places_of(tables, after))
    after = _concluded(state, tokens, _Moved(accepts(tables, at), complete, *_FIELDS(after)))
    changed = ("node", "top", "register", "alloc", "sources", "remaining", "status")
    return {name: getattr(after, name) for name in changed if getattr(after, name).size}


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
    taken, keys = _guarded(tables, at, tokens) if tables.key_words else (_only(tables, at, tokens), None)
    length, moved, cells = _landed(tables, state, taken, tokens, state.alloc[:, None], keys)
    cell = appended(state.cell, cells.columns, state.alloc)
    return dataclasses.replace(state, **moved, alloc=state.alloc + length[:, 0], cell=cell)


def next_node(tables: ConstraintTables, node: jax.Array, tokens: jax.Array) -> jax.Array:
    """Target of a text token in [0, V) from each node int32[B] of a regular constraint, int32[B]; 0 where it is forbidden."""
    return _next(tables, tuple(x[:, None] for x in fields(tables.nodes, range(8), node)), tokens)


def _next(tables: ConstraintTables, record: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """`next_node` of nodes with the records int32[B, 1]."""

    found = _of_groups(tables, record, tokens)  # token sets are disjoint: at most one is not 0
    return jnp.maximum(found, _of_arcs(tables, record, tokens)) if tables.search_depth else found


def _of_groups(tables: ConstraintTables, record: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """Where the one group with the token leads to, int32[B]; 0 where there is none."""

    def target(i: jax.Array) -> jax.Array:
        hit, _, following = _group_hits(tables, record, tokens, i, (GROUP_NEXT,))
        return jnp.where(hit, following[0], 0)

    return largest(target, tables.max_groups, tokens.shape)


def _of_arcs(tables: ConstraintTables, record: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """Likewise of arcs."""
    return _last_arcs(tables, record, tokens[:, None], ARC_NEXT)[:, 0]


def _landed(
    tables: ConstraintTables,
    state: ConstraintState,
    taken: _Taken,
    tokens: jax.Array,
    alloc: jax.Array,
    keys: _Keys | None = None,
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


def _only(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> _Taken:
    """The one token set that holds each row's token, [B, 1]: in deterministic constraints no two sets share a token."""
    group, source = _only_group(tables, at, tokens)
    if not tables.search_depth:
        return _taken(tables.groups, GROUP_NEXT, group > 0, jnp.maximum(group - 1, 0), stack_at(tables, at, source)[0])
    arc, of_arc = _only_arc(tables, at, tokens)
    return _taken_by(tables, group, arc, stack_at(tables, at, jnp.where(arc > 0, of_arc, source))[0])


def _only_arc(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One more than the index of the one arc with each row's token, and its source, int32[B, 1]; 0 for none."""
    arc = _last_arcs(tables, at.record, tokens[:, None])
    arc, source = picked(arc > 0, arc, _order(arc))
    return arc, source


def _order(of: jax.Array) -> jax.Array:
    """Indices along the second axis of an array [B, n]."""
    return jax.lax.broadcasted_iota(jnp.int32, of.shape, 1)


def _taken_by(tables: ConstraintTables, group: jax.Array, arc: jax.Array, stack: Sequence[jax.Array]) -> _Taken:
    """The token sets with one more than the indices int32[B, 1]: of an arc, where there is one, or else of a group."""
    is_arc = arc > 0
    of_group = fields(tables.groups, range(GROUP_NEXT, GROUP_NEXT + 4), jnp.maximum(group - 1, 0))
    of_arc = fields(tables.arcs, range(ARC_NEXT, ARC_NEXT + 4), jnp.maximum(arc - 1, 0))
    target, push, add, set_to = (jnp.where(is_arc, x, y) for x, y in zip(of_arc, of_group))
    there = is_arc | (group > 0)
    return _Taken(jnp.where(there, target, 0), jnp.where(there, push, 0), add, set_to, *stack)


def _only_group(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One more than the index of the one wide token set that holds each row's token, and its source, int32[B, 1]; 0 for none."""
    hit, found, _ = _group_hits(tables, at.record, tokens, places(tables.max_groups, tokens.shape), ())
    group, source = picked(hit, found.place + 1, found.source)
    return group, source


def _guarded(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> tuple[_Taken, _Keys]:
    """Like `_only` with sets of keys: of a source's arcs with the row's token, the one whose guard allows its set."""
    group, source = _only_group(tables, without_twins(tables, at), tokens)
    last = _last_arcs(tables, at.record, tokens[:, None]) - 1
    chosen = jnp.zeros_like(last)
    for back in range(tables.max_repeats):
        arc = jnp.maximum(last - back, 0)
        token, guard = fields(tables.arcs, (ARC_TOKEN, ARC_GUARD), arc)
        hit = (last - back >= at.record[ARC_OFFSET]) & (at.record[ARC_COUNT] > 0)
        hit &= (token == tokens[:, None]) & allows(tables, guard, at.used)
        chosen = jnp.where(hit, arc + 1, chosen)
    arc, of_arc = picked(chosen > 0, chosen, _order(chosen))
    stack, used = stack_at(tables, at, jnp.where(arc > 0, of_arc, source))
    there = (arc > 0) | (group > 0)
    guard, held = (jnp.where(arc > 0, x, 0) for x in fields(tables.arcs, (ARC_GUARD, ARC_HELD), jnp.maximum(arc - 1, 0)))
    return _taken_by(tables, group, arc, stack), _Keys(guard, held, tuple(jnp.where(there, x, 0) for x in used))


def _several(tables: ConstraintTables, state: ConstraintState, at: Sources, tokens: jax.Array) -> ConstraintState:
    """The first K distinct configurations among all that the token leads to.

    Those that cannot be completed within the limits are left out, unless there is no other.
    """
    taken = _all(tables, at, tokens)
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
    several = _Taken(*(jnp.where(exist, jnp.take_along_axis(x, index, 1), 0) for x in taken))
    stride = jnp.arange(count, dtype=jnp.int32)[None] * tables.max_push
    _, moved, cells = _landed(tables, state, several, tokens, state.alloc[:, None] + stride)
    return dataclasses.replace(
        state,
        **{name: jnp.where(exist, field, 0) for name, field in moved.items()},
        alloc=state.alloc + jnp.where(cells.length.any(1), count * tables.max_push, 0),
        cell=appended(state.cell, cells.columns, state.alloc),
        dropped=state.dropped | left.any(1),
    )


def _all(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> _Taken:
    """Every token set that holds each row's token, [B, n] with target 0 where a place holds none: groups, then arcs."""
    slots = places(tables.max_groups, tokens.shape)
    hit, found, _ = _group_hits(tables, at.record, tokens, slots, ())
    parts = [_taken(tables.groups, GROUP_NEXT, hit, found.place, stack_at(tables, at, found.source)[0])]
    if tables.search_depth:
        last = _last_arcs(tables, at.record, tokens[:, None]) - 1
        back = jnp.arange(tables.max_repeats - 1, -1, -1, dtype=jnp.int32)[None, None]
        arc = last[..., None] - back
        hit = (arc >= at.record[ARC_OFFSET][..., None]) & (at.record[ARC_COUNT] > 0)[..., None]
        arc = jnp.maximum(arc, 0)
        hit &= read(tables.arcs, arc, jnp.int32(ARC_TOKEN)) == tokens[:, None, None]
        every = (hit, arc, *(x[..., None] for x in (at.cell, at.cost, at.depth, at.context, at.register)))
        hit, arc, *stack = (jnp.broadcast_to(x, arc.shape).reshape(len(tokens), -1) for x in every)
        parts.append(_taken(tables.arcs, ARC_NEXT, hit, arc, stack))
    return _Taken(*(jnp.concatenate(field, 1) for field in zip(*parts)))


def _taken(table: jax.Array, following: int, hit: jax.Array, index: jax.Array, stack: Sequence[jax.Array]) -> _Taken:
    """Token sets of a table, whose effects lie behind the node that follows, where they are hit; `stack`: of their sources."""
    target, push, add, set_to = fields(table, range(following, following + 4), index)
    return _Taken(jnp.where(hit, target, 0), jnp.where(hit, push, 0), add, set_to, *stack)


def _group_hits(
    tables: ConstraintTables, record: Sequence[jax.Array], tokens: jax.Array, slots: jax.Array, columns: Sequence[int]
) -> tuple[jax.Array, Joint, list[jax.Array]]:
    """Which of a row's groups hold its token, bool[B, n]; the groups, and columns of them, int32[B, n] each.

    Args:
      tables: from `to_device`.
      record: of all sources of a row, int32[B, S] each.
      tokens: int32[B].
      slots: places int32[1 or B, n] in the list of the groups of all sources.
      columns: what is asked for.
    """
    found = joined(record[GROUP_COUNT], slots, record[GROUP_OFFSET])
    row, *asked = fields(tables.groups, (GROUP_ROW, *columns), found.place)
    word, plane = (x[:, None] for x in tables.columns.place(tokens))
    bits = read(tables.rows, row, jnp.broadcast_to(word, found.exists.shape))
    return found.exists & (((bits >> plane.astype(jnp.uint32)) & 1) != 0), found, asked


def _last_arcs(tables: ConstraintTables, record: Sequence[jax.Array], tokens: jax.Array, column: int | None = None) -> jax.Array:
    """One more than the index of each node's last arc with its token, or the largest number in a column of such arcs, int32[...];
    0 where there is none.

    A search with `SEARCH_FANOUT` branches per level and a static number of levels: every level reads its separators at
    once, and everything is elementwise, so that it needs no kernel of its own.

    Args:
      tables: from `to_device`.
      record: of the nodes, [...] each.
      tokens: int32, broadcasts to [...].
      column: of `tables.arcs`.
    """
    offset, count = record[ARC_OFFSET], record[ARC_COUNT]
    tokens = jnp.broadcast_to(tokens, offset.shape)
    last = tables.arcs.shape[0] - 1

    def reached(at: jax.Array, stride: int, i: jax.Array) -> jax.Array:
        """Where among a node's arcs a separator takes the search: tokens ascend, so the last one not beyond the token decides."""
        probe = at[..., None] + (whole(i) + 1) * stride
        (token,) = fields(tables.arcs, (ARC_TOKEN,), jnp.minimum(offset[..., None] + probe, last))
        below = token <= tokens[..., None]
        return jnp.where((probe < count[..., None]) & below, probe, at[..., None])

    at = jnp.zeros_like(offset)
    fanout, levels = SEARCH_FANOUT, tables.search_depth
    if target() == lanes.TARGET:  # there, every entry that is read costs
        fanout, levels = 2, levels * (SEARCH_FANOUT.bit_length() - 1)
    for level in reversed(range(1, levels)):
        at = largest(functools.partial(reached, at, fanout**level), fanout - 1, at.shape)
    of_node = at[..., None] + places(fanout, at.shape)
    place = offset[..., None] + of_node
    columns = (ARC_TOKEN,) if column is None else (ARC_TOKEN, column)
    token, *asked = fields(tables.arcs, columns, jnp.minimum(place, last))
    mine = (of_node < count[..., None]) & (token == tokens[..., None])
    return jnp.where(mine, asked[0] if asked else place + 1, 0).max(-1)
