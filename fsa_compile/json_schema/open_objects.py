"""Objects that name some of their keys and allow any others, which is the standard's default: where they are in a schema.

`SchemaOptions(additional_properties=False)` closes them as `"unevaluatedProperties": false` would, in every draft.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fsa_compile.errors import SchemaError
from fsa_compile.json_schema.documents import Document
from fsa_compile.json_schema.schema_options import SchemaOptions

_MOST_PLACES = 20
_CLOSING = ("additionalProperties", "unevaluatedProperties")
_MEMBERS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", *_CLOSING)
_CONDITIONS = ("not", "if", "contains", "propertyNames", "disallow")
_DATA = ("enum", "const", "default", "examples", "example", "required", "dependentRequired")
_NAMING = ("properties", "patternProperties")


def open_objects(document: Document) -> list[dict[str, Any]]:
    """The schemas of values that name keys and, in no branch that must hold, say anything of others."""
    return _Search(document).found


def open_places(document: Document) -> list[str]:
    """JSON pointers of `open_objects`; of many the first ones, and then "…"."""
    places = [document.pointer(schema) for schema in open_objects(document)]
    return places if len(places) <= _MOST_PLACES else [*places[:_MOST_PLACES], "…"]


def document_of(schema: Any, options: SchemaOptions, *, of_defs: bool = False) -> Document:
    """The document of a schema; where its objects are to be closed, with a schema of its own for each use of a Python object.

    Args:
      schema: as it was read.
      options: how it is read.
      of_defs: whether the values are not those of the whole schema, but of each of its `$defs`.
    """
    if not options.additional_properties:
        apart = _Apart()
        if of_defs:
            schema = schema | {"$defs": {name: apart.copied(part, "value") for name, part in schema["$defs"].items()}}
        else:
            schema = apart.copied(schema, "value")
    document = Document(schema, options.draft)
    document.roots = list(schema["$defs"].values()) if of_defs else [schema]
    return document


class _Apart:
    """Copies a schema, so that what describes a value alone, beside other schemas, or in a condition are different objects."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], Any] = {}

    def copied(self, schema: Any, use: str) -> Any:
        if not isinstance(schema, dict):
            return schema
        made = self._made.get((id(schema), use))
        if made is None:
            made = self._made[id(schema), use] = {}
            made.update({key: self._below(key, value, use) for key, value in schema.items()})
        return made

    def _below(self, key: str, value: Any, use: str) -> Any:
        if key in _DATA or not isinstance(value, (dict, list)):
            return value
        if use != "condition":
            use = "condition" if key in _CONDITIONS else "value" if key in (*_NAMING, *_MEMBERS) else "together"
        if isinstance(value, list):
            return [self.copied(part, use) for part in value]
        if key in (*_NAMING, "$defs", "definitions", "dependentSchemas", "dependencies"):
            return {name: self.copied(part, use) for name, part in value.items()}
        return self.copied(value, use)


class _Search:
    """Looks at every schema once as that of a value, and once as one of several that speak of the same value."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[int, bool] = {}
        self._closes: dict[int, bool] = {}
        self.found: list[dict[str, Any]] = []
        seen, todo = set[tuple[int, bool]](), [(root, True) for root in reversed(document.roots)]
        while todo:
            schema, alone = todo.pop()
            if not isinstance(schema, dict) or (id(schema), alone) in seen:
                continue
            seen.add((id(schema), alone))
            if alone and self._has_names(schema) and not self._is_closed(schema):
                self.found.append(schema)
            below = [part for keyword in _NAMING for part in _parts(schema.get(keyword), named=True)]
            below += [part for keyword in _MEMBERS for part in _parts(schema.get(keyword))]
            todo += [(part, False) for part in reversed([*self._together(schema), *_choices(schema)])]
            todo += [(part, True) for part in reversed(below)]

    def _together(self, schema: dict[str, Any]) -> list[Any]:
        """The schemas that a value must satisfy besides."""
        found = [*_parts(schema.get("allOf")), *_parts(schema.get("extends"))]
        if isinstance(schema.get("$ref"), str):
            with contextlib.suppress(SchemaError):  # where it matters, who compiles the schema says so
                found.append(self._document.resolve(schema["$ref"], schema))
        return found

    def _has_names(self, schema: Any) -> bool:
        """Whether a schema, or one that may speak of the same value, names keys."""
        if not isinstance(schema, dict):
            return False
        if id(schema) not in self._names:
            self._names[id(schema)] = False  # of what it contains itself
            own = any(schema.get(keyword) for keyword in _NAMING)
            self._names[id(schema)] = own or any(map(self._has_names, [*self._together(schema), *_choices(schema)]))
        return self._names[id(schema)]

    def _is_closed(self, schema: Any) -> bool:
        """Whether a schema speaks of additional keys, in every branch."""
        if not isinstance(schema, dict):
            return False
        if id(schema) not in self._closes:
            self._closes[id(schema)] = False
            own = any(keyword in schema for keyword in _CLOSING)
            branches = [group for keyword in ("anyOf", "oneOf") if (group := _parts(schema.get(keyword)))]
            self._closes[id(schema)] = (
                own
                or any(map(self._is_closed, self._together(schema)))
                or any(all(map(self._is_closed, group)) for group in branches)
            )
        return self._closes[id(schema)]


def _choices(schema: dict[str, Any]) -> list[Any]:
    """The schemas that may hold for the same value."""
    found = [part for keyword in ("anyOf", "oneOf", "then", "else") for part in _parts(schema.get(keyword))]
    dependent = (schema.get(keyword) for keyword in ("dependentSchemas", "dependencies"))
    return [*found, *(part for parts in dependent for part in _parts(parts, named=True))]


def _parts(value: Any, *, named: bool = False) -> list[Any]:
    """The subschemas of a keyword: those of a map, of a list, or the one."""
    if named:
        return list(value.values()) if isinstance(value, dict) else []
    return value if isinstance(value, list) else [value]
