"""Slow exact references for machines that count: languages compared pair by pair, token masks byte by byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fsa_compile.byte_dfa import ByteDfa
from fsa_compile.byte_machine import ByteMachine, Configuration


def joint_bytes(dfa: ByteDfa, machine: ByteMachine) -> list[int]:
    """One byte of every class that both automata treat alike."""
    return list({(int(dfa.byte_class[b]), int(machine.byte_class[b])): b for b in range(256)}.values())


def language_difference(dfa: ByteDfa, machine: ByteMachine, max_pairs: int = 200_000) -> str | None:
    """Walks every reachable pair (state of the trimmed automaton, configuration); None when nothing tells them apart.

    At every pair the same bytes must go on, both must accept or neither, and the machine must have one configuration. As the
    automaton is trimmed, equal viable bytes everywhere also say that the machine has no dead ends.
    """
    some = joint_bytes(dfa, machine)
    start = (dfa.start, machine.initial)
    prefix = {start: b""}
    todo = [start]
    for state, here in todo:
        text = prefix[state, here]
        if bool(dfa.final[state]) != machine.may_end([here]):
            return f"after {text!r}: automaton accepts {bool(dfa.final[state])}, machine does not agree"
        for byte in some:
            after, there = dfa.step(state, byte), machine.step([here], byte)
            if len(there) > 1:
                return f"after {text!r} byte {byte:#x} is ambiguous: {there}"
            if bool(after) != bool(there):
                return f"after {text!r} byte {byte:#x}: automaton {after}, machine {there}"
            if after:
                pair = after, *there
                if pair not in prefix:
                    prefix[pair] = text + bytes((byte,))
                    todo.append(pair)
        if len(todo) > max_pairs:
            raise RuntimeError("too many pairs: choose smaller bounds")
    return None


def reachable(machine: ByteMachine, limit: int) -> list[Configuration]:
    """Up to `limit` configurations, the nearest to the start first."""
    symbols = list({int(kind): symbol for symbol, kind in enumerate(machine.byte_class)}.values())
    seen, todo = {machine.initial}, [machine.initial]
    for here in todo:
        for symbol in symbols:
            for there in machine.step([here], symbol):
                if there not in seen and len(todo) < limit:
                    seen.add(there)
                    todo.append(there)
    return todo


def after_token(
    machine: ByteMachine, configurations: Iterable[Configuration], tokens: Sequence[bytes | int]
) -> list[set[Configuration]]:
    """Configurations after each token, by running its bytes; an int is special token `256 + i`; none when it is not allowed.

    Tokens share the runs of their common prefixes.
    """
    runs: dict[bytes, set[Configuration]] = {b"": set(configurations)}

    def after(text: bytes) -> set[Configuration]:
        found = runs.get(text)
        if found is None:
            before = after(text[:-1])
            found = runs[text] = machine.step(before, text[-1]) if before else set()
        return found

    return [machine.step(runs[b""], token) if isinstance(token, int) else after(token) if token else set() for token in tokens]


def token_masks(machine: ByteMachine, configurations: Sequence[Configuration], tokens: Sequence[bytes | int]) -> np.ndarray:
    """bool[configurations, tokens + 1], which tokens are allowed; the last column says whether the text may end.

    Empty tokens are never allowed.
    """
    out = np.zeros((len(configurations), len(tokens) + 1), bool)
    for i, here in enumerate(configurations):
        out[i, :-1] = [bool(there) for there in after_token(machine, [here], tokens)]
        out[i, -1] = machine.may_end([here])
    return out


def configurations_of(
    machine: ByteMachine, registers: Iterable[int], stack: tuple[tuple[int, int], ...] = ()
) -> list[Configuration]:
    """Every control with every given register (within its upper bound) on one stack, for checks away from the start."""
    return [
        Configuration(control, register, stack)
        for control in range(1, machine.num_controls)
        for register in (registers if machine.bounds[control, 1] >= 0 else (0,))
        if register <= max(0, machine.bounds[control, 1])
    ]
