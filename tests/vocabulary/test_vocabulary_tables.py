"""Vocabulary tables: the trie, symbol strings, hashes, and the caches in memory and on disk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.toy import AMBIGUOUS, every_byte

from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary import vocabulary_tables as vt


def of(tokens: list[bytes]) -> vt.VocabularyTables:
    return vt.build_tables(Vocabulary.from_tokens(tokens))


def some_text(tokens: list[bytes]) -> bool:
    return any(tokens)


def trie_paths(tables: vt.VocabularyTables) -> dict[bytes, int]:
    """Every token's bytes as the trie spells them."""
    out, todo = {}, [(0, b"")]
    while todo:
        node, path = todo.pop()
        if tables.trie_token[node] >= 0:
            assert path not in out
            out[path] = int(tables.trie_token[node])
        first, count = int(tables.trie_first[node]), int(tables.trie_count[node])
        children = tables.trie_byte[first : first + count]
        assert (np.diff(children) > 0).all()
        todo += [(first + i, path + bytes([int(b)])) for i, b in enumerate(children)]
    return out


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=5) | st.sampled_from(AMBIGUOUS), min_size=1, max_size=30).filter(some_text))
def test_trie_spells_exactly_the_tokens(tokens: list[bytes]) -> None:
    tables = of(tokens)
    paths = trie_paths(tables)
    assert set(paths) == {t for t in tokens if t}
    for data, token in paths.items():
        equal = {i for i, t in enumerate(tokens) if t == data}
        lo, hi = (tables.alias_offset[token], tables.alias_offset[token + 1]) if len(tables.alias_offset) else (0, 0)
        assert {token, *tables.alias_token[lo:hi].tolist()} == equal


def symbols(data: bytes) -> list[int]:
    """Symbol string of a token without its first byte, one byte at a time, written anew."""
    out, i = [], 1
    while i < len(data):
        for size in (2, 3, 4):
            try:
                whole = len(data[i : i + size].decode()) == 1 and data[i] >= 0x80
            except UnicodeDecodeError:
                continue
            if whole:
                out.append(vt.SYMBOL_CHARACTER)
                i += size
                break
        else:
            out.append(int(vt.BYTE_SYMBOL[data[i]]))
            i += 1
    return out


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=6) | st.text(max_size=4).map(str.encode) | st.sampled_from([b"a" * 300, b"\xc3\xa9" * 9]), min_size=1, max_size=20).filter(some_text))
def test_symbol_strings(tokens: list[bytes]) -> None:
    tables = of(tokens)
    for token, data in enumerate(tokens):
        number = tables.string_of[token]
        if not data:
            assert number == -1
            continue
        lo, hi = tables.run_offset[number], tables.run_offset[number + 1]
        spelled = np.repeat(tables.run_symbol[lo:hi], tables.run_length[lo:hi].astype(int)).tolist()
        assert spelled == symbols(data)


def test_row_hash_is_additive_over_disjoint_sets() -> None:
    tables = of([bytes([i % 256, i // 256]) for i in range(5000)])
    rng = np.random.default_rng(0)
    for size in (1, 64, 1999, 2001, 4000):
        tokens = rng.choice(5000, size, replace=False)
        row = tables.pack(tokens)
        assert np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist() == sorted(tokens.tolist())
        assert tables.row_hash(row) == int(tables.token_hash[tokens].sum())


def test_tokens_are_added_once_wherever_they_are_listed() -> None:
    tables = of([bytes([i % 256, i // 256]) for i in range(700)])
    rng = np.random.default_rng(1)
    for size in (0, 1, 5, 300, 9000):
        which, token = rng.integers(0, 6, size), rng.integers(0, 700, size)
        rows = np.stack([tables.pack(rng.choice(700, 50, replace=False)) for _ in range(6)])
        wanted = [row | tables.pack(np.unique(token[which == i])) for i, row in enumerate(rows)]
        tables.add_to(rows, which, token)
        assert (rows == wanted).all()


def test_every_byte() -> None:
    assert vt.build_tables(every_byte()).spells_every_byte
    assert not of([b"a", b"bc"]).spells_every_byte
    assert not of([bytes([b]) for b in range(255)] + [b"\xff\xff"]).spells_every_byte


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSTRAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vt, "_memory", {})
    return tmp_path / "cache"


def test_disk_cache(cache, monkeypatch) -> None:
    vocabulary = every_byte()
    first = vt.tables_for(vocabulary)
    assert vt.tables_for(vocabulary) is first
    (path,) = cache.iterdir()
    monkeypatch.setattr(vt, "_memory", {})
    monkeypatch.setattr(vt, "build_tables", lambda _: pytest.fail("built although cached"))
    again = vt.tables_for(vocabulary)
    for name in vt._ARRAY_FIELDS:
        assert (getattr(first, name) == getattr(again, name)).all()
    assert path.name.startswith("vocabulary-")


@pytest.mark.parametrize("damage", [b"", b"not a zip", None])
def test_damaged_cache_is_replaced(damage, cache, monkeypatch) -> None:
    vocabulary = every_byte()
    expected = vt.tables_for(vocabulary)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    monkeypatch.setattr(vt, "_memory", {})
    again = vt.tables_for(vocabulary)
    assert (again.trie_token == expected.trie_token).all()
    assert len(path.read_bytes()) == len(whole)


def test_cache_of_another_vocabulary_is_not_used(cache, monkeypatch) -> None:
    vocabulary, other = every_byte(), every_byte([b"other"])
    vt.tables_for(vocabulary)
    (path,) = cache.iterdir()
    path.rename(vt._cache_path(other.fingerprint))
    monkeypatch.setattr(vt, "_memory", {})
    assert vt.tables_for(other).vocab_size == other.size


def test_unwritable_cache_only_costs_time(cache, monkeypatch) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder should be")
    assert vt.tables_for(every_byte()).vocab_size == every_byte().size


def test_cache_can_be_switched_off(cache, monkeypatch) -> None:
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    vt.tables_for(every_byte())
    assert not cache.exists()
