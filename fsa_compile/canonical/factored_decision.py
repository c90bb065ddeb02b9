"""`DecidedDistances`: whether the distances of a factored canonical constraint are all there is, and the tokens that can be
completed in some states of the filter only."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.bitmask import holds, words_of
from fsa_compile.canonical.contexts import ALL, ALL_APART, ANY, ANY_APART
from fsa_compile.canonical.factored_distances import FAR, FactoredDistances

_LISTS = 32
"""Most lists of shunned behaviours: a device keeps rows of tokens for each."""
_NOTES = 3
"""Most of them at a node: a device looks at all."""
_SINGLE = 16
"""Up to so many tokens are looked up one by one."""
_ROUNDS = 8
"""Rounds in which tokens that can be completed in some states only are looked at."""


class DecidedDistances(FactoredDistances):
    """Distances with the proof that what has none cannot be completed, where there is one (`decided`)."""

    def decided(self) -> bool:
        """Whether it is certain what can be completed: of every token in all states that it may lead to, or in all but those of
        some behaviours, the same for many tokens of a node (`shunned`). Tokens of the second kind get a distance here."""
        cases = self._cases = [*self._open_pairs(), *self._open_tokens()]
        by_pair = {case.pair: case for case in cases if case.token < 0}
        by_token = {(case.node, case.token): case for case in cases if case.token >= 0}
        for _ in range(_ROUNDS):
            some = [case for case in cases if any(case.completes)]
            if not some:
                return True
            found = self._completed_by(cases, by_pair, by_token)
            if found is None:
                return False
            if not found:
                return self._all_shunned(some) and self._with_levels(some)
        return False

    def _all_shunned(self, some: list[_Case]) -> bool:
        """Lists the behaviours that tokens of each node may not lead to; whether a few lists for each will do. No other such token
        with a list can be completed in one of its behaviours. Nodes share lists where they can."""
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
                for number, shunned in enumerate(self._lists):
                    if kept[number].isdisjoint(bad) and good.isdisjoint(shunned):
                        break
                else:
                    number = len(kept)
                    kept.append(set())
                    self._lists.append(set())
                kept[number] |= good
                self._lists[number] |= bad
                self.shunned.setdefault(node, {})[number] = members
            if len(notes) > _NOTES:
                return False
        return len(kept) <= _LISTS

    def _kind_of(self, case: _Case) -> int:
        """The number of what the case lets complete, and what not."""
        parts = case.completed, tuple(itertools.compress(case.behaviour, map(operator.not_, case.completes)))
        found = self._kind_numbers.get(parts)
        if found is None:
            self._kinds.append(parts)
            found = self._kind_numbers[parts] = len(self._kinds)
        return found

    def _sources_of(self, cases: list[_Case]) -> Iterator[tuple[int, int]]:
        """The nodes with tokens that lead to some cases, and the kinds of these."""
        pairs = _by_value(self.pair)
        tokens: dict[int, dict[int, list[int]]] = {}
        for case in cases:
            kind = self._kind_of(case)
            if case.token >= 0:
                tokens.setdefault(case.node, {}).setdefault(kind, []).append(case.token)
            else:
                yield from zip(sorted(set(self.source[pairs(case.pair)].tolist())), repeat(kind))
        rows: dict[tuple[int, int], list[int]] = {}
        for target, by_kind in tokens.items():
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
                        held = self._constraint.rows[row]
                        rows[row, target] = [kind for kind, chosen in tokens[target].items() if any(_held(held, chosen))]
                    yield from zip(repeat(source), rows[row, target])

    @cached_property
    def _inner(self) -> dict[int, list[int]]:
        """The nodes right beside others, by these; see `Surplus.beside`."""
        return _lists_by_first(self._surplus.beside)

    @cached_property
    def _outer(self) -> dict[int, list[int]]:
        return _lists_by_first((b, a) for a, b in self._surplus.beside)

    def shunned_states(self) -> list[list[int]]:
        """The states of the filter in each list."""
        return [self._contexts.states_in(sorted(behaviours)) for behaviours in self._lists]

    def _completed_by(
        self, cases: list[_Case], by_pair: dict[int, _Case], by_token: dict[tuple[int, int], _Case]
    ) -> list[_Case] | None:
        """Looks at what cannot be completed yet, and may go on with tokens that sometimes can: notes what is completed so, and
        returns those cases; None where that is not certain."""
        x, out = self._contexts, []
        before = self._before([case for case in cases if any(case.completes)])
        for case in self._other_pairs(before, by_pair):  # what is certain otherwise may go on with these tokens
            by_pair[case.pair] = case
            cases.append(case)
        of_node: dict[int, list[_Case]] = {}
        for case in by_token.values():
            of_node.setdefault(case.node, []).append(case)
        into = {node: _Into([case.token for case in some], some, {}) for node, some in of_node.items()}
        after = {node: self._sometimes(node, by_pair, by_token, into) for node in before}
        some = [case for case in cases if after.get(case.node) and not all(case.completes)]
        chances = self._chances(some, after)
        for number, case in enumerate(some):
            for i, held, places in chances.get(number, ()):
                for at in places:
                    token, then = after[case.node][at]
                    where = x.behaviours_then(case.behaviour[i], case.token, token, bool(held[at]))
                    if where.issubset(then.completed):
                        case.completes[i] = True
                        case.through.append(then)
                        out.append(case)
                        break
                    if not where.isdisjoint(then.completed):
                        return None
        return out

    def _chances(
        self, cases: list[_Case], after: dict[int, list[tuple[int, _Case]]]
    ) -> dict[int, list[tuple[int, np.ndarray, list[int]]]]:
        """By which tokens that are completed in some behaviours cases may go on.

        Args:
          cases: that cannot be completed in all behaviours.
          after: such tokens of each node.

        Returns:
          By place among the cases: the number of a behaviour that cannot be completed, whether the case's forbidden set holds
          each of the tokens of its node, and the places of tokens that may follow.
        """
        x = self._contexts
        lost: dict[int, list[tuple[int, int]]] = {}
        for number, case in enumerate(cases):
            lost.setdefault(case.node, []).extend((number, i) for i, completes in enumerate(case.completes) if not completes)
        out: dict[int, list[tuple[int, np.ndarray, list[int]]]] = {}
        for node, parts in lost.items():
            tokens = np.array([token for token, _ in after[node]], np.int64)
            alone = x.single[[cases[number].behaviour[i] for number, i in parts]]
            groups = np.array([cases[number].group for number, _ in parts], np.int64)
            held = self._rule.set_holds(groups[:, None], tokens)
            bits = x.follows[alone].take(x.column[int(self._depth[node])].take(tokens), 1)
            may = (bits & np.where(held, np.uint8(ALL_APART), np.uint8(ALL))) > 0
            for at in may.any(1).nonzero()[0].tolist():
                number, i = parts[at]
                out.setdefault(number, []).append((i, held[at], may[at].nonzero()[0].tolist()))
        return out

    def _sometimes(
        self,
        node: int,
        by_pair: dict[int, _Case],
        by_token: dict[tuple[int, int], _Case],
        into: dict[int, _Into],
    ) -> list[tuple[int, _Case]]:
        """The tokens of a node that are completed in some behaviours, as far as is known, with what they lead to; `into` has the
        tokens of `by_token` by node."""
        found: list[tuple[int, _Case | None]] = []
        low, high = self._first[node], self._first[node + 1]
        open_ = low + (self.cost[low:high] >= FAR).nonzero()[0]
        for token, target, pair in zip(*(of[open_].tolist() for of in (self.token, self.target, self.pair))):
            found.append((token, by_token.get((target, token)) if target in self.wide else by_pair.get(pair)))
        out = [(token, case) for token, case in found if case is not None and any(case.completes)]
        for row, target in self.groups.get(node, ()):
            if target in into:
                out += into[target].of_row(row, self._constraint.rows[row])
        return out

    def _with_levels(self, some: list[_Case]) -> bool:
        """Gives distances to what can be completed in some behaviours; whether there are any."""
        by_rows = [level for wide in self.wide.values() for level, _ in wide.levels]
        first = 1 + max([int(self._distance[self._distance < FAR].max(initial=0)), *by_rows])
        delay = self._surplus.delay.tolist()
        # Where it is the text's end that completes, that takes no more tokens.
        level = {id(case): delay[case.node] + (0 if self._ends(case) else first) for case in some}
        through = [case for case in some if case.through]
        for _ in range(_ROUNDS):
            raised = False
            for case in through:
                least = max([0, *(level[id(then)] + 1 + delay[case.node] for then in case.through)])
                raised |= least > level[id(case)]
                level[id(case)] = max(level[id(case)], least)
            if not raised:
                break
        else:
            return False
        into: dict[int, list[tuple[int, int, int]]] = {}
        for case in some:
            at, kind = level[id(case)], 0 if all(case.completes) else self._kind_of(case)
            if case.token >= 0:
                into.setdefault(case.node, []).append((case.token, at, kind))
                continue
            edges = np.flatnonzero(self.pair == case.pair)
            self._distance[case.pair] = at
            self.cost[edges], self._kind[edges] = at + 1, kind
        size = self._constraint.vocab_size
        for node, found in into.items():
            wide = self.wide[node]
            tokens, ats, kinds = (np.array(column) for column in zip(*sorted(found)))
            every = words_of(tokens, size)
            wide.open &= ~every
            alike = ats[0] == ats[-1] and bool((ats == ats[0]).all())
            levels = [int(ats[0])] if alike else sorted(set(ats.tolist()))
            wide.levels += [(at, every if alike else words_of(tokens[ats == at], size)) for at in levels]
            self._unless[node] = {kind: words_of(tokens[kinds == kind], size) for kind in {*kinds.tolist()} - {0}}
            if len(wide.edges):
                place = np.minimum(np.searchsorted(tokens, self.token[wide.edges]), len(tokens) - 1)
                same = tokens[place] == self.token[wide.edges]
                self.cost[wide.edges[same]] = ats[place[same]] + 1
                self._kind[wide.edges[same]] = kinds[place[same]]
        for wide in (self.wide[node] for node in into):
            joined_levels: dict[int, np.ndarray] = {}
            for at, bits in wide.levels:
                joined_levels[at] = joined_levels[at] | bits if at in joined_levels else bits
            wide.levels = sorted(joined_levels.items())
        self.start = min(self.start, self._from_start())
        return True

    def _ends(self, case: _Case) -> bool:
        """Whether the text may end in all behaviours in which it can be completed."""
        x = self._contexts
        return bool(self._constraint.accept[case.node]) and all(x.all_final[x.single[b]] for b in case.completed)

    def unless_of(self, node: int) -> list[tuple[int, np.ndarray]]:
        """The lists of behaviours to which tokens of a node may not lead, each with these tokens, uint32[W]."""
        found = ((number, self._of_kinds(node, tuple(kinds))) for number, kinds in sorted(self.shunned.get(node, {}).items()))
        return [(number, row) for number, row in found if row.any()]

    def _of_kinds(self, node: int, kinds: tuple[int, ...]) -> np.ndarray:
        """The tokens of some kinds that may come at a node, uint32[W]."""
        out = np.zeros(self._constraint.rows.shape[1], np.uint32)
        for inner in self.inner(node):
            low, high = self._first[inner], self._first[inner + 1]
            out |= words_of(self.token[low:high][np.isin(self._kind[low:high], kinds)], self._constraint.vocab_size)
            for row, target in self.groups.get(inner, ()):
                if self._unless.get(target):
                    out |= self._constraint.rows[row] & self._into_wide_of(target, kinds)
        return out

    def _into_wide_of(self, target: int, kinds: tuple[int, ...]) -> np.ndarray:
        """The tokens of some kinds that lead to a wide node, uint32[W]."""
        key = target, kinds
        if key not in self._unions:
            some = [row for kind, row in self._unless[target].items() if kind in kinds]
            self._unions[key] = np.bitwise_or.reduce([np.zeros_like(self._constraint.rows[0]), *some])
        return self._unions[key]

    def inner(self, node: int) -> list[int]:
        """A node, and the nodes whose tokens may come wherever its own may; see `Surplus.beside`."""
        return _reached(node, self._inner)

    def sometimes(self, node: int) -> np.ndarray:
        """The own tokens of a node that can be completed in some states only, uint32[W]."""
        low, high = self._first[node], self._first[node + 1]
        out = words_of(self.token[low:high][self._kind[low:high] > 0], self._constraint.vocab_size)
        for row, target in self.groups.get(node, ()):
            for some in self._unless.get(target, {}).values():
                out |= self._constraint.rows[row] & some
        return out

    def _open_pairs(self) -> list[_Case]:
        """The pairs without a distance."""
        out = []
        open_ = np.flatnonzero(self._distance[:-1] == FAR)
        open_ = open_[self._possible(open_)]
        nodes = self._pair_node[open_]
        for node in np.unique(nodes).tolist():
            pairs = open_[nodes == node]
            members = [self._members[around] for around in self._pair_surroundings[pairs].tolist()]
            sets = self._pair_set[pairs]
            completes = self._completes(node, members, sets).listed()
            for i, (pair, group) in enumerate(zip(pairs.tolist(), sets.tolist())):
                out.append(_Case(node, -1, pair, group, *completes[i], []))
        return out

    def _before(self, cases: list[_Case]) -> list[int]:
        """The nodes with tokens that lead to some cases."""
        wide = {case.node for case in cases if case.token >= 0}
        listed = np.zeros(len(self._distance), bool)
        listed[[case.pair for case in cases if case.token < 0]] = True
        chosen = listed[self.pair]
        listed = np.zeros(self._constraint.num_nodes, bool)
        listed[list(wide)] = True
        chosen |= listed[self.target]
        others = (node for node, groups in self.groups.items() if any(target in wide for _, target in groups))
        return sorted({*self.source[chosen].tolist(), *others})

    def _other_pairs(self, nodes: list[int], known: dict[int, _Case]) -> list[_Case]:
        """The pairs of nodes without a distance that no behaviour lets complete."""
        out = []
        for pair in self._pairs_of(np.array(nodes, np.int64)).tolist():
            if pair not in known:
                behaviour = list(self._members[self._pair_surroundings[pair]])
                none = [False] * len(behaviour)
                out.append(_Case(int(self._pair_node[pair]), -1, pair, int(self._pair_set[pair]), behaviour, none, []))
        return out

    def undecided(self) -> Iterator[tuple[Place, dict[int, bool]]]:
        """The places that some behaviours do not let complete, after `decided`, and which of these complete."""
        for case in self._cases:
            if not all(case.completes):
                yield Place(case.node, case.token, case.group, tuple(sorted(case.behaviour))), dict(zip(case.behaviour, case.completes))

    def places(self, nodes: np.ndarray, tokens: np.ndarray) -> Iterator[Place]:
        """Where tokens int64[n] lead whose targets are nodes int64[n], each once."""
        x, depth = self._contexts, self._depth[nodes]
        surroundings = x.base[depth] + x.after_at(depth, tokens)
        for node, group, around in np.unique(np.stack([nodes, self._rule.set_of[tokens], surroundings], 1), axis=0).tolist():
            yield Place(node, -1, group, x.members[around])

    def place_of_start(self) -> Place:
        """Where the text begins."""
        behaviour = self._members[int(self._pair_surroundings[self._start])]
        return Place(self._constraint.start, -1, int(self._pair_set[self._start]), behaviour)

    def may_come(self, places: Iterable[Place], tokens: np.ndarray) -> np.ndarray:
        """bool[n], whether tokens may come next at one of some places of a node, in some of their behaviours."""
        x, out = self._contexts, np.zeros(len(tokens), bool)
        for place in places:
            if out.all():
                break
            alone = x.single[list(place.behaviours)]
            bits = np.bitwise_or.reduce(x.follows[alone], axis=0).take(x.column[int(self._depth[place.node])].take(tokens))
            held = self._rule.set_holds(np.array([place.group]), tokens)
            out |= (bits & np.where(held, np.uint8(ANY_APART), np.uint8(ANY))) > 0
        return out

    def _possible(self, pairs: np.ndarray) -> np.ndarray:
        """bool[n], whether pairs may be completed in some surroundings."""
        node, surroundings, sets = (of[pairs] for of in (self._pair_node, self._pair_surroundings, self._pair_set))
        out = self._constraint.accept[node] & self._any_final[surroundings]
        unsure = self._ambiguous[surroundings] & ~out
        for at in np.unique(node[unsure]).tolist():
            here = np.flatnonzero(unsure & (node == at))
            out[here] = self._any_of(at, surroundings[here], sets[here], ANY, ANY_APART)
        return out

    def _open_tokens(self) -> list[_Case]:
        """The tokens without a distance into nodes that many lead to."""
        x, out = self._contexts, []
        for node, wide in self.wide.items():
            if not wide.open.any():
                continue
            if wide.depth:
                tokens, _, sets = self._open_of(wide)
                before, alone = x.inside(wide.depth)
                low, high = np.searchsorted(before, tokens), np.searchsorted(before, tokens, side="right")
                for token, group, begin, end in zip(tokens.tolist(), sets.tolist(), low.tolist(), high.tolist()):
                    behaviour = [x.members[one][0] for one in alone[begin:end].tolist()]
                    out.append(_Case(node, token, -1, group, behaviour, (~wide.waiting[begin:end]).tolist(), []))
                continue
            tokens, sets, completes = self._of_open[node]
            for token, group, parts in zip(tokens.tolist(), sets.tolist(), completes.listed()):
                out.append(_Case(node, token, -1, group, *parts, []))
        return out


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


def _held(row: np.ndarray, tokens: list[int]) -> list[bool]:
    """Which tokens a bit row uint32[W] holds."""
    if len(tokens) > _SINGLE:
        return holds(row, np.array(tokens, np.int64)).tolist()
    return [bool(row.item(token >> 5) >> (token & 31) & 1) for token in tokens]


def _by_value(values: np.ndarray) -> Callable[[int], np.ndarray]:
    """Where numbers stand in an array, ascending."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    return lambda value: order[np.searchsorted(ordered, value) : np.searchsorted(ordered, value, side="right")]


