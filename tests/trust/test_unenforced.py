"""What cannot be enforced is refused, or left out on demand and named in the artifact; never where that would forbid valid values."""

import dataclasses

import pytest

from fsa_compile import (
    ArtifactError,
    CompileCache,
    CompiledConstraint,
    ConstraintError,
    SchemaOptions,
    UnsupportedSchemaError,
    Vocabulary,
    compile_json_schema,
)

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])
UNIQUE = {"type": "object", "properties": {"a/b": {"type": "array", "uniqueItems": True}}, "required": ["a/b"], "additionalProperties": False}
PLACE = "#/properties/a~1b/uniqueItems"


def accepted(constraint: CompiledConstraint, text: bytes) -> bool:
    walk = constraint.walk()
    for byte in text:
        if not walk.allowed()[byte]:
            return False
        walk.advance(byte)
    return walk.accepting


def test_refused_by_default():
    with pytest.raises(UnsupportedSchemaError) as caught:
        compile_json_schema(UNIQUE, LETTERS)
    assert caught.value.pointer == PLACE


def test_left_out_on_demand(tmp_path):
    options, cache = SchemaOptions(unenforced={"uniqueItems"}), CompileCache(tmp_path / "cache")
    for _ in range(2):
        made = compile_json_schema(UNIQUE, LETTERS, options=options, cache=cache)
        assert made.unenforced == (PLACE,)
        assert accepted(made, b'{"a/b": [1, 1]}')
        assert not accepted(made, b'{"a/b": 1}')
    assert cache.hits == 1
    made.save(tmp_path / "c.npz")
    assert CompiledConstraint.load(tmp_path / "c.npz").unenforced == (PLACE,)
    assert UNIQUE["properties"]["a/b"] == {"type": "array", "uniqueItems": True}


def test_what_can_be_enforced_stays():
    listed = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}
    schema = {"prefixItems": [listed, {"type": "array", "uniqueItems": True}, {"format": "idn-hostname"}], "type": "array"}
    made = compile_json_schema(schema, LETTERS, options=SchemaOptions(unenforced=["format", "uniqueItems"]))
    assert set(made.unenforced) == {"#/prefixItems/1/uniqueItems", "#/prefixItems/2/format"}
    assert accepted(made, b'[["a"], [1, 1], "x"]')
    assert not accepted(made, b'[["a", "a"], [1, 1], "x"]')
    with pytest.raises(UnsupportedSchemaError, match="idn-hostname"):
        compile_json_schema(schema, LETTERS, options=SchemaOptions(unenforced=["uniqueItems"]))


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "array", "uniqueItems": True}},
        {"oneOf": [{"type": "array", "uniqueItems": True}, {"type": "null"}]},
        {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "array", "uniqueItems": True}}},
        {"if": {"type": "array", "uniqueItems": True}, "then": False},
    ],
)
def test_where_less_would_be_allowed(schema):
    with pytest.raises(UnsupportedSchemaError):
        compile_json_schema(schema, LETTERS, options=SchemaOptions(unenforced=["uniqueItems"]))


def test_files_that_say_something_else(tmp_path):
    made = compile_json_schema({"const": 1}, LETTERS)
    for wrong in (5, [1], {"a": 1}):
        dataclasses.replace(made, extra={"unenforced": wrong}).save(tmp_path / "c.npz")
        with pytest.raises(ArtifactError, match="'unenforced'"):
            CompiledConstraint.load(tmp_path / "c.npz")


def test_options_that_are_wrong():
    for given in ({"items"}, "items", [5]):
        with pytest.raises(ConstraintError, match=r"SchemaOptions\.unenforced"):
            SchemaOptions(unenforced=given)
