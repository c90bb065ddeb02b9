"""Attention of one Gemma layer as a Flax NNX module: multi-head, grouped or multi-query; global or sliding window."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from models import kv_cache
from models.config import Attention, GemmaConfig
from models.layers import RMSNorm, Weight, rope, soft_cap

_MASKED = -2.3819763e38  # finite, so that a row with nothing visible gives numbers instead of NaN


class SelfAttention(nnx.Module):
    """Self-attention of block `layer`; parameter names and shapes as in the official checkpoints."""

    def __init__(self, config: GemmaConfig, layer: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        N, K, D, H = config.num_heads, config.num_kv_heads, config.embed_dim, config.head_dim
        local = config.layer_kind(layer) is Attention.LOCAL
        self.multi_head, self.qk_norm, self.bidirectional = config.multi_head, config.qk_norm, config.bidirectional
        self.window = config.sliding_window if local else None
        self.rope_base = config.local_rope_base if local else config.global_rope_base
        self.rope_scale = config.local_rope_scale if local else config.global_rope_scale
        self.query_scale, self.logit_cap = config.query_scale, config.attention_soft_cap
        if self.multi_head:
            self.qkv_einsum = Weight((3, N, D, H), D, dtype=dtype, rngs=rngs)
        else:
            self.q_einsum = Weight((N, D, H), D, dtype=dtype, rngs=rngs)
            self.kv_einsum = Weight((2, K, D, H), D, dtype=dtype, rngs=rngs)
        self.attn_vec_einsum = Weight((N, H, D), N * H, dtype=dtype, rngs=rngs)
        if self.qk_norm:
            self._query_norm = RMSNorm(H, dtype=dtype)
            self._key_norm = RMSNorm(H, dtype=dtype)

    def __call__(
        self,
        x: jax.Array,
        positions: jax.Array,
        slots: jax.Array | None = None,
        cached: tuple[jax.Array, jax.Array] | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Attend from each position of the block to itself and what lies before it.

        Args:
          x: [B, L, D].
          positions: int32[B, L], absolute, rising along a row.
          slots: int32[B, L], where the cache keeps each position (`kv_cache.write_slots`); with `cached`.
          cached: keys and values [B, K, C, H], or None: then the block stands alone and starts at position 0.

        Returns:
          The block's output [B, L, D], and the keys and values that were read, [B, K, S, H].
        """
        query, key, value = self._project(x)
        query = self._rotate(query, positions) * self.query_scale
        key = self._rotate(key, positions).astype(x.dtype)
        if cached is None or slots is None:
            keys, values = jnp.swapaxes(key, 1, 2), jnp.swapaxes(value, 1, 2)
        else:
            keys, values = (kv_cache.write(old, new, slots) for old, new in zip(cached, (key, value)))
        mixed = self._mix(query.astype(x.dtype), keys, values, self._visible(positions, keys.shape[2]))
        return self.attn_vec_einsum.einsum("blnh,nhd->bld", mixed), (keys, values)

    def _project(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries [B, L, N, H], keys and values [B, L, K, H], normalised where the model does so."""
        if self.multi_head:
            query, key, value = self.qkv_einsum.einsum("bld,sndh->sblnh", x)
        else:
            query = self.q_einsum.einsum("bld,ndh->blnh", x)
            key, value = self.kv_einsum.einsum("bld,skdh->sblkh", x)
        if self.qk_norm:
            query, key = self._query_norm(query), self._key_norm(key)
        return query, key, value

    def _rotate(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        return rope(x, positions, base=self.rope_base, scale=self.rope_scale)

    def _visible(self, positions: jax.Array, slots: int) -> jax.Array:
        """bool[B, 1, 1, L, S]: which slots each position may read."""
        slot = jnp.arange(slots, dtype=jnp.int32)
        distance = positions[:, :, None] - slot
        distance = jnp.abs(distance) if self.bidirectional else distance
        seen = distance >= 0
        if self.window is not None:
            seen &= distance < self.window
        return seen[:, None, None]

    def _mix(self, query: jax.Array, keys: jax.Array, values: jax.Array, visible: jax.Array) -> jax.Array:
        """Values [B, L, N, H] averaged with the weights that queries give to keys."""
        B, L, N, H = query.shape
        K = keys.shape[1]
        query = query.reshape(B, L, K, N // K, H)
        logits = jnp.einsum("blkgh,bksh->bkgls", query, keys, preferred_element_type=jnp.float32)
        logits = jnp.where(visible, soft_cap(logits, self.logit_cap), _MASKED)
        weights = jax.nn.softmax(logits, axis=-1).astype(values.dtype)
        return jnp.einsum("bkgls,bksh->blkgh", weights, values).reshape(B, L, N, H)
