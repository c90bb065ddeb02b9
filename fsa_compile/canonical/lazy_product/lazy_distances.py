"""`LazyDistances`: how many canonical tokens complete a text from each node of a constraint, after each token into it.

The tokenizer's filter is followed beside the constraint while decoding, so a node of the constraint stays one node, and its
tokens stay as they are but for those after which nothing can be completed. Whether that is so is asked of what a last token
leaves behind wherever it stands (`Contexts`):

    distance(node, t) = min over next tokens u that may always follow t of 1 + distance(target(u), u),    0 where a text may
                        always end after t,

so there is a way to the end in as many tokens whatever came before t. These are least distances, found in rounds. Then it is
checked that no token without a distance might do all the same, in some surroundings: then what was left out is exactly what
cannot be completed. Tokens that can be completed but in some states are kept, with a note of these states
(`decision`). Where that does not do, the states have to be told apart by nodes (`product_graph`).

Tokens into nodes that many lead to are bit rows here, all others are listed.
"""

from __future__ import annotations

import array
import copy
from typing import Self, TypeAlias

import numpy as np

from fsa_compile.arrays.integers import distinct, order_of
from fsa_compile.arrays.ranges import joined, segment_sizes
from fsa_compile.artifact.bitmask import holds, tokens_of, words_of
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.filter.contexts import ALL, ALL_APART, Contexts
from fsa_compile.canonical.lazy_product.certain_steps import CertainSteps
from fsa_compile.canonical.lazy_product.completions import FAR, Completed, Completions, WideNode, portions
from fsa_compile.canonical.lazy_product.pairs import Surplus, is_listed
from fsa_compile.limits import Deadline

