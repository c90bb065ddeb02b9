"""`ProductDistances`: how many tokens complete a text from a product node, by what the last token forbids.

What a last token allows later depends on it only through its forbidden set. So each product node has a distance per forbidden
set of the tokens that lead into it:

    distance(node, set) = min over next tokens t of 1 + distance(target(t), set of t),      0 where the text may end,

where t is a token of the first kind if `set` does not hold it, and else one of those that may come behind a cut. These are least
distances, so they are found in rounds, 0 first: in each one, what was found in the round before is looked at from all nodes at
once, and no token is looked at twice. A few tokens that hardly any set holds settle nearly all sets of a node.
"""

from __future__ import annotations

import numpy as np

from fsa_compile.arrays.ranges import joined, segment_sizes
from fsa_compile.canonical.encoder.pair_rule import PairRule
from fsa_compile.canonical.explicit_product.product_graph import ProductGraph, WideSet
from fsa_compile.canonical.lazy_product.completions import FAR, portions
from fsa_compile.limits import Deadline

_DOING = "completing the canonical tokens of the constraint"
_AT_ONCE = 1 << 11
"""Up to this many pairs of a set and a token in a round, all of them are tested."""
_MARKED = 1 << 24
"""Up to this many possible pairs of a node and a set, distinct ones are found with a mark array instead of a sort."""
_SORTED = 21
"""Tokens of a large set that are tried first, those that the fewest sets hold."""


