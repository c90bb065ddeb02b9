"""Makes the artifact of a machine with one counter and no stack: a node for every control and class of its register.

A token that begins k iterations is allowed while the register is at most high - k. So the registers of a control fall into one
class far from the upper bound, and one for each of the last values; near the lower bound each value is a class too, because the
number of tokens to the end differs. A token set at a class is the union of *cells*, the tokens of a control with the same
target and k: everything else is unions of cells, by k for the upper bound, by cost for the token budget.

The number of tokens to the end, from control c at register n, is bounded by E(c) + rest(n): E(c) finishes the iteration without
beginning another, and rest(n) begins what is missing up to the lower bound. For every configuration some token decreases the
sum by one, so a text that fits a budget never gets stuck:

* rest(n) = 0 from the lower bound on;
* in a window below it, the least over the tokens that begin k iterations from a boundary, of 1 + E(target) + rest(n + k);
* below the window, the largest rest in it + w * ceil((first - n) / k), where `first` is its first register and one of the
  cheapest ways to begin k iterations takes w tokens. This is the slope of the artifact.

Every byte must be a token: then every control can go on whatever its register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.ranges import segment_starts
from fsa_compile.artifact.arrays import ARC_BURST, UNREACHABLE
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.effects import arc_effects
from fsa_compile.automata.pushdown import END_HERE, ByteMachine
from fsa_compile.composition.counter.counter_walk import CounterArcs
from fsa_compile.composition.regular.regular_artifact import distances, unspellable
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.counting.counted_loops import UNLIMITED
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_WINDOW = 64
"""Registers below the lower bound that are told apart when there are more."""
_STRIDE = 16
"""Most iterations that one step of the slope begins."""
_ARC_BYTES, _GROUP_BYTES = 28, 20
_ADDS_BITS = 16
_DOING = "assembling the artifact"


class _Rest(NamedTuple):
    """Bound of the tokens that the iterations up to the lower bound take.

    Attributes:
      low: the lower bound.
      first: first register of the window.
      window: int64[low - first + 1], rest(n) for n = first..low.
      largest: largest rest in the window.
      stride, tokens: k and w of the slope below the window.
    """

    low: int
    first: int
    window: np.ndarray
    largest: int
    stride: int
    tokens: int

    def at(self, register: np.ndarray) -> np.ndarray:
        """rest(n) for registers n, int64."""
        n = np.minimum(register, self.low)
        below = self.largest + self.tokens * -(-np.maximum(self.first - n, 0) // self.stride)
        return np.where(n < self.first, below, self.window[np.maximum(n - self.first, 0)])


class _Ladder(NamedTuple):
    """The classes of a control's register; see `CompiledConstraint`.

    Attributes:
      rungs: (a0, b0, a1, b1).
      example: int64[n], one register of each class; the least but for the class far from both bounds.
      sloped: whether class 0 holds registers below the window, for which costs are relative to the slope.
    """

    rungs: tuple[int, int, int, int]
    example: np.ndarray
    sloped: bool


def assemble_counter(
    machine: ByteMachine,
    arcs: CounterArcs,
    tables: VocabularyTables,
    *,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
) -> CompiledConstraint:
    """The artifact of a walked machine.

    Raises:
      UnspellableError: no token sequence spells an accepted text.
      LimitError: too many nodes, rows or bytes, or out of time.
    """
    return _Assembly(machine, arcs, tables, limits, deadline).constraint(source, extra)


def _grouped(arcs: CounterArcs, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order of the arcs by (control, target, k), where groups begin, and the key of each group, k in its lowest bits."""
    key = (arcs.control * size + arcs.target) << _ADDS_BITS | arcs.adds
    most = int(arcs.adds.max(initial=0)) + 1
    if size * size * most < 1 << 16:  # 16 bits sort by radix
        order = np.argsort(((arcs.control * size + arcs.target) * most + arcs.adds).astype(np.uint16), kind="stable")
    else:
        order = np.argsort(key, kind="stable")
    key = key[order]
    begin = segment_starts(key)
    return order, begin, key[begin]


class _Cells(NamedTuple):
    """Tokens of one control by (target, k), sorted by target, then k.

    Attributes:
      target, adds, size: int64[n]; `size` is the number of tokens.
      begin: int64[n], where the tokens of a cell begin in `token`.
      token: int64[*], of all controls.
    """

    target: np.ndarray
    adds: np.ndarray
    size: np.ndarray
    begin: np.ndarray
    token: np.ndarray

    def tokens(self, chosen: np.ndarray) -> np.ndarray:
        """The tokens of some cells, one cell after the other."""
        count = self.size[chosen]
        return self.token[np.arange(int(count.sum())) + np.repeat(self.begin[chosen] - (np.cumsum(count) - count), count)]


