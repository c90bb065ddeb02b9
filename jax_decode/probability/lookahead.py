"""Draws with masks that look ahead: tokens weighted by the estimated probability that a text completes behind them.

The best proposal for texts given a constraint takes token t with probability p(t) V(s(t)) / V(s), where V(s) is the probability
that what follows completes the text inside the constraint, and s(t) the place that t leads to. V depends on all of the prefix;
the table has one number for each place of the constraint and last token. It is learned while rows are drawn: a row at s knows
the sum over t of p(t) V(s(t)), which is a better estimate of V(s) than the table's. What nobody has visited counts as 1, so that
it is tried. Whatever the table says, weights make up for it, as for any proposal, and resampling is by weight times V.

Source: the equation is Bellman's; for twisted particles Guarniero, Johansen, Lee 2017, The Iterated Auxiliary Particle Filter.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import NEVER, log_sum
from jax_decode.probability.proposals import Draw, LookAhead
from jax_decode.probability.tree import next_tokens
from jax_decode.step.forking import fork
from jax_decode.step.popping import cells_at
from jax_decode.step.state import ConstraintState
from jax_decode.step.transition import advance
from jax_decode.tables.stack_layout import DEPTH, SYMBOL
from jax_decode.tables.tables import ConstraintTables

_NEAR = 16
"""Tokens left from which on places are told apart by how many are left."""
_LOWEST = -60.0
"""Smallest value of the table, nats."""
_MULTIPLIERS = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F
"""Odd multipliers of a hash, as in xxHash."""


def draw_ahead(
    proposal: LookAhead,
    logits: jax.Array,
    keys: jax.Array,
    step: jax.Array,
    tables: ConstraintTables,
    state: ConstraintState,
    last: jax.Array,
) -> tuple[Draw, LookAhead]:
    """A token for every row, and the proposal with what the rows have learned.

    Args:
      proposal, logits, keys, step, tables, state: see `proposals.draw`.
      last: int32[B], the token before.
    """
    values = proposal.values
    logprobs, allowed, _ = next_tokens(tables, state, logits)
    x = jnp.where(allowed, logprobs, NEVER)
    batch, width = x.shape
    few = min(proposal.candidates, width)
    likely, tokens = jax.lax.top_k(x, few)
    rows = jnp.repeat(jnp.arange(batch, dtype=jnp.int32), few)
    few_tokens = tokens.reshape(-1).astype(jnp.int32)
    after = advance(tables, fork(state, rows), few_tokens)
    behind = jnp.where(after.running, values[_places(tables, after, few_tokens, len(values))], 0.0).reshape(batch, few)
    behind = jnp.where(likely > NEVER, behind, 0.0)
    y = x.at[rows.reshape(batch, few), tokens].add(behind)
    total = log_sum(y)
    noise = gumbel(keys, step, jnp.arange(width, dtype=jnp.uint32)[None, :])
    token = jnp.where(total > NEVER, (y + noise).argmax(1), -1).astype(jnp.int32)
    drawn = token >= 0
    every, at = jnp.arange(batch, dtype=jnp.int32), jnp.maximum(token, 0)
    twist = jnp.where(drawn, y[every, at] - jnp.where(drawn, x[every, at], 0.0), 0.0)
    choice = Draw(
        token=token,
        log_weight=jnp.where(drawn, total - twist, NEVER),
        raw_logprob=jnp.where(drawn, logprobs[every, at], 0.0),
        draws=jnp.zeros_like(token),
        twist=twist,
    )
    return choice, proposal.with_values(_learned(values, _places(tables, state, last, len(values)), total, state.running & drawn))


def _places(tables: ConstraintTables, state: ConstraintState, last: jax.Array, size: int) -> jax.Array:
    """The place of every row in a table of `size` values, int32[B]: by node, last token, how few tokens are left, and stack."""
    parts = [state.node[:, 0], last, jnp.minimum(state.remaining, _NEAR)]
    if state.top.shape[1]:
        top = cells_at(tables, state.cell, state.top[:, :1])
        parts.append((top[SYMBOL] + 1024 * top[DEPTH])[:, 0])
    mixed = jnp.zeros(len(state.node), jnp.uint32)
    for part, multiplier in zip(parts, _MULTIPLIERS):
        mixed = (mixed ^ (part.astype(jnp.uint32) * jnp.uint32(multiplier))) * jnp.uint32(_MULTIPLIERS[0])
        mixed ^= mixed >> 15
    return (mixed % jnp.uint32(size)).astype(jnp.int32)


def _learned(values: jax.Array, place: jax.Array, found: jax.Array, yes: jax.Array) -> jax.Array:
    """Values with those of visited places replaced at first, then moved half the way to the mean of what was found there."""
    yes &= jnp.isfinite(found)
    to = jnp.where(yes, place, len(values))
    sums, counts = (jnp.zeros_like(values).at[to].add(part, mode="drop") for part in (jnp.where(yes, found, 0.0), 1.0))
    mean = sums / jnp.maximum(counts, 1.0)
    moved = jnp.where(values == 0, mean, 0.5 * (values + mean))
    return jnp.where(counts > 0, jnp.clip(moved, _LOWEST, 0.0), values)
