"""How long does a JSON Schema take to become an artifact, token walk included, and how large is it?

    CONSTRAX_DATA=... python benchmarks/schema_speed.py [--every 10] [--only cases|dev] [--model llama3] [--limit 60]

*Cases* are single schemas with bars of their own: medians of repetitions in a running process. *dev* is every n-th schema of
the development split of MaskBench (arXiv 2501.10868), each compiled once, in an order that is always the same; `--every 1`
takes all. Times are processor time from the decoded schema to the ready `CompiledConstraint`, vocabulary tables warm, without
a cache of constraints; `machine` is the part from the schema to its byte machine. What a process keeps of the string bodies,
numbers and formats of earlier schemas (`fsa_compile.composition.pushdown.summaries`) counts as warm; `cold` are the same cases,
and with `--cold` the same schemas, each compiled after that was dropped. Sizes are bytes of the arrays, and of their
file. Raw numbers go to `benchmarks/results/schema_speed.json`, with one line per schema.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.schema_conformance import options_of, percentiles, rows_of
from fsa_compile import load_tokenizer
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.arrays import ARRAYS
from fsa_compile.composition.compose import compose_machine
from fsa_compile.composition.pushdown.summaries import forget_summaries
from fsa_compile.errors import ConstraintError
from fsa_compile.json_schema import FLAT_STATES, SchemaOptions, schema_machine
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary import Vocabulary

RESULTS = Path(__file__).parent / "results" / "schema_speed.json"

_TEXT = {"type": "string"}
_TREE = {"$ref": "#"}
_KINDS: list[dict[str, Any]] = [
    _TEXT, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"enum": ["low", "middle", "high"]},
    {"type": "array", "items": _TEXT}, {"type": ["string", "null"]}, {"type": "string", "format": "date-time"},
]  # fmt: skip


def cases() -> dict[str, tuple[Any, float | None]]:
    """Single schemas, each with the most milliseconds that it may take, if there is a bar."""
    rng = random.Random(0)
    syllables = ["ka", "lo", "mi", "ter", "ran", "du", "sel", "vo", "pix", "ane", "gor", "ul"]
    names = list(dict.fromkeys("".join(rng.choices(syllables, k=rng.randint(2, 5))) for _ in range(4_000)))
    paper = {
        "type": "object",
        "properties": {"name": _TEXT, "age": {"type": "integer"}, "colour": {"enum": ["Red", "Orange", "Yellow"]}},
        "required": ["name", "age", "colour"],
        "additionalProperties": False,
    }
    properties = {f"{names[i]}_{i}": _KINDS[i % len(_KINDS)] for i in range(50)}
    wide = {"type": "object", "properties": properties, "required": list(properties)[::3], "additionalProperties": False}
    tree = {
        "type": "object",
        "properties": {
            "name": _TEXT, "kind": {"enum": ["leaf", "branch"]}, "value": {"type": ["number", "null"]},
            "children": {"type": "array", "items": _TREE}, "next": {"anyOf": [{"type": "null"}, _TREE]},
        },
        "required": ["name", "kind", "value", "children", "next"],
        "additionalProperties": False,
    }  # fmt: skip
    return {
        "paper's object": (paper, 3.0),
        "50 properties": (wide, 20.0),
        "50 properties, open": ({k: v for k, v in wide.items() if k != "additionalProperties"}, None),
        "enum of 2,000": ({"enum": names[:2000]}, 30.0),
        "recursive tree": (tree, 25.0),
        "any JSON": (True, None),
        "string": (_TEXT, None),
        "maxLength 20": ({"type": "string", "maxLength": 20}, None),
        "maxLength 65535": ({"type": "string", "maxLength": 65_535}, None),
        "date-time": ({"type": "string", "format": "date-time"}, None),
    }


def compiled(
    schema: Any, options: SchemaOptions, vocabulary: Vocabulary, limits: CompileLimits, *, cold: bool = False
) -> dict[str, Any]:
    """Milliseconds and sizes of one compilation, or why there is none."""
    if cold:
        forget_summaries()
    begin = time.process_time()
    try:
        machine = schema_machine(schema, options=options, limits=limits)
        middle = time.process_time()
        constraint = compose_machine(machine, vocabulary, source="", limits=limits, flat_states=FLAT_STATES)
    except ConstraintError as error:
        spent = (time.process_time() - begin) * 1e3
        return {"refused": f"{type(error).__name__}: {error}".split("\n")[0], "total": round(spent, 2)}
    end = time.process_time()
    return {
        "total": round((end - begin) * 1e3, 2),
        "machine": round((middle - begin) * 1e3, 2),
        "controls": machine.num_controls,
        "symbols": machine.num_symbols,
        "nodes": len(constraint.accept),
        "rows": len(constraint.rows),
        "arcs": len(constraint.arc_token),
        "megabytes": round(nbytes(constraint) / 1e6, 3),
        "megabytes in a file": round(file_bytes(constraint) / 1e6, 3),
    }


def file_bytes(constraint: CompiledConstraint) -> int:
    """Bytes of the file that a constraint is saved to."""
    with tempfile.TemporaryDirectory() as folder:
        constraint.save(Path(folder) / "a.npz")
        return (Path(folder) / "a.npz").stat().st_size


def nbytes(constraint: CompiledConstraint) -> int:
    """Bytes of all arrays."""
    return sum(int(getattr(constraint, name).nbytes) for name in ARRAYS)


def timed_cases(vocabulary: Vocabulary, limits: CompileLimits, repeats: int) -> dict[str, Any]:
    """Medians over repetitions, the first left out."""
    out: dict[str, Any] = {}
    for name, (schema, bar) in cases().items():
        runs = [compiled(schema, SchemaOptions(), vocabulary, limits) for _ in range(repeats + 1)][1:]
        out[name] = runs[0] | {
            "total": round(statistics.median(r["total"] for r in runs), 2),
            "machine": round(statistics.median(r["machine"] for r in runs), 2),
            "least": min(r["total"] for r in runs),
            "cold": statistics.median(
                compiled(schema, SchemaOptions(), vocabulary, limits, cold=True)["total"] for _ in range(repeats)
            ),
            "bar": bar,
        }
    return out


def dev_split(folder: Path, every: int, vocabulary: Vocabulary, limits: CompileLimits, *, cold: bool) -> dict[str, Any]:
    """Every n-th schema of the development split, in a mixed order, and percentiles."""
    rows = rows_of("dev", folder)
    random.Random(1).shuffle(rows)
    found: dict[str, dict[str, Any]] = {}
    for i, row in enumerate(rows[::every]):
        found[row["name"]] = compiled(row["schema"], options_of(row, "dev"), vocabulary, limits, cold=cold)
        if sys.stderr.isatty():
            print(f"\r{i + 1}/{len(rows[::every])}", end="", file=sys.stderr)
    made = [x for x in found.values() if "refused" not in x]
    names = ("total", "machine", "controls", "nodes", "rows", "arcs", "megabytes", "megabytes in a file")
    return {
        "every": every,
        "schemas": len(found),
        "compiled": len(made),
        "figures": {name: percentiles([x[name] for x in made]) for name in names},
        "most memory of the process, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "by schema": found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=["cases", "dev"])
    parser.add_argument("--cold", action="store_true", help="drop what is kept of earlier schemas before each one of the split")
    parser.add_argument("--every", type=int, default=10, help="take every n-th schema of the split (10)")
    parser.add_argument("--repeats", type=int, default=7, help="repetitions of each case (7)")
    parser.add_argument("--limit", type=float, default=60, help="most seconds for one schema (60)")
    parser.add_argument("--model", default="llama3", help="folder of the tokenizer (llama3)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    folder = Path(os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    vocabulary = load_tokenizer(folder / "tokenizers" / given.model).vocabulary
    limits = CompileLimits(max_seconds=given.limit)
    report = json.loads(given.output.read_text()) if given.output.exists() else {}
    report["environment"] = {
        "python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine(),
        "model": given.model, "tokens": vocabulary.size, "limit": given.limit,
    }  # fmt: skip
    compiled({"anyOf": [True, {"type": "string", "maxLength": 1000}]}, SchemaOptions(), vocabulary, limits)  # warms up
    if given.only != "dev":
        report["cases"] = timed_cases(vocabulary, limits, given.repeats)
        for name, run in report["cases"].items():
            times = f"{run['total']:8.2f} ms, cold {run['cold']:.2f} (machine {run['machine']:.2f})"
            print(f"{name:22} {times}, {run['megabytes']:.2f} MB; bar {run['bar']}")
    if given.only != "cases":
        name = "dev, cold" if given.cold else "dev"
        report[name] = dev_split(folder, given.every, vocabulary, limits, cold=given.cold)
        print(json.dumps({k: v for k, v in report[name].items() if k != "by schema"}, indent=1))
    lines = json.dumps(report, indent=1)
    given.output.write_text(lines + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
