"""`LetterDfa`: a deterministic automaton over sets of code points, between a front end and its byte automaton.

A letter set is one integer: bits 0..127 are the ASCII characters, bit 128 + j is atom j, one of disjoint classes of other
characters. So a union of sets is `|`, and an arc that reads `[^"]` is one arc.
"""

from __future__ import annotations

import dataclasses

from fsa_compile.arrays.graphs import leading, reach
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
    live = leading([[target for _, target in arcs] for arcs in dfa.arcs], [q for q, final in enumerate(dfa.final) if final])
    if len(live) == len(dfa.arcs):
        return dfa
    if 0 not in live:
        return None
    number = {q: i for i, q in enumerate(sorted(live))}
    arcs_of = [[(s, number[t]) for s, t in dfa.arcs[q] if t in live] for q in number]
    return LetterDfa(arcs_of, [dfa.final[q] for q in number], dfa.atoms)


def without_unreachable(dfa: LetterDfa) -> LetterDfa:
    """The automaton without the states that no text leads to."""
    number = reach([0], lambda q: [target for _, target in dfa.arcs[q]])
    return LetterDfa([[(s, number[t]) for s, t in dfa.arcs[q]] for q in number], [dfa.final[q] for q in number], dfa.atoms)
