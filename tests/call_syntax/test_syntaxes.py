"""Arguments in every syntax: what writers write is accepted and read back; what is accepted reads as a valid value."""

from __future__ import annotations

import ast
import json
import random
import warnings

import jsonschema
import numpy as np
import pytest

from fsa_compile.automata.pushdown import Configuration
from fsa_compile.call_syntax.argument_machines import arguments_machine
from fsa_compile.call_syntax.syntax import CallSyntax
from fsa_compile.call_syntax.written_arguments import ArgumentsEnd, ArgumentsError, json_of
from fsa_compile.errors import ConstraintError, SchemaError, UnsupportedSchemaError
from fsa_compile.json_schema import SchemaOptions
from fsa_compile.limits import CompileLimits, Deadline

LIMITS = CompileLimits()
MARK = "<q>"
SYNTAXES = {"json": CallSyntax(), "python": CallSyntax("python"), "keywords": CallSyntax("keywords"), "marked": CallSyntax("marked", MARK)}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 12},
        "word": {"enum": ["it's", 'say "no"', "a\\b", "é😀", 3, None]},
        "when": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}'[0-9]+$"},
        "sizes": {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 10}, "maxItems": 3},
        "flags": {"type": "object", "properties": {"on": {"type": "boolean"}, "more": {"$ref": "#/$defs/node"}}, "additionalProperties": False},
        "long": {"type": "string", "minLength": 40, "maxLength": 60},
    },
    "required": ["text", "sizes"],
    "additionalProperties": False,
    "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
}
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def machine_of(syntax, schema=SCHEMA, special=False, **how):
    return arguments_machine(
        {"#/tools/0": schema}, syntax, marks={MARK: 7} if special else {}, options=SchemaOptions(key_order="any"), limits=LIMITS,
        deadline=Deadline(LIMITS), **how,
    )  # fmt: skip


def accepts(arguments, text, special=False, tool=0):
    machine = arguments.machine
    start = Configuration(arguments.starts[tool], 0, tuple((s, 0) for s in machine.stack), 0, (0,) * len(machine.stack))
    symbols = []
    for place, part in enumerate(text.split(MARK) if special else [text]):
        symbols += [256] if place else []
        symbols += part.encode()
    return machine.may_end(machine.run(symbols, [start]))


def written(style, value):
    """A value as a writer of this syntax has it."""
    if style == "json":
        return json.dumps(value, ensure_ascii=False)
    if style == "python":
        return "(" + ", ".join(f"{key}={inner!r}" for key, inner in value.items()) + ")"
    if style == "keywords":
        return "(" + ", ".join(f"{key}={json.dumps(inner, ensure_ascii=False)}" for key, inner in value.items()) + ")"

    def marked(inner):
        if isinstance(inner, str):
            return f"{MARK}{inner}{MARK}"
        if isinstance(inner, dict):
            return "{" + ",".join(f"{key}:{marked(part)}" for key, part in inner.items()) + "}"
        return "[" + ",".join(map(marked, inner)) + "]" if isinstance(inner, list) else json.dumps(inner)

    return marked(value)


def random_value(rng):
    texts = ["", "a", "it's", 'q"q', "a\\n", "x\ny\t", "é😀", "{[(,:", "<q", "< q>", "\u200b", "\x7f"]
    value = {"text": rng.choice(texts), "sizes": [rng.choice([0, 1, -1, 2.5, 10, 1e-05, 11, "1"]) for _ in range(rng.randrange(5))]}
    if rng.random() < 0.5:
        value["word"] = rng.choice(["it's", 'say "no"', "a\\b", "é😀", 3, None, "its", "3"])
    if rng.random() < 0.4:
        value["when"] = rng.choice(["2024-02-29", "2023-02-29", "now"])
    if rng.random() < 0.4:
        value["code"] = rng.choice(["AB'1", "AB'", "ab'1"])
    if rng.random() < 0.4:
        value["flags"] = rng.choice([{}, {"on": True}, {"more": [[], [[]]], "on": False}, {"on": 1}, {"off": True}, {"more": [1]}])
    if rng.random() < 0.4:
        value["long"] = rng.choice("xé") * rng.choice([39, 40, 60, 61])
    keys = list(value)
    rng.shuffle(keys)
    return {key: value[key] for key in keys if rng.random() < 0.95}


