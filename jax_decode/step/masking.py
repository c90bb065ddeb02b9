"""Which tokens a state allows: bit rows plus a short candidate list, and the plain boolean mask made of both.

The two parts are disjoint, and no token is listed twice. Samplers read them directly and never build a `[B, V]` mask; `mask`
and `mask_logits` are the general, slower form for a user's own sampling code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.errors import shown
from jax_decode.errors import DecodeError, is_whole, named_arguments
from jax_decode.kernels.blocks import SMALL
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import fields, joined, last_of, places, read, unstacked, whole
from jax_decode.kernels.lanes import by_lanes, in_lanes
from jax_decode.kernels.placement import rows_may_stand_last
from jax_decode.kernels.row_program import NotARowProgramError
from jax_decode.kernels.rows_gpu import by_programs, in_programs
from jax_decode.kernels.target import LANES, target
from jax_decode.step.argument_checks import check_logits, check_state, check_tables
from jax_decode.step.guards import allows as allowed_by
from jax_decode.step.packing import PackedState, unpacked, without_cells
from jax_decode.step.parallel_stacks import by_rows
from jax_decode.step.stack import Known, Sources, accepts, places_of, shortest, sources, stack_at, without_twins
from jax_decode.step.state import ConstraintState
from jax_decode.tables.canonical import BOUNDED, canonical_words
from jax_decode.tables.concatenation import (
    ACCEPT,
    ARC_COST,
    ARC_COUNT,
    ARC_GUARD,
    ARC_NEED,
    ARC_OFFSET,
    ARC_TOKEN,
    FREE,
    GROUP_COUNT,
    GROUP_OFFSET,
    GROUP_ROW,
    LEVEL_COST,
    LEVEL_COUNT,
    LEVEL_NEED,
    LEVEL_OFFSET,
    LEVEL_ROW,
)
from jax_decode.tables.items import levels_of, listed_children
from jax_decode.tables.tables import ConstraintTables


class MaskParts(NamedTuple):
    """The tokens that a state allows.

    words: uint32[B, W], bit planes of those that are not listed; word_at: the words of columns int32[B, n], read without `words`
    where that is cheaper; token, allowed: int32 and bool[B, M + E], the candidate list, 0 where not allowed; M is
    `tables.max_candidates`. inverse: float32[B], one over the temperature that the row's grammar asks for, infinite where it asks
    for none; None where no constraint has temperatures. union: rows uint32[R, W] and which of them int32[B, S], whose unions are
    `words`, for a kernel that reads them there; None where the words are more than that.
    """

    words: jax.Array
    word_at: Callable[[jax.Array], jax.Array]
    token: jax.Array
    allowed: jax.Array
    inverse: jax.Array | None = None
    union: tuple[jax.Array, jax.Array] | None = None

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """What `parts_at` makes the mask of again."""
        found = (self.words, self.token, self.allowed)
        return found if self.inverse is None else (*found, self.inverse)


def located(tables: ConstraintTables, state: ConstraintState) -> Sources:
    """All sources of every row; in a program that has kernels of rows, with what is known before the token."""
    if not of_one_stack(tables):
        return sources(tables, state)
    of_stacks = (tables.frames, tables.delta, tables.pushes) if tables.has_stack else ()  # they are for the step
    by_kernel = by_lanes if in_lanes(tables.nodes, tables.levels, tables.groups, *of_stacks) else by_programs
    if by_kernel is by_programs and not in_programs():
        return sources(tables, state)
    try:
        record, known = by_kernel(_located_row, tables, without_cells(state))
    except NotARowProgramError:
        return sources(tables, state)
    at, nothing = places_of(tables, state), jnp.zeros_like(record[ACCEPT])
    return at._replace(record=tuple(record.get(column, nothing) for column in range(8)), slope=nothing, known=known)


def _located_row(tables: ConstraintTables, rows: PackedState) -> tuple[dict[int, jax.Array], Known]:
    """What is known of a row before its token, and the columns of its nodes that are asked for besides."""
    state = unpacked(rows)
    at = sources(tables, state)
    asked = [ARC_OFFSET, ARC_COUNT, ACCEPT] if tables.search_depth else [ACCEPT]
    if target() != LANES:  # for lists that are made later
        asked.append(LEVEL_COUNT)
    return {column: at.record[column] for column in asked}, _known(tables, state, at)


def _known(tables: ConstraintTables, state: ConstraintState, at: Sources) -> Known:
    cost, need = limits(tables, state, at)
    slots = places(tables.max_groups, state.status.shape)
    groups = joined(at.record[GROUP_COUNT], slots, at.record[GROUP_OFFSET])
    (row,) = fields(tables.groups, (GROUP_ROW,), groups.place)
    accepted, exists = accepts(tables, at)[:, None].astype(jnp.int32), groups.exists.astype(jnp.int32)
    listed_here = tables.search_depth and tables.max_candidates and target() == LANES  # a program would list arc after arc
    arcs = _arcs_known(tables, state, at, accepted != 0) if listed_here else ()
    source = groups.source if tables.has_stack else None
    return Known(accepted, mask_rows(tables, state, at), cost, need, exists, groups.place, source, row, arcs)


def _arcs_known(tables: ConstraintTables, state: ConstraintState, at: Sources, accepted: jax.Array) -> tuple[jax.Array, ...]:
    """`Known.arcs`: source after source, each from where its list begins on, so that nothing is added up."""
    never = jnp.int32(-UNREACHABLE)
    slots, running = _slots(tables, state), state.running[:, None]
    chosen = [jnp.zeros_like(slots)] * (3 if tables.has_stack else 2)
    begin = jnp.zeros_like(at.node[:, :1])
    count = jnp.where((at.record[LEVEL_COUNT] == 0) & running, at.record[ARC_COUNT], 0)
    lists = [x for x in (at.record[ARC_OFFSET], *limits(tables, state, at)) if x is not None]
    for s in range(at.node.shape[1]):
        offset, *most = (x[:, s : s + 1] for x in lists)
        chosen = [jnp.where(slots >= begin, x, y) for x, y in zip((offset - begin + slots, *most), chosen)]
        begin += count[:, s : s + 1]
    place, cost, *need = chosen
    none, first = slots >= begin, tables.max_candidates
    place, cost = jnp.where(none, 0, place), jnp.where(none, never, cost)
    stops = jnp.where(accepted & running & (state.stop_ids >= 0), -1 - state.stop_ids, 0)
    return jnp.concatenate([place[:, :first], stops], 1), cost, *need


def of_one_stack(tables: ConstraintTables) -> bool:
    """Whether rows are worked on by kernels of one row in every lane: constraints of a single stack or none."""
    others = (tables.pairs, tables.filter, tables.items)
    return tables.stacks == 1 and not tables.key_words and all(x is None for x in others)


def mask_parts(tables: ConstraintTables, state: ConstraintState, at: Sources | None = None) -> MaskParts:
    """Both parts of the mask; `at`: the rows' sources, where they are known and `tables.stacks` is 1."""
    if tables.stacks > 1:
        return parts_at(*by_rows(tables, _mask_arrays, state))
    at = located(tables, state) if at is None else at
    rows = mask_rows(tables, state, at)
    if tables.pairs is not None and tables.filter is not None:
        together, apart = canonical_words(tables.pairs, tables.filter, state.canonical, tables.columns, _unless(tables, state))
        if tables.partners:
            half = rows.shape[1] // 2
            words = (words_of(tables, rows[:, :half]) & together) | (words_of(tables, rows[:, half:]) & apart)
        else:
            words = words_of(tables, rows) & (together | apart)
        free = (state.node == FREE) & state.running[:, None]
        return parts_at(jnp.where(free, words_of(tables, rows[:, :1]), words), *listed(tables, state, at))
    found = (words_of(tables, rows), functools.partial(words_at, tables, rows), *listed(tables, state, at))
    return MaskParts(*found, _inverse_temperature(tables, at), (tables.rows, rows))


