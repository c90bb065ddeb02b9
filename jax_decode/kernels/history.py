"""The texts so far as one array, prompt and continuation: ragged rows are read and written at positions of their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def read_block(tokens: jax.Array, begin: jax.Array, width: int) -> jax.Array:
    """`width` tokens of every row from `begin` int32[B] on, int32[B, width]; past the array's end its last token, repeated."""
    at = jnp.minimum(begin[:, None] + jnp.arange(width, dtype=jnp.int32)[None], tokens.shape[1] - 1)
    return jnp.take_along_axis(tokens, at, axis=1)


def write(values: jax.Array, at: jax.Array, new: jax.Array, where: jax.Array) -> jax.Array:
    """`values` [B, H] with `new` [B] at positions int32[B] of the rows `where` bool[B]."""
    rows = jnp.arange(values.shape[0], dtype=jnp.int32)
    return values.at[rows, jnp.where(where, at, values.shape[1])].set(new, mode="drop", unique_indices=True)


def select(where: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Rows of `new` [B, ...] where bool[B], else of `old`."""
    return jnp.where(where.reshape(-1, *[1] * (new.ndim - 1)), new, old)
