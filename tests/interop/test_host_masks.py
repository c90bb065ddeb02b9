"""Bit rows, the matcher and the batch of rows against the walks' own definition, and the bit order against XGrammar's rule."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from interop.constraints import all_kinds, vocabulary

import fsa_compile
from fsa_compile import bitmask
from fsa_compile.canonical.restrict import canonical_product
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.errors import ArtifactError, ConstraintError
from fsa_compile.interop import BatchMasks, Matcher, forced_bytes
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

TOKENS = [b"a", b"b", b"ab", b"aa", b"aba", b""]
KINDS = ("pattern", "words", "counter", "stack", "stacks", "keys", "items")


def canonical(pattern: str):
    """A canonical constraint of a small encoder, and its tables."""
    tables = toy_tables(TOKENS, [(0, 1), (0, 0), (2, 0)], stop_ids=[5])
    limits, own = CompileLimits(), Vocabulary.from_tokens(TOKENS, stop_ids=[5])
    every = fsa_compile.compile_regex(pattern, own)
    return canonical_product(every, tables, tables_for(own), limits, Deadline(limits)), tables


def bits(row: np.ndarray, size: int) -> list[bool]:
    """The rule that servers state: bit t % 32 of word t // 32."""
    return [bool(int(row[t // 32]) >> (t % 32) & 1) for t in range(size)]


def brute(walk, remaining=None):
    """What may be taken, by trying every id."""
    out = set()
    for token in range(walk.vocab_size):
        there = walk.copy()
        try:
            there.advance(token)
        except ValueError:
            continue
        if remaining is None or there.finished or there.distance + 1 <= remaining:
            out.add(token)
    return out


WRONG = [None, "5", 1.5, [1], np.array([1, 2]), float("nan")]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_is_no_token_is_told_and_nothing_was_taken(wrong):
    """A text of digits is no token either, and a fraction is not its whole part."""
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"a", b"b", b"ab", b"(", b")", b"c", b""], stop_ids=[6])
    constraint = fsa_compile.compile_regex("(ab|b|c)+", vocabulary)
    first, second = (fsa_compile.Matcher(constraint, vocabulary) for _ in range(2))
    words = bitmask.allocate_bitmask(2, 7)
    for call in (
        lambda: first.accept_token(wrong),
        lambda: first.accept_tokens([5, wrong]),
        lambda: first.validate_tokens([5, wrong]),
        lambda: first.rollback(wrong),
        lambda: first.fill_next_token_bitmask(words, wrong),
        lambda: fsa_compile.step_matchers([first, second], [5, wrong if wrong is not None else "5"], words),
        lambda: fsa_compile.step_matchers([first, second], [5], words),
        lambda: fsa_compile.step_matchers([first, None], [5, 5], words),
        lambda: first.accept_tokens(5),
    ):
        with pytest.raises(ConstraintError):
            call()
        assert first.tokens == second.tokens == []
    assert first.accept_tokens(np.array([5, 2]))
    assert first.validate_tokens([5, -1]) == [5]


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_what_can_be_taken(kind):
    constraint = all_kinds()[kind]
    rng = random.Random(kind)
    shape = bitmask.bitmask_shape(3, constraint.vocab_size)
    for _ in range(3):
        walk = constraint.walk()
        for step in range(6):
            out = np.full((shape[0], shape[1] + 1), 7, np.int32)
            remaining = rng.choice((None, walk.distance, walk.distance + 1))
            needed = walk.fill_bitmask(out, 1, remaining)
            assert (out[[0, 2]] == 7).all()
            assert out[1, -1] == 0
            allowed = walk.allowed(remaining)
            assert bits(out[1], len(allowed)) == allowed.tolist()
            assert needed == (not allowed.all())
            if remaining is None or kind not in ("stack", "stacks", "keys", "counter"):  # their bounds are upper bounds
                assert set(np.flatnonzero(allowed)) == brute(walk, remaining), (kind, step, remaining)
            assert set(np.flatnonzero(allowed)) <= brute(walk)
            if walk.finished or not allowed.any():
                break
            walk.advance(rng.choice(np.flatnonzero(allowed).tolist()))


def test_bit_rows_and_booleans():
    rng = np.random.default_rng(0)
    for size in (1, 31, 32, 33, 64, 1000):
        mask = rng.random(size) < 0.4
        words = bitmask.packed(mask)
        assert words.shape == bitmask.bitmask_shape(1, size)[1:]
        assert bits(words, size) == mask.tolist()
        assert (bitmask.words_of(np.flatnonzero(mask), size) == words).all()
        assert (bitmask.unpacked(words, size) == mask).all()
        logits = rng.normal(size=(2, size)).astype(np.float32)
        rows = np.stack([words, bitmask.allocate_bitmask(1, size)[0].view(np.uint32)]).view(np.int32)
        masked = bitmask.apply_bitmask(logits, rows)
        assert (np.isneginf(masked[0]) == ~mask).all()
        assert (masked[1] == logits[1]).all()


def test_what_is_no_bitmask_is_refused():
    walk = all_kinds()["pattern"].walk()
    size = walk.vocab_size
    for out, row in ((np.zeros((1, 99), np.int64), 0), (np.zeros((1, 1), np.int32), 0), (bitmask.allocate_bitmask(2, size), 2)):
        with pytest.raises(ConstraintError, match="allocate_bitmask"):
            walk.fill_bitmask(out, row)
    frozen = bitmask.allocate_bitmask(1, size)
    frozen.setflags(write=False)
    with pytest.raises(ConstraintError, match="cannot be written"):
        walk.fill_bitmask(frozen)


def test_canonical_walks_fill_the_same_masks():
    constraint, tables = canonical("[ab]{1,4}")
    with pytest.raises(ArtifactError, match="canonical_tables"):
        Matcher(constraint)
    matcher = Matcher(constraint, tables=tables)
    rng = random.Random(2)
    while not matcher.is_terminated():
        allowed = set(np.flatnonzero(matcher.walk.allowed()).tolist())
        assert allowed == brute(matcher.walk)
        assert matcher.accept_token(rng.choice(sorted(allowed)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_matcher_follows_the_walk(kind):
    """Random tokens, allowed and not, with rollbacks: the matcher is where a fresh walk over the same tokens is."""
    constraint = all_kinds()[kind]
    rng = random.Random(kind)
    matcher = Matcher(constraint, vocabulary())
    row = bitmask.allocate_bitmask(1, constraint.vocab_size)
    for _ in range(60):
        fresh = constraint.walk()
        for token in matcher.tokens:
            fresh.advance(token)
        assert matcher.is_accepting() == fresh.accepting
        assert matcher.is_terminated() == fresh.finished
        matcher.fill_next_token_bitmask(row)
        allowed = np.flatnonzero(bitmask.unpacked(row[0], constraint.vocab_size)).tolist()
        if matcher.is_terminated():
            assert allowed == sorted(matcher.stop_token_ids)
            assert not matcher.accept_token(allowed[0])
            matcher.rollback(rng.randint(1, len(matcher.tokens)))
            continue
        assert allowed == np.flatnonzero(fresh.allowed()).tolist()
        draft = [rng.choice(allowed), rng.randrange(constraint.vocab_size), rng.randrange(constraint.vocab_size)]
        before = matcher.tokens
        good = matcher.validate_tokens(draft)
        assert matcher.tokens == before
        assert draft[: len(good)] == good
        assert matcher.copy().accept_tokens(draft) == (len(good) == 3)
        assert matcher.accept_tokens(draft) == (len(good) == 3)
        assert matcher.accept_token(draft[0]) if len(good) < 3 else True
    matcher.reset()
    assert matcher.tokens == []
    with pytest.raises(ConstraintError, match="take back"):
        matcher.rollback(1)


def test_the_end_of_a_text():
    v = vocabulary()
    words = all_kinds()["words"]
    token = v.tokens.index(b"yes")
    assert Matcher(words).accept_token(token)
    for own, ended in ((False, False), (True, True)):
        matcher = Matcher(words, terminate_without_stop_token=own)
        matcher.accept_token(token)
        assert matcher.is_terminated() == ended
        assert matcher.accept_token(v.stop_ids[0]) == (not ended)
    items = Matcher(fsa_compile.compile_items([[1, 2], [1, 2, 3]], 40))
    row = bitmask.allocate_bitmask(1, 40)
    assert items.accept_tokens([1, 2])
    assert not items.is_terminated()  # 3 may follow
    assert items.accept_token(3)
    assert items.is_terminated()
    assert items.fill_next_token_bitmask(row) is False
    assert (row == -1).all()


def test_limits_are_met_or_refused():
    for kind in KINDS:
        constraint = all_kinds()[kind]
        shortest = constraint.shortest_completion
        matcher = Matcher(constraint, max_tokens=shortest)
        row = bitmask.allocate_bitmask(1, constraint.vocab_size)
        for left in range(shortest, 0, -1):
            matcher.fill_next_token_bitmask(row)
            allowed = set(np.flatnonzero(bitmask.unpacked(row[0], constraint.vocab_size))) - set(constraint.stop_ids)
            assert allowed == set(np.flatnonzero(matcher.walk.allowed(left))) - set(constraint.stop_ids)
            if not allowed:
                break
            for token in range(constraint.vocab_size):
                probe = matcher.copy()
                assert probe.accept_token(token) == (token in allowed or (token in constraint.stop_ids and matcher.is_accepting()))
            assert matcher.accept_token(min(allowed))
        assert matcher.is_accepting(), kind
        for limit in range(shortest):
            with pytest.raises(fsa_compile.BudgetError, match=rf"the limit is {limit} tokens, .* {shortest}\n"):
                Matcher(constraint, max_tokens=limit)
            with pytest.raises(fsa_compile.BudgetError):
                BatchMasks(constraint, max_new_tokens=limit)
            with pytest.raises(fsa_compile.BudgetError) as caught:
                constraint.walk().allowed(limit)
            assert (caught.value.limit, caught.value.needed) == (limit, shortest)
            with pytest.raises(fsa_compile.BudgetError):
                constraint.walk().advance(1, limit)
        if getattr(constraint, "shortest_depth", 0):
            with pytest.raises(fsa_compile.BudgetError, match="stack cells"):
                Matcher(constraint, max_depth=constraint.shortest_depth - 1)


def test_a_matcher_keeps_to_its_depth():
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"[", b"]"], stop_ids=[0])
    nested = fsa_compile.compile_grammar('start: "[" start? "]"', vocabulary)
    matcher = Matcher(nested, max_depth=2)
    opened = 0
    while matcher.walk.allowed()[1]:
        assert matcher.accept_token(1)
        opened += 1
    assert 0 < opened < 5
    assert not matcher.accept_token(1)
    assert matcher.accept_tokens([2] * opened + [0])


def completions(constraint, tokens, limit):
    """All texts of a finite constraint, by brute force over token sequences."""
    out, todo = set(), [(constraint.walk(), b"")]
    while todo:
        walk, text = todo.pop()
        if walk.accepting:
            out.add(text)
        for token in np.flatnonzero(walk.allowed()).tolist():
            if token not in constraint.stop_ids and len(text) < limit:
                there = walk.copy()
                there.advance(token)
                todo.append((there, text + tokens[token]))
    return out


@pytest.mark.parametrize("pattern", ["yesab", "(yes|yesab|yesc)", "name(a|b)", "a?b", "é(€|日)", "(aaa|aab)(bb)?", "aé|aè"])
def test_forced_text_is_the_common_beginning(pattern):
    v = vocabulary()
    constraint = fsa_compile.compile_regex(pattern, v)
    matcher = Matcher(constraint, v)
    rng = random.Random(pattern)
    while not matcher.is_terminated():
        rest = sorted(t for t in completions(fsa_compile.compile_regex(pattern, v), v.tokens, 12))
        done = b"".join(v.tokens[t] for t in matcher.tokens)
        rest = [t[len(done) :] for t in rest if t.startswith(done)]
        common = rest[0]
        for text in rest:
            while not text.startswith(common):
                common = common[:-1]
        assert forced_bytes(matcher.walk, v.tokens) == common
        assert matcher.find_jump_forward_string() == common.decode("utf-8", "ignore")
        matcher.accept_token(rng.choice(np.flatnonzero(matcher.walk.allowed()).tolist()))


def test_within_a_character_no_string_is_forced():
    """The rest of it is forced, which is no string; what follows it would be another text."""
    matcher = Matcher(fsa_compile.compile_regex("a€ab", vocabulary()), vocabulary())
    forced = []
    for byte in "a€ab".encode():
        forced.append(matcher.find_jump_forward_string())
        assert matcher.accept_token(vocabulary().tokens.index(bytes([byte])))
    assert forced == ["a€ab", "€ab", "", "", "ab", "b"]


def test_forced_text_of_canonical_tokens():
    """Where the tokenization matters, every tokenization that is left must agree."""
    for pattern in ("aba", "ab(a|b)", "aab?"):
        constraint, tables = canonical(pattern)
        tokens = TOKENS
        texts = [t for t in (b"aba", b"abb", b"aa", b"aab") if re.fullmatch(pattern.encode(), t)]
        common = texts[0]
        for text in texts:
            while not text.startswith(common):
                common = common[:-1]
        assert forced_bytes(Matcher(constraint, tables=tables).walk, tokens) == common
    with pytest.raises(ConstraintError, match="tokenizer"):
        Matcher(all_kinds()["words"]).find_jump_forward_string()


@pytest.mark.parametrize("beams", [1, 3])
def test_rows_known_by_their_tokens(beams):
    """Rows grow, are reordered, copied, forgotten and dead; masks are those of fresh walks."""
    constraints = [all_kinds()["pattern"], None, all_kinds()["stack"]]
    size, rng = vocabulary().size, random.Random(beams)
    masks = BatchMasks(constraints, beams=beams, max_new_tokens=8)
    texts: list[list[int]] = [[] for _ in range(3 * beams)]
    dead = 0
    for _ in range(9):
        words, masked = masks(texts)
        for row, text in enumerate(texts):
            constraint = constraints[row // beams]
            if constraint is None:
                assert not masked[row]
                text.append(rng.randrange(size))
                continue
            walk, legal = constraint.walk(), True
            for token in text:
                try:
                    if not walk.finished:
                        walk.advance(token)
                except ValueError:
                    legal = False
                    break
            expected = walk.allowed(8 - len(text)) if legal else np.zeros(size, bool)
            if legal and walk.finished:
                expected[list(constraint.stop_ids)] = True
            assert masked[row]
            assert (bitmask.unpacked(words[row], size) == expected).all()
            ids = np.flatnonzero(expected).tolist()
            if beams > 1 and rng.random() < 0.15:
                text.append(rng.randrange(size))
                dead += not expected[text[-1]]
            else:
                text.append(rng.choice(ids) if ids else 0)
        if beams > 1:  # as beam search: rows of one prompt come from any of them
            texts = [list(texts[row // beams * beams + rng.randrange(beams)]) for row in range(len(texts))]
    assert dead or beams == 1


def test_rows_that_do_not_fit_are_refused():
    pattern = all_kinds()["pattern"]
    with pytest.raises(ConstraintError, match="row 1, 0 tokens"):
        BatchMasks([None, pattern])([[], [vocabulary().tokens.index(b"1")]])
    with pytest.raises(ConstraintError, match="2 constraints with 2 beams"):
        BatchMasks([pattern, None], beams=2)([[], []])
    with pytest.raises(ConstraintError, match="at least one"):
        BatchMasks([])
    with pytest.raises(ConstraintError, match="vocabularies"):
        BatchMasks([pattern, fsa_compile.compile_items([[1]], 4, stop_ids=(3,))])
    with pytest.raises(ConstraintError, match="stop_ids"):
        BatchMasks(fsa_compile.compile_items([[1]], 4))
    with pytest.raises(ConstraintError, match="compiled constraint"):
        Matcher("yes|no")
    with pytest.raises(ArtifactError, match="compiled for vocabulary"):
        Matcher(pattern, fsa_compile.Vocabulary.from_tokens([b"a", b""], stop_ids=[1]))
