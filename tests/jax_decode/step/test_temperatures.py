"""Temperatures of rules on the device: every row draws as a sampler at its temperature does, whatever stands beside it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.toy import every_byte
from oracles.toy_decoder import toy

import jax_decode
from fsa_compile import compile_grammar
from jax_decode import Categorical, DecodeError, Greedy, MinP, TopK, TopP
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.samplers import prepared
from jax_decode.serving import ConstraintPool

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
        state = jax.tree.map(lambda a, b: jnp.where((token >= 0).reshape(-1, *[1] * (a.ndim - 1)), a, b), after, state)
    return state


@pytest.mark.parametrize("make", [Categorical, lambda t: TopK(3, t), lambda t: TopP(0.8, t), lambda t: MinP(0.1, t)])
def test_every_row_draws_as_a_sampler_at_its_temperature(make):
    """With the same noise; log-probabilities are those of temperature 1."""
    hot, plain = jax_decode.to_device([HOT, PLAIN]), jax_decode.to_device(PLAIN)
    assert hot.has_temperatures
    assert not plain.has_temperatures
    rows = len(BEGUN)
    logits = jax.random.normal(jax.random.key(1), (rows, V.size)) * 3
    keys, step = key_words(jax.random.split(jax.random.key(2), rows)), jnp.zeros(rows, jnp.uint32)
    found = [sample(prepared(make(0.9)), logits, keys, step, hot, states(hot, which)) for which in (0, 1)]
    at = states(plain, 0)
    for row, wanted in enumerate(WANTED):
        walk = HOT.walk()
        for token in BEGUN[row]:
            walk.advance(token)
        assert walk.temperature == wanted
        sampler = Greedy() if wanted == 0 else make(0.9 if wanted is None else wanted)
        for sampler, choice in ((sampler, found[0]), (make(0.9), found[1])):
            expected = sample(prepared(sampler), logits, keys, step, plain, at)
            assert choice.token[row] == expected.token[row]
            np.testing.assert_allclose(choice.logprob[row], expected.logprob[row], atol=1e-5)
            np.testing.assert_allclose(choice.raw_logprob[row], expected.raw_logprob[row], atol=1e-5)
