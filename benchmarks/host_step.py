"""How long does a step on the host take: `fill_next_token_bitmask` and `accept_token` of a `Matcher`?

    python benchmarks/host_step.py [--texts 30] [--only NAME ...]

Over Llama-3's vocabulary (`$CONSTRAX_DATA`, else `../shared/data`), for every constraint of `compile_speed.py` and
`grammar_speed.py`: texts drawn at random from the masks (a third of the tokens uniformly, the rest among the hundred
shortest) and the constraint's own example, each followed by a new matcher.

* first: the first matcher of a constraint just compiled follows a text; nothing is known of any step.
* later: new matchers follow other texts of a constraint that earlier ones have followed.

Figures are microseconds of the thread's processor time for one step, both calls together, and wall time beside it. Writes
`benchmarks/results/host_step.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import compile_speed
import grammar_speed
import numpy as np

import fsa_compile
from fsa_compile import bitmask

RESULTS = Path(__file__).parent / "results" / "host_step.json"
LENGTH = 80


def made(tokenizer: Any, only: list[str]) -> list[tuple[str, Any, str]]:
    """Name, constraint and an accepted text of all."""
    out = []
    for c in compile_speed.constraints():
        if not only or c.name in only:
            maker = (lambda c=c: fsa_compile.compile_regex(c.pattern, tokenizer)) if c.pattern else None
            out.append((c.name, maker or (lambda c=c: fsa_compile.compile_choices(list(c.strings), tokenizer)), c.accept))
    for g in grammar_speed.constraints():
        if not only or g.name in only:
            if g.grammar is None:
                maker = lambda g=g: fsa_compile.compile_regex(g.regex, tokenizer)  # noqa: E731
            else:
                maker = lambda g=g: fsa_compile.compile_grammar(g.grammar, tokenizer, **g.options)  # noqa: E731
            out.append((g.name, maker, g.accept))
    return out


def drawn(constraint: Any, tokenizer: Any, rng: random.Random) -> list[int]:
    """A text of the constraint, at most `LENGTH` tokens of it."""
    walk, out = constraint.walk(), list[int]()
    lengths = np.array([len(t) for t in tokenizer.vocabulary.tokens])
    while len(out) < LENGTH:
        ids = np.flatnonzero(walk.allowed())
        ids = ids[~np.isin(ids, constraint.stop_ids)]
        if not len(ids):
            break
        if rng.random() < 0.67:
            ids = ids[np.argsort(lengths[ids], kind="stable")[:100]]
        out.append(int(rng.choice(ids.tolist())))
        walk.advance(out[-1])
    return out


def followed(constraint: Any, text: list[int], words: np.ndarray) -> list[tuple[int, int]]:
    """Nanoseconds of processor and wall time of every step."""
    matcher, out = fsa_compile.Matcher(constraint), []
    for token in text:
        wall, begin = time.perf_counter_ns(), time.thread_time_ns()
        matcher.fill_next_token_bitmask(words, 0)
        ok = matcher.accept_token(token)
        out.append((time.thread_time_ns() - begin, time.perf_counter_ns() - wall))
        assert ok
    return out


def figures(steps: list[tuple[int, int]]) -> dict[str, Any]:
    """Median and high quantiles."""
    cpu, wall = (np.array(x) / 1e3 for x in zip(*steps))
    show = lambda x: {q: round(float(np.quantile(x, p)), 2) for q, p in (("median", 0.5), ("p99", 0.99), ("p99.9", 0.999))}  # noqa: E731
    return {"steps": len(cpu), "cpu_us": show(cpu), "wall_us": show(wall)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    data = Path(os.environ.get("CONSTRAX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    tokenizer = fsa_compile.load_tokenizer(data / "tokenizers" / "llama3" / "tokenizer.model")
    words = bitmask.allocate_bitmask(1, len(tokenizer.vocabulary.tokens))
    each, all_first, all_later = {}, [], []
    for name, maker, accept in made(tokenizer, options.only):
        try:
            constraint = maker()
        except fsa_compile.ConstraintError as error:
            print(name, "is not compiled:", str(error).splitlines()[0], flush=True)
            continue
        rng = random.Random(name)
        texts = [tokenizer.encode(accept), *(drawn(constraint, tokenizer, rng) for _ in range(options.texts))]
        fresh = maker()
        gc.collect()
        first = followed(fresh, texts[1], words) if texts[1] else []
        for text in texts[: 1 + options.texts // 2]:
            followed(fresh, text, words)
        later = [step for text in texts[1 + options.texts // 2 :] for step in followed(fresh, text, words)]
        all_first += first
        all_later += later
        each[name] = {"first": figures(first), "later": figures(later)}
        print(name, each[name], flush=True)
    every = {"first": figures(all_first), "later": figures(all_later)}
    results = {"vocabulary": "llama3", "load": round(os.getloadavg()[0], 2), "all": every, "each": each}
    print(results["all"])
    if not options.only:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
