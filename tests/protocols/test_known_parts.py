"""Turns put together from parts of others allow what turns that are compiled at once allow."""

from __future__ import annotations

import random

import numpy as np
import pytest
from protocols import bfcl
from protocols.turns import real_vocabulary, small_vocabulary

from fsa_compile import PROTOCOLS, compile_response
from fsa_compile import protocols as turns
from fsa_compile.artifact.artifact_checks import check_contents
from fsa_compile.formats import known_forms

NEAR = [  # names that begin alike, no arguments, counters, objects within objects
    {"name": "get", "parameters": {"type": "object", "properties": {}}},
    {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "string", "maxLength": 5},
                "b": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
            },
            "required": ["a"],
        },
    },
    {
        "name": "get_wea",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "object", "properties": {"y": {"enum": ["p", "q"]}}, "required": ["y"]}},
            "required": ["x"],
        },
    },
    {"name": "g", "parameters": {"type": "object", "properties": {"k": {"type": "boolean"}}}},
    {"name": "f.g", "parameters": {"type": "object", "properties": {"k": {"type": "string", "minLength": 3}}, "required": ["k"]}},
]
REQUESTS = (
    {"tool_choice": "required"}, {}, {"reasoning": "off"}, {"parallel_tool_calls": False}, {"response": "[a-z]+ \\{x"},
    {"tool_choice": "required", "reasoning": "required"}, {"tool_choice": "required", "max_reasoning_tokens": 5},
)  # fmt: skip


def at_once(vocabulary, monkeypatch, **asked):
    """The constraint without any part that is known."""
    with monkeypatch.context() as patched:
        patched.setattr(known_forms, "constraint", lambda key, own, request, make: make(own).constraint)
        patched.setattr(turns, "_KEPT", type(turns._KEPT)(1 << 20, lambda made: 1 << 20))
        return compile_response(vocabulary, **asked)


def can_end(walk, token, left, depth, stops):
    """Whether a token is one from which the text can be completed within limits, by the masks."""
    walk = walk.copy()
    while True:
        walk.advance(token, left)
        left = None if left is None else left - 1
        assert depth is None or max(len(at.stack) for at in walk.configurations) <= depth
        if walk.accepting:
            return True
        allowed = np.flatnonzero(walk.allowed(walk.distance if left is None else left)).tolist()
        token = next(t for t in allowed if t not in stops)


def check_alike(joined, whole, vocabulary, rng, walks):
    """Equal masks without limits; under limits, the joined one has bounds that are as good or better, and keeps them."""
    check_contents(joined, "joined")
    shortest, depth = whole.shortest_completion, whole.shortest_depth
    assert joined.shortest_completion <= shortest
    assert joined.shortest_depth <= depth
    for _ in range(walks):
        most = rng.choice([None, None, depth, depth + 1])
        left = rng.choice([None, shortest, shortest + 1, shortest + 4, shortest + 15])
        one, other = joined.walk(most), whole.walk(most)
        for _ in range(40):
            assert one.accepting == other.accepting
            found, wanted = one.allowed(left), other.allowed(left)
            more = np.flatnonzero(found & ~wanted).tolist()
            assert not (wanted & ~found).any()
            assert not more or left is not None or most is not None
            assert all(can_end(one, token, left, most, joined.stop_ids) for token in more[:2])
            tokens = [t for t in np.flatnonzero(wanted).tolist() if t not in joined.stop_ids]
            if not tokens or left == 0:
                break
            if rng.random() < 0.3:
                tokens = [t for t in tokens if vocabulary.tokens[t] in (b"", *b"\"'})]")] or tokens
            elif rng.random() < 0.5:
                tokens = sorted(tokens, key=lambda t: -len(vocabulary.tokens[t]))[:30]
            token = rng.choice(tokens)
            one.advance(token, left)
            other.advance(token, left)
            left = None if left is None else left - 1


def check_requests(name, vocabulary, functions, rng, monkeypatch, requests, walks):
    """How many constraints were joined from parts of five, four and single tools. Bounded thoughts before calls may not be."""
    joins = []
    join = known_forms.join_parts
    monkeypatch.setattr(known_forms, "join_parts", lambda *given: joins.append(join(*given)) or joins[-1])
    for asked in requests:
        tools = rng.sample(functions, 6) + NEAR
        rng.shuffle(tools)
        known_forms._FORMS.clear()
        for part in (tools[:5], tools[5:9], *([tool] for tool in tools[9:])):
            compile_response(vocabulary, protocol=name, tools=part, **asked)
        for some in (tools, tools[:3]):
            made = compile_response(vocabulary, protocol=name, tools=some, **asked)
            whole = at_once(vocabulary, monkeypatch, protocol=name, tools=some, **asked)
            check_alike(made, whole, vocabulary, rng, walks)
        assert None not in joins or "max_reasoning_tokens" in asked
    return len(joins)


@pytest.mark.exhaustive
@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_joined_turns_are_turns_compiled_at_once(name, data_dir, exhaustive, monkeypatch):
    rng = random.Random(name)
    functions = [function for _, given, _ in bfcl.entries(data_dir, "multiple") for function in given]
    functions = list({function["name"]: function for function in functions}.values())
    requests = [r for r in REQUESTS if PROTOCOLS[name].reasoning or not any("reasoning" in key for key in r)]
    for number in range(5 if exhaustive else 1):
        vocabulary = small_vocabulary(PROTOCOLS[name], special=True)
        if exhaustive and number:
            vocabulary = real_vocabulary(data_dir, name)[0]
        some = requests if exhaustive else [rng.choice(requests)]
        assert check_requests(name, vocabulary, functions, rng, monkeypatch, some, 4 if exhaustive else 2)


