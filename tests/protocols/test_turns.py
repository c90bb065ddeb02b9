"""Every kind of turn in every protocol, with its special tokens and without, against templates; masks against partial matches."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
from typing import Literal

import numpy as np
import pytest
import regex
from oracles.call_writers import CONTENT_OR_CALLS, ONE_CALL, OTHER_WAYS, THINKING, write_turn
from protocols.test_bfcl import random_turn
from protocols.turns import ids_of, names_of, refused_at, small_vocabulary

from fsa_compile import PROTOCOLS, Protocol, ResponseError, Vocabulary, compile_response, parse_response, response_stream
from fsa_compile.call_syntax.syntax import CallSyntax
from fsa_compile.errors import ConstraintError
from fsa_compile.formats.request import FormatError
from fsa_compile.protocols import (
    ArgumentsDelta,
    CallBegun,
    CallFinished,
    Calls,
    ContentDelta,
    GrammarText,
    ReasoningDelta,
    Section,
    stop_ids,
)


def get_weather(city: str, days: int = 1) -> str:
    """The weather of some days."""
    return f"{city} for {days}"


def mix(kind: Literal["red", "green"], parts: list[float], note: str | None = None) -> str:
    """Mixes a colour."""
    return f"{kind} {parts} {note}"


TOOLS = [get_weather, mix]
FIRST, SECOND = ("get_weather", {"city": "Rome", "days": 3}), ("mix", {"kind": "red", "parts": [1.5, -2.0], "note": "it's {1}, <b>\"q\""})
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
OBJECT = '{"ok": true}'

KINDS = {
    # name: (thinks, says, calls, response asked for, has tools)
    "answer": (False, "Rain, I [think].", 0, None, True),
    "thinking, answer": (True, "Rain, I [think].", 0, None, True),
    "schema": (False, OBJECT, 0, SCHEMA, False),
    "thinking, schema": (True, OBJECT, 0, SCHEMA, False),
    "call": (False, "", 1, None, True),
    "thinking, call": (True, "", 1, None, True),
    "two calls": (False, "", 2, None, True),
    "thinking, two calls": (True, "", 2, None, True),
    "text, two calls": (False, "Let me see.", 2, None, True),
    "thinking, text, two calls": (True, "Let me see.", 2, None, True),
    "schema beside tools": (False, OBJECT, 0, SCHEMA, True),
    "thinking, schema beside tools": (True, OBJECT, 0, SCHEMA, True),
    "two calls beside a schema": (False, "", 2, SCHEMA, True),
    "thinking, two calls beside a schema": (True, "", 2, SCHEMA, True),
}
"""What a turn may be; each in each protocol that writes it."""
CALLS_ARE_OBJECTS = ("gemma3-json", "llama3")
"""Protocols in which a call and an answer that is an object begin alike; both together are refused."""


@pytest.mark.sampled(18, every=("name", "special"))
@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_kind_of_turn(name, special):
    protocol = PROTOCOLS[name]
    vocabulary = small_vocabulary(protocol, special)
    made = {}
    for thinks, says, count, response, has_tools in KINDS.values():
        if (thinks and name not in THINKING) or (says and count and name in CONTENT_OR_CALLS):
            continue
        asked = {"tools": TOOLS if has_tools else None, "response": response, "protocol": name}
        if response and has_tools and name in CALLS_ARE_OBJECTS:
            with pytest.raises(FormatError, match="at #/response"):
                compile_response(vocabulary, **asked)
            continue
        calls = [FIRST, SECOND][: 1 if name in ONE_CALL else count] if count else []
        key = json.dumps([response, has_tools])
        constraint = made.get(key) or made.setdefault(key, compile_response(vocabulary, **asked))
        ids = ids_of(write_turn(name, thought="Hm, 1 < 2.\nOr so." if thinks else "", content=says, calls=calls), vocabulary)
        assert refused_at(constraint, ids) is None
        found = parse_response([*ids, vocabulary.stop_ids[0]], vocabulary, **asked)
        assert found.reasoning == ("Hm, 1 < 2.\nOr so." if thinks else "")
        assert found.content == ({"ok": True} if response and says else says or None)
        assert [(call.name, call.arguments) for call in found.calls] == calls
        assert [call() for call in found.calls] == ["Rome for 3", "red [1.5, -2.0] it's {1}, <b>\"q\""][: len(calls)]


@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize(("name", "way"), [(name, way) for name, ways in OTHER_WAYS.items() for way in range(len(ways))])
def test_other_ways_to_write_calls(name, way, special):
    """All that a model's templates and libraries write is accepted, and read token by token as at once."""
    vocabulary = small_vocabulary(PROTOCOLS[name], special)
    asked = {"tools": TOOLS, "protocol": name}
    calls = [FIRST] if name in ONE_CALL else [FIRST, SECOND]
    content = "" if name == "harmony" else "Let me see."
    ids = ids_of(write_turn(name, content=content, calls=calls, way=way), vocabulary)
    for more in ({}, {"tool_choice": "required"}):
        if not (content and more):
            assert refused_at(compile_response(vocabulary, **asked, **more), ids) is None
    found = parse_response(ids, vocabulary, **asked)
    assert [(call.name, call.arguments) for call in found.calls] == calls
    assert [call.id for call in found.calls] == (["abcdefgh1", "abcdefgh2"] if name == "mistral-v3" else [""] * len(calls))
    stream = response_stream(vocabulary, **asked)
    events = [event for token in ids for event in stream.feed([token])] + stream.finish()
    assert [event.call for event in events if isinstance(event, CallFinished)] == list(found.calls)


