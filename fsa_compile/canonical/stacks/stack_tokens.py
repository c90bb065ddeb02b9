"""`StackTokens`: the distances of a constraint with a stack, by its nodes and tokens."""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np

from fsa_compile.artifact.bitmask import holds, tokens_of, words_of
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.canonical.lazy_product.decision import DecidedDistances, Place
from fsa_compile.canonical.lazy_product.token_layout import ListedTokens, WideTokens
from fsa_compile.canonical.stacks.stack_edges import StackEdges

_EXAMPLES = 64
"""At most this many tokens of a set are examples from which its target is read."""


class StackTokens:
    """What can be completed.

    Args:
      edges: of the constraint; targets below are nodes of these.
      distances: of the constraint without a stack.
    """

    def __init__(self, edges: StackEdges, distances: DecidedDistances) -> None:
        self._edges, self.distances = edges, distances
        self._size = edges.constraint.num_nodes

    def own(self, node: int) -> np.ndarray:
        """The tokens of a node that can be completed, uint32[W], but those that end its frame."""
        out = words_of(self.listed(node)[0], self._edges.constraint.vocab_size)
        for _, held in self.wide(node):
            for _, bits in held:
                out |= bits
        return out

    def listed(self, node: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Token, target and cost, int64[n] each, of those of them that are listed one by one."""
        d = self.distances
        low, high = np.searchsorted(d.source, [node, node + 1])
        chosen = low + np.flatnonzero(d.cost[low:high] < FAR)
        return d.token[chosen], d.target[chosen], d.cost[chosen]

    def wide(self, node: int) -> Iterator[tuple[int, list[tuple[int, np.ndarray]]]]:
        """Target, and the tokens of each cost, of the larger sets of a node."""
        d = self.distances
        for row, target in d.groups.get(node, ()):
            held = [(level + 1, d.row(row) & bits) for level, bits in d.wide[target].levels]
            yield target, [(cost, bits) for cost, bits in held if bits.any()]

    def every_listed(self) -> ListedTokens:
        """The tokens of all nodes that are listed one by one, as `listed`."""
        d = self.distances
        chosen = np.flatnonzero(d.cost[: np.searchsorted(d.source, self._size)] < FAR)
        return ListedTokens(d.source[chosen], d.token[chosen], d.target[chosen], d.cost[chosen])

    def every_wide(self) -> list[WideTokens]:
        """The larger sets of all nodes that keep tokens, as `wide`."""
        out = []
        for node in range(1, self._size):
            for target, held in self.wide(node):
                if held:
                    out.append(WideTokens(node, np.bitwise_or.reduce([bits for _, bits in held]), target, held))
        return out

    def nearest(self, delay: np.ndarray) -> np.ndarray:
        """int64[N], the least distance of each node over the tokens that lead to it, without the delays int64[N + K]."""
        out = np.full(self._size, FAR, np.int64)
        own = self.distances.nearest
        np.minimum.at(out, self._edges.base, np.where(own < FAR, own - delay, FAR))
        return out

    def unless(self) -> list[tuple[int, np.ndarray, int]]:
        """Of nodes the tokens that may not lead to the states of a list, as (node, uint32[W], list)."""
        d = self.distances
        nodes = [node for node in sorted(d.excepted) if node < self._size]
        return [(node, row, number) for node in nodes for number, row in d.unless_of(node)]

    def unless_agrees(self) -> bool:
        """Whether no token that depends on the filter's state for one stack can always be completed for another."""
        for node, noted, _ in self.unless():
            for inner in self.distances.inner(node):
                if (noted & self.own(inner) & ~self.distances.sometimes(inner)).any():
                    return False
        return True

    def beyond(self, other: StackTokens) -> dict[int, np.ndarray]:
        """Of nodes the tokens uint32[W] that the other does not have."""
        found = ((node, self.own(node) & ~other.own(node)) for node in range(1, self._size))
        return {node: more for node, more in found if more.any()}

    def places(self, tokens: dict[int, np.ndarray], among: Container[int]) -> Iterator[Place]:
        """Where some tokens of nodes lead, as far as it is to certain nodes."""
        base = self._edges.base
        for node, chosen in tokens.items():
            token, target, _ = self.listed(node)
            held = holds(chosen, token)
            into = [(base[target[held]], token[held])]
            for wide, held_of in self.wide(node):
                some = tokens_of(np.bitwise_or.reduce([bits for _, bits in held_of]) & chosen)[:_EXAMPLES]
                into.append((np.full(len(some), base[wide]), some))
            for targets, some in into:
                matter = [target for target in np.unique(targets).tolist() if target in among]
                if matter:
                    yield from self.distances.places(targets[np.isin(targets, matter)], some[np.isin(targets, matter)])

    def sometimes_otherwise(self, other: StackTokens) -> Iterator[Place]:
        """Where some behaviours let complete, but others than those of the other."""
        others = dict(other.distances.undecided())
        for place, completes in self.distances.undecided():
            if any(completes.values()) and others.get(place) != completes:
                yield place._replace(node=int(self._edges.base[place.node]))
