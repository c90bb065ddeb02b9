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

_SIZES = (1, 16, 256)
"""Of a write: how many times the entries of `_SMALL` one call has room for."""
_FEW = 2
"""Calls of one size before a larger one is taken."""
_SMALL = {
    "nodes": 64, "groups": 32, "arcs": 256, "levels": 64, "delta": 128, "pushes": 32, "symbols": 32,
    "constraints": 1, "rows": 4, "increments": 1,
}  # fmt: skip
"""Entries per table of the smallest one."""
_LARGEST = {"constraints": 1, "increments": 1, "rows": 16}
"""Tables of which no call has room for more than so many times the smallest."""
_APART = ("rows", "increments")
"""Tables whose entries are found one by one; those of all others lie together, in few pieces."""
_NOWHERE = np.iinfo(np.int32).max


class Written(NamedTuple):
    """What to write into the arrays of one table: entries int32[n], and values [n, ...] by the name of the array."""

    entries: NDArray[np.int32]
    values: Mapping[str, NDArray[Any]]


class Place(NamedTuple):
    """Of a table in a write: its name, how many entries one call has, and its arrays."""

    table: str
    room: int
    names: tuple[str, ...]

    @property
    def head(self) -> int:
        """Numbers that say where its entries go: each its own place, or of a window where it begins, and which are written."""
        return self.room if self.table in _APART else 3


Tables = Mapping[str, tuple[str, ...]]
"""Tables that are written together, each with its arrays."""


def write(arrays: Mapping[str, jax.Array], tables: Tables, what: Mapping[str, Written]) -> dict[str, jax.Array]:
    """The arrays of some tables after a write.

    Args:
      arrays: by name, those of the tables among them, which are given up.
      tables: the program depends on them, and on which of three sizes what is to be written needs, and on nothing else.
      what: by the name of the table; nothing for those left out.
    """
    own = {name: arrays[name] for names in tables.values() for name in names}
    runs = {table: _runs(table, written.entries) for table, written in what.items()}
    for size in _SIZES:
        layout = _layout(own, tables, size)
        most = {place.table: place.room for place in layout}
        needed = [sum(-(-(end - begin) // most[table]) for begin, end in every) for table, every in runs.items()]
        calls = max(needed, default=0)
        if calls <= _FEW:
            break
    pieces = {
        table: [(i, min(i + most[table], end)) for begin, end in every for i in range(begin, end, most[table])]
        for table, every in runs.items()
    }
    for call in range(calls):
        now = {table: cut[call] for table, cut in pieces.items() if call < len(cut)}
        own = _written(own, _flat(own, layout, what, now), layout=layout)
    return own


def warm(arrays: Mapping[str, jax.Array], tables: Tables) -> dict[str, jax.Array]:
    """Compiles all sizes of a write to some tables, by writing nothing; returns their arrays."""
    own = {name: arrays[name] for names in tables.values() for name in names}
    for size in _SIZES:
        layout = _layout(own, tables, size)
        own = _written(own, _flat(own, layout, {}, {}), layout=layout)
    return own


def _layout(arrays: Mapping[str, jax.Array], tables: Tables, size: int) -> tuple[Place, ...]:
    most = {table: _SMALL[table] * min(size, _LARGEST.get(table, size)) for table in tables}
    return tuple(Place(table, min(most[table], arrays[names[0]].shape[0]), names) for table, names in tables.items())


def _runs(table: str, entries: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Which of the entries of a table may be written by one call, (begin, end) each: those that lie together."""
    ends = [] if table in _APART else ((entries[1:] - entries[:-1] != 1).nonzero()[0] + 1).tolist()
    return list(zip([0, *ends], [*ends, len(entries)])) if len(entries) else []


def _flat(
    arrays: Mapping[str, jax.Array], layout: tuple[Place, ...], what: Mapping[str, Written], pieces: Mapping[str, tuple[int, int]]
) -> NDArray[np.int32]:
    """One piece of every table as one array: transfers cost by the piece."""
    widths = {name: math.prod(arrays[name].shape[1:]) for place in layout for name in place.names}
    out = np.zeros(sum(p.head + p.room * sum(widths[name] for name in p.names) for p in layout), np.int32)
    at = 0
    for place in layout:
        begin, end = pieces.get(place.table, (0, 0))
        count, skipped = end - begin, 0
        if place.table in _APART:
            out[at + count : at + place.room] = _NOWHERE
        if count and place.table in _APART:
            out[at : at + count] = what[place.table].entries[begin:end]
        elif count:  # a window at the end of a table begins before its entries
            entry = int(what[place.table].entries[begin])
            window = min(entry, arrays[place.names[0]].shape[0] - place.room)
            skipped = entry - window
            out[at : at + 3] = window, skipped, skipped + count
        at += place.head
        for name in place.names:
            if count:
                piece, first = what[place.table].values[name][begin:end], at + skipped * widths[name]
                own = (piece.view(np.int32) if piece.dtype == np.uint32 else piece).ravel()
                out[first : first + count * widths[name]] = own
            at += place.room * widths[name]
    return out


@functools.partial(jax.jit, donate_argnums=0, static_argnames="layout")
def _written(arrays: dict[str, jax.Array], flat: jax.Array, *, layout: tuple[Place, ...]) -> dict[str, jax.Array]:
    at, out = 0, dict(arrays)
    for place in layout:
        where, at = flat[at : at + place.head], at + place.head
        for name in place.names:
            own = out[name]
            shape = (place.room, *own.shape[1:])
            size = math.prod(shape)
            value, at = flat[at : at + size].reshape(shape), at + size
            if own.dtype == jnp.uint32:
                value = jax.lax.bitcast_convert_type(value, jnp.uint32)
            value = value.astype(own.dtype)
            if place.table in _APART:
                out[name] = own.at[where].set(value, mode="drop")
                continue
            begin, first, end = where  # one copy, where a scatter goes from entry to entry
            number = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
            before = jax.lax.dynamic_slice_in_dim(own, begin, place.room)
            value = jnp.where((number >= first) & (number < end), value, before)
            out[name] = jax.lax.dynamic_update_slice_in_dim(own, value, begin, 0)
    return out