class ProductDistances:
    """The distances of a graph.

    Pairs of a node and a set are numbered by node, then set. `target_pair` are the pairs of the listed tokens' targets.

    Args:
      first: set of the token before the start, 0 for none.
    """

    def __init__(self, graph: ProductGraph, rule: PairRule, first: int, deadline: Deadline) -> None:
        self.graph, self._rule, self._deadline = graph, rule, deadline
        self._num_sets = len(rule.set_offset) - 1
        self._number_pairs(first)
        self._distance = np.full(len(self._pair) + 1, FAR, np.int32)  # the last stands for no pair
        self._settle()
        self.start = int(self._distance[np.searchsorted(self._pair, first)])
        """From the start, after the token before it."""

    @property
    def nearest(self) -> np.ndarray:
        """int64[X], the least distance of each node over its sets."""
        out = np.full(len(self.graph.node), FAR, np.int64)
        some = np.diff(self._offset) > 0
        out[some] = np.minimum.reduceat(self._distance[:-1], self._offset[:-1][some])
        return out

    def costs(self, branch: int) -> np.ndarray:
        """int64[E], tokens that each listed token and the shortest completion after it take, `FAR` for no completion."""
        return np.minimum(self._distance[self.target_pair[branch]].astype(np.int64) + 1, FAR)

    def wide_costs(self, wide: WideSet, branch: int) -> np.ndarray:
        """The same of a wide set, int64[n]."""
        return np.minimum(self._of_wide(wide, branch).astype(np.int64) + 1, FAR)

    def _of_wide(self, wide: WideSet, branch: int) -> np.ndarray:
        return self._distance[self._offset[wide.targets[branch]] + wide.sets]  # such targets have all sets

    def _number_pairs(self, first: int) -> None:
        graph, sets = self.graph, self._num_sets
        size = len(graph.node) * sets
        key = np.where(graph.targets >= 0, graph.targets * sets + self._rule.set_of[graph.token], -1)
        found: np.ndarray
        dense = sorted({target for wide in graph.wide for target in wide.targets if target >= 0})
        if size <= _MARKED:
            marked = np.zeros(size, bool)
            marked[key[key >= 0]] = True
            marked[first] = True
            for target in dense:
                marked[target * sets : (target + 1) * sets] = True
            self._pair = np.flatnonzero(marked)
            number = np.empty(size, np.int32)
            number[self._pair] = np.arange(len(self._pair))
            found = number[np.where(key >= 0, key, first)]
        else:
            listed = np.unique(np.append(key, first))
            listed = listed[(listed >= 0) & ~np.isin(listed // sets, dense)]
            every = np.array(dense, np.int64)[:, None] * sets + np.arange(sets)
            self._deadline.check_bytes(every.nbytes * 3, _DOING)
            self._pair = np.sort(np.concatenate([listed, every.ravel()]))
            found = np.searchsorted(self._pair, key)
        self.target_pair = np.where(key >= 0, found, len(self._pair))
        self._offset = np.searchsorted(self._pair, np.arange(len(graph.node) + 1) * sets)

    def _settle(self) -> None:
        graph, distance = self.graph, self._distance
        self._waiting = np.diff(self._offset)
        """How many pairs of each node have no distance yet."""
        order, first = zip(*(_by_pair(pairs, len(self._pair)) for pairs in self.target_pair))
        self._new = self._pairs_of(np.flatnonzero(graph.accept & (self._waiting > 0)))
        distance[self._new] = 0
        self._waiting[graph.accept] = 0
        level = 0
        while len(self._new):
            self._deadline.check(_DOING)
            new, self._new = self._new, self._new[:0]
            level += 1
            near, far = (by[joined(begin[new], begin[new + 1] - begin[new])] for by, begin in zip(order, first))
            self._close_nodes(graph.source[far], level)
            if graph.wide:
                self._close_wide_sets(np.unique(self._pair[new] // self._num_sets), level)
            self._close_pairs(near[self._waiting[graph.source[near]] > 0], level)

    def _pairs_of(self, nodes: np.ndarray) -> np.ndarray:
        """The pairs without a distance of nodes, ascending as these are."""
        pairs = joined(self._offset[nodes], self._offset[nodes + 1] - self._offset[nodes])
        return pairs[self._distance[pairs] == FAR]

    def _close(self, pairs: np.ndarray) -> None:
        """Notes that pairs, each listed once, have a distance now."""
        self._new = np.append(self._new, pairs)
        np.subtract.at(self._waiting, self._pair[pairs] // self._num_sets, 1)

    def _close_nodes(self, nodes: np.ndarray, level: int) -> None:
        """What may come behind a cut may come in any case: a pair that is allowed leaves the cut possible."""
        nodes = nodes[self._waiting[nodes] > 0]
        if len(nodes):
            pairs = self._pairs_of(np.unique(nodes))
            self._distance[pairs] = level
            self._close(pairs)

    def _close_pairs(self, edges: np.ndarray, level: int) -> None:
        """Settles the pairs of the edges' sources whose sets do not hold the edge's token."""
        if not len(edges):
            return
        graph, source = self.graph, self.graph.source[edges]
        count = self._offset[source + 1] - self._offset[source]
        if int(count.sum()) <= _AT_ONCE:
            pairs = joined(self._offset[source], count)
            holds = self._rule.set_holds(self._pair[pairs] % self._num_sets, np.repeat(graph.token[edges], count))
            pairs = np.unique(pairs[~holds & (self._distance[pairs] == FAR)])
            self._distance[pairs] = level
            self._close(pairs)
            return
        edges = edges[np.lexsort((self._rule.holders[graph.token[edges]], graph.source[edges]))]
        source = graph.source[edges]
        first = np.flatnonzero(np.append(True, source[1:] != source[:-1]))
        place = np.arange(len(edges)) - np.repeat(first, segment_sizes(first, len(edges)))
        every = pairs = self._pairs_of(source[first])
        nodes = self._pair[pairs] // self._num_sets
        low, width = 0, 1
        while len(edges):
            now = (place >= low) & (place < low + width)
            for part in portions(edges[now], graph.source[edges[now]], nodes):
                begin = np.searchsorted(nodes, graph.source[part])
                count = np.searchsorted(nodes, graph.source[part], side="right") - begin
                index = joined(begin, count)
                holds = self._rule.set_holds(self._pair[pairs[index]] % self._num_sets, np.repeat(graph.token[part], count))
                self._distance[pairs[index[~holds]]] = level
            open_ = self._distance[pairs] == FAR
            pairs, nodes = pairs[open_], nodes[open_]
            low, width = low + width, width * 4
            rest = place >= low
            edges, place = edges[rest], place[rest]
            here = np.searchsorted(nodes, graph.source[edges]) < np.searchsorted(nodes, graph.source[edges], side="right")
            edges, place = edges[here], place[here]
        self._close(every[self._distance[every] == level])

    def _close_wide_sets(self, new: np.ndarray, level: int) -> None:
        """The same for the tokens of wide sets that lead to the nodes `new`, some of whose pairs were settled a level before."""
        reached = np.zeros(len(self.graph.node), bool)
        reached[new] = True
        for wide in self.graph.wide:
            sources = np.array(wide.sources)
            for branch in (1, 0):
                target = wide.targets[branch]
                if target < 0 or not reached[target] or not self._waiting[sources].any():
                    continue
                chosen = wide.token[self._of_wide(wide, branch) == level - 1]
                if branch and len(chosen):
                    self._close_nodes(sources, level)
                elif len(chosen):
                    self._close_wide(sources[self._waiting[sources] > 0], chosen, level)

    def _close_wide(self, nodes: np.ndarray, tokens: np.ndarray, level: int) -> None:
        every = pairs = self._pairs_of(nodes)
        holders = self._rule.holders[tokens]
        first = np.argpartition(holders, min(_SORTED, len(tokens)) - 1)[:_SORTED]
        first = first[np.argsort(holders[first])]
        at, step = 0, 1
        while at < len(first) and len(pairs):
            part = tokens[first[at : at + step]]
            apart = self._rule.set_holds((self._pair[pairs] % self._num_sets)[:, None], part[None]).all(1)
            self._distance[pairs[~apart]] = level
            pairs, at, step = pairs[apart], at + step, step * 4
        if len(tokens) > len(first) and len(pairs):
            groups, of_pair = np.unique(self._pair[pairs] % self._num_sets, return_inverse=True)
            apart = self._rule.sets_hold_all(groups, tokens)[of_pair.ravel()]
            self._distance[pairs[~apart]] = level
        self._close(every[self._distance[every] == level])


def _by_pair(pairs: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The listed tokens in the order of their targets' pairs, and where those of each pair begin; those without come last."""
    # Numbers of 16 bits are sorted by radix.
    order = np.argsort(pairs.astype(np.uint16 if count < 1 << 16 else np.int32), kind="stable")
    return order, np.searchsorted(pairs[order], np.arange(count + 1))