class _Assembly:
    def __init__(
        self, machine: ByteMachine, arcs: CounterArcs, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline
    ) -> None:
        self._tables, self._limits, self._deadline = tables, limits, deadline
        self._start = machine.start
        self._low, self._high = (int(b) for b in machine.bounds[machine.start])
        self._ends = machine.end == END_HERE
        self._pool = RowPool(tables, limits)
        self._increments: dict[bytes, int] = {}
        size = len(self._ends)
        order, begin, key = _grouped(arcs, size)
        control, target = (key >> _ADDS_BITS) // size, (key >> _ADDS_BITS) % size
        adds, token = key & (1 << _ADDS_BITS) - 1, arcs.token[order]
        inside = adds == 0
        self._finish = distances(control[inside], target[inside], self._ends)
        count = np.append(begin[1:], len(token)) - begin
        useful = self._finish[target] < UNREACHABLE
        control, target, adds, count, begin = (column[useful] for column in (control, target, adds, count, begin))
        self._offset = np.searchsorted(control, np.arange(size + 1))
        self._cells = {}
        for c in self._reached(target):
            mine = slice(self._offset[c], self._offset[c + 1])
            self._cells[c] = _Cells(target[mine], adds[mine], count[mine], begin[mine], token)

    def _reached(self, target: np.ndarray) -> list[int]:
        """Controls that tokens reach from the start."""
        if self._finish[self._start] >= UNREACHABLE:
            return []
        todo, seen = [self._start], {self._start}
        for c in todo:
            for t in set(target[self._offset[c] : self._offset[c + 1]].tolist()):
                if t not in seen:
                    seen.add(t)
                    todo.append(t)
        return todo

    def _rest(self) -> _Rest:
        """From the tokens of the start, which stands at a boundary."""
        low, high = self._low, self._high
        cells = self._cells[self._start]
        best: dict[int, int] = {}
        for k, tokens in zip(cells.adds.tolist(), (1 + self._finish[cells.target]).tolist()):
            best[k] = min(tokens, best.get(k, tokens))
        stride = max((k for k in best if k <= _STRIDE), key=lambda k: (k / best[k], k), default=1)
        first = 0 if low <= _WINDOW else low - _WINDOW
        window = [0] * (low - first + 1)
        for n in range(low - 1, first - 1, -1):
            window[n - first] = min(t + window[min(n + k, low) - first] for k, t in best.items() if n + k <= high)
        return _Rest(low, first, np.array(window), max(window), stride, best.get(stride, 1))

    def _ladder(self, most: int, rest: _Rest) -> _Ladder:
        """Classes of a control whose tokens begin up to `most` iterations."""
        low, high = self._low, self._high
        if high == UNLIMITED:
            most = 0
        sloped = rest.first > 0
        lower = rest.first - sloped  # class 0 ends here
        upper = max(high - most, 0)
        if low <= upper:
            example = np.concatenate([np.arange(lower, low + 1), np.arange(upper + 1, high + 1)])
            return _Ladder((lower, low - lower, upper, high - upper), example, sloped)
        lower = min(lower, upper)
        return _Ladder((lower, high - lower, 0, 0), np.arange(lower, high + 1), sloped)

    def constraint(self, source: str, extra: dict[str, Any]) -> CompiledConstraint:
        if not self._cells or self._finish[self._start] >= UNREACHABLE:
            raise unspellable(source)
        rest = self._rest()
        ladders = {c: self._ladder(int(cells.adds.max(initial=0)), rest) for c, cells in self._cells.items()}
        base = np.zeros(len(self._ends), np.int64)
        size = 1
        for c, ladder in ladders.items():
            base[c] = size
            size += len(ladder.example)
        if size > self._limits.max_states:
            raise LimitError("max_states", self._limits.max_states, _DOING)
        out = _Parts(size)
        for c, ladder in ladders.items():
            self._deadline.check(_DOING)
            self._add_control(out, c, ladder, rest, base)
        return CompiledConstraint(
            vocab_size=self._tables.vocab_size,
            fingerprint=self._tables.fingerprint,
            stop_ids=self._tables.stop_ids,
            source=source,
            start=int(base[self._start]),
            rows=self._pool.stacked(),
            increments=self._increment_tables(),
            extra=extra,
            **out.arrays(),
        )

    def _increment_tables(self) -> np.ndarray:
        rows = [np.frombuffer(row, np.uint16) for row in self._increments]
        return np.stack(rows) if rows else np.zeros((0, self._tables.vocab_size), np.uint16)

    def _add_control(self, out: _Parts, c: int, ladder: _Ladder, rest: _Rest, base: np.ndarray) -> None:
        """Adds the nodes of one control."""
        cells, register = self._cells[c], ladder.example
        first, classes = int(base[c]), len(register)
        below = np.zeros(classes, bool)
        below[0] = ladder.sloped
        own = np.where(below, rest.largest, rest.at(register))
        out.accept[first : first + classes] = self._ends[c] & (register >= self._low)
        out.distance[first : first + classes] = self._finish[c] + own
        out.ladder[first] = ladder.rungs
        if ladder.sloped:
            out.slope[first] = rest.first, rest.stride, rest.tokens
        allowed = cells.adds <= (self._high - register)[:, None]
        after = rest.at(register[:, None] + cells.adds)
        after[below] = rest.largest - rest.tokens * (cells.adds >= rest.stride)
        cost = 1 + self._finish[cells.target] + after
        wide, table = self._wide(cells, allowed)
        narrow = (~wide).nonzero()[0]
        token, cell = cells.tokens(narrow), np.repeat(narrow, cells.size[narrow])
        order = np.argsort(token, kind="stable")
        token, cell = token[order], cell[order]
        node, which = allowed[:, cell].nonzero()
        arc = cell[which]
        out.add("arc", first + node, token[which], base[cells.target[arc]], cells.adds[arc], cost[node, arc])
        masked = allowed[:, wide].any(1) | (np.bincount(node, minlength=classes) > ARC_BURST)
        if not masked.any():
            return  # the arcs are the mask
        rows = _CellRows(self._tables, cells, self._finish)
        number = self._increment(cells) if table else 0
        for target in np.unique(cells.target[wide]).tolist():
            mine = (cells.target == target).nonzero()[0]
            adds = int(cells.adds[mine[0]]) if len(mine) == 1 else -1 - number
            size = allowed[:, mine].sum(1)
            row = self._pool.numbers(np.cumsum(rows.hash[mine]), rows.builder(np.tri(len(mine), dtype=bool), mine))
            holds = size.nonzero()[0]
            out.add("group", first + holds, row[size[holds] - 1], base[target], adds, 0)
        self._add_levels(out, first, masked, register, allowed, cost, rows)

    def _wide(self, cells: _Cells, allowed: np.ndarray) -> tuple[np.ndarray, bool]:
        """Cells stored as rows, bool, all of a target or none, and whether a table of their k is needed.

        Equal rows are shared by the classes, arcs are not; so sets that arcs would repeat for many classes are rows, too.
        """
        wide, table = np.zeros(len(cells.target), bool), False
        if cells.size.sum() <= ARC_BURST:
            return wide, table
        classes, row_bytes = len(allowed), self._tables.num_words * 4
        begin = segment_starts(cells.target)
        count, size = np.add.reduceat(cells.size, begin), np.append(begin[1:], len(cells.target)) - begin
        repeated = np.add.reduceat(allowed.sum(0) * cells.size, begin) * _ARC_BYTES
        for i in np.argsort(-count, kind="stable").tolist():
            more_table = size[i] > 1 and not table
            in_rows = size[i] * row_bytes + classes * _GROUP_BYTES + more_table * self._tables.vocab_size * 2
            if repeated[i] > in_rows or (count[i] > NARROW and not more_table):
                wide[begin[i] : begin[i] + size[i]] = True
                table |= more_table
        return wide, table

    def _increment(self, cells: _Cells) -> int:
        """Number of the table with the k of every token of a control."""
        table = np.zeros(self._tables.vocab_size, np.uint16)
        every = np.arange(len(cells.target))
        table[cells.tokens(every)] = np.repeat(cells.adds, cells.size)
        return self._increments.setdefault(table.tobytes(), len(self._increments))

    def _add_levels(
        self,
        out: _Parts,
        first: int,
        masked: np.ndarray,
        register: np.ndarray,
        allowed: np.ndarray,
        cost: np.ndarray,
        rows: _CellRows,
    ) -> None:
        """Adds the levels of the classes that have mask rows.

        Close to the upper bound only the cheapest tokens are told from the others, which counts all of these as the
        costliest one: that is safe, and every further level would be a row for each of these registers.
        """
        least = np.where(allowed, cost, UNREACHABLE).min(1)
        most = np.where(allowed, cost, 0).max(1)
        coarse = (register > self._low) & masked
        for x in np.unique(cost[masked]).tolist():
            has = masked & (allowed & (cost == x)).any(1) & (~coarse | (least == x) | (most == x))
            node = has.nonzero()[0]
            chosen = allowed[node] & ((cost[node] <= x) | (coarse & (most == x))[node, None])
            hashes = np.where(chosen, rows.hash, np.uint64(0)).sum(1, dtype=np.uint64)
            number = self._pool.numbers(hashes, rows.builder(chosen))
            out.add("level", first + node, x, number)


