"""Log-probabilities for losses: `score`'s numbers, gradients by finite differences, and importance weights that are unbiased."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.toy_decoder import toy

import fsa_compile as fc
import jax_decode
import models
from fsa_compile.vocabulary import Vocabulary
from jax_decode import DecodeError

VOCABULARY = Vocabulary.from_tokens([b"", b"a", b"b", b"c", b"ab", b"[", b"]", b"[["], stop_ids=[0])
WIDTH = 10
CASES = {
    "pattern": (lambda: fc.compile_regex("a{1,2}(b|c)?", VOCABULARY), [[1, 1, 2, 0], [4, 0], [1, 3, 0]]),
    "stack": (lambda: fc.compile_grammar('start: "[" start? "]"', VOCABULARY), [[7, 6, 6, 0], [5, 6, 0]]),
}


def padded(rows):
    width = max(map(len, rows))
    return jnp.asarray([row + [0] * (width - len(row)) for row in rows]), jnp.asarray([len(row) for row in rows])


def logits_of(decoder, tokens):
    """The logits that each token is chosen from, after a prompt of one token."""
    cache = decoder.init_cache(len(tokens), tokens.shape[1] + 1)
    before = jnp.concatenate([jnp.full((len(tokens), 1), 1), tokens[:, :-1]], 1)
    with jax.numpy_rank_promotion("allow"):  # the model's own business
        return decoder.apply(before, cache, jnp.full(len(tokens), tokens.shape[1]))[0]


@pytest.mark.parametrize("name", CASES)
def test_they_are_the_scores(name):
    make, rows = CASES[name]
    tables, decoder = jax_decode.to_device(make()), toy(WIDTH)
    tokens, lengths = padded(rows)
    got = jax.jit(jax_decode.token_logprobs)(logits_of(decoder, tokens), tokens, tables, lengths=lengths)
    want = jax_decode.score(decoder, [[1]], tables, tokens=[row[:-1] for row in rows], always_stop=True)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(got.raw[i, : len(row) - 1], want.raw_logprobs[i], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got.constrained[i, : len(row) - 1], want.logprobs[i], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got.raw[i, len(row) - 1], want.raw_stop_logprobs[i], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got.constrained[i, len(row) - 1], want.stop_logprobs[i], rtol=1e-5, atol=1e-5)
    assert not np.asarray(got.raw[1, lengths[1] :]).any()


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_finite_differences(name):
    make, rows = CASES[name]
    tables, (tokens, lengths) = jax_decode.to_device(make()), padded(rows)
    rng = np.random.default_rng(0)
    logits, direction = jnp.asarray(rng.normal(size=(2, len(rows), tokens.shape[1], WIDTH)), jnp.float32)
    weight = jnp.asarray(rng.normal(size=tokens.shape), jnp.float32)

    @jax.jit
    def loss(logits):
        found = jax_decode.token_logprobs(logits, tokens, tables, lengths=lengths)
        return (found.constrained * weight + 0.5 * found.raw).sum()

    slope = (jax.grad(loss)(logits) * direction).sum()
    np.testing.assert_allclose(
        slope, (loss(logits + 0.01 * direction) - loss(logits - 0.01 * direction)) / 0.02, rtol=5e-3, atol=1e-4
    )


def direction_of(decoder, seed=0):
    """A random change of every parameter, a tenth of its size."""
    leaves, tree = jax.tree.flatten(decoder)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return tree.unflatten([0.1 * (x.std() + 0.1) * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys)])


def slope_and_difference(loss, decoder, step):
    """The derivative along a direction: by `jax.grad`, and by a central difference."""
    way = direction_of(decoder)
    grad = jax.jit(jax.grad(loss))(decoder)
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(grad))
    slope = sum((a * b).sum() for a, b in zip(jax.tree.leaves(grad), jax.tree.leaves(way)))
    ends = [loss(jax.tree.map(lambda x, d, at=at: x + at * d, decoder, way)) for at in (step, -step)]
    return float(slope), float(ends[0] - ends[1]) / (2 * step)


@pytest.mark.sampled(2, every=("name", "stops"))
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_scores_have_gradients_through_parameters(name, stops):
    """`score` under `jax.grad`, with sequences of several lengths: both totals, and the values are those without it."""
    make, rows = CASES[name]
    tables, decoder = jax_decode.to_device(make()), toy(WIDTH, seed=5)
    given = {"tokens": [row[:-1] for row in rows], "always_stop": stops}

    def loss(decoder):
        scores = jax_decode.score(decoder, [[1]], tables, **given)
        return 0.7 * scores.total_logprob.sum() + 0.3 * scores.raw_total_logprob.sum()

    np.testing.assert_allclose(*slope_and_difference(loss, decoder, 0.02), rtol=2e-3)
    value, want = jax.value_and_grad(loss)(decoder)[0], loss(decoder)
    np.testing.assert_allclose(value, want, rtol=1e-5)
    assert isinstance(want, np.floating)


def test_scores_of_a_transformer_have_gradients():
    """Prompts of two lengths, through attention and caches."""
    gemma = models.tiny_gemma(vocab_size=WIDTH)
    tables = jax_decode.to_device(fc.compile_regex("a{1,2}(b|c)?", VOCABULARY))

    def loss(decoder):
        prompts = [[1, 5, 6], [2]]
        return jax_decode.score(decoder, prompts, tables, tokens=[[1, 2], [1, 1, 3]], constraint=0).total_logprob.sum()

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):  # the model's own business
        np.testing.assert_allclose(*slope_and_difference(loss, gemma, 0.05), rtol=1e-2)


def test_a_forbidden_sequence_has_no_gradient():
    tables = jax_decode.to_device(fc.compile_regex("ab", VOCABULARY))
    grad = jax.grad(lambda d: jax_decode.score(d, [[1]], tables, tokens=[[1, 3, 1]]).logprobs[0][0])(toy(WIDTH))
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(grad))


def test_the_log_mass_as_a_loss():
    """Exact by `score` of all texts, and by finite differences; each text as often as the mask draws it gives the same gradient."""
    constraint = fc.compile_regex("(a|ab){1,2}", VOCABULARY)
    tables, decoder = jax_decode.to_device(constraint), toy(WIDTH, seed=6)
    texts = [row for n in (1, 2, 3, 4) for row in itertools.product(range(1, 8), repeat=n) if _accepts(constraint, row)]

    def exact(decoder):
        return jax.nn.logsumexp(jnp.asarray(jax_decode.score(decoder, [[1]], tables, tokens=texts, always_stop=True).raw_total_logprob))

    np.testing.assert_allclose(*slope_and_difference(exact, decoder, 0.02), rtol=2e-3)
    mass = jax_decode.log_mass(decoder, [[1]], tables, max_new_tokens=8, always_stop=True)
    np.testing.assert_allclose(exact(decoder), float(mass), rtol=1e-5)

    tokens, lengths = padded([[*row, 0] for row in texts])
    often = jax_decode.token_logprobs(logits_of(decoder, tokens), tokens, tables, lengths=lengths).constrained.sum(1)
    copies = np.repeat(np.arange(len(texts)), np.round(100_000 * np.exp(np.asarray(often))).astype(int))

    def sampled(decoder):
        found = jax_decode.token_logprobs(logits_of(decoder, tokens), tokens, tables, lengths=lengths)
        return jax_decode.sampled_log_mass(jax_decode.TokenLogprobs(found.raw[copies], found.constrained[copies]))

    np.testing.assert_allclose(sampled(decoder), float(mass), rtol=5e-3)
    for one, other in zip(jax.tree.leaves(jax.jit(jax.grad(sampled))(decoder)), jax.tree.leaves(jax.jit(jax.grad(exact))(decoder))):
        np.testing.assert_allclose(one, other, rtol=0.02, atol=2e-3)


def test_forbidden_tokens_have_no_gradient():
    tables = jax_decode.to_device(fc.compile_regex("ab", VOCABULARY))
    tokens = jnp.array([[1, 3]])
    found = jax_decode.token_logprobs(jnp.zeros((1, 2, WIDTH)), tokens, tables)
    assert found.constrained[0, 1] == -np.inf
    grad = jax.grad(lambda x: jax_decode.token_logprobs(x, tokens, tables).constrained[0, 0])(jnp.zeros((1, 2, WIDTH)))
    assert np.isfinite(np.asarray(grad)).all()


def test_importance_weights_are_unbiased():
    """Summed over every text: the weights' mean is the constraint's mass, and weighted samples have the model's own gradient."""
    constraint = fc.compile_regex("(a|ab){1,2}", VOCABULARY)
    tables, decoder = jax_decode.to_device(constraint), toy(WIDTH, seed=3)
    texts = [row for n in (1, 2, 3, 4) for row in itertools.product(range(1, 8), repeat=n) if _accepts(constraint, row)]
    tokens, lengths = padded([[*row, 0] for row in texts])
    start = logits_of(decoder, tokens)

    def log_mass(shift):
        found = jax_decode.token_logprobs(start + shift, tokens, tables, lengths=lengths)
        return jax.nn.logsumexp(found.raw.sum(1))

    def surrogate(shift):
        found = jax_decode.token_logprobs(start + shift, tokens, tables, lengths=lengths)
        proposal = jax.lax.stop_gradient(jnp.exp(found.constrained.sum(1)))  # each text as often as the mask samples it
        weight = jax_decode.importance_weights(found)
        return (proposal * weight * found.raw.sum(1)).sum() / (proposal * weight).sum()

    found = jax_decode.token_logprobs(start, tokens, tables, lengths=lengths)
    np.testing.assert_allclose(jnp.exp(found.constrained.sum(1)).sum(), 1, rtol=1e-5)
    mean = (jnp.exp(found.constrained.sum(1)) * jax_decode.importance_weights(found)).sum()
    np.testing.assert_allclose(jnp.log(mean), log_mass(jnp.zeros(WIDTH)[None, None]), rtol=1e-5)
    exact, sampled = (jax.jit(jax.grad(f))(jnp.zeros((1, 1, WIDTH))) for f in (log_mass, surrogate))
    np.testing.assert_allclose(exact, sampled, rtol=1e-4, atol=1e-6)