@pytest.mark.parametrize("name", sorted(THINKING))
def test_reasoning_required_off_or_begun(name):
    protocol = PROTOCOLS[name]
    vocabulary = small_vocabulary(protocol, special=True)
    with_thought = ids_of(write_turn(name, thought="Hm.", content=OBJECT), vocabulary)
    without = ids_of(write_turn(name, content=OBJECT), vocabulary)
    begin = len(ids_of(protocol.reasoning.begin, vocabulary))
    for reasoning, right, wrong in (
        ("required", with_thought, without),
        ("off", without, with_thought),
        ("begun", with_thought[begin:], with_thought),
    ):
        constraint = compile_response(vocabulary, protocol=name, response=SCHEMA, reasoning=reasoning)
        assert refused_at(constraint, right) is None
        assert refused_at(constraint, wrong) is not None
        found = parse_response(right, vocabulary, protocol=name, response=SCHEMA, reasoning=reasoning)
        assert found.content == {"ok": True}
        assert found.reasoning == ("" if reasoning == "off" else "Hm.")


@pytest.mark.parametrize("most", [0, 3, 40, 2_000])
def test_the_characters_of_a_thought_are_bounded(most):
    """By states where they are few, in a register where they are many; wide characters count once."""
    vocabulary = small_vocabulary(PROTOCOLS["gemma4"], special=True)
    constraint = compile_response(vocabulary, protocol="gemma4", tools=TOOLS, max_reasoning_chars=most)
    for length in {0, 1, most - 1, most, most + 1, most + 500} - {-1}:
        thought = ("aé😀he" * (length // 5 + 1))[:length]
        ids = ids_of(f"<|channel>thought\n{thought}<channel|>Rain.", vocabulary)
        assert (refused_at(constraint, ids) is None) == (length <= most), length
    plain = small_vocabulary(PROTOCOLS["qwen3"], special=False)
    with pytest.raises(FormatError, match="is text in this vocabulary"):
        compile_response(plain, protocol="qwen3", max_reasoning_chars=10)


def test_choices_of_tools():
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)

    def accepted(choice, calls, content="", **more):
        constraint = compile_response(vocabulary, protocol="qwen3", tools=TOOLS, tool_choice=choice, **more)
        return refused_at(constraint, ids_of(write_turn("qwen3", content=content, calls=calls), vocabulary)) is None

    assert accepted("required", [FIRST])
    assert not accepted("required", [], "Rain.")
    assert accepted("none", [], "Rain.")
    assert not accepted("none", [FIRST])
    assert accepted("mix", [SECOND])
    assert not accepted("mix", [FIRST])
    assert accepted({"type": "function", "function": {"name": "mix"}}, [SECOND])
    assert accepted(["mix", "get_weather"], [FIRST, SECOND])
    assert not accepted("auto", [FIRST, SECOND], parallel_tool_calls=False)
    with pytest.raises(FormatError, match="no tool called 'nix'"):
        accepted("nix", [])


def test_answers_of_every_kind():
    vocabulary = small_vocabulary(PROTOCOLS["gemma4"], special=True)

    @dataclasses.dataclass
    class Point:
        x: int
        y: int = 0

    grammar = GrammarText('start: "(" start ")" | "x"')
    for response, text, value, wrong in (
        (Point, '{"x": 1}', Point(1), '{"y": 1}'),
        ("[ab]+c", "abc", "abc", "abd"),
        (grammar, "((x))", "((x))", "((x)"),
    ):
        asked = {"protocol": "gemma4", "response": response, "reasoning": "required"}
        constraint = compile_response(vocabulary, **asked)
        thought = "<|channel>thought\nHm.\n<channel|>"
        assert refused_at(constraint, ids_of(thought + text, vocabulary)) is None
        assert refused_at(constraint, ids_of(thought + wrong, vocabulary)) is not None
        assert parse_response(ids_of(thought + text, vocabulary), vocabulary, **asked).content == value
    for no_text in (None, 5, b'start: "a"'):
        with pytest.raises(ConstraintError, match=f"a grammar is a str, not {type(no_text).__name__}"):
            compile_response(vocabulary, protocol="gemma4", response=GrammarText(no_text))


def test_built_in_tools_of_llama():
    vocabulary = small_vocabulary(PROTOCOLS["llama3"], special=True)
    asked = {"protocol": "llama3", "tools": ["brave_search", "code_interpreter", get_weather]}
    constraint = compile_response(vocabulary, **asked)
    for text, name, arguments in (
        ('<|python_tag|>brave_search.call(query="rain in Rome")', "brave_search", {"query": "rain in Rome"}),
        ("<|python_tag|>print(1)\nbrave = 2", "code_interpreter", {"code": "print(1)\nbrave = 2"}),
        ('{"name": "get_weather", "parameters": {"city": "Rome"}}', "get_weather", {"city": "Rome"}),
    ):
        ids = ids_of(text, vocabulary)
        assert refused_at(constraint, ids) is None
        (call,) = parse_response(ids, vocabulary, **asked).calls
        assert (call.name, call.arguments) == (name, arguments)
    with pytest.raises(FormatError, match="no built-in tool 'bing'"):
        compile_response(vocabulary, protocol="llama3", tools=["bing"])


def test_special_tokens_and_their_look_alikes_are_told_apart():
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)
    asked = {"protocol": "qwen3", "tools": TOOLS}
    constraint = compile_response(vocabulary, **asked)
    spelled = list(b"a <tool_call>\n{} </tool_call> <think>")
    assert refused_at(constraint, spelled) is None
    assert parse_response(spelled, vocabulary, **asked).content == "a <tool_call>\n{} </tool_call> <think>"
    real = [vocabulary.special["<tool_call>"], *b'\n{"name": "get_weather", "arguments": {"city": "', *b"</tool_call>"]
    ids = [*real, *b'"}}\n', vocabulary.special["</tool_call>"]]
    assert refused_at(constraint, ids) is None
    assert parse_response(ids, vocabulary, **asked).calls[0].arguments == {"city": "</tool_call>"}
    assert refused_at(constraint, [*real, vocabulary.special["</tool_call>"]]) == len(real)

    plain = small_vocabulary(PROTOCOLS["qwen3"], special=False)
    constraint = compile_response(plain, **asked)
    assert refused_at(constraint, list(b"a <tool_ca </tool_call>")) is not None
    assert refused_at(constraint, list(b"a <tool_ca")) is None
    call = b'<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
    assert refused_at(constraint, list(call % b"</tool_call>")) is not None
    assert refused_at(constraint, list(call % b"</tool_cal l>")) is None