def parts_at(words: jax.Array, token: jax.Array, allowed: jax.Array, inverse: jax.Array | None = None) -> MaskParts:
    """The mask of these arrays, for masks that were kept, or made elsewhere."""
    batch = jnp.arange(words.shape[0], dtype=jnp.int32)[:, None]
    return MaskParts(words, functools.partial(read, words, batch, rows=None), token, allowed, inverse)


def _mask_arrays(tables: ConstraintTables, state: ConstraintState) -> tuple[jax.Array, ...]:
    at = sources(tables, state)
    inverse = _inverse_temperature(tables, at)
    found = (words_of(tables, mask_rows(tables, state, at)), *listed(tables, state, at))
    return found if inverse is None else (*found, inverse)


def _inverse_temperature(tables: ConstraintTables, at: Sources) -> jax.Array | None:
    """`MaskParts.inverse`: that of the greatest temperature of all sources."""
    return read(tables.inverse_temperature, at.node).min(1) if tables.has_temperatures else None


def budget(tables: ConstraintTables, state: ConstraintState, at: Sources) -> jax.Array:
    """Tokens a row may still take, int32[B]; no limit when not even the shortest completion fits."""
    hopeless = state.remaining < shortest(tables, at)
    if tables.pairs is not None:  # whether a limit fits depends on the last token too: it is known of the start only
        hopeless |= (state.canonical[:, BOUNDED] == 0) & (state.node[:, 0] > FREE)
    return jnp.where(hopeless, UNREACHABLE, state.remaining)


