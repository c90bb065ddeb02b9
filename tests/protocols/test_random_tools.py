"""Random sets of tools: turns put together from parts are turns compiled at once, and calls come back as they were written."""

from __future__ import annotations

import pytest
from oracles.call_writers import write_turn
from protocols.random_tools import random_calls, random_ids, random_tools, random_vocabulary
from protocols.test_known_parts import at_once, check_alike
from protocols.turns import refused_at

from fsa_compile import PROTOCOLS, compile_response, parse_response
from fsa_compile.formats import known_forms

REQUESTS = (
    {}, {}, {"reasoning": "off"}, {"tool_choice": "required"}, {"tool_choice": "required"}, {"parallel_tool_calls": False},
    {"tool_choice": "required", "reasoning": "required"}, {"tool_choice": "required", "max_reasoning_tokens": 3},
    {"max_reasoning_tokens": 3}, {"response": "[a-z]+ \\{x"},
)  # fmt: skip


def random_request(rng, name, vocabulary):
    """What is asked for beside the tools."""
    fitting = [r for r in REQUESTS if PROTOCOLS[name].reasoning or not any("reasoning" in key for key in r)]
    fitting = [r for r in fitting if len(vocabulary.special) > 1 or "max_reasoning_tokens" not in r]
    return rng.choice(fitting)


def turns_of(rng, name, tools, asked):
    """Turns that hold calls, and answers that begin like calls."""
    thought = "hm" if asked.get("reasoning") == "required" else ""
    out = [write_turn(name, thought=thought, calls=random_calls(rng, name, tools)) for _ in range(3)]
    if asked.get("tool_choice") != "required" and "response" not in asked:
        out += [text[: rng.randrange(1, len(text))] + rng.choice(("x", "\n", "é", '"', "(", " and")) for text in out]
    return out


def follow(one, other, ids):
    """Walks along ids as far as they are allowed; the masks are equal throughout."""
    for token in [*ids, None]:
        assert one.accepting == other.accepting
        found, wanted = one.allowed(), other.allowed()
        assert found.tolist() == wanted.tolist()
        if token is None or not wanted[token]:
            return
        one.advance(token)
        other.advance(token)


def check_joined(rng, name, vocabulary, tools, asked, monkeypatch, joins):
    """Compiles the tools in several parts, then some of them, and all."""
    known_forms._FORMS.clear()
    parts = [[], [], []]
    for tool in tools:
        rng.choice(parts).append(tool)
    parts = [part for part in parts if part]
    for part in parts:
        compile_response(vocabulary, protocol=name, tools=part, **asked)
    for some in (tools, rng.sample(tools, rng.randint(1, len(tools))), rng.choice(parts)[:1]):
        given = dict(asked)
        if asked.get("tool_choice") == "required" and rng.random() < 0.5:
            given["tool_choice"], shown = [tool["name"] for tool in some], tools
        else:
            shown = some
        before = len(joins)
        made = compile_response(vocabulary, protocol=name, tools=shown, **given)
        if len(joins) == before:
            continue
        whole = at_once(vocabulary, monkeypatch, protocol=name, tools=shown, **given)
        for text in turns_of(rng, name, tools, asked):
            follow(made.walk(), whole.walk(), random_ids(rng, text, vocabulary))
        check_alike(made, whole, vocabulary, rng, 2)


def check_calls(rng, name, vocabulary, tools):
    """Calls are accepted as they are written, and come back."""
    made = compile_response(vocabulary, protocol=name, tools=tools)
    for _ in range(4):
        calls = random_calls(rng, name, tools)
        ids = random_ids(rng, write_turn(name, calls=calls), vocabulary)
        refused = refused_at(made, ids)
        assert refused is None, (tools, calls, vocabulary.tokens[ids[refused]] if refused < len(ids) else "end")
        found = parse_response(ids, vocabulary, protocol=name, tools=tools)
        assert [(call.name, call.arguments) for call in found.calls] == calls, tools


@pytest.mark.exhaustive
@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_turns_of_random_tools(name, tally, monkeypatch):
    """Most turns are joined from parts."""
    joins = []
    join = known_forms.join_parts
    monkeypatch.setattr(known_forms, "join_parts", lambda *given: joins.append(join(*given)) or joins[-1])
    for rng in tally.cases(1, least=300, name=name):
        tools = random_tools(rng, PROTOCOLS[name])
        vocabulary = random_vocabulary(rng, name, PROTOCOLS[name], tools)
        asked = random_request(rng, name, vocabulary)
        check_joined(rng, name, vocabulary, tools, asked, monkeypatch, joins)
        check_calls(rng, name, vocabulary, tools)
        tally["made"] += 3
        tally["checks"] += 400
