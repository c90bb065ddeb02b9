"""The jitted programs behind `generate`: prefill, and a `while` over chunks of steps that never talks to the host.

Prefill ends with logits; every token, the first one too, is chosen by the loop, so that the constrained step is compiled once.
Everything that differs between calls of one shape is a traced argument: parameters, tables, prompts, keys, limits, sampler
numbers. Static are only sizes, the sampler's kind and the decoder's structure.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.decoding.decoder import Decoder, projection_of
from jax_decode.decoding.programs import program
from jax_decode.decoding.requests import PromptBatch
from jax_decode.errors import DecodeError
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.projected import Projected, Projection
from jax_decode.kernels.row_layout import words_for
from jax_decode.sampling.samplers import Sampler
from jax_decode.sampling.sampling import among, as_read, checked, choose, sample
from jax_decode.step.forking import fork_cache
from jax_decode.step.masking import located, mask_parts
from jax_decode.step.packing import PackedState, packed, unpacked
from jax_decode.step.state import ConstraintState
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carry:
    """What one step hands to the next, and the output so far.

    Attributes:
      cache: the decoder's.
      rows: every row's place in its constraint.
      logits: float[B, V'], what the decoder says about the next token; or float[B, D], of which it makes that (`projection_of`).
      step: int32[], tokens chosen so far.
      tokens: int32[B, T], chosen tokens, -1 where none; None inside a chunk, which collects its own output.
      logprobs, raw_logprobs: float32[B, T], see `sampling.Choice`; likewise.
    """

    cache: Any
    rows: PackedState
    logits: jax.Array
    step: jax.Array
    tokens: Any
    logprobs: Any
    raw_logprobs: Any


jax.tree_util.register_dataclass(Carry, data_fields=[f.name for f in dataclasses.fields(Carry)], meta_fields=[])


@program()
def prefill(
    decoder: Decoder, prompts: PromptBatch, *, capacity: int, num_samples: int, with_logits: bool = True
) -> dict[str, Any]:
    """Feeds the prompts: every field of the first `Carry` but the rows' state, so that all constraints share this program.

    Args:
      decoder: the model.
      prompts: each is fed once.
      capacity: T, tokens the output can hold.
      num_samples: rows per prompt, which lie together.
      with_logits: whether `logits` are these even where the decoder has a projection.
    """
    count, projection = prompts.tokens.shape[0], None if with_logits else projection_of(decoder)
    empty = decoder.init_cache(count, prompts.cache_length)
    logits, cache = applied(decoder, projection, prompts.tokens, empty, prompts.lengths, last_only=True)
    if num_samples > 1:
        logits = jnp.repeat(logits, num_samples, axis=0)
        parent = jnp.repeat(jnp.arange(count, dtype=jnp.int32), num_samples)
        cache = fork_cache(decoder, cache, parent, length=prompts.cache_length)
    shape = (logits.shape[0], capacity)
    return {
        "cache": cache,
        "logits": logits[:, -1],
        "step": jnp.int32(0),
        "tokens": jnp.full(shape, -1, jnp.int32),
        "logprobs": jnp.zeros(shape, jnp.float32),
        "raw_logprobs": jnp.zeros(shape, jnp.float32),
    }


@program(donate=["carry"])
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
    """Decodes until every row is done, or `until` int32[] tokens per row were chosen; checks the former once per chunk.

    The carry is donated, the tables never.

    Args:
      decoder: the model.
      tables: the constraints, or None.
      sampler: from `samplers.prepared`.
      keys: uint32[B, 2].
      carry: from `prefill`, or from here; its capacity must reach `chunk` tokens beyond `until`.
      until: tokens per row.
      chunk: most steps between two checks.
      with_raw: see `sampling.sample`.
    """

    projection = projection_of(decoder)

    def step(i: jax.Array, inner: tuple[Carry, list[jax.Array]]) -> tuple[Carry, list[jax.Array]]:
        carry, outs = inner
        state, fed, out = _choose(tables, sampler, keys, carry, with_raw, projection)
        logits, cache = applied(decoder, projection, fed[:, None], carry.cache, state.running.astype(jnp.int32))
        logits = logits[:, -1].astype(carry.logits.dtype)
        outs = [jax.lax.dynamic_update_index_in_dim(kept, new, i, 0) for kept, new in zip(outs, out)]
        return dataclasses.replace(carry, cache=cache, rows=packed(state), logits=logits, step=carry.step + 1), outs

    def run_chunk(carry: Carry) -> Carry:
        start, buffers = carry.step, (carry.tokens, carry.logprobs, carry.raw_logprobs)
        # The whole output stays out of the inner loop, which would otherwise carry it through every step.
        inner = dataclasses.replace(carry, tokens=None, logprobs=None, raw_logprobs=None)
        outs = [jnp.full((chunk, len(keys)), x, buffer.dtype) for x, buffer in zip((-1, 0, 0), buffers)]
        inner, outs = jax.lax.fori_loop(0, jnp.minimum(chunk, until - start), step, (inner, outs))
        filled = [jax.lax.dynamic_update_slice(buffer, out.T, (jnp.int32(0), start)) for buffer, out in zip(buffers, outs)]
        return dataclasses.replace(inner, tokens=filled[0], logprobs=filled[1], raw_logprobs=filled[2])

    def going(carry: Carry) -> jax.Array:
        return (carry.step < until) & carry.rows.running.any()

    return jax.lax.while_loop(going, run_chunk, carry)


def applied(decoder: Any, projection: Projection | None, *block: Any, last_only: bool = False) -> tuple[jax.Array, Any]:
    """What a decoder says after a block, checked, or what its projection makes that of; and its cache."""
    if projection is None:
        found, cache = decoder.apply(*block, last_only=True) if last_only else decoder.apply(*block)
        check_logits(found, decoder.vocab_size)
    else:
        found, cache = decoder.states(*block, last_only=last_only)
        width = projection.embedding.shape[1]
        if found.ndim != 3 or found.shape[-1] != width or not jnp.issubdtype(found.dtype, jnp.floating):
            what = f"the decoder returned states {found.dtype}{list(found.shape)}; its projection takes {width:,} numbers"
            raise DecodeError(what, fix="Return the last hidden states, float[B, L, D], behind their norm.")
    return found, cache


def said(tables: ConstraintTables | None, sampler: Sampler, found: jax.Array, projection: Projection | None) -> Any:
    """What rows that `applied` has found are read as by a sampler: logits, or what they are made of."""
    if projection is None:
        return found
    columns = Columns(words_for(len(projection.embedding))) if tables is None else tables.columns
    return as_read(sampler, Projected(found, projection), columns)


def _choose(
    tables: ConstraintTables | None,
    sampler: Sampler,
    keys: jax.Array,
    carry: Carry,
    with_raw: bool,
    projection: Projection | None = None,
) -> tuple[ConstraintState, jax.Array, tuple[jax.Array, ...]]:
    """Samples and advances: next state, token to feed, and (token or -1, logprob, raw logprob)."""
    state = unpacked(carry.rows)
    counter = jnp.full(keys.shape[:1], carry.step, jnp.uint32)
    logits = said(tables, sampler, carry.logits, projection)
    if tables is None:
        choice, at = sample(sampler, logits, keys, counter, with_raw=with_raw), None
    else:
        at = located(tables, state) if tables.stacks == 1 else None  # found once for the mask and the step
        allowed = among(logits, mask_parts(tables, state, at), tables.columns)
        choice = choose(sampler, allowed, keys, counter, with_raw=with_raw)
    token = checked(choice.token, logits)
    taken = state.running & (token >= 0)
    out = (
        jnp.where(taken, token, -1),
        jnp.where(taken, choice.logprob, 0.0),
        jnp.where(taken, choice.raw_logprob, 0.0),
    )
    return advance(tables, state, token, at), jnp.maximum(out[0], 0), out


def feed_but_last(decoder: Decoder, prompts: PromptBatch, owner: jax.Array) -> tuple[Any, jax.Array]:
    """Feeds the prompts but their last tokens, each once.

    Args:
      decoder: the model.
      prompts: P of them.
      owner: int32[B], the prompt of each row.

    Returns:
      The rows' cache, and the last token of each row's prompt, int32[B].
    """
    fed = jnp.maximum(prompts.lengths - 1, 0)
    empty = decoder.init_cache(prompts.tokens.shape[0], prompts.cache_length)
    _, cache = decoder.apply(prompts.tokens, empty, fed, last_only=True)
    last = jnp.take_along_axis(prompts.tokens, fed[:, None], axis=1)[:, 0]
    return fork_cache(decoder, cache, owner, length=prompts.cache_length), last[owner]


def check_logits(logits: jax.Array, vocab_size: int) -> None:
    """Raises `DecodeError`, while tracing, for logits that are not what the decoder promises."""
    fix = "Check the decoder's apply function; it must return (logits[B, L, vocab_size], cache)."
    if logits.ndim != 3 or logits.shape[-1] != vocab_size:
        raise DecodeError(f"the decoder returned logits {logits.shape}; its vocab_size is {vocab_size:,}", fix=fix)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise DecodeError(f"the decoder returned logits of type {logits.dtype}", fix=fix)
