"""What nests without a bound, with `canonical=True`: compile time, size, and whether the stack can be kept.

    CONSTRAX_DATA=/path/to/data python benchmarks/canonical_stacks.py [--names llama2 llama3] [--every 40]

Of each constraint the processor's time plain and canonical, the second time either is compiled, sizes, and for schemas the same
with the stack written out to three levels. `--every n` adds every n-th schema of MaskBench's dev split that nests so.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fsa_compile import (  # noqa: E402
    CompiledConstraint,
    CompileLimits,
    SchemaOptions,
    canonical_tables,
    compile_grammar,
    compile_json_schema,
    load_tokenizer,
)
from fsa_compile.errors import ConstraintError  # noqa: E402

LIMITS = CompileLimits(max_seconds=30)
GRAMMARS = {
    "arithmetic": 'start: term (("+"|"-") term)*\nterm: factor (("*"|"/") factor)*\nfactor: /[0-9]+/ | "(" start ")"',
    "lists": 'start: "[" [start ("," start)*] "]" | /[0-9]/',
    "s-expressions": 'start: /[a-z]+/ | "(" [start (" " start)*] ")"',
}
SCHEMAS: dict[str, Any] = {
    "any value": {},
    "open object": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    "tree": {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["v"],
        "additionalProperties": False,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=["llama2", "gpt2", "llama3", "llama4", "qwen"])
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "canonical_stacks.json")
    args = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA") or HERE.parents[1] / "shared" / "data")
    schemas = dict(SCHEMAS)
    if args.every:
        with gzip.open(data / "maskbench_dev.jsonl.gz", "rt", encoding="utf-8") as lines:
            schemas |= {record["name"]: record["schema"] for record in map(json.loads, list(lines)[:: args.every])}
    result: dict[str, Any] = {}
    for name in args.names:
        tokenizer = load_tokenizer(data / "tokenizers" / name)
        canonical_tables(tokenizer)
        result[name] = {}
        for what, text in GRAMMARS.items():
            result[name][what] = measured(partial(compile_grammar, text, tokenizer, limits=LIMITS))
            print(name, what, json.dumps(result[name][what]), flush=True)
        for what, schema in schemas.items():
            make = partial(compile_json_schema, schema, tokenizer, limits=LIMITS)
            found = measured(make)
            if not found.get("nests"):
                continue
            bounded = SchemaOptions(max_object_depth=3, max_array_depth=3)
            found["written_out"] = once(partial(make, canonical=True, options=bounded))
            result[name][what] = found
            print(name, what, json.dumps(found), flush=True)
            args.output.write_text(json.dumps(result, indent=1) + "\n")


def measured(make: Callable[..., CompiledConstraint]) -> dict[str, Any]:
    try:
        nests = not make().is_regular
    except ConstraintError:
        return {}
    canonical = once(partial(make, canonical=True))
    if canonical["cpu_ms"] < 5_000:
        canonical = once(partial(make, canonical=True))
    return {"nests": nests, "plain": once(make), "canonical": canonical}


def once(make: Callable[[], CompiledConstraint]) -> dict[str, Any]:
    begin = time.process_time()
    try:
        made = make()
    except ConstraintError as error:
        return {"refused": str(error).splitlines()[0], "cpu_ms": round(1e3 * (time.process_time() - begin), 1)}
    spent = 1e3 * (time.process_time() - begin)
    return {"cpu_ms": round(spent, 1), "bytes": made.nbytes, "nodes": made.num_nodes, "keeps_stack": not made.is_regular}


if __name__ == "__main__":
    main()
