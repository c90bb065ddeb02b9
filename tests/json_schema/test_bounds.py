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
    Vocabulary,
    compile_json_schema,
    compile_yaml_schema,
)

BYTES = Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(256))], stop_ids=[0])
NO_STRINGS = {"not": {"items": {"type": "string"}}}
SMALL_OBJECT = {"propertyNames": {"pattern": "^c?$"}, "maxProperties": 2}
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
    ],
)
def test_the_bound_is_small(schema):
    assert compile_json_schema(schema, BYTES).shortest_completion < 100
    assert compile_json_schema(schema, BYTES, options=SchemaOptions(key_order="any")).shortest_completion < 100


@pytest.mark.parametrize("schema", [NO_STRINGS, {"not": {"items": {"not": {"additionalProperties": NO_STRINGS}}}}])
def test_the_bound_is_small_in_yaml(schema):
    assert compile_yaml_schema(schema, BYTES).shortest_completion < 100


@pytest.mark.exhaustive
def test_texts_are_completed_within_their_limit(exhaustive):
    rng = random.Random(4)
    compiled = unbounded = 0
    for _ in range(100_000 if exhaustive else 40):
        order = rng.choice(["declared", "any"])
        schema = nested(rng) if rng.random() < 0.5 else rng.choice([random_schema(rng, 3), {"not": random_schema(rng, 3)}])
        options, limits = SchemaOptions(key_order=order), CompileLimits(max_seconds=60)
        try:
            constraint = compile_json_schema(schema, BYTES, options=options, limits=limits)
        except ConstraintError:
            continue
        compiled += 1
        if not constraint.has_bounds:  # then a limit is an error
            unbounded += 1
            with pytest.raises(BudgetError):
                constraint.walk().allowed(1_000)
            continue
        walk, left = constraint.walk(), constraint.shortest_completion + rng.randint(0, 9)
        while not walk.accepting and left:
            allowed = [token for token in walk.allowed(left).nonzero()[0] if token]
            walk.advance(int(rng.choice(allowed)))
            left -= 1
        assert walk.accepting, (order, schema)
    assert compiled > 20
    assert unbounded <= compiled / 500
