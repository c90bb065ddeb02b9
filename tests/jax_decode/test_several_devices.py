"""Eight devices give the texts of one, whether rows or the vocabulary are spread over them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import jax_decode

ROOT = Path(__file__).parents[2]


def test_eight_devices_write_what_one_does(exhaustive: bool):
    kinds = ["regular", "stacks"] if exhaustive else ["regular"]
    modes = ["greedy", "sampled", "nucleus", "forced", "drafted", "beams"] if exhaustive else ["sampled"]
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("several_devices.py")), ",".join(kinds), ",".join(modes)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "pieces: [(2, 2)]"
    assert lines[-2].startswith("refused: 5 prompts cannot be spread evenly over 8 devices")
    assert len(lines) == 2 + len(kinds) * sum(2 if mode in ("greedy", "sampled") else 1 for mode in modes)
    assert all(line.endswith(": equal") for line in lines[:-2]), done.stdout


def test_meshes_that_do_not_fit_are_refused():
    explicit = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    with pytest.raises(jax_decode.DecodeError, match="not automatic"), jax_decode.sharded_rows(explicit, "rows"):
        pass
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(jax_decode.DecodeError, match="no axis 'row'"), jax_decode.sharded_rows(mesh, "row"):
        pass
