"""Which stacks have to be told apart so that it is certain what can be completed: of each symbol what stacks with it on top differ
in, for `StackClasses.split`."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from fsa_compile.bitmask import words_of
from fsa_compile.canonical.factored_decision import Place
from fsa_compile.canonical.indices import tokens_of
from fsa_compile.canonical.stack_edges import StackEdges, symbols
from fsa_compile.canonical.stack_tokens import StackTokens


def by_end(edges: StackEdges, ends: list[tuple[bool, bool]]) -> list[Hashable]:
    """By whether texts may end.

    Args:
      edges: of the constraint.
      ends: of each node, whether a text may end there whatever lies on the stack, and whether it may for some stack.
    """
    unsure = [node for node, (must, may) in enumerate(ends) if must != may]
    return _behind(edges, unsure, lambda _, inner: ends[inner])


def by_tokens(
    edges: StackEdges, tokens: StackTokens, places: list[Place], possible: dict[int, np.ndarray], certain: dict[int, np.ndarray]
) -> list[Hashable] | None:
    """By what may end frames at some places for some stacks only; None if that is not what matters.

    Args:
      edges: of the constraint.
      tokens: that can be completed for certain.
      places: where more may be completed.
      possible, certain: of nodes the tokens uint32[W] that end frames for some stack, and for every stack.
    """
    none = np.zeros(edges.constraint.rows.shape[1], np.uint32)
    matters: dict[int, np.ndarray] = {}
    for node in {place.node for place in places} & possible.keys():
        contested = tokens_of(possible[node] & ~certain.get(node, none))
        here = [place for place in places if place.node == node]
        chosen = contested[tokens.distances.may_come(here, contested)]
        if len(chosen):
            matters[node] = words_of(chosen, edges.constraint.vocab_size)
    todo = list(matters)
    for node in todo:  # grows
        for symbol in symbols(edges.tops[node]):
            inner = edges.after_pop(node, symbol)
            more = matters[node] & possible.get(inner, none) & ~certain.get(inner, none)
            if inner and (more & ~matters.get(inner, none)).any():
                matters[inner] = more | matters.get(inner, none)
                todo.append(inner)
    if not matters:
        return None
    known: dict[int, np.ndarray] = {}

    def of(node: int, inner: int) -> Hashable:
        if inner not in known:
            known[inner] = tokens.own(inner) | certain.get(inner, none)
        return (known[inner] & matters[node]).tobytes()

    return _behind(edges, sorted(matters), of)


def _behind(edges: StackEdges, nodes: list[int], what: Callable[[int, int], Hashable]) -> list[Hashable]:
    """Of each symbol, what there is behind its pop at some nodes."""
    out: list[list[Hashable]] = [[] for _ in edges.constraint.symbol_cost]
    for node in nodes:
        for symbol in symbols(edges.tops[node]):
            out[symbol].append((node, what(node, edges.after_pop(node, symbol))))
    return [tuple(each) for each in out]
