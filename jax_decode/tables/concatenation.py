"""Constraints one after another, as the records that tables on the device are made of: NumPy arrays, not yet padded.

The columns of the records are named here. Padding, and what lies on the device, belongs to `tables`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import ARC_BURST, NO_TEMPERATURE, UNREACHABLE
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from jax_decode.tables.items import PackedItems
from jax_decode.tables.stack_layout import longest_chain

_COLDEST = np.float32(2.0**-100)
"""Stands for temperature 0: a power of two, so that no two logits become equal."""
DEAD = 0
"""Node that allows nothing."""
FREE = 1
"""Node of a row without a constraint: every id of the tokenizer, back to itself."""
SEARCH_FANOUT = 32
"""Branching of the search among a node's arcs; its depth is static."""

GROUP_OFFSET, GROUP_COUNT, ARC_OFFSET, ARC_COUNT, LEVEL_OFFSET, LEVEL_COUNT, DISTANCE, ACCEPT = range(8)
"""Columns of `ConstraintTables.nodes`."""
GROUP_ROW, GROUP_NEXT = range(2)
"""Columns of `ConstraintTables.groups`; behind them the group's effects, where constraints have stacks."""
ARC_TOKEN, ARC_COST, ARC_NEED, ARC_NEXT, ARC_GUARD, ARC_HELD = *range(4), 7, 8
"""Columns of `ConstraintTables.arcs`; behind `ARC_NEXT` the arc's effects, where constraints have stacks, and its guard and the
row of `keys` of the frame that it opens, where they have sets of keys."""
LEVEL_COST, LEVEL_ROW, LEVEL_NEED = range(3)
"""Columns of `ConstraintTables.levels`."""
START, TEXT_ROW, SHORTEST, SHALLOWEST, FIRST_TOP, PUSHES, PROMPT_LAST, FIRST_STATE = range(8)
"""Columns of `ConstraintTables.constraints`."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """All constraints one after another, unpadded; `levels` with all columns.

    `rows` are distinct, still in the file's bit order: what string bodies, numbers and white space allow is the same in every
    schema. `row_numbers`: of every constraint, which of them its own rows are.
    """

    nodes: NDArray[np.int32]
    groups: NDArray[np.int32]
    arcs: NDArray[np.int32]
    levels: NDArray[np.int32]
    rows: NDArray[np.uint32]
    constraints: NDArray[np.int32]
    row_numbers: list[NDArray[np.int32]]


def concatenate(constraints: Sequence[CompiledConstraint]) -> Parts:
    """Joins the constraints behind the dead and the unconstrained node; offsets are added to every id."""
    vocab_size = constraints[0].vocab_size
    rows = _Rows()
    width = -(-vocab_size // 32)
    everything = np.packbits(np.arange(width * 32) < vocab_size, bitorder="little").view("<u4")
    rows.numbers(np.stack([np.zeros(width, np.uint32), everything]))
    nodes = [np.array([[0] * 8, [0, 1, 0, 0, 0, 1, 0, 0]], np.int32)]
    groups, levels = [np.array([[1, FREE]], np.int32)], [np.array([[1, 1, 0, 0]], np.int32)]
    arcs, table, numbers = [np.zeros((0, 4), np.int32)], [], []
    sizes = np.array([2, 1, 0, 1])  # nodes, groups, arcs, levels so far
    for c in constraints:
        base = sizes[0] - 1  # its dead node is the common one: node n becomes base + n
        own = rows.numbers(np.asarray(c.rows))
        nodes.append(_node_records(c, sizes))
        groups.append(np.stack([own[c.group_row], c.group_next + base], 1).astype(np.int32))
        arcs.append(_arc_records(c, int(base)))
        level = [c.level_cost, own[c.level_row], c.level_need, np.zeros_like(c.level_need)]
        levels.append(np.stack(level, 1).astype(np.int32))
        numbers.append(own)
        text = int(rows.numbers(_text_row(c)[None])[0])
        sizes += [c.num_nodes - 1, len(c.group_row), len(c.arc_token), len(c.level_row)]
        top = c.push_offset[c.initial_push + 1] - c.push_offset[c.initial_push]
        first = [base + c.start, text, c.shortest_completion, c.shortest_depth, top, c.max_push > 0]
        table.append([*first, *_canonical_start(c)])
    return Parts(
        nodes=np.concatenate(nodes),
        groups=np.concatenate(groups),
        arcs=np.concatenate(arcs),
        levels=np.concatenate(levels),
        rows=np.stack(rows.kept),
        constraints=np.array(table, np.int32),
        row_numbers=numbers,
    )


class _Rows:
    """Rows by content."""

    def __init__(self) -> None:
        self.kept: list[NDArray[np.uint32]] = []
        self._number: dict[bytes, int] = {}

    def numbers(self, rows: NDArray[np.uint32]) -> NDArray[np.int32]:
        """The numbers of rows uint32[R, *] among all that were asked for, int32[R]."""
        out = np.empty(len(rows), np.int32)
        for i, row in enumerate(rows):
            out[i] = self._number.setdefault(row.tobytes(), len(self.kept))
            if out[i] == len(self.kept):
                self.kept.append(row)
        return out


def inverse_temperatures(constraints: Sequence[CompiledConstraint], count: int) -> NDArray[np.float32]:
    """`ConstraintTables.inverse_temperature` for `count` nodes; of no elements where no constraint has temperatures."""
    if not any(len(c.temperature) for c in constraints):
        return np.zeros(0, np.float32)
    none = np.full(2, NO_TEMPERATURE, np.float32)  # dead and free
    every = [c.temperature[1:] if len(c.temperature) else np.full(c.num_nodes - 1, NO_TEMPERATURE) for c in constraints]
    given = np.concatenate([none, *every]).astype(np.float32)
    inverse = 1 / np.where(given > 0, given, _COLDEST).astype(np.float32)
    return padded(np.where(given == NO_TEMPERATURE, np.inf, inverse).astype(np.float32), count, np.inf)


def exceptions(
    constraints: Sequence[CompiledConstraint], row_numbers: Sequence[NDArray[np.int32]], count: int, *, in_buckets: bool
) -> tuple[NDArray[np.int32], list[list[int]]]:
    """`ConstraintTables.unless` for `count` nodes, and the lists of states it numbers; `row_numbers`: as in `Parts`;
    `in_buckets`: there is room for more."""
    found = [c.canonical_unless for c in constraints]
    most = max([unless.shape[1] for _, unless in found], default=1)
    out = np.zeros((count, bucket(most, 2) if in_buckets else most, 2), np.int32)
    known: list[list[int]] = []
    node = 2  # the constraint's own first one
    for c, own_rows, (lists, unless) in zip(constraints, row_numbers, found):
        if lists:
            known += [states for states in lists if states not in known]
            number = np.array([known.index(states) for states in lists], np.int32)
            own = out[node : node + c.num_nodes - 1, : unless.shape[1]]
            own[..., 0] = own_rows[unless[1:, :, 0]]
            own[..., 1] = number[unless[1:, :, 1]]
        node += c.num_nodes - 1
    if in_buckets and known:
        known += [[] for _ in range(bucket(len(known), 8) - len(known))]
    return out if known else out[:0], known


def _canonical_start(c: CompiledConstraint) -> tuple[int, int]:
    """Of a canonical constraint one more than the prompt's last token, 0 for none, and the state of the filter."""
    if not c.is_canonical:
        return 0, 0
    last, _, state = c.canonical_start
    return last + 1, state


