"""The step of gemma's diffusion sampler inside a constraint, called as its loop calls it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.canvases import MANY, logprobs_of

import fsa_compile as fc
from jax_decode import canvas
from jax_decode.errors import DecodeError

PATTERN = "[a-z]{2,4}[0-9]|12"


def steps_of(predictions, *, rows, length, steps):
    """All canvases of a loop like the sampler's: a random one, then one for every step."""
    table = jnp.asarray(logprobs_of(0, 1, length, len(MANY.tokens))[0])

    @jax.jit
    def step(now, key, proportion):
        logits = table[None] + table[now % length].mean(1, keepdims=True)
        given = {"current_noise_proportion": jnp.full(rows, proportion + 1 / steps)}
        target = jnp.full(rows, proportion)
        return predictions(rng=key, denoiser_logits=logits, canvas=now, target_noise_proportion=target, **given)

    key = jax.random.key(0)
    out = [jax.random.randint(key, (rows, length), 0, len(MANY.tokens), jnp.int32)]
    for i in range(steps):
        out.append(step(out[-1], jax.random.fold_in(key, i), jnp.float32(1 - (i + 1) / steps)))
    return np.asarray(out)


def is_inside(row):
    end = row.index(0) if 0 in row else len(row)
    return bool(re.fullmatch(PATTERN, MANY.decode(row[:end]))) and not any(row[end:])


def test_the_last_canvas_is_in_the_language_and_the_ones_before_are_noisy():
    tables = canvas.to_canvas(fc.compile_regex(PATTERN, MANY))
    predictions = canvas.ConstrainedPredictions(tables=tables, text_vocab_size=len(MANY.tokens))
    found = steps_of(predictions, rows=16, length=6, steps=4)
    assert all(map(is_inside, found[-1].tolist()))
    assert not all(map(is_inside, found[1].tolist()))
    assert len(np.unique(found[-1], axis=0)) > 10
    assert found.min() >= 0
    sure = canvas.ConstrainedPredictions(tables=tables, text_vocab_size=len(MANY.tokens), entropy_bound=1e9)
    assert all(is_inside(row) for now in steps_of(sure, rows=16, length=6, steps=2)[1:] for row in now.tolist())


def test_a_canvas_that_is_too_short():
    tables = canvas.to_canvas(fc.compile_regex("[a-z]{9}", WORDS))
    predictions = canvas.ConstrainedPredictions(tables=tables, text_vocab_size=8)
    with pytest.raises(DecodeError, match="at least 9 tokens, and the canvas 6"):
        steps_of(predictions, rows=2, length=6, steps=1)


WORDS = fc.Vocabulary.from_tokens([b"", *(bytes([i]) for i in range(32, 126))], stop_ids=[0])
