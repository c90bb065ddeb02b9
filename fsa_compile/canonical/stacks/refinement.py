"""Partition of stacks, refined until every token's completability is decided: per symbol, what stacks with it on top differ in
(for `StackClasses.split`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from fsa_compile.artifact.bitmask import tokens_of, words_of
from fsa_compile.canonical.lazy_product.decision import Place
from fsa_compile.canonical.stacks.stack_edges import BOTTOM, StackEdges, symbols
from fsa_compile.canonical.stacks.stack_tokens import StackTokens


def by_end(edges: StackEdges, ends: list[tuple[bool, bool]]) -> list[Hashable]:
    """By whether texts may end.

    Args:
      ends: of each node, whether a text may end there whatever lies on the stack, and whether it may for some stack.
    """
    unsure = [node for node, (must, may) in enumerate(ends) if must != may]
    return _behind(edges, unsure, lambda _, inner: ends[inner])


def by_tokens(
    edges: StackEdges, tokens: StackTokens, places: list[Place], certain: dict[int, np.ndarray]
) -> list[Hashable] | None:
    """By what may end frames at some places for some stacks only; None if that is not what matters.

    Args:
      tokens: that can be completed for certain.
      places: where more may be completed.
      certain: of nodes the tokens uint32[W] that end frames for every stack.
    """
    ending = _Ending(edges, tokens)
    matters: dict[int, np.ndarray] = {}
    at: dict[int, set[Place]] = {}
    for place in places:
        at.setdefault(place.node, set()).add(place)
    for node, here in at.items():
        contested = tokens_of(ending.some(node) & ~certain.get(node, ending.none))
        chosen = contested[tokens.distances.may_come(here, contested)]
        if len(chosen):
            matters[node] = words_of(chosen, edges.constraint.vocab_size)
    todo = list(matters)
    for node in todo:  # grows
        for symbol in symbols(edges.tops[node]):
            inner = edges.after_pop(node, symbol)
            more = matters[node] & ending.some(inner) & ~ending.every(inner)
            if inner and (more & ~matters.get(inner, ending.none)).any():
                matters[inner] = more | matters.get(inner, ending.none)
                todo.append(inner)
    if not matters:
        return None
    return _behind(edges, sorted(matters), lambda node, inner: (ending.every_behind(inner) & matters[node]).tobytes())


class _Ending:
    """The tokens that end frames from nodes, uint32[W]."""

    def __init__(self, edges: StackEdges, tokens: StackTokens) -> None:
        self._edges, self._tokens = edges, tokens
        self.none = np.zeros(edges.constraint.rows.shape[1], np.uint32)
        self._own: dict[int, np.ndarray] = {}
        self._some: dict[int, np.ndarray] = {}
        self._every: dict[int, np.ndarray] = {}

    def _own_of(self, node: int) -> np.ndarray:
        if node not in self._own:
            self._own[node] = self._tokens.own(node)
        return self._own[node]

    def some(self, node: int) -> np.ndarray:
        """For some stack."""
        if node not in self._some:
            out = self.none
            for inner in self._inner(node):
                if inner:
                    out = out | self._own_of(inner) | self.some(inner)
            self._some[node] = out
        return self._some[node]

    def every(self, node: int) -> np.ndarray:
        """For every stack."""
        if node not in self._every:
            rows = [self.every_behind(inner) for inner in self._inner(node)]
            empty = not rows or self._edges.tops[node] >> BOTTOM & 1
            self._every[node] = self.none if empty else np.bitwise_and.reduce(rows)
        return self._every[node]

    def every_behind(self, inner: int) -> np.ndarray:
        """For every stack, after a pop that led to a node, 0 for none."""
        return self._own_of(inner) | self.every(inner) if inner else self.none

    def _inner(self, node: int) -> list[int]:
        return [self._edges.after_pop(node, symbol) for symbol in symbols(self._edges.tops[node])]


def _behind(edges: StackEdges, nodes: list[int], what: Callable[[int, int], Hashable]) -> list[Hashable]:
    """Of each symbol, what there is behind its pop at some nodes."""
    out: list[list[Hashable]] = [[] for _ in edges.constraint.symbol_cost]
    for node in nodes:
        for symbol in symbols(edges.tops[node]):
            out[symbol].append((node, what(node, edges.after_pop(node, symbol))))
    return [tuple(each) for each in out]