def limits(tables: ConstraintTables, state: ConstraintState, at: Sources) -> tuple[jax.Array, jax.Array | None]:
    """What the tokens of every source may cost and need, int32[B, S] each (no need without stacks)."""
    if at.known is not None:
        return at.known.cost, at.known.need
    most = budget(tables, state, at)[:, None]
    if not tables.has_stack:
        return jnp.broadcast_to(most, at.node.shape), None
    return most - at.cost - at.slope, state.depth_limit[:, None] - at.depth


def mask_rows(tables: ConstraintTables, state: ConstraintState, at: Sources) -> jax.Array:
    """Indices of each row's bit rows, int32[B, S]: of every source the last level within the limits, 0 (empty) for none."""
    if at.known is not None:
        return at.known.rows
    at = without_twins(tables, at)
    cost, need = limits(tables, state, at)
    if tables.only_items:  # one record is all that can be asked for
        free = at.node == FREE
        offset, count = (jnp.where(free, tables.nodes[FREE, column], 0) for column in (LEVEL_OFFSET, LEVEL_COUNT))
    else:
        offset, count = at.record[LEVEL_OFFSET], at.record[LEVEL_COUNT]
    if tables.items is not None and at.item is not None:  # all other sources of such a row are dead
        own = levels_of(tables.items, jnp.maximum(at.item, 0))
        first = (at.item >= 0)[:, None] & (jnp.arange(offset.shape[1])[None] == 0)
        offset, count = (jnp.where(first, x[:, None], y) for x, y in zip(own, (offset, count)))

    # Levels ascend by cost and then by need, so the last that fits has the largest index.
    def fitting(i: jax.Array) -> tuple[jax.Array, jax.Array]:
        columns = (LEVEL_COST, LEVEL_ROW) if need is None else (LEVEL_COST, LEVEL_ROW, LEVEL_NEED)
        tokens, row, *depth = fields(tables.levels, columns, offset[..., None] + i)
        fits = (i < count[..., None]) & (tokens <= cost[..., None])
        if need is not None:
            fits &= depth[0] <= need[..., None]
        return fits, row

    row = last_of(fitting, tables.max_levels, offset.shape)
    return jnp.where(state.running[:, None], row, 0)


def words_of(tables: ConstraintTables, rows: jax.Array) -> jax.Array:
    """The union of bit rows int32[B, S], uint32[B, W]."""
    if target() == "gpu":  # its compiler would find the rows for every word, and the word for every logit
        rows = rows if rows.shape[1] == 1 else jax.lax.optimization_barrier(rows)
        return jax.lax.optimization_barrier(_union(lambda rows: read(tables.rows, rows), rows))
    if rows_may_stand_last():  # one read of all rows, those of a source together
        return functools.reduce(jnp.bitwise_or, unstacked(read(tables.rows, rows.T)))
    if target() == "tpu" or rows.shape[1] == 1 or len(rows) * tables.rows.shape[1] * 32 < SMALL:
        return _union(lambda rows: read(tables.rows, rows), rows)
    # A CPU works for every word: no further than to the last source that has a row in any row of the batch.
    order = np.arange(1, rows.shape[1] + 1, dtype=np.int32)
    end = jnp.where(rows > 0, order, 0).max()

    def more(s: jax.Array, words: jax.Array) -> jax.Array:
        return words | read(tables.rows, jax.lax.dynamic_index_in_dim(rows, s, 1, keepdims=False))

    return jax.lax.fori_loop(1, end, more, read(tables.rows, rows[:, 0]))


