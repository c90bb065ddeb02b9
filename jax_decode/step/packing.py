"""`PackedState`: a `ConstraintState` as the decode loop carries it, one array in place of a dozen.

A loop pays for every array that it carries: when it is compiled, and in every turn, where each is an operation of its own.
"""

from __future__ import annotations

import dataclasses
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.step.state import ConstraintState, Status

_NUMBERS = ("status", "remaining", "alloc", "dropped")
_ROWS = ("node", "top", "register", "canonical", "used", "sources")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedState:
    """Position of every row in its constraint.

    Attributes:
      small: int32[B, F], side by side: status, remaining, alloc; dropped where a row may have several configurations, as
        nothing sets it elsewhere; then the fields with several numbers for each row.
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
        """bool[B], see `ConstraintState`; on the host where `small` is."""
        if "dropped" in _numbers_of(self.widths[0]):
            return self.small[:, _NUMBERS.index("dropped")] != 0
        return cast(jax.Array, np.zeros(len(self.small), bool))

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
    rows = [getattr(state, name) for name in _ROWS]
    numbers = [getattr(state, name).astype(jnp.int32)[:, None] for name in _numbers_of(rows[0].shape[1])]
    return PackedState(
        small=jax.lax.concatenate([*numbers, *rows], 1),
        cell=state.cell,
        depth_limit=state.depth_limit,
        stop_ids=state.stop_ids,
        widths=tuple(x.shape[1] for x in rows),
    )


def unpacked(state: PackedState) -> ConstraintState:
    """The inverse of `packed`."""
    numbers = _numbers_of(state.widths[0])
    fields: dict[str, jax.Array] = {name: state.small[:, i] for i, name in enumerate(numbers)}
    begin = len(numbers)
    for name, width in zip(_ROWS, state.widths):
        # XLA for CPUs (jaxlib 0.10.2) ends the process where an empty slice meets the concatenation that it is of.
        empty = jnp.zeros((len(state.small), 0), jnp.int32)
        fields[name] = jax.lax.slice_in_dim(state.small, begin, begin + width, axis=1) if width else empty
        begin += width
    fields["dropped"] = fields["dropped"] != 0 if "dropped" in fields else jnp.zeros(len(state.small), bool)
    return ConstraintState(cell=state.cell, depth_limit=state.depth_limit, stop_ids=state.stop_ids, **fields)


def without_cells(state: ConstraintState) -> PackedState:
    """The state as kernels of rows take it: `unpacked` in front and `packed` in the kernel cost nothing, fields one by one do."""
    return dataclasses.replace(packed(state), cell=jnp.zeros((len(state.status), 0), jnp.int32))


def _numbers_of(configurations: int) -> tuple[str, ...]:
    """The fields with one number for each row."""
    return _NUMBERS if configurations > 1 else _NUMBERS[:-1]
