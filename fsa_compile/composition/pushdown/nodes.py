"""The nodes of the artifact of a machine with a stack: those that matter, a number for every class of their registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.integers import exampled, firsts, numbered
from fsa_compile.arrays.ranges import ranges, spread
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.arcs import Children, StackArcs
from fsa_compile.composition.pushdown.costs import Costs
from fsa_compile.composition.pushdown.counter_classes import Registers
from fsa_compile.composition.pushdown.token_groups import Groups
from fsa_compile.errors import ConstraintError
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


class Nodes:
    """The nodes and token sets that matter, renumbered.

    Axes: N nodes of the walk, N' of the artifact, one for every class of the register of a node of the walk that is kept.

    Attributes:
      classes: of registers.
      groups: integers [G'], the token sets kept; of 32 bits where they are all.
      number: int64[N], number of each node's first class in the artifact, 0 when dropped.
      symbolic, place, kind, shape, value: int64[N'], node of the walk, place among its classes, kind of its frame, shape of its
        classes, and the register that stands for the class.
      accept: bool[N'], the text may end here, if the register allows it.
      delta_row: int64[N'], into `children`.
      children: node after popping an effective symbol, by row of delta; row 0 is dead.
      symbol, symbol_place: int64[P'], symbol and class of every effective symbol.
      symbol_number: int64[P], first effective symbol of each symbol.
      pop_row: int64[*], into `children`, of the cases of `StackArcs.pops`; -1 where the node is dropped.
      max_pops: longest path in delta.
    """

    def __init__(
        self, machine: ByteMachine, registers: Registers, arcs: StackArcs, groups: Groups, costs: Costs, *, complete: bool
    ) -> None:
        self.classes = classes = arcs.classes
        self.delta_row = np.zeros(0, np.int64)
        size = classes.size[arcs.shape]
        self._size = size
        of_row = np.concatenate((np.repeat(np.arange(len(size)), size), arcs.pops.node))
        delta_row = np.concatenate((arcs.delta_row, arcs.pops.row))
        useful: Any = costs.effect_cost < UNREACHABLE
        useful = np.True_ if useful.all() else useful.take(costs.effect)
        alive = self._alive(machine, arcs, groups, costs, useful, of_row, delta_row)
        delta = arcs.delta.among(alive[arcs.delta.node])
        keep = alive if complete else alive & _reached(machine, groups, useful, delta, of_row, delta_row, len(alive))
        keep[0] = True
        self.number = np.where(keep, np.where(keep, size, 0).cumsum() - size, 0)
        whole = useful is np.True_ and keep[groups.first[1:] > groups.first[:-1]].all()
        every = np.arange(len(groups.node), dtype=groups.node.dtype)
        self.groups = every if whole else (useful & keep.take(groups.node)).nonzero()[0]
        kept = keep.nonzero()[0]
        self.symbolic = kept.repeat(size[kept])
        self.place = np.arange(len(self.symbolic)) - self.number[self.symbolic]
        self.kind, self.shape = arcs.kind[self.symbolic], arcs.shape[self.symbolic]
        self.value = classes.value[classes.first[self.shape] + self.place]
        self.accept = (arcs.accept & keep)[self.symbolic]
        self.accept[0] = False
        self._name_symbols(machine, registers)
        delta = delta.among(keep[delta.node])
        self._effective_delta(delta._replace(node=self.number[delta.node]), delta_row[keep[of_row]])
        kept_pops = keep[arcs.pops.node]
        self.pop_row = np.full(len(kept_pops), -1)
        self.pop_row[kept_pops] = self.delta_row[len(self.kind) :]
        self.max_pops = self._longest_path(np.concatenate((np.arange(len(self.kind)), self.number[arcs.pops.node[kept_pops]])))
        self.delta_row = self.delta_row[: len(self.kind)]

    def sloped(self, kind: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Whether classes are those of the registers far below the lower bound: bool[n]."""
        return (place == 0) & (self.classes.ladder[kind, 0] > 0)

    @staticmethod
    def _alive(
        machine: ByteMachine, arcs: StackArcs, groups: Groups, costs: Costs, useful: np.ndarray, of_row: np.ndarray,
        delta_row: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Nodes that have tokens, accept, or have such a child, and whose frames can be finished."""
        row, child = arcs.delta.row, arcs.delta.node
        alive = arcs.accept.copy()
        some = (groups.first[1:] > groups.first[:-1]).nonzero()[0]
        if len(some):
            alive[some] |= useful is np.True_ or np.logical_or.reduceat(useful, groups.first[some])
        while True:
            full = np.zeros(arcs.delta.num_rows, bool)
            full[row[alive[child]]] = True
            more = np.zeros(len(alive), bool)
            more[of_row[full[delta_row]]] = True
            if not (more & ~alive).any():
                break
            alive |= more
        alive[: machine.num_controls] &= costs.distance < UNREACHABLE
        alive[0] = False
        return alive

    def _name_symbols(self, machine: ByteMachine, registers: Registers) -> None:
        size = self.classes.size[registers.of_symbol]
        self.symbol_number = size.cumsum() - size
        self.symbol = np.arange(machine.num_symbols).repeat(size)
        self.symbol_place = np.arange(len(self.symbol)) - self.symbol_number[self.symbol]

    def _effective_delta(self, delta: Children, rows: np.ndarray) -> None:
        begin = firsts(delta.row, delta.num_rows)
        content = delta.symbol << 32 | delta.node
        which, rows = numbered(rows)
        which = np.append(0, which)  # row 0 is dead
        seen: dict[bytes, int] = {}
        bounds = zip(begin[which].tolist(), begin[which + 1].tolist())
        number = np.array([seen.setdefault(content[low:high].tobytes(), len(seen)) for low, high in bounds], np.int64)
        self.delta_row = number[1 + rows]
        example = which[exampled(number)[1]]
        row, at = ranges(begin[example], begin[example + 1])
        symbol, node = delta.symbol[at], delta.node[at]
        if self.symbol_place.any():
            entry, symbol = spread(self.symbol_number[symbol], np.bincount(self.symbol)[symbol])
            row, node = row[entry], node[entry] + self.symbol_place[symbol]
        self.children = Children(row, symbol, node, len(example), len(self.symbol))

    def _longest_path(self, of_row: np.ndarray) -> int:
        """Most cells that one token pops; `of_row` says which node each row of delta belongs to."""
        row, child, length = self.children.row, self.children.node, 0
        while len(row):  # the edges that paths of so many more begin with
            rows, longer = np.zeros(self.children.num_rows, bool), np.zeros(len(self.symbolic), bool)
            rows[row] = True
            longer[of_row[rows[self.delta_row]]] = True
            some = longer.take(child).nonzero()[0]
            if len(some) == len(row):
                raise ConstraintError(
                    "one token could close any number of nested rules, whose ends are empty",
                    fix="Write the rule as a repetition, or let it end in a character of its own.",
                )
            row, child, length = row[some], child[some], length + 1
        return length


def _reached(
    machine: ByteMachine, groups: Groups, useful: np.ndarray, delta: Children, of_row: np.ndarray, delta_row: np.ndarray,
    size: int,
) -> np.ndarray:  # fmt: skip
    """Nodes that token sequences reach."""
    seen = np.zeros(size, bool)
    seen[machine.start] = True
    while True:
        before = int(seen.sum())
        seen[groups.effects.target[groups.effect[useful & seen[groups.node]]]] = True
        rows = np.zeros(delta.num_rows, bool)
        rows[delta_row[seen[of_row]]] = True
        seen[delta.node[rows[delta.row]]] = True
        if int(seen.sum()) == before:
            return seen


_SEVERAL = 10_000
"""Tokens from which on a table of numbers is kept for other constraints."""
_KEPT = 16
"""Tables that are kept for a vocabulary, of three bytes for each token, and 16 for each one that has a number."""
_SPARSE = 8
"""Below one token in this many, tokens are looked up one by one; above, all tokens at once."""
_MEMO, _STATES = "increments", "increments together"
_KEPT_STATES = 4
"""Groups of tables that are kept for a vocabulary, of three bytes for each token and table."""


class _Numbers(NamedTuple):
    """Numbers of some tokens.

    Attributes:
      token, value: int64[*] and uint16[*].
      table, known: uint16[V] and bool[V], the same by token, and which tokens they are.
    """

    token: np.ndarray
    value: np.ndarray
    table: np.ndarray
    known: np.ndarray


class _State(NamedTuple):
    """Tables after some contents; all arrays stay as they are.

    Attributes:
      tables, known: as in `Increments`.
      number: of the contents.
    """

    tables: tuple[np.ndarray, ...]
    known: tuple[np.ndarray, ...]
    number: dict[bytes, int]


class Increments:
    """Tables of numbers by token, as few as can hold what is asked for.

    What string bodies add to a register is the same in most schemas: tables after the same contents in the same order are kept.
    """

    def __init__(self, tables: VocabularyTables) -> None:
        self._size = tables.vocab_size
        self._tables: list[np.ndarray] = []
        self._known: list[np.ndarray] = []
        self._number: dict[bytes, int] = {}
        self._contents: tuple[bytes, ...] = ()
        self._frozen = 0
        kept = tables.memo.get(_MEMO)
        self._kept: dict[bytes, _Numbers] = remember(tables, _MEMO, {}) if kept is None else kept
        states = tables.memo.get(_STATES)
        self._states: dict[tuple[bytes, ...], _State] = remember(tables, _STATES, {}) if states is None else states

    def numbers(
        self, keys: list[bytes], content: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    ) -> np.ndarray:
        """Numbers of tables that hold some values by token, int64[n].

        Args:
          keys: tell contents apart.
          content: (place among those asked for, token, value) of the contents at the given places in `keys`, by place; asked
            only for what is not known.
        """
        self._contents += tuple(key for key in dict.fromkeys(keys) if key not in self._number)
        state = self._states.get(self._contents)
        if state is None:
            self._add(keys, content)
            self._keep()
        else:
            self._tables, self._known, self._number = list(state.tables), list(state.known), dict(state.number)
            self._frozen = len(self._tables)
        return np.array([self._number[key] for key in keys], np.int64)

    def _keep(self) -> None:
        """Keeps the tables if they are large."""
        if self._contents and len(self._tables) <= _KEPT and sum(map(np.count_nonzero, self._known)) >= _SEVERAL:
            if len(self._states) >= _KEPT_STATES:
                self._states.clear()
            self._states[self._contents] = _State(tuple(self._tables), tuple(self._known), dict(self._number))
            self._frozen = len(self._tables)

    def _add(
        self, keys: list[bytes], content: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    ) -> None:
        kept = [self._kept.get(key) for key in keys]
        new = [i for i, (key, known) in enumerate(zip(keys, kept)) if known is None and key not in self._number]
        if new:
            which, token, value = content(np.array(new))
            value = value.astype(np.uint16)
            first = which.searchsorted(np.arange(len(new) + 1)).tolist()
            listed = {i: (token[lo:hi], value[lo:hi]) for i, lo, hi in zip(new, first, first[1:])}
        for i, key in enumerate(keys):
            if key not in self._number:
                known = kept[i]
                self._number[key] = self._of_tokens(key, *listed[i]) if known is None else self._merged(known)
    def _of_tokens(self, key: bytes, token: np.ndarray, value: np.ndarray) -> int:
        if len(token) >= _SEVERAL:
            table, known = np.zeros(self._size, np.uint16), np.zeros(self._size, bool)
            table[token] = value
            known[token] = True
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[key] = _Numbers(token, value, table, known)
            return self._merged(self._kept[key])
        number = self._first(self._fits(token, value))
        self._fill(number, token, value)
        return number

    def _merged(self, more: _Numbers) -> int:
        if len(more.token) * _SPARSE < self._size:
            number = self._first(self._fits(more.token, more.value))
            self._fill(number, more.token, more.value)
            return number
        pairs = zip(self._tables, self._known)
        number = self._first(not (more.known & known & (table != more.table)).any() for table, known in pairs)
        self._thaw(number)
        table = self._tables[number]
        np.maximum(table, more.table, out=table)  # where both say something they agree, else one is 0
        self._known[number] |= more.known
        return number

    def _fits(self, token: np.ndarray, value: np.ndarray) -> Iterator[bool]:
        pairs = zip(self._tables, self._known)
        return (not (known.take(token) & (table.take(token) != value)).any() for table, known in pairs)

    def _thaw(self, number: int) -> None:
        """Copies tables that are kept before one of them is written to."""
        if number < self._frozen:
            self._tables[: self._frozen] = [table.copy() for table in self._tables[: self._frozen]]
            self._known[: self._frozen] = [known.copy() for known in self._known[: self._frozen]]
            self._frozen = 0

    def _fill(self, number: int, token: np.ndarray, value: np.ndarray) -> None:
        self._thaw(number)
        self._tables[number][token] = value
        self._known[number][token] = True

    def _first(self, fits: Iterator[bool]) -> int:
        number = next((i for i, fit in enumerate(fits) if fit), len(self._tables))
        if number == len(self._tables):
            self._tables.append(np.zeros(self._size, np.uint16))
            self._known.append(np.zeros(self._size, bool))
        return number

    def stacked(self) -> np.ndarray:
        """uint16[I, V]."""
        return np.stack(self._tables) if self._tables else np.zeros((0, self._size), np.uint16)
