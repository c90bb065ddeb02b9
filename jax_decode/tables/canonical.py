"""Canonical tokens on the device: which tokens the last one forbids, and the two nodes of every place in such a constraint.

A row of a canonical constraint keeps its last token and a state of the tokenizer's filter (`ConstraintState.canonical`) beside
what it keeps of any constraint: a node, and with a stack its cells. Where places of regular constraints have two nodes, tokens
that the last one does not forbid are those of the node, the others those of its partner, right behind it; see
`fsa_compile.canonical.restrict`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.constraint import CompiledConstraint
from jax_decode.errors import DecodeError
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import read
from jax_decode.tables.canonical_filter import FilterTables, excepted_words, filter_words

LAST, BOUNDED, FILTER = range(3)
"""Columns of `ConstraintState.canonical`: last token, -1 for none; whether the row's limit can be kept; state of the filter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairTables:
    """Forbidden sets of all tokens, on the device: a base row per set, and the tokens to flip in it.

    Axes: V' tokens, D sets, R base rows, W words, F flips.

    Attributes:
      set_of: int32[V']; set 0 is empty.
      row_of: int32[D].
      rows: uint32[R, W], bit planes as in `ConstraintTables.rows`.
      flip_offset: int32[D + 1].
      flip_token: int32[F], padded so that `max_flips` can be read from every offset.
      max_flips: most flips of one set.
    """

    set_of: jax.Array
    row_of: jax.Array
    rows: jax.Array
    flip_offset: jax.Array
    flip_token: jax.Array
    max_flips: int


_STATIC = ["max_flips"]
jax.tree_util.register_dataclass(PairTables, [f.name for f in dataclasses.fields(PairTables) if f.name not in _STATIC], _STATIC)


def pair_arrays(rows: Any, planes: NDArray[np.uint32], width: int) -> tuple[dict[str, NDArray[Any]], int]:
    """The arrays of `PairTables`, on the host, and its `max_flips`, which is a power of two.

    Args:
      rows: `fsa_compile.canonical.filter.device_rows.ModelRows`.
      planes: its base rows as bit planes.
      width: ids that tokens may have.
    """
    most = 1 << (rows.max_flips - 1).bit_length() if rows.max_flips else 0
    arrays = {
        "set_of": np.append(rows.set_of, np.zeros(width - len(rows.set_of), np.int32)),
        "row_of": rows.row_of,
        "rows": planes,
        "flip_offset": rows.flip_offset,
        "flip_token": np.append(rows.flip_token, np.zeros(most + 1, np.int32)),
    }
    return arrays, most


