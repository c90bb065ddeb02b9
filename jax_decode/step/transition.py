"""Takes one token per row: the next `ConstraintState`."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.errors import named_arguments
from jax_decode.kernels.gather import Fields, joined, largest, places, read
from jax_decode.step.argument_checks import check_advance
from jax_decode.step.guards import Words, after_guard, allows, with_keys
from jax_decode.step.masking import budget
from jax_decode.step.parallel_stacks import by_rows, with_all_stacks
from jax_decode.step.stack import (
    Cells,
    Sources,
    accepts,
    added,
    appended,
    completion,
    halves,
    node_at,
    number,
    pushed,
    sources,
    without_twins,
)
from jax_decode.step.state import NO_NUMBER, ConstraintState, Status
from jax_decode.tables.canonical import BOUNDED, FILTER, LAST, forbids
from jax_decode.tables.canonical_filter import state_after
from jax_decode.tables.concatenation import (
    ARC_COUNT,
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
from jax_decode.tables.stack_layout import ADD, NEED, PARALLEL, PUSH, SET
from jax_decode.tables.tables import ConstraintTables


class _Taken(NamedTuple):
    """Token sets that hold a row's token, int32[B, n]: base target (0: none), its effect, and the source it was taken at."""

    target: jax.Array
    push: jax.Array
    add: jax.Array
    set_to: jax.Array
    cell: jax.Array
    register: jax.Array


class _Keys(NamedTuple):
    """Of token sets, int32[B, 1]: guard, row of the set of keys of a frame they open, and the set of their source."""

    guard: jax.Array
    held: jax.Array
    used: Words


