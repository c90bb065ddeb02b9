"""Gumbel noise per row, step and index: a counter-based generator written out, so that it fuses with its consumer.

The noise of a row depends on its own key, the step and the index alone: not on the batch, not on the accelerator, not
on the generator that `jax.random` is configured to use.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.errors import DecodeError, named_arguments

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@named_arguments
def key_words(keys: jax.Array) -> jax.Array:
    """Two words per key, uint32[B, 2]; keys are typed PRNG keys of any implementation, [B].

    Raises:
      DecodeError: while tracing, where they are something else.
    """
    kind: Any = getattr(keys, "dtype", None)
    shape: tuple[int, ...] = getattr(keys, "shape", ())
    typed = kind is not None and jnp.issubdtype(kind, jax.dtypes.prng_key)
    if not (len(shape) == 1 if typed else kind == jnp.uint32 and len(shape) == 2 and shape[1] == 2):
        given = f"a {type(keys).__name__}" if kind is None else f"{kind}{list(shape)}"
        raise DecodeError(f"key_words: the keys are {given}, not one PRNG key per row", fix="Pass jax.random.split(key, B).")
    return jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys)


Words = jax.Array | tuple[jax.Array, jax.Array]
"""Two words of every row, uint32[B, 2], or each of them, [B, 1]."""


def threefry(key: Words, step: jax.Array, index: jax.Array) -> jax.Array:
    """32 random bits for each (key, step, index).

    Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3: Threefry-2x32 with 20 rounds; the first word
    of the block whose counter is (step, index).

    Args:
      key: of every row.
      step: uint32[B] or [B, 1].
      index: uint32[1, n] or uint32[B, n].

    Returns:
      uint32[B, n]. Where a kernel has rows along the lanes, the other way round: words and step are [1, B], and all else [n, B].
    """
    k0, k1 = key if isinstance(key, tuple) else (key[:, :1], key[:, 1:])
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    shape = jnp.broadcast_shapes(k0.shape, index.shape)
    x0 = jnp.broadcast_to((step[:, None] if step.ndim == 1 else step) + k0, shape)
    x1 = jnp.broadcast_to(index, shape) + k1
    for group in range(5):
        for r in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << jnp.uint32(r)) | (x1 >> jnp.uint32(32 - r))) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0


def gumbel(key: Words, step: jax.Array, index: jax.Array) -> jax.Array:
    """Standard Gumbel noise, float32[B, n], finite; arguments as in `threefry`.

    Made of -log(exponential) with the exponential from `log1p` of 32 bits: its small values, which decide the maximum, keep
    full relative precision (a 23-bit uniform would cap the noise at 16.6; this one reaches 22.9).
    """
    bits = threefry(key, step, index).astype(jnp.float32)
    uniform = jnp.minimum((bits + 0.5) * jnp.float32(2.0**-32), jnp.float32(1 - 2.0**-24))
    return -jnp.log(-jnp.log1p(-uniform))
