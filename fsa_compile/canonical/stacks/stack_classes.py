"""`StackClasses`: what a constraint's nodes know of the stack below, as the class of all its cells.

What may be completed in canonical tokens often depends on what lies on the stack: whether `]` may stand alone depends on how many
more are to come before the text may go on with anything else. Classes are states of an automaton that reads the stack from the
bottom. They begin as two, the empty stack and all others, and are split where that decides something (`stack_distances`); stacks
that nothing tells apart stay together, however deep they are.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.stacks.stack_edges import StackEdges, symbols
from fsa_compile.limits import Deadline

EMPTY = 0
"""Class of the empty stack."""
Cell: TypeAlias = tuple[int, int]
"""A symbol of the constraint, and the class of the stack below it."""
_DOING = "telling the stacks of a canonical constraint apart"


class StackClasses:
    """Classes of stacks.

    Args:
      alike: of each symbol, what those on top of stacks of one class have in common at first.

    Attributes:
      count: of the classes.
    """

    def __init__(self, alike: Sequence[Hashable]) -> None:
        numbers: dict[Hashable, int] = {}
        self._first = [numbers.setdefault(what, len(numbers) + 1) for what in alike]
        self.count = len(numbers) + 1
        self._of: dict[Cell, int] = {}
        self._tops: list[Hashable] = list(range(self.count))
        """Of classes, what they know of their topmost cells, whatever lies below these."""

    def of(self, cell: Cell) -> int:
        """The class of a stack with a cell on top."""
        return self._of.setdefault(cell, self._first[cell[0]])

    def split_further(self, cells: Sequence[Cell], chosen: set[int]) -> bool:
        """Splits some classes, whatever they differ in, else those of the stacks below; whether there was anything to split."""
        while chosen:
            one_by_one = [cell if self.of(cell) in chosen else None for cell in cells]
            if self._split_by_tops(cells, chosen) or self.split(cells, one_by_one):
                return True
            below = chosen | {cell[1] for cell in cells if self.of(cell) in chosen}
            if below == chosen:
                break
            chosen = below
        return False

    def _split_by_tops(self, cells: Sequence[Cell], chosen: set[int]) -> bool:
        """Splits some classes by one more of the topmost cells."""
        before = list(self._tops)
        if not self.split(cells, [before[cell[1]] if self.of(cell) in chosen else None for cell in cells]):
            return False
        for cell in cells:
            own = self.of(cell)
            if own in chosen or own >= len(before):
                self._tops[own] = (self._first[cell[0]], before[cell[1]])
        return True

    def split(self, cells: Sequence[Cell], apart: Sequence[Hashable]) -> bool:
        """Splits classes, so that in each the cells of one class agree in `apart`; whether there was anything to split."""
        number: dict[tuple[int, Hashable], int] = {}
        before, parent = self.count, dict[int, int]()
        found: dict[Cell, int] = {}
        for cell, what in zip(cells, apart):
            own = self.of(cell)
            if (own, what) not in number:
                first = all(other != own for other, _ in number)
                number[own, what] = own if first else self.count
                if not first:
                    parent[self.count] = own
                    self._tops.append(self._tops[own])
                    self.count += 1
            found[cell] = number[own, what]
        self._of |= found
        for new, old in parent.items():
            self._of |= {(symbol, new): own for (symbol, below), own in self._of.items() if below == old}
        return self.count > before


def alike(edges: StackEdges, single_bytes: np.ndarray) -> list[Hashable]:
    """Of each symbol, where it may lie on top, and what bytes may come behind it there: stacks that differ in this are told apart
    from the start.

    Args:
      edges: of the constraint.
      single_bytes: uint32[W], the tokens of one byte.
    """
    c = edges.constraint
    known: dict[int, Hashable] = {}
    out: list[list[Hashable]] = [[] for _ in c.symbol_cost]
    for node in range(1, c.num_nodes):
        for symbol in symbols(edges.tops[node]):
            inner = edges.after_pop(node, symbol)
            if inner not in known:
                row = edges.tokens_of(inner) & single_bytes
                known[inner] = inner and (bool(c.accept[inner]), bool(edges.tops[inner]), row.tobytes())
            out[symbol].append((node, known[inner]))
    return [tuple(each) for each in out]


class Classified(NamedTuple):
    """A constraint whose nodes know the class of their stack, and its symbols that of the stack below them.

    constraint: without levels; cells: by symbol; classes: of nodes, those of the stacks there.
    """

    constraint: CompiledConstraint
    cells: list[Cell]
    classes: list[int]


def classified(constraint: CompiledConstraint, classes: StackClasses, most: int, deadline: Deadline) -> Classified | None:
    """The constraint with classes; None where it would have more than `most` nodes.

    Args:
      constraint: with a stack, deterministic, without counters and sets of keys.
      classes: of its stacks.
    """
    made = _Classified(constraint, classes)
    while made.todo:
        if len(made.places) > most:
            return None
        if not len(made.todo) % 64:
            deadline.check(_DOING)
        made.explore(made.todo.pop())
    return Classified(made.assembled(), list(made.symbols), [EMPTY, *(of for _, of in made.places)])


class _Own(NamedTuple):
    """What lies at a node of the constraint: groups as slice, targets and push strings; arcs as slice, distinct effects with
    targets and push strings, and the effect of each arc; symbols that can be popped, and what is there then."""

    groups: slice
    group_effects: list[tuple[int, int]]
    arcs: slice
    arc_effects: list[tuple[int, int]]
    arc_effect: np.ndarray
    pops: list[tuple[int, int]]


class _Classified:
    def __init__(self, constraint: CompiledConstraint, classes: StackClasses) -> None:
        self._c, self._classes = constraint, classes
        c = constraint
        offset, symbol = c.push_offset.tolist(), c.push_symbol.tolist()
        self._strings = [symbol[a:b] for a, b in itertools.pairwise(offset)]
        self._own: dict[int, _Own] = {}
        self.symbols: dict[Cell, int] = {}
        self._pushes: dict[tuple[int, ...], int] = {(): 0}
        self._effects: dict[tuple[int, int], int] = {}
        self.places: dict[tuple[int, int], int] = {}
        self.todo: list[tuple[int, int]] = []
        self._made: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        """Of places, (target, push string) of groups and the effects of arcs."""
        self._popping: dict[int, list[tuple[int, int]]] = {}
        """Of classes, the nodes there that can pop."""
        self._in_class: dict[int, list[Cell]] = {}
        self._initial, top = self._pushed(c.initial_push, EMPTY)
        self._start = self._place(c.start, top)

    def _place(self, node: int, of: int) -> int:
        number = self.places.get((node, of))
        if number is None:
            number = self.places[node, of] = len(self.places) + 1
            self.todo.append((node, of))
        return number

    def _pushed(self, string: int, of: int) -> tuple[int, int]:
        """The push string over a stack of a class, and the class of the stack with it."""
        out = []
        for symbol in self._strings[string]:
            cell = symbol, of
            if cell not in self.symbols:
                self.symbols[cell] = len(self.symbols)
                own = self._classes.of(cell)
                self._in_class.setdefault(own, []).append(cell)
                for node, _ in list(self._popping.get(own, ())):
                    self._popped(node, cell)
            out.append(self.symbols[cell])
            of = self._classes.of(cell)
        return self._pushes.setdefault(tuple(out), len(self._pushes)), of

    def _popped(self, node: int, cell: Cell) -> None:
        inner = int(self._c.delta[self._c.delta_offset[node] + cell[0]])
        if inner:
            self._place(inner, cell[1])

    def _at(self, node: int) -> _Own:
        found = self._own.get(node)
        if found is None:
            c = self._c
            groups = slice(int(c.group_offset[node]), int(c.group_offset[node + 1]))
            arcs = slice(int(c.arc_offset[node]), int(c.arc_offset[node + 1]))
            effects, effect = np.unique(c.arc_effect[arcs], return_inverse=True)
            row = c.delta[c.delta_offset[node] : c.delta_offset[node] + c.num_symbols]
            symbol = np.flatnonzero(row)
            found = self._own[node] = _Own(
                groups,
                list(zip(c.group_next[groups].tolist(), c.group_push[groups].tolist())),
                arcs,
                [(target, push) for target, push in c.effects[effects, :2].tolist()],
                effect.ravel(),
                list(zip(symbol.tolist(), row[symbol].tolist())),
            )
        return found

    def explore(self, place: tuple[int, int]) -> None:
        """Finds what a place's tokens and pops lead to."""
        node, of = place
        own = self._at(node)
        groups = []
        for target, push in own.group_effects:
            string, top = self._pushed(push, of)
            groups.append((self._place(target, top), string))
        effects = []
        for target, push in own.arc_effects:
            string, top = self._pushed(push, of)
            effects.append(self._effects.setdefault((self._place(target, top), string), len(self._effects) + 1))
        arcs = np.array(effects, np.int32)[own.arc_effect] if effects else np.zeros(0, np.int32)
        self._made[self.places[place]] = np.array(groups, np.int32).reshape(-1, 2), arcs
        if own.pops:
            self._popping.setdefault(of, []).append(place)
            for cell in list(self._in_class.get(of, ())):
                self._popped(node, cell)

    def assembled(self) -> CompiledConstraint:
        """The constraint, once nothing is left to explore."""
        c, count = self._c, len(self.places) + 1
        node = np.array([0, *(node for node, _ in self.places)])
        own = [self._at(one) for one, _ in self.places]
        every = [self._made[number] for number in range(1, count)]
        group, arc = (self._sizes([part[i] for part in every]) for i in (0, 1))
        groups = np.concatenate([np.zeros((0, 2), np.int32), *(part[0] for part in every)])
        effects = np.zeros((len(self._effects) + 1, 6), np.int32)
        effects[1:, :2] = np.array(list(self._effects), np.int32).reshape(-1, 2)
        offset, delta = self._deltas()
        strings = list(self._pushes)
        symbol = np.array([symbol for symbol, _ in self.symbols], np.int64)
        none, size = np.zeros(len(groups), np.int32), len(symbol)
        pushed = np.array([one for string in strings for one in string], np.int32)
        return dataclasses.replace(
            c,
            start=self._start,
            accept=c.accept[node],
            distance=c.distance[node],
            need=c.need[node],
            group_offset=group,
            group_row=_joined([c.group_row[one.groups] for one in own]),
            group_next=np.ascontiguousarray(groups[:, 0]),
            group_push=np.ascontiguousarray(groups[:, 1]),
            group_add=none,
            group_set=none,
            arc_offset=arc,
            arc_token=_joined([c.arc_token[one.arcs] for one in own]),
            arc_effect=_joined([part[1] for part in every]),
            effects=effects,
            level_offset=np.zeros(count + 1, np.int32),
            level_cost=np.zeros(0, np.int32),
            level_row=np.zeros(0, np.int32),
            level_need=np.zeros(0, np.int32),
            level_slope=c.level_slope[node],
            ladder=c.ladder[node],
            push_offset=np.append(0, np.cumsum([len(string) for string in strings])).astype(np.int32),
            push_symbol=pushed,
            push_register=np.zeros(len(pushed), np.int32),
            symbol_ladder=np.zeros((size, 4), np.int32),
            symbol_cost=c.symbol_cost[symbol],
            symbol_need=c.symbol_need[symbol],
            symbol_slope=c.symbol_slope[symbol],
            delta_offset=offset,
            delta=delta,
            initial_push=self._initial,
            max_push=max(map(len, strings)),
        )

    @staticmethod
    def _sizes(parts: list[np.ndarray]) -> np.ndarray:
        return np.append([0, 0], np.cumsum([len(part) for part in parts])).astype(np.int32)

    def _deltas(self) -> tuple[np.ndarray, np.ndarray]:
        """`delta_offset` and `delta`."""
        size = len(self.symbols)
        segments: dict[bytes, int] = {}
        rows: list[np.ndarray] = []
        offset = np.zeros(len(self.places) + 1, np.int32)

        def at(row: np.ndarray) -> int:
            key = row.tobytes()
            if key not in segments:
                segments[key] = len(rows) * size
                rows.append(row)
            return segments[key]

        offset[:] = at(np.zeros(size, np.int32))
        for (node, of), number in self.places.items():
            pops = dict(self._at(node).pops)
            if pops:
                row = np.zeros(size, np.int32)
                for symbol, below in self._in_class.get(of, ()):
                    if symbol in pops:
                        row[self.symbols[symbol, below]] = self.places[pops[symbol], below]
                offset[number] = at(row)
        return offset, np.concatenate(rows)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate([np.zeros(0, np.int32), *parts]), np.int32)
