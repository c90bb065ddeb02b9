"""Turns that nobody writes: ids derived from constraints are read at once as token by token, and their calls are valid."""

from __future__ import annotations

import json
import random
import re

import jsonschema
import numpy as np
import pytest
from call_syntax.test_derived_calls import random_arguments
from json_schema.random_schemas import instances, random_schema
from protocols.random_tools import random_tools, random_vocabulary
from protocols.turns import ids_of, refused_at, small_vocabulary

from fsa_compile import PROTOCOLS, SchemaOptions, compile_response, parse_response, response_stream
from fsa_compile.errors import ConstraintError
from fsa_compile.protocols import CallFinished, ContentDelta, GrammarText, ReasoningDelta
from fsa_compile.protocols.tool_schemas import enforced

_RESPONSES = (
    None, None, None, {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "</think>", "{"]}}, "required": ["a"]},
    "[a-z]{1,5}x", int, list[str], GrammarText('start: "(" start ")" | "x"'),
)  # fmt: skip
_CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER


def derived_ids(constraint, vocabulary, rng):
    """Ids of a turn; what is neither a letter nor a wide character is preferred, and the end is reached in time."""
    walk, out, stops = constraint.walk(), [], set(constraint.stop_ids)
    for left in range(max(rng.choice([12, 30, 60, 120]), walk.distance), 0, -1):
        words = walk.allowed_words(max(left, walk.distance))
        found = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: vocabulary.size]).tolist()
        found = [token for token in found if token not in stops]
        if not found or (walk.accepting and rng.random() < 0.15):
            break
        marks = [token for token in found if not vocabulary.tokens[token].strip(b" \"{}[]():,<>|/_=\n'\\0123456789")]
        out.append(rng.choice(marks if marks and rng.random() < 0.6 else found))
        walk.advance(out[-1], max(left, walk.distance))
    return out if walk.accepting else None


def random_request(rng):
    """A protocol, a vocabulary, and what is asked for."""
    name = rng.choice(list(PROTOCOLS))
    protocol, asked = PROTOCOLS[name], {"protocol": name}
    tools = asked["tools"] = random_tools(rng, protocol)
    vocabulary = small_vocabulary(protocol, rng.random() < 0.7) if rng.random() < 0.5 else random_vocabulary(rng, name, protocol, tools)
    for tool in tools:
        if rng.random() < 0.3:
            tool["parameters"] = random_arguments(rng, protocol.calls.arguments.is_call)
    if rng.random() < 0.5:
        asked["tool_choice"] = rng.choice(["required", "required", "none", [tool["name"] for tool in tools[:2]]])
    if protocol.reasoning and rng.random() < 0.5:
        asked["reasoning"] = rng.choice(["off", "required", "begun"])
    return vocabulary, {**asked, "response": rng.choice(_RESPONSES), "strict": rng.random() < 0.7}


def test_what_is_derived_reads_the_same_in_every_way(tally):
    for rng in tally.cases(50):
        vocabulary, asked = random_request(rng)
        written = SchemaOptions(
            key_order=rng.choice(["any", "declared"]), whitespace=rng.choice(["compact", "optional", "spaced", "indented"]),
            integers=rng.choice(["plain", "all"]), string_escapes=rng.choice(["all", "where needed", "shortest"]),
        )  # fmt: skip
        try:
            constraint = compile_response(vocabulary, **asked, options=rng.choice([None, written]))
        except ConstraintError:
            continue
        tally["made"] += 1
        schemas = {tool["name"]: tool["parameters"] for tool in asked["tools"]}
        for _ in range(4):
            ids = derived_ids(constraint, vocabulary, rng)
            if ids is None:
                continue
            found = parse_response(ids, vocabulary, **asked)
            stream = response_stream(vocabulary, **{key: value for key, value in asked.items() if key != "response"})
            events = [event for token in ids for event in stream.feed([token])] + stream.finish()
            assert [event.call for event in events if isinstance(event, CallFinished)] == list(found.calls), ids
            assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)).strip("\n") == found.reasoning
            if asked["response"] is None and not found.calls:
                assert "".join(event.text for event in events if isinstance(event, ContentDelta)) == found.content
            for call in found.calls:
                if not re.search(r"[eE][-+]?\d|\d{15}|\\u0085|\\u202[89]|0000-", json.dumps(call.arguments)):  # which judges read otherwise
                    assert jsonschema.Draft202012Validator(schemas[call.name], format_checker=_CHECKER).is_valid(call.arguments), (schemas, call)
            tally["checks"] += 1
    assert tally["checks"] > tally["made"]


def _with_references(rng, part):
    """A schema with some parts replaced by references."""
    if isinstance(part, list):
        return [_with_references(rng, inner) for inner in part]
    if not isinstance(part, dict):
        return part
    if rng.random() < 0.15:
        return {"$ref": f"#/$defs/{rng.choice('de')}"}
    names = ("properties", "patternProperties", "dependentSchemas")
    return {
        key: inner if key in ("enum", "const", "required", "dependentRequired")
        else {name: _with_references(rng, below) for name, below in inner.items()} if key in names else _with_references(rng, inner)
        for key, inner in part.items()
    }  # fmt: skip


