"""The host's side of decoding in blocks: starts `block_loop`, and brings its result back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from jax_decode.decoding import block_loop
from jax_decode.decoding.block_loop import Turn
from jax_decode.decoding.origin import Origin
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Request
from jax_decode.decoding.result import Generation, Work, Written, collect


def decode_blocks(turn: Turn, request: Request, num_samples: int, stops: Iterable[int], progress: Any = None) -> Generation:
    """Decodes with drafts, forced runs, or both.

    Args:
      turn: models, draft and forced runs.
      request: as checked.
      num_samples, progress: as given to `generate`.
      stops: numbers of tokens per row after which the loop returns to the host; the last is the limit.
    """
    sizes = {"num_samples": num_samples, "capacity": request.steps}
    run = block_loop.begin(turn, request.first_state(num_samples), request.batch(), **sizes)
    for until in stops:
        until = min(until, request.most)
        run = block_loop.proceed(turn, run, jax.device_put(np.int32(until)))
        if progress is not None:
            done = until if bool(to_host(run.state.running.any())) else request.most
            progress(done, request.most)
            if done >= request.most:
                break
    return _on_host(run, request, num_samples, turn.with_raw)


def _on_host(run: block_loop.Progress, request: Request, num_samples: int, with_raw: bool) -> Generation:
    """The texts, after one transfer."""
    state, single = run.state, request.prompts.single and num_samples == 1
    arrays = (run.tokens, run.logprobs, run.raw_logprobs, run.start, run.end, state.status, state.dropped, run.counts)
    tokens, logprobs, raw, start, end, status, dropped, counts = to_host(arrays)
    at = start[:, None] + np.arange(request.steps)[None]
    text = at < end[:, None]
    tokens, logprobs, raw = (np.take_along_axis(x, np.minimum(at, x.shape[1] - 1), 1) for x in (tokens, logprobs, raw))
    if request.tables is None:
        raw = logprobs
    elif not with_raw:
        raw = np.full_like(raw, np.nan)
    work = Work(**{name: np.asarray(getattr(counts, name)) for name in Work.__dataclass_fields__})
    return collect(
        Written(np.where(text, tokens, -1), np.where(text, logprobs, 0), np.where(text, raw, 0), status, dropped),
        request.stop_ids[request.rows(num_samples)],
        single=single,
        work=work,
        origin=Origin.of(request, num_samples),
    )
