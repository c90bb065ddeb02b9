"""`RowPool`: the distinct bit rows of an artifact, of which constraints over one vocabulary have many in common."""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Callable
from weakref import WeakSet

import numpy as np

from fsa_compile.arrays.integers import exampled
from fsa_compile.artifact.stored_arrays import LEAST_BYTES, StoredRows, is_smaller
from fsa_compile.composition.tokens.row_stock import RowStock
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_SHARED = "bit rows"
_SHARED_BYTES = 64 << 20
"""So many bytes of rows are kept for a vocabulary, such as those of JSON strings."""
_MOST_ROWS = 1 << 14
_MANY = 100
"""More sets than this are looked up together."""
_MORE = 200
"""So many sets more, and they can be looked up together, too."""
_LARGE = 4 << 20
"""Arrays of so many bytes get pages of 2 MB from NumPy."""
_DOING = "storing the constraint's token sets"


_NOTHING = np.zeros(1, np.uint64), np.zeros(1, np.int64)
"""Hashes and places of no set but the empty one."""


class _SharedRows:
    """Rows of many constraints, one after the other in memory, where many of them are copied at once in two thirds of the time
    that rows scattered over memory take. Threads may share it.

    Their room is asked of the system in one piece, which gives memory page by page where something is written: NumPy's own large
    arrays ask for pages of 2 MB, and making those can take a tenth of a second each.

    Attributes:
      rows: uint32[*, W], longer than it is filled; row 0 is the empty set.
      at: place of each set, by its hash. Places do not change while a pool uses them.
      full: whether no more rows are taken.
      stock: rows on disk.
      made: hashes of rows that were not there; None once such were stored.
    """

    def __init__(self, tables: VocabularyTables) -> None:
        num_words = tables.num_words
        self.stock = RowStock(tables)
        self.made: list[int] | None = []
        most = min(max(2, _SHARED_BYTES // (4 * num_words)), _MOST_ROWS)
        self.rows = np.frombuffer(_memory(4 * most * num_words), np.uint32).reshape(most, num_words)
        self.at: dict[int, int] = {0: 0}
        self.full = False
        self._size = 1
        self._sorted = _NOTHING
        self._pools: WeakSet[RowPool] = WeakSet()
        self._lock = threading.Lock()

    def used_by(self, pool: RowPool) -> None:
        """Keeps the rows at their places while there is a pool."""
        with self._lock:
            self._pools.add(pool)

    def emptied(self) -> bool:
        """Forgets all rows, unless a pool uses them; whether it did. Memory that was written before is written faster."""
        with self._lock:
            if len(self._pools):
                return False
            self.at, self._size, self.full = {0: 0}, 1, False
            self._sorted = _NOTHING
            return True

    def places(self, hashes: np.ndarray) -> np.ndarray:
        """Places of many sets, int64[n]; -1 where there is none, or where it has come of late and is known to `at` alone."""
        if self._size > len(self._sorted[0]) + _MORE:
            with self._lock:
                known = np.fromiter(self.at, np.uint64, len(self.at))
                order = known.argsort()
                self._sorted = known[order], order  # places are given in order
        known, place = self._sorted
        at = known.searchsorted(hashes)
        at[at == len(known)] = 0
        return np.where(known[at] == hashes, place[at], -1)

    def keep(self) -> None:
        """Stores what was made, once it is enough; a process does so once."""
        with self._lock:
            made = [h for h in self.made or () if h in self.at]
            if made and self.stock.store(made, [self.rows[self.at[h]] for h in made]):
                self.made = None

    def add(self, row_hash: int, row: np.ndarray) -> int:
        """Place of a set, which is added; -1 where there is no room for it."""
        with self._lock:
            place = self.at.get(row_hash)
            if place is not None:
                return place
            if self._size == len(self.rows):
                self.full = True
                return -1
            self.rows[self._size] = row
            self.at[row_hash] = self._size
            self._size += 1
            return self._size - 1


def _memory(size: int, flags: int = 0) -> mmap.mmap:
    """Bytes that are 0, and this process's own after a fork."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)


def _empty(rows: int, words: int) -> np.ndarray:
    """uint32[rows, words] with any contents. Large arrays get small pages, all at once, not those of 2 MB: see `_SharedRows`."""
    if 4 * rows * words < _LARGE:
        return np.empty((rows, words), np.uint32)
    return np.frombuffer(_memory(4 * rows * words, getattr(mmap, "MAP_POPULATE", 0)), np.uint32).reshape(rows, words)


class RowPool:
    """Distinct bit rows of a vocabulary, told apart by the hash of `VocabularyTables.row_hash`; row 0 is the empty set.

    Attributes:
      tables: of the vocabulary.
    """

    def __init__(self, tables: VocabularyTables, limits: CompileLimits) -> None:
        self.tables = tables
        self._limits, self._bytes = limits, 4 * tables.num_words
        self._most = min(limits.max_rows, limits.max_bytes // max(1, self._bytes) + 1)
        shared: _SharedRows | None = tables.memo.get(_SHARED)
        if shared is None or (shared.full and not shared.emptied()):
            shared = remember(tables, _SHARED, _SharedRows(tables))
        shared.used_by(self)
        self._shared = shared
        self._own: list[np.ndarray] = []  # their places come after all shared ones
        self._own_at: dict[int, int] = {}
        self._id = np.full(len(shared.rows), -1, np.int32)  # by place
        self._id[0] = 0
        self._at = [0]
        self._made = 0

    def __getitem__(self, row: int) -> np.ndarray:
        return self._row(self._at[row])

    def __contains__(self, row_hash: int) -> bool:
        return row_hash in self._shared.at or row_hash in self._own_at

    def add_stored(self, rows: np.ndarray, which: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Adds some sets to bit rows uint32[n, W], set i to row `which[i]`; bool[*], which sets are stored and were added."""
        places = self._shared.places(hashes)
        stored = places >= 0
        for row, place in zip(which[stored].tolist(), places[stored].tolist()):
            rows[row] |= self._shared.rows[place]
        return stored

    def of_hash(self, row_hash: int) -> np.ndarray:
        """The row of a set that is stored, here or by another constraint."""
        place = self._shared.at.get(row_hash)
        return self._row(self._own_at[row_hash] if place is None else place)

    def _row(self, place: int) -> np.ndarray:
        shared = self._shared.rows
        return shared[place] if place < len(shared) else self._own[place - len(shared)]

    def numbers(
        self,
        hashes: np.ndarray,
        build: Callable[[int], np.ndarray],
        ahead: Callable[[np.ndarray], None] | None = None,
    ) -> np.ndarray:
        """Ids of many sets, int64[n].

        Args:
          hashes: uint64[n].
          build: makes the row of entry i when its set is new; called in order of i.
          ahead: is told before for which entries, int64[*] ascending, `build` will be called; it may be for others if a file
            cannot be read.

        Raises:
          LimitError: too many rows, or too many bytes of them.
        """
        if len(hashes) <= _MANY:
            return self._few(hashes.tolist(), build, ahead)
        places = self._shared.places(hashes)
        missing = (places < 0).nonzero()[0]
        if len(missing):
            _, example, which = exampled(hashes[missing])
            order = example.argsort()
            new = missing[example[order]]
            if ahead is not None:
                ahead(np.array([i for i, h in zip(new.tolist(), hashes[new].tolist()) if self._is_new(h)], np.int64))
            made = [self._place(*one, build) for one in zip(new.tolist(), hashes[new].tolist())]
            of_example = np.empty(len(order), np.int64)
            of_example[order] = made
            places[missing] = of_example[which]
        at = (self._id[places] < 0).nonzero()[0]
        if len(at):  # numbered in order of their first occurrence
            first = exampled(places[at])[1]
            first.sort()
            new = places[at[first]]
            self._id[new] = np.arange(len(self._at), len(self._at) + len(new))
            self._at += new.tolist()
            if len(self._at) > self._most:
                self._refuse()
        return self._id[places].astype(np.int64)

    def _place(self, i: int, row_hash: int, build: Callable[[int], np.ndarray]) -> int:
        """Place of a set, whose row is made if it is new."""
        place = self._shared.at.get(row_hash, -1)
        if place < 0:
            place = self._own_at.get(row_hash, -1)
        if place < 0:
            self._made += 1
            if self._made >= self._most:
                self._refuse()
            row = self._shared.stock.row(row_hash)
            if row is None:
                row = build(i)
                if (made := self._shared.made) is not None:  # which another thread may drop meanwhile
                    made.append(row_hash)
            place = self._shared.add(row_hash, row)
            if place < 0:
                place = self._own_at[row_hash] = len(self._shared.rows) + len(self._own)
                self._own.append(row)
                if place == len(self._id):
                    self._id = np.append(self._id, np.full(place, -1, np.int32))
        return place

    def _is_new(self, row_hash: int) -> bool:
        return row_hash not in self and row_hash not in self._shared.stock

    def _few(
        self, hashes: list[int], build: Callable[[int], np.ndarray], ahead: Callable[[np.ndarray], None] | None
    ) -> np.ndarray:
        known, out = self._shared.at, []
        if ahead is not None:
            first = {row_hash: i for i, row_hash in reversed([*enumerate(hashes)])}
            ahead(np.array(sorted(i for row_hash, i in first.items() if self._is_new(row_hash)), np.int64))
        for i, row_hash in enumerate(hashes):
            place = known.get(row_hash, -1)
            if place < 0:
                place = self._place(i, row_hash, build)
            number = self._id.item(place)
            if number < 0:
                number = self._id[place] = len(self._at)
                self._at.append(place)
                if number >= self._most:
                    self._refuse()
            out.append(number)
        return np.array(out, np.int64)

    def _refuse(self) -> None:
        if self._most == self._limits.max_rows:
            raise LimitError("max_rows", self._limits.max_rows, _DOING)
        raise LimitError("max_bytes", self._limits.max_bytes, _DOING)

    def stacked(self) -> np.ndarray:
        """uint32[R, W]."""
        self._shared.keep()
        return self._taken(np.array(self._at))

    def stored(self) -> np.ndarray | StoredRows:
        """The same in pieces, where there are many and they take less room so."""
        at = np.array(self._at)
        if len(at) * self._bytes >= LEAST_BYTES:
            self._shared.keep()
            stored = StoredRows.of(lambda some: self._taken(at[some]), (len(at), self.tables.num_words))
            if stored is not None and is_smaller(stored):
                return stored
        return self.stacked()

    def _taken(self, at: np.ndarray) -> np.ndarray:
        """Rows at some places."""
        out = _empty(len(at), self.tables.num_words)
        self._shared.rows.take(at, axis=0, mode="clip", out=out)
        for i in (at >= len(self._shared.rows)).nonzero()[0].tolist() if self._own else ():
            out[i] = self._row(int(at[i]))
        return out
