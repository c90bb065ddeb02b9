"""Extension groups against plain Python, in patterns and beside them, over bytes and over tokens."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import extension_texts as oracle
from oracles.text_walks import accepted_texts, all_texts, is_trim, mutations
from oracles.token_strings import check_all_token_strings
from oracles.toy import every_byte, few_bytes

from fsa_compile import CompileLimits, Vocabulary, choices, compile_regex, literal, regex
from fsa_compile.automata.byte_nfa import ByteNfa
from fsa_compile.errors import ConstraintError, LimitError, RegexSyntaxError, UnsatisfiableError, UnsupportedPatternError
from fsa_compile.extensions import (
    EXTENSION_NAMES,
    delimited_list,
    delimited_subsequence_of,
    quoted_text,
    substring_of,
    text_until,
    unquoted_text,
)
from fsa_compile.languages.group_syntax import parse_with_groups
from fsa_compile.limits import Deadline


def agrees(language, member, alphabet: str, longest: int, extra: int = 60) -> None:
    """Both sides: every short text, and random members with their neighbours."""
    try:
        dfa = language.to_byte_dfa()
    except UnsatisfiableError:
        assert not any(map(member, all_texts(alphabet, longest)))
        return
    assert is_trim(dfa)
    for text in all_texts(alphabet, longest):
        assert dfa.accepts(text.encode()) == member(text), text
    rng = random.Random(7)
    for text in accepted_texts(dfa, rng, extra, 20):
        assert member(text), text
        for other in mutations(text, rng, 3):
            assert dfa.accepts(other.encode()) == member(other), other


def test_quoted_text():
    agrees(quoted_text(), oracle.is_quoted, '"\\aé\n', 5, 300)
    agrees(regex("(?P<QUOTED_TEXT>),?(?P<QUOTED_TEXT>)"), lambda t: any(
        oracle.concatenated(oracle.is_quoted, comma, oracle.is_quoted)(t) for comma in ("", ",")), '"\\,a', 6)  # fmt: skip


def test_unquoted_text():
    agrees(unquoted_text(), oracle.is_plain_scalar, "a :#-,\u2028", 5, 300)
    for c in map(chr, (*range(0x100), 0x2027, 0x2028, 0x2029, 0x202A, 0xD7FF, 0xE000, 0xFEFE, 0xFEFF, 0xFF00, 0xFFFD, 0xFFFE, 0x10000, 0x10FFFF)):
        dfa = unquoted_text().to_byte_dfa()
        for text in (c, f"a{c}", f"a{c}b", f"{c}a", f"a {c}b", f"a:{c}", f"-{c}", f"?{c}:{c}"):
            assert dfa.accepts(text.encode()) == oracle.is_plain_scalar(text), text


def test_unquoted_text_is_what_a_yaml_reader_takes_for_one_scalar():
    yaml = pytest.importorskip("yaml")
    rng = random.Random(3)
    texts = set(accepted_texts(unquoted_text().to_byte_dfa(), rng, 400, 12))
    assert len(texts) > 150
    for text in texts:
        if re.match(r"[?:]", text):  # PyYAML follows YAML 1.1 there
            continue
        assert yaml.load("key: " + text, yaml.BaseLoader) == {"key": text}


@pytest.mark.parametrize(
    "stops", [["a"], ["ab"], ["aab", "ba"], ["abab"], ["abc", "b"], ["a", "aa"], ["é", "bé"], ["aba", "bab", "c"], ["\n\n"], ["日本", "本a"]]
)
def test_text_until(stops):
    agrees(text_until(*stops), oracle.is_until(stops), "abcé\n", 6)
    pattern = "(?P<TEXT_UNTIL>" + "|".join(map(re.escape, stops)) + ")"
    agrees(regex(pattern), oracle.is_until(stops), "abé", 5)
    agrees(regex(f"b{pattern}a*"), oracle.concatenated("b", oracle.is_until(stops), lambda t: set(t) <= {"a"}), "abc", 6)


@pytest.mark.parametrize("text", ["", "a", "abcbc", "aabaab", "a\"b\"a", "ééaé", "日本日", "a日é😀a日", "".join("abé"[i * i % 3] for i in range(30))])
def test_substring_of(text):
    agrees(substring_of(text), lambda t: t in text, "abé日\"", 4)
    agrees(substring_of(text, allow_empty=False), lambda t: t != "" and t in text, "abé日\"", 4)
    within = lambda t: t in text  # noqa: E731
    agrees(regex('"(?P<T>)"', extensions={"T": substring_of(text)}), oracle.concatenated('"', within, '"'), 'abé"', 5)
    agrees(regex("(?P<T>),(?P<T>)", extensions={"T": substring_of(text)}), oracle.concatenated(within, ",", within), "aé,", 5)
    agrees(substring_of(text) + literal("a"), oracle.concatenated(within, "a"), "abé", 4)
    agrees(substring_of(text) & regex("[^a]*"), lambda t: t in text and "a" not in t, "abé日", 4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text("ab\u00e9\u00ea日", max_size=25), st.text("ab\u00e9\u00ea日", max_size=6))
def test_substrings_of_random_texts(text, probe):
    dfa = substring_of(text).to_byte_dfa()
    assert dfa.accepts(probe.encode()) == (probe in text)
    for i, j in itertools.combinations(range(len(text.encode()) + 1), 2):
        part = text.encode()[i:j]
        assert dfa.accepts(part) == (part.decode(errors="replace") in text)


def test_delimited_list():
    agrees(delimited_list(regex("[ab]+")), oracle.is_list("[ab]+", ", "), "ab, ", 7)
    agrees(delimited_list("a", ";", low=0, high=3), oracle.is_list("a", ";", 0, 3), "a;", 8)
    agrees(delimited_list(choices(["a", "ab"]), regex("b?;"), low=2), oracle.is_list("a|ab", "b?;", 2), "ab;", 8)
    agrees(regex("(?P<DELIMITED_LIST>a|,)"), oracle.is_list("a", ","), "a,", 6)
    agrees(regex("(?P<DELIMITED_LIST>(?:ab|b)|,|;)|x".replace("|;", "")), lambda t: t == "x" or oracle.is_list("ab|b", ",")(t), "ab,x", 6)
    nested = regex("<(?P<DELIMITED_LIST>(?P<SUBSTRING_OF>ab,c)|,)>")
    part = lambda t: t in "ab,c"  # noqa: E731
    agrees(nested, lambda t: oracle.concatenated("<", lambda b: any(
        oracle.concatenated(part, *[p for _ in range(n) for p in (",", part)])(b) for n in range(5)), ">")(t), "<a,>", 6)  # fmt: skip


@pytest.mark.parametrize("elements", [["a"], ["a", "b", "ab"], ["aa", "a", "aaa"], ["b", "ab", "b", "ba"], ["", "a"]])
@pytest.mark.parametrize("delimiter", [",", "", "a"])
def test_delimited_subsequence_of(elements, delimiter):
    for allow_empty in (False, True):
        member = oracle.is_subsequence(elements, delimiter, allow_empty)
        agrees(delimited_subsequence_of(elements, delimiter, allow_empty=allow_empty), member, "ab,", 6)
    if all(elements) and delimiter:
        pattern = f"(?P<DELIMITED_SUBSEQUENCE_OF>{'|'.join(elements)}|{delimiter})"
        agrees(regex(pattern), oracle.is_subsequence(elements, delimiter), "ab,", 6)
        agrees(regex(f"a?{pattern}"), lambda t: any(
            oracle.concatenated(a, oracle.is_subsequence(elements, delimiter))(t) for a in ("", "a")), "ab,", 5)  # fmt: skip


def test_subsequence_of_many_elements():
    names = [f"item{i}" for i in range(150)]
    dfa = delimited_subsequence_of(names).to_byte_dfa()
    assert dfa.accepts(b"item0, item7, item70, item149")
    assert not dfa.accepts(b"item7, item0")
    assert dfa.num_states < 3000


CASES = [
    ('(?P<QUOTED_TEXT>)', oracle.is_quoted),
    ("a(?P<TEXT_UNTIL>ab|-)1?", lambda t: any(oracle.concatenated("a", oracle.is_until(["ab", "-"]), e)(t) for e in ("", "1"))),
    ('"(?P<SUBSTRING_OF>aéab"é€)"', oracle.concatenated('"', lambda t: t in 'aéab"é€', '"')),
    ("(?P<SUBSTRING_OF>aba)(?P<DELIMITED_LIST>a|b|)".replace("b|)", "b)"), oracle.concatenated(lambda t: t in "aba", oracle.is_list("a", "b"))),
    ("(?P<DELIMITED_SUBSEQUENCE_OF>a|ab|é|12|,)", oracle.is_subsequence(["a", "ab", "é", "12"], ",")),
]  # fmt: skip


TOKENS = [
    b"a", b"b", b"ab", b"ba", b'"', b'"a', b'a"', b'\\"', b"1", b"-", b"b-", "é".encode(), b"\xc3", b"\xa9", b"a\xc3", b'\xa9"',
    b",", b",a", b"12", b"1", "€".encode(), b"",
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "member"), CASES, ids=[c[0][:30] for c in CASES])
def test_every_token_string(pattern, member, exhaustive):
    """Tokens cross the borders of groups; not every byte can be spelled."""

    def good(ids):
        try:
            return member(b"".join(TOKENS[i] for i in ids).decode())
        except UnicodeDecodeError:
            return False

    vocabulary = Vocabulary.from_tokens(TOKENS, stop_ids=[len(TOKENS) - 1])
    constraint = compile_regex(pattern, vocabulary)
    seen = check_all_token_strings(constraint, len(TOKENS), len(TOKENS) - 1, 4 if exhaustive else 3, good)
    assert seen > 20


def test_both_toy_vocabularies():
    """The artifact allows what the byte automaton reads."""
    language = regex('"(?P<SUBSTRING_OF>abc "é€" 日本)"|(?P<TEXT_UNTIL>ab|12)')
    dfa = language.to_byte_dfa()
    vocabulary = every_byte()
    walk = compile_regex(language, vocabulary).walk()
    rng = random.Random(5)
    for text in accepted_texts(dfa, rng, 20, 12):
        data, at = text.encode(), 0
        walk.rewind(walk.num_tokens)
        while at < len(data):
            allowed = walk.allowed()
            for token, written in enumerate(vocabulary.tokens):
                assert allowed[token] == (bool(written) and dfa.run(data[:at] + written) > 0) or token in vocabulary.stop_ids
            fits = [t for t, written in enumerate(vocabulary.tokens) if written and data.startswith(written, at)]
            token = rng.choice(fits)
            walk.advance(token)
            at += len(vocabulary.tokens[token])
        assert walk.accepting
    assert compile_regex(language, few_bytes()).walk().allowed().any()


def test_user_extensions():
    extensions = {"CITY": choices(["Paris", "Rome"]), "TIMES": lambda text, n: regex(f"(?:{re.escape(text)}){{{n}}}"), "X": regex("[xy]+")}
    dfa = regex("(?i:(?P<CITY>)) (?P<TIMES>ab|2)(?P<X>)*", extensions=extensions).to_byte_dfa()
    assert dfa.accepts(b"Rome abab")
    assert dfa.accepts(b"Paris ababxyx")
    assert not dfa.accepts(b"rome abab")
    assert not dfa.accepts(b"Rome ababab")
    assert regex("(?P<QUOTED_TEXT>)", extensions={"QUOTED_TEXT": literal("mine")}).to_byte_dfa().accepts(b"mine")
    ordinary = regex("(?P<X>a)(?P<Y>)", extensions={"Z": literal("z")}).to_byte_dfa()
    assert ordinary.accepts(b"a")


def test_conditions_beside_groups_that_are_patterns():
    """Read as if written out."""
    dfa = regex(r"(?!.*no)\b(?P<X>)\b,.*", extensions={"X": regex("[a-z]*")}).to_byte_dfa()
    written = regex(r"(?!.*no)\b(?:[a-z]*)\b,.*").to_byte_dfa()
    for text in all_texts("no,é", 5):
        assert dfa.accepts(text.encode()) == written.accepts(text.encode())
    assert regex('^(?P<T>)$', extensions={"T": substring_of("abc")}).to_byte_dfa().accepts(b"bc")


def test_counted_repetition_stays_counted_beside_quoted_text():
    assert regex("(?P<QUOTED_TEXT>)[^,]{0,500}").to_byte_machine() is not None
    assert regex("(?P<SUBSTRING_OF>a)[^,]{0,50}").to_byte_machine() is None


ERRORS = [
    ("a(?P<TEXT_UNTIL>)", 1, "needs an argument"),
    ("a(?P<TEXT_UNTIL>b|)", 1, "stop phrase is empty"),
    ("(?P<TEXT_UNTIL>[ab])", 15, "is a pattern, not a text"),
    ("(?i)(?P<SUBSTRING_OF>ab)", 21, "is a pattern, not a text"),
    ("(?P<SUBSTRING_OF>a(b)c)", 18, "is a text, and this is a group"),
    ("(x)(?P<TEXT_UNTIL>a|(b))", 20, "is a text, and this is a group"),
    ("(?P<SUBSTRING_OF>a|b)", 0, "does not take 2 arguments|allow_empty"),
    ("(?P<QUOTED_TEXT>x)", 0, "takes no argument"),
    ("(?P<CITY>x)", 0, "takes no argument"),
    ("(?P<DELIMITED_LIST>a)", 0, "needs two arguments"),
    ("(?P<DELIMITED_LIST>a|b|c)", 0, "needs two arguments"),
    ("(?P<DELIMITED_SUBSEQUENCE_OF>a)", 0, "needs at least two arguments"),
    ("(?P<BAD>)", 0, "returned a int, not a language"),
    ("(?P<RAISES>x)", 0, "needs a stop phrase"),
]


@pytest.mark.parametrize(("pattern", "offset", "says"), ERRORS, ids=[e[0] for e in ERRORS])
def test_errors(pattern, offset, says):
    extensions = {"CITY": literal("Rome"), "BAD": lambda: 1, "RAISES": lambda text: text_until()}
    with pytest.raises(RegexSyntaxError, match=says) as caught:
        regex(pattern, extensions=extensions)
    assert caught.value.start == offset
    assert caught.value.fix


@pytest.mark.parametrize(
    ("pattern", "offset"),
    [(r"\b(?P<SUBSTRING_OF>ab)", 0), ("(?P<TEXT_UNTIL>a)(?=b).", 17), ("(?P<TEXT_UNTIL>a)$b", 17), ("(?>(?P<SUBSTRING_OF>ab))", 0)],
)
def test_conditions_beside_other_groups_are_refused(pattern, offset):
    with pytest.raises(UnsupportedPatternError, match=r"cannot stand in a pattern with the group|atomic group") as caught:
        regex(pattern)
    assert caught.value.start == offset
    assert caught.value.fix


def test_places_where_nothing_can_be_embedded():
    with pytest.raises(UnsupportedPatternError, match="can stand in regex"):
        parse_with_groups("a(?P<SUBSTRING_OF>b)")
    with pytest.raises(UnsupportedPatternError, match="argument of DELIMITED_SUBSEQUENCE_OF"):
        regex("(?P<DELIMITED_SUBSEQUENCE_OF>^a|b|,)")
    parse_with_groups("(?P<QUOTED_TEXT>)")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: substring_of(b"a"), "must be a str, not bytes"),
        (lambda: substring_of("a\ud800"), "surrogate at offset 1"),
        (lambda: text_until(), "needs a stop phrase"),
        (lambda: delimited_list("a", low=3, high=2), "3 to 2 elements"),
        (lambda: delimited_list("a", high=0), "0 to 0|1 to 0"),
        (lambda: delimited_list(3), "element is a int"),
        (lambda: delimited_subsequence_of([]), "no elements"),
        (lambda: delimited_subsequence_of("abc"), "no list"),
        (lambda: regex("a", extensions={"a-b": literal("x")}), "not a group name"),
        (lambda: regex("a", extensions={"AB": 3}), "not a language"),
        (lambda: substring_of("", allow_empty=False).to_byte_dfa(), "reference text is empty"),
    ],
)
def test_wrong_arguments(make, says):
    with pytest.raises(ConstraintError, match=says):
        make()


def test_limits():
    pattern = "x(?P<SUBSTRING_OF>" + "ab" * 60 + "c)"
    with pytest.raises(LimitError, match="max_states"):
        regex(pattern).to_byte_dfa(CompileLimits(max_states=50))
    with pytest.raises(LimitError, match="max_pattern"):
        regex(pattern).to_byte_dfa(CompileLimits(max_pattern=50))
    with pytest.raises(LimitError, match="max_bytes"):
        substring_of("ab" * 5000).to_byte_dfa(CompileLimits(max_bytes=1 << 20))
    with pytest.raises(LimitError, match="max_states"):
        text_until("a" * 100).to_byte_dfa(CompileLimits(max_states=50))


def test_substring_automaton_is_linear():
    rng = random.Random(1)
    sizes = []
    for n in (1000, 4000):
        text = "".join(rng.choice("ab é日") for _ in range(n))
        dfa = substring_of(text).to_byte_dfa()
        size = len(text.encode())
        assert dfa.num_states <= 2 * size + 1
        assert len(dfa.arcs[0]) <= 3 * size
        sizes.append(dfa.num_states / size)
    assert sizes[1] < 1.2 * sizes[0]


def test_subsets_of_many_states_at_once():
    """`ByteNfa` with a choice of paths, against sets of states."""
    rng = random.Random(11)
    for _ in range(60):
        n = rng.randint(1, 7)
        limits = CompileLimits()
        nfa = ByteNfa(limits, Deadline(limits))
        final = np.array([rng.random() < 0.4 for _ in range(n)])
        nfa.add_states(final)
        arcs = {(rng.randrange(n), rng.choice(b"ab"), rng.randrange(n)) for _ in range(rng.randint(0, 3 * n))}
        empty = {(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randint(0, n))}
        nfa.add_arcs(*np.array(sorted(arcs), np.int64).reshape(-1, 3).T)
        nfa.add_empty(*np.array(sorted(empty), np.int64).reshape(-1, 2).T)
        dfa = nfa.deterministic(0)
        for text in all_texts("ab", 5):
            here = {0}
            for byte in (None, *text.encode()):
                here = here if byte is None else {r for q, b, r in arcs if q in here and b == byte}
                while more := {r for q, r in empty if q in here} - here:
                    here |= more
            assert any(final[q] for q in here) == (dfa is not None and dfa.accepts(text.encode()))


def test_names():
    assert {"QUOTED_TEXT", "UNQUOTED_TEXT", "TEXT_UNTIL", "SUBSTRING_OF", "DELIMITED_LIST", "DELIMITED_SUBSEQUENCE_OF"} <= EXTENSION_NAMES
