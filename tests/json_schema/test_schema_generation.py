"""Random schemas of the dev split in the jitted loop: what a random model writes under them validates, formats asserted."""

from __future__ import annotations

import decimal
import json
import random
import re
from decimal import Decimal

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest

import fsa_compile
import jax_decode
from benchmarks.schema_conformance import options_of, rows_of
from jax_decode import Status

STRUCTURE = b'"{}[],:0123456789'
EXTRA_TOKENS = (0, 6, 20, 60)
EXTRA_DEPTH = 6
BATCH = 8
"""Schemas in one batch."""


def test_what_is_generated_validates(data_dir, exhaustive: bool) -> None:
    """32 texts of 8 schemas by default, 2,000 of 500 exhaustively."""
    vocabulary = fsa_compile.load_tokenizer(data_dir / "tokenizers" / "gpt2").vocabulary
    chosen = sample(data_dir, vocabulary, 500 if exhaustive else BATCH)
    count = 0
    for at in range(0, len(chosen), BATCH):
        batch = chosen[at : at + BATCH]
        for (row, _constraint, limit, _depth), tokens, status in zip(*generated(batch, vocabulary, seed=at)):
            assert status == Status.ACCEPTED, (row["name"], status)
            assert len(tokens) <= limit
            check(row, vocabulary.decode(tokens))
            count += 1
    assert count >= (2000 if exhaustive else 4 * BATCH)


def sample(data_dir, vocabulary, number: int):
    """Random schemas of the split that compile in some seconds, with their artifacts."""
    rows = rows_of("dev", data_dir)
    random.Random(5).shuffle(rows)
    out = []
    for row in rows:
        if len(json.dumps(row["schema"])) < (20_000 if number > BATCH else 3_000):
            try:
                made = fsa_compile.compile_json_schema(row["schema"], vocabulary, options=options_of(row, "dev"))
            except fsa_compile.ConstraintError:
                continue
            out.append((row, made))
            if len(out) == number:
                break
    return out


def generated(batch, vocabulary, seed: int):
    """(what was asked for, tokens, status) of every sequence: each schema under several limits."""
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


def check(row, text: str) -> None:
    """Asserts that a text is JSON and valid; numbers are decimals, of which 1.0 is an integer, as the standard has it."""
    doubled = []

    def pairs(items):
        doubled.extend([key for key, _ in items] if len(dict(items)) < len(items) else [])
        return dict(items)

    instance = json.loads(text, parse_float=Decimal, object_pairs_hook=pairs)
    schema = json.loads(json.dumps(row["schema"]), parse_float=Decimal)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    types = kind.TYPE_CHECKER.redefine("integer", lambda _, x: is_number(x) and x == int(x))
    formats = kind.FORMAT_CHECKER  # the draft's own: in draft 3 a time has no zone
    validator = jsonschema.validators.extend(kind, type_checker=types.redefine("number", lambda _, x: is_number(x)))
    with decimal.localcontext(prec=5_000):  # remainders of long numbers are exact, too
        errors = list(validator(schema, format_checker=formats).iter_errors(instance))
    if doubled:  # additional keys may come twice: each counts
        errors = [error for error in errors if error.validator not in ("minProperties", "dependentRequired")]
    assert not errors, (row["name"], text, errors[0].message)


def is_number(value) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def test_the_judge_refuses():
    """The judge itself tells wrong texts: formats, bounds, integers."""
    schema = {"properties": {"d": {"format": "date-time"}, "i": {"type": "integer"}, "m": {"multipleOf": 0.1, "maximum": 1}}}
    check({"name": "", "schema": schema}, '{"d": "2024-02-29T23:59:00Z", "i": 1.0, "m": 0.3}')
    check({"name": "", "schema": {"multipleOf": 1.0}}, "-" + "1" * 80)
    for wrong in ('{"d": "2023-02-29T23:59:00Z"}', '{"i": 1.5}', '{"m": 0.35}', '{"m": 1.1}', '{"d": "x"}'):
        with pytest.raises(AssertionError, match=re.escape(wrong[1:4])):
            check({"name": "", "schema": schema}, wrong)
