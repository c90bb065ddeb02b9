"""The key-value cache: slot number = absolute position, and a length per row. Nothing here knows of attention.

Keys and values of a layer lie as [B, K, C, H], so that both products of attention read them in place. Slots at or
beyond a row's length hold leftovers; a reader must mask by position. That makes `rewind` a change of one integer per
row: whatever lies beyond is overwritten before any query can see it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from models.config import GemmaConfig


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
    """Cached keys and values of a batch.

    Attributes:
      keys: per layer [B, K, C, H], C slots.
      values: per layer [B, K, C, H].
      n: int32[B], positions in use per row.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    n: jax.Array

    @property
    def length(self) -> int:
        """The number of slots, C: the most positions a row can hold."""
        return self.keys[0].shape[2]

    @property
    def batch_size(self) -> int:
        """The number of rows, B."""
        return self.n.shape[0]


def init_cache(config: GemmaConfig, batch_size: int, length: int, dtype: DTypeLike) -> KVCache:
    """An empty cache of `length` slots for `batch_size` rows.

    Keys and values are separate buffers, so that the whole cache may be donated.
    """
    shape = (batch_size, config.num_kv_heads, length, config.head_dim)
    layers = range(config.num_layers)
    return KVCache(
        keys=tuple(jnp.zeros(shape, dtype) for _ in layers),
        values=tuple(jnp.zeros(shape, dtype) for _ in layers),
        n=jnp.zeros(batch_size, jnp.int32),
    )


def write_slots(n: jax.Array, lengths: jax.Array, block: int, capacity: int) -> jax.Array:
    """The slot of each token of a right-padded block; padding gets a slot that does not exist.

    Args:
      n: int32[B], positions in use.
      lengths: int32[B], real tokens of the block.
      block: L, the block's width.
      capacity: C, slots of the cache.

    Returns:
      int32[B, L], distinct within a row, at least `capacity` where nothing is to be written.
    """
    offset = jnp.arange(block, dtype=jnp.int32)
    return jnp.where(offset < lengths[:, None], n[:, None] + offset, capacity + n[:, None] + offset)


def write(buffer: jax.Array, values: jax.Array, slots: jax.Array) -> jax.Array:
    """`buffer` [B, K, C, H] with `values` [B, L, K, H] at `slots` int32[B, L]; slots beyond C are dropped."""
    rows = jnp.arange(buffer.shape[0], dtype=jnp.int32)[:, None]
    target = buffer.at[rows, :, slots]
    return target.set(values.astype(buffer.dtype), mode="drop", unique_indices=True)


def rewind(cache: KVCache, kept: jax.Array) -> KVCache:
    """`cache` with every position at or beyond `kept` int32[B] forgotten; a row never grows."""
    return dataclasses.replace(cache, n=jnp.minimum(cache.n, kept.astype(jnp.int32)))
