"""Directed graphs: what can be reached, how far it is, and the coarsest partition that the edges respect.

Small graphs are lists of successors or a function that yields them; large ones are arrays of edges. Knows nothing of automata:
these say what their edges are and what they keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import distinct, firsts, order_of, ranked
from fsa_compile.arrays.ranges import indices
from fsa_compile.limits import check_time

Node = TypeVar("Node", bound=Hashable)


class Numbers(dict[Node, int]):
    """Numbers of nodes, given when a node is first asked for; a loop over `order` sees those that come meanwhile."""

    def __init__(self, first: Iterable[Node]) -> None:
        super().__init__()
        self.order: list[Node] = []
        for node in first:
            self[node]

    def __missing__(self, node: Node) -> int:
        self.order.append(node)
        number = self[node] = len(self)
        return number


def reach(first: Iterable[Node], after: Callable[[Node], Iterable[Node]]) -> dict[Node, int]:
    """The nodes that can be reached, the first ones included, breadth first; each with its number in this order."""
    number = {node: i for i, node in enumerate(dict.fromkeys(first))}
    order = list(number)
    for node in order:
        for target in after(node):
            if target not in number:
                number[target] = len(order)
                order.append(target)
    return number


def converse(after: Sequence[Iterable[int]]) -> list[list[int]]:
    """The predecessors of every node, from its successors; as often as there are edges."""
    before: list[list[int]] = [[] for _ in after]
    for node, targets in enumerate(after):
        for target in targets:
            before[target].append(node)
    return before


def leading(after: Sequence[Iterable[int]], goals: Iterable[int]) -> dict[int, int]:
    """The nodes from which a goal can be reached, the goals first."""
    return reach(goals, converse(after).__getitem__)


def distances(after: Sequence[Iterable[int]], goals: Iterable[int]) -> list[int]:
    """The fewest edges from every node to a goal; -1 where there is no path."""
    before, out = converse(after), [-1] * len(after)
    order = list(goals)
    for goal in order:
        out[goal] = 0
    for node in order:
        for source in before[node]:
            if out[source] < 0:
                out[source] = out[node] + 1
                order.append(source)
    return out


def longest_path(after: Sequence[Iterable[int]], first: int) -> int | None:
    """The most edges of a path from a node; None where a circle can be reached, so that there is no bound."""
    targets = {node: set(after[node]) for node in reach([first], after.__getitem__)}
    waits = Counter(target for some in targets.values() for target in some)
    length = {first: 0}
    order = [] if waits[first] else [first]
    for node in order:
        for target in targets[node]:
            length[target] = max(length.get(target, 0), length[node] + 1)
            waits[target] -= 1
            if not waits[target]:
                order.append(target)
    return max(length.values()) if len(order) == len(targets) else None


def refined(kind: Iterable[Hashable], key: Callable[[int, list[int]], Hashable]) -> list[int]:
    """The coarsest partition finer than a given one in which nodes of one block have equal keys.

    Args:
      kind: what tells the nodes apart to begin with, node by node.
      key: of a node and the block of every node; it must not depend on how blocks are numbered.

    Returns:
      The block of every node; blocks are numbered from 0 in the order of their first nodes.

    Source: E. F. Moore, "Gedanken-experiments on sequential machines", 1956.
    """
    blocks: dict[Hashable, list[int]] = {}
    for node, one in enumerate(kind):
        blocks.setdefault(one, []).append(node)
    block_of = [0] * sum(map(len, blocks.values()))
    for block, nodes in enumerate(blocks.values()):
        for node in nodes:
            block_of[node] = block
    count, before = len(blocks), 0
    larger = [nodes for nodes in blocks.values() if len(nodes) > 1]
    while larger and count != before:
        check_time("telling states apart")
        before, parts = count, []
        for nodes in larger:  # all keys of a round are of the blocks before it
            by_key: dict[Hashable, list[int]] = {}
            for node in nodes:
                by_key.setdefault(key(node, block_of), []).append(node)
            parts.append(list(by_key.values()))
        for part in [part for split in parts for part in split[1:]]:
            for node in part:
                block_of[node] = count
            count += 1
        larger = [part for split in parts for part in split if len(part) > 1]
    number: dict[int, int] = {}
    return [number.setdefault(block, len(number)) for block in block_of]


def examples(block_of: list[int]) -> list[int]:
    """The first node of every block, of blocks that are numbered in the order of their first nodes."""
    out: list[int] = []
    for node, block in enumerate(block_of):
        if block == len(out):
            out.append(node)
    return out


def refined_table(table: np.ndarray, kind: np.ndarray, rounds: int | None = None) -> np.ndarray | None:
    """The same for the states of a table, by random 64-bit sums: two different states have one sum with probability 2 ** -63.

    Args:
      table: int[S, K], next state; -1 for none.
      kind: int[S], what tells states apart to begin with.
      rounds: most rounds; long chains take as many as they have states.

    Returns:
      int64[S], the block of every state, numbered in the order of their first states; None when the rounds did not suffice.
    """
    weight, mark = mixed(np.arange(table.shape[1])), mixed(table.shape[1] + np.arange(len(table) + 1))
    block, count = np.append(ranked(kind), -1), 0
    while rounds is None or rounds > 0:
        of_state = mark[block]
        block[:-1] = ranked((of_state[table] * weight).sum(1, dtype=np.uint64) + of_state[:-1] * np.uint64(3))
        if (found := int(block.max()) + 1) == count:
            return block[:-1]
        count, rounds = found, rounds and rounds - 1
    return None


def moves(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct edges of a table of next states, int64[E] each, by source; those to state 0 are left out."""
    ordered = np.sort(table, axis=1)
    fresh = ordered != 0
    fresh[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return fresh.nonzero()[0], ordered[fresh].astype(np.int64)


_MANY = 50
"""So many nodes are looked at together."""
_PER_LEVEL = 400
"""Edges that are made a list of in the time that NumPy takes for a level."""


def reached(source: np.ndarray, target: np.ndarray, first: Iterable[int], size: int) -> np.ndarray:
    """Which nodes edges lead to from the first ones, these included: bool[size]."""
    return followed(target[order_of(source)], firsts(source, size), first)


def followed(after: np.ndarray, begin: np.ndarray, first: Iterable[int]) -> np.ndarray:
    """Which nodes can be reached from the first ones, these included: bool[S].

    Levels of many new nodes are followed with NumPy, and so are some smaller ones, as many as cost less than lists of all edges;
    what is left is followed node by node, since automata are often chains, whose levels are single nodes.

    Args:
      after: targets of the edges of all nodes, one node after the other.
      begin: int64[S + 1], where those of each node begin.
    """
    level = np.fromiter(first, np.int64)
    found = np.zeros(len(begin) - 1, bool)
    found[level] = True
    few = len(after) // _PER_LEVEL
    while len(level) >= _MANY or (len(level) and few):
        few -= len(level) < _MANY
        new = after[indices(begin[level], begin[level + 1])]
        level = distinct(new[~found[new]])
        found[level] = True
    if not len(level):
        return found
    todo = level.tolist()
    targets, offset, seen = after.tolist(), begin.tolist(), bytearray(found.tobytes())
    while todo:
        node = todo.pop()
        for other in targets[offset[node] : offset[node + 1]]:
            if not seen[other]:
                seen[other] = 1
                todo.append(other)
    return np.frombuffer(seen, bool)


def useful(source: np.ndarray, target: np.ndarray, final: np.ndarray, start: int) -> np.ndarray:
    """Which nodes lie on some path from the start to a final one: bool[S]."""
    forward = reached(source, target, [start], len(final))
    return forward & reached(target, source, final.nonzero()[0].tolist(), len(final))
