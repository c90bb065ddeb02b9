"""Lark's syntax: what becomes of each construct, every error with its place, agreement with Lark, and robustness."""

from __future__ import annotations

import itertools
import re

import lark
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.grammar_spans import accepts
from oracles.samples import examples

from fsa_compile.errors import ConstraintError, GrammarError, GrammarSyntaxError, LimitError, UnsupportedGrammarError
from fsa_compile.grammar.front.common_terminals import COMMON_TERMINALS
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.grammar.grammar_tree import Choice, FreeText, Literal, Pattern, Reference, Repeat, Sequence, SpecialToken
from fsa_compile.grammar.lark_syntax import parse_lark
from fsa_compile.grammar.source import MAX_DEPTH, walk
from fsa_compile.limits import CompileLimits

JSON = r"""
// JSON with most of what Lark's syntax offers
?start: value

?value: object
      | array            // a comment
      # another one

      | ESCAPED_STRING   -> string
      | SIGNED_NUMBER    -> number
      | "true" -> yes | "false" -> no | "null"

array : "[" [_separated{value, ","}] "]"
!object.2: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
_separated{item, mark}: item (mark item)*

%import common.ESCAPED_STRING
%import common (SIGNED_NUMBER, WS_INLINE)
%import common.NEWLINE -> LINES
%ignore WS_INLINE | LINES
%ignore /#[^\n]*/
"""


def body(text: str, **options: object) -> object:
    """The start rule's expression of a grammar."""
    return parse_lark(text, **options).rules["start"].body


def plain(node: object) -> object:
    """An expression without places, as tuples."""
    match node:
        case Literal():
            return node.text if not node.ignore_case else ("i", node.text)
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
    ('start: "a"', "a"),
    ('start: "a" "b"', ("seq", "a", "b")),
    ('start: "a" | "b" "c" |', ("or", "a", ("seq", "b", "c"), ("seq",))),
    ("start:", ("seq",)),
    ('start: ""', ("seq",)),
    ('start: ("a" | "b")* "c"+ "d"?', ("seq", ("rep", ("or", "a", "b"), 0, None), ("rep", "c", 1, None), ("rep", "d", 0, 1))),
    ('start: ["a" | "b"]', ("rep", ("or", "a", "b"), 0, 1)),
    ('start: "a"~3 "b"~2..5 "c" ~ 0 .. 1', ("seq", ("rep", "a", 3, 3), ("rep", "b", 2, 5), ("rep", "c", 0, 1))),
    ('start: "Ab"i', ("i", "Ab")),
    (r'start: "\n\t\r\f\\\"\x41\u20ac\U0001F600"', '\n\t\r\f\\"A\u20ac\U0001f600'),
    (r"start: /a\/[b\n]+/is", ("/", r"a\/[b\n]+", "is")),
    ("start: /a\n  b # c\n/xui", ("/", "a\n  b # c\n", "ix")),
    ('start: "a".."z"', ("/", "[a-z]", "")),
    (r'start: "\x00".."]"', ("/", r"[\x00-\]]", "")),
    ('start: "^".."^"', ("/", r"[\^-\^]", "")),
    (
        "start: <start_of_turn> </think> <|eot_id|> <[123]>",
        ("seq", ("token", "<start_of_turn>"), ("token", "</think>"), ("token", "<|eot_id|>"), ("token", 123)),
    ),
    ('start: %token("[INST]")', ("token", "[INST]")),
    ('start: %until("</a>", "\\n\\n") "x"', ("seq", ("until", "</a>", "\n\n"), "x")),
    ('start: "a" \\\n  "b"', ("seq", "a", "b")),
    ('start: (\n "a"\n // c\n | "b"\n)', ("or", "a", "b")),
    ('start: "a"\n\n  # c\n  | "b" -> x\n', ("or", "a", "b")),
    ('?start: "a" -> b\n  | "c"', ("or", "a", "c")),
    ('!start.-2: "a"', "a"),
    ('\r\nstart: "a"\r\n  | "b"\r\n', ("or", "a", "b")),
    ('start: "a"\n%extend start: "b"', ("or", "a", "b")),
    ('start: "a"\n%override start: "b"', "b"),
    ('start: X\n%import common.WS -> X\n%override X: "b"', ("->", "X")),
]


