"""Arguments under random schemas that nobody writes: texts derived from the machine read as valid values, by readers of each language."""

from __future__ import annotations

import ast
import json
import random
import re
import warnings
from typing import Any

import jsonschema
from call_syntax.test_syntaxes import LIMITS, MARK, SYNTAXES
from json_schema.random_schemas import random_schema
from oracles.call_readers import read_marked
from oracles.text_walks import derived

from fsa_compile.automata.pushdown import Configuration
from fsa_compile.call_syntax.argument_machines import arguments_machine
from fsa_compile.call_syntax.written_arguments import ArgumentsEnd, json_of
from fsa_compile.errors import SchemaError
from fsa_compile.json_schema import SchemaOptions
from fsa_compile.limits import Deadline

_TEXTS = ["it's", 'q"q', "'\"", "\n", "\\", "", "\x7f", "\u2028", "😀", "<q", "True", "null", "1", "{[(,:"]
_PATTERNS = ["^a'\"b$", "\\\\", "^[^a-z]*$", "\\s", "^\\n", "'", '"$', "[\\x00-\\x1f]", "^.{3}$", "é|😀", "<q", "\\d+$", "^q>"]
_LEAVES: list[Any] = [
    True, {"type": "string"}, {"type": "string", "minLength": 2, "maxLength": 4}, {"type": "number"}, {"type": "integer", "multipleOf": 7},
    {"type": "number", "minimum": -1e-7, "exclusiveMaximum": 20.25}, {"enum": [1, True, "1", None, "null", 0, [], {}, -2.5]},
    {"const": {"k'": ["x", {"a b": [None]}]}}, {"type": "array", "items": {"type": ["string", "boolean", "null"]}, "maxItems": 3},
    {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2}, {"type": "object", "propertyNames": {"maxLength": 2}},
    {"type": "object", "patternProperties": {"^[x']": {"type": "number"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "array", "prefixItems": [{"enum": ["'", None]}, {"type": "boolean"}], "items": False},
    {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "'", 1, True, None]}},
    {"type": "array", "contains": {"const": "'"}, "maxItems": 3}, {"type": "string", "format": "date"}, {"type": "string", "format": "ipv4"},
    {"type": "string", "not": {"format": "time"}},
]  # fmt: skip


def random_value_schema(rng: random.Random) -> Any:
    """A schema of an argument: strings that look like the syntax, values of several types, or any combination."""
    kind = rng.random()
    if kind < 0.2:
        return {"enum": rng.sample(_TEXTS, 3)}
    if kind < 0.4:
        pattern = {"pattern": rng.choice(_PATTERNS)}
        return {"type": "string", **rng.choice([pattern, {"not": pattern}])}
    return rng.choice(_LEAVES) if kind < 0.7 else random_schema(rng, 2)


def random_arguments(rng: random.Random, is_call: bool) -> dict[str, Any]:
    """A schema of the arguments of a call."""
    keys = rng.sample(["a", "b", "k1", "x_y", "kk"] if is_call else ["a", "b", "k1", "x y", "k'", "é"], rng.randint(1, 3))
    schema: dict[str, Any] = {"type": "object", "properties": {key: random_value_schema(rng) for key in keys}}
    schema["required"] = [key for key in keys if rng.random() < 0.6]
    if is_call or rng.random() < 0.7:
        schema["additionalProperties"] = False
    if rng.random() < 0.25:
        more = [{"properties": {keys[0]: random_value_schema(rng)}}, {"required": [keys[-1]]}]
        schema[rng.choice(["allOf", "anyOf", "oneOf"])] = more[: rng.randint(1, 2)]
    if rng.random() < 0.1:
        schema["maxProperties"] = rng.randint(0, 2)
    return schema


