"""The table of other projects' grammars on the page of grammars: what compiles as it is, and what is refused, with its place."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import lark
import pytest
from oracles.grammar_judges import parses

import fsa_compile.library
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.errors import ConstraintError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.limits import CompileLimits

COMPILE = [f"gbnf/{name}.gbnf" for name in ("arithmetic", "c", "english", "japanese", "json", "list")] + [
    f"syncode/{name}.lark" for name in ("c", "calc", "invariants", "json")
]
REFUSED = {
    "syncode/python.lark": "simple_stmt (line 41) or _NL",
    "syncode/go.lark": "it begins the bracketed group in array_type (line 153)",
    "lark/python.lark": "for_stmt (line 94)",
    "lark/lark.lark": "begin the next lexeme after REGEXP",
    "llguidance_lark.lark": "begin the next lexeme after REGEXP",
}

LONG = {"lark/python.lark": 2_000_000, "syncode/go.lark": 10_000, "syncode/python.lark": 2_000_000}
"""By name, `max_states`; with the usual one `go` takes two minutes."""


def text_of(data_dir, name: str) -> str:
    path = data_dir / "grammars" / name
    if not path.is_file():
        pytest.skip("the grammars of other projects are not here")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMPILE)
def test_it_compiles_as_it_is(name, data_dir):
    assert len(machine_of(parse_grammar(text_of(data_dir, name))).action) > 2


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:(file_input|start) does not need these rules")
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_place(name, data_dir, exhaustive):
    if name in LONG and not exhaustive:
        pytest.skip("run by --exhaustive: its frames take most of a minute")
    grammar = text_of(data_dir, name)
    start = "file_input" if name == "lark/python.lark" else "start"
    with pytest.raises(ConstraintError) as found:
        machine_of(parse_grammar(grammar, start=start), limits=CompileLimits(max_states=LONG.get(name, 2_000_000)))
    assert REFUSED[name] in str(found.value)
    assert "(line " in str(found.value)


@pytest.mark.parametrize("name", ["lark/lark.lark", "llguidance_lark.lark"])
def test_grammars_of_grammars_read_what_lark_reads(name, data_dir):
    text = text_of(data_dir, name).replace(r"|[^\/])", r"|[^\/\\])")  # what a backslash begins is told at once
    machine, judge = machine_of(parse_grammar(text)), lark.Lark(text, parser="lalr")
    rng = random.Random(1)
    seen = Counter()
    for path in sorted([*(data_dir / "grammars").rglob("*.lark"), *Path(fsa_compile.library.__file__).parent.glob("*.lark")]):
        lines = path.read_text(encoding="utf-8").split("\n")
        for _ in range(30):
            start = rng.randrange(len(lines))
            sample = "\n".join(lines[start : start + rng.randint(1, 6)])
            if sample and rng.random() < 0.8:
                at = rng.randrange(len(sample))
                letter = rng.choice(["", "\n", "|", ":", "(", ")", "/", '"', "#", "//x", "?", "+", "->", "_", "A ", "%", " "])
                sample = sample[:at] + letter + sample[at + rng.randint(0, 2) :]
            expected = parses(judge, sample)
            assert machine.accepts(sample.encode()) == expected, sample
            seen[expected] += 1
    assert min(seen.values()) > 200
