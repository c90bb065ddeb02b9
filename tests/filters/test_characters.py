"""Filters over text against their definitions: every code point alone, and random texts of the characters that matter."""

from __future__ import annotations

import itertools
import random
import re
import unicodedata

import numpy as np
import pytest
import regex as regex_package

from fsa_compile import filters, regex
from fsa_compile.automata.boolean import combine
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.openfst import to_pynini
from fsa_compile.canonical.encoder.normal_form import nfc_inert_points
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.limits import CompileLimits, Deadline

LIMITS = CompileLimits()
INERT = set(nfc_inert_points().tolist())
SCALARS = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
MOST = [p for p in SCALARS if p < 0x3200 or 0xA000 <= p < 0xAC40 or (0xD780 <= p < 0x20000 and not 0xE000 <= p < 0xF8C0) or p % 211 == 0]
"""All but some of the large blocks of Han, Hangul, private and unassigned characters."""


def alone(dfa: ByteDfa) -> np.ndarray:
    """bool[0x110000], whether each character alone is accepted; all at once."""
    full = dfa.table[:, dfa.byte_class]
    data = "".join(map(chr, SCALARS)).encode()
    units = np.frombuffer(data, np.uint8)
    begin = np.flatnonzero((units & 0xC0) != 0x80)
    length = np.diff(np.append(begin, len(units)))
    state = np.full(len(begin), dfa.start)
    for k in range(4):
        on = length > k
        state[on] = full[state[on], units[begin[on] + k]]
    out = np.zeros(0x110000, bool)
    out[SCALARS] = dfa.final[state]
    return out


def same(a: ByteDfa, b: ByteDfa) -> bool:
    """Whether two automata accept the same byte strings."""
    if a.start == 0 or b.start == 0:
        return a.start == b.start == 0
    import pynini

    return pynini.equivalent(to_pynini(a).arcsort(), to_pynini(b).arcsort())


def in_some_script(names: list[str], common: bool):
    pattern = "".join(rf"\p{{scx={name}}}" for name in (*names, *(("Common", "Inherited") if common else ())))
    return regex_package.compile(f"[{pattern}]").fullmatch


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("passing", "definition"),
    [
        (filters.valid_utf8(), lambda c: True),
        (filters.ascii(), str.isascii),
        (filters.characters("aé\U0001f600 "), lambda c: c in "aé\U0001f600 "),
        (filters.scripts(["Latin", "Hangul"]), in_some_script(["Latin", "Hangul"], True)),
        (filters.scripts(["Cyrillic"], common=False, also=" ."), lambda c: c in " ." or in_some_script(["Cyrillic"], False)(c)),
        (filters.length(1), lambda c: True),
        (filters.length(3, unit="bytes"), lambda c: len(c.encode()) == 3),
        (filters.length(1, unit="words"), lambda c: len(c.split()) == 1),
        (filters.forbid("é", "b"), lambda c: c not in "éb"),
        (filters.forbid("k", ignore_case=True), lambda c: not re.fullmatch("(?i)k", c)),
        (filters.words(["a", "é"]), lambda c: c in "aé" or not re.fullmatch(r"\w", c)),
        (filters.nfc(), lambda c: unicodedata.is_normalized("NFC", c)),
        (filters.nfc_inert(), lambda c: c.isascii() or ord(c) in INERT),
        (filters.nfc(max_marks=0), lambda c: unicodedata.is_normalized("NFC", c) and not unicodedata.combining(c)),
    ],
    ids=lambda value: getattr(value, "description", "")[:40],
)
def test_every_code_point(passing, definition, exhaustive):
    found = alone(passing.to_byte_dfa()).tolist()
    wrong = [p for p in (SCALARS if exhaustive else MOST) if found[p] != bool(definition(chr(p)))]
    assert not wrong, (passing.description, [hex(p) for p in wrong[:5]])


def test_no_filter_accepts_what_is_not_utf8():
    for one in (
        filters.valid_utf8(), filters.ascii(), filters.scripts(["Greek"]), filters.nfc(max_marks=1), filters.forbid("a"),
        filters.words(["a"]), filters.length(at_most=4), filters.length(at_most=9, unit="bytes"),
    ):  # fmt: skip
        dfa = one.to_byte_dfa()
        everything = filters.valid_utf8().to_byte_dfa()
        assert same(combine("&", dfa, everything, LIMITS, Deadline(LIMITS)), dfa), one.description
        for wrong in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\x80"):
            assert not dfa.accepts(wrong)