class _CellRows:
    """Bit rows of unions of a control's cells, built when asked for.

    Most sets are unions of prefixes of *chains*, the cells whose targets are equally many tokens from a boundary, by k.

    Attributes:
      hash: uint64[cells], see `VocabularyTables.row_hash`.
    """

    def __init__(self, tables: VocabularyTables, cells: _Cells, finish: np.ndarray) -> None:
        self._tables, self._cells = tables, cells
        count = cells.size
        token = cells.tokens(np.arange(len(count)))
        self.hash = np.add.reduceat(tables.token_hash[token], np.cumsum(count) - count)
        chain = finish[cells.target]
        self._order = np.lexsort((cells.adds, chain))
        self._begin = segment_starts(chain[self._order])
        self._prefixes: list[list[np.ndarray]] = [[] for _ in self._begin]

    def _cell(self, place: int) -> np.ndarray:
        cell = self._order[place]
        begin = self._cells.begin[cell]
        return self._tables.pack(self._cells.token[begin : begin + self._cells.size[cell]])

    def _prefix(self, chain: int, size: int) -> np.ndarray:
        """Row of the first cells of a chain."""
        rows = self._prefixes[chain]
        while len(rows) < size:
            row = self._cell(self._begin[chain] + len(rows))
            rows.append(row | rows[-1] if rows else row)
        return rows[size - 1]

    def builder(self, chosen: np.ndarray, among: np.ndarray | None = None) -> Callable[[int], np.ndarray]:
        """Makes rows of sets.

        Args:
          chosen: bool[n, cells], the sets.
          among: the cells that the columns stand for, by default all.

        Returns:
          A function from a number of a set to its row.
        """
        if among is not None:
            every = np.zeros((len(chosen), len(self._order)), bool)
            every[:, among] = chosen
            chosen = every
        chosen = chosen[:, self._order]
        size = np.add.reduceat(chosen, self._begin, axis=1, dtype=np.int64)
        gap = np.zeros_like(chosen)
        gap[:, 1:] = chosen[:, 1:] & ~chosen[:, :-1]
        gap[:, self._begin] = ~chosen[:, self._begin]
        scattered = np.logical_or.reduceat(gap, self._begin, axis=1) & (size > 0)

        def build(i: int) -> np.ndarray:
            out = None
            for chain, n in enumerate(size[i].tolist()):
                if not n:
                    continue
                if scattered[i, chain]:
                    lo = self._begin[chain]
                    hi = self._begin[chain + 1] if chain + 1 < len(self._begin) else len(self._order)
                    rows = [self._cell(place) for place in range(lo, hi) if chosen[i, place]]
                    row = rows[0] if n == 1 else np.bitwise_or.reduce(rows)
                else:
                    row = self._prefix(chain, n)
                out = row if out is None else out | row
            assert out is not None
            return out

        return build


