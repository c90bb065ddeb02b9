"""Is this checkout faster at compiling JSON Schemas than another one, on a machine that others use, too?

    git worktree add ../before COMMIT
    CONSTRAX_DATA=... python benchmarks/schema_speed_beside.py ../before [--every 12] [--repeats 3]

Two processes, one for each checkout, compile the same schemas in turns, so that both meet the same load: the cases of
`schema_speed.py`, every n-th schema of the development split of MaskBench in the order used there, and its two largest ones.
Times are processor time in milliseconds, from the decoded schema to the artifact, vocabulary tables warm: of the *first*
compilation in the process, and the *least* of all repetitions. Quote the ratios; the times are those of a loaded machine. Raw
numbers go to `benchmarks/results/schema_speed_beside.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "schema_speed_beside.json"
_LARGEST = ("WashingtonPost---wp_4_Normalized.json", "WashingtonPost---wp_96_Normalized.json")
_WORKER = """
import json, os, random, resource, sys
from pathlib import Path
sys.path.insert(0, os.getcwd())
from benchmarks.schema_conformance import options_of, rows_of
from benchmarks.schema_speed import cases, compiled
from fsa_compile import load_tokenizer
from fsa_compile.json_schema import SchemaOptions
from fsa_compile.limits import CompileLimits

folder = Path(os.environ["CONSTRAX_DATA"])
vocabulary, limits = load_tokenizer(folder / "tokenizers" / "llama3").vocabulary, CompileLimits()
rows = rows_of("dev", folder)
random.Random(1).shuffle(rows)
todo = {"case: " + name: (schema, SchemaOptions()) for name, (schema, _) in cases().items()}
todo |= {row["name"]: (row["schema"], options_of(row, "dev")) for row in rows}
compiled({"anyOf": [True, {"type": "string", "maxLength": 1000}]}, SchemaOptions(), vocabulary, limits)
print(json.dumps(list(todo)), flush=True)
for line in sys.stdin:
    found = compiled(*todo[json.loads(line)], vocabulary, limits)
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(found), flush=True)
"""


class Worker:
    """A process that compiles schemas by name, with the code of one checkout."""

    def __init__(self, root: Path) -> None:
        folder = os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data"
        given = os.environ | {"CONSTRAX_DATA": str(Path(folder).resolve()), "PYTHONPATH": str(root)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER], cwd=root, env=given, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.names: list[str] = self._read()

    def compile(self, name: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(name) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def summary(rows: dict[str, dict[str, Any]], time: str) -> dict[str, Any]:
    """Percentiles of both checkouts over the schemas of the split, and of the ratios."""
    chosen = [row for name, row in rows.items() if not name.startswith("case") and "refused" not in row and name not in _LARGEST]
    out: dict[str, Any] = {}
    for which in ("before", "after"):
        values = sorted(row[which][time] for row in chosen)
        out[which] = {f"p{p}": values[min(len(values) - 1, len(values) * p // 100)] for p in (50, 90, 99)}
    out["median of before / after"] = round(statistics.median(row["before"][time] / row["after"][time] for row in chosen), 3)
    out["sums, before / after"] = round(sum(r["before"][time] for r in chosen) / sum(r["after"][time] for r in chosen), 3)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--every", type=int, default=12, help="take every n-th schema of the split (12)")
    parser.add_argument("--repeats", type=int, default=3, help="compilations of each schema (3)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    workers = {"before": Worker(given.before.resolve()), "after": Worker(Path(__file__).parents[1])}
    names = workers["before"].names
    cases = [name for name in names if name.startswith("case")]
    rows: dict[str, dict[str, Any]] = {}
    for name in [*cases, *names[len(cases) :: given.every], *(name for name in _LARGEST if name in names)]:
        runs: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
        for _ in range(1 if name in _LARGEST else given.repeats):
            for which, worker in workers.items():
                runs[which].append(worker.compile(name))
        refused = {which: found[0]["refused"] for which, found in runs.items() if "refused" in found[0]}
        if refused:
            rows[name] = {"refused": refused}
            continue
        rows[name] = {
            which: {"first": found[0]["total"], "least": min(run["total"] for run in found), "peak, MB": found[-1]["peak"]}
            | {key: found[0][key] for key in ("machine", "megabytes")}
            for which, found in runs.items()
        }
    report = {"every": given.every, "first": summary(rows, "first"), "least": summary(rows, "least"), "by schema": rows}
    given.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({key: report[key] for key in ("first", "least")}, indent=1))
    for name in (*cases, *_LARGEST):
        if name in rows:
            print(name, *(f"{which}: {found}" for which, found in rows[name].items()), sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
