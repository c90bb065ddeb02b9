"""A decoder made of plain functions: its logits depend on the last token, the position and everything before."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jax_decode import FunctionDecoder


def _apply(params, tokens, cache, lengths):
    """Cache: (number of tokens, running state). The state is a decayed sum of embeddings, exact for any block split."""
    count, memory = cache
    table, dtype = params["table"], params["table"].dtype

    def step(carry, xs):
        count, memory = carry
        token, at = xs
        real = at < lengths
        memory = jnp.where(real[:, None], 0.5 * memory + table[token], memory)
        count = count + real.astype(jnp.int32)
        wave = jnp.sin(count.astype(jnp.float32))[:, None].astype(dtype)
        return (count, memory), memory + wave * params["bias"][None]

    ats = jnp.arange(tokens.shape[1], dtype=jnp.int32)
    (count, memory), logits = jax.lax.scan(step, (count, memory), (tokens.T, ats))
    return logits.transpose(1, 0, 2), (count, memory)


_INITS: dict = {}


def toy(vocab_size: int = 64, seed: int = 0, dtype=jnp.float32) -> FunctionDecoder:
    """A decoder over `vocab_size` logits; equal arguments give the same function objects, hence no new compilation."""
    name = (vocab_size, jnp.dtype(dtype).name)
    if name not in _INITS:
        _INITS[name] = lambda batch, length: (jnp.zeros(batch, jnp.int32), jnp.zeros((batch, vocab_size), dtype))
    return FunctionDecoder(_apply, _params(*name, seed), _INITS[name], vocab_size)


@functools.partial(jax.jit, static_argnums=(0, 1))  # modules make decoders when they are imported: one program for all of a size
def _params(vocab_size, dtype, seed):
    table, bias = jax.random.normal(jax.random.key(seed), (2, vocab_size, vocab_size), jnp.float32) * 2
    return {"table": table.astype(dtype), "bias": bias[0].astype(dtype)}