class _Parts:
    """Collects the arrays of the artifact, node by node."""

    def __init__(self, size: int) -> None:
        self.accept = np.zeros(size, bool)
        self.distance = np.full(size, UNREACHABLE, np.int32)
        self.ladder = np.zeros((size, 4), np.int32)
        self.slope = np.tile(np.array([0, 1, 0], np.int32), (size, 1))
        self._columns: dict[str, list[tuple[np.ndarray, ...]]] = {"arc": [], "group": [], "level": []}

    def add(self, kind: str, node: np.ndarray, *columns: Any) -> None:
        """Appends entries of some nodes; scalars stand for columns of one value."""
        self._columns[kind].append(
            (node, *[column if isinstance(column, np.ndarray) else np.full(len(node), column) for column in columns])
        )

    def arrays(self) -> dict[str, Any]:
        """The fields of `CompiledConstraint` that are collected here."""
        out: dict[str, Any] = {
            "accept": self.accept,
            "distance": self.distance,
            "ladder": self.ladder,
            "level_slope": self.slope,
        }
        for kind, names in (
            ("arc", ("arc_token", "arc_next", "arc_add", "arc_cost")),
            ("group", ("group_row", "group_next", "group_add", "")),
            ("level", ("level_cost", "level_row")),
        ):
            parts = self._columns[kind] or [tuple(np.zeros(0, np.int64) for _ in range(len(names) + 1))]
            node, *columns = (np.concatenate(column) for column in zip(*parts))
            order = np.argsort(node, kind="stable")
            out[f"{kind}_offset"] = np.searchsorted(node[order], np.arange(len(self.accept) + 1)).astype(np.int32)
            for name, column in zip(names, columns):
                if name:
                    out[name] = column[order].astype(np.int32)
        target, add, cost = (out.pop(name) for name in ("arc_next", "arc_add", "arc_cost"))
        out["effects"], out["arc_effect"] = arc_effects(target, 0, add, 0, cost, 0)
        return out
