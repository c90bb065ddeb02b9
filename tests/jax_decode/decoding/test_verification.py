"""How often a draft is kept, and what replaces it: frequencies, at odds that show a bias of 0.05 in the log-ratio."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.compilation import RUNS_LONG
from oracles.exact_texts import drawn

from jax_decode import Categorical, MinP, TopK, TopP
from jax_decode.decoding.verification import Drafted, by_rejection
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.row_layout import words_for
from jax_decode.sampling.sampling import among

WIDTH, EACH = 6, 20_000
"""Ids, and rows that draft each of them: a frequency near 0.5 has a standard error of 0.0035, the bias moves it by 0.025."""
SAMPLERS = [Categorical(1.0), Categorical(1.7), TopK(4), TopP(0.9), MinP(0.05)]
TARGET = np.log(np.array([[0.3, 0.25, 0.2, 0.12, 0.08, 0.05], [0.05, 0.4, 0.1, 0.15, 0.2, 0.1], [1, 1, 1, 1, 1, 1]]))
DRAFT = np.log(np.array([[0.5, 0.1, 0.1, 0.18, 0.02, 0.1], [0.2, 0.2, 0.2, 0.2, 0.1, 0.1]]))


def probabilities(sampler, logits: np.ndarray) -> np.ndarray:
    return np.stack([drawn(sampler, row, np.ones(WIDTH, bool)) for row in logits])


@pytest.fixture(scope="module", params=SAMPLERS, ids=repr)
def verdicts(request):
    """(sampler, first drafts, second drafts, kept, the token that follows them) of many rows, each with noise of its own."""
    sampler = request.param
    first = np.repeat(np.arange(WIDTH), EACH)
    second = np.tile(np.arange(WIDTH), EACH)
    with np.errstate(divide="ignore"):
        q = np.log(probabilities(sampler, DRAFT))
    rows = len(first)
    key = jnp.asarray(np.random.default_rng(5).integers(0, 1 << 32, (rows, 2), np.uint32))
    logits = jnp.asarray(np.repeat(TARGET, rows, 0), jnp.float32)
    step = jnp.tile(jnp.arange(3, dtype=jnp.int32)[:, None], (1, rows))
    tokens = jnp.asarray(np.stack([first, second]), jnp.int32)
    logprobs = jnp.asarray(np.stack([q[0, first], q[1, second]]), jnp.float32)
    own = jnp.asarray(np.repeat(DRAFT[:, None], rows, 1), jnp.float32)

    @functools.partial(jax.jit, compiler_options=RUNS_LONG)
    def verdict(key, logits, step, *drafted):
        allowed = among(logits, None, Columns(words_for(WIDTH)))
        return by_rejection(sampler, allowed, None, key, step, Drafted(*drafted, False), WIDTH)

    found = verdict(key, logits, step, tokens, logprobs, own)
    return sampler, first, second, np.asarray(found.kept), np.asarray(found.token)


def assert_frequency(found: np.ndarray, expected: float) -> None:
    """Within four standard errors, less than half of what the bias does where it does anything."""
    assert abs(found.mean() - expected) <= 4 * np.sqrt(expected * (1 - expected) / len(found)) + 1e-6


def test_a_draft_is_kept_as_often_as_the_ratio_says(verdicts):
    sampler, first, second, kept, _ = verdicts
    p, q = probabilities(sampler, TARGET), probabilities(sampler, DRAFT)
    partly = 0
    for token in range(WIDTH):
        for place, drafts, rows in ((0, first, kept >= 0), (1, second, kept >= 1)):
            if q[place, token] > 0:
                ratio = min(1.0, p[place, token] / q[place, token])
                assert_frequency((kept > place)[rows & (drafts == token)], ratio)
                partly += 0.2 < ratio < 0.8
    assert partly >= 3


def test_what_replaces_a_draft_is_drawn_from_what_the_draft_left_out(verdicts):
    sampler, first, second, kept, token = verdicts
    p, q = probabilities(sampler, TARGET), probabilities(sampler, DRAFT)
    del first, second
    for place in range(2):
        rest = np.maximum(p[place] - q[place], 0)
        for index in range(WIDTH):
            assert_frequency(token[kept == place] == index, rest[index] / rest.sum())
    for index in range(WIDTH):
        assert_frequency(token[kept == 2] == index, p[2, index])
