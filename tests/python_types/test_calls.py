"""Functions as tools: what is accepted reads as a call of the right function with arguments of the right types."""

from __future__ import annotations

import functools
from typing import Annotated, Literal

import pytest
from oracles.toy import every_byte
from python_types.sample_types import Point
from python_types.walks import random_text

from fsa_compile.formats.free_text import text_then
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.python_types import Call, Ge, TypeTextError, UnsupportedTypeError, compile_call, machine_of_type, parse_call
from fsa_compile.python_types.calls import shape_of_calls

STYLES = ("json", "python")
TRIGGER = "<<call>"


def add_item(item: str, count: Annotated[int, Ge(1)] = 1, *, where: Literal["cart", "list"] = "cart"):
    return f"{count} {item} in {where}"


def move(to: Point, path: list[Point] | None = None):
    return to.x + len(path or [])


def stop():
    return "stopped"


TOOLS = [add_item, move, stop]


@functools.cache
def machine(style, trigger=None):
    limits = CompileLimits()
    found = machine_of_type(shape_of_calls(TOOLS, style, None, False), style, None, limits, Deadline(limits))
    return found if trigger is None else text_then(found, trigger, limits, Deadline(limits))


CASES = {
    "json": (
        ['{"name": "add_item", "arguments": {"item": "a", "where": "list"}}', '{"name":"move","arguments":{"to":[1,2]}}', '{"name": "stop", "arguments": {}}'],
        ['{"name": "add_item", "arguments": {}}', '{"name": "add_item", "arguments": {"item": "a", "count": 0}}', '{"name": "move", "arguments": {"item": "a"}}', "{}"],
    ),
    "python": (
        ["add_item(item='a', where='list')", "move(to=Point(x=1,y=2))", "stop()"],
        ["add_item()", "add_item(item='a', count=0)", "move(item='a')", "stop", "stop(1)", "add_item('a')"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_calls(style):
    accepted, rejected = CASES[style]
    assert [t for t in accepted if not machine(style).accepts(t.encode())] == []
    assert [t for t in rejected if machine(style).accepts(t.encode())] == []
    assert [parse_call(TOOLS, t, style=style)() for t in accepted] == ["1 a in list", 1, "stopped"]
    for text in rejected:
        with pytest.raises(TypeTextError):
            parse_call(TOOLS, text, style=style)


@pytest.mark.parametrize("style", STYLES)
def test_text_or_call(style):
    call = CASES[style][0][0]
    found = machine(style, TRIGGER)
    for text in ("", "é <<cal <call>", f"yes {TRIGGER}{call}", f"<{TRIGGER}{call}", TRIGGER + call):
        assert found.accepts(text.encode()), text
        read = parse_call(TOOLS, text, style=style, trigger=TRIGGER)
        if TRIGGER in text:
            assert isinstance(read, Call)
            assert read.text == text.partition(TRIGGER)[0]
            assert read() == "1 a in list"
        else:
            assert read == text
    for text in (TRIGGER, f"{TRIGGER} {call}", f"{TRIGGER}{call} ", f"{TRIGGER}{call}{TRIGGER}{call}", f"a{TRIGGER}stop", "\udcff"):
        assert not found.accepts(text.encode("utf-8", "surrogateescape")), text
    for text in (TRIGGER, f"{TRIGGER}{call}{TRIGGER}{call}", f"a{TRIGGER}stop"):
        with pytest.raises(TypeTextError):
            parse_call(TOOLS, text, style=style, trigger=TRIGGER)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("trigger", [None, TRIGGER])
def test_accepted_texts_are_calls(style, trigger, exhaustive):
    found = 0
    for seed in range(500 if exhaustive else 15):
        text = random_text(machine(style, trigger), seed)
        if text is not None:
            read = parse_call(TOOLS, text, style=style, trigger=trigger)
            assert read == text if isinstance(read, str) else read() is not None
            found += 1
    assert found > 10


@pytest.mark.parametrize("style", STYLES)
def test_masks_at_the_trigger(style):
    """A token may hold the end of the text, the trigger and the beginning of the call."""
    begin = CASES[style][0][0][:6].encode()
    tokens = [b"a<", b"<call>" + begin, b"<call>x", b"all>", TRIGGER.encode() + begin]
    vocabulary = every_byte(tokens)
    walk = compile_call(TOOLS, vocabulary, style=style, trigger=TRIGGER).walk()
    first = walk.allowed()
    assert [bool(first[vocabulary.tokens.index(t)]) for t in tokens] == [True, True, True, True, True]
    walk.advance(vocabulary.tokens.index(b"a<"))
    after = walk.allowed()
    assert [bool(after[vocabulary.tokens.index(t)]) for t in tokens] == [True, True, False, True, True]
    walk.advance(vocabulary.tokens.index(b"<call>" + begin))
    assert not walk.accepting
    for byte in CASES[style][0][0].encode()[6:]:
        walk.advance(vocabulary.tokens.index(bytes([byte])))
    assert walk.accepting
    assert not any(walk.allowed()[i] for i, token in enumerate(vocabulary.tokens) if token)


def variadic(*values: int): ...
def positional(x: int, /): ...
def impossible(when: slice): ...


@pytest.mark.parametrize(
    ("functions", "words"),
    [([], "no function"), (variadic, "variadic.values"), (positional, "positional.x"), (impossible, "impossible.when"), ([stop, stop], "two functions"), (int, "def")],
)
def test_refused_signatures(functions, words):
    with pytest.raises(UnsupportedTypeError, match=words):
        compile_call(functions, every_byte())