@pytest.mark.parametrize(("text", "expected"), CONSTRUCTS)
def test_construct(text: str, expected: object) -> None:
    assert plain(body(text)) == expected


def test_a_whole_grammar() -> None:
    grammar = parse_lark(JSON)
    rules = grammar.rules
    assert (grammar.start, grammar.mode, grammar.text) == ("start", "longest", JSON)
    assert [name for name, rule in rules.items() if rule.terminal] == ["ESCAPED_STRING", "SIGNED_NUMBER", "WS_INLINE", "LINES"]
    assert plain(rules["array"].body) == ("seq", "[", ("rep", ("->", '_separated{value, ","}'), 0, 1), "]")
    assert plain(rules['_separated{value, ","}'].body) == (
        "seq",
        ("->", "value"),
        ("rep", ("seq", ",", ("->", "value")), 0, None),
    )
    assert "_separated" not in rules
    assert [plain(node) for node in grammar.ignore] == [("->", "WS_INLINE"), ("->", "LINES"), ("/", r"#[^\n]*", "")]


def test_places() -> None:
    grammar = parse_lark(JSON)
    for rule in grammar.rules.values():
        if not rule.terminal:
            assert rule.name.startswith(JSON[rule.start : rule.end])
        for node in walk(rule.body):
            shown = JSON[node.start : node.end]
            if isinstance(node, Reference):
                assert shown.startswith(node.name.partition("{")[0])
            elif isinstance(node, Literal):
                assert shown == f'"{node.text}"'
            elif isinstance(node, Pattern):
                assert shown.startswith("%import common")


def test_priorities_are_of_terminals() -> None:
    rules = parse_lark('start.5: A B\nA.2: "a"\nB.-1: "b"').rules
    assert [(rule.name, rule.priority) for rule in rules.values()] == [("start", 0), ("A", 2), ("B", -1)]


def test_another_start_and_mode() -> None:
    grammar = parse_lark('a: "x"\nb: a', start="b", mode="characters")
    assert (grammar.start, grammar.mode, list(grammar.rules)) == ("b", "characters", ["a", "b"])


def test_templates() -> None:
    text = """
        start: pair{"a", two{X}} apply{two, "b"} two{X}
        pair{x, y}: x ":" y
        two{x}: x x
        apply{f, x}: f{x} [f{"c"}]
        X: "x"
    """
    rules = parse_lark(text).rules
    assert plain(rules["start"].body) == ("seq", ("->", 'pair{"a", two{X}}'), ("->", 'apply{two, "b"}'), ("->", "two{X}"))
    assert plain(rules['pair{"a", two{X}}'].body) == ("seq", "a", ":", ("->", "two{X}"))
    assert plain(rules['apply{two, "b"}'].body) == ("seq", ("->", 'two{"b"}'), ("rep", ("->", 'two{"c"}'), 0, 1))
    assert sorted(rules) == sorted(["start", "X", 'pair{"a", two{X}}', "two{X}", 'apply{two, "b"}', 'two{"b"}', 'two{"c"}'])


def test_recursive_template() -> None:
    rules = parse_lark('start: list{"a"}\nlist{x}: x | list{x} "," x').rules
    assert plain(rules['list{"a"}'].body) == ("or", "a", ("seq", ("->", 'list{"a"}'), ",", "a"))


