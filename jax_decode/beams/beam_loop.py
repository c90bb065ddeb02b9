"""The jitted program behind `beam_search`: prefill, and a `while` over chunks of `scan` that never talks to the host.

Every prompt has B beams (texts that can still grow) and N finished texts. A step ranks every allowed continuation of every beam:
the best B go on, ends compete with the finished texts. The first tokens are chosen before there are several beams, by one row for
each prompt. Beams are paths in a tree, so no two are alike; a text with several stop
tokens ends once, with their joint probability. What a beam was made of is kept as one token and one parent per step; the texts
are read backwards at the end.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from jax_decode.beams.expansion import Beams, Expansion, expanded
from jax_decode.beams.ranking import Ranking
from jax_decode.decoding.decoder import Decoder
from jax_decode.decoding.programs import program
from jax_decode.decoding.requests import first_state, parted
from jax_decode.kernels.planes import NEVER
from jax_decode.step.forking import fork, fork_cache
from jax_decode.step.state import ConstraintState, Status
from jax_decode.step.transition import advance
from jax_decode.tables.concatenation import FREE
from jax_decode.tables.tables import ConstraintTables


class Finished(NamedTuple):
    """Finished texts, [P, n] each, in the order of their scores; -inf where there is none.

    score: float32; weight: log-probability by which they were ranked; length: text tokens; beam: of the last text token; stop:
    stop token, -1 for none; status; dropped: see `ConstraintState`; logprob, raw_logprob: float32, of the end, among the allowed
    tokens and among all.
    """

    score: jax.Array
    weight: jax.Array
    length: jax.Array
    beam: jax.Array
    stop: jax.Array
    status: jax.Array
    dropped: jax.Array
    logprob: jax.Array
    raw_logprob: jax.Array


class Trail(NamedTuple):
    """What every beam chose at every step, [T, P, B] each: its parent beam, token, and the token's log-probabilities."""

    parent: jax.Array
    token: jax.Array
    logprob: jax.Array
    raw_logprob: jax.Array


class Texts(NamedTuple):
    """Finished texts in few arrays: what the host reads costs by the piece.

    integers: int32[P, N, 2 + T], status, whether configurations were dropped, and the tokens, -1 after the last, the stop token
    included; reals: float32[P, N, 2 + 2 T], score, weight, log-probabilities of the tokens among the allowed ones, and among all;
    steps: int32[], taken by the search.
    """

    integers: Any
    reals: Any
    steps: Any

    def parts(self) -> tuple[NDArray[Any], ...]:
        """On the host: status, dropped, tokens; score, weight, logprobs, raw_logprobs; with one row per text."""
        integers, reals = (x.reshape(-1, x.shape[2]) for x in (self.integers, self.reals))
        capacity = integers.shape[1] - 2
        status, dropped, tokens = integers[:, 0], integers[:, 1] != 0, integers[:, 2:]
        return status, dropped, tokens, reals[:, 0], reals[:, 1], reals[:, 2 : 2 + capacity], reals[:, 2 + capacity :]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamCarry:
    """What one step hands to the next, and the output so far; R = P * B rows, the beams of one prompt together.

    Attributes:
      cache: the decoder's, R rows; it has not seen `token` yet.
      state: R rows.
      token: int32[R], the last token of every beam.
      step: int32[], tokens chosen so far.
      rank: float32[P, B], descending; -inf where there is no beam.
      weight: float32[P, B], total log-probability by which the beams are ranked.
      broken: bool[P], whether a beam was given up because none of its logits was a number.
      finished: the best N finished texts.
      trail: of all steps.
    """

    cache: Any
    state: ConstraintState
    token: jax.Array
    step: jax.Array
    rank: jax.Array
    weight: jax.Array
    broken: jax.Array
    finished: Finished
    trail: Trail

    @property
    def alive(self) -> jax.Array:
        """bool[R], rows that hold a beam."""
        return (self.rank > NEVER).reshape(-1)