def _set_and_flips(pairs: PairTables, last: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Base row of each row's forbidden set int32[B], tokens to flip int32[B, n], and which of these exist."""
    group = jnp.where(last >= 0, read(pairs.set_of, jnp.maximum(last, 0)), 0)
    offset, end = read(pairs.flip_offset, group), read(pairs.flip_offset, group + 1)
    index = offset[:, None] + jnp.arange(pairs.max_flips, dtype=jnp.int32)[None]
    return read(pairs.row_of, group), read(pairs.flip_token, index), index < end[:, None]


def pair_words(pairs: PairTables, last: jax.Array, columns: Columns) -> jax.Array:
    """Bit planes of the tokens that may not follow the last one inside a piece, uint32[B, W]; none for last = -1."""
    row, token, exists = _set_and_flips(pairs, last)
    words = read(pairs.rows, row)
    if not pairs.max_flips:
        return words
    column, plane = columns.place(token)
    batch = jnp.arange(words.shape[0], dtype=jnp.int32)[:, None]
    bit = jnp.uint32(1) << plane.astype(jnp.uint32)
    # No token is listed twice, so adding or subtracting its bit flips it, and several flips of one word add up.
    change = jnp.where((read(words, batch, column) & bit) == 0, bit, jnp.uint32(0) - bit)
    return words.at[batch, column].add(jnp.where(exists, change, jnp.uint32(0)), mode="promise_in_bounds")


def forbids(pairs: PairTables, last: jax.Array, tokens: jax.Array, columns: Columns) -> jax.Array:
    """Whether tokens int32[B] may not follow the last ones inside a piece, bool[B]."""
    row, flips, exists = _set_and_flips(pairs, last)
    column, plane = columns.place(tokens)
    bit = (read(pairs.rows, row, column) >> plane.astype(jnp.uint32)) & 1
    return (bit != 0) ^ (exists & (flips == tokens[:, None])).any(1)


def canonical_words(
    pairs: PairTables,
    states: FilterTables,
    canonical: jax.Array,
    columns: Columns,
    unless: Sequence[tuple[jax.Array, jax.Array]],
) -> tuple[jax.Array, jax.Array]:
    """Bit planes of the tokens that may follow: of those that the last one does not forbid, and of those that it does.

    Args:
      pairs, states: of the tokenizer.
      canonical: see `LAST`.
      columns: how tokens lie in words.
      unless: uint32[B, W] and int32[B] each, tokens that may not lead to the states of a list, and the list.
    """
    together, apart = filter_words(states, canonical[:, FILTER])
    for tokens, which in unless:
        excepted = excepted_words(states, canonical[:, FILTER], which)
        together, apart = together & ~(tokens & excepted[0]), apart & ~(tokens & excepted[1])
    forbidden = pair_words(pairs, canonical[:, LAST], columns)
    return together & ~forbidden, apart & forbidden


def first_canonical(last: jax.Array, limits: jax.Array, shortest: jax.Array, state: jax.Array) -> jax.Array:
    """`ConstraintState.canonical` before the first token, int32[B, 3]: `last` is the prompt's last token, -1 for none, `state`
    that of the filter behind it."""
    return jnp.stack([last, (limits >= shortest).astype(jnp.int32), state], 1)


_COLUMNS = {
    "group": ("row", "next", "push", "add", "set"),
    "arc": ("token", "effect"),
    "level": ("cost", "row", "need"),
}
"""Arrays of an artifact by what their offsets are about."""


def with_partners(constraints: Sequence[CompiledConstraint]) -> list[CompiledConstraint]:
    """The constraints, all with two nodes for every place: where one has a single node, both allow the same.

    Raises:
      DecodeError: one has registers.
    """
    for i, c in enumerate(constraints):
        if c.ladder.any() or c.has_sets:
            other = next(j for j, d in enumerate(constraints) if d.canonical.partners)
            raise DecodeError(
                f"a canonical constraint with registers cannot share tables with constraint {other}, which is written out over "
                "the states of the tokenizer's filter",
                where=f"constraint {i}",
                fix="Make tables of their own for constraints with registers: call to_device, and generate, once for each kind.",
            )
    made: dict[tuple[int, int], dict[str, Any]] = {}
    out = []
    for c in constraints:
        if c.canonical.partners:
            out.append(c)
            continue
        key = id(c.arc_token), id(c.group_next)
        if key not in made:
            made[key] = _doubled(c)
        unless = tuple((2 * node - 1, row, number) for node, row, number in c.canonical.unless)
        own = dataclasses.replace(c.canonical, partners=True, unless=unless)
        out.append(dataclasses.replace(c, **made[key], start=2 * c.start - 1, canonical=own))
    return out


def _doubled(c: CompiledConstraint) -> dict[str, Any]:
    """The arrays of a constraint without registers whose node n became the nodes 2n - 1 and 2n."""
    node = np.append(0, np.repeat(np.arange(1, c.num_nodes), 2))
    effects = c.effects.copy()
    effects[1:, 0] = 2 * effects[1:, 0] - 1
    out: dict[str, Any] = {"accept": c.accept[node], "distance": c.distance[node], "effects": effects}
    out["delta"] = np.where(c.delta > 0, 2 * c.delta - 1, 0).astype(np.int32)
    for kind, columns in _COLUMNS.items():
        offset = getattr(c, f"{kind}_offset")
        size = np.diff(offset)[node]
        ends = np.cumsum(size)
        index = np.repeat(offset[node] - (ends - size), size) + np.arange(int(size.sum()))
        out[f"{kind}_offset"] = np.append(0, ends).astype(np.int32)
        out |= {f"{kind}_{column}": getattr(c, f"{kind}_{column}")[index] for column in columns}
    out["group_next"] = 2 * out["group_next"] - 1
    return out | {name: getattr(c, name)[node] for name in ("level_slope", "need", "ladder", "delta_offset")}
