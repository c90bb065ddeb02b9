"""Bit rows that constraints share: the same rows whether they are shared, new, or too many to be kept."""

import numpy as np
import pytest

from fsa_compile.artifact.stored_arrays import StoredRows
from fsa_compile.composition.tokens import row_pool
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables, build_tables

_TOKENS = [bytes([i]) for i in range(256)] + [bytes([97 + i % 26, 97 + i // 26]) for i in range(600)]


@pytest.fixture
def tables() -> VocabularyTables:
    return build_tables(Vocabulary(tokens=tuple(_TOKENS)))


def _sets(tables: VocabularyTables, number: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.unique(rng.integers(0, tables.vocab_size, rng.integers(1, 40))) for _ in range(number)]


def _pooled(tables: VocabularyTables, sets: list[np.ndarray], limits: CompileLimits) -> tuple[np.ndarray, np.ndarray, int]:
    """(ids, stacked rows, how many rows were made)."""
    pool, made = RowPool(tables, limits), []

    def build(i: int) -> np.ndarray:
        made.append(i)
        return tables.pack(sets[i])

    hashes = np.array([tables.token_hash[s].sum() for s in sets], np.uint64)
    ids = pool.numbers(hashes, build)
    assert made == sorted(made)
    for i, s in zip(ids.tolist(), sets):
        assert np.array_equal(tables.unpack(pool[i]), s)
        assert np.array_equal(pool.of_hash(int(tables.token_hash[s].sum())), pool[i])
    return ids, pool.stacked(), len(made)


def test_rows_are_shared(tables: VocabularyTables) -> None:
    sets = _sets(tables, 500)
    sets += sets[:30]
    ids, rows, made = _pooled(tables, sets, CompileLimits())
    assert made == len(rows) - 1 == len(set(ids.tolist()))
    assert not rows[0].any()
    assert all(np.array_equal(tables.unpack(rows[i]), s) for i, s in zip(ids.tolist(), sets))
    again, same, made = _pooled(tables, sets[::-1], CompileLimits())
    assert made == 0
    assert np.array_equal(same[again], rows[ids][::-1])


def test_more_rows_than_are_kept(tables: VocabularyTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_pool, "_SHARED_BYTES", 100 * 4 * tables.num_words)
    for seed in range(3):
        sets = _sets(tables, 150, seed)
        ids, rows, _ = _pooled(tables, sets, CompileLimits())
        assert all(np.array_equal(tables.unpack(rows[i]), s) for i, s in zip(ids.tolist(), sets))


def test_rows_stay_while_they_are_used(tables: VocabularyTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_pool, "_SHARED_BYTES", 100 * 4 * tables.num_words)
    sets = _sets(tables, 60)
    hashes = np.array([tables.token_hash[s].sum() for s in sets], np.uint64)
    held = RowPool(tables, CompileLimits())
    ids = held.numbers(hashes, lambda i: tables.pack(sets[i]))
    for seed in range(1, 4):
        _pooled(tables, _sets(tables, 150, seed), CompileLimits())
    rows = held.stacked()
    assert all(np.array_equal(tables.unpack(rows[i]), s) for i, s in zip(ids.tolist(), sets))
    assert np.array_equal(held.numbers(hashes[::-1], lambda i: tables.pack(sets[::-1][i])), ids[::-1])


def test_limits(tables: VocabularyTables) -> None:
    sets = _sets(tables, 20)
    number = len({s.tobytes() for s in sets})
    _pooled(tables, sets, CompileLimits(max_rows=number + 1, max_bytes=number * tables.num_words * 4))
    with pytest.raises(LimitError, match="max_rows"):
        _pooled(tables, sets, CompileLimits(max_rows=number))
    with pytest.raises(LimitError, match="max_bytes"):
        _pooled(tables, sets, CompileLimits(max_bytes=number * tables.num_words * 4 - 1))


def test_pieces_do_not_depend_on_what_was_kept_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_pool, "_FRESH", 7)
    monkeypatch.setattr(row_pool, "LEAST_IN_PARTS", 1)
    monkeypatch.setattr(row_pool, "is_smaller", lambda rows: True)
    made, kept = (build_tables(Vocabulary(tokens=tuple(_TOKENS))) for _ in range(2))
    sets = _sets(made, 120)
    _pooled(kept, _sets(kept, 40, 1) + sets[::-3], CompileLimits())
    stored = []
    for tables in (made, kept):
        pool = RowPool(tables, CompileLimits())
        hashes = np.array([tables.token_hash[s].sum() for s in sets], np.uint64)
        ids = pool.numbers(hashes, lambda i, tables=tables: tables.pack(sets[i]))
        stored.append(pool.stored())
        assert all(np.array_equal(tables.unpack(stored[-1][i]), s) for i, s in zip(ids.tolist(), sets))
    assert all(np.array_equal(stored[0].parts[name], stored[1].parts[name]) for name in ("piece", "index"))
    assert np.array_equal(stored[0], StoredRows.of(np.asarray(stored[0]).__getitem__, stored[0].shape))
