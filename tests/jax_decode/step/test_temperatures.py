"""Temperatures of rules on the device: every row draws as a sampler at its temperature does, whatever stands beside it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.toy import every_byte

import jax_decode
from fsa_compile import Vocabulary, compile_grammar
from jax_decode import Categorical, DecodeError, FunctionDecoder, Greedy, MinP, ModelDraft, Status, TopK, TopP
from jax_decode.canvas.unfolding import unfold
from jax_decode.integrations.carried import carry
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.samplers import prepared
from jax_decode.serving.pool import ConstraintPool

V = every_byte([b'{"', b'":', b'",', b'",b:', b"}]"])
GRAMMAR = """start: "{" pair ("," pair)* "}"
pair: key ":" value
key[temperature=0]: /[a-z]+/
value: text | list | note
text[temperature=1.5]: /"[^"]*"/
list: "[" value ("," value)* "]"
note[temperature=0.25]: /#[a-z]{1,3}/
"""
HOT = compile_grammar(GRAMMAR, V)
PLAIN = compile_grammar(GRAMMAR.replace("[temperature=0]", "").replace("[temperature=1.5]", "").replace("[temperature=0.25]", ""), V)
BEGUN = [b"", b"{", b"{a", b"{a:", b'{a:"x', b"{a:#", b"{a:[#q", b"{a:[#q]", b'{a:"x",']
WANTED = [None, 0, 0, 1.5, 1.5, 0.25, 0.25, None, 0]
advance, sample = jax.jit(jax_decode.advance), jax.jit(jax_decode.sample)


def states(tables, which: int):
    """Rows that have read what has begun."""
    state = jax_decode.init_state(tables, np.full(len(BEGUN), which, np.int32), max_tokens=40)
    for i in range(max(map(len, BEGUN))):
        token = jnp.array([text[i] if i < len(text) else -1 for text in BEGUN], jnp.int32)
        after = advance(tables, state, token)
        state = jax.tree.map(lambda a, b, on=token >= 0: jnp.where(on.reshape(-1, *[1] * (a.ndim - 1)), a, b), after, state)
    return state


WIDE = 8192
"""Logits of so many rows that a CPU works on a few rows at a time."""
SAMPLERS = {
    "categorical": (Categorical, V.size),
    "few rows at a time": (Categorical, WIDE),
    "top-k": (lambda t: TopK(3, t), V.size),
    "top-p": (lambda t: TopP(0.8, t), WIDE),
    "min-p": (lambda t: MinP(0.1, t), V.size),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_row_draws_as_a_sampler_at_its_temperature(name):
    """With the same noise; log-probabilities are those of temperature 1."""
    make, width = SAMPLERS[name]
    hot, plain = (jax_decode.to_device(c, logits_width=width) for c in ([HOT, PLAIN], PLAIN))
    assert hot.has_temperatures
    assert not plain.has_temperatures
    rows = len(BEGUN)
    logits = jax.random.normal(jax.random.key(1), (rows, width)) * 3
    keys, step = key_words(jax.random.split(jax.random.key(2), rows)), jnp.zeros(rows, jnp.uint32)
    found = [sample(prepared(make(0.9)), logits, keys, step, hot, states(hot, which)) for which in (0, 1)]
    at = states(plain, 0)
    alone = {t: sample(prepared(Greedy() if t == 0 else make(t)), logits, keys, step, plain, at) for t in (0, 0.25, 0.9, 1.5)}
    for row, wanted in enumerate(WANTED):
        walk = HOT.walk()
        for token in BEGUN[row]:
            walk.advance(token)
        assert walk.temperature == wanted
        for expected, choice in ((alone[0.9 if wanted is None else wanted], found[0]), (alone[0.9], found[1])):
            assert choice.token[row] == expected.token[row]
            np.testing.assert_allclose(choice.logprob[row], expected.logprob[row], atol=1e-5)
            np.testing.assert_allclose(choice.raw_logprob[row], expected.raw_logprob[row], atol=1e-5)


TOKENS = [b"", *(bytes([c]) for c in b"ab:,"), b"ab", b":a", b"b,", b"a:b"]
SMALL = Vocabulary.from_tokens(TOKENS, stop_ids=[0])
PAIRS = """start: k ":" v ("," v)?
k[temperature=0.5]: /[ab]{1,2}/
v[temperature=4]: /[ab]{1,2}/
"""
PAIR = compile_grammar(PAIRS, SMALL)


def _apply(params, tokens, cache, lengths):
    return params[tokens], cache + lengths


def _init(batch, length):
    return jnp.zeros(batch, jnp.int32)


WEIGHTS = jax.random.normal(jax.random.key(7), (len(TOKENS), len(TOKENS))) * 2
DECODER = FunctionDecoder(_apply, WEIGHTS, _init, len(TOKENS), jnp.minimum)
LIMIT = 12


def endings(walk, tokens: tuple[int, ...], p: float):
    """Every text with its probability: at each step by NumPy, at the temperature of the walk, 0.7 where it has none."""
    allowed = np.flatnonzero(walk.allowed(LIMIT - len(tokens)))
    logits = np.asarray(WEIGHTS, np.float64)[tokens[-1] if tokens else 1][allowed] / (walk.temperature or 0.7)
    shares = np.exp(logits - logits.max())
    for token, share in zip(allowed.tolist(), shares / shares.sum()):
        if token == 0:
            yield tokens, p * share
            continue
        walk.advance(token)
        yield from endings(walk, (*tokens, token), p * share)
        walk.rewind(1)


def test_texts_have_the_probabilities_of_their_temperatures():
    n = 6000
    found = jax_decode.generate(
        DECODER, [1], jax_decode.to_device(PAIR), key=jax.random.key(5), sampler=Categorical(0.7), num_samples=n,
        max_new_tokens=LIMIT,
    )  # fmt: skip
    counts: dict[tuple[int, ...], int] = {}
    for status, tokens in zip(found.status, found.tokens):
        assert status == Status.ACCEPTED
        text = tuple(t for t in tokens.tolist() if t)
        counts[text] = counts.get(text, 0) + 1
    expected = dict(endings(PAIR.walk(), (), 1.0))
    assert abs(sum(expected.values()) - 1) < 1e-9
    likely = [text for text, p in expected.items() if n * p >= 8]
    rest = 1 - sum(expected[text] for text in likely)
    seen, wanted = [counts.get(text, 0) for text in likely], [n * expected[text] for text in likely]
    seen, wanted = np.array([*seen, n - sum(seen)]), np.array([*wanted, n * rest])
    statistic, freedom = ((seen - wanted) ** 2 / wanted).sum(), len(wanted) - 1
    assert statistic < freedom + 4.5 * np.sqrt(2 * freedom)
    cold = dict(endings(compile_grammar(PAIRS.replace("[temperature=4]", "").replace("[temperature=0.5]", ""), SMALL).walk(), (), 1.0))
    other = np.array([n * cold[text] for text in likely])
    assert ((seen[:-1] - other) ** 2 / other).sum() > 3 * statistic  # and the test tells temperatures


def test_drafts_keep_the_distribution():
    """By rejection: a draft model draws under the same masks, at the same temperatures."""
    n, texts = 3000, dict(endings(PAIR.walk(), (), 1.0))
    draft = ModelDraft(FunctionDecoder(_apply, WEIGHTS[::-1], _init, len(TOKENS), jnp.minimum), 2)
    found = jax_decode.generate(
        DECODER, [1], jax_decode.to_device(PAIR), key=jax.random.key(6), sampler=Categorical(0.7), num_samples=n,
        max_new_tokens=LIMIT, draft=draft, raw_logprobs=False,
    )  # fmt: skip
    rows = [tuple(t for t in tokens.tolist() if t) for tokens in found.tokens]
    for text, p in texts.items():
        if n * p > 30:
            share = rows.count(text) / n
            assert abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / n)


def test_greedy_takes_what_it_takes_without():
    plain = compile_grammar(PAIRS.replace("[temperature=4]", "").replace("[temperature=0.5]", ""), SMALL)
    found = [
        jax_decode.generate(DECODER, [[1], [2]], jax_decode.to_device(c), constraint=[0, 0], max_new_tokens=LIMIT) for c in (PAIR, plain)
    ]
    assert [t.tolist() for t in found[0].tokens] == [t.tolist() for t in found[1].tokens]


def test_loops_that_would_not_read_them_refuse():
    with pytest.raises(DecodeError, match="temperatures of its own, for which a pool has no room"):
        ConstraintPool(SMALL, profile="nested", slots=2).add(PAIR)
    with pytest.raises(DecodeError, match="a canvas is drawn at one temperature"):
        unfold(PAIR, max_depth=4, max_states=100)
    with pytest.raises(DecodeError, match="another library's sampler draws at its own"):
        carry(
            jax_decode.to_device(PAIR), vocab_size=len(TOKENS), constraint=0, max_new_tokens=9, max_depth=None, stop_ids=None,
            allow_truncation=False,
        )  # fmt: skip
    with pytest.raises(DecodeError, match="distinct samples are drawn at one"):
        jax_decode.sample_without_replacement(
            DECODER, [[1]], jax_decode.to_device(PAIR), key=jax.random.key(0), num_samples=2, max_new_tokens=LIMIT, constraint=0
        )
