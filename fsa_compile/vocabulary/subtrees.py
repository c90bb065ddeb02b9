"""What lies below each node of the vocabulary's trie: which bytes are read there, and which tokens end there.

A control that stays where it is on all bytes of a subtree reads all tokens of the subtree into itself, so that long runs of
spaces, for example, need not be walked byte by byte.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.ranges import segment_sizes, segment_starts


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
      begin, end: int32[T], the tokens that end below are `token[begin:end]`, not that of the node itself.
      start: int32[T], the same with that of the node itself, which comes first.
      token: int64[*].
      depth: int32[T], bytes read on the way to each node.
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


def subtree_arrays(
    first: np.ndarray, count: np.ndarray, byte: np.ndarray, token: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What is below the nodes of a trie: `Subtrees.kinds`, `Subtrees.start`, how many tokens end below each node, and
    `Subtrees.token`.

    Args:
      first, count, byte, token: int64[T] each, see `VocabularyTables`.
    """
    level = levels(first)
    inner = (count > 0).nonzero()[0]
    child, children = first[inner], count[inner]  # ascending
    of_level = list(zip(pairwise(level), pairwise(child.searchsorted(level).tolist())))
    own = token >= 0
    kinds, read, below = np.zeros(len(first), np.uint64), _BIT[byte], np.zeros(len(first), np.int32)
    for (low, high), (at, to) in reversed(of_level):
        begin, above = child[at:to] - low, inner[at:to]
        kinds[above] = deeper = np.bitwise_or.reduceat(read[low:high], begin)
        read[above] |= deeper
        below[above] = np.add.reduceat(below[low:high] + own[low:high], begin)
    total = below + own
    start = total.cumsum(dtype=np.int32) - total
    behind = own[inner] - start[child]  # from where a node begins to where its children do, less the ends of tokens before those
    for (low, high), (at, to) in of_level:
        start[low:high] += (start[inner[at:to]] + behind[at:to]).repeat(children[at:to])
    ending = np.zeros(np.count_nonzero(own), np.int32)
    ending[start[own]] = token[own]
    return kinds, start, below, ending


def levels(first: np.ndarray) -> list[int]:
    """First node of every depth of a trie, from depth 1, and its number of nodes."""
    out = [1]
    while out[-1] < len(first):
        out.append(int(first[out[-1]]))
    return out
