"""Number conditions against exact fractions, over texts that differ in every digit that matters."""

from __future__ import annotations

import itertools
import json
import random
import re
from fractions import Fraction

import pytest

from fsa_compile.automata.labelled_dfa import from_letters
from fsa_compile.errors import LimitError
from fsa_compile.json_schema import SchemaOptions, schema_machine
from fsa_compile.json_schema.number_conditions import UNDECIDED, Compare, Integer, MultipleOf, Sign, Written, exact, number_dfa
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.python_syntax import parse
from fsa_compile.patterns.regex_automaton import build_automaton

WHOLE = ["0", "1", "2", "9", "10", "11", "12", "99", "100", "101", "1000", "65535", "65536"]
PARTS = ["", ".0", ".5", ".50", ".01", ".010", ".005", ".25", ".99", ".249", ".251"]
TEXTS = [sign + whole + part for sign in ("", "-") for whole in WHOLE for part in PARTS]


@pytest.mark.parametrize("bound", [1, 10, -10, 9.99, 0.01, -0.5, 100, 65535, 12.5, -0.25, 0.001, 99.0])
def test_comparison(bound):
    dfa = number_dfa([Compare(exact(bound))], "plain", lambda said: said[0] + 2, 10_000, "#")
    wrong = [text for text in TEXTS if dfa.label(text) - 2 != (Fraction(text) > exact(bound)) - (Fraction(text) < exact(bound))]
    assert wrong == []
    for universe in ("digits", "plain"):
        with_mantissa, without = (
            number_dfa([Compare(exact(bound), exponents=read)], universe, lambda said: said[0] + 2, 10_000, "#")
            for read in (True, False)
        )
        assert without == with_mantissa


@pytest.mark.parametrize("pattern", ["-?[0-4]+", "-?[0-9]+[.][1-9]", "[13579]*", "-?(0|[1-9][0-9]*)"])
def test_spellings(pattern):
    dfa = from_letters(build_automaton(parse(pattern), CompileLimits(), Deadline(CompileLimits())))
    found = number_dfa([Written(dfa)], "plain", lambda said: 1 + said[0], 1_000, "#")
    for text in [*TEXTS, *map(str, range(-300, 300))]:
        assert found.label(text) == 1 + bool(re.fullmatch(pattern, text)), text


def test_kept_automata_are_told_apart_by_what_their_conditions_say():
    """Bounded integers of two drafts, in both spellings, one after another and again."""
    wanted = {}
    for _ in range(2):
        for draft, integers, high in itertools.product(("4", "2020-12"), ("plain", "all"), (99, 120)):
            schema = {"type": "integer", "minimum": 7, "maximum": high}
            machine = schema_machine(schema, options=SchemaOptions(draft=draft, integers=integers))
            taken = [text for text in ("6", "7", "99", "100", "120", "121", "8.0", "70e-1") if machine.accepts(text.encode())]
            assert wanted.setdefault((draft, integers, high), taken) == taken
            assert [text for text in taken if text.isdigit()] == ["7", "99", *["100", "120"][: 2 * (high == 120)]]
            assert ("8.0" in taken) == (draft != "4" and integers == "all")


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 0.01, 0.5, 2.5, 0.07, 33, 100])
def test_multiples_and_integers(divisor):
    conditions = [MultipleOf(exact(divisor), 4000, "#"), Integer()]
    dfa = number_dfa(conditions, "plain", lambda said: 1 + said[0] + 2 * said[1], 10_000, "#")
    for text in TEXTS:
        multiple = (Fraction(text) / exact(divisor)).denominator == 1
        assert dfa.label(text) == 1 + multiple + 2 * (Fraction(text).denominator == 1), text


@pytest.mark.parametrize("divisor", [86_400, 3_600, 1_024, 1_000_000, 604_800, 19.25, 12.8, 0.000_01, 2_401])
def test_remainders_that_are_completed_alike_are_one(divisor):
    """Multiples, their neighbours, and what their digits begin with: as many states as the least automaton has."""
    condition = MultipleOf(exact(divisor), 4_000, "#")
    dfa = number_dfa([condition], "plain", lambda said: 1 + said[0], 20_000, "#")
    assert len(condition._known) <= len(dfa.rows)
    rng = random.Random(1)
    for _ in range(300):
        number = exact(divisor) * rng.randint(0, 10 ** rng.randint(0, 9)) + rng.choice([0, 0, 1, -1, 10, exact(divisor) / 2])
        digits = str(abs(int(number * 10**7))).rjust(8, "0")
        text = rng.choice([digits[:-7], f"{digits[:-7]}.{digits[-7:-5]}", f"{digits[:-7]}.{digits[-7:]}"])
        for cut in (text, text[: rng.randint(1, len(text))].rstrip("."), text + rng.choice(["0", "00", "5"])):
            multiple = (Fraction(cut) / exact(divisor)).denominator == 1
            written = cut[0] != "0" or not cut[1:2].isdigit()
            assert dfa.label(cut) == (1 + multiple if written else 0), cut


