"""What a model must offer to be decoded from: the `Decoder` protocol, and an adapter for plain functions.

No model lives here, and none is imported: anything of this shape fits, from whichever library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from fsa_compile.errors import named_fields
from jax_decode.errors import DecodeError, check_function
from jax_decode.kernels.projected import Projected, Projection


@runtime_checkable
class Decoder(Protocol):
    """A causal language model with a cache: a registered pytree whose leaves are its parameters.

    It is passed to jitted functions as an argument, so new parameters of the same shapes cause no new compilation.

    Attributes:
      vocab_size: V', number of logits. It may exceed the tokenizer's ids; padding ids are always masked.

    A decoder, a draft model too, may have `max_length: int`, the longest cache it can serve; a longer request is refused before
    the first token. It may have `vocabulary_fingerprint: str`; tables of another vocabulary are then refused. Every leaf of the
    cache has one axis of B rows, or none: that is how several samples of a prompt come to share one prefill.

    It may tell how it makes its logits: `projection`, its output embedding float[V', D] and a soft cap or None, and `states`,
    which takes what `apply` takes and returns the last hidden states float[B, L, D], behind their norm, in place of logits. Then
    `generate` carries these from step to step, and on a TPU chooses inside of the projection; see `Projected`. A class that
    defines `apply` anew, and not `states`, is asked for logits.
    """

    @property
    def vocab_size(self) -> int: ...

    def init_cache(self, batch_size: int, length: int) -> Any:
        """An empty cache for `batch_size` rows of at most `length` tokens each."""

    def apply(self, tokens: jax.Array, cache: Any, lengths: jax.Array, *, last_only: bool = False) -> Any:
        """Appends tokens to every row and returns the logits after them.

        Args:
          tokens: int32[B, L], right padded.
          cache: the cache so far.
          lengths: int32[B], how many of each row's tokens are real, 0..L; the rest leaves no trace in the cache.
          last_only: return only the logits after each row's last real token.

        Returns:
          logits[B, L, V'] (or [B, 1, V'] with `last_only`), float32 or bfloat16, and the new cache.
        """

    def rewind(self, cache: Any, kept: jax.Array) -> Any:
        """The cache after only the first `kept[b]` tokens of each row b, int32[B]."""


@named_fields
@dataclasses.dataclass(frozen=True)
class FunctionDecoder:
    """A `Decoder` made of functions and a pytree of parameters.

    Attributes:
      apply_fn: `(params, tokens[B, L], cache, lengths[B]) -> (logits[B, L, V'], cache)`.
      params: pytree of arrays.
      init_cache_fn: `(batch_size, length) -> cache`.
      vocab_size: V'.
      rewind_fn: `(cache, kept[B]) -> cache`, needed by speculative decoding only.
      projection_fn: `params -> (embedding[V', D], soft cap or None)`, where `apply_fn` returns the last hidden states
        [B, L, D] in place of logits; see `Decoder`.

    The functions are part of the compiled program's identity: pass the same function objects again, not new lambdas.
    """

    apply_fn: Callable[..., Any]
    params: Any
    init_cache_fn: Callable[[int, int], Any]
    vocab_size: int
    rewind_fn: Callable[..., Any] | None = None
    projection_fn: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("rewind_fn", "projection_fn") if getattr(self, name) is not None]
        for name in ("apply_fn", "init_cache_fn", *given):
            check_function(getattr(self, name), name, "See jax_decode.FunctionDecoder for what it is called with.")

    def init_cache(self, batch_size: int, length: int) -> Any:
        """See `Decoder.init_cache`."""
        return self.init_cache_fn(batch_size, length)

    def apply(self, tokens: jax.Array, cache: Any, lengths: jax.Array, *, last_only: bool = False) -> Any:
        """See `Decoder.apply`."""
        found, cache = self.states(tokens, cache, lengths, last_only=last_only)
        projection = projection_of(self)
        if projection is not None:
            found = Projected(found.reshape(-1, found.shape[-1]), projection).logits.reshape(*found.shape[:2], -1)
        return found, cache

    @property
    def projection(self) -> Any:
        """See `Decoder`; None without `projection_fn`."""
        return None if self.projection_fn is None else self.projection_fn(self.params)

    def states(self, tokens: jax.Array, cache: Any, lengths: jax.Array, *, last_only: bool = False) -> Any:
        """What `apply_fn` returns."""
        found, cache = self.apply_fn(self.params, tokens, cache, lengths)
        if last_only and found.shape[1] > 1:
            last = jnp.maximum(lengths - 1, 0)[:, None, None]
            found = jnp.take_along_axis(found, last, axis=1)
        return found, cache

    def rewind(self, cache: Any, kept: jax.Array) -> Any:
        """See `Decoder.rewind`.

        Raises:
          NotImplementedError: no `rewind_fn` was given.
        """
        if self.rewind_fn is None:
            raise NotImplementedError("this FunctionDecoder was made without a rewind_fn")
        return self.rewind_fn(cache, kept)


jax.tree_util.register_dataclass(
    FunctionDecoder,
    data_fields=["params"],
    meta_fields=["apply_fn", "init_cache_fn", "vocab_size", "rewind_fn", "projection_fn"],
)


def projection_of(decoder: Any) -> Projection | None:
    """How a decoder says that it makes its logits.

    Raises:
      DecodeError: while tracing, where what it says is no projection to its vocabulary.
    """
    found = getattr(decoder, "projection", None)
    if found is None or not _tells_states(decoder):
        return None
    embedding, cap = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    shape: tuple[int, ...] = tuple(getattr(embedding, "shape", ()))
    is_floating = bool(shape) and jnp.issubdtype(embedding.dtype, jnp.floating)
    if not isinstance(found, tuple) or len(shape) != 2 or shape[0] != decoder.vocab_size or not is_floating:
        given = f"has an embedding {embedding.dtype}{list(shape)}" if shape else f"is {type(found).__name__}"
        what = f"the decoder's projection {given}; its vocab_size is {decoder.vocab_size:,}"
        raise DecodeError(what, fix="Give (output embedding float[vocab_size, D], soft cap or None), or leave `projection` out.")
    return Projection(embedding, cap)


def _tells_states(decoder: Any) -> bool:
    """Whether its class has `states` that belong to its `apply`: one that is defined later makes other logits."""
    for one in type(decoder).__mro__:
        if "states" in vars(one) or "apply" in vars(one):
            return "states" in vars(one)
    return False


@named_fields
@dataclasses.dataclass(frozen=True)
class StepByStep:
    """An `apply_fn` for `FunctionDecoder` made of a function that takes one token of one row.

    So a model needs to know nothing of batches, of padding or of rows of different lengths: rows are mapped, the tokens of a
    block are taken one after another, and padding leaves no trace. A prompt costs as many steps as it has tokens.

    Attributes:
      step_fn: `(params, token int32[], cache) -> (logits[V'], cache)`, of one row.
    """

    step_fn: Callable[..., Any]

    def __post_init__(self) -> None:
        check_function(self.step_fn, "step_fn", "Give a function (params, token, cache) -> (logits, cache) of one row.")

    def __call__(self, params: Any, tokens: jax.Array, cache: Any, lengths: jax.Array) -> Any:
        """See `Decoder.apply`."""

        def row(tokens: jax.Array, cache: Any, length: jax.Array) -> Any:
            def step(cache: Any, at: tuple[jax.Array, jax.Array]) -> Any:
                token, index = at
                old, structure = jax.tree.flatten(cache)  # before the step, which may change its argument in place
                logits, after = self.step_fn(params, token, jax.tree.unflatten(structure, old))
                kept = [jnp.where(index < length, x, y) for x, y in zip(jax.tree.leaves(after), old, strict=True)]
                return jax.tree.unflatten(structure, kept), logits

            cache, logits = jax.lax.scan(step, cache, (tokens, jnp.arange(tokens.shape[0], dtype=jnp.int32)))
            return logits, cache

        return jax.vmap(row)(tokens, cache, lengths)


@named_fields
@dataclasses.dataclass(frozen=True)
class RepeatedCache:
    """An `init_cache_fn` for `FunctionDecoder` made of a function that makes the cache of one row.

    Attributes:
      init_fn: `(length) -> cache`, of one row.
    """

    init_fn: Callable[[int], Any]

    def __post_init__(self) -> None:
        check_function(self.init_fn, "init_fn", "Give a function (length) -> cache of one row.")

    def __call__(self, batch_size: int, length: int) -> Any:
        """See `Decoder.init_cache`."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch_size, *x.shape)), self.init_fn(length))
