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
from fsa_compile.json_schema import schema_machine


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
