"""Repacks the stack and counter arrays of constraints for the device: everything a regular constraint has none of.

NumPy only; used by `tables`. Symbols, push strings and per-token tables are numbered through all constraints, so that a
row needs to know nothing but its node and its cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fsa_compile.arrays.ranges import segment_starts
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.artifact.constraint import CompiledConstraint

SYMBOL, PARENT, DEPTH, COST, REGISTER, CONTEXT, CONTENT = range(7)
"""Columns of a stack cell: effective symbol; the cell below; number of cells up to this one; tokens that it and all below
take to finish; register of the suspended frame; its context, 0 for none; and, where several stacks are followed, a hash of it
and all below."""
CELL = 6
"""Columns of a cell where a single stack is followed, and no sets of keys."""
FIRST_KEYS = 6
"""First of the columns of a cell with the suspended frame's set of keys, where constraints have such sets."""
CHILD, CHILD_OFFSET, CHILD_DISTANCE = range(3)
"""Columns of `ConstraintTables.delta`: a node, where its own children begin, and its distance."""
DELTA_OFFSET, NEED, PARALLEL = range(3)
"""Columns of `ConstraintTables.frames`; the last is how many stacks their constraint is followed on, 0 for one."""
LADDER, SLOPE, SYMBOL_COST, SYMBOL_NEED = range(4), range(4, 7), 7, 8
"""Columns of `ConstraintTables.counters` and `ConstraintTables.symbols` (cost and need of the latter only)."""
PUSH, ADD, SET = range(3)
"""Effects of a token set: columns of its record behind the next node, where constraints have stacks."""
ENTRY_SYMBOL, ENTRY_REGISTER, ENTRY_COST, ENTRY_NEED = range(4)
"""Columns of an entry of `ConstraintTables.pushes`; the last is the symbol's need and one more, 0 where there is no entry."""

HASH_SYMBOL, HASH_REGISTER, HASH_PARENT = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
"""Odd multipliers (of the golden ratio, and as in xxHash); the hash of an empty stack is 0."""


@dataclasses.dataclass(frozen=True)
class StackArrays:
    """Unpadded arrays, see `ConstraintTables`; all of length 0 where every constraint is regular."""

    frames: NDArray[np.int32]
    counters: NDArray[np.int32]
    delta: NDArray[np.int32]
    group_effects: NDArray[np.int32]
    arc_effects: NDArray[np.int32]
    pushes: NDArray[np.int32]
    symbols: NDArray[np.int32]
    increments: NDArray[np.uint32]
    initial: NDArray[np.int32]


def pack_stacks(
    constraints: Sequence[CompiledConstraint], max_push: int, several: bool, *, stacked: bool, counted: bool
) -> StackArrays:
    """All stacks and counters one after another.

    Args:
      constraints: in order; their nodes follow two nodes of the tables' own, their groups one group.
      max_push: PM, entries per push string in the result, at least the longest.
      several: whether cells hold a hash of their stack.
      stacked, counted: whether there are tables of stacks, and of counters, even where no constraint has any.
    """
    width = CELL + several
    if not stacked:
        return _no_stacks(max_push, width)
    num_symbols = sum(c.num_symbols for c in constraints)
    own = np.zeros((2, 8), np.int32)  # the dead and the unconstrained node
    own[:, 5] = 1  # slopes divide by it
    frames, counters, symbols = [np.zeros((2, 3), np.int32)], [own], [np.zeros((0, 9), np.int32)]
    delta = [np.zeros((max(num_symbols, 1), 3), np.int32)]  # the segment of nodes without children
    group_effects, arc_effects = [np.zeros((1, 3), np.int32)], [np.zeros((0, 3), np.int32)]
    pushes, initial = [np.zeros((1, max_push, 4), np.int32)], []
    tables: dict[bytes, int] = {}
    nodes, symbol_base, segments, strings = 2, 0, len(delta[0]), 1
    for c in constraints:
        offset = c.delta_offset[1:] + (segments - symbol_base if c.num_symbols else 0)
        frames.append(np.stack([offset, c.need[1:], np.full_like(offset, c.stacks if c.stacks > 1 else 0)], 1).astype(np.int32))
        children = np.asarray(c.delta)
        child = np.stack([children + nodes - 1, np.append(0, offset)[children], c.distance[children]], 1)
        delta.append(np.where(children[:, None] > 0, child, 0).astype(np.int32))
        spare = np.zeros((c.num_nodes - 1, 1), np.int32)
        counters.append(np.concatenate([c.ladder[1:], c.level_slope[1:], spare], 1))
        symbols.append(np.concatenate([c.symbol_ladder, c.symbol_slope, c.symbol_cost[:, None], c.symbol_need[:, None]], 1))
        tokens = np.array([tables.setdefault(row.tobytes(), len(tables)) for row in c.increments], np.int32)
        for kind, effects in (("group", group_effects), ("arc", arc_effects)):
            effects.append(_effects(c, kind, strings - 1, tokens))
        entries = _entries(c, max_push)
        initial.append(_initial_cells(c, entries[c.initial_push], nodes - 1, symbol_base, width))
        entries[..., ENTRY_SYMBOL] += np.where(entries[..., ENTRY_NEED] > 0, symbol_base, 0)
        pushes.append(entries[1:])
        nodes, symbol_base, segments = nodes + c.num_nodes - 1, symbol_base + c.num_symbols, segments + len(c.delta)
        strings += len(c.push_offset) - 2
    symbols.append(np.array([[0, 0, 0, 0, 0, 1, 0, 0, 0]], np.int32))  # of push strings without entries
    rows = [_halves(np.frombuffer(row, np.uint16)) for row in tables]
    return StackArrays(
        frames=np.concatenate(frames),
        counters=np.concatenate(counters) if counted else np.zeros((0, 8), np.int32),
        delta=np.concatenate(delta),
        group_effects=np.concatenate(group_effects),
        arc_effects=np.concatenate(arc_effects),
        pushes=np.concatenate(pushes),
        symbols=np.concatenate(symbols) if counted else np.zeros((0, 9), np.int32),
        increments=np.stack(rows) if rows else np.zeros((0, 1), np.uint32),
        initial=np.stack(initial),
    )


