"""Slow exact references for machines that count: languages compared pair by pair, token masks byte by byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import ByteMachine, Configuration
from fsa_compile.patterns.counting.counted_loops import UNLIMITED


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
                pair = after, saturated(machine, *there)
                if pair not in prefix:
                    prefix[pair] = text + bytes((byte,))
                    todo.append(pair)
        if len(todo) > max_pairs:
            raise RuntimeError("too many pairs: choose smaller bounds")
    return None


def saturated(machine: ByteMachine, here: Configuration) -> Configuration:
    """The configuration with the register of a loop without upper bound at most at its lower bound: more makes no difference."""
    low, high = machine.bounds[machine.start].tolist()
    if high != UNLIMITED:  # only the frame that the text starts in can be without one
        return here
    if not here.stack:
        return here._replace(register=min(here.register, low))
    symbol, register = here.stack[0]
    return here._replace(stack=((symbol, min(register, low)), *here.stack[1:]))


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


class TokenRuns:
    """What every token leads to from a configuration, byte by byte; tokens share the runs of their common prefixes.

    Args:
      machine: deterministic or not.
      tokens: bytes of every id; an int 256 + i stands for special token i of the machine; empty tokens are never allowed.
    """

    def __init__(self, machine: ByteMachine, tokens: Sequence[bytes | int]) -> None:
        self.machine, self.tokens = machine, tokens
        self._order = sorted((token, i) for i, token in enumerate(tokens) if isinstance(token, bytes) and token)
        self._special = [(token, i) for i, token in enumerate(tokens) if isinstance(token, int)]
        self._steps: dict[tuple[frozenset[Configuration], int], frozenset[Configuration]] = {}

    def _step(self, here: frozenset[Configuration], symbol: int) -> frozenset[Configuration]:
        key = here, int(self.machine.byte_class[symbol])
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = frozenset(self.machine.step(here, symbol))
        return found

    def after(self, configurations: Iterable[Configuration]) -> list[frozenset[Configuration]]:
        """Configurations after each token; the empty set for those that are not allowed."""
        if len(self._steps) > 1_000_000:
            self._steps.clear()
        start: frozenset[Configuration] = frozenset(configurations)
        none: frozenset[Configuration] = frozenset()
        out = [none] * len(self.tokens)
        for symbol, i in self._special:
            out[i] = self._step(start, symbol)
        runs, before = [start], b""  # runs[n]: after n bytes of the previous token, as far as they could be read
        for token, i in self._order:
            n = 0
            for a, b in zip(token, before):
                if a != b:
                    break
                n += 1
            if n >= len(runs):  # the previous token died in what both begin with
                continue
            del runs[n + 1 :]
            before = token
            for byte in token[n:]:
                there = self._step(runs[-1], byte)
                if not there:
                    break
                runs.append(there)
            if len(runs) == len(token) + 1:
                out[i] = runs[-1]
        return out

    def mask(self, configurations: Iterable[Configuration]) -> np.ndarray:
        """bool[tokens], which tokens are allowed; the end of the text is not among them (`machine.may_end`)."""
        return np.array([bool(there) for there in self.after(configurations)], bool)


def mask_differences(
    constraint: CompiledConstraint,
    machine: ByteMachine,
    tokens: Sequence[bytes | int],
    rng: np.random.Generator,
    *,
    walks: int,
    length: int,
    eager: float = 0.5,
) -> tuple[int, list[str]]:
    """Follows random tokens through the artifact and the machine side by side.

    Args:
      constraint: compiled from the machine.
      tokens: as for `TokenRuns`, one per id.
      walks, length: number of texts, and most tokens in each.
      eager: how often a token that counts as far as possible is taken, so that upper bounds are met.

    Returns:
      Number of (configuration, token) pairs checked, and what differs.
    """
    runs = TokenRuns(machine, tokens)
    checked, wrong = 0, []
    stops = list(constraint.stop_ids)
    for _ in range(walks):
        walk, here, text = constraint.walk(), frozenset((machine.initial,)), b""
        for _ in range(length):
            after = runs.after(here)
            expected = np.array([bool(there) for there in after], bool)
            expected[stops] = machine.may_end(here)
            found = walk.allowed()
            checked += len(expected)
            wrong += [
                f"after {text!r} token {t} {tokens[t]!r}: allowed {found[t]}" for t in np.flatnonzero(found != expected)[:5]
            ]
            going = np.flatnonzero([bool(there) for there in after])
            if wrong or not len(going):
                break
            if rng.random() < eager:
                reach = [max(sum(r for _, r in c.stack) + c.register for c in after[t]) for t in going]
                going = going[np.array(reach) == max(reach)]
            token = int(rng.choice(going))
            walk.advance(token)
            here = after[token]
            text += tokens[token] if isinstance(tokens[token], bytes) else b"<special>"
    return checked, wrong
