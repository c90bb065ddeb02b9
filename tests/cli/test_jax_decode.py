"""`jax-decode`: every way to say what the texts must be, prompts of several lines, and messages without Python in them."""

from __future__ import annotations

import json
import re

import pytest

import fsa_compile.cli.commands
import jax_decode.cli
import models

KETTLE = r"Question: Is the kettle red?\nAnswer: "


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder: (exit status, output lines, messages)."""
    monkeypatch.chdir(tmp_path)

    def outcome(*arguments, program=jax_decode.cli.main):
        try:
            status = program([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err

    return outcome


FILES = {
    "answer.json": json.dumps({"enum": ["yes", "no"]}),
    "answer.lark": 'start: "yes" | "no"',
    "answer.txt": "yes\nno\n",
    "answers_of_mine.py": "from typing import Literal\nclass Answers:\n    Short = Literal['yes', 'no']\n",
}
WAYS = {
    ("--schema", "answer.json"): ['"yes"', '"no"'],
    ("--grammar", "answer.lark"): ["yes", "no"],
    ("--grammar", "library:json_compact"): None,
    ("--choices", "answer.txt"): ["yes", "no"],
    ("--type", "answers_of_mine:Answers.Short"): ['"yes"', '"no"'],
    ("--pattern", "yes|no"): ["yes", "no"],
}


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_what_the_texts_must_be(run, tmp_path, way):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    status, lines, messages = run(*way, "--max-new-tokens", 24, "--temperature", 0, "-e", KETTLE)
    assert status == 0, messages
    if WAYS[way] is None:
        json.loads(lines[0])
    else:
        assert lines[0] in WAYS[way]


def test_prompts_of_several_lines(run, tmp_path):
    plain = run("--pattern", "(yes|no), because [a-z ]+[.]", "-e", KETTLE)[1]
    prompt = KETTLE.replace(r"\n", "\n")
    (tmp_path / "prompts.jsonl").write_text("\n".join([json.dumps(prompt), json.dumps({"prompt": prompt})]) + "\n")
    (tmp_path / "one.txt").write_text(prompt)
    assert run("--pattern", "(yes|no), because [a-z ]+[.]", "--prompt-file", "prompts.jsonl")[1] == plain * 2
    assert run("--pattern", "(yes|no), because [a-z ]+[.]", "--prompt-file", "one.txt", "--one-prompt")[1] == plain
    status, _, messages = run("--pattern", "yes", KETTLE)
    assert status == 0
    assert "with -e they are a line break" in messages
    (tmp_path / "prompts.jsonl").write_text('{"text": "a"}\n')
    assert "prompts.jsonl, line 1" in run("--prompt-file", "prompts.jsonl")[2]


def test_what_the_limit_forced_is_said(run):
    status, lines, messages = run("--pattern", "(yes|no), because [a-z ]+[.]", "--max-new-tokens", 7, "-e", KETTLE)
    assert status == 0
    assert "row 0 was kept short by --max-new-tokens 7, from token " in messages
    _, lines, _ = run("--pattern", "(yes|no), because [a-z ]+[.]", "--max-new-tokens", 7, "--format", "json", "-e", KETTLE)
    assert isinstance(json.loads(lines[0])["squeezed"], int)
    _, lines, _ = run("--pattern", "yes|no", "--format", "json", "-e", KETTLE)
    assert json.loads(lines[0])["squeezed"] is None


def test_the_small_tokenizer_by_name(run):
    assert run("--pattern", "yes", "--tokenizer", "small", "-e", KETTLE)[1] == ["yes"]
    compiled = ("compile", "yes", "--tokenizer", "small", "--output", "yes.npz")
    assert run(*compiled, program=fsa_compile.cli.commands.main)[0] == 0
    assert run("--constraint", "yes.npz", "-e", KETTLE)[1] == ["yes"]
    status, _, messages = run(*compiled, program=fsa_compile.cli.commands.main)
    assert status == 2
    assert "--force" in messages


def test_limits_are_told_as_options(run):
    status, _, messages = run("compile", "a(?=b)c", "--max-bytes", 5, "--tokenizer", "small", "--output", "x.npz", program=fsa_compile.cli.commands.main)
    assert status == 2
    assert "--max-bytes=5" in messages
    assert "CompileLimits" not in messages


@pytest.mark.parametrize(("program", "name"), [(jax_decode.cli.main, "jax-decode"), (fsa_compile.cli.commands.main, "fsa-compile")])
def test_versions(run, program, name):
    status, lines, _ = run("--version", program=program)
    assert status == 0
    assert lines[0].startswith(f"{name} ")


MISTAKES = {
    "no such schema": (["--schema", "nothing.json"], "No such file or directory: nothing.json"),
    "a schema that is none": (["--schema", "bad.json"], "jax-decode: error: "),
    "a grammar of the library, without its prefix": (["--grammar", "json"], "library:json"),
    "an unknown grammar of the library": (["--grammar", "library:nothing"], "nothing"),
    "a type without a colon": (["--type", "shop.Order"], "MODULE:CLASS"),
    "a type that is not there": (["--type", "no_such_module:Order"], "cannot be imported"),
    "a class that is not there": (["--type", "json:Order"], "cannot be imported"),
    "bytes as choices": (["--choices", "bytes.txt"], "not text in UTF-8"),
    "a constraint that is a schema": (["--constraint", "good.json"], "good.json"),
    "a pattern with a fault": (["--pattern", "("], "offset"),
    "temperature 0 and top-k": (["--temperature", "0", "--top-k", "3"], "most probable token"),
    "a negative temperature": (["--temperature", "-1"], "temperature"),
    "two samplers": (["--top-k", "3", "--top-p", "0.5"], "--top-k and --top-p"),
    "no limit": (["--pattern", "aaaa", "--max-new-tokens", "0"], "--max-new-tokens of prompt 0 is 0"),
    "a limit that is too low": (["--pattern", "a{9}", "--max-new-tokens", "2"], "pass --allow-truncation"),
    "no texts": (["--n", "0"], "--n is 0"),
    "no tokens to choose among": (["--top-k", "0"], "--top-k"),
    "a probability above 1": (["--top-p", "2"], "--top-p"),
    "a share above 1": (["--min-p", "2"], "--min-p"),
    "a checkpoint without a tokenizer": (["--checkpoint", "x"], "--tokenizer"),
    "no checkpoint": (["--checkpoint", "x", "--tokenizer", "small"], "no checkpoint here"),
    "no tokenizer of this name": (["--tokenizer", "nothing.model"], "nothing.model"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_messages(run, tmp_path, mistake):
    (tmp_path / "bad.json").write_text('{"type": ')
    (tmp_path / "good.json").write_text("{}")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    options, says = MISTAKES[mistake]
    status, lines, messages = run(*options, "a prompt")
    assert status == 2
    assert not lines
    assert says in messages
    assert messages.startswith("jax-decode: error: ")
    assert "Traceback" not in messages
    assert "Error" not in messages.replace("jax-decode: error", "")
    python = r"max_new|num_samples|allow_truncation|\(\)|Greedy|Categorical|Top[KP]|MinP"
    assert not re.search(python, messages), messages


def test_a_defect_is_said_without_a_traceback(run, monkeypatch):
    monkeypatch.setattr(models, "load_small", lambda **_: 1 / 0)
    status, _, messages = run("a prompt")
    assert status == 2
    assert "this is a defect of the program, please report it: ZeroDivisionError" in messages
    monkeypatch.setenv("CONSTRAX_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run("a prompt")


def test_nothing_is_overwritten_silently(run, tmp_path):
    how = ["compile", "yes|no", "--tokenizer", models.small_tokenizer_path(), "--output", "answer.npz"]
    assert run(*how, program=fsa_compile.cli.commands.main)[0] == 0
    before = (tmp_path / "answer.npz").read_bytes()
    how[1] = "maybe"
    status, _, messages = run(*how, program=fsa_compile.cli.commands.main)
    assert status == 2
    assert "Add --force" in messages
    assert (tmp_path / "answer.npz").read_bytes() == before
    assert run(*how, "--force", program=fsa_compile.cli.commands.main)[0] == 0
    assert (tmp_path / "answer.npz").read_bytes() != before
