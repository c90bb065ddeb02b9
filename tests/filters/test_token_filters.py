"""Filters over tokens against their definitions, and masks of filtered constraints against all sequences of small vocabularies."""

from __future__ import annotations

import itertools
import random
import re
from functools import cache

import numpy as np
import pytest

import fsa_compile
from fsa_compile import filters
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.filters.token_filters import byte_tokens
from fsa_compile.filters.token_product import joined
from fsa_compile.limits import CompileLimits
from fsa_compile.tokenizers import load_tokenizer
from fsa_compile.vocabulary import Vocabulary

LIMITS = CompileLimits()
EURO, E_ACUTE = "€".encode(), "é".encode()
TOKENS = [
    b"a", b"b", b"ab", b" ", b" a", "é".encode(), *(bytes([b]) for b in sorted({*EURO, *E_ACUTE})), EURO[:2], b"a" + EURO[:1],
    EURO[2:] + b"b", b"", b"\xc3\xa9"[:1] + b"a",
]  # fmt: skip
VOCABULARY = Vocabulary.from_tokens(TOKENS, stop_ids=[TOKENS.index(b"")])


def passes_fallback(ids: list[int], vocabulary: Vocabulary, bytes_: dict[int, int]) -> bool:
    """The definition, character by character: where each byte comes from."""
    data = vocabulary.decode_bytes(ids)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    owner = [k for k, i in enumerate(ids) for _ in vocabulary.tokens[i]]
    own = {t for i, t in enumerate(vocabulary.tokens) if i not in bytes_}
    at = 0
    for char in text:
        size = len(char.encode())
        writers = set(owner[at : at + size])
        split = len(writers) > 1 or ids[next(iter(writers))] in bytes_
        if split and char.encode() in own:
            return False
        at += size
    return True


def test_byte_fallback_on_a_small_vocabulary():
    automaton = filters.byte_fallback().automaton(VOCABULARY, VOCABULARY, LIMITS)
    right = 0
    ids = [i for i in range(len(TOKENS)) if TOKENS[i]]
    for length in range(5):
        for sequence in itertools.product(ids, repeat=length):
            expected = passes_fallback(list(sequence), VOCABULARY, {})
            right += expected
            assert automaton.accepts(sequence) == expected, [TOKENS[i] for i in sequence]
    assert right > 500


@cache
def real(name, data_dir):
    return load_tokenizer(data_dir / "tokenizers" / name)


def test_byte_fallback_of_llama2(data_dir):
    tokenizer = real("llama2", data_dir)
    vocabulary = tokenizer.vocabulary
    declared = byte_tokens(tokenizer, vocabulary)
    assert len(declared) == 256
    by_byte = {byte: i for i, byte in declared.items()}
    automaton = filters.byte_fallback().automaton(tokenizer, vocabulary, LIMITS)
    own = {t for i, t in enumerate(vocabulary.tokens) if i not in declared}
    # Every character, spelled by byte tokens alone: all code points but some of the large blocks.
    for point in (*range(0, 0x3100, 3), *range(0xA000, 0xD800, 31), *range(0xE000, 0x110000, 997)):
        char = chr(point).encode()
        assert automaton.accepts([by_byte[b] for b in char]) == (char not in own), hex(point)
    rng = random.Random(5)
    verdicts = [0, 0]
    for _ in range(700):
        text = "".join(rng.choice(["a", " 1", "é", "\U0001f600", "ꙮ", "日", "\n", "кот"]) for _ in range(rng.randint(1, 4)))
        ids = tokenizer.encode(text)
        assert automaton.accepts(ids)  # what the tokenizer itself makes passes
        for _ in range(rng.randint(0, 2)):
            at = rng.randrange(len(ids))
            if ids[at] not in declared:
                ids[at : at + 1] = [by_byte[b] for b in vocabulary.tokens[ids[at]]]
        if rng.random() < 0.2:
            ids.insert(rng.randrange(len(ids)), rng.choice(list(declared)))
        expected = passes_fallback(ids, vocabulary, declared)
        verdicts[expected] += 1
        assert automaton.accepts(ids) == expected, (text, ids)
    assert min(verdicts) > 100


