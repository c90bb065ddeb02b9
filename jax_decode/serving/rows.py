"""One row of a batch at a time: start it, put it in, take it out, move it, swap two. No other row is read or written.

The functions work inside and outside `jax.jit`; row numbers are traced, so that they compile once per batch size.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.errors import DecodeError, named_arguments
from jax_decode.step.argument_checks import check_rows
from jax_decode.step.state import ConstraintState


@named_arguments
def put_row(state: ConstraintState, row: Any, other: ConstraintState, source: Any = 0) -> ConstraintState:
    """The state with a row of another state in place of one of its own.

    Args:
      state: [B].
      row: int32[], or int32[n] for several; rows from B up are left out.
      other: [B'], made with the same tables, `max_tokens` and number of stop ids: what `init_state` made of a new request, or
        `take_rows` of a row that was set aside.
      source: int32[], or int32[n], the rows of `other`.

    Raises:
      DecodeError: while tracing, where the states have other columns; outside of it also where there is no such row.
    """
    check_rows(state, "put_row", beyond=True, row=row)
    check_rows(other, "put_row", source=source)
    if np.size(source) != 1 and np.size(source) != np.size(row):
        what = f"put_row: {np.size(source)} rows are to be put in {np.size(row)} places"
        raise DecodeError(what, fix="Give as many rows as places, or one.")
    for name, own, given in zip(vars(state), jax.tree.leaves(state), jax.tree.leaves(other)):
        if own.shape[1:] != given.shape[1:]:
            what = f"put_row: {name} has columns {own.shape[1:]} in the batch and {given.shape[1:]} in the row"
            fix = "Make both with init_state of the same tables, with the same max_tokens= and as many stop ids."
            raise DecodeError(what, fix=fix)
    at, of = jnp.atleast_1d(jnp.asarray(row, jnp.int32)), jnp.atleast_1d(jnp.asarray(source, jnp.int32))
    return jax.tree.map(lambda own, given: own.at[at].set(given.at[of].get(mode="clip"), mode="drop"), state, other)


@named_arguments
def take_rows(state: ConstraintState, rows: Any) -> ConstraintState:
    """A copy of some rows, int32[n]: set it aside, and `put_row` it back where there is room; the tables may have changed since.

    The slots of its constraints must stay in use meanwhile.
    """
    check_rows(state, "take_rows", rows=rows)
    at = jnp.atleast_1d(jnp.asarray(rows, jnp.int32))
    return jax.tree.map(lambda leaf: leaf.at[at].get(mode="clip"), state)


@named_arguments
def move_row(state: ConstraintState, source: Any, target: Any) -> ConstraintState:
    """The state whose row `target` is a copy of row `source`: moves a row into a free place, or forks it."""
    check_rows(state, "move_row", source=source, target=target)
    return put_row(state, target, state, source)


@named_arguments
def swap_rows(state: ConstraintState, one: Any, other: Any) -> ConstraintState:
    """The state with two rows, int32[] each, exchanged."""
    check_rows(state, "swap_rows", one=one, other=other)
    if np.size(one) != 1 or np.size(other) != 1:
        raise DecodeError("swap_rows: two single rows are exchanged", fix="Call it once for every pair.")
    one, other = (jnp.asarray(row, jnp.int32).reshape(()) for row in (one, other))
    return put_row(state, jnp.stack([one, other]), state, jnp.stack([other, one]))
