"""The best continuations of every beam, and its end.

By probability, they are found as samplers find theirs: in columns of 32 logits that meet the mask's bits (see `planes`), so
that nothing but the logits is as wide as the vocabulary. The n best tokens lie in the n columns of the largest maxima. Noise
belongs to every token, so a perturbed ranking looks at each.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.columns import Columns
from jax_decode.masking import MaskParts, dense, mask_parts
from jax_decode.planes import LOWEST, NEVER, allowed_logits, clean, column_log_sum, column_max, log_add, log_sum, planes
from jax_decode.ranking import Best, Ranking
from jax_decode.reading import read
from jax_decode.row_layout import words_for
from jax_decode.sampling import among, by_part
from jax_decode.stack import accepts, sources
from jax_decode.state import ConstraintState
from jax_decode.tables import FREE, ConstraintTables
from jax_decode.truncation import Allowed


class Sums(NamedTuple):
    """Log-sums float32[R]: over the allowed logits, over all of them, and over those of the stop tokens that are allowed."""

    allowed: jax.Array
    raw: jax.Array
    ends: jax.Array


class Expansion(NamedTuple):
    """What may follow R beams, n continuations each.

    rank, weight: float32[R, n], descending by rank, -inf where there are fewer; token: int32[R, n]; logit: float32[R, n];
    end_rank, end_weight: float32[R], of the end by a stop token, -inf for none; stop: int32[R], that token; complete: bool[R],
    whether the text is accepted as it stands; sums: see there; broken: bool[R], whether no logit is a number (nothing follows).
    """

    rank: jax.Array
    weight: jax.Array
    token: jax.Array
    logit: jax.Array
    end_rank: jax.Array
    end_weight: jax.Array
    stop: jax.Array
    complete: jax.Array
    sums: Sums
    broken: jax.Array


def expanded(
    tables: ConstraintTables | None,
    ranking: Ranking,
    state: ConstraintState,
    alive: jax.Array,
    logits: jax.Array,
    rank: jax.Array,
    weight: jax.Array,
    step: jax.Array,
    most: int,
) -> Expansion:
    """Ranks what may follow.

    Args:
      tables, ranking, state: of the search; R rows.
      alive: bool[R], rows that hold a beam.
      logits: float[R, V'].
      rank, weight: float32[R], of the beams; the weight of dead rows is any number.
      step: int32[], tokens of the beams.
      most: static, continuations of a beam that can matter.
    """
    alive &= state.running
    free = state.node[:, 0] == FREE
    accept = jnp.zeros_like(alive) if tables is None else accepts(tables, sources(tables, state)) & ~free
    may_stop = (state.stop_ids >= 0) & (alive & (accept | free))[:, None]
    rows = jnp.arange(len(alive), dtype=jnp.int32)[:, None]
    stop_logits = jnp.where(may_stop, clean(read(logits, rows, jnp.maximum(state.stop_ids, 0))), NEVER)
    stop = jnp.take_along_axis(state.stop_ids, jnp.argmax(stop_logits, 1)[:, None], 1)[:, 0]
    parts = None if tables is None else mask_parts(tables, state)
    columns = Columns(words_for(logits.shape[1])) if tables is None else tables.columns
    find = _by_columns if isinstance(ranking, Best) else _by_tokens
    found = find(parts, columns, state.stop_ids, ranking, logits, log_sum(stop_logits), rank, weight, step, most)
    broken = alive & (found.sums.raw <= LOWEST)
    alive = (alive & ~broken)[:, None]
    return Expansion(
        rank=jnp.where(alive, found.rank, NEVER),
        weight=found.weight,
        token=found.token,
        logit=found.logit,
        end_rank=jnp.where(alive[:, 0], found.end_rank, NEVER),
        end_weight=found.end_weight,
        stop=stop,
        complete=accept & alive[:, 0],
        sums=found.sums,
        broken=broken,
    )


class _Found(NamedTuple):
    """Fields of `Expansion`, as if all rows were alive."""

    rank: jax.Array
    weight: jax.Array
    token: jax.Array
    logit: jax.Array
    end_rank: jax.Array
    end_weight: jax.Array
    sums: Sums


def _by_columns(
    parts: MaskParts | None,
    columns: Columns,
    stop_ids: jax.Array,
    ranking: Ranking,
    logits: jax.Array,
    ends: jax.Array,
    rank: jax.Array,
    weight: jax.Array,
    step: jax.Array,
    most: int,
) -> _Found:
    """By log-probability over all logits."""
    del ranking, rank, step
    allowed = among(logits, parts, columns)
    if columns.shards is not None:
        return by_part(functools.partial(_best_in_columns, most), allowed, stop_ids, ends, weight)
    return _best_in_columns(most, allowed, stop_ids, ends, weight)


def _best_in_columns(most: int, allowed: Allowed, stop_ids: jax.Array, ends: jax.Array, weight: jax.Array) -> _Found:
    logits, num_words, part = allowed.logits, allowed.num_words, allowed.part
    every = planes(logits, allowed.words, num_words)
    inside = allowed_logits(every)
    columns = (column_max(inside), column_log_sum(inside), column_log_sum([x for x, _ in every]))
    best, inner, outer = jax.lax.optimization_barrier(columns)  # else a CPU repeats the pass in each reduction below
    # A stop token, which is no continuation, may be the best of its column.
    _, column = jax.lax.top_k(best, min(most + stop_ids.shape[1], num_words))
    count = min(-(-logits.shape[1] // num_words), 32)
    token = column.astype(jnp.int32)[:, :, None] + (jnp.arange(count, dtype=jnp.int32) * num_words)[None, None]
    ok = token < logits.shape[1]
    if allowed.words is not None:
        word = allowed.word_at(column.astype(jnp.int32))[:, :, None]
        ok &= ((word >> jnp.arange(count, dtype=jnp.uint32)[None, None]) & 1) != 0
    token, ok = (x.reshape(len(ends), -1) for x in (token, ok))
    rows = jnp.arange(len(ends), dtype=jnp.int32)[:, None]
    x = clean(read(logits, rows, jnp.minimum(token, logits.shape[1] - 1)))
    total = log_sum(inner)
    if allowed.listed is not None:
        listed, fits, value = allowed.listed
        total = log_add(total, log_sum(jnp.where(fits, value, NEVER)))
        token, ok, x = (jnp.concatenate(pair, 1) for pair in ((token, listed), (ok, fits), (x, value)))
    token = token if part is None else token + part.first
    ok &= ~functools.reduce(jnp.logical_or, [token == stop_ids[:, e : e + 1] for e in range(stop_ids.shape[1])])
    x, place = jax.lax.top_k(jnp.where(ok, x, NEVER), min(most, x.shape[1]))
    token, raw = jnp.take_along_axis(token, place, 1), log_sum(outer)
    if part is not None:
        total, raw = part.log_total(total, raw)
        x, token = part.beside(x), part.beside(token)
        x, place = jax.lax.top_k(x, min(most, x.shape[1]))
        token = jnp.take_along_axis(token, place, 1)
    totals = _added(weight[:, None], x, raw)
    end = _added(weight[:, None], ends[:, None], raw)[:, 0]
    return _Found(totals, totals, token, x, end, end, Sums(total, raw, ends))


def _by_tokens(
    parts: MaskParts | None,
    columns: Columns,
    stop_ids: jax.Array,
    ranking: Ranking,
    logits: jax.Array,
    ends: jax.Array,
    rank: jax.Array,
    weight: jax.Array,
    step: jax.Array,
    most: int,
) -> _Found:
    """By whatever a ranking makes of every token."""
    x = clean(logits)
    ids = jnp.arange(x.shape[1], dtype=jnp.int32)[None]
    text = ~functools.reduce(jnp.logical_or, [ids == stop_ids[:, e : e + 1] for e in range(stop_ids.shape[1])])
    if parts is not None:
        text &= dense(parts, x.shape[1], columns)
    log_probs = ranking.log_probs(x, ends, text)
    weights = jnp.where(log_probs == NEVER, NEVER, jnp.maximum(weight[:, None] + log_probs, LOWEST))
    ranks = ranking.ranks(rank, weights, step)
    sums = Sums(log_add(log_sum(jnp.where(text, x, NEVER)), ends), log_sum(x), ends)
    best, token = jax.lax.top_k(ranks[:, :-1], min(most, x.shape[1]))
    own, logit = (jnp.take_along_axis(values, token, 1) for values in (weights, x))
    return _Found(best, own, token.astype(jnp.int32), logit, ranks[:, -1], weights[:, -1], sums)


def _added(weight: jax.Array, x: jax.Array, raw: jax.Array) -> jax.Array:
    """Weights plus log-probabilities of logits [R, n] whose log-sum over all is `raw` [R]; -inf stays."""
    share = jnp.clip(x - raw[:, None], LOWEST, 0.0)
    return jnp.where(x == NEVER, NEVER, jnp.maximum(weight + share, LOWEST))
