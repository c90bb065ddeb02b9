"""Requests of chat servers as constraints: both sides against judges that only search, split, and ask `json` and `jsonschema`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
import re

import jsonschema
import numpy as np
import pytest
from interop.constraints import vocabulary
from python_types.walks import random_text

from fsa_compile import canonical_tables, filters, load_tokenizer
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.errors import ConstraintError
from fsa_compile.formats.framing import framed_machine
from fsa_compile.formats.text_automaton import text_automaton
from fsa_compile.interop import FormatError, Matcher, ToolTags, compile_response_format, compile_structured_outputs
from fsa_compile.interop.response_format import requested
from fsa_compile.json_schema import SchemaError, SchemaOptions, schema_machine
from fsa_compile.limits import CompileLimits, Deadline

LIMITS = CompileLimits()
POINT = {"type": "object", "properties": {"x": {"enum": [1, 2]}, "y": {"$ref": "#/$defs/flag"}}, "required": ["x"], "additionalProperties": False, "$defs": {"flag": {"type": "boolean"}}}  # fmt: skip
WORD = {"type": "string", "pattern": "^[ab]{1,3}$"}
TREE = {"type": "array", "items": {"$ref": "#"}, "maxItems": 40}
TOOLS = [
    {"type": "function", "function": {"name": "move", "description": "Moves.", "parameters": POINT, "strict": True}},
    {"type": "function", "function": {"name": "now"}},
]
TAGS = ToolTags()


def built(root, options=None):
    """The automaton, or the machine where there are schemas."""
    automaton = text_automaton(root, LIMITS, Deadline(LIMITS))
    if not automaton.calls:
        return automaton
    machines = [schema_machine(node.schema, options=options) for node in automaton.schemas]
    return framed_machine(automaton, machines, Deadline(LIMITS))


def accepts(machine, text: str) -> bool:
    if isinstance(machine, ByteMachine):
        return machine.accepts(text.encode())
    state = machine.start
    for byte in text.encode():
        state = int(machine.table[state, machine.byte_class[byte]])
    return bool(machine.final[state])


# Judges: sets of places where something that begins at a place may end.


def value_ends(schema, text, at, spelled=True):
    """A JSON value of the schema; `spelled`: as this package writes it, one space at most behind "," and ":"."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except ValueError:
        return set()
    if not jsonschema.Draft202012Validator(schema).is_valid(value):
        return set()
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if spelled and text[at:end].replace(", ", ",").replace(": ", ":") != compact:
        return set()
    return {end}


def free_end(text, at, marks):
    """Where the mark that is complete first ends, and which it is."""
    found = [(text.find(mark, at) + len(mark), mark) for mark in marks if mark in text[at:]]
    return min(found, default=None)


def tag_ends(tag, text, at, spelled=True):
    begin, content, ends = tag
    if not text.startswith(begin, at):
        return set()
    at += len(begin)
    if content == "any":
        found = free_end(text, at, ends)
        return {found[0]} if found else set()
    middles = {at + len(content)} if isinstance(content, str) and text.startswith(content, at) else set()
    middles = value_ends(content, text, at, spelled) if not isinstance(content, str) else middles
    return {middle + len(end) for middle in middles for end in ends if text.startswith(end, middle)}


def triggered(text, tags, triggers, excludes=(), at_least_one=False, stop_after_first=False, spelled=True):
    """Whether a text is free text with tags in it."""

    def clean(part):
        return not any(bad in part for bad in excludes)

    def rest(at):
        found = free_end(text, at, triggers)
        if found is None:
            return clean(text[at:])
        if not clean(text[at : found[0]]):
            return False
        begin = found[0] - len(found[1])
        return any(after(end) for tag in tags if tag[0].startswith(found[1]) for end in tag_ends(tag, text, begin, spelled))

    def after(at):
        return at == len(text) if stop_after_first else rest(at)

    if at_least_one:
        return any(after(end) for tag in tags for end in tag_ends(tag, text, 0))
    return rest(0)


