"""Members sorted by which of many object schemas hold: only what can be is told apart, and all of it is."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, schema_machine
from fsa_compile.json_schema import derivatives as derivatives
from fsa_compile.json_schema.patterns import listed_words

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
VALUES: list[Any] = [1, "x", {}]
OBJECTS = [
    dict(zip(keys, values))
    for n in range(4)
    for keys in itertools.combinations("abc", n)
    for values in itertools.product(VALUES, repeat=n)
]


def _random_object(rng: random.Random) -> dict[str, Any]:
    kinds = [True, INTEGER, STRING, {"const": 1}, {"not": {"const": 1}}, {"type": "object"}, INTEGER | {"title": "n"}]
    keys = rng.sample("abc", rng.randint(0, 3))
    out: dict[str, Any] = {"type": "object", "properties": {key: rng.choice(kinds) for key in keys}}
    if rng.random() < 0.6:
        out["additionalProperties"] = rng.choice([False, False, INTEGER])
    if rng.random() < 0.5:
        out["required"] = rng.sample("abc", rng.randint(1, 2))
    return out


@pytest.mark.parametrize("key_order", ["declared", "any"])
def test_branches_that_hold_together_are_judged_right(key_order, exhaustive, monkeypatch):
    monkeypatch.setattr(derivatives, "_FEW_CASES", 0)
    rng = random.Random(3)
    for _ in range(400 if exhaustive else 10):
        branches = [_random_object(rng) for _ in range(rng.randint(3, 5))]
        tagged = [{"properties": {"v": below, "t": {"enum": [i, i + 1]}}} for i, below in enumerate(branches)]
        schema = {"type": "object", rng.choice(["oneOf", "anyOf"]): tagged, "required": ["v", "t"]}
        judge, named = jsonschema.Draft202012Validator(schema), {key for branch in branches for key in branch["properties"]}
        try:
            machine = schema_machine(schema, options=SchemaOptions(key_order=key_order))  # type: ignore[arg-type]
        except UnsatisfiableSchemaError:
            machine = None
        for value, tag in itertools.product(OBJECTS, range(6)):
            valid = judge.is_valid({"v": value, "t": tag})
            # Of keys that no branch names, what shows against a branch of oneOf stands last (`docs/limits.md`).
            some = key_order == "declared" or ("oneOf" in schema and len(value.keys() - named) > 1)
            orders = itertools.permutations(value.items()) if some else [value.items()]
            texts = [json.dumps({"v": dict(order), "t": tag}).encode() for order in orders]
            accepted = machine is not None and any(map(machine.accepts, texts))
            assert accepted == valid, (schema, value, tag)


@pytest.mark.parametrize("required", [False, True])
def test_many_closed_objects_are_few_kinds(required):
    """Of 24 objects with keys of their own, most of the 2^24 combinations cannot be."""
    below = [{"type": "object", "properties": {f"k{i}": STRING}, "additionalProperties": False} for i in range(24)]
    if required:
        below = [value | {"required": [f"k{i}"]} for i, value in enumerate(below)]
    tagged = [{"properties": {"v": value, "t": {"const": i}}} for i, value in enumerate(below)]
    schema = {"type": "object", "oneOf": tagged, "required": ["v", "t"]}
    machine = schema_machine(schema, options=SchemaOptions(key_order="any"))
    assert machine.accepts(b'{"v":{"k3":"x"},"t":3}')
    assert machine.accepts(b'{"t":23,"v":{"k23":"x"}}')
    assert machine.accepts(b'{"v":{},"t":11}') != required
    assert not machine.accepts(b'{"v":{"k3":"x"},"t":4}')
    assert not machine.run(b'{"v":{"k3":"x","k4', {machine.initial})


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("^on$", ("on",)),
        ("^(on|off)$", ("on", "off")),
        (r"^0\.1$", ("0.1",)),
        ("^[ab]c(?:d|)$", ("acd", "ac", "bcd", "bc")),
        ("^a$|^b$", ("a", "b")),
        ("^$", ("",)),
        ("^a|b$", None),
        ("a$", None),
        ("^é$", None),
        ("^[^a]$", None),
        ("^a.$", None),
        ("^a?$", None),
        (r"^\d\d$", None),
        ("^\\n$", None),
    ],
)
def test_patterns_that_list_words(pattern, words):
    assert listed_words(pattern) == words


@pytest.mark.parametrize(("escapes", "count"), [("where needed", 9), ("all", 5)])
def test_constant_patterns_tell_branches_apart(escapes, count):
    branches = [
        {"properties": {"type": {"pattern": f"^T{i}$"}, f"k{i}": INTEGER}, "additionalProperties": False, "required": ["type"]}
        for i in range(count)
    ]
    schema = {"type": "object", "oneOf": branches}
    machine = schema_machine(schema, options=SchemaOptions(string_escapes=escapes))
    assert machine.accepts(b'{"type":"T4","k4":1}')
    assert not machine.accepts(b'{"type":"T4","k5":1}')
    assert machine.accepts(rb'{"type":"\u00544"}') == (escapes == "all")
