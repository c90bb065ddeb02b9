"""Where a text ends: whether it may go on, and rows whose text is complete and may not."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.decoding.requests import Request
from jax_decode.step.masking import mask_parts
from jax_decode.step.stack import accepts, sources
from jax_decode.step.state import ConstraintState, Status
from jax_decode.tables.concatenation import SHORTEST
from jax_decode.tables.tables import ConstraintTables


def goes_on(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Whether a row allows any token that is not a stop, bool[B]."""
    parts = mask_parts(tables, state)
    listed = parts.allowed[:, : parts.allowed.shape[1] - state.stop_ids.shape[1]]  # the last ones are the stop ids
    return (parts.words != 0).any(1) | listed.any(1)


def complete(tables: ConstraintTables, state: ConstraintState) -> jax.Array:
    """Whether a row's text, as it stands, is in its language, bool[B]."""
    return jnp.where(state.running, accepts(tables, sources(tables, state)), state.status == Status.ACCEPTED)


def ended(tables: ConstraintTables, state: ConstraintState, always_stop: jax.Array) -> ConstraintState:
    """The state in which running rows that end without a stop token are `ACCEPTED`: their text is complete and cannot go on.

    Args:
      tables: from `to_device`.
      state: the rows.
      always_stop: bool[]; only rows without stop ids end so.
    """
    over = state.running & complete(tables, state) & ~goes_on(tables, state)
    over &= ~always_stop | (state.stop_ids < 0).all(1)
    return dataclasses.replace(state, status=jnp.where(over, Status.ACCEPTED, state.status).astype(jnp.int32))


def first_state(request: Request, each: int, always_stop: jax.Array) -> ConstraintState:
    """`request.first_state(each)`, with `ended` applied where the empty text may be complete."""
    assert request.tables is not None
    state = request.first_state(each)
    shortest = np.asarray(jax.device_get(request.tables.constraints))[request.which, SHORTEST]
    return _ended(request.tables, state, always_stop) if (shortest == 0).any() else state


def stop_columns(state: ConstraintState, width: int) -> jax.Array:
    """Every row's stop ids, int32[B, E], `width` where there is none: past the last logit."""
    return jnp.where(state.stop_ids >= 0, state.stop_ids, width)


_ended = jax.jit(ended)
