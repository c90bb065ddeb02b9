"""`%call`: the same language, with other frames."""

from __future__ import annotations

import itertools

import pytest

from fsa_compile.errors import GrammarConflictError, GrammarSyntaxError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

GRAMMARS = (
    ('start: pair ("," pair)*\npair: cell ":" cell\ncell: "a" | "(" cell* ")"\n', ("cell", "pair", "cell pair")),
    ('start: item*\nitem: "a" | "(" start ")" | "," word\nword: ":" | "(" ":"* ")"\n', ("item", "word item", "start")),
    ('start: (x | y)*\nx: "a" ":"? "("\ny: "a" ":" ")" | ","\n', ("x y",)),
)


@pytest.mark.parametrize(("grammar", "names"), [(grammar, name) for grammar, names in GRAMMARS for name in names])
def test_calls_do_not_change_the_language(grammar, names):
    plain, called = (machine_of(parse_lark(grammar + line)) for line in ("", f"%call {names}\n"))
    accepted = 0
    for length in range(7):
        for letters in itertools.product(b"a:(),", repeat=length):
            text = bytes(letters)
            assert plain.accepts(text) == called.accepts(text), text
            accepted += plain.accepts(text)
    assert accepted > 10


@pytest.mark.parametrize("block", ["_NL [_INDENT NAME _NL _DEDENT]", "_NL", "_NL | NAME _NL", "_NL _INDENT (NAME block)+ _DEDENT | _NL"])
def test_a_called_block_may_be_a_last_line_end_that_is_missing(block):
    grammar = f'start: (NAME block)+\nblock: {block}\nNAME: /a+/\n_NL: /(\\n *)+/\n%declare _INDENT _DEDENT\n%ignore " "\n%indent 2 3\n'
    plain, called = (machine_of(parse_lark(grammar + line)) for line in ("", "%call block\n"))
    texts = [b"".join(pieces) for n in range(7) for pieces in itertools.product((b"a", b"\n", b"  "), repeat=n)]
    assert [text for text in texts if plain.accepts(text) != called.accepts(text)] == []
    assert plain.accepts(b"a")


def test_two_rules_that_begin_alike_are_one_call_or_a_conflict():
    grammar = 'start: (x | "a" ":" ")")*\nx: "a" ":" "("\n'
    machine_of(parse_lark(grammar))
    with pytest.raises(GrammarConflictError, match="two ways"):
        machine_of(parse_lark(grammar + "%call x\n"))


@pytest.mark.parametrize("name", ["WORD", "rows", "list"])
def test_only_rules_are_called(name):
    with pytest.raises(GrammarSyntaxError, match=f"%call names {name}, which is no rule"):
        parse_lark(f'start: row list{{row}}\nrow: WORD\nlist{{x}}: x\nWORD: "a"\n%call {name}\n')
