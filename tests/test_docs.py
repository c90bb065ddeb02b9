"""The pages of the documentation: their blocks run, and every page is in the site's table of contents."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from oracles.markdown import python_blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COMPILING = ["index.md", "limits.md", "migration.md", "theory.md"]
"""Pages that only compile; the others are run by the tests of what they describe."""


@pytest.mark.parametrize("page", COMPILING)
def test_the_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = python_blocks((DOCS / page).read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    expected = {"index.md": "['yes', 'no', 'n', 'y']", "limits.md": "max_states", "migration.md": "False", "theory.md": "digraph"}
    assert expected[page] in printed


@pytest.mark.parametrize("package", ["fsa_compile", "jax_decode", "models"])
def test_every_public_name_is_in_the_reference(package):
    """By the module that defines it or re-exports it, since a name that only loads lazily cannot be found without importing."""
    text = (DOCS / "reference" / f"{package}.md").read_text(encoding="utf-8")
    shown = set()
    for module, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text, re.M):
        members = re.search(r"members: \[(.*)\]", options)
        shown |= {f"{module}.{name.strip()}" for name in members[1].split(",")} if members else {module}
    public = importlib.import_module(package)
    stub = (ROOT / package / "__init__.pyi").read_text(encoding="utf-8")
    for home, name in re.findall(r"^from \.(\S+) import (\w+) as", stub, re.M):
        value = getattr(public, name)
        if isinstance(value, type(sys)):
            assert any(item.startswith(value.__name__) for item in shown) or name == "detokenize", name
            continue
        homes = {f"{package}.{home}", getattr(value, "__module__", "")}
        assert homes & shown or {f"{home}.{name}" for home in homes} & shown, name
    for path in shown:  # and what is shown exists
        module, _, name = path.rpartition(".")
        try:
            importlib.import_module(path)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), name), path


def test_every_page_is_found():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert f": {page.relative_to(DOCS).as_posix()}" in contents, page
