"""How many checks do the random generators of the tests do when they are run in full, and does any fail?

Each file of tests runs in a process of its own, one after the other. Counts of what was checked are written after each, so that a
run can be stopped and others added to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
GENERATORS = [
    "json_schema/test_repeated_keys.py", "json_schema/test_random_schemas.py", "json_schema/test_random_formats.py",
    "json_schema/test_bounds.py", "interop/test_tag_texts.py", "patterns/test_comments.py", "grammar/test_gbnf_texts.py",
    "grammar/test_longest_texts.py", "composition/test_spelling.py", "composition/test_limits_along_walks.py",
    "composition/test_combinations.py", "python_types/test_random_types.py",
]  # fmt: skip


def run(path: str) -> dict[str, Any]:
    """Counts of one file's generators by test, with the processor time of the file; a failed test says so."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["--exhaustive", "-q", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        command = [sys.executable, "-m", "pytest", str(ROOT / "tests" / path), *options]
        before = os.times()
        subprocess.run(command, cwd=ROOT, check=False)
        after = os.times()
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        out: dict[str, Any] = {}
        for case in ET.parse(report).iter("testcase"):
            counts = [eval_counts(p.attrib["value"]) for p in case.iter("property") if p.attrib["name"] == "checks"]
            if counts:
                out[case.attrib["name"]] = counts[0] | {"failed": case.find("failure") is not None}
    return {"cpu_s": round(seconds, 1), "date": time.strftime("%Y-%m-%d"), "tests": out}


def eval_counts(text: str) -> dict[str, int]:
    """Counts as the report spells them."""
    return {str(name): int(count) for name, count in json.loads(text.replace("'", '"')).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="parts of the files' names")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "exactness.json")
    options = parser.parse_args()
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for path in GENERATORS:
        if not options.only or any(part in path for part in options.only):
            results[path] = run(path)
            options.output.write_text(json.dumps(results, indent=1) + "\n")
            for name, counts in results[path]["tests"].items():
                print(f"{path} {name}: {counts}")


if __name__ == "__main__":
    main()