def value_of(style: str, text: str) -> Any:
    """What a reader of the language reads."""
    if style == "json":
        return json.loads(text)
    if style == "marked":
        return read_marked(text, MARK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes of JSON that Python does not have
        call = ast.parse(f"f{text}", mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args
        if style == "python":
            return {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        return {word.arg: json.loads(str(ast.get_source_segment(f"f{text}", word.value))) for word in call.keywords}


def test_what_is_derived_reads_as_a_valid_value(tally):
    for rng in tally.cases(12):
        style = rng.choice(list(SYNTAXES))
        syntax = SYNTAXES[style]
        schema, options = random_arguments(rng, syntax.is_call), SchemaOptions(key_order=rng.choice(["any", "declared"]))
        try:
            made = arguments_machine({"#/tools/0": schema}, syntax, marks={}, options=options, limits=LIMITS, deadline=Deadline(LIMITS))
        except SchemaError:
            continue
        tally["made"] += 1
        judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        stack = tuple((symbol, 0) for symbol in made.machine.stack)
        begin = Configuration(made.starts[0], 0, stack, 0, (0,) * len(stack))
        for _ in range(8):
            text = derived(made.machine, rng, rng.choice([5, 20, 50]), b")}]'\"<q>,:=", b" \t\r\n", begin)
            if text is None or re.search(r"[eE][-+]?\d\d|\d{15}", text):  # jsonschema knows floats alone
                continue
            value = value_of(style, text)
            assert judge.is_valid(value), (schema, text)
            assert json.loads(json_of(syntax, text, MARK)) == value, text
            assert ArgumentsEnd(syntax, MARK).feed(f"{text} and more") == len(text)
            tally["checks"] += 1
    assert tally["checks"] > 2 * tally["made"]


def random_resource(rng: random.Random, parts: list[Any]) -> dict[str, Any]:
    """A schema whose parts others have too; what a reference in it means is its own."""
    more = [*parts, {"$ref": "#/$defs/part"}, {"type": "array", "items": {"$ref": "#/$defs/part"}, "maxItems": 2}]
    keys = rng.sample(["a", "b", "ab"], rng.randint(1, 3))
    described = [{"description": "one"}, {"title": "other"}, {}]
    schema: dict[str, Any] = {
        "type": "object", "properties": {key: {**rng.choice(more), **rng.choice(described)} for key in keys},
        "required": rng.sample(keys, rng.randint(0, len(keys))), "$defs": {"part": rng.choice(parts)},
    }  # fmt: skip
    if rng.random() < 0.8:
        schema["additionalProperties"] = False
    return schema


def test_tools_that_share_schemas_are_as_if_alone(tally):
    for rng in tally.cases(20):
        parts = [{"type": "boolean"}, {"enum": ["x", "y"]}, {"type": "integer"}, {"enum": [1, None]}]
        parts.append({"type": "object", "properties": {"c": rng.choice(parts)}, "additionalProperties": False})
        syntax, options = SYNTAXES["json"], SchemaOptions(key_order=rng.choice(["any", "declared"]))
        schemas = [random_resource(rng, parts) for _ in range(rng.randint(2, 5))]

        def made_of(*some: Any, syntax=syntax, options=options) -> Any:
            given = {f"#/tools/{number}": schema for number, schema in enumerate(some)}
            return arguments_machine(given, syntax, marks={}, options=options, limits=LIMITS, deadline=Deadline(LIMITS))

        whole = made_of(*schemas)
        for start, schema in zip(whole.starts, schemas):
            alone = made_of(schema)
            stack = tuple((symbol, 0) for symbol in whole.machine.stack)
            first = Configuration(start, 0, stack, 0, (0,) * len(stack))
            stack = tuple((symbol, 0) for symbol in alone.machine.stack)
            second = Configuration(alone.starts[0], 0, stack, 0, (0,) * len(stack))
            for one, begin, other, there in ((whole, first, alone, second), (alone, second, whole, first)):
                for _ in range(6):
                    text = derived(one.machine, rng, rng.choice([5, 20, 50]), b'}]",:', b" \t\r\n", begin)
                    if text is not None:
                        assert other.machine.may_end(other.machine.run(text.encode(), [there])), (schema, text)
                        tally["checks"] += 1
    assert tally["checks"] > 20 * 2
