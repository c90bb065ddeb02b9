"""`make bench-accelerator` runs where it is not meant to: on this machine, at its smallest sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pynini")
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "accelerator.py"


def test_the_accelerator_benchmark_runs_and_loses_nothing_to_a_part_that_fails(tmp_path, exhaustive):
    output = tmp_path / "figures.json"
    options = ["--tiny", "--budget", "300" if exhaustive else "8", "--output", str(output)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *options], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(output.read_text())
    assert all(sampler["equal"] for sampler in found["tokens"].values())
    assert not [case for case in found["cases"] if "error" in case and "No module named" not in case["error"]]
    if exhaustive:
        assert found["retraces"] == 0
        assert {"no constraint", "regular", "stack", "any order", "mixed"} <= {case["case"] for case in found["cases"]}