@pytest.mark.parametrize("name", ["llama2", "llama3", "gpt2"])
def test_spaces_are_fused_as_the_tokenizer_does(name, data_dir):
    tokenizer = real(name, data_dir)
    vocabulary = tokenizer.vocabulary
    automaton = filters.fused_spaces().automaton(tokenizer, vocabulary, LIMITS)
    space = vocabulary.tokens.index(b" ")
    rng = random.Random(1)
    words = [i for i, t in enumerate(vocabulary.tokens) if t and re.fullmatch(rb"[^\s\x80-\xff].*", t)]
    fused = 0
    for word in rng.sample(words, 700):
        text = vocabulary.tokens[word].decode(errors="ignore")
        if text.encode() != vocabulary.tokens[word]:
            continue
        ids = tokenizer.encode("x " + text)
        alone = any(vocabulary.tokens[i] == b" " and vocabulary.decode_bytes(ids[k + 1 :]) == text.encode() for k, i in enumerate(ids))
        assert automaton.accepts([words[0], space, word]) == alone, text
        fused += not alone
    assert fused > 100
    texts = ["I have 17 cats and 3 dogs.\n  x = 1", "«Où est 3 €?» 日本 語 한국 어", "a  b   c\n\n d\t e", 'f(x, "y z") # 12 34']
    for text in texts:
        ids = tokenizer.encode(text)
        assert automaton.accepts(ids), [vocabulary.tokens[i] for i in ids]
        for at, i in enumerate(ids):  # and a fused space taken apart does not pass
            rest = vocabulary.tokens[i][1:]
            if vocabulary.tokens[i][:1] == b" " and rest and rest in vocabulary.tokens and not rest[:1].isspace() and rest.isascii():
                apart = [*ids[:at], space, vocabulary.tokens.index(rest), *ids[at + 1 :]]
                assert not automaton.accepts(apart), rest


def test_llama2_keeps_digits_apart_from_their_space(data_dir):
    tokenizer = real("llama2", data_dir)
    constraint = fsa_compile.compile_regex("(a 17|a cat)", tokenizer, filters=[filters.fused_spaces(), filters.byte_fallback()])
    walk = constraint.walk()
    tokens = tokenizer.vocabulary.tokens
    walk.advance(next(i for i in walk.allowed().nonzero()[0].tolist() if tokens[i] == b"a"))
    assert {tokens[i] for i in walk.allowed().nonzero()[0].tolist()} == {b" ", b" c", b" ca", b" cat"}
    walk.advance(next(i for i in walk.allowed().nonzero()[0].tolist() if tokens[i] == b" "))
    assert {tokens[i] for i in walk.allowed().nonzero()[0].tolist()} == {b"1"}


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 3), (2, None), (3, 3), (1, 2)])
def test_counts_and_sets(low, high):
    counted = filters.token_count(at_least=low, at_most=high)
    chosen = filters.token_set(allow=["a", "ab", 3, " a"], deny=["ab"])
    both = joined([f.automaton(VOCABULARY, VOCABULARY, LIMITS) for f in (counted, chosen)], LIMITS)
    other = joined([f.automaton(VOCABULARY, VOCABULARY, LIMITS) for f in (chosen, counted)], LIMITS)
    allowed = {TOKENS.index(b"a"), 3, TOKENS.index(b" a")}
    for length in range(5):
        for sequence in itertools.product(range(6), repeat=length):
            expected = low <= length and (high is None or length <= high) and set(sequence) <= allowed
            assert both.accepts(sequence) == other.accepts(sequence) == expected


