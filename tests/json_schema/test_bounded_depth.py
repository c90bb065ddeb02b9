"""Depth-truncated JSON: exactly the texts of the machine with a stack whose containers nest within the bounds, and no dead ends."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
from json_schema.random_schemas import instances, random_schema

from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.json_schema import (
    SchemaOptions,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
    compile_json_schema,
    schema_machine,
)
from fsa_compile.json_schema.bounded_depth import Depths, truncated, without_counters
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary import Vocabulary

LIMITS = CompileLimits()
TREE = {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["v"], "additionalProperties": False}  # fmt: skip
LIST = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
SCHEMAS = [
    True,
    TREE,
    LIST,
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]},
    {"type": "object", "additionalProperties": {"type": ["array", "object", "null"]}},
    {"type": "array", "minItems": 1, "maxItems": 2, "items": {"anyOf": [{"const": 1}, {"$ref": "#"}]}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#"}}, "b": {"enum": [1]}}, "additionalProperties": False},
]


def depth(value: object, kind: type) -> int:
    """How many containers of a kind stand within each other, at most."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, kind) + max((depth(x, kind) for x in below), default=0)


def within(text: bytes, depths: Depths) -> bool:
    value = json.loads(text)
    return all(most is None or depth(value, kind) <= most for kind, most in zip((dict, list), depths))


def automaton(schema: object, depths: Depths, key_order: str = "declared", whitespace: str = "optional"):
    machine = schema_machine(schema, options=without_counters(SchemaOptions(key_order=key_order, whitespace=whitespace)))
    return machine, truncated(machine, depths, LIMITS, Deadline(LIMITS))


def accepts(dfa, text: bytes) -> bool:
    return bool(dfa.final[dfa.run(text)])


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("depths", [Depths(1, 1), Depths(2, 1), Depths(1, 2), Depths(3, 3)])
def test_every_short_text(schema, depths, exhaustive):
    """Texts over an alphabet of brackets, strings and numbers: all short ones, of the longer ones a sample per length."""
    machine, dfa = automaton(schema, depths)
    rng = random.Random(1)
    most = 4_000 if exhaustive else 150
    level = [(b"", {machine.initial}, dfa.start)]
    for _ in range(16 if exhaustive else 12):
        longer = []
        for text, configurations, state in level:
            accepted = machine.may_end(configurations)
            assert bool(dfa.final[state]) == (accepted and within(text, depths)), text
            for byte in b'}],{[":1anul ':
                after = machine.step(configurations, byte)
                assert after or not dfa.step(state, byte), text
                if after:
                    longer.append((text + bytes([byte]), after, dfa.step(state, byte)))
        level = longer if len(longer) <= most else rng.sample(longer, most)


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_random_texts_keep_the_bounds(schema):
    rng = random.Random(3)
    for depths, *others in ((Depths(1, 1),), (Depths(2, 3),), (Depths(1, 2), "any", "indented"), (Depths(2, 1), "any")):
        try:
            machine, dfa = automaton(schema, depths, *others)
        except LimitError:  # of any value in any order
            assert schema is True
            continue
        byte_of = {c: byte for byte, c in reversed(list(enumerate(dfa.byte_class.tolist())))}
        left = distances(dfa)
        for _ in range(60):
            text, state = b"", dfa.start
            while len(text) < 60 or not dfa.final[state]:
                live = dfa.table[state].nonzero()[0]
                if not len(live):
                    break
                c = min(live, key=lambda c: left[dfa.table[state, c]]) if len(text) > 60 else rng.choice(live.tolist())
                text, state = text + bytes([byte_of[int(c)]]), int(dfa.table[state, c])
            assert dfa.final[state]
            assert machine.accepts(text)
            assert within(text, depths), text


def distances(dfa) -> np.ndarray:
    """Least bytes to a final state; every state has one."""
    left = np.where(dfa.final, 0, 10**6)
    while True:
        after = np.where(dfa.table > 0, left[dfa.table], 10**6).min(1) + 1
        new = np.minimum(left, after)
        if (new == left).all():
            assert (left[1:] < 10**6).all()
            return left
        left = new


def test_instances_of_random_schemas(exhaustive):
    rng = random.Random(9)
    texts = [json.dumps(x).encode() for x in instances() if not isinstance(x, float)]
    compared, count = 0, 150 if exhaustive else 15
    for _ in range(count):
        schema = random_schema(rng, 3)
        depths = Depths(rng.randint(0, 2), rng.randint(0, 2))
        try:
            machine, dfa = automaton(schema, depths, "any" if sum(depths) == 1 else "declared")
        except (UnsatisfiableError, UnsupportedSchemaError):  # the latter where only repeated keys could satisfy it
            continue
        compared += 1
        for text in rng.sample(texts, 150):
            assert accepts(dfa, text) == (machine.accepts(text) and within(text, depths)), (schema, depths, text)
    assert compared > count / 2


