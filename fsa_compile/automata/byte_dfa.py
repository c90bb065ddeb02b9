"""`ByteDfa`: the deterministic byte automaton between the front ends and the token walk. NumPy only.

Everything above bytes (patterns, choices, user automata) becomes one of these; everything below (rows, groups) is made
from it. State 0 is dead and loops to itself.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from fsa_compile.arrays.integers import occupied


@dataclasses.dataclass(frozen=True, eq=False)
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
        full = self.table[:, self.byte_class] if not self.identity_classes else self.table
        source, byte = occupied(full)
        return source, byte, full[source, byte].astype(np.int64)

    @cached_property
    def identity_classes(self) -> bool:
        """Whether every byte is its own class, so that `table` is indexed by bytes."""
        return self.table.shape[1] == 256 and bool((self.byte_class == np.arange(256)).all())

    def step(self, state: int, byte: int) -> int:
        """The state after reading one byte (0 when dead)."""
        return int(self.table[state, self.byte_class[byte]])

    def run(self, data: bytes, state: int | None = None) -> int:
        """The state after reading `data` from `state` (default: the initial state)."""
        q = self.start if state is None else state
        for byte in data:
            q = self.step(q, byte)
        return q

    def accepts(self, data: bytes) -> bool:
        """Whether the byte string belongs to the language."""
        return bool(self.final[self.run(data)])
