"""The layer table of docs/architecture.md against every import, and that the check can fail."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

from tools.layers import (
    BRIDGE,
    DISTRIBUTIONS,
    FIGURE,
    ROOT,
    WHOLE,
    Import,
    all_imports,
    circles,
    drawn,
    imports_of,
    modules,
    needed,
    place,
    read_table,
    unplaced,
    wrong_imports,
)


@functools.cache
def every_import():
    """Of all modules; reading them takes seconds."""
    return all_imports()


def test_every_import_goes_down():
    assert wrong_imports(every_import(), read_table()) == []


def test_every_module_stands_in_a_row():
    assert unplaced(modules(), read_table()) == []


def test_no_circle():
    assert circles(every_import()) == []


def test_the_picture_is_the_tables():
    rows = read_table()
    assert FIGURE.read_text(encoding="utf-8") == drawn(rows, needed(every_import(), rows)), "run python tools/layers.py --draw"


@pytest.mark.parametrize(
    ("source", "text", "says"),
    [
        ("fsa_compile.arrays.integers", "from fsa_compile.vocabulary.vocabulary import Vocabulary", "does not lie below"),
        ("fsa_compile.artifact.file", "def f():\n    import fsa_compile.json_schema", "does not lie below"),
        (
            "fsa_compile.unicode.code_points",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fsa_compile.patterns import glushkov",
            "does not lie below",
        ),
        ("fsa_compile.items.compile", "from fsa_compile.json_schema import SchemaOptions", "does not lie below"),
        ("fsa_compile.limits", "import jax_decode.errors", "does not import another"),
        ("jax_decode.step.state", "from fsa_compile.vocabulary import Vocabulary", "does not import another"),
        ("jax_decode.kernels.noise", "from jax_decode.tables import tables", "does not lie below"),
        ("models.config", "from jax_decode.errors import DecodeError", "does not import another"),
        ("models.config", "import constrax.errors", "does not import another"),
        ("jax_decode.cli", "from constrax.loading import load", "does not import another"),
        ("fsa_compile.cli.commands", "def f():\n    import constrax.loading", "does not import another"),
    ],
)
def test_a_wrong_import_is_found(source, text, says):
    found = list(imports_of(source, text, modules()))
    problems = wrong_imports(found, read_table())
    assert found
    assert len(problems) == len(found)
    assert all(says in problem for problem in problems)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("fsa_compile.vocabulary.vocabulary", "from fsa_compile.arrays import integers"),
        ("fsa_compile.json_schema.strings", "from fsa_compile.json_schema.atoms import Count"),
        ("jax_decode.tables.tables", "from fsa_compile.artifact import CompiledConstraint"),
        ("constrax.loading", "from models.errors import ModelError\nfrom jax_decode.decoding import generate"),
    ],
)
def test_a_right_import_is_not(source, text):
    found = list(imports_of(source, text, modules()))
    assert found
    assert wrong_imports(found, read_table()) == []


def test_a_circle_and_a_module_without_a_row_are_found():
    back = [Import("fsa_compile.errors", "fsa_compile.limits", 1), Import("fsa_compile.limits", "fsa_compile.errors", 1)]
    assert circles([*every_import(), *back[:1]]) == [["fsa_compile.errors", "fsa_compile.limits"]]
    assert unplaced({**modules(), "fsa_compile.nowhere": Path()}, read_table()) == ["fsa_compile.nowhere stands in no row"]
    assert place("jax_decode.nowhere", read_table()) is None


def test_folders_are_small_and_names_differ():
    for distribution in DISTRIBUTIONS:
        files = [path for path in (ROOT / distribution).rglob("*.py") if path.name != "__init__.py"]
        names = Counter(path.name for path in files)
        assert [name for name, count in names.items() if count > 1] == []
        assert max(Counter(path.parent for path in files).values()) <= 25
        if distribution not in ("models", "constrax"):
            assert len([path for path in files if path.parent.name == distribution]) + 1 <= 6


OF_USERS = {"named_arguments", "guarded", "guarded_loop"}
"""Decorators of functions that users call, with what they give by name."""


def test_the_bars_of_size():
    """Modules and functions that a reader can hold in mind."""
    for name, path in modules().items():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 550, f"{name} is too long"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno + 1 <= 60, f"{name}.{node.name} is too long"
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls")]
                public = node.name == "__init__" or OF_USERS & {ast.unparse(decorator) for decorator in node.decorator_list}
                assert len(names) <= 8 or public, f"{name}.{node.name} has too many parameters"


def test_what_the_readme_says_about_imports():
    """The page says what the check allows, and nothing else says anything about it but that one half lacks jax."""
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert "`fsa_compile` never imports jax" in text
    assert "`jax_decode` imports `fsa_compile.artifact`, `fsa_compile.arrays` and `fsa_compile.errors`" in text
    assert "but for its command `jax_decode.cli`" in text
    assert set(BRIDGE) == {"fsa_compile.artifact", "fsa_compile.arrays", "fsa_compile.errors"}
    assert set(WHOLE) == {"jax_decode.cli"}
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        if path.name != "architecture.md":
            assert not re.search(r"`(jax_decode|models)` imports `", path.read_text(encoding="utf-8")), path


def rows_of_changes() -> list[tuple[str, str, str]]:
    """What somebody may want, where to change it, and the tests to extend."""
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Where would I change")[1].split("\n## ")[0]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in re.findall(r"^\| (?!…|---).*$", table, re.M)]


def test_where_would_i_change():
    """Every row names files or folders that exist, and where its tests are."""
    rows = rows_of_changes()
    assert len(rows) >= 30
    for what, where, tests in rows:
        named = re.findall(r"`([\w./]+/[\w./]*|Makefile|mkdocs\.yml)`", where)
        assert named or what == "an error text", what
        assert re.search(r"`tests[\w./]*`|beside the tests|^none", tests), what
        for path in named + re.findall(r"`([\w./]+)`", tests):
            assert (ROOT / path).exists(), (what, path)


def test_every_path_of_the_page_exists():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:docs|tests|tools|benchmarks|fsa_compile|jax_decode|models)/[\w./]*)`", text)
    assert len(paths) >= 80
    assert [path for path in paths if not (ROOT / path).exists()] == []
