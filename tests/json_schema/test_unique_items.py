"""`uniqueItems` over finite lists of values, kept in a set beside the stack or written out, against plain judges."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, UnsupportedSchemaError, schema_machine

VALUES: list[Any] = ["a", "ab", "b", "abc", "é", 'q"', "null", None, True, False]
LIST = {"type": "array", "items": {"enum": VALUES}, "uniqueItems": True}
WRITTEN_OUT = SchemaOptions(max_unique_states=100)


def texts_of(values: list[Any], longest: int) -> list[tuple[Any, ...]]:
    return [chosen for n in range(longest + 1) for chosen in itertools.product(values, repeat=n)]


@pytest.mark.parametrize(
    "schema",
    [
        LIST,
        LIST | {"minItems": 2},
        LIST | {"minItems": 1, "maxItems": 2},
        {"allOf": [{"uniqueItems": True, "type": "array"}, {"items": {"enum": VALUES}}, {"items": {"enum": [*VALUES[1:], 7]}}]},
        {"oneOf": [LIST, {"type": "string"}]},
        LIST | {"items": {"type": ["boolean", "null", "string"], "pattern": "^(a|b|ab|abc|x)$"}},
    ],
)
@pytest.mark.parametrize("key_order", ["declared", "any"])
def test_every_value_at_most_once(schema, key_order):
    judge = jsonschema.Draft202012Validator(schema)
    machine = schema_machine(schema, options=SchemaOptions(key_order=key_order))
    assert machine.sets is not None
    for chosen in [*texts_of([*VALUES, 7], 2), *texts_of(VALUES[:3] + VALUES[-2:], 3)]:
        text = json.dumps(chosen, ensure_ascii=False).encode()
        assert machine.accepts(text) == judge.is_valid(list(chosen)), chosen


def test_a_set_accepts_what_states_accept():
    rng = random.Random(2)
    for n in (7, 9):
        words = [f"{i:b}" for i in range(n)]
        for bounds in ({}, {"minItems": 3}, {"minItems": 2, "maxItems": 4}, {"minItems": n}):
            schema = {"type": "array", "items": {"enum": words}, "uniqueItems": True} | bounds
            by_set, by_states = schema_machine(schema), schema_machine(schema, options=WRITTEN_OUT)
            assert by_states.sets is None
            assert by_set.num_controls < by_states.num_controls
            for _ in range(150):
                chosen = rng.sample(words, rng.randint(0, n))
                if rng.random() < 0.3 and chosen:
                    chosen[rng.randrange(len(chosen))] = rng.choice(words)
                text = json.dumps(chosen).encode()
                assert by_set.accepts(text) == by_states.accepts(text), chosen
                here = {by_set.initial}, {by_states.initial}
                cut = text[: rng.randrange(len(text))]
                assert bool(by_set.run(cut, here[0])) == bool(by_states.run(cut, here[1])), cut


def test_many_values_are_few_states():
    words = [f"value {i}" for i in range(256)]
    schema = {"type": "array", "items": {"enum": words}, "uniqueItems": True}
    machine = schema_machine(schema)
    assert machine.num_controls < 1_000
    assert machine.accepts(json.dumps(words).encode())
    assert not machine.run(json.dumps(words).encode()[:-1] + b",", {machine.initial})  # there is no other value
    assert not machine.run(json.dumps(words[:-1]).encode()[:-1] + b', "value 1"', {machine.initial})
    with pytest.raises(UnsatisfiableSchemaError):
        schema_machine(schema | {"minItems": 257})


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "indented"])
def test_arrays_in_arrays_and_objects(whitespace):
    inner = {"type": "array", "items": {"enum": list("abcdefgh")}, "uniqueItems": True}
    row = {"type": "object", "properties": {"x": inner, "y": inner}, "required": ["y"], "additionalProperties": False}
    schema = {"type": "array", "items": row, "maxItems": 2}
    machine = schema_machine(schema, options=SchemaOptions(whitespace=whitespace, key_order="any"))
    separators = (",", ":") if whitespace == "compact" else None
    indent = 1 if whitespace == "indented" else None
    for value, valid in (
        ([{"x": ["a", "b"], "y": ["b", "a"]}, {"y": ["a"]}], True),
        ([{"y": ["a", "b"], "x": []}], True),
        ([{"y": ["a", "b", "a"]}], False),
        ([{"y": [], "x": ["h", "h"]}], False),
        ([{"x": ["a"]}], False),
    ):
        assert machine.accepts(json.dumps(value, separators=separators, indent=indent).encode()) == valid, value


@pytest.mark.parametrize(
    ("items", "domain"),
    [
        ({"type": "integer", "minimum": -1, "maximum": 3}, [-2, -1, 0, 1, 2, 3, 4, 1.5]),
        ({"type": "integer", "exclusiveMinimum": 0.5, "exclusiveMaximum": 4, "not": {"const": 2}}, [0, 1, 2, 3, 4]),
        ({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 1}, {"enum": [2.5, "a"]}]}, [0, 1, 2, 2.5, "a", "b"]),
        ({"multipleOf": 3, "type": "integer", "minimum": 0, "maximum": 9}, [0, 1, 3, 6, 9, 12]),
    ],
)
def test_integers_between_bounds(items, domain):
    schema = {"type": "array", "items": items, "uniqueItems": True}
    judge, machine = jsonschema.Draft202012Validator(schema), schema_machine(schema)
    for chosen in texts_of(domain, 3):
        assert machine.accepts(json.dumps(chosen).encode()) == judge.is_valid(list(chosen)), chosen


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"type": "integer", "minimum": 0, "maximum": 23}},
        {"items": {"type": "integer", "minimum": -3, "maximum": 12}, "minItems": 1, "maxItems": 2},
        {"items": {"enum": [0, 1, 10, 100, 101, -1, "1", "10", None]}},
    ],
)
@pytest.mark.parametrize("integers", ["plain", "all"])
def test_integers_in_a_set(schema, integers):
    schema = {"type": "array", "uniqueItems": True} | schema
    judge, machine = jsonschema.Draft202012Validator(schema), schema_machine(schema, options=SchemaOptions(integers=integers))
    assert machine.sets is not None
    spelt = ["0", "-0", "0.00", "1", "1.0", "10", "10.0", "12", "-1", "-1.0", "01", "1.", "1.5", "1e0", "24", '"1"', '"10"', "null"]
    for chosen in texts_of(spelt, 3):
        text = "[" + ", ".join(chosen) + "]"
        try:
            valid = judge.is_valid(json.loads(text))
        except ValueError:
            valid = False
        plainly = integers == "all" or not ("-0" in chosen or "." in text)
        assert machine.accepts(text.encode()) == (valid and plainly and "1e0" not in chosen), text


def test_elements_of_several_lists():
    schema = {"prefixItems": [{"enum": ["a", "b"]}, {"type": "boolean"}], "items": {"enum": ["a", "c"]}, "uniqueItems": True}
    judge, machine = jsonschema.Draft202012Validator(schema), schema_machine(schema)
    for chosen in texts_of(["a", "b", "c", True], 4):
        assert machine.accepts(json.dumps(chosen).encode()) == judge.is_valid(list(chosen)), chosen


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems"),
        ({"properties": {"a": {"items": {"type": "integer"}, "uniqueItems": True}}}, "#/properties/a/uniqueItems"),
        ({"items": {"type": "integer", "minimum": 3}, "uniqueItems": True}, "#/uniqueItems"),
        ({"items": {"minimum": 3, "maximum": 4}, "uniqueItems": True}, "#/uniqueItems"),
        ({"not": {"items": {"enum": list("abcdefghijkl")}, "uniqueItems": True}}, "#/not/uniqueItems"),
        ({"items": {"enum": list(range(11))}, "uniqueItems": True, "minItems": 2}, "#/uniqueItems"),
        ({"items": {"enum": [*range(11), 0.5]}, "uniqueItems": True}, "#/uniqueItems"),
        ({"prefixItems": [{"enum": ["a"]}], "uniqueItems": True}, "#/uniqueItems"),
    ],
)
def test_refused(schema, pointer):
    with pytest.raises(UnsupportedSchemaError, match="uniqueItems") as caught:
        schema_machine(schema)
    assert caught.value.pointer == pointer