jax.tree_util.register_dataclass(BeamCarry, data_fields=[f.name for f in dataclasses.fields(BeamCarry)], meta_fields=[])


class Sizes(NamedTuple):
    """Static: num_stops: see `requests.parted`; steps: see `Request`; cache_length: slots of the cache; beams: B; keep: N; chunk:
    steps between two checks."""

    num_stops: int
    steps: int
    cache_length: int
    beams: int
    keep: int
    chunk: int


@program()
def search(
    decoder: Decoder, tables: ConstraintTables | None, ranking: Ranking, asked: jax.Array, *, sizes: Sizes
) -> Texts:
    """Feeds the prompts, each once, and steps until no beam can improve the finished texts, or all limits are reached.

    Args:
      decoder: the model.
      tables: the constraints, or None.
      ranking: of R rows.
      asked: `Request.joined`, of P prompts.
      sizes: static ones.
    """
    num_stops, steps, cache_length, beams, keep, chunk = sizes
    numbers, prompts, lengths = parted(asked, num_stops)
    state, until = first_state(tables, numbers, steps), numbers.limits.max()
    logits, cache = decoder.apply(prompts, decoder.init_cache(len(prompts), cache_length), lengths, last_only=True)
    prompt = jnp.arange(len(prompts), dtype=jnp.int32)
    first = ranking.of_rows(prompt * beams)
    before = _before(first, state, capacity=steps + chunk, beams=beams, keep=keep)
    carry, _ = _choose(tables, first, before, logits[:, -1], beams)
    carry = dataclasses.replace(carry, cache=fork_cache(decoder, cache, jnp.repeat(prompt, beams), length=cache_length))

    def step(carry: BeamCarry, _: None) -> tuple[BeamCarry, None]:
        logits, cache = decoder.apply(carry.token[:, None], carry.cache, carry.alive.astype(jnp.int32))
        carry, row = _choose(tables, ranking, carry, logits[:, -1], beams)
        return dataclasses.replace(carry, cache=fork_cache(decoder, cache, row, length=cache_length)), None

    def run_chunk(carry: BeamCarry) -> BeamCarry:
        return step(carry, None)[0] if chunk == 1 else jax.lax.scan(step, carry, None, length=chunk)[0]

    def going(carry: BeamCarry) -> jax.Array:
        return (carry.step < until) & carry.alive.any()

    return _texts(jax.lax.while_loop(going, run_chunk, carry))


def _before(first: Ranking, state: ConstraintState, *, capacity: int, beams: int, keep: int) -> BeamCarry:
    """One beam of every prompt, the empty text, without a cache; `capacity`: T, steps that the output can hold."""
    count = len(state.status)
    whole, real = jnp.zeros((capacity, count, beams), jnp.int32), jnp.zeros((capacity, count, beams), jnp.float32)
    return BeamCarry(
        cache=None,
        state=state,
        token=jnp.zeros(count, jnp.int32),
        step=jnp.int32(0),
        rank=first.root(count)[:, None],
        weight=jnp.zeros((count, 1), jnp.float32),
        broken=jnp.zeros(count, bool),
        finished=_none_finished(count, keep),
        trail=Trail(whole, whole - 1, real, jnp.zeros_like(real)),
    )