def test_weights_of_groups_have_the_mean_one():
    """Within each group, whatever its mass; a forbidden text weighs nothing, and nothing flows back."""
    raw = jnp.array([[-1.0, -2.0], [-0.5, 0.0], [-400.0, 0.0], [-401.0, -1.0], [-3.0, 0.0]])
    masked = jnp.array([[-0.5, -1.0], [-0.25, 0.0], [-1.0, 0.0], [-1.0, -1.0], [-jnp.inf, 0.0]])
    groups = jnp.array([7, 7, 3, 3, 3])
    got = np.asarray(jax_decode.importance_weights(jax_decode.TokenLogprobs(raw, masked), groups))
    np.testing.assert_allclose([got[:2].mean(), got[2:].mean()], 1, rtol=1e-5)
    assert got[0] / got[1] == pytest.approx(np.exp(-1.25), 1e-4)
    assert got[2] / got[3] == pytest.approx(np.exp(1), 1e-4)
    assert got[4] == 0
    plain = np.asarray(jax_decode.importance_weights(jax_decode.TokenLogprobs(raw, masked)))
    np.testing.assert_allclose(plain[:2], np.exp([-1.5, -0.25]), rtol=1e-6)
    for given in (None, groups):
        grad = jax.grad(lambda x, given=given: jax_decode.importance_weights(jax_decode.TokenLogprobs(x, masked), given)[0])(raw)
        assert not np.asarray(grad).any()


