"""Texts of random schemas whose keys and strings look like YAML: what is derived, and what differs from it in one place, is valid."""

from __future__ import annotations

import random
import re
from typing import Any

import jsonschema
import pytest
import yaml
from call_syntax.test_derived_calls import random_value_schema
from json_schema.random_schemas import random_schema
from oracles.text_walks import mutations
from yaml_schema.layouts import DuplicateKeyError, read
from yaml_schema.test_yaml_schema import exotic
from yaml_schema.texts import random_text

from fsa_compile.errors import LimitError, SchemaError
from fsa_compile.json_schema import SchemaOptions
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.yaml_schema import YamlOptions, compile_yaml_schema, yaml_machine

_KEYS = (
    "null", "y", "1", "-x", "a: b", "a #b", "- a", "? b", "k'", 'k"', "é", "\x07", "a\nb", "0x1f", "2020-01-01", "<<", "[a", "{", "&a", "*b",
    "!c", "|", ">", "%d", "@", "`", "x:", "a:b", "ok then", "", " lead", "trail ", "😀", "\u2028", "~", "1e5", "--- a", "...", "true", "1:30", "a,b",
)  # fmt: skip
_STRINGS = (*_KEYS, "it's", "# c", "\t", "a\tb", "yes", "1_0", ".inf", "12:30:45", "=", "a  b", "\xa0", "::", "a:", "-", "?", "a]", " ")
_PATTERNS = (
    "^[ -~]{1,4}$", "^[-?:,\\[\\]{}#&*!|>'\"%@` a]{1,4}$", "^[0-9.eE+_:xo-]{1,6}$", "^[ac]{1,2}$", "^[a-c \\n]*$", "^[\\x00-\\x20a]{2}$",
    "^(y|n|Yes|~|null|<<)x?$", "^[ny1][ :-]+#?",
)  # fmt: skip


def _leaf(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.3:
        return {"enum": [*rng.sample(_STRINGS, rng.randint(1, 4)), *rng.choice([[], [1], [None, True], [-2.5]])]}
    if kind < 0.5:
        return {"type": "string", "pattern": rng.choice(_PATTERNS)}
    if kind < 0.6:
        return {"type": "string", "minLength": rng.randint(0, 40), "maxLength": rng.choice([40, 50, 90])}
    return random_value_schema(rng)


def schema_of(rng: random.Random, depth: int = 2) -> Any:
    """A schema of nested collections; members that are required and cannot be are common."""
    kind = rng.random()
    if not depth or kind < 0.2:
        return _leaf(rng)
    if kind < 0.6:
        keys = rng.sample(_KEYS, rng.randint(1, 3))
        schema: dict[str, Any] = {"type": "object", "properties": {key: schema_of(rng, depth - 1) for key in keys}}
        schema["required"] = [key for key in keys if rng.random() < 0.6]
        if rng.random() < 0.8:
            schema["additionalProperties"] = rng.random() > 0.7 and _leaf(rng)
        if rng.random() < 0.2:
            schema["patternProperties"] = {rng.choice(["^a", "^[0-9]", "[ny]"]): _leaf(rng)}
        if rng.random() < 0.2:
            schema["propertyNames"] = {"pattern": rng.choice(["^[a-z ]{0,3}$", "^[^a]", "[-:#]"])}
        return schema
    if kind < 0.8:
        return {"type": "array", "items": schema_of(rng, depth - 1), **rng.choice([{}, {"maxItems": rng.randint(1, 4)}, {"prefixItems": [_leaf(rng)]}])}
    if kind < 0.9:
        return {rng.choice(["anyOf", "oneOf", "allOf"]): [schema_of(rng, depth - 1), schema_of(rng, depth - 1)]}
    return random_schema(rng, depth)


def is_valid(judge: Any, text: str) -> bool | None:
    """Whether PyYAML reads a text as a valid value; None where a key comes twice, or floats tell too little."""
    try:
        value = read(text)
    except DuplicateKeyError:
        return None
    except (yaml.YAMLError, ValueError):
        return False
    return None if exotic(value) or re.search(r"\d{15}|[eE][-+]|\x85|\b0000-", text) else judge.is_valid(value)


@pytest.mark.parametrize("style", ["block", "flow"])
def test_what_is_derived_is_valid_and_no_text_is_a_dead_end(style, tally):
    for rng in tally.cases(8, least=3_000, name=style):
        schema = schema_of(rng)
        options = YamlOptions(
            max_indent=rng.choice([0, 2, 4, 12]), max_key_length=rng.choice([0, 5, 40]), max_plain=rng.choice([3, 32]), schema=SchemaOptions(draft="2020-12")
        )
        try:
            machine = yaml_machine(schema, style=style, options=options)
        except (SchemaError, LimitError):
            continue
        tally["made"] += 1
        judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for _ in range(6):
            made = random_text(machine, rng, soft=rng.choice([10, 40, 60]))
            text = "" if made is None else made.decode()
            near = [other for other in mutations(text, rng, 20, "'\" \n-:,#[]{}1a") if machine.accepts(other.encode())] if made else []
            for one in [text, *near] if made else []:
                assert is_valid(judge, one) is not False, (schema, options, one)
                tally["checks"] += 1
    assert tally["checks"] > 10


_EMPTY = {"type": "array", "minItems": 1, "items": False}
_WITHOUT_VALUES = [
    ({"properties": {"x": _EMPTY}}, "x:"),
    ({"properties": {"x": _EMPTY}, "additionalProperties": False}, "x:"),
    ({"properties": {"x": {"required": ["b"], "properties": {"a": True}, "additionalProperties": False, "type": "object"}}}, "'x':"),
    ({"properties": {"x": {"type": "object", "required": ["long"], "propertyNames": {"pattern": "^.{0,3}$"}}}}, '"x":'),
    ({"properties": {"x": {"type": "array", "items": _EMPTY}}, "additionalProperties": False}, "x:\n-"),
    ({"items": _EMPTY}, "- "),
    ({"items": {"items": _EMPTY}}, "- - "),
]


@pytest.mark.parametrize(("schema", "text"), _WITHOUT_VALUES, ids=str)
def test_keys_and_dashes_of_members_without_values_are_not_written(schema, text):
    for style in ("block", "flow"):
        here = {(machine := yaml_machine(schema, style=style)).initial}
        for byte in text.encode() if style == "block" else b"{" + text.encode():
            here = machine.step(here, byte)
            assert not here or machine.may_end(here) or any(machine.step(here, b) for b in range(256)), text


def test_no_mask_is_empty_before_a_member_without_values():
    vocabulary = Vocabulary.from_tokens([bytes([byte]) for byte in range(128)] + [b""], stop_ids=[128])
    walk = compile_yaml_schema(_WITHOUT_VALUES[1][0] | {"type": "object"}, vocabulary).walk()
    assert [chr(token) for token in walk.allowed().nonzero()[0]] == ["{"]
