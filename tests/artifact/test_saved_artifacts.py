"""Files that earlier versions wrote: they are read and mean what they meant, or are refused with the way out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from oracles.saved_artifacts import CITIES, ITEMS, KINDS, TOKENS, VOCABULARY

import fsa_compile
import jax_decode
import models
from fsa_compile.artifact import file as artifact_file
from fsa_compile.artifact import item_trie as items_file
from fsa_compile.artifact.arrays import ARRAYS

FOLDER = Path(__file__).parents[1] / "artifacts"
SAVED = sorted(FOLDER.glob("format-[2-8]/*.npz"))
OVER_LETTERS = [path for path in SAVED if path.stem not in ("canonical", "items")]


def version(path: Path) -> tuple[str, int]:
    with np.load(path) as members:
        header = json.loads(members["header"].tobytes())
    return header["magic"], header["format_version"]


def spelled(walk: fsa_compile.HostWalk, written: bytes, length: int) -> Iterator[tuple[int, ...]]:
    """All token sequences of accepted texts of at most so many characters, by the walk's masks."""
    if walk.accepting:
        yield ()
    for token in np.flatnonzero(walk.allowed()).tolist():
        if TOKENS[token] and len((written + TOKENS[token]).decode(errors="replace")) <= length:
            walk.advance(token)
            yield from ((token, *rest) for rest in spelled(walk, written + TOKENS[token], length))
            walk.rewind(1)


def spellings(text: bytes) -> Iterator[tuple[int, ...]]:
    """All token sequences of a text."""
    if not text:
        yield ()
    for token, data in enumerate(TOKENS):
        if data and text.startswith(data):
            yield from ((token, *rest) for rest in spellings(text[len(data) :]))


def sequences(walk: fsa_compile.CanonicalWalk) -> Iterator[tuple[int, ...]]:
    """All token sequences of a finite language."""
    if walk.accepting:
        yield ()
    for token in np.flatnonzero(walk.allowed()).tolist():
        if token not in walk.constraint.stop_ids:
            walk.advance(token)
            yield from ((token, *rest) for rest in sequences(walk))
            walk.rewind(1)


def longest_first(text: bytes) -> list[int]:
    """Tokens of a text, the longest that fits first."""
    tokens = []
    while text:
        data = max((data for data in TOKENS if data and text.startswith(data)), key=len)
        tokens.append(TOKENS.index(data))
        text = text[len(data) :]
    return tokens


def test_every_kind_and_version_is_kept():
    assert {path.stem for path in SAVED} == set(KINDS)
    versions = {version(path) for path in SAVED}
    current = {(artifact_file.MAGIC, v) for v in artifact_file.VERSIONS} | {(items_file.MAGIC, items_file.FORMAT_VERSION)}
    assert current <= versions, "write the new format's files: python tests/oracles/saved_artifacts.py tests/artifacts/format-N"
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.npz")) < 200_000