def edited(text: str, rng: random.Random, letters: str) -> str:
    """A text with a few letters changed, removed, doubled or moved."""
    for _ in range(rng.randint(0, 2)):
        at = rng.randrange(len(text) + 1)
        piece = rng.choice((rng.choice(letters), text[at : at + rng.randint(1, 12)]))
        text = text[:at] + piece + text[at + rng.choice((0, 0, 1, len(piece))) :]
    return text


def in_format(kind: dict):
    return requested({"type": "structural_tag", "format": kind}, None, None)


def tag(begin, content, end):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


CONST, ANY = {"type": "const_string", "value": "b"}, {"type": "any_text"}
VARIANTS = [
    {}, {"at_least_one": True}, {"stop_after_first": True}, {"at_least_one": True, "stop_after_first": True}, {"excludes": ["bb"]},
]  # fmt: skip


@pytest.mark.parametrize("how", range(len(VARIANTS)))
def test_triggered_tags_over_all_short_texts(how):
    """Every text of a few letters: overlapping beginnings of triggers, tags that share them, free text that ends a tag."""
    tags = [("aab", "b", ("a",)), ("aaa", "any", ("ba", "bb")), ("ca", "any", ("a",))]
    kinds = {"b": CONST, "any": ANY}
    given = [tag(begin, kinds[content], list(ends)) for begin, content, ends in tags]
    machine = built(in_format({"type": "triggered_tags", "triggers": ["aa", "ca"], "tags": given, **VARIANTS[how]}))
    wrong = [
        text
        for n in range(8)
        for text in map("".join, itertools.product("abc", repeat=n))
        if accepts(machine, text) != triggered(text, tags, ["aa", "ca"], **VARIANTS[how])
    ]
    assert wrong == []


REGULAR = {  # a format, and the same as a pattern for `re`
    "any": (ANY, r"(?s:.*)"),
    "excludes": ({**ANY, "excludes": ["ab", "ca"]}, r"(?s:(?!.*(?:ab|ca)).*)"),
    "sequence": ({"type": "sequence", "elements": [{"type": "regex", "pattern": "a+|b"}, CONST, ANY]}, r"(?s:(?:a+|b)b.*)"),
    "or": ({"type": "or", "elements": [CONST, {"type": "optional", "content": {"type": "const_string", "value": "ca"}}]}, "b|(ca)?"),
    "repeat": ({"type": "repeat", "min": 1, "max": 3, "content": {"type": "or", "elements": [CONST, {"type": "const_string", "value": "ac"}]}}, "(b|ac){1,3}"),
    "unbounded": ({"type": "repeat", "min": 2, "max": -1, "content": CONST}, "b{2,}"),
    "plus": ({"type": "plus", "content": tag("a", {"type": "star", "content": CONST}, "c")}, "(ab*c)+"),
    "tag": (tag("a", ANY, ["bc", "cb"]), r"(?s:a(?:(?!bc|cb).)*(?:bc|cb))"),
    "nested": (tag("a", {"type": "sequence", "elements": [CONST, tag("a", ANY, "b")]}, "c"), r"(?s:aba(?:(?!b).)*bc)"),
    "separated": ({"type": "tags_with_separator", "separator": "c", "tags": [tag("a", CONST, ""), tag("b", CONST, "a")]}, "((ab|bba)(c(ab|bba))*)?"),
    "least": ({"type": "tags_with_separator", "separator": "", "at_least_one": True, "tags": [tag("a", CONST, "")]}, "(ab)+"),
    "first": ({"type": "tags_with_separator", "separator": "c", "stop_after_first": True, "tags": [tag("a", CONST, "")]}, "(ab)?"),
}  # fmt: skip


@pytest.mark.parametrize("name", REGULAR)
def test_formats_without_values_over_all_short_texts(name):
    value, pattern = REGULAR[name]
    machine = built(in_format(value))
    for n in range(8):
        for text in map("".join, itertools.product("abc", repeat=n)):
            assert accepts(machine, text) == bool(re.fullmatch(pattern, text)), text


