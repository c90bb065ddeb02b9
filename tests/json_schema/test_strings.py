"""Patterns against `re`, spellings against `json.loads`, formats against the public suite."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import warnings

import numpy as np
import pytest

from fsa_compile.automata.labelled_dfa import any_text, lengths, words_trie
from fsa_compile.automata.labelled_product import product
from fsa_compile.errors import RegexSyntaxError, UnsupportedPatternError
from fsa_compile.json_schema import SchemaOptions, formats, schema_machine
from fsa_compile.json_schema.formats import FORMATS, format_dfa
from fsa_compile.json_schema.patterns import search_dfa
from fsa_compile.json_schema.string_spelling import encoded
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns.ecma_syntax import parse_ecma
from tools import format_automata

LIMITS = CompileLimits()
PATTERNS = [
    "b", "^a", "a$", "^$", "^.$", "[^a]", r"^\w+$", "é", r"^[a-f\u00e9\ud7ff]{2,3}$", "^(a|b)*$", r"\n", '^"?x$', r"\\",
    r"[\ufffd-\uffff]", r"^\S+$", "x{2}", "^(?:a|ab)(?:c|bcd)$", "^a.c$", "^a|b$", "(^a$)|(^b$)", "^(?!ab)[a-z]*$", r"\bab\b",
    "^(?=.*x)(?=.*a).*$", "(?<!a)b", "a{0,2}$", "a{,2}", "[]a]?x", "^[a-]+$", r"^\d{2}\.\s?$", "(?<n>a)+", "", "x|", r"^\cJ",
]  # fmt: skip
LETTERS = [
    "a",
    "b",
    "c",
    "d",
    "x",
    '"',
    "\\",
    "\n",
    "é",
    "\u07ff",
    "\u0800",
    "\ufffd",
    "\U0001f600",
    "/",
    "\x01",
    " ",
    "1",
    ".",
    ",",
]


def python_pattern(pattern):
    """The same pattern for `re`: `$` there also matches before a final newline, and some spellings differ."""
    return pattern.replace("$", r"\Z").replace(".", r"[^\n\r\u2028\u2029]").replace("(?<n>", "(?P<n>").replace(r"\[^\n\r\u2028\u2029]", r"\.").replace(r"\cJ", r"\n").replace("[]a]?x", "a]?x").replace("a{,2}", r"a\{,2\}")  # fmt: skip


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p != "[]a]?x"])
def test_search(pattern):
    rng = random.Random(len(pattern))
    dfa, engine = search_dfa(pattern, LIMITS), re.compile(python_pattern(pattern), re.ASCII)
    for _ in range(300):
        text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 5)))
        assert bool(dfa.label(text)) == bool(engine.search(text)), text


def test_empty_class_matches_nothing():
    assert search_dfa("[]a]?x", LIMITS).label("ax") == 0
    assert search_dfa("[^]", LIMITS).label("a") == 1


@pytest.mark.parametrize(
    ("pattern", "kind", "words"),
    [
        (r"(a)\1", UnsupportedPatternError, "back-reference"),
        (r"\Aab", UnsupportedPatternError, "other dialects"),
        ("(?i)a", UnsupportedPatternError, "not one of ECMA-262"),
        ("(?P<a>b)", UnsupportedPatternError, "not one of ECMA-262"),
        (r"\ud800", UnsupportedPatternError, "surrogate"),
        ("(a", RegexSyntaxError, "never closed"),
        ("a)", RegexSyntaxError, "unbalanced"),
        ("[a", RegexSyntaxError, "never closed"),
        ("*a", RegexSyntaxError, "nothing to repeat"),
        ("a**", RegexSyntaxError, "multiple repeat"),
        ("a{3,1}", RegexSyntaxError, "exceeds"),
        (r"\x1", RegexSyntaxError, "hexadecimal"),
        (r"\p{Nope}", RegexSyntaxError, "unknown Unicode property"),
        ("a\\", RegexSyntaxError, "backslash"),
    ],
)
def test_refused_patterns(pattern, kind, words):
    with pytest.raises(kind, match=words):
        search_dfa(pattern, LIMITS)


def spelled(rng, text):
    """A random spelling of a text as a JSON string."""
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n"}
    out = []
    for c in text:
        kind = rng.random()
        if kind < 0.5 and c not in '"\\' and ord(c) >= 32:
            out.append(c)
        elif kind < 0.7 and c in short:
            out.append(short[c])
        else:
            units = c.encode("utf-16-be")
            form = rng.choice(["\\u%02x%02x", "\\u%02X%02X"])
            out += [form % (units[i], units[i + 1]) for i in range(0, len(units), 2)]
    return '"' + "".join(out) + '"'


@pytest.mark.parametrize("extra", [{}, {"minLength": 2}, {"maxLength": 2}, {"maxLength": 70}])
def test_every_spelling_is_judged_by_its_meaning(extra):
    rng = random.Random(7)
    for pattern in PATTERNS[:12]:
        schema = {"type": "string", "pattern": pattern} | extra
        machine = schema_machine({"anyOf": [schema, {"type": "null"}]}, options=SchemaOptions(string_escapes="all"))
        engine = re.compile(python_pattern(pattern), re.ASCII)
        for _ in range(60):
            text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 4)))
            written = spelled(rng, text)
            assert json.loads(written) == text
            want = bool(engine.search(text)) and extra.get("minLength", 0) <= len(text) <= extra.get("maxLength", 99)
            assert machine.accepts(written.encode()) == want, (pattern, written)


def test_shortest_spelling():
    every = "".join(map(chr, range(0x90))) + "é\u2028\U0001f600"
    written = b'"' + encoded(every) + b'"'
    assert json.loads(written) == every
    machine = schema_machine({"type": "string"}, options=SchemaOptions(string_escapes="shortest"))
    assert machine.accepts(written)
    for other in ('"\\/"', '"\\u0061"', '"\\u000a"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\x7f"'):
        assert machine.accepts(other.encode()) == (other == '"\x7f"'), other


def test_no_lone_halves_and_no_bad_utf8():
    machine = schema_machine({"type": "string"})
    for bad in (
        b'"\\ud800"',
        b'"\\ud83dx"',
        b'"\\ud83d\\u0041"',
        b'"\\udc00"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\x1f"',
    ):
        assert not machine.accepts(bad), bad
    for good in (b'"\\uD83D\\uDE00"', b'"\xf4\x8f\xbf\xbf"', b'"\xed\x9f\xbf"', b'"\\uDBFF\\uDFFF"', b'"\\uffff\\ud7FF\\ue000"'):
        assert machine.accepts(good), good


def test_product_of_large_automata():
    """The same answer whether the joint automaton is refined as arrays or left as it is."""
    dfas = [lengths(3, 400), search_dfa("^(?:ab?)*c?$", LIMITS), words_trie(["abab", "aa", "abc"]), any_text()]
    dfa = product(dfas, lambda said: 1 + said[0] + 2 * said[1] + 4 * said[2] if said[3] else 0, 10_000, "here")
    rng = random.Random(3)
    for _ in range(300):
        text = "".join(rng.choice("aabbc") for _ in range(rng.choice([2, 3, 4, 5, 399, 400, 401])))
        text = rng.choice([text, "ab" * (len(text) // 2), "abab", "abc"])
        want = 1 + (3 <= len(text) <= 400) + 2 * bool(re.fullmatch("(?:ab?)*c?", text)) + 4 * (text in ("abab", "aa", "abc"))
        assert dfa.label(text) == want, text


def test_formats_against_the_public_suite(data_dir):
    """No invalid text is accepted. Rejected though valid: leap seconds off UTC, encoded labels, regexes with more than groups."""
    rejected = set()
    with gzip.open(data_dir / "json_schema_test_suite_format.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            name = row["schema"].get("format")
            for test in row["tests"] if name in FORMATS else ():
                if isinstance(test["data"], str):
                    accepted = bool(format_dfa(name).label(test["data"]))
                    assert accepted <= test["valid"], (name, test)
                    if accepted != test["valid"]:
                        rejected.add((name, "xn--" in test["data"].lower() or ":60" in test["data"]))
    assert rejected == {("time", True), ("hostname", True), ("regex", False)}


def test_members_of_the_regex_format_are_patterns():
    """Random walks through the automaton spell patterns that `re` and our own reader take."""
    rng = random.Random(1)
    rows, labels = format_dfa("regex")
    for _ in range(400):
        state, out = 0, list[str]()
        while len(out) < 20 or (not labels[state] and len(out) < 60):
            low, high, state = rng.choice(rows[state])
            out.append(chr(rng.randint(low, min(high, low + 30))))
        if labels[state]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                if "(?<" not in "".join(out):  # lookbehind of `re` has a fixed width
                    re.compile("".join(out))
            parse_ecma("".join(out), LIMITS)
    for text, valid in (
        ("^(a|b)+$", True),
        ("[a-z]{2,", False),
        ("(a", False),
        ("a**", False),
        ("[z-a]", False),
        ("a{1,3}?", True),
        ("^([01][0-9]|2[0-3]):[0-5][0-9]$", True),
        ("[2-8]", True),
        ("[5-4]", False),
        ("[0-a]", False),
    ):
        assert bool(format_dfa("regex").label(text)) == valid


def test_json_parsing_suite(data_dir):
    """Schema `true` accepts exactly JSON texts, but for white space, of which it allows one space after commas and colons."""
    machine = schema_machine(True)
    with gzip.open(data_dir / "json_parsing.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            text = base64.b64decode(row["bytes"])
            accepted = machine.accepts(text) if len(text) < 20_000 else False
            assert not (accepted and row["expect"] == "reject"), row["name"]
            if row["expect"] == "accept" and not accepted:
                without = b"".join(re.findall(rb'"(?:\\.|[^"\\])*"|[^\s"]+', text))
                assert without != text, row["name"]
                assert machine.accepts(without), row["name"]


@pytest.mark.parametrize("patterns", format_automata.every(), ids=lambda patterns: formats.key_of(*patterns))
def test_stored_formats_are_the_automata_of_their_patterns(patterns):
    made = formats.made(*patterns)
    assert formats._automaton(*patterns) == made
    with np.load(formats.STORED) as file:
        np.testing.assert_array_equal(file[formats.key_of(*patterns)], formats.as_array(made))
        assert len(file.files) == len(format_automata.every())
