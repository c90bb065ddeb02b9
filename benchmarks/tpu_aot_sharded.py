"""A constrained step whose vocabulary is spread over a TPU v5e's chips, 2x2 and 4x4: ahead of time, on a machine without a TPU.

    python -m venv .venv-tpu && .venv-tpu/bin/pip install "jax[tpu]" && .venv-tpu/bin/python benchmarks/tpu_aot_sharded.py

Asserts that no program talks to the host, that no exchange leaves more on a device than the masses of its rows' columns (a draw:
1/32 of their logits) or a few numbers per row and shard (all else), and that greedy and categorical steps need no more
temporaries than those masses and an eighth of the device's logits. Writes all that, and the compiler's own estimates of cycles,
to `benchmarks/results/tpu_aot_sharded.json`; estimates are not measurements, and do not count exchanges.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
from collectives import collectives
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tpu_aot import CLOCK_HZ, abstract_tables, measured

from jax_decode.kernels.columns import Shards
from jax_decode.kernels.placement import sharded_rows
from jax_decode.kernels.row_layout import words_for
from jax_decode.kernels.target import compiled_for
from jax_decode.sampling.samplers import Categorical, Greedy, TopK, TopP
from jax_decode.sampling.sampling import sample
from jax_decode.step.state import init_state
from jax_decode.step.transition import advance

RESULTS = Path(__file__).parent / "results" / "tpu_aot_sharded.json"
MESHES = {
    "one chip": ("v5e:2x2", 1, 1),
    "2x2, vocabulary over 4": ("v5e:2x2", 1, 4),
    "2x2, rows over 2, vocabulary over 2": ("v5e:2x2", 2, 2),
    "4x4, vocabulary over 16": ("v5e:4x4", 1, 16),
    "4x4, rows over 4, vocabulary over 4": ("v5e:4x4", 4, 4),
}
"""Topology, and sizes of the axes of rows and of the vocabulary."""
SAMPLERS = {
    "greedy": Greedy(),
    "categorical": Categorical(None),
    "top-k 50": TopK(50, None),
    "top-p 0.9": TopP(0.9, None),
}


def program(sampler: Any, mesh: Mesh, batch: int, vocab_size: int) -> Any:
    """A step, sampling and advancing, lowered for a mesh with the axes `rows` and `ids`."""
    count = mesh.shape["ids"]
    own = vocab_size // count
    shards = Shards(mesh, "ids", count, own, words_for(own), words_for(vocab_size)) if count > 1 else None
    tables = abstract_tables(vocab_size, False, shards)
    row = jax.ShapeDtypeStruct((batch,), jnp.int32)
    state = jax.eval_shape(functools.partial(init_state, max_tokens=256), tables, row, row)

    def placed(tree: Any, *spec: str | None) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), tree)

    def step(logits: Any, key: Any, at: Any, tables: Any, state: Any) -> Any:
        choice = sample(sampler, logits, key, at, tables, state)
        return choice, advance(tables, state, choice.token)

    everywhere = placed(tables)
    everywhere = everywhere.__class__(**{**vars(everywhere), "rows": placed(tables.rows, None, "ids")})
    shape = jax.ShapeDtypeStruct
    arguments = (
        placed(shape((batch, vocab_size), jnp.float32), "rows", "ids"),
        placed(shape((batch, 2), jnp.uint32), "rows"),
        placed(shape((batch,), jnp.uint32), "rows"),
        everywhere,
        placed(state, "rows"),
    )
    with sharded_rows(mesh, "rows"):
        return jax.jit(step).lower(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=262_144)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    args = parser.parse_args()
    report, failures = {}, []
    for where, (name, rows, ids) in MESHES.items():
        topology = topologies.get_topology_desc(platform="tpu", topology_name=name)
        mesh = Mesh(np.array(topology.devices[: rows * ids]).reshape(rows, ids), ("rows", "ids"))
        for what, sampler in SAMPLERS.items():
            title = f"{what}: {where}"
            if args.only not in title:
                continue
            start = time.perf_counter()
            compiled = program(sampler, mesh, args.batch, args.vocab).compile()
            found = collectives(compiled.as_text())
            line = measured(compiled, args.batch, args.vocab) | {"collectives": found}
            line["most_exchanged_bytes"] = max((c["bytes"] for c in found), default=0)
            line["logits_bytes_per_device"] = args.batch * args.vocab * 4 // (rows * ids)
            line["compile_seconds"] = round(time.perf_counter() - start, 1)
            report[title] = line
            kinds = [f"{c['kind']} {c['bytes']:,}" for c in found]
            print(f"{title:60s} temp {line['temporaries_bytes']:>11,}  {line['estimated_us']:>7} us  {kinds}", flush=True)
            few = args.batch // rows * ids * (50 if what.startswith("top-k") else 8) * 4
            batch_columns = args.batch // rows * words_for(args.vocab) * 4
            masses = 0 if what.startswith("greedy") else batch_columns
            if line["host_operations"]:
                failures.append(f"{title} talks to the host: {line['host_operations']}")
            if line["most_exchanged_bytes"] > max(few, masses):
                failures.append(f"{title} exchanges {line['most_exchanged_bytes']:,} bytes at once")
            room = batch_columns + line["logits_bytes_per_device"] // 8
            if what in ("greedy", "categorical") and line["temporaries_bytes"] > room:
                failures.append(f"{title} needs {line['temporaries_bytes']:,} bytes of temporaries")
    if not args.only:
        header = {"jax": jax.__version__, "batch": args.batch, "vocab": args.vocab, "clock_hz": CLOCK_HZ}
        RESULTS.write_text(json.dumps({**header, "programs": report}, indent=1) + "\n")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    with compiled_for("tpu"):
        main()