def words_at(tables: ConstraintTables, rows: jax.Array, column: jax.Array) -> jax.Array:
    """Words of the union of bit rows int32[B, S] at columns int32[B, n], uint32[B, n], read from the tables themselves."""

    if rows_may_stand_last():  # one read of the words of all rows
        words = read(tables.rows, *jnp.broadcast_arrays(rows[..., None], column[:, None]))
        return functools.reduce(jnp.bitwise_or, unstacked(jnp.moveaxis(words, 1, 0)))

    def found(rows: jax.Array) -> jax.Array:
        own = jnp.expand_dims(column, range(1, rows.ndim))
        return read(tables.rows, *jnp.broadcast_arrays(rows[..., None], own), rows=None)

    return _union(found, rows)


def _union(words: Callable[[jax.Array], jax.Array], rows: jax.Array) -> jax.Array:
    """The union over the sources of the words uint32[B, ..., n] of bit rows int32[B, ...]."""
    if rows.shape[1] == 1:
        return words(rows[:, 0])

    def together(rows: jax.Array) -> jax.Array:
        return jax.lax.reduce(words(rows), np.uint32(0), jax.lax.bitwise_or, (1,))

    def one_by_one(rows: jax.Array) -> jax.Array:
        return functools.reduce(jnp.bitwise_or, [words(rows[:, s]) for s in range(rows.shape[1])])

    return together(rows) if target() == "cpu" else one_by_one(rows)