def test_a_function_that_is_not_wanted_cannot_be_called(monkeypatch):
    """A token may hold a whole call and the end of all of them."""
    protocol = PROTOCOLS["llama4"]
    base = small_vocabulary(protocol, special=True)
    tokens = [b"()]" if text == b"he" else text for text in base.tokens]
    vocabulary = type(base).from_tokens(tokens, special=base.special, stop_ids=base.stop_ids)
    known_forms._FORMS.clear()
    compile_response(vocabulary, protocol="llama4", tools=NEAR, tool_choice="required")
    walk = compile_response(vocabulary, protocol="llama4", tools=NEAR[2:3], tool_choice="required").walk()
    for byte in b"[get":
        walk.advance(byte)
    assert not walk.allowed()[tokens.index(b"()]")]
    walk = compile_response(vocabulary, protocol="llama4", tools=NEAR[:3], tool_choice="required").walk()
    for byte in b"[get":
        walk.advance(byte)
    assert walk.allowed()[tokens.index(b"()]")]


WHOLE_CALLS = [b"et()]", b"set()]", b"[get()]", b"get(", b"t(a", b"t()", b"et(a=True)]", b"et(x"]


@pytest.mark.parametrize("arguments", [{}, {"a": {"type": "boolean"}}], ids=["none", "one"])
@pytest.mark.parametrize("longer", [WHOLE_CALLS, [b", get()]"]], ids=["first", "behind another"])
def test_tokens_that_hold_whole_calls(longer, arguments, monkeypatch):
    """Functions of equal arguments share a value; a token behind a value may hold a name and more."""
    base = small_vocabulary(PROTOCOLS["llama4"], special=True)
    tokens = [*base.tokens[:256], *longer, *base.tokens[256 + len(longer) :]]
    vocabulary = type(base).from_tokens(tokens, special=base.special, stop_ids=base.stop_ids)
    parameters = {"type": "object", "properties": arguments, "required": list(arguments)}
    tools = [{"name": name, "parameters": parameters} for name in ("get", "set", "bet")]
    for choice in ("required", "auto"):
        asked = {"protocol": "llama4", "tool_choice": choice}
        known_forms._FORMS.clear()
        compile_response(vocabulary, tools=tools, **asked)
        for some in (tools[:1], tools[1:2], tools[1:], tools[::2]):
            made = compile_response(vocabulary, tools=some, **asked)
            whole = at_once(vocabulary, monkeypatch, tools=some, **asked)
            for text in (b"", b"[", b"[s", b"[ge", b"[set", b"[set(", b"[bet(", b"[get()", b"[set(a=True", b"[set()"):
                one, other = made.walk(), whole.walk()
                for byte in text:
                    if other.allowed()[byte]:
                        one.advance(byte)
                        other.advance(byte)
                assert one.allowed().tolist() == other.allowed().tolist(), (some, text)


def test_counters_keep_all_their_nodes_where_a_tool_is_left_out(monkeypatch):
    """The nodes of a register's other values follow its base node; no arc leads to them."""
    vocabulary = small_vocabulary(PROTOCOLS["qwen3"], special=True)
    counted = {"type": "object", "properties": {"a": {"type": "string", "minLength": 3, "maxLength": 400}}, "required": ["a"]}
    tools = [{"name": name, "parameters": counted} for name in ("f", "gh")]
    asked = {"protocol": "qwen3", "tool_choice": "required", "max_reasoning_tokens": 5}
    known_forms._FORMS.clear()
    compile_response(vocabulary, tools=tools, **asked)
    joins = []
    join = known_forms.join_parts
    monkeypatch.setattr(known_forms, "join_parts", lambda *given: joins.append(join(*given)) or joins[-1])
    made = compile_response(vocabulary, tools=tools[:1], **asked)
    assert joins == [made]
    check_alike(made, at_once(vocabulary, monkeypatch, tools=tools[:1], **asked), vocabulary, random.Random(25), 12)


def test_the_longest_return_may_be_that_of_a_tool_that_is_left_out():
    """What is joined can be saved and loaded."""
    base = small_vocabulary(PROTOCOLS["phi4"], special=True)
    tokens = [*base.tokens[:256], b'"{{"}}]', *[b""] * (len(base.tokens) - 257)]
    vocabulary = type(base).from_tokens(tokens, special=base.special, stop_ids=base.stop_ids)
    parameters = {"type": "object", "properties": {"a": {"enum": ["]", "{{"]}}, "required": ["a"]}
    tools = [{"name": "x", "parameters": {"type": "object", "properties": {}}}, {"name": "a", "parameters": parameters}]
    known_forms._FORMS.clear()
    both = compile_response(vocabulary, protocol="phi4", tools=tools, tool_choice="required")
    alone = [compile_response(vocabulary, protocol="phi4", tools=[tool], tool_choice="required") for tool in tools]
    assert both.max_pops > min(made.max_pops for made in alone)
    for made in alone:
        check_contents(made, "joined")
