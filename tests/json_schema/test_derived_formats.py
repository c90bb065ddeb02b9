"""Formats against texts that nobody writes: what the machine derives a reader takes, and what the standard's rules derive the machine.

The rules are those of the RFCs' ABNF, one by one: a second reading, beside the judges and the patterns of the package.
"""

from __future__ import annotations

import functools
import json
import random

import pytest
from json_schema.test_random_formats import _node, read
from oracles.derivations import Derivation
from oracles.format_rules import RULES
from oracles.formats import JUDGES, undecided_here
from oracles.text_walks import derived

from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.json_schema import UnsatisfiableSchemaError, UnsupportedSchemaError, schema_machine
from fsa_compile.yaml_schema import yaml_machine


def strings(machine, rng: random.Random) -> str:
    text = derived(machine, rng, rng.choice([3, 10, 25, 60]), b'"@', b"" if rng.random() < 0.15 else b"\\")
    return json.loads(text) if text else ""


@functools.cache
def machine_of(name: str):
    return schema_machine({"type": "string", "format": name})


def test_what_the_machine_derives_has_the_format(tally):
    for rng in tally.cases(700):
        name = rng.choice(sorted(JUDGES))
        text = strings(machine_of(name), rng)
        assert not text or JUDGES[name](text) is True, (name, text)
        tally.update(made=bool(text), checks=1)
    assert tally["made"] > tally["checks"] / 2


@pytest.mark.skipif(_node() is None, reason="needs node, whose reader of patterns is the judge")
def test_regular_expressions(tally):
    for rng in tally.cases(1, least=10):
        texts = [strings(machine_of("regex"), rng) for _ in range(5_000 if tally.in_full else 60)]
        for text, valid in zip(texts, read(texts)):
            assert valid is True, text
        tally.update(made=1, checks=len(texts))


def test_what_the_rules_derive_is_read(tally):
    derivations = {name: Derivation(parse_lark(rules), random.Random(), {}) for name, rules in RULES.items()}
    for rng in tally.cases(1_000):
        name = rng.choice(sorted(RULES))
        derivations[name].rng = rng
        text = "".join(derivations[name].lexemes("start", rng.choice([3, 8, 15, 30, 60])))
        assert JUDGES[name](text) is True, (name, text)
        assert undecided_here(name, text) or machine_of(name).accepts(json.dumps(text, ensure_ascii=False).encode()), (name, text)
        tally.update(made=1, checks=1)


LEFT_OUT = {
    "regex": ["(?<n>a)", r"\0", r"\cA", "[^]", "a{10,20}", "[b-y]"],
    "hostname": ["xn--bcher-kva.example", "a.b.c.d.e.f.g.h.i.j.k"],
    "duration": ["p1d", "P1d"],
    "time": ["16:59:60-01:30"],
    "date-time": ["1990-12-31T16:59:60-01:30"],
    "email": ["a@[IPv6:1:2:3:4:5:6:7::]", "a@[127.0.0.01]"],
    "relative-json-pointer": ["0+1/a"],
}
"""What docs/limits.md leaves out of a format and of its negation."""
WRONG = {"regex": "*", "hostname": "a..b", "duration": "1", "time": "24:00:00Z", "date-time": "1990", "email": "a", "relative-json-pointer": "/a"}


@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize("compiled", [schema_machine, yaml_machine])
def test_a_string_that_is_undecided_is_no_contradiction(name, compiled):
    """Listed strings and a format: nothing to write is a contradiction only where it is certain that the strings have not the format."""
    for text in LEFT_OUT[name]:
        for schema, pointer in (
            ({"const": text, "format": name}, "#/format"),
            ({"enum": [text, 1], "type": "string", "not": {"format": name}}, "#/not/format"),
            ({"allOf": [{"enum": [WRONG[name], text]}, {"format": name}]}, "#/allOf/1/format"),
            ({"items": {"const": text, "format": name}, "minItems": 1, "type": "array"}, "#/items/format"),
        ):
            with pytest.raises(UnsupportedSchemaError, match=r"whether .* has the format .* is not decided here") as error:
                compiled(schema)
            assert error.value.pointer == pointer
    for schema in ({"const": WRONG[name], "format": name}, {"const": LEFT_OUT[name][0], "format": name, "minLength": 99}, {"const": "a", "pattern": "b"}):
        with pytest.raises(UnsatisfiableSchemaError):
            compiled(schema)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_of_a_list_the_undecided_strings_are_left_out_wherever_it_stands(name):
    texts = [LEFT_OUT[name][0], WRONG[name]]
    listed = {"enum": [*texts, 1], "not": {"format": name, "type": "string"}}
    for schema, value, others in (
        (listed, lambda x: x, False),
        ({"items": listed, "type": "array"}, lambda x: [1, x], False),
        ({"properties": {"a": listed}, "required": ["a"]}, lambda x: {"a": x}, False),
        ({"items": {"not": {"enum": texts, "format": name}}, "type": "array"}, lambda x: [x], True),
        ({"oneOf": [{"properties": {"a": listed}}, {"required": ["b"]}], "type": "object"}, lambda x: {"a": x}, False),
    ):
        machine = schema_machine(schema)
        assert [machine.accepts(json.dumps(value(x)).encode()) for x in [*texts, 2]] == [False, True, others], schema
