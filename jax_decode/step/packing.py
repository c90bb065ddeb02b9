"""`PackedState`: a `ConstraintState` as the decode loop carries it, one array in place of a dozen.

A loop pays for every array that it carries: when it is compiled, and in every turn, where each is an operation of its own.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jax_decode.step.state import ConstraintState, Status

_NUMBERS = ("status", "dropped", "remaining", "alloc")
_ROWS = ("node", "top", "register", "canonical", "used", "sources")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedState:
    """Position of every row in its constraint.

    Attributes:
      small: int32[B, F], side by side: status, dropped, remaining, alloc; then the fields with several numbers for each row.
      cell, depth_limit, stop_ids: as in `ConstraintState`.
      widths: static; how many numbers each of the latter fields has.
    """

    small: jax.Array
    cell: jax.Array
    depth_limit: jax.Array
    stop_ids: jax.Array
    widths: tuple[int, ...]

    @property
    def status(self) -> jax.Array:
        """int32[B], a `Status` each."""
        return self.small[:, _NUMBERS.index("status")]

    @property
    def dropped(self) -> jax.Array:
        """bool[B], see `ConstraintState`."""
        return self.small[:, _NUMBERS.index("dropped")] != 0

    @property
    def running(self) -> jax.Array:
        """bool[B], rows that still take tokens."""
        return self.status == Status.RUNNING

    def with_status(self, status: jax.Array) -> PackedState:
        """The rows with another status, int32[B]."""
        return dataclasses.replace(self, small=self.small.at[:, _NUMBERS.index("status")].set(status))


jax.tree_util.register_dataclass(
    PackedState, data_fields=["small", "cell", "depth_limit", "stop_ids"], meta_fields=["widths"]
)


def packed(state: ConstraintState) -> PackedState:
    """The state as a loop carries it."""
    numbers = [getattr(state, name).astype(jnp.int32)[:, None] for name in _NUMBERS]
    rows = [getattr(state, name) for name in _ROWS]
    return PackedState(
        small=jax.lax.concatenate([*numbers, *rows], 1),
        cell=state.cell,
        depth_limit=state.depth_limit,
        stop_ids=state.stop_ids,
        widths=tuple(x.shape[1] for x in rows),
    )


def unpacked(state: PackedState) -> ConstraintState:
    """The inverse of `packed`."""
    fields: dict[str, jax.Array] = {name: state.small[:, i] for i, name in enumerate(_NUMBERS)}
    begin = len(_NUMBERS)
    for name, width in zip(_ROWS, state.widths):
        fields[name] = jax.lax.slice_in_dim(state.small, begin, begin + width, axis=1)
        begin += width
    fields["dropped"] = state.dropped
    return ConstraintState(cell=state.cell, depth_limit=state.depth_limit, stop_ids=state.stop_ids, **fields)
