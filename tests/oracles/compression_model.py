"""A language model without a neural network: the logits are minus the bits that an LZ77 coder needs for the next token.

The coder copies from the history: after a text whose last m tokens have occurred before, followed by token t, the next t is
one more token of a copy of length m + 1, which costs `(position + length) / (m + 1)` bits, about log2 of the history for the
position and twice log2 of the length. Without a copy it writes the token as it is. Everything is kept up to date in JAX, so the
model runs inside the jitted loop: `match[i]` is the length of the longest common end of the history and of its first i tokens.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_decode import FunctionDecoder


def _bits(history, match, count, literal):
    """Bits of every next token, float32[V], after a history int32[C] of `count` tokens."""
    at = jnp.arange(history.shape[0], dtype=jnp.int32)
    length = jnp.where((at > 0) & (at < count), match, 0).astype(jnp.float32)
    position = jnp.log2(jnp.maximum(count, 2).astype(jnp.float32))
    cost = (position + 2 * jnp.log2(length + 1)) / (length + 1)
    return literal.at[history].min(jnp.where(length > 0, cost, literal[history]))


def _row(literal, tokens, cache, length):
    def step(cache, xs):
        history, match, count = cache
        token, at = xs
        before = jnp.concatenate([jnp.full(1, -1, jnp.int32), history[:-1]])
        longer = jnp.where(before == token, jnp.concatenate([jnp.zeros(1, jnp.int32), match[:-1]]) + 1, 0)
        appended = (history.at[count].set(token, mode="drop"), longer, count + 1)
        cache = jax.tree.map(lambda new, old: jnp.where(at < length, new, old), appended, cache)
        return cache, -_bits(*cache, literal) * jnp.log(jnp.float32(2))

    ats = jnp.arange(tokens.shape[0], dtype=jnp.int32)
    cache, logits = jax.lax.scan(step, cache, (tokens, ats))
    return logits, cache


def _apply(literal, tokens, cache, lengths):
    return jax.vmap(_row, in_axes=(None, 0, 0, 0))(literal, tokens, cache, lengths)


def _init(batch, length):
    return jnp.zeros((batch, length), jnp.int32), jnp.zeros((batch, length), jnp.int32), jnp.zeros(batch, jnp.int32)


def lz_model(vocab_size: int, literal_bits: float = 8.0) -> FunctionDecoder:
    """The model; its only parameter is what a token costs that is not copied."""
    return FunctionDecoder(_apply, jnp.full(vocab_size, literal_bits, jnp.float32), _init, vocab_size)


def reference_bits(history: list[int], vocab_size: int, literal_bits: float = 8.0) -> list[float]:
    """The same by its definition, in plain Python."""
    import math

    out = [literal_bits] * vocab_size
    for i in range(1, len(history)):
        length = 0
        while length < i and history[i - 1 - length] == history[len(history) - 1 - length]:
            length += 1
        if length:
            cost = (math.log2(max(len(history), 2)) + 2 * math.log2(length + 1)) / (length + 1)
            out[history[i]] = min(out[history[i]], cost)
    return out
