"""Does every Python function parse that the small programmer writes with the grammar `python`, and how many without it?

    python benchmarks/programs.py

Comments that training has left out are prompts; the constraint is one function of the library's grammar. Every text is judged by
`ast.parse`: with and without the constraint at several temperatures, and with little room, where all blocks have to be closed in
time. Raw figures go to `benchmarks/results/programs.json`.
"""

# ruff: noqa: E402 (imports from the checkout)

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "programs.json"
sys.path[:0] = [str(HERE.parent)]

import jax

import fsa_compile
import jax_decode
import models
from fsa_compile import library
from tools.small_model import program_corpus

FUNCTION = "\n%override start: def_head block\n"
TEMPERATURES = (0.7, 1.0, 1.3)
ROOM, LITTLE = 192, 40


def prompts(count: int) -> list[str]:
    """Comments that ask for a function, none of them in the training text."""
    rng, out = random.Random(26), list[str]()
    while len(out) < count:
        prompt = program_corpus.program(rng).prompt
        if program_corpus.is_held_out(prompt):
            out.append(prompt)
    return out


def parses(text: str) -> bool:
    """Whether Python reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            return False
    return True


def depth(text: str) -> int:
    """How many blocks are inside each other."""

    def of(node: ast.AST) -> int:
        inner = max((of(child) for child in ast.iter_child_nodes(node)), default=0)
        return inner + isinstance(getattr(node, "body", None), list)

    return of(ast.parse(text)) - 1


def measured(decoder: Any, tables: Any, tokenizer: Any, asked: list[str], temperature: float) -> list[dict[str, Any]]:
    """How many texts parse: of free rows, constrained ones, and constrained ones with little room, all in one batch."""
    kinds = [(False, ROOM), (True, ROOM), (True, LITTLE)]
    out = jax_decode.generate(
        decoder,
        asked * len(kinds),
        tables,
        tokenizer=tokenizer,
        key=jax.random.key(26),
        sampler=jax_decode.Categorical(temperature),
        max_new_tokens=[room for _, room in kinds for _ in asked],
        constraint=[0 if held else None for held, _ in kinds for _ in asked],
        stop_ids=list(tokenizer.vocabulary.stop_ids),
        raw_logprobs=False,
    )
    found = []
    for kind, (constrained, room) in enumerate(kinds):
        rows = slice(kind * len(asked), (kind + 1) * len(asked))
        texts = out.text()[rows]
        right = [text for text in texts if parses(text)]
        row: dict[str, Any] = {"constrained": constrained, "temperature": temperature, "max_new_tokens": room}
        row |= {"texts": len(texts), "parse": len(right)}
        row["one_function"] = sum([type(s) for s in ast.parse(text).body] == [ast.FunctionDef] for text in right)
        row |= {"most_blocks": max(map(depth, right), default=0), "tokens": int(out.lengths[rows].sum())}
        row["refused"] = [text for text in texts if not parses(text)][:3]
        found.append(row)
    return found


def main() -> None:
    """Runs everything and writes the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=80, help="functions of each kind and temperature")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    tokenizer, asked = fsa_compile.load_tokenizer(models.small_tokenizer_path()), prompts(options.count)
    started = time.process_time()
    limits = fsa_compile.CompileLimits(max_seconds=600)
    grammar = library.grammar_text("python") + FUNCTION
    constraint = fsa_compile.compile_grammar(grammar, tokenizer, limits=limits, **library.options("python"))
    report: dict[str, Any] = {"compile_cpu_seconds": round(time.process_time() - started, 1)}
    report |= {"constraint_bytes": constraint.nbytes, "device": jax.devices()[0].device_kind, "jax": jax.__version__}
    report |= {"python": sys.version.split()[0], "rows": []}
    decoder, tables = models.load_small_programmer(), jax_decode.to_device(constraint)
    for temperature in TEMPERATURES:
        report["rows"] += measured(decoder, tables, tokenizer, asked, temperature)
        print(*map(json.dumps, report["rows"][-3:]), sep="\n", flush=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
