"""Rows from the disk are those that are made, and a file that cannot be used only costs time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsa_compile.composition.tokens import row_stock
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.composition.tokens.row_stock import RowStock
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables, build_tables

_VOCABULARY = Vocabulary(tokens=tuple([bytes([i]) for i in range(256)] + [bytes([97 + i % 26, 97 + i // 26]) for i in range(600)]))
_SETS = [np.unique(np.random.default_rng(seed).integers(0, 856, 30)) for seed in range(40)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache in which few rows are stored."""
    monkeypatch.setenv("CONSTRAX_CACHE", str(tmp_path))
    monkeypatch.setattr(row_stock, "_LEAST_BYTES", 20 * 4 * 27)
    return tmp_path


def _made(tables: VocabularyTables, sets: list[np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """The rows of some sets by a pool, and which of them it made."""
    pool, made = RowPool(tables, CompileLimits()), list[int]()

    def build(i: int) -> np.ndarray:
        made.append(i)
        return tables.pack(sets[i])

    ids = pool.numbers(np.array([tables.token_hash[s].sum() for s in sets], np.uint64), build)
    rows = pool.stacked()[ids]
    assert all(np.array_equal(tables.unpack(row), s) for row, s in zip(rows, sets, strict=True))
    return rows, made


def test_rows_on_disk_are_not_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = build_tables(_VOCABULARY)
    assert tables.num_words == 27
    assert _made(tables, _SETS[:19])[1] == [*range(19)]
    assert not list(folder.glob("rows-*"))  # too few
    _made(tables, _SETS[:25])
    (path,) = folder.glob("rows-*")
    rows, made = _made(build_tables(_VOCABULARY), _SETS)  # as another process
    assert made == [*range(25, 40)]
    assert np.array_equal(rows, np.stack([tables.pack(s) for s in _SETS]))
    before = path.read_bytes()
    assert _made(build_tables(_VOCABULARY), _SETS[5:] + [s[1:] for s in _SETS])[1] == [*range(20, 75)]
    assert len(path.read_bytes()) > len(before)
    assert _made(build_tables(_VOCABULARY), _SETS)[1] == []
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    assert len(_made(build_tables(_VOCABULARY), _SETS)[1]) == 40


def test_there_is_room_for_so_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_stock, "_MOST_BYTES", 30 * 4 * 27)
    for _ in range(2):
        _made(build_tables(_VOCABULARY), _SETS)
        (path,) = folder.glob("rows-*")
        assert path.stat().st_size == 24 + 30 * (16 + 4 * 27)
    assert _made(build_tables(_VOCABULARY), _SETS)[1] == [*range(30, 40)]


@pytest.mark.parametrize("damage", ["cut", "longer", "bit", "words", "head", "sum", "empty", "gone", "cut later"])
def test_a_file_that_cannot_be_used_costs_time_only(folder: Path, damage: str) -> None:
    _made(build_tables(_VOCABULARY), _SETS)
    (path,) = folder.glob("rows-*")
    data = bytearray(path.read_bytes())
    row, word = 24 + 16 * 40 + 3 * 4 * 27, 4 * 5
    if damage == "cut":
        data = data[:-4]
    elif damage == "longer":
        data += b"\0" * 4
    elif damage == "bit":
        data[row + 7] ^= 16
    elif damage == "words":  # two that differ change places
        first = next(w for w in range(row, row + 4 * 27, 4) if data[w : w + 4] != data[row + word : row + word + 4])
        data[first : first + 4], data[row + word : row + word + 4] = data[row + word : row + word + 4], data[first : first + 4]
    elif damage == "head":
        data[16] ^= 1
    elif damage == "sum":
        data[24 + 8 * 40 + 8 * 3] ^= 2
    tables = build_tables(_VOCABULARY)
    if damage == "cut later":
        RowPool(tables, CompileLimits())  # has read the head
        data = data[: 24 + 16 * 40]
    path.unlink() if damage == "gone" else path.write_bytes(b"" if damage == "empty" else data)
    made = _made(tables, _SETS)[1]
    assert made == ([3] if damage in ("bit", "words", "sum") else [*range(40)])


def test_a_folder_in_its_place_is_no_stock(folder: Path) -> None:
    tables = build_tables(_VOCABULARY)
    (folder / f"rows-{tables.fingerprint[:32]}.bin").mkdir()
    assert RowStock(tables).row(int(tables.token_hash[_SETS[0]].sum())) is None
    assert len(_made(tables, _SETS)[1]) == 40
