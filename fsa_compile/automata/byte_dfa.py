"""`ByteDfa`: the deterministic byte automaton between the front ends and the token walk. NumPy only.

Everything above bytes (patterns, choices, user automata) becomes one of these; everything below (rows, groups) is made
from it. State 0 is dead and loops to itself.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from fsa_compile.arrays.integers import occupied
from fsa_compile.errors import ConstraintError, LimitError, named_fields, shown, whole
from fsa_compile.limits import CompileLimits, check_time

_FULL_TABLE_STATES = 2048
"""Below this many states the byte table keeps all 256 columns."""
_EVERY_BYTE = np.arange(256, dtype=np.uint8)

_ROWS_AT_ONCE = 1 << 15


@named_fields
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ByteDfa:
    """A trimmed deterministic automaton over bytes.

    Every state except 0 lies on a path from `start` to a final state, so a live transition never leads to a dead end.
    An automaton that accepts nothing has one state (0) and `start == 0`.

    Attributes:
      table: int32[S, C], next state by state and byte class; row 0 is all 0.
      byte_class: uint8[256], class (column of `table`) of each byte. `C == 256` with the identity map is allowed.
      final: bool[S]; `final[0]` is False.
      start: initial state.
    """

    table: np.ndarray
    byte_class: np.ndarray
    final: np.ndarray
    start: int

    @property
    def num_states(self) -> int:
        """Number of states, the dead state 0 included."""
        return len(self.final)

    @cached_property
    def arcs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Live transitions as (source int64[E], byte int64[E], target int64[E]), sorted by source, then byte."""
        parts = []
        for begin in range(0, len(self.table), _ROWS_AT_ONCE):
            check_time("listing the transitions of a byte automaton")
            rows = self.table[begin : begin + _ROWS_AT_ONCE]
            full = rows if self.identity_classes else rows[:, self.byte_class]
            source, byte = occupied(full)
            parts.append((source + begin, byte, full[source, byte].astype(np.int64)))
        source, byte, target = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts))
        return source, byte, target

    @cached_property
    def identity_classes(self) -> bool:
        """Whether every byte is its own class, so that `table` is indexed by bytes."""
        return self.table.shape[1] == 256 and bool((self.byte_class == np.arange(256)).all())

    def step(self, state: int, byte: int) -> int:
        """The state after reading one byte (0 when dead); raises `ConstraintError` for what is no state, or no byte."""
        return int(self.table[whole(state, "the state", self.num_states - 1), self.byte_class[whole(byte, "the byte", 255)]])

    def run(self, data: bytes, state: int | None = None) -> int:
        """The state after reading `data` from `state` (default: the initial state).

        Raises:
          ConstraintError: there is no such state, or `data` are no bytes.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ConstraintError(f"a byte automaton reads bytes, not {shown(data)}", fix='Give text.encode("utf-8").')
        q = self.start if state is None else whole(state, "the state", self.num_states - 1)
        for byte in bytes(data):
            q = int(self.table[q, self.byte_class[byte]])
        return q

    def accepts(self, data: bytes) -> bool:
        """Whether the byte string belongs to the language."""
        return bool(self.final[self.run(data)])


def dfa_from_arcs(
    source: np.ndarray, byte: np.ndarray, target: np.ndarray, final: np.ndarray, start: int, limits: CompileLimits | None = None
) -> ByteDfa:
    """A trimmed automaton from its arcs; state q becomes q + 1. In large ones, bytes that are never read share a column.

    Args:
      source, byte, target: int64[E], sorted by source, then byte.
      final: bool[S].
    """
    S = len(final) + 1
    byte_class, columns = _EVERY_BYTE, 256
    if S >= _FULL_TABLE_STATES:
        used = np.bincount(byte, minlength=256) > 0
        byte_class = np.where(used, used.cumsum() - used.all(), 0).astype(np.uint8)
        columns = int(byte_class.max()) + 1
    if limits is not None and limits.max_states < S:
        raise LimitError("max_states", limits.max_states, "Making the table of byte states")
    if limits is not None and S * columns * 4 > limits.max_bytes:
        raise LimitError("max_bytes", limits.max_bytes, f"A table of {S:,} byte states")
    table = np.zeros((S, columns), np.int32)
    table[source + 1, byte_class[byte]] = target + 1
    dfa = ByteDfa(table=table, byte_class=byte_class, final=np.append(False, final), start=start + 1)
    dfa.__dict__["arcs"] = source + 1, byte, target + 1
    return dfa