def _texts(carry: BeamCarry) -> Texts:
    """The finished texts, read back from the last token to the first."""
    trail, finished = carry.trail, carry.finished
    prompt = jnp.arange(finished.beam.shape[0], dtype=jnp.int32)[:, None]

    def step(beam: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        index, parent = at
        return jnp.where(index < finished.length, parent[prompt, beam], beam), beam

    steps = jnp.arange(trail.token.shape[0], dtype=jnp.int32)
    _, beam = jax.lax.scan(step, finished.beam, (steps, trail.parent), reverse=True)
    index, length = steps[:, None, None], finished.length[None]
    inside, ends = index < length, (index == length) & (finished.stop >= 0)[None]

    def read_back(made: jax.Array, end: jax.Array, none: Any) -> jax.Array:
        """What the texts' tokens were given, then their ends, [P, N, T]."""
        own = jnp.take_along_axis(made, beam, 2)
        return jnp.where(inside, own, jnp.where(ends, end[None], none)).transpose(1, 2, 0)

    tokens = read_back(trail.token, finished.stop, -1)
    logprobs = [read_back(trail.logprob, finished.logprob, 0.0), read_back(trail.raw_logprob, finished.raw_logprob, 0.0)]
    absent = finished.score == NEVER
    status = jnp.where(absent, jnp.where(carry.broken[:, None], Status.NOT_A_NUMBER, Status.ABSENT), finished.status)
    integers = [status[..., None], (finished.dropped & ~absent)[..., None], jnp.where(absent[..., None], -1, tokens)]
    weight = jnp.where(absent, NEVER, finished.weight)
    return Texts(
        jnp.concatenate([x.astype(jnp.int32) for x in integers], 2),
        jnp.concatenate([finished.score[..., None], weight[..., None], *logprobs], 2),
        carry.step,
    )


def _none_finished(count: int, keep: int) -> Finished:
    none, zero = jnp.full((count, keep), NEVER, jnp.float32), jnp.zeros((count, keep), jnp.int32)
    status = jnp.full_like(zero, Status.ABSENT)
    return Finished(none, none, zero, zero, zero - 1, status, zero > 0, jnp.zeros_like(none), jnp.zeros_like(none))


def _choose(
    tables: ConstraintTables | None, ranking: Ranking, carry: BeamCarry, logits: jax.Array, wanted: int
) -> tuple[BeamCarry, jax.Array]:
    """One step of all beams: ranks their continuations, keeps the best, forks the state and advances.

    Args:
      tables, ranking, carry: see `search`; the number of beams may be another than `wanted`.
      logits: float[R, V'], what the decoder says of the next token.
      wanted: static, the number of beams afterwards, B'.

    Returns:
      The carry, its cache still that of the parents; the parents' rows, int32[P * B'].
    """
    count, beams = carry.rank.shape
    state, alive, rank = carry.state, carry.alive, carry.rank.reshape(-1)
    weight = jnp.where(alive, carry.weight.reshape(-1), 0.0)
    found = expanded(tables, ranking, state, Beams(alive, logits, rank, weight, carry.step), beams, wanted)
    best, new_weight, token, logit, parent = found.best
    row = (parent + jnp.arange(count, dtype=jnp.int32)[:, None] * beams).reshape(-1)
    exists, chosen = (best > NEVER).reshape(-1), jnp.maximum(token, 0).reshape(-1)
    logprob, raw = (
        jnp.where(exists, jnp.minimum(logit.reshape(-1) - total[row], 0.0), 0.0) for total in (found.sums.allowed, found.sums.raw)
    )
    new_weight = jnp.where(exists, new_weight.reshape(-1), 0.0)
    state = advance(tables, _forked(tables, state, row), jnp.where(exists, chosen, -1))
    complete = exists & ((state.status == Status.ACCEPTED) | (state.status == Status.TRUNCATED))
    # Nothing may follow an accepted text whose vocabulary has no stop token: it ends by itself.
    silent = found.complete & ~found.follows & (found.sums.ends == NEVER)
    end_rank = jnp.where(silent, rank, found.end_rank)

    def merged() -> Finished:
        ended = _ended(ranking, carry, found, silent, end_rank, weight)
        full = jnp.where(complete, best.reshape(-1), NEVER)
        return _merged(carry.finished, ended, _at_limit(ranking, state, full, new_weight, carry.step + 1, wanted))

    if tables is None or tables.items is None:
        finished = merged()
    else:  # items end seldom: most are of one length
        finished = jax.lax.cond((end_rank > NEVER).any() | complete.any(), merged, lambda: carry.finished)
    rank = jnp.where((exists & state.running).reshape(count, wanted), best, NEVER)
    made = Trail(parent, *(v.reshape(count, wanted) for v in (jnp.where(exists, chosen, -1), logprob, raw)))
    after = BeamCarry(
        cache=carry.cache,
        state=state,
        token=chosen,
        step=carry.step + 1,
        rank=_hopeful(ranking, rank, finished, carry.step + 1, state.remaining.reshape(count, wanted)),
        weight=new_weight.reshape(count, wanted),
        broken=carry.broken | found.broken.reshape(count, beams).any(1),
        finished=finished,
        trail=Trail(*(jax.lax.dynamic_update_slice(x, new[None], (carry.step, 0, 0)) for x, new in zip(carry.trail, made))),
    )
    return after, row


def _hopeful(ranking: Ranking, rank: jax.Array, finished: Finished, step: jax.Array, remaining: jax.Array) -> jax.Array:
    """Ranks float32[P, B], without the beams of prompts none of whose beams can improve the finished texts any more."""
    most = step + jnp.where(rank > NEVER, remaining, 0).max(1)
    bound = ranking.bound(rank.max(1), jnp.full_like(most, step), most)
    return jnp.where((bound <= finished.score[:, -1])[:, None], NEVER, rank)


def _ended(
    ranking: Ranking, carry: BeamCarry, found: Expansion, silent: jax.Array, end_rank: jax.Array, weight: jax.Array
) -> Finished:
    """The beams' texts with their stop tokens, [R].

    Args:
      ranking, carry, found: see `_choose`.
      silent: bool[R], texts that end without one; end_rank: float32[R]; weight: float32[R], of the beams.
    """
    state, (count, beams) = carry.state, carry.rank.shape
    allowed_sum, raw_sum, ends = found.sums
    length = jnp.full(count * beams, carry.step, jnp.int32)
    return Finished(
        score=ranking.score(end_rank, length + jnp.where(silent, 0, 1)),
        weight=jnp.where(silent, weight, found.end_weight),
        length=length,
        beam=jnp.tile(jnp.arange(beams, dtype=jnp.int32), count),
        stop=jnp.where(silent, -1, found.stop),
        status=jnp.where(state.node[:, 0] == FREE, Status.FINISHED, Status.ACCEPTED).astype(jnp.int32),
        dropped=state.dropped,
        logprob=jnp.where(silent, 0.0, ends - allowed_sum),
        raw_logprob=jnp.where(silent, 0.0, ends - raw_sum),
    )


def _at_limit(
    ranking: Ranking, state: ConstraintState, rank: jax.Array, weight: jax.Array, step: jax.Array, beams: int
) -> Finished:
    """The texts of `step` tokens that are complete because the limit was reached; `rank`, `weight`: float32[R], of all."""
    length = jnp.full(len(rank), step, jnp.int32)
    return Finished(
        score=ranking.score(rank, length),
        weight=weight,
        length=length,
        beam=jnp.tile(jnp.arange(beams, dtype=jnp.int32), len(rank) // beams),
        stop=jnp.full_like(length, -1),
        status=state.status,
        dropped=state.dropped,
        logprob=jnp.zeros_like(weight),
        raw_logprob=jnp.zeros_like(weight),
    )


def _forked(tables: ConstraintTables | None, state: ConstraintState, row: jax.Array) -> ConstraintState:
    """`fork` to parents of the same prompts; what all beams of a prompt have in common is not copied."""
    after = fork(state, row)
    if len(row) != len(state.node):
        return after
    common = ["stop_ids", "depth_limit"]
    if tables is None or not tables.has_stack:
        common += ["alloc", "dropped"]
    return dataclasses.replace(after, **{name: getattr(state, name) for name in common})


def _merged(finished: Finished, *more: Finished) -> Finished:
    """The best N of the finished texts and of others, [R] each; those finished first among equals."""
    count, keep = finished.score.shape
    parts = [finished, *(Finished(*(x.reshape(count, -1) for x in part)) for part in more)]
    every = Finished(*(jnp.concatenate(field, 1) for field in zip(*parts)))
    _, place = jax.lax.top_k(every.score, keep)
    return Finished(*(jnp.take_along_axis(x, place, 1) for x in every))
