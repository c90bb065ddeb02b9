"""The threshold of a top-p among many logits, beside sums in double precision."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_decode.kernels.blocks import SMALL
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.row_layout import words_for
from jax_decode.sampling.choices import Allowed
from jax_decode.sampling.top_p import mass_threshold

WIDTH = 6000
ROUNDING = 3e-6
"""Of sums of as many exponentials in float32."""
SHAPES = {
    "wide": lambda rng, x: x * rng.uniform(0.1, 6),
    "text": lambda rng, x: rng.permutation(-np.log(np.arange(1, len(x) + 1))) * rng.uniform(0.5, 2) + x / 10,
    "quantised": lambda rng, x: np.round(x * 2) / rng.choice([1, 2, 4]),
    "bfloat16": lambda rng, x: np.asarray(jnp.asarray(x * 3, jnp.bfloat16), np.float32),
    "few high ones": lambda rng, x: np.where(rng.random(len(x)) < 1e-3, 10 + x, x / 100),
    "many -inf": lambda rng, x: np.where(rng.random(len(x)) < 0.4, -np.inf, x * 3),
    "nearly one number": lambda rng, x: x * rng.choice([1e-6, 1e-5, 1e-4]),  # exponentials are equal where logits are not
    "in order": lambda rng, x: np.sort(x) * 5 + 80,
}


@partial(jax.jit, static_argnames="masked")
def threshold(logits, words, inverse, p, masked):
    every = Allowed(logits, None, lambda column: column.astype(jnp.uint32), Columns(words_for(WIDTH)), None)
    some = every._replace(words=words, word_at=lambda column: jnp.take_along_axis(words, column, 1))
    return mass_threshold(some if masked else every, inverse, p)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("masked", [False, True])
def test_kept_tokens_have_the_probability_and_without_the_last_they_have_not(masked):
    rng = np.random.default_rng(5 + masked)
    batch = 2 * len(SHAPES)
    assert batch * WIDTH >= SMALL
    most = 1 - 2**-24  # the largest number below 1
    for p in [0.01, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.999999, most, most, most, None, None, None]:
        logits = [make(rng, rng.standard_normal(WIDTH)) for make in SHAPES.values() for _ in range(2)]
        logits, inverse = np.array(logits, np.float32), np.float32(rng.uniform(0.3, 2))
        words = rng.integers(2**32, size=(batch, words_for(WIDTH)), dtype=np.uint32)
        plane, column = np.divmod(np.arange(WIDTH), words_for(WIDTH))
        allowed = (words[:, column] >> plane.astype(np.uint32)) & 1 if masked else np.ones(logits.shape)
        y = np.where(allowed, logits * inverse, -np.inf)
        e = np.exp(y.astype(np.float64) - y.max(1, keepdims=True))
        e /= e.sum(1, keepdims=True)
        if p is None:  # what the first tokens of a row have
            p = min(np.sort(e[rng.integers(batch)])[::-1].cumsum()[rng.integers(WIDTH // 4)], most)
        found = np.asarray(threshold(logits, words, inverse, np.float32(p), masked))
        kept = y >= found[:, None]
        last = np.where(kept, y, np.inf).min(1, keepdims=True)
        assert kept.any(1).all()
        assert (np.where(kept, e, 0).sum(1) >= p - ROUNDING).all()
        assert (np.where(y > last, e, 0).sum(1) < p + ROUNDING).all()
