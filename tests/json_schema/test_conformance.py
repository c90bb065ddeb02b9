"""Public suites: no invalid instance is accepted, and what is refused or rejected is on a list that may only shrink.

The list is `known_limits.json`: per suite the schemas that are refused, and per schema the valid instances that are rejected,
because their keys come in an order that the schema does not name, or, in `formats`, because a format is written in part only.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from benchmarks.schema_conformance import judge, rows_of
from fsa_compile import SchemaError, SchemaOptions, UnsatisfiableError, Vocabulary, compile_json_schema

KNOWN = json.loads((Path(__file__).parent / "known_limits.json").read_text())


@pytest.mark.parametrize(("suite", "every"), [("dev", 25), ("official", 5), ("formats", 2)])
def test_suite(suite, every, data_dir, exhaustive):
    known = KNOWN[suite]
    for row in rows_of(suite, data_dir)[:: 1 if exhaustive else every]:
        verdict, name = judge(row, suite), row["name"]
        assert not verdict.get("false_accept"), name
        assert (verdict["refused"] is not None) == (name in known["refused"]), (name, verdict["refused"])
        assert verdict.get("false_reject", []) == known["rejected"].get(name, []), name


def test_bars():
    """Of the dev schemas with instances, at least 96 % are judged right; of the official groups, at least 92 %."""
    refused = [name for name in KNOWN["dev"]["refused"] if name not in KNOWN["dev"]["without instances"]]
    assert len(refused) + len(KNOWN["dev"]["rejected"]) <= 888 * 0.04
    assert len(KNOWN["official"]["refused"]) + len(KNOWN["official"]["rejected"]) <= 600 * 0.08


INTEGER = {"type": "integer"}
KEYWORDS = {
    "allOf": [INTEGER], "anyOf": [INTEGER], "oneOf": [INTEGER], "not": INTEGER, "minProperties": 1, "maxProperties": 0, "multipleOf": 2,
    "divisibleBy": 2, "disallow": ["integer"], "extends": INTEGER, "const": 1, "contains": INTEGER, "propertyNames": {"pattern": "a"},
    "if": INTEGER, "dependencies": {"a": ["b"]}, "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"required": ["b"]}},
    "prefixItems": [{"type": "string"}], "unevaluatedItems": False, "unevaluatedProperties": False, "minContains": 2,
    "maxContains": 0, "$dynamicRef": "#/$defs/q",
}  # fmt: skip
BESIDE = (
    {"unevaluatedItems": False, "unevaluatedProperties": {"type": "string"}}, {"then": {"minimum": 2}, "properties": {"a": INTEGER}},
    {"contains": INTEGER},
)  # fmt: skip
DRAFTS = {
    "3": jsonschema.Draft3Validator, "4": jsonschema.Draft4Validator, "6": jsonschema.Draft6Validator, "7": jsonschema.Draft7Validator,
    "2019-09": jsonschema.Draft201909Validator, "2020-12": jsonschema.Draft202012Validator,
}  # fmt: skip
VALUES = (1, 2, 1.5, "a", [], [1], ["a"], ["a", 1], [1, 1], {}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x"})


@pytest.mark.parametrize("draft", DRAFTS)
def test_keywords_that_a_draft_does_not_have_say_nothing_there(draft, exhaustive):
    """Wherever they stand, beside keywords that would heed them too; against the validators of the package jsonschema."""
    vocabulary = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256))], stop_ids=[0])
    options = SchemaOptions(draft=draft)
    compared = 0
    for i, keyword in enumerate(KEYWORDS):
        for beside in BESIDE if exhaustive else [BESIDE[i % 3]]:
            schema = {**beside, keyword: KEYWORDS[keyword]}
            if draft == "2019-09" and schema.keys() >= {"contains", "unevaluatedItems"}:
                continue  # jsonschema takes what contains finds as evaluated, as only later drafts do
            for given in (schema, {"items": schema}) if exhaustive else (schema,):
                given = given | {"$defs": {"q": INTEGER}}
                judge = DRAFTS[draft](given)
                try:
                    constraint = compile_json_schema(given, vocabulary, options=options)
                except UnsatisfiableError:
                    constraint = None
                for value in VALUES:
                    accepted = constraint is not None and accepts(constraint, json.dumps(value))
                    assert accepted == judge.is_valid(value), (given, value)
                    compared += 1
    assert compared > 250


def accepts(constraint, text):
    walk = constraint.walk()
    for byte in text.encode():
        if not walk.allowed_words()[byte + 1 >> 5] >> (byte + 1 & 31) & 1:
            return False
        walk.advance(byte + 1)
    return walk.accepting


def test_an_exclusive_bound_that_is_none_is_refused():
    vocabulary = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256))], stop_ids=[0])
    for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        compile_json_schema({keyword: False}, vocabulary)
        with pytest.raises(SchemaError, match=f"{keyword}: true needs the bound"):
            compile_json_schema({keyword: True}, vocabulary)


def test_a_recursive_reference_to_anything_but_the_root_is_refused():
    vocabulary = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256))], stop_ids=[0])
    recursive = {"items": {"$recursiveRef": "#"}, "type": "array", "$recursiveAnchor": False}
    assert accepts(compile_json_schema(recursive, vocabulary), "[[], [[]]]")
    with pytest.raises(SchemaError, match="only '#' has a meaning"):
        compile_json_schema({"$recursiveRef": "#/$defs/a", "$defs": {"a": {}}}, vocabulary)
