"""The host's side of decoding in blocks: starts the loop of `speculation`, and brings its result back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from jax_decode.decoding import block_loop as speculation
from jax_decode.decoding.drafts import Draft
from jax_decode.decoding.requests import Request
from jax_decode.decoding.result import Generation, Work, collect
from jax_decode.kernels.placement import put_rows
from jax_decode.sampling.samplers import Sampler
from jax_decode.step.forced import Forced


def decode_blocks(
    decoder: Any,
    request: Request,
    draft: Draft | None,
    forced: Forced | None,
    sampler: Sampler,
    keys: jax.Array,
    *,
    most_drafts: int,
    num_samples: int,
    with_raw: bool,
    stops: Iterable[int],
    progress: Any = None,
) -> Generation:
    """Decodes with drafts, forced runs, or both.

    Args:
      decoder, request: as checked.
      draft, most_drafts: from `drafts.read_draft`.
      forced: from `forced.read_forced`.
      sampler, keys: from `samplers.prepared`, and every row's words.
      num_samples, with_raw, progress: as given to `generate`.
      stops: numbers of tokens per row after which the loop returns to the host; the last is the limit.
    """
    tables = request.tables
    run = speculation.begin(
        decoder,
        tables,
        draft,
        sampler,
        keys,
        request.first_state(num_samples),
        *put_rows((request.prompts.tokens, request.prompts.lengths)),
        num_samples=num_samples,
        cache_length=request.cache_length,
        capacity=request.steps,
        forced=forced,
        with_raw=with_raw,
    )
    for until in stops:
        until = min(until, request.most)
        run = speculation.proceed(
            decoder,
            tables,
            draft,
            sampler,
            keys,
            run,
            jax.device_put(np.int32(until)),
            forced=forced,
            most_drafts=most_drafts,
            with_raw=with_raw,
        )
        if progress is not None:
            done = until if bool(jax.device_get(run.state.running.any())) else request.most
            progress(done, request.most)
            if done >= request.most:
                break
    return _on_host(run, request, num_samples, with_raw)


def _on_host(run: speculation.Progress, request: Request, num_samples: int, with_raw: bool) -> Generation:
    """The texts, after one transfer."""
    state, single = run.state, request.prompts.single and num_samples == 1
    arrays = (run.tokens, run.logprobs, run.raw_logprobs, run.start, run.end, state.status, state.dropped, run.counts)
    tokens, logprobs, raw, start, end, status, dropped, counts = jax.device_get(arrays)
    at = start[:, None] + np.arange(request.steps)[None]
    text = at < end[:, None]
    tokens, logprobs, raw = (np.take_along_axis(x, np.minimum(at, x.shape[1] - 1), 1) for x in (tokens, logprobs, raw))
    if request.tables is None:
        raw = logprobs
    elif not with_raw:
        raw = np.full_like(raw, np.nan)
    work = Work(**{name: np.asarray(getattr(counts, name)) for name in Work.__dataclass_fields__})
    return collect(
        np.where(text, tokens, -1),
        np.where(text, logprobs, 0),
        np.where(text, raw, 0),
        status,
        dropped,
        request.stop_ids[request.rows(num_samples)],
        single=single,
        work=work,
    )
