"""The jitted program that walks all token sequences of a constraint, level by level, one row of the cache per prefix.

Prefixes of one length make a level. Their rows are fed together; every allowed token of every row makes a child; the children
that can go on are the next level, whose rows are forks of their parents' rows. So every prefix is fed once, however many
sequences share it.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.decoding.decoder import Decoder
from jax_decode.decoding.loop import feed_but_last
from jax_decode.decoding.programs import program
from jax_decode.decoding.requests import PromptBatch
from jax_decode.kernels.planes import LOWEST, NEVER, clean, log_shares, log_sum
from jax_decode.probability.endings import ended, stop_columns
from jax_decode.step.forking import fork, fork_cache
from jax_decode.step.masking import mask
from jax_decode.step.state import ConstraintState, Status
from jax_decode.step.transition import advance
from jax_decode.tables.tables import ConstraintTables


class Levels(NamedTuple):
    """The tree. R rows and M children per level, T levels; row r of level 0 is prompt r.

    row: int32[T, R], the child of the level before that each row is, -1 for none; stop, stop_local: float32[T, R], raw and local
    log-probability of the row's sequence with a stop token after it, -inf where it may not stop; parent, token: int32[T, M],
    of each child, -1 for none; ends: bool[T, M], whether it is a whole sequence; total, local: float32[T, M], its raw and local
    log-probability.
    """

    row: jax.Array
    stop: jax.Array
    stop_local: jax.Array
    parent: jax.Array
    token: jax.Array
    ends: jax.Array
    total: jax.Array
    local: jax.Array


class Tree(NamedTuple):
    """levels; depth: int32[], levels used; fits: bool[], whether the sizes were enough; ignored: float32[P], probability of the
    prefixes that were not followed, NaN where the logits are no numbers; empty: bool[P], whether the empty text is the prompt's
    only sequence."""

    levels: Levels
    depth: jax.Array
    fits: jax.Array
    ignored: jax.Array
    empty: jax.Array


class _Carry(NamedTuple):
    """The level that is fed next: its rows, the last token of each, and their log-probabilities; and see `Tree`."""

    cache: Any
    state: ConstraintState
    owner: jax.Array
    token: jax.Array
    total: jax.Array
    local: jax.Array
    row: jax.Array
    depth: jax.Array
    fits: jax.Array
    ignored: jax.Array
    levels: Levels


class Room(NamedTuple):
    """steps: T, most tokens of a sequence; rows: R, most prefixes of one length that can go on, of all prompts together, at least
    P; children: M, most prefixes of one length."""

    steps: int
    rows: int
    children: int


@program()
def walk_tree(
    decoder: Decoder,
    tables: ConstraintTables,
    state: ConstraintState,
    prompts: PromptBatch,
    always_stop: jax.Array,
    least: jax.Array,
    *,
    room: Room,
) -> Tree:
    """All sequences of every prompt's constraint.

    Args:
      decoder: the model.
      tables: the constraints.
      state: [P], before the first token, from `endings.first_state`.
      prompts: P of them; their last tokens are what level 0 feeds.
      always_stop: bool[], see the package.
      least: float32[], log-probability below which a prefix is not followed; -inf to follow all.
      room: static sizes of the tree.
    """
    count = prompts.tokens.shape[0]
    place = jnp.arange(room.rows, dtype=jnp.int32)
    owner = jnp.minimum(place, count - 1)
    cache, last = feed_but_last(decoder, prompts, owner)
    zeros = jnp.zeros(room.rows, jnp.float32)
    carry = _Carry(
        cache=cache,
        state=_only(fork(state, owner), place < count),
        owner=owner,
        token=last,
        total=zeros,
        local=zeros,
        row=jnp.where(place < count, place, -1),
        depth=jnp.int32(0),
        fits=jnp.bool_(True),
        ignored=jnp.zeros(count, jnp.float32),
        levels=_no_levels(room),
    )

    def going(carry: _Carry) -> jax.Array:
        return carry.fits & (carry.depth < room.steps) & carry.state.running.any()

    grow = functools.partial(_grow, decoder, tables, prompts.cache_length, always_stop, least)
    carry = jax.lax.while_loop(going, grow, carry)
    return Tree(carry.levels, carry.depth, carry.fits, carry.ignored, ~state.running)


def _no_levels(room: Room) -> Levels:
    steps, rows, children = room
    per_row, per_child = (jnp.full((steps, n), NEVER, jnp.float32) for n in (rows, children))
    number = jnp.full((steps, children), -1, jnp.int32)
    row = jnp.full((steps, rows), -1, jnp.int32)
    return Levels(row, per_row, per_row, number, number, jnp.zeros((steps, children), bool), per_child, per_child)


def _grow(
    decoder: Decoder, tables: ConstraintTables, cache_length: int, always_stop: jax.Array, least: jax.Array, carry: _Carry
) -> _Carry:
    """Feeds one level and makes the next."""
    state, width = carry.state, decoder.vocab_size
    logits, cache = decoder.apply(carry.token[:, None], carry.cache, state.running.astype(jnp.int32))
    logprobs, allowed, share = next_tokens(tables, state, logits[:, -1])
    rows = jnp.arange(len(carry.token), dtype=jnp.int32)[:, None]
    stops = stop_columns(state, width)
    may_stop = allowed.at[rows, stops].get(mode="fill", fill_value=False)
    stop = log_sum(jnp.where(may_stop, logprobs.at[rows, stops].get(mode="fill", fill_value=NEVER), NEVER))

    text = allowed.at[rows, stops].set(False, mode="drop")
    totals = jnp.maximum(carry.total[:, None] + logprobs, LOWEST)  # or two that are all but forbidden would look like none
    follow = text & (totals >= least)
    lost = jnp.exp(log_sum(jnp.where(text & ~follow, totals, NEVER)))
    lost = jnp.where(state.running & jnp.isnan(logprobs[:, 0]), jnp.nan, lost)
    num_children = carry.levels.token.shape[1]
    (flat,) = jnp.nonzero(follow.reshape(-1), size=num_children, fill_value=0)
    number = follow.sum(dtype=jnp.int32)
    exists = jnp.arange(num_children, dtype=jnp.int32) < number
    parent, token = flat.astype(jnp.int32) // width, flat.astype(jnp.int32) % width
    total = totals[parent, token]
    local = carry.local[parent] + logprobs[parent, token] - share[parent]
    after = advance(tables, _only(fork(state, parent), exists), token)
    after = ended(tables, after, always_stop)

    level = Levels(
        row=carry.row,
        stop=jnp.where(stop == NEVER, NEVER, jnp.maximum(carry.total + stop, LOWEST)),
        stop_local=carry.local + stop - jnp.where(share == NEVER, 0.0, share),
        parent=jnp.where(exists, parent, -1),
        token=jnp.where(exists, token, -1),
        ends=exists & (after.status == Status.ACCEPTED),
        total=total,
        local=local,
    )
    levels = jax.tree.map(lambda all_levels, one: all_levels.at[carry.depth].set(one), carry.levels, level)

    onward = after.running & exists
    remaining = onward.sum(dtype=jnp.int32)
    (kept,) = jnp.nonzero(onward, size=len(carry.token), fill_value=0)
    kept = kept.astype(jnp.int32)
    real = jnp.arange(len(kept), dtype=jnp.int32) < remaining
    return _Carry(
        cache=fork_cache(decoder, cache, parent[kept], length=cache_length),
        state=_only(fork(after, kept), real),
        owner=carry.owner[parent[kept]],
        token=token[kept],
        total=total[kept],
        local=local[kept],
        row=jnp.where(real, kept, -1),
        depth=carry.depth + 1,
        fits=(number <= num_children) & (remaining <= len(kept)),
        ignored=carry.ignored.at[carry.owner].add(lost),
        levels=levels,
    )


def next_tokens(tables: ConstraintTables, state: ConstraintState, logits: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The distribution of the next token.

    Args:
      tables: the constraints.
      state: [B].
      logits: float[B, V'].

    Returns:
      Raw log-probabilities float32[B, V'] (NaN where no logit is a number), which tokens are allowed bool[B, V'], and the
      log-probability of all allowed ones together, float32[B], -inf where there is none.
    """
    logprobs = log_shares(clean(logits))
    allowed = mask(tables, state, width=logits.shape[1])
    return logprobs, allowed, log_sum(jnp.where(allowed, logprobs, NEVER))


def _only(state: ConstraintState, exists: jax.Array) -> ConstraintState:
    """The state in which rows that do not exist allow nothing and take nothing."""
    return dataclasses.replace(state, status=jnp.where(exists, state.status, Status.DEAD_END).astype(jnp.int32))
