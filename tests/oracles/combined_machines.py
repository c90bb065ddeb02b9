"""What a byte machine accepts behind a text and within a filter: both written out, one byte after the other."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fsa_compile import filters, regex
from fsa_compile.automata.pushdown import ByteMachine, Configuration
from fsa_compile.languages.language import Language

UNBOUNDED_DEPTH = 1 << 30


class Kept(NamedTuple):
    """A filter and its definition: the state before the first byte, the one after each (None: nothing passes), and where texts end."""

    made: Language | None
    first: Any
    step: Callable[[Any, int], Any]
    final: Callable[[Any], bool]


def everything() -> Kept:
    """No filter."""
    return Kept(None, 0, lambda state, byte: state, lambda state: True)


def random_filter(rng: random.Random, alphabet: bytes) -> Kept:
    """Forbidden phrases, a bound on the length, or an even length; ASCII only."""
    kind = rng.random()
    if kind < 0.6:
        phrases = [bytes(rng.choices(alphabet, k=rng.randint(1, 3))) for _ in range(rng.randint(1, 3))]

        def step(last: bytes, byte: int) -> bytes | None:
            text = (last + bytes([byte]))[-3:]
            return None if any(text.endswith(phrase) for phrase in phrases) else text

        return Kept(filters.forbid(*(phrase.decode() for phrase in phrases)), b"", step, lambda state: True)
    if kind < 0.8:
        most = rng.randint(3, 14)
        return Kept(filters.length(at_most=most), 0, lambda n, byte: n + 1 if n < most else None, lambda n: True)
    return Kept(regex("(?s)(..)*"), 0, lambda n, byte: 1 - n, lambda n: n == 0)


class Combined:
    """Texts of a machine behind a prefix, within a filter that the machine's own text passes.

    A place is what of the prefix was written, or a configuration, with the filter's state.

    Args:
      alphabet: bytes that texts are searched with.
      deepest: stacks of more cells are left out.
      most: places that one question may come to.
    """

    def __init__(self, machine: ByteMachine, kept: Kept, alphabet: bytes, prefix: bytes = b"", deepest: int = UNBOUNDED_DEPTH, most: int = 300) -> None:
        self.machine, self.kept, self.alphabet, self.prefix, self.most = machine, kept, alphabet, prefix, most
        self.deepest = deepest
        self._alive: dict[tuple[Any, Any], bool] = {}

    @property
    def start(self) -> frozenset:
        """The places before the first byte."""
        return frozenset([(0 if self.prefix else self.machine.initial, self.kept.first)])

    def run(self, here: Iterable[tuple[Any, Any]], data: Iterable[int]) -> frozenset:
        """The places after some bytes."""
        now = frozenset(here)
        for byte in data:
            now = frozenset(there for at in now for there in self._step(at, byte))
        return now

    def _step(self, at: tuple[Any, Any], byte: int) -> list[tuple[Any, Any]]:
        place, state = at
        if isinstance(place, int):
            if self.prefix[place] != byte:
                return []
            return [(place + 1 if place + 1 < len(self.prefix) else self.machine.initial, state)]
        after = self.kept.step(state, byte)
        if after is None:
            return []
        return [(there, after) for there in self.machine.step([place], byte) if len(there.stack) <= self.deepest]

    def may_end(self, here: Iterable[tuple[Any, Any]]) -> bool:
        """Whether the text may end in one of the places."""
        return any(
            isinstance(place, Configuration) and self.kept.final(state) and self.machine.may_end([place]) for place, state in here
        )

    def alive(self, here: Iterable[tuple[Any, Any]]) -> bool | None:
        """Whether some text goes on from one of the places to an end; None where the search was cut short."""
        if self.kept.made is None and self.deepest == UNBOUNDED_DEPTH:
            return bool(list(here))  # machines have no dead configurations
        verdicts = [self._completes(at) for at in here]
        return True if True in verdicts else None if None in verdicts else False

    def _completes(self, at: tuple[Any, Any]) -> bool | None:
        """Shallow stacks first."""
        if at in self._alive:
            return self._alive[at]
        seen, todo = {at}, [(0, 0, at)]
        while todo:
            place = heapq.heappop(todo)[2]
            if self._alive.get(place) or self.may_end([place]):
                self._alive[at] = True
                return True
            for there in {there for byte in self.alphabet for there in self._step(place, byte)} - seen:
                if self._alive.get(there) is not False:
                    seen.add(there)
                    heapq.heappush(todo, (len(there[0].stack) if isinstance(there[0], Configuration) else 0, len(seen), there))
            if len(seen) > self.most:
                return None
        self._alive.update(dict.fromkeys(seen, False))
        return False