ERRORS = [
    ("", 1, 1, "no rules"),
    ("// only a comment\n", 1, 1, "no rules"),
    ('a: "x"', 1, 1, "no start rule 'start'.*There are: a"),
    ('START: "x"', 1, 1, "no start rule.*Did you mean START"),
    ('start{x}: x\na: start{"b"}', 1, 1, "start is a template"),
    ("start: foo", 1, 8, "rule 'foo' is not defined"),
    ('start: expresion\nexpression: "a"', 1, 8, "Did you mean expression"),
    ("start: NUMBER", 1, 8, "terminal 'NUMBER' is not defined"),
    ('start: "a"\nb: c', 2, 4, "rule 'c' is not defined"),
    ('start: "a"\nt{x}: y', 2, 7, "rule 'y' is not defined"),
    ('start: "a"\nstart: "b"', 2, 1, "defined a second time .first in line 1"),
    ("start: INT\nINT: /1/\n%import common.INT", 2, 1, "defined a second time .first in line 3"),
    ('start: "a', 1, 8, "string is never closed"),
    ('start: "a\\"', 1, 8, "string is never closed"),
    ('start: "a\nb"', 1, 8, "string is never closed in its line"),
    ("start: /a", 1, 8, "regular expression is never closed"),
    ("start: /a\nb/", 1, 8, "regular expression is never closed in its line"),
    ("start: /a/g", 1, 11, "unknown flag 'g'"),
    ('start: "a"if', 1, 11, "unknown flag 'f'"),
    ("start: /a(b/", 1, 10, "in this regular expression, .*never closed"),
    ("start: /[z-a]/", 1, 10, "range z-a runs backwards"),
    (r"start: /(a)\1/", 1, 12, "back-reference"),
    ("start: /a/l", 1, 11, "flag l"),
    ('start: ("a"', 1, 8, r"this \( is never closed"),
    ('start: ["a"\nb: "c"', 1, 8, r"this \[ is never closed"),
    ('start: "a")', 1, 11, "a line end is expected here, but there is [)]"),
    ('start: ("a"]', 1, 12, "[)] is expected here, but there is ]"),
    ('start: a?? "b"', 1, 9, "two repetitions"),
    ('start: "a"+?', 1, 11, "two repetitions"),
    ("start: *", 1, 8, "Repetitions stand behind"),
    ('start: "a"~5..2', 1, 11, "smallest count 5 exceeds the largest count 2"),
    ('start: "a"~2..', 1, 11, "has no end"),
    ('start: "a"~-1', 1, 12, "count is negative"),
    ('start: "a"~b', 1, 12, "number is expected after ~"),
    ('start: a{2,5}\na: "b"', 1, 9, "Write ~2..5"),
    (r'start: "\d"', 1, 9, r"unknown escape \\d"),
    (r'start: "\x4"', 1, 9, "needs 2 hexadecimal digits and has 1"),
    (r'start: "\uD800"', 1, 9, "surrogate"),
    (r'start: "\U00110000"', 1, 9, "beyond the last code point"),
    ('start: "a\ud800"', 1, 10, "surrogate"),
    ('start: "z".."a"', 1, 8, "no range of characters"),
    ('start: "ab".."c"', 1, 8, "no range of characters"),
    ('start: "a"i.."c"', 1, 11, "flag has no meaning"),
    ('start: "a".."', 1, 13, "string is never closed"),
    ("start: 'a'", 1, 8, "Text stands in double quotes"),
    ("start: a-b", 1, 9, "unexpected '-'"),
    ('start ::= "a"', 1, 9, "unexpected '='.*is GBNF"),
    ('start = "a"', 1, 7, "unexpected '='"),
    ("start", 1, 6, ": is expected after the name start"),
    ('start: a\n  b c\na: "x"', 2, 5, "further lines begin with |"),
    ("start: Foo", 1, 8, "'Foo' names neither a rule nor a terminal"),
    ('__a: "x"', 1, 1, "'__a' names neither"),
    ('?START: "a"', 1, 1, "Only rules take"),
    ('"a"', 1, 1, "a rule, a terminal or a %directive is expected"),
    ("start: A\nA: B\nB: A", 3, 4, "a terminal uses itself: A → B → A"),
    ("start: A\nA: A", 2, 4, "a terminal uses itself: A → A"),
    ('start: A\nA: b\nb: "x"', 2, 4, "terminal A uses the rule b"),
    ('start: A\nA: t{"b"}\nt{x}: x', 2, 4, "terminal A uses the rule t"),
    ('start: A\nA{x}: "b"', 2, 1, "terminals cannot be templates"),
    ("start: A\n%declare A", 2, 1, "cannot be generated.*<name> in a rule"),
    ("%import python.NAME\nstart: NAME", 1, 9, "cannot import NAME: there is no module python behind this grammar"),
    ("%import .mine.NAME\nstart: NAME", 1, 10, "there is no module mine"),
    ("%import common\nstart: A", 1, 9, "nothing is imported from common"),
    ("%import common.NUMBR\nstart: NUMBR", 1, 16, "no terminal NUMBR.*Did you mean NUMBER"),
    ("%import common.INT -> int\nstart: int", 1, 23, "Write INT"),
    ("%import common.INT -> A\n%import common.WS -> A\nstart: A", 2, 22, "imported twice"),
    ('%ingore "a"\nstart: "a"', 1, 1, "unknown directive %ingore.*Did you mean %ignore"),
    ('start: %schema {"type": "object"}', 1, 8, "unknown directive %schema"),
    ('start: "a"\n%ignore start', 2, 9, "only terminals can be ignored"),
    ('start: "a"\n%ignore <a>', 2, 9, "only terminals can be ignored"),
    ('start: "a"\n%override b: "c"', 2, 11, "no b to override"),
    ('start: "a"\n%extend strat: "c"', 2, 9, "no strat to extend.*Did you mean start"),
    ('start: t{"a"}\nt{x}: x\n%extend t{y}: y', 3, 9, "other parameters in line 2"),
    ('start: t{"a"}\nt{x, y}: x y', 1, 8, "takes 2 arguments, not 1.*It is t{x, y}"),
    ("start: t\nt{x}: x", 1, 8, "used without arguments"),
    ("start: a{start}\na: start", 1, 8, "'a' is no template"),
    ('start: t{"a"}\nt{x}: x{"b"}', 2, 7, "'x' is no template"),
    ('start: t{("a" | "b")}\nt{x}: x', 1, 10, "is expected here, but there is [(]"),
    ('start: t{"a"}\nt{x, x}: x', 2, 6, "parameter x is there twice"),
    ('start: t{"a"}\nt{X}: X', 2, 3, "parameter X is in upper case"),
    ('start: t{"a"', 1, 9, "this { is never closed"),
    ('start: t{"a"\nt{x}: x', 2, 1, "} is expected after a template's arguments"),
    ("start: <a b>", 1, 8, "begins no token name"),
    ('start: "a" < "b"', 1, 12, "begins no token name"),
    ("start: <[1-x]>", 1, 8, "no list of token numbers"),
    ('start: A\nA: <a> "b"', 2, 4, "mixes text and a token"),
    ("start: A\nA: B\nB: <b>", 2, 4, "uses B, which is no text"),
    ("start: %until()", 1, 15, "string is expected in %until"),
    ('start: %until("")', 1, 8, "texts that are not empty"),
    ('start: %token("a", "b")', 1, 8, "takes one name"),
    ('start: %until("a"', 1, 14, r"this \( is never closed"),
    (r"start: /x*a.*?b(?!cd)/", 1, 8, "would look at the text around it"),
    (r"start: /x*a.*?(?!bcd)b/", 1, 8, "would look at the text around it"),
    ("start: /a.*?(?<=ab)c+/", 1, 8, "lazy loop and ends in a greedy one"),
    ("start: /x*a(?P<n>b)*?(?<=ab)c/", 1, 8, "do not join.*'n' is used twice"),
    ("start: A~" + "9" * 5000 + '\nA: "a"', None, None, "max_repeat"),
    ('start: "a"~100001', None, None, "max_repeat"),
    ("start.1234567890: A", 1, 7, "priority is too large"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), ERRORS)
