"""`DecidedDistances`: whether the distances of a factored canonical constraint are all there is, and the tokens that can be
completed in some states of the filter only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from fsa_compile.artifact.bitmask import words_of
from fsa_compile.canonical.filter.contexts import ALL, ALL_APART, ANY, ANY_APART
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.canonical.lazy_product.exceptions import Case, ExceptedDistances, Into

_ROUNDS = 8
"""Rounds in which tokens that can be completed in some states only are looked at."""


class DecidedDistances(ExceptedDistances):
    """Distances with the proof that what has none cannot be completed, where there is one (`decided`)."""

    def decided(self) -> bool:
        """Whether it is certain what can be completed: of every token in all states that it may lead to, or in all but those of
        some behaviours, the same for many tokens of a node (`excepted`). Tokens of the second kind get a distance here."""
        cases = self._cases = [*self._open_pairs(), *self._open_tokens()]
        by_pair = {case.pair: case for case in cases if case.token < 0}
        by_token = {(case.node, case.token): case for case in cases if case.token >= 0}
        of_node: dict[int, list[Case]] = {}
        for case in by_token.values():
            of_node.setdefault(case.node, []).append(case)
        self._into = {node: Into(some, self._constraint.rows) for node, some in of_node.items()}
        changed = [case for case in cases if any(case.completes)]
        if not changed:
            return True
        for _ in range(_ROUNDS):
            found = self._completed_by(changed, cases, by_pair, by_token)
            if found is None:
                return False
            if not found:
                some = [case for case in cases if any(case.completes)]
                return self.note_excepted(some) and self._with_levels(some)
            changed = found
        return False

    def _completed_by(
        self, changed: list[Case], cases: list[Case], by_pair: dict[int, Case], by_token: dict[tuple[int, int], Case]
    ) -> list[Case] | None:
        """Looks at what cannot be completed yet, and may go on with tokens that sometimes can, those that changed since the last
        round: notes what is completed so, and returns those cases; None where that is not certain."""
        x, out = self._contexts, []
        before = self._before(changed)
        for case in self._other_pairs(before, by_pair):  # what is certain otherwise may go on with these tokens
            by_pair[case.pair] = case
            cases.append(case)
        among = {id(case) for case in changed}
        after = {node: self._leading_to(among, node, by_pair, by_token) for node in before}
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
        self, cases: list[Case], after: dict[int, list[tuple[int, Case]]]
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

    def _leading_to(
        self, among: set[int], node: int, by_pair: dict[int, Case], by_token: dict[tuple[int, int], Case]
    ) -> list[tuple[int, Case]]:
        """The tokens of a node that lead to some cases, given by `id`, with these."""
        found: list[tuple[int, Case | None]] = []
        low, high = self._first[node], self._first[node + 1]
        open_ = low + (self.cost[low:high] >= FAR).nonzero()[0]
        for token, target, pair in zip(*(of[open_].tolist() for of in (self.token, self.target, self.pair))):
            found.append((token, by_token.get((target, token)) if target in self.wide else by_pair.get(pair)))
        out = [(token, case) for token, case in found if case is not None and id(case) in among]
        for row, target in self.groups.get(node, ()):
            if target in self._into:
                out += [(case.token, case) for case in self._into[target].in_row(row) if id(case) in among]
        return out

    def _with_levels(self, some: list[Case]) -> bool:
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
            at, kind = level[id(case)], 0 if all(case.completes) else self.kind_of(case)
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
            wide.close(every)
            alike = ats[0] == ats[-1] and bool((ats == ats[0]).all())
            levels = [int(ats[0])] if alike else sorted(set(ats.tolist()))
            wide.levels += [(at, every if alike else words_of(tokens[ats == at], size)) for at in levels]
            self._unless[node] = {kind: words_of(tokens[kinds == kind], size) for kind in {*kinds.tolist()} - {0}}
            self._kind_into[node] = {token: kind for token, _, kind in found if kind}
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

    def _ends(self, case: Case) -> bool:
        """Whether the text may end in all behaviours in which it can be completed."""
        x = self._contexts
        return bool(self._constraint.accept[case.node]) and all(x.all_final[x.single[b]] for b in case.completed)

    def _open_pairs(self) -> list[Case]:
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
                out.append(Case(node, -1, pair, group, *completes[i], []))
        return out

    def _before(self, cases: list[Case]) -> list[int]:
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

    def _other_pairs(self, nodes: list[int], known: dict[int, Case]) -> list[Case]:
        """The pairs of nodes without a distance that no behaviour lets complete."""
        out = []
        for pair in self._pairs_of(np.array(nodes, np.int64)).tolist():
            if pair not in known:
                behaviour = list(self._members[self._pair_surroundings[pair]])
                none = [False] * len(behaviour)
                out.append(Case(int(self._pair_node[pair]), -1, pair, int(self._pair_set[pair]), behaviour, none, []))
        return out

    def undecided(self) -> Iterator[tuple[Place, dict[int, bool]]]:
        """The places that some behaviours do not let complete, after `decided`, and which of these complete."""
        for case in self._cases:
            if not all(case.completes):
                at = Place(case.node, case.token, case.group, tuple(sorted(case.behaviour)))
                yield at, dict(zip(case.behaviour, case.completes))

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

    def _open_tokens(self) -> list[Case]:
        """The tokens without a distance into nodes that many lead to."""
        x, out = self._contexts, []
        for node, wide in self.wide.items():
            if not wide.is_open:
                continue
            if wide.depth:
                tokens, _, sets = self._open_of(wide)
                before, alone = x.inside(wide.depth)
                low, high = np.searchsorted(before, tokens), np.searchsorted(before, tokens, side="right")
                for token, group, begin, end in zip(tokens.tolist(), sets.tolist(), low.tolist(), high.tolist()):
                    behaviour = [x.members[one][0] for one in alone[begin:end].tolist()]
                    out.append(Case(node, token, -1, group, behaviour, (~wide.waiting[begin:end]).tolist(), []))
                continue
            tokens, sets, completes = self._of_open[node]
            for token, group, parts in zip(tokens.tolist(), sets.tolist(), completes.listed()):
                out.append(Case(node, token, -1, group, *parts, []))
        return out


class Place(NamedTuple):
    """What a token leaves behind at a node: itself where many lead there (else -1), its forbidden set, and behaviours."""

    node: int
    token: int
    group: int
    behaviours: tuple[int, ...]