def _node_records(c: CompiledConstraint, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Records of all nodes but the dead one."""
    columns = []
    for offset, base in ((c.group_offset, sizes[1]), (c.arc_offset, sizes[2]), (c.level_offset, sizes[3])):
        columns += [offset[1:-1] + base, np.diff(offset)[1:]]
    columns += [np.minimum(c.distance[1:], UNREACHABLE), c.accept[1:]]
    return np.stack(columns, 1).astype(np.int32)


def _arc_records(c: CompiledConstraint, base: int) -> NDArray[np.int32]:
    """Records of all arcs, without their effects on stacks."""
    records = np.stack([np.zeros_like(c.effects[:, 0]), c.effects[:, 4], c.effects[:, 5], c.effects[:, 0] + base], 1)
    out = records.astype(np.int32).take(np.asarray(c.arc_effect), 0)
    out[:, ARC_TOKEN] = c.arc_token
    return out


def _text_row(c: CompiledConstraint) -> NDArray[np.uint32]:
    """Bit row (file order) of every token the constraint allows anywhere."""
    row = np.bitwise_or.reduce(c.rows, axis=0)
    listed = np.zeros(len(row) * 32, bool)
    listed[c.arc_token] = True
    return row | np.packbits(listed, bitorder="little").view("<u4")


def stop_table(constraints: Sequence[CompiledConstraint]) -> NDArray[np.int32]:
    """End-of-text ids of every constraint, int32[C, E], padded with -1."""
    stops = np.full((len(constraints), bucket(max(len(c.stop_ids) for c in constraints), 1)), -1, np.int32)
    for i, c in enumerate(constraints):
        stops[i, : len(c.stop_ids)] = c.stop_ids
    return stops


def stored_once(constraints: list[CompiledConstraint]) -> tuple[list[CompiledConstraint], NDArray[np.intp]]:
    """Constraints without those that differ from an earlier one in their start only, and which of these each one is.

    A constraint that is given twice, or that `fsa_compile.heal_batch` let begin at several places, takes room once.
    """
    numbers: dict[tuple[int, ...], int] = {}
    kept: list[CompiledConstraint] = []
    for c in constraints:
        key = (id(c.rows), id(c.arc_token), id(c.group_next), id(c.accept), c.initial_push)
        if key not in numbers:
            numbers[key] = len(kept)
            kept.append(c)
    which = [numbers[id(c.rows), id(c.arc_token), id(c.group_next), id(c.accept), c.initial_push] for c in constraints]
    return kept, np.array(which, np.intp)


def with_own_starts(
    table: NDArray[np.int32],
    constraints: Sequence[CompiledConstraint],
    kept: Sequence[CompiledConstraint],
    stored: NDArray[np.intp],
) -> NDArray[np.int32]:
    """The records of all constraints, from those of the ones they are stored as."""
    for record, c, at in zip(table, constraints, stored.tolist()):
        if c is not kept[at]:
            record[START] += c.start - kept[at].start
            record[SHORTEST], record[SHALLOWEST] = c.shortest_completion, c.shortest_depth
            record[[PROMPT_LAST, FIRST_STATE]] = _canonical_start(c)
    return table


def placeholder(vocab_size: int, fingerprint: str, stop_ids: tuple[int, ...]) -> CompiledConstraint:
    """One node that nothing leads from: stands for a set of items until `with_items` puts in the rest."""
    none, one = np.zeros(3, np.int32), np.zeros(0, np.int32)
    return CompiledConstraint(
        vocab_size=vocab_size,
        fingerprint=fingerprint,
        stop_ids=stop_ids,
        source="nothing",
        start=1,
        accept=np.zeros(2, bool),
        distance=np.array([UNREACHABLE, 0], np.int32),
        rows=np.zeros((1, (vocab_size + 31) // 32), np.uint32),
        group_offset=none,
        group_row=one,
        group_next=one,
        arc_offset=none,
        arc_token=one,
        arc_effect=one,
        level_offset=none,
        level_cost=one,
        level_row=one,
    )


def with_items(parts: Parts, catalogues: Sequence[CompiledItems], which: list[int], items: PackedItems) -> Parts:
    """Adds the mask rows of sets of items, and where the sets begin.

    Args:
      catalogues: the sets; which: their places among all constraints; items: made of them.
    """
    base, row = bucket(len(parts.nodes), 64), len(parts.rows)
    level = np.zeros((len(items.rows), 4), np.int32)
    level[:, LEVEL_COST], level[:, LEVEL_ROW] = items.level_cost, row + np.arange(len(level))
    items.arrays["levels"][:, 0] += len(parts.levels)
    texts = list[NDArray[np.uint32]]()
    constraints = parts.constraints.copy()
    for i, c, root in zip(which, catalogues, items.roots):
        used = np.unique(c.token[1:]).astype(np.int64)
        text = np.zeros(parts.rows.shape[1], np.uint32)
        np.bitwise_or.at(text, used >> 5, np.uint32(1) << (used & 31).astype(np.uint32))
        constraints[i, [START, TEXT_ROW, SHORTEST]] = base + root, row + len(level) + len(texts), c.shortest_completion
        texts.append(text)
    return dataclasses.replace(
        parts,
        levels=np.concatenate([parts.levels, level]),
        rows=np.concatenate([parts.rows, items.rows, texts]),
        constraints=constraints,
    )


def static_sizes(constraints: Sequence[CompiledConstraint]) -> dict[str, Any]:
    """The sizes that are part of the compiled program, in buckets."""
    groups = levels = arcs = candidates = 0
    repeats = pops = longest = stacks = 1
    for c in constraints:
        of_groups, of_arcs, of_levels = (np.diff(x).astype(np.int64) for x in (c.group_offset, c.arc_offset, c.level_offset))
        groups = max(groups, longest_chain(c, of_groups) * c.stacks)
        listed = np.where(of_levels > 0, 0, of_arcs)
        if c.canonical.partners:  # both nodes of a place are read
            listed = np.append(0, np.repeat(listed[1::2] + listed[2::2], 2))
        candidates = max(candidates, longest_chain(c, listed) * c.stacks)
        bursts = np.where(of_levels > 0, 0, of_arcs)
        if c.has_sets:  # twins are sources, too
            bursts = bursts + np.where(c.twin > 0, bursts[c.twin], 0)
        candidates = max(candidates, longest_chain(c, bursts) * c.stacks)
        levels, arcs = max(levels, int(of_levels.max())), max(arcs, int(of_arcs.max()))
        stacks = max(stacks, c.stacks)
        if (c.stacks > 1 or c.has_sets) and len(c.arc_token):
            owner = np.repeat(np.arange(c.num_nodes), of_arcs)
            repeats = max(repeats, int(np.unique(owner * c.vocab_size + c.arc_token, return_counts=True)[1].max()))
    pops, longest = max(c.max_pops for c in constraints), max(c.max_push for c in constraints)
    depth = 2
    while SEARCH_FANOUT**depth < arcs:
        depth += 1
    return {
        "max_groups": bucket(groups, 4),
        "max_levels": bucket(levels, 4),
        "max_candidates": -(-max(candidates, 1) // ARC_BURST) * ARC_BURST if arcs else 0,
        "search_depth": depth if arcs else 0,
        "max_repeats": repeats,
        "max_pops": pops + pops % 2,
        "max_push": 0 if all(c.is_regular for c in constraints) else bucket(longest, 1),
        "stacks": stacks,
    }


def bucket(size: int, least: int) -> int:
    """The smallest power of two that is at least `size` and `least`."""
    return 1 << (max(size, least) - 1).bit_length()


def padded(table: NDArray[Any], size: int, fill: float = 0) -> NDArray[Any]:
    """`table` with entries appended up to `size`."""
    out = np.full((size, *table.shape[1:]), fill, table.dtype)
    out[: len(table)] = table
    return out