Behaviours: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Those in which a token is completed, and those in which it is not."""
_DOING = "completing the canonical tokens of the constraint"
_TRIED = 24
"""Next tokens of a round that are tried after the tokens of a bit row."""
_AT_ONCE = 1 << 10
"""Up to this many pairs in a round, all of them are tested."""
_MARKED = 2048
"""Above this many pairs, unsettled ones are found with a mark array instead of a sort."""


class LazyDistances(Completions):
    """The distances of a constraint.

    Axes: E listed tokens.

    Args:
      constraint: a regular one.
      state: of the filter, before the first token.
      last: the token before the first, -1 for none.
      surplus: None for that of a regular constraint. For others distances are found by `with_exits` only.

    Attributes:
      fits: whether the constraint's nodes lie each at one depth (see `Contexts`); nothing else is known where they do not.
      source, token, target: int64[E], ascending by source.
      cost: int64[E], tokens that each one and the shortest completion after it take, `FAR` for no completion.
      groups: of each node its larger sets, as (row, target).
      wide: by node.
      start: distance from the start.
      excepted: of some nodes, to which lists of behaviours some of its tokens may not lead, and the kinds of these tokens; see
        `decision`.
    """

    def __init__(
        self,
        constraint: CompiledConstraint,
        contexts: Contexts,
        deadline: Deadline,
        state: int,
        last: int,
        surplus: Surplus | None = None,
    ) -> None:
        super().__init__(constraint, contexts, state, last, surplus or Surplus.none(constraint.num_nodes))
        self._deadline = deadline
        self._delays = bool(self._surplus.delay.any())
        if self.fits:
            self._exits: dict[int, list[tuple[int, np.ndarray]]] = {}
            if surplus is None:
                self._begin()
                self._settle()

    def with_exits(self, exits: dict[int, list[tuple[int, np.ndarray]]]) -> Self:
        """The distances where more tokens may follow: of nodes rows of these, uint32[W], each with the distance after them."""
        out = copy.copy(self)
        out._exits = {node: [(distance + 1, row) for distance, row in some] for node, some in exits.items()}
        out._begin()
        out._settle()
        return out

    @property
    def distances(self) -> np.ndarray:
        """int64[n], the distances of all nodes and tokens but those in `wide`, `FAR` for none."""
        return self._distance[:-1]

    @property
    def nearest(self) -> np.ndarray:
        """int64[N], the least distance of each node over the tokens that lead to it."""
        out = np.full(self._constraint.num_nodes, FAR, np.int64)
        np.minimum.at(out, self._pair_node, self._distance[:-1])
        for node, wide in self.wide.items():
            out[node] = min([out[node], *(level for level, _ in wide.levels)])
        return out

    def _begin(self) -> None:
        """Forgets all distances."""
        c, x = self._constraint, self._contexts
        self._distances = array.array("q", [FAR]) * (len(self._pair_node) + 1)  # the last stands for no pair
        self._distance = np.frombuffer(self._distances, np.int64)
        self._mark = np.empty(len(self._pair_node), np.int64)
        self.cost = np.full(len(self.token), FAR, np.int64)
        self.excepted: dict[int, dict[int, list[int]]] = {}
        self._lists: list[set[int]] = []
        self._kinds: list[Behaviours] = []
        """What those tokens complete that are completed in some behaviours only, and what not: kinds count from 1."""
        self._kind_numbers: dict[Behaviours, int] = {}
        self._kinds_met: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {}
        """The same numbers by behaviours, and whether each completes."""
        self._kind = np.zeros(len(self.token), np.int32)
        self._unless: dict[int, dict[int, np.ndarray]] = {}
        """Of wide nodes the tokens uint32[W] of each kind."""
        self._kind_into: dict[int, dict[int, int]] = {}
        """And the kinds of these tokens."""
        self.wide: dict[int, WideNode] = {}
        wide_edges = np.flatnonzero(self._is_wide[self.target])
        wide_edges = wide_edges[order_of(self.target[wide_edges])]
        begin = np.searchsorted(self.target[wide_edges], np.arange(c.num_nodes + 1))
        for node in np.flatnonzero(self._is_wide).tolist():
            edges = wide_edges[begin[node] : begin[node + 1]]
            inside = words_of(self.token[edges], c.vocab_size)
            if node in self._into_wide:
                rows = c.rows[self._into_wide[node][0]].copy()
                for row in self._into_wide[node][1:]:
                    rows |= c.rows[row]
                inside |= rows & self._between
            at = int(self._depth[node])
            waiting = holds(inside, x.inside(at)[0]) if at else np.zeros(0, bool)
            self.wide[node] = WideNode(at, inside, inside.copy(), [], edges, waiting)

    def _settle(self) -> None:
        c, x, steps = self._constraint, self._contexts, self._steps
        order, begin = self._others, self._others_begin
        size = begin[1:] - begin[:-1]
        followed = size > 0
        self._new: list[np.ndarray] = []
        self._new_wide: dict[int, np.ndarray] = {}
        self._later: dict[int, tuple[list[np.ndarray], list[tuple[int, np.ndarray]]]] = {}
        """Nodes with delays, by the distance at which they are settled."""
        exits = self._listed_exits()
        self._of_open: dict[int, tuple[np.ndarray, np.ndarray, Completed]] = {}
        """The open tokens of wide nodes, their forbidden sets, and what `_completes` said, when nothing more was found."""
        self._close(np.flatnonzero(c.accept[self._pair_node] & self._all_final[self._pair_surroundings]), 0)
        for node, wide in self.wide.items():
            if c.accept[node] and not wide.depth:
                self._close_bits(node, wide.open & x.ending, 0)
        level = 0
        while True:
            self._deadline.check(_DOING)
            level += 1
            if self._later:
                self._take_later(level - 1)
            new = np.concatenate(self._new) if self._new else order[:0]
            bits, self._new, self._new_wide = self._new_wide, [], {}
            if len(new) and not bits and not self._delays and not self._exits:
                new, level = self._by_steps(steps, new, followed, level)
            leaving = exits.pop(level, None)
            if not len(new) and not bits and leaving is None:
                if self._later or exits:
                    level = max(level, min([*self._later, *(least - 1 for least in exits)]))
                    continue
                self._note_costs()
                if not self._last_resort(level):
                    break
            if len(new):
                self._close_once(steps.before(new), level)
            if not bits and leaving is None and not followed[new].any():
                continue
            edges = [order[joined(begin[new], size[new])]]
            if bits:
                into = np.concatenate([self._listed_in(node, tokens) for node, tokens in bits.items()])
                self.cost[into] = level
                self._close_once(steps.before_tokens(into), level)
                edges.append(into[~steps.known[self.source[into]]])
            found = np.concatenate(edges) if len(edges) > 1 else edges[0]
            source, token = self.source[found], self.token[found]
            if bits:
                source, token = self._with_sets(source, token, bits)
            if leaving is not None:
                source, token = np.append(source, leaving[0]), np.append(token, leaving[1])
            if self.wide:
                for node in distinct(source[self._is_wide[source]]).tolist():
                    self._close_wide(node, token[source == node], level)
            self._close_pairs(source, token, level)
        for wide in self.wide.values():
            wide.settle(self.cost, self.token)
        self.start = int(self._distance[self._start])

    def _listed_in(self, node: int, tokens: np.ndarray) -> np.ndarray:
        """The listed ones of some tokens, uint32[W], into a wide node."""
        into = self.wide[node].edges
        return into[holds(tokens, self.token[into])]

    def _listed_exits(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Sources and tokens of exits by cost, of larger rows some tokens only."""
        out: dict[int, tuple[list[int], list[np.ndarray]]] = {}
        for node, some in self._exits.items():
            for cost, row in some:
                known = self._contexts.rows(row & self._between)
                found = known.tokens if is_listed(known) else known.first_of(row, _TRIED)
                sources, tokens = out.setdefault(cost, ([], []))
                sources.append(node)
                tokens.append(np.append(found, tokens_of(row & ~self._between)))
        return {
            cost: (np.repeat(sources, [len(part) for part in tokens]), np.concatenate(tokens))
            for cost, (sources, tokens) in out.items()
        }

    def _by_steps(self, steps: CertainSteps, new: np.ndarray, followed: np.ndarray, level: int) -> tuple[np.ndarray, int]:
        """Rounds that find pairs by certain steps alone, as long as no other listed token leads to new ones (`followed`, bool of
        each pair): the last pairs found, and the level that is next."""
        distance, others = self._distance, followed.any()
        if steps.few:
            pairs, distances, before = new.tolist(), self._distances, steps.all_before
            while pairs and not (others and followed[pairs].any()):
                found = []
                for pair in pairs:
                    for other in before[pair]:
                        if distances[other] == FAR:
                            distances[other] = level
                            found.append(other)
                pairs, level = found, level + 1
            return np.array(pairs, np.int64), level
        while len(new) and not (others and followed[new].any()):
            self._deadline.check(_DOING)
            some = steps.before(new)
            if len(distance) < _MARKED + 8 * len(some):
                marked = np.zeros(len(distance), bool)
                marked[some] = True
                new = (marked & (distance == FAR)).nonzero()[0]
            else:
                new = self._once(some[distance.take(some) == FAR])
            distance[new] = level
            level += 1
        return new, level

    def _note_costs(self) -> None:
        """Brings the costs of listed tokens up to date, but for those into nodes that many tokens lead to."""
        listed = ~self._is_wide[self.target]
        self.cost[listed] = np.minimum(self._distance[self.pair[listed]] + 1, FAR)

    def _with_sets(self, source: np.ndarray, token: np.ndarray, new: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Adds some tokens of the larger sets that lead to tokens with a new distance."""
        sources, tokens = [source], [token]
        known: dict[tuple[int, int], np.ndarray] = {}
        for node, groups in self.groups.items():
            wide = self.wide.get(node)
            if not (wide.is_open if wide else (self._distance[self._offset[node] : self._offset[node + 1]] == FAR).any()):
                continue
            for row, target in groups:
                if target in new:
                    if (row, target) not in known:
                        known[row, target] = self._known[row].first_of(new[target], _TRIED)
                    some = known[row, target]
                    sources.append(np.full(len(some), node))
                    tokens.append(some)
        return np.concatenate(sources), np.concatenate(tokens)

    def _close(self, pairs: np.ndarray, level: int) -> None:
        """Gives pairs without a distance, each listed once, their distance."""
        if not len(pairs):
            return
        if not self._delays:
            self._distance[pairs] = level
            self._new.append(pairs)
            return
        delay = self._surplus.delay[self._pair_node[pairs]]
        self._distance[pairs] = level + delay
        for later in np.unique(delay).tolist():
            self._later.setdefault(level + later, ([], []))[0].append(pairs[delay == later])

    def _close_once(self, pairs: np.ndarray, level: int) -> None:
        """The same for pairs that may have one, and may be listed twice."""
        self._close(self._once(pairs[self._distance[pairs] == FAR]), level)

    def _once(self, pairs: np.ndarray) -> np.ndarray:
        """Some pairs without those that come again."""
        if len(pairs) < 2:
            return pairs
        number = np.arange(len(pairs))
        self._mark[pairs] = number  # of equal pairs one number stays: that one is kept
        return pairs[self._mark.take(pairs) == number]

    def _close_bits(self, node: int, bits: np.ndarray, level: int) -> None:
        if bits.any():
            wide = self.wide[node]
            wide.close(bits)
            if self._delays:
                level += int(self._surplus.delay[node])
                self._later.setdefault(level, ([], []))[1].append((node, bits))
            else:
                self._new_wide[node] = bits | self._new_wide[node] if node in self._new_wide else bits
            wide.levels.append((level, bits))

    def _take_later(self, level: int) -> None:
        """Goes on from everything settled at a distance of at most `level`."""
        for due in sorted(due for due in self._later if due <= level):
            pairs, wide = self._later.pop(due)
            self._new += pairs
            for node, bits in wide:
                self._new_wide[node] = bits | self._new_wide[node] if node in self._new_wide else bits

    def _close_wide(self, node: int, tokens: np.ndarray, level: int) -> None:
        """Settles the tokens into a node after which, wherever they stand, one of some tokens may come."""
        wide, x = self.wide[node], self._contexts
        if not wide.is_open:
            return
        if wide.depth:
            settled = wide.waiting & x.following_inside(wide.depth, tokens)
            if settled.any():
                wide.waiting ^= settled
                waiting = words_of(x.inside(wide.depth)[0][wide.waiting], self._constraint.vocab_size)
                self._close_bits(node, wide.open & ~waiting, level)
            return
        rank = x.rank.take(tokens)
        rank.sort()
        self._close_bits(node, wide.open & x.always_one_of(x.order.take(rank[:_TRIED])), level)

    def _pairs_of(self, nodes: np.ndarray) -> np.ndarray:
        """The pairs without a distance of nodes, ascending as these are."""
        pairs = joined(self._offset[nodes], self._offset[nodes + 1] - self._offset[nodes])
        return pairs[self._distance[pairs] == FAR]

    def _close_pairs(self, source: np.ndarray, token: np.ndarray, level: int) -> None:
        """Settles the pairs of the sources after which one of the tokens may always come."""
        if not len(source):
            return
        if len(source) > _AT_ONCE:
            sooner = self._contexts.rank.take(token) < _AT_ONCE
            if np.count_nonzero(sooner) < len(source):
                self._close_pairs(source[sooner], token[sooner], level)
        waits = np.zeros(len(self._offset), bool)
        waits[self._pair_node[self._distance[:-1] == FAR]] = True
        source, token = source[waits[source]], token[waits[source]]
        if not len(source):
            return
        count = self._offset[source + 1] - self._offset[source]
        if int(count.sum()) <= _AT_ONCE:
            pairs = joined(self._offset[source], count)
            token = np.repeat(token, count)
            open_ = self._distance[pairs] == FAR
            pairs, token = pairs[open_], token[open_]
            self._close_once(pairs[self._may_follow(pairs, token, ALL, ALL_APART)], level)
            return
        order = order_of(source * self._constraint.vocab_size + self._contexts.rank[token])
        source, token = source[order], token[order]
        first = np.flatnonzero(np.append(True, source[1:] != source[:-1]))
        place = np.arange(len(source)) - np.repeat(first, segment_sizes(first, len(source)))
        every = pairs = self._pairs_of(source[first])
        nodes = self._pair_node[pairs]
        low, width = 0, 1
        while len(source):
            now = np.flatnonzero((place >= low) & (place < low + width))
            for part in portions(now, source[now], nodes):
                begin = np.searchsorted(nodes, source[part])
                count = np.searchsorted(nodes, source[part], side="right") - begin
                here = pairs[joined(begin, count)]
                hit = self._may_follow(here, np.repeat(token[part], count), ALL, ALL_APART)
                self._distance[here[hit]] = level
            open_ = self._distance[pairs] == FAR
            pairs, nodes = pairs[open_], nodes[open_]
            low, width = low + width, width * 4
            rest = place >= low
            rest[rest] = np.searchsorted(nodes, source[rest]) < np.searchsorted(nodes, source[rest], side="right")
            source, token, place = source[rest], token[rest], place[rest]
        self._close(every[self._distance[every] == level], level)

    def _last_resort(self, level: int) -> bool:
        """Tries all tokens where only some were tried before, and every behaviour by itself; whether any distance was found."""
        unsure = (self._distance[:-1] == FAR).nonzero()[0]
        node, surroundings = self._pair_node[unsure], self._pair_surroundings[unsure]
        among = {*node.tolist()}
        with_sets = (self.groups.keys() | self._exits.keys()) & among
        for at in sorted({*node[self._ambiguous[surroundings]].tolist(), *with_sets}):
            here = unsure[node == at]
            completes = self._completes(at, self._members_of(self._pair_surroundings[here]), self._pair_set[here])
            hit = completes.everywhere()
            if hit.any():
                least = self._least(at, completes, self._pair_set[here], hit, level)
                for value in np.unique(least).tolist():
                    self._close(here[hit][least == value], value)
        for at, wide in self.wide.items():
            if wide.is_open and not wide.depth:
                left, around, sets = self._open_of(wide)
                completes = self._completes(at, self._members_of(around), sets)
                self._of_open[at] = left, sets, completes
                hit = completes.everywhere()
                if hit.any():
                    least = self._least(at, completes, sets, hit, level)
                    for value in np.unique(least).tolist():
                        self._close_bits(at, words_of(left[hit][least == value], self._constraint.vocab_size), value)
        return bool(self._new or self._new_wide)

    def _least(self, node: int, completes: Completed, sets: np.ndarray, hit: np.ndarray, level: int) -> np.ndarray:
        """int64[n], in how many tokens a text can be completed in all behaviours of the cases that are hit, `level` at most."""
        chosen = np.repeat(hit, np.diff(completes.begin))
        alone = self._contexts.single[completes.behaviour[chosen]]
        group = np.repeat(sets, np.diff(completes.begin))[chosen]
        out = np.where(self._constraint.accept[node] & self._contexts.all_final[alone], 0, level)
        costs = {*self.cost[self._first[node] : self._first[node + 1]].tolist(), *(cost for cost, _ in self._exits.get(node, ()))}
        costs.update(at + 1 for _, target in self.groups.get(node, ()) for at, _ in self.wide[target].levels)
        above = 0
        for most in sorted(costs):
            left = (out == level).nonzero()[0]
            if most >= level or not len(left):
                break
            out[left[self._any_of(node, alone[left], group[left], ALL, ALL_APART, most, above)]] = most
            above = most
        return np.maximum.reduceat(out, np.cumsum(np.append(0, np.diff(completes.begin)[hit]))[:-1])

    def _from_start(self) -> int:
        """Distance from the start by the listed tokens there, those that are completed in some states among them."""
        low, high = self._first[self._constraint.start], self._first[self._constraint.start + 1]
        group = int(self._pair_set[self._start])
        best = FAR
        for token, cost, kind in zip(*(x[low:high].tolist() for x in (self.token, self.cost, self._kind))):
            if cost < best and self._may_follow(np.array([self._start]), np.array([token]), ALL, ALL_APART)[0]:
                apart = bool(self._rule.set_holds(np.array([group]), np.array([token]))[0])
                after = self._contexts.behaviours_after(np.array([self._state]), token, apart)
                if not (kind and np.isin(after, self._kinds[kind - 1][1]).any()):
                    best = cost
        return best