def test_comparison_with_exponents():
    """Right or undecided; decided for every text that Python writes of a float."""
    rng = random.Random(3)

    def spelled() -> str:
        whole = rng.choice(["0", str(rng.randint(1, 9)), str(rng.randint(1, 3_000))])
        part = "." + "".join(rng.choices("0012359", k=rng.randint(1, 4))) if rng.random() < 0.6 else ""
        exponent = rng.choice("eE") + rng.choice(["", "+", "-"]) + rng.choice(["", "0"]) + str(rng.randint(0, 12))
        return rng.choice(["", "-"]) + whole + part + (exponent if rng.random() < 0.7 else "")

    for _ in range(100):
        bound = Fraction(rng.choice([spelled(), str(rng.randint(1, 20)), "-1", "0.001", "1e-7", "12.5"]))
        if not bound:
            continue
        dfa = number_dfa([Compare(bound)], "all", lambda said: said[0] + 2, 10_000, "#")
        for _ in range(200):
            near = float(bound) * rng.choice([1, 1.0000001, 0.99, 10, 0.1, -1, 1e-30, 1e30])
            text = rng.choice([spelled(), repr(near)])
            said = dfa.label(text) - 2
            if said == UNDECIDED:
                assert "e" in text.lower()
                assert text != repr(near)
            else:
                assert said == (Fraction(text) > bound) - (Fraction(text) < bound), (bound, text)


def test_integers_with_exponents():
    dfa = number_dfa([Integer()], "all", lambda said: 1 + said[0], 100, "#")
    for text, says in {"1e2": 1, "1.0e2": 2, "0e-1": 2, "10e-1": 2, "15E+0": 1, "-3e00": 1, "1.5": 0, "1.0": 1}.items():
        assert dfa.label(text) == 1 + (1 if says == 1 else UNDECIDED if says == 2 else 0), text


def test_sign_of_every_spelling():
    dfa = number_dfa([Sign()], "all", lambda said: said[0] + 2, 100, "#")
    texts = [s + w + p + e for s in ("", "-") for w in ("0", "10") for p in ("", ".0", ".30") for e in ("", "e5", "E-40", "e+0")]
    assert [t for t in texts if dfa.label(t) - 2 != (Fraction(t) > 0) - (Fraction(t) < 0)] == []


@pytest.mark.parametrize("universe", ["plain", "all"])
def test_universe_is_json(universe):
    """The spellings of a universe are numbers to `json`, and the largest universe holds them all."""
    dfa = number_dfa([], universe, lambda said: 1, 100, "#")
    for length in range(1, 5):
        for letters in itertools.product("-+.0e1", repeat=length):
            text = "".join(letters)
            try:
                json.loads(text)
                number = True
            except ValueError:
                number = False
            assert dfa.label(text) <= number
            if universe == "all" or (universe == "plain" and "e" not in text):
                assert dfa.label(text) == number, text


def test_random_bounds_through_the_machine():
    rng = random.Random(5)
    for _ in range(25):
        schema = {"type": "number"}
        for keyword in rng.sample(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const"], 2):
            schema[keyword] = (
                rng.choice([0.01, 0.5, 3, 2.5]) if keyword == "multipleOf" else rng.choice([0, 1, -10, 12.5, 100, 0.25])
            )
        machine = schema_machine({"anyOf": [schema, {"type": "null"}]}, options=SchemaOptions(integers="all"))
        holds = {
            "minimum": lambda x, v: x >= v, "maximum": lambda x, v: x <= v, "exclusiveMinimum": lambda x, v: x > v,
            "exclusiveMaximum": lambda x, v: x < v, "multipleOf": lambda x, v: (x / v).denominator == 1, "const": lambda x, v: x == v,
            "type": lambda x, v: True,
        }  # fmt: skip
        for text in rng.sample(TEXTS, 60):
            want = all(holds[k](Fraction(text), v if k == "type" else exact(v)) for k, v in schema.items())
            assert machine.accepts(text.encode()) == want, (schema, text)


def test_large_moduli_are_refused():
    with pytest.raises(LimitError, match="multipleOf at #/x"):
        MultipleOf(exact(4001), 4000, "#/x")
