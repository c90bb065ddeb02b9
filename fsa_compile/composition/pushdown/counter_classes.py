"""Classes of a counter's register that a token walk has to tell apart, for every kind of frame of a `ByteMachine`.

A token begins at most `most` iterations of a loop with bounds (low, high). What it may do depends on the register n only
within `most` of the bounds; so the classes are: far below `low`; each of the last values before it; from `low` on, all values
that are still `most` away from `high`; and each value from there to `high`. Near `high` it is the tokens of a control that count,
not those of its frame: a control inside a character begins few characters, and has few classes.
"""

from __future__ import annotations

import numpy as np

from fsa_compile.artifact.arrays import MOST_COUNT
from fsa_compile.automata.pushdown import UNCOUNTED, ByteMachine

_UNBOUNDED = MOST_COUNT - 1
"""Stands for an upper bound that is not there."""
_MANY = 50_000
"""Tokens from which on they are kept as int32."""


class Registers:
    """The kinds of frames of a machine, told apart by their bounds and sets of keys; kind 0 has neither.

    Attributes:
      of_control: int64[S], kind of each control's frame.
      of_symbol: int64[P], kind of the frame that a symbol suspends.
      low, high: int64[F].
      counted: bool[F], whether it counts.
      counts: whether any does.
      set_kind: int64[F], kind of its set in `KeySets`, 0 for none.
    """

    def __init__(self, machine: ByteMachine) -> None:
        kinds: dict[tuple[int, int, int], int] = {(UNCOUNTED, UNCOUNTED, 0): 0}
        self.of_control = np.zeros(machine.num_controls, np.int64)
        self.of_symbol = np.zeros(machine.num_symbols, np.int64)
        sets = np.zeros(machine.num_controls, np.int64) if machine.sets is None else machine.sets.kind
        special = ((machine.bounds != UNCOUNTED).any(1) | (sets > 0)).nonzero()[0]
        if len(special):
            of = zip(machine.bounds[special].tolist(), sets[special].tolist())
            self.of_control[special] = [kinds.setdefault((a, b, k), len(kinds)) for (a, b), k in of]
            _, symbol, after = machine.returns
            self.of_symbol[symbol] = self.of_control[after]
        self.low, self.high, self.set_kind = np.array(list(kinds), np.int64).T
        self.counted = (self.low != UNCOUNTED) | (self.high != UNCOUNTED)
        self.low = np.maximum(self.low, 0)
        self.high[self.high == UNCOUNTED] = _UNBOUNDED
        self.counts = bool(self.counted.any())


class TokenCounts:
    """The frames of a machine in which every token counts as one, whatever its bytes.

    Attributes:
      counted: bool[S], controls in such frames.
    """

    def __init__(self, machine: ByteMachine) -> None:
        given = machine.token_reserve
        self.counted = np.zeros(machine.num_controls, bool) if given is None else given >= 0
        self._reserve = None if given is None else np.append(np.maximum(given, 0), 0).astype(np.int64)
        self._high = machine.bounds[:, 1]

    def fitting(self, found: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """(owner, token, control, begun) with what completes a character, without tokens after which that would not fit; of many
        tokens as int32, which takes half the memory."""
        if self._reserve is None:
            return found if len(found[0]) < _MANY else tuple(column.astype(np.int32) for column in found)
        owner, _, control, begun = found
        before = self._reserve[np.minimum(owner, len(self.counted))]  # runs begin in frames of their own
        begun = begun + self._reserve[control] - before
        fits = (~self.counted[control] | (begun <= self._high[control])).nonzero()[0]
        return *(column[fits] for column in found[:3]), begun[fits]


class Classes:
    """Classes of the registers of nodes, by *shape*. The first F shapes are those of the kinds of frames, for inner nodes and
    symbols; controls whose tokens begin fewer iterations than others of their frame have shapes with fewer classes below the
    upper bound.

    Args:
      most: int64[F], most iterations that a token begins.
      own: int64[S], the same of every control's tokens.

    Attributes:
      most: as given.
      of_control: int64[S], shape of every control.
      ladder: int64[H, 4] (a0, b0, a1, b1): register n belongs to class clip(n - a0, 0, b0) + clip(n - a1, 0, b1).
      size: int64[H], number of classes.
      value: int64[sum of size], register that stands for each class; of those far below `low` the largest, of those between
        the bounds the largest.
      first: int64[H], where each shape's classes begin in `value`.
    """

    def __init__(self, registers: Registers, most: np.ndarray, own: np.ndarray) -> None:
        self.most = most
        kind, upper = self._shapes(registers, most, own)
        low, high = registers.low[kind], registers.high[kind]
        a0 = np.maximum(0, low - most[kind] - 1)
        b0 = low - a0
        a1 = np.maximum(low, high - upper)
        b1 = np.where(high >= _UNBOUNDED, 0, high - a1)
        counted = registers.counted[kind]
        self.ladder = np.where(counted[:, None], np.stack([a0, b0, a1, b1], 1), 0)
        self.size = np.where(counted, 1 + b0 + b1, 1)
        self.first = np.cumsum(self.size) - self.size
        shape = np.repeat(np.arange(len(low)), self.size)
        place = np.arange(len(shape)) - self.first[shape]
        below = place < self.ladder[shape, 1]
        value = np.where(below, self.ladder[shape, 0] + place, self.ladder[shape, 2] + place - self.ladder[shape, 1])
        self.value = np.where(counted[shape], value, 0)

    def _shapes(self, registers: Registers, most: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(kind of frame, most iterations that a token begins) of every shape; fills in `of_control`."""
        self.of_control = registers.of_control
        pairs = {(kind, upper): kind for kind, upper in enumerate(most.tolist())}
        some = (registers.counted[registers.of_control] & (own < most[registers.of_control])).nonzero()[0]
        if len(some):
            of = zip(registers.of_control[some].tolist(), own[some].tolist())
            self.of_control = registers.of_control.copy()
            self.of_control[some] = [pairs.setdefault(pair, len(pairs)) for pair in of]
        kind, upper = np.array(list(pairs), np.int64).T
        return kind, upper
