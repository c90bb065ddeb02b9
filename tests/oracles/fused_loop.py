"""A decoding loop with the calls of tpu-inference's `continue_decode`, in a few lines, and that loop itself with the same arguments."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp

STEPS, PADDING = 6, -1


@functools.partial(jax.jit, static_argnames=("model_fn", "logits_fn", "sample_fn", "steps", "stops", "padding"), donate_argnames="caches")
def fused_loop(state, model_fn, logits_fn, sample_fn, tokens, metadata, caches, most, *, steps: int, stops: tuple[int, ...], padding: int):
    """Tokens int32[steps, B], how many steps were made, and the caches: up to `most` steps, or the first end of a text.

    `metadata`: input positions and block tables of every row, int32[B] each.
    """
    ends = jnp.asarray(stops, jnp.int32)
    positions, pages = metadata

    def step(carry):
        i, tokens, active, positions, caches, out, _ = carry
        given = SimpleNamespace(input_positions=positions, block_tables=pages)
        caches, hidden, *_ = model_fn(state, caches, tokens, given, None, positions, (), None, None, True, True)
        chosen, _ = sample_fn(None, None, logits_fn(state, hidden, None), None, allow_distributed_sampling=False)
        ended = (chosen[:, None] == ends[None]).any(1)
        out = out.at[i].set(jnp.where(active, chosen, padding))
        hit, active = (active & ended).any(), active & ~ended
        return i + 1, jnp.where(active, chosen, padding), active, positions + active.astype(jnp.int32), caches, out, hit

    out = jnp.full((steps, len(tokens)), padding, jnp.int32)
    carry = (jnp.int32(0), tokens, tokens >= 0, positions, caches, out, jnp.bool_(False))
    made, *_, caches, out, _ = jax.lax.while_loop(lambda carry: (carry[0] < most) & ~carry[-1], step, carry)
    return out, made, caches


def greedy(rng, mesh, logits, metadata, **_):
    """The best token of every row; called as the runner's sampler is."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), None


def own_loop(state, model, logits, tokens, positions, pages, caches, most, stops):
    given = (state, model, logits, greedy, tokens, (positions, pages), caches, jnp.int32(most))
    return fused_loop(*given, steps=STEPS, stops=stops, padding=PADDING)


def their_loop(module, metadata_class, interval: int):
    """`continue_decode` of the module `runner.decode_loop`; its compiler's options, which are for TPUs alone, must be left out.

    Every `interval` steps it looks whether a text has ended, never for 0; rows that have ended are fed an id of the vocabulary.
    """

    def loop(state, model, logits, tokens, positions, pages, caches, most, stops):
        rows = len(tokens)
        metadata = metadata_class(
            input_positions=positions, block_tables=pages, seq_lens=positions + 1,
            query_start_loc=jnp.arange(rows + 1, dtype=jnp.int32), request_distribution=jnp.zeros(2, jnp.int32),
            mamba_state_indices=None,
        )  # fmt: skip
        begin = module.TpuSamplingState(tokens, tokens >= 0, metadata, jnp.int32(0))
        out, caches, end, *_ = module.continue_decode(
            state=state, model_fn=model, compute_logits_fn=logits, sample_fn=greedy, init_state=begin, kv_caches=caches,
            max_decode_steps=jnp.int32(most), static_max_decode_steps=STEPS, eos_token_id=stops, padding_token_id=63,
            rng=jax.random.PRNGKey(0), mesh=None, sampling_metadata=None, continue_decode_eos_check_interval=interval,
        )  # fmt: skip
        return out, end.step_counter, caches

    return loop
