"""Equal states of a letter automaton become one. Small automata are refined here, large ones by OpenFst.

Most patterns need no refinement at all: two states can only be equal when they read the same letters and agree on being final,
and after merging identical states from the back that seldom holds for any pair.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from fsa_compile.arrays.graphs import examples, refined
from fsa_compile.arrays.integers import occupied
from fsa_compile.arrays.ranges import indices
from fsa_compile.automata.letter_dfa import LetterDfa

_MAX_REFINED = 48
"""Largest set of possibly equal states that is refined in Python."""

_MAX_OPEN = 256
"""Most states in such sets."""

_MAX_PASSES = 4
"""Merging from the back is repeated this often; what is left after that is for OpenFst."""


def minimize(dfa: LetterDfa, *, acyclic: bool = False) -> LetterDfa:
    """The minimal automaton of a trimmed automaton. `acyclic`: whether it is known to have no cycle."""
    dfa, stable = _merge_identical(dfa)
    if acyclic and stable:
        return dfa
    kinds: list[tuple[bool, int]] = []
    for final, arcs in zip(dfa.final, dfa.arcs):
        reads = 0
        for letters, _ in arcs:
            reads |= letters
        kinds.append((final, reads))
    sizes = [size for size in Counter(kinds).values() if size > 1]
    if not sizes:
        return dfa
    if max(sizes) > _MAX_REFINED or sum(sizes) > _MAX_OPEN:
        return _minimize_openfst(dfa)

    def key(q: int, block_of: list[int]) -> tuple[tuple[int, int], ...]:
        by_block: dict[int, int] = {}
        for letters, t in dfa.arcs[q]:
            by_block[block_of[t]] = by_block.get(block_of[t], 0) | letters
        return tuple(sorted(by_block.items()))

    block_of = refined(kinds, key)
    chosen = examples(block_of)
    return quotient(dfa, [chosen[b] for b in block_of]) if len(chosen) < len(block_of) else dfa


def _merge_identical(dfa: LetterDfa) -> tuple[LetterDfa, bool]:
    """Merges states with the same arcs, from the last state to the first, a few times.

    Returns:
      The automaton, and whether no two of its states have the same arcs any more: without cycles it is minimal then.
    """
    for _ in range(_MAX_PASSES):
        n = len(dfa.arcs)
        kept: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        target_of = list(range(n))
        monotone = True
        for q in range(n - 1, -1, -1):
            arcs = dfa.arcs[q]
            if len(arcs) == 1:
                letters, t = arcs[0]
                monotone &= t > q
                key: tuple[tuple[int, int], ...] = ((letters, target_of[t]),)
            else:
                by_target: dict[int, int] = {}
                for letters, t in arcs:
                    monotone &= t > q
                    t = target_of[t]
                    by_target[t] = by_target.get(t, 0) | letters
                key = tuple(sorted([(letters, t) for t, letters in by_target.items()]))
            target_of[q] = kept.setdefault((dfa.final[q], key), q)
        if len(kept) == n:
            return dfa, True
        dfa = quotient(dfa, target_of)
        if monotone:
            return dfa, True
    return dfa, False


def quotient(dfa: LetterDfa, representative: list[int]) -> LetterDfa:
    """The automaton in which each state is replaced by its representative."""
    number: dict[int, int] = {}
    for q in representative:
        if q not in number and representative[q] == q:
            number[q] = len(number)
    arcs_of = []
    for q in number:
        by_target: dict[int, int] = {}
        for letters, t in dfa.arcs[q]:
            t = number[representative[t]]
            by_target[t] = by_target.get(t, 0) | letters
        arcs_of.append([(letters, t) for t, letters in by_target.items()])
    return LetterDfa(arcs_of, [dfa.final[q] for q in number], dfa.atoms)


def _minimize_openfst(dfa: LetterDfa) -> LetterDfa:
    """Minimises with OpenFst; a label is a class of letters that no arc tells apart."""
    from fsa_compile.automata.openfst import Arcs, arcs_from_fst, fst_from_arcs

    distinct: dict[int, int] = {}
    source, kind, target = [], [], []
    for q, arcs in enumerate(dfa.arcs):
        for letters, t in arcs:
            source.append(q)
            kind.append(distinct.setdefault(letters, len(distinct)))
            target.append(t)
    has, class_letters = letter_classes(list(distinct), len(dfa.atoms))
    of_kind, label = occupied(has)
    count = np.bincount(of_kind, minlength=len(distinct))
    kinds = np.array(kind)
    ends, repeats = count.cumsum()[kinds], count[kinds]
    index = indices(ends - repeats, ends)
    final = np.array(dfa.final)
    fst = fst_from_arcs(Arcs(0, final, np.array(source).repeat(repeats), label[index] + 1, np.array(target).repeat(repeats)))
    fst.arcsort()  # minimize() tells states apart by the order of their arcs too
    fst.minimize()
    small = arcs_from_fst(fst)
    grouped: list[dict[int, int]] = [{} for _ in small.final]
    for q, a, t in zip(small.source.tolist(), (small.label - 1).tolist(), small.target.tolist()):
        grouped[q][t] = grouped[q].get(t, 0) | class_letters[a]
    order = [small.start, *(q for q in range(len(grouped)) if q != small.start)]
    number = {q: i for i, q in enumerate(order)}
    arcs_of = [[(letters, number[t]) for t, letters in grouped[q].items()] for q in order]
    return LetterDfa(arcs_of, [bool(small.final[q]) for q in order], dfa.atoms)


def letter_classes(sets: list[int], num_atoms: int) -> tuple[np.ndarray, list[int]]:
    """Classes of letters that no set tells apart; letters in no set are in no class.

    Returns:
      bool[len(sets), K], whether a set contains a class, and the letters of each class.
    """
    width = 16 + (num_atoms + 7) // 8
    packed = np.frombuffer(b"".join([s.to_bytes(width, "little") for s in sets]), np.uint8).reshape(-1, width)
    members = np.unpackbits(packed, axis=1, bitorder="little")
    columns = np.ascontiguousarray(np.packbits(members, axis=0).T)
    classes: dict[bytes, list[int]] = {}
    for letter, column in enumerate(columns):
        classes.setdefault(column.tobytes(), []).append(letter)
    classes.pop(bytes(columns.shape[1]), None)
    representatives = [letters[0] for letters in classes.values()]
    return members[:, representatives].astype(bool), [sum(1 << a for a in letters) for letters in classes.values()]