@pytest.mark.parametrize(
    "chosen",
    [
        [filters.byte_fallback()],
        [filters.token_count(2)],
        [filters.token_count(at_least=2, at_most=3), filters.fused_spaces()],
        [filters.token_set(deny=["ab", " a"]), filters.byte_fallback(), filters.token_count(at_most=4)],
        [filters.forbid("ba"), filters.byte_fallback(), filters.length(at_most=3), filters.fused_spaces()],
    ],
    ids=str,
)
def test_masks_are_exact(chosen):
    """A token is allowed exactly where some sequence of at most five tokens goes on with it; all texts here end by then."""
    longest = 5
    ids = [i for i in range(len(TOKENS)) if TOKENS[i]]
    language = fsa_compile.regex("[ab ]{0,2}(é|€)?|ab a")
    text_filters = [f for f in chosen if isinstance(f, fsa_compile.Language)]
    dfa = fsa_compile.filters.checked_filters(text_filters).applied_to(language).to_byte_dfa()
    automata = [f.automaton(VOCABULARY, VOCABULARY, LIMITS) for f in chosen if not isinstance(f, fsa_compile.Language)]
    good, todo = set(), [()]
    for sequence in todo:
        data = VOCABULARY.decode_bytes(sequence)
        if dfa.accepts(data) and all(a.accepts(sequence) for a in automata):
            good.add(sequence)
        if len(sequence) < longest:
            todo += [(*sequence, i) for i in ids if dfa.run(data + TOKENS[i])]
    prefixes = {s[:k] for s in good for k in range(len(s) + 1)}
    constraint = fsa_compile.compile_language(language, VOCABULARY, filters=chosen)
    again = fsa_compile.compile_language(language, VOCABULARY, filters=chosen[::-1])
    count = 0
    for prefix in prefixes:
        for walk in (constraint.walk(), again.walk()):
            for token in prefix:
                walk.advance(token)
            expected = {i for i in ids if (*prefix, i) in prefixes} | ({TOKENS.index(b"")} if prefix in good else set())
            assert set(np.flatnonzero(walk.allowed()).tolist()) == expected, prefix
        count += 1
    assert count > 10


def test_with_canonical_tokens(data_dir):
    tokenizer = real("llama2", data_dir)
    tables = fsa_compile.canonical_tables(tokenizer)
    constraint = fsa_compile.compile_regex("( [a-z]{1,6})( 1[0-9])?", tokenizer, canonical=True, filters=[filters.token_count(4)])
    walk = fsa_compile.CanonicalWalk(constraint, tables)
    for token in tokenizer.encode("abc 17"):
        assert walk.allowed()[token]
        walk.advance(token)
    assert walk.accepting
    assert len(tokenizer.encode("abc 17")) == 4


def test_refusals():
    with pytest.raises(ConstraintError, match="no token writes exactly 'zz'"):
        fsa_compile.compile_regex("a", VOCABULARY, filters=[filters.token_set(deny=["zz"])])
    with pytest.raises(ConstraintError, match="token 99 does not exist"):
        fsa_compile.compile_regex("a", VOCABULARY, filters=[filters.token_set(allow=[99])])
    with pytest.raises(ConstraintError, match="neither a token id nor a text"):
        filters.token_set(deny=[None])
    with pytest.raises(ConstraintError, match="must be a list of tokens"):
        filters.token_set(allow="a")
    with pytest.raises(UnsatisfiableError, match=r"passes token_count\(at_least=9"):
        fsa_compile.compile_regex("ab", VOCABULARY, filters=[filters.token_count(9)])
    with pytest.raises(UnsatisfiableError, match=r"passes ascii\(\), characters\('b'\)"):
        fsa_compile.compile_regex("ab", VOCABULARY, filters=[filters.ascii(), filters.characters("b")])
    with pytest.raises(LimitError, match="max_states"):
        fsa_compile.compile_regex("a*", VOCABULARY, filters=[filters.token_count(10**7)])
    with pytest.raises(ConstraintError, match="special tokens or whole tokens"):
        fsa_compile.compile_regex("a(?P<TEXT_TOKEN>)", VOCABULARY, filters=[filters.ascii()])


def test_joins_in_parts_make_the_same_masks(data_dir, monkeypatch):
    from fsa_compile.composition.regular import trie_walk as token_walk

    tokenizer = real("gpt2", data_dir)
    for pattern in ("[a-z]+ (true|false)", r'"(?:[^"\\]|\\.)*"', "[ab]{3,9}[^x]*"):
        whole = fsa_compile.compile_regex(pattern, tokenizer, filters=[filters.valid_utf8()])
        with monkeypatch.context() as patch:
            patch.setattr(token_walk, "_PART", 500)
            parts = fsa_compile.compile_regex(pattern, tokenizer, filters=[filters.valid_utf8()])
        walks = whole.walk(), parts.walk()
        rng = random.Random(2)
        for _ in range(25):
            allowed = [walk.allowed() for walk in walks]
            assert (allowed[0] == allowed[1]).all()
            assert walks[0].distance == walks[1].distance
            if walks[0].accepting or not (ids := np.flatnonzero(allowed[0]).tolist()):
                break
            token = rng.choice(ids)
            for walk in walks:
                walk.advance(token)