@pytest.mark.parametrize("special", [False, True], ids=["text", "token"])
@pytest.mark.parametrize("style", SYNTAXES)
def test_values_are_accepted_exactly_when_they_are_valid(style, special, exhaustive):
    if special and style != "marked":
        return
    syntax, rng = SYNTAXES[style], random.Random(style)
    arguments = machine_of(syntax, special=special)
    seen = [0, 0]
    for _ in range(5_000 if exhaustive else 150):
        value = random_value(rng)
        text, valid = written(style, value), VALIDATOR.is_valid(value)
        assert accepts(arguments, text, special) == valid, text
        seen[valid] += 1
        if valid:
            assert json.loads(json_of(syntax, text, MARK)) == value
            end = ArgumentsEnd(syntax, MARK)
            assert end.feed(text + " and more") == len(text)
    assert min(seen) > 10


@pytest.mark.parametrize("style", SYNTAXES)
def test_random_texts_of_the_machine_are_valid(style, exhaustive):
    """Texts drawn from the machine itself, read with `json`, `ast` or by splitting at marks."""
    syntax = SYNTAXES[style]
    arguments = machine_of(syntax)
    machine, rng = arguments.machine, np.random.default_rng(3)
    begin = Configuration(arguments.starts[0], 0, tuple((s, 0) for s in machine.stack), 0, (0,) * len(machine.stack))
    found = 0
    for _ in range(3_000 if exhaustive else 18):
        at, text = begin, bytearray()
        for _ in range(400):
            if machine.may_end([at]):
                break
            closing = [b for b in b")}]'\"<q>,:=" if len(machine.step([at], b)) == 1]
            choices = closing if closing and rng.random() < 0.6 else [b for b in range(256) if len(machine.step([at], b)) == 1]
            if not choices:
                break
            byte = int(rng.choice(choices))
            (at,) = machine.step([at], byte)
            text.append(byte)
        if not machine.may_end([at]):
            continue
        found += 1
        shown = text.decode()
        if syntax.is_call:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # escapes of JSON that Python does not have
                call = ast.parse(f"f{shown}", mode="eval").body
            read = ast.literal_eval if style == "python" else json.loads
            value = {keyword.arg: read(ast.get_source_segment(f"f{shown}", keyword.value)) for keyword in call.keywords}
        else:
            value = json.loads(json_of(syntax, shown, MARK))
        assert VALIDATOR.is_valid(value), shown
        assert json.loads(json_of(syntax, shown, MARK)) == value
    assert found > 5


def test_strings_hold_none_of_some_texts():
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["</c>", "c"]}}, "additionalProperties": False}
    for style, quote in (("json", '"'), ("python", "'")):
        arguments = machine_of(SYNTAXES[style], schema, without=["</c>"])
        for text, right in (("a </c", True), ("a </c>", False), ("<</c>", False), ("< /c>", True)):
            assert accepts(arguments, written(style, {"a": text})) == right, (style, text, quote)
        assert accepts(arguments, written(style, {"b": "c"}))
        assert not accepts(arguments, written(style, {"b": "</c>"}))


@pytest.mark.parametrize(
    ("style", "schema", "message"),
    [
        ("python", {"type": "object", "properties": {"class": {}}, "additionalProperties": False}, "an argument called 'class'"),
        ("python", {"type": "object", "properties": {"a b": {}}, "additionalProperties": False}, "an argument called 'a b'"),
        ("python", {"type": "object"}, "an argument of any name"),
        ("keywords", {"type": "object"}, "an argument of any name"),
        ("marked", {"type": "object", "properties": {"a:b": {}}}, "the key 'a:b'"),
        ("json", {"type": "object", "properties": {"a": {"type": "strin"}}}, "strin"),
        ("json", {"type": "array"}, "no arguments satisfy"),
    ],
)
def test_what_cannot_be_written_is_refused(style, schema, message):
    with pytest.raises((UnsupportedSchemaError, SchemaError), match=message) as caught:
        machine_of(SYNTAXES[style], schema)
    assert caught.value.pointer.startswith("#/tools/0")


