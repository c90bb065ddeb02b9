"""The table of other projects' grammars on the page of grammars: what compiles as it is, and what is refused, with its place."""

from __future__ import annotations

import pytest

from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.errors import ConstraintError
from fsa_compile.grammar.grammar_machine import machine_of

COMPILE = [f"gbnf/{name}.gbnf" for name in ("arithmetic", "c", "english", "japanese", "json", "list")] + [
    f"syncode/{name}.lark" for name in ("c", "calc", "invariants", "json")
]
REFUSED = {
    "syncode/python.lark": "_NL",
    "lark/python.lark": "for_stmt (line 94)",
    "lark/lark.lark": "depends on what stands further outside",
    "llguidance_lark.lark": "depends on what stands further outside",
}


def text_of(data_dir, name: str) -> str:
    path = data_dir / "grammars" / name
    if not path.is_file():
        pytest.skip("the grammars of other projects are not here")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMPILE)
def test_it_compiles_as_it_is(name, data_dir):
    assert len(machine_of(parse_grammar(text_of(data_dir, name))).action) > 2


@pytest.mark.filterwarnings("ignore:file_input does not need these rules")
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_place(name, data_dir):
    grammar = text_of(data_dir, name)
    start = "file_input" if name == "lark/python.lark" else "start"
    with pytest.raises(ConstraintError) as found:
        machine_of(parse_grammar(grammar, start=start))
    assert REFUSED[name] in str(found.value)
    assert "(line " in str(found.value)


@pytest.mark.parametrize("name", ["lark/lark.lark", "llguidance_lark.lark"])
def test_without_its_comments_it_compiles(name, data_dir):
    assert len(machine_of(parse_grammar(text_of(data_dir, name).replace("%ignore COMMENT\n", ""))).action) > 100
