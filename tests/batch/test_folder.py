"""Constraints compiled into a folder: resumed after a real kill, in parts, with processes that die, and what the manifest says."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from fsa_compile import CompiledConstraint, ConstraintError, Vocabulary, compile_folder, compile_on_ray, read_manifest
from fsa_compile.batch import processes as processes_module
from fsa_compile.batch.folder import read_constraints
from fsa_compile.cli.commands import main

ROOT = Path(__file__).parents[2]
LETTERS = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], stop_ids=[256])
SOME = {
    "date": {"regex": "[0-9]{4}-[0-9]{2}"},
    "answer": {"choice": ["yes", "no"]},
    "flag": {"json": {"type": "boolean"}},
    "nested": {"grammar": 'start: "(" start? ")"'},
    "open": {"regex": "(a"},
    "both": {"regex": "a", "choice": ["a"]},
    "none": {"json": {"type": "integer", "minimum": 2, "maximum": 1}},
}
REFUSED = {"open": "RegexSyntaxError", "both": "FormatError", "none": "UnsatisfiableSchemaError"}


def accepts(folder: Path, name: str, text: str) -> bool:
    walk = CompiledConstraint.load(folder / f"{name}.npz", LETTERS).walk()
    for byte in text.encode():
        if not walk.allowed()[byte]:
            return False
        walk.advance(byte)
    return bool(walk.allowed()[256])


@pytest.mark.parametrize("workers", [1, 2])
def test_every_kind_and_every_refusal(workers, tmp_path):
    made = compile_folder(SOME, LETTERS, tmp_path, workers=workers, progress=workers == 1)
    assert list(made) == list(SOME)
    assert {name: record.kind for name, record in made.items() if record.error} == REFUSED
    assert "(a" in made["open"].error
    texts = {"date": ("2024-05", "2024-5"), "answer": ("no", "nope"), "flag": ("true", "t"), "nested": ("(())", "(()")}
    for name, (inside, outside) in texts.items():
        assert accepts(tmp_path, name, inside)
        assert not accepts(tmp_path, name, outside)
        assert made[name].bytes == (tmp_path / f"{name}.npz").stat().st_size
    assert read_manifest(tmp_path) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(f"{name}.npz" for name in texts), "manifest.jsonl"])


def test_only_what_is_missing_or_different_is_compiled_again(tmp_path):
    compile_folder(SOME, LETTERS, tmp_path, workers=1)
    lines = len((tmp_path / "manifest.jsonl").read_text().splitlines())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert compile_folder(SOME, LETTERS, tmp_path, workers=1) == read_manifest(tmp_path)
    (tmp_path / "date.npz").unlink()
    (tmp_path / "flag.npz").write_bytes((tmp_path / "flag.npz").read_bytes()[:-1])
    changed = SOME | {"answer": {"choice": ["maybe"]}, "open": {"regex": "(a)"}}
    made = compile_folder(changed, LETTERS, tmp_path, workers=1)
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert {name for name in after if after[name] != before.get(name)} == {"date.npz", "flag.npz", "answer.npz", "open.npz"}
    assert accepts(tmp_path, "answer", "maybe")
    assert made["open"].error is None
    assert made["both"].kind == "FormatError"  # known, so not tried again
    assert len((tmp_path / "manifest.jsonl").read_text().splitlines()) == lines + 4
    compile_folder(changed, LETTERS, tmp_path, workers=1, retry=True)
    assert len((tmp_path / "manifest.jsonl").read_text().splitlines()) == lines + 6
    upper = Vocabulary.from_tokens([*LETTERS.tokens[:-1], b"", b"AB"], stop_ids=[256])
    assert compile_folder({"date": SOME["date"]}, upper, tmp_path, workers=1)["date"].key != made["date"].key


def test_an_unfinished_line_is_passed_over(tmp_path):
    made = compile_folder(SOME, LETTERS, tmp_path, workers=1)
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(manifest.read_text()[:-20])
    assert set(read_manifest(tmp_path)) == set(SOME) - {"none"}
    again = compile_folder(SOME, LETTERS, tmp_path, workers=1)
    assert {name: record.key for name, record in again.items()} == {name: record.key for name, record in made.items()}
    assert set(read_manifest(tmp_path)) == set(SOME)


_ENDLESS = """
import json, sys
from fsa_compile import Vocabulary, compile_folder
if __name__ == "__main__":
    letters = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], stop_ids=[256])
    compile_folder(sys.argv[1], letters, sys.argv[2], workers=int(sys.argv[3]))