def test_triggered_tags_in_a_tag():
    """The end of the outer tag ends the free text in it, wherever it comes first."""
    inner = {"type": "triggered_tags", "triggers": ["a"], "tags": [tag("ab", CONST, "c")]}
    machine = built(in_format(tag("c", inner, "bb")))

    def judge(text):
        at = 1 if text.startswith("c") else None
        while at is not None:
            found = free_end(text, at, ["a", "bb"])
            if found is None:
                return False
            if found[1] == "bb":
                return found[0] == len(text)
            at = next(iter(tag_ends(("ab", "b", ("c",)), text, found[0] - 1)), None)
        return False

    for n in range(9):
        for text in map("".join, itertools.product("abc", repeat=n)):
            assert accepts(machine, text) == judge(text), text


STRUCTURES = [("<p=", POINT, (">",)), ("<p:", WORD, ("</p>",)), ("<tree>", TREE, ("",)), ("[x", {"type": "boolean"}, ("]",))]


@functools.cache
def old_structural_tag():
    listed = [{"begin": b, "schema": s, "end": e[0]} for b, s, e in STRUCTURES]
    return built(requested({"type": "structural_tag", "structures": listed, "triggers": ["<p", "<tree>", "[x"]}, None, None))


def sample(schema, rng):
    """A value of one of the schemas of `STRUCTURES`."""
    if schema is POINT:
        return {"x": rng.choice((1, 2)), **({"y": rng.random() < 0.5} if rng.random() < 0.5 else {})}
    if schema is WORD:
        return "".join(rng.choice("ab") for _ in range(rng.randint(1, 3)))
    return [sample(TREE, rng) for _ in range(rng.choice((0, 0, 1, 2)))] if schema is TREE else rng.random() < 0.5


def spelled(value, rng):
    return json.dumps(value, separators=rng.choice(((",", ":"), (", ", ": "))))


@pytest.mark.parametrize("seed", range(4))
def test_structural_tags_with_values(seed, exhaustive):
    """Texts put together from parts, then edited: the machine and the judge agree on all of them."""
    rng = random.Random(seed)
    machine = old_structural_tag()
    counts = [0, 0]
    for _ in range(2000 if exhaustive else 150):
        text = ""
        for _ in range(rng.randint(0, 3)):
            begin, schema, (end,) = rng.choice(STRUCTURES)
            text += rng.choice(("", "é ", "<", "p=", "[", "<tre")) + begin + spelled(sample(schema, rng), rng) + end
        text = edited(text + rng.choice(("", "!", "<")), rng, "<p=:>[x]tre1\",{} \\")
        truth = triggered(text, STRUCTURES, ["<p", "<tree>", "[x"])
        assert accepts(machine, text) == truth, text
        counts[truth] += 1
    assert min(counts) > 20


@pytest.mark.parametrize("which", range(len(STRUCTURES)))
def test_what_comes_out_is_valid(which):
    """Random bytes that the machine allows, from the beginning of a tag on: never a dead end, and the judge accepts the text."""
    machine, begin = old_structural_tag(), STRUCTURES[which][0]
    (here,) = machine.run(b"so " + begin.encode())
    inside = dataclasses.replace(machine, start=here.control, stack=tuple(symbol for symbol, _ in here.stack))
    for seed in range(12):
        text = random_text(inside, seed, limit=20_000)
        assert text is not None
        assert triggered("so " + begin + text, STRUCTURES, ["<p", "<tree>", "[x"], spelled=False), text


@pytest.mark.parametrize("order", ["declared", "any"])
def test_values_keep_their_own_language_in_the_frame(order):
    """Counters, recursion and sets of keys of several schemas in one machine: each as it is alone."""
    options = SchemaOptions(key_order=order, max_string_chain=4, max_chain=4)
    keys = {"type": "object", "properties": {k: {"type": "integer"} for k in "abcd"}, "required": ["b", "d"], "additionalProperties": False}
    schemas = [keys, {"type": "string", "maxLength": 30, "minLength": 3}, TREE, {**keys, "required": ["a"], "minProperties": 2}, {"type": "number"}]
    listed = [{"begin": f"<{i}>", "schema": s, "end": f"</{i}>"} for i, s in enumerate(schemas)]
    whole = built(requested({"type": "structural_tag", "structures": listed, "triggers": ["<"]}, None, None), options)
    rng = random.Random(5)
    counts = [0, 0]
    for i, schema in enumerate(schemas):
        alone = schema_machine(schema, options=options)
        for seed in range(12):
            text = random_text(alone, seed, eager=25, limit=3000) or "{}"
            for piece in (text, edited(text, rng, '"abcd:,{}[]01-.e ')):
                truth = alone.accepts(piece.encode())
                assert whole.accepts(f"<{i}>{piece}</{i}>".encode()) == truth, (schema, piece)
                assert whole.accepts(f"é<{i}>{piece}</{i}>a<2>[]</2>".encode()) == truth
                assert not whole.accepts(f"<{i}>{piece}</{(i + 1) % 5}>".encode())
                counts[truth] += 1
    assert min(counts) > 20
    assert (whole.sets is not None) == (order == "any")


