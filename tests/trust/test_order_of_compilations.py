"""What a process compiled before, and has kept, changes no artifact."""

import dataclasses
import random

import numpy as np
import pytest

import fsa_compile
from fsa_compile import ConstraintError, Vocabulary
from fsa_compile.composition.pushdown.summaries import forget_summaries
from fsa_compile.vocabulary.vocabulary_tables import tables_for
from tests.json_schema.random_schemas import random_schema

_PIECES = ['"', '": ', '", "', "{}", "}}", "]}", '"}', "[[", "the", "al", "ing", "12", "00", "true", " ", "  ", "\\u00", "é", "日本"]


def vocabulary(size: int = 4_000) -> Vocabulary:
    """Bytes, pieces of JSON, and words put together from others: enough for rows of bits in pieces, and for kept loops."""
    rng, tokens = random.Random(70), {bytes([b]): None for b in range(256)}
    tokens |= {piece.encode(): None for piece in _PIECES}
    while len(tokens) < size:
        tokens[b"".join(rng.choices([*list(tokens)[-400:], b"a", b"e", b" t"], k=2))[:12]] = None
    return Vocabulary.from_tokens([*tokens, b""], stop_ids=[size])


def compilations() -> list:
    """Functions that compile something over a vocabulary."""
    rng = random.Random(24)
    schemas = [
        True,
        {"type": "object", "properties": {f"name{i}": {"type": "string"} for i in range(6)}},
        {"type": "object", "properties": {f"name{i}": {"type": "string", "maxLength": 40} for i in range(3)}},
        {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "additionalProperties": False},
        {"type": "array", "items": {"type": "string", "format": "date-time"}},
        *({"type": "object", "properties": {"a": {"type": "string", "minLength": low, "maxLength": 90}}} for low in (0, 20)),
        *({"type": "array", "items": {"type": "integer"}, "minItems": low, "maxItems": 90} for low in (0, 50)),
        {"type": "object", "properties": {"name": {"type": "string"}, "name2": True, "nap": True}},
        *(random_schema(rng, 3) for _ in range(3)),
    ]
    patterns = [r"[a-z ]{3,60}\.", r"[a-z ]{3,90}\.", r'"[^"\\]*"', r"(?s).*the.*", r"(?s).*ing.*"]
    made = [lambda v, s=schema: fsa_compile.compile_json_schema(s, v) for schema in schemas]
    return [*made, *(lambda v, p=pattern: fsa_compile.compile_regex(p, v) for pattern in patterns)]


def contents(compile_one, over: Vocabulary) -> dict:
    """The fields of an artifact, bytes of arrays; of an error its text."""
    try:
        made = compile_one(over)
    except ConstraintError as error:
        return {"error": str(error)}
    values = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value):
    if hasattr(value, "__array__") or isinstance(value, np.ndarray):
        array = np.asarray(value)
        return array.dtype, array.shape, array.tobytes()
    return value


def test_artifacts_do_not_depend_on_what_was_compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    over, every = vocabulary(), compilations()
    tables = tables_for(over)

    def afresh() -> None:
        for kept in (tables.memo, tables.set_memo):
            kept.clear()
        forget_summaries()

    alone = []
    for compile_one in every:
        afresh()
        alone.append(contents(compile_one, over))
    assert sum("error" not in one for one in alone) > 15
    for turned in (1, -1):
        afresh()
        for _ in range(2):  # what is kept of a constraint itself changes nothing, either
            assert [contents(compile_one, over) for compile_one in every[::turned]][::turned] == alone
