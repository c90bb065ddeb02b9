"""Small automata whose symbols are numbers of terminals and calls: what a rule is before it becomes bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fsa_compile.arrays.graphs import Numbers, distances, leading, reach, refined


class SymbolDfa(NamedTuple):
    """A minimal automaton; state 0 is initial.

    Attributes:
      arcs: per state next state by symbol.
      final: per state whether the rule may end there.
    """

    arcs: list[dict[int, int]]
    final: list[bool]

    @property
    def closed(self) -> bool:
        """Whether the rule is over wherever it may end."""
        return not any(final and arcs for final, arcs in zip(self.final, self.arcs))


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
        number = Numbers([self._closure({begin})])
        known: dict[frozenset[int], int] = {}  # by the states before their closure
        arcs: list[dict[int, int]] = []
        for state in number.order:
            targets: dict[int, set[int]] = {}
            for q in state:
                for symbol, target in self.arcs[q]:
                    targets.setdefault(symbol, set()).add(target)
            out = {}
            for symbol, into in targets.items():
                key = frozenset(into)
                if key not in known:
                    known[key] = number[self._closure(into)]
                out[symbol] = known[key]
            arcs.append(out)
            check(len(number))
        return SymbolDfa(arcs, [end in state for state in number])


def minimised(dfa: SymbolDfa) -> SymbolDfa:
    """The minimal automaton of a deterministic one whose states are all reachable. States that lead nowhere are dropped."""
    dfa = _trimmed(dfa)
    far = distances([arcs.values() for arcs in dfa.arcs], [q for q, final in enumerate(dfa.final) if final])  # a first partition
    kind = refined(far, lambda q, kind: frozenset((s, kind[t]) for s, t in dfa.arcs[q].items()))
    last = dict(zip(kind, range(len(kind))))  # one state of each kind, by kind; state 0 is of the first, so it stays 0
    return SymbolDfa([{s: kind[t] for s, t in dfa.arcs[q].items()} for q in last.values()], [dfa.final[q] for q in last.values()])


def without_empty(dfa: SymbolDfa) -> SymbolDfa:
    """The automaton without the empty text."""
    if not dfa.final[0]:
        return dfa
    last = len(dfa.arcs)  # a copy of the initial state for those who come back to it
    arcs = [{s: t or last for s, t in one.items()} for one in dfa.arcs]
    return minimised(_reachable(SymbolDfa([*arcs, arcs[0]], [False, *dfa.final[1:], True])))


def _reachable(dfa: SymbolDfa) -> SymbolDfa:
    number = reach([0], lambda q: dfa.arcs[q].values())
    return SymbolDfa([{s: number[t] for s, t in dfa.arcs[q].items()} for q in number], [dfa.final[q] for q in number])


def _trimmed(dfa: SymbolDfa) -> SymbolDfa:
    live = leading([arcs.values() for arcs in dfa.arcs], [q for q, final in enumerate(dfa.final) if final])
    if len(live) == len(dfa.arcs):
        return dfa
    number = {q: i for i, q in enumerate(sorted({0, *live}))}
    left = [{s: number[t] for s, t in dfa.arcs[q].items() if t in live} for q in number]
    return SymbolDfa(left, [dfa.final[q] for q in number])