# Tools


def call(name, arguments, rng=None):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {spelled(arguments, rng or random.Random(0))}}}\n</tool_call>'


CALLS = [('<tool_call>\n{"name": "move", "arguments": ', POINT, ("}\n</tool_call>",)), ('<tool_call>\n{"name": "now", "arguments": ', {"type": "object", "maxProperties": 0}, ("}\n</tool_call>",))]  # fmt: skip


def calls_only(text, many, allowed=CALLS):
    at = next((e for t in allowed for e in tag_ends(t, text, 0)), None)
    while many and at is not None and at < len(text):
        at = next((e for t in allowed for e in tag_ends(t, text, at + 1)), None) if text[at] == "\n" else None
    return at == len(text)


def answer(text):
    return value_ends(POINT, text, 0) == {len(text)}


POINT_FORMAT = {"type": "json_schema", "json_schema": {"name": "point", "schema": POINT, "strict": True}}
NAMED = {"type": "function", "function": {"name": "now"}}
CHOICES = [
    (None, {}, lambda t: triggered(t, CALLS, ["<tool_call>"])),
    ({"type": "text"}, {"tool_choice": "auto", "parallel_tool_calls": False}, lambda t: triggered(t, CALLS, ["<tool_call>"], stop_after_first=True)),
    (None, {"tool_choice": "none"}, lambda t: "<tool_call>" not in t),
    (None, {"tool_choice": "required"}, lambda t: calls_only(t, True)),
    (None, {"tool_choice": "required", "parallel_tool_calls": False}, lambda t: calls_only(t, False)),
    (None, {"tool_choice": NAMED}, lambda t: calls_only(t, True, CALLS[1:])),
    (None, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}}, lambda t: calls_only(t, True, CALLS[1:])),
    (None, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}}, lambda t: triggered(t, CALLS[1:], ["<tool_call>"])),
    (POINT_FORMAT, {"tool_choice": "none"}, answer),
    (POINT_FORMAT, {"tool_choice": "auto"}, lambda t: answer(t) or calls_only(t, True)),
    (POINT_FORMAT, {"tool_choice": "required"}, lambda t: calls_only(t, True)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CHOICES)))
def test_tool_choices(case):
    response_format, how, judge = CHOICES[case]
    options = {"tool_choice": None, "parallel_tool_calls": True, **how}
    machine = built(requested(response_format, TOOLS, tool_tags=TAGS, **options))
    rng = random.Random(case)
    counts = [0, 0]
    for _ in range(160):
        parts = [call("move", sample(POINT, rng), rng) if rng.random() < 0.5 else call("now", {}) for _ in range(rng.choice((0, 1, 1, 2)))]
        text = rng.choice(("\n", "", " and ")).join(parts)
        text = rng.choice((text, text, "Well: " + text, spelled(sample(POINT, rng), rng), text + " done", "<tool_"))
        for written in (text, edited(text, rng, '<>_\n{"x": 1}')):
            truth = judge(written)
            assert accepts(machine, written) == truth, written
            counts[truth] += 1
    assert min(counts) > 4


