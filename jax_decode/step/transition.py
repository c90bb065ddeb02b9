"""Takes one token per row: the next `ConstraintState`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.errors import named_arguments
from jax_decode.kernels.gather import Joint, fields, joined, largest, picked, places, read, stacked, whole
from jax_decode.kernels.target import target
from jax_decode.step.argument_checks import check_advance
from jax_decode.step.guards import Words, after_guard, allows, with_keys
from jax_decode.step.masking import budget
from jax_decode.step.parallel_stacks import by_rows, with_all_stacks
from jax_decode.step.popping import kept, num_kept, popped
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
from jax_decode.tables.stack_layout import NEED, PARALLEL
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
    running = state.running
    free = state.node[:, 0] == FREE
    stop = jnp.zeros_like(running)
    for e in range(state.stop_ids.shape[1]):  # unrolled: stays elementwise over [B]
        stop |= (tokens == state.stop_ids[:, e]) & (tokens >= 0)
    remaining = state.remaining - 1
    if tables is None:
        accept = complete = jnp.zeros_like(running)
        after = dataclasses.replace(state, node=jnp.where(tokens >= 0, FREE, 0)[:, None])
    else:
        if tables.stacks > 1:
            moved = by_rows(tables, _moved, state, tokens)
        else:
            moved = _moved(tables, state, tokens, at)
        accept, complete = moved.accept, moved.complete
        after = dataclasses.replace(state, **{name: getattr(moved, name) for name in _MOVED})

    status = jnp.where(remaining > 0, Status.RUNNING, jnp.where(complete, Status.ACCEPTED, Status.TRUNCATED))
    status = jnp.where(after.node[:, 0] == 0, Status.DEAD_END, status)
    status = jnp.where((stop | (tokens < 0)) & accept, Status.ACCEPTED, status)
    status = jnp.where(stop & free, Status.FINISHED, status)
    status = jnp.where(tokens == NO_NUMBER, Status.NOT_A_NUMBER, status).astype(jnp.int32)
    keeps = (stop & (accept | free)) | ((tokens < 0) & accept)
    moves = running & ~keeps

    def moved_on(name: str) -> jax.Array:
        old, new = getattr(state, name), getattr(after, name)
        return old if new is old else jnp.where(moves if old.ndim == 1 else moves[:, None], new, old)

    return dataclasses.replace(
        state,
        **{name: moved_on(name) for name in _MOVED if name != "cell"},
        cell=after.cell,
        remaining=jnp.where(running, remaining, state.remaining),
        status=jnp.where(running, status, state.status),
    )


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

    def target(i: jax.Array) -> jax.Array:
        hit, _, following = _group_hits(tables, record, tokens, i, (GROUP_NEXT,))
        return jnp.where(hit, following[0], 0)

    found = largest(target, tables.max_groups, tokens.shape)  # token sets are disjoint: at most one is not 0
    if tables.search_depth:
        found = jnp.maximum(found, _last_arcs(tables, record, tokens[:, None], ARC_NEXT)[:, 0])
    return found


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
    arc = _last_arcs(tables, at.record, tokens[:, None])
    arc, of_arc = picked(arc > 0, arc, _order(arc))
    return _taken_by(tables, group, arc, stack_at(tables, at, jnp.where(arc > 0, of_arc, source))[0])


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
    for level in reversed(range(1, tables.search_depth)):
        at = largest(functools.partial(reached, at, SEARCH_FANOUT**level), SEARCH_FANOUT - 1, at.shape)
    of_node = at[..., None] + places(SEARCH_FANOUT, at.shape)
    place = offset[..., None] + of_node
    columns = (ARC_TOKEN,) if column is None else (ARC_TOKEN, column)
    token, *asked = fields(tables.arcs, columns, jnp.minimum(place, last))
    mine = (of_node < count[..., None]) & (token == tokens[..., None])
    return jnp.where(mine, asked[0] if asked else place + 1, 0).max(-1)