TINY = Protocol(
    name="tiny", reasoning=Section(begin="<r>", end="</r>"), tokens=("<r>", "</r>", "<c>", "</c>", "<q>"), stops=("<s>",),
    calls=Calls(begin="<c>", middle=":", end="</c>", preamble=Section()),
)  # fmt: skip
_MARKED = dataclasses.replace(TINY, calls=dataclasses.replace(TINY.calls, arguments=CallSyntax("marked", "<q>")))
_PYTHON = dataclasses.replace(
    TINY, tokens=("<r>", "</r>"), calls=Calls(all_begin="[", all_end="]", separator=", ", arguments=CallSyntax("python"))
)
_TOOLS = [
    {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1, "b<", True]}, "ba": {"type": "null"}}, "required": ["a"]}}
]
_VALUES = {
    "json": ('"a": ?(?:1|"b<"|true)', '"ba": ?null', ", ?", r"\{", r"\}"),
    "marked": ("a:(?:1|<q>b<<q>|true)", "ba:(?:null|None)", ",", r"\{", r"\}"),
    "python": ("a=(?:1|'b<'|\"b<\"|True)", "ba=None", ", ?", r"\(", r"\)"),
}
_PIECES = [b"<", b">", b"/", b"r", b"c", b"q", b"a", b"b", b":", b"{", b"}", b'"', b"'", b" ", b",", b"1", b"\n", b"=", b"(", b")", b"[",
           b"]", b"f", b"true", b"null", b"None", b"True", b"</", b"c>", b'"a', b'": ', b"<r", b"f:{", b"a=", b"q>", b"}<", b"\n\n", b"ba"]  # fmt: skip


