"""Random small schemas and a list of instances that tells them apart, for comparison with `jsonschema`."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

_LEAVES: list[Any] = [
    True, False, {"type": "string"}, {"type": "integer"}, {"type": ["number", "null"]}, {"minimum": 1}, {"const": 1},
    {"enum": ["a", 0]}, {"pattern": "b"}, {"minLength": 1, "maxLength": 1}, {"type": "object"}, {"type": "array"},
    {"required": ["a"]}, {"multipleOf": 1.5}, {"const": {"a": 0}}, {"maxProperties": 1}, {"minItems": 1},
    {"exclusiveMaximum": 2}, {"enum": [[], [1, "ab"], {"b": "a"}, None, "ab"]}, {"not": {"const": "a"}},
]  # fmt: skip


def instances() -> list[Any]:
    """JSON values; objects come in every order of their keys."""
    scalars: list[Any] = [None, True, 0, 1, 2, -3, 1.5, 10, "", "a", "ab", "bb", "é"]
    flat = [*scalars, [], {}]
    arrays = [[x] for x in flat] + [[x, y] for x in (0, "a", 1.5, None) for y in (1, "ab", {})]
    arrays += [[1, 2, 1], ["a", "a", "b"], [[0]], [[[]], 1]]
    small = [0, 1, "a", "ab", None, [1], {"a": 0}, {"b": "a"}, {"a": "a", "b": 1}, {"b": 1, "a": "a"}]
    objects = []
    for n in (1, 2):
        for keys in itertools.permutations("abc", n):
            for values in itertools.product(small if n == 1 else [*small[:4], *small[6:8]], repeat=n):
                objects.append(dict(zip(keys, values)))
    for keys in itertools.permutations("abc"):
        objects.append({key: {"a": 0, "b": "a", "c": 1}[key] for key in keys})
    objects += [{"a": {"a": {"a": 0}}}, {"a": {"b": {"a": "a"}}}, {"x": 1}, {"x": {"a": 0}}, {"a": [{"a": 0}]}]
    return flat + arrays + objects + [[x] for x in objects if len(x) == 1]


def random_schema(rng: random.Random, depth: int) -> Any:
    """A schema of nested combinators over few keys and values."""
    kind = rng.random()
    if depth == 0 or kind < 0.12:
        return rng.choice(_LEAVES)

    def inner() -> Any:
        return random_schema(rng, depth - 1)

    if kind < 0.42:
        return _random_object(rng, inner)
    if kind < 0.57:
        return _random_array(rng, inner)
    if kind < 0.67:
        return {"not": inner()}
    if kind < 0.77:
        return {"if": inner(), "then": inner(), "else": inner()}
    return {rng.choice(["allOf", "anyOf", "oneOf", "oneOf"]): [inner() for _ in range(rng.randint(2, 3))]}


def _random_object(rng: random.Random, inner: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    choices = {
        "type": (0.5, lambda: "object"),
        "properties": (0.8, lambda: {key: inner() for key in rng.sample("abc", rng.randint(1, 2))}),
        "required": (0.4, lambda: rng.sample("abc", rng.randint(1, 2))),
        "additionalProperties": (0.4, inner),
        "patternProperties": (0.2, lambda: {rng.choice(["^a", "[bc]", "x"]): inner()}),
        "propertyNames": (0.15, lambda: {"pattern": rng.choice(["[ab]", "^c?$"])}),
        "minProperties": (0.15, lambda: rng.randint(1, 2)),
        "maxProperties": (0.1, lambda: rng.randint(0, 2)),
        "dependentRequired": (0.15, lambda: {"a": ["b"]}),
        "dependentSchemas": (0.1, lambda: {"b": inner()}),
        "unevaluatedProperties": (0.1, lambda: rng.choice([False, {"type": "string"}])),
        "anyOf": (0.1, lambda: [inner(), inner()]),
    }
    for keyword, (probability, make) in choices.items():
        if rng.random() < probability:
            schema[keyword] = make()
    return schema


def _random_array(rng: random.Random, inner: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"items": inner()}
    choices = {
        "prefixItems": (0.5, lambda: [inner() for _ in range(rng.randint(1, 2))]),
        "contains": (0.3, inner),
        "maxItems": (0.3, lambda: rng.randint(0, 2)),
        "minItems": (0.2, lambda: rng.randint(1, 2)),
        "maxContains": (0.2, lambda: rng.randint(1, 2)),
        "minContains": (0.2, lambda: rng.randint(0, 2)),
    }
    for keyword, (probability, make) in choices.items():
        if rng.random() < probability:
            schema[keyword] = make()
    return schema


def counts_unnamed(schema: object) -> bool:
    """Whether the second of two keys that a schema does not name might have to count (docs/limits.md)."""
    text = json.dumps(schema)
    negates = any(f'"{keyword}"' in text for keyword in ("not", "oneOf", "if"))
    counted = any(f'"minProperties": {count}' in text for count in (2, 3))
    return counted or (negates and any(f'"{k}"' in text for k in ("maxProperties", "additionalProperties")))


def without_order(instance: Any) -> str:
    """The same text for instances that differ in the order of keys only."""
    return json.dumps(instance, sort_keys=True)
