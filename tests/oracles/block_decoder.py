"""A toy decoder that can be rewound, and that gives every block, however it is cut, bit for bit the same logits."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jax_decode import FunctionDecoder

_WINDOW = 4


def _apply(params, tokens, cache, lengths):
    """Cache: (number of tokens, the tokens). Logits are a fixed function of the last few tokens and the position."""
    count, history = cache
    place = count[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    real = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None] < lengths[:, None]
    rows = jnp.arange(tokens.shape[0], dtype=jnp.int32)[:, None]
    history = history.at[rows, jnp.where(real, place, history.shape[1])].set(tokens, mode="drop")
    logits = params["bias"][None, None] * jnp.sin(place.astype(jnp.float32))[..., None]
    for back in range(_WINDOW):
        before = history[rows, jnp.maximum(place - back, 0)]
        logits += jnp.where((place >= back)[..., None], params["table"][back][before], 0.0)
    return logits, (count + lengths, history)


def _rewind(cache, kept):
    """Forgets, and leaves rubbish behind."""
    count, history = cache
    count = jnp.minimum(count, kept)
    return count, jnp.where(jnp.arange(history.shape[1], dtype=jnp.int32)[None] < count[:, None], history, 0)


def _init(batch, length):
    return jnp.zeros(batch, jnp.int32), jnp.zeros((batch, length), jnp.int32)


def block_toy(vocab_size: int = 64, seed: int = 0, scale: float = 2.0) -> FunctionDecoder:
    """A decoder over `vocab_size` logits; `scale` says how decided it is."""
    return FunctionDecoder(_apply, _params(vocab_size, seed, scale), _init, vocab_size, _rewind)


@functools.partial(jax.jit, static_argnums=0)  # modules make decoders when they are imported: one program for all of a size
def _params(vocab_size, seed, scale):
    table = jax.random.normal(jax.random.key(seed), (_WINDOW, vocab_size, vocab_size), jnp.float32) * scale
    table *= (0.6 ** jnp.arange(_WINDOW, dtype=jnp.float32))[:, None, None]
    return {"table": table, "bias": jax.random.normal(jax.random.key(seed + 1), (vocab_size,), jnp.float32) * scale / 2}


def disturbed(decoder: FunctionDecoder, amount: float, seed: int = 9) -> FunctionDecoder:
    """A worse model of the same shape, as drafts come from."""
    return dataclasses.replace(decoder, params=decoder.params | {"table": _noisy(decoder.params["table"], amount, seed)})


@jax.jit
def _noisy(table, amount, seed):
    return table + jax.random.normal(jax.random.key(seed), table.shape, jnp.float32) * amount
