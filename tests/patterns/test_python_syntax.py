"""What the parser accepts and refuses: every error with its offset, and agreement with `re` on random pattern text."""

from __future__ import annotations

import itertools
import re
import warnings

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from oracles.samples import examples
from oracles.text_walks import all_texts, is_trim

from fsa_compile.errors import ConstraintError, LimitError, RegexSyntaxError, UnsatisfiableError, UnsupportedPatternError
from fsa_compile.languages.constructors import regex
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns.python_syntax import MAX_DEPTH, parse
from fsa_compile.patterns.regex_tree import Alternate, Chars, Concat, Look, Repeat, Text

MALFORMED = [
    ("(a", 0, "never closed"),
    ("a(b(c)", 1, "never closed"),
    ("a)", 1, r"unbalanced \)"),
    ("[a", 0, "character class is never closed"),
    ("x[]", 1, "character class is never closed"),
    ("[^]", 0, "character class is never closed"),
    ("*a", 0, "nothing to repeat"),
    ("a|*", 2, "nothing to repeat"),
    ("(*)", 1, "nothing to repeat"),
    ("{3}", 0, "nothing to repeat"),
    ("^*", 1, "nothing to repeat"),
    (r"\b+", 2, "nothing to repeat"),
    ("a**", 2, "multiple repeat"),
    ("a{2}{3}", 4, "multiple repeat"),
    ("a*??", 3, "multiple repeat"),
    ("a{3,1}", 1, "smallest count 3 exceeds the largest count 1"),
    ("ab\\", 2, "ends in a backslash"),
    ("[\\", 1, "ends in a backslash"),
    (r"\x1", 0, r"\\x needs 2 hexadecimal digits and has 1"),
    (r"\u12g4", 0, r"\\u needs 4 hexadecimal digits and has 2"),
    (r"\U00110000", 0, "beyond the last code point"),
    (r"a\N{NO SUCH}", 1, "no character named 'NO SUCH'"),
    (r"\Nx", 0, "needs a character name in braces"),
    (r"\q", 0, r"unknown escape \\q"),
    (r"[\q]", 1, r"unknown escape \\q"),
    (r"[\8]", 1, r"unknown escape \\8"),
    (r"\400", 0, r"octal escape \\400 exceeds"),
    ("[z-a]", 1, "range z-a runs backwards"),
    (r"[\d-z]", 1, "begins or ends with a set"),
    (r"[a-\w]", 1, "begins or ends with a set"),
    (r"\p{Foo}", 0, "no Unicode property 'Foo'"),
    (r"\p{Lu", 0, r"missing } after \\p{"),
    (r"\p", 0, r"\\p needs a property name"),
    (r"[\P{??}]", 1, "no Unicode property"),
    ("(?", 0, r"ends after \(\?"),
    ("(?z)", 0, r"unknown group syntax \(\?z"),
    ("(?P*a)", 0, r"unknown group syntax \(\?P\*"),
    ("(?P<a", 0, "missing > after a group name"),
    ("(?P<>a)", 0, "missing group name"),
    ("(?P<1>a)", 0, "'1' is not a group name"),
    ("(?P<a>x)(?P<a>y)", 8, "'a' is used twice"),
    ("(?#abc", 0, r"missing \) after a comment"),
    ("a(?i)b", 1, "must stand at its start"),
    ("(?i", 0, r"missing : or \) after flags"),
    ("(?i-i:a)", 0, "contradict each other"),
    ("(?au:a)", 0, "contradict each other"),
    ("(?-u:a)", 3, "cannot be switched off"),
    ("(?i-:a)", 0, "missing flag or : after -"),
    ("(?-i)a", 0, "missing flag or : after -"),
    ("(?iq:a)", 3, "unknown flag 'q'"),
]

UNSUPPORTED = [
    (r"(a)\1", 3, r"back-reference \(\\1\)"),
    (r"(?P<x>a)(?P=x)", 8, "back-reference"),
    (r"(a)(?(1)b|c)", 3, "conditional"),
    ("(?R)", 0, "recursion"),
    ("(a(?1)?)", 2, "recursion"),
    ("a*+a", 1, "atomic group or possessive quantifier"),
    ("x(?>a|ab)c", 1, "atomic group or possessive quantifier"),
    ("(?>a+?)b", 0, "atomic group or possessive quantifier"),
    (r"(?>\ba|ab)c", 0, "atomic group or possessive quantifier"),
    (r"(?<=a{1,2}+)b|x", 5, "atomic group or possessive quantifier"),
    (r"\ud800", 0, "surrogate"),
    (r"[\ud800-\udfff]", 1, "surrogate"),
    ("a\ud800", 1, "surrogate"),
    ("(?L:a)", 0, r"L \(locale\) flag"),
    ("(" * (MAX_DEPTH + 1) + ")" * (MAX_DEPTH + 1), MAX_DEPTH, "nested more than"),
]


@pytest.mark.parametrize(("pattern", "offset", "says"), MALFORMED, ids=[ascii(row[0]) for row in MALFORMED])
def test_malformed(pattern, offset, says):
    with pytest.raises(RegexSyntaxError, match=says) as caught:
        parse(pattern)
    error = caught.value
    assert (error.pattern, error.start) == (pattern, offset)
    assert f"(offset {offset})" in str(error)
    _, shown, carets = str(error).split("\n")[:3]
    assert carets.index("^") - shown.index(pattern[:1]) == offset
    if r"\p" not in pattern and r"\P" not in pattern:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(re.error):
                re.compile(pattern)


