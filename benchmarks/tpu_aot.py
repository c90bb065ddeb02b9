"""What does the TPU v5e compiler make of the constrained step? Ahead of time, on a machine without a TPU.

    python -m venv .venv-tpu && .venv-tpu/bin/pip install "jax[tpu]" && .venv-tpu/bin/python benchmarks/tpu_aot.py

Asserts that mask + argmax needs at most 1 MB of temporaries at B = 64, V = 262,144 (with a stack: beside one set of bit
rows), that the whole greedy step needs none (with a stack: at most four sets of bit rows) and that no program talks to the
host, and writes the compiler's own estimates to `benchmarks/results/tpu_aot.json`, for the package's own kernels (`pallas`) and
for XLA's fusions alone (`xla`). Nothing here is measured: cycles of XLA's operations are its cost model's (it has none for
gathers), and those of a kernel are its scheduled instructions times its grid, or the time its bytes take if that is longer.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["TPU_AOT_DUMP"] = tempfile.mkdtemp(prefix="tpu-aot-")
os.environ["LIBTPU_INIT_ARGS"] = f"--xla_jf_dump_to={os.environ['TPU_AOT_DUMP']} --xla_jf_dump_llo_text=true"
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # nothing runs on a TPU: several may compile at once
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_decode.kernels.columns import Shards
from jax_decode.kernels.one_pass import block_of
from jax_decode.kernels.planes import allowed_logits, column_best, planes
from jax_decode.kernels.projected import Projected, Projection, block_of_table
from jax_decode.kernels.row_cells import ROWS as ROWS_OF_CELLS
from jax_decode.kernels.row_layout import LANES, words_for
from jax_decode.kernels.settled_rows import columns_of_block
from jax_decode.kernels.target import compiled_for
from jax_decode.sampling.samplers import Categorical, Greedy, TopK, TopP
from jax_decode.sampling.sampling import sample
from jax_decode.step.masking import mask_words
from jax_decode.step.packing import packed, unpacked
from jax_decode.step.state import ConstraintState, init_state
from jax_decode.step.transition import advance
from jax_decode.tables.profiles import PROFILES
from jax_decode.tables.stack_layout import CELL
from jax_decode.tables.tables import ConstraintTables

HOST_OPERATIONS = re.compile(r"callback|infeed|outfeed|\bsend\(|\brecv\(|host-transfer")
MOST_TEMPORARIES = 1 << 20
"""Bytes; with a stack, the union of the sources' bit rows may be written out once on top."""
CLOCK_HZ = 1.5e9
BYTES_PER_SECOND = 819e9
OF_ANY_OPERATION = 1800
"""Cycles that XLA's estimates have for the smallest operation."""
DEPTH = 1152
"""Numbers of a hidden state, bfloat16: Gemma 3 1B's."""
TURNS = 11
"""Of a search for a threshold among the columns' tops, about as many as logits like a text's take."""
DUMP = Path(os.environ["TPU_AOT_DUMP"])
RESULTS = Path(__file__).parent / "results" / "tpu_aot.json"


