"""Takes one token per row: the next `ConstraintState`."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jax_decode.masking import largest, read
from jax_decode.state import ConstraintState, Status
from jax_decode.tables import (
    ACCEPT,
    ARC_COUNT,
    ARC_OFFSET,
    FREE,
    GROUP_COUNT,
    GROUP_OFFSET,
    SEARCH_FANOUT,
    ConstraintTables,
)


def advance(tables: ConstraintTables | None, state: ConstraintState, tokens: jax.Array) -> ConstraintState:
    """Takes one token in every running row.

    Args:
      tables: from `to_device`; None when no row has a constraint.
      state: the rows.
      tokens: int32[B]; -1 says that nothing could be taken: the row ends, accepted if its text is. Rows that are not
        running ignore theirs.

    Returns:
      The next state. A forbidden token makes its row a `Status.DEAD_END`, for good.
    """
    running = state.running
    free = state.node == FREE
    stop = jnp.zeros_like(running)
    for e in range(state.stop_ids.shape[1]):  # unrolled: stays elementwise over [B]
        stop |= (tokens == state.stop_ids[:, e]) & (tokens >= 0)
    remaining = state.remaining - 1
    if tables is None:
        accept = complete = jnp.zeros_like(running)
        target = jnp.where(tokens >= 0, FREE, 0)
    else:
        accept = read(tables.nodes, state.node, jnp.full_like(state.node, ACCEPT)) > 0
        target = jnp.where((tokens >= 0) & (tokens < tables.vocab_size), next_node(tables, state.node, tokens), 0)
        complete = read(tables.nodes, target, jnp.full_like(target, ACCEPT)) > 0

    status = jnp.where(remaining > 0, Status.RUNNING, jnp.where(complete, Status.ACCEPTED, Status.TRUNCATED))
    status = jnp.where(target == 0, Status.DEAD_END, status)
    status = jnp.where((stop | (tokens < 0)) & accept, Status.ACCEPTED, status)
    status = jnp.where(stop & free, Status.FINISHED, status).astype(jnp.int32)
    keeps = (stop & (accept | free)) | ((tokens < 0) & accept)
    return dataclasses.replace(
        state,
        node=jnp.where(running & ~keeps, target, state.node),
        remaining=jnp.where(running, remaining, state.remaining),
        status=jnp.where(running, status, state.status),
    )


def next_node(tables: ConstraintTables, node: jax.Array, tokens: jax.Array) -> jax.Array:
    """Target of a text token from each node, int32[B]; 0 where it is forbidden. Tokens lie in [0, V)."""
    record = read(tables.nodes, node)
    tokens = jnp.clip(tokens, 0, tables.vocab_size - 1)
    plane, word = tokens // tables.num_words, tokens % tables.num_words
    offset, count = record[:, GROUP_OFFSET][:, None], record[:, GROUP_COUNT][:, None]

    def target(i: jax.Array) -> jax.Array:
        group = read(tables.groups, jnp.minimum(offset + i, tables.groups.shape[0] - 1))
        bits = read(tables.rows, group[..., 0], jnp.broadcast_to(word[:, None], group.shape[:2]))
        hit = (bits >> plane[:, None].astype(jnp.uint32)) & 1
        return jnp.where((hit != 0) & (i < count), group[..., 1], 0)

    found = largest(target, tables.max_groups, node.shape[0])  # token sets are disjoint: at most one is not 0
    if tables.search_depth:
        found = jnp.maximum(found, _arc_target(tables, record, tokens))
    return found


def _arc_target(tables: ConstraintTables, record: jax.Array, tokens: jax.Array) -> jax.Array:
    """Target of the arc with each token, int32[B]; 0 where there is none.

    A search with `SEARCH_FANOUT` branches per level and a static number of levels: every level reads its separators at
    once, and everything is elementwise over [B], so that it needs no kernel of its own.
    """
    at, end = record[:, ARC_OFFSET], record[:, ARC_OFFSET] + record[:, ARC_COUNT]
    first = jnp.zeros_like(at)
    last = tables.arcs.shape[0] - 1
    for level in reversed(range(tables.search_depth)):
        stride = SEARCH_FANOUT**level
        step = jnp.zeros_like(at)
        for i in range(1, SEARCH_FANOUT):
            probe = at + i * stride
            below = read(tables.arcs, jnp.minimum(probe, last), first) <= tokens
            step += jnp.where((probe < end) & below, stride, 0)
        at += step
    arc = read(tables.arcs, jnp.minimum(at, last))
    return jnp.where((at < end) & (arc[:, 0] == tokens), arc[:, 1], 0)