def texts(alphabet: str, longest: int):
    for length in range(longest + 1):
        for letters in itertools.product(alphabet, repeat=length):
            yield "".join(letters)


@pytest.mark.parametrize("unit", ["characters", "words", "bytes"])
def test_lengths(unit):
    measure = {"characters": len, "words": lambda t: len(t.split()), "bytes": lambda t: len(t.encode())}[unit]
    for low, high in ((0, 2), (2, None), (3, 4), (0, 0), (5, None)):
        dfa = filters.length(at_least=low, at_most=high, unit=unit).to_byte_dfa()
        for text in texts("a \n€\x1c", 5):
            assert dfa.accepts(text.encode()) == (low <= measure(text) and (high is None or measure(text) <= high)), (text, low, high)
    assert same(filters.length(3, unit=unit).to_byte_dfa(), filters.length(at_least=3, at_most=3, unit=unit).to_byte_dfa())
    assert same(filters.length(at_most=40).to_byte_dfa(), regex("(?s).{0,40}").to_byte_dfa())


def test_forbidden_phrases():
    phrases = ["aba", "bb", "€a", "abab€"]
    dfa = filters.forbid(*phrases).to_byte_dfa()
    for text in texts("ab€", 8):
        assert dfa.accepts(text.encode()) == (not any(p in text for p in phrases)), text
    for ignore_case in (False, True):
        flags = "(?si)" if ignore_case else "(?s)"
        asked = filters.forbid("Straße", "K", "ﬀ", ignore_case=ignore_case).to_byte_dfa()
        assert same(asked, (~regex(rf"{flags}.*(?:Straße|K|ﬀ).*")).to_byte_dfa())


def test_word_lists():
    listed = ["tree", "trees", "don't", "año", "日本", "日"]
    dfa = filters.words(listed, inside="'").to_byte_dfa()
    rng = random.Random(3)
    pieces = [*listed, "tre", "s", " ", ", ", "'", "日本日", "é", "本", "。", "\U0001f600", "\n", "_"]
    count = 0
    for _ in range(6000):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 5)))
        right = all(word in listed for word in re.findall(r"[\w']+", text))
        count += right
        assert dfa.accepts(text.encode()) == right, text
    assert 500 < count < 5500
    everything = regex(r"(?s)(?:(?:tree|año)(?![\w])|[^\w])*(?:tree|año)?")
    assert same(filters.words(["tree", "año"]).to_byte_dfa(), regex(r"(?s)\W*(?:(?:tree|año)(?:\W+(?:tree|año))*\W*)?").to_byte_dfa())
    assert everything.to_byte_dfa().accepts("tree año".encode())


def test_normal_form_c(exhaustive):
    dfa = filters.nfc().to_byte_dfa()
    few = [filters.nfc(max_marks=n).to_byte_dfa() for n in (0, 1, 2)]
    marks = [chr(p) for p in SCALARS if unicodedata.combining(chr(p))]
    decomposed = [chr(p) for p in SCALARS if unicodedata.decomposition(chr(p))]
    second = sorted({unicodedata.normalize("NFD", c)[-1] for c in decomposed})
    first = sorted({unicodedata.normalize("NFD", c)[0] for c in decomposed})
    letters = "aeoAEOuUkα\u0323\u0302\u0301\u0327\u0308\u0304\u0328\u031bấậǟ\u1100\u1161\u11a7\u11a8가각\u0bc6\u0bbe\u0d46x "
    pools = (marks, decomposed, second, first, letters, letters)
    rng = random.Random(7)
    verdicts = [0, 0]
    for _ in range(600_000 if exhaustive else 5_000):
        text = "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(2, 7)))
        if rng.random() < 0.6:
            text = unicodedata.normalize("NFC", text)
            if rng.random() < 0.5:
                at = rng.randint(0, len(text))
                text = text[:at] + rng.choice(second) + text[at:]
        right = unicodedata.is_normalized("NFC", text)
        verdicts[right] += 1
        assert dfa.accepts(text.encode()) == right, ascii(text)
        run = max(len(list(group)) if marked else 0 for marked, group in itertools.groupby(text, lambda c: unicodedata.combining(c) > 0))
        for most, bounded in enumerate(few):
            assert bounded.accepts(text.encode()) == (right and run <= most), (ascii(text), most)
    assert min(verdicts) > sum(verdicts) // 20


