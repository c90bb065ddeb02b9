"""Subset construction on position automata, letter by letter set."""

from __future__ import annotations

from fsa_compile.arrays.bit_sets import disjoint
from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import END, Positions

_BYTES_PER_MEMBER = 2048
"""Memory that one member of one subset is reckoned to need by the time its state has been walked with a vocabulary."""


def determinize(positions: Positions, limits: CompileLimits, deadline: Deadline) -> LetterDfa:
    """The deterministic automaton of a position automaton; two states with the same future positions are one."""
    sets, ranges = letter_sets(positions.sets)
    follow = positions.follow
    ids = {positions.first: 0}
    todo = [positions.first]
    arcs: list[list[tuple[int, int]]] = []
    members = 0
    budget = limits.max_bytes // _BYTES_PER_MEMBER + 8 * len(sets)
    for state in todo:
        if len(state) == 1:
            (p,) = state
            if p < 0:
                arcs.append([])
                continue
            parts = [(sets[p], follow[p])]
        else:
            members += len(state)
            parts = _parts(state, sets, follow)
        out = []
        for letters, after in parts:
            target = ids.get(after)
            if target is None:
                target = ids[after] = len(todo)
                todo.append(after)
            out.append((letters, target))
        arcs.append(out)
        if len(todo) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Making the pattern deterministic")
        if not len(arcs) & 255:
            deadline.check("Making the pattern deterministic")
        if members > budget:
            raise LimitError("max_bytes", limits.max_bytes, "Making the pattern deterministic")
    return LetterDfa(arcs, [END in state for state in todo], ranges)


def _parts(state: frozenset[int], sets: list[int], follow: list[frozenset[int]]) -> list[tuple[int, frozenset[int]]]:
    """What each letter leads to from a subset: disjoint letter sets, each next subset once."""
    by_target: dict[frozenset[int], int] = {}
    seen = 0
    for p in state:
        if p < 0:
            continue
        letters = sets[p]
        if letters & seen:
            break
        seen |= letters
        after = follow[p]
        by_target[after] = by_target.get(after, 0) | letters
    else:
        return [(letters, after) for after, letters in by_target.items()]
    by_letters: dict[int, list[frozenset[int]]] = {}
    for p in state:
        if p >= 0:
            by_letters.setdefault(sets[p], []).append(follow[p])
    by_target = {}
    for letters, after_all in disjoint(list(by_letters.items())):
        after = after_all[0] if len(after_all) == 1 else after_all[0].union(*after_all[1:])
        by_target[after] = by_target.get(after, 0) | letters
    return [(letters, after) for after, letters in by_target.items()]
