"""Log-probabilities for losses: `score`'s numbers, gradients by finite differences, and importance weights that are unbiased."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.toy_decoder import toy

import fsa_compile as fc
import jax_decode
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

    def loss(logits):
        found = jax_decode.token_logprobs(logits, tokens, tables, lengths=lengths)
        return (found.constrained * weight + 0.5 * found.raw).sum()

    slope = (jax.grad(loss)(logits) * direction).sum()
    np.testing.assert_allclose(
        slope, (loss(logits + 0.01 * direction) - loss(logits - 0.01 * direction)) / 0.02, rtol=5e-3, atol=1e-4
    )


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
        weight = jax.lax.stop_gradient(jnp.exp((found.raw - found.constrained).sum(1)))
        return (proposal * weight * found.raw.sum(1)).sum() / (proposal * weight).sum()

    found = jax_decode.token_logprobs(start, tokens, tables, lengths=lengths)
    np.testing.assert_allclose(jnp.exp(found.constrained.sum(1)).sum(), 1, rtol=1e-5)
    mean = (jnp.exp(found.constrained.sum(1)) * jnp.exp((found.raw - found.constrained).sum(1))).sum()
    np.testing.assert_allclose(jnp.log(mean), log_mass(jnp.zeros(WIDTH)[None, None]), rtol=1e-5)
    exact, sampled = (jax.grad(f)(jnp.zeros((1, 1, WIDTH))) for f in (log_mass, surrogate))
    np.testing.assert_allclose(exact, sampled, rtol=1e-4, atol=1e-6)


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