def test_weighted_samples_learn_the_expected_reward():
    """Summed over every draw of the mask: the weighted policy gradient is that of the model's expected reward, given the constraint too."""
    constraint = fc.compile_regex("(a|ab){1,2}", VOCABULARY)
    tables, decoder = jax_decode.to_device(constraint), toy(WIDTH, seed=4)
    texts = [row for n in (1, 2, 3, 4) for row in itertools.product(range(1, 8), repeat=n) if _accepts(constraint, row)]
    tokens, lengths = padded([[*row, 0] for row in texts])
    start, rewards = logits_of(decoder, tokens), jnp.asarray(np.random.default_rng(0).normal(size=len(texts)), jnp.float32)

    def logprobs(shift):
        return jax_decode.token_logprobs(start + shift, tokens, tables, lengths=lengths)

    def expected(shift, given):
        raw = logprobs(shift).raw.sum(1)
        return (jnp.exp(raw) * rewards).sum() / (jnp.exp(raw).sum() if given else 1)

    def sampled(shift, given):
        """Policy gradient; for the conditional distribution with the weighted mean as the baseline, as the Tunix loss has it."""
        found = logprobs(shift)
        often = jax.lax.stop_gradient(jnp.exp(found.constrained.sum(1)))
        weights = jax_decode.importance_weights(found) * often
        weights = weights / weights.sum() if given else weights
        return (weights * (rewards - (weights * rewards).sum() * float(given)) * found.raw.sum(1)).sum()

    shift = jnp.asarray(np.random.default_rng(1).normal(size=(1, 1, WIDTH)), jnp.float32)
    for given in (False, True):
        exact, estimate = (jax.jit(jax.grad(f), static_argnums=1)(shift, given) for f in (expected, sampled))
        assert np.abs(np.asarray(exact)).max() > 1e-4
        np.testing.assert_allclose(exact, estimate, rtol=1e-3, atol=1e-6)


def _accepts(constraint, row):
    walk = constraint.walk()
    for token in row:
        if not walk.allowed()[token]:
            return False
        walk.advance(token)
    return walk.accepting


@pytest.mark.parametrize(
    ("logits", "tokens", "text"),
    [
        (jnp.zeros((1, 8)), jnp.zeros((1, 1), jnp.int32), r"\[B, T, V\]"),
        (jnp.zeros((1, 2, 8)), jnp.zeros((1, 3), jnp.int32), "tokens are"),
        (jnp.zeros((1, 2, 5)), jnp.zeros((1, 2), jnp.int32), "below the vocabulary"),
    ],
)
def test_mistakes_are_told(logits, tokens, text):
    with pytest.raises(DecodeError, match=text):
        jax_decode.token_logprobs(logits, tokens, jax_decode.to_device(fc.compile_regex("ab", VOCABULARY)))
