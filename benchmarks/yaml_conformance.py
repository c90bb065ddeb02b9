"""Are the instances of real JSON Schemas judged right when they are written as YAML?

    CONSTRAX_DATA=... python benchmarks/yaml_conformance.py [--style block|flow] [--every 1]

Every instance of the development split of MaskBench is written in the layout of `fsa_compile.yaml_schema`, with strings in double
quotes, and in block style also as PyYAML's `safe_dump` writes it; the byte machine judges both. Raw numbers go to
`benchmarks/results/yaml_conformance.json`.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from yaml_schema.layouts import block, flow, pyyaml_block

from benchmarks.schema_conformance import options_of, percentiles, rows_of
from fsa_compile.errors import ConstraintError
from fsa_compile.limits import CompileLimits
from fsa_compile.yaml_schema import Style, YamlOptions, yaml_machine

RESULTS = Path(__file__).parent / "results" / "yaml_conformance.json"


def judge(row: dict[str, Any], style: Style, limits: CompileLimits) -> dict[str, Any]:
    """Verdict on one schema and its instances."""
    started = time.process_time()
    try:
        machine = yaml_machine(row["schema"], style=style, options=YamlOptions(schema=options_of(row, "dev")), limits=limits)
    except ConstraintError as error:
        unsatisfiable = type(error).__name__ == "UnsatisfiableSchemaError"
        right = unsatisfiable and not any(test["valid"] for test in row["tests"])
        return {"right": right, "tests": len(row["tests"]), "refused": None if right else f"{type(error).__name__}: {error}"}
    out: dict[str, Any] = {
        "milliseconds": (time.process_time() - started) * 1e3, "controls": machine.num_controls, "symbols": machine.num_symbols,
        "false_accept": [], "false_reject": [], "pyyaml_reject": [], "tests": len(row["tests"]), "refused": None,
    }  # fmt: skip
    for i, test in enumerate(row["tests"]):
        texts = [flow(test["data"])] if style == "flow" else [block(test["data"]), block(test["data"], indented=True)]
        own = {machine.accepts(text.encode("utf-8", "surrogatepass")) for text in texts}
        other = test["valid"]
        if style == "block":
            other = machine.accepts(pyyaml_block(test["data"]).encode("utf-8", "surrogatepass"))
        if not test["valid"] and (True in own or other):
            out["false_accept"].append(i)
        if test["valid"] and False in own:
            out["false_reject"].append(i)
        if test["valid"] and not other:
            out["pyyaml_reject"].append(i)
    out["right"] = not out["false_accept"] and not out["false_reject"]
    return out


def figures(verdicts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Counts over all verdicts."""
    every = list(verdicts.values())
    tested = [v for v in every if v["tests"]]
    compiled = [v for v in every if "milliseconds" in v]
    reasons = collections.Counter(v["refused"].split("\n")[0][:90] for v in every if v["refused"])
    return {
        "schemas": len(every),
        "refused": sum(1 for v in every if v["refused"]),
        "schemas with instances": len(tested),
        "right with instances": sum(v["right"] for v in tested),
        "right with instances, as PyYAML writes them": sum(v["right"] and not v.get("pyyaml_reject") for v in tested),
        "instances accepted wrongly": sum(len(v.get("false_accept", ())) for v in every),
        "instances rejected wrongly": sum(len(v.get("false_reject", ())) for v in every),
        "instances rejected as PyYAML writes them": sum(len(v.get("pyyaml_reject", ())) for v in every),
        "milliseconds": percentiles([v["milliseconds"] for v in compiled]),
        "controls": percentiles([v["controls"] for v in compiled]),
        "symbols": percentiles([v["symbols"] for v in compiled]),
        "reasons": dict(reasons.most_common()),
        "false accepts": {name: v["false_accept"] for name, v in verdicts.items() if v.get("false_accept")},
        "false rejects": {name: v["false_reject"] for name, v in verdicts.items() if v.get("false_reject")},
        "PyYAML rejects": {name: v["pyyaml_reject"] for name, v in verdicts.items() if v.get("pyyaml_reject")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--style", choices=["block", "flow"], default="block")
    parser.add_argument("--every", type=int, default=1, help="judge every n-th schema")
    parser.add_argument("--seconds", type=float, default=30.0, help="most seconds per schema")
    options = parser.parse_args()
    folder = Path(os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    limits = CompileLimits(max_seconds=options.seconds)
    found = figures({row["name"]: judge(row, options.style, limits) for row in rows_of("dev", folder)[:: options.every]})
    print(options.style, json.dumps(found, indent=1))
    if options.every == 1:
        report = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(report | {options.style: found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
