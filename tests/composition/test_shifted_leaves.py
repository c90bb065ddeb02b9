"""Leaves that do the same again and again: what is not walked is as if it had been."""

from __future__ import annotations

from typing import Any

import pytest

from fsa_compile.composition.compose import compose_machine
from fsa_compile.composition.pushdown import pushdown_walk as stack_walk
from fsa_compile.composition.pushdown import shifted_leaves
from fsa_compile.composition.pushdown import summaries as leaf_walks
from fsa_compile.composition.pushdown.shifted_leaves import Shift, shift_of
from fsa_compile.json_schema import schema_machine
from fsa_compile.vocabulary import Vocabulary
from tests.composition.test_default_transitions import contents


def _told_apart(value: dict[str, Any]) -> dict[str, Any]:
    """A schema to which it matters whether a member has a value, whatever it has."""
    first = {"type": "object", "properties": {"a": value, "b": {"type": "null"}}, "required": ["a"], "additionalProperties": False}
    other = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": [1]}}, "required": ["a", "b"]}
    return {"anyOf": [first, other]}


_SCHEMAS: dict[str, tuple[Any, bool]] = {
    "upper bound": (_told_apart({"type": "string", "maxLength": 60}), True),
    "both bounds": (_told_apart({"type": "string", "minLength": 3, "maxLength": 50}), True),
    "one bound after another": (_told_apart({"anyOf": [{"minLength": 70, "maxLength": 140}, {"maxLength": 5}]}), True),
    "a shape": ({"type": "array", "items": {"type": "string", "pattern": "^[a-z]{90}(-[0-9]+)?$"}}, True),
    "two shapes": ({"type": "array", "items": {"type": "string", "pattern": "^([a-z]{120}|[A-Z]{40}[a-z]é?)$"}}, True),
    "in turns": ({"type": "array", "items": {"type": "string", "pattern": "^(..)*x$"}}, False),
    "no bound": ({"type": "array", "items": {"type": "string"}}, False),
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    texts = [x * n + end for x in ("a", "é", "Z", r"\n", r"\u00") for n in (1, 2, 5, 7) for end in ("", "@", '"', '","b', "a-7", '"}')]
    letters = [x.encode() for x in "abcdefghijklmnopqrstuvwxyz"]
    tokens = [bytes([b]) for b in range(256)] + [text.encode()[:16] for text in dict.fromkeys(texts)] + [b"\x82\xacx", b"a" * 15 + b'"']
    tokens += [*(a + b for a in letters for b in letters), b""]
    return Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1])


@pytest.mark.parametrize("name", _SCHEMAS)
def test_as_if_walked(name: str, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, is_shifted = _SCHEMAS[name]
    machine = schema_machine(schema)
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    monkeypatch.setattr(shifted_leaves, "_FEWEST_CONTROLS", 1)
    found: list[Shift | None] = []
    monkeypatch.setattr(stack_walk, "shift_of", lambda *given: (found.append(shift_of(*given)), found[-1])[1])
    leaf_walks.forget_summaries()
    made = contents(compose_machine(machine, vocabulary, source=""))
    assert any(shift is not None for shift in found) == is_shifted
    leaf_walks.forget_summaries()
    monkeypatch.setattr(stack_walk, "shift_of", lambda *_: None)
    assert made == contents(compose_machine(machine, vocabulary, source=""))
    leaf_walks.forget_summaries()


def test_small_leaves_are_walked(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Shift | None] = []
    monkeypatch.setenv("CONSTRAX_CACHE", "")
    monkeypatch.setattr(stack_walk, "shift_of", lambda *given: (found.append(shift_of(*given)), found[-1])[1])
    leaf_walks.forget_summaries()
    compose_machine(schema_machine(_told_apart({"type": "string", "maxLength": 20})), vocabulary, source="")
    assert found
    assert all(shift is None for shift in found)
