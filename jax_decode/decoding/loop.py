"""The jitted programs behind `generate`: prefill, and a `while` over chunks of `scan` that never talks to the host.

Everything that differs between calls of one shape is a traced argument: parameters, tables, prompts, keys, limits, sampler
numbers. Static are only sizes, the sampler's kind and the decoder's structure.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.decoding.decoder import Decoder
from jax_decode.errors import DecodeError
from jax_decode.sampling.samplers import Sampler
from jax_decode.sampling.sampling import checked, sample
from jax_decode.step.forking import fork_cache
from jax_decode.step.state import ConstraintState
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carry:
    """What one step hands to the next, and the output so far.

    Attributes:
      cache: the decoder's.
      state: every row's place in its constraint.
      token: int32[B], the last token chosen, not yet fed to the decoder.
      step: int32[], tokens chosen so far.
      tokens: int32[B, T], chosen tokens, -1 where none; None inside a chunk, whose output `scan` collects.
      logprobs, raw_logprobs: float32[B, T], see `sampling.Choice`; likewise.
    """

    cache: Any
    state: ConstraintState
    token: jax.Array
    step: jax.Array
    tokens: Any
    logprobs: Any
    raw_logprobs: Any


jax.tree_util.register_dataclass(Carry, data_fields=[f.name for f in dataclasses.fields(Carry)], meta_fields=[])


@functools.partial(jax.jit, static_argnames=("cache_length", "capacity", "num_samples", "with_raw"))
def prefill(
    decoder: Decoder,
    tables: ConstraintTables | None,
    sampler: Sampler,
    keys: jax.Array,
    state: ConstraintState,
    prompts: jax.Array,
    lengths: jax.Array,
    *,
    cache_length: int,
    capacity: int,
    num_samples: int,
    with_raw: bool = True,
) -> Carry:
    """Feeds the prompts and chooses every row's first token.

    Args:
      decoder: the model.
      tables: the constraints, or None.
      sampler: from `samplers.prepared`.
      keys: uint32[B, 2], B = P * num_samples; rows of one prompt lie together.
      state: [B].
      prompts: int32[P, L], right padded; lengths: int32[P].
      cache_length: slots of the cache.
      capacity: T, tokens the output can hold.
      num_samples: rows per prompt; the prompt is fed once.
      with_raw: see `sampling.sample`.
    """
    logits, cache = decoder.apply(prompts, decoder.init_cache(prompts.shape[0], cache_length), lengths, last_only=True)
    if num_samples > 1:
        logits = jnp.repeat(logits, num_samples, axis=0)
        parent = jnp.repeat(jnp.arange(prompts.shape[0], dtype=jnp.int32), num_samples)
        cache = fork_cache(decoder, cache, parent, length=cache_length)
    batch = keys.shape[0]
    cache, state, token, out = _choose(decoder, tables, sampler, keys, state, cache, logits, jnp.int32(0), with_raw)
    empty = jnp.zeros((batch, capacity), jnp.float32)
    return Carry(
        cache=cache,
        state=state,
        token=token,
        step=jnp.int32(1),
        tokens=jnp.full((batch, capacity), -1, jnp.int32).at[:, 0].set(out[0]),
        logprobs=empty.at[:, 0].set(out[1]),
        raw_logprobs=empty.at[:, 0].set(out[2]),
    )


@functools.partial(jax.jit, static_argnames=("chunk", "with_raw"), donate_argnames=("carry",))
def decode(
    decoder: Decoder,
    tables: ConstraintTables | None,
    sampler: Sampler,
    keys: jax.Array,
    carry: Carry,
    until: jax.Array,
    *,
    chunk: int,
    with_raw: bool = True,
) -> Carry:
    """Decodes until every row is done, or `until` int32[] tokens per row were chosen; checks once per chunk.

    The output's capacity must reach `chunk - 1` tokens beyond `until`. The carry is donated, the tables never.
    """

    def step(carry: Carry, _: None) -> tuple[Carry, tuple[jax.Array, ...]]:
        fed = carry.state.running.astype(jnp.int32)
        logits, cache = decoder.apply(carry.token[:, None], carry.cache, fed)
        cache, state, token, out = _choose(decoder, tables, sampler, keys, carry.state, cache, logits, carry.step, with_raw)
        return dataclasses.replace(carry, cache=cache, state=state, token=token, step=carry.step + 1), out

    def run_chunk(carry: Carry) -> Carry:
        start = carry.step
        # The output buffers stay out of the scan, which would otherwise carry them through every step.
        inner = dataclasses.replace(carry, tokens=None, logprobs=None, raw_logprobs=None)
        inner, outs = jax.lax.scan(step, inner, None, length=chunk)
        buffers = (carry.tokens, carry.logprobs, carry.raw_logprobs)
        filled = [jax.lax.dynamic_update_slice(buffer, out.T, (jnp.int32(0), start)) for buffer, out in zip(buffers, outs)]
        return dataclasses.replace(inner, tokens=filled[0], logprobs=filled[1], raw_logprobs=filled[2])

    def going(carry: Carry) -> jax.Array:
        return (carry.step < until) & carry.state.running.any()

    return jax.lax.while_loop(going, run_chunk, carry)


def _choose(
    decoder: Decoder,
    tables: ConstraintTables | None,
    sampler: Sampler,
    keys: jax.Array,
    state: ConstraintState,
    cache: Any,
    logits: jax.Array,
    step: jax.Array,
    with_raw: bool,
) -> tuple[Any, ConstraintState, jax.Array, tuple[jax.Array, ...]]:
    """Samples and advances: cache, next state, token to feed, and (token or -1, logprob, raw logprob)."""
    check_logits(logits, decoder.vocab_size)
    counter = jnp.full(keys.shape[:1], step, jnp.uint32)
    choice = sample(sampler, logits[:, -1], keys, counter, tables, state, with_raw=with_raw)
    token = checked(choice.token, logits[:, -1])
    taken = state.running & (token >= 0)
    out = (
        jnp.where(taken, token, -1),
        jnp.where(taken, choice.logprob, 0.0),
        jnp.where(taken, choice.raw_logprob, 0.0),
    )
    return cache, advance(tables, state, token), jnp.maximum(out[0], 0), out


def check_logits(logits: jax.Array, vocab_size: int) -> None:
    """Raises `DecodeError`, while tracing, for logits that are not what the decoder promises."""
    fix = "Check the decoder's apply function; it must return (logits[B, L, vocab_size], cache)."
    if logits.ndim != 3 or logits.shape[-1] != vocab_size:
        raise DecodeError(f"the decoder returned logits {logits.shape}; its vocab_size is {vocab_size:,}", fix=fix)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise DecodeError(f"the decoder returned logits of type {logits.dtype}", fix=fix)
