"""`Gemma`: a model as the decoding loop sees it, a pytree with `init_cache`, `apply` and `rewind`.

The parameters are leaves and the configuration is static, so a decoder is an ordinary traced argument: other
parameters of the same shapes cause no new compilation.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from models import kv_cache
from models.config import GemmaConfig
from models.errors import ModelError, named_fields
from models.kv_cache import KVCache
from models.transformer import Transformer

Params = dict[str, Any]


@functools.lru_cache(maxsize=64)
def _structure(config: GemmaConfig, dtype: str) -> tuple[nnx.GraphDef, Params]:
    """The module's structure and the tree of its parameters' shapes, without any array."""
    abstract = nnx.eval_shape(lambda: Transformer(config, dtype=jnp.dtype(dtype), rngs=nnx.Rngs(0)))
    graphdef, state = nnx.split(abstract)
    return graphdef, nnx.to_pure_dict(state)


def abstract_params(config: GemmaConfig, dtype: DTypeLike = jnp.float32) -> Params:
    """The nested tree of `jax.ShapeDtypeStruct` that the parameters of `config` must match."""
    return jax.tree.map(lambda x: x, _structure(config, jnp.dtype(dtype).name)[1])


@named_fields
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gemma:
    """A Gemma text model with its parameters.

    Attributes:
      params: nested dict of arrays in the official layout (`embedder/input_embedding`, `layer_0/attn/…`).
      config: the architecture (static).
      vocabulary_fingerprint: of the vocabulary it was trained with, as `fsa_compile` names it; "" where that is not known. Where
        it is, constraints and tokenizers of another are refused. `save` keeps it (static).
    """

    params: Params
    config: GemmaConfig = dataclasses.field(metadata={"static": True})
    vocabulary_fingerprint: str = dataclasses.field(default="", metadata={"static": True})

    @classmethod
    def init(cls, config: GemmaConfig, key: jax.Array, *, dtype: DTypeLike = jnp.float32) -> Gemma:
        """A model with random parameters.

        Args:
          config: the architecture.
          key: a typed PRNG key.
          dtype: dtype of the parameters.
        """
        model = Transformer(config, dtype=dtype, rngs=nnx.Rngs(params=key))
        return cls(nnx.to_pure_dict(nnx.state(model, nnx.Param)), config)

    def __repr__(self) -> str:
        shape = f"{self.config.num_layers} layers of {self.config.embed_dim}, {self.vocab_size:,} tokens"
        return f"Gemma({shape}, {self.num_parameters:,} parameters, {jnp.dtype(self.dtype).name})"

    @property
    def vocab_size(self) -> int:
        """The width of the logits, V."""
        return self.config.vocab_size

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the embedding table, which is that of activations and cache."""
        return self.params["embedder"]["input_embedding"].dtype

    @property
    def num_parameters(self) -> int:
        """The number of scalar parameters (the tied embedding counts once)."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.params))

    def astype(self, dtype: DTypeLike) -> Gemma:
        """The same model with every parameter in `dtype`."""
        return dataclasses.replace(self, params=jax.tree.map(lambda x: x.astype(dtype), self.params))

    def module(self) -> Transformer:
        """The Flax NNX module holding these parameters."""
        graphdef, _ = _structure(self.config, jnp.dtype(self.dtype).name)
        return nnx.merge(graphdef, nnx.State(self.params))

    def forward(self, tokens: jax.Array, *, skip: int = 0) -> jax.Array:
        """Logits float32[B, L - skip, V] of whole sequences `tokens` int32[B, L], without a cache: of all positions (for
        training), or of those behind the first `skip`."""
        return self.module()(tokens, skip=skip)

    def init_cache(self, batch_size: int, length: int) -> KVCache:
        """An empty cache for `batch_size` rows of at most `length` positions each, prompt included."""
        return kv_cache.init_cache(self.config, batch_size, length, self.dtype)

    def apply(
        self, tokens: jax.Array, cache: KVCache, lengths: jax.Array, *, last_only: bool = False
    ) -> tuple[jax.Array, KVCache]:
        """Append a block of tokens to every row and return the logits that follow them.

        Positions beyond the cache's length are lost, so it must be made long enough: nothing can raise in here.

        Args:
          tokens: int32[B, L], right padded; padding may be any id.
          cache: from `init_cache` or an earlier call; it may be donated.
          lengths: int32[B], real tokens per row. A row of 0 keeps its cache; its logits are meaningless.
          last_only: return logits for the last real token of each row only, so that [B, L, V] is never built.

        Returns:
          Logits float32[B, L, V], or [B, 1, V] with `last_only`; meaningless at padding. And the new cache.

        Raises:
          ModelError: the shapes do not go together (when traced).
        """
        _check_block(tokens, cache, lengths, "Gemma.apply")
        return self.module().append(tokens, cache, lengths, last_only=last_only)

    def states(
        self, tokens: jax.Array, cache: KVCache, lengths: jax.Array, *, last_only: bool = False
    ) -> tuple[jax.Array, KVCache]:
        """`apply` with the last hidden states [B, L, D], behind their norm, in place of logits; see `projection`."""
        _check_block(tokens, cache, lengths, "Gemma.states")
        return self.module().append_states(tokens, cache, lengths, last_only=last_only)

    @property
    def projection(self) -> tuple[jax.Array, float | None]:
        """The output embedding [V, D], which is the one that reads tokens, and the soft cap of the logits."""
        return self.params["embedder"]["input_embedding"], self.config.final_soft_cap

    def rewind(self, cache: KVCache, kept: jax.Array) -> KVCache:
        """`cache` without the positions at or beyond `kept` int32[B], row by row."""
        return kv_cache.rewind(cache, kept)


def _check_block(tokens: jax.Array, cache: KVCache, lengths: jax.Array, where: str) -> None:
    if tokens.ndim != 2 or lengths.shape != (tokens.shape[0],) or cache.batch_size != tokens.shape[0]:
        raise ModelError(
            f"A block of tokens {tokens.shape} with lengths {lengths.shape} does not fit a cache of {cache.batch_size} rows.",
            where=where,
            fix="Give tokens [B, L] and lengths [B], with B the batch size of the cache.",
        )
