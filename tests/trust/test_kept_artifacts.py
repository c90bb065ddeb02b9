"""The cache answers with the constraint that was asked for, and no entry of a folder stops the others."""

import json
import os
from decimal import Decimal

import pytest

from fsa_compile import (
    CompileCache,
    CompileLimits,
    ConstraintError,
    Vocabulary,
    compile_folder,
    compile_json_schema,
    read_manifest,
)

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])


def accepted(constraint, text: bytes) -> bool:
    walk = constraint.walk()
    for byte in text:
        if not walk.allowed()[byte]:
            return False
        walk.advance(byte)
    return walk.accepting


def test_keys_tell_types_apart(tmp_path):
    cache = CompileCache(tmp_path)
    compile_json_schema({"const": "1.5"}, LETTERS, cache=cache)
    assert accepted(compile_json_schema({"const": Decimal("1.5")}, LETTERS, cache=cache), b"1.5")
    compile_json_schema('{"const": 1.5}', LETTERS, cache=cache)  # the same number
    assert (cache.hits, cache.misses) == (1, 2)
    assert CompileCache.key([1], LETTERS) != CompileCache.key([True], LETTERS) != CompileCache.key(["1"], LETTERS)
    for what in ({1: 2}, {("a",): 1}, [object()], b"a"):
        with pytest.raises(ConstraintError, match="looked up"):
            CompileCache.key(what, LETTERS)


def test_an_entry_belongs_to_its_key(tmp_path):
    cache = CompileCache(tmp_path)
    compile_json_schema({"const": "a"}, LETTERS, cache=cache)
    (first,) = tmp_path.glob("*.npz")
    compile_json_schema({"const": "b"}, LETTERS, cache=cache)
    (second,) = set(tmp_path.glob("*.npz")) - {first}
    second.write_bytes(first.read_bytes())
    assert accepted(compile_json_schema({"const": "b"}, LETTERS, cache=cache), b'"b"')
    assert accepted(compile_json_schema({"const": "b"}, LETTERS, cache=cache), b'"b"')
    assert (cache.hits, cache.misses) == (1, 3)


def test_folders_and_unfinished_files(tmp_path):
    cache = CompileCache(tmp_path, max_bytes=0)
    compile_json_schema({"const": "a"}, LETTERS, cache=cache)
    (file,) = tmp_path.glob("*.npz")
    file.unlink()
    file.mkdir()
    old, new = tmp_path / f".{file.name}.01234567.part", tmp_path / f".{file.name}.89abcdef.part"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (1_000_000, 1_000_000))
    assert accepted(compile_json_schema({"const": "a"}, LETTERS, cache=cache), b'"a"')
    compile_json_schema({"const": "b"}, LETTERS, cache=cache)
    cache.clear()
    assert set(tmp_path.iterdir()) == {file, new}


def test_files_of_constraints(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        compile_folder(tmp_path / "pipe", LETTERS, tmp_path / "out", workers=1)
    (tmp_path / "lines").write_bytes(b'{"name": "a", "regex": "a"}\n\xff\n')
    with pytest.raises(ConstraintError, match="line 2"):
        compile_folder(tmp_path / "lines", LETTERS, tmp_path / "out", workers=1)
    with pytest.raises(ConstraintError, match="path is needed"):
        compile_folder(5, LETTERS, tmp_path / "out", workers=1)


def test_no_entry_of_a_folder_stops_the_others(tmp_path):
    cycle: dict = {}
    cycle["json"] = cycle
    deep: dict = {}
    for _ in range(3_000):
        deep = {"items": deep}
    bad = {
        "cycle": {"json": cycle}, "deep": {"json": deep}, "number": {"json": {"minimum": 10**5000}}, "key": {"json": {("a",): 1}},
        "type": {"json": object()}, "a\0b": {"regex": "a"}, "x" * 256: {"regex": "a"}, "\ud800": {"regex": "a"}, "five": 5,
    }  # fmt: skip
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "manifest.jsonl").write_text('{"name":' * 100_000 + "\n" + '{"name": [1], "key": ""}\n')
    limits = CompileLimits(max_seconds=10)
    made = compile_folder({**bad, "good": {"regex": "a"}}, LETTERS, folder, workers=1, limits=limits)
    assert {name for name, record in made.items() if record.error is None} == {"good"}
    assert all(record.kind in ("FormatError", "LimitError", "ConstraintError", "UnicodeEncodeError") for name, record in made.items() if name != "good")
    assert compile_folder({**bad, "good": {"regex": "a"}}, LETTERS, folder, workers=1, limits=limits) == made
    assert read_manifest(folder) == made
    assert len((folder / "manifest.jsonl").read_text().splitlines()) == len(made) + 2
    json.dumps(list(made))
