"""Which JSON Schemas compile, and are their instances judged right?

    CONSTRAX_DATA=... python benchmarks/schema_conformance.py [--suite dev|official|formats] [--every 1] [--tokens llama3]

`dev` is the development split of MaskBench (arXiv 2501.10868), `official` the required part of JSON-Schema-Test-Suite for
drafts 7 and 2020-12 without groups that need other documents, `formats` its format part with formats asserted. Instances are
written as `json.dumps` writes them, and judged by the byte machine; with `--tokens` by the artifact over a model's vocabulary,
every instance as the model's tokenizer cuts it, and cut at random. Raw numbers go to
`benchmarks/results/schema_conformance.json`, one entry per suite: verdicts, the refused schemas with their reasons, and
processor time from the decoded schema to its machine or artifact.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import os
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

from fsa_compile import Tokenizer, load_tokenizer
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.composition.compose import compose_machine
from fsa_compile.errors import ConstraintError
from fsa_compile.json_schema import SchemaOptions, schema_machine
from fsa_compile.limits import CompileLimits

RESULTS = Path(__file__).parent / "results" / "schema_conformance.json"
FILES = {
    "dev": "maskbench_dev.jsonl.gz",
    "official": "json_schema_test_suite.jsonl.gz",
    "formats": "json_schema_test_suite_format.jsonl.gz",
}


def rows_of(suite: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of a suite, each with a name."""
    with gzip.open(folder / FILES[suite], "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        if "name" not in row:
            row["name"] = f"{row['draft']}/{row['file']}#{row['index']} {row['description']}"
    return [row for row in rows if not row.get("remote")]


def options_of(row: dict[str, Any], suite: str, key_order: str = "declared") -> SchemaOptions:
    """The options under which a row is judged."""
    draft = {"draft7": "7", "draft2020-12": "2020-12", None: "auto"}[row.get("draft")]
    formats = "annotate" if suite == "official" else "assert"
    return SchemaOptions(draft=draft, formats=formats, key_order=key_order, integers="all")  # type: ignore[arg-type]


class Cutter:
    """Cuts texts into tokens: as the tokenizer does, and at random."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._ids = {text: i for i, text in enumerate(tokenizer.vocabulary.tokens) if text}
        self._longest = 8

    def ways(self, text: bytes) -> list[list[int]]:
        """Sequences of ids that write a text."""
        rng = random.Random(len(text))
        out, at = list[int](), 0
        while at < len(text):
            fits = [n for n in range(1, self._longest + 1) if text[at : at + n] in self._ids and at + n <= len(text)]
            size = rng.choice(fits)
            out.append(self._ids[text[at : at + size]])
            at += size
        try:
            return [out, self.tokenizer.encode(text.decode())]
        except UnicodeDecodeError:  # half a surrogate pair is no UTF-8
            return [out]


def accepts(constraint: CompiledConstraint, ids: list[int]) -> bool:
    """Whether an artifact accepts a sequence of ids."""
    walk = constraint.walk()
    try:
        for token in ids:
            walk.advance(token)
    except ValueError:
        return False
    return walk.accepting


def judge(row: dict[str, Any], suite: str, cutter: Cutter | None = None, key_order: str = "declared") -> dict[str, Any]:
    """Verdict on one schema and its instances.

    Args:
      cutter: to judge by artifacts over its vocabulary.
      key_order: as in `SchemaOptions`.
    """
    started = time.process_time()
    limits = CompileLimits(max_seconds=30 if cutter is None else 300)
    try:
        machine = schema_machine(row["schema"], options=options_of(row, suite, key_order), limits=limits)
        constraint = cutter and compose_machine(machine, cutter.tokenizer.vocabulary, source="", limits=limits)
    except ConstraintError as error:
        unsatisfiable = type(error).__name__ == "UnsatisfiableSchemaError"
        right = unsatisfiable and not any(test["valid"] for test in row["tests"])
        return {"right": right, "refused": None if right else f"{type(error).__name__}: {error}", "tests": len(row["tests"])}
    out: dict[str, Any] = {
        "milliseconds": (time.process_time() - started) * 1e3,
        "controls": machine.num_controls,
        "symbols": machine.num_symbols,
        "false_accept": [],
        "false_reject": [],
        "refused": None,
        "tests": len(row["tests"]),
    }
    for i, test in enumerate(row["tests"]):
        text = json.dumps(test["data"], ensure_ascii=False).encode("utf-8", "surrogatepass")
        if cutter is None or constraint is None:
            verdicts = {machine.accepts(text)}
        else:
            verdicts = {accepts(constraint, ids) for ids in cutter.ways(text)}
        if verdicts != {test["valid"]}:
            out["false_reject" if test["valid"] else "false_accept"].append(i)
    out["right"] = not out["false_accept"] and not out["false_reject"]
    return out


def percentiles(values: list[float]) -> dict[str, float]:
    """Nearest-rank percentiles."""
    values = sorted(values)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {k: round(values[min(len(values) - 1, int(len(values) * p))], 2) for k, p in at.items()} | {
        "max": round(values[-1], 2)
    }


def figures(verdicts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Counts and percentiles over all verdicts."""
    all_of = list(verdicts.values())
    tested = [v for v in all_of if v["tests"]]
    compiled = [v for v in all_of if "milliseconds" in v]
    reasons = collections.Counter(v["refused"].split("\n")[0][:90] for v in all_of if v["refused"])
    return {
        "schemas": len(all_of),
        "compiled": len(compiled),
        "refused": sum(1 for v in all_of if v["refused"]),
        "right": sum(v["right"] for v in all_of),
        "schemas with instances": len(tested),
        "right with instances": sum(v["right"] for v in tested),
        "with false accepts": sum(bool(v.get("false_accept")) for v in all_of),
        "with false rejects": sum(bool(v.get("false_reject")) for v in all_of),
        "instances accepted wrongly": sum(len(v.get("false_accept", ())) for v in all_of),
        "instances rejected wrongly": sum(len(v.get("false_reject", ())) for v in all_of),
        "milliseconds": percentiles([v["milliseconds"] for v in compiled]),
        "controls": percentiles([v["controls"] for v in compiled]),
        "symbols": percentiles([v["symbols"] for v in compiled]),
        "reasons": dict(reasons.most_common()),
        "refused schemas": {name: v["refused"] for name, v in verdicts.items() if v["refused"]},
        "false accepts": {name: v["false_accept"] for name, v in verdicts.items() if v.get("false_accept")},
        "false rejects": {name: v["false_reject"] for name, v in verdicts.items() if v.get("false_reject")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--suite", choices=[*FILES, "all"], default="all")
    parser.add_argument("--every", type=int, default=1, help="judge every n-th schema")
    parser.add_argument("--tokens", metavar="MODEL", help="judge by artifacts over a model's vocabulary, such as llama3")
    parser.add_argument("--key-order", choices=["declared", "any"], default="declared")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = Path(os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    cutter = Cutter(load_tokenizer(folder / "tokenizers" / options.tokens)) if options.tokens else None
    report = json.loads(options.output.read_text()) if options.output.exists() else {}
    for suite in FILES if options.suite == "all" else [options.suite]:
        verdicts = {}
        for row in rows_of(suite, folder)[:: options.every]:
            verdicts[row["name"]] = judge(row, suite, cutter, options.key_order)
        found = figures(verdicts)
        shown = found if options.verbose else {k: v for k, v in found.items() if not isinstance(v, dict) or "p50" in v}
        print(suite, json.dumps(shown, indent=1))
        if options.every == 1:
            name = suite if cutter is None else f"{suite}, artifacts over {options.tokens}"
            name += ", any key order" if options.key_order == "any" else ""
            report[name] = found | {"python": platform.python_version(), "machine": platform.machine()}
    if options.every == 1:
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
