"""Writes entries into tables on the device in place: a few programs, whatever is written."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

_LARGER = 16
"""Between the two sizes of a write."""
_SMALL = {
    "nodes": 64, "groups": 32, "arcs": 256, "levels": 64, "delta": 128, "pushes": 32, "symbols": 32,
    "constraints": 1, "rows": 4, "increments": 1,
}  # fmt: skip
"""Entries per table of the smaller one."""


class Written(NamedTuple):
    """What to write into the arrays of one table: entries int32[n], and values [n, ...] by the name of the array."""

    entries: NDArray[np.int32]
    values: Mapping[str, NDArray[Any]]


Layout = tuple[tuple[int, tuple[str, ...]], ...]
"""Per table how many entries one write has, and its arrays."""


def write(arrays: Mapping[str, jax.Array], what: Mapping[str, Written]) -> dict[str, jax.Array]:
    """The arrays after some writes.

    Args:
      arrays: by name; those written to are given up.
      what: by the name of the table, in one order for one set of tables: the program depends on it, and on which of two sizes.

    Returns:
      The arrays written to.
    """
    calls = max(-(-len(part.entries) // _SMALL[name]) for name, part in what.items())
    most = {name: _SMALL[name] * (_LARGER if calls > 2 and name not in ("constraints", "increments") else 1) for name in what}
    calls = max(-(-len(part.entries) // most[name]) for name, part in what.items())
    layout = tuple((most[name], tuple(part.values)) for name, part in what.items())
    own = {name: arrays[name] for part in what.values() for name in part.values}
    for call in range(calls):
        own = _written(own, _flat(own, what, most, call), layout=layout)
    return own


def warm(arrays: Mapping[str, jax.Array], tables: Mapping[str, tuple[str, ...]]) -> dict[str, jax.Array]:
    """Compiles both sizes of a write to some tables, by writing nothing; returns the arrays."""
    out = dict(arrays)
    for count in (1, 3 * max(_SMALL[name] for name in tables)):
        nowhere = np.full(count, np.iinfo(np.int32).max, np.int32)
        zeros = {name: np.zeros((count, *array.shape[1:]), np.int32) for name, array in out.items()}
        what = {table: Written(nowhere, {name: zeros[name] for name in names}) for table, names in tables.items()}
        out |= write(out, what)
    return out


def _flat(arrays: Mapping[str, jax.Array], what: Mapping[str, Written], most: Mapping[str, int], call: int) -> NDArray[np.int32]:
    """The call-th piece of every write as one array: transfers cost by the piece. Entries past the end are written nowhere."""
    out = []
    for table, (entries, values) in what.items():
        part = slice(call * most[table], (call + 1) * most[table])
        index = np.full(most[table], np.iinfo(np.int32).max, np.int32)
        count = len(own := entries[part])
        index[:count] = own
        out.append(index)
        for name, value in values.items():
            wide = np.zeros((most[table], math.prod(arrays[name].shape[1:])), np.int32)
            piece = value[part].reshape(count, wide.shape[1])
            wide[:count] = piece.view(np.int32) if piece.dtype == np.uint32 else piece
            out.append(wide.ravel())
    return np.concatenate(out)


@functools.partial(jax.jit, donate_argnums=0, static_argnames="layout")
def _written(arrays: dict[str, jax.Array], flat: jax.Array, *, layout: Layout) -> dict[str, jax.Array]:
    at, out = 0, dict(arrays)
    for count, names in layout:
        entries, at = flat[at : at + count], at + count
        for name in names:
            shape = (count, *out[name].shape[1:])
            size = math.prod(shape)
            value, at = flat[at : at + size].reshape(shape), at + size
            if out[name].dtype == jnp.uint32:
                value = jax.lax.bitcast_convert_type(value, jnp.uint32)
            out[name] = out[name].at[entries].set(value.astype(out[name].dtype), mode="drop")
    return out
