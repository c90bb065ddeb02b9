"""Machines with their stacks written out: the same language, byte by byte, or nothing."""

from __future__ import annotations

import random

import pytest
from oracles import machines

from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.automata.unfold_stacks import flattened
from fsa_compile.composition.compose import compose, compose_machine
from fsa_compile.composition.shared_loops import known_tokens
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.json_schema import SchemaOptions, compile_json_schema, schema_machine
from fsa_compile.json_schema.schema_options import Escapes
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

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
    flat, stacked = compile_json_schema(schema, vocabulary), compose_machine(schema_machine(schema), vocabulary, source="x")
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


def some_vocabulary() -> Vocabulary:
    """Every byte, and what real tokens of JSON look like: words, quotes with what stands around them, parts of characters."""
    rng = random.Random(0)
    pieces = ["a", "bc", " the", '"', '":', '","', "é", "漢", "😀", "\\", "\\n", "{", "}", "[", "]", ",", "1", "name", "tags"]
    texts = {"".join(rng.choices(pieces, k=rng.randint(1, 4))).encode() for _ in range(4_000)}
    cut = {text[rng.randrange(3) :][: rng.randint(1, 8)] for text in sorted(texts)} - {b""}
    longer = sorted(text for text in texts | cut if len(text) > 1)
    return Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256)), *longer], stop_ids=[0])


@pytest.mark.parametrize("escapes", ["all", "shortest"])
def test_what_is_kept_of_string_bodies_changes_no_token_set(escapes: Escapes) -> None:
    """Artifacts of one automaton: of tokens walked afresh, and of what was kept of its loops, perhaps from another automaton."""
    vocabulary, limits, known = some_vocabulary(), CompileLimits(), 0
    for name in ("string", "closed object", "objects in objects", "alternatives", "closed object"):
        dfa = flattened(schema_machine(SCHEMAS[name], options=SchemaOptions(string_escapes=escapes)), 512)
        assert dfa is not None
        found = known_tokens(dfa, tables_for(vocabulary), limits, Deadline(limits))
        known += 0 if found is None else int(found.inside.sum())
        fresh, kept = (compose(dfa, vocabulary, source=name, keep_loops=keep) for keep in (False, True))
        assert (fresh.accept == kept.accept).all()
        assert (fresh.distance == kept.distance).all()
        assert (fresh.level_offset == kept.level_offset).all()
        assert (fresh.level_cost == kept.level_cost).all()
        assert (fresh.rows[fresh.level_row] == kept.rows[kept.level_row]).all()
        for node in range(fresh.num_nodes):
            assert (fresh.outgoing(node) == kept.outgoing(node)).all(), (name, node)
    assert known > 10
