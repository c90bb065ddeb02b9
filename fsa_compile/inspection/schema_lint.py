"""`lint`: what in a JSON Schema probably says something else than its writer meant. The standard allows all of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, NamedTuple

from fsa_compile.json_schema.documents import read_schema
from fsa_compile.json_schema.formats import FORMATS, REFUSED_FORMATS
from fsa_compile.json_schema.keyword_types import KEYWORDS
from fsa_compile.limits import CompileLimits

_SAY_NOTHING = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding",
    "contentMediaType", "contentSchema", "id", "discriminator", "nullable", "example", "xml", "externalDocs", "const",
})  # fmt: skip
"""Keywords besides those that are checked: annotations of the standard and of OpenAPI."""
_ANNOTATIONS = _SAY_NOTHING - {"const", "id"}
_NEEDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains", "additionalItems": "items"}
_OF_TYPE = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "additionalItems", "unevaluatedItems"),
    "object": (
        "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "propertyNames",
        "dependentRequired", "dependentSchemas", "unevaluatedProperties",
    ),
}  # fmt: skip
_CLOSING = ("additionalProperties", "unevaluatedProperties")
_HOLD_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_HOLD_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_HOLD_ONE = ("items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames")


class Note(NamedTuple):
    """Something that is probably not meant.

    Attributes:
      pointer: JSON pointer of the place, as a URI fragment.
      what: what is odd there.
      fix: what to write.
      is_open: whether all there is to say is that an object may have other keys, which is the standard's default.
    """

    pointer: str
    what: str
    fix: str
    is_open: bool = False

    def __str__(self) -> str:
        return f"{self.pointer}: {self.what}. {self.fix}"


def lint(schema: Any) -> list[Note]:
    """What in a schema is probably not meant, in the order of the schema.

    Noted are keywords that are not known (with the one that was probably meant), formats that are not known and so say nothing,
    keywords that do nothing where they stand (`maxLength` of an integer, `then` without `if`, what stands beside `$ref` before
    draft 2019-09), and objects that name their properties and allow any others.

    Args:
      schema: as decoded JSON, or its text.

    Returns:
      The notes; none for a schema that says what it looks like.

    Raises:
      SchemaError: it is no schema.

    Examples:
      >>> for note in lint({"type": "object", "propertes": {"age": {"type": "integer"}}}): print(note)
      #/propertes: the keyword 'propertes' is not known, so it says nothing. Did you mean 'properties'?
    """
    read = read_schema(schema, CompileLimits())
    draft = str(read.get("$schema", "")) if isinstance(read, dict) else ""
    return list(_notes(read, "#", any(f"draft-0{n}" in draft for n in (3, 4, 6, 7))))


def _notes(schema: Any, pointer: str, is_old: bool) -> Iterator[Note]:
    if not isinstance(schema, dict):
        return
    for keyword in schema:
        yield from _of_keyword(schema, keyword, f"{pointer}/{_escaped(keyword)}", is_old)
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties and not any(name in schema for name in _CLOSING):
        what = f"the object has {', '.join(map(repr, list(properties)[:3]))} and may have any other keys"
        yield Note(pointer, what, 'Write "additionalProperties": false, unless that is meant.', is_open=True)
    for keyword, value in schema.items():
        place = f"{pointer}/{_escaped(keyword)}"
        if keyword in _HOLD_MAPS and isinstance(value, dict):
            for name, part in value.items():
                yield from _notes(part, f"{place}/{_escaped(name)}", is_old)
        elif keyword in (*_HOLD_SCHEMAS, "items") and isinstance(value, list):
            for i, part in enumerate(value):
                yield from _notes(part, f"{place}/{i}", is_old)
        elif keyword in _HOLD_ONE:
            yield from _notes(value, place, is_old)


def _of_keyword(schema: dict[str, Any], keyword: str, place: str, is_old: bool) -> Iterator[Note]:
    known = KEYWORDS | _SAY_NOTHING
    if keyword not in known and not keyword.startswith(("$", "x-")):
        close = difflib.get_close_matches(keyword, sorted(known), 1, 0.7)
        own = 'For a remark of your own use "$comment", or a name that begins with "x-".'
        fix = f"Did you mean {close[0]!r}?" if close else own
        yield Note(place, f"the keyword {keyword!r} is not known, so it says nothing", fix)
        return
    if is_old and "$ref" in schema and keyword not in ("$ref", "definitions", "$schema") and keyword not in _ANNOTATIONS:
        yield Note(place, f"before draft 2019-09 {keyword!r} says nothing beside '$ref'", 'Put both into "allOf".')
    if keyword == "format" and isinstance(schema["format"], str):
        name = schema["format"]
        if name not in FORMATS and name not in REFUSED_FORMATS:
            close = difflib.get_close_matches(name, sorted(FORMATS), 1, 0.7)
            fix = f"Did you mean {close[0]!r}?" if close else 'Write a "pattern".'
            yield Note(place, f"the format {name!r} is not known, so it says nothing", fix)
    needed = _NEEDS.get(keyword)
    if needed is not None and needed not in schema:
        yield Note(place, f"{keyword!r} says nothing without {needed!r}", f"Add {needed!r}, or remove it.")
    types = schema.get("type")
    if types is None:
        return
    allowed = {"number" if name == "integer" else name for name in ([types] if isinstance(types, str) else types)}
    for of_type, names in _OF_TYPE.items():
        if keyword in names and of_type not in allowed:
            said = types if isinstance(types, str) else " or ".join(map(str, types))
            yield Note(place, f"{keyword!r} is about {of_type}s, and the type is {said}", "Remove it, or change the type.")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
