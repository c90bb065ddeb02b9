"""Artifacts kept on disk: found again when nothing changed, made again when anything did, never a wrong or damaged one."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fsa_compile import (
    CompileCache,
    CompileLimits,
    ConstraintError,
    SchemaOptions,
    Vocabulary,
    compile_json_schema,
    compile_yaml_schema,
    filters,
)

LETTERS = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b'"a', b'":', b""], stop_ids=[258])
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "additionalProperties": False}


def test_found_again(tmp_path):
    cache = CompileCache(tmp_path)
    first = compile_json_schema(SCHEMA, LETTERS, cache=cache)
    again = compile_json_schema(dict(SCHEMA), LETTERS, cache=CompileCache(tmp_path))
    assert np.array_equal(first.rows, again.rows)
    assert np.array_equal(first.arc_token, again.arc_token)
    assert again.source == first.source
    compile_json_schema(SCHEMA, LETTERS, cache=cache, limits=CompileLimits(max_seconds=50))
    assert (cache.hits, cache.misses) == (1, 1)


def test_everything_counts(tmp_path):
    cache = CompileCache(tmp_path)
    other = Vocabulary.from_tokens([*LETTERS.tokens[:-2], b"{}", b""], stop_ids=[258])
    swapped = SCHEMA | {"properties": dict(reversed(SCHEMA["properties"].items()))}  # the order of keys is the order of the text
    compact = SchemaOptions(whitespace="compact")
    for _ in range(2):
        compile_json_schema(SCHEMA, LETTERS, cache=cache)
        compile_json_schema(SCHEMA, other, cache=cache)
        compile_json_schema(swapped, LETTERS, cache=cache)
        compile_json_schema(SCHEMA, LETTERS, cache=cache, options=compact)
        compile_json_schema(SCHEMA, LETTERS, cache=cache, limits=CompileLimits(max_rows=10_000))
    assert (cache.hits, cache.misses) == (5, 5)


def test_the_depth_that_stacks_are_written_out_to_counts(tmp_path):
    schema = {"$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"}
    deepest = []
    for depth in (1, 3):
        how = {"style": "flow", "filters": [filters.forbid("x")], "max_depth": depth}
        walk = compile_yaml_schema(schema, LETTERS, cache=CompileCache(tmp_path), **how).walk()
        deepest.append(0)
        while walk.allowed()[ord("[")]:
            walk.advance(ord("["))
            deepest[-1] += 1
    assert deepest == [1, 3]


def test_damaged_files_are_made_again(tmp_path):
    cache = CompileCache(tmp_path)
    compile_json_schema(SCHEMA, LETTERS, cache=cache)
    (file,) = tmp_path.glob("*.npz")
    file.write_bytes(file.read_bytes()[:500])
    assert compile_json_schema(SCHEMA, LETTERS, cache=cache).walk().allowed()[ord("{")]
    compile_json_schema(SCHEMA, LETTERS, cache=cache)
    assert (cache.hits, cache.misses) == (1, 2)


def test_errors_are_not_kept(tmp_path):
    cache = CompileCache(tmp_path)
    for _ in range(2):
        with pytest.raises(ConstraintError, match="no JSON value"):
            compile_json_schema(False, LETTERS, cache=cache)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_unused_go_first(tmp_path):
    cache = CompileCache(tmp_path)
    for i in range(3):
        compile_json_schema({"const": i}, LETTERS, cache=cache)
    files = sorted(tmp_path.glob("*.npz"), key=lambda file: file.stat().st_mtime_ns)
    for age, file in enumerate(files):
        os.utime(file, (1_000_000 + age, 1_000_000 + age))
    small = CompileCache(tmp_path, max_bytes=2 * files[0].stat().st_size)
    compile_json_schema({"const": 0}, LETTERS, cache=small)  # used now
    compile_json_schema({"const": 3}, LETTERS, cache=small)
    assert small.hits == 1
    assert set(tmp_path.glob("*.npz")) & set(files) == {files[0]}
    cache.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path):
    (tmp_path / "file").write_text("")
    assert compile_json_schema(True, LETTERS, cache=CompileCache(tmp_path / "file")).walk().allowed()[ord("[")]


def test_default_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSTRAX_CACHE", str(tmp_path))
    assert CompileCache().folder == tmp_path / "constraints"


@pytest.mark.parametrize("size", [-1, True, 1.5])
def test_bad_size(size):
    with pytest.raises(ConstraintError, match="max_bytes"):
        CompileCache(max_bytes=size)
