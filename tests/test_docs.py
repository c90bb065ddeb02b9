"""The pages of the documentation: their blocks run, and every page is in the site's table of contents."""

from __future__ import annotations

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


def test_every_page_is_found():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert f": {page.relative_to(DOCS).as_posix()}" in contents, page
