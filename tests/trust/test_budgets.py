"""Time and memory end where the limits say, whatever is asked for; several threads and steps share no budget by accident."""

import gc
import mmap
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Literal, Union

import pytest

import fsa_compile
from fsa_compile import CompileLimits, LimitError, Vocabulary, compile_json_schema, compile_regex, compile_type
from fsa_compile.inputs.guard import guarded, guarded_loop
from fsa_compile.limits import Deadline, check_time, one_compilation, resident_bytes

ROOT = Path(__file__).parents[2]
LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])
SECONDS, SLACK = 0.3, 1.5
LIMITS = CompileLimits(max_seconds=SECONDS)


def nested_list(depth: int):
    found = int
    for _ in range(depth):
        found = list[found]
    return found


def schema(value, **options):
    return lambda limits: compile_json_schema(value, LETTERS, limits=limits, **options)


def regex(pattern):
    return lambda limits: compile_regex(pattern, LETTERS, limits=limits)


def grammar(text):
    return lambda limits: fsa_compile.compile_grammar(text, LETTERS, limits=limits)


SLOW = {
    "properties": schema({"properties": {f"key{i}": {"type": "string"} for i in range(20_000)}}),
    "required": schema({"required": [f"key{i}" for i in range(30_000)]}),
    "pattern properties": schema({"patternProperties": {chr(97 + i): {"minimum": i * 7} for i in range(14)}}),
    "bounds with many digits": schema({"minimum": 10**1190 + 7, "maximum": 10**1195}),
    "many bounds": schema({"allOf": [{"minimum": 10**300 + i * 7} for i in range(300)]}),
    "branches": schema({"oneOf": [{"properties": {f"a{j}": {"const": i * j} for j in range(10)}} for i in range(30)]}),
    "contains": schema({"allOf": [{"contains": {"const": i}, "minContains": 3} for i in range(8)]}),
    "pattern in a schema": schema({"pattern": "a" * 200_000}),
    "patterns in a schema": schema({"allOf": [{"pattern": f"(.*a.{{{i}}}){{3}}"} for i in range(8, 20)]}),
    "anchors": regex("(^|a)" * 2000),
    "word boundaries": regex(r"(?:\b|a)" * 400),
    "letters": regex(r"\p{L}" * 1000),
    "long pattern": regex("a" * 300_000),
    "letters of any case": regex("(?i)" + "".join(map(chr, range(0x4E00, 0x4E00 + 12_032)))),
    "subsets": regex("(.*a.{15}){3}"),
    "lookaheads": regex("".join(f"(?=.*{chr(97 + i)})" for i in range(20)) + ".*"),
    "unit rules": grammar("start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(9_999)) + 'r9999: "a"'),
    "alternatives": grammar("start: " + " | ".join(f'"w{i}"' for i in range(20_000))),
    "long choices": lambda limits: fsa_compile.compile_choices(["x" * 1_000_000] * 3, LETTERS, limits=limits),
    "union of numbers": lambda limits: compile_type(Union[tuple(Literal[i] for i in range(500))], LETTERS, limits=limits),  # noqa: UP007
    "nested lists": lambda limits: compile_type(nested_list(200), LETTERS, style="python", limits=limits),
    "tuple of many": lambda limits: compile_type(tuple[tuple([int] * 3_000)], LETTERS, style="python", limits=limits),
    "YAML": lambda limits: fsa_compile.compile_yaml_schema({"minimum": 10**1190 + 7}, LETTERS, limits=limits),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_time_ends(name):
    limits = LIMITS if name != "unit rules" else CompileLimits(max_seconds=SECONDS, max_rules=20_000)
    fsa_compile.compile_regex("a", LETTERS)
    gc.collect()  # what other tests left is not this one's time
    start = time.process_time()
    with pytest.raises(LimitError, match="max_seconds"):
        SLOW[name](limits)
    assert time.process_time() - start < SECONDS + SLACK


_GROWING = """
import resource, sys, fsa_compile
from fsa_compile import CompileLimits, LimitError, Vocabulary
letters = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])
def peak():  # of this program: what a process has used at most, by getrusage, begins with what the one that started it has
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1])
fsa_compile.compile_json_schema({}, letters)
before = peak()
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
keys = {"properties": {f"key{i}": {"type": "string"} for i in range(4_000)}}
try:
    fsa_compile.compile_json_schema(keys, letters, limits=CompileLimits(max_bytes=100 << 20))
except LimitError as error:
    print(error.limit, peak() - before < 250_000)
long = '{"properties":{"%s":' % ("k" * 25_000) * 400 + "{}" + "}}" * 400
limits = CompileLimits(max_nesting=1_000)
try:
    fsa_compile.compile_json_schema(long, letters, limits=limits)
except fsa_compile.ConstraintError as error:
    pass
print(peak() - before < 800_000)
"""
"""The second schema ends at the 400,000 controls that options allow, about 2 kB each; its 400 places are 10 MB long together, not
each."""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no file says what a process has used at most")
def test_memory_ends():
    found = subprocess.run([sys.executable, "-c", _GROWING], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.stdout.split() == ["max_bytes", "True", "True"], found.stderr


def touched(size: int) -> mmap.mmap:
    """Pages that the process has not had before: what it has freed may be given out again without growing."""
    block = mmap.mmap(-1, size)
    for place in range(0, size, mmap.PAGESIZE):
        block[place] = 1
    return block


def test_resident_bytes_are_those_of_the_process():
    before = resident_bytes()
    assert 0 < before <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    block = touched(64 << 20)
    assert resident_bytes() - before > 32 << 20
    deadline = Deadline(CompileLimits(max_bytes=1 << 20))
    more = touched(64 << 20)
    time.sleep(0.06)
    with pytest.raises(LimitError, match="max_bytes"):
        deadline.check("growing")
    del block, more


def test_steps_of_one_compilation_share_their_time():
    @guarded
    def two_steps():
        Deadline(CompileLimits(max_seconds=0.05))
        time.sleep(0.1)
        Deadline(CompileLimits(max_seconds=9, max_bytes=1 << 40), anew=True).check("a step with time of its own")
        check_time("as long as that")
        Deadline(CompileLimits()).check("within it")

    @guarded
    def late():
        Deadline(CompileLimits(max_seconds=0.05))
        time.sleep(0.1)
        Deadline(CompileLimits()).check("a later step")

    @guarded_loop
    def several():
        for _ in range(3):
            two_steps()
        check_time("outside")

    several()
    with pytest.raises(LimitError, match="a later step"):
        late()
    check_time("outside")
    failures = []

    def other():
        try:
            check_time("another thread's")
            Deadline(CompileLimits()).check("its own")
        except LimitError as error:
            failures.append(error)

    with one_compilation():
        Deadline(CompileLimits(max_seconds=0))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with pytest.raises(LimitError):
            check_time("this one")
    assert not failures
