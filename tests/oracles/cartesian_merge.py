"""`cartesian_merge`: the canonical token automaton of a regular language, as a product with the pair rule.

A state is (state of the constraint's own token automaton, last token). Only *relevant* states are kept: those from which an
accepted sequence can be completed; and states whose last tokens forbid the same among the tokens that may follow are one.

Made for small automata and as a check of `direct_merge`; constraints over whole vocabularies use the same idea in
`product`, by forbidden sets.

Source: Tran-Thien 2024, algorithm CartesianMerge with pruning to relevant states.
"""

from __future__ import annotations

from oracles.token_automaton import Arcs, TokenAutomaton

from fsa_compile.canonical.encoder.pair_rule import PairRule


def cartesian_merge(automaton: TokenAutomaton, rule: PairRule) -> TokenAutomaton:
    """The automaton of the canonical sequences among those an automaton accepts.

    Args:
      automaton: deterministic, over token ids: the texts of a constraint, spelled in every way.
      rule: the encoder's pair rule (nothing is cut).

    Returns:
      A deterministic trimmed automaton over token ids.
    """
    begin = (automaton.start, -1)
    number, todo = {begin: 0}, [begin]
    arcs: list[Arcs] = []
    for state, last in todo:  # grows while it is read
        allowed = {
            token: to for token, to in automaton.arcs[state].items()
            if rule.own[token] and (last < 0 or rule.canonical_pair(last, token))
        }  # fmt: skip
        row = {}
        for token, to in allowed.items():
            target = (to, _representative(automaton, rule, to, token))
            if target not in number:
                number[target] = len(number)
                todo.append(target)
            row[token] = number[target]
        arcs.append(row)
    final = frozenset(i for i, (state, _) in enumerate(todo) if state in automaton.final)
    return TokenAutomaton(tuple(arcs), final, 0).trimmed()


def _representative(automaton: TokenAutomaton, rule: PairRule, state: int, token: int) -> int:
    """The least token that leads into `state` like `token` does: it forbids the same among the tokens that follow there."""
    after = [other for other in automaton.arcs[state] if rule.own[other]]
    wanted = [rule.canonical_pair(token, other) for other in after]
    for other in range(token):
        if rule.own[other] and [rule.canonical_pair(other, one) for one in after] == wanted:
            return other
    return token


def all_spellings(automaton: TokenAutomaton, tokens: list[bytes]) -> TokenAutomaton:
    """The token automaton of every spelling of an automaton over atoms.

    Args:
      automaton: over the ids of single bytes.
      tokens: bytes per id, b"" for ids that are not text.
    """
    ids = {token: i for i, token in enumerate(tokens) if len(token) == 1}
    arcs: list[Arcs] = []
    for state in range(len(automaton.arcs)):
        row = {}
        for token, text in enumerate(tokens):
            at: int | None = state if text else None
            for byte in text:
                at = None if at is None else automaton.arcs[at].get(ids.get(bytes([byte]), -1))
            if at is not None:
                row[token] = at
        arcs.append(row)
    return TokenAutomaton(tuple(arcs), automaton.final, automaton.start)
