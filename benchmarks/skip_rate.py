"""Which share of a template's tokens needs no model: steps that leave one choice, with and without canonical tokens?

    CONSTRAX_DATA=/path/to/data python benchmarks/skip_rate.py [--names llama2 small] [--texts 200]

Cognetta et al. 2025 report 24.5 % without and 77.9 % with canonical tokens, for the template of their Appendix C and Llama 2, on
texts that the model wrote. Neither the appendix nor the weights were at hand here: the templates below are of the kind that the
paper describes (fixed text around slots that are choices, numbers or short words), made for this benchmark, and texts are drawn
uniformly, slot by slot. The share depends on how much of a template is fixed, so there are several, each with its share of fixed
characters.

Counted, over all steps of all texts, the end of text included:
  canonical       canonical=True, on the tokenizer's own tokens of the text;
  same tokens     every tokenization is allowed, on the same tokens;
  no ASCII bytes  the same, with byte tokens only for characters without a token of their own (as the paper's filters leave it);
  any tokens      every tokenization is allowed, and the tokens are drawn uniformly among the allowed ones.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import models  # noqa: E402
from fsa_compile import CanonicalWalk, canonical_tables, compile_regex, load_tokenizer  # noqa: E402
from fsa_compile.prompts.continuation import encode_continuation  # noqa: E402
from fsa_compile.tokenizers import Tokenizer  # noqa: E402

CITIES = ["Cologne", "Berlin", "Munich", "Hamburg", "Leipzig", "Vienna", "Zurich", "Salzburg"]
JOBS = ["teacher", "engineer", "musician", "farmer", "carpenter", "journalist"]
NAMES = ["Anna", "Boris", "Clara", "David", "Elena", "Frank", "Greta", "Hannah", "Ivan", "Julia"]
YEAR = [str(year) for year in range(1950, 2010)]
WORD = ["kettle", "garden", "window", "yellow", "bridge", "silver", "winter", "market"]

TEMPLATES: dict[str, list[str | list[str]]] = {
    "city in a sentence": ["The capital of the region is ", CITIES, ", and most people there work as a ", JOBS, "."],
    "form": ["Name: ", NAMES, "\nBorn: ", YEAR, "\nCity: ", CITIES, "\nOccupation: ", JOBS, "\nMarried: ", ["yes", "no"], "\n"],
    "JSON object": [
        '{"name": "', NAMES, '", "year_of_birth": ', YEAR, ', "birthplace": {"city": "', CITIES, '", "country": "Germany"}, ',
        '"occupation": "', JOBS, '", "is_active": ', ["true", "false"], "}",
    ],
    "JSON object with free words": [
        '{"name": "', NAMES, '", "favourite_word": "', "[a-z]{3,8}", '", "score": ', "[0-9]\\.[0-9]",
        ', "comment": "', "[a-z ]{3,20}", '"}',
    ],
}  # fmt: skip
"""Fixed texts, lists of choices, and patterns of letters (those with a bracket first)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=["llama2", "small"])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "skip_rate.json")
    args = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA") or HERE.parents[1] / "shared" / "data")
    result: dict[str, Any] = {"paper, its own template": {"any tokens": 0.245, "canonical": 0.779}, "texts": args.texts}
    for name in args.names:
        tokenizer = load_tokenizer(models.small_tokenizer_path() if name == "small" else data / "tokenizers" / name)
        result[name] = {what: measure(parts, tokenizer, args.texts) for what, parts in TEMPLATES.items()}
        for what, found in result[name].items():
            print(name, what, json.dumps(found), flush=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")


def pattern_of(parts: list[str | list[str]]) -> str:
    """The template as a regular expression."""
    out = []
    for part in parts:
        if isinstance(part, list):
            out.append("(" + "|".join(map(re.escape, part)) + ")")
        else:
            out.append(part if part.startswith("[") else re.escape(part))
    return "".join(out)


def text_of(parts: list[str | list[str]], rng: random.Random) -> tuple[str, int]:
    """A text drawn slot by slot, and how many of its characters are fixed."""
    out, fixed = [], 0
    for part in parts:
        if isinstance(part, list):
            out.append(rng.choice(part))
        elif part == "[0-9]\\.[0-9]":
            out.append(f"{rng.randrange(10)}.{rng.randrange(10)}")
        elif part.startswith("["):
            most = int(part.split(",")[1].rstrip("}"))
            words = [w for w in WORD if len(w) <= most]
            out.append(" ".join(rng.sample(words, 2 if " " in part else 1)))
        else:
            out.append(part)
            fixed += len(part)
    return "".join(out), fixed


def measure(parts: list[str | list[str]], tokenizer: Tokenizer, texts: int) -> dict[str, Any]:
    tables, pattern, rng = canonical_tables(tokenizer), pattern_of(parts), random.Random(0)
    compile_regex(pattern, tokenizer)
    start = time.process_time()
    plain = compile_regex(pattern, tokenizer)
    middle = time.process_time()
    own = compile_regex(pattern, tokenizer, canonical=True)
    end = time.process_time()
    vocabulary = tokenizer.vocabulary
    written: dict[bytes, list[int]] = {}
    for token, data in enumerate(vocabulary.tokens):
        written.setdefault(data, []).append(token)
    twice = np.zeros(vocabulary.size, bool)  # tokens of a byte that another token writes too: the byte tokens of ASCII characters
    for data, tokens in written.items():
        if len(data) == 1 and len(tokens) > 1:
            twice[min(tokens)] = True
    counts = dict.fromkeys(("canonical", "same tokens", "no ASCII bytes"), 0)
    steps = any_steps = any_decided = characters = fixed = 0
    draw = np.random.default_rng(0)
    for _ in range(texts):
        text, same = text_of(parts, rng)
        characters, fixed = characters + len(text), fixed + same
        walk, other = CanonicalWalk(own, tables), plain.walk()
        for token in [*encode_continuation(tokenizer, text), None]:
            allowed, every = walk.allowed(), other.allowed()
            steps += 1
            counts["canonical"] += int(allowed.sum()) == 1
            counts["same tokens"] += int(every.sum()) == 1
            counts["no ASCII bytes"] += int((every & ~twice).sum()) == 1
            if token is not None:
                walk.advance(token)
                other.advance(token)
        other = plain.walk()
        while not other.finished:
            choices = np.flatnonzero(other.allowed())
            any_steps += 1
            any_decided += len(choices) == 1
            if not len(choices):
                break
            other.advance(int(draw.choice(choices)))
    return {
        "fixed_characters": round(fixed / characters, 3),
        "one_choice": {name: round(count / steps, 3) for name, count in counts.items()}
        | {"any tokens": round(any_decided / any_steps, 3)},
        "steps_per_text": {"canonical": round(steps / texts, 1), "any tokens": round(any_steps / texts, 1)},
        "compile_cpu_ms": {"plain": round(1e3 * (middle - start), 1), "canonical": round(1e3 * (end - middle), 1)},
    }


if __name__ == "__main__":
    main()
