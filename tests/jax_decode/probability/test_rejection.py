"""Adaptive weighted rejection sampling: tokens and weights against exact sums, and that the same test finds a biased weight."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made

import jax_decode
from jax_decode import DecodeError, LookAhead, Rejection
from jax_decode.probability.proposals import check_proposal, draw, weighted_rejection
from jax_decode.sampling.samplers import Categorical
from jax_decode.sampling.sampling import Choice, sample

ROWS = 10_000
SIZE = 16
LOGITS = np.random.default_rng(0).normal(size=SIZE) * 1.5
ALLOWED = np.random.default_rng(1).random(SIZE) < 0.3
LIMIT = 5.0
"""Standard errors; a fair weight is that far off once in 1.7 million tests."""


def exact() -> np.ndarray:
    """Probability of every allowed token under the model, 0 for the others."""
    p = np.exp(LOGITS - LOGITS.max())
    return np.where(ALLOWED, p / p.sum(), 0)


@functools.partial(jax.jit, static_argnames="rows")
def drawn(allowed, key, max_rejects, rows):
    logits = jnp.broadcast_to(jnp.asarray(LOGITS, jnp.float32), (rows, SIZE))
    words = jax_decode.key_words(jax.random.split(key, rows))
    rest = jnp.where(allowed[None], logits, -jnp.inf)

    def masked(counter) -> Choice:
        choice = sample(Categorical(None), rest, words, counter)
        share = jax.nn.logsumexp(rest, axis=1) - jax.nn.logsumexp(logits, axis=1)
        some = allowed.any()
        return choice._replace(token=jnp.where(some, choice.token, -1), raw_logprob=choice.logprob + share)

    step, needed = jnp.full(rows, 3, jnp.uint32), jnp.ones(rows, bool)
    return weighted_rejection(logits, words, step, lambda t: allowed[t], masked, max_rejects, needed)


def run(max_rejects: int, seed: int = 0, allowed=ALLOWED, rows: int = ROWS):
    out = drawn(jnp.asarray(allowed), jax.random.key(seed), jnp.int32(max_rejects), rows)
    return jax.tree.map(np.asarray, out)


def deviations(token: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Standard errors between the mean of `weight` over the draws of each token, and the token's probability."""
    each = np.where(token[:, None] == np.flatnonzero(ALLOWED), weight[:, None].astype(np.float64), 0)
    return (each.mean(0) - exact()[ALLOWED]) / (each.std(0) / np.sqrt(len(token)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("max_rejects", [0, 1, 3, 8, 64])
def test_draws_are_properly_weighted(max_rejects):
    """E[w; token] is the token's probability: the token is distributed as by masking, and the weight's mean is the allowed mass."""
    out = run(max_rejects, seed=max_rejects)
    assert ALLOWED[out.token].all()
    assert np.abs(deviations(out.token, np.exp(out.log_weight))).max() < LIMIT
    counts = np.bincount(out.token, minlength=SIZE)[ALLOWED]
    p = exact()[ALLOWED] / exact().sum()
    assert (np.abs(counts - ROWS * p) < LIMIT * np.sqrt(ROWS * p * (1 - p))).all()
    np.testing.assert_allclose(np.exp(out.raw_logprob), exact()[out.token], rtol=1e-5)
    assert out.draws.max() <= max_rejects + 2
    if max_rejects == 0:
        np.testing.assert_allclose(np.exp(out.log_weight), exact().sum(), rtol=1e-5)
    else:
        assert out.draws.std() > 0


def test_the_test_finds_biased_weights():
    """The estimators of draws with replacement are wrong for draws without; and so is no weight at all."""
    out = run(64)
    weights = np.exp(out.log_weight)
    assert np.abs(deviations(out.token, weights)).max() < LIMIT
    for biased in (1 / (out.draws - 1), 2 / out.draws, np.ones(ROWS), weights * 1.2):
        assert np.abs(deviations(out.token, biased)).max() > 2 * LIMIT


def test_all_or_nothing_allowed():
    everything = run(8, allowed=np.ones(SIZE, bool), rows=50)
    np.testing.assert_allclose(everything.log_weight, 0, atol=1e-6)
    assert (everything.draws == 2).all()
    nothing = run(8, allowed=np.zeros(SIZE, bool), rows=50)
    assert (nothing.token == -1).all()
    assert (nothing.log_weight == -np.inf).all()
    rare = np.exp(run(64, allowed=LOGITS.min() == LOGITS, rows=2000).log_weight)
    p = np.exp(LOGITS.min()) / np.exp(LOGITS).sum()
    assert abs(rare.mean() - p) < LIMIT * rare.std() / np.sqrt(2000)


def test_tables_as_the_check():
    """The allowed tokens of bit rows and of lists are found one by one just as by the mask."""
    constraints = [hand_made.random_constraint(i, 64) for i in range(12)]
    tables = jax_decode.to_device(constraints)
    which = np.arange(2400) % 12
    state = jax_decode.init_state(tables, which, np.full(2400, 40))
    logits = jax.random.normal(jax.random.key(0), (1, 64)).repeat(2400, 0)
    words = jax_decode.key_words(jax.random.split(jax.random.key(1), 2400))
    out = jax.jit(draw)(Rejection(jnp.int32(64)), logits, words, jnp.zeros(2400, jnp.uint32), tables, state)
    p = np.asarray(jax.nn.softmax(logits[0]), np.float64)
    for i, c in enumerate(constraints):
        token, weight = np.asarray(out.token)[which == i], np.exp(np.asarray(out.log_weight, np.float64)[which == i])
        allowed = c.walk().allowed(40)
        assert allowed[token].all()
        assert abs(weight.mean() - p[allowed].sum()) <= LIMIT * weight.std() / np.sqrt(200) + 1e-5


def test_errors():
    with pytest.raises(DecodeError, match=r"the proposal is 'masked'\n  Give Masked\(\)"):
        check_proposal("masked")
    for most in (-1, 2.5, True, 1 << 20):
        with pytest.raises(DecodeError, match="max_rejects is"):
            check_proposal(Rejection(most))
    for wrong in (LookAhead(candidates=0), LookAhead(slots=2.5), LookAhead(slots=8, values=np.zeros(4))):
        with pytest.raises(DecodeError, match="LookAhead"):
            check_proposal(wrong)
