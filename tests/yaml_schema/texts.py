"""Random texts of a byte machine."""

from __future__ import annotations

import random

from fsa_compile.automata.pushdown import ByteMachine


class DeadEndError(AssertionError):
    """No byte may follow, and the text may not end."""


def random_text(machine: ByteMachine, rng: random.Random, soft: int = 60, hard: int = 500) -> bytes | None:
    """A text that the machine accepts; from `soft` bytes on it heads for the end, and is given up (None) at `hard`."""
    bytes_of: dict[int, list[int]] = {}
    for byte in range(256):
        bytes_of.setdefault(int(machine.byte_class[byte]), []).append(byte)
    current, out = {machine.initial}, bytearray()
    while len(out) < hard:
        ends = machine.may_end(current)
        if ends and (rng.random() < 0.2 or len(out) > soft):
            return bytes(out)
        choices = []
        for members in bytes_of.values():
            byte = rng.choice(members)
            after = machine.step(current, byte)
            if after:
                choices.append((byte, after))
        if not choices:
            if not ends:
                raise DeadEndError(bytes(out))
            return bytes(out)
        if len(out) > soft:
            closing = [choice for choice in choices if choice[0] in b"\n}]\"'"]
            if rng.random() < 0.5:
                choices = [min(choices, key=lambda choice: min(len(c.stack) for c in choice[1]))]
            elif closing and rng.random() < 0.8:
                choices = closing
        byte, current = rng.choice(choices)
        out.append(byte)
    return None
