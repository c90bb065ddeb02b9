"""What does each filter cost beside a constraint? Compile time and size over a real tokenizer, as JSON. Refused: more than 20 s.

    CONSTRAX_DATA=/path/to/data python benchmarks/filters.py [--names llama2 llama3] [--repeats 5]

Compile times are medians of the processor's time, with and without the filter in turns, everything the vocabulary keeps being
there; `first_ms` is the first time, when the filter's automaton is made (and kept).
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

from fsa_compile import CompileLimits, compile_regex, filters, load_tokenizer  # noqa: E402
from fsa_compile.errors import ConstraintError  # noqa: E402
from fsa_compile.tokenizers import Tokenizer  # noqa: E402

LIMITS = CompileLimits(max_seconds=20)
CONSTRAINTS = {
    "quoted text": r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
    "40 characters": r"(?s).{0,40}",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
}
FILTERS: dict[str, Callable[[], filters.Filter]] = {
    "valid_utf8()": filters.valid_utf8,
    "ascii()": filters.ascii,
    'characters("a…z 0…9 .,")': lambda: filters.characters("abcdefghijklmnopqrstuvwxyz 0123456789.,\"-"),
    'scripts(["Latin"])': lambda: filters.scripts(["Latin"]),
    'scripts(["Latin", "Hangul", "Cyrillic"])': lambda: filters.scripts(["Latin", "Hangul", "Cyrillic"]),
    "nfc_inert()": filters.nfc_inert,
    "nfc(max_marks=1)": lambda: filters.nfc(max_marks=1),
    'forbid("foo", "bar")': lambda: filters.forbid("foo", "bar"),
    "words(1,000)": lambda: filters.words(["word" + "".join(chr(97 + i // 26**k % 26) for k in range(3)) for i in range(1000)]),
    "length(at_most=40)": lambda: filters.length(at_most=40),
    'length(at_most=8, unit="words")': lambda: filters.length(at_most=8, unit="words"),
    'length(at_most=80, unit="bytes")': lambda: filters.length(at_most=80, unit="bytes"),
    "byte_fallback()": filters.byte_fallback,
    "fused_spaces()": filters.fused_spaces,
    "token_count(at_most=16)": lambda: filters.token_count(at_most=16),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=["llama2", "llama3"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "filters.json")
    args = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA") or HERE.parents[1] / "shared" / "data")
    result: dict[str, Any] = {}
    for name in args.names:
        tokenizer = load_tokenizer(data / "tokenizers" / name)
        result[name] = {}
        for what, pattern in CONSTRAINTS.items():
            result[name][what] = {}
            for passing, make in FILTERS.items():
                found = result[name][what][passing] = measure(pattern, make, tokenizer, args.repeats)
                print(name, what, passing, json.dumps(found), flush=True)
                args.output.write_text(json.dumps(result, indent=1) + "\n")


def measure(pattern: str, make: Callable[[], filters.Filter], tokenizer: Tokenizer, repeats: int) -> dict[str, Any]:
    def narrowed() -> Any:
        return compile_regex(pattern, tokenizer, filters=[make()], limits=LIMITS)

    plain = compile_regex(pattern, tokenizer)
    try:
        first = _cpu_ms(narrowed)
    except ConstraintError as error:
        return {"refused": str(error).splitlines()[0]}
    times: tuple[list[float], list[float]] = [], []
    for _ in range(1 if first > 10_000 else repeats):
        times[0].append(_cpu_ms(lambda: compile_regex(pattern, tokenizer)))
        times[1].append(_cpu_ms(narrowed))
    made = narrowed()
    without, beside = (float(np.median(each)) for each in times)
    return {
        "compile_cpu_ms": {"plain": round(without, 2), "filtered": round(beside, 2), "first_ms": round(first, 1)},
        "nodes": {"plain": plain.num_nodes, "filtered": made.num_nodes},
        "bytes": {"plain": plain.nbytes, "filtered": made.nbytes},
    }


def _cpu_ms(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return 1e3 * (time.process_time() - begin)


if __name__ == "__main__":
    main()
