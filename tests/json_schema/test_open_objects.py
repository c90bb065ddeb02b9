"""Objects that are open by default: where the artifact says they are, and what closes them, against jsonschema."""

from __future__ import annotations

import itertools
import json

import pytest

from fsa_compile import (
    CompiledConstraint,
    SchemaOptions,
    Vocabulary,
    YamlOptions,
    compile_json_schema,
    compile_yaml_schema,
    inspect,
)
from fsa_compile.errors import ConstraintError
from fsa_compile.inspection.explain import explain

jsonschema = pytest.importorskip("jsonschema")
VOCABULARY = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256))], stop_ids=[0])
CLOSED = SchemaOptions(additional_properties=False, key_order="any")
A, B, C = ({"properties": {key: {"type": "integer"}}} for key in "abc")
REF = {"$defs": {"base": A}}
SCHEMAS = {
    "flat": (A, A | {"additionalProperties": False}, ["#"]),
    "nested": (
        {"properties": {"a": B, "b": {"items": C}}},
        {"properties": {"a": B | {"additionalProperties": False}, "b": {"items": C | {"additionalProperties": False}}}, "additionalProperties": False},
        ["#", "#/properties/a", "#/properties/b/items"],
    ),
    "allOf": ({"allOf": [A, B]}, {"allOf": [A, B], "unevaluatedProperties": False}, ["#"]),
    "anyOf": ({"anyOf": [A | {"required": ["a"]}, B]}, {"anyOf": [A | {"required": ["a"]}, B], "unevaluatedProperties": False}, ["#"]),
    "a branch is closed": (
        {"anyOf": [A | {"additionalProperties": False}, B | {"required": ["b"]}]},
        {"anyOf": [A | {"additionalProperties": False}, B | {"required": ["b"]}], "unevaluatedProperties": False},
        ["#"],
    ),
    "a reference": (REF | {"$ref": "#/$defs/base"}, REF | {"$ref": "#/$defs/base", "unevaluatedProperties": False}, ["#"]),
    "a base that is extended": (
        REF | {"allOf": [{"$ref": "#/$defs/base"}, B]},
        REF | {"allOf": [{"$ref": "#/$defs/base"}, B], "unevaluatedProperties": False},
        ["#"],
    ),
    "if": (
        {"if": A | {"required": ["a"]}, "then": B, "else": C},
        {"if": A | {"required": ["a"]}, "then": B, "else": C, "unevaluatedProperties": False},
        ["#"],
    ),
    "patterns": ({"patternProperties": {"^a": {}}}, {"patternProperties": {"^a": {}}, "additionalProperties": False}, ["#"]),
    "not": ({"not": A | {"required": ["b"]}}, {"not": A | {"required": ["b"]}}, []),
    "open in so many words": (A | {"additionalProperties": True}, A | {"additionalProperties": True}, []),
    "of one kind": (A | {"additionalProperties": {"type": "integer"}}, A | {"additionalProperties": {"type": "integer"}}, []),
    "no names": ({"type": "object"}, {"type": "object"}, []),
    "itself": (
        {"properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}, "additionalProperties": False},
        ["#", "#/properties/a"],
    ),
}  # fmt: skip
VALUES = [1, "x", {}, [], {"a": {}}, {"a": {"b": 1}}, {"a": {"c": 1}}, {"b": [{"c": 1}, {"d": 1}]}, {"b": [{"c": 1}]}, {"a": {"a": {"d": 1}}}]
VALUES += [dict(zip(keys, (1, 2, 3))) for n in (1, 2, 3) for keys in itertools.permutations("abcd", n)]


def accepts(constraint, value) -> bool:
    return explain(constraint, VOCABULARY, json.dumps(value)).verdict == "accepted"


@pytest.mark.parametrize("name", SCHEMAS)
def test_closed_everywhere(name):
    schema, closed, places = SCHEMAS[name]
    judge = jsonschema.Draft202012Validator(closed)
    constraint = compile_json_schema(schema, VOCABULARY, options=CLOSED)
    assert [value for value in VALUES if accepts(constraint, value) != judge.is_valid(value)] == []
    assert constraint.open_objects == ()
    opened = compile_json_schema(schema, VOCABULARY, options=SchemaOptions(key_order="any"))
    assert list(opened.open_objects) == places
    free = jsonschema.Draft202012Validator(schema)
    assert [value for value in VALUES if accepts(opened, value) != free.is_valid(value)] == []


@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"])
def test_older_drafts(draft):
    """Before draft 2019-09 there was no keyword for it, and nothing could stand beside $ref."""
    schema = {"$schema": draft, "definitions": {"base": A}, "properties": {"b": {"$ref": "#/definitions/base"}}}
    constraint = compile_json_schema(schema | {"dependencies": {"b": C}}, VOCABULARY, options=CLOSED)
    for value, fine in (({"b": {"a": 1}}, True), ({"b": {"c": 1}}, False), ({"d": 1}, False), ({"b": {}, "c": 1}, True), ({"c": 1}, False)):
        assert accepts(constraint, value) == fine, value
    third = {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {}}, "extends": B}
    constraint = compile_json_schema(third, VOCABULARY, options=CLOSED)
    assert [accepts(constraint, value) for value in ({"a": 1, "b": 2}, {"c": 1})] == [True, False]


