"""`RowPool`: the distinct bit rows of an artifact, of which constraints over one vocabulary have many in common."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from fsa_compile.arrays.integers import exampled, order_of
from fsa_compile.artifact.row_pieces import PieceTable
from fsa_compile.artifact.stored_arrays import LEAST_IN_PARTS, StoredRows, is_smaller
from fsa_compile.composition.tokens.row_stock import RowStock
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_SHARED = "bit rows"
_SHARED_BYTES = 48 << 20
"""So many bytes of rows are kept for a vocabulary, such as those of JSON strings."""
_MOST_ROWS = 1 << 16
_FRESH = 1024
"""So many rows that are not cut into pieces yet are cut together."""
_MANY = 100
"""More sets than this are looked up together."""
_MORE = 200
"""So many sets more, and they can be looked up together, too."""
_DOING = "storing the constraint's token sets"


_NOTHING = np.zeros(1, np.uint64), np.zeros(1, np.int64)
"""Hashes and places of no set but the empty one."""


class _SharedRows:
    """Rows of many constraints, in pieces, most of which many rows have. Threads may share it.

    Attributes:
      at: place of each set, by its hash; row 0 is the empty set.
      stock: rows on disk.
      made: hashes of rows that were not there; None once such were stored.
    """

    def __init__(self, tables: VocabularyTables) -> None:
        self.stock = RowStock(tables)
        self.made: list[int] | None = []
        self.at: dict[int, int] = {0: 0}
        self._words = tables.num_words
        self._table = PieceTable(self._words)
        self._index = np.zeros((0, self._table.count), np.int32)
        self._fresh = {0: np.zeros(self._words, np.uint32)}  # rows that are not cut yet, by place
        self._sorted = _NOTHING
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether another one should take the place of this one."""
        return len(self.at) > _MOST_ROWS or self._index.nbytes + self._table.piece.nbytes > _SHARED_BYTES

    def places(self, hashes: np.ndarray) -> np.ndarray:
        """Places of many sets, int64[n]; -1 where there is none, or where it has come of late and is known to `at` alone."""
        if len(self.at) > len(self._sorted[0]) + _MORE:
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
            made = self.made or []
            if made and self.stock.store(made, [self.row(self.at[h]) for h in made]):
                self.made = None

    def add(self, row_hash: int, row: np.ndarray) -> int:
        """Place of a set, which is added."""
        with self._lock:
            place = self.at.get(row_hash)
            if place is None:
                if len(self._fresh) >= _FRESH:
                    self._cut()
                place = len(self.at)
                self._fresh[place] = row
                self.at[row_hash] = place
            return place

    def _cut(self) -> None:
        """Cuts what is fresh into pieces."""
        rows = list(self._fresh.values())
        first, end = len(self.at) - len(rows), len(self.at)
        if end > len(self._index):
            longer = np.zeros((max(end, len(self._index) * 5 // 4), self._table.count), np.int32)
            longer[:first] = self._index[:first]
            self._index = longer
        self._index[first:end] = self._table.cut(lambda some: np.stack(rows[some]), len(rows))
        self._fresh = {}  # others may read the old one meanwhile

    def row(self, place: int) -> np.ndarray:
        """uint32[W]."""
        row = self._fresh.get(place)
        return self._table.rows(self._index[place]) if row is None else row

    def rows(self, at: np.ndarray) -> np.ndarray:
        """uint32[n, W], at places."""
        with self._lock:
            self._cut()
            return self._table.rows(self._index[at])

    def in_pieces(self, at: np.ndarray) -> StoredRows:
        """The same, in pieces."""
        with self._lock:
            self._cut()
            piece, index = self._table.among(self._index[at])
        return StoredRows({"piece": piece, "index": index}, (len(at), self._words))


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
        if shared is None or shared.full:
            shared = remember(tables, _SHARED, _SharedRows(tables))
        self._shared = shared
        self._id = np.full(len(shared.at), -1, np.int32)  # by place
        self._id[0] = 0
        self._at = [0]
        self._made = 0

    def __getitem__(self, row: int) -> np.ndarray:
        return self._shared.row(self._at[row])

    def add_stored(self, rows: np.ndarray, which: np.ndarray, hashes: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """Adds some sets to bit rows uint32[n, W], set i to row `which[i]`; bool[*], which sets are stored and were added. Set i
        has the hash `hashes[kind[i]]`."""
        places = self._shared.places(hashes).take(kind)
        stored = (places >= 0).nonzero()[0]
        stored = stored[order_of(places[stored])]  # each set's row is made once
        row, of = self[0], 0
        for i, place in zip(which[stored].tolist(), places[stored].tolist()):
            if place != of:
                row, of = self._shared.row(place), place
            rows[i] |= row
        return places >= 0

    def of_hash(self, row_hash: int) -> np.ndarray:
        """The row of a set that is stored, here or by another constraint."""
        return self._shared.row(self._shared.at[row_hash])

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
        self._reach(int(places.max()))
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
            self._made += 1
            if self._made >= self._most:
                self._refuse()
            row = self._shared.stock.row(row_hash)
            if row is None:
                row = build(i)
                if (made := self._shared.made) is not None:  # which another thread may drop meanwhile
                    made.append(row_hash)
            place = self._shared.add(row_hash, row)
        return place

    def _reach(self, place: int) -> None:
        """Gives places up to one a number."""
        if place >= len(self._id):
            self._id = np.append(self._id, np.full(place + 1, -1, np.int32))

    def _is_new(self, row_hash: int) -> bool:
        return row_hash not in self._shared.at and row_hash not in self._shared.stock

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
            self._reach(place)
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
        return self._shared.rows(np.array(self._at))

    def stored(self) -> np.ndarray | StoredRows:
        """The same in pieces, where they take less room so."""
        if len(self._at) * self._bytes >= LEAST_IN_PARTS:
            self._shared.keep()
            stored = self._shared.in_pieces(np.array(self._at))
            if is_smaller(stored):
                return stored
        return self.stacked()