@pytest.mark.parametrize("path", OVER_LETTERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_language_is_what_it_was(path):
    constraint, kind = fsa_compile.CompiledConstraint.load(path, VOCABULARY), KINDS[path.stem]
    texts = {text.encode() for text in kind.texts()}
    assert texts
    if kind.length is not None:
        assert set(spelled(constraint.walk(), b"", kind.length)) == {s for text in texts for s in spellings(text)}
    else:  # a finite language: every mask on the way to every text
        beginnings = {text[:end] for text in texts for end in range(len(text) + 1)}
        for text in sorted(texts):
            walk, written = constraint.walk(), b""
            for token in [*longest_first(text), None]:
                expected = {t for t, data in enumerate(TOKENS) if data and written + data in beginnings}
                assert set(np.flatnonzero(walk.allowed()).tolist()) - {0} == expected
                assert bool(walk.allowed()[0]) == walk.accepting == (written in texts)
                if token is not None:
                    walk.advance(token)
                    written += TOKENS[token]
    for text, member in kind.longer:
        assert fsa_compile.inspect.explain(constraint, VOCABULARY, longest_first(text.encode())).accepted == member, text


def test_temperatures_are_what_they_were():
    for path in (path for path in SAVED if path.stem == "temperatures"):
        walk, seen = fsa_compile.CompiledConstraint.load(path, VOCABULARY).walk(), []
        for letter in b"((a))":
            seen.append(walk.temperature)
            walk.advance(TOKENS.index(bytes([letter])))
        assert [*seen, walk.temperature] == [0.5] * 3 + [0.5, None, None]


def test_canonical_tokens_are_what_they_were():
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    tables = fsa_compile.canonical_tables(tokenizer)
    expected = {tuple(tokenizer.encode(city)) for city in CITIES}
    for path in (path for path in SAVED if path.stem == "canonical"):
        walk = fsa_compile.CanonicalWalk(fsa_compile.CompiledConstraint.load(path, tokenizer), tables)
        assert set(sequences(walk)) == expected


def test_items_are_what_they_were():
    for path in (path for path in SAVED if path.stem == "items"):
        items = fsa_compile.CompiledItems.load(path)
        assert [items.find(item) for item in ITEMS] == list(range(len(ITEMS)))
        assert items.find([3, 1]) is None


def test_the_device_takes_them():
    """Packed together, as far as kinds go together. That device and host agree on what is packed is tested elsewhere."""
    for several in (False, True):
        paths = [path for path in OVER_LETTERS if (path.stem == "several_stacks") == several]
        tables = jax_decode.to_device([fsa_compile.CompiledConstraint.load(path, VOCABULARY) for path in paths])
        assert (int(tables.num_constraints), tables.has_stack, tables.stacks > 1) == (len(paths), True, several)


@pytest.mark.parametrize("name", ["format-1", "format-2-draft"])
def test_what_is_too_old_says_what_to_do(name):
    expected = {"format-1": "format version 1; this constrax reads versions 2 to 8", "format-2-draft": "array 'arc_effect' is missing"}
    with pytest.raises(fsa_compile.ArtifactError, match=expected[name]) as caught:
        fsa_compile.CompiledConstraint.load(FOLDER / "refused" / f"{name}.npz")
    assert caught.value.fix == "Compile and save the constraint again."


def test_canonical_tokens_by_other_tables_are_refused():
    """The splitter's filter was once multiplied into the constraint; now it is followed beside it."""
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    constraint = fsa_compile.CompiledConstraint.load(FOLDER / "refused" / "canonical-tables-1.npz", tokenizer)
    tables = fsa_compile.canonical_tables(tokenizer)
    with pytest.raises(fsa_compile.ArtifactError, match="compile the constraint again"):
        fsa_compile.CanonicalWalk(constraint, tables)
    with pytest.raises(jax_decode.DecodeError, match=r"[Cc]ompile"):
        jax_decode.to_device(constraint, canonical=tables)


def test_files_of_small_constraints_hold_equal_pieces_once(tmp_path):
    tokens = [b"", *(bytes([b]) for b in range(256)), *(f"{i:x}".encode() * (1 + i % 3) for i in range(300, 40_000))]
    tokenizer = fsa_compile.Vocabulary.from_tokens(tokens, stop_ids=[0])
    made = fsa_compile.compile_json_schema({"type": "string", "maxLength": 90}, tokenizer)
    made.save(tmp_path / "a.npz")
    again = fsa_compile.CompiledConstraint.load(tmp_path / "a.npz", tokenizer)
    written_out = made.written_out()
    assert type(written_out.rows) is np.ndarray
    assert max((tmp_path / "a.npz").stat().st_size, made.nbytes, again.nbytes) * 3 < written_out.nbytes * 2
    assert all(np.array_equal(getattr(made, name), getattr(again, name)) for name in ARRAYS)
    again.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
