"""Are the masks of pushdown constraints exact? The counted campaign over the grammar library.

    python benchmarks/grammar_conformance.py [--vocabularies llama3 gpt2] [--grammars json ...] [--scale 1.0]

For every grammar of the library and every vocabulary, at random positions reached by random spellings: what the mask says of
tokens (at random, with brackets, quotes and the like, of such characters only, and of the allowed ones) and of the end, against

* the byte machine, with its stacks written out: more than a million checks at scale 1, and at some positions all tokens;
* the recogniser of `tests/oracles/earley.py`, which reads the grammar itself: more than a hundred thousand. Some of the allowed
  tokens at every position are completed to whole texts, which the recogniser must accept.

Raw counts, and what was wrong, go to `benchmarks/results/grammar_conformance.json`. Exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from oracles.grammar_checks import Case, Tally, TokenSampler, check_machine, check_recogniser  # noqa: E402

import fsa_compile  # noqa: E402
from fsa_compile import library  # noqa: E402

MACHINE_POSITIONS, MACHINE_TOKENS, WHOLE = 150, 480, 5
RECOGNISER_POSITIONS, RECOGNISER_TOKENS, SHOWN = 200, 60, 6


def figures(tally: Tally) -> dict[str, Any]:
    """A tally for the file: of what was wrong or undecided only the first ones in full."""
    out = dataclasses.asdict(tally)
    for kind in ("wrong", "undecided"):
        out[kind] = {"count": len(out[kind]), "first": out[kind][:20]}
    return out


def run(name: str, sampler: TokenSampler, rng: random.Random, scale: float) -> dict[str, Tally]:
    """Both kinds of checks of one grammar over one vocabulary."""
    case = Case.of(name, sampler.vocabulary)
    prefixes = int(MACHINE_POSITIONS * scale)
    texts = case.texts(rng, int(RECOGNISER_POSITIONS * scale), 60)
    return {
        "machine": check_machine(
            case.constraint, case.sets, sampler, rng, prefixes=prefixes, tokens=MACHINE_TOKENS, whole=int(WHOLE * scale)
        ),
        "recogniser": check_recogniser(
            case.constraint, case.recogniser, texts, sampler, rng, tokens=RECOGNISER_TOKENS, shown=SHOWN
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    data = os.environ.get("CONSTRAX_DATA", HERE.parent.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=data, help="folder of the public test data")
    parser.add_argument("--vocabularies", nargs="+", default=["llama3", "gpt2"])
    parser.add_argument("--grammars", nargs="+", default=list(library.names()))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "grammar_conformance.json")
    options = parser.parse_args()
    result: dict[str, Any] = {"python": platform.python_version(), "scale": options.scale, "seed": options.seed, "runs": []}
    total = {"machine": Tally(), "recogniser": Tally()}
    for family in options.vocabularies:
        sampler = TokenSampler(fsa_compile.load_tokenizer(options.data / "tokenizers" / family).vocabulary)
        for name in options.grammars:
            began = time.process_time()
            found = run(name, sampler, random.Random(f"{options.seed} {name} {family}"), options.scale)
            seconds = round(time.process_time() - began, 1)
            result["runs"].append({"grammar": name, "vocabulary": family, "cpu_seconds": seconds})
            for kind, tally in found.items():
                total[kind].add(tally)
                result["runs"][-1][kind] = figures(tally)
                wrong = f"{len(tally.wrong)} wrong, {len(tally.undecided)} undecided"
                print(f"{family} {name}, {kind}: {tally.checks:,} checks, {wrong}", flush=True)
    result["total"] = {kind: figures(tally) for kind, tally in total.items()}
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    for kind, tally in total.items():
        print(f"against the {kind}: {tally.checks:,} checks ({tally.allowed:,} allowed), {len(tally.wrong)} wrong")
    return 1 if any(tally.wrong for tally in total.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
