"""Does a string schema cost more to compile the longer its text may be?

    CONSTRAX_DATA=... python benchmarks/schema_lengths.py [--repeats 60] [--model llama3] [--before ../checkout]

`{"type": "string", "maxLength": n}` for 20 and one n at a time, in turns in one process, so that both meet the same load; with
`--before`, another checkout's compiler is asked in turns, too, in a process of its own. Times are processor time in milliseconds
from the decoded schema to the artifact, vocabulary tables and the walk of string bodies warm. Quote the ratios. All times go to
`benchmarks/results/schema_lengths.json`.
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

RESULTS = Path(__file__).parent / "results" / "schema_lengths.json"
SHORT, LENGTHS = 20, (100, 1_000, 65_535)
_WORKER = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, os.getcwd())
from benchmarks.schema_speed import compiled
from fsa_compile import load_tokenizer
from fsa_compile.json_schema import SchemaOptions
from fsa_compile.limits import CompileLimits

vocabulary = load_tokenizer(Path(os.environ["CONSTRAX_DATA"]) / "tokenizers" / sys.argv[1]).vocabulary
for line in sys.stdin:
    lengths = json.loads(line)
    found = [compiled({"type": "string", "maxLength": n}, SchemaOptions(), vocabulary, CompileLimits()) for n in lengths]
    print(json.dumps(found), flush=True)
"""


def worker(root: Path, model: str) -> subprocess.Popen[str]:
    """A process that compiles the lengths it is told with the code of a checkout."""
    folder = os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data"
    given = os.environ | {"CONSTRAX_DATA": str(Path(folder).resolve()), "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", _WORKER, model]
    return subprocess.Popen(command, cwd=root, env=given, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def turn(process: subprocess.Popen[str], length: int) -> list[dict[str, Any]]:
    """The short length and another one; twice, as the first compilation after a pause meets cold caches."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([SHORT, length] * 2) + "\n")
    process.stdin.flush()
    found: list[dict[str, Any]] = json.loads(process.stdout.readline())
    return found[2:]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=60, help="turns for each length, after two that are left out (60)")
    parser.add_argument("--model", default="llama3", help="folder of the tokenizer (llama3)")
    parser.add_argument("--before", type=Path, help="another checkout")
    given = parser.parse_args()
    roots = {"before": given.before.resolve()} if given.before else {}
    roots["after"] = Path(__file__).parents[1].resolve()
    workers = {which: worker(root, given.model) for which, root in roots.items()}
    report: dict[str, Any] = {"model": given.model} | {which: {} for which in workers}
    for length in LENGTHS:
        turns: dict[str, list[list[dict[str, Any]]]] = {which: [] for which in workers}
        for _ in range(given.repeats + 2):
            for which, process in workers.items():
                turns[which].append(turn(process, length))
        for which, found in turns.items():
            short, long = ([row[i]["total"] for row in found[2:]] for i in (0, 1))
            report[which][str(length)] = {
                "median": round(statistics.median(long), 2),
                f"median of {SHORT} beside it": round(statistics.median(short), 2),
                "median of the ratios": round(statistics.median(map(float.__truediv__, long, short)), 3),
                "ratio of the least": round(min(long) / min(short), 3),
                **{key: [run[key] for run in found[-1]] for key in ("nodes", "rows", "arcs", "megabytes")},
                "all": {str(SHORT): short, str(length): long},
            }
            print(which, length, {key: value for key, value in report[which][str(length)].items() if key != "all"})
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
