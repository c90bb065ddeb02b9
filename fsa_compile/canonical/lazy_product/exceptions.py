"""`ExceptedDistances`: tokens of a constraint that can be completed in some states of the filter only.

The states are those of some behaviours (`Contexts`), and each such token has a note of a list of behaviours to which it may not
lead. A device keeps few lists, and looks at few of them at a node.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

import numpy as np

from fsa_compile.artifact.bitmask import words_of
from fsa_compile.canonical.lazy_product.lazy_distances import LazyDistances

_LISTS = 32
"""Most lists of excepted behaviours: a device keeps rows of tokens for each."""
_NOTES = 3
"""Most of them at a node: a device looks at all."""


class Case(NamedTuple):
    """What has no distance: a token into a wide node, or a pair (token -1) of the others, with its forbidden set `group`.

    It may lead to these behaviours; a text can be completed or not in each, perhaps `through` others of the kind."""

    node: int
    token: int
    pair: int
    group: int
    behaviour: list[int]
    completes: list[bool]
    through: list[Case]

    @property
    def completed(self) -> tuple[int, ...]:
        """The behaviours in which a text can be completed."""
        return tuple(itertools.compress(self.behaviour, self.completes))


class Into:
    """The tokens into a wide node that have no distance. `rows`: of the constraint, uint32[R, W]."""

    def __init__(self, cases: list[Case], rows: np.ndarray) -> None:
        tokens = np.array([case.token for case in cases], np.int64)
        self._cases, self._rows = cases, rows
        self._word, self._bit = tokens >> 5, (tokens & 31).astype(np.uint32)
        self._known: dict[int, list[Case]] = {}

    def in_row(self, number: int) -> list[Case]:
        """The cases of those that a bit row holds."""
        found = self._known.get(number)
        if found is None:
            held = self._rows[number].take(self._word) >> self._bit & np.uint32(1)
            found = self._known[number] = list(itertools.compress(self._cases, held.tolist()))
        return found


class ExceptedDistances(LazyDistances):
    """Distances with notes of the tokens that can be completed in some states only."""

    _into: dict[int, Into]
    """By wide node."""

    def note_excepted(self, some: list[Case]) -> bool:
        """Lists the behaviours that tokens of each node may not lead to, and whether a few lists for each will do. No token with
        a list can be completed in one of its behaviours. Nodes share lists where they can."""
        kinds: dict[int, dict[int, None]] = {}
        for source, kind in self._sources_of([case for case in some if not all(case.completes)]):
            for node in _reached(source, self._outer):
                kinds.setdefault(node, {})[kind] = None
        kept: list[set[int]] = []
        for node, own in kinds.items():
            notes: list[tuple[set[int], set[int], list[int]]] = []
            for kind in own:
                completed, lost = self._kinds[kind - 1]
                for good, bad, members in notes:
                    if good.isdisjoint(lost) and bad.isdisjoint(completed):
                        good.update(completed)
                        bad.update(lost)
                        members.append(kind)
                        break
                else:
                    notes.append(({*completed}, {*lost}, [kind]))
            for good, bad, members in notes:
                for number, excepted in enumerate(self._lists):
                    if kept[number].isdisjoint(bad) and good.isdisjoint(excepted):
                        break
                else:
                    number = len(kept)
                    kept.append(set())
                    self._lists.append(set())
                kept[number] |= good
                self._lists[number] |= bad
                self.excepted.setdefault(node, {})[number] = members
            if len(notes) > _NOTES:
                return False
        return len(kept) <= _LISTS

    def _sources_of(self, cases: list[Case]) -> Iterator[tuple[int, int]]:
        """The nodes with tokens that lead to some cases, and the kinds of these."""
        pairs = _by_value(self.pair)
        tokens: dict[int, dict[int, list[int]]] = {}
        kind_of: dict[tuple[int, int], int] = {}
        for case in cases:
            kind = self.kind_of(case)
            if case.token >= 0:
                tokens.setdefault(case.node, {}).setdefault(kind, []).append(case.token)
                kind_of[case.node, case.token] = kind
            else:
                yield from zip(sorted(set(self.source[pairs(case.pair)].tolist())), repeat(kind))
        rows: dict[tuple[int, int], list[int]] = {}
        for target, by_kind in tokens.items():
            if not len(self.wide[target].edges):
                continue
            edges = self.wide[target].edges
            token, source_of = self.token[edges].tolist(), self.source[edges]
            for kind, chosen in by_kind.items():
                among = set(chosen)
                at = [i for i, one in enumerate(token) if one in among]
                yield from zip(sorted(set(source_of[at].tolist())), repeat(kind))
        for source, groups in self.groups.items():
            for row, target in groups:
                if target in tokens:
                    if (row, target) not in rows:
                        held = {kind_of.get((target, case.token)) for case in self._into[target].in_row(row)}
                        rows[row, target] = [kind for kind in tokens[target] if kind in held]
                    yield from zip(repeat(source), rows[row, target])

    def kind_of(self, case: Case) -> int:
        """The number of what the case lets complete, and what not."""
        key = tuple(case.behaviour), tuple(case.completes)
        found = self._kinds_met.get(key)
        if found is None:
            parts = case.completed, tuple(itertools.compress(case.behaviour, map(operator.not_, case.completes)))
            found = self._kinds_met[key] = self._kind_numbers.setdefault(parts, len(self._kinds) + 1)
            if found > len(self._kinds):
                self._kinds.append(parts)
        return found

    def excepted_states(self) -> list[list[int]]:
        """The states of the filter in each list."""
        return [self._contexts.states_in(sorted(behaviours)) for behaviours in self._lists]

    def unless_of(self, node: int) -> list[tuple[int, np.ndarray]]:
        """The lists of behaviours to which tokens of a node may not lead, each with these tokens, uint32[W]."""
        found = ((number, self._of_kinds(node, {*kinds})) for number, kinds in sorted(self.excepted.get(node, {}).items()))
        return [(number, row) for number, row in found if row.any()]

    def _of_kinds(self, node: int, kinds: set[int]) -> np.ndarray:
        """The tokens of some kinds that may come at a node, uint32[W]."""
        tokens: list[int] = []
        for inner in self.inner(node):
            low, high = self._first[inner], self._first[inner + 1]
            own = self._kind[low:high]
            if own.any():
                tokens += itertools.compress(self.token[low:high].tolist(), (kind in kinds for kind in own.tolist()))
            for row, target in self.groups.get(inner, ()):
                kind_of = self._kind_into.get(target)
                if kind_of:
                    tokens += [case.token for case in self._into[target].in_row(row) if kind_of.get(case.token) in kinds]
        return words_of(tokens, self._constraint.vocab_size)

    def sometimes(self, node: int) -> np.ndarray:
        """The own tokens of a node that can be completed in some states only, uint32[W]."""
        low, high = self._first[node], self._first[node + 1]
        out = words_of(self.token[low:high][self._kind[low:high] > 0], self._constraint.vocab_size)
        for row, target in self.groups.get(node, ()):
            for some in self._unless.get(target, {}).values():
                out |= self._constraint.rows[row] & some
        return out

    def inner(self, node: int) -> list[int]:
        """A node, and the nodes whose tokens may come wherever its own may; see `Surplus.beside`."""
        return _reached(node, self._inner)

    @cached_property
    def _inner(self) -> dict[int, list[int]]:
        """The nodes right beside others, by these; see `Surplus.beside`."""
        return _lists_by_first(self._surplus.beside)

    @cached_property
    def _outer(self) -> dict[int, list[int]]:
        return _lists_by_first((b, a) for a, b in self._surplus.beside)


def _lists_by_first(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    out: dict[int, list[int]] = {}
    for first, second in pairs:
        out.setdefault(first, []).append(second)
    return out


def _reached(node: int, links: dict[int, list[int]]) -> list[int]:
    """A node and those that links lead to, each once."""
    out = [node]
    for one in out:  # grows
        out += [other for other in links.get(one, ()) if other not in out]
    return out


def _by_value(values: np.ndarray) -> Callable[[int], np.ndarray]:
    """Where numbers stand in an array, ascending."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    return lambda value: order[np.searchsorted(ordered, value) : np.searchsorted(ordered, value, side="right")]