@named_arguments
def mask_words(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Bit planes of the allowed tokens that are not in the candidate list, uint32[B, W]."""
    check_tables(tables, "mask_words")
    check_state(tables, state, "mask_words")
    return mask_parts(tables, state).words


def candidates(tables: ConstraintTables, state: ConstraintState) -> tuple[jax.Array, jax.Array]:
    """Allowed tokens that no bit row holds: arcs of sources without mask row, and stop ids of an accepted text.

    Returns:
      token int32[B, M + E] (0 where not allowed) and allowed bool[B, M + E]; M is `tables.max_candidates`.
    """
    parts = mask_parts(tables, state)
    return parts.token, parts.allowed


def listed(tables: ConstraintTables, state: ConstraintState, at: Sources) -> tuple[jax.Array, jax.Array]:
    """What `candidates` returns, for rows all of which have one stack, or K."""
    if at.known is not None and at.known.arcs:
        place, *most = at.known.arcs
        token, *arc = fields(tables.arcs, (ARC_TOKEN, ARC_COST, ARC_NEED)[: len(most) + 1], jnp.maximum(place, 0))
        fits = functools.reduce(jnp.bitwise_and, [x <= y for x, y in zip(arc, most)])
        token, allowed = jnp.where(place < 0, -1 - place, token), fits | (place < 0)
        return jnp.where(allowed, token, 0), allowed
    accepted = accepts(tables, at)[:, None] if at.known is None else at.known.accepted != 0
    token, allowed = state.stop_ids, jnp.broadcast_to(accepted, state.stop_ids.shape)
    if tables.max_candidates:
        own = _listed_arcs if tables.search_depth else _listed_items  # no arcs at all: only sets of items have lists
        token, allowed = own(tables, state, at)
        if state.node.shape[1] > 1:
            allowed &= _first_of_kind(tables, mask_rows(tables, state, at), token, allowed)
        plain = len(at.record) > ACCEPT and at.record[ACCEPT].shape[1] == 1 and tables.items is None and at.ends is None
        # On a TPU, a number of the record is read where it is used; whether it is one would be an operation of its own.
        accepts_if = at.record[ACCEPT] if plain and target() == "tpu" else accepted
        token, allowed = _beside_stops(tables, state, token, allowed, accepts_if)
    allowed &= state.running[:, None] & (token >= 0)
    return jnp.where(allowed, token, 0), allowed


def _beside_stops(
    tables: ConstraintTables, state: ConstraintState, token: jax.Array, allowed: jax.Array, accepted: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A list whose last places are those of stop ids, with them: selected rather than concatenated, so that it stays elementwise
    over the whole list; on a TPU from a padded list, and id by id elsewhere, which is fewer operations each."""
    slots = _slots(tables, state)
    if target() == "tpu":
        of_arc, stops = whole(slots) < tables.max_candidates, jnp.pad(state.stop_ids, ((0, 0), (tables.max_candidates, 0)))
        if accepted.dtype != bool:
            accepted = whole(jnp.broadcast_to(accepted, slots.shape)).astype(bool)
        return jnp.where(of_arc, token, stops), jnp.where(of_arc, allowed, accepted)
    for e in range(state.stop_ids.shape[1]):
        here = slots == tables.max_candidates + e
        token, allowed = jnp.where(here, state.stop_ids[:, e : e + 1], token), jnp.where(here, accepted, allowed)
    return token, allowed


def _slots(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Places in the candidate list, int32[B, M + E]; those from M on are none of an arc."""
    return places(tables.max_candidates + state.stop_ids.shape[1], state.remaining.shape)


def _listed_arcs(tables: ConstraintTables, state: ConstraintState, at: Sources) -> tuple[jax.Array, jax.Array]:
    """Tokens of the arcs of all sources without mask row, int32[B, M + E], and which exist and fit the limits."""
    slots, levels, count = _slots(tables, state), at.record[LEVEL_COUNT], at.record[ARC_COUNT]
    alone = levels.shape[1] == 1  # then the condition stands beside those of the arcs: no operation of its own on a TPU
    cost, need = limits(tables, state, at)
    found = joined(count if alone else jnp.where(levels == 0, count, 0), slots, at.record[ARC_OFFSET])
    guard = (ARC_GUARD,) if at.used else ()
    columns = (ARC_TOKEN, ARC_COST, *((ARC_NEED,) if need is not None else ()), *guard)
    token, *arc = fields(tables.arcs, columns, found.place)
    fits = found.exists & _within(arc[0], None if need is None else arc[1], cost, need, found.source)
    if alone:
        fits &= whole(jnp.broadcast_to(levels, fits.shape)) == 0
    if at.used:
        fits &= allowed_by(tables, arc[-1], stack_at(tables, at, found.source)[1])
    if tables.pairs is not None and tables.filter is not None:
        words = canonical_words(tables.pairs, tables.filter, state.canonical, tables.columns, _unless(tables, state))
        batch = jnp.arange(token.shape[0], dtype=jnp.int32)[:, None]
        column, plane = tables.columns.place(token)
        together, apart = (read(part, batch, column) for part in words)
        # Those of partners are for forbidden pairs.
        own = count[:, : count.shape[1] // 2].sum(1, keepdims=True, dtype=jnp.int32)
        bits = jnp.where(slots >= own, apart, together) if tables.partners else together | apart
        fits &= ((bits >> plane.astype(jnp.uint32)) & 1) != 0
    if at.item is not None:
        own, inside = _listed_items(tables, state, at)
        other = (at.item < 0)[:, None]
        token, fits = jnp.where(other, token, own), jnp.where(other, fits, inside)
    return token, fits


def _within(tokens: jax.Array, deep: jax.Array | None, cost: jax.Array, need: jax.Array | None, source: jax.Array) -> jax.Array:
    """Whether arcs' cost and need, int32[B, n], are within the limits int32[B, S] of their sources, bool[B, n]."""
    fits = tokens[..., None] <= cost[:, None]
    if deep is not None and need is not None:
        fits &= deep[..., None] <= need[:, None]
    if cost.shape[1] == 1:
        return fits[..., 0]
    own = jax.lax.broadcasted_iota(jnp.int32, fits.shape, 2) == source[..., None]
    return jax.lax.reduce(fits & own, np.False_, jax.lax.bitwise_or, (2,))


def _listed_items(tables: ConstraintTables, state: ConstraintState, at: Sources) -> tuple[jax.Array, jax.Array]:
    """Tokens of the children of tries' nodes without mask row, int32[B, M + E], and which exist and fit the limits."""
    assert tables.items is not None
    assert at.item is not None
    slots = _slots(tables, state)
    token, fits = listed_children(tables.items, jnp.maximum(at.item, 0), slots, budget(tables, state, at))
    return token, fits & (at.item >= 0)[:, None]


def _unless(tables: ConstraintTables, state: ConstraintState) -> list[tuple[jax.Array, jax.Array]]:
    """The tokens of rows' nodes that may not lead to excepted states of the filter, uint32[B, W], and which states, int32[B]."""
    if not tables.unless.shape[0]:
        return []
    noted = read(tables.unless, state.node[:, 0])
    return [(read(tables.rows, noted[:, k, 0]), noted[:, k, 1]) for k in range(noted.shape[1])]


def _first_of_kind(tables: ConstraintTables, rows: jax.Array, token: jax.Array, fits: jax.Array) -> jax.Array:
    """Which listed tokens, bool[B, M + E], are in no bit row and were not listed before: sources of several stacks overlap."""
    column, plane = tables.columns.place(token)
    bit = words_at(tables, rows, column) >> plane.astype(jnp.uint32)
    order = jnp.arange(token.shape[1], dtype=jnp.int32)
    before = (order[:, None] > order[None])[None] & fits[:, None] & (token[:, :, None] == token[:, None])
    return ((bit & 1) == 0) & ~before.any(2)


@named_arguments
def mask(tables: ConstraintTables, state: ConstraintState, *, width: int | None = None) -> jax.Array:
    """The allowed next tokens as booleans: what the samplers read in packed form.

    This is the general form, for any sampling code; it writes B x width booleans, which costs more than the whole
    constrained step of the package's own samplers.

    Args:
      tables: from `to_device`.
      state: the rows.
      width: number of logits, at least `tables.vocab_size`; None for exactly that.

    Returns:
      bool[B, width]. A row that is not running allows nothing.
    """
    check_tables(tables, "mask")
    check_state(tables, state, "mask")
    if width is not None and not is_whole(width, 0):
        raise DecodeError(f"mask: the width is {shown(width)}", fix="Give the number of the model's logits, or leave it out.")
    if width is not None and width < tables.vocab_size:
        what = f"mask: the width {width:,} is below the vocabulary's {tables.vocab_size:,} ids"
        raise DecodeError(what, fix="Give the number of the model's logits, or leave it out.")
    return dense(mask_parts(tables, state), tables.vocab_size if width is None else width, tables.columns)


def dense(parts: MaskParts, width: int, columns: Columns | None = None) -> jax.Array:
    """A mask's parts as booleans, bool[B, width]; None for columns over one device."""
    batch = jnp.arange(parts.words.shape[0], dtype=jnp.int32)[:, None]
    place = jnp.where(parts.allowed, parts.token, width)
    return booleans(parts.words, width, columns).at[batch, place].set(True, mode="drop")


def booleans(words: jax.Array, width: int, columns: Columns | None = None) -> jax.Array:
    """Bit planes uint32[B, W] as booleans, bool[B, width]; None for columns over one device."""
    shards = None if columns is None else columns.shards
    count, own = (1, words.shape[1] * 32) if shards is None else (shards.count, shards.width)
    needed = min(32, -(-width // words.shape[1])) if shards is None else 32
    planes = jnp.arange(needed, dtype=jnp.uint32)[None, None, :, None]
    bits = ((words.reshape(len(words), count, 1, -1) >> planes) & 1).astype(bool)
    bits = bits.reshape(len(words), count, -1)[:, :, :own].reshape(len(words), -1)
    return jnp.pad(bits, ((0, 0), (0, max(0, width - bits.shape[1]))))[:, :width]


def likely_spelling(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Where the following text is forced, the longest token of it, int32[B]; -1 elsewhere. Limits are not looked at."""
    found = read(tables.spelling, sources(tables, state).node)
    return jnp.where(state.running, found.max(1), -1)


def allows(parts: MaskParts, tokens: jax.Array, columns: Columns) -> jax.Array:
    """Whether a mask holds the tokens int32[B], bool[B]; -1 it never does."""
    column, plane = columns.place(jnp.maximum(tokens, 0))
    bit = (parts.word_at(column[:, None])[:, 0] >> plane.astype(jnp.uint32)) & 1
    return (tokens >= 0) & ((bit != 0) | (parts.allowed & (parts.token == tokens[:, None])).any(1))


@named_arguments
def mask_logits(tables: ConstraintTables, state: ConstraintState, logits: jax.Array) -> jax.Array:
    """A copy of the logits with -inf in place of every forbidden token.

    Args:
      tables: from `to_device`.
      state: the rows.
      logits: float[B, V'], V' at least `tables.vocab_size`.

    Returns:
      float[B, V'] of the logits' dtype.

    Raises:
      DecodeError: while tracing, for arguments that do not go together; says what to pass.
    """
    check_tables(tables, "mask_logits")
    check_state(tables, state, "mask_logits")
    check_logits(logits, tables, state, "mask_logits")
    allowed = mask(tables, state, width=logits.shape[-1])
    return jnp.where(allowed, logits, jnp.asarray(-jnp.inf, logits.dtype))
