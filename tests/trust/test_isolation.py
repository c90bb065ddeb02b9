"""Processes of their own for compilations, and threads that do not disturb each other."""

import os
import sys
import threading
import time

import pytest

import fsa_compile
from fsa_compile import CompileLimits, ConstraintError, LimitError, SchemaError, Vocabulary, compile_json_schema, isolated
from fsa_compile.arrays.recursion import deep_recursion

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])


def test_a_result_and_an_error():
    made = isolated(compile_json_schema, {"const": "a"}, LETTERS)
    assert made.walk().allowed()[ord('"')]
    with pytest.raises(SchemaError, match="#/items"):
        isolated(compile_json_schema, {"items": 5}, LETTERS)


def test_time_and_memory_are_enforced_by_the_system(monkeypatch):
    """The worker's own looks at the clock are switched off, so that only the system is left."""
    monkeypatch.setattr("fsa_compile.batch.isolated._WORKER", _BLIND)
    slow = {"oneOf": [{"properties": {f"a{j}": {"const": i * j} for j in range(10)}} for i in range(30)]}
    start = time.perf_counter()
    with pytest.raises(LimitError, match=r"max_seconds=0\.5"):
        isolated(compile_json_schema, slow, LETTERS, limits=CompileLimits(max_seconds=0.5))
    assert time.perf_counter() - start < 20
    large = {"properties": {f"key{i}": {"type": "string"} for i in range(4_000)}}
    with pytest.raises(LimitError, match="max_bytes"):
        isolated(compile_json_schema, large, LETTERS, limits=CompileLimits(max_bytes=1 << 20, max_seconds=60))


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_process_that_is_ended_from_outside(name, monkeypatch):
    """A kill is what a system does that lacks memory, too."""
    monkeypatch.setattr("fsa_compile.batch.isolated._WORKER", f"import os, signal; os.kill(os.getpid(), signal.{name})")
    error, message = (LimitError, "max_bytes") if name == "SIGKILL" else (ConstraintError, "was ended by SIGTERM")
    with pytest.raises(error, match=message):
        isolated(compile_json_schema, {}, LETTERS)


_BLIND = """
from fsa_compile.batch import isolated
from fsa_compile.limits import Deadline
Deadline.check = Deadline.check_bytes = lambda *_: None
isolated._ROOM = 32 << 20
isolated._work()
"""


def test_arguments_that_are_wrong():
    with pytest.raises(ConstraintError, match="functions of this package"):
        isolated(print, "a")
    with pytest.raises(ConstraintError, match="cannot be sent"):
        isolated(compile_json_schema, {"const": lambda: 0}, LETTERS)
    with pytest.raises(ConstraintError, match="limits must be"):
        isolated(compile_json_schema, {}, LETTERS, limits=5)


def test_the_recursion_limit_is_what_it_was():
    before = sys.getrecursionlimit()
    inside, leave = threading.Event(), threading.Event()

    def stays():
        with deep_recursion():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stays)
    thread.start()
    inside.wait()
    compile_json_schema({"type": "object"}, LETTERS)
    assert sys.getrecursionlimit() > before  # the other thread still needs it
    leave.set()
    thread.join()
    assert sys.getrecursionlimit() == before


def test_threads_compile_what_one_does():
    schemas = [{"properties": {f"k{i}": {"type": kind}}} for i in range(3) for kind in ("string", "integer", "array")]
    alone = [compile_json_schema(schema, LETTERS) for schema in schemas]
    found = {}

    def work(i):
        found[i] = fsa_compile.compile_json_schema(schemas[i], LETTERS)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(schemas))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((found[i].rows == c.rows).all() and (found[i].arc_token == c.arc_token).all() for i, c in enumerate(alone))
