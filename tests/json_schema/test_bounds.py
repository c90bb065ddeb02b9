"""The bound on the rest of a text: finite for every schema, and kept by masks under a limit."""

from __future__ import annotations

import random

import pytest
from json_schema.random_schemas import random_schema

from fsa_compile import (
    BudgetError,
    CompileLimits,
    ConstraintError,
    SchemaOptions,
    UnsatisfiableError,
    Vocabulary,
    compile_json_schema,
    compile_yaml_schema,
)
from fsa_compile.artifact import CompiledConstraint

BYTES = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])
NO_STRINGS = {"not": {"items": {"type": "string"}}}
SMALL_OBJECT = {"propertyNames": {"pattern": "^c?$"}, "maxProperties": 2}
TWO_ITEMS = {"additionalProperties": {"minItems": 2}}
INTEGERS = {"additionalProperties": {"type": "integer"}}


def nested(rng: random.Random, depth: int = 2) -> object:
    """Schemas that sort the members of arrays and objects into cases, which hold such schemas again."""
    small = random_schema(rng, 2)
    below = nested(rng, depth - 1) if depth else small
    return rng.choice(
        [
            {"not": {"items": below}},
            {"oneOf": [{"type": "array", "items": below}, {"type": "array"}]},
            {"not": {"additionalProperties": below}},
            {"if": {"items": small}, "then": {"minItems": 1}, "else": below},
            {"type": ["array", "object", "null"], "items": {"$ref": "#"}, "properties": {"a": small}, "not": {"items": small}},
            small,
        ]
    )


def steps_within(constraint: CompiledConstraint, rng: random.Random) -> int:
    """Tokens of a random text within a limit near the bound, which has to come to its end."""
    walk, left = constraint.walk(), constraint.shortest_completion + rng.randint(0, 9)
    while not walk.accepting and left:
        allowed = [token for token in walk.allowed(left).nonzero()[0] if token]
        walk.advance(int(rng.choice(allowed)), left)
        left -= 1
    assert walk.accepting
    return walk.num_tokens


def flat_object(rng: random.Random) -> dict:
    """An object of plain values with conditions on which of its keys come."""
    keys = rng.sample(["a", "ab", "b", "c", "ca", "d"], rng.randint(2, 5))

    def some() -> list[str]:
        return rng.sample(keys, rng.randint(1, 2))

    small = [{"type": "boolean"}, {"enum": [0, 1]}, {"const": "a"}, {"type": "integer", "minimum": 0, "maximum": 12}]
    out = {"type": "object", "properties": {key: rng.choice(small) for key in keys}, "additionalProperties": False}
    conditions = {
        "required": (0.6, some), "dependentRequired": (0.6, lambda: {key: some() for key in some()}),
        "minProperties": (0.4, lambda: rng.randint(1, len(keys))), "maxProperties": (0.3, lambda: rng.randint(1, len(keys))),
        "not": (0.2, lambda: {"required": some()}), "oneOf": (0.2, lambda: [{"required": [key]} for key in rng.sample(keys, 2)]),
    }  # fmt: skip
    out |= {word: make() for word, (chance, make) in conditions.items() if rng.random() < chance}
    return out | ({"if": {"required": some()}, "then": {"required": some()}} if rng.random() < 0.2 else {})


@pytest.mark.exhaustive
def test_closed_objects_of_plain_values_have_a_bound_in_any_order(tally):
    for rng in tally.cases(36):
        schema = flat_object(rng)
        try:
            constraint = compile_json_schema(schema, BYTES, options=SchemaOptions(key_order="any"))
        except UnsatisfiableError:
            continue
        assert constraint.has_bounds, schema
        tally.update(made=1, checks=sum(steps_within(constraint, rng) for _ in range(4)))
    assert tally["made"] > 20


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": NO_STRINGS, "y": {"type": "integer"}}, "required": ["y"], "additionalProperties": False},
        NO_STRINGS,
        {"not": {"additionalProperties": {"type": "string"}}},
        {"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "array"}]},
        {"if": {"items": {"type": "string"}}, "then": {"maxItems": 1}, "else": {"items": NO_STRINGS}},
        {"not": {"items": {"not": {"additionalProperties": NO_STRINGS}}}},
        {"not": {"additionalProperties": {"items": {"$ref": "#"}, "not": {"items": SMALL_OBJECT}}}},
        {"not": {"additionalProperties": {"items": {"$ref": "#"}, "not": {"items": {"properties": {"c": {"type": "array"}}}}}}},
        {"not": {"patternProperties": {"^a": {"anyOf": [{"dependentRequired": {"a": ["b"]}}, {"not": INTEGERS}]}}}},
        {"not": {"items": {"properties": {"a": {"type": "integer"}}}}},
        {"not": {"items": {"properties": {"a": {}, "b": {"const": {}}}}}},
        {"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 3, "type": "object"},
        {"properties": {"a": {}, "b": {}}, "not": {"maxProperties": 1}},
        {"required": ["c"], "not": {"patternProperties": {"^a": {"type": "object"}}, "items": {"$ref": "#"}}},
        {"additionalProperties": {"not": {"$ref": "#"}}, "not": TWO_ITEMS | {"dependentRequired": {"a": ["b"]}}},
        {"minProperties": 2, "not": {"properties": {"b": {"minItems": 1}, "c": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}},
    ],
)
def test_the_bound_is_small(schema):
    limits = CompileLimits(max_seconds=600)  # without a second attempt there may be no bound
    for order in ("declared", "any"):
        options = SchemaOptions(key_order=order)
        assert compile_json_schema(schema, BYTES, options=options, limits=limits).shortest_completion < 100


@pytest.mark.parametrize("schema", [NO_STRINGS, {"not": {"items": {"not": {"additionalProperties": NO_STRINGS}}}}])
def test_the_bound_is_small_in_yaml(schema):
    assert compile_yaml_schema(schema, BYTES, limits=CompileLimits(max_seconds=600)).shortest_completion < 100


@pytest.mark.exhaustive
def test_texts_are_completed_within_their_limit(tally):
    for rng in tally.cases(24, least=3_000):
        order = rng.choice(["declared", "any"])
        schema = nested(rng) if rng.random() < 0.5 else rng.choice([random_schema(rng, 3), {"not": random_schema(rng, 3)}])
        options, limits = SchemaOptions(key_order=order), CompileLimits(max_seconds=60)
        try:
            constraint = compile_json_schema(schema, BYTES, options=options, limits=limits)
        except ConstraintError:
            continue
        tally["made"] += 1
        if not constraint.has_bounds:  # then a limit is an error
            tally["unbounded"] += 1
            with pytest.raises(BudgetError):
                constraint.walk().allowed(1_000)
            continue
        tally["checks"] += sum(steps_within(constraint, rng) for _ in range(4))
    assert tally["made"] > 20
    assert tally["unbounded"] <= tally["made"] / 500
