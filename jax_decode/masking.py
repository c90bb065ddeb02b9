"""Which tokens a state allows: a bit row plus a short candidate list, and the plain boolean mask made of both.

The two parts are disjoint. Samplers read them directly and never build a `[B, V]` mask; `mask` and `mask_logits` are
the general, slower form for a user's own sampling code.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fsa_compile.artifact import UNREACHABLE
from jax_decode.state import ConstraintState
from jax_decode.tables import (
    ACCEPT,
    ARC_COUNT,
    ARC_OFFSET,
    DISTANCE,
    LEVEL_COUNT,
    LEVEL_OFFSET,
    ConstraintTables,
)

_UNROLL = 16


def read(table: jax.Array, *index: jax.Array) -> jax.Array:
    """`table[index]` for indices known to be inside (tables are padded for reads past a node's own entries)."""
    return table.at[index].get(mode="promise_in_bounds")


def largest(entry: Callable[[jax.Array], jax.Array], count: int, shape: int) -> jax.Array:
    """The largest of `entry(0) .. entry(count - 1)`, int32[B].

    `entry` takes int32[1, n] and returns int32[B, n]. Few entries are unrolled: an elementwise chain over [B, 1] that the
    compiler fuses with its neighbours into one kernel, where a reduction would stand alone.

    Args:
      entry: values of several entries of all rows.
      count: static number of entries.
      shape: B.
    """
    if count > _UNROLL:
        return entry(jnp.arange(count, dtype=jnp.int32)[None]).max(1)
    best = jnp.zeros((shape, 1), jnp.int32)
    for i in range(count):
        best = jnp.maximum(best, entry(jnp.full((1, 1), i, jnp.int32)))
    return best[:, 0]


def limit_of(record: jax.Array, remaining: jax.Array) -> jax.Array:
    """Tokens a row may still take, int32[B]; no limit when not even the shortest completion fits."""
    return jnp.where(remaining < record[:, DISTANCE], UNREACHABLE, remaining)


def mask_row(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Index of each row's bit row, int32[B]: the last level within the limit, 0 (empty) where there is none."""
    record = read(tables.nodes, state.node)
    limit = limit_of(record, state.remaining)[:, None]
    offset, count = record[:, LEVEL_OFFSET][:, None], record[:, LEVEL_COUNT][:, None]

    # Levels ascend by cost, so the last that fits has the largest index; its row is read once more.
    def fitting(i: jax.Array) -> jax.Array:
        fits = (i < count) & (read(tables.levels, offset + i, jnp.zeros_like(offset + i)) <= limit)
        return jnp.where(fits, i + 1, 0)

    level = largest(fitting, tables.max_levels, state.node.shape[0])
    row = read(tables.levels, record[:, LEVEL_OFFSET] + jnp.maximum(level - 1, 0), jnp.ones_like(level))
    return jnp.where((level > 0) & state.running, row, 0)


def mask_words(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Bit planes of the allowed tokens that are not in the candidate list, uint32[B, W]."""
    return read(tables.rows, mask_row(tables, state))


def candidates(tables: ConstraintTables, state: ConstraintState) -> tuple[jax.Array, jax.Array]:
    """Allowed tokens that no bit row holds: arcs of a node without mask row, and stop ids of an accepted text.

    Returns:
      token int32[B, M + E] (0 where not allowed) and allowed bool[B, M + E]; M is `tables.max_candidates`.
    """
    record = read(tables.nodes, state.node)
    stops = state.stop_ids
    token = stops
    allowed = (stops >= 0) & (record[:, ACCEPT] > 0)[:, None]
    if tables.max_candidates:
        i = jnp.arange(tables.max_candidates, dtype=jnp.int32)[None]
        arcs = read(tables.arcs, record[:, ARC_OFFSET][:, None] + i)
        inside = (i < record[:, ARC_COUNT][:, None]) & (record[:, LEVEL_COUNT] == 0)[:, None]
        fits = arcs[..., 2] <= limit_of(record, state.remaining)[:, None]
        token = jnp.concatenate([arcs[..., 0], stops], axis=1)
        allowed = jnp.concatenate([inside & fits, allowed], axis=1)
    allowed &= state.running[:, None]
    return jnp.where(allowed, token, 0), allowed


def mask(tables: ConstraintTables, state: ConstraintState, *, width: int | None = None) -> jax.Array:
    """The allowed next tokens as booleans: what the samplers read in packed form.

    This is the general form, for any sampling code; it writes B x width booleans, which costs more than the whole
    constrained step of the package's own samplers.

    Args:
      tables: from `to_device`.
      state: the rows.
      width: number of logits, at least `tables.vocab_size`; None for exactly that.

    Returns:
      bool[B, width]. A row that is not running allows nothing.
    """
    words = mask_words(tables, state)
    width = tables.vocab_size if width is None else width
    planes = jnp.arange(32, dtype=jnp.uint32)[None, :, None]
    bits = ((words[:, None, :] >> planes) & 1).astype(bool).reshape(words.shape[0], -1)
    bits = jnp.pad(bits, ((0, 0), (0, max(0, width - bits.shape[1]))))[:, :width]
    token, allowed = candidates(tables, state)
    batch = jnp.arange(words.shape[0], dtype=jnp.int32)[:, None]
    return bits.at[batch, jnp.where(allowed, token, width)].set(True, mode="drop")


def mask_logits(tables: ConstraintTables, state: ConstraintState, logits: jax.Array) -> jax.Array:
    """A copy of the logits with -inf in place of every forbidden token.

    Args:
      tables: from `to_device`.
      state: the rows.
      logits: float[B, V'], V' at least `tables.vocab_size`.

    Returns:
      float[B, V'] of the logits' dtype.
    """
    allowed = mask(tables, state, width=logits.shape[-1])
    return jnp.where(allowed, logits, jnp.asarray(-jnp.inf, logits.dtype))
