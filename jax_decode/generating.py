"""`generate`: checks the arguments, runs the two jitted programs, and brings the result to the host, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jax_decode import inputs, loop
from jax_decode.errors import DecodeError
from jax_decode.generation import Generation, collect
from jax_decode.noise import key_words
from jax_decode.samplers import Greedy, Sampler, check_sampler, prepared
from jax_decode.state import MAX_DEPTH, ConstraintState, init_state, unconstrained_state
from jax_decode.tables import ConstraintTables

_PROGRESS_TOKENS = 64


def generate(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables | None = None,
    *,
    key: jax.Array | None = None,
    max_new_tokens: Any,
    constraint: Any = None,
    sampler: Sampler = Greedy(),  # noqa: B008 (frozen)
    num_samples: int = 1,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    chunk: int = 16,
    allow_truncation: bool = False,
    raw_logprobs: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Generation:
    """Samples a continuation of every prompt, each inside its own constraint.

    A row depends on its own prompt, constraint, key, limit and stop ids, not on its neighbours. Prompt lengths and limits
    are padded to buckets, so that nearby ones share a compilation; constraints of one size bucket always do.

    Args:
      decoder: the model, see `Decoder`.
      prompts: token ids: a list of lists, one list, or an integer array of one or two dimensions.
      tables: from `to_device`; None samples without constraint.
      key: one PRNG key (row r gets `fold_in(key, r)`), or one key per row; not needed by `Greedy`.
      max_new_tokens: most new tokens, the stop token included; one number, or one per prompt. Constrained rows choose
        only tokens after which the text can still be completed within it.
      constraint: index into the tables, one number or one per prompt, None in a list for no constraint. By default the
        only constraint applies to all prompts, or constraint i to prompt i.
      sampler: Greedy(), Categorical(…), TopK(…), TopP(…) or MinP(…).
      num_samples: rows per prompt.
      stop_ids: end-of-text ids, a list for all prompts or one list per prompt; by default the vocabulary's own (none
        without tables). A constrained row may take one exactly where its text is accepted.
      bos_id: id to put before every prompt.
      max_depth: most stack cells (open brackets, calls of rules) of a row, one number, or one per prompt. Constrained rows
        choose only tokens after which the text can still be completed within it and within `max_new_tokens`.
      chunk: tokens between two checks whether all rows are done.
      allow_truncation: accept limits below a constraint's shortest text; such rows end `TRUNCATED`. A `max_depth` below what a
        constraint's text needs is always an error.
      raw_logprobs: False saves the work of the log-probabilities over all logits; they are then NaN in constrained batches.
      progress: called as `progress(tokens_done, max_tokens)` from time to time; the loop then returns to the host there.

    Returns:
      Tokens, status and log-probabilities per row.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.
    """
    vocab_size = inputs.check_decoder(decoder, tables)
    check_sampler(sampler)
    num_samples = _positive(num_samples, "num_samples")
    chunk = _positive(chunk, "chunk")
    given = inputs.read_prompts(prompts, vocab_size, bos_id)
    num_prompts = len(given.lengths)
    which = inputs.read_constraints(constraint, tables, num_prompts)
    limits = inputs.read_limits(max_new_tokens, num_prompts)
    stops = inputs.read_stop_ids(stop_ids, tables, which, vocab_size)
    depths = inputs.read_depths(max_depth, num_prompts)
    if tables is not None:
        inputs.check_depth(tables, which, depths)
        if not allow_truncation:
            inputs.check_budget(tables, which, limits)
    steps = inputs.bucket(int(limits.max()), least=chunk)
    cache_length = _cache_length(decoder, given, limits, steps)
    if key is None:
        if not isinstance(sampler, Greedy):
            raise DecodeError("sampling needs a key", fix="Pass key=jax.random.key(seed).")
        key = jax.random.key(0)
    words = key_words(inputs.read_keys(key, num_prompts, num_samples))

    rows = np.repeat(np.arange(num_prompts), num_samples)
    state = _first_state(tables, which[rows], limits[rows], stops[rows], depths[rows], steps)
    traced, numbers = jax.device_put((prepared(sampler), (given.tokens, given.lengths)))
    carry = loop.prefill(
        decoder,
        tables,
        traced,
        words,
        state,
        *numbers,
        cache_length=cache_length,
        capacity=steps + chunk,
        num_samples=num_samples,
        with_raw=bool(raw_logprobs),
    )
    most = int(limits.max())
    for until in [most] if progress is None else range(_PROGRESS_TOKENS, most + _PROGRESS_TOKENS, _PROGRESS_TOKENS):
        carry = loop.decode(
            decoder,
            tables,
            traced,
            words,
            carry,
            jax.device_put(np.int32(min(until, most))),
            chunk=chunk,
            with_raw=bool(raw_logprobs),
        )
        if progress is not None:
            done = int(jax.device_get(carry.step)) if bool(jax.device_get(carry.state.running.any())) else most
            progress(min(done, most), most)
            if done >= most:
                break
    state = carry.state
    out = (carry.tokens, carry.logprobs, carry.raw_logprobs, state.status, state.dropped)
    tokens, logprobs, raw, status, dropped = jax.device_get(out)
    return collect(tokens, logprobs, raw, status, dropped, stops[rows], single=given.single and num_samples == 1)


def _first_state(
    tables: ConstraintTables | None, which: Any, limits: Any, stops: Any, depths: Any, steps: int
) -> ConstraintState:
    which, limits, stops, depths = jax.device_put((which.astype(np.int32), limits, stops, depths))
    if tables is not None:
        return _init_state(tables, which, limits, stops, max_depth=depths, max_tokens=steps)
    return _unconstrained_state(limits, stops)


_init_state = jax.jit(init_state, static_argnames="max_tokens")
_unconstrained_state = jax.jit(unconstrained_state)


def _cache_length(decoder: Any, given: inputs.Prompts, limits: Any, steps: int) -> int:
    """Slots of the cache: the buckets' sum, but never more than the decoder can serve."""
    need = given.lengths + limits
    most = getattr(decoder, "max_length", None)
    length = given.tokens.shape[1] + steps
    if most is None:
        return length
    bad = np.flatnonzero(need > most)
    if len(bad):
        i = int(bad[0])
        raise DecodeError(
            f"{given.lengths[i]} prompt tokens and {limits[i]} new ones do not fit the model's {most} positions",
            where=f"prompt {i}",
            fix="Shorten the prompt or lower max_new_tokens.",
        )
    return min(length, most)


def _positive(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise DecodeError(f"{what} is {value!r}", fix="Give a whole number of at least 1.")
    return int(value)