def _language(protocol, special):
    """The turns of the tiny protocols as one regular expression; special tokens are letters of a private plane."""
    letter = {name: chr(0xF0000 + i) if special else name for i, name in enumerate(protocol.tokens)}
    marks = "|".join(regex.escape(name) for name in protocol.tokens)
    text = r"(?s:[^\U000F0000-\U000FFFFF]*)" if special else f"(?s:(?:(?!{marks}).)*)"
    a, ba, comma, open_, close = _VALUES[protocol.calls.arguments.style]
    arguments = f"{open_}(?:{a}(?:{comma}{ba})?|{ba}{comma}{a}){close}"
    if protocol.calls.all_begin:
        calls = rf"\[f{arguments}(?:, f{arguments})*\]"
        answer = rf"(?!\n{{0,2}}\[f\(){text}"
        rest = f"(?:{calls}|{answer})"
    else:
        rest = f"{text}(?:<c>f:{arguments}</c>)*"
    whole = rf"(?:<r>{text}</r>\n{{0,2}})?{rest}"
    for name, mark in letter.items():
        whole = whole.replace(name, mark)
    return whole, letter


@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("protocol", [TINY, _MARKED, _PYTHON], ids=["json", "marked", "python"])
def test_masks_are_those_of_partial_matches(protocol, special, exhaustive):
    """At every step of random walks, every token against `regex`, which knows whether a text can be completed."""
    names = [*protocol.tokens, "<s>"] if special else ["<s>"]
    ids = {name: len(_PIECES) + i for i, name in enumerate(names)}
    single = [bytes([byte]) for byte in range(256) if bytes([byte]) not in _PIECES]
    tokens = [*_PIECES, *[b""] * len(names), *single]
    vocabulary = Vocabulary.from_tokens(tokens, special=ids, stop_ids=[ids["<s>"]])
    pattern, letter = _language(protocol, special)
    compiled = regex.compile(pattern)
    written = {i: token.decode() for i, token in enumerate(_PIECES)}
    written |= {ids[name]: letter[name] for name in names if name in letter}
    constraint = compile_response(vocabulary, protocol=protocol, tools=_TOOLS)
    rng = random.Random(25)
    for _ in range(200 if exhaustive else 12):
        walk, text = constraint.walk(), ""
        for _ in range(40):
            allowed = walk.allowed()
            for token, more in written.items():
                assert allowed[token] == (compiled.fullmatch(text + more, partial=True) is not None), (text, more)
            assert allowed[ids["<s>"]] == (compiled.fullmatch(text) is not None), text
            choices = np.flatnonzero(allowed)
            choices = [int(t) for t in choices if t in written]
            if not choices:
                break
            structural = [t for t in choices if written[t] in letter.values() or written[t] in ("<", ">", "f", ":", "{", "[", "</", "c>")]
            token = rng.choice(structural if structural and rng.random() < 0.6 else choices)
            walk.advance(token)
            text += written[token]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_events_are_the_same_however_a_turn_is_cut(name, size):
    protocol = PROTOCOLS[name]
    vocabulary = small_vocabulary(protocol, special=True)
    calls = [FIRST] if name in ONE_CALL else [FIRST, SECOND]
    said = "" if name in CONTENT_OR_CALLS else "Let me see."
    ids = ids_of(write_turn(name, thought="Hm." if name in THINKING else "", content=said, calls=calls), vocabulary)
    stream = response_stream(vocabulary, protocol=name, tools=TOOLS)
    events = [event for at in range(0, len(ids), size) for event in stream.feed(ids[at : at + size])]
    events += stream.finish()
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)).strip() == ("Hm." if name in THINKING else "")
    assert "".join(e.text for e in events if isinstance(e, ContentDelta)).strip() == said
    assert [(e.index, e.name) for e in events if isinstance(e, CallBegun)] == [(i, call[0]) for i, call in enumerate(calls)]
    finished = [e for e in events if isinstance(e, CallFinished)]
    assert [(e.index, e.call.name, e.call.arguments) for e in finished] == [(i, *call) for i, call in enumerate(calls)]
    for index in range(len(calls)):
        places = [place for place, event in enumerate(events) if getattr(event, "index", None) == index]
        kinds = [type(events[place]) for place in places]
        assert kinds[0] is CallBegun
        assert kinds[-1] is CallFinished
        assert set(kinds[1:-1]) == {ArgumentsDelta}


