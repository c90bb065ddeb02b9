"""A decoding loop with the calls of tpu-inference's `continue_decode`, in a few lines: for machines without that package."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp


@functools.partial(jax.jit, static_argnames=("model_fn", "logits_fn", "sample_fn", "steps", "stops", "padding"), donate_argnames="caches")
def fused_loop(state, model_fn, logits_fn, sample_fn, tokens, positions, caches, most, *, steps: int, stops: tuple[int, ...], padding: int):
    """Tokens int32[steps, B], how many steps were made, and the caches: up to `most` steps, or the first end of a text."""
    ends = jnp.asarray(stops, jnp.int32)

    def step(carry):
        i, tokens, active, positions, caches, out, _ = carry
        metadata = SimpleNamespace(input_positions=positions)
        caches, hidden, *_ = model_fn(state, caches, tokens, metadata, None, positions, (), None, None, True, True)
        chosen, _ = sample_fn(None, None, logits_fn(state, hidden, None), None, allow_distributed_sampling=False)
        ended = (chosen[:, None] == ends[None]).any(1)
        out = out.at[i].set(jnp.where(active, chosen, padding))
        hit, active = (active & ended).any(), active & ~ended
        return i + 1, jnp.where(active, chosen, padding), active, positions + active.astype(jnp.int32), caches, out, hit

    out = jnp.full((steps, len(tokens)), padding, jnp.int32)
    carry = (jnp.int32(0), tokens, tokens >= 0, positions, caches, out, jnp.bool_(False))
    made, *_, caches, out, _ = jax.lax.while_loop(lambda carry: (carry[0] < most) & ~carry[-1], step, carry)
    return out, made, caches
