"""Bit rows on disk, beside the tables of their vocabulary: a process that finds the common ones there need not make them.

A row says nothing but which tokens are in a set, so that it serves every version of the code that makes it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from fsa_compile.inputs.files import open_regular, replacing
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables, cache_folder

_LEAST_BYTES = 1 << 20
"""So many bytes of rows have to be new for them to be stored."""
_MOST_BYTES = 16 << 20
"""Of the rows of one vocabulary."""
_MAGIC = 0x31736D6F72  # a new number for another layout or other hashes


class RowStock:
    """The rows of one vocabulary: a file of int64[3] (a magic number, W, n), uint64[n] hashes, uint64[n] sums, uint32[n, W] rows.

    A sum is that of a row's words by odd factors, and tells whether the row is as it was written.
    """

    def __init__(self, tables: VocabularyTables) -> None:
        base, self._words = cache_folder(), tables.num_words
        self._path = None if base is None else base / f"rows-{tables.fingerprint[:32]}.bin"
        self._weights = tables.byte_hash[: self._words]
        self._at: dict[int, int] = {}
        self._sums, self._begin = np.zeros(0, np.uint64), 0
        self._lock = threading.Lock()
        self._file = -1
        if self._path is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be read is made anew
                self._open(self._path)

    def _open(self, path: os.PathLike[str]) -> None:
        with open_regular(path) as file:
            head = np.frombuffer(file.read(24), np.int64)
            size = int(head[2]) if len(head) == 3 and head[0] == _MAGIC and head[1] == self._words else 0
            begin = 24 + 16 * size
            if not 0 < size <= _MOST_BYTES or os.fstat(file.fileno()).st_size != begin + size * 4 * self._words:
                return
            table = np.frombuffer(file.read(16 * size), np.uint64)
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._at, self._sums, self._begin = dict(zip(table[:size].tolist(), range(size))), table[size:], begin

    def __contains__(self, row_hash: int) -> bool:
        return row_hash in self._at

    def row(self, row_hash: int) -> np.ndarray | None:
        """The row of a set uint32[W]; None where there is none that can be used."""
        at = self._at.get(row_hash)
        if at is None:
            return None
        bytes_ = 4 * self._words
        try:
            row = np.frombuffer(self._read(bytes_, self._begin + at * bytes_), np.uint32)
        except (OSError, ValueError):
            return None
        return row if len(row) == self._words and self._sum(row) == int(self._sums[at]) else None

    def _read(self, size: int, offset: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file, size, offset)
        with self._lock:
            os.lseek(self._file, offset, os.SEEK_SET)
            return os.read(self._file, size)

    def _sum(self, row: np.ndarray) -> int:
        return int(np.dot(row.astype(np.uint64), self._weights))

    def store(self, hashes: Sequence[int], rows: Sequence[np.ndarray]) -> bool:
        """Writes new rows behind those that are there, as many as have room; whether they were enough for that.

        A disk that cannot be written only costs time.
        """
        most = _MOST_BYTES // (4 * self._words)
        if self._path is None or len(rows) * 4 * self._words < _LEAST_BYTES:
            return False
        if len(self._at) >= most:
            return True
        known = [(row_hash, row) for row_hash in self._at if (row := self.row(row_hash)) is not None]
        every = [*known, *((h, row) for h, row in zip(hashes, rows) if h not in self._at)][:most]
        table = [h for h, _ in every], [self._sum(row) for _, row in every]
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as file:
                file.write(np.array((_MAGIC, self._words, len(every)), np.int64).tobytes())
                file.write(np.array(table, np.uint64).tobytes())
                file.writelines(row.tobytes() for _, row in every)
        return True
