"""How many tokens it takes to begin what iterations are missing up to the lower bound of a counted frame.

`rest(n)` of a frame at register n is a bound such that from every control where the frame may end, some token begins k
iterations and comes to such a control again within `rest(n) - rest(n + k)` tokens:

* it is 0 from the lower bound on;
* in a window below it, the least over k of the tokens that begin k iterations, and of `rest(n + k)`, but never less than
  `rest(n + 1)`, so that a token that counts does not lengthen the rest of a text;
* below the window, `largest` + w * ceil((anchor - n) / k), where w tokens begin k iterations or more, and `largest` is at least w
  and the rest at the anchor. This is the slope of the artifact. The anchor is the register of the window's first k ones from
  which the slope lies lowest and below no rest of the window.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import equal_rows
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.composition.pushdown.counter_classes import Classes, Registers
from fsa_compile.composition.pushdown.least_fixpoint import Ways

_FAR = int(UNREACHABLE)
STRIDE = 128
"""Most iterations that are reckoned to begin at once."""


class Rests(NamedTuple):
    """`rest(n)` of every kind of frame.

    Attributes:
      low, first: int64[F], the lower bound, and the first register of the window, 0 when no register is below it.
      stride, tokens, anchor: int64[F], of the slope below the window.
      largest: int64[F], see above.
      begin: int64[F], where the windows begin in `window`.
      window: int64[*], rest(n) for n = low, low - 1, …, first of every kind.
    """

    low: np.ndarray
    first: np.ndarray
    stride: np.ndarray
    tokens: np.ndarray
    anchor: np.ndarray
    largest: np.ndarray
    begin: np.ndarray
    window: np.ndarray

    def at(self, kind: np.ndarray, register: np.ndarray) -> np.ndarray:
        """int64, rest of registers of frames of the given kinds; 0 for kind 0."""
        below = register < self.first[kind]
        sloped = self.largest[kind] - ((register - self.anchor[kind]) // self.stride[kind]) * self.tokens[kind]
        missing = np.clip(self.low[kind] - register, 0, self.low[kind] - self.first[kind])
        return np.minimum(np.where(below, sloped, self.window[self.begin[kind] + missing]), _FAR)

    def beyond(self, kind: np.ndarray, begun: np.ndarray) -> np.ndarray:
        """int64, rest after a token that begins some iterations anywhere below the window, without the slope at its register."""
        return self.largest[kind] - np.where(begun >= self.stride[kind], self.tokens[kind], 0)

    def at_most(self, bound: int) -> Rests:
        """The same with no rest of one step above the bound."""
        return self._replace(
            tokens=np.minimum(self.tokens, bound),
            largest=np.minimum(self.largest, bound),
            window=np.minimum(self.window, bound),
        )


class Windows:
    """Makes `Rests` from the tokens that begin iterations.

    Args:
      classes: registers below the first class are told apart by the slope alone.
    """

    def __init__(self, registers: Registers, classes: Classes) -> None:
        self._low = registers.low
        below = classes.ladder[: len(registers.low), 0]
        self._first = np.where(below > 0, below + 1, 0)
        self._slack = registers.high - registers.low
        self._size = self._low - self._first + 1
        self._begin = np.cumsum(self._size) - self._size
        self._stride = np.ones(len(self._low), np.int64)
        self._known: dict[tuple[int, bytes], np.ndarray] = {}

    def lengthen(self, best: np.ndarray, kind: np.ndarray) -> bool:
        """Takes the strides that cost the least for each iteration, once; whether any is longer than 1.

        Args:
          best: int64[n, STRIDE + 2], of places that have to begin iterations: tokens that begin k, in the last column more.
          kind: int64[n], of their frames.
        """
        if self._stride.max() > 1:
            return False
        for f in (self._first > 0).nonzero()[0].tolist():
            tokens = _at_least(best[kind == f])
            pace = np.where(tokens < _FAR, tokens, _FAR)[1:] / np.arange(1, STRIDE + 1)
            self._stride[f] = 1 + int(pace.argmin())
        return bool(self._stride.max() > 1)

    def rests(self, best: np.ndarray, kind: np.ndarray) -> Rests:
        """Rests with the strides taken; arguments as above."""
        windows, tokens, anchor, largest = [], *np.zeros((3, len(self._low)), np.int64)
        for f, low in enumerate(self._low.tolist()):
            of_kind = best[kind == f] if low else best[:0]
            windows.append(self._window(f, of_kind))
            if len(of_kind) and self._first[f]:
                tokens[f] = _at_least(of_kind)[self._stride[f]]
                anchor[f], largest[f] = _lowest(windows[-1][::-1], int(self._stride[f]), int(tokens[f]))
        return Rests(
            low=self._low,
            first=self._first,
            stride=self._stride,
            tokens=tokens,
            anchor=self._first + anchor,
            largest=largest,
            begin=self._begin,
            window=np.concatenate(windows),
        )

    def _window(self, f: int, best: np.ndarray) -> np.ndarray:
        size, slack = int(self._size[f]), int(self._slack[f])
        if not len(best):
            return np.zeros(size, np.int64)
        key = f, best.tobytes()
        found = self._known.get(key)
        if found is None:
            rows = best[equal_rows(best[:, 1:-1])[0], 1:-1]  # `np.unique` would load NumPy's masked arrays
            begun = 1 + np.flatnonzero((rows < _FAR).any(0))  # ascending
            rows = rows[:, begun - 1]
            found = np.zeros(size, np.int64)
            for missing in range(1, size):
                fit = begun.searchsorted(missing + slack, "right")
                ways = (rows[:, :fit] + found[np.maximum(missing - begun[:fit], 0)]).min(1, initial=_FAR).max()
                found[missing] = min(max(found[missing - 1], ways), _FAR)
            self._known[key] = found
        return found


def _at_least(best: np.ndarray) -> np.ndarray:
    """int64[STRIDE + 1], tokens that begin k iterations or more, whatever the place; 0 where there is none."""
    return np.minimum.accumulate(best[:, ::-1], axis=1)[:, ::-1].max(0, initial=0)[:-1]


def _lowest(rest: np.ndarray, stride: int, tokens: int) -> tuple[int, int]:
    """The anchor of a slope, as an index into a window's rests by register, and the value there."""
    below = np.arange(-stride, 0)
    best = None
    for at in range(min(stride, len(rest))):
        value = max(tokens, int(rest[at]))
        if (rest[:at] <= value - (np.arange(-at, 0) // stride) * tokens).all():
            total = int((value - ((below - at) // stride) * tokens).sum())
            best = min(best or (total, at, value), (total, at, value))
    assert best is not None  # the first register always serves
    return best[1:]


class Doing:
    """Where effects lead, and what they push.

    Attributes:
      target, push, tokens, string: as in `Ways`.
      length: int64[n], of each push string.
      calling: int64[*], effects that push something.
      kind, register, missing: int64[n, L], of the suspended frames of each string: their kinds, their registers, and what these
        miss to the lower bound; the node's own frame, also while suspended, is left out.
      target_kind, final, target_missing: int64[E], likewise of the frame that an effect opens.
    """

    def __init__(self, registers: Registers, ways: Ways, register: np.ndarray, final: np.ndarray) -> None:
        self.target, self.push, self.string, self.tokens = ways.target, ways.push, ways.string, ways.tokens
        symbols = len(registers.of_symbol)
        self.length = (self.string < symbols).sum(1)
        self.calling = self.push.nonzero()[0]
        if not registers.low.any():
            return
        self.kind = np.append(registers.of_symbol, 0)[self.string]
        self.kind[:, :1] = 0
        self.register, self.missing = register, np.maximum(0, registers.low[self.kind] - register)
        self.final, self.target_kind = final, np.where(self.push > 0, registers.of_control[self.target], 0)
        self.target_missing = np.maximum(0, registers.low[self.target_kind] - final)
