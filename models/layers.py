"""The position-wise parts of a Gemma block as Flax NNX modules: norm, weights, RoPE, feed-forward, embedder.

Attribute names are the parameter names of the official checkpoints. Nothing here knows of caches or other positions.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from models.config import GemmaConfig

_NORM_EPSILON = 1e-6


@functools.partial(jax.jit, static_argnums=(2, 3))
def _normal(key: jax.Array, deviation: float, shape: tuple[int, ...], dtype: str) -> jax.Array:
    return (jax.random.normal(key, shape, jnp.float32) * deviation).astype(dtype)


def normal_param(rngs: nnx.Rngs, shape: tuple[int, ...], dtype: DTypeLike, fan_in: int) -> nnx.Param:
    """A parameter of Gaussian values with variance `1 / fan_in`, so that activations keep their size."""
    return nnx.Param(_normal(rngs.params(), fan_in**-0.5, shape, jnp.dtype(dtype).name))


class Weight(nnx.Module):
    """One weight array stored under the name `w`, as the official layout has it."""

    def __init__(self, shape: tuple[int, ...], fan_in: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.w = normal_param(rngs, shape, dtype, fan_in)

    def einsum(self, equation: str, x: jax.Array) -> jax.Array:
        """`einsum(equation, x, w)`, in the dtype of the weights."""
        return jnp.einsum(equation, x, self.w[...])


class RMSNorm(nnx.Module):
    """Root-mean-square norm with scale `1 + scale`, computed in float32.

    Source: Zhang and Sennrich 2019 (arXiv:1910.07467).
    """

    def __init__(self, size: int, *, dtype: DTypeLike) -> None:
        self.scale = nnx.Param(jnp.zeros(size, dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        normed = wide * jax.lax.rsqrt(mean_square + _NORM_EPSILON)
        return (normed * (1.0 + self.scale[...].astype(jnp.float32))).astype(x.dtype)


def rope(x: jax.Array, positions: jax.Array, *, base: float, scale: float) -> jax.Array:
    """Rotate each pair of components of `x` by an angle proportional to the position.

    Component i is paired with i + H/2, as in the official weights.

    Args:
      x: [B, L, N, H].
      positions: int32[B, L], absolute.
      base: the longest wave length is about 2 pi base.
      scale: positions are divided by this.

    Returns:
      float32[B, L, N, H].

    Source: Su et al. 2021 (arXiv:2104.09864).
    """
    half = x.shape[-1] // 2
    wavelength = jnp.float32(base) ** (jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions.astype(jnp.float32)[:, :, None, None] / wavelength / scale
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def soft_cap(logits: jax.Array, cap: float | None) -> jax.Array:
    """`cap * tanh(logits / cap)`, or `logits` where there is no cap."""
    return logits if cap is None else jnp.tanh(logits / cap) * cap


class FeedForward(nnx.Module):
    """Gated feed-forward block with tanh-approximated GELU.

    Source: Shazeer 2020 (arXiv:2002.05202), GEGLU.
    """

    def __init__(self, config: GemmaConfig, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        D, F = config.embed_dim, config.hidden_dim
        self.transposed = config.transposed_gating
        self.gating_einsum = normal_param(rngs, (2, F, D) if self.transposed else (2, D, F), dtype, D)
        self.linear = normal_param(rngs, (F, D), dtype, F)

    def __call__(self, x: jax.Array) -> jax.Array:
        gate, up = self.gating_einsum[...]
        equation = "bld,fd->blf" if self.transposed else "bld,df->blf"
        hidden = jax.nn.gelu(jnp.einsum(equation, x, gate)) * jnp.einsum(equation, x, up)
        return jnp.einsum("blf,fd->bld", hidden, self.linear[...])


class Embedder(nnx.Module):
    """The embedding table, used for reading tokens and, transposed, for the output logits."""

    def __init__(self, config: GemmaConfig, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        shape = (config.vocab_size, config.embed_dim)
        self.input_embedding = normal_param(rngs, shape, dtype, config.embed_dim)

    def encode(self, tokens: jax.Array) -> jax.Array:
        """Embeddings [B, L, D] of `tokens` int32[B, L], scaled by the square root of D."""
        x = self.input_embedding[...][tokens]
        return x * jnp.sqrt(jnp.float32(x.shape[-1])).astype(x.dtype)

    def decode(self, x: jax.Array) -> jax.Array:
        """Logits float32[B, L, V] of `x` [B, L, D]."""
        return jnp.einsum("bld,vd->blv", x, self.input_embedding[...], preferred_element_type=jnp.float32)
