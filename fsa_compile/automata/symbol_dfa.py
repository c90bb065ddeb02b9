"""Small automata whose symbols are numbers of terminals and calls: what a rule is before it becomes bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class SymbolDfa(NamedTuple):
    """A minimal automaton; state 0 is initial.

    Attributes:
      arcs: per state next state by symbol.
      final: per state whether the rule may end there.
    """

    arcs: list[dict[int, int]]
    final: list[bool]


class SymbolNfa:
    """A nondeterministic automaton under construction."""

    def __init__(self) -> None:
        self.empty: list[list[int]] = []
        self.arcs: list[list[tuple[int, int]]] = []

    def state(self) -> int:
        """A new state."""
        self.empty.append([])
        self.arcs.append([])
        return len(self.arcs) - 1

    def splice(self, dfa: SymbolDfa, begin: int, end: int) -> None:
        """A copy of an automaton between two states."""
        states = [self.state() for _ in dfa.arcs]
        self.empty[begin].append(states[0])
        for q, arcs in zip(states, dfa.arcs):
            self.arcs[q] += [(symbol, states[target]) for symbol, target in arcs.items()]
        for q, final in zip(states, dfa.final):
            if final:
                self.empty[q].append(end)

    def minimal(self, begin: int, end: int, check: Callable[[int], None]) -> SymbolDfa:
        """The minimal automaton of what leads from one state to another.

        Args:
          begin, end: the two states.
          check: asked after each step with the number of states so far; raises when there are too many.
        """
        return minimised(self._determinised(begin, end, check))

    def _closure(self, states: set[int]) -> frozenset[int]:
        todo = list(states)
        while todo:
            for q in self.empty[todo.pop()]:
                if q not in states:
                    states.add(q)
                    todo.append(q)
        return frozenset(states)

    def _determinised(self, begin: int, end: int, check: Callable[[int], None]) -> SymbolDfa:
        order = [self._closure({begin})]
        number = {order[0]: 0}
        arcs: list[dict[int, int]] = []
        for state in order:
            targets: dict[int, set[int]] = {}
            for q in state:
                for symbol, target in self.arcs[q]:
                    targets.setdefault(symbol, set()).add(target)
            out = {}
            for symbol, into in targets.items():
                closed = self._closure(into)
                if closed not in number:
                    number[closed] = len(order)
                    order.append(closed)
                out[symbol] = number[closed]
            arcs.append(out)
            check(len(order))
        return SymbolDfa(arcs, [end in state for state in order])


def minimised(dfa: SymbolDfa) -> SymbolDfa:
    """The minimal automaton of a deterministic one whose states are all reachable. States that lead nowhere are dropped."""
    dfa = _trimmed(dfa)
    kind = [int(final) for final in dfa.final]
    count = len(set(kind))
    while True:
        signatures: dict[tuple[int, frozenset[tuple[int, int]]], int] = {}
        kind = [
            signatures.setdefault((kind[q], frozenset((s, kind[t]) for s, t in arcs.items())), len(signatures))
            for q, arcs in enumerate(dfa.arcs)
        ]
        if len(signatures) == count:
            break
        count = len(signatures)
    arcs: list[dict[int, int]] = [{} for _ in range(count)]
    final = [False] * count
    for q, k in enumerate(kind):
        arcs[k] = {symbol: kind[target] for symbol, target in dfa.arcs[q].items()}
        final[k] = dfa.final[q]
    return SymbolDfa(arcs, final)  # state 0 is met first, so it stays 0


def without_empty(dfa: SymbolDfa) -> SymbolDfa:
    """The automaton without the empty text."""
    if not dfa.final[0]:
        return dfa
    last = len(dfa.arcs)  # a copy of the initial state for those who come back to it
    arcs = [{s: t or last for s, t in one.items()} for one in dfa.arcs]
    return minimised(_reachable(SymbolDfa([*arcs, arcs[0]], [False, *dfa.final[1:], True])))


def _reachable(dfa: SymbolDfa) -> SymbolDfa:
    order, number = [0], {0: 0}
    for q in order:
        for target in dfa.arcs[q].values():
            if target not in number:
                number[target] = len(order)
                order.append(target)
    arcs = [{s: number[t] for s, t in dfa.arcs[q].items()} for q in order]
    return SymbolDfa(arcs, [dfa.final[q] for q in order])


def _trimmed(dfa: SymbolDfa) -> SymbolDfa:
    sources: list[list[int]] = [[] for _ in dfa.arcs]
    for q, arcs in enumerate(dfa.arcs):
        for target in arcs.values():
            sources[target].append(q)
    todo = [q for q, final in enumerate(dfa.final) if final]
    live = set(todo)
    while todo:
        for q in sources[todo.pop()]:
            if q not in live:
                live.add(q)
                todo.append(q)
    if len(live) == len(dfa.arcs):
        return dfa
    order = [0, *sorted(live - {0})]
    number = {q: i for i, q in enumerate(order)}
    left = [{s: number[t] for s, t in dfa.arcs[q].items() if t in live} for q in order]
    return SymbolDfa(left, [dfa.final[q] for q in order])