def abstract_tables(vocab_size: int, stack: bool, shards: Shards | None = None) -> ConstraintTables:
    """Shapes of the tables of a constraint like a JSON object's, or with a stack and a counter like any JSON value's."""
    words = words_for(vocab_size) if shards is None else shards.count * shards.num_words
    shape, i32 = jax.ShapeDtypeStruct, jnp.int32
    with_stack = 1 if stack else 0
    pushes = 4 * with_stack
    return ConstraintTables(
        nodes=shape((256, 8), i32),
        groups=shape((1024, 5 if stack else 2), i32),
        arcs=shape((4096, 7 if stack else 4), i32),
        levels=shape((1024, 4 if stack else 2), i32),
        rows=shape((512, words), jnp.uint32),
        only=shape((512,), i32),
        constraints=shape((1, 8), i32),
        stop_ids=shape((1, 2), i32),
        num_constraints=shape((), i32),
        frames=shape((256 * with_stack, 3), i32),
        counters=shape((256 * with_stack, 8), i32),
        delta=shape((1024 * with_stack, 3), i32),
        pushes=shape((64 * with_stack, pushes, 4), i32),
        symbols=shape((64 * with_stack, 9), i32),
        increments=shape((with_stack, vocab_size // 2 if stack else 1), jnp.uint32),
        spelling=shape((0,), i32),
        initial=shape((with_stack, pushes + 1, CELL), i32),
        keys=shape((0, 0), i32),
        guards=shape((0, 4), i32),
        set_nodes=shape((0, 0), i32),
        push_keys=shape((0, 0), i32),
        unless=shape((0, 0, 2), i32),
        inverse_temperature=shape((0,), jnp.float32),
        vocab_size=vocab_size,
        fingerprint="",
        max_groups=8,
        max_levels=16 if stack else 8,
        max_candidates=128 if stack else 64,
        search_depth=2,
        max_repeats=1,
        max_pops=4 * with_stack,
        max_push=pushes,
        stacks=1,
        max_unset=0,
        max_conditions=0,
        shards=shards,
    )


def general_tables(vocab_size: int) -> ConstraintTables:
    """Shapes of the tables of profile "general", which most JSON Schemas with lengths and counts have."""
    profile = PROFILES["general"]
    tables = dataclasses.replace(abstract_tables(vocab_size, True), **dict(profile.statics))
    sizes = dict(profile.room) | {name: profile.size("nodes") for name in ("frames", "counters")} | {"only": profile.size("rows")}
    every = {name: (size, getattr(tables, name)) for name, size in sizes.items()}
    return dataclasses.replace(
        tables, **{name: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype) for name, (size, x) in every.items()}
    )


def masked_argmax(logits: jax.Array, tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """The best allowed token of the bit rows: mask and argmax and nothing else."""
    values = allowed_logits(planes(logits, mask_words(tables, state), tables.num_words))
    best, plane = column_best(values)
    token = plane * tables.num_words + jnp.arange(tables.num_words, dtype=jnp.int32)[None]
    return jnp.where(best == best.max(1)[:, None], token, 2**30).min(1)


def programs(batch: int, vocab_size: int) -> dict[str, tuple]:
    """Name -> (function, abstract arguments)."""
    shape = jax.ShapeDtypeStruct
    logits = shape((batch, vocab_size), jnp.float32)
    row = shape((batch,), jnp.int32)
    key, step = shape((batch, 2), jnp.uint32), shape((batch,), jnp.uint32)

    def stepper(sampler):
        def free(logits, key, step):
            return sample(sampler, logits, key, step)

        def constrained(logits, key, step, tables, rows):  # as the decode loop carries them
            state = unpacked(rows)
            choice = sample(sampler, logits, key, step, tables, state)
            after = packed(advance(tables, state, choice.token))
            # What stays as it is, or has no elements, a loop does not copy.
            return choice, *(x for x in (after.small, after.cell) if x.size)

        return free, constrained

    top_p = TopP(np.float32(0.95), None)
    samplers = {"greedy": Greedy(), "categorical": Categorical(None), "top-k 50": TopK(50, None), "top-p 0.95": top_p}
    states, table = (shape((n, DEPTH), jnp.bfloat16) for n in (batch, vocab_size))

    def behind_projection(function, inside):
        def whole(hidden, table, *others):
            logits = Projected(hidden, Projection(table))
            return function(logits if inside else logits.logits, *others)

        return whole

    out: dict[str, tuple] = {"argmax, no mask (jnp)": (lambda x: jnp.argmax(x, -1), (logits,))}
    small, stack = (abstract_tables(vocab_size, stack) for stack in (False, True))
    for kind, tables in (("", small), (", stack", stack), (", general", general_tables(vocab_size))):
        state = jax.eval_shape(functools.partial(init_state, max_tokens=256), tables, row, row)
        rows = jax.eval_shape(packed, state)
        out[f"mask + argmax{kind}"] = (masked_argmax, (logits, tables, state))
        out[f"advance{kind}"] = (advance, (tables, state, row))
        for name, sampler in samplers.items():
            free, constrained = stepper(sampler)
            out[f"{name}, no constraint"] = (free, (logits, key, step))
            out[f"{name}, whole constrained step{kind}"] = (constrained, (logits, key, step, tables, rows))
            if not kind and name in ("greedy", "categorical"):
                for where, inside in (("projected", False), ("inside of the projection", True)):
                    every = {"no constraint": (free, ()), "whole constrained step": (constrained, (tables, rows))}
                    out |= {
                        f"{where}, {name}, {what}": (behind_projection(function, inside), (states, table, key, step, *more))
                        for what, (function, more) in every.items()
                    }
    return out


def usual(text: str) -> str:
    """A program without the branches that are rarely taken: of a conditional, all but the shortest."""
    parts = re.split(r"^(?=(?:ENTRY )?%[\w.\-]+ \()", text, flags=re.MULTILINE)
    named = {re.match(r"(?:ENTRY )?%([\w.\-]+) ", part)[1]: part for part in parts[1:]}  # type: ignore[index]
    [entry] = [name for name, part in named.items() if part.startswith("ENTRY")]

    def called(name: str) -> set[str]:
        found = {name}
        for line in named[name].splitlines():
            others = re.findall(r"(?:calls|to_apply|body|condition|\w+_computation)=%([\w.\-]+)", line)
            for group in re.findall(r"branch_computations=\{([^}]*)\}", line):
                others += re.findall(r"%([\w.\-]+)", group)
            below = [called(other) for other in others if other in named]
            if " conditional(" in line:
                below = [min(below, key=lambda names: sum(len(named[n]) for n in names))]
            found = found.union(*below)
        return found

    taken = called(entry)
    return parts[0] + "".join(part for name, part in named.items() if name in taken)


def kernel_cycles(text: str, batch: int, vocab_size: int) -> tuple[list[int], list[int], list[int]]:
    """Of every pass over the logits by a kernel: its instructions, or its bytes if those take longer. Of every kernel over the
    columns' tops: its instructions, its search taking `TURNS`, where it transposes once per 128 rows, and those of the one for
    rows that the tops do not tell of, without such rows. Of every kernel of one row in every lane: its instructions, and what XLA
    counts for any operation besides."""
    num_words = words_for(vocab_size)
    height, block = block_of(batch, vocab_size, num_words, 4)
    steps = -(-batch // height) * (num_words // block)
    turns = [1, steps, steps * block // LANES]
    bytes_read = batch * vocab_size * 4
    calls = re.findall(r'%([\w.]+) = [^\n]*custom_call_target="tpu_custom_call"[^\n]*"body":"([^"]*)"', text)
    blocks = -(-batch // 8)
    searches = [1, blocks, blocks * num_words // (4 * LANES), TURNS * blocks * num_words // (4 * LANES)]
    passes, of_tops, of_rows = [], [], []
    for own, body in calls:  # equal kernels are compiled once, under one of their names or none
        names = [*(name for name, other in calls if other == body), "custom-call"]
        found = [[p for p in DUMP.glob(f"*-{name}-*-final_bundles.txt") if "schedule" not in p.name] for name in names]
        [path] = next(filter(None, found))
        written = path.read_text(errors="replace")
        depths = re.findall(r"^\s*0x[0-9a-f]+\s+(?:\w\w)?\s*:\s*(>*)\s*\{", written, re.MULTILINE)
        if own.startswith("lanes_"):
            of_rows.append(_with_loops(written) + OF_ANY_OPERATION)
        elif own.startswith("cells_"):
            of_rows.append(-(-batch // ROWS_OF_CELLS) * _with_loops(written, 2) + OF_ANY_OPERATION)
        elif own.startswith("tops_"):
            of_tops.append(sum(searches[len(d)] for d in depths) - _transposing(written) * (blocks + -batch // LANES))
        elif own.startswith("projected"):  # a step for every plane of a block, and its slices of 128 columns after the last
            table = jax.ShapeDtypeStruct((vocab_size, DEPTH), jnp.bfloat16)
            height, block = block_of_table(batch, table, num_words)
            times = [1, *(-(-batch // height) * num_words // width for width in (block / 32, LANES))]
            of_table = -(-batch // height) * vocab_size * DEPTH * 2
            passes.append(int(max(sum(times[len(d)] for d in depths), of_table / BYTES_PER_SECOND * CLOCK_HZ)))
        elif own.startswith("rows_"):  # one step of its grid, with the blocks that come in, as there mostly are no such rows
            first = sum(len(d) <= 1 for d in depths) + int(8 * columns_of_block(num_words) * 32 * 4 / BYTES_PER_SECOND * CLOCK_HZ)
            of_tops.append(first + OF_ANY_OPERATION)
        else:
            passes.append(max(sum(turns[len(d)] for d in depths), int(bytes_read / BYTES_PER_SECOND * CLOCK_HZ)))
    return passes, of_tops, of_rows


def _transposing(text: str) -> int:
    """Instructions of the branches of a kernel in which it transposes, which it does not take with every block."""
    count, branch = 0, []
    for line in text.splitlines():
        if not re.match(r"\s*0x[0-9a-f]+", line):
            continue
        if re.match(r"\s*0x[0-9a-f]+ PF:", line) or "sbr.rel" in line:
            count += len(branch) if any("vxpose" in x for x in branch) else 0
            branch = []
        branch.append(line)
    return count


def _with_loops(text: str, nested: int = 1) -> int:
    """Instructions of a kernel, or of each step of its grid, those of a loop as often as its exit test says. `nested`: how deep
    its own loops are, which hold no others: 2 where the grid is one, 1 otherwise."""
    bundles = [line for line in text.splitlines() if re.match(r"\s*0x[0-9a-f]+\s+(?:\w\w)?\s*:", line)]
    inside = [f": {'>' * nested} " in line for line in bundles]
    begins = [k for k, line in enumerate(bundles) if inside[k] and " LB: " in line]
    total = len(bundles) - sum(inside)
    for begin, end in zip(begins, [*begins[1:], len(bundles)]):
        loop = "\n".join(bundles[begin:end])
        counter, last = re.findall(r"scmp\.ge\.s32\.totalorder %(\w+), (\d+) /\* loop exit test", loop)[0]
        [step] = re.findall(rf"%{counter} = sadd\.s32 (\d+),", loop)
        total += sum(inside[begin:end]) * (int(last) // int(step))
    return total


def operations(text: str) -> int:
    """Instructions of the entry computation that run on the device."""
    free = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "copy-done", "slice-done"}
    lines = text[text.index("\nENTRY") :].splitlines()
    entry = "\n".join(line for line in lines if '"ConcatBitcast"' not in line)  # a name for parts that were copied
    found = re.findall(r"^\s+(?:ROOT )?%[\w.\-]+ = .*? ([\w\-]+)\(", entry, re.MULTILINE)
    return sum(name not in free for name in found)


def measured(compiled: Any, batch: int, vocab_size: int) -> dict[str, Any]:
    """What the compiler says of a program."""
    whole = compiled.as_text()
    text = usual(whole)

    def cycles_of(text: str) -> int:
        kernels = sum(sum(x) for x in kernel_cycles(text, batch, vocab_size))
        return sum(int(c) for c in re.findall(r'"estimated_cycles":"(\d+)"', text)) + kernels

    kernels, of_tops, of_rows = kernel_cycles(text, batch, vocab_size)
    cycles = cycles_of(text)
    return {
        "temporaries_bytes": compiled.memory_analysis().temp_size_in_bytes,
        "estimated_cycles": cycles,
        "estimated_us": round(cycles / CLOCK_HZ * 1e6, 1),
        "estimated_us_with_rare_branches": round(cycles_of(whole) / CLOCK_HZ * 1e6, 1),
        "kernels_us": [round(c / CLOCK_HZ * 1e6, 1) for c in kernels],
        "tops_kernels_us": [round(c / CLOCK_HZ * 1e6, 1) for c in of_tops],
        "row_kernels_us": [round(c / CLOCK_HZ * 1e6, 1) for c in of_rows],
        "operations": operations(text),
        "host_operations": sorted(set(HOST_OPERATIONS.findall(whole))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=262_144)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--without", nargs="*", default=[], metavar="ENDING", help="leave programs out: `stack`, `general`")
    parser.add_argument("--forms", nargs="+", default=["pallas", "xla"], choices=["pallas", "xla"])
    parser.add_argument("--output", type=Path, help="of what `only` chose; all programs go to benchmarks/results")
    args = parser.parse_args()
    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    mesh = Mesh(np.array(topology.devices[:1]), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec())
    report, failures = {}, []
    cases = [(form, *case) for form in args.forms for case in programs(args.batch, args.vocab).items()]
    for form, name, (function, arguments) in cases:
        if args.only not in name or name.endswith(tuple(args.without)):
            continue
        os.environ["JAX_DECODE_KERNELS"] = form
        jax.clear_caches()
        shutil.rmtree(DUMP, ignore_errors=True)
        start = time.perf_counter()
        placed = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), arguments)
        line = measured(jax.jit(function).lower(*placed).compile(), args.batch, args.vocab)
        line["compile_seconds"] = round(time.perf_counter() - start, 1)
        report.setdefault(form, {})[name] = line
        print(f"{form:6s} {name:40s} {line}", flush=True)
        if line["host_operations"]:
            failures.append(f"{name} talks to the host: {line['host_operations']}")
        union = args.batch * words_for(args.vocab) * 4 if name.endswith(("stack", "general")) else 0
        every_source = name.endswith("general")  # their bit rows are written side by side, seven of a row
        if name.startswith("mask + argmax") and line["temporaries_bytes"] > MOST_TEMPORARIES + union and not every_source:
            failures.append(f"{name} needs {line['temporaries_bytes']:,} bytes of temporaries")
        if name.startswith("greedy, whole") and line["temporaries_bytes"] > 4 * union:
            failures.append(f"{name} needs {line['temporaries_bytes']:,} bytes of temporaries")
    output = args.output or (RESULTS if not args.only else None)
    if output is not None:
        header = {"topology": "v5e:2x2, one device", "jax": jax.__version__, "batch": args.batch, "vocab": args.vocab}
        output.write_text(json.dumps({**header, "clock_hz": CLOCK_HZ, "programs": report}, indent=1) + "\n")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    with compiled_for("tpu"):
        main()
