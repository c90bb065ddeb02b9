"""Byte machines run by explicit sets of configurations, many tokens at once, and random texts of their languages.

Every configuration holds its whole stack; nothing is merged, numbered or looked up by tokens, so that it shares no step with
the token walk. Tokens share the runs of their common prefixes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from fsa_compile.automata.pushdown import ByteMachine, Configuration

Configurations = frozenset[Configuration]


class StackSets:
    """Runs one machine."""

    def __init__(self, machine: ByteMachine) -> None:
        self.machine = machine
        self.start: Configurations = frozenset([machine.initial])
        self._bytes_of = [np.flatnonzero(machine.byte_class[:256] == k).tolist() for k in range(machine.action.shape[1])]

    def run(self, here: Configurations, data: bytes) -> Configurations:
        """After some bytes; empty when nothing is left."""
        return frozenset(self.machine.run(data, here)) if here else here

    def bytes_allowed(self, here: Configurations) -> np.ndarray:
        """Which bytes can be read, bool[256]: one step for each class of bytes, by which alone a step depends on its byte."""
        out = np.zeros(256, bool)
        for members in filter(None, self._bytes_of):
            out[members] = bool(self.machine.step(here, members[0]))
        return out

    def accepting(self, here: Configurations) -> bool:
        """Whether the text may end."""
        return self.machine.may_end(here)

    def run_tokens(self, here: Configurations, tokens: Iterable[bytes]) -> list[Configurations]:
        """After each of some tokens."""
        known: dict[bytes, Configurations] = {b"": here}
        return [self._shared(token, known) for token in tokens]

    def _shared(self, data: bytes, known: dict[bytes, Configurations]) -> Configurations:
        if data not in known:
            before = self._shared(data[:-1], known)
            known[data] = frozenset(self.machine.step(before, data[-1])) if before else before
        return known[data]

    def random_text(self, rng: random.Random, length: int, favour: bytes = b"", share: float = 0.3) -> bytes:
        """A viable prefix of at most some bytes; one of the favoured bytes is taken for a share of the steps where one can be."""
        here, out = self.start, bytearray()
        while len(out) < length:
            at = rng.choice(sorted(here))
            kinds = np.flatnonzero(self.machine.action[at.control]).tolist()
            rng.shuffle(kinds)
            wanted = [b for b in favour if self.machine.byte_class[b] in kinds]
            tries = [rng.choice(self._bytes_of[k]) for k in kinds if self._bytes_of[k]]
            if wanted and rng.random() < share:
                tries = [rng.choice(wanted), *tries]
            after = next((b for b in tries if self.machine.step(here, b)), None)
            if after is None:
                break
            here = self.run(here, bytes([after]))
            out.append(after)
        return bytes(out)


def random_tokens(data: bytes, ids: dict[bytes, Sequence[int]], rng: random.Random, longest: int = 16) -> list[int] | None:
    """A random spelling of a text in tokens; None when it got stuck."""
    out, at = [], 0
    while at < len(data):
        fitting = [n for n in range(1, min(longest, len(data) - at) + 1) if data[at : at + n] in ids]
        if not fitting:
            return None
        n = rng.choice(fitting)
        out.append(rng.choice(ids[data[at : at + n]]))
        at += n
    return out
