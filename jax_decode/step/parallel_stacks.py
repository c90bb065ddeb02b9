"""Rows that follow several stacks, apart from the others, so that those pay nothing for them.

In tables with K > 1 stacks most rows may well have deterministic constraints. All rows are worked on as if they had one stack;
the rows of constraints that are followed on several are then worked on once more, with all their stacks, a few at a time. Their
work is proportional to their number, known on the device only; it overwrites what the first pass made of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.kernels.gather import read
from jax_decode.step.state import ConstraintState
from jax_decode.tables.items import node_in
from jax_decode.tables.stack_layout import PARALLEL
from jax_decode.tables.tables import ConstraintTables

_CHUNK = 8
"""Rows with several stacks that are worked on at once."""


def by_rows(tables: ConstraintTables, rule: Callable[..., Any], state: ConstraintState, *arguments: jax.Array) -> Any:
    """What a rule makes of every row.

    Args:
      tables: from `to_device`, with several stacks.
      rule: takes tables, a state and the arguments, of any number of rows and with one stack or with `tables.stacks`, and
        returns arrays of the same shapes but for the rows.
      state: the rows.
      arguments: of all rows.
    """
    batch = state.node.shape[0]
    out = rule(tables, _first_stack(state), *arguments)
    parallel = read(tables.frames, node_in(tables.items, state.node[:, 0])[0], jnp.int32(PARALLEL)) > 0
    count = parallel.sum(dtype=jnp.int32)
    order = jnp.argsort(~parallel, stable=True).astype(jnp.int32)

    def again(i: jax.Array, out: Any) -> Any:
        place = jnp.minimum(i * _CHUNK + jnp.arange(min(_CHUNK, batch), dtype=jnp.int32), count - 1)
        rows = order[place]  # the last row may occur several times: it gets the same result each time
        some, *others = jax.tree.map(lambda x: x[rows], (state, *arguments))
        return jax.tree.map(lambda whole, part: whole.at[rows].set(part), out, rule(tables, some, *others))

    return jax.lax.fori_loop(0, -(-count // _CHUNK), again, out)


def _first_stack(state: ConstraintState) -> ConstraintState:
    return dataclasses.replace(state, node=state.node[:, :1], top=state.top[:, :1], register=state.register[:, :1])


def with_all_stacks(tables: ConstraintTables, field: jax.Array) -> jax.Array:
    """int32[B, n] with 0 for the stacks that are not there, int32[B, K]."""
    return jnp.pad(field, ((0, 0), (0, tables.stacks - field.shape[1])))
