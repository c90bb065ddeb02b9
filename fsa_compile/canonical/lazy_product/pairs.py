"""`LazyPairs`: a constraint beside the tokenizer's filter, as pairs of a node and what a last token leaves behind.

What may come next after a token depends on its forbidden set and on what the filter may be in wherever the token stands
(`Contexts`), so that few pairs stand for many tokens. Tokens into nodes that many lead to are bit rows, all others are listed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.index_sets import numbered
from fsa_compile.arrays.integers import order_of
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.encoder.pair_rule import PairRule
from fsa_compile.canonical.filter.contexts import ALL, ALL_APART, ANYWHERE, DEPTHS, Contexts
from fsa_compile.canonical.filter.row_facts import KnownRow
from fsa_compile.canonical.lazy_product.certain_steps import CertainSteps

_LISTED = 512
"""Token sets up to this size are listed token by token."""
_ALIKE = 2048
"""So are those up to this size whose tokens are of no more than `_KINDS` kinds, such as numbers."""
_KINDS = 4
_AT_A_NODE = 1 << 14
"""Up to this many pairs, all pairs of tokens at a node are tested at once."""
_REMEMBERED = 24
"""What more tests at a node say of the pair rule is remembered."""


class Surplus(NamedTuple):
    """What nodes have beyond their tokens, for constraints with a stack (`stack_distances`).

    Attributes:
      beside: (a, b) of nodes, b ascending in order of discovery: the tokens of b may come wherever those of a may. No token leads
        to b.
      delay: int64[N], tokens that it takes to complete a text from a node, beside those of the node.
    """

    beside: tuple[tuple[int, int], ...]
    delay: np.ndarray

    @classmethod
    def none(cls, num_nodes: int) -> Surplus:
        """That of a regular constraint."""
        return cls((), np.zeros(num_nodes, np.int64))


def is_listed(row: KnownRow) -> bool:
    """Whether the tokens of a bit row are few enough to be listed."""
    return row.size <= _LISTED or (row.size <= _ALIKE and row.kinds <= _KINDS)


class LazyPairs:
    """The pairs of a constraint.

    Axes: E listed tokens.

    Args:
      constraint: a regular one.
      state: of the filter, before the first token.
      last: the token before the first, -1 for none.
      surplus: of constraints with a stack.

    Attributes:
      fits: whether the constraint's nodes lie each at one depth (see `Contexts`); nothing else is known where they do not.
      source, token, target: int64[E], ascending by source.
      pair: int64[E], which pair each one leads to; the number of pairs for those into wide nodes.
      groups: of each node its larger sets, as (row, target).
    """

    def __init__(self, constraint: CompiledConstraint, contexts: Contexts, state: int, last: int, surplus: Surplus) -> None:
        self._constraint, self._contexts, self._surplus = constraint, contexts, surplus
        self._rule: PairRule = contexts.rule
        self._sets = len(self._rule.set_offset) - 1
        self._between = contexts.between
        self._list_tokens()
        self._state, self._surroundings = state, contexts.of_state(state)
        self.fits = self._find_depths(contexts.depth_of(self._surroundings))
        if self.fits:
            self._number_pairs(int(self._rule.set_of[last]) if last >= 0 else 0)
            self._follow_tokens()

    def row(self, number: int) -> np.ndarray:
        """A bit row of the constraint."""
        return self._constraint.rows[number]

    def _list_tokens(self) -> None:
        """Lists arcs and the tokens of smaller sets, and keeps the larger sets."""
        c = self._constraint
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.source = np.repeat(np.arange(c.num_nodes), c.arc_offset[1:] - c.arc_offset[:-1])
        self.token, self.target = c.arc_token.astype(np.int64), c.arc_next.astype(np.int64)
        owner = np.repeat(np.arange(c.num_nodes), c.group_offset[1:] - c.group_offset[:-1]).tolist()
        self._known: dict[int, KnownRow] = {}
        known: dict[int, np.ndarray | None] = {}
        listed: list[tuple[int, np.ndarray, int]] = []
        for node, number, target in zip(owner, c.group_row.tolist(), c.group_next.tolist()):
            if number not in known:
                row = self._known[number] = self._contexts.rows(c.rows[number])
                # Tokens that end inside characters are followed one by one.
                small = not row.is_between or is_listed(row)
                known[number] = row.tokens if small else None
            tokens = known[number]
            if tokens is None:
                self.groups.setdefault(node, []).append((number, target))
            else:
                listed.append((node, tokens, target))
        if listed:
            size = [len(tokens) for _, tokens, _ in listed]
            source = np.concatenate([self.source, np.repeat([node for node, _, _ in listed], size)])
            order = order_of(source)
            self.source = source[order]
            self.token = np.concatenate([self.token, *(tokens for _, tokens, _ in listed)])[order]
            self.target = np.concatenate([self.target, np.repeat([target for _, _, target in listed], size)])[order]

    def _find_depths(self, first: int) -> bool:
        c, tail = self._constraint, self._contexts.tail
        at = tail.take(self.token)
        if at.min(initial=0) == -2:
            self._keep(at != -2)
            at = tail.take(self.token)
        self._depth = depth = np.full(c.num_nodes, -1)
        depth[c.start] = first
        for groups in self.groups.values():
            for _, target in groups:
                depth[target] = 0
        certain = at >= 0
        depth[self.target[certain]] = at[certain]
        self._spread(depth)
        inside = np.flatnonzero(~certain)
        if len(inside):
            length, begin, end = self._contexts.length[self.token[inside]], self.source[inside], self.target[inside]
            for _ in range(DEPTHS):
                self._spread(depth)
                before = depth.take(begin)
                known = before >= 0
                depth[end[known]] = (before - length)[known]
            some = np.flatnonzero(depth[self.source] >= 0)
            if len(some) < len(self.source):  # nothing leads to their sources
                self._keep(depth[self.source] >= 0)
                at = at[some]
            at = np.where(at >= 0, at, depth[self.source] - self._contexts.length[self.token])
        right = bool((depth[self.target] == at).all()) and depth[c.start] == first and not (at < 0).any()
        right = right and all(depth[a] in (-1, depth[b]) for a, b in self._surplus.beside)
        return right and all(depth[target] == 0 for groups in self.groups.values() for _, target in groups)

    def _spread(self, depth: np.ndarray) -> None:
        """Nodes beside others lie at their depth; nothing leads to those at -1."""
        for a, b in self._surplus.beside:
            if depth[a] >= 0:
                depth[b] = depth[a]

    def _keep(self, chosen: np.ndarray) -> None:
        self.source, self.token, self.target = self.source[chosen], self.token[chosen], self.target[chosen]

    def _number_pairs(self, first: int) -> None:
        """Numbers what listed tokens lead to, as node, surroundings and forbidden set."""
        c, x = self._constraint, self._contexts
        depth = self._depth[self.target]
        after = x.after_at(depth, self.token)
        if not after.all():
            self._keep(after > 0)
            depth, after = depth[after > 0], after[after > 0]
        surroundings = x.base[depth] + after
        is_wide, into = self._find_wide()
        to_wide = is_wide[self.target]
        self._follows, self._members = x.follows, x.members
        self._all_final, self._any_final, self._ambiguous = x.all_final, x.any_final, x.ambiguous
        unsure = x.ambiguous[surroundings] & ~to_wide
        if unsure.any():
            surroundings = self._told_apart(surroundings, unsure, is_wide)
            if (surroundings < 0).any():
                self._keep(surroundings >= 0)
                to_wide, surroundings = to_wide[surroundings >= 0], surroundings[surroundings >= 0]
        listed = np.flatnonzero(~to_wide)
        size = len(self._follows)
        place = self.target[listed] * size + surroundings[listed]
        places, place = numbered(np.append(place, c.start * size + self._surroundings), c.num_nodes * size)
        sets, group = numbered(np.append(self._rule.set_of[self.token[listed]], first), self._sets)
        pair, number = numbered(place * len(sets) + group, len(places) * len(sets))
        self._start = int(number[-1])
        place, group = np.divmod(pair, len(sets))
        self._pair_node, self._pair_surroundings = np.divmod(places[place], size)
        self._pair_set = sets[group]
        self.pair = np.full(len(self.token), len(pair))
        self.pair[listed] = number[:-1]
        self._offset = np.searchsorted(self._pair_node, np.arange(c.num_nodes + 1))
        self._is_wide, self._into_wide = is_wide, into
        self._first = self.source.searchsorted(np.arange(c.num_nodes + 1)).tolist()

    def _find_wide(self) -> tuple[np.ndarray, dict[int, list[int]]]:
        """bool[N], nodes that larger sets lead to, and those inside characters behind them; and the rows of these sets."""
        is_wide = np.zeros(self._constraint.num_nodes, bool)
        into: dict[int, list[int]] = {}
        for groups in self.groups.values():
            for row, target in groups:
                into.setdefault(target, []).append(row)
        if into:
            is_wide[list(into)] = True
            inside = self._depth[self.target] > 0
            for _ in range(DEPTHS):
                is_wide[self.target[inside & is_wide[self.source]]] = True
        return is_wide, into

    def _told_apart(self, surroundings: np.ndarray, unsure: np.ndarray, is_wide: np.ndarray) -> np.ndarray:
        """Surroundings that also depend on the states in which the filter can be at the tokens' sources; -1 for tokens that
        cannot come there."""
        c, x = self._constraint, self._contexts
        sets = x.state_sets()
        inner = np.flatnonzero(~is_wide[self.target])
        links, link = numbered(self.source[inner] * c.num_nodes + self.target[inner], c.num_nodes**2)
        steps, step = numbered(link * x.num_classes + x.class_of[self.token[inner]], len(links) * x.num_classes)
        link, kind = np.divmod(steps, x.num_classes)
        source, target = np.divmod(links[link], c.num_nodes)
        begin = np.searchsorted(source, np.arange(c.num_nodes + 1)).tolist()
        kinds, targets, distance = kind.tolist(), target.tolist(), c.distance.tolist()
        beside: dict[int, list[int]] = {}
        for a, b in self._surplus.beside:
            beside.setdefault(a, []).append(b)
        states = {c.start: sets.number(frozenset([self._state]))}
        for node in np.flatnonzero(is_wide).tolist():
            states[node] = sets.number(frozenset([ANYWHERE - int(self._depth[node])]))
        reached = sets.reached(states, begin, kinds, targets, distance, beside)
        numbers: dict[tuple[int, ...], int] = {}
        most = DEPTHS * (max(reached, default=0) + 1)
        distinct, place = numbered(np.array(reached, np.int64) * DEPTHS + self._depth[target], most)
        number = np.full(len(distinct), -1)
        for i, (which, depth) in enumerate(zip((distinct // DEPTHS).tolist(), (distinct % DEPTHS).tolist())):
            behaviours = sets.behaviours(which, depth)
            if behaviours:
                number[i] = len(x.follows) + numbers.setdefault(behaviours, len(numbers))
        parts = [x.joined(behaviours) for behaviours in numbers]
        rows = np.stack([part[0] for part in parts]) if parts else x.follows[:0]
        ends = np.array([part[1:] for part in parts], bool).reshape(-1, 2)
        self._follows = np.concatenate([x.follows, rows])
        self._members = [*x.members, *numbers]
        self._all_final = np.append(x.all_final, ends[:, 0])
        self._any_final = np.append(x.any_final, ends[:, 1])
        more_than_one = np.array([len(behaviours) > 1 for behaviours in numbers], bool)
        self._ambiguous = np.append(x.ambiguous, more_than_one & ((rows & 3) != rows >> 2).any(1) | (ends[:, 0] != ends[:, 1]))
        out = surroundings.copy()
        found = number[place[step]]
        chosen = unsure[inner] | (found < 0)
        out[inner[chosen]] = found[chosen]
        return out

    def _follow_tokens(self) -> None:
        """Finds which listed tokens lead to each pair."""
        self._steps, others = self._certain_steps()
        self._others = others[order_of(self.pair[others])]
        self._others_begin = np.searchsorted(self.pair[self._others], np.arange(len(self._pair_node) + 1))

    def _certain_steps(self) -> tuple[CertainSteps, np.ndarray]:
        """What listed tokens may always follow, for nodes with few pairs; and the listed tokens of all other nodes."""
        x, every = self._contexts, np.arange(len(self.source))
        pairs = self._offset[1:] - self._offset[:-1]
        tokens = np.bincount(self.source, minlength=len(pairs))
        tests = pairs * tokens
        known = (tests <= _AT_A_NODE) & ~self._is_wide
        others = every[:0]
        edges = every
        if not known.all():
            of_known = known[self.source]
            edges, others = every[of_known], every[~of_known]
        source = self.source[edges]
        count = pairs[source]
        size = len(self._pair_node), len(self.source)
        if not len(count) or not (total := int(count.sum())):
            none = every[:0]
            return CertainSteps(known, none, none, none, size), others
        upto = count.cumsum()
        before = (self._offset[source] + count - upto).repeat(count)
        before += np.arange(total)
        width = self._follows.shape[1]
        column = x.column_at(self._depth[source], self.token[edges])
        bits = self._follows.ravel().take((self._pair_surroundings * width).take(before) + column.repeat(count))
        bits &= self._masks(np.where(known, tests, 0), tokens, edges, count, before, bits)
        hit = bits.nonzero()[0]
        edge = edges.repeat(count).take(hit)
        return CertainSteps(known, before.take(hit), edge, self.pair.take(edge), size), others

    def _masks(
        self, tests: np.ndarray, tokens: np.ndarray, edges: np.ndarray, count: np.ndarray, before: np.ndarray, bits: np.ndarray
    ) -> np.ndarray:
        """uint8[n], by which bits of `Contexts.follows` listed tokens may always follow pairs, which run first.

        Args:
          tests: int64[N], how many of these lie at each node.
          tokens: int64[N], listed tokens of each node.
          edges, count: int64[e], the listed tokens, and the number of pairs of each one.
          before: int64[n], the pairs.
          bits: uint8[n], their bits. Where both or none are set, the pair rule need not be asked.
        """
        unsure = (bits ^ bits >> 1) & 1
        large = (tests > _REMEMBERED).nonzero()[0].tolist()
        blocks, places = [], []
        if large:
            end, first = tests.cumsum().tolist(), tokens.cumsum().tolist()
            for node in large:
                part = slice(end[node] - int(tests[node]), end[node])
                if unsure[part].any():
                    unsure[part] = 0
                    sets = self._pair_set[self._offset[node] : self._offset[node + 1]]
                    blocks.append((self.token[first[node] - int(tokens[node]) : first[node]], sets))
                    places.append(part)
        out = np.full(len(bits), ALL | ALL_APART, np.uint8)
        small = unsure.nonzero()[0]
        if len(small):
            held = self._rule.set_holds(self._pair_set[before[small]], self.token[edges.repeat(count)[small]])
            out[small] = np.where(held, np.uint8(ALL_APART), np.uint8(ALL))
        for part, mask in zip(places, self._contexts.held(blocks)):
            out[part] = mask
        return out
