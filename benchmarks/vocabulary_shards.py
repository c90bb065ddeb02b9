"""Mask and sample with the vocabulary spread over 1, 2, 4 and 8 simulated CPU devices: what every device does, and what it sends.

    python benchmarks/vocabulary_shards.py

Weak scaling: 32,768 tokens per device, whatever their number. Devices are threads of one machine with few cores, so the wall
clock says little; what a device reads, computes and sends (from its own compiled program) says more, and so does processor time
per device and step. Beside it the same step where the logits alone are spread and XLA decides (mask rows packed as for one
device).
Raw figures go to `benchmarks/results/vocabulary_shards.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "vocabulary_shards.json"
COUNTS = (1, 2, 4, 8)


def constraint(vocab_size: int) -> Any:
    """A loop of wide mask rows: from each of 16 nodes half of the tokens lead to the next, an arc to the first."""
    import numpy as np

    from fsa_compile.artifact import CompiledConstraint

    nodes, rng = 16, np.random.default_rng(0)
    rows = np.zeros((nodes + 1, (vocab_size + 31) // 32), np.uint32)
    rows[1:] = rng.integers(0, 2**32, (nodes, rows.shape[1]), np.uint64).astype(np.uint32)
    rows[:, 0] &= ~np.uint32(1)  # token 0 ends
    index, after = np.arange(1, nodes + 1, dtype=np.int32), np.roll(np.arange(1, nodes + 1), -1).astype(np.int32)
    offset = np.concatenate([[0], np.arange(nodes + 1)]).astype(np.int32)
    none, zeros = np.zeros(0, np.int32), np.zeros(nodes + 2, np.int32)
    return CompiledConstraint(
        vocab_size=vocab_size,
        fingerprint="0" * 64,
        stop_ids=(0,),
        source="a loop of wide mask rows",
        start=1,
        accept=np.arange(nodes + 1) > 0,
        distance=np.where(np.arange(nodes + 1) > 0, 1, 2**30).astype(np.int32),
        rows=rows,
        group_offset=offset,
        group_row=index,
        group_next=after,
        arc_offset=zeros,
        arc_token=none,
        arc_effect=none,
        level_offset=offset,
        level_cost=np.full(nodes, 2, np.int32),
        level_row=index,
    )


def measure(count: int, batch: int, width: int, repeats: int, names: str) -> dict[str, Any]:
    """All programs over `count` devices, in a process that has as many."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import jax
    import numpy as np
    from collectives import collectives
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    import jax_decode
    from jax_decode.sampling.sampling import sample

    mesh = jax.make_mesh((count,), ("ids",), axis_types=(AxisType.Auto,))
    everywhere, spread = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(None, "ids"))
    made = constraint(width * count)
    forms = {
        "packed per shard": jax_decode.to_device(made, sharding=everywhere, vocabulary_axis="ids" if count > 1 else None),
        "packed whole": jax_decode.to_device(made, sharding=everywhere),
    }
    rng = np.random.default_rng(1)
    logits = jax.device_put(rng.normal(0, 3, (batch, width * count)).astype(np.float32), spread)
    key = jax.device_put(rng.integers(0, 2**32, (batch, 2), np.uint32), everywhere)
    at = jax.device_put(np.zeros(batch, np.uint32), everywhere)
    samplers = {"greedy": jax_decode.Greedy(), "categorical": jax_decode.Categorical(None), "top-k 50": jax_decode.TopK(50, None),
                "top-p 0.9": jax_decode.TopP(0.9, None)}  # fmt: skip
    report: dict[str, Any] = {}
    tokens: dict[str, list[int]] = {}
    for name, sampler in ((name, samplers[name]) for name in names.split(",")):
        for form, tables in forms.items():
            state = jax_decode.init_state(tables, np.zeros(batch, np.int32))

            def step(logits, key, at, tables, state, sampler=sampler):  # the whole state: nothing of the step may be dropped
                choice = sample(sampler, logits, key, at, tables, state)
                return choice, jax_decode.advance(tables, state, choice.token)

            compiled = jax.jit(step).lower(logits, key, at, tables, state).compile()
            arguments = (logits, key, at, tables, state)
            choice, _ = jax.block_until_ready(compiled(*arguments))
            tokens.setdefault(name, np.asarray(choice.token).tolist())
            assert tokens[name] == np.asarray(choice.token).tolist(), (name, form)
            wall, cpu = [], []
            for _ in range(repeats):
                start = time.perf_counter(), time.process_time()
                jax.block_until_ready(compiled(*arguments))
                wall.append(time.perf_counter() - start[0])
                cpu.append(time.process_time() - start[1])
            cost, found = compiled.cost_analysis(), collectives(compiled.as_text())
            report[f"{name}, {form}"] = {
                "cpu_ms_per_device": round(statistics.median(cpu) * 1e3 / count, 3),
                "wall_ms": round(statistics.median(wall) * 1e3, 3),
                "bytes_read_and_written_per_device": int(cost["bytes accessed"]),
                "flops_per_device": int(cost["flops"]),
                "temporaries_bytes_per_device": compiled.memory_analysis().temp_size_in_bytes,
                "exchanged_bytes_per_device": sum(c["bytes"] for c in found),
                "collectives": found,
            }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=32_768, help="tokens per device")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--names", default="greedy,categorical,top-k 50,top-p 0.9", help="samplers")
    parser.add_argument("--count", type=int, help="only this many devices, in this process; prints JSON")
    args = parser.parse_args()
    if args.count:
        print(json.dumps(measure(args.count, args.batch, args.width, args.repeats, args.names)))
        return
    report = {}
    for count in COUNTS:
        flags = f"--xla_force_host_platform_device_count={count} --xla_cpu_multi_thread_eigen=false"
        options = [f"--{name}={getattr(args, name)}" for name in ("batch", "width", "repeats", "names")]
        command = [sys.executable, __file__, f"--count={count}", *options]
        environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        report[count] = json.loads(done.stdout.splitlines()[-1])
        for name, line in report[count].items():
            numbers = "  ".join(f"{key} {value:,}" for key, value in line.items() if key != "collectives")
            print(f"{count} devices, {name:32s} {numbers}", flush=True)
        header = {"batch": args.batch, "tokens_per_device": args.width, "cores": os.cpu_count(), "note": "simulated CPU devices"}
        RESULTS.write_text(json.dumps({**header, "devices": report}, indent=1) + "\n")


if __name__ == "__main__":
    main()