def _halves(numbers: NDArray[np.uint16]) -> NDArray[np.uint32]:
    """Two numbers in a word: a TPU reads one of 16 bits by an operation, and widens it by another."""
    even = np.pad(numbers, (0, len(numbers) % 2)).astype(np.uint32)
    return even[::2] | (even[1::2] << np.uint32(16))


def _no_stacks(max_push: int, width: int) -> StackArrays:
    columns = {"frames": 3, "counters": 8, "delta": 3, "group_effects": 3, "arc_effects": 3, "symbols": 9}
    return StackArrays(
        **{name: np.zeros((0, count), np.int32) for name, count in columns.items()},
        pushes=np.zeros((0, max_push, 4), np.int32),
        increments=np.zeros((0, 1), np.uint32),
        initial=np.zeros((0, 1, width), np.int32),
    )


def longest_chain(constraint: CompiledConstraint, counts: NDArray[np.int64]) -> int:
    """The largest sum of `counts` int64[N] over the sources that a configuration can have."""
    total = counts
    if constraint.num_symbols:
        at, child = constraint.children
        begin = segment_starts(at // constraint.num_symbols)
        most = np.zeros(1 + len(constraint.delta) // constraint.num_symbols, np.int64)  # over the children of each segment
        offset = constraint.pop_offset.T if constraint.has_sets else constraint.delta_offset[None]
        segments = offset // constraint.num_symbols
        for _ in range(constraint.max_pops):
            most[at[begin] // constraint.num_symbols] = np.maximum.reduceat(total[child], begin)
            total = counts + most[segments].max(0)
    return int(total.max())


def has_counters(c: CompiledConstraint) -> bool:
    """Whether a node or a cost depends on a register."""
    return bool(c.ladder.any() or c.symbol_ladder.any() or c.level_slope[:, 2].any() or c.symbol_slope[:, 2].any())


def _effects(c: CompiledConstraint, kind: str, string_base: int, tables: NDArray[np.int32]) -> NDArray[np.int32]:
    of_arcs = kind == "arc"
    push, add, set_to = c.effects[:, 1:4].T if of_arcs else (c.group_push, c.group_add, c.group_set)
    columns = [np.where(push > 0, push + string_base, 0)]
    for value in (add, set_to):
        moved = value if not len(tables) else np.where(value < 0, -1 - tables[np.maximum(-1 - value, 0)], value)
        columns.append(moved)
    out = np.stack(columns, 1).astype(np.int32)
    return out.take(np.asarray(c.arc_effect), 0) if of_arcs else out


def _entries(c: CompiledConstraint, width: int) -> NDArray[np.int32]:
    """int32[S, width, 4], effective symbols, registers and costs as if every register were the string's own.

    The first entry of a string keeps its base symbol, for which the device computes the rest where there are counters.
    """
    size = np.diff(c.push_offset)
    out = np.zeros((len(size), width, 4), np.int32)
    if not len(c.push_symbol):
        return out
    string, place = np.repeat(np.arange(len(size)), size), np.arange(len(c.push_symbol)) - np.repeat(c.push_offset[:-1], size)
    register = np.where((place == 0) & (string != c.initial_push), 0, c.push_register)
    a0, b0, a1, b1 = c.symbol_ladder[c.push_symbol].T
    symbol = c.push_symbol + np.clip(register - a0, 0, b0) + np.clip(register - a1, 0, b1)
    a, k, w = c.symbol_slope[symbol].T
    cost = c.symbol_cost[symbol] + w * -(-np.maximum(a - register, 0) // k)
    base = np.where((place == 0) & (string != c.initial_push), c.push_symbol, symbol)
    out[string, place] = np.stack([base, register, cost, c.symbol_need[symbol] + 1], 1)
    return out


def _initial_cells(
    c: CompiledConstraint, entries: NDArray[np.int32], node_base: int, symbol_base: int, width: int
) -> NDArray[np.int32]:
    """int32[PM + 1, width]: the cell below every stack, then the cells of the initial stack."""
    cells = np.zeros((len(entries) + 1, width), np.int32)
    cells[:, CONTEXT] = c.context + node_base if c.context else 0
    cost, content, context = 0, 0, c.context
    for i in range(int((entries[:, ENTRY_NEED] > 0).sum())):
        symbol, register = int(entries[i, ENTRY_SYMBOL]), int(entries[i, ENTRY_REGISTER])
        context = int(c.delta[c.delta_offset[context] + symbol]) if context else 0
        cost = min(cost + int(entries[i, ENTRY_COST]) - (int(c.distance[context]) if context else 0), int(UNREACHABLE))
        symbol += symbol_base
        content = (content * HASH_PARENT + symbol * HASH_SYMBOL + register * HASH_REGISTER + 1) & 0xFFFFFFFF
        cells[i + 1, :CELL] = symbol, i, i + 1, cost, register, context + node_base if context else 0
        if width > CELL:
            cells[i + 1, CONTENT] = np.array(content, np.uint32).view(np.int32)
    return cells
