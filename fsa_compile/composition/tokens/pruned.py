"""The vocabulary's trie cut down to some tokens of each of many entries, as further nodes behind those of the whole trie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import numbered, occupied
from fsa_compile.arrays.ranges import segment_sizes, segment_starts
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_MOST_MARKS = 1 << 25
"""So many pairs of an entry and a trie node are marked at once."""


class Nodes(NamedTuple):
    """Trie nodes that a walk reads on from: those of the trie (`items.Trie`), and perhaps those of a cut behind them.

    Attributes:
      first, children, token, symbol: as in `Trie`, of shorter types where there is a cut: nodes are many.
    """

    first: np.ndarray
    children: np.ndarray
    token: np.ndarray
    symbol: np.ndarray


class CutTrie(NamedTuple):
    """Paths to some tokens, by entry.

    Attributes:
      roots: int64[R], entry * T + trie node, of the nodes of depth 1, ascending: they are the first ones.
      node: int32[N], trie node of each node.
      first, children, token: int32[N], as in `Trie`, `first` counted from the first node of the cut.
    """

    roots: np.ndarray
    node: np.ndarray
    first: np.ndarray
    children: np.ndarray
    token: np.ndarray

    def behind(self, nodes: Nodes) -> Nodes:
        """The nodes of the cut behind others."""
        size = len(nodes.first)
        columns = (
            (nodes.first, self.first + np.int32(size)),
            (nodes.children, self.children),
            (nodes.token, self.token),
            (nodes.symbol, nodes.symbol.astype(np.int32)[self.node]),
        )
        return Nodes(*(np.concatenate(pair, dtype=pair[1].dtype, casting="same_kind") for pair in columns))

    def root(self, key: np.ndarray) -> np.ndarray:
        """Node of every entry * T + trie node of depth 1, counted from the first node of the cut, -1 where no path begins."""
        if not len(self.roots):
            return np.full(len(key), -1)
        at = np.minimum(self.roots.searchsorted(key), len(self.roots) - 1)
        return np.where(self.roots[at] == key, at, -1)


def cut_trie(tables: VocabularyTables, entry: np.ndarray, token: np.ndarray, depth: np.ndarray) -> CutTrie:
    """The paths to tokens.

    Args:
      entry, token: int64[n] each, no pair twice.
      depth: int32[T], depth of every trie node.
    """
    node_of, parent = _upwards(tables)
    node = node_of[token]
    entry, node = entry[node > 0], node[node > 0]  # ids that write what another one writes have no node
    if not len(node):
        none = np.zeros(0, np.int64)
        return CutTrie(none, none, none, none, none)
    entries, row = numbered(entry)
    column, nodes, level = _paths_to(node, parent, depth)
    above = column[parent[nodes]]
    several = max(1, _MOST_MARKS // len(nodes))
    found: list[list[tuple[np.ndarray, ...]]] = [[] for _ in level[1:]]
    for begin in range(0, len(entries), several):
        some = slice(None) if several >= len(entries) else ((row >= begin) & (row < begin + several)).nonzero()[0]
        marks = np.zeros((min(several, len(entries) - begin), len(nodes)), np.uint8)
        marks[row[some] - begin, column[node[some]]] = 1
        for here, (which, at, children, ends) in zip(found, reversed(list(_marked(marks, above, level)))):
            roots = entries[begin + which] * len(parent) + nodes[at] if here is found[0] else node[:0]
            here.append((roots, nodes[at].astype(np.int32), children.astype(np.int32), ends))
    roots, every, children, ends = (np.concatenate(column) for column in zip(*(part for here in found for part in here)))
    first = (len(roots) - children + children.cumsum(dtype=np.int32)).astype(np.int32, copy=False)
    return CutTrie(roots, every, first, children, np.where(ends, tables.trie_token.astype(np.int32)[every], np.int32(-1)))


def _paths_to(node: np.ndarray, parent: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """(the number of each trie node among those on paths to some nodes; these, ascending, which is by depth; where those of each
    depth begin, from depth 1)."""
    last = int(depth[node].max())
    begin = depth.searchsorted(np.arange(1, last + 2)).tolist()
    on = np.zeros(len(parent), bool)
    on[node] = True
    for low, high in zip(begin[-2:0:-1], begin[:1:-1]):
        on[parent[low + on[low:high].nonzero()[0]]] = True
    nodes = on.nonzero()[0]
    return on.cumsum() - 1, nodes, depth[nodes].searchsorted(np.arange(1, last + 2)).tolist()


def _marked(
    marks: np.ndarray, above: np.ndarray, level: list[int]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """(row, column, number of children, whether a token ends there) of what is on paths to the marks, from the deepest level.

    Args:
      marks: uint8[E, N], by entry and node, 1 where a token ends; has 2 added where a path goes on, then.
      above: int64[N], the parent of each node.
      level: where those of each depth begin, and N.
    """
    flat, size = marks.reshape(-1), np.zeros(0, np.int64)
    for low, high in zip(level[-2::-1], level[:0:-1]):
        row, column = occupied(marks[:, low:high])
        column += low
        value = marks[row, column]
        children = np.zeros(len(row), np.int64)
        children[value >= 2] = size
        yield row, column, children, (value & 1) > 0
        if low > level[0]:
            parent = row * len(above) + above[column]  # ascending, as the trie is in breadth-first order
            begin = segment_starts(parent)
            size = segment_sizes(begin, len(parent))
            flat[parent[begin]] |= 2


def _upwards(tables: VocabularyTables) -> tuple[np.ndarray, np.ndarray]:
    """Trie node of every token (0 for none), and parent of every trie node."""
    found = tables.memo.get("upwards")
    if found is None:
        node_of = np.zeros(tables.vocab_size, np.int64)
        node = (tables.trie_token >= 0).nonzero()[0]
        node_of[tables.trie_token[node]] = node
        parent = np.zeros(len(tables.trie_first), np.int64)
        parent[1:] = np.repeat(np.arange(len(parent)), tables.trie_count)
        found = remember(tables, "upwards", (node_of, parent))
    return found
