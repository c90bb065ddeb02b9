"""What walks share changes nothing: masks and steps are those of the definition, whoever walked before and whatever was forgotten."""

from __future__ import annotations

import copy
import gc
import pickle
import random

import numpy as np
import pytest
from interop.constraints import all_kinds, vocabulary

import fsa_compile
from fsa_compile import bitmask
from fsa_compile.artifact import step_memo
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.artifact.bitmask import words_of
from fsa_compile.errors import BudgetError

KINDS = ("pattern", "words", "counter", "stack", "stacks", "keys")


def due(walk, remaining) -> np.ndarray:
    """The mask source by source: what `words_at` reads, and the end of the text."""
    c = walk.constraint
    words = words_of(c.stop_ids if walk.accepting else [], c.vocab_size)
    for at in walk.configurations:
        words |= walk.words_at(at, int(UNREACHABLE) if remaining is None else remaining)
    return np.zeros_like(words) if walk.finished else words


@pytest.mark.parametrize("kept", ["all", "few", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_steps_are_those_of_the_definition(kind, kept, monkeypatch):
    constraint, rng = all_kinds()[kind], random.Random(kind + kept)
    if kept != "all":
        monkeypatch.setattr(step_memo, "MOST_STEPS", 3 if kept == "none" else 40)
        monkeypatch.setattr(step_memo, "MOST_BYTES", 0 if kept == "none" else 300)
    out = bitmask.allocate_bitmask(1, constraint.vocab_size)
    for _ in range(40):
        depth = rng.choice([None, None, 6]) if kind in ("stack", "stacks") else None
        walk, left = constraint.walk(max_depth=depth), rng.choice([None, 8, 12, 200])
        for _ in range(12):
            if left is not None and left < walk.distance:
                with pytest.raises(BudgetError):
                    walk.allowed_words(left)
                break
            words = due(walk, left)
            assert (walk.allowed_words(left) == words).all()
            full = np.unpackbits(words.view(np.uint8), bitorder="little")[: constraint.vocab_size].all()
            assert walk.fill_bitmask(out, 0, left) == (not full)
            assert (out[0].view(np.uint32) == words).all()
            walk.allowed_words(left)[:] = 0  # a copy
            ids = np.flatnonzero(bitmask.unpacked(words, constraint.vocab_size))
            if walk.finished or not len(ids):
                break
            token = int(rng.choice(ids.tolist()))
            reached = [walk.after(at, token) for at in walk.configurations]
            ends = token in constraint.stop_ids
            walk.advance(token, left)
            assert ends or set(walk.configurations) <= {at for at in reached if at is not None} or kind in ("stacks", "keys")
            left = None if left is None else left - (not ends)


def test_a_step_known_without_a_limit_is_refused_within_one():
    constraint = all_kinds()["stack"]
    opening = vocabulary().tokens.index(b"(")
    free, bound = constraint.walk(), constraint.walk()
    free.advance(opening)
    needed = free.distance + 1
    assert needed > bound.distance
    with pytest.raises(ValueError, match="not allowed"):
        bound.advance(opening, needed - 1)
    bound.advance(opening, needed)
    assert bound.configurations == free.configurations


@pytest.mark.parametrize("kind", KINDS)
def test_walks_are_pickled_and_copied(kind):
    walk = all_kinds()[kind].walk()
    for _ in range(2):
        walk.advance(int(np.flatnonzero(walk.allowed())[0]))
    for other in (pickle.loads(pickle.dumps(walk)), copy.deepcopy(walk), copy.copy(walk)):
        assert other.configurations == walk.configurations
        assert (other.allowed() == walk.allowed()).all()
        other.rewind(1)
        assert other.num_tokens == walk.num_tokens - 1


def test_memory_is_bounded_and_goes_with_the_constraint():
    made = fsa_compile.compile_regex("[a-f]{1,6}", vocabulary())
    known = len(step_memo._KEPT.memos)
    walk = made.walk()
    walk.allowed()
    assert len(step_memo._KEPT.memos) >= known
    del walk, made
    gc.collect()
    assert len(step_memo._KEPT.memos) <= known


def test_a_batch_steps_by_one_call():
    constraint, tokens = all_kinds()["pattern"], vocabulary().tokens
    matchers = [fsa_compile.Matcher(constraint, vocabulary()) for _ in range(3)]
    words = bitmask.allocate_bitmask(4, constraint.vocab_size)
    accepted, must_apply = fsa_compile.step_matchers(matchers, None, words, [0, 2, 3])
    assert accepted == must_apply == [True] * 3
    assert (words[1] == -1).all()
    yes, a = (tokens.index(t) for t in (b"yes", b"a"))
    accepted, _ = fsa_compile.step_matchers(matchers, [yes, None, tokens.index(b"z")], words, [0, 2, 3])
    assert accepted == [True, True, False]
    for matcher, row in zip(matchers, (0, 2, 3)):
        assert (bitmask.unpacked(words[row], constraint.vocab_size) == matcher.walk.allowed()).all()
    with pytest.raises(fsa_compile.ConstraintError, match="1 tokens for 3 matchers"):
        fsa_compile.step_matchers(matchers, [a], words)