def test_keys_in_any_order_come_once_and_none_is_missing():
    inner = {"type": "object", "properties": {"c": {"type": "array", "items": False}, "d": {"$ref": "#"}}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"a": {"type": "null"}, "b": inner}, "required": ["a", "b"], "additionalProperties": False}
    machine, dfa = automaton(schema, Depths(3, 1), "any")
    parts = ['"a": null', '"b": {}', '"b": {"c": []}', '"b": {"d": {"a": null, "b": {}}}', '"b": {"d": {"b": {}, "a": null}, "c": []}', '"b": {"d": {"b": {}}}']
    found = 0
    for n in range(4):
        for some in itertools.product(parts, repeat=n):
            text = f"{{{', '.join(some)}}}".encode()
            assert accepts(dfa, text) == (machine.accepts(text) and within(text, Depths(3, 1))), text
            found += accepts(dfa, text)
    assert found == 4


def test_masks_over_ambiguous_tokens():
    """Every token sequence up to three tokens: a token is allowed exactly when some accepted text goes on with it."""
    tokens = [b"{", b"}", b"[", b"]", b'"', b"a", b":", b",", b"1", b'{"', b'":', b"[[", b"]]", b"]}", b'"a":', b"[1", b"{}", b" ", b""]
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=[18])
    schema = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}},
                        {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}]}  # fmt: skip
    options = SchemaOptions(max_object_depth=1, max_array_depth=2, whitespace="compact")
    constraint = compile_json_schema(schema, vocabulary, options=options)
    assert constraint.max_pops == 0
    assert constraint.max_push == 0
    machine = schema_machine(schema, options=SchemaOptions(whitespace="compact"))
    dfa = truncated(machine, Depths(1, 2), LIMITS, Deadline(LIMITS))
    for size in (0, 1, 2, 3):
        for ids in itertools.product(range(18), repeat=size):
            text = b"".join(tokens[i] for i in ids)
            state = dfa.run(text)
            walk = constraint.walk()
            alive = True
            for i in ids:
                alive = alive and bool(walk.allowed()[i])
                if alive:
                    walk.advance(i)
            assert alive == bool(state), text
            if alive:
                assert walk.accepting == bool(dfa.final[state])


def test_branches_that_need_more_depth_vanish():
    schema = {"anyOf": [{"const": "x"}, {"const": "yy"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]}
    dfa = automaton(schema, Depths(0, 0))[1]
    assert accepts(dfa, b'"x"')
    assert not dfa.run(b"[")
    dfa = automaton(schema, Depths(0, 2))[1]
    assert accepts(dfa, b'[["x"], "yy"]')
    assert not dfa.run(b"[[[")


def test_nothing_within_the_bounds():
    needed = {"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "items": {"type": "object"}, "minItems": 1}}}
    vocabulary = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], stop_ids=[256])
    with pytest.raises(UnsatisfiableSchemaError, match="max_object_depth=1, max_array_depth=1"):
        compile_json_schema(needed, vocabulary, options=SchemaOptions(max_object_depth=1, max_array_depth=1))
    walk = compile_json_schema(needed, vocabulary, options=SchemaOptions(max_object_depth=2, max_array_depth=1)).walk()
    for byte in b'{"a": [{}]}':
        walk.advance(byte)
    assert walk.accepting


def test_one_bound_suffices_where_the_schema_recurs_through_it():
    machine, dfa = automaton(LIST, Depths(3, None))
    for n in range(6):
        text = b'{"next":' * n + b"{}" + b"}" * n
        assert machine.accepts(text)
        assert accepts(dfa, text) == (n < 3)
    with pytest.raises(UnsupportedSchemaError, match="without max_array_depth the schema nests without end"):
        automaton(True, Depths(2, None))
    with pytest.raises(UnsupportedSchemaError, match="max_object_depth"):
        automaton(True, Depths(None, 2))


def test_limits_and_options():
    with pytest.raises(LimitError, match="max_states=500"):
        truncated(schema_machine(True), Depths(4, 4), CompileLimits(max_states=500), Deadline(LIMITS))
    with pytest.raises(ConstraintError, match="max_object_depth must be"):
        SchemaOptions(max_object_depth=-1)
    with pytest.raises(ConstraintError, match="no bounds on depth"):
        schema_machine(True, options=SchemaOptions(max_array_depth=1))
    with pytest.raises(LimitError, match="max_length"):
        automaton({"type": "string", "maxLength": 70_000}, Depths(1, 1))


def test_lengths_are_written_out():
    schema = {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 40}
    dfa = automaton(schema, Depths(0, 1))[1]
    for n in (0, 39, 40, 41):
        assert accepts(dfa, json.dumps(["x"] * n).encode()) == (n <= 40)
    for n in (19, 20, 21):
        assert accepts(dfa, json.dumps(["é" * n], ensure_ascii=False).encode()) == (n <= 20)