def test_closed_objects_take_nothing_that_the_schema_does_not(tally):
    values = instances()
    for rng in tally.cases(100):
        schema = random_schema(rng, 3)
        if isinstance(schema, dict) and rng.random() < 0.5:
            schema = {**_with_references(rng, schema), "$defs": {"d": random_schema(rng, 2), "e": random_schema(rng, 2)}}
        closed = enforced(schema, True)
        tally["made"] += closed != schema
        judge, stricter = jsonschema.Draft202012Validator(schema), jsonschema.Draft202012Validator(closed)
        for value in rng.sample(values, 40):
            assert judge.is_valid(value) or not stricter.is_valid(value), (schema, value)
            tally["checks"] += 1
    assert tally["made"] > 10


def test_what_is_closed():
    """Unions and lists of objects, and definitions; not what other schemas speak of, too, nor what is negated."""
    one, other = ({"type": "object", "properties": {"t": {"const": t}, k: {"type": "integer"}}, "required": ["t"]} for t, k in ("ax", "by"))
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)
    for schema, takes, takes_not in (
        (one, {"t": "a", "x": 1}, {"t": "a", "y": 1}),
        ({"oneOf": [one, other]}, {"t": "b", "y": 1}, {"t": "b", "x": 1}),
        ({"anyOf": [one, {"type": "null"}]}, None, {"t": "a", "y": 1}),
        ({"allOf": [{"$ref": "#/$defs/one"}]}, {"t": "a"}, {"t": "a", "y": 1}),
        ({"oneOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/other"}]}, {"t": "b", "y": 1}, {"t": "b", "x": 1}),
        ({"type": "array", "items": {"$ref": "#/$defs/one"}}, [{"t": "a"}], [{"t": "a", "y": 1}]),
        ({"allOf": [one, {"properties": {"y": True}}]}, {"t": "a", "x": 1, "y": 2}, {"t": "b"}),
        ({"allOf": [{"$ref": "#/$defs/one"}, {"properties": {"y": True}}]}, {"t": "a", "x": 1, "y": 2}, {"t": "b"}),
        ({"properties": {"k": True}, "anyOf": [one, other]}, {"k": 1, "t": "a"}, {"t": "c"}),
        ({"not": {"properties": {"a": {"const": 1}}}}, {"a": 2}, {"b": 2}),
        ({"not": {"$ref": "#/$defs/one"}}, {"t": "b"}, {"t": "a", "y": 1}),
    ):
        whole = {"type": "object", "properties": {"u": schema}, "$defs": {"one": one, "other": other}}
        constraint = compile_response(vocabulary, protocol="qwen3", tools=[{"name": "f", "parameters": whole}], tool_choice="required")
        for value, fine in ((takes, True), (takes_not, False)):
            text = f'<tool_call>\n{{"name": "f", "arguments": {json.dumps({"u": value})}}}\n</tool_call>'
            assert (refused_at(constraint, ids_of(text, vocabulary)) is None) == fine, (schema, value)


def test_names_that_begin_other_names_are_read_token_by_token():
    for name, text in (
        ("gemma4", "<|tool_call>call:get_xy{}<tool_call|>"),
        ("gemma3-python", "[get(), get_x(), get_xy()]"),
        ("qwen3", '<tool_call>\n{"name": "get_x", "arguments": {}}\n</tool_call>'),
    ):
        vocabulary = small_vocabulary(PROTOCOLS[name], special=True)
        tools = [{"name": tool} for tool in ("get", "get_x", "get_xy", "g")]
        stream, ids = response_stream(vocabulary, protocol=name, tools=tools), ids_of(text, vocabulary)
        events = [event for token in ids for event in stream.feed([token])] + stream.finish()
        names = [event.call.name for event in events if isinstance(event, CallFinished)]
        assert names == re.findall(r"\bget\w*", text)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_white_space_of_every_kind_is_read_back(name):
    tool = {"name": "get", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "boolean"}}}}}
    tool["parameters"] |= {"required": ["a", "b"], "additionalProperties": False}
    vocabulary, rng = small_vocabulary(PROTOCOLS[name], True), random.Random(1)
    asked = {"protocol": name, "tools": [tool], "tool_choice": "required", "reasoning": "off" if PROTOCOLS[name].reasoning else "allowed"}
    constraint = compile_response(vocabulary, **asked, options=SchemaOptions(whitespace="indented"))
    for _ in range(6):
        (call, *_) = parse_response(derived_ids(constraint, vocabulary, rng), vocabulary, **asked).calls
        assert call.name == "get"
        assert {"a", "b"} == call.arguments.keys()
