"""`TokenAutomaton`: a small deterministic automaton over token ids, as plain dictionaries."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

Arcs = dict[int, int]
"""Target of each token."""


@dataclasses.dataclass(frozen=True)
class TokenAutomaton:
    """States are numbers; a missing arc is a refusal.

    Attributes:
      arcs: of each state.
      final: states that accept.
      start: the initial state.
    """

    arcs: tuple[Arcs, ...]
    final: frozenset[int]
    start: int

    def accepts(self, tokens: list[int]) -> bool:
        """Whether a sequence is accepted."""
        state: int | None = self.start
        for token in tokens:
            state = self.arcs[state].get(token) if state is not None else None
        return state is not None and state in self.final

    def sequences(self, longest: int) -> Iterator[tuple[int, ...]]:
        """All accepted sequences of at most `longest` tokens."""
        layer: list[tuple[int, tuple[int, ...]]] = [(self.start, ())]
        for _ in range(longest + 1):
            after = []
            for state, path in layer:
                if state in self.final:
                    yield path
                after += [(to, (*path, token)) for token, to in self.arcs[state].items()]
            layer = after

    def trimmed(self) -> TokenAutomaton:
        """The same language with only the states that are reached and can accept (and the start)."""
        reached, todo = {self.start}, [self.start]
        back: dict[int, list[int]] = {}
        while todo:
            state = todo.pop()
            for to in self.arcs[state].values():
                back.setdefault(to, []).append(state)
                if to not in reached:
                    reached.add(to)
                    todo.append(to)
        useful, todo = set(self.final & reached), list(self.final & reached)
        while todo:
            for before in back.get(todo.pop(), ()):
                if before not in useful:
                    useful.add(before)
                    todo.append(before)
        number = {state: i for i, state in enumerate(sorted(useful | {self.start}))}
        arcs = tuple({token: number[to] for token, to in self.arcs[state].items() if to in useful} for state in number)
        return TokenAutomaton(arcs, frozenset(number[state] for state in self.final & useful), number[self.start])

    def minimized(self) -> TokenAutomaton:
        """The minimal automaton; two automata of one language become equal."""
        small = self.trimmed()
        part = [int(state in small.final) for state in range(len(small.arcs))]
        while True:
            keys = [(part[s], tuple(sorted((t, part[to]) for t, to in row.items()))) for s, row in enumerate(small.arcs)]
            numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
            if len(numbers) == len(set(part)):
                break
            part = [numbers[key] for key in keys]
        order, todo = {part[small.start]: 0}, [small.start]
        arcs: list[Arcs] = []
        for state in todo:  # grows: states in the order of a breadth-first walk by token
            row = {}
            for token, to in sorted(small.arcs[state].items()):
                if part[to] not in order:
                    order[part[to]] = len(order)
                    todo.append(to)
                row[token] = order[part[to]]
            arcs.append(row)
        final = frozenset(i for i, state in enumerate(todo) if state in small.final)
        return TokenAutomaton(tuple(arcs), final, 0)
