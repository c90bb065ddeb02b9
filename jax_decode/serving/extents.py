"""Free room of one table: lists of entries that are handed out in pieces, given back and joined again. NumPy only."""

from __future__ import annotations

import bisect
from collections.abc import KeysView
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Piece(NamedTuple):
    """Consecutive entries of a table: the first one, and how many."""

    start: int
    size: int


class Extents:
    """Which entries of a table are free.

    Args:
      size: entries of the table that may be handed out.
      first: the first of them.
    """

    def __init__(self, size: int, first: int = 0) -> None:
        self._end, self._holes = first, list[Piece]()
        self.free = 0
        self.extend(size)

    def extend(self, size: int) -> None:
        """Adds free entries up to `size`, that of the larger table."""
        self.give([Piece(self._end, size - self._end)])
        self._end = max(self._end, size)

    def take(self, units: NDArray[np.int64]) -> list[Piece] | None:
        """Room for units one after another; None where there is none.

        Args:
          units: entries of each unit. A unit lies in one piece; different ones may lie in different pieces.

        Returns:
          As few pieces as the largest holes allow, in the order of the units.
        """
        total = int(units.sum())
        if total > self.free:
            return None
        fitting = [hole for hole in self._holes if hole.size >= total]
        if fitting or not total:
            return self._cut([Piece(min(fitting, key=lambda hole: hole.size).start, total)]) if total else []
        ends = np.concatenate([[0], np.cumsum(units)])
        pieces, done = list[Piece](), 0
        for hole in sorted(self._holes, key=lambda hole: -hole.size):
            upto = int(np.searchsorted(ends, ends[done] + hole.size, side="right")) - 1
            if upto > done:
                pieces.append(Piece(hole.start, int(ends[upto] - ends[done])))
                done = upto
            if ends[done] == total:
                return self._cut(pieces)
        return None

    def give(self, pieces: list[Piece]) -> None:
        """Makes pieces free again."""
        for piece in pieces:
            if piece.size <= 0:
                continue
            self.free += piece.size
            at = bisect.bisect(self._holes, piece)
            start, end = piece.start, piece.start + piece.size
            if at < len(self._holes) and self._holes[at].start == end:
                end += self._holes.pop(at).size
            if at and sum(self._holes[at - 1]) == start:
                at -= 1
                start = self._holes.pop(at).start
            self._holes.insert(at, Piece(start, end - start))

    def _cut(self, pieces: list[Piece]) -> list[Piece]:
        """Takes pieces, each the beginning of a hole, out of the holes."""
        for start, count in pieces:
            at = bisect.bisect_left(self._holes, (start, 0))
            hole = self._holes.pop(at)
            if hole.size > count:
                self._holes.insert(at, Piece(start + count, hole.size - count))
            self.free -= count
        return pieces


def entries(pieces: list[Piece]) -> NDArray[np.int32]:
    """The entries of pieces, in their order."""
    each = [np.arange(start, start + count, dtype=np.int32) for start, count in pieces]
    return np.concatenate(each) if each else np.zeros(0, np.int32)


class Shared:
    """Entries of a table that are told by their content: equal ones are stored once, and counted.

    Args:
      size: entries of the table.
      fixed: contents of the first entries, which stay.
    """

    def __init__(self, size: int, fixed: list[bytes]) -> None:
        self._entry = {content: i for i, content in enumerate(fixed)}
        self._content = dict[int, bytes]()
        self._count = dict[int, int]()
        self._num_fixed = len(fixed)
        self._free = list(range(size - 1, len(fixed) - 1, -1))
        self._size = size

    @property
    def free(self) -> int:
        """How many entries are free."""
        return len(self._free)

    @property
    def contents(self) -> KeysView[bytes]:
        """What is stored."""
        return self._entry.keys()

    def extend(self, size: int) -> None:
        """Adds free entries up to `size`."""
        self._free = list(range(size - 1, self._size - 1, -1)) + self._free
        self._size = max(size, self._size)

    def take(self, contents: list[bytes]) -> tuple[list[int], list[int]] | None:
        """Entries for contents, and which of the contents are to be written; None where there is no room.

        Every content given counts as one use of its entry.
        """
        if len({content for content in contents if content not in self._entry}) > len(self._free):
            return None
        found, fresh = [], []
        for i, content in enumerate(contents):
            entry = self._entry.get(content)
            if entry is None:
                entry = self._entry[content] = self._free.pop()
                self._content[entry] = content
                fresh.append(i)
            if entry >= self._num_fixed:
                self._count[entry] = self._count.get(entry, 0) + 1
            found.append(entry)
        return found, fresh

    def give(self, used: list[int]) -> None:
        """Takes back one use of each entry; those without any become free."""
        for entry in used:
            if entry < self._num_fixed:
                continue
            self._count[entry] -= 1
            if not self._count[entry]:
                del self._count[entry], self._entry[self._content.pop(entry)]
                self._free.append(entry)
