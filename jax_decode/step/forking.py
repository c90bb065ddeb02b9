"""Copies rows: of the state of the constraints, and of a decoder's cache. Beams, samples of one prompt and resampling fork."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fsa_compile.errors import shown
from jax_decode.errors import DecodeError, is_whole, named_arguments
from jax_decode.step.argument_checks import check_rows, check_state, first_outside, numbers_of
from jax_decode.step.state import ConstraintState, Position

_SHARED = -1
"""Axis of a leaf without rows."""


@named_arguments
def fork(state: ConstraintState, parent: Any) -> ConstraintState:
    """The state whose row b is a copy of row `parent[b]`, stacks and counters included.

    Works inside and outside `jax.jit`. Rows nobody names are dropped; the number of rows may change.

    Args:
      state: [B].
      parent: int32[B'], rows of the state, each in [0, B).

    Returns:
      The state of B' rows.

    Raises:
      DecodeError: while tracing, for arguments that are wrong; outside of it also where there is no such row.

    Examples:
      >>> fork(state, jnp.array([0, 0, 2]))  # row 0 twice, row 1 no more
    """
    check_rows(state, "fork", parent=parent)
    if np.ndim(parent) != 1:
        raise DecodeError("fork: parent is a single number", fix="Pass int32[n], the rows to keep, such as jnp.array([0, 0, 2]).")
    parent = jnp.asarray(parent, jnp.int32)
    return jax.tree.map(lambda leaf: leaf.at[parent].get(mode="promise_in_bounds"), state)


@named_arguments
def rewind(state: ConstraintState, position: Position) -> ConstraintState:
    """The state back at an earlier `state.position`, row by row; see `ConstraintState.rewound`."""
    check_state(None, state, "rewind")
    return state.rewound(position)


@named_arguments
def fork_cache(decoder: Any, cache: Any, parent: Any, *, length: int = 1) -> Any:
    """A decoder's cache whose row b is a copy of row `parent[b]`.

    The axis of a leaf that holds the rows is the one that grows with the batch; a leaf without such an axis is shared.

    Args:
      decoder: made the cache; see `Decoder`.
      cache: of B rows.
      parent: int32[B'], rows of the cache.
      length: static; a number of slots that `decoder.init_cache` takes. Nothing is allocated.

    Raises:
      DecodeError: which axis of a leaf holds the rows is not clear, or an argument is something else; outside of `jax.jit` also
        where there is no such row.
    """
    if not hasattr(decoder, "init_cache"):
        fix = "Pass the decoder that made the cache; see jax_decode.Decoder."
        raise DecodeError(f"fork_cache: the decoder is {shown(decoder)}", fix=fix)
    if np.ndim(numbers_of(parent, "fork_cache: parent is no rows' numbers")) != 1:
        raise DecodeError("fork_cache: parent is a single number", fix="Pass int32[n], such as jnp.array([0, 0, 2]).")
    if not is_whole(length, 1):
        raise DecodeError(f"fork_cache: the length is {shown(length)}", fix="Give a number of slots that the cache may have.")
    axes = row_axes(decoder, length)
    own: Any = jax.tree.structure(axes)
    if jax.tree.structure(cache) != own:
        raise DecodeError("fork_cache: the cache is not one of the decoder's", fix="Pass what init_cache or apply returned.")
    counts = [leaf.shape[axis] for leaf, axis in zip(jax.tree.leaves(cache), jax.tree.leaves(axes)) if axis != _SHARED]
    if counts and (wrong := first_outside(parent, 0, min(counts))) is not None:
        what = f"fork_cache: parent is {wrong}, and the cache has {min(counts)} row{'s' * (min(counts) != 1)}"
        raise DecodeError(what, fix=f"Count rows from 0 to {min(counts) - 1}.")
    parent = jnp.asarray(parent, jnp.int32)

    def rows(leaf: jax.Array, axis: int) -> jax.Array:
        return leaf if axis == _SHARED else jnp.take(leaf, parent, axis=axis, mode="clip")

    return jax.tree.map(rows, cache, axes)


def row_axes(decoder: Any, length: int = 1) -> Any:
    """Which axis of every leaf of a decoder's cache holds the rows, -1 for none: a pytree of ints.

    Raises:
      DecodeError: it is not clear.
    """
    one, two = (jax.eval_shape(lambda n=n: decoder.init_cache(n, length)) for n in (1, 2))

    def axis(small: Any, large: Any) -> int:
        grows = [i for i, (a, b) in enumerate(zip(small.shape, large.shape)) if a != b]
        if small.ndim != large.ndim or len(grows) > 1:
            raise DecodeError(
                f"a leaf of the decoder's cache has shape {small.shape} for 1 row and {large.shape} for 2: which axis holds "
                "the rows is not clear",
                fix="Give every leaf one axis of rows, or none.",
            )
        return grows[0] if grows else _SHARED

    return jax.tree.map(axis, one, two)
