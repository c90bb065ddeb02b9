"""`direct_merge`: the canonical token automaton of a regular language, one merge of the encoder after another.

An automaton over atoms becomes one over tokens: for the merge of a and b into c, every path a b becomes an arc c, and what the
encoder would not leave is taken away. For a ≠ b, after an a no b may follow; the a that stays stands before something else. For
a = b, pairs are taken from the left, so that along a run of a's only the last of an odd run stays: states know the parity.

Made for small tables and as a check of `cartesian_merge` and of the pair rule; whole vocabularies use the pair rule.

Source: Cognetta et al. 2025, §3.3; Tran-Thien 2024, algorithms DirectMerge and BuildTokenizerDFA.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oracles.token_automaton import Arcs, TokenAutomaton


def direct_merge(automaton: TokenAutomaton, merges: Sequence[tuple[int, int, int]]) -> TokenAutomaton:
    """The automaton of the canonical token sequences of all texts that an automaton over atoms accepts.

    Args:
      automaton: deterministic, over token ids that are atoms; every merge must use tokens that exist before it (as training makes
        them), so that applying merges one after another over the whole text is what the encoder does.
      merges: (left, right, result) in the encoder's order.

    Returns:
      A deterministic trimmed automaton over token ids.
    """
    for left, right, result in merges:
        step = _merge_alike if left == right else _merge_different
        automaton = step(automaton, left, right, result).trimmed()
    return automaton


def tokenizer_automaton(atoms: Iterable[int], merges: Sequence[tuple[int, int, int]]) -> TokenAutomaton:
    """The automaton of all canonical token sequences of an encoder: `direct_merge` of all texts (BuildTokenizerDFA).

    Args:
      atoms: token ids of the atoms.
      merges: see `direct_merge`.
    """
    return direct_merge(TokenAutomaton((dict.fromkeys(atoms, 0),), frozenset({0}), 0), merges)


def _merge_different(automaton: TokenAutomaton, left: int, right: int, result: int) -> TokenAutomaton:
    """Each state q that a `left` leads into has a twin n + q for that: in it no `right` may follow."""
    n = len(automaton.arcs)
    arcs: list[Arcs] = []
    for twin in (False, True):
        for q in range(n):
            out = {token: to for token, to in automaton.arcs[q].items() if not (twin and token == right)}
            middle = automaton.arcs[q].get(left)
            if middle is not None:
                out[left] = n + middle
                end = automaton.arcs[middle].get(right)
                if end is not None:
                    out[result] = end
            arcs.append(out)
    final = automaton.final | {n + q for q in automaton.final}
    return TokenAutomaton(tuple(arcs), final, automaton.start)


def _merge_alike(automaton: TokenAutomaton, left: int, right: int, result: int) -> TokenAutomaton:
    """Each state q has a twin n + q for a `left` that stayed over: neither `left` nor `result` may follow it.

    A run of k is k // 2 results and then, if k is odd, one that stays: results are read first, as pairs are taken from the left.
    """
    n = len(automaton.arcs)
    arcs: list[Arcs] = []
    for twin in (False, True):
        for q in range(n):
            out = {token: to for token, to in automaton.arcs[q].items() if token != left}
            middle = automaton.arcs[q].get(left)
            if middle is not None and not twin:
                out[left] = n + middle
                end = automaton.arcs[middle].get(right)
                if end is not None:
                    out[result] = end
            arcs.append(out)
    final = automaton.final | {n + q for q in automaton.final}
    return TokenAutomaton(tuple(arcs), final, automaton.start)
