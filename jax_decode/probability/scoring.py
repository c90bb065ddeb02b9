"""`score`: log-probabilities of given token sequences, raw and constrained, from one pass of the model over each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import UNREACHABLE
from jax_decode.decoding.decoder import Decoder
from jax_decode.decoding.inputs import bucket, is_listed
from jax_decode.decoding.loop import feed_but_last
from jax_decode.decoding.programs import program, to_host
from jax_decode.decoding.requests import Asked, PromptBatch, Request, read_request
from jax_decode.decoding.vocabularies import encodes
from jax_decode.errors import DecodeError, checked_flag, named_arguments, no_numbers, shown
from jax_decode.kernels.placement import on_automatic_axes
from jax_decode.kernels.planes import NEVER, clean, log_shares, log_sum
from jax_decode.probability.endings import complete, goes_on, stop_columns
from jax_decode.probability.tree import next_tokens
from jax_decode.step.state import MAX_DEPTH, ConstraintState
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables

_BLOCK = 32
"""Positions whose logits are held at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Log-probabilities of n sequences, nats.

    Attributes:
      tokens: int32[*] each.
      raw_logprobs: float32[*] each, of every token under the model.
      logprobs: float32[*] each, of every token among the allowed ones; -inf from the first forbidden one on. Without tables the
        raw ones.
      accepted: bool[n], whether the constraint accepts the sequence as it stands.
      stopped: bool[n], whether a stop token after it is counted.
      raw_stop_logprobs, stop_logprobs: float32[n], of any stop token after it; 0 where not counted.
    """

    tokens: list[NDArray[np.int32]]
    raw_logprobs: list[NDArray[np.float32]]
    logprobs: list[NDArray[np.float32]]
    accepted: NDArray[np.bool_]
    stopped: NDArray[np.bool_]
    raw_stop_logprobs: NDArray[np.float32]
    stop_logprobs: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def raw_total_logprob(self) -> NDArray[np.float64]:
        """float64[n], of each sequence under the model, the counted stop token included."""
        return _sums(self.raw_logprobs) + self.raw_stop_logprobs

    @property
    def total_logprob(self) -> NDArray[np.float64]:
        """float64[n], that sampling token by token among the allowed ones writes the sequence; -inf where it is not accepted."""
        total = _sums(self.logprobs) + self.stop_logprobs
        return _arrays(total).where(self.accepted, total, -np.inf)


@named_arguments
@on_automatic_axes
def score(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables | None = None,
    *,
    tokens: Any = None,
    texts: Any = None,
    tokenizer: Any = None,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    max_new_tokens: Any = None,
    always_stop: bool = False,
) -> Scores:
    """Log-probabilities of continuations that are given.

    Args:
      decoder, tables, stop_ids, bos_id, max_depth: as in `generate`.
      prompts: as in `generate`; one for all sequences (it is fed once), or one for each.
      tokens: token ids of every sequence, a list of lists.
      texts: instead of tokens: strings, each in the tokenizer's own tokenization (for all of them see `score_texts`).
      tokenizer: encodes the texts.
      constraint: index into the tables, one number or one per prompt; as in `generate`.
      max_new_tokens: the limit under which `generate` would choose tokens, which keeps some from being chosen near it;
        None for no limit.
      always_stop: whether a stop token after an accepted sequence counts even where nothing else is allowed; see
        `jax_decode.probability`. Without tables it counts only then, and only with stop_ids.

    Returns:
      The log-probabilities of every token, and in total. Under `jax.grad` and `jax.jit` of the decoder, a pytree, they are JAX's
      float32 arrays, and gradients reach its parameters; NaN is then not looked for.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.
    """
    rows = _sequences(tokens, texts, tokenizer)
    longest = max(max(map(len, rows)), 1)
    limits = longest + 1 if max_new_tokens is None else max_new_tokens
    asked = Asked(limits, constraint, stop_ids, bos_id, max_depth)
    request = read_request(decoder, prompts, tables, asked, least_steps=16, allow_truncation=True)
    return scored(decoder, request, rows, limited=max_new_tokens is not None, always_stop=always_stop)


def scored(decoder: Any, request: Request, rows: list[NDArray[np.int32]], *, limited: bool, always_stop: bool) -> Scores:
    """`score` after its arguments were read; `limited`: whether the request's limits count."""
    _check(request, rows, decoder.vocab_size, limited)
    always_stop = checked_flag(always_stop, "always_stop")
    prompts, count = request.num_prompts, len(rows)
    each = bucket(count) if prompts == 1 else 1
    state = request.first_state(each)
    if not limited:
        state = dataclasses.replace(state, remaining=jnp.full_like(state.remaining, UNREACHABLE))
    block = min(request.steps, _BLOCK)
    width = -(-(max(map(len, rows)) + 1) // block) * block
    padded, counts = np.zeros((prompts * each, width), np.int32), np.zeros(prompts * each, np.int32)
    for i, row in enumerate(rows):
        padded[i, : len(row)], counts[i] = row, len(row)
    fed = PromptBatch(request.prompts.tokens, request.prompts.lengths, request.cache_length + block)
    fed, given = jax.device_put((fed, _Given(request.rows(each).astype(np.int32), padded, counts)))
    out: Any = teacher_forced(decoder, request.tables, state, fed, given, block=block)
    traced = isinstance(out.raw, jax.core.Tracer)
    out = out if traced else to_host(out)
    stopped = out.accepted & out.running & (out.goes_on | always_stop)
    if request.tables is None:
        stopped = np.full(len(padded), always_stop and (request.stop_ids >= 0).any())
    for i, row in enumerate([] if traced else rows):
        for at in np.flatnonzero(np.isnan([*out.raw[i, : len(row)], out.raw_stop[i] if stopped[i] else 0])):
            raise no_numbers(f"before position {at} of sequence {i}")
    return Scores(
        tokens=rows,
        raw_logprobs=[out.raw[i, : len(row)] for i, row in enumerate(rows)],
        logprobs=[out.local[i, : len(row)] for i, row in enumerate(rows)],
        accepted=out.accepted[:count],
        stopped=stopped[:count],
        raw_stop_logprobs=_arrays(out.raw).where(stopped, out.raw_stop, 0)[:count].astype(np.float32),
        stop_logprobs=_arrays(out.raw).where(stopped, out.local_stop, 0)[:count].astype(np.float32),
    )


def _arrays(x: Any) -> Any:
    """`jax.numpy` for what is traced, else `numpy`."""
    return jnp if isinstance(x, jax.core.Tracer) else np


def _sums(rows: Sequence[Any]) -> Any:
    """The sum of every row: float64[n], of traced ones float32[n]."""
    if _arrays(rows[0]) is jnp:
        return jnp.stack([row.sum() for row in rows])
    return np.array([row.sum(dtype=np.float64) for row in rows])


class _Given(NamedTuple):
    """parent: int32[B], the prompt of each row; tokens: int32[B, T], right padded, T a multiple of the block and more than the
    largest count; counts: int32[B]."""

    parent: Any
    tokens: Any
    counts: Any


class _Forced(NamedTuple):
    """raw, local: float32[B, T], of each token; raw_stop, local_stop: float32[B], of a stop token at the end; accepted, running,
    goes_on: bool[B], of the state at the end."""

    raw: jax.Array
    local: jax.Array
    raw_stop: jax.Array
    local_stop: jax.Array
    accepted: jax.Array
    running: jax.Array
    goes_on: jax.Array


@program()
def teacher_forced(
    decoder: Decoder,
    tables: ConstraintTables | None,
    state: ConstraintState,
    prompts: PromptBatch,
    given: _Given,
    *,
    block: int,
) -> _Forced:
    """Feeds the prompts, then the given tokens block by block, and follows the constraints along them.

    Args:
      decoder, tables: as in `generate`.
      state: [B], before the first token.
      prompts: P of them; each is fed once.
      given: the rows.
      block: positions that are fed at once.
    """
    tokens, counts = given.tokens, given.counts
    cache, last = feed_but_last(decoder, prompts, given.parent)
    before = jnp.concatenate([last[:, None], tokens[:, :-1]], axis=1)
    batch = tokens.shape[0]
    starts = jnp.arange(0, tokens.shape[1], block, dtype=jnp.int32)
    blocks = [x.reshape(batch, -1, block).swapaxes(0, 1) for x in (before, tokens)]

    def feed(carry: Any, xs: Any) -> tuple[Any, Any]:
        cache, state = carry
        inputs, targets, start = xs
        logits, cache = decoder.apply(inputs, cache, jnp.clip(counts + 1 - start, 0, block))
        at = start + jnp.arange(block, dtype=jnp.int32)
        follow = functools.partial(_follow, tables, counts)
        state, out = jax.lax.scan(follow, state, (logits.swapaxes(0, 1), targets.T, at))
        return (cache, state), out

    (_, state), out = jax.lax.scan(feed, (cache, state), (*blocks, starts))
    raw, local, raw_stop, local_stop = (x.reshape(-1, batch).T for x in out)
    end = counts[:, None]
    raw_stop, local_stop = (jnp.take_along_axis(x, end, axis=1)[:, 0] for x in (raw_stop, local_stop))
    if tables is None:
        yes = jnp.ones(batch, bool)
        return _Forced(raw, local, raw_stop, local_stop, yes, yes, yes)
    return _Forced(raw, local, raw_stop, local_stop, complete(tables, state), state.running, goes_on(tables, state))


def _follow(
    tables: ConstraintTables | None, counts: jax.Array, state: ConstraintState, xs: tuple[jax.Array, ...]
) -> tuple[ConstraintState, tuple[jax.Array, ...]]:
    """One position: log-probabilities of its token and of a stop, raw and among the allowed ones; then the next state."""
    logits, token, at = xs
    rows = jnp.arange(len(token), dtype=jnp.int32)
    if tables is None:
        logprobs = log_shares(clean(logits))
        allowed, share = jnp.ones(logprobs.shape, bool), jnp.zeros(len(token), jnp.float32)
    else:
        logprobs, allowed, share = next_tokens(tables, state, logits)
    stops = stop_columns(state, logits.shape[1])
    stop = logprobs.at[rows[:, None], stops].get(mode="fill", fill_value=NEVER)
    may_stop = allowed.at[rows[:, None], stops].get(mode="fill", fill_value=False)
    raw = logprobs[rows, token]
    local = jnp.where(allowed[rows, token], raw - share, NEVER)
    local_stop = jnp.where(may_stop.any(1), log_sum(jnp.where(may_stop, stop, NEVER)) - share, NEVER)
    after = advance(tables, state, token)
    position = jax.tree.map(lambda new, old: jnp.where(_rows_of(at < counts, new), new, old), after.position, state.position)
    return after.rewound(position), (raw, local, log_sum(stop), local_stop)


def _rows_of(flag: jax.Array, leaf: jax.Array) -> jax.Array:
    """A flag per row, with as many axes as a leaf."""
    return flag.reshape(-1, *[1] * (leaf.ndim - 1))


def _sequences(tokens: Any, texts: Any, tokenizer: Any) -> list[NDArray[np.int32]]:
    fix = "Give tokens=, a list of lists of ids, or texts=, a list of strings, with tokenizer=."
    if (tokens is None) == (texts is None):
        raise DecodeError("there must be either tokens or texts", fix=fix)
    if texts is not None:
        if not is_listed(texts) or not all(isinstance(text, str) for text in texts):
            raise DecodeError(f"the texts are {shown(texts)}, not a list of texts", fix=fix)
        if not encodes(tokenizer):
            raise DecodeError(f"the tokenizer ({type(tokenizer).__name__}) has no 'encode'", fix=fix)
        tokens = [tokenizer.encode(text) for text in texts]
    if not is_listed(tokens) or not len(tokens):
        raise DecodeError(f"the tokens are {shown(tokens)}, not a list of sequences", fix=fix)
    rows = []
    for i, row in enumerate(tokens):
        try:
            ids = np.asarray(row)
        except (TypeError, ValueError, MemoryError):  # lists of different lengths
            ids = np.zeros((0, 0))
        if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
            raise DecodeError("the sequence is not a list of token ids", where=f"sequence {i}", fix=fix)
        most = np.iinfo(np.int32).max  # larger ids must not become small ones
        bad = np.flatnonzero((ids < -most) | (ids > most))
        if len(bad):
            raise DecodeError(f"token id {ids[bad[0]]} is outside 0..{most}", where=f"position {bad[0]} of sequence {i}", fix=fix)
        rows.append(ids.astype(np.int32))
    return rows


def _check(request: Request, rows: Sequence[NDArray[np.int32]], vocab_size: int, limited: bool) -> None:
    prompts = request.num_prompts
    if prompts not in (1, len(rows)):
        raise DecodeError(f"there are {prompts} prompts for {len(rows)} sequences", fix="Give one for all, or one for each.")
    for i, row in enumerate(rows):
        bad = np.flatnonzero((row < 0) | (row >= vocab_size))
        if len(bad):
            where = f"position {bad[0]} of sequence {i}"
            raise DecodeError(f"token id {row[bad[0]]} is outside 0..{vocab_size - 1}", where=where)
        most = request.limits[0 if prompts == 1 else i]
        if limited and len(row) > most:
            raise DecodeError(f"the sequence has {len(row)} tokens, the limit is {most}", where=f"sequence {i}")
