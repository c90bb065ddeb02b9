"""An artifact restored from one checkpoint by two processes, each onto its own devices, which then decode together."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from oracles import mixed_constraints as mixed
from oracles.block_decoder import block_toy

import jax_decode

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("two_processes.py")


def loaded():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("two_processes", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_processes_restore_their_own_shards_and_write_what_one_does(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    constraint, script = mixed.regular()[1], loaded()
    jax_decode.save_orbax(constraint, tmp_path / "checkpoint")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    commands = [[sys.executable, str(SCRIPT), str(i), str(port), str(tmp_path / "checkpoint")] for i in range(2)]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=environment, **pipe) for command in commands]
    expected = script.generated(block_toy(script.WIDTH), jax_decode.to_device(constraint, logits_width=script.WIDTH))
    with ThreadPoolExecutor(len(running)) as readers:  # neither ends before the other: a full pipe of one would hold both
        printed = list(readers.map(lambda process: process.communicate(timeout=300), running))
    if any("collectives" in errors and "not implemented" in errors.lower() for _, errors in printed):
        pytest.skip("this jaxlib has no collectives between CPU processes")
    assert [process.returncode for process in running] == [0, 0], printed[0][1][-3000:] + printed[1][1][-3000:]
    found = [json.loads(out.splitlines()[-1]) for out, _ in printed]
    assert found[0]["texts"] == found[1]["texts"] == expected
    assert len({tuple(text) for text in expected}) > 2
    starts = [sorted(map(int, process["pieces"])) for process in found]
    width = starts[0][1]
    assert starts == [[0, width], [2 * width, 3 * width]]
    assert all(shape[1] == width for process in found for shape in process["pieces"].values())