def test_calls_without_tags_are_those_of_vllm():
    """An array of `name` and `parameters`, or the arguments of a named function alone."""
    machine = built(requested(None, TOOLS, "required", True, None))
    schema = {"type": "array", "minItems": 1, "items": {"anyOf": [{"properties": {"name": {"const": "move"}, "parameters": POINT}}, {"properties": {"name": {"const": "now"}, "parameters": {"maxProperties": 0}}}]}}  # fmt: skip
    schema["items"] |= {"required": ["name", "parameters"], "additionalProperties": True}
    validator = jsonschema.Draft202012Validator(json.loads(json.dumps(schema).replace("#/$defs/flag", "#/flag")) | {"flag": {"type": "boolean"}})
    for text in ('[{"name": "now", "parameters": {}}]', '[{"name": "move", "parameters": {"x": 1}}, {"name": "now", "parameters": {}}]'):
        assert accepts(machine, text)
        assert validator.is_valid(json.loads(text))
    for text in ("[]", '[{"name": "now", "parameters": {"x": 1}}]', '[{"name": "up", "parameters": {}}]', '{"name": "now", "parameters": {}}'):
        assert not accepts(machine, text)
    one = built(requested(None, TOOLS, "required", False, None))
    assert not accepts(one, '[{"name": "now", "parameters": {}}, {"name": "now", "parameters": {}}]')
    named = requested(None, TOOLS, {"type": "function", "function": {"name": "move"}}, True, None)
    assert accepts(built(named), '{"x": 1, "y": true}')


@pytest.mark.parametrize("case", [0, 3, 9])
@pytest.mark.parametrize("order", ["declared", "any"])
def test_masks_of_tokens(case, order):
    """Masks over a vocabulary whose tokens cut across tags and values are what the machine allows, at every place of some texts."""
    response_format, how, judge = CHOICES[case]
    v, options = vocabulary(), SchemaOptions(key_order=order)
    tree = requested(response_format, TOOLS, how.get("tool_choice"), True, TAGS)
    machine = built(tree, options)
    constraint = compile_response_format(response_format, v, tools=TOOLS, options=options, **how)
    rng = random.Random(case)
    complete = 0
    for _ in range(3):
        text = call("move", {"x": 1, "y": True}, rng) + rng.choice(("", "\n" + call("now", {}))) if rng.random() < 0.8 else ""
        walk, done = constraint.walk(), b""
        while not walk.finished:
            allowed = set(np.flatnonzero(walk.allowed()).tolist())
            here = machine.run(done)
            assert allowed - set(v.stop_ids) == {t for t, piece in enumerate(v.tokens) if piece and machine.run(piece, here)}
            assert bool(allowed & set(v.stop_ids)) == machine.may_end(here)
            rest = text.encode()[len(done) :]
            fitting = [t for t in allowed if v.tokens[t] and rest.startswith(v.tokens[t])]
            if not fitting:
                break
            token = rng.choice(fitting)
            walk.advance(token)
            done += v.tokens[token]
        assert done == text.encode() or not judge(text)
        complete += done == text.encode() and walk.accepting
    assert complete


def test_texts_come_out_complete_within_a_limit():
    """Random tokens under a limit: every text is valid, for free text and calls together."""
    v = vocabulary()
    constraint = compile_response_format(None, v, tools=TOOLS)
    called = 0
    for seed in range(30):
        rng, walk, ids = random.Random(seed), constraint.walk(), []
        limit, begin = rng.randint(0, 90), [v.tokens.index(bytes([byte])) for byte in b"<tool_call>"] if seed % 2 else []
        while len(ids) < limit:
            options = np.flatnonzero(walk.allowed(limit - len(ids))).tolist()
            token = begin.pop(0) if begin and begin[0] in options else rng.choice(options)
            if token in v.stop_ids:
                break
            walk.advance(token)
            ids.append(token)
        assert walk.accepting
        text = b"".join(v.tokens[t] for t in ids).decode()
        assert triggered(text, CALLS, ["<tool_call>"], spelled=False)
        called += "</tool_call>" in text
    assert called > 3


def test_filters_may_come_from_a_generator():
    wanted = {"type": "json_schema", "json_schema": {"schema": {"enum": ["x", "y"]}}}
    walk = compile_response_format(wanted, vocabulary(), filters=(one for one in [filters.forbid("x")])).walk()
    walk.advance(ord('"'))
    assert walk.allowed()[[ord("x"), ord("y")]].tolist() == [False, True]


