"""Bars on what the TPU v5e compiler says of a constrained step, where that compiler is installed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "tpu_aot.py"
MOST_ADDED_US, MOST_OPERATIONS = 44, 76
"""By a regular constraint to a greedy step of 64 rows and 262,144 tokens, and of the whole step. They may only be lowered."""


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu, the compiler for TPUs, is not installed")
def test_what_a_constraint_adds_to_a_greedy_step(tmp_path):
    output = tmp_path / "programs.json"
    options = ["--only", "greedy, ", "--without-stack", "--forms", "pallas", "--output", str(output)]
    command = [sys.executable, str(BENCHMARK), *options]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if not output.exists() and "get_topology_desc" in run.stderr:
        pytest.skip("the compiler for TPUs cannot be started on this machine")
    assert run.returncode == 0, run.stderr[-2000:]
    programs = json.loads(output.read_text())["programs"]["pallas"]
    free, constrained = programs["greedy, no constraint"], programs["greedy, whole constrained step"]
    assert constrained["estimated_us"] - free["estimated_us"] <= MOST_ADDED_US
    assert constrained["operations"] <= MOST_OPERATIONS
    assert constrained["temporaries_bytes"] <= 1 << 20
    assert len(constrained["kernels_us"]) == len(free["kernels_us"]) == 1, "the logits are read once"
