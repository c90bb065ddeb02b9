"""The tokenizer's filter on the device: which tokens it lets follow in each of its states, and the state after a token.

A row of a canonical constraint keeps a state of the filter beside its node (`ConstraintState.register`); what may come next is
what both let through. The tables belong to the tokenizer: all constraints share them. See `fsa_compile.canonical.filter_table`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_decode.columns import Columns
from jax_decode.reading import read


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterTables:
    """A filter on the device.

    Axes: X states, V' tokens, N positions in a character, T tokens that begin inside one, G blocks of a row, P distinct blocks,
    R rows between characters, R' inside, W words, C words that hold tokens which begin inside a character.

    Attributes:
      position, final: int32[X], bool[X]; kind, inner: int32[V']; inner_kind: int32[N, T + 1]; block: int32[X, 2, G]; target:
        int32[P, 64], as in `fsa_compile.canonical.filter_table.FilterTable`.
      row_of: int32[X, 3], rows of the tokens that may come where the pair rule allows the pair and where it forbids it, and row
        inside a character; 0 is empty.
      rows: uint32[R, W], bit planes as in `ConstraintTables.rows`.
      inside_rows: uint32[R', C], the words `inside_words` int32[C] of such rows.
    """

    position: jax.Array
    final: jax.Array
    kind: jax.Array
    inner: jax.Array
    inner_kind: jax.Array
    block: jax.Array
    target: jax.Array
    row_of: jax.Array
    rows: jax.Array
    inside_rows: jax.Array
    inside_words: jax.Array


jax.tree_util.register_dataclass(FilterTables, [f.name for f in dataclasses.fields(FilterTables)], [])


def filter_arrays(states: Any, columns: Columns) -> dict[str, NDArray[Any]]:
    """The arrays of `FilterTables`, on the host.

    Args:
      states: `fsa_compile.canonical.filter_table.FilterTable`.
      columns: how tokens lie in the words of a row.
    """
    num_words = columns.num_words
    beyond = np.zeros(num_words * 32 - len(states.kind), np.int32)
    inside = np.flatnonzero(states.inner)
    of_inside, plane = columns.place(inside)
    inside_words = np.unique(of_inside)
    place = np.searchsorted(inside_words, of_inside)
    bit = np.uint32(1) << plane.astype(np.uint32)
    numbers: dict[bytes, int] = {}
    inside_numbers: dict[bytes, int] = {}
    row_of = np.zeros((len(states.example), 3), np.int32)
    token = np.arange(len(states.kind))
    word, plane = columns.place(token)
    every_bit = np.uint32(1) << plane.astype(np.uint32)
    rows, inside_rows = [np.zeros(num_words, np.uint32)], [np.zeros(len(inside_words), np.uint32)]
    for i, state in enumerate(states.example.tolist()):
        if states.position[state]:
            row = np.zeros(len(inside_words), np.uint32)
            may = states.may_follow_inside(state)
            np.bitwise_or.at(row, place[may], bit[may])
            row_of[i, 2] = _numbered(row, inside_numbers, inside_rows)
        else:
            for branch, may in enumerate(states.may_follow(state)):
                row = np.zeros(num_words, np.uint32)
                np.bitwise_or.at(row, word[may], every_bit[may])
                row_of[i, branch] = _numbered(row, numbers, rows)
    return {
        "position": states.position,
        "final": states.final,
        "kind": np.append(states.kind, beyond),
        "inner": np.append(states.inner, beyond),
        "inner_kind": states.inner_kind,
        "block": states.block,
        "target": states.target,
        "row_of": row_of[states.behaviour],
        "rows": np.stack(rows),
        "inside_rows": np.stack(inside_rows),
        "inside_words": inside_words.astype(np.int32),
    }


def _numbered(row: NDArray[np.uint32], numbers: dict[bytes, int], rows: list[NDArray[np.uint32]]) -> int:
    if not row.any():
        return 0
    key = row.tobytes()
    if key not in numbers:
        numbers[key] = len(rows)
        rows.append(row)
    return numbers[key]


def filter_words(states: FilterTables, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Bit planes of the tokens that states int32[B] let follow, where the pair rule allows the pair, and where it forbids it:
    uint32[B, W] each."""
    row = read(states.row_of, at)
    together = read(states.rows, row[:, 0])
    if states.inside_words.shape[0]:
        inside = read(states.inside_rows, row[:, 2])
        together |= jnp.zeros_like(together).at[:, states.inside_words].set(inside, unique_indices=True)
    return together, read(states.rows, row[:, 1])


def state_after(states: FilterTables, at: jax.Array, tokens: jax.Array, apart: jax.Array) -> jax.Array:
    """The state after tokens int32[B], int32[B], -1 for none; `apart` bool[B] says whether the pair rule forbids them."""
    position = read(states.position, at)
    inside = read(states.inner_kind, position, read(states.inner, tokens))
    kind = jnp.where(position > 0, inside, read(states.kind, tokens))
    size = states.target.shape[1]
    return read(states.target, read(states.block, at, apart.astype(jnp.int32), kind // size), kind % size)
