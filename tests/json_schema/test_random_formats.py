"""Formats, alone and in boolean combinations: texts near each format against judges that follow the RFCs."""

from __future__ import annotations

import functools
import itertools
import json
import random
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from oracles.formats import EXAMPLES, JUDGES, Verdict, undecided_here

from fsa_compile.errors import UnsatisfiableError
from fsa_compile.json_schema import schema_machine

NAMES = sorted(JUDGES)
_LETTERS = "019aAfFzZtTP-+.:/@~%{}[]()*?=&#\"'\\_ \n|^é😀\u0301\ue000xn,;!$WDHMYS"
Formula = tuple[Any, ...]
"""("format", name), ("longest", n), ("not", f), ("and" | "or" | "one", f, g) or ("if", f, g, h)."""


def random_formula(rng: random.Random, names: list[str], depth: int) -> Formula:
    """A boolean combination of formats, of which one side may be a bound on the length."""
    kind = rng.random()
    if depth == 0 or kind < 0.1:
        return ("format", rng.choice(names)) if rng.random() < 0.85 else ("longest", rng.choice([0, 5, 12, 40]))
    if kind < 0.35:
        return ("not", random_formula(rng, names, depth - 1))
    word = rng.choice(["and", "or", "one", "one", "if"])
    return (word, *(random_formula(rng, names, depth - 1) for _ in range(3 if word == "if" else 2)))


def schema_of(formula: Formula) -> dict[str, Any]:
    """The schema that says so."""
    word, *rest = formula
    if word == "format":
        return {"format": rest[0]}
    if word == "longest":
        return {"maxLength": rest[0]}
    below = [schema_of(part) for part in rest]
    if word == "not":
        return {"not": below[0]}
    if word == "if":
        return {"if": below[0], "then": below[1], "else": below[2]}
    return {{"and": "allOf", "or": "anyOf", "one": "oneOf"}[word]: below}


def holds(formula: Formula, text: str, says: Callable[[str], bool]) -> bool:
    """Whether a formula holds of a text that has some formats."""
    word, *rest = formula
    if word == "format":
        return says(rest[0])
    if word == "longest":
        return len(text) <= rest[0]
    below = [holds(part, text, says) for part in rest]
    if word == "if":
        return below[1] if below[0] else below[2]
    return {"not": not below[0], "and": all(below), "or": any(below), "one": sum(below) == 1}[word]


def verdict(formula: Formula, names: list[str], text: str, says: dict[str, Verdict]) -> Verdict:
    """What holds however the formats come out that are left open."""
    either = [[False, True] if says[name] is None else [bool(says[name])] for name in names]
    found = {holds(formula, text, dict(zip(names, ways)).__getitem__) for ways in itertools.product(*either)}
    return found.pop() if len(found) == 1 else None


def changed(rng: random.Random, text: str, others: list[str]) -> str:
    """A text with up to three edits, some of which bring in a part of another."""
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at, end = sorted(rng.choices(range(len(text) + 1), k=2))
        kind = rng.random()
        if kind < 0.35:
            text = text[:at] + rng.choice(_LETTERS) + text[at + rng.randint(0, 1) :]
        elif kind < 0.5:
            text = text[:at] + text[at + 1 :]
        elif kind < 0.6:
            text = text[:at] + rng.choice([str.upper, str.lower, lambda part: part * 2])(text[at:end]) + text[end:]
        elif kind < 0.8:
            other = rng.choice(others)
            text = text[:at] + other[rng.randint(0, len(other)) :]
        else:
            text = "".join(rng.choice("0123456789") if c.isdigit() and rng.random() < 0.3 else c for c in text)
    return text


@pytest.mark.exhaustive
def test_random_formats(tally):
    for rng in tally.cases(36, least=1_500):
        names = rng.sample(NAMES, rng.choice([1, 1, 2]))
        formula = random_formula(rng, names, rng.choice([0, 1, 2]))
        try:
            machine = schema_machine({"type": "string", **schema_of(formula)})
        except UnsatisfiableError:
            machine = None
        tally["made"] += 1
        others = [text for name in names for text in EXAMPLES[name]]
        for _ in range(100):
            text = changed(rng, rng.choice(others), others)
            says = {name: JUDGES[name](text) for name in names}
            accepted = machine is not None and machine.accepts(json.dumps(text, ensure_ascii=False).encode())
            tally.update(["checks", f"accepted {accepted}"])
            assert not accepted or verdict(formula, names, text, says), (formula, text, says)
            here = {name: None if undecided_here(name, text) else said for name, said in says.items()}
            assert accepted or not verdict(formula, names, text, here), (formula, text, says)
    assert min(tally["accepted True"], tally["accepted False"]) > 10 * tally["made"]


@pytest.mark.parametrize("name", NAMES)
def test_examples_have_their_format(name):
    """All but what is left open, here or by the standards; none of it is said not to have it either."""
    machine, other = schema_machine({"format": name}), schema_machine({"not": {"format": name}})
    for text in EXAMPLES[name]:
        spelled = json.dumps(text, ensure_ascii=False).encode()
        assert machine.accepts(spelled) or undecided_here(name, text) or JUDGES[name](text) is None, text
        assert not other.accepts(spelled), text


_READER = """
const valid = (text, flags) => { try { new RegExp(text, flags); return true } catch { return false } }
const texts = JSON.parse(require("fs").readFileSync(0))
console.log(JSON.stringify(texts.map(text => [valid(text, ""), valid(text, "u")])))
"""
_PIECES = [*"abz09-^$.*+?()[]{}|\\,:=!<>", "(?:", "(?=", "(?!", "(?<=", "(?<!", "[^", "\\d", "\\b", "\\u00e9", "\\x41", "{2}", "{1,3}", "{2,}", "a-z", "\\c", "\\1", "é", "[a]", "(b)"]


@functools.cache
def _node() -> str | None:
    return shutil.which("node")


def read(texts: list[str]) -> list[Verdict]:
    """Whether ECMAScript takes texts as patterns; None where its flag `u` makes a difference."""
    done = subprocess.run([str(_node()), "-e", _READER], input=json.dumps(texts), capture_output=True, text=True, check=True, timeout=120)
    return [plain if plain == unicode else None for plain, unicode in json.loads(done.stdout)]


@pytest.mark.exhaustive
@pytest.mark.skipif(_node() is None, reason="needs node, whose reader of patterns is the judge")
def test_random_regular_expressions(tally):
    accepting, refusing = schema_machine({"format": "regex"}), schema_machine({"not": {"format": "regex"}})
    for rng in tally.cases(2, least=30):
        texts = ["".join(rng.choices(_PIECES, k=rng.randint(0, 9))) for _ in range(4_000)]
        for text, valid in zip(texts, read(texts)):
            spelled = json.dumps(text, ensure_ascii=False).encode()
            for machine, wrong in ((accepting, valid is not True), (refusing, valid is not False)):
                assert not (wrong and machine.accepts(spelled)), (text, valid)
            tally.update(["checks", f"valid {valid}", f"written {valid and accepting.accepts(spelled)}"])
        tally["made"] += 1
    assert tally["written True"] > tally["valid True"] / 2
