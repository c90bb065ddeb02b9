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
_ONE_SIZE = ("constraints", "increments")


class Written(NamedTuple):
    """What to write into the arrays of one table: entries int32[n], and values [n, ...] by the name of the array."""

    entries: NDArray[np.int32]
    values: Mapping[str, NDArray[Any]]


Layout = tuple[tuple[int, tuple[str, ...]], ...]
"""Per table how many entries one write has, and its arrays."""
Tables = Mapping[str, tuple[str, ...]]
"""Tables that are written together, each with its arrays."""
_NOWHERE = np.iinfo(np.int32).max


def write(arrays: Mapping[str, jax.Array], tables: Tables, what: Mapping[str, Written]) -> dict[str, jax.Array]:
    """The arrays of some tables after a write.

    Args:
      arrays: by name, those of the tables among them, which are given up.
      tables: the program depends on them, and on which of two sizes what is to be written needs, and on nothing else.
      what: by the name of the table; nothing for those left out.
    """
    sizes = {table: len(what[table].entries) if table in what else 0 for table in tables}
    calls = max(-(-size // _SMALL[table]) for table, size in sizes.items())
    larger = _LARGER if calls > 2 else 1
    most = {table: _SMALL[table] * (1 if table in _ONE_SIZE else larger) for table in tables}
    calls = max(-(-size // most[table]) for table, size in sizes.items())
    own = {name: arrays[name] for names in tables.values() for name in names}
    layout = tuple((most[table], names) for table, names in tables.items())
    for call in range(calls):
        own = _written(own, _flat(own, tables, what, most, call), layout=layout)
    return own


def warm(arrays: Mapping[str, jax.Array], tables: Tables) -> dict[str, jax.Array]:
    """Compiles both sizes of a write to some tables, by writing nothing; returns their arrays."""
    out = {name: arrays[name] for names in tables.values() for name in names}
    table, names = next(iter(tables.items()))
    for count in (1, 3 * _SMALL[table]):
        zeros = {name: np.zeros((count, *arrays[name].shape[1:]), np.int32) for name in names}
        out = write(out, tables, {table: Written(np.full(count, _NOWHERE, np.int32), zeros)})
    return out


def _flat(
    arrays: Mapping[str, jax.Array], tables: Tables, what: Mapping[str, Written], most: Mapping[str, int], call: int
) -> NDArray[np.int32]:
    """The call-th piece of every write as one array: transfers cost by the piece. Entries past the end are written nowhere."""
    widths = {name: math.prod(arrays[name].shape[1:]) for names in tables.values() for name in names}
    out = np.zeros(sum(most[table] * (1 + sum(widths[name] for name in names)) for table, names in tables.items()), np.int32)
    at = 0
    for table, names in tables.items():
        part, count = slice(call * most[table], (call + 1) * most[table]), 0
        if table in what:
            own = what[table].entries[part]
            count = len(own)
            out[at : at + count] = own
        out[at + count : at + most[table]] = _NOWHERE
        at += most[table]
        for name in names:
            if count:
                piece = what[table].values[name][part]
                out[at : at + count * widths[name]] = (piece.view(np.int32) if piece.dtype == np.uint32 else piece).ravel()
            at += most[table] * widths[name]
    return out


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
