"""`Completions`: what may follow, and in which behaviours a text can be completed by the tokens that have a distance.

`lazy_distances` finds these distances in rounds.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.index_sets import numbered
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.artifact.bitmask import holds, tokens_of
from fsa_compile.canonical.filter.contexts import ALL, ALL_APART
from fsa_compile.canonical.lazy_product.pairs import LazyPairs

FAR = int(UNREACHABLE)
"""Distance from where no text can be completed."""
_FEW = 64
"""Sets of less than such a part of the vocabulary are gone through token by token."""
_DIFFERENT = 64
"""Up to this many contexts are examined one by one, whether or not some are equal."""
_TESTED = 1 << 22
"""Most pairs of a context and a token that are tested at once."""
_SAME = 256
"""For a token tested after more than this many pairs, all sets that hold it are looked up at once."""


@dataclasses.dataclass(eq=False)
class WideNode:
    """A node that many tokens lead to; all bit rows are uint32[W].

    Attributes:
      depth: see `Contexts`.
      inside: these tokens.
      open: those without a distance; is_open: whether there are any.
      levels: distances, ascending, and the tokens that have each of them.
      edges: listed ones that lead here.
      waiting: inside a character, which contexts of `Contexts.inside` have no distance yet, bool[n].
    """

    depth: int
    inside: np.ndarray
    open: np.ndarray
    levels: list[tuple[int, np.ndarray]]
    edges: np.ndarray
    waiting: np.ndarray
    is_open: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.is_open = bool(self.open.any())

    def close(self, bits: np.ndarray) -> None:
        """Takes tokens from `open`."""
        self.open &= ~bits
        self.is_open = bool(self.open.any())
        self.__dict__.pop("closed", None)

    @cached_property
    def closed(self) -> np.ndarray:
        """Those with a distance."""
        return self.inside ^ self.open

    def settle(self, cost: np.ndarray, token: np.ndarray) -> None:
        """Joins the tokens of each distance where they were not found in order, and corrects the costs of listed tokens."""
        found = [level for level, _ in self.levels]
        if found == sorted(set(found)):
            return
        by_level: dict[int, np.ndarray] = {}
        for level, bits in self.levels:
            by_level[level] = by_level[level] | bits if level in by_level else bits
        self.levels = sorted(by_level.items())
        for level, bits in self.levels:
            cost[self.edges[holds(bits, token[self.edges])]] = level + 1


class Completed(NamedTuple):
    """In which behaviours a text can be completed: case i may be in those from `begin[i]` to `begin[i + 1]`, and `hit` says of
    each."""

    behaviour: np.ndarray
    hit: np.ndarray
    begin: np.ndarray

    def everywhere(self) -> np.ndarray:
        """bool[n], the cases that can be completed in all of their behaviours; each has one or more."""
        return np.logical_and.reduceat(self.hit, self.begin[:-1]) if len(self.begin) > 1 else self.hit

    def listed(self) -> list[tuple[list[int], list[bool]]]:
        """The behaviours of each case, and `hit` of each."""
        behaviour, hit = self.behaviour.tolist(), self.hit.tolist()
        return [(behaviour[low:high], hit[low:high]) for low, high in itertools.pairwise(self.begin.tolist())]


class Completions(LazyPairs):
    """Pairs with the distances found so far.

    Attributes:
      cost: int64[E], tokens that each listed one and the shortest completion after it take, `FAR` for no completion.
      wide: by node.
    """

    cost: np.ndarray
    wide: dict[int, WideNode]
    _exits: dict[int, list[tuple[int, np.ndarray]]]
    """Of nodes further tokens, uint32[W], by their cost; see `LazyDistances.with_exits`."""

    def _may_follow(self, pairs: np.ndarray, tokens: np.ndarray, together: int, apart: int) -> np.ndarray:
        """bool[n], whether tokens may follow pairs: by one bit of `Contexts.follows` where the pair rule allows the last two
        tokens, by another where it forbids them."""
        x = self._contexts
        column = x.column_at(self._depth[self._pair_node[pairs]], tokens)
        bits = self._follows[self._pair_surroundings[pairs], column]
        out, other = (bits & together) > 0, (bits & apart) > 0
        unsure = np.flatnonzero(out != other)
        sets, token = self._pair_set[pairs[unsure]], tokens[unsure]
        if len(unsure) > _SAME and (token == token[0]).all():
            held = unsure[x.sets_holding(int(token[0]))[sets]]
        else:
            held = unsure[self._rule.set_holds(sets, token)]
        out[held] = other[held]
        return out

    def _completes(self, node: int, members: list[tuple[int, ...]], sets: np.ndarray) -> Completed:
        """Whether a text may be completed from a node in each behaviour of some members after a token of a forbidden set."""
        size = np.fromiter(map(len, members), np.int64, len(members))
        behaviour = np.fromiter(itertools.chain.from_iterable(members), np.int64, int(size.sum()))
        alone = self._contexts.single[behaviour]
        hit = self._any_of(node, alone, np.repeat(sets, size), ALL, ALL_APART)
        if self._constraint.accept[node]:
            hit |= self._contexts.all_final[alone]
        return Completed(behaviour, hit, np.append(0, np.cumsum(size)))

    def _members_of(self, surroundings: np.ndarray) -> list[tuple[int, ...]]:
        return [self._members[one] for one in surroundings.tolist()]

    def _open_of(self, wide: WideNode) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens without a distance, their surroundings and forbidden sets."""
        left = tokens_of(wide.open)
        x = self._contexts
        return left, x.base[wide.depth] + x.after[wide.depth, left], self._rule.set_of[left]

    def _any_of(
        self,
        node: int,
        surroundings: np.ndarray,
        sets: np.ndarray,
        together: int,
        apart: int,
        most: int = FAR - 1,
        above: int = 0,
    ) -> np.ndarray:
        """bool[n], whether one of a node's tokens that have a distance may follow: of those whose cost is above `above` and at
        most `most`."""
        x, depth, follows = self._contexts, int(self._depth[node]), self._follows
        own = slice(self._first[node], self._first[node + 1])
        cost = self.cost[own]
        tokens = self.token[own][(cost <= most) & (cost > above)]
        live = self._live(node, most, above) if node in self.groups or node in self._exits else np.zeros(0, np.uint32)
        if len(live) and (depth or _FEW * int(np.bitwise_count(live).sum()) < self._constraint.vocab_size):
            tokens, live = np.concatenate([tokens, tokens_of(live)]), live[:0]
        column = x.column[depth].take(tokens)
        count = np.bincount(column, minlength=follows.shape[1])
        of_live = x.columns_of(live) if len(live) else count[:0]
        count[: len(of_live)] += of_live
        present = count.nonzero()[0]
        if len(surroundings) > _DIFFERENT:
            values, value = numbered(surroundings, len(follows))
        else:
            values, value = surroundings, np.arange(len(surroundings))
        bits = follows[values].take(present, 1)
        total = (((bits & together) > 0) @ count[present])[value]
        out = (bits & apart).any(1)[value] | (self._rule.set_size[sets] < total)
        unsure: dict[int, list[int]] = {}
        for at in (~out & (total > 0)).nonzero()[0].tolist():
            unsure.setdefault(int(surroundings[at]), []).append(at)
        for around, here in unsure.items():
            may = (follows[around] & together) > 0
            chosen = tokens[may.take(column)]
            if len(live):
                columns = present[may.take(present)]
                chosen = np.append(chosen, x.tokens_in(live, columns[columns < len(of_live)]))
            out[here] = ~self._rule.sets_hold_all(sets[here], chosen)
        return out

    def _live(self, node: int, most: int, above: int) -> np.ndarray:
        """The tokens of a node's larger sets whose cost is above `above` and at most `most`, uint32[W]."""
        out = np.zeros(self._constraint.rows.shape[1], np.uint32)
        for cost, exit_row in self._exits.get(node, ()):
            if above < cost <= most:
                out |= exit_row
        for row, target in self.groups.get(node, ()):
            wide = self.wide[target]
            if most >= FAR - 1:
                out |= self._constraint.rows[row] & wide.closed
                continue
            for level, bits in wide.levels:
                if above <= level < most:
                    out |= self._constraint.rows[row] & bits
        return out


def portions(edges: np.ndarray, source: np.ndarray, nodes: np.ndarray) -> list[np.ndarray]:
    """Listed tokens in parts with at most `_TESTED` tests each, where single ones have no more.

    Args:
      edges, source: int64[n], their numbers and nodes.
      nodes: int64[P], ascending: of each pair that they are tested with.
    """
    count = np.searchsorted(nodes, source, side="right") - np.searchsorted(nodes, source)
    total = np.cumsum(count)
    if not len(edges) or total[-1] <= _TESTED:
        return [edges]
    return np.split(edges, np.flatnonzero(np.diff(total // _TESTED)) + 1)
