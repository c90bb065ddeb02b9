"""Compiling leaves NumPy's choice of memory pages, and what the allocator keeps, as it was."""

from __future__ import annotations

import ctypes
import os
import resource

import numpy as np
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


def faults(size: int) -> int:
    """How often the system gives pages for arrays that live for a moment."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(size, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt") or "MALLOC_" in str(os.environ), reason="not the GNU C library's")
def test_memory_is_kept_only_within() -> None:
    with pages.small_pages():
        given = faults(48 << 20)
        with pages.kept_memory():
            if not ctypes.CDLL(None).mallopt(-3, 1 << 30):
                pytest.skip("this version of the GNU C library always returns arrays of this size")
            kept = faults(48 << 20)
        assert kept < given / 5
        assert faults(48 << 20) > given * 0.9
