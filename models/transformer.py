"""The Gemma text transformer as a Flax NNX module: embedder, blocks `layer_0` …, final norm, tied output logits."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from models import kv_cache
from models.attention import SelfAttention
from models.config import GemmaConfig
from models.kv_cache import KVCache
from models.layers import Embedder, FeedForward, RMSNorm, soft_cap


class Block(nnx.Module):
    """Attention and feed-forward, each added to the stream, with the norms that the configuration asks for."""

    def __init__(self, config: GemmaConfig, layer: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        D = config.embed_dim
        self.has_post_attention, self.has_post_ffw = config.post_attention_norm, config.post_ffw_norm
        self.pre_attention_norm = RMSNorm(D, dtype=dtype)
        self.attn = SelfAttention(config, layer, dtype=dtype, rngs=rngs)
        if self.has_post_attention:
            self.post_attention_norm = RMSNorm(D, dtype=dtype)
        self.pre_ffw_norm = RMSNorm(D, dtype=dtype)
        self.mlp = FeedForward(config, dtype=dtype, rngs=rngs)
        if self.has_post_ffw:
            self.post_ffw_norm = RMSNorm(D, dtype=dtype)

    def __call__(
        self,
        x: jax.Array,
        positions: jax.Array,
        slots: jax.Array | None = None,
        cached: tuple[jax.Array, jax.Array] | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """The stream [B, L, D] after this block, and the layer's keys and values (see `SelfAttention`)."""
        attended, stored = self.attn(self.pre_attention_norm(x), positions, slots, cached)
        x = x + (self.post_attention_norm(attended) if self.has_post_attention else attended)
        hidden = self.mlp(self.pre_ffw_norm(x))
        return x + (self.post_ffw_norm(hidden) if self.has_post_ffw else hidden), stored


class Transformer(nnx.Module):
    """A Gemma text model.

    Args:
      config: the architecture.
      dtype: dtype of the parameters and activations. Norms, softmax and logits are float32 in any case.
      rngs: random streams for the initial parameters.
    """

    def __init__(self, config: GemmaConfig, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs) -> None:
        self.num_layers, self.final_cap = config.num_layers, config.final_soft_cap
        self.embedder = Embedder(config, dtype=dtype, rngs=rngs)
        for layer in range(config.num_layers):
            setattr(self, f"layer_{layer}", Block(config, layer, dtype=dtype, rngs=rngs))
        self.final_norm = RMSNorm(config.embed_dim, dtype=dtype)

    def __call__(self, tokens: jax.Array, *, skip: int = 0) -> jax.Array:
        """Logits float32[B, L - skip, V] behind the first `skip` positions of whole sequences int32[B, L], without a cache."""
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
        x = self.embedder.encode(tokens)
        for layer in range(self.num_layers):
            x, _ = self._block(layer)(x, positions)
        return self._logits(self.final_norm(x[:, skip:]))

    def append(
        self, tokens: jax.Array, cache: KVCache, lengths: jax.Array, *, last_only: bool = False
    ) -> tuple[jax.Array, KVCache]:
        """Append a right-padded block to each row of the cache.

        Args:
          tokens: int32[B, L].
          cache: the rows so far.
          lengths: int32[B], real tokens of each row; 0 leaves a row as it is.
          last_only: return the logits of each row's last real token only.

        Returns:
          Logits float32[B, L, V], or [B, 1, V] with `last_only`, meaningless at padding; and the longer cache.
        """
        x, cache = self.append_states(tokens, cache, lengths, last_only=last_only)
        return self._logits(x), cache

    def append_states(
        self, tokens: jax.Array, cache: KVCache, lengths: jax.Array, *, last_only: bool = False
    ) -> tuple[jax.Array, KVCache]:
        """`append` with the hidden states [B, L, D] in place of the logits that are made of them."""
        lengths = lengths.astype(jnp.int32)
        block = tokens.shape[1]
        positions = cache.n[:, None] + jnp.arange(block, dtype=jnp.int32)
        slots = kv_cache.write_slots(cache.n, lengths, block, cache.length)
        x = self.embedder.encode(tokens)
        keys, values = list(cache.keys), list(cache.values)
        for layer in range(self.num_layers):
            x, stored = self._block(layer)(x, positions, slots, (keys[layer], values[layer]))
            keys[layer], values[layer] = stored
        if last_only and block > 1:
            x = jnp.take_along_axis(x, jnp.maximum(lengths - 1, 0)[:, None, None], axis=1)
        n = jnp.minimum(cache.n + lengths, cache.length)
        return self.final_norm(x), dataclasses.replace(cache, keys=tuple(keys), values=tuple(values), n=n)

    def _block(self, layer: int) -> Block:
        return getattr(self, f"layer_{layer}")

    def _logits(self, x: jax.Array) -> jax.Array:
        return soft_cap(self.embedder.decode(x), self.final_cap)
