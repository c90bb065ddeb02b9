"""A constraint written out as a finite automaton over tokens: one state for every configuration that a text can reach.

A canvas is filled in any order, so that no row can keep a stack or a counter. Both are written out here, stacks to a depth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.arrays import MAX_REGISTER
from fsa_compile.artifact.configurations import Configuration
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.artifact.successors import Successors
from jax_decode.errors import DecodeError

NEVER = np.int32(2**30)
"""Distance of a state from which no text is complete."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenAutomaton:
    """A deterministic automaton over tokens without dead ends; state 0 is the start.

    Attributes:
      distance: int32[S], least number of further tokens of a complete text, 0 where the text may end.
      source, target: int32[E], states of each edge; a pair of states has one edge.
      tokens: int64[*] each, the tokens of each edge, ascending. Those of a state's edges are disjoint.
    """

    distance: NDArray[np.int32]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    tokens: list[NDArray[np.int64]]


def unfold(constraint: CompiledConstraint | CompiledItems, *, max_depth: int, max_states: int) -> TokenAutomaton:
    """The automaton of a constraint's texts that need at most `max_depth` stack cells.

    Args:
      constraint: regular, with counters, sets of keys or stacks; or a set of items. With several stacks a state is a set of
        configurations, all of them: none is dropped, as steps of a device drop those beyond `stacks`.
      max_depth: most stack cells.
      max_states: limit of the states.

    Raises:
      DecodeError: it is canonical, no text fits into the depth, or there are too many states.
    """
    if isinstance(constraint, CompiledItems):
        edges, accepting = _explored(0, _item_steps(constraint), lambda n: constraint.distance[n] == 0, max_states)
        return _trimmed(edges, accepting, max_depth)
    if constraint.is_canonical:
        what = "a canonical constraint depends on neighbouring tokens in ways that a canvas does not follow"
        raise DecodeError(what, fix="Compile it without canonical=True.")
    if len(constraint.temperature):
        what = "a canvas is drawn at one temperature, and rules of this grammar have some of their own"
        raise DecodeError(what, fix="Leave the option temperature out of the grammar.")
    walk, most = HostWalk(constraint), _largest_register(constraint)
    successors = Successors(walk)

    def steps(at: frozenset[Configuration]) -> Iterator[tuple[NDArray[np.int64], frozenset[Configuration]]]:
        found = [
            (tokens, _clipped(there, most)) for one in at for tokens, there in successors.of(one) if len(there.stack) <= max_depth
        ]
        if constraint.stacks == 1:
            return ((tokens, frozenset([there])) for tokens, there in found)
        return _together(found, constraint.vocab_size)

    first = frozenset(_clipped(at, most) for at in walk.configurations)
    edges, accepting = _explored(first, steps, lambda at: any(map(walk.accepts_at, at)), max_states)
    return _trimmed(edges, accepting, max_depth)


def _together(
    found: list[tuple[NDArray[np.int64], Configuration]], vocab_size: int
) -> Iterator[tuple[NDArray[np.int64], frozenset[Configuration]]]:
    """Token sets that may overlap, as disjoint ones: of each, everywhere that its tokens lead to."""
    split, token = np.zeros(vocab_size, np.int64), np.arange(vocab_size)
    for tokens, _ in found:
        split = np.unique(2 * split + np.isin(token, tokens), return_inverse=True)[1]
    for part in np.unique(split):
        own = np.flatnonzero(split == part)
        there = frozenset(there for tokens, there in found if own[0] in tokens)
        if there:
            yield own, there


def _item_steps(items: CompiledItems) -> Callable[[int], Iterator[tuple[NDArray[np.int64], int]]]:
    def steps(node: int) -> Iterator[tuple[NDArray[np.int64], int]]:
        for child in range(items.first[node], items.first[node + 1]):
            yield items.token[child : child + 1].astype(np.int64), child

    return steps


def _largest_register(c: CompiledConstraint) -> int:
    """Above this value no ladder and no slope tells registers apart: all of them are the same there."""
    ladders = np.concatenate([c.ladder, c.symbol_ladder])
    slopes = np.concatenate([c.level_slope, c.symbol_slope])
    return int(max((ladders[:, ::2] + ladders[:, 1::2]).max(initial=0), slopes[:, 0].max(initial=0)))


def _clipped(at: Configuration, most: int) -> Configuration:
    """The configuration without what nothing depends on: large registers, and the costs that cells carry."""
    stack = tuple(cell._replace(register=min(cell.register, most), cost=0) for cell in at.stack)
    return at._replace(register=min(at.register, most, MAX_REGISTER), stack=stack)


def _explored(
    first: Any, steps: Callable[[Any], Any], accepts: Callable[[Any], bool], max_states: int
) -> tuple[dict[tuple[int, int], list[NDArray[np.int64]]], list[bool]]:
    """Token sets by pairs of states, and which states accept, of everything that can be reached."""
    number, queue = {first: 0}, [first]
    edges: dict[tuple[int, int], list[NDArray[np.int64]]] = {}
    for at in queue:
        for tokens, there in steps(at):
            if there not in number:
                if len(queue) >= max_states:
                    what = f"the constraint has more than {max_states:,} states when it is written out (max_states)"
                    raise DecodeError(what, fix="Raise max_states, lower max_depth, or give its counters smaller bounds.")
                number[there] = len(queue)
                queue.append(there)
            edges.setdefault((number[at], number[there]), []).append(tokens)
    return edges, [bool(accepts(at)) for at in queue]


def _trimmed(edges: dict[tuple[int, int], list[NDArray[np.int64]]], accepting: list[bool], max_depth: int) -> TokenAutomaton:
    """Without the states from which no text is complete."""
    pairs = np.array(list(edges), np.int64).reshape(-1, 2)
    distance = np.where(accepting, np.int32(0), NEVER)
    while len(pairs):
        nearer = distance.copy()
        np.minimum.at(nearer, pairs[:, 0], distance[pairs[:, 1]] + 1)
        if (nearer == distance).all():
            break
        distance = np.minimum(nearer, NEVER)
    if distance[0] >= NEVER:
        what = f"no text of the constraint fits into {max_depth} stack cells (max_depth)"
        raise DecodeError(what, fix="Raise max_depth.")
    live = distance < NEVER
    number = np.cumsum(live) - 1
    kept = live[pairs[:, 0]] & live[pairs[:, 1]]
    sets = [np.unique(np.concatenate(t)) if len(t) > 1 else t[0] for t, keep in zip(edges.values(), kept) if keep]
    return TokenAutomaton(
        distance=distance[live].astype(np.int32),
        source=number[pairs[kept, 0]].astype(np.int32),
        target=number[pairs[kept, 1]].astype(np.int32),
        tokens=sets,
    )
