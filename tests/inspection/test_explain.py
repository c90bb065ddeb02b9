"""Statistics, shortest and random texts, explanations: against brute force over a toy vocabulary and Python's `re`."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from fsa_compile import Vocabulary, compile_choices, compile_regex
from fsa_compile.errors import ArtifactError, ConstraintError
from fsa_compile.inspection.explain import byte_ranges, explain, sample, shortest_tokens, spell, statistics, token_text

TOKENS = [b"a", b"b", b"ab", b"ba", b"aab", b"\xc3", b"\xa9", "bé".encode(), b"", b"a", b"c"]
STOP = 8
VOCABULARY = Vocabulary.from_tokens(TOKENS, stop_ids=[STOP])
FINITE = ["a", "(a|b){2,3}", "ab(é|a)?", "(ab|ba){1,2}", "é?é", "a|aab|bb"]
INFINITE = ["a*", "(ab)+", "b+é", "[ab]*a[ab]"]
TEXT_IDS = [i for i, token in enumerate(TOKENS) if token]


def sequences(most: int):
    """All sequences of text tokens up to a length."""
    return itertools.chain.from_iterable(itertools.product(TEXT_IDS, repeat=n) for n in range(most + 1))


def members(pattern: str) -> set[bytes]:
    """All texts of a finite pattern."""
    texts = ("".join(letters) for n in range(5) for letters in itertools.product("abcé", repeat=n))
    return {text.encode() for text in texts if re.fullmatch(pattern, text)}


def written(ids) -> bytes:
    return b"".join(TOKENS[i] for i in ids)


@pytest.mark.parametrize("pattern", FINITE)
def test_explanations_agree_with_brute_force(pattern):
    constraint, accepted = compile_regex(pattern, VOCABULARY), members(pattern)
    prefixes = {text[:n] for text in accepted for n in range(len(text) + 1)}
    verdicts = set()
    for ids in sequences(3):
        data, found = written(ids), explain(constraint, VOCABULARY, ids)
        verdicts.add(found.verdict)
        expected = "accepted" if data in accepted else "incomplete" if data in prefixes else "refused"
        assert found.verdict == expected, ids
        assert found.accepted == (data in accepted)
        good = max(n for n in range(len(ids) + 1) if written(ids[:n]) in prefixes)
        before = written(ids[:good])
        assert found.position == good
        assert found.token == (ids[good] if good < len(ids) else None)
        assert found.matched == max(n for n in range(len(data) + 1) if data[:n] in prefixes), ids
        allowed = {i for i in TEXT_IDS if before + TOKENS[i] in prefixes}
        assert found.allowed_count == len(allowed)
        assert set(np.flatnonzero(found.allowed_bytes)) == {TOKENS[i][0] for i in allowed}
        assert set(found.examples) <= allowed
        assert bool(found.examples) == bool(allowed)
        assert found.stop_allowed == (before in accepted)
        assert before + written(found.completion) in accepted
    assert verdicts == {"accepted", "incomplete", "refused"}


def test_texts_and_bytes_are_explained_like_their_tokens():
    constraint = compile_regex("ab(é|a)?", VOCABULARY)
    assert explain(constraint, VOCABULARY, "abé").accepted
    assert explain(constraint, VOCABULARY, "ab\xc3".encode("latin-1")).verdict == "incomplete"
    found = explain(constraint, VOCABULARY, "abb")
    assert (found.verdict, found.token_bytes, found.matched) == ("refused", b"b", 2)


def test_end_of_text_ids():
    constraint = compile_regex("ab?", VOCABULARY)
    assert explain(constraint, VOCABULARY, [0, STOP]).accepted
    early = explain(constraint, VOCABULARY, [STOP])
    assert (early.verdict, early.token, early.token_bytes, early.stop_allowed) == ("refused", STOP, b"", False)
    late = explain(constraint, VOCABULARY, [0, STOP, 1])
    assert (late.verdict, late.position, late.allowed_count) == ("refused", 2, 0)


def test_bad_ids_and_a_foreign_vocabulary():
    constraint = compile_regex("a", VOCABULARY)
    for wrong in ([len(TOKENS)], [-1], [True], ["a"], [0.0]):
        with pytest.raises(ConstraintError, match="no token id of a vocabulary of 11\n  position 0"):
            explain(constraint, VOCABULARY, wrong)
    with pytest.raises(ArtifactError, match="was compiled for vocabulary"):
        explain(constraint, Vocabulary.from_tokens([b"a"]), "a")


@pytest.mark.parametrize("pattern", FINITE + INFINITE)
def test_shortest_tokens(pattern):
    constraint = compile_regex(pattern, VOCABULARY)
    ids = shortest_tokens(constraint)
    fits = [s for s in sequences(4) if re.fullmatch(pattern.encode().decode(), written(s).decode("utf-8", "replace"))]
    assert tuple(ids) in fits
    assert len(ids) == min(map(len, fits)) == statistics(constraint).shortest


@pytest.mark.parametrize("pattern", FINITE)
def test_samples_are_members_and_reach_every_member(pattern, exhaustive):
    constraint = compile_regex(pattern, VOCABULARY)
    seen = {written(sample(constraint, seed=seed)) for seed in range(1500 if exhaustive else 700)}
    assert seen == members(pattern)
    assert sample(constraint, seed=5) == sample(constraint, seed=5)


@pytest.mark.parametrize("pattern", INFINITE)
def test_samples_finish_within_the_limit(pattern):
    constraint = compile_regex(pattern, VOCABULARY)
    for seed, most in itertools.product(range(20), (0, 1, 5, 12)):
        ids = sample(constraint, seed=seed, max_tokens=most, stop=0.05)
        assert len(ids) <= max(most, constraint.shortest_completion)
        assert explain(constraint, VOCABULARY, ids).accepted


def test_statistics():
    assert statistics(compile_regex("a{3}", VOCABULARY)).longest == 3
    assert statistics(compile_regex("a?", VOCABULARY)).longest == 1
    assert statistics(compile_regex("(ab)*", VOCABULARY)).longest is None
    assert statistics(compile_choices(["ab", "aab", "é"], VOCABULARY)).longest == 3
    numbers = statistics(compile_regex("a|ab", VOCABULARY))
    assert (numbers.accepting, numbers.shortest, numbers.vocab_size) == (2, 1, len(TOKENS))


def test_spelling():
    assert spell(VOCABULARY, "aab") == [4]
    assert written(spell(VOCABULARY, "abéba")) == "abéba".encode()
    assert spell(VOCABULARY, "") == []
    greedy_fails = Vocabulary.from_tokens([b"ab", b"abc", b"cd"])
    assert spell(greedy_fails, "abcd") == [0, 2]
    with pytest.raises(ConstraintError, match=r"no sequence of this vocabulary's tokens writes 'x\\\\n'"):
        spell(VOCABULARY, "x\n")


def test_examples_show_every_turn_and_different_beginnings():
    tokens = [b"a", b"b", b"'", b"aa", b"ab", b"bb", b"cc", b"dd", b"ee", b"ff", b"gg", b"   ", b"hh", b"b'"]
    vocabulary = Vocabulary.from_tokens(tokens)
    constraint = compile_regex("'[a-z ]*'", vocabulary)
    shown = [tokens[i] for i in explain(constraint, vocabulary, [2]).examples]
    assert b"b'" in shown  # leads out of the quotes, which few tokens do
    assert {b"aa", b"'", b"bb", b"cc", b"dd"} <= set(shown)  # each kind of beginning, then different letters
    assert b"ab" not in shown
    assert len(shown) == len(set(shown)) == 8


def test_words_for_bytes():
    assert token_text(b"a\xffb") == "a\\xffb"
    assert token_text(b"") == "∅"
    present = np.zeros(256, bool)
    present[[*range(48, 58), 97, 98, 32, 10, 255]] = True
    assert byte_ranges(present) == "\\n space 0-9 a b \\xff"


def test_text_that_is_no_unicode():
    vocabulary = Vocabulary.from_tokens([b"a", b""], stop_ids=[1])
    with pytest.raises(ConstraintError, match="lone surrogate at offset 1"):
        explain(compile_regex("a+", vocabulary), vocabulary, "a\udcff")
