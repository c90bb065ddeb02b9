"""Machines with their stacks written out: the same language, byte by byte, or nothing."""

from __future__ import annotations

import pytest
from oracles import machines

from fsa_compile.byte_machine import ByteMachine
from fsa_compile.flatten import flattened
from fsa_compile.grammar_machine import machine_of
from fsa_compile.json_schema import compile_json_schema, schema_machine
from fsa_compile.lark_syntax import parse_lark
from fsa_compile.promote import promote_machine
from fsa_compile.vocabulary import Vocabulary

SCHEMAS = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "short list": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    "closed object": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}, "on": {"type": "boolean"}},
        "required": ["tags"],
        "additionalProperties": False,
    },
    "objects in objects": {
        "type": "object",
        "properties": {k: {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False} for k in "ab"},
        "additionalProperties": False,
    },
    "alternatives": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^a+$"}, {"type": "null"}]},
}


def assert_equal(machine: ByteMachine, limit: int = 20_000) -> int:
    """Goes through all pairs of a configuration and a state that some text leads to; their number."""
    dfa = flattened(machine, limit)
    assert dfa is not None
    symbols = {int(kind): byte for byte, kind in enumerate(machine.byte_class[:256])}
    seen, todo = {(machine.initial, dfa.start)}, [(machine.initial, dfa.start)]
    for here, state in todo:
        assert machine.may_end([here]) == dfa.final[state]
        for byte in symbols.values():
            after, there = machine.step([here], byte), dfa.step(state, byte)
            assert bool(after) == (there > 0)
            for configuration in after:
                if (configuration, there) not in seen:
                    seen.add((configuration, there))
                    todo.append((configuration, there))
        assert len(seen) < limit
    assert len({state for _, state in seen}) == dfa.num_states - 1  # no state that no text leads to
    return len(seen)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas(name: str) -> None:
    assert assert_equal(schema_machine(SCHEMAS[name])) > 3


def test_grammars() -> None:
    text = 'start: pair ("," pair)*\npair: NAME "=" (NAME | "<" NAME ">" | "if" NAME)\nNAME: /[a-z]+/\n%ignore " "'
    machine = machine_of(parse_lark(text))
    assert assert_equal(machine) > 5


def test_states_are_bounded() -> None:
    machine = schema_machine(SCHEMAS["closed object"])
    dfa = flattened(machine, 500)
    assert dfa is not None
    assert flattened(machine, dfa.num_states // 2) is None


def test_what_has_no_regular_form_here() -> None:
    assert flattened(schema_machine({"type": "array", "items": {"$ref": "#"}}), 10_000) is None  # recurs
    assert flattened(schema_machine({}), 10_000) is None
    assert flattened(schema_machine({"type": "string", "maxLength": 5000}), 10_000) is None  # counts
    assert flattened(machines.tool_calls(300, 301), 10_000) is None  # reads special tokens
    several = machine_of(parse_lark('start: "a" start "a" | "b" start "b" |'), stacks=2)
    assert flattened(several, 10_000) is None


def test_artifacts_are_regular_and_allow_the_same_tokens() -> None:
    texts = [b'"', b'{"', b'":', b'", "', b'"}', b'["', b'"]', b"tag", b"tags", b"name", b"on", b": ", b"true", b"]}", b'"]}']
    vocabulary = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), *texts, b""], stop_ids=[256 + len(texts)])
    schema = SCHEMAS["closed object"]
    flat, stacked = compile_json_schema(schema, vocabulary), promote_machine(schema_machine(schema), vocabulary, source="x")
    assert flat.is_regular
    assert not stacked.is_regular
    seen, todo = {(flat.walk().configurations, stacked.walk().configurations)}, [()]
    for path in todo:
        one, other = flat.walk(), stacked.walk()
        for token in path:
            one.advance(token)
            other.advance(token)
        allowed = one.allowed()
        assert (allowed == other.allowed()).all()
        for token in allowed.nonzero()[0].tolist():
            one.advance(token)
            other.advance(token)
            pair = one.configurations, other.configurations
            if pair not in seen and token not in vocabulary.stop_ids:
                seen.add(pair)
                todo.append((*path, token))
            one.rewind(1)
            other.rewind(1)
    assert len(seen) > 30
