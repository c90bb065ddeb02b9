"""The vocabulary's trie cut down to some tokens of each of many entries, as further nodes behind those of the whole trie."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


class Nodes(NamedTuple):
    """Trie nodes that a walk reads on from: those of the trie (`items.Trie`), and perhaps those of a cut behind them.

    Attributes:
      first, children, token: as in `Trie`.
      symbol: int64[*], as in `Trie`.
    """

    first: np.ndarray
    children: np.ndarray
    token: np.ndarray
    symbol: np.ndarray


class CutTrie(NamedTuple):
    """Paths to some tokens, by entry.

    Attributes:
      roots: int64[R], entry * T + trie node, of the nodes of depth 1, ascending: they are the first ones.
      node: int64[N], trie node of each node.
      first, children, token: int64[N], as in `Trie`, `first` counted from the first node of the cut.
    """

    roots: np.ndarray
    node: np.ndarray
    first: np.ndarray
    children: np.ndarray
    token: np.ndarray

    def behind(self, nodes: Nodes) -> Nodes:
        """The nodes of the cut behind others."""
        size = len(nodes.first)
        return Nodes(
            np.concatenate([nodes.first, self.first + size]),
            np.concatenate([nodes.children, self.children]),
            np.concatenate([nodes.token, self.token]),
            np.concatenate([nodes.symbol, nodes.symbol[self.node]]),
        )

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
      depth: int64[T], depth of every trie node.
    """
    node_of, parent = _upwards(tables)
    size = len(parent)
    node = node_of[token]
    entry, node = entry[node > 0], node[node > 0]  # ids that write what another one writes have no node
    key = np.sort(entry * size + node)
    deep = depth[key % size]
    below = np.zeros(0, np.int64)
    levels: list[np.ndarray] = []
    begins: list[np.ndarray] = []  # of each level but the last, where the children of each node begin in the next one
    for d in range(int(deep.max(initial=0)), 0, -1):
        above = parent[below % size] + below // size * size  # ascending, as the trie is in breadth-first order
        here = np.concatenate([key[deep == d], above])
        here.sort()
        here = here[np.append(True, here[1:] != here[:-1])] if len(here) else here
        begins.append(above.searchsorted(np.append(here, (1 << 62))))
        levels.append(here)
        below = here
    levels.reverse()
    begins.reverse()
    if not levels:
        none = np.zeros(0, np.int64)
        return CutTrie(none, none, none, none, none)
    every = np.concatenate(levels)
    number = np.cumsum([len(level) for level in levels])
    first = np.concatenate([begin[:-1] + after for begin, after in zip(begins, number.tolist())])
    children = np.concatenate([np.diff(begin) for begin in begins])
    found = every % size
    ends = np.minimum(key.searchsorted(every), len(key) - 1)
    return CutTrie(levels[0], found, first, children, np.where(key[ends] == every, tables.trie_token[found], -1))


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
