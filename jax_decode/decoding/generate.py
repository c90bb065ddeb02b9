"""`generate`: checks the arguments, runs the two jitted programs, and brings the result to the host, once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_decode.decoding import inputs, loop
from jax_decode.decoding.block_decode import decode_blocks
from jax_decode.decoding.block_loop import Turn
from jax_decode.decoding.compilation import announce_compilation
from jax_decode.decoding.drafts import ForcedText, ModelDraft, PromptLookup, read_draft
from jax_decode.decoding.origin import Origin
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Asked, Request, check_positions, check_rows, read_positive, read_request
from jax_decode.decoding.result import Generation, Written, collect
from jax_decode.errors import DecodeError, check_function, checked_flag, named_arguments
from jax_decode.kernels.placement import on_automatic_axes, placed_like, put_rows
from jax_decode.sampling.samplers import Greedy, Sampler, check_sampler, prepared
from jax_decode.step.forced import Forced, read_forced
from jax_decode.step.state import MAX_DEPTH
from jax_decode.tables.tables import ConstraintTables

_PROGRESS_TOKENS = 64


@named_arguments
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
    bos_id: int | bool | None = None,
    tokenizer: Any = None,
    max_depth: Any = MAX_DEPTH,
    chunk: int = 16,
    allow_truncation: bool = False,
    raw_logprobs: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Generation:
    """Samples a continuation of every prompt, each inside its own constraint.

    A row depends on its own prompt, constraint, key, limit and stop ids, not on its neighbours. Prompt lengths and limits
    are padded to buckets, so that nearby ones share a compilation; constraints of one profile always do.

    Args:
      decoder: the model, see `Decoder`.
      prompts: token ids: a list of lists, one list, or an integer array; with `tokenizer` also a text, or a list of texts.
      tables: from `to_device`; None samples without constraint.
      key: one PRNG key (row r gets `fold_in(key, r)`), or one key per row; not needed by `Greedy`.
      max_new_tokens: most new tokens, the stop token included; one number, or one per prompt. Constrained rows choose
        only tokens after which the text can still be completed within it.
      constraint: index into the tables, one number or one per prompt, None in a list for no constraint. By default the
        only constraint applies to all prompts, or constraint i to prompt i.
      sampler: Greedy(), Categorical(…), TopK(…), TopP(…) or MinP(…).
      num_samples: rows per prompt.
      draft: ModelDraft(…), PromptLookup(…) or ForcedText(…) lets the model verify several drafted tokens in one pass.
      forced: most forced tokens that enter the model as one block, such as 8, or a `Forced(…)`; 0 samples them like any others.
      stop_ids: end-of-text ids, a list for all prompts or one list per prompt; by default the vocabulary's own (none without
        tables and tokenizer). A constrained row may take one exactly where its text is accepted.
      bos_id: id to put before every prompt. None: the tokenizer's, where it is not there; none without tokenizer. False: none.
      tokenizer: the model's, see `fsa_compile.load_tokenizer`; an error if the tables are another's.
      max_depth: most stack cells (open brackets, calls of rules) of a row, as with the limit.
      chunk: tokens between two checks whether all rows are done.
      allow_truncation: accept limits below a constraint's shortest text; such rows end `TRUNCATED`. Of `max_depth` never.
      raw_logprobs: False saves the work of the log-probabilities over all logits; they are then NaN in constrained batches.
      progress: called as `progress(tokens_done, max_tokens)` from time to time; the loop then returns to the host there.

    Returns:
      Tokens, status and log-probabilities per row. A row for which the model gives NaN ends `Status.NOT_A_NUMBER`.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.
    """
    asked = Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth, tokenizer)
    way = read_way(sampler, num_samples, chunk, raw_logprobs)
    request = read_request(decoder, prompts, tables, asked, least_steps=way.chunk, allow_truncation=allow_truncation)
    keys = read_key_words(key, sampler, request, way.num_samples)
    return _decoded(decoder, request, way, keys, _turn(decoder, request, way, keys, draft, forced), progress)


class Way(NamedTuple):
    """How tokens are chosen: arguments of `generate`, checked; the sampler as it is traced."""

    sampler: Sampler
    num_samples: int
    chunk: int
    with_raw: bool


def read_way(sampler: Any, num_samples: Any, chunk: Any, raw_logprobs: Any) -> Way:
    """Checks the arguments of `generate` that say how tokens are chosen.

    Raises:
      DecodeError: one is wrong.
    """
    announce_compilation()
    check_sampler(sampler)
    num_samples, chunk = read_positive(num_samples, "num_samples"), read_positive(chunk, "chunk")
    return Way(jax.device_put(prepared(sampler)), num_samples, chunk, checked_flag(raw_logprobs, "raw_logprobs"))


def _stops(most: int, progress: Any) -> Sequence[int]:
    """Numbers of tokens after which the loop returns to the host."""
    if progress is None:
        return [most]
    check_function(progress, "'progress'", "Give a function of two numbers, progress(tokens_done, max_tokens), or None.")
    return range(_PROGRESS_TOKENS, most + _PROGRESS_TOKENS, _PROGRESS_TOKENS)


def _turn(decoder: Any, request: Request, way: Way, keys: jax.Array, draft: Any, forced: Any) -> Turn | None:
    """What a turn of the loop over blocks needs; None where tokens are fed one by one."""
    runs, (drafts, most_drafts) = read_forced(forced), read_draft(draft, decoder, request.tables)
    if isinstance(drafts, ModelDraft):
        check_positions(drafts.decoder, request.prompts, request.limits, "draft model")
    if runs is None and drafts is None:
        return None
    return Turn(decoder, request.tables, drafts, way.sampler, keys, runs, most_drafts, way.with_raw)


def _decoded(decoder: Any, request: Request, way: Way, keys: jax.Array, turn: Turn | None, progress: Any) -> Generation:
    """Decodes in blocks, or, without `turn`, token by token."""
    stops = _stops(request.most, progress)
    if turn is not None:
        return decode_blocks(turn, request, way.num_samples, stops, progress)
    most = request.most
    carry = prefilled(decoder, request, way)
    for until in stops:
        limit = jax.device_put(np.int32(min(until, most)))
        carry = loop.decode(
            decoder, request.tables, way.sampler, keys, carry, limit, chunk=way.chunk, with_raw=way.with_raw
        )  # fmt: skip
        if progress is not None:
            done = int(to_host(carry.step)) if bool(to_host(carry.rows.running.any())) else most
            progress(min(done, most), most)
            if done >= most:
                break
    return on_host(carry, request, way.num_samples)


def prefilled(decoder: Any, request: Request, way: Way) -> loop.Carry:
    """The loop's first carry: prompts fed, nothing chosen."""
    sizes = {"capacity": request.steps + way.chunk, "num_samples": way.num_samples}
    fed = loop.prefill(decoder, request.batch(), **sizes, with_logits=False)
    return loop.Carry(rows=placed_like(request.first_rows(way.num_samples), fed["logits"]), **fed)


