"""Is everything valid that a random model writes under JSON Schemas in the jitted loop?

    CONSTRAX_DATA=... python benchmarks/schema_generation.py [--schemas 500] [--vocabulary gpt2] [--key-order declared]

Random schemas of the development split of MaskBench, each under four limits on the number of tokens, in batches of eight schemas:
a random model that likes quotes, brackets and digits writes, `jax_decode.generate` masks. A text is right when its sequence ended
as accepted within its limit and python-jsonschema, formats asserted, calls it valid. Every batch is saved when it is done, and a
run goes on where an earlier one stopped; `benchmarks/results/schema_generation.json` keeps, per schema, (tokens, characters) of
its texts, and what was wrong (`schema_generation_any_order.json`: with keys in every order).
"""

from __future__ import annotations

import argparse
import decimal
import json
import os
import random
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np

import fsa_compile
import jax_decode
from benchmarks.schema_conformance import options_of, rows_of
from jax_decode import Status

RESULTS = Path(__file__).parent / "results" / "schema_generation.json"
STRUCTURE = b'"{}[],:0123456789'
EXTRA_TOKENS = (0, 6, 20, 60)
"""Tokens that the texts of a schema may have beyond the fewest."""
EXTRA_DEPTH = 6
BATCH = 8
"""Schemas in one batch."""
MOST_CHARACTERS = 20_000
"""Of a schema's text."""


def generated(batch, vocabulary: fsa_compile.Vocabulary, seed: int):
    """(what was asked for, tokens, status) of every sequence: each (row, artifact) under several limits."""
    asked = [
        (row, made, made.shortest_completion + 1 + tokens, made.shortest_depth + EXTRA_DEPTH)
        for row, made in batch
        for tokens in EXTRA_TOKENS
    ]
    out = jax_decode.generate(
        structure_lover(vocabulary, seed),
        [[7 * i % vocabulary.size] for i in range(len(asked))],
        jax_decode.to_device([made for _, made in batch]),
        key=jax.random.key(seed),
        constraint=[i for i in range(len(batch)) for _ in EXTRA_TOKENS],
        max_new_tokens=[limit for _, _, limit, _ in asked],
        max_depth=[depth for _, _, _, depth in asked],
        sampler=jax_decode.Categorical(),
        raw_logprobs=False,
    )
    stop = set(vocabulary.stop_ids)
    return asked, [[t for t in map(int, tokens) if t not in stop] for tokens in out.tokens], out.status


def structure_lover(vocabulary: fsa_compile.Vocabulary, seed: int) -> jax_decode.FunctionDecoder:
    """A random bigram model that adds to the logits of tokens with quotes, brackets and digits, so that strings end."""
    count = [sum(byte in STRUCTURE for byte in data) for data in vocabulary.tokens]
    first, second = jax.random.split(jax.random.key(seed))
    params = (
        jax.random.normal(first, (vocabulary.size, 8), jnp.float32),
        jax.random.normal(second, (8, vocabulary.size), jnp.float32),
        jnp.asarray(2.5 * np.minimum(count, 2), jnp.float32),
    )
    return jax_decode.FunctionDecoder(
        lambda p, tokens, cache, lengths: (p[0][tokens] @ p[1] + p[2], cache + lengths),
        params,
        lambda batch, length: jnp.zeros((batch,), jnp.int32),
        vocabulary.size,
    )


def fault(row: dict[str, Any], text: str) -> str | None:
    """What is wrong with a text: no JSON, or invalid; None when nothing is.

    Numbers are decimals, of which 1.0 is an integer, as the standard has it.
    """
    doubled = []

    def pairs(items):
        doubled.extend([key for key, _ in items] if len(dict(items)) < len(items) else [])
        return dict(items)

    try:
        instance = json.loads(text, parse_float=Decimal, object_pairs_hook=pairs)
    except ValueError as error:
        return f"no JSON: {error}"
    schema = json.loads(json.dumps(row["schema"]), parse_float=Decimal)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    types = kind.TYPE_CHECKER.redefine("integer", lambda _, x: _is_number(x) and x == int(x))
    formats = kind.FORMAT_CHECKER  # the draft's own: in draft 3 a time has no zone
    validator = jsonschema.validators.extend(kind, type_checker=types.redefine("number", lambda _, x: _is_number(x)))
    with decimal.localcontext(prec=5_000):  # remainders of long numbers are exact, too
        errors = list(validator(schema, format_checker=formats).iter_errors(instance))
    if doubled:  # additional keys may come twice: each counts
        errors = [error for error in errors if error.validator not in ("minProperties", "dependentRequired")]
    return errors[0].message if errors else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def judged(batch, vocabulary: fsa_compile.Vocabulary, seed: int) -> tuple[dict[str, list[tuple[int, int]]], list[dict[str, Any]]]:
    """(tokens, characters) of the texts of each schema of a batch; and the texts that are wrong."""
    sizes: dict[str, list[tuple[int, int]]] = {row["name"]: [] for row, _ in batch}
    wrong = []
    for (row, _, limit, _), tokens, status in zip(*generated(batch, vocabulary, seed), strict=True):
        text = vocabulary.decode(tokens)
        sizes[row["name"]].append((len(tokens), len(text)))
        if status != Status.ACCEPTED or len(tokens) > limit:
            why: str | None = f"{Status(int(status)).name}, {len(tokens)} of {limit} tokens"
        else:
            why = fault(row, text)
        if why is not None:
            wrong.append({"schema": row["name"], "seed": seed, "why": why[:500], "text": text})
    return sizes, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--vocabulary", default="gpt2")
    parser.add_argument("--key-order", choices=["declared", "any"], default="declared")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = Path(os.environ.get("CONSTRAX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    vocabulary = fsa_compile.load_tokenizer(folder / "tokenizers" / options.vocabulary).vocabulary
    report = {"vocabulary": options.vocabulary, "texts": 0, "wrong": [], "sizes": {}, "refused": {}, "seconds": 0.0}
    if options.output.exists():
        report = json.loads(options.output.read_text())
    rows = rows_of("dev", folder)
    random.Random(5).shuffle(rows)
    batch, refused = [], {}
    for row in rows:
        name = row["name"]
        if name in report["sizes"] or name in report["refused"] or len(json.dumps(row["schema"])) > MOST_CHARACTERS:
            continue
        if len(report["sizes"]) >= options.schemas:
            break
        started = time.process_time()
        try:
            how = options_of(row, "dev", options.key_order)
            made = fsa_compile.compile_json_schema(row["schema"], vocabulary, options=how)
        except fsa_compile.ConstraintError as error:
            refused[name] = str(error)
        else:
            batch.append((row, made))
        if len(batch) == BATCH:
            sizes, wrong = judged(batch, vocabulary, len(report["sizes"]))
            report["sizes"] |= sizes
            report["refused"] |= refused
            report["wrong"] += wrong
            report["texts"] = sum(map(len, report["sizes"].values()))
            batch, refused = [], {}
            options.output.write_text(json.dumps(report) + "\n")
            print(report["texts"], "texts,", len(report["wrong"]), "wrong", flush=True)
        report["seconds"] = round(report["seconds"] + time.process_time() - started, 1)
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