def test_filters_and_canonical_tokens(data_dir):
    """Text filters narrow tags and values alike; with canonical tokens the tokenizer's own encoding is the only one."""
    v = vocabulary()
    filtered = compile_response_format(None, v, tools=TOOLS, filters=[filters.forbid("z"), filters.forbid("\"y\"")])
    for arguments, good in (({"x": 1}, True), ({"x": 1, "y": True}, False)):
        for before in ("", "see", "zoo"):
            walk = filtered.walk()
            text = before + call("move", arguments)
            taken = 0
            while taken < len(text) and walk.allowed()[text.encode()[taken]]:
                walk.advance(text.encode()[taken])
                taken += 1
            assert (taken == len(text) and walk.accepting) == (good and "z" not in text), text
    tokenizer = load_tokenizer(data_dir / "tokenizers" / "gpt2")
    own = compile_response_format(None, tokenizer, tools=TOOLS, tool_choice="required", canonical=True)
    tables = canonical_tables(tokenizer)
    for text in (call("now", {}), call("move", {"x": 2})):
        matcher = Matcher(own, tokenizer, tables=tables)
        assert matcher.accept_tokens(tokenizer.encode(text))
        assert matcher.is_accepting()
        assert not Matcher(own, tables=tables).accept_tokens([tokenizer.encode(letter)[0] for letter in text])


