"""The best continuations of every prompt's beams, and the ends of the beams.

Of a mask's bits, they are found in columns of 32 tokens (see `planes`): the n best tokens of all beams of a prompt lie in the n
columns of the largest maxima, so nothing is sorted that is as wide as the vocabulary. By probability, nothing but the logits is
as wide as the vocabulary either; noise belongs to every token, so a perturbed ranking makes a rank of each. What a mask lists is
ranked as it is. Where every beam stands at a node of a trie that lists its children (see `tables.items`), that is all: bits are
neither read nor ranked, and of the logits only the sum over all of them is asked.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.beams.ranking import Best, Perturbed, Ranking
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import read
from jax_decode.kernels.planes import (
    LOWEST,
    NEVER,
    allowed_logits,
    clean,
    column_log_sum,
    column_max,
    log_add,
    log_sum,
    plain_log_sum,
    planes,
)
from jax_decode.kernels.row_layout import words_for
from jax_decode.kernels.vocabulary_shards import Part, on_shards
from jax_decode.sampling.choices import Allowed
from jax_decode.sampling.sampling import among, by_part
from jax_decode.step.masking import booleans, mask_parts
from jax_decode.step.stack import accepts, sources
from jax_decode.step.state import ConstraintState
from jax_decode.tables.concatenation import FREE
from jax_decode.tables.items import only_lists
from jax_decode.tables.tables import ConstraintTables


class Sums(NamedTuple):
    """Log-sums float32[R]: over the allowed logits, over all of them, and over those of the stop tokens that are allowed."""

    allowed: jax.Array
    raw: jax.Array
    ends: jax.Array


class Pool(NamedTuple):
    """Continuations of the beams of each prompt, [P, n].

    rank, weight: float32, -inf where there is none; token: int32; logit: float32; parent: int32, the beam of the prompt.
    """

    rank: jax.Array
    weight: jax.Array
    token: jax.Array
    logit: jax.Array
    parent: jax.Array


class Expansion(NamedTuple):
    """What may follow R = P * B beams.

    best: the n best continuations of each prompt, descending by rank; follows: bool[R], whether any text token may follow;
    end_rank, end_weight: float32[R], of the end by a stop token, -inf for none; stop: int32[R], that token; complete: bool[R],
    whether the text is accepted as it stands; sums: see there; broken: bool[R], whether no logit is a number (nothing follows).
    """

    best: Pool
    follows: jax.Array
    end_rank: jax.Array
    end_weight: jax.Array
    stop: jax.Array
    complete: jax.Array
    sums: Sums
    broken: jax.Array


class Beams(NamedTuple):
    """R beams, those of a prompt together.

    alive: bool[R], rows that hold a beam; logits: float[R, V'], of what follows; rank, weight: float32[R], the weight of dead
    rows is any number; step: int32[], tokens of the beams.
    """

    alive: jax.Array
    logits: jax.Array
    rank: jax.Array
    weight: jax.Array
    step: jax.Array


class _Rows(NamedTuple):
    """The beams: arguments of `expanded`, and the log-sum of the stop tokens that are allowed, `ends` float32[R]."""

    alive: jax.Array
    logits: jax.Array
    rank: jax.Array
    weight: jax.Array
    step: jax.Array
    stop_ids: jax.Array
    ends: jax.Array
    beams: int
    wanted: int

    @property
    def prompts(self) -> int:
        return len(self.alive) // self.beams

    def is_stop(self, token: jax.Array, row: jax.Array) -> jax.Array:
        """Whether tokens of rows, of one shape, are stop ids of these rows."""
        stops = self.stop_ids
        each = [token == read(stops, row, jnp.full_like(row, e)) for e in range(stops.shape[1])]
        return functools.reduce(jnp.logical_or, each)

    def pooled(self, rank: jax.Array, weight: jax.Array, token: jax.Array, logit: jax.Array) -> Pool:
        """Arrays [R, n] as a pool."""
        parent = jnp.arange(len(self.alive), dtype=jnp.int32)[:, None] % self.beams
        return Pool(*(jnp.broadcast_to(x, rank.shape).reshape(self.prompts, -1) for x in (rank, weight, token, logit, parent)))


class _Found(NamedTuple):
    """Fields of `Expansion`, and the log-sums over allowed and all logits."""

    best: Pool
    follows: jax.Array
    end_rank: jax.Array
    end_weight: jax.Array
    allowed: jax.Array
    raw: jax.Array
    broken: jax.Array


_Listed = tuple[jax.Array, jax.Array, jax.Array]
"""Of `Allowed`: token, allowed, clean logit of the candidates, [R, M]."""


def expanded(
    tables: ConstraintTables | None,
    ranking: Ranking,
    state: ConstraintState,
    given: Beams,
    beams: int,
    wanted: int,
) -> Expansion:
    """Ranks what may follow.

    Args:
      tables, ranking, state: of the search; R rows.
      given: the beams.
      beams: static, B; the beams of a prompt are B neighbouring rows.
      wanted: static, how many continuations of each prompt to find.
    """
    alive, logits = given.alive & state.running, given.logits
    free = state.node[:, 0] == FREE
    accept = jnp.zeros_like(alive) if tables is None else accepts(tables, sources(tables, state)) & ~free
    may_stop = (state.stop_ids >= 0) & (alive & (accept | free))[:, None]
    number = jnp.arange(len(alive), dtype=jnp.int32)[:, None]
    stop_logits = jnp.where(may_stop, clean(read(logits, number, jnp.maximum(state.stop_ids, 0))), NEVER)
    stop = jnp.take_along_axis(state.stop_ids, jnp.argmax(stop_logits, 1)[:, None], 1)[:, 0]
    rows = _Rows(alive, *given[1:], state.stop_ids, log_sum(stop_logits), beams, wanted)
    found = _found(tables, ranking, state, rows)
    return Expansion(
        best=found.best,
        follows=found.follows,
        end_rank=jnp.where(alive & ~found.broken, found.end_rank, NEVER),
        end_weight=found.end_weight,
        stop=stop,
        complete=accept & alive & ~found.broken,
        sums=Sums(found.allowed, found.raw, rows.ends),
        broken=alive & found.broken,
    )


def _found(tables: ConstraintTables | None, ranking: Ranking, state: ConstraintState, rows: _Rows) -> _Found:
    def ranked(allowed: Allowed | None, listed: _Listed | None, raw: jax.Array | None) -> _Found:
        if isinstance(ranking, Best):
            return _by_probability(rows, allowed, listed, raw)
        return _by_noise(ranking, rows, allowed, listed, raw)

    if tables is None:
        return ranked(among(rows.logits, None, Columns(words_for(rows.logits.shape[1]))), None, None)
    allowed = among(rows.logits, mask_parts(tables, state), tables.columns)
    if tables.columns.shards is not None and isinstance(ranking, Best):
        return _on_shards(rows, allowed)
    if tables.items is None or tables.columns.shards is not None:
        return ranked(allowed, allowed.listed, None)
    # Both branches work with the same sums and lists: what a row gets does not depend on which one its neighbours call for.
    raw = plain_log_sum(rows.logits)
    odd = jnp.isnan(raw)

    def of_lists() -> _Found:
        return ranked(None, allowed.listed, raw)

    def of_both() -> _Found:
        inside = among(rows.logits, mask_parts(tables, state), tables.columns)  # else bits would be read for both branches
        cleaned = jax.lax.cond(odd.any(), lambda: jnp.where(odd, log_sum(clean(rows.logits)), raw), lambda: raw)
        return ranked(inside, allowed.listed, cleaned)

    lists = only_lists(tables.items, state.node[:, 0], rows.alive)
    return jax.lax.cond(lists & ~odd.any(), of_lists, of_both)


def _by_probability(rows: _Rows, allowed: Allowed | None, listed: _Listed | None, raw: jax.Array | None) -> _Found:
    """By log-probability over all logits; without `allowed` of what is listed alone."""
    pools, inner, follows = list[Pool](), None, jnp.zeros_like(rows.alive)
    columns: dict[str, Any] = {}
    if allowed is not None:
        every = planes(rows.logits, allowed.words, allowed.num_words)
        inside = allowed_logits(every)
        columns = {"best": column_max(inside), "inner": column_log_sum(inside), "words": allowed.words}
        if raw is None:
            columns["outer"] = column_log_sum([x for x, _ in every])
        columns = jax.lax.optimization_barrier(columns)  # else a CPU repeats the pass in each reduction below
        inner = log_sum(columns["inner"])
        raw = log_sum(columns["outer"]) if raw is None else raw
    assert raw is not None
    broken = raw <= LOWEST
    alive = (rows.alive & ~broken)[:, None]

    def rank_of(x: jax.Array, row: jax.Array) -> jax.Array:
        own = _added(read(rows.weight, row), x, read(raw, row))
        return jnp.where(read(alive[:, 0], row), own, NEVER)

    number = jnp.arange(len(raw), dtype=jnp.int32)[:, None]
    if allowed is not None:
        best = _without_stops(rows, allowed, columns["words"], columns["best"])
        follows = best.max(1) > NEVER
        row, token, x = _best_columns(rows, allowed, columns["words"], rank_of(best, number))
        x = jnp.where(rows.is_stop(token, row), NEVER, x)
        rank = rank_of(x, row)
        pools.append(Pool(rank, rank, token, x, row % rows.beams))
    total = inner
    if listed is not None:
        token, fits, x = listed
        of_list = log_sum(jnp.where(fits, x, NEVER))
        total = of_list if inner is None else log_add(inner, of_list)
        x = jnp.where(fits & ~rows.is_stop(token, jnp.broadcast_to(number, token.shape)), x, NEVER)
        follows |= (x > NEVER).any(1)
        rank = rank_of(x, number)
        pools.append(rows.pooled(rank, rank, token, x))
    assert total is not None
    end = rank_of(rows.ends, number[:, 0])
    return _Found(_best(pools, rows.wanted), follows & alive[:, 0], end, end, total, raw, broken)


def _on_shards(rows: _Rows, allowed: Allowed) -> _Found:
    """By log-probability, of a vocabulary that is spread over devices: the best of every row, then those of every prompt."""
    x, token, total, raw = by_part(functools.partial(_best_in_part, rows.wanted), allowed, rows.stop_ids)
    broken = raw <= LOWEST
    alive = rows.alive & ~broken
    rank = jnp.where(alive[:, None], _added(rows.weight[:, None], x, raw[:, None]), NEVER)
    end = jnp.where(alive, _added(rows.weight, rows.ends, raw), NEVER)
    best = _best([rows.pooled(rank, rank, token, x)], rows.wanted)
    return _Found(best, (x > NEVER).any(1) & alive, end, end, total, raw, broken)


def _best_in_part(most: int, allowed: Allowed, stop_ids: jax.Array) -> tuple[jax.Array, ...]:
    """Logits and tokens of the best continuations of every row, [R, n], and the log-sums over allowed and all logits, [R]."""
    logits, num_words, part = allowed.logits, allowed.num_words, allowed.part
    assert part is not None
    assert allowed.listed is not None
    every = planes(logits, allowed.words, num_words)
    inside = allowed_logits(every)
    columns = (column_max(inside), column_log_sum(inside), column_log_sum([x for x, _ in every]))
    best, inner, outer = jax.lax.optimization_barrier(columns)  # else a CPU repeats the pass in each reduction below
    # A stop token, which is no continuation, may be the best of its column.
    _, column = jax.lax.top_k(best, min(most + stop_ids.shape[1], num_words))
    count = min(-(-logits.shape[1] // num_words), 32)
    token = column.astype(jnp.int32)[:, :, None] + (jnp.arange(count, dtype=jnp.int32) * num_words)[None, None]
    word = allowed.word_at(column.astype(jnp.int32))[:, :, None]
    ok = (token < logits.shape[1]) & (((word >> jnp.arange(count, dtype=jnp.uint32)[None, None]) & 1) != 0)
    token, ok = (x.reshape(len(logits), -1) for x in (token, ok))
    rows = jnp.arange(len(logits), dtype=jnp.int32)[:, None]
    x = clean(read(logits, rows, jnp.minimum(token, logits.shape[1] - 1)))
    listed, fits, value = allowed.listed
    total = log_add(log_sum(inner), log_sum(jnp.where(fits, value, NEVER)))
    token, ok, x = (jnp.concatenate(pair, 1) for pair in ((token, listed), (ok, fits), (x, value)))
    token += part.first
    ok &= ~functools.reduce(jnp.logical_or, [token == stop_ids[:, e : e + 1] for e in range(stop_ids.shape[1])])
    x, place = jax.lax.top_k(jnp.where(ok, x, NEVER), min(most, x.shape[1]))
    total, raw = part.log_total(total, log_sum(outer))
    x, token = part.beside(x), part.beside(jnp.take_along_axis(token, place, 1))
    x, place = jax.lax.top_k(x, min(most, x.shape[1]))
    return x, jnp.take_along_axis(token, place, 1), total, raw


def _by_noise(ranking: Perturbed, rows: _Rows, allowed: Allowed | None, listed: _Listed | None, raw: jax.Array | None) -> _Found:
    """By noise on the log-probability of every continuation; without `allowed` of those listed alone."""
    width, number = rows.logits.shape[1], jnp.arange(len(rows.alive), dtype=jnp.int32)[:, None]
    index, values = [jnp.full((1, 1), width, jnp.int32)], [rows.ends[:, None]]
    if listed is not None:
        token, fits, x = listed
        index.append(token)
        values.append(jnp.where(fits & ~rows.is_stop(token, jnp.broadcast_to(number, token.shape)), x, NEVER))
    if allowed is not None:
        ids, x = jnp.arange(width, dtype=jnp.int32)[None], clean(rows.logits)
        raw = log_sum(x) if raw is None else raw
        text = ~functools.reduce(jnp.logical_or, [ids == rows.stop_ids[:, e : e + 1] for e in range(rows.stop_ids.shape[1])])
        if allowed.words is not None:
            text &= booleans(allowed.words, width, allowed.columns)
        index.append(ids)
        values.append(jnp.where(text, x, NEVER))
    assert raw is not None
    broken = raw <= LOWEST
    alive = rows.alive & ~broken
    total = functools.reduce(log_add, [log_sum(x) for x in values])
    follows = functools.reduce(jnp.logical_or, [(x > NEVER).any(1) for x in values[1:]])
    log_probs = ranking.log_probs(values)
    weights = [jnp.where(x == NEVER, NEVER, jnp.maximum(rows.weight[:, None] + x, LOWEST)) for x in log_probs]
    ranks = ranking.ranks(jnp.where(alive, rows.rank, NEVER), weights, rows.step, index)
    pools = []
    if listed is not None:
        pools.append(rows.pooled(ranks[1], weights[1], index[1], values[1]))
    if allowed is not None and (shards := allowed.columns.shards) is not None:
        assert allowed.words is not None
        rank, token = on_shards(functools.partial(_largest_in_part, rows.wanted), shards, ranks[-1], allowed.words)
        pools.append(rows.pooled(rank, read(weights[-1], number, token), token, read(values[-1], number, token)))
    elif allowed is not None:
        pad = -width % allowed.num_words
        wide = jnp.pad(ranks[-1], ((0, 0), (0, pad)), constant_values=NEVER).reshape(len(alive), -1, allowed.num_words)
        row, token, _ = _best_columns(rows, allowed, None, wide.max(1))
        at = row, jnp.minimum(token, width - 1)
        rank = jnp.where(token < width, read(ranks[-1], *at), NEVER)
        pools.append(Pool(rank, read(weights[-1], *at), token, read(values[-1], *at), row % rows.beams))
    return _Found(_best(pools, rows.wanted), follows & alive, ranks[0][:, 0], weights[0][:, 0], total, raw, broken)


def _largest_in_part(most: int, part: Part, ranks: jax.Array, words: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest of the ranks float32[R, width] of all devices, and their tokens, [R, n]: each exchanges its own n."""
    del words
    place = _largest(ranks, most)
    rank, token = part.beside(jnp.take_along_axis(ranks, place, 1)), part.beside(place + part.first)
    best = _largest(rank, most)
    return jnp.take_along_axis(rank, best, 1), jnp.take_along_axis(token, best, 1)


def _without_stops(rows: _Rows, allowed: Allowed, words: jax.Array | None, best: jax.Array) -> jax.Array:
    """Maxima of columns, float32[R, W], without those of stop tokens, which are no continuations."""
    column = jnp.arange(allowed.num_words, dtype=jnp.int32)[None]
    for e in range(rows.stop_ids.shape[1]):
        own = jnp.maximum(rows.stop_ids[:, e : e + 1], 0) % allowed.num_words
        row = jnp.arange(len(own), dtype=jnp.int32)[:, None]
        row, token, x = _tokens_of(rows, allowed, words, row, own)
        rest = jnp.where(rows.is_stop(token, row), NEVER, x).reshape(len(own), -1).max(1)
        best = jnp.where(column == own, rest[:, None], best)
    return best


def _best_columns(
    rows: _Rows, allowed: Allowed, words: jax.Array | None, rank: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What `_tokens_of` gives of as many columns of each prompt as are wanted, those of largest rank float32[R, W]."""
    place = _largest(rank.reshape(rows.prompts, -1), rows.wanted)
    first = jnp.arange(rows.prompts, dtype=jnp.int32)[:, None] * rows.beams
    return _tokens_of(rows, allowed, words, first + place // rank.shape[1], place % rank.shape[1])


def _largest(x: jax.Array, count: int) -> jax.Array:
    """Places of the largest numbers of every row, int32[P, n], n at most `count`: they lie in n groups, of the largest maxima."""
    width = x.shape[1]
    count = min(count, width)
    size = 1 << max(0, round(math.log2(max(width / count, 1)) / 2))  # of a group: the least to sort in both steps together
    if size < 4 or width % size:
        return jax.lax.top_k(x, count)[1].astype(jnp.int32)
    groups = width // size
    _, group = jax.lax.top_k(x.reshape(len(x), size, groups).max(1), count)
    place = (group[..., None] + jnp.arange(size, dtype=jnp.int32)[None, None] * groups).reshape(len(x), -1)
    _, best = jax.lax.top_k(jnp.take_along_axis(x, place, 1), count)
    return jnp.take_along_axis(place, best, 1)


def _tokens_of(
    rows: _Rows, allowed: Allowed, words: jax.Array | None, row: jax.Array, column: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The tokens of columns of rows, [P, n]: their rows, the tokens, and clean logits, -inf where not allowed; [P, n * 32]."""
    width = rows.logits.shape[1]
    count = min(-(-width // allowed.num_words), 32)
    plane = jnp.arange(count, dtype=jnp.int32)[None, None]
    token = column[..., None] + plane * allowed.num_words
    ok = token < width
    if words is not None:
        ok &= ((read(words, row, column)[..., None] >> plane.astype(jnp.uint32)) & 1) != 0
    row = jnp.broadcast_to(row[..., None], token.shape)
    x = jnp.where(ok, clean(read(rows.logits, row, jnp.minimum(token, width - 1))), NEVER)
    flat = (*column.shape[:-1], -1)
    return row.reshape(flat), token.reshape(flat), x.reshape(flat)


def _best(pools: list[Pool], count: int) -> Pool:
    """The best of the pools, [P, count]; those of earlier pools first among equals."""
    whole = Pool(*(jnp.concatenate(field, 1) for field in zip(*pools)))
    short = count - whole.rank.shape[1]
    if short > 0:
        none = (NEVER, NEVER, 0, NEVER, 0)
        whole = Pool(*(jnp.pad(x, ((0, 0), (0, short)), constant_values=v) for x, v in zip(whole, none)))
    _, place = jax.lax.top_k(whole.rank, count)
    return Pool(*(jnp.take_along_axis(x, place, 1) for x in whole))


def _added(weight: jax.Array, x: jax.Array, raw: jax.Array) -> jax.Array:
    """Weights plus log-probabilities of logits whose log-sum over all is `raw`, elementwise; -inf stays."""
    share = jnp.clip(x - raw, LOWEST, 0.0)
    return jnp.where(x == NEVER, NEVER, jnp.maximum(weight + share, LOWEST))
