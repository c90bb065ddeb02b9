"""What does `canonical=True` do to a constraint: compile time, size, and the share of steps that leave one choice?

    CONSTRAX_DATA=/path/to/data python benchmarks/canonical_constraints.py [--names llama2 gpt2] [--walks 100]

Compile times are medians of the processor's time, plain and canonical in turns, everything the vocabulary keeps being there;
`canonical_first` is the first time, when states of the filter are made on the way.

Steps are counted along random canonical walks (uniform over allowed tokens), the end included: how often the next token is
decided, with `canonical=True`, and without it on the same tokens. Cognetta et al. 2025 report 24.5 % and 77.9 % for the template
of their Appendix C and Llama 2; the constraints here are like it, not the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fsa_compile import CanonicalWalk, CompileLimits, canonical_tables, compile_regex, load_tokenizer  # noqa: E402
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables  # noqa: E402
from fsa_compile.errors import ConstraintError  # noqa: E402
from fsa_compile.tokenizers import Tokenizer  # noqa: E402

LIMITS = CompileLimits(max_seconds=600)
WORD = "[a-z]{3,8}"
CONSTRAINTS = {
    "choice of capitals": "Paris|London|Berlin|Madrid|Rome|Vienna|Lisbon|Warsaw|Budapest|Copenhagen",
    "choice of sentences": r"The weather is (fine|terrible) today\.|Nobody expected this outcome\.|Please try again later\."
    r"|It depends on the season\.",
    "date-time": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
    "IPv4 address": r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])",
    "quoted text": r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
    "free text": r"[\s\S]*",
    "JSON template": rf'\{{"name": "{WORD}", "occupation": "(teacher|engineer|musician)", "birthplace": "(Paris|London|Berlin)", '
    rf'"languages": \["(English|French|German)"\], "active": (true|false), "score": [0-9]\.[0-9]\}}',
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=["llama2", "gpt2", "llama3", "llama4", "qwen"])
    parser.add_argument("--walks", type=int, default=100)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "canonical_constraints.json")
    args = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA") or HERE.parents[1] / "shared" / "data")
    result: dict[str, Any] = {}
    for name in args.names:
        tokenizer = load_tokenizer(data / "tokenizers" / name)
        tables = canonical_tables(tokenizer)
        result[name] = {}
        for what, pattern in CONSTRAINTS.items():
            try:
                result[name][what] = measure(pattern, tokenizer, tables, args.walks)
            except ConstraintError as error:
                result[name][what] = {"refused": str(error).splitlines()[0]}
            print(name, what, json.dumps(result[name][what]), flush=True)
            args.output.write_text(json.dumps(result, indent=1) + "\n")


def measure(pattern: str, tokenizer: Tokenizer, tables: CanonicalTables, walks: int) -> dict[str, Any]:
    # states of the filter are made on the way
    cold = _cpu_ms(lambda: compile_regex(pattern, tokenizer, canonical=True, limits=LIMITS))
    compile_regex(pattern, tokenizer)  # what the vocabulary keeps in memory is there before the clock starts
    times: tuple[list[float], list[float]] = [], []
    for _ in range(3 if cold > 1000 else 15):
        times[0].append(_cpu_ms(lambda: compile_regex(pattern, tokenizer)))
        times[1].append(_cpu_ms(lambda: compile_regex(pattern, tokenizer, canonical=True, limits=LIMITS)))
    plain, own = compile_regex(pattern, tokenizer), compile_regex(pattern, tokenizer, canonical=True, limits=LIMITS)
    median = [float(np.median(each)) for each in times]
    rng = np.random.default_rng(0)
    steps = decided = decided_plain = 0
    for _ in range(walks):
        walk, other = CanonicalWalk(own, tables), plain.walk()
        for left in range(120, 0, -1):
            choices = np.flatnonzero(walk.allowed(left))
            steps += 1
            decided += len(choices) == 1
            decided_plain += int(other.allowed(left).sum()) == 1
            if not len(choices):
                break
            token = int(rng.choice(choices))
            walk.advance(token)
            other.advance(token)
            if walk.finished:
                break
    return {
        "compile_cpu_ms": {
            "plain": round(median[0], 2), "canonical": round(median[1], 2), "ratio": round(median[1] / median[0], 1),
            "canonical_first": round(cold, 1),
        },
        "bytes": {"plain": plain.nbytes, "canonical": own.nbytes, "ratio": round(own.nbytes / plain.nbytes, 2)},
        "steps": steps, "one_choice": {"plain": round(decided_plain / steps, 3), "canonical": round(decided / steps, 3)},
    }  # fmt: skip


def _cpu_ms(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return 1e3 * (time.process_time() - begin)


if __name__ == "__main__":
    main()
