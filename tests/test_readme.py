"""The README is a short welcome, and true: its Python runs, its commands exist. Pages that the small model decodes for, and the commands."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import fsa_compile.cli.commands
import jax_decode.cli

pytestmark = [
    pytest.mark.filterwarnings("error"),
    # treescope reads every name of NumPy's modules, of which NumPy 2.5 retires one.
    pytest.mark.filterwarnings("ignore:The chararray class is deprecated:DeprecationWarning"),
]

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = TEXT) -> list[str]:
    """Contents of the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def outcome(line: str) -> int:
    """Runs one command in this process; its exit status."""
    program, *arguments = shlex.split(line, comments=True)
    mains = {"fsa-compile": fsa_compile.cli.commands.main, "jax-decode": jax_decode.cli.main}
    try:
        return mains[program](arguments)
    except SystemExit as stop:
        return int(stop.code or 0)


def test_the_first_example_is_short():
    """Three lines and four things to know: the package, `load`, a prompt, a pattern. With the parts by hand: ten lines."""
    first = ast.parse(blocks("python")[0])
    assert len(blocks("python")[0].splitlines()) <= 3
    assert {node.id for node in ast.walk(first) if isinstance(node, ast.Name)} == {"constrax", "lm", "print"}
    assert [node.attr for node in ast.walk(first) if isinstance(node, ast.Attribute)] == ["load"]
    assert len(blocks("python")[-1].splitlines()) <= 10
    for page in ("gemma", "tunix", "serving"):
        examples = blocks("python", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
        assert examples
        assert max(len(example.splitlines()) for example in examples) <= 25, page


def test_it_is_a_welcome():
    """What is more than that has a page in docs."""
    assert len(TEXT.encode()) <= 9_000


def test_the_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    answer, person, year, again = printed.splitlines()
    assert re.fullmatch(r"(yes|no), because [a-z ]+\.", answer)
    assert person == "Person(name='Ada Lovelace', born=1815, city='London')"
    assert year == "1816"
    assert re.fullmatch(r"(yes|no), because [a-z ]{3,60}\. ACCEPTED", again)


PAGES = {
    "index": [r"^yes, because the kettle is red\.$"],
    "welcome": [
        r"^yes, because the kettle is red\.$",
        r"^\['negative', 'positive'\]$",
        r"^\{'name': 'Ada Lovelace', 'city': 'London'\}$",
    ],
    "install": [],
    "patterns": [r"CompiledConstraint", r'^It says "[^"]+", and .*\.$'],
    "grammars": [r"^[a-z_]+\(.*\)$", r"Any JSON value on one line"],
    "json_schema": [r"^accepted", r"at #/properties/age/minimum"],
    "types": [r"^Order\(customer='.*", r"^\{'name': 'lamp'\} 1 lamp$"],
    "catalogues": [r"^1$"],
    "decoding": [
        r"^(ACCEPTED '(positive|negative|neutral|mixed)'\n){2}",
        r"^regular( x\d+)?$",
        r"^0\.\d+ ",
        r"^(yes|no), because [a-z ]{3,60}\. -\d+\.\d+$",
        r"-> '(yes|no), because [a-z ]{3,60}\.'$",
    ],
    "probabilities": [r"Options given the constraint", r"^\[-\d+\.\d+\] (good|bad|badly)$", r"^\d+\.\d+ \d+\.\d+$"],
    "exact_samples": [r"^\[100\] \[\d+\] \[\[-\d+", r"^\[\d+\]$", r"^(\[\d+\.\d+\]\n){3}"],
    "canvas": [r'^\{.*"born".*\}$', r"^\[-\d+"],
    "inspection": [r"^False \d+$", r"refused", r"^(yes|no), because [a-z ]+\.$"],
}
"""What each page prints."""


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        exec(compile(block, f"{page}.md", "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    for pattern in PAGES[page]:
        assert re.search(pattern, printed, re.M), (pattern, printed)
    assert (tmp_path / "answer.npz").is_file() == (page == "install")


def test_the_page_on_tokenization(capsys):
    """Its blocks run; the model heals the word that the prompt breaks off. (Its tables have the sizes of the README's first ones.)"""
    names: dict[str, object] = {}
    page = blocks("python", (ROOT / "docs" / "tokenization.md").read_text(encoding="utf-8"))
    for block in page:
        exec(compile(block, "tokenization.md", "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "b' kett'"
    assert re.fullmatch(r"le [a-z ]{0,58}\.", printed[1])
    assert printed[2:5] == ["[b' ket', b' kettle']", " No, the kettle is blue.", "(1, 5)"]
    assert printed[5].endswith("(1, 5) None")
    assert len(page) == 6


def test_the_tutorial(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")):
        exec(compile(block, "tutorial.md", "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"(yes|no), because [a-z ]{3,60}\. ACCEPTED", printed[0])
    assert re.fullmatch(r"\d+ tokens may come next; at least 2 more are needed", printed[1])
    assert printed[2] == "refused"
    person = r"Person\(name='[A-Za-z ]+', born=\d+, city='[A-Za-z]+', occupation='[a-z ]{3,30}'\) -?\d+\.\d+ -?\d+\.\d+"
    assert all(re.fullmatch(person, line) for line in printed[3:6]), printed
    assert "name='Ada Lovelace', born=1815, city='London'" in printed[3]
    assert printed[6].startswith(r"a back-reference (\1) is not a regular language")
    assert names["same"].fingerprint == names["tokenizer"].vocabulary.fingerprint


def test_the_page_on_pictures(tmp_path, monkeypatch, capsys):
    """Its blocks run, and the step report adds up. (Its model and tables are the README's first ones, so is what is compiled.)"""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python", (ROOT / "docs" / "pictures.md").read_text(encoding="utf-8")):
        exec(compile(block, "pictures.md", "exec", dont_inherit=True), names)
    assert (tmp_path / "bytes.svg").read_text().count("<svg") == 1
    assert (tmp_path / "masks.png").read_bytes().startswith(b"\x89PNG")
    assert "<h2>Row 0: ACCEPTED" in (tmp_path / "generation.html").read_text(encoding="utf-8")
    printed = capsys.readouterr().out
    assert "ConstraintTables(\n  nodes=<jax.Array int32" in printed
    assert "One step of 8 rows of 2,048 logits (float32)" in printed
    sizes = re.search(
        r"logits 65,536 bytes; mask rows at most 4,096 \(6.2 % of the logits\); states [\d,]+; tables ([\d,]+)", printed
    )
    assert int(sizes[1].replace(",", "")) == names["tables"].nbytes
    without, own = re.search(r"bytes read and written +([\d,]+) +([\d,]+)", printed).groups()
    assert 65_536 < int(without.replace(",", "")) < int(own.replace(",", ""))


def test_the_commands_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    whole = [block.replace("\\\n", " ") for block in blocks("bash", page)]
    lines = [line for block in whole for line in block.splitlines() if line.startswith(("fsa-compile", "jax-decode"))]
    assert {line.split()[0] for line in lines} == {"fsa-compile", "jax-decode"}
    for line in lines:
        assert outcome(line) == 0, (line, capsys.readouterr())
    assert "digraph" in (tmp_path / "date.dot").read_text()
    printed = capsys.readouterr().out
    assert "accepted: '2024-11-30'" in printed
    assert """accepted: '{"a": [1, {"b": null}]}'""" in printed


def test_a_wrong_command_is_noticed(capsys):
    assert outcome("fsa-compile check '(' --tokenizer nothing.model x") == 2
    assert outcome("fsa-compile no-such-command") == 2


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z-]+)", "".join(blocks("bash")) + " ".join(re.findall(r"`(make [a-z-]+)`", TEXT))))
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_commands_are_declared():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"fsa-compile": "fsa_compile.cli:main", "jax-decode": "jax_decode.cli:main"}
