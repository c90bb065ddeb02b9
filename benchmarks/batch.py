"""Ten thousand constraints into a folder, with a kill in the middle: time, memory, counts.

    python benchmarks/batch.py TOKENIZER [--count 10000] [--kill-at 3000]

Constraints of five kinds (patterns, choices, JSON objects and arrays, alternatives) of random words. `fsa-compile batch` is
started; its processes are killed (SIGKILL) as soon as the manifest has so many lines; it is started again with the same arguments
and once more when nothing is left. Of every start: seconds by the clock, lines of the manifest, files, and the most memory
of all its processes together, asked twice a second. Writes `benchmarks/results/batch.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "batch.json"
WORDS = [
    "red", "green", "blue", "oak", "pine", "cedar", "north", "south", "east", "west", "alpha", "beta",
    "gamma", "delta", "home", "work", "lab", "city", "river", "lake",
]  # fmt: skip
COMMAND = [sys.executable, "-c", "import sys; from fsa_compile.cli.commands import main; sys.exit(main(sys.argv[1:]))", "batch"]


def constraint(rng: random.Random, kind: int) -> dict[str, Any]:
    """One of five kinds."""
    word = lambda: rng.choice(WORDS)  # noqa: E731
    if kind == 0:
        return {"regex": f"{word()}-[0-9]{{{rng.randint(2, 6)}}}(-[a-z]{{1,{rng.randint(2, 8)}}})?"}
    if kind == 1:
        return {"choice": sorted({f"{word()} {word()} {rng.randint(0, 999)}" for _ in range(rng.randint(3, 40))})}
    if kind == 2:
        values = [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 999}, {"enum": rng.sample(WORDS, 4)}]
        values.append({"type": "string", "maxLength": rng.randint(5, 40)})
        properties = {f"{word()}{i}": rng.choice(values) for i in range(rng.randint(1, 5))}
        return {"json": {"type": "object", "properties": properties, "additionalProperties": False}}
    if kind == 3:
        return {"json": {"type": "array", "items": {"enum": rng.sample(WORDS, 5)}, "maxItems": rng.randint(1, 6)}}
    return {"regex": "|".join(f"{word()}_{word()}[0-9]{{{rng.randint(1, 3)}}}" for _ in range(3))}


def megabytes(process: int) -> float:
    """Resident memory of a process and all that it started; pages that they share count for each."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
    return own / 1e3 + sum(megabytes(int(child)) for child in children)


def started(command: list[str], folder: Path, kill_at: int | None) -> dict[str, Any]:
    """Runs the command, or kills it."""

    def lines() -> int:
        return sum(len(path.read_bytes().splitlines()) for path in folder.glob("manifest*.jsonl"))

    before, since, most = lines(), time.perf_counter(), 0.0
    environment, nowhere = os.environ | {"PYTHONPATH": str(ROOT)}, subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=nowhere, stderr=nowhere)
    while process.poll() is None:
        most = max(most, megabytes(process.pid))
        if kill_at is not None and lines() >= kill_at:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        time.sleep(0.5)
    return {
        "exit status": process.returncode,
        "seconds": time.perf_counter() - since,
        "lines before": before,
        "lines after": lines(),
        "files": len(list(folder.glob("*.npz"))),
        "megabytes of all processes": most,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tokenizer")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--kill-at", type=int, default=3_000)
    options = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as at:
        given, folder = Path(at) / "given.jsonl", Path(at) / "made"
        rows = ({"name": f"c{i:05d}", **constraint(rng, i % 5)} for i in range(options.count))
        given.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [*COMMAND, str(given), "--tokenizer", options.tokenizer, "--output", str(folder)]
        starts = [started(command, folder, kill_at) for kill_at in (options.kill_at, None, None)]
        lines = [json.loads(line) for path in folder.glob("manifest*.jsonl") for line in path.read_text().splitlines()]
        records = {record["name"]: record for record in lines}
    report = {
        "constraints": options.count,
        "starts": starts,
        "records": len(records),
        "refused": sum(bool(record.get("error")) for record in records.values()),
        "megabytes of files": sum(record.get("bytes", 0) for record in records.values()) / 1e6,
        "seconds of compilation": sum(record.get("seconds", 0.0) for record in records.values()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    print(json.dumps(report, indent=1))
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
