"""Cases that run by default: a fixed sample, in which every value occurs that has to; all of them with `--exhaustive`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from oracles.samples import FULL, examples, sample

ROOT = Path(__file__).parents[1]
CASES = {f"{kind}-{seed}": {"kind": kind, "seed": seed} for kind in ("regular", "stack", "items") for seed in range(20)}
PARAMETRISED = """
import pytest


@pytest.mark.sampled({marked})
@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("kind", ["regular", "stack"])
def test_some(kind, seed):
    pass


def test_other():
    pass
"""


def test_the_sample_is_fixed_by_the_cases_names():
    chosen = sample(CASES, 12)
    assert len(chosen) == 12
    assert chosen <= set(CASES)
    assert sample(dict(reversed(CASES.items())), 12) == chosen
    smaller = {name: CASES[name] for name in CASES if name in chosen or name.startswith("stack")}
    assert sample(smaller, 12) == chosen, "cases left out change nothing for the others"
    assert sample(CASES, 11) < chosen


@pytest.mark.parametrize("keep", [3, 8, 20, 40])
def test_every_value_occurs(keep):
    kinds = {"regular", "stack", "items"}
    assert {CASES[name]["kind"] for name in sample(CASES, keep, ("kind",))} == kinds
    assert len(sample(CASES, keep, ("kind",))) == keep
    if keep >= 20:
        chosen = sample(CASES, keep, ("kind", "seed"))
        assert {CASES[name]["seed"] for name in chosen} == set(range(20))
        assert {CASES[name]["kind"] for name in chosen} == kinds


def test_few_cases_are_all_kept():
    assert sample(CASES, 60) == sample(CASES, 1_000, ("kind",)) == set(CASES)
    assert sample({}, 5) == set()


def test_a_sample_too_small_is_an_error():
    with pytest.raises(ValueError, match="a sample of 2 cannot hold every value of kind: 3 are needed"):
        sample(CASES, 2, ("kind",))


def run(folder: Path, marked: str, *options: str) -> list[str]:
    """Lines of pytest about a module with 18 cases under the mark and one test more."""
    module = folder / "test_it.py"
    module.write_text(PARAMETRISED.format(marked=marked))
    own = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "conftest", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run([*own, *options, str(module)], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_left_out_is_deselected(workers, tmp_path):
    pytest.importorskip("xdist")
    assert run(tmp_path, "4, every=('kind',)", "-n", workers)[-1].startswith("5 passed, 14 deselected")


def test_all_run_when_asked(tmp_path):
    assert run(tmp_path, "4", "--exhaustive")[-1].startswith("19 passed")
    assert run(tmp_path, "4", "-k", "test_some")[-1].startswith("18 passed, 1 deselected")


def test_a_mark_that_says_too_little_is_told(tmp_path):
    assert any("test_some: a sample of 4 cannot hold every value of seed: 9 are needed" in line for line in run(tmp_path, "4, every=('seed',)"))


def test_hypothesis_tries_more_in_full(monkeypatch):
    monkeypatch.delenv(FULL, raising=False)
    assert examples(60, 1_500) == 60
    monkeypatch.setenv(FULL, "1")
    assert examples(60, 1_500) == 1_500