def test_error(text: str, line: int | None, column: int | None, words: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        parse_lark(text)
    error = caught.value
    assert re.search(words, str(error), re.S), str(error)
    if line is not None:
        assert isinstance(error, GrammarSyntaxError | UnsupportedGrammarError)
        assert (error.line, error.column) == (line, column), str(error)
        assert f"(line {line}, column {column})" in error.what
        assert error.text == text
    assert error.fix


def test_the_caret_stands_under_the_mistake() -> None:
    with pytest.raises(GrammarSyntaxError) as caught:
        parse_lark('start: "a" | "b"\n\titem: start | unknown "c"\n')
    shown, carets = str(caught.value).split("\n")[1:3]
    assert shown.strip() == 'item: start | unknown "c"'
    assert carets.strip() == "^" * len("unknown")
    assert carets.index("^") == shown.index("unknown")


def test_ignoring_needs_the_longest_match() -> None:
    with pytest.raises(UnsupportedGrammarError, match="%ignore has no meaning in mode"):
        parse_lark('start: "a"\n%ignore " "', mode="characters")


def test_arguments_of_a_wrong_type() -> None:
    with pytest.raises(ConstraintError, match="a grammar is a str, not bytes"):
        parse_lark(b'start: "a"')  # type: ignore[arg-type]
    with pytest.raises(ConstraintError, match="no lexical mode 'fast'"):
        parse_lark('start: "a"', mode="fast")  # type: ignore[arg-type]
    with pytest.raises(ConstraintError, match="a str, not int"):
        parse_lark('start: "a"', start=3)  # type: ignore[arg-type]


def test_limits() -> None:
    with pytest.raises(LimitError, match="max_pattern=10"):
        parse_lark('start: "a"  ', limits=CompileLimits(max_pattern=10))
    with pytest.raises(LimitError, match="max_rules=2"):
        parse_lark('start: "a"\nb: "b"\nc: "c"', limits=CompileLimits(max_rules=2))
    with pytest.raises(LimitError, match=r"max_rules=50(.|\n)*ever new arguments"):
        parse_lark('start: t{"a"}\nt{x}: t{u{x}}\nu{x}: x', limits=CompileLimits(max_rules=50))
    doubling = "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(30))
    with pytest.raises(LimitError, match="Writing out the terminal"):
        parse_lark(f'start: A0\n{doubling}\nA30: "a"')


def test_templates_that_double_their_arguments_end() -> None:
    with pytest.raises(LimitError, match="max_rules"):
        parse_lark('start: t{"a"}\nt{x}: t{p{x, x}}\np{x, y}: x y')


@pytest.mark.parametrize("opening", ["(", "[", "t{"])
def test_deep_nesting_is_an_error(opening: str) -> None:
    closing = {"(": ")", "[": "]", "t{": "}"}[opening]
    for depth in (MAX_DEPTH, MAX_DEPTH + 1, 20_000):
        text = f'start: {opening * depth}"a"{closing * depth}\nt{{x}}: x'
        if depth == MAX_DEPTH:
            assert parse_lark(text).start == "start"
        else:
            with pytest.raises(UnsupportedGrammarError, match="nested more than"):
                parse_lark(text)


def test_long_chains() -> None:
    rules = "".join(f"r{i}: r{i + 1}\n" for i in range(5_000))
    assert len(parse_lark(f'start: r0\n{rules}r5000: "a"').rules) == 5_002
    for prefix in ("", '"a"'):
        terminals = "".join(f"A{i}: {prefix} A{i + 1}\n" for i in range(5_000))
        with pytest.raises(UnsupportedGrammarError, match="levels deep"):
            parse_lark(f'start: A0\n{terminals}A5000: "a"')


# Lazy loops and conditions

LAZY = [
    (r'start: /".*?"/', '"a"', ['"', '""', '"a"b"', 'a"']),
    (r'start: C' "\n" r'C: "/*" /(.|\n)*?/ "*/"', "/*a**/", ["/**/", "/*/", "/**/*/", "/* */ */", "/*\n*/"]),
    (r'start: S' "\n" r'%import common._STRING_ESC_INNER' "\n" r'S: "\"" _STRING_ESC_INNER "\""', r'"\""', ['""', r'"\"', r'"\\"', r'"a"b"', '"\\\\\\"']),
    (r"start: /a.*?/s", "a", ["", "ab"]),
    ("start: /a # c*?\n b*?c # e\n/x", "abc", ["ac", "abcc", "abcbc"]),
    ("start: S\nS: /(?:u|U)?('''(.|\\n)*?'''|'(?!').*?'|x+)/", "'''a'\n'''", ["'''", "'a'", "u'a'", "'a'b'", "'''a'''b'''", "xx", "x"]),
    (r'start: S' "\n" r'S: /".*?"/i | T' "\n" r"T: /'.*?'/", "'a\"'", ['"a"', '"a\'', "'a'b'"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "accepted", "others"), LAZY)
def test_lazy_loops_end_at_the_first_chance(text: str, accepted: str, others: list[str]) -> None:
    grammar = parse_lark(text)
    lexer = lark.Lark(text, parser="lalr", lexer="basic")
    machine = machine_of(grammar)
    for sample in [accepted, *others]:
        try:
            lexer.parse(sample)
            expected = True
        except lark.exceptions.LarkError:
            expected = False
        assert machine.accepts(sample.encode()) == expected, sample
    assert machine.accepts(accepted.encode())


def test_a_comment_at_the_end_of_a_lazy_pattern() -> None:
    node = body("start: /ab*?c # note/x")
    assert re.fullmatch(node.pattern, "abc", re.X)
    assert not re.fullmatch(node.pattern, "abcbc", re.X)


def test_lazy_loops_mean_nothing_without_a_lexer() -> None:
    assert plain(body('start: /".*?"/', mode="characters")) == ("/", '".*?"', "")


def test_conditions_inside_a_terminal_stay() -> None:
    assert plain(body(r"start: /(?!if\b)[a-z]+/")) == ("/", r"(?!if\b)[a-z]+", "")
    rules = parse_lark('start: A\nA: "x" /(?<!y)a/').rules
    assert plain(rules["A"].body) == ("/", "x(?:(?<!y)a)", "")


# Against Lark

AGREEMENT = [
    'start: "a"~2..3 "b"?',
    'start: ["a" | "b" "c"]',
    'start: a+\na: "a" | "b" a',
    'start: start "a" | "b"',
    'start: A | B "c"\nA.2: "a"~2\nB: ("b" | "c")~1..2',
    'start: _s{x, "c"} | x x\n_s{p, q}: p (q p)*\nx: "a" | "b"i',
    'start: /[ab]+/ "c"* | "a".."b"',
    'start: (a | b)~0..2 "c"\na: "a" | \nb: "b"',
    '?start: "a" -> x\n  | start start -> y\n  | "(" start ")"\n',
    'start: X "b"\n%import common.LCASE_LETTER -> X\n%extend start: X "c" "c"',
    'start: "a"\n%override start: "b" [start]',
    'start: "\\x61" /\\u0062|c/',
]


@pytest.mark.parametrize("text", AGREEMENT)
def test_agrees_with_lark_on_all_short_texts(text: str) -> None:
    grammar = parse_lark(text, mode="characters")
    judge = lark.Lark(text, parser="earley", lexer="dynamic_complete")
    for length in range(6):
        for letters in itertools.product("abc" if "(" not in text[7:] or "x\n" not in text else "a()", repeat=length):
            sample = "".join(letters)
            try:
                judge.parse(sample)
                expected = True
            except lark.exceptions.LarkError:
                expected = False
            assert accepts(grammar, sample) == expected, sample


LETTERS = {"ESCAPED_STRING": '"\\a\n', "C_COMMENT": "/*a\n", "CPP_COMMENT": "/a\n", "SH_COMMENT": "#a\n", "SQL_COMMENT": "-a\n"}
NUMBERS = [name for name in COMMON_TERMINALS if re.search("INT|FLOAT|NUMBER|DECIMAL|EXP|DIGIT", name)]


@pytest.mark.parametrize("name", [name for name in COMMON_TERMINALS if not name.startswith("_STRING")])
def test_common_terminals_agree_with_lark(name: str) -> None:
    judge = lark.Lark(f"%import common.{name}\nstart: A\nA: {name}", parser="lalr", lexer="basic")
    pattern = re.compile(COMMON_TERMINALS[name])
    letters, length = (LETTERS[name], 5) if name in LETTERS else ("0.e+a", 5) if name in NUMBERS else ("aZ_0 \t\r\n\f", 3)
    for letters_used in itertools.chain.from_iterable(itertools.product(letters, repeat=n) for n in range(length + 1)):
        sample = "".join(letters_used)
        try:
            judge.parse(sample)
            expected = True
        except lark.exceptions.LarkError:
            expected = False
        assert bool(pattern.fullmatch(sample)) == expected, sample


def test_common_terminals_are_those_of_lark() -> None:
    import importlib.resources

    text = importlib.resources.files("lark").joinpath("grammars/common.lark").read_text()
    assert set(re.findall(r"^(_?[A-Z_]+)\s*:", text, re.M)) == set(COMMON_TERMINALS)


# Any text

WORDS = [
    "start", "a", "A", "_b", ":", "|", "(", ")", "[", "]", "{", "}", ",", "?", "*", "+", "~", "..", ".", "->", "\n", " ", '"a"', '"b"i',
    "/a*?/", "/b\\b/x", "/(/", "<t>", "<[3]>", "%ignore", "%import", "common", "INT", "%until", "%extend", "%override", "%declare", "2", "-1",
    "//", "#", '"', "/", "\\", "<", "!", "\\n", "\u00e9", "t{a}", "t{x}: x x", "start: a\n", 'a: "x"\n',
]  # fmt: skip


def check(text: str) -> None:
    """That a text is a grammar whose names are defined, or an error that points into it."""
    try:
        grammar = parse_lark(text)
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


def test_a_name_directly_behind_a_string() -> None:
    grammar = parse_lark('start: "#"NAME\nNAME: /[a-z]+/')
    assert machine_of(grammar).accepts(b"#abc")
