"""GBNF: what becomes of each construct, every error with its place, and robustness."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.grammar_spans import accepts
from oracles.samples import examples

from fsa_compile.errors import ConstraintError, GrammarError, GrammarSyntaxError, LimitError, UnsupportedGrammarError
from fsa_compile.grammar.gbnf_syntax import parse_gbnf
from fsa_compile.grammar.grammar_tree import Choice, FreeText, Literal, Pattern, Reference, Repeat, Sequence, SpecialToken
from fsa_compile.grammar.source import MAX_DEPTH, walk
from fsa_compile.limits import CompileLimits

JSON = r"""
# A small JSON grammar with alternatives over several lines
root ::= value
value ::= (
    object   # a comment
  | array | string
  | "null" |
    number
)
object ::= "{" (pair ("," pair)*)? "}"

pair ::= string ":" value
array ::=
  "[" ( value
  ("," value)* )? "]"
string ::= "\"" char{0,3} "\""
char ::= [^"\\\x00-\x1f] | "\\" ["\\nu]
number ::= "-"? ("0" | [1-9] [0-9]*)
"""


def plain(node: object) -> object:
    """An expression without places, as tuples."""
    match node:
        case Literal():
            return node.text
        case Pattern():
            return ("/", node.pattern, node.flags)
        case Reference():
            return ("->", node.name)
        case SpecialToken():
            return ("token", node.name)
        case FreeText():
            return ("until", *node.until)
        case Sequence():
            return ("seq", *map(plain, node.parts))
        case Choice():
            return ("or", *map(plain, node.branches))
        case Repeat():
            return ("rep", plain(node.part), node.low, node.high)
    raise AssertionError(node)


CONSTRUCTS = [
    ('root ::= "a"', "a"),
    ('root ::= "a" "b" | "c" |', ("or", ("seq", "a", "b"), "c", ("seq",))),
    ("root ::=", ("seq",)),
    ('root ::= ""', ""),
    ('root ::= | "a"', ("or", ("seq",), "a")),
    ('root ::= "a" |\n  "b"', ("or", "a", "b")),
    ('root ::=\n  "a"\n  | "b"', ("or", "a", "b")),
    ('root ::= (\n"a"\n\n"b" # c\n)', ("seq", "a", "b")),
    ('root ::= "a"* "b"+ "c"?', ("seq", ("rep", "a", 0, None), ("rep", "b", 1, None), ("rep", "c", 0, 1))),
    (
        'root ::= "a"{2} "b"{2,} "c"{2,3} "d"{,3}',
        ("seq", ("rep", "a", 2, 2), ("rep", "b", 2, None), ("rep", "c", 2, 3), ("rep", "d", 0, 3)),
    ),
    ('root ::= "a"{ 2 , 3 } "b" *', ("seq", ("rep", "a", 2, 3), ("rep", "b", 0, None))),
    (
        'root ::= "ab"*? "c"+? "d"?+ "e"++',
        ("seq", ("rep", "ab", 0, None), ("rep", "c", 0, None), ("rep", "d", 0, None), ("rep", "e", 1, None)),
    ),
    ('root ::= ("a"?)? ("b"{2})*', ("seq", ("rep", "a", 0, 1), ("rep", ("rep", "b", 2, 2), 0, None))),
    (r'root ::= "\t\r\n\\\"\[\]\x41\u20ac\U0001F600"', '\t\r\n\\"[]A\u20ac\U0001f600'),
    ("root ::= [a-z0-9_]", ("/", "[a-z0-9_]", "")),
    (r"root ::= [^\]\\\n-]", ("/", r"[^\]\\\x0a\-]", "")),
    ("root ::= [a-] [-a] [[^]", ("seq", ("/", r"[a\-]", ""), ("/", r"[\-a]", ""), ("/", r"[\[\^]", ""))),
    (r"root ::= [\u3042-\u309f]", ("/", "[\u3042-\u309f]", "")),
    (r'root ::= [a\-z] [\--\]] "\-"', ("seq", ("/", r"[a\-z]", ""), ("/", r"[\--\]]", ""), "-")),
    ("root ::= .", ("/", ".", "s")),
    ("root ::= <think> <[7]> </think>", ("seq", ("token", "<think>"), ("token", 7), ("token", "</think>"))),
    ('root ::= %token("[INST]") %until( "a" , "b" )', ("seq", ("token", "[INST]"), ("until", "a", "b"))),
    ('root ::= a-b c_d E1\na-b ::= "x"\nc_d ::= "y"\nE1 ::= "z"', ("seq", ("->", "a-b"), ("->", "c_d"), ("->", "E1"))),
    ('\r\nroot ::= "a"\r\n\r\n# end', "a"),
]


@pytest.mark.parametrize(("text", "expected"), CONSTRUCTS)
def test_construct(text: str, expected: object) -> None:
    assert plain(parse_gbnf(text).rules["root"].body) == expected


def test_a_whole_grammar() -> None:
    grammar = parse_gbnf(JSON)
    assert (grammar.start, grammar.mode, grammar.ignore, grammar.text) == ("root", "characters", (), JSON)
    assert list(grammar.rules) == ["root", "value", "object", "pair", "array", "string", "char", "number"]
    for rule in grammar.rules.values():
        assert (rule.terminal, rule.priority, JSON[rule.start : rule.end]) == (False, 0, rule.name)
        for node in walk(rule.body):
            if isinstance(node, Reference):
                assert JSON[node.start : node.end] == node.name


@pytest.mark.parametrize("text", ['{"a":[1,-20,null]}', '"a\\"b"', "[]", "{}", "0", '[{"":{}},"\\n"]'])
def test_json_texts(text: str) -> None:
    json.loads(text)
    assert accepts(parse_gbnf(JSON), text)


@pytest.mark.parametrize("text", ["", "01", '"abcd"', "[1,]", "{a:1}", "[", '"\\x"', "-", "nul"])
def test_texts_that_are_not_in_the_grammar(text: str) -> None:
    assert not accepts(parse_gbnf(JSON), text)


CLASSES = ["[a-c]", "[^a-c]", r"[\]\\]", "[a^-]", "[--a]", r"[^\n]", "[&&~~||]", "[[:a:]", "[ -~]", r"[\x5b-\x5d]"]


@pytest.mark.parametrize("text", CLASSES)
def test_classes_hold_what_is_written(text: str) -> None:
    node = parse_gbnf(f"root ::= {text}").rules["root"].body
    negated, rest = text[1] == "^", text[2:-1] if text[1] == "^" else text[1:-1]
    items = re.findall(r"(\\x..|\\.|.)(?:-(\\x..|\\.|.))?", rest, re.S)

    def value(item: str) -> str:
        return chr(int(item[2:], 16)) if item[:2] == "\\x" else {"\\n": "\n"}.get(item, item[-1])

    members = {chr(c) for low, high in items for c in range(ord(value(low)), ord(value(high or low)) + 1)}
    for c in map(chr, range(256)):
        assert bool(re.fullmatch(node.pattern, c)) == ((c in members) != negated), c


ERRORS = [
    ("", 1, 1, "no rules"),
    ('a ::= "x"', 1, 1, "no start rule 'root'.*There are: a"),
    ("root ::= foo", 1, 10, "rule 'foo' is not defined"),
    ('root ::= objekt\nobject ::= "x"', 1, 10, "Did you mean object"),
    ('root ::= "a"\nroot ::= "b"', 2, 1, "defined a second time .first in line 1"),
    ('root ::= "a', 1, 10, "string is never closed"),
    ("root ::= [a", 1, 10, r"this \[ is never closed"),
    ('root ::= ("a"', 1, 10, r"this \( is never closed"),
    ('root ::= ("a"\nb ::= "c"', 1, 10, r"this \( is never closed"),
    ('root ::= "a")', 1, 13, "closes nothing"),
    ('root ::= "a"]', 1, 13, "unexpected ']'"),
    ("root ::= *", 1, 10, "nothing that [*] could repeat"),
    ('root ::= "a"{3,1}', 1, 13, "smallest count 3 exceeds the largest count 1"),
    ('root ::= "a"{}', 1, 13, "a repetition is"),
    ('root ::= "a"{,}', 1, 13, "a repetition is"),
    ('root ::= "a"{2', 1, 13, "a repetition is"),
    ('root ::= "a"{x}', 1, 13, "a repetition is"),
    ("root ::= [z-a]", 1, 11, "range z-a runs backwards"),
    ("root ::= []", 1, 10, "character class is empty"),
    ("root ::= [^]", 1, 10, "character class is empty"),
    (r'root ::= "\d"', 1, 11, r"unknown escape \\d"),
    (r"root ::= [\^a]", 1, 11, r"unknown escape \\\^"),
    ('root ::= "a\\', 1, 12, "unknown escape"),
    (r'root ::= "\x4"', 1, 11, "needs 2 hexadecimal digits and has 1"),
    (r'root ::= "\ud800"', 1, 11, "surrogate"),
    (r'root ::= "\U00110000"', 1, 11, "beyond the last code point"),
    ("root ::= 'a'", 1, 10, "Strings stand in double quotes"),
    ("root ::= /a/", 1, 10, "Regular expressions are Lark's"),
    ('root: "a"', 1, 5, "::= is expected"),
    ("root", 1, 5, "::= is expected"),
    ('root ::= "a" b ::= "c"', 1, 14, "a new rule begins in the middle of a line"),
    ('root ::= "a"\n  "b"', 2, 3, "a rule is expected here"),
    ("root ::= !<think>", 1, 10, "negated token"),
    ("root ::= <a b>", 1, 10, "begins no token name"),
    ("root ::= <[a]>", 1, 10, "no list of token numbers"),
    ('root ::= %until("")', 1, 10, "texts not empty"),
    ("root ::= %until(a)", 1, 10, "%until is written"),
    ('root ::= %until("a"', 1, 10, "%until is written"),
    ('root ::= %token("a", "b")', 1, 10, "%token is written"),
    ("root ::= %json", 1, 10, "unexpected '%'"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), ERRORS)
def test_error(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises((GrammarSyntaxError, UnsupportedGrammarError)) as caught:
        parse_gbnf(text)
    error = caught.value
    assert re.search(words, str(error), re.S), str(error)
    assert (error.line, error.column) == (line, column), str(error)
    assert error.fix


def test_limits() -> None:
    with pytest.raises(LimitError, match="max_pattern=10"):
        parse_gbnf('root ::= "a"', limits=CompileLimits(max_pattern=10))
    with pytest.raises(LimitError, match="max_rules=1"):
        parse_gbnf('root ::= "a"\nb ::= "b"', limits=CompileLimits(max_rules=1))
    with pytest.raises(LimitError, match="max_repeat"):
        parse_gbnf('root ::= "a"{100001}')
    with pytest.raises(LimitError, match="max_repeat"):
        parse_gbnf(f'root ::= "a"{{{"9" * 5000}}}')


def test_deep_nesting_is_an_error() -> None:
    assert parse_gbnf(f'root ::= {"(" * MAX_DEPTH}"a"{")" * MAX_DEPTH}').start == "root"
    for depth in (MAX_DEPTH + 1, 20_000):
        with pytest.raises(UnsupportedGrammarError, match="nested more than"):
            parse_gbnf(f'root ::= {"(" * depth}"a"{")" * depth}')


def test_repetitions_of_repetitions() -> None:
    with pytest.raises(GrammarSyntaxError, match="more than 3 repetitions"):
        parse_gbnf(f'root ::= "a"{"*" * 20_000}')


def test_all_short_texts_of_a_small_grammar() -> None:
    grammar = parse_gbnf('root ::= a{1,2} ("c" | root)?\na ::= [ab] | "cc"')
    pattern = re.compile(r"(?:(?:[ab]|cc)+c?)")
    for length in range(7):
        for letters in itertools.product("abc", repeat=length):
            sample = "".join(letters)
            assert accepts(grammar, sample) == bool(pattern.fullmatch(sample)), sample


WORDS = [
    "root", "a", "::=", "|", "(", ")", "[", "]", "{", "}", ",", "?", "*", "+", "\n", " ", '"a"', "[^b-d]", "<t>", "<[3]>", "!", ".", "2",
    "#", '"', "\\", "<", "%until", '("x")', "\\n", "\\x4", "\u00e9", "root ::= a\n", 'a ::= "x"\n', "-",
]  # fmt: skip


def check(text: str) -> None:
    """That a text is a grammar whose names are defined, or an error that points into it."""
    try:
        grammar = parse_gbnf(text)
    except ConstraintError as error:
        refusal = error
    else:
        names = {node.name for rule in grammar.rules.values() for node in walk(rule.body) if isinstance(node, Reference)}
        assert names | {grammar.start} <= set(grammar.rules)
        return
    assert isinstance(refusal, GrammarError | LimitError)
    if isinstance(refusal, GrammarError):
        assert 0 <= refusal.start <= len(text)
        assert refusal.line <= text.count("\n") + 1
        assert refusal.fix


@settings(max_examples=examples(120, 4_000), deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join) | st.text(max_size=40))
def test_any_text_is_a_grammar_or_an_error(text: str) -> None:
    check(text)


@settings(max_examples=examples(120, 4_000), deadline=None)
@given(st.data())
def test_a_mutated_grammar_is_a_grammar_or_an_error(data: st.DataObject) -> None:
    text = JSON
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.integers(0, len(text)))
        j = min(len(text), i + data.draw(st.integers(0, 3)))
        text = text[:i] + data.draw(st.sampled_from(["", *WORDS])) + text[j:]
    check(text)
