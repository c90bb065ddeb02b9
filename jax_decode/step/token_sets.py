"""Which token sets hold a row's token: wide ones are bit rows with groups, narrow ones arcs that are searched."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels.gather import Joint, fields, joined, largest, picked, places, read, whole
from jax_decode.kernels.target import LANES, of_one_row, target
from jax_decode.step.guards import Words, allows
from jax_decode.step.stack import Sources, stack_at, without_twins
from jax_decode.tables.concatenation import (
    ARC_COUNT,
    ARC_GUARD,
    ARC_HELD,
    ARC_NEXT,
    ARC_OFFSET,
    ARC_TOKEN,
    GROUP_COUNT,
    GROUP_NEXT,
    GROUP_OFFSET,
    GROUP_ROW,
    SEARCH_FANOUT,
)
from jax_decode.tables.tables import ConstraintTables


class Taken(NamedTuple):
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


class Keys(NamedTuple):
    """Of token sets, int32[B, 1]: guard, row of the set of keys of a frame they open, and the set of their source."""

    guard: jax.Array
    held: jax.Array
    used: Words


def of_groups(tables: ConstraintTables, record: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """Where the one group with the token leads to, int32[B]; 0 where there is none."""

    def following_of(i: jax.Array) -> jax.Array:
        hit, _, following = _group_hits(tables, record, tokens, i, (GROUP_NEXT,))
        return jnp.where(hit, following[0], 0)

    return largest(following_of, tables.max_groups, tokens.shape)


def of_arcs(tables: ConstraintTables, record: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """Likewise of arcs."""
    return _last_arcs(tables, record, tokens[:, None], ARC_NEXT)[:, 0]


def only(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> Taken:
    """The one token set that holds each row's token, [B, 1]: in deterministic constraints no two sets share a token."""
    group, source = _only_group(tables, at, tokens)
    if not tables.search_depth:
        return _taken(tables.groups, GROUP_NEXT, group > 0, jnp.maximum(group - 1, 0), stack_at(tables, at, source)[0])
    arc, of_arc = only_arc(tables, at, tokens)
    return taken_by(tables, group, arc, stack_at(tables, at, jnp.where(arc > 0, of_arc, source))[0])


def only_arc(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One more than the index of the one arc with each row's token, and its source, int32[B, 1]; 0 for none."""
    arc = _last_arcs(tables, at.record, tokens[:, None])
    arc, source = picked(arc > 0, arc, _order(arc))
    return arc, source


def _order(of: jax.Array) -> jax.Array:
    """Indices along the second axis of an array [B, n]."""
    return jax.lax.broadcasted_iota(jnp.int32, of.shape, 1)


def taken_by(tables: ConstraintTables, group: jax.Array, arc: jax.Array, stack: Sequence[jax.Array]) -> Taken:
    """The token sets with one more than the indices int32[B, 1]: of an arc, where there is one, or else of a group."""
    is_arc = arc > 0
    of_group = fields(tables.groups, range(GROUP_NEXT, GROUP_NEXT + 4), jnp.maximum(group - 1, 0))
    of_arc = fields(tables.arcs, range(ARC_NEXT, ARC_NEXT + 4), jnp.maximum(arc - 1, 0))
    target, push, add, set_to = (jnp.where(is_arc, x, y) for x, y in zip(of_arc, of_group))
    there = is_arc | (group > 0)
    return Taken(jnp.where(there, target, 0), jnp.where(there, push, 0), add, set_to, *stack)


def _only_group(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One more than the index of the one wide token set that holds each row's token, and its source, int32[B, 1]; 0 for none."""
    hit, found, _ = _group_hits(tables, at.record, tokens, places(tables.max_groups, tokens.shape), ())
    group, source = picked(hit, found.place + 1, found.source)
    return group, source


def guarded(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> tuple[Taken, Keys]:
    """Like `only` with sets of keys: of a source's arcs with the row's token, the one whose guard allows its set."""
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
    return taken_by(tables, group, arc, stack), Keys(guard, held, tuple(jnp.where(there, x, 0) for x in used))


def every_set(tables: ConstraintTables, at: Sources, tokens: jax.Array) -> Taken:
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
    return Taken(*(jnp.concatenate(field, 1) for field in zip(*parts)))


def _taken(table: jax.Array, following: int, hit: jax.Array, index: jax.Array, stack: Sequence[jax.Array]) -> Taken:
    """Token sets of a table, whose effects lie behind the node that follows, where they are hit; `stack`: of their sources."""
    target, push, add, set_to = fields(table, range(following, following + 4), index)
    return Taken(jnp.where(hit, target, 0), jnp.where(hit, push, 0), add, set_to, *stack)


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
    if of_one_row():  # there, every entry that is read costs; in a program on a GPU, and every one that waits for another
        bits = 1 if target() == LANES else 3
        fanout, levels = 1 << bits, -(-levels * (SEARCH_FANOUT.bit_length() - 1) // bits)
    for level in reversed(range(1, levels)):
        at = largest(functools.partial(reached, at, fanout**level), fanout - 1, at.shape)
    of_node = at[..., None] + places(fanout, at.shape)
    place = offset[..., None] + of_node
    columns = (ARC_TOKEN,) if column is None else (ARC_TOKEN, column)
    token, *asked = fields(tables.arcs, columns, jnp.minimum(place, last))
    mine = (of_node < count[..., None]) & (token == tokens[..., None])
    return jnp.where(mine, asked[0] if asked else place + 1, 0).max(-1)