def on_host(carry: loop.Carry, request: Request, num_samples: int) -> Generation:
    """What the loop has chosen so far, after one transfer."""
    given, rows = request.prompts, carry.rows
    tokens, logprobs, raw, small = to_host((carry.tokens, carry.logprobs, carry.raw_logprobs, rows.small))
    known = dataclasses.replace(rows, small=small)
    out = Written(tokens, logprobs, raw, np.asarray(known.status), np.asarray(known.dropped))
    stops = request.stop_ids[request.rows(num_samples)]
    single = given.single and num_samples == 1
    return collect(out, stops, single=single, origin=Origin.of(request, num_samples))


def read_key_words(key: Any, sampler: Sampler, request: Request, num_samples: int) -> jax.Array:
    """Words of every row's key, uint32[P * num_samples, 2].

    Raises:
      DecodeError: the key is missing or wrong, or the rows are too many.
    """
    num_prompts = request.num_prompts
    check_rows(num_prompts * num_samples, request.vocab_size)
    if key is None:
        if not isinstance(sampler, Greedy):
            raise DecodeError("sampling needs a key", fix="Pass key=jax.random.key(seed).")
        return put_rows(np.zeros((num_prompts * num_samples, 2), np.uint32))
    return put_rows(inputs.read_words(key, num_prompts, num_samples))
