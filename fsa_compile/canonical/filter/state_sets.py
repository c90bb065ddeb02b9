"""`StateSets`: sets of states of the tokenizer's filter, numbered, with what follows from them, kept for all compiles."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from fsa_compile.limits import check_time

_MOST = 1 << 16


class StateSets:
    """Numbered sets of states; 0 is the empty one. `ANYWHERE - d` stands for any state at depth d.

    Args:
      num_classes: of tokens (see `Contexts.class_of`).
      states_after: of a state and a class, the states that tokens of the class may lead to.
      place_of: behaviour and depth of every state.
    """

    def __init__(
        self, num_classes: int, states_after: Callable[[int, int], Iterable[int]], place_of: Sequence[tuple[int, int]]
    ) -> None:
        self._num_classes, self._states_after, self._place_of = num_classes, states_after, place_of
        self._sets: list[frozenset[int]] = [frozenset()]
        self._number = {self._sets[0]: 0}
        self._after: dict[int, int] = {}
        self._unions: dict[tuple[int, int], int] = {}
        self._behaviours: dict[tuple[int, int], tuple[int, ...]] = {}

    @property
    def is_large(self) -> bool:
        """Whether it is time for new ones."""
        return len(self._after) + len(self._unions) + len(self._behaviours) >= _MOST

    def number(self, states: frozenset[int]) -> int:
        """The number of a set."""
        found = self._number.get(states)
        if found is None:
            self._sets.append(states)
            found = self._number[states] = len(self._sets) - 1
        return found

    def after(self, number: int, kind: int) -> int:
        """The set that tokens of a class (see `Contexts.class_of`) may lead to from a set."""
        key = number * self._num_classes + kind
        found = self._after.get(key)
        if found is None:
            check_time("finding what a tokenizer may have written last")
            parts = (self._states_after(state, kind) for state in self._sets[number])
            found = self._after[key] = self.number(frozenset[int]().union(*parts))
        return found

    def union(self, one: int, other: int) -> int:
        """The set of all states in two."""
        if not one or not other:
            return one or other
        found = self._unions.get((one, other))
        if found is None:
            found = self._unions[one, other] = self.number(self._sets[one] | self._sets[other])
        return found

    def behaviours(self, number: int, depth: int) -> tuple[int, ...]:
        """The behaviours of those states of a set that lie at a depth, ascending."""
        found = self._behaviours.get((number, depth))
        if found is None:
            places = (self._place_of[state] for state in self._sets[number])
            found = self._behaviours[number, depth] = tuple(sorted({behaviour for behaviour, at in places if at == depth}))
        return found

    def reached(
        self,
        states: dict[int, int],
        begin: Sequence[int],
        kinds: Sequence[int],
        targets: Sequence[int],
        distance: Sequence[int],
        beside: Mapping[int, Sequence[int]],
    ) -> list[int]:
        """The sets that the steps of an automaton lead to from all that its nodes can be in.

        Args:
          states: sets at nodes, at first those where texts begin; all others are added.
          begin: steps of node q are those from `begin[q]` to `begin[q + 1]`.
          kinds, targets: class of the tokens, and node, of each step.
          distance: of nodes from the end.
          beside: nodes that can be in all that some nodes can be in.
        """
        after_of, unions, width = self._after, self._unions, self._num_classes
        # Nodes further from the end first: most are then looked at once.
        todo = [(-distance[node], node) for node in states]
        heapq.heapify(todo)
        waiting = set(states)
        out = [0] * len(kinds)
        while todo:
            node = heapq.heappop(todo)[1]
            waiting.discard(node)
            here = states[node]
            first, end = begin[node], begin[node + 1]
            for i, kind in enumerate(kinds[first:end], first):
                found = after_of.get(here * width + kind)
                out[i] = self.after(here, kind) if found is None else found
            others = [(here, to) for to in beside.get(node, ())] if beside else ()
            for after, to in itertools.chain(others, zip(out[first:end], targets[first:end])):
                known = states.get(to, 0)
                if after == known or not after:
                    continue
                if known:
                    more = unions.get((after, known))
                    if more is None:
                        more = self.union(after, known)
                    if more == known:
                        continue
                    after = more
                states[to] = after
                if to not in waiting:
                    waiting.add(to)
                    heapq.heappush(todo, (-distance[to], to))
        return out
