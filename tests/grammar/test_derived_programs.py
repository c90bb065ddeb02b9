"""Random texts derived from the rules of the library's languages: what the machine reads of them, the judge reads.

Mutated programs show what stands near real ones; these have what nobody writes, such as `import a;` in Java.
"""

from __future__ import annotations

import ast
import random
import re
import warnings
from collections.abc import Callable

import pytest
from grammar.test_java_programs import parses  # noqa: F401
from grammar.test_real_languages import judge_of
from oracles.derivations import Derivation, joined
from oracles.grammar_checks import grammar_of, library_machine

from fsa_compile import CompileLimits, library
from fsa_compile.compiler.stored_machines import packaged_machine

Judge = Callable[[str], bool]
PLACES: dict[str, list[tuple[str, str, str]]] = {
    "c": [("", "start", "")],
    "go": [("", "start", ""), ("package a;func f(){\n", "_statement", "\n}"), ("package a;var x=", "expression", ""), ("package a;var x ", "_type", "")],
    "java": [
        ("class a{{", "statement", "}}"), ("class a{{x=", "expression", ";}}"), ("class a{{switch(b){default:", "_plain", "}}}"),
        ("class a{", "member", "}"), ("interface a", "interface_body", ""), ("record a", "record", ""), ("", "start", ""),
    ],
    "javascript": [("", "start", "")],
    "python": [("", "statement", "")],
    "regex": [("", "start", "")],
    "sql": [("", "start", "")],
    "typescript": [("", "start", ""), ("let x: ", "_type", ";\n")],
    "xml": [("", "start", "")],
}  # fmt: skip
"""By language the rules that texts are derived from, and what stands around them."""
TEXTS = {"NAME": ["a", "b", "A", "x"], "_NL": ["\n"], "_NEWLINE": ["_NEWLINE"]}
NOT_JUDGED = {
    "c": r"\[\s*\*",  # pycparser refuses int[*p], which C has
    "go": r"\bconst\b|import|\bfunc\b.*\[",  # versions of gofmt differ about what is left to the type checker
    "java": r"\benum\b",
    "javascript": r"yield|await|#",
    "typescript": r"yield|await",
}
"""What the comments of the grammars except, or judges err about."""


def python_reads(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def check(name: str, judge: Judge, tally, cases: int) -> None:
    grammar, spaced = grammar_of(name), library.options(name)["mode"] == "longest"
    machine = packaged_machine(grammar.text, **library.options(name), limits=CompileLimits()) or library_machine(name)
    derivation = Derivation(grammar, random.Random(), TEXTS)
    for rng in tally.cases(cases, least=4_000, name=name):
        derivation.rng = rng
        before, rule, behind = rng.choice(PLACES[name])
        lexemes = derivation.lexemes(rule, rng.choice([4, 8, 15, 30]))
        text = before + (joined(lexemes, rng.choice([" ", ""])) if spaced else "".join(lexemes)) + behind
        if re.search(NOT_JUDGED.get(name, r"\A\Z"), text) or len(text) > 500:
            continue
        read = machine.accepts(text.encode())
        assert not read or judge(text), text
        tally.update(made=read, checks=1)
    assert tally["made"] > cases / 10


@pytest.mark.parametrize("name", [name for name in PLACES if name not in ("java", "python")])
def test_what_is_derived_and_read_the_judge_reads(name, tally):
    check(name, judge_of(name), tally, 60)


def test_java(parses, tally):  # noqa: F811
    check("java", parses, tally, 80)


def test_python(tally):
    check("python", python_reads, tally, 80)
