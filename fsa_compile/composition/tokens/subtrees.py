"""What lies below each node of the vocabulary's trie: which bytes are read there, and which tokens end there.

A control that stays where it is on all bytes of a subtree reads all tokens of the subtree into itself, so that long runs of
spaces, for example, need not be walked byte by byte.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.ranges import segment_sizes, segment_starts
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


def _kinds() -> np.ndarray:
    kind = np.full(256, -1)
    for number, (low, high) in enumerate(((0x61, 0x7B), (0x41, 0x5B), (0x30, 0x3A), (0x80, 0xC0), (0xC0, 0xE0), (0xE0, 0x100))):
        kind[low:high] = number
    own = np.array([b for b in (9, 10, 13, *range(32, 127)) if kind[b] < 0])
    kind[own] = np.arange(6, 6 + len(own))
    kind[kind < 0] = 6 + len(own)
    return kind


_BIT = np.uint64(1) << _kinds().astype(np.uint64)
"""A bit for every byte. Letters, digits, control characters and parts of non-ASCII characters share bits."""


class Subtrees(NamedTuple):
    """Of every trie node, what is below it.

    Attributes:
      kinds: uint64[T], bits of the bytes that are read below.
      begin, end: int64[T], the tokens that end below are `token[begin:end]`, not that of the node itself.
      start: int64[T], the same with that of the node itself, which comes first.
      token: int64[*].
      depth: int64[T], bytes read on the way to each node.
    """

    kinds: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    start: np.ndarray
    token: np.ndarray
    depth: np.ndarray

    def holds(self, over: np.ndarray, under: np.ndarray) -> np.ndarray:
        """Whether trie nodes are others or below them: bool[n]."""
        within = (self.begin[over] <= self.start[under]) & (self.end[under] <= self.end[over]) & (over < under)
        return within | (over == under)


def kinds_read(control: np.ndarray, symbol: np.ndarray, shape: tuple[int, int], byte_class: np.ndarray) -> np.ndarray:
    """uint64[S], bits of which all bytes are read; the complement of a union, so that no bit without bytes is missing.

    Args:
      control, symbol: int64[n], which controls read which classes, by control.
      shape: (S, C), number of controls and classes.
      byte_class: int[256].
    """
    bits = np.zeros(shape[1], np.uint64)
    np.bitwise_or.at(bits, byte_class, _BIT)
    out = np.full(shape[0], ~np.bitwise_or.reduce(bits))
    begin = segment_starts(control)
    unread = np.ones((len(begin), shape[1]), bool)
    unread[np.repeat(np.arange(len(begin)), segment_sizes(begin, len(control))), symbol] = False
    out[control[begin]] = ~np.bitwise_or.reduce(np.where(unread, bits, np.uint64(0)), axis=1)
    return out


def subtrees_of(tables: VocabularyTables) -> Subtrees:
    """The subtrees of a vocabulary's trie, remembered."""
    found = tables.memo.get("subtrees")
    if found is not None:
        return found
    first, size = tables.trie_first, len(tables.trie_first)
    level = [1]
    while level[-1] < size:
        level.append(int(first[level[-1]]))
    inner = (tables.trie_count > 0).nonzero()[0]
    child, count = first[inner], tables.trie_count[inner]  # ascending
    of_level = list(zip(pairwise(level), pairwise(child.searchsorted(level).tolist())))
    own = tables.trie_token >= 0
    kinds, read, total = np.zeros(size, np.uint64), _BIT[tables.trie_byte], own.astype(np.int64)
    for (low, high), (at, to) in reversed(of_level):
        begin, above = child[at:to] - low, inner[at:to]
        kinds[above] = below = np.bitwise_or.reduceat(read[low:high], begin)
        read[above] |= below
        total[above] += np.add.reduceat(total[low:high], begin)
    start = total.cumsum() - total
    behind = own[inner] - start[child]  # from where a node begins to where its children do, less the ends of tokens before those
    for (low, high), (at, to) in of_level:
        start[low:high] += (start[inner[at:to]] + behind[at:to]).repeat(count[at:to])
    token = np.zeros(np.count_nonzero(own), np.int64)
    ends = own.nonzero()[0]
    token[start[ends]] = tables.trie_token[ends]
    depth = np.arange(len(level)).repeat(np.diff(level, prepend=0))
    return remember(tables, "subtrees", Subtrees(kinds, start + own, start + total, start, token, depth))
