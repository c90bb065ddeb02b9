"""Leaves from the disk are those that are walked, and a file that cannot be used only costs time."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time

import numpy as np
import pytest

import fsa_compile
import models
from fsa_compile.artifact.arrays import ConstraintArrays
from fsa_compile.composition.pushdown import summaries
from fsa_compile.composition.tokens import leaf_stock

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]},
    {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "number"}}},
    {"type": "string", "minLength": 20, "maxLength": 90},
]


@pytest.fixture
def stock(tmp_path, monkeypatch):
    """An empty cache whose leaves are all stored."""
    monkeypatch.setenv("CONSTRAX_CACHE", str(tmp_path))
    monkeypatch.setattr(leaf_stock, "_LEAST_SECONDS", 0.0)
    yield tmp_path
    summaries.forget_summaries()


def compiled(tokenizer) -> list:
    """All schemas, by a process that has walked nothing."""
    summaries.forget_summaries()
    return [fsa_compile.compile_json_schema(schema, tokenizer) for schema in SCHEMAS]


def same(one: list, other: list) -> bool:
    """Whether artifacts have equal arrays."""
    names = [field.name for field in dataclasses.fields(ConstraintArrays)]
    values = [(getattr(a, name), getattr(b, name)) for a, b in zip(one, other) for name in names]
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in values)


def test_leaves_from_the_disk_are_those_that_are_walked(stock, monkeypatch):
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    walked = compiled(tokenizer)
    files = sorted(stock.glob("leaves-*/*.npy"))
    assert len(files) >= 3
    monkeypatch.setattr(leaf_stock, "_store", lambda *_: pytest.fail("a stored leaf was walked"))
    assert same(compiled(tokenizer), walked)
    monkeypatch.undo()
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    assert same(compiled(tokenizer), walked)


@pytest.mark.parametrize("damage", ["cut", "bit", "count", "other", "empty", "link"])
def test_a_file_that_cannot_be_used_is_walked_anew(stock, damage):
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    walked = compiled(tokenizer)
    files = sorted(stock.glob("leaves-*/*.npy"), key=lambda path: path.stat().st_size)
    largest, data = files[-1], files[-1].read_bytes()
    if damage == "cut":
        largest.write_bytes(data[: len(data) // 2])
    elif damage == "bit":
        largest.write_bytes(data[:-9] + bytes([data[-9] ^ 4]) + data[-8:])
    elif damage == "count":  # of the arrays
        largest.write_bytes(data[:16] + bytes([data[16] - 1]) + data[17:])
    elif damage == "other":
        largest.write_bytes(files[0].read_bytes())
    elif damage == "empty":
        largest.write_bytes(b"")
    else:
        moved = largest.with_suffix(".moved")
        largest.rename(moved)
        largest.symlink_to(moved)
    assert same(compiled(tokenizer), walked)
    assert largest.read_bytes() == data


def test_nothing_is_stored_where_there_is_no_disk_cache_or_no_room(stock, monkeypatch):
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    monkeypatch.setattr(leaf_stock, "_MOST_FILES", 2)
    compiled(tokenizer)
    assert len(list(stock.glob("leaves-*/*"))) == 2
    monkeypatch.setattr(leaf_stock, "_MOST_FILES", 64)
    monkeypatch.setattr(leaf_stock, "_MOST_IN_ALL", 0)
    compiled(tokenizer)
    assert len(list(stock.glob("leaves-*/*"))) == 2
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    compiled(tokenizer)
    assert len(list(stock.glob("leaves-*/*"))) == 2


def test_leaves_that_are_not_read_any_more_make_room(stock, monkeypatch):
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    compiled(tokenizer)
    files = sorted(stock.glob("leaves-*/*"))
    monkeypatch.setattr(leaf_stock, "_MOST_FILES", len(files))
    for path, days in zip(files, (3, *[2] * len(files))):
        os.utime(path, times=(time.time() - days * 86_400,) * 2)
    data = files[0].read_bytes()
    files[0].unlink()
    (files[0].parent / "stale.npy").write_bytes(b"")
    os.utime(files[0].parent / "stale.npy", times=(time.time() - 4 * 86_400,) * 2)
    compiled(tokenizer)  # reads the others, and stores what is missing in place of the stale one
    assert sorted(stock.glob("leaves-*/*")) == files
    assert files[0].read_bytes() == data
    assert all(time.time() - path.stat().st_mtime < 3_600 for path in files[1:])


def test_leaves_that_were_never_read_make_room_first_and_then_one_other(stock, monkeypatch):
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    compiled(tokenizer)
    files = sorted(stock.glob("leaves-*/*"))
    assert all(time.time() - path.stat().st_mtime > 80_000 for path in files)  # stored, not read
    (folder,) = {path.parent for path in files}
    stored = {path.name: path.stat().st_size for path in files}

    def made_room(count: int, size: int = 1) -> set[str]:
        """What is left where there is to be room for one more of so many."""
        monkeypatch.setattr(leaf_stock, "_MOST_FILES", count)
        found = leaf_stock._made_room(folder, size)
        assert found == (len(list(folder.iterdir())) < count and size <= leaf_stock._MOST_IN_ALL)
        return {path.name for path in folder.iterdir()}

    compiled(tokenizer)  # reads all of them
    (folder / "new.npy").write_bytes(b"new")
    os.utime(folder / "new.npy", times=(time.time() - 86_400,) * 2)
    assert made_room(len(files) + 1) == set(stored)
    assert made_room(len(files) - 1) == set(stored)  # two that are in use would have to go
    assert made_room(len(files), leaf_stock._MOST_IN_ALL + 1) == set(stored)
    os.utime(files[1], times=(time.time() - 60,) * 2)
    assert made_room(len(files)) == set(stored) - {files[1].name}


def test_folders_of_other_code_go_when_they_are_old(stock):
    """Not those of another vocabulary, nor those that are still being added to."""
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    compiled(tokenizer)
    (own,) = stock.glob("leaves-*")
    vocabulary = own.name.rpartition("-")[0]
    for name, age in ((f"{vocabulary}-old", 31), (f"{vocabulary}-new", 1), ("leaves-other-old", 31)):
        (stock / name).mkdir()
        (stock / name / "x.npy").write_bytes(b"")
        os.utime(stock / name, times=(time.time() - age * 86_400,) * 2)
    shutil.rmtree(own)
    compiled(tokenizer)
    assert sorted(path.name for path in stock.glob("leaves-*")) == sorted([own.name, f"{vocabulary}-new", "leaves-other-old"])
