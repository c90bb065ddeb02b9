"""The `fsa-compile` command: what it prints, writes and returns."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fsa_compile import CompiledConstraint
from fsa_compile.cli import commands as cli

ROOT = Path(__file__).parents[2]
TOKENIZER = str(ROOT / "models" / "small" / "tokenizer.model")
DATE = "[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}"


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    try:
        status = cli.main([str(a) for a in arguments])
    except SystemExit as stop:
        status = int(stop.code or 0)
    return (status, *capsys.readouterr())


@pytest.fixture(scope="module")
def date(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "date.npz"
    assert cli.main(["compile", DATE, "--tokenizer", TOKENIZER, "--output", str(path)]) == 0
    return path


def test_compile_writes_a_file_and_a_summary(capsys, tmp_path):
    path = tmp_path / "a.npz"
    status, out, err = run(capsys, "compile", "a(b|c)+", "--tokenizer", TOKENIZER, "-o", path)
    assert (status, err) == (0, "")
    assert "Compiled 'a(b|c)+' over 2,048 tokens" in out
    assert re.search(r"A text takes (1 token|2 tokens) or more\.", out)
    assert CompiledConstraint.load(path).source == "a(b|c)+"


def test_compile_choices_and_json(capsys, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("red\ngreen\n\nlight green \n", encoding="utf-8")
    path = tmp_path / "w.npz"
    status, out, _ = run(capsys, "compile", "--choices", words, "--tokenizer", TOKENIZER, "-o", path, "--json")
    facts = json.loads(out)
    assert status == 0
    assert facts["bytes"] == path.stat().st_size
    checked = run(capsys, "check", path, "--tokenizer", TOKENIZER, "red", "", "light green ", "light green")
    assert checked[0] == 1
    assert [line.split(":")[0] for line in checked[1].splitlines() if line[0] != " "] == ["accepted"] * 3 + ["incomplete"]


def test_flags_and_limits(capsys, tmp_path):
    path = tmp_path / "a.npz"
    assert run(capsys, "compile", "yes", "--flags", "i", "--tokenizer", TOKENIZER, "-o", path)[0] == 0
    assert run(capsys, "check", path, "--tokenizer", TOKENIZER, "YeS")[0] == 0
    status, _, err = run(capsys, "compile", "yes", "--force", "--flags", "q", "--tokenizer", TOKENIZER, "-o", path)
    assert (status, "'q' is no pattern flag" in err) == (2, True)
    status, _, err = run(capsys, "compile", "a{50}", "--force", "--max-repeat", "40", "--tokenizer", TOKENIZER, "-o", path)
    assert status == 2
    assert "--max-repeat=40" in err


def test_canonical_constraints(capsys, tmp_path):
    """What the tokenizer itself makes; looking into such a file says what it takes."""
    path = tmp_path / "a.npz"
    status, out, err = run(capsys, "compile", "(yes|no), [a-z]{1,5}", "--canonical", "--tokenizer", TOKENIZER, "-o", path)
    assert (status, err) == (0, "")
    assert re.search(r"A text takes \d to \d tokens\.", out)
    assert CompiledConstraint.load(path).is_canonical
    status, out, _ = run(capsys, "inspect", path, "--tokenizer", TOKENIZER)
    assert status == 0
    assert "A shortest text: 'yes, " in out or "A shortest text: 'no, " in out
    assert run(capsys, "check", path, "--tokenizer", TOKENIZER, "no, abc")[0] == 0
    status, out, _ = run(capsys, "check", path, "--tokenizer", TOKENIZER, "no; abc")
    assert status == 1
    grammar = tmp_path / "g.lark"
    grammar.write_text('start: "(" start ")" | "x"')
    assert run(capsys, "compile", "--grammar", grammar, "--canonical", "--force", "--tokenizer", TOKENIZER, "-o", path)[0] == 0
    deep = ("--canonical", "--canonical-depth", 3)
    assert run(capsys, "compile", "--grammar", grammar, *deep, "--force", "--tokenizer", TOKENIZER, "-o", path)[0] == 0


def test_inspect(capsys, date, tmp_path):
    dot = tmp_path / "date.dot"
    status, out, _ = run(capsys, "inspect", date, "--tokenizer", TOKENIZER, "--samples", 3, "--dot", dot)
    assert status == 0
    assert "Every text takes 10 tokens." in out
    assert "A shortest text: '0000-01-00'" in out
    assert out.count("A random text:") == 3
    assert dot.read_text().startswith("digraph")
    status, out, _ = run(capsys, "inspect", date)
    assert (status, "Give --tokenizer" in out) == (0, True)
    status, out, _ = run(capsys, "inspect", DATE, "--tokenizer", TOKENIZER, "--json", "--samples", 2, "--seed", 3)
    facts = json.loads(out)
    assert len(facts["samples"]) == 2
    assert facts["longest_tokens"] == 10


def test_svg_needs_dot_or_matplotlib(capsys, date, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setattr("shutil.which", lambda name: None)
    status, *_ = run(capsys, "inspect", date, "--svg", tmp_path / "x.svg")
    assert (status, "</svg>" in (tmp_path / "x.svg").read_text(encoding="utf-8")) == (0, True)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    status, _, err = run(capsys, "inspect", date, "--svg", tmp_path / "y.svg")
    assert (status, "neither is installed" in err, "--dot FILE" in err) == (2, True, True)


def test_a_registry_that_is_not_there_is_said(capsys, tmp_path):
    status, _, err = run(capsys, "registry", "list", tmp_path / "nowhere")
    assert (status, "there is no such folder" in err) == (2, True)


def test_check_says_where_and_why(capsys, date):
    status, out, _ = run(capsys, "check", date, "--tokenizer", TOKENIZER, "2024-13-01")
    assert status == 1
    assert "refused: '2024-13-01' stops at token 7 of 10" in out
    assert "Longest valid beginning: '2024-1' (6 bytes)" in out
    assert "beginning with 0-2; for example" in out
    status, out, _ = run(capsys, "check", date, "--tokenizer", TOKENIZER, "2024-01")
    assert (status, "valid beginning of 7 tokens" in out, "'-00'" in out) == (1, True, True)
    status, out, _ = run(capsys, "check", date, "--tokenizer", TOKENIZER, "2024-01-02x", "2024-01-02")
    assert (status, "may end after 10 tokens, and must" in out) == (1, True)
    assert run(capsys, "check", date, "--tokenizer", TOKENIZER, "2024-01-02")[0] == 0


def test_check_ids_standard_input_and_json(capsys, date, monkeypatch):
    status, out, _ = run(capsys, "check", date, "--tokenizer", TOKENIZER, "--ids", "[55, 55]")
    assert (status, "sequence of 2 ids" in out) == (1, True)
    status, out, _ = run(capsys, "check", date, "--tokenizer", TOKENIZER, "--ids", "1")
    assert "which ends the text" in out
    monkeypatch.setattr("sys.stdin", io.StringIO("2024-01-02\n2024-99-02\n"))
    status, out, _ = run(capsys, "check", date, "--tokenizer", TOKENIZER, "--json")
    first, second = map(json.loads, out.splitlines())
    assert (status, first["verdict"], second["verdict"]) == (1, "accepted", "refused")
    assert second["position"] == 5
    assert {e["text"] for e in second["examples"]} == {"0", "1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "a(", "x"], "missing )"),
        (["check", "missing.npz", "x"], "there is no such constraint file"),
        (["check", TOKENIZER, "x"], "not a constraint file"),
        (["check", "a", "--ids", "1 b"], "not whole numbers"),
        (["check", "a", "--ids", "99999"], "no token id"),
        (["check", "a", "x", "--ids", "1"], "given together"),
        (["check", r"(a)\1", "x"], "offset"),
        (["check", "[^\\s\\S]", "x"], "matches no text"),
        (["compile", "a", "-o", "/no/such/folder/x.npz"], "there is no folder"),
        (["compile", "--choices", "missing.txt", "-o", "x.npz"], "missing.txt"),
        (["inspect", "a", "--max-nodes", "0", "--dot", "x.dot"], "nothing to draw"),
    ],
)
def test_bad_input_is_one_message_and_status_2(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *arguments, "--tokenizer", TOKENIZER)
    assert (status, out) == (2, "")
    assert err.startswith("fsa-compile: ")
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_pattern_needs_a_tokenizer(capsys):
    status, _, err = run(capsys, "inspect", "[a-z]+")
    assert (status, "can only be compiled for a tokenizer" in err) == (2, True)
    status, _, err = run(capsys, "inspect", "[a-z]+", "--tokenizer", "missing.model")
    assert status == 2
    assert "missing.model" in err


def test_wrong_usage_and_help(capsys):
    assert run(capsys)[0] == 2
    assert run(capsys, "compile", "a", "--choices", "b", "--tokenizer", TOKENIZER, "-o", "c")[0] == 2
    status, out, _ = run(capsys, "--help")
    assert (status, "Exit status: 0" in out) == (0, True)


def test_interruption(capsys, date, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "explain", interrupted)
    assert run(capsys, "check", date, "--tokenizer", TOKENIZER, "x")[0] == 130


def test_as_a_module(date):
    command = [sys.executable, "-m", "fsa_compile", "check", str(date), "--tokenizer", TOKENIZER, "2024-13-01"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("refused")


ARITHMETIC = 'start: sum\nsum: term | sum "+" term\nterm: /[0-9]+/ | "(" sum ")"\n%ignore " "\n'


@pytest.fixture(scope="module")
def grammar_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("grammars") / "sum.lark"
    path.write_text(ARITHMETIC, encoding="utf-8")
    return path


def test_a_grammar_of_two_files(capsys, tmp_path):
    (tmp_path / "two.lark").write_text('start: answer "!"\n%import .one.answer\n', encoding="utf-8")
    (tmp_path / "one.lark").write_text('answer: YES | "no"\nYES: "yes"\n', encoding="utf-8")
    path = tmp_path / "two.npz"
    given = ("--tokenizer", TOKENIZER)
    assert run(capsys, "compile", "--grammar", tmp_path / "two.lark", *given, "-o", path)[0] == 0
    assert [run(capsys, "check", path, *given, text)[0] for text in ("yes!", "no!", "yes")] == [0, 0, 1]


def test_compile_a_grammar_and_look_at_it(capsys, tmp_path, grammar_file):
    path = tmp_path / "sum.npz"
    status, out, err = run(capsys, "compile", "--grammar", grammar_file, "--tokenizer", TOKENIZER, "-o", path)
    assert (status, err) == (0, "")
    assert "Compiled 'start: sum sum: term | sum" in out
    status, out, _ = run(capsys, "inspect", path, "--tokenizer", TOKENIZER, "--samples", 2, "--dot", tmp_path / "sum.dot")
    assert status == 0
    assert re.search(r"One stack, \d+ symbols; one token pops at most \d cells and pushes at most \d\.", out)
    assert "end of term#1" in (tmp_path / "sum.dot").read_text()
    facts = json.loads(run(capsys, "inspect", path, "--json")[1])
    assert (facts["stacks"], facts["longest_tokens"]) == (1, None)
    assert facts["symbols"] > 0


def test_check_a_text_against_a_grammar(capsys, grammar_file):
    status, out, _ = run(capsys, "check", grammar_file, "--tokenizer", TOKENIZER, "(1 + 2) + 3", "((1 + 2) + ")
    assert status == 1
    assert [line.split(":")[0] for line in out.splitlines() if line[0] != " "] == ["accepted", "incomplete"]
    status, out, _ = run(capsys, "check", grammar_file, "--tokenizer", TOKENIZER, "((1 + 2)) 3")
    assert "refused" in out
    status, out, _ = run(capsys, "check", grammar_file, "--tokenizer", TOKENIZER, "((1 + +")
    assert re.search(r"Open there: term#1 since '.?\('; term#1 since '.?\('.*; at \S", out)
    found = json.loads(run(capsys, "check", grammar_file, "--tokenizer", TOKENIZER, "--json", "((1 + +")[1])
    assert len(found["stack"][0]["frames"]) >= 2
    assert found["too_deep"] is False


def test_check_with_a_depth(capsys, grammar_file):
    status, out, _ = run(capsys, "check", grammar_file, "--tokenizer", TOKENIZER, "--max-depth", 3, "((((((1))))))")
    assert status == 1
    assert "It would be allowed without the limit on the stack." in out


def test_grammars_of_the_library(capsys, tmp_path):
    status, out, _ = run(capsys, "check", "library:json", "--tokenizer", TOKENIZER, '{"a": [1, {}]}')
    assert (status, out.split(":")[0]) == (0, "accepted")
    path = tmp_path / "tags.npz"
    assert run(capsys, "compile", "--grammar", "library:tags", "--tokenizer", TOKENIZER, "-o", path)[0] == 0
    assert run(capsys, "check", path, "--tokenizer", TOKENIZER, "<p>a</p>")[0] == 0
    assert "no grammar 'yaml'" in run(capsys, "check", "library:yaml", "--tokenizer", TOKENIZER, "x")[2]


def test_options_of_grammars(capsys, tmp_path):
    path = tmp_path / "a.gbnf"
    path.write_text('root ::= "a" list\nlist ::= "b"+\n', encoding="utf-8")
    assert run(capsys, "check", path, "--tokenizer", TOKENIZER, "abb")[0] == 0
    status, _, err = run(capsys, "check", path, "--start", "list", "--syntax", "gbnf", "--tokenizer", TOKENIZER, "bb")
    assert (status, err) == (0, "fsa-compile: warning: list does not need these rules: root (line 1)\n")
    ambiguous = tmp_path / "a.lark"
    ambiguous.write_text('start: "a" start "a" | "a"\n', encoding="utf-8")
    status, _, err = run(capsys, "check", ambiguous, "--tokenizer", TOKENIZER, "aaa")
    assert (status, err.startswith("fsa-compile: error: ")) == (2, True)
    assert run(capsys, "check", ambiguous, "--stacks", 8, "--tokenizer", TOKENIZER, "aaa")[0] == 0
    spaced = tmp_path / "s.lark"
    spaced.write_text('start: "a" "b"\n%ignore " "\n', encoding="utf-8")
    assert run(capsys, "check", spaced, "--tokenizer", TOKENIZER, "a b")[0] == 0
    assert "%ignore has no meaning" in run(capsys, "check", spaced, "--mode", "characters", "--tokenizer", TOKENIZER, "a b")[2]


def test_wrong_grammars_are_one_message(capsys, tmp_path, grammar_file):
    path = tmp_path / "wrong.lark"
    path.write_text('start: "a\n', encoding="utf-8")
    status, out, err = run(capsys, "compile", "--grammar", path, "--tokenizer", TOKENIZER, "-o", tmp_path / "x.npz")
    assert (status, out) == (2, "")
    assert re.match(r"fsa-compile: error: .*line 1", err)
    assert run(capsys, "compile", "--grammar", tmp_path / "none.lark", "--tokenizer", TOKENIZER, "-o", tmp_path / "x.npz")[0] == 2
    assert "a grammar can only be compiled for a tokenizer" in run(capsys, "inspect", grammar_file)[2]
