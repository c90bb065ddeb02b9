"""The tokenizer's filter on the device: which tokens it lets follow in each of its states, and the state after a token.

A row of a canonical constraint keeps a state of the filter beside its node (`ConstraintState.canonical`); what may come next is
what both let through. The tables belong to the tokenizer: all constraints share them. See
`fsa_compile.canonical.filter.state_table`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import read


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterTables:
    """A filter on the device.

    Axes: X states, V' tokens, N positions in a character, T tokens that begin inside one, G blocks of a row, P distinct blocks,
    R rows between characters, R' inside, W words, C words that hold tokens which begin inside a character.

    Attributes:
      position, final: int32[X], bool[X]; kind, inner: int32[V']; inner_kind: int32[N, T + 1]; block: int32[X, 2, G]; target:
        int32[P, 64], as in `fsa_compile.canonical.filter.state_table.FilterTable`.
      row_of: int32[X, 3], rows of the tokens that may come where the pair rule allows the pair and where it forbids it, and row
        inside a character; 0 is empty.
      rows: uint32[R, W], bit planes as in `ConstraintTables.rows`.
      inside_rows: uint32[R', C], the words `inside_words` int32[C] of such rows.
      excepted: bool[X, K], whether a state is in each list of `CompiledConstraint.canonical_unless`, of which there are K
        lists; excepted_row: int32[X, K, 3], as `row_of`, rows of the tokens that lead to such states.
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
    excepted: jax.Array
    excepted_row: jax.Array


jax.tree_util.register_dataclass(FilterTables, [f.name for f in dataclasses.fields(FilterTables)], [])


def filter_arrays(states: Any, columns: Columns, excepted: Sequence[Sequence[int]]) -> dict[str, NDArray[Any]]:
    """The arrays of `FilterTables`, on the host.

    Args:
      states: `fsa_compile.canonical.filter.state_table.FilterTable`.
      columns: how tokens lie in the words of a row.
      excepted: lists of states.
    """
    rows = _FilterRows(states, columns)
    row_of = rows.of(np.ones(states.num_states, bool))
    chosen = [np.isin(np.arange(states.num_states), listed) for listed in excepted]
    excepted_row = [rows.of(states_of) for states_of in chosen]
    none = np.zeros((states.num_states, 0), bool)
    beyond = np.zeros(columns.num_words * 32 - len(states.kind), np.int32)
    return {
        "position": states.position,
        "final": states.final,
        "kind": np.append(states.kind, beyond),
        "inner": np.append(states.inner, beyond),
        "inner_kind": states.inner_kind,
        "block": states.block,
        "target": states.target,
        "row_of": row_of,
        "rows": np.stack(rows.between),
        "inside_rows": np.stack(rows.inside),
        "inside_words": rows.inside_words.astype(np.int32),
        "excepted": np.stack(chosen, 1) if chosen else none,
        "excepted_row": np.stack(excepted_row, 1) if chosen else np.zeros((states.num_states, 0, 3), np.int32),
    }


class _FilterRows:
    """Distinct bit rows between characters, and parts of such rows inside."""

    def __init__(self, states: Any, columns: Columns) -> None:
        self._states = states
        self._word, plane = columns.place(np.arange(len(states.kind)))
        self._bit = np.uint32(1) << plane.astype(np.uint32)
        begins = np.flatnonzero(states.inner)
        self.inside_words = np.unique(self._word[begins])
        self._begins, self._place = begins, np.searchsorted(self.inside_words, self._word[begins])
        self.between, self.inside = [np.zeros(columns.num_words, np.uint32)], [np.zeros(len(self.inside_words), np.uint32)]
        self._numbers: tuple[dict[bytes, int], dict[bytes, int]] = {}, {}
        self._known: dict[tuple[int, bytes], int] = {}

    def of(self, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
        """int32[X, 3], rows of the tokens that lead each state to a chosen one."""
        s = self._states
        hit = np.packbits((s.target >= 0) & chosen[s.target], axis=1)
        classes = hit[s.block].reshape(s.num_states, 2, -1)
        out = np.zeros((s.num_states, 3), np.int32)
        for state, branch in np.argwhere(classes.any(2)).tolist():
            position = int(s.position[state])
            if number := self._row(position, classes[state, branch]):
                out[state, 2 if position else branch] = number
        return out

    def _row(self, position: int, classes: NDArray[np.uint8]) -> int:
        """Number of the row of the tokens of some classes, packed bits, at a position."""
        key = position, classes.tobytes()
        if (known := self._known.get(key)) is not None:
            return known
        s, chosen = self._states, np.unpackbits(classes).astype(bool)
        if position:
            may = chosen[s.inner_kind[position, 1:]]
            row = np.zeros(len(self.inside_words), np.uint32)
            np.bitwise_or.at(row, self._place[may], self._bit[self._begins[may]])
            number = _numbered(row, self._numbers[1], self.inside)
        else:
            may = chosen[s.kind]
            row = np.zeros(len(self.between[0]), np.uint32)
            np.bitwise_or.at(row, self._word[may], self._bit[may])
            number = _numbered(row, self._numbers[0], self.between)
        self._known[key] = number
        return number


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
    return _words(states, read(states.row_of, at))


def excepted_words(states: FilterTables, at: jax.Array, which: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same of those tokens that lead to excepted states, by list int32[B]."""
    return _words(states, read(states.excepted_row, at, which))


def _words(states: FilterTables, row: jax.Array) -> tuple[jax.Array, jax.Array]:
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