"""


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, exhaustive):
    count, workers = (10_000, 2) if exhaustive else (120, 1)
    file, folder, script = tmp_path / "many.jsonl", tmp_path / "out", tmp_path / "run.py"
    file.write_text("".join(json.dumps({"name": f"n{i}", "regex": f"{i}[a-z]{{1,{i % 50 + 1}}}"}) + "\n" for i in range(count)))
    script.write_text(_ENDLESS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(file), str(folder), str(workers)]
    running = subprocess.Popen(command, env=environment, start_new_session=True)
    while len(read_manifest(folder)) < count // 10:
        assert running.poll() is None
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    known = read_manifest(folder)
    assert count // 10 <= len(known) < count
    times = {name: (folder / f"{name}.npz").stat().st_mtime_ns for name in known}
    subprocess.run(command, env=environment, check=True)
    made = read_manifest(folder)
    assert set(made) == {f"n{i}" for i in range(count)}
    assert not any(record.error for record in made.values())
    assert {name: (folder / f"{name}.npz").stat().st_mtime_ns for name in known} == times
    assert all((folder / f"{name}.npz").stat().st_size == record.bytes for name, record in made.items())
    assert accepts(folder, "n7", "7abc")
    assert not accepts(folder, "n7", "8abc")


class Deadly(dict):
    """A constraint that takes its worker with it."""

    def __reduce__(self):
        return os._exit, (1,)


def test_a_process_that_dies_is_a_record(tmp_path):
    constraints = SOME | {"deadly": Deadly(regex="a")} | {f"more{i}": {"choice": [str(i)]} for i in range(12)}
    made = compile_folder(constraints, LETTERS, tmp_path, workers=2)
    assert list(made) == list(constraints)
    assert {name: record.kind for name, record in made.items() if record.error} == REFUSED | {"deadly": "BrokenProcessPool"}
    assert accepts(tmp_path, "more11", "11")


@pytest.mark.parametrize("good", [1, 3, 5])
def test_a_constraint_that_a_dead_pool_does_not_take_is_not_lost(tmp_path, monkeypatch, good):
    """A process may die while nothing waits for it: then handing out the next constraint says so."""
    pools = []

    @contextlib.contextmanager
    def processes(task, count):
        taken = []
        pools.append(taken)

        def submit(name, *rest):
            if len(taken) == good and len(pools) < 4:
                raise BrokenProcessPool
            taken.append(name)
            future = concurrent.futures.Future()
            future.set_result(task(name, *rest))
            return future

        yield submit

    monkeypatch.setattr(processes_module, "processes", processes)
    constraints = {f"n{i}": {"choice": [str(i)]} for i in range(12)}
    made = compile_folder(constraints, LETTERS, tmp_path, workers=2)
    assert list(made) == list(constraints)
    assert len(pools) > 3
    assert not any(record.error for record in made.values())
    assert accepts(tmp_path, "n11", "11")


def test_parts_are_everything_once(tmp_path):
    constraints = {f"n{i}": {"choice": [str(i)]} for i in range(40)}
    parts = [compile_folder(constraints, LETTERS, tmp_path, workers=1, shard=(i, 3)) for i in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(constraints)
    assert all(parts)
    assert [path.name for path in sorted(tmp_path.glob("manifest*"))] == [f"manifest-{i}-of-3.jsonl" for i in range(3)]
    assert set(read_manifest(tmp_path)) == set(constraints)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    whole = compile_folder(constraints, LETTERS, tmp_path, workers=1)  # other parts' work counts
    assert list(whole) == list(constraints)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "a", "regex": "a"}\n{"regex": "b"}', "line 2"),
        ('{"name": "a", "regex": "a"}\n\n{"name": "a", "regex": "b"}', "line 3"),
        ("[1]", "not a JSON object with a name"),
        ('{"name": 3}', "not a string"),
    ],
)
def test_lines_that_are_wrong(text, message, tmp_path):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ConstraintError, match=message):
        read_constraints(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    "arguments", [{"shard": (2, 2)}, {"shard": 3}, {"shard": "ab"}, {"workers": 0}, {"retry": "no"}, {"progress": "no"}]
)
def test_arguments_that_are_wrong(arguments, tmp_path):
    with pytest.raises(ConstraintError, match=re.escape(repr(next(iter(arguments.values()))))):
        compile_folder({}, LETTERS, tmp_path, **arguments)
    with pytest.raises(ConstraintError, match="cannot be the name of a file"):
        compile_folder({"a/b": {"regex": "a"}}, LETTERS, tmp_path)
    with pytest.raises(ConstraintError, match="must be SchemaOptions"):
        compile_folder({"a": {"json": {}}}, LETTERS, tmp_path, options={})


def test_command(tmp_path, capsys):
    file, ranks = tmp_path / "some.jsonl", tmp_path / "letters.tiktoken"
    file.write_text("".join(json.dumps({"name": name, **given}) + "\n" for name, given in SOME.items()))
    ranks.write_bytes(b"".join(base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256)))
    common = ["--tokenizer", str(ranks), "--output", str(tmp_path / "out"), "--workers", "1"]
    seen = set()
    for part in range(2):
        assert main(["batch", str(file), "--shard", f"{part}/2", "--json", *common]) in (0, 1)
        printed = json.loads(capsys.readouterr().out)
        seen |= set(printed["written"]) | set(printed["errors"])
    assert seen == set(SOME)
    assert main(["batch", str(file), *common]) == 1
    assert "4 of 7 constraints" in capsys.readouterr().out
    assert main(["batch", str(file), "--shard", "2", *common]) == 2
    assert "0/4" in capsys.readouterr().err
    assert main(["batch", str(file), str(file), *common]) == 2


def test_ray_is_named_where_it_is_missing(tmp_path):
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(ConstraintError, match=re.escape("constrax[ray]")):
            compile_on_ray(SOME, LETTERS, tmp_path)
    else:
        pytest.skip("Ray is installed")
