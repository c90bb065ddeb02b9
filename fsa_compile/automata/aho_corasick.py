"""`TEXT_UNTIL`: any text up to and including the first occurrence of a stop phrase, by the automaton of Aho and Corasick.

Source: A. Aho and M. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits
from fsa_compile.unicode.code_points import ANY, complement, intersection, single, union


def text_until_automaton(stops: Sequence[str], limits: CompileLimits) -> LetterDfa:
    """The texts that end with a stop phrase and hold none before. `stops`: at least one, none empty."""
    if sum(map(len, stops)) > limits.max_states:
        raise LimitError("max_states", limits.max_states, "Reading the stop phrases")
    steps, found = _phrase_states(stops)
    alphabet = sorted({c for stop in stops for c in stop})
    known = union(*(single(ord(c)) for c in alphabet))
    sets, atoms = letter_sets([*(single(ord(c)) for c in alphabet), intersection(ANY, complement(known))])
    letter, other = dict(zip(alphabet, sets, strict=False)), sets[-1]
    every = sum(letter.values())
    open_states = [q for q, stop in enumerate(found) if not stop]
    number = {q: i for i, q in enumerate(open_states)}
    end = len(number)
    arcs_of: list[list[tuple[int, int]]] = []
    for q in open_states:
        by_target: dict[int, int] = {}
        for c, r in steps[q].items():
            t = end if found[r] else number[r]
            by_target[t] = by_target.get(t, 0) | letter[c]
        rest = every & ~sum(by_target.values()) | other
        by_target[0] = by_target.get(0, 0) | rest
        arcs_of.append([(letters, t) for t, letters in by_target.items() if letters])
    return LetterDfa([*arcs_of, []], [False] * end + [True], atoms)


def _phrase_states(stops: Sequence[str]) -> tuple[list[dict[str, int]], list[bool]]:
    """Steps of each state that do not lead back to state 0, and whether a stop phrase has just been read."""
    steps: list[dict[str, int]] = [{}]
    found = [False]
    for stop in stops:
        q = 0
        for c in stop:
            if c not in steps[q]:
                steps[q][c] = len(steps)
                steps.append({})
                found.append(False)
            q = steps[q][c]
        found[q] = True
    back = [0] * len(steps)  # the longest proper suffix that is also the beginning of a stop phrase
    todo = [0]
    for q in todo:
        for r in steps[q].values():
            todo.append(r)
        below = steps[back[q]] if q else {}
        for c, r in steps[q].items():
            back[r] = below.get(c, 0)
            found[r] |= found[back[r]]
        steps[q] = below | steps[q]
    return steps, found
