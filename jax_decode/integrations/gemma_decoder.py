"""`GemmaDecoder`: a model of google-deepmind/gemma for our own `generate`, drafts, beams and scores included.

That library's attention writes a block at one slot for all rows. Here every row has its tokens in slots 0 .. n-1, as our decoders
promise: a block is written behind the longest row, and its real tokens are then moved behind each row's own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

_MARGIN = 16
"""Spare slots of a cache: blocks of at most this many tokens need no copy of it."""


@dataclasses.dataclass(frozen=True)
class GemmaCache:
    """Keys and values of a batch.

    Attributes:
      layers: the library's cache, C slots; what lies at or beyond a row's n is left over, and no query sees it.
      n: int32[B], tokens of each row.
    """

    layers: Any
    n: jax.Array


jax.tree_util.register_dataclass(GemmaCache, ["layers", "n"], [])


@dataclasses.dataclass(frozen=True)
class GemmaDecoder:
    """A `jax_decode.Decoder` made of a model of `gm.nn` and its parameters, text only.

    Attributes:
      model: such as `gm.nn.Gemma3_1B()`; static.
      params: its parameters, traced: others of the same shapes compile nothing.
    """

    model: Any
    params: Any

    @property
    def vocab_size(self) -> int:
        """V', number of logits."""
        return self.model.config.num_embed

    def init_cache(self, batch_size: int, length: int) -> GemmaCache:
        """See `Decoder.init_cache`; keys and values have the dtype of the parameters."""
        dtype = jax.tree.leaves(self.params)[0].dtype
        layers = self.model.init_cache(batch_size=batch_size, dtype=dtype, cache_length=length + _MARGIN)
        return GemmaCache(layers, jnp.zeros(batch_size, jnp.int32))

    def apply(self, tokens: jax.Array, cache: GemmaCache, lengths: jax.Array, *, last_only: bool = False) -> Any:
        """See `Decoder.apply`. Positions beyond the cache's length are lost."""
        block, n = tokens.shape[1], cache.n
        slots = cache.layers[min(cache.layers)]["k"].shape[1]
        layers = cache.layers
        if block > _MARGIN:  # room behind the longest row, which may have no more than the margin left
            layers = {name: _with_room(layer, block) for name, layer in layers.items()}
        at = n.max()
        offset = jnp.arange(block, dtype=jnp.int32)
        slot = jnp.arange(slots + block * (block > _MARGIN), dtype=jnp.int32)
        own = slot[None, None] < n[:, None, None]
        new = (slot >= at) & (slot <= at + offset[:, None])
        out = self.model.apply(
            {"params": self.params},
            tokens,
            cache={name: {**layer, "end_index": jnp.full_like(n, at)} for name, layer in layers.items()},
            positions=n[:, None] + offset,
            attention_mask=own | new[None],
            return_hidden_states=last_only,
        )
        # Padding gets a slot that does not exist.
        to = jnp.where(offset < lengths[:, None], n[:, None] + offset, slot.shape[0] + offset)
        moved = {name: _moved(layer, at, to, slots) for name, layer in out.cache.items()}
        logits = out.logits
        if last_only and block > 1:  # of the block's logits none is then used, nor computed under jit
            last = jnp.maximum(lengths - 1, 0)[:, None, None]
            hidden = jnp.take_along_axis(out.hidden_states, last, axis=1)
            logits = self.model.apply({"params": self.params}, hidden, method=_logits)
        return logits, GemmaCache(moved, n + lengths)

    def rewind(self, cache: GemmaCache, kept: jax.Array) -> GemmaCache:
        """See `Decoder.rewind`."""
        return dataclasses.replace(cache, n=jnp.minimum(cache.n, kept.astype(jnp.int32)))


jax.tree_util.register_dataclass(GemmaDecoder, ["params"], ["model"])


def _logits(module: Any, hidden: jax.Array) -> jax.Array:
    """The end of the model's own forward pass; `return_last_only` would count tokens of id 0 as padding."""
    logits, cap = module.embedder.decode(hidden), module.config.final_logit_softcap
    return logits if cap is None else jnp.tanh(logits / cap) * cap


def _with_room(layer: dict[str, jax.Array], block: int) -> dict[str, jax.Array]:
    """A layer's cache with `block` more slots."""
    wider = {name: jnp.pad(x, [(0, 0), (0, block)] + [(0, 0)] * (x.ndim - 2)) for name, x in layer.items() if x.ndim > 1}
    return {**layer, **wider}


def _moved(layer: dict[str, jax.Array], at: jax.Array, to: jax.Array, slots: int) -> dict[str, jax.Array]:
    """A layer's cache with the block at slot `at` int32[] at the slots `to` int32[B, L], cut to its first `slots` slots."""
    rows = jnp.arange(to.shape[0], dtype=jnp.int32)[:, None]

    def behind(x: jax.Array) -> jax.Array:
        block = jax.lax.dynamic_slice_in_dim(x, at, to.shape[1], axis=1)
        return x.at[rows, to].set(block, mode="drop", unique_indices=True)[:, :slots]

    return {name: behind(x) if x.ndim > 1 else x for name, x in layer.items()}
