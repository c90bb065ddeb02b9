"""`LetterDfa`: a deterministic automaton over sets of code points, between a front end and its byte automaton.

A letter set is one integer: bits 0..127 are the ASCII characters, bit 128 + j is atom j, one of disjoint classes of other
characters. So a union of sets is `|`, and an arc that reads `[^"]` is one arc.
"""

from __future__ import annotations

import dataclasses

from fsa_compile.unicode.code_points import CodePointSet, Ranges, atoms


@dataclasses.dataclass
class LetterDfa:
    """A deterministic automaton; state 0 is initial. There is no dead state: missing letters are not accepted.

    Attributes:
      arcs: per state its (letter set, target) pairs; the sets of one state are disjoint, non-empty, each target occurs once.
      final: per state whether the text may end there.
      atoms: character ranges of each atom.
    """

    arcs: list[list[tuple[int, int]]]
    final: list[bool]
    atoms: list[Ranges]


def letter_sets(sets: list[CodePointSet]) -> tuple[list[int], list[Ranges]]:
    """Character sets as letter sets over common atoms.

    Returns:
      One integer per set, and the ranges of each atom.
    """
    classes = list(dict.fromkeys([wide for _, wide in sets if wide]))
    if not classes:
        return [ascii_ for ascii_, _ in sets], []
    ranges, parts = atoms(classes)
    bits = {wide: part << 128 for wide, part in zip(classes, parts)}
    bits[()] = 0
    return [ascii_ | bits[wide] for ascii_, wide in sets], ranges


def trim(dfa: LetterDfa) -> LetterDfa | None:
    """The automaton without states from which no final state can be reached; None when it accepts nothing."""
    back: list[list[int]] = [[] for _ in dfa.arcs]
    for q, arcs in enumerate(dfa.arcs):
        for _, target in arcs:
            back[target].append(q)
    live = [False] * len(dfa.arcs)
    todo = [q for q, final in enumerate(dfa.final) if final]
    for q in todo:
        live[q] = True
    while todo:
        for q in back[todo.pop()]:
            if not live[q]:
                live[q] = True
                todo.append(q)
    if all(live):
        return dfa
    if not live[0]:
        return None
    number = {q: i for i, q in enumerate(q for q, alive in enumerate(live) if alive)}
    arcs_of = [[(s, number[t]) for s, t in dfa.arcs[q] if live[t]] for q in number]
    return LetterDfa(arcs_of, [dfa.final[q] for q in number], dfa.atoms)
