"""A denoising step's draw inside a constraint, beside a model's step: the TPU v5e compiler's estimates, without a TPU.

    python -m venv .venv-tpu && .venv-tpu/bin/pip install "jax[tpu]" flax lazy_loader orbax-checkpoint
    PYTHONPATH=. .venv-tpu/bin/python benchmarks/tpu_aot_canvas.py

The programs are the loop of `canvas.denoise` with one step over given logits, free and constrained, and a whole network of a
Gemma 3 1B's size over the canvas. Estimated cycles are added up with the trip counts of loops where the program names them,
else once; instructions for which the compiler has no estimate (gathers, scatters) are counted as the time that their operands
and results take in memory. Nothing is measured. Writes `benchmarks/results/tpu_aot_canvas.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tpu_aot import BYTES_PER_SECOND, CLOCK_HZ

import models
from jax_decode.canvas.canvas_tables import BLOCK, CanvasTables
from jax_decode.canvas.trajectories import Sizes, Way, trajectories
from jax_decode.kernels.target import compiled_for

RESULTS = Path(__file__).parent / "results" / "tpu_aot_canvas.json"
WIDTHS = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2}
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "copy-done", "while", "conditional", "iota"}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Given:
    """A denoiser whose logits are given."""

    logits: Any
    mask_id: int = dataclasses.field(default=4, metadata={"static": True})

    def __call__(self, prompt: jax.Array, canvas: jax.Array) -> jax.Array:
        return self.logits


def abstract_tables(vocab_size: int, states: int, edges: int, rows: int, classes: int) -> CanvasTables:
    """Shapes of the tables of one constraint: so many states, edges, wide token sets and classes of tokens, padded."""
    shape, i32, blocks = jax.ShapeDtypeStruct, jnp.int32, 2 * vocab_size // BLOCK
    columns = (shape((1, edges // states, states), i32),)
    return CanvasTables(
        start=shape((1,), i32),
        distance=shape((1, states), i32),
        source=shape((1, edges), i32),
        target=shape((1, edges), i32),
        first_edge=shape((1, states), i32),
        place=shape((1, 64), i32),
        leaving=columns,
        entering=columns,
        entered=shape((1, states), i32),
        edge_label=shape((1, edges), i32),
        term_label=shape((1, edges), i32),
        term_value=shape((1, edges), i32),
        first_term=shape((1, 256), i32),
        arc_token=shape((1, 512), i32),
        token_class=shape((1, vocab_size), i32),
        order=shape((1, blocks * BLOCK), i32),
        block_class=shape((1, blocks), i32),
        held_row=shape((1, rows * 4), i32),
        held_class=shape((1, rows * 4), i32),
        holds=shape((1, rows, classes), jnp.bool_),
    )


def size_of(text: str) -> int:
    """Bytes of all arrays that a piece of HLO names."""
    found = re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", text)
    return sum(WIDTHS.get(kind, 4) * int(np.prod([int(n) for n in dims.split(",") if n] or [1])) for kind, dims in found)


def estimate(text: str) -> dict[str, float]:
    """Microseconds of a program: by the compiler, and of instructions that it has no estimate for, by their bytes."""
    computations: dict[str, list[str]] = {}
    for line in text.splitlines():
        if found := re.match(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            own = computations.setdefault("ENTRY" if line.startswith("ENTRY") else found[1], [])
        elif line.startswith("  "):
            own.append(line)
    shape = re.compile(r"^\s+(?:ROOT )?(%[\w.\-]+) = (.*?) [\w\-]+\(", re.MULTILINE)
    shapes = dict(shape.findall(text))

    def visit(name: str) -> np.ndarray:
        total = np.zeros(2)
        for line in computations[name]:
            found = re.match(r"\s+(?:ROOT )?%[\w.\-]+ = (.*?) ([\w\-]+)\((.*?)\)", line)
            if not found:
                continue
            if found[2] == "while":
                trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
                body = re.search(r"body=%([\w.\-]+)", line)
                total += (int(trips[1]) if trips else 1) * visit(body[1])
            elif found[2] == "conditional":
                branches = re.findall(r"%([\w.\-]+)", re.search(r"branch_computations=\{(.*?)\}", line)[1])
                total += np.max([visit(branch) for branch in branches], axis=0)
            elif cycles := re.search(r'"estimated_cycles":"(\d+)"', line):
                total[0] += int(cycles[1]) / CLOCK_HZ
            elif found[2] not in FREE:
                operands = " ".join(shapes.get(o, "") for o in re.findall(r"%[\w.\-]+", found[3]))
                total[1] += (size_of(found[1]) + min(size_of(operands), size_of(found[1]) * 4)) / BYTES_PER_SECOND
        return total

    seconds = visit("ENTRY")
    return {"compiler_us": round(float(seconds[0]) * 1e6, 1), "by_bytes_us": round(float(seconds[1]) * 1e6, 1)}


def programs(batch: int, length: int, vocab_size: int, sizes: dict[str, int]) -> dict[str, tuple]:
    """Name -> (function, abstract arguments)."""
    shape = jax.ShapeDtypeStruct
    scalar, row = shape((), jnp.float32), shape((batch,), jnp.int32)
    given = Given(shape((batch, length, vocab_size), jnp.float32))
    prompts, key = shape((batch, 1), jnp.int32), shape((batch, 2), jnp.uint32)
    way = Way(scalar, shape((), jnp.bool_), scalar)

    def step(denoiser: Given, prompts: jax.Array, tables: Any, key: jax.Array, which: jax.Array, way: Way) -> Any:
        end, kept = trajectories(denoiser, prompts, tables, key, which, way, sizes=Sizes(length, length, 1, 1))
        return end.canvas, end.log_weight, kept

    config = dataclasses.replace(models.get_config("gemma3-1b"), bidirectional=True)
    model = jax.eval_shape(lambda key: models.Gemma.init(config, key, dtype=jnp.bfloat16), jax.random.key(0))
    tables = abstract_tables(vocab_size, **sizes)
    return {
        "network, canvas alone": (lambda m, tokens: m.forward(tokens), (model, shape((batch, length), jnp.int32))),
        "step without a constraint": (step, (given, prompts, None, key, row, way)),
        "step inside a constraint": (step, (given, prompts, tables, key, row, way)),
    }


def main() -> None:
    """Compiles everything and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=262_144)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--dump", type=Path, help="a folder for the compiled programs")
    args = parser.parse_args()
    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    sharding = NamedSharding(Mesh(np.array(topology.devices[:1]), ("x",)), PartitionSpec())
    tables = {"states": 256, "edges": 1024, "rows": 64, "classes": 64}
    report: dict[str, Any] = {"topology": "v5e:2x2, one device", "jax": jax.__version__, "tables": tables}
    report |= {"batch": args.batch, "length": args.length, "vocab": args.vocab, "programs": {}}
    for name, (function, arguments) in programs(args.batch, args.length, args.vocab, tables).items():
        if args.only not in name:
            continue
        start = time.perf_counter()
        placed = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), arguments)
        compiled = jax.jit(function).lower(*placed).compile()
        memory, text = compiled.memory_analysis(), compiled.as_text()
        if args.dump:
            (args.dump / f"{name.replace(' ', '_')}.txt").write_text(text)
        line = estimate(text) | {"temporaries_bytes": memory.temp_size_in_bytes}
        line["compile_seconds"] = round(time.perf_counter() - start, 1)
        report["programs"][name] = line
        print(name, line, flush=True)
    if not args.only:
        RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with compiled_for("tpu"):
        main()