def test_pairs_of_hangul_and_of_every_starter_with_every_mark_that_composes(exhaustive):
    dfa = filters.nfc().to_byte_dfa()
    full, final = dfa.table[:, dfa.byte_class], dfa.final
    second = sorted({unicodedata.normalize("NFD", chr(p))[-1] for p in SCALARS if unicodedata.decomposition(chr(p))[:1].isalnum()})
    starters = [chr(p) for p in SCALARS if unicodedata.decomposition(chr(p)) or 0x1100 <= p < 0x1200 or 0xAC00 <= p < 0xAC40 or p < 0x250]
    starters = [one for one in starters if one != "\n"] + [chr(p) for p in range(0xAC00, 0xD7A4, 13)]
    starters = starters if exhaustive else starters[::5]
    states = np.array([dfa.run(one.encode()) for one in starters])
    for mark in (*second, "\u1161", "\u1175", "\u1176", "\u11a7", "\u11a8", "\u11c2", "\u11c3"):
        after = states
        for byte in mark.encode():
            after = full[after, byte]
        pairs = [one + mark for one in starters]
        normal = unicodedata.normalize("NFC", "\n".join(pairs)).split("\n")
        assert final[after].tolist() == [a == b for a, b in zip(pairs, normal)], ascii(mark)


def test_any_order_gives_the_same_language():
    several = [
        filters.nfc(max_marks=1), filters.scripts(["Latin"]), filters.forbid("ab", "é"), filters.length(at_most=3),
        filters.length(at_least=1, unit="words"), regex(r"(?s).*[a-e].*"),
    ]  # fmt: skip
    orders = [list(order) for order in itertools.permutations(several)]
    built = []
    for order in (orders[0], orders[133], orders[-1]):
        chosen = filters.checked_filters(order)
        built.append(chosen.automaton(LIMITS, Deadline(LIMITS)))
    assert same(built[0], built[1])
    assert same(built[0], built[2])
    combined = several[0]
    for one in several[1:]:
        combined = combined & one
    assert same(built[0], combined.to_byte_dfa())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: filters.characters(""), "given no character"),
        (lambda: filters.characters(["ab"]), "not one character"),
        (lambda: filters.characters("\ud800"), "not one character"),
        (lambda: filters.characters(3), "needs characters"),
        (lambda: filters.scripts(["Klingon"]), "no script 'Klingon'"),
        (lambda: filters.scripts(["Latin}"]), "no script"),
        (lambda: filters.scripts("Latin"), "list of names"),
        (lambda: filters.scripts([], common=False), "allows no character"),
        (lambda: filters.length(-1), "counts from 0"),
        (lambda: filters.length(True), "counts from 0"),
        (lambda: filters.length(2, at_most=3), "exact count and bounds"),
        (lambda: filters.length(at_least=4, at_most=3), "no length at all"),
        (lambda: filters.length(3, unit="tokens"), "token_count"),
        (lambda: filters.forbid(), "given no phrase"),
        (lambda: filters.forbid("a", ""), "empty text"),
        (lambda: filters.words([]), "given no word"),
        (lambda: filters.words(["don't"]), "inside="),
        (lambda: filters.words(["a"], inside=None), "must be a str"),
        (lambda: filters.nfc(max_marks=-1), "max_marks"),
        (lambda: filters.checked_filters(filters.ascii()), "list of filters"),
        (lambda: filters.checked_filters("ascii"), "list of filters"),
        (lambda: filters.checked_filters([filters.ascii]), "filter 0 is a function"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ConstraintError, match=message):
        make()


def test_limits_and_empty_filters():
    with pytest.raises(LimitError, match="max_states"):
        filters.length(at_most=10**9).to_byte_dfa()
    with pytest.raises(LimitError, match="max_states"):
        filters.words([f"word{i}" for i in range(900)]).to_byte_dfa(CompileLimits(max_states=100))
    with pytest.raises(UnsatisfiableError, match="both sides"):
        (filters.length(3) & filters.length(at_most=2)).to_byte_dfa()
