"""Canonical constraints under drafts and in beams: the texts of plain decoding, and of a search on the host walk."""

from __future__ import annotations

import random

import jax
import numpy as np
from oracles import searches, toy_merges
from oracles.block_decoder import block_toy, disturbed
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile import CanonicalWalk, CompileLimits, Vocabulary, compile_regex
from fsa_compile.canonical.restrict import canonical_product
from fsa_compile.canonical.toy import toy_tables
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import tables_for
from jax_decode import Categorical, ModelDraft, PromptLookup, Status

PATTERNS = ("[abc]{2,12}", "(a|b)*c", "(abcab|abba){1,4}c")
_TOKENS, _MERGES = toy_merges.random_encoder(random.Random(8), letters=3, merges=6)
EVERY = [*_TOKENS, *(bytes([b]) for b in b"xyz"), b""]
STOP = len(EVERY) - 1
VOCABULARY = Vocabulary.from_tokens(EVERY, stop_ids=[STOP])
CANONICAL = toy_tables(EVERY, _MERGES, stop_ids=[STOP])


def compiled(pattern: str):
    limits = CompileLimits()
    return canonical_product(compile_regex(pattern, VOCABULARY), CANONICAL, tables_for(VOCABULARY), limits, Deadline(limits))


CONSTRAINTS = [compiled(pattern) for pattern in PATTERNS]
TABLES = jax_decode.to_device(CONSTRAINTS, canonical=CANONICAL)


class Walk(CanonicalWalk):
    """With the argument that other walks take."""

    def advance(self, token: int, remaining: int | None = None) -> None:
        del remaining
        super().advance(token)


def test_drafts_and_forced_runs_change_no_text(exhaustive):
    """The last token, on which the next mask depends, is taken back with the rest."""
    decoder = block_toy(len(EVERY), 2, scale=0.8)
    which = [0, 1, 2] * 8
    options = {
        "constraint": which, "max_new_tokens": [6 + i % 9 for i in range(24)], "sampler": Categorical(1.2), "key": jax.random.key(2),
        "raw_logprobs": False,
    }  # fmt: skip
    prompts = [[i % 5, i % 3] for i in range(24)]
    plain = jax_decode.generate(decoder, prompts, TABLES, **options)
    assert set(plain.status) == {Status.ACCEPTED}
    assert all(CANONICAL.is_canonical(t.tolist()) for t in plain.tokens)
    assert len({tuple(t.tolist()) for t in plain.tokens}) > 12
    modes = [
        {"draft": ModelDraft(disturbed(decoder, 0.5), 5, same_noise=True), "forced": 3},
        {"draft": PromptLookup(4), "forced": 4},
    ]
    for mode in modes if exhaustive else modes[:1]:
        out = jax_decode.generate(decoder, prompts, TABLES, **options, **mode)
        assert [t.tolist() for t in out.tokens] == [t.tolist() for t in plain.tokens]
        assert out.status == plain.status
        assert out.work.forced.sum() > 20
        assert 0 < out.work.accepted.sum() < out.work.drafted.sum()


def test_beams_are_the_plain_search():
    for penalty in (0.0, 1.0):
        decoder = toy(len(EVERY), 4)
        limits = [9, 7, 10]
        out = jax_decode.beam_search(
            decoder, [[1, 2]] * 3, TABLES, constraint=[0, 1, 2], beams=4, max_new_tokens=limits, length_penalty=penalty
        )
        logits = searches.toy_logits(decoder, [1, 2])
        for row, (constraint, limit) in enumerate(zip(CONSTRAINTS, limits)):
            found = searches.beam_search(logits, lambda c=constraint: Walk(c, CANONICAL), limit, (STOP,), 4, penalty)[:4]
            assert out.found[row] == len(found)
            for at, text in enumerate(found, row * 4):
                assert tuple(out.tokens[at].tolist()) == text.tokens
                np.testing.assert_allclose(out.scores[at], searches.score(text, penalty), atol=3e-4)
