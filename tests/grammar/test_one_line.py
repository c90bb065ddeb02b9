"""`%one_line`: rules in which newlines are not ignored, though a bracket is open around them or in them."""

from __future__ import annotations

import itertools
import re

import pytest

from fsa_compile.errors import GrammarSyntaxError
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.lark_syntax import parse_lark

GRAMMAR = r"""
start: (_NL | item _NL)*
item: "a" | "(" item* ")" | QUOTE inside
inside: part* /[.]/
part: "a" | "(" part* ")"
QUOTE: "'"
_NL: /(#?\n *)+/
%ignore /#\n/
%ignore /\n/
%declare _INDENT _DEDENT
"""


def item_end(text: str, at: int, within: bool) -> int:
    """Where an item (or a part) ends that begins at a place, -1 if none does; lines and comments are skipped in brackets of items."""
    opening = text[at : at + 1]
    if opening == "a":
        return at + 1
    if opening not in ("(", "'") or (within and opening == "'"):
        return -1
    within, closing, at = within or opening == "'", ")" if opening == "(" else ".", at + 1
    while at >= 0:
        while not within and re.match("#?\n", text[at:]):
            at = text.index("\n", at) + 1
        if text[at : at + 1] == closing:
            return at + 1
        at = item_end(text, at, within)
    return -1


def expected(text: str) -> bool:
    """Lines of an item or of nothing, each with a comment or none; the end of the last line may be missing."""
    at = 0
    while at < len(text):
        if text[at] not in "#\n":
            at = item_end(text, at, within=False)
        if at < 0 or not re.match(r"#?(\n|\Z)", text[at:]):
            return False
        at = text.find("\n", at) + 1 or len(text)
    return True


def test_newlines_are_ignored_outside_of_the_rule_alone(exhaustive):
    machine, plain = (machine_of(parse_lark(GRAMMAR + line)) for line in ("%one_line inside\n", ""))
    accepted = differ = 0
    for length in range(8 if exhaustive else 7):
        for letters in itertools.product("a()'.\n#", repeat=length):
            text = "".join(letters)
            taken = machine.accepts(text.encode())
            assert taken == expected(text), text
            accepted += taken
            differ += taken != plain.accepts(text.encode())
    assert accepted > 300
    assert differ > 10


@pytest.mark.parametrize(
    ("grammar", "what"),
    [
        (GRAMMAR + "%one_line QUOTE\n", "%one_line names QUOTE, which is no rule"),
        (GRAMMAR.replace("%declare _INDENT _DEDENT\n", "") + "%one_line part\n", "%one_line needs %declare _INDENT _DEDENT"),
    ],
)
def test_what_it_needs(grammar, what):
    with pytest.raises(GrammarSyntaxError, match=what):
        parse_lark(grammar)


def test_a_newline_terminal_may_read_one_line_end_alone():
    machine = machine_of(parse_lark('start: ("a" _NL)*\n_NL: /\\n */\n%declare _INDENT _DEDENT\n'))
    assert [machine.accepts(text) for text in (b"", b"a\n", b"a\na", b"aa", b"a\n a")] == [True, True, True, False, False]