def test_an_artifact_says_where_it_is_open(tmp_path):
    constraint = compile_json_schema(SCHEMAS["nested"][0], VOCABULARY)
    assert "objects open to other keys at #, #/properties/a, #/properties/b/items)" in repr(constraint)
    assert inspect.statistics(constraint).open_objects == constraint.open_objects
    constraint.save(tmp_path / "a.npz")
    assert CompiledConstraint.load(tmp_path / "a.npz", VOCABULARY).open_objects == constraint.open_objects
    assert "open" not in repr(compile_json_schema(SCHEMAS["nested"][0], VOCABULARY, options=CLOSED))
    many = json.loads(json.dumps({"properties": {f"k{i}": A for i in range(30)}}))
    assert len(compile_json_schema(many, VOCABULARY).open_objects) == 21
    assert repr(compile_json_schema(many, VOCABULARY)).endswith("at #, #/properties/k0, #/properties/k1, …)")


def test_schemas_that_contain_themselves_and_deep_ones():
    branches = A
    for _ in range(12):  # 4,096 ways through it
        branches = {"allOf": [branches, branches]}
    assert compile_json_schema(branches, VOCABULARY).open_objects == ("#",)
    schema = {"$defs": {"a": {"anyOf": [A, {"items": {"$ref": "#/$defs/a"}}]}}, "$ref": "#/$defs/a"}
    assert compile_json_schema(schema, VOCABULARY).open_objects == ("#", "#/$defs/a/anyOf/1/items")


def test_one_python_object_in_several_places():
    """What is closed where it describes a value alone stays open where other schemas stand beside it, or in a condition."""
    schema = {"properties": {"a": {"properties": {"x": A}}, "b": {"allOf": [A, B], "not": A | {"required": ["a"]}}}, "not": {"required": ["c"]}}
    schema["properties"]["a"]["properties"]["y"] = {"not": {"items": {"items": A}}}
    constraint = compile_json_schema(schema, VOCABULARY, options=CLOSED)
    for value, fine in (({"b": {"b": 2}}, True), ({"b": {"c": 1}}, False), ({"a": {"x": {"a": 1}}}, True), ({"a": {"x": {"b": 1}}}, False)):
        assert accepts(constraint, value) == fine, value


def test_yaml_is_closed_too():
    constraint = compile_yaml_schema(A, VOCABULARY, options=YamlOptions(schema=SchemaOptions(additional_properties=False)))
    assert explain(constraint, VOCABULARY, "a: 1\n").verdict != "refused"
    assert explain(constraint, VOCABULARY, "b: 1\n").verdict == "refused"


def test_the_option_is_true_or_false():
    with pytest.raises(ConstraintError, match="additional_properties is"):
        SchemaOptions(additional_properties={"type": "integer"})