def test_the_protocol_is_told_by_special_tokens():
    for name in ("harmony", "gemma4", "functiongemma", "deepseek-v3", "mistral", "mistral-v3", "phi4", "llama4", "llama3", "qwen3"):
        vocabulary = small_vocabulary(PROTOCOLS[name], special=True)
        ids = ids_of(write_turn(name, calls=[FIRST]), vocabulary)
        assert refused_at(compile_response(vocabulary, tools=TOOLS), ids) is None
        assert parse_response(ids, vocabulary, tools=TOOLS).calls[0]() == "Rome for 3"
    with pytest.raises(ConstraintError, match=r"(?s)tell how its model.*gemma4, functiongemma"):
        compile_response(Vocabulary.from_tokens([b"a", b""], stop_ids=[1]))
    with pytest.raises(ConstraintError, match=r"(?s)no protocol 'gpt5'.*harmony"):
        compile_response(Vocabulary.from_tokens([b"a", b""], stop_ids=[1]), protocol="gpt5")


def test_a_turn_becomes_messages_of_the_next_prompt():
    vocabulary = small_vocabulary(PROTOCOLS["mistral"], special=True)
    text = 'See.[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Rome"}'
    constraint = compile_response(vocabulary, protocol="mistral", tools=TOOLS)
    assert refused_at(constraint, ids_of(text, vocabulary)) is None
    turn = parse_response(ids_of(text, vocabulary), vocabulary, protocol="mistral", tools=TOOLS)
    function = {"name": "get_weather", "arguments": {"city": "Rome"}}
    call = {"id": "a1b2c3d4e", "type": "function", "function": function}
    assert turn.message == {"role": "assistant", "content": "See.", "tool_calls": [call]}
    told = {"role": "tool", "name": "get_weather", "content": "Rome for 1", "tool_call_id": "a1b2c3d4e"}
    assert turn.calls[0].answered(turn.calls[0]()) == told


