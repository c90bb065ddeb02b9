"""Random schemas that refer to themselves: sets of keys, counts of items and members, and values of few bytes."""

from __future__ import annotations

import random
from typing import Any

_KEYS = ["a", "b", "ab", "c"]


def recursive_schema(rng: random.Random) -> dict[str, Any]:
    """Definitions of objects and arrays that hold one another."""
    names = ["p", "q", "r"][: rng.randint(1, 3)]
    return {"$ref": "#/$defs/p", "$defs": {name: _nested(rng, names) for name in names}}


def _nested(rng: random.Random, names: list[str]) -> dict[str, Any]:
    kind = rng.random()
    if kind < 0.6:
        return _object(rng, names)
    if kind < 0.9:
        return _array(rng, names)
    return {"anyOf": [_object(rng, names), {"enum": [0, 10, "b"]}]}


def _value(rng: random.Random, names: list[str]) -> Any:
    kind = rng.random()
    if kind < 0.4:
        return {"$ref": f"#/$defs/{rng.choice(names)}"}
    if kind < 0.5:
        return {"anyOf": [{"$ref": f"#/$defs/{rng.choice(names)}"}, {"type": "null"}]}
    if kind < 0.6:
        return {"type": "array", "items": {"$ref": f"#/$defs/{rng.choice(names)}"}, "maxItems": rng.randint(0, 3)}
    small: list[Any] = [{"enum": [0, 1]}, {"const": "a"}, {"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 12}, True]
    return rng.choice(small[:4])


def _object(rng: random.Random, names: list[str]) -> dict[str, Any]:
    keys = rng.sample(_KEYS, rng.randint(1, 4))
    out: dict[str, Any] = {"type": "object", "properties": {key: _value(rng, names) for key in keys}, "additionalProperties": False}
    out["required"] = rng.sample(keys, rng.randint(0, len(keys)))
    if rng.random() < 0.25:
        out["minProperties"] = rng.randint(1, len(keys))
    if rng.random() < 0.2:
        out["maxProperties"] = rng.randint(max(1, len(out["required"])), len(keys))
    if rng.random() < 0.2 and len(keys) > 1:
        out["dependentRequired"] = {keys[0]: [keys[1]]}
    return out


def _array(rng: random.Random, names: list[str]) -> dict[str, Any]:
    low = rng.randint(0, 3)
    out: dict[str, Any] = {"type": "array", "items": _value(rng, names)}
    if low:
        out["minItems"] = low
    if rng.random() < 0.6:
        out["maxItems"] = low + rng.randint(0, 5)
    if rng.random() < 0.2:
        out["prefixItems"] = [_value(rng, names)]
    return out