REFUSED = [
    ({"type": "json"}, {}, "#/response_format/type", "no type of a response format"),
    ("json_object", {}, "#/response_format", "an object, not a string"),
    ({"type": "text", "schema": {}}, {}, "#/response_format/schema", "'schema' is not known"),
    ({"type": "json_schema", "schema": {}}, {}, "#/response_format/schema", "not known"),
    ({"type": "json_schema", "json_schema": {"name": "a"}}, {}, "#/response_format/json_schema", "'schema' is missing"),
    ({"type": "json_schema", "json_schema": {"schema": {"properties": {"a": {"type": "strin"}}}}}, {}, "#/response_format/json_schema/schema/properties/a/type", ""),
    (None, {"tool_choice": "auto"}, "#/tool_choice", "no tools"),
    (None, {"tools": TOOLS, "tool_choice": "any"}, "#/tool_choice", "no choice of tools"),
    (None, {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "fly"}}}, "#/tool_choice/function/name", "Tools are move, now"),
    (None, {"tools": [*TOOLS, TOOLS[0]]}, "#/tools/2/function/name", "two functions"),
    (None, {"tools": [{"type": "web_search"}]}, "#/tools/0", "'function' is missing"),
    (None, {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "#/tools/0/function/name", "no name of a function"),
    (None, {"tools": [{"type": "function", "function": {"name": "a", "returns": {}}}]}, "#/tools/0/function/returns", "not known"),
    (None, {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"minimum": "x"}}}]}, "#/tools/0/function/parameters/minimum", ""),
    (None, {"tools": TOOLS, "tool_tags": None}, "#/tool_choice", "ToolTags"),
    (None, {"tools": TOOLS, "parallel_tool_calls": 1}, "#/parallel_tool_calls", "true or false"),
    ({"type": "structural_tag", "structures": [], "triggers": ["<"]}, {}, "#/response_format/structures", "must not be empty"),
    ({"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "b"}], "triggers": ["<b"]}, {}, "#/response_format/structures/0/begin", "none of the triggers"),
    ({"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "b"}], "triggers": ["<", "<a"]}, {}, "#/response_format/triggers", "can never come"),
    ({"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {"type": "integer"}, "end": ""}], "triggers": ["<"]}, {}, "#/response_format/structures/0/schema", "goes on with the value"),
    ({"type": "structural_tag", "format": {"type": "token", "token": 3}}, {}, "#/response_format/format/token", "may be written in other tokens"),
    ({"type": "structural_tag", "format": {"type": "or", "elements": [{"type": "json_schema", "json_schema": {}}, CONST, ANY]}}, {}, "#/response_format/format/elements/0/json_schema", "begins the value as well"),
    ({"type": "structural_tag", "format": {"type": "any_text", "max_tokens": 3, "max_chars": 3}}, {}, "#/response_format/format/max_tokens", "max_chars alone"),
    ({"type": "structural_tag", "format": {"type": "regex", "pattern": "("}}, {}, "#/response_format/format/pattern", "pattern"),
    ({"type": "structural_tag", "format": {"type": "regex", "pattern": r"[^\s\S]"}}, {}, "#/response_format/format/pattern", "no text"),
    ({"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}}, {}, "#/response_format/format/style", "qwen_xml"),
    ({"type": "structural_tag", "format": {"type": "repeat", "min": 3, "max": 2, "content": CONST}}, {}, "#/response_format/format/max", "smaller"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals_name_the_place(case):
    response_format, how, pointer, words = REFUSED[case]
    with pytest.raises((FormatError, SchemaError)) as error:
        compile_response_format(response_format, vocabulary(), **how)
    assert error.value.pointer == pointer
    assert words in str(error.value)
    assert pointer in str(error.value)


def test_deep_and_odd_requests():
    deep: dict = CONST
    for _ in range(100):
        deep = {"type": "optional", "content": deep}
    with pytest.raises(FormatError, match="nested more than"):
        in_format(deep)
    with pytest.raises(FormatError, match="surrogate"):
        in_format({"type": "const_string", "value": "\ud800"})
    for bad in ({"begin": ""}, {"begin": "<a>", "trigger": "b"}, {"begin": 3}):
        with pytest.raises(ConstraintError, match="ToolTags"):
            ToolTags(**bad)
    assert ToolTags(begin="\n").mark == "\n"
    with pytest.raises(ConstraintError, match="max_states"):
        compile_response_format({"type": "structural_tag", "format": {"type": "repeat", "min": 900, "max": 1000, "content": {"type": "repeat", "min": 900, "max": 1000, "content": CONST}}}, vocabulary(), limits=CompileLimits(max_states=20_000))  # fmt: skip


def test_structured_outputs():
    """vLLM's field: each kind is what its own function makes."""
    v = vocabulary()
    listed = [{"begin": "<p=", "schema": POINT, "end": ">"}]
    cases = [
        ({"choice": ["yes", "no"]}, ["yes", "no"], ["", "yesno"]),
        ({"regex": "a+b", "json": None, "json_object": False}, ["ab", "aab"], ["b", "xab"]),
        ({"json": json.dumps(POINT)}, ['{"x": 1}', '{"x":2}'], ["{}", '{"x": 3}']),
        ({"json": POINT, "disable_any_whitespace": True}, ['{"x":2}'], ['{"x": 2}']),
        ({"json_object": True}, ["{}", '{"a": [1]}'], ["[]", "1"]),
        ({"grammar": 'root ::= "a" root "b" | "c"'}, ["c", "aacbb"], ["ab", "acbb"]),
        ({"structural_tag": json.dumps({"structures": listed, "triggers": ["<p"]})}, ["", 'a<p={"x": 1}>'], ["<p", "<p={}>"]),
        ({"structural_tag": {"type": "structural_tag", "format": CONST}}, ["b"], ["", "a"]),
    ]  # fmt: skip
    for params, good, bad in cases:
        constraint = compile_structured_outputs(params, v)
        for text in (*good, *bad):
            matcher = Matcher(constraint, v)
            assert (matcher.accept_tokens(text.encode()) and matcher.is_accepting()) == (text in good), (params, text)
    refused = [
        ({}, "#/structured_outputs", "exactly one"),
        ({"json": {}, "regex": "a"}, "#/structured_outputs", "not json, regex"),
        ({"whitespace_pattern": " "}, "#/structured_outputs/whitespace_pattern", "not known"),
        ({"json": {"type": "strin"}}, "#/structured_outputs/json/type", "strin"),
        ({"json": "{"}, "#/structured_outputs/json", "not JSON"),
        ({"choice": [3]}, "#/structured_outputs/choice/0", "a string"),
        ({"structural_tag": {"structures": listed, "triggers": ["<q"]}}, "#/structured_outputs/structural_tag/structures/0/begin", "none of the triggers"),
    ]  # fmt: skip
    for params, pointer, words in refused:
        with pytest.raises((FormatError, SchemaError), match=words) as error:
            compile_structured_outputs(params, v)
        assert error.value.pointer == pointer