_MOVED = ("node", "top", "register", "canonical", "used", "alloc", "cell", "dropped")


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
    return dataclasses.replace(
        state,
        node=jnp.where(moves[:, None], after.node, state.node),
        top=jnp.where(moves[:, None], after.top, state.top),
        register=jnp.where(moves[:, None], after.register, state.register),
        canonical=jnp.where(moves[:, None], after.canonical, state.canonical),
        used=jnp.where(moves[:, None], after.used, state.used),
        alloc=jnp.where(moves, after.alloc, state.alloc),
        cell=after.cell,
        dropped=jnp.where(moves, after.dropped, state.dropped),
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
    complete = accepts(tables, sources(tables, after))
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
        at = own._replace(node=jnp.where(apart[:, None], other.node, own.node))
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
        return dataclasses.replace(state, node=next_node(tables, at.node[:, 0], tokens)[:, None])
    if state.node.shape[1] > 1:
        return _several(tables, state, at, tokens)
    taken, keys = _guarded(tables, at, tokens) if tables.key_words else (_only(tables, at, tokens), None)
    length, fields, cells = _landed(tables, state, taken, tokens, state.alloc[:, None], keys)
    cell = appended(state.cell, cells.columns, state.alloc)
    return dataclasses.replace(state, **fields, alloc=state.alloc + length[:, 0], cell=cell)


def next_node(tables: ConstraintTables, node: jax.Array, tokens: jax.Array) -> jax.Array:
    """Target of a text token in [0, V) from each node int32[B] of a regular constraint, int32[B]; 0 where it is forbidden."""
    record, of_rows = Fields(tables.nodes, node), Fields(tables.nodes, node[:, None])

    def target(i: jax.Array) -> jax.Array:
        hit, group = _group_hits(tables, of_rows, tokens, i)
        return jnp.where(hit, group[GROUP_NEXT], 0)

    found = largest(target, tables.max_groups, tokens.shape)  # token sets are disjoint: at most one is not 0
    if tables.search_depth:
        found = jnp.maximum(found, _last_arcs(tables, record, tokens)[2])
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
    register = added(taken.register, number(tables, taken.add, tokens))
    used = after_guard(tables, keys.guard, keys.used) if keys is not None else ()
    cells = pushed(tables, state, taken.push, taken.cell, register, alloc, used)
    own = added(jnp.zeros_like(register), number(tables, taken.set_to, tokens))
    register = jnp.where(taken.push > 0, own, register)
    fields = {
        "node": node_at(tables, taken.target, register),
        "top": jnp.where(cells.length > 0, alloc + cells.length - 1, taken.cell),
        "register": register,
    }
    if keys is not None:
        opened = with_keys(tables, keys.held)
        fields["used"] = jnp.concatenate([jnp.where(taken.push > 0, new, own) for new, own in zip(opened, used)], 1)
    return cells.length, fields, cells


def _only(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> _Taken:
    """The one token set that holds each row's token, [B, 1]: in deterministic constraints no two sets share a token."""
    record = Fields(tables.nodes, at.node)
    taken, _ = _only_group(tables, at, record, tokens)
    if not tables.search_depth:
        return taken
    hit, arc, _ = _last_arcs(tables, record, tokens[:, None])
    arc, cell, register = (_any(jnp.where(hit, x, 0)) for x in (arc, at.cell, at.register))
    hit = _any(hit.astype(jnp.int32)) > 0
    other = _arc_taken(tables, hit, arc, cell, register)
    return _Taken(*(jnp.where(hit, x, y) for x, y in zip(other, taken)))


def _only_group(tables: ConstraintTables, at: Sources, record: Fields, tokens: jax.Array) -> tuple[_Taken, Words]:
    """The one wide token set that holds each row's token, [B, 1], and the set of keys of its source."""

    def numbered(i: jax.Array) -> jax.Array:
        return jnp.where(_group_hits(tables, record, tokens, i)[0], i + 1, 0)

    slot = largest(numbered, tables.max_groups, tokens.shape)[:, None]
    group, cell, register, *used = _group_fields(record, jnp.maximum(slot - 1, 0), at.cell, at.register, *at.used)
    return _group_taken(tables, slot > 0, group, cell, register), tuple(used)


def _guarded(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> tuple[_Taken, _Keys]:
    """Like `_only` with sets of keys: of a source's arcs with the row's token, the one whose guard allows its set."""
    plain = without_twins(tables, at)
    taken, of_group = _only_group(tables, plain, Fields(tables.nodes, plain.node), tokens)
    record = Fields(tables.nodes, at.node)
    _, last, _ = _last_arcs(tables, record, tokens[:, None])
    chosen = jnp.zeros_like(last)
    for back in range(tables.max_repeats):
        arc = jnp.maximum(last - back, 0)
        hit = (last - back >= record[ARC_OFFSET]) & (record[ARC_COUNT] > 0)
        hit &= Fields(tables.arcs, arc)[ARC_TOKEN] == tokens[:, None]
        hit &= allows(tables, Fields(tables.arc_sets, arc)[0], at.used)
        chosen = jnp.where(hit, arc + 1, chosen)
    some = chosen > 0
    arc, cell, register, *used = (_bits(jnp.where(some, x, 0)) for x in (chosen - 1, at.cell, at.register, *at.used))
    hit = _any(some.astype(jnp.int32)) > 0
    other = _arc_taken(tables, hit, arc, cell, register)
    guard, held = (jnp.where(hit, x, 0) for x in Fields(tables.arc_sets, arc).of(range(2)))
    words = tuple(jnp.where(hit, x, y) for x, y in zip(used, of_group))
    return _Taken(*(jnp.where(hit, x, y) for x, y in zip(other, taken))), _Keys(guard, held, words)


def _several(tables: ConstraintTables, state: ConstraintState, at: Sources, tokens: jax.Array) -> ConstraintState:
    """The first K distinct configurations among all that the token leads to.

    Those that cannot be completed within the limits are left out, unless there is no other.
    """
    taken = _all(tables, at, tokens)
    count = tables.stacks
    _, fields, cells = _landed(tables, state, taken, tokens, jnp.zeros_like(taken.cell))
    node, register = fields["node"], fields["register"]
    assert cells.content is not None
    fits = completion(tables, node, register, cells.cost) < budget(tables, state, at)[:, None]
    need = jnp.maximum(cells.need, cells.depth + Fields(tables.frames, node)[NEED])
    fits &= need <= state.depth_limit[:, None]
    left = taken.target > 0
    fits &= left
    left = jnp.where(fits.any(1)[:, None], fits, left)
    own = Fields(tables.frames, state.node[:, 0])[PARALLEL]  # of tables that follow more
    chosen, exists = [], []
    for i in range(count):
        first = jnp.argmax(left, 1).astype(jnp.int32)[:, None]
        chosen.append(first)
        exists.append(left.any(1) & (i < own))
        alike = [x == jnp.take_along_axis(x, first, 1) for x in (node, register, cells.content, cells.depth)]
        left &= ~functools.reduce(jnp.logical_and, alike)
    index, exist = jnp.concatenate(chosen, 1), jnp.stack(exists, 1)
    kept = _Taken(*(jnp.where(exist, jnp.take_along_axis(x, index, 1), 0) for x in taken))
    stride = jnp.arange(count, dtype=jnp.int32)[None] * tables.max_push
    _, fields, cells = _landed(tables, state, kept, tokens, state.alloc[:, None] + stride)
    return dataclasses.replace(
        state,
        **{name: jnp.where(exist, field, 0) for name, field in fields.items()},
        alloc=state.alloc + jnp.where(cells.length.any(1), count * tables.max_push, 0),
        cell=appended(state.cell, cells.columns, state.alloc),
        dropped=state.dropped | left.any(1),
    )


def _all(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> _Taken:
    """Every token set that holds each row's token, [B, n] with target 0 where a place holds none: groups, then arcs."""
    record = Fields(tables.nodes, at.node)
    slots = jnp.arange(tables.max_groups, dtype=jnp.int32)[None]
    hit, _ = _group_hits(tables, record, tokens, slots)
    group, cell, register = _group_fields(record, slots, at.cell, at.register)
    parts = [_group_taken(tables, hit, jnp.where(hit, group, 0), cell, register)]
    if tables.search_depth:
        _, last, _ = _last_arcs(tables, record, tokens[:, None])
        back = jnp.arange(tables.max_repeats - 1, -1, -1, dtype=jnp.int32)[None, None]
        arc = last[..., None] - back
        inside = (arc >= record[ARC_OFFSET][..., None]) & (record[ARC_COUNT] > 0)[..., None]
        arc = jnp.maximum(arc, 0)
        hit = inside & (Fields(tables.arcs, arc)[ARC_TOKEN] == tokens[:, None, None])
        own = (hit, arc, at.cell[..., None], at.register[..., None])
        parts.append(_arc_taken(tables, *(jnp.broadcast_to(x, arc.shape).reshape(len(tokens), -1) for x in own)))
    return _Taken(*(jnp.concatenate(field, 1) for field in zip(*parts)))


def _group_taken(tables: ConstraintTables, hit: jax.Array, group: jax.Array, cell: jax.Array, register: jax.Array) -> _Taken:
    effect = Fields(tables.group_effects, group)
    target = jnp.where(hit, Fields(tables.groups, group)[GROUP_NEXT], 0)
    return _Taken(target, jnp.where(hit, effect[PUSH], 0), effect[ADD], effect[SET], cell, register)


def _arc_taken(tables: ConstraintTables, hit: jax.Array, arc: jax.Array, cell: jax.Array, register: jax.Array) -> _Taken:
    effect = Fields(tables.arc_effects, arc)
    target = jnp.where(hit, Fields(tables.arcs, arc)[ARC_NEXT], 0)
    return _Taken(target, jnp.where(hit, effect[PUSH], 0), effect[ADD], effect[SET], cell, register)


def _group_hits(tables: ConstraintTables, record: Fields, tokens: jax.Array, slots: jax.Array) -> tuple[jax.Array, Fields]:
    """Which of a row's groups hold its token, bool[B, n], and their records, for places int32[1, n] in the list of the groups of
    all its sources."""
    word, plane = (x[:, None] for x in tables.columns.place(tokens))
    exists, place, (offset,) = joined(record[GROUP_COUNT], slots, record[GROUP_OFFSET])
    group = Fields(tables.groups, jnp.where(exists, offset + place, 0))
    bits = read(tables.rows, group[GROUP_ROW], jnp.broadcast_to(word, exists.shape))
    return exists & (((bits >> plane.astype(jnp.uint32)) & 1) != 0), group


def _group_fields(record: Fields, slots: jax.Array, *fields: jax.Array) -> tuple[jax.Array, ...]:
    """Index of the groups at places int32[1 or B, n] of the joint list, and fields of the sources they belong to, [B, n]."""
    exists, place, (offset, *chosen) = joined(record[GROUP_COUNT], slots, record[GROUP_OFFSET], *fields)
    return jnp.where(exists, offset + place, 0), *chosen


def _last_arcs(tables: ConstraintTables, record: Fields, tokens: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether each node has an arc with its token, bool[...]; the index of the last one, and the largest target, int32[...], 0
    where it has none.

    A search with `SEARCH_FANOUT` branches per level and a static number of levels: every level reads its separators at
    once, and everything is elementwise, so that it needs no kernel of its own.

    Args:
      tables: from `to_device`.
      record: of the nodes, [...].
      tokens: int32, broadcasts to [...].
    """
    at, end = record[ARC_OFFSET], record[ARC_OFFSET] + record[ARC_COUNT]
    tokens = jnp.broadcast_to(tokens, at.shape)
    last = tables.arcs.shape[0] - 1

    def reached(at: jax.Array, stride: int, i: jax.Array) -> jax.Array:
        """Where a separator takes the search: tokens ascend, so the last one that is not beyond the token decides."""
        probe = at[..., None] + (i + 1) * stride
        below = Fields(tables.arcs, jnp.minimum(probe, last))[ARC_TOKEN] <= tokens[..., None]
        return jnp.where((probe < end[..., None]) & below, probe, at[..., None])

    for level in reversed(range(1, tables.search_depth)):
        at = largest(functools.partial(reached, at, SEARCH_FANOUT**level), SEARCH_FANOUT - 1, at.shape)
    place = at[..., None] + places(SEARCH_FANOUT, at.shape)
    arcs = Fields(tables.arcs, jnp.minimum(place, last))
    mine = (place < end[..., None]) & (arcs[ARC_TOKEN] == tokens[..., None])
    arc, target = (jnp.where(mine, x, 0).max(-1) for x in (place, arcs[ARC_NEXT]))
    return mine.any(-1), arc, target


def _bits(x: jax.Array) -> jax.Array:
    """The bits of all sources, [B, 1]."""
    return functools.reduce(jnp.bitwise_or, [x[:, s : s + 1] for s in range(x.shape[1])])


def _any(x: jax.Array) -> jax.Array:
    """The largest over the sources, [B, 1]; unrolled, so that it stays elementwise."""
    return functools.reduce(jnp.maximum, [x[:, s : s + 1] for s in range(x.shape[1])])
