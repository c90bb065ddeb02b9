"""Turns that are joined the first time: from sketches, where no token marks calls, and from several parts, where tools are many."""

from __future__ import annotations

import random

import numpy as np
import pytest
from protocols.test_known_parts import NEAR, at_once, check_alike
from protocols.turns import small_vocabulary

from fsa_compile import PROTOCOLS, compile_response
from fsa_compile import protocols as turns
from fsa_compile.formats import known_forms
from fsa_compile.formats.request import FormatError
from fsa_compile.protocols import Calls, Protocol

UNMARKED = [protocol for protocol in PROTOCOLS.values() if not protocol.is_marked]
COMPACT = Calls(begin='{"name":"', middle='","parameters":', end="}")
SPACED = Calls(begin='{"name": "', middle='", "parameters": ', end="}")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    known_forms._FORMS.clear()
    monkeypatch.setattr(turns, "_KEPT", type(turns._KEPT)(1 << 20, lambda made: 1 << 20))


@pytest.fixture
def joins(monkeypatch):
    """Whether each join was one."""
    found = []
    join = known_forms.join_parts

    def joined(*given):
        made = join(*given)
        found.append(made is not None)
        return made

    monkeypatch.setattr(known_forms, "join_parts", joined)
    return found


def check_first(protocol, tools, monkeypatch, vocabulary=None, **asked):
    """The first turn of a form allows what one without any parts allows."""
    vocabulary = vocabulary or small_vocabulary(protocol, special=True)
    asked |= {"protocol": protocol, "tools": tools}
    made = compile_response(vocabulary, **asked)
    whole = at_once(vocabulary, monkeypatch, **asked)
    check_alike(made, whole, vocabulary, random.Random(61), 12)
    calls = protocol.calls
    for tool in tools if protocol in UNMARKED else ():
        one, other = made.walk(), whole.walk()
        for byte in f"{calls.all_begin}{calls.begin}{tool['name']}{calls.middle}".encode():
            assert np.array_equal(one.allowed(), other.allowed())
            one.advance(byte)
            other.advance(byte)
    return made


@pytest.mark.parametrize("protocol", UNMARKED, ids=lambda protocol: protocol.name)
def test_the_first_turn_is_joined_from_a_sketch(protocol, joins, monkeypatch):
    made = check_first(protocol, NEAR, monkeypatch)
    assert joins == [True]
    assert len(np.unique(made.effects, axis=0)) == len(made.effects)


@pytest.mark.parametrize("name", ["llama3", "gemma3-python", "mistral"])
def test_many_tools_are_compiled_in_several_parts(name, joins, monkeypatch):
    monkeypatch.setattr(known_forms, "_MOST_NAMES", 2)
    check_first(PROTOCOLS[name], NEAR, monkeypatch)
    assert joins == [True]
    (form,) = known_forms._FORMS.values()
    assert len({id(part) for part in form.at.values()}) == 3


@pytest.mark.parametrize(("calls", "tokens", "more"), [
    (Calls(begin=SPACED.begin, middle=SPACED.middle, end="}", also=(COMPACT,)), (), []),
    (SPACED, ("zed",), [{"name": "gezed", "parameters": NEAR[0]["parameters"]}]),
], ids=["written in another way", "a special token's name in a function's"])  # fmt: skip
def test_calls_that_answers_may_begin_with_are_refused(calls, tokens, more):
    """Leads are of calls written in the first way, without names of special tokens: a sketch would leave out other text."""
    protocol = Protocol(name="own", calls=calls, tokens=tokens, stops=("<end>",))
    with pytest.raises(FormatError, match=r"the byte '\{' begins the value as well as other text"):
        compile_response(small_vocabulary(protocol, special=True), protocol=protocol, tools=NEAR[:2] + more)


def test_what_does_not_fit_is_compiled_at_once(monkeypatch):
    """And no sketch is made of such a form again."""
    monkeypatch.setattr(known_forms, "join_parts", lambda *given: None)
    vocabulary = small_vocabulary(PROTOCOLS["llama3"], special=True)
    for tools in (NEAR, NEAR[:2]):
        made = check_first(PROTOCOLS["llama3"], tools, monkeypatch, vocabulary)
        whole = at_once(vocabulary, monkeypatch, protocol="llama3", tools=tools)
        assert np.array_equal(made.arc_token, whole.arc_token)
        assert np.array_equal(made.effects, whole.effects)
    (form,) = known_forms._FORMS.values()
    assert not form.fits
