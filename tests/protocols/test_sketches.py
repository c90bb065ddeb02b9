"""Turns that are joined the first time: from sketches, where no token marks calls, and from several parts, where tools are many."""

from __future__ import annotations

import random

import numpy as np
import pytest
from protocols.test_known_parts import NEAR, at_once, check_alike
from protocols.turns import small_vocabulary

from fsa_compile import PROTOCOLS, ConstraintError, Vocabulary, compile_response
from fsa_compile import protocols as turns
from fsa_compile.formats import known_forms
from fsa_compile.formats.request import FormatError
from fsa_compile.formats.text_automaton import text_automaton
from fsa_compile.formats.tree import FreeText, Named, OneOf, Parts, Text, Value
from fsa_compile.json_schema import schema_machine
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.protocols import Calls, CallSyntax, Protocol

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


@pytest.mark.parametrize("names", [("a",), ("a", "ab\x01")], ids=["written out", "by subsets"])
def test_nothing_is_left_of_a_call_where_none_can_be(names):
    """The dead state is that of all nodes without one."""
    machine = schema_machine(True)
    named = Named(tuple((name, Parts((Text("(("), Value(machine, machine.start, "#")))) for name in names))
    call = OneOf((FreeText((), "#", tuple(("<", name, "((") for name in names)), Parts((Text("<"), named))))
    limits = CompileLimits()
    made = text_automaton(OneOf((Parts((call, OneOf(()))), Text("z"))), limits, Deadline(limits), sketch=True)
    assert made.left is not None
    assert made.left.tolist() == [-1] * len(made.table)


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


def random_protocol(rng):
    """A protocol whose calls no token marks. What stands behind names may begin as names do, and hold its end several times."""

    def piece(most, letters='{"}:, -ax\u00e9'):
        return "".join(rng.choice(letters) for _ in range(rng.randint(0, most)))

    style = rng.choice(["json", "json", "python", "marked"])
    syntax = CallSyntax(style, '<|"|>') if style == "marked" else CallSyntax(style)
    middle = rng.choice(['", "a": ', '": ', "", piece(3), piece(6), piece(2, '{("'), " \u00e9" + piece(2)])
    also = (Calls(begin="<", middle=piece(2), end=">", arguments=syntax),) if rng.random() < 0.15 else ()
    calls = Calls(
        all_begin=rng.choice(["", "", "["]), begin=rng.choice(['{"name": "', "", piece(3), "\u00e9"]), middle=middle,
        end=rng.choice(["}", "", piece(2)]), all_end=rng.choice(["", "]"]), separator=rng.choice([", ", "; ", piece(2)]),
        arguments=syntax, many=rng.random() < 0.7, call_id=rng.choice(["", "", "", "#"]), also=also,
    )  # fmt: skip
    return Protocol(name="own", calls=calls, tokens=("<t>", '<|"|>'), stops=("<end>",))


def random_vocabulary(protocol, names, rng):
    """Bytes, and pieces of calls."""
    calls = protocol.calls
    texts = [f"{calls.all_begin}{calls.begin}{name}{calls.middle}{end}" for name in names for end in ('{"k": "', "(k='", "{k:")]
    texts += ["\u00e9\u4e2d", f"{calls.end}{calls.separator}{calls.begin}a"]
    pieces = set()
    for text in texts * 8:
        data, size = text.encode(), rng.randint(2, 9)
        at = rng.randrange(max(1, len(data) - size + 1))
        pieces.add(data[at : at + size])
    tokens = [*(bytes([byte]) for byte in range(256)), *sorted(piece for piece in pieces if len(piece) > 1)]
    special = {name: len(tokens) + place for place, name in enumerate(("<t>", '<|"|>', "<end>"))}
    return Vocabulary.from_tokens([*tokens, b"", b"", b""], special=special, stop_ids=[special["<end>"]])


@pytest.mark.exhaustive
@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(1000))
def test_the_first_turn_of_a_random_protocol_is_as_if_compiled_at_once(seed, monkeypatch):
    rng = random.Random(seed)
    protocol = random_protocol(rng)
    names = ["a", "ax", "a-x", "x", "xa.a", "aaa", "a-"]
    if protocol.calls.arguments.is_call:
        names = [name.replace("-", "_") for name in names]
    names = rng.sample(list(dict.fromkeys(names)), rng.randint(1, 5))
    tools = [{"name": name, "parameters": rng.choice(NEAR)["parameters"]} for name in names]
    asked = {"protocol": protocol, "tools": tools, "strict": rng.random() < 0.7}
    vocabulary = random_vocabulary(protocol, names, rng)
    monkeypatch.setattr(known_forms, "_MOST_NAMES", rng.choice([2, 256]))
    found = []
    for compiled in (compile_response, lambda *given, **more: at_once(*given, monkeypatch, **more)):
        try:
            found.append(compiled(vocabulary, **asked))
        except ConstraintError as error:
            found.append(str(error).splitlines()[0].partition(", at ")[0])
    if isinstance(found[0], str) or isinstance(found[1], str):
        assert found[0] == found[1], found
        return
    check_alike(*found, vocabulary, rng, 10)
    calls = protocol.calls
    for name in names:
        one, other = (made.walk() for made in found)
        for byte in f"{calls.all_begin}{calls.begin}{name}{calls.middle}".encode():
            assert np.array_equal(one.allowed(), other.allowed())
            one.advance(byte)
            other.advance(byte)
        assert np.array_equal(one.allowed(), other.allowed())