@pytest.mark.parametrize(("pattern", "offset", "says"), UNSUPPORTED, ids=[ascii(row[0])[:30] for row in UNSUPPORTED])
def test_unsupported(pattern, offset, says):
    with pytest.raises(UnsupportedPatternError, match=says) as caught:
        parse(pattern)
    assert caught.value.start == offset
    assert caught.value.fix


def test_other_empty_named_groups_are_ordinary():
    assert regex("(?P<TEXT>)a").to_byte_dfa().accepts(b"a")


@pytest.mark.parametrize(
    ("pattern", "flags", "says"),
    [(b"a", 0, "must be a str, not bytes"), (None, 0, "must be a str"), ("a", re.L, "LOCALE"), ("a", re.A | re.U, "contradict"),
     ("a", 1 << 20, "unknown flags")],
)  # fmt: skip
def test_wrong_arguments(pattern, flags, says):
    with pytest.raises(ConstraintError, match=says):
        regex(pattern, flags=flags)


def test_limits_of_the_parser():
    with pytest.raises(LimitError, match="max_pattern=10"):
        parse("a" * 11, 0, CompileLimits(max_pattern=10))
    with pytest.raises(LimitError, match="max_repeat=5") as caught:
        parse("ba{2,6}", 0, CompileLimits(max_repeat=5))
    assert "{2,6} at offset 2" in str(caught.value)


def test_tree_and_spans():
    tree = parse("ab*(?:c|[de])x{2,3}(?!y)")
    assert isinstance(tree, Concat)
    kinds = [(type(item), item.start, item.end) for item in tree.items]
    assert kinds == [(Text, 0, 1), (Repeat, 1, 3), (Chars, 8, 12), (Repeat, 13, 19), (Look, 19, 24)]
    assert tree.items[2].members == (sum(1 << ord(c) for c in "cde"), ())
    either = parse("yes|no")
    assert isinstance(either, Alternate)
    assert [branch.text for branch in either.branches] == ["yes", "no"]


def test_a_long_pattern_shows_its_error_in_a_window():
    with pytest.raises(RegexSyntaxError) as caught:
        parse("a" * 500 + "[" + "b" * 500)
    _, shown, carets = str(caught.value).split("\n")[:3]
    assert len(shown) < 100
    assert shown[carets.index("^")] == "["


# Random pattern text: whatever `re` accepts is accepted with the same language or refused as unsupported, whatever it
# rejects is rejected.
_PIECES = st.sampled_from([
    *"ab^$.|()[]{}*+?-,\\:=!<>#P ix1207", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i)", "(?x)", "(?s:", "(?-i:", "[^", "{2}", "{1,}",
    "{,2}", "(?P<n>", "(?#", r"\d", r"\w", r"\s", r"\b", r"\B", r"\A", r"\Z", r"\x61", r"\141", r"\n", "a-b", "(?>", "++", "(?i:",
])  # fmt: skip
_TEXTS = all_texts("ab1 ", 3)
_BEYOND_RE = re.compile(r"\\[pP]|\(\?<[^=!]")


@settings(max_examples=examples(1_000, 10_000), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(_PIECES, max_size=9).map("".join))
@example("[]-a]")
@example("(?x) a b # c")
@example("a{,}")
def test_random_pattern_text(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            judge = re.compile(pattern)
        except re.error as error:
            judge = error
    try:
        language = regex(pattern)
    except UnsupportedPatternError:
        return  # also where `re` finds another fault first
    except RegexSyntaxError:
        assert not isinstance(judge, re.Pattern), pattern
        return
    if isinstance(judge, re.error):
        wider = "look-behind requires fixed-width" in str(judge) or _BEYOND_RE.search(pattern)
        assert wider, (pattern, str(judge))
        return
    expected = {text for text in _TEXTS if judge.fullmatch(text)}
    try:
        dfa = language.to_byte_dfa()
    except UnsatisfiableError:
        assert not expected
        return
    assert is_trim(dfa)
    assert {text for text in _TEXTS if dfa.accepts(text.encode())} == expected


@pytest.mark.parametrize("body", ["a", "ab", "a|b", "a|ab", "(?:ab)?", "[ab]", "a*", "a{1,2}", "a{2}", "a?b"])
def test_atomic_groups_that_pass_have_the_language_re_gives_them(body):
    texts = all_texts("ab", 5)
    passed = 0
    for before, after in itertools.product(("", "b", "a?"), ("", "b", "a", "[ab]", "(?=b)b", "b?", "$")):
        for pattern in (f"{before}(?>{body}){after}", f"(?:{before}(?>{body}){after})*", f"{before}(?:{body})++{after}"):
            try:
                dfa = regex(pattern).to_byte_dfa()
            except UnsupportedPatternError:
                continue
            passed += 1
            judge = re.compile(pattern)
            assert [t for t in texts if dfa.accepts(t.encode())] == [t for t in texts if judge.fullmatch(t)], pattern
    assert (passed > 0) == (body not in ("a|ab", "(?:ab)?"))  # those two may always matter
