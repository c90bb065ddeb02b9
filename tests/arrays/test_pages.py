"""Compiling leaves NumPy's choice of memory pages, and what the allocator keeps, as it was."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fsa_compile
from fsa_compile.arrays import pages


@pytest.mark.parametrize("before", [True, False])
def test_the_switch_is_restored(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    states, asked = [before], list[bool]()

    def switch(on: bool) -> bool:
        states.append(on)
        asked.append(on)
        return states[-2]

    monkeypatch.setattr(pages, "_ASK", switch)
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"(", b")", b"a"], stop_ids=[0])
    fsa_compile.compile_grammar('start: "a" | "(" start ")"', vocabulary)
    assert (asked[:1], states[-1]) == ([False], before)
    with pytest.raises(fsa_compile.ConstraintError):
        fsa_compile.compile_grammar('start: "b" | "(" start ")"', vocabulary)
    assert states[-1] == before


def test_numpy_has_the_switch() -> None:
    assert pages._ASK is not None
    before = pages._ASK(False)
    assert pages._ASK(before) is False


IN_ITS_OWN_PROCESS = """
import ctypes, resource, numpy
from fsa_compile.arrays import pages

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        numpy.ones(48 << 20, numpy.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with pages.small_pages():
    given = faults()
    with pages.kept_memory():
        told = ctypes.CDLL(None).mallopt(-3, 1 << 30)
        kept = faults()
        with pages.kept_memory():
            pass
        still = faults()
    print(told, given, kept, still, faults())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the GNU C library")
def test_memory_is_kept_only_within() -> None:
    """How often the system gives pages for arrays that live for a moment; other threads of a process are given some, too."""
    root, env = Path(__file__).parents[2], {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run([sys.executable, "-c", IN_ITS_OWN_PROCESS], cwd=root, env=env, capture_output=True, text=True, check=True)
    told, given, kept, still, after = map(int, done.stdout.split())
    if not told:
        pytest.skip("this version of the GNU C library always returns arrays of this size")
    assert kept < given / 5
    assert still < given / 5
    assert after > given * 0.9
