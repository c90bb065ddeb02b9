"""`CertainSteps`: which listed tokens may always follow what, found once for all nodes with few of them.

Distances are then found by looking up what comes before (`LazyDistances`), without asking the pair rule in every round.
"""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np

from fsa_compile.arrays.integers import order_of
from fsa_compile.arrays.ranges import joined

_FEW = 2048
"""Up to this many steps, Python lists are faster than arrays."""


class CertainSteps:
    """Steps from pairs by listed tokens.

    Args:
      known: bool[N], the nodes whose steps are all here.
      before: int64[S], the pair of each step.
      edge: int64[S], its listed token; ascending.
      after: int64[S], the pair that the token leads to, their number where it leads to a node that many tokens lead to.
      size: number of pairs and of listed tokens.

    Attributes:
      few: whether `all_before` is worth its time.
    """

    def __init__(self, known: np.ndarray, before: np.ndarray, edge: np.ndarray, after: np.ndarray, size: tuple[int, int]) -> None:
        self.known = known
        count, listed = size
        order = order_of(after)
        self._before = before[order]
        self._begin = np.zeros(count + 2, np.int64)
        np.cumsum(np.bincount(after, minlength=count + 1), out=self._begin[1:])
        self.few = len(before) <= _FEW
        self._wide_before = self._before[self._begin[count] :]
        self._wide_begin = np.searchsorted(edge[order[self._begin[count] :]], np.arange(listed + 1))

    @cached_property
    def all_before(self) -> list[list[int]]:
        """`before` of each pair."""
        before = self._before.tolist()
        return [before[low:high] for low, high in itertools.pairwise(self._begin.tolist())]

    def before(self, pairs: np.ndarray) -> np.ndarray:
        """int64[n], the pairs from which a token leads to some pairs; they may come twice."""
        if len(pairs) == 1:
            pair = int(pairs[0])
            return self._before[self._begin[pair] : self._begin[pair + 1]]
        begin = self._begin[pairs]
        return self._before[joined(begin, self._begin[pairs + 1] - begin)]

    def before_tokens(self, edges: np.ndarray) -> np.ndarray:
        """The same for listed tokens, which lead to nodes that many tokens lead to."""
        begin = self._wide_begin[edges]
        return self._wide_before[joined(begin, self._wide_begin[edges + 1] - begin)]
