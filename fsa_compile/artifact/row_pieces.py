"""`PieceTable`: bit rows cut into pieces, of which equal ones stand once. Imports NumPy only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import exampled

PIECE = 16
"""Words of a piece of a row: a cache line."""
_ROWS = 16
"""Rows that are cut together: so many stay in the cache."""
_BLOCK = 1 << 12
"""Pieces that are compared together."""
_LATE = 16
"""Late pieces are sorted in with all others once they are one in so many."""
_Known: TypeAlias = "tuple[np.ndarray, np.ndarray]"
_NONE: _Known = np.zeros(0, np.uint64), np.zeros(0, np.int32)


class PieceTable:
    """Pieces of rows uint32[*, W], in order of their first occurrence.

    They are found by 64-bit hashes and compared with what is found, so that rows are exact whatever their hashes are.

    Attributes:
      count: pieces of a row, ceil(W / `PIECE`).
      piece: uint32[*, PIECE], longer than it is filled.
      size: how far it is filled.
    """

    def __init__(self, words: int) -> None:
        self._words, self.count, self.size = words, -(-words // PIECE), 0
        self.piece = np.zeros((64, PIECE), np.uint32)
        # Hashes, ascending, and their pieces: most, and those that have come since. So a few new ones do not move all others.
        self._known = self._late = _NONE

    def cut(self, rows: Callable[[slice], np.ndarray], size: int) -> np.ndarray:
        """Takes rows: the numbers of their pieces, int32[size, count].

        Many a row is the one before it in most of its pieces: these are not looked at again.

        Args:
          rows: makes some of the rows uint32[*, W], a few at once.
          size: how many there are.
        """
        weight = mixed(np.arange(PIECE // 2)) | np.uint64(1)
        block = np.zeros((min(size, _ROWS) + 1, self.count, PIECE), np.uint32)  # first the last row of the block before
        halves, flat = block.view(np.uint64), block.reshape(len(block), -1)
        new, pieces, keys = np.ones((size, self.count), bool), list[np.ndarray](), list[np.ndarray]()
        for begin in range(0, size, _ROWS):
            some = rows(slice(begin, begin + _ROWS))
            end = len(some) + 1
            flat[1:end, : self._words] = some
            own = new[begin : begin + _ROWS]
            differs = (halves[1:end] != halves[: end - 1]).view(np.uint64)[..., 0] > 0  # some of the eight booleans
            own[int(begin == 0) :] = differs[int(begin == 0) :]
            pieces.append(block[1:end][own])
            words = pieces[-1].view(np.uint64)
            keys.append(((words ^ words >> np.uint64(32)) * weight).sum(1, dtype=np.uint64))
            block[0] = block[end - 1]
        if not pieces:
            return np.zeros((0, self.count), np.int32)
        number = self._numbers(np.concatenate(pieces), np.concatenate(keys))
        last = np.zeros(new.shape, np.int32)
        last[new] = np.arange(len(number), dtype=np.int32)
        return number[np.maximum.accumulate(last)]

    def _numbers(self, some: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Numbers of pieces uint32[n, PIECE] with the given hashes, int32[n]; those that are new are added."""
        keys, example, which = exampled(keys)
        number = _found(self._late, keys, _found(self._known, keys, np.full(len(keys), -1, np.int32)))
        new = (number < 0).nonzero()[0]
        if len(new):
            order = example[new].argsort()
            number[new[order]] = self._added(some[example[new[order]]])
            self._late = _merged(self._late, (keys[new], number[new]))
            if len(self._late[0]) * _LATE > len(self._known[0]):
                self._known, self._late = _merged(self._known, self._late), _NONE
        number = number[which]
        for begin in range(0, len(some), _BLOCK):  # which stay in the cache
            here = slice(begin, begin + _BLOCK)
            differs = self.piece.view(np.uint64).take(number[here], 0) != some[here].view(np.uint64)
            other = differs.view(np.uint64)[:, 0].nonzero()[0] + begin  # some of the eight booleans
            if len(other):  # of one hash with another piece
                number[other] = self._added(some[other])
        return number

    def _added(self, some: np.ndarray) -> np.ndarray:
        """Numbers of new pieces."""
        end = self.size + len(some)
        if end > len(self.piece):
            longer = np.zeros((max(end, 2 * len(self.piece)), PIECE), np.uint32)
            longer[: self.size] = self.piece[: self.size]
            self.piece = longer  # others may read the old one meanwhile
        self.piece[self.size : end] = some
        self.size = end
        return np.arange(end - len(some), end, dtype=np.int32)

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Rows uint32[..., W] from the numbers of their pieces int32[..., count]."""
        return rows_of(self.piece, index, self._words)

    def among(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the pieces of some rows, in order of their first occurrence; the numbers of each row's pieces among these)."""
        new = np.ones(index.shape, bool)
        np.not_equal(index[1:], index[:-1], out=new[1:])  # no piece of the row before occurs first
        flat = index.ravel()[new.ravel().nonzero()[0]]
        first, place = np.empty(self.size, np.int32), np.arange(len(flat), dtype=np.int32)  # only the pieces met are looked up
        first[flat[::-1]] = place[::-1]
        used = flat[first.take(flat) == place]
        first[used] = place[: len(used)]
        return self.piece.take(used, 0), first.take(index)


def rows_of(piece: np.ndarray, index: np.ndarray, words: int) -> np.ndarray:
    """Rows uint32[..., words] of pieces uint32[*, PIECE], by their numbers int32[..., count]."""
    return piece.take(index, 0).reshape(*index.shape[:-1], index.shape[-1] * PIECE)[..., :words]


def _found(known: _Known, keys: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The pieces of some hashes, ascending, that are known, int32[n]; the given numbers of the others."""
    hashes, piece = known
    if not len(hashes):
        return number
    at = hashes.searchsorted(keys)
    at[at == len(hashes)] = 0
    return np.where(hashes[at] == keys, piece[at], number)


def _merged(known: _Known, more: _Known) -> _Known:
    """Both together, in order."""
    hashes, piece = np.concatenate((known[0], more[0])), np.concatenate((known[1], more[1]))
    order = hashes.argsort(kind="stable")  # which is fast: two pieces, each in order
    return hashes[order], piece[order]
