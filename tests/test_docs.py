"""The pages of the documentation: their blocks run, what they name exists, and every page is in the site's table of contents."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
from oracles.markdown import python_blocks

pytestmark = pytest.mark.filterwarnings("error")

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COMPILING = ["limits.md", "migration.md", "pynini.md", "theory.md"]
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
    expected = {"limits.md": "max_states", "migration.md": "False", "pynini.md": "symbol table", "theory.md": "digraph"}
    assert expected[page] in printed


@pytest.mark.parametrize("package", ["constrax", "fsa_compile", "jax_decode", "models"])
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


TEXTS = [
    *[ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "benchmarks/README.md")],
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.py")),
]
"""What a reader is told in, beside docstrings."""
PARTS = [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in TEXTS]
FOLDERS = "benchmarks|docs|fsa_compile|jax_decode|models|notebooks|tests|tools"
STEMS = {"tests/models/parity/requirements"}
"""Beginnings of paths, in the Makefile."""


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as the site and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def missing_names(text: str) -> list[str]:
    """Names of our packages in back quotes that cannot be imported or looked up."""
    out = []
    for name in sorted(set(re.findall(r"`((?:constrax|fsa_compile|jax_decode|models)\.[A-Za-z_.]*[A-Za-z_])", text))):
        module, *rest = name.split(".")
        value = importlib.import_module(module)
        for part in rest:
            if part == "__main__":  # importing it would run the command
                assert importlib.util.find_spec(name)
                continue
            found = getattr(value, part, None)
            try:
                value = importlib.import_module(f"{value.__name__}.{part}") if found is None else found
            except (ImportError, AttributeError):
                out.append(name)
                break
    return out


def missing_paths(text: str) -> list[str]:
    """Files and folders of ours that a text names and that do not exist."""
    named = set(re.findall(rf"(?<![\w./-])((?:{FOLDERS})/[\w./-]*[\w/])", text))
    return sorted(path for path in named if path not in STEMS and not (ROOT / path).exists())


def missing_targets(text: str) -> list[str]:
    """Targets of `make` that a text names and the Makefile has not."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"^(?: {4}|#? *)(make [a-z0-9-]+)", text, re.M) + re.findall(r"`(make [a-z0-9-]+)", text))
    return sorted(name for name in set(re.findall(r"make ([a-z0-9-]+)", lines)) if not re.search(rf"^{name}:", makefile, re.M))


@pytest.mark.parametrize("path", PARTS)
def test_what_a_text_names_exists(path):
    text = path.read_text(encoding="utf-8")
    assert missing_names(text) == []
    assert missing_paths(text) == []
    assert missing_targets(text) == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in re.findall(r"constrax\[([a-z,]+)\]", text):
        assert set(extra.split(",")) <= set(extras), extra


@pytest.mark.parametrize("path", [p for p in PARTS if str(p.values[0]).endswith(".md") and "CHANGELOG" not in str(p.values[0])])
def test_code_fits_a_page(path):
    """84 columns of code are what the site shows without a scroll bar in a window of 1,280 pixels."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S):
        assert [line for line in block.splitlines() if len(line) > 84] == []


def test_what_is_missing_is_found():
    assert missing_names("`fsa_compile.compile_regex`, `fsa_compile.artifact.arrays`, `fsa_compile.nothing.here(x)`") == ["fsa_compile.nothing.here"]
    assert missing_paths("see docs/theory.md and `docs/nothing.md`, not /tmp/docs/other.md") == ["docs/nothing.md"]
    assert missing_targets("`make demo` makes all, `make tea` nothing\n    make coffee") == ["coffee", "tea"]


@pytest.mark.parametrize("path", PARTS)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", path.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        page = (path.parent / target) if target else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), (target, anchor)


def test_the_glossary():
    """Terms in alphabetical order, each with a meaning, a place that exists, and a source where it has one."""
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in re.findall(r"^\| (?!Term|---).*\|$", text, re.M)]
    terms = [row[0] for row in rows]
    assert len(terms) >= 40
    assert terms == sorted(set(terms), key=str.lower)
    for row in rows:
        assert len(row) >= 3, row
        assert (ROOT / row[2].strip("`")).exists(), row
    papers = text.split("## Papers")[1]
    for source in "; ".join(row[3] for row in rows if len(row) > 3).split("; "):
        if found := re.search(r"([A-Z][A-Za-z-]+)\b.* ((?:19|20)\d\d)\b", source.split(": ")[-1]):
            assert re.search(rf"^- {found[1]}.* {found[2]},", papers, re.M), source


@pytest.mark.parametrize("package", ["constrax", "fsa_compile", "jax_decode", "models"])
def test_examples_of_the_reference_are_code(package):
    """In a docstring `>>>` is code below "Examples:", and block quotes anywhere else."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or not (text := ast.get_docstring(node)):
                continue
            assert "Example:\n" not in text, f"{path}: {node.name}"
            if ">>>" in text:
                before, _, examples = text.partition("Examples:\n")
                assert ">>> " not in before, f"{path}: {node.name}"
                assert all(line.startswith("  ") for line in examples.splitlines() if ">>> " in line), f"{path}: {node.name}"
