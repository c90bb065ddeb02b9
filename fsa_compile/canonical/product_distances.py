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

from fsa_compile.artifact import UNREACHABLE
from fsa_compile.canonical.pairs import PairRule
from fsa_compile.canonical.product_graph import ProductGraph, WideSet
from fsa_compile.limits import Deadline

FAR = int(UNREACHABLE)
"""Distance from where no text can be completed."""
_DOING = "completing the canonical tokens of the constraint"
_TESTED = 1 << 22
"""Most pairs of a set and a token that are tested at once."""
_MARKED = 1 << 22
"""Up to so many possible pairs of a node and a set are found by marking them."""
_SORTED = 64
"""Tokens of a large set that are tried first, those that the fewest sets hold."""


class ProductDistances:
    """The distances of a graph.

    Pairs of a node and a set are numbered by node, then set. `target_pair` are the pairs of the listed tokens' targets.

    Args:
      graph: all nodes.
      rule: the pair rule.
      first: set of the token before the start, 0 for none.
      deadline: of the compilation.
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
        dense = sorted({target for wide in graph.wide for target in wide.targets if target >= 0})
        if size <= _MARKED:
            marked = np.zeros(size, bool)
            marked[key[key >= 0]] = True
            marked[first] = True
            for target in dense:
                marked[target * sets : (target + 1) * sets] = True
            self._pair = np.flatnonzero(marked)
            number = np.cumsum(marked, dtype=np.int32) - 1
            found = number[np.maximum(key, 0)]
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
        owner = np.repeat(np.arange(len(graph.node)), np.diff(self._offset))
        distance[:-1][graph.accept[owner]] = 0
        self._open = np.flatnonzero(distance[:-1] == FAR)
        self._open_node = owner[self._open]
        self._waiting = np.bincount(self._open_node, minlength=len(graph.node))
        edges = np.arange(len(graph.source))
        new = graph.accept.copy()
        level = 0
        while new.any() and len(self._open):
            self._deadline.check(_DOING)
            edges = edges[self._waiting[graph.source[edges]] > 0]
            near, far = (distance[self.target_pair[branch][edges]] == level for branch in (0, 1))
            self._close_nodes(graph.source[edges[far]], level + 1)
            more = self._wide_candidates(level, new)
            self._close_pairs(edges[near], level + 1)
            for node, tokens in more:
                self._close_wide(node, tokens, level + 1)
            edges = edges[~(far | (near & (graph.targets[1][edges] < 0)))]
            level += 1
            new = self._compact()

    def _compact(self) -> np.ndarray:
        """Drops the pairs that have distances now from those that have not; bool[X], the nodes of these pairs."""
        closed, changed = self._distance[self._open] < FAR, np.zeros(len(self.graph.node), bool)
        changed[self._open_node[closed]] = True
        self._open, self._open_node = self._open[~closed], self._open_node[~closed]
        self._waiting = np.bincount(self._open_node, minlength=len(changed))
        return changed

    def _close_nodes(self, nodes: np.ndarray, level: int) -> None:
        """What may come behind a cut may come in any case: a pair that is allowed leaves the cut possible."""
        if len(nodes):
            whole = np.zeros(len(self.graph.node), bool)
            whole[nodes] = True
            self._distance[self._open[whole[self._open_node]]] = level

    def _close_pairs(self, edges: np.ndarray, level: int) -> None:
        """Settles the pairs of the edges' sources whose sets do not hold the edge's token."""
        graph = self.graph
        open_ = self._distance[self._open] == FAR
        pairs, nodes = self._open[open_], self._open_node[open_]
        edges = edges[np.searchsorted(nodes, graph.source[edges]) < np.searchsorted(nodes, graph.source[edges], side="right")]
        if not len(edges):
            return
        edges = edges[np.lexsort((self._rule.holders[graph.token[edges]], graph.source[edges]))]
        source = graph.source[edges]
        place = np.arange(len(edges)) - np.searchsorted(source, source)
        low, width = 0, 1
        while len(edges):
            now = (place >= low) & (place < low + width)
            for part in self._portions(edges[now], nodes):
                begin = np.searchsorted(nodes, graph.source[part])
                count = np.searchsorted(nodes, graph.source[part], side="right") - begin
                index = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
                holds = self._rule.set_holds(self._pair[pairs[index]] % self._num_sets, np.repeat(graph.token[part], count))
                self._distance[pairs[index[~holds]]] = level
            open_ = self._distance[pairs] == FAR
            pairs, nodes = pairs[open_], nodes[open_]
            low, width = low + width, width * 4
            rest = place >= low
            edges, place = edges[rest], place[rest]
            here = np.searchsorted(nodes, graph.source[edges]) < np.searchsorted(nodes, graph.source[edges], side="right")
            edges, place = edges[here], place[here]

    def _portions(self, edges: np.ndarray, nodes: np.ndarray) -> list[np.ndarray]:
        """The edges in parts with at most `_TESTED` tests each, where single edges have no more."""
        source = self.graph.source[edges]
        count = np.searchsorted(nodes, source, side="right") - np.searchsorted(nodes, source)
        total = np.cumsum(count)
        if not len(edges) or total[-1] <= _TESTED:
            return [edges]
        return np.split(edges, np.flatnonzero(np.diff(total // _TESTED)) + 1)

    def _wide_candidates(self, level: int, new: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Tokens of wide sets behind which a text is completed in `level` tokens, by node. Closes nodes that need no more."""
        out: dict[int, list[np.ndarray]] = {}
        for wide in self.graph.wide:
            if not self._waiting[wide.source]:
                continue
            for branch in (1, 0):
                target = wide.targets[branch]
                if target < 0 or not new[target]:
                    continue
                chosen = wide.token[self._of_wide(wide, branch) == level]
                if branch and len(chosen):
                    self._close_nodes(np.array([wide.source]), level + 1)
                elif len(chosen):
                    out.setdefault(wide.source, []).append(chosen)
        return [(node, np.concatenate(parts)) for node, parts in out.items()]

    def _close_wide(self, node: int, tokens: np.ndarray, level: int) -> None:
        low, high = np.searchsorted(self._open_node, [node, node + 1])
        pairs = self._open[low:high]
        pairs = pairs[self._distance[pairs] == FAR]
        if not len(pairs):
            return
        holders = self._rule.holders[tokens]
        first = np.argpartition(holders, min(_SORTED, len(tokens)) - 1)[:_SORTED]
        first = first[np.argsort(holders[first])]
        at, step = 0, 1
        while at < len(first) and len(pairs):
            part = tokens[first[at : at + step]]
            apart = self._rule.set_holds((self._pair[pairs] % self._num_sets)[:, None], part[None]).all(1)
            self._distance[pairs[~apart]] = level
            pairs, at, step = pairs[apart], at + step, step * 4
        if len(tokens) > _SORTED:
            for pair in pairs.tolist():
                if not self._rule.set_row(int(self._pair[pair] % self._num_sets))[tokens].all():
                    self._distance[pair] = level
