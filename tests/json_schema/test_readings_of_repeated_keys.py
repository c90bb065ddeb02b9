"""Every reading of a text whose keys might be repeated: what is accepted is valid in all of them, by `jsonschema`.

Without `oneOf`, `not` and `if` it is all that is.

Two keys that the schema does not name might be one key, of which a reader keeps the last, and a machine with finitely many states
cannot know. So the values that a text may have are those with any of these keys left out but the last.
"""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from fsa_compile.errors import ConstraintError
from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, schema_machine

SCALARS: list[Any] = [{"type": "integer"}, {"type": "string"}, {"const": 1}, {"enum": ["x", 2]}, True, {"minimum": 2}]
NAMED = "ab"
MOST_READINGS = 200


class Schemas:
    """Random schemas that name the keys `a` and `b` wherever they name any. `exact`: without what is narrower for other reasons."""

    def __init__(self, rng: random.Random, exact: bool) -> None:
        self._rng, self._exact = rng, exact

    def value(self, depth: int) -> Any:
        return self.object(depth - 1) if depth and self._rng.random() < 0.55 else self._rng.choice(SCALARS)

    def plain(self, depth: int) -> dict[str, Any]:
        """An object's schema without branches."""
        rng = self._rng
        out: dict[str, Any] = {"properties": {key: self.value(depth) if rng.random() < 0.5 else True for key in NAMED}}
        if rng.random() < 0.4:
            out["type"] = "object"
        if rng.random() < 0.6:
            out["additionalProperties"] = rng.choice([self.value(depth), *SCALARS, False])
        if rng.random() < 0.25:
            out["required"] = [rng.choice(NAMED)]
        if not self._exact and rng.random() < 0.3:
            out[rng.choice(["minProperties", "maxProperties"])] = rng.randint(0, 3)
        if not self._exact and rng.random() < 0.3:
            out["patternProperties"] = {rng.choice("cd"): self.value(depth)}
        if not self._exact and rng.random() < 0.1:
            out["propertyNames"] = {"pattern": rng.choice(["[abc]", "[abd]"])}
        return out

    def object(self, depth: int) -> dict[str, Any]:
        rng, out = self._rng, self.plain(depth)
        kind = rng.choice(["", "", "anyOf", "anyOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties"])
        if kind in ("anyOf", "oneOf"):
            out[kind] = self._branches(depth)
        elif kind == "not":
            out["not"] = self.plain(depth)
        elif kind == "if":
            out |= {keyword: self.plain(depth) for keyword in ("if", "then", "else")}
        elif kind == "dependentSchemas":
            out["dependentSchemas"] = {"a": self.plain(depth)}
        elif kind == "unevaluatedProperties":
            out.pop("additionalProperties", None)
            out |= {"anyOf": self._branches(depth), "unevaluatedProperties": self.value(depth)}
        return out

    def _branches(self, depth: int) -> list[dict[str, Any]]:
        return [self.plain(depth) for _ in range(self._rng.randint(2, 3))]

    def tagged(self) -> dict[str, Any]:
        """An object whose `b` depends on the branch that its `a` belongs to."""
        rng, out = self._rng, {"type": "object", "properties": {"a": True, "b": True}, "required": ["a", "b"]}
        if rng.random() < 0.3:
            out |= {"if": {"properties": {"a": self.object(1)}}}
            return out | {word: {"properties": {"b": {"enum": [1, n]}}} for word, n in (("then", 3), ("else", 2))}
        tags = ({"enum": [i, i + 1]} for i in range(rng.randint(2, 3)))
        return out | {rng.choice(["anyOf", "anyOf", "oneOf"]): [{"properties": {"a": self.object(1), "b": tag}} for tag in tags]}


def members(rng: random.Random, depth: int, order: str) -> list[tuple[str, Any]]:
    """Members of an object, those of declared keys first and once, some others repeated."""
    keys = [key for key in NAMED if rng.random() < 0.6] + rng.choices("ccddef", k=rng.choice([0, 1, 2, 2, 3]))
    if order == "any":
        rng.shuffle(keys)
    out: list[tuple[str, Any]] = []
    for key in keys:
        tag = key == "b" and rng.random() < 0.5
        below = depth and not tag and rng.random() < 0.6
        out.append((key, members(rng, depth - 1, order) if below else rng.randint(0, 3) if tag else rng.choice([1, 2, "x", 3])))
    return out


def spelled(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "{" + ", ".join(f'"{key}": {spelled(below)}' for key, below in value) + "}"


def readings(value: Any) -> list[Any]:
    """All values that a text may have whichever keys without a name are one; of the last one it is sure that it stays."""
    if not isinstance(value, list):
        return [value]
    unnamed = [i for i, (key, _) in enumerate(value) if key not in NAMED]
    out = []
    for left_out in itertools.product([False, True], repeat=max(0, len(unnamed) - 1)):
        gone = set(itertools.compress(unnamed, left_out))
        kept = [(key if key in NAMED else f"{key}{i}", below) for i, (key, below) in enumerate(value) if i not in gone]
        names = [key for key, _ in kept]
        out += [dict(zip(names, values)) for values in itertools.product(*(readings(below) for _, below in kept))]
    return out


@pytest.mark.parametrize("order", ["declared", "any"])
def test_what_is_valid_in_every_reading_is_accepted_and_nothing_else(order, tally):
    options = SchemaOptions(key_order=order, max_controls=20_000 if tally.in_full else 6_000)
    for rng in tally.cases(9, name=order):
        exact = rng.random() < 0.7
        schemas = Schemas(rng, exact)
        schema = schemas.tagged() if rng.random() < 0.6 else {**schemas.object(2), "type": "object"}
        judge = jsonschema.Draft202012Validator(schema)
        try:
            machine = schema_machine(schema, options=options)
        except UnsatisfiableSchemaError:
            machine = None
        except ConstraintError:
            continue
        tally["made"] += 1
        for _ in range(100):
            value = members(rng, 2, order)
            text, values = spelled(value), readings(value)
            if len(values) > MOST_READINGS:
                continue
            tally["checks"] += 1
            accepted = machine is not None and machine.accepts(text.encode())
            assert not accepted or judge.is_valid(json.loads(text)), (schema, text)
            everywhere = all(map(judge.is_valid, values))
            assert everywhere or not accepted or not exact, (schema, text)
            if exact and not any(word in str(schema) for word in ("'oneOf'", "'not'", "'if'")):
                assert accepted == everywhere, (schema, text)
            tally["accepted in several readings"] += accepted and len(values) > 1
    assert tally["accepted in several readings"] > 50
