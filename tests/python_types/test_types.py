"""Both sides of every type: values are accepted as they are written, and every accepted text reads as a value of the type."""

from __future__ import annotations

import ast
import functools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.toy import every_byte
from python_types.sample_types import TYPES, Person
from python_types.walks import has_type, random_text

from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.python_types import compile_type, dump, machine_of_type, parse, shape_of

STYLES = ("json", "python")


@functools.cache
def machine(name, style):
    limits = CompileLimits()
    return machine_of_type(shape_of(TYPES[name][0]), style, None, limits, Deadline(limits))


@pytest.mark.sampled(48, every=("name", "style"))
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", TYPES)
def test_values_are_accepted_and_come_back(name, style, exhaustive):
    T, values = TYPES[name]

    @settings(max_examples=1000 if exhaustive else 10, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(values)
    def check(value):
        text = dump(T, value, style=style)
        assert machine(name, style).accepts(text.encode()), text
        back = parse(T, text, style=style)
        assert back == value, text
        assert has_type(back, T), text

    check()


@pytest.mark.sampled(48, every=("name", "style"))
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", TYPES)
def test_accepted_texts_are_values(name, style, exhaustive):
    T, found = TYPES[name][0], 0
    for seed in range(300 if exhaustive else 12):
        text = random_text(machine(name, style), seed)
        if text is None:
            continue
        found += 1
        (json.loads if style == "json" else functools.partial(ast.parse, mode="eval"))(text)
        value = parse(T, text, style=style)
        assert has_type(value, T), text
        again = dump(T, value, style=style)
        assert parse(T, again, style=style) == value, text
    assert found


@pytest.mark.parametrize("style", STYLES)
def test_changed_texts_are_refused_or_read(style):
    """Parsing checks everything itself: where it reads a text, the value has the type; what the machine accepts, it reads."""
    for name, (T, values) in TYPES.items():

        @settings(max_examples=10, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(st.just((name, T)), values, st.integers(0, 10**6), st.sampled_from("0-1.9e\"'[]{}(), :ax\\"))
        def check(named, value, at, other):
            name, T = named
            text = dump(T, value, style=style)
            at %= len(text) + 1
            text = text[:at] + other + text[at + 1 :]
            try:
                found = parse(T, text, style=style)
            except ValueError:
                assert not machine(name, style).accepts(text.encode()), text
            else:
                assert has_type(found, T), text

        check()


@pytest.mark.parametrize("style", STYLES)
def test_artifact_over_tokens(style):
    """The token walk agrees with the machine along a text, in every mask."""
    vocabulary = every_byte([b'{"name', b'": "', b"Person(", b"name=", b", age=", b"'], "])
    walk = compile_type(Person, vocabulary, style=style).walk()
    text = dump(Person, Person("é'\"", 36, ["x"], None, [Person("b", 1)]), style=style).encode()
    reference = machine("person", style)
    here = {reference.initial}
    for byte in text:
        allowed = walk.allowed()
        expected = [bool(token and reference.run(token, here)) for token in vocabulary.tokens]
        assert [bool(a) for a, token in zip(allowed, vocabulary.tokens) if token] == [e for e, token in zip(expected, vocabulary.tokens) if token]
        walk.advance(vocabulary.tokens.index(bytes([byte])))
        here = reference.step(here, byte)
    assert walk.accepting
