"""`ConstraintState`: where every row of a batch stands. Reading tables and stepping belong to other modules."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import jax
import jax.numpy as jnp

from fsa_compile.artifact import UNREACHABLE
from jax_decode.tables import FREE, START, ConstraintTables


class Status(enum.IntEnum):
    """How a row stands; every status but RUNNING is absorbing."""

    RUNNING = 0
    ACCEPTED = 1
    """The text belongs to the row's language: ended by a stop id, or complete when the limit was reached."""
    FINISHED = 2
    """A row without a constraint took a stop id."""
    TRUNCATED = 3
    """The limit was reached before the text was complete (or, without a constraint, before a stop id)."""
    DEAD_END = 4
    """A forbidden token was taken. The package's own samplers never do that."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstraintState:
    """Position of every row in its constraint: a small pytree of arrays. To take tokens back, keep the old one.

    Attributes:
      node: int32[B], node of `ConstraintTables`.
      remaining: int32[B], tokens that may still be taken, the stop token included.
      status: int32[B], a `Status`.
      stop_ids: int32[B, E], distinct end-of-text ids of each row, padded with -1.
    """

    node: jax.Array
    remaining: jax.Array
    status: jax.Array
    stop_ids: jax.Array

    @property
    def running(self) -> jax.Array:
        """bool[B], rows that still take tokens."""
        return self.status == Status.RUNNING


jax.tree_util.register_dataclass(ConstraintState, data_fields=["node", "remaining", "status", "stop_ids"], meta_fields=[])


def init_state(tables: ConstraintTables, which: Any, limits: Any = None, stop_ids: Any = None) -> ConstraintState:
    """The state before the first token.

    Works inside and outside `jax.jit`; nothing is checked here (`generate` checks its arguments).

    Args:
      tables: from `to_device`.
      which: int32[B], index of each row's constraint in the tables, -1 for none.
      limits: int32[B], most tokens of each row, the stop token included; None for no limit.
      stop_ids: int32[B, E], distinct end-of-text ids per row, padded with -1; None for the vocabulary's own.

    Returns:
      The state.
    """
    which = jnp.asarray(which, jnp.int32)
    index = jnp.maximum(which, 0)
    if limits is None:
        remaining = jnp.full(which.shape, int(UNREACHABLE), jnp.int32)
    else:
        remaining = jnp.broadcast_to(jnp.asarray(limits, jnp.int32), which.shape)
    return ConstraintState(
        node=jnp.where(which < 0, FREE, tables.constraints[index, START]),
        remaining=remaining,
        status=jnp.zeros(which.shape, jnp.int32),
        stop_ids=tables.stop_ids[index] if stop_ids is None else jnp.asarray(stop_ids, jnp.int32),
    )