class _Into(NamedTuple):
    """Tokens into a wide node, and their cases; `known`: those of rows that were asked for."""

    tokens: list[int]
    cases: list[_Case]
    known: dict[int, list[tuple[int, _Case]]]

    def of_row(self, number: int, row: np.ndarray) -> list[tuple[int, _Case]]:
        """The tokens in a bit row that are completed in some behaviours, with their cases."""
        if number not in self.known:
            found = itertools.compress(zip(self.tokens, self.cases), _held(row, self.tokens))
            self.known[number] = [(token, case) for token, case in found if any(case.completes)]
        return self.known[number]


class Place(NamedTuple):
    """What a token leaves behind at a node: itself where many lead there (else -1), its forbidden set, and behaviours."""

    node: int
    token: int
    group: int
    behaviours: tuple[int, ...]


class _Case(NamedTuple):
    """What has no distance: a token into a wide node, or a pair (token -1) of the others, with its forbidden set `group`.

    It may lead to these behaviours; a text can be completed or not in each, perhaps `through` others of the kind."""

    node: int
    token: int
    pair: int
    group: int
    behaviour: list[int]
    completes: list[bool]
    through: list[_Case]

    @property
    def completed(self) -> tuple[int, ...]:
        """The behaviours in which a text can be completed."""
        return tuple(itertools.compress(self.behaviour, self.completes))
