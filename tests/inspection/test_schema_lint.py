"""What `inspect.lint` notes of a schema, and what it has nothing to say about."""

from __future__ import annotations

import json

import pytest

from fsa_compile import SchemaError, inspect

NOTED = {
    "a misspelled keyword": ({"propertes": {}}, "#/propertes", "Did you mean 'properties'?"),
    "in another case": ({"type": "string", "maxlength": 3}, "#/maxlength", "Did you mean 'maxLength'?"),
    "a keyword of one's own": ({"colour": 1}, "#/colour", "$comment"),
    "an unknown format": ({"format": "phone"}, "#/format", 'Write a "pattern"'),
    "a misspelled format": ({"format": "datetime"}, "#/format", "Did you mean 'date-time'?"),
    "a length of an integer": ({"type": "integer", "maxLength": 3}, "#/maxLength", "is about strings, and the type is integer"),
    "a bound of a string": ({"type": ["string", "null"], "minimum": 3}, "#/minimum", "string or null"),
    "then without if": ({"then": {}}, "#/then", "says nothing without 'if'"),
    "minContains alone": ({"type": "array", "minContains": 2}, "#/minContains", "without 'contains'"),
    "beside an old reference": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "$ref": "#/definitions/a", "maximum": 3},
        "#/maximum", 'Put both into "allOf"',
    ),
    "an open object": ({"type": "object", "properties": {"a": {}}}, "#", '"additionalProperties": false'),
    "further inside": ({"anyOf": [True, {"items": {"$defs": {"a/b": {"typ": 1}}}}]}, "#/anyOf/1/items/$defs/a~1b/typ", "'type'"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTED)
def test_notes(name):
    schema, pointer, says = NOTED[name]
    for given in (schema, json.dumps(schema)):
        (note,) = inspect.lint(given)
        assert note.pointer == pointer
        assert says in str(note)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object", "properties": {"a": {"type": "number", "minimum": 0}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False, "title": "A", "x-mine": 1, "$comment": "..."},
        {"type": ["string", "integer"], "maxLength": 3, "maximum": 9, "format": "date-time", "const": "a", "enum": ["a"]},
        {"if": {"const": 1}, "then": {"const": 1}, "contains": {}, "minContains": 2, "prefixItems": [{}], "items": False},
        {"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {}}},
        {"properties": {"propertes": {"type": "null"}}, "additionalProperties": True, "examples": [{"typ": 1}]},
    ],
)
def test_nothing_to_say(schema):
    assert inspect.lint(schema) == []


def test_no_schema():
    with pytest.raises(SchemaError):
        inspect.lint([1])
