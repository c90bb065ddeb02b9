"""Are random outputs of the constrained sampler calls, for readers that know nothing of the project, in every protocol?

    python benchmarks/protocol_samples.py --data ../shared/data [--turns 100000] [--protocols qwen3 gemma4]

Function sets of the Berkeley Function Calling Leaderboard, `tool_choice="required"`; every second constraint is put together
from known parts. A model of constant logits, which prefers special tokens and quotation marks so that strings end, samples
batches of 1,120 rows on the device, 16 constraints in each. Every turn is read by `tests/oracles/call_readers.py`, its
arguments are validated by jsonschema, and `parse_response` has to find the same calls. The protocols take turns, and
`benchmarks/results/protocol_samples.json` is written after every batch: a run goes on with what it holds.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema

HERE = Path(__file__).resolve().parent
sys.path[:1] = [str(HERE.parent), str(HERE.parent / "tests")]  # in place of this folder, which has a `protocols` of its own

from oracles.call_readers import read_calls  # noqa: E402
from protocols import bfcl  # noqa: E402
from protocols.turns import PIECES, names_of  # noqa: E402

from fsa_compile import PROTOCOLS, Vocabulary, compile_response, parse_response  # noqa: E402
from jax_decode import Categorical, FunctionDecoder, Status, announce_compilation, generate, to_device  # noqa: E402

RESULTS = HERE / "results" / "protocol_samples.json"
SIZE = 288
ROWS, CONSTRAINTS = 1_120, 16
MOST_TOKENS = 300


def vocabulary_of(protocol: Any) -> Vocabulary:
    """Bytes, a few longer tokens and a protocol's special tokens; one size for all protocols, so that they share a program."""
    tokens, names = [*(bytes([byte]) for byte in range(256)), *PIECES], names_of(protocol)
    ids = {name: len(tokens) + place for place, name in enumerate(names)}
    padded = [*tokens, *[b""] * (SIZE - len(tokens))]
    return Vocabulary.from_tokens(padded, special=ids, stop_ids=[ids[name] for name in protocol.stops])


def _apply(logits: jax.Array, tokens: jax.Array, cache: Any, lengths: jax.Array) -> tuple[jax.Array, Any]:
    return jnp.broadcast_to(logits, (*tokens.shape, SIZE)), cache


def _no_cache(batch: int, length: int) -> tuple[()]:
    return ()


def decoder_of(vocabulary: Vocabulary) -> FunctionDecoder:
    """The model: tokens that end strings and calls are 16 times as likely as others."""
    wanted = {*vocabulary.special.values(), *b"\"'})]"}
    logits = jnp.array([2.8 if token in wanted else 0.0 for token in range(SIZE)], jnp.float32)
    return FunctionDecoder(_apply, logits, _no_cache, SIZE)


def constraints_of(name: str, vocabulary: Vocabulary, sets: list[list[dict[str, Any]]]) -> list[tuple[list[dict[str, Any]], Any]]:
    """(functions, constraint) of every set; every second one with the functions of the set before, all of them known by then."""
    out = []
    for number, functions in enumerate(sets):
        asked = {"protocol": name, "tool_choice": "required", "reasoning": "off" if PROTOCOLS[name].reasoning else "allowed"}
        made = compile_response(vocabulary, tools=functions, **asked)
        if number % 2:
            own = {function["name"] for function in functions}
            functions = functions + [function for function in sets[number - 1] if function["name"] not in own]
            made = compile_response(vocabulary, tools=functions, **asked)
        out.append((functions, made))
    return out


def check(name: str, vocabulary: Vocabulary, functions: list[dict[str, Any]], ids: list[int]) -> int:
    """The number of calls of a turn; an AssertionError where one is wrong."""
    calls = read_calls(name, ids, list(vocabulary.tokens), dict(vocabulary.special))
    schemas = {f["name"]: jsonschema.Draft202012Validator(bfcl.json_schema(f["parameters"])) for f in functions}
    assert calls
    assert all(schemas[called].is_valid(arguments) for called, arguments in calls), calls
    found = parse_response(ids, vocabulary, protocol=name, tools=functions, tool_choice="required")
    assert [(call.name, call.arguments) for call in found.calls] == calls, calls
    return len(calls)


def add_batch(row: dict[str, Any], entries: list[Any], seed: int) -> None:
    """Samples and reads one batch, and adds what is found to the counts of its protocol."""
    name, begin = row["protocol"], time.process_time()
    vocabulary, rng = vocabulary_of(PROTOCOLS[name]), random.Random(f"{name} {seed} {row['turns']}")
    pairs = constraints_of(name, vocabulary, [functions for _, functions, _ in rng.sample(entries, CONSTRAINTS)])
    which = [r % CONSTRAINTS for r in range(ROWS)]
    made = generate(
        decoder_of(vocabulary), [[0]] * ROWS, to_device([constraint for _, constraint in pairs]), constraint=which,
        max_new_tokens=MOST_TOKENS, key=jax.random.key(rng.randrange(1 << 30)), sampler=Categorical(1.0),
        raw_logprobs=False, bos_id=False,
    )  # fmt: skip
    row["function_sets"] += CONSTRAINTS
    for r in range(ROWS):
        ids = made.tokens[r].tolist()
        row["turns"] += 1
        row["tokens"] += len(ids)
        try:
            assert made.status[r] == Status.ACCEPTED, made.status[r]
            row["calls"] += check(name, vocabulary, pairs[which[r]][0], ids)
        except Exception as error:  # what is wrong is counted, and shown
            functions = [function["name"] for function in pairs[which[r]][0]]
            row["wrong"].append({"functions": functions, "ids": ids, "error": f"{type(error).__name__}: {error}"[:400]})
    row["processor_s"] = round(row["processor_s"] + time.process_time() - begin, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--protocols", nargs="*", default=list(PROTOCOLS))
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    announce_compilation(False)
    entries = [entry for name in ("simple_python", "multiple", "parallel") for entry in bfcl.entries(options.data, name)]
    rows = {row["protocol"]: row for row in json.loads(options.output.read_text())["rows"]} if options.output.exists() else {}
    new = {"turns": 0, "calls": 0, "tokens": 0, "function_sets": 0, "wrong": [], "processor_s": 0.0}
    wanted = -(-options.turns // len(PROTOCOLS))
    while some := [name for name in options.protocols if rows.get(name, new)["turns"] < wanted]:
        for name in some:
            row = rows.setdefault(name, {"protocol": name, **copy.deepcopy(new)})
            add_batch(row, entries, options.seed)
            wrong = len(row["wrong"])
            print(f"{name:15} {row['turns']:,} turns, {row['calls']:,} calls, {wrong} wrong, {row['processor_s']} s", flush=True)
            kept = [rows[name] for name in PROTOCOLS if name in rows]
            about = {"turns": sum(row["turns"] for row in kept), "wrong": sum(len(row["wrong"]) for row in kept)}
            options.output.write_text(json.dumps({"about": about, "rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
