"""`generate`: checks the arguments, runs the two jitted programs, and brings the result to the host, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jax_decode.decoding import inputs, loop
from jax_decode.decoding.block_decode import decode_blocks
from jax_decode.decoding.compilation import announce_compilation
from jax_decode.decoding.drafts import ForcedText, ModelDraft, PromptLookup, read_draft
from jax_decode.decoding.requests import Request, check_positions, read_positive, read_request
from jax_decode.decoding.result import Generation, collect
from jax_decode.errors import DecodeError
from jax_decode.kernels.noise import key_words
from jax_decode.kernels.placement import on_automatic_axes, put_rows
from jax_decode.sampling.samplers import Greedy, Sampler, check_sampler, prepared
from jax_decode.step.forced import Forced, read_forced
from jax_decode.step.state import MAX_DEPTH
from jax_decode.tables.tables import ConstraintTables

_PROGRESS_TOKENS = 64


@on_automatic_axes
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
    draft: ModelDraft | PromptLookup | ForcedText | None = None,
    forced: int | Forced = 0,
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
      draft: ModelDraft(…), PromptLookup(…) or ForcedText(…) lets the model verify several drafted tokens in one pass. The text
        has the distribution it has without; with `Greedy` it is the same text, as long as the model gives a block the logits
        that it gives single tokens.
      forced: longest run of tokens that the constraint forces to enter the model as one block, for example 8; 0 samples them like
        any others; or a `Forced(…)`. The text is the same. Most is forced by constraints compiled with `canonical=True`, for one
        stop id. With `raw_logprobs=False` what is forced at the beginning enters with the prompt.
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
      Tokens, status and log-probabilities per row. A row for which the model gives NaN ends `Status.NOT_A_NUMBER`.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.
    """
    announce_compilation()
    check_sampler(sampler)
    num_samples = read_positive(num_samples, "num_samples")
    chunk = read_positive(chunk, "chunk")
    if progress is not None and not callable(progress):
        fix = "Give a function of two numbers, progress(tokens_done, max_tokens), or None."
        raise DecodeError(f"'progress' is {progress!r}, which cannot be called", fix=fix)
    request = read_request(
        decoder,
        prompts,
        tables,
        max_new_tokens=max_new_tokens,
        constraint=constraint,
        stop_ids=stop_ids,
        bos_id=bos_id,
        max_depth=max_depth,
        least_steps=chunk,
        allow_truncation=allow_truncation,
    )
    most = request.most
    runs, (drafts, most_drafts) = read_forced(forced), read_draft(draft, decoder, tables)
    if isinstance(drafts, ModelDraft):
        check_positions(drafts.decoder, request.prompts, request.limits, "draft model")
    words = read_key_words(key, sampler, request.num_prompts, num_samples)
    sampler = jax.device_put(prepared(sampler))
    stops = [most] if progress is None else range(_PROGRESS_TOKENS, most + _PROGRESS_TOKENS, _PROGRESS_TOKENS)
    if runs is not None or drafts is not None:
        return decode_blocks(
            decoder,
            request,
            drafts,
            runs,
            sampler,
            words,
            most_drafts=most_drafts,
            num_samples=num_samples,
            with_raw=bool(raw_logprobs),
            stops=stops,
            progress=progress,
        )
    carry = prefilled(decoder, request, num_samples, chunk)
    for until in stops:
        carry = loop.decode(
            decoder,
            tables,
            sampler,
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
    return on_host(carry, request, num_samples)


def prefilled(decoder: Any, request: Request, num_samples: int, chunk: int) -> loop.Carry:
    """The loop's first carry: prompts fed, nothing chosen."""
    given = put_rows((request.prompts.tokens, request.prompts.lengths))
    sizes = {"cache_length": request.cache_length, "capacity": request.steps + chunk, "num_samples": num_samples}
    return loop.Carry(state=request.first_state(num_samples), **loop.prefill(decoder, *given, **sizes))


def on_host(carry: loop.Carry, request: Request, num_samples: int) -> Generation:
    """What the loop has chosen so far, after one transfer."""
    state, given = carry.state, request.prompts
    out = (carry.tokens, carry.logprobs, carry.raw_logprobs, state.status, state.dropped)
    tokens, logprobs, raw, status, dropped = jax.device_get(out)
    stops = request.stop_ids[request.rows(num_samples)]
    return collect(tokens, logprobs, raw, status, dropped, stops, single=given.single and num_samples == 1)


def read_key_words(key: Any, sampler: Sampler, num_prompts: int, num_samples: int) -> jax.Array:
    """Words of every row's key, uint32[num_prompts * num_samples, 2].

    Raises:
      DecodeError: the key is missing or wrong.
    """
    if key is None:
        if not isinstance(sampler, Greedy):
            raise DecodeError("sampling needs a key", fix="Pass key=jax.random.key(seed).")
        key = jax.random.key(0)
    return put_rows(key_words(inputs.read_keys(key, num_prompts, num_samples)))
