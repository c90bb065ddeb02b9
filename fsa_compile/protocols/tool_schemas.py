"""Schemas of tools as given, to those that are enforced: other names of types replaced, objects closed where that is sound.

An object is closed where a narrower schema makes the whole one narrower, and where no other schema speaks of the same object.
What stands beneath `not`, `if` and the like stays as it is; `oneOf` of objects becomes `oneOf` of these as they are, and `anyOf`
of the closed ones.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any

from fsa_compile.arrays.sized_memo import SizedMemo

_TYPES = {"dict": "object", "float": "number", "double": "number", "tuple": "array", "any": None}
"""Names of types that collections of tools use besides those of JSON Schema."""
_DATA = frozenset({"enum", "const", "default", "examples", "required"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_NAMES = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"}) | _DEFINITIONS
_MEMBERS = frozenset({
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems", "additionalItems",
    "unevaluatedItems",
}) | _DEFINITIONS  # fmt: skip
"""Keywords whose schemas speak of other values than that in which they stand, and narrow it."""
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_SAME_OBJECT = _REFERENCES | {
    "properties", "patternProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies",
    "unevaluatedProperties",
}  # fmt: skip
"""Keywords beside which another schema may speak of the same object."""
_NAMED = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"})
_READ: SizedMemo[bytes] = SizedMemo(4 << 20, len)
"""The schemas that were read last."""


def enforced(schema: Any, closed: bool) -> Any:
    """The schema that is enforced; most turns of a conversation ask for the same again.

    Args:
      closed: whether objects that list `properties`, and do not speak of others, take no others.
    """
    try:
        text = marshal.dumps(schema, 0)  # unlike JSON, it tells tuples from lists, and 1 from "1" where it is a key
    except ValueError:
        return _Reader(closed).whole(schema)
    # Made anew every time: tools of equal schemas are told apart by the objects.
    return marshal.loads(_READ.get((text, closed), lambda: marshal.dumps(_Reader(closed).whole(marshal.loads(text)), 0)))


class _Reader:
    """Reads one schema.

    Attributes:
      twins: whether a definition is needed as it is, too.
    """

    def __init__(self, closed: bool) -> None:
        self._closed, self._twins, self._knows_twins = closed, False, True

    def whole(self, schema: Any) -> Any:
        """The whole schema. Definitions that are needed closed and as they are come twice."""
        out = self._read(schema, self._closed, True)
        if not self._twins:
            return out
        for name in [name for name in _DEFINITIONS if isinstance(out.get(name), dict)]:
            out[name] |= {_twin(key): self._read(part, False, True) for key, part in schema[name].items()}
        return out if self._knows_twins and not _has_names(schema) else _Reader(False).whole(schema)

    def _read(self, schema: Any, closed: bool, is_schema: bool) -> Any:
        """A part of the schema. `closed`: whether its objects are closed; `is_schema`: it is no mapping of names to schemas."""
        if isinstance(schema, list):
            return [self._read(part, closed, is_schema) for part in schema]
        if not isinstance(schema, Mapping):
            return schema
        if not is_schema:
            return {name: self._read(part, closed, True) for name, part in schema.items()}
        alone = len(_SAME_OBJECT & schema.keys()) == 1
        out: dict[Any, Any] = {}
        for key, part in schema.items():
            if key in _DATA:
                out[key] = part
            elif key in _REFERENCES and self._closed:
                out[key] = part if closed and alone else self._open_reference(part)
            elif key == "oneOf" and closed and alone:
                as_it_is, narrower = self._read(part, False, True), self._read(part, True, True)
                out |= {key: as_it_is} if as_it_is == narrower else {key: as_it_is, "anyOf": narrower}
            else:
                inner = key in _MEMBERS or (alone and (key == "anyOf" or (key == "allOf" and len(part) == 1)))
                out[key] = self._read(part, closed and inner, key not in _NAMES)
        kind = out.get("type")
        if isinstance(kind, str) and kind in _TYPES:
            out["type"] = _TYPES[kind]
            if out["type"] is None:
                del out["type"]
        if closed and alone and isinstance(out.get("properties"), dict):
            out.setdefault("additionalProperties", False)
        return out

    def _open_reference(self, target: Any) -> Any:
        """A reference to a definition as it is."""
        self._twins = True
        parts = target.split("/") if isinstance(target, str) else []
        if len(parts) == 3 and parts[0] == "#" and parts[1] in _DEFINITIONS:
            return f"#/{parts[1]}/{_twin(parts[2])}"
        self._knows_twins = False
        return target


def _twin(name: str) -> str:
    """The name of a definition as it is, beside the closed one."""
    return f"{name}.as-given"


def _has_names(part: Any) -> bool:
    """Whether a part of a schema has a name of its own, which a second copy would have, too."""
    if isinstance(part, Mapping):
        return any((key in _NAMED and isinstance(inner, str)) or _has_names(inner) for key, inner in part.items())
    return isinstance(part, list) and any(map(_has_names, part))
