"""Many schemas at once: in this process and in others, with errors among them, into memory and into files."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fsa_compile import (
    CompileCache,
    CompiledConstraint,
    CompileLimits,
    ConstraintError,
    LimitError,
    PatternError,
    RegexSyntaxError,
    SchemaOptions,
    UnsupportedSchemaError,
    Vocabulary,
    compile_json_schema,
    compile_regex,
    compile_schemas,
)
from fsa_compile.cli.commands import main

LETTERS = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], stop_ids=[256])
SCHEMAS = {
    "one": {"type": "integer"},
    "none": False,
    "unique": {"type": "array", "uniqueItems": True},
    "text": '{"type": "string", "maxLength": 3}',
}


def kinds(results):
    return {name: type(result.error).__name__ if result.error else None for name, result in results.items()}


@pytest.mark.parametrize("workers", [1, 2])
def test_results(workers, tmp_path):
    options, cache = SchemaOptions(whitespace="compact"), CompileCache(tmp_path)
    results = compile_schemas(SCHEMAS, LETTERS, options=options, cache=cache, workers=workers, progress=True)
    assert list(results) == list(SCHEMAS)
    assert kinds(results) == {"one": None, "none": "UnsatisfiableSchemaError", "unique": "UnsupportedSchemaError", "text": None}
    alone = compile_json_schema(SCHEMAS["text"], LETTERS, options=options)
    assert np.array_equal(results["text"].constraint.rows, alone.rows)
    assert len(list(tmp_path.glob("*.npz"))) == 2
    assert results["unique"].error.pointer == "#/uniqueItems"


def test_files(tmp_path):
    results = compile_schemas(SCHEMAS, LETTERS, output=tmp_path)
    assert results["one"].constraint is None
    assert CompiledConstraint.load(results["one"].path, LETTERS).walk().allowed()[ord("-")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npz", "text.npz"]


class Deadly(dict):
    """A schema that takes its worker with it."""

    def __reduce__(self):
        return os._exit, (1,)


class Unsendable(dict):
    """A schema that no other process can be given."""

    def __reduce__(self):
        raise TypeError("not this one")


def test_a_process_that_dies_does_not_stop_the_others():
    schemas = SCHEMAS | {"deadly": Deadly(type="null"), "unsendable": Unsendable(type="null")} | {f"n{i}": {"const": i} for i in range(9)}
    results = compile_schemas(schemas, LETTERS, workers=2)
    assert list(results) == list(schemas)
    bad = {name for name, result in results.items() if result.error}
    assert bad == {"none", "unique", "deadly", "unsendable"}
    assert "its process died" in str(results["deadly"].error)
    assert "not this one" in str(results["unsendable"].error)


def test_a_script_that_is_not_guarded_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from fsa_compile import Vocabulary, compile_schemas\n"
        "vocabulary = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b''], stop_ids=[256])\n"
        "compile_schemas({str(i): {'const': i} for i in range(200)}, vocabulary, workers=2)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode != 0
    assert "processes for the batch end before they begin" in run.stderr
    assert run.stderr.rstrip().endswith("or pass workers=1.")


def test_a_disk_that_cannot_be_written_ends_the_batch(tmp_path):
    (tmp_path / "one.npz").mkdir()
    with pytest.raises(OSError, match="one"):
        compile_schemas(SCHEMAS, LETTERS, output=tmp_path, workers=2)


def test_limits_are_for_each():
    results = compile_schemas({"a": {"maxLength": 9}, "b": {"const": 1}}, LETTERS, limits=CompileLimits(max_rows=4))
    assert kinds(results) == {"a": "LimitError", "b": None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"schemas": [True]}, {"workers": 0}, {"workers": True}, {"output": "/no/such/folder"}, {"output": 5}, {"options": {}},
        {"limits": 5}, {"cache": "folder"}, {"progress": "no"},
    ],
)  # fmt: skip
def test_wrong_arguments(wrong):
    with pytest.raises(ConstraintError, match=r"^(?!.*defect)"):
        compile_schemas(**({"schemas": {"a": True}, "tokenizer": LETTERS} | wrong))


@pytest.mark.parametrize("name", ["", "a/b", "..", 3])
def test_names_of_files(name, tmp_path):
    with pytest.raises(ConstraintError, match="name of a file"):
        compile_schemas({name: True}, LETTERS, output=tmp_path)


def test_errors_pass_between_processes():
    for make, kind in (
        (lambda: compile_regex("(a", LETTERS), RegexSyntaxError),
        (lambda: compile_regex("(a|b)*a(a|b){9}", LETTERS, limits=CompileLimits(max_states=3)), LimitError),
        (lambda: compile_json_schema(SCHEMAS["unique"], LETTERS), UnsupportedSchemaError),
    ):
        with pytest.raises(kind) as caught:
            make()
        error = pickle.loads(pickle.dumps(caught.value))
        assert type(error) is kind
        assert (str(error), error.__dict__) == (str(caught.value), caught.value.__dict__)
        assert isinstance(error, PatternError) == hasattr(error, "pattern")


def test_commands(tmp_path, capsys):
    tokenizer = tmp_path / "ranks.tiktoken"
    tokenizer.write_text("".join(f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256)))
    for name, schema in {"flag": {"type": "boolean"}, "none": False}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(schema))
    given = ["--tokenizer", str(tokenizer)]
    file = tmp_path / "flag.npz"
    assert main(["compile", "--schema", str(tmp_path / "flag.json"), "--output", str(file), *given]) == 0
    assert main(["check", str(file), "--ids", ",".join(map(str, b"true")), *given]) == 0
    assert main(["check", str(file), "--ids", ",".join(map(str, b"null")), *given]) == 1
    assert main(["compile", "--schema", str(tmp_path / "none.json"), "--output", str(file), *given]) == 2
    capsys.readouterr()
    file.unlink()
    files = [str(tmp_path / f"{name}.json") for name in ("flag", "none")]
    assert main(["batch", *files, "--output", str(tmp_path), "--whitespace", "compact", "--json", *given]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["written"] == {"flag": str(file)}
    assert list(found["errors"]) == ["none"]
    assert main(["batch", files[0], files[0], "--output", str(tmp_path), *given]) == 2