def test_syntaxes_and_texts_that_are_none():
    with pytest.raises(ConstraintError, match="unknown style"):
        CallSyntax("xml")
    with pytest.raises(ConstraintError, match="with the mark"):
        CallSyntax("marked")
    for style, text in (("python", "(1)"), ("python", "(a=f())"), ("python", "(**a)"), ("keywords", "(a=True)"), ("keywords", "(a=1b=2)"), ("keywords", "(a=1) "), ("marked", "{a:1 b:2}"), ("json", "{a}"), ("marked", "{a:x}")):
        with pytest.raises(ArgumentsError):
            json_of(SYNTAXES[style], text, MARK)


@pytest.mark.parametrize("mark", ["aa", "[<", "é", ":a", "n|", "'", " "])
def test_marks_that_begin_as_keys_and_brackets_do_are_tokens_alone(mark):
    schema = {"type": "object", "additionalProperties": {"type": ["array", "string"]}}
    given = {"options": SchemaOptions(), "limits": LIMITS, "deadline": Deadline(LIMITS)}
    with pytest.raises(ConstraintError, match="keys, brackets"):
        arguments_machine({"#/tools/0": schema}, CallSyntax("marked", mark), marks={}, **given)
    arguments_machine({"#/tools/0": schema}, CallSyntax("marked", mark), marks={mark: 7}, **given)


@pytest.mark.parametrize("mark", ["<", "|a", '""', "<[<", ">:", "\x7f"])
def test_marks_end_where_they_should(mark):
    syntax, schema = CallSyntax("marked", mark), {"type": "object", "additionalProperties": {"type": ["array", "string"], "items": {"type": "string"}}}
    arguments = arguments_machine({"#/tools/0": schema}, syntax, marks={}, options=SchemaOptions(), limits=LIMITS, deadline=Deadline(LIMITS))
    text = f"{{aa:[{mark}[{{:a{mark}],a:{mark}}}{mark}}}"
    assert accepts(arguments, text)
    assert json.loads(json_of(syntax, text, mark)) == {"aa": ["[{:a"], "a": "}"}
    assert ArgumentsEnd(syntax, mark).feed(f"{text} and more") == len(text)


DRAFTS = [None, "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("name", [{}, {"id": "x"}, {"$id": "https://x.org/x"}])
def test_each_tool_is_a_document_of_its_own(draft, name):
    """Also where its draft has no `$id`, or none beside `$ref`; the names of the definitions are those of tools."""
    said = {"$schema": draft} if draft else {}
    schemas = {}
    for number, kind in enumerate(("null", "string")):
        arguments = {"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}}
        named = {key: f"{value}{number}" for key, value in name.items()}
        schemas[f"#/tools/{2 * number}"] = {**arguments, **named, **said, "$defs": {"0": {"type": kind}}}
        schemas[f"#/tools/{2 * number + 1}"] = {"$ref": "#/$defs/1", **said, "$defs": {"0": {"type": kind}, "1": arguments}}
    made = arguments_machine(
        schemas, CallSyntax("json"), marks={}, options=SchemaOptions(), limits=LIMITS, deadline=Deadline(LIMITS)
    )
    for tool in range(4):
        assert [accepts(made, text, tool=tool) for text in ('{"a": null}', '{"a": "x"}')] == [tool < 2, tool >= 2]


def test_references_in_tools_of_one_name_are_refused():
    one, other = ({"$id": "x", "$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"type": x}}}}} for x in ("null", "string"))
    given = {"marks": {}, "options": SchemaOptions(), "limits": LIMITS, "deadline": Deadline(LIMITS)}
    arguments_machine({"#/tools/0": one, "#/tools/1": one}, CallSyntax("json"), **given)
    with pytest.raises(SchemaError, match=r"several schemas have one \$id\n  at #/tools/"):
        arguments_machine({"#/tools/0": one, "#/tools/1": other}, CallSyntax("json"), **given)
