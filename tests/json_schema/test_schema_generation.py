"""Random schemas of the dev split in the jitted loop: what a random model writes under them validates, formats asserted."""

from __future__ import annotations

import json
import random

import pytest

import fsa_compile
from benchmarks.schema_conformance import options_of, rows_of
from benchmarks.schema_generation import BATCH, EXTRA_TOKENS, fault, judged


def test_what_is_generated_validates(data_dir) -> None:
    """32 texts of 8 schemas; `benchmarks/schema_generation.py` makes 2,000 of 500."""
    vocabulary = fsa_compile.load_tokenizer(data_dir / "tokenizers" / "gpt2").vocabulary
    sizes, wrong = judged(sample(data_dir, vocabulary), vocabulary, seed=0)
    assert not wrong
    assert sum(map(len, sizes.values())) == len(EXTRA_TOKENS) * BATCH


def sample(data_dir, vocabulary):
    """Random small schemas of the split, with their artifacts."""
    rows = rows_of("dev", data_dir)
    random.Random(5).shuffle(rows)
    out = []
    for row in rows:
        if len(json.dumps(row["schema"])) < 3_000:
            try:
                made = fsa_compile.compile_json_schema(row["schema"], vocabulary, options=options_of(row, "dev"))
            except fsa_compile.ConstraintError:
                continue
            out.append((row, made))
            if len(out) == BATCH:
                break
    return out


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"format": "date-time"}, '"2023-02-29T23:59:00Z"'),
        ({"format": "date-time"}, '"x"'),
        ({"type": "integer"}, "1.5"),
        ({"multipleOf": 0.1, "maximum": 1}, "0.35"),
        ({"multipleOf": 0.1, "maximum": 1}, "1.1"),
        ({}, '{"a": 1'),
    ],
)
def test_the_judge_refuses(schema, text):
    """The judge itself tells wrong texts: formats, bounds, integers."""
    assert fault({"name": "", "schema": schema}, text) is not None


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"format": "date-time"}, '"2024-02-29T23:59:00Z"'),
        ({"type": "integer"}, "1.0"),
        ({"multipleOf": 0.1, "maximum": 1}, "0.3"),
        ({"multipleOf": 1.0}, "-" + "1" * 80),
        ({"minProperties": 2}, '{"a": 1, "a": 2}'),
    ],
)
def test_the_judge_accepts(schema, text):
    assert fault({"name": "", "schema": schema}, text) is None
