"""Sorted rows of ids to a trie in level order, with NumPy, level by level."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.artifact.item_trie import LONGEST_ITEM
from fsa_compile.limits import Deadline

_DOING = "Building the trie of the items"


class Trie(NamedTuple):
    """The arrays of `CompiledItems`, named as there."""

    token: np.ndarray
    first: np.ndarray
    distance: np.ndarray
    item: np.ndarray


class _Level(NamedTuple):
    """Nodes of one depth, in the order of their texts: last token, number of children, and the item that ends there or -1."""

    token: np.ndarray
    children: np.ndarray
    item: np.ndarray


def trie_of(matrix: np.ndarray, vocab_size: int, deadline: Deadline) -> Trie:
    """The trie of items.

    Args:
      matrix: int[N, L], N and L at least 1, ids below `vocab_size`, -1 from each item's end on; no item is empty.
    """
    width = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32).itemsize
    # Of each id token, first child and distance, twice while levels are joined; of each item keys, order, two columns, flags.
    deadline.check_bytes(matrix.size * (width + 5) * 2 + len(matrix) * 100, _DOING)
    order = _sorted_order(matrix, vocab_size)
    levels = _levels(matrix, order, np.dtype(f"<u{width}") if width == 2 else np.dtype("<i4"), deadline)
    distance = _distances(levels)
    sizes = [1, *(len(level.token) for level in levels)]
    first = np.empty(sum(sizes) + 1, np.int32)
    first[0] = 1
    children = [np.array([sizes[1]]), *(level.children for level in levels)]
    np.cumsum(np.concatenate(children), out=first[1:])
    first[1:] += 1
    ends = [level.item[level.item >= 0] for level in levels]
    root = np.zeros(1, levels[0].token.dtype)
    return Trie(
        token=np.concatenate([root, *(level.token for level in levels)]),
        first=first,
        distance=np.concatenate(distance),
        item=np.concatenate(ends).astype(np.int32),
    )


def _sorted_order(matrix: np.ndarray, vocab_size: int) -> np.ndarray:
    """The order of the items' texts; a beginning comes before what it begins, equal items in the order given.

    As many ids as fit are packed into one 64-bit key.
    """
    bits = int(vocab_size).bit_length()  # of an id plus one
    each = 64 // bits
    keys = []
    for at in range(0, matrix.shape[1], each):
        key = np.zeros(len(matrix), np.uint64)
        for column in range(at, min(at + each, matrix.shape[1])):
            key <<= np.uint64(bits)
            key |= (matrix[:, column].astype(np.int64) + 1).astype(np.uint64)
        keys.append(key)
    return keys[0].argsort(kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1])


def _levels(matrix: np.ndarray, order: np.ndarray, dtype: np.dtype, deadline: Deadline) -> list[_Level]:
    length = matrix.shape[1]
    column = matrix[order, 0]
    new = _differs(column)
    rows = np.flatnonzero(new)
    levels = []
    for depth in range(length):
        deadline.check(_DOING)
        after = matrix[order, depth + 1] if depth + 1 < length else np.full(len(matrix), -1, matrix.dtype)
        new = (new | _differs(after)) & (after >= 0)
        ends = np.where(after[rows] < 0, order[rows], -1)
        levels.append(_Level(column[rows].astype(dtype), np.add.reduceat(new, rows, dtype=np.int32), ends))
        column, rows = after, np.flatnonzero(new)
        if not len(rows):
            break
    return levels


def _differs(column: np.ndarray) -> np.ndarray:
    """Whether each entry differs from the one before it."""
    out = np.ones(len(column), bool)
    np.not_equal(column[1:], column[:-1], out=out[1:])
    return out


def _distances(levels: list[_Level]) -> list[np.ndarray]:
    """Tokens to the end of the nearest item, of the root and of every level."""
    dtype = np.dtype(np.uint8 if len(levels) < LONGEST_ITEM[np.uint8] else np.uint16)
    out: list[np.ndarray] = []
    below = np.zeros(0, dtype)
    for level in reversed(levels):
        distance = np.zeros(len(level.token), dtype)
        inner = np.flatnonzero((level.item < 0) & (level.children > 0))
        if len(inner):
            begin = np.cumsum(level.children) - level.children
            parents = level.children > 0  # segments of the others are empty, which reduceat does not know
            nearest = np.zeros(len(level.token), dtype)
            nearest[parents] = np.minimum.reduceat(below, begin[parents])
            distance[inner] = nearest[inner] + dtype.type(1)
        out.append(distance)
        below = distance
    out.append(np.array([below.min() + dtype.type(1)], dtype))
    return out[::-1]