def test_stop_ids_are_the_protocols():
    vocabulary = small_vocabulary(PROTOCOLS["harmony"], special=True)
    assert {vocabulary.special["<|return|>"], vocabulary.special["<|call|>"]} <= set(stop_ids(vocabulary, "harmony"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"', "ends in a call's arguments"),
        ('<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>', "no tool has this name"),
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call> and', "neither another call nor the end"),
        ("<think>Hm.", "ends in reasoning"),
        ("<tool_call>get_weather", "neither an answer nor a call"),
    ],
)
def test_what_is_no_turn_is_refused_when_it_is_read(text, message):
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)
    with pytest.raises(ResponseError, match=message):
        parse_response(text, vocabulary, protocol="qwen3", tools=TOOLS)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_turn_that_is_cut_anywhere_is_complete_or_refused(name):
    """Inside a character too, and ids that are none; the error passes between processes."""
    vocabulary = small_vocabulary(PROTOCOLS[name], special=True)
    ids = ids_of("Grüße, 日本 😀", vocabulary)
    for end in range(len(ids) + 1):
        whole = (ids[:end][-1:] or [0])[0] < 128 or end == len(ids)
        refused: ResponseError | None = None
        try:
            found = parse_response(ids[:end], vocabulary, protocol=name, tools=TOOLS)
            assert found.content == bytes(ids[:end]).decode()
        except ResponseError as error:
            refused = error
        again = pickle.loads(pickle.dumps(refused))
        assert (str(again), getattr(again, "__dict__", None)) == (str(refused), getattr(refused, "__dict__", None))
        assert not whole or "inside a character" not in str(refused)
    for ids, message in (([0xC3, 0x41], "go on no text"), ([1.0], "is no id"), ([None], "is no id"), ([10**9], "is no id"), (None, "neither"), (5, "neither")):
        with pytest.raises(ResponseError, match=message):
            parse_response(ids, vocabulary, protocol=name)


def test_every_protocol_says_where_it_is_published():
    for protocol in PROTOCOLS.values():
        assert "20" in protocol.source
        assert protocol.stops
        assert names_of(protocol)


def test_the_turn_that_was_compiled_last_is_kept():
    """The same request gives the same artifact; whatever differs in it, even a name of a special token, another one."""
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)
    asked = {"protocol": "qwen3", "tools": TOOLS}
    first = compile_response(vocabulary, **asked)
    assert compile_response(vocabulary, **asked) is first
    renamed = dict(vocabulary.special)
    renamed["<tool_cal>"] = renamed.pop("<tool_call>")
    other = Vocabulary.from_tokens(vocabulary.tokens, special=renamed, stop_ids=vocabulary.stop_ids)
    made = [
        compile_response(vocabulary, **{**asked, **more})
        for more in ({"tools": TOOLS[:1]}, {"tool_choice": "required"}, {"reasoning": "off"}, {"response": "yes"}, {"protocol": "olmo3"})
    ]
    made += [compile_response(other, **asked), first]
    assert len({id(constraint) for constraint in made}) == len(made)
    call = ids_of('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>', vocabulary)
    assert refused_at(first, call) is None
    assert refused_at(made[-2], call) is not None
    with pytest.raises(ConstraintError):
        compile_response(vocabulary, protocol="qwen3", tools=[{"name": "f", "parameters": {"properties": {"a": {1, 2}}}}])


@pytest.mark.parametrize("name", ["gemma4", "functiongemma"])
def test_bare_keys_may_hold_parentheses(name):
    vocabulary = small_vocabulary(PROTOCOLS[name], special=True)
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"o": {"type": "object"}}}}
    asked = {"protocol": name, "tools": [tool]}
    calls = [("f", {"o": {"a)b('": 1, "c(": "d)"}})]
    ids = ids_of(write_turn(name, calls=calls), vocabulary)
    assert refused_at(compile_response(vocabulary, **asked), ids) is None
    assert [(call.name, call.arguments) for call in parse_response(ids, vocabulary, **asked).calls] == calls


def test_strings_of_a_least_length_may_be_required():
    """A frame of a string in single quotes never ends above what follows one in double quotes, which bounds counted with."""
    text = {"type": "string", "minLength": 10, "maxLength": 30}
    inner = {"type": "object", "properties": {"k": text}, "required": ["k"]}
    outer = {"type": "object", "properties": {"k": text, "o": inner}, "required": ["k", "o"]}
    vocabulary, rng = small_vocabulary(PROTOCOLS["llama4"], special=True), random.Random(25)
    made = compile_response(vocabulary, protocol="llama4", tools=[{"name": "f", "parameters": outer}], tool_choice="required")
    assert made.has_bounds
    for more in (0, 3, 40):
        ids = random_turn(made, vocabulary, rng, made.shortest_completion + more)
        (call,) = parse_response(ids, vocabulary, protocol="llama4", tools=[{"name": "f", "parameters": outer}]).calls
        assert min(len(call.arguments["k"]), len(call.arguments["o"]["k"])) >= 10
