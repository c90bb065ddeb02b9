"""Conditions on the text around a lexeme, as automata that are read beside the text.

A condition on what follows is *undecided* as long as the text can still make it hold and can still make it fail. A reading of the
text takes along the conditions that it needs (`Look`): that one holds, or, where a lexeme of longer or better match must not
have ended, that it fails. What lexemes want of the text before them is one automaton that is taken along everywhere (`History`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.bit_sets import disjoint, union
from fsa_compile.arrays.graphs import Numbers
from fsa_compile.automata.boolean import combine
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.letter_dfa import LetterDfa, letter_sets
from fsa_compile.automata.minimize import minimize
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.unicode.code_points import ANY

HOLDS, FAILS = -1, -2
"""In place of a next state: the condition is decided, whatever follows."""


@dataclasses.dataclass(eq=False)
class Ahead:
    """A condition on the rest of a text.

    Attributes:
      arcs: per undecided state, the first one initial, disjoint (set of symbols, next state, `HOLDS` or `FAILS`). A symbol that
        is missing tells nothing. The bit behind all symbols is the end of the text.
    """

    arcs: list[list[tuple[int, int]]]


@dataclasses.dataclass(eq=False)
class History:
    """Which conditions the text so far meets, as an automaton that reads all of it.

    Attributes:
      ahead: its arcs; nothing is ever decided before the text ends.
      met: per state the numbers of the conditions.
    """

    ahead: Ahead
    met: list[frozenset[int]]

    def after(self, text: Iterable[int]) -> int:
        """The state after symbols."""
        state = 0
        for symbol in text:
            state = next(target for symbols, target in self.ahead.arcs[state] if symbols >> symbol & 1)
        return state


class Look(NamedTuple):
    """That a condition, read up to a state, holds, or that it fails."""

    ahead: Ahead
    state: int
    holds: bool

    @property
    def opposite(self) -> Look:
        """That it is the other way."""
        return self._replace(holds=not self.holds)

    def before(self, outcome: int) -> int:
        """The symbols with an outcome of the condition."""
        return union(symbols for symbols, target in self.ahead.arcs[self.state] if target == outcome)

    def undecided(self) -> int:
        """The symbols that do not decide it."""
        return union(symbols for symbols, target in self.ahead.arcs[self.state] if target >= 0)

    def met_by(self, rest: Iterable[int]) -> bool:
        """Whether the condition holds before symbols, the last of which is the end of the text."""
        state = self.state
        for symbol in rest:
            state = next((target for symbols, target in self.ahead.arcs[state] if symbols >> symbol & 1), FAILS)
            if state < 0:
                break
        return state == HOLDS


Looks: TypeAlias = "frozenset[Look]"
NO_LOOKS: Looks = frozenset()


def looks_at(
    rests: Sequence[LetterDfa], values: Sequence[tuple[int, bool]], limits: CompileLimits, deadline: Deadline
) -> list[Look]:
    """The conditions that automata accept the rest of a text, over bytes, with common states.

    Args:
      rests: the automata, at most 128, over the same atoms.
      values: of the special tokens, symbols 256 and up: the bytes with which a value begins that stands in the token's place, as
        a bit set, and whether that may be empty; no bytes for a token that is none. Such a token ends the text.

    Returns:
      Per automaton that it does; a value whose first byte does not decide it tells nothing.
    """
    accepted, every = _behind_numbers(rests, limits)
    refused = combine("-", every, accepted, limits, deadline)
    joint, kind = np.unique(np.stack([accepted.byte_class, refused.byte_class]), axis=1, return_inverse=True)
    bytes_of = [union(1 << b for b in np.flatnonzero(kind.ravel() == k).tolist()) for k in range(joint.shape[1])]
    yes, no = accepted.table[:, joint[0]].tolist(), refused.table[:, joint[1]].tolist()
    starts = [(accepted.step(accepted.start, i), refused.step(refused.start, i)) for i in range(len(rests))]
    number = Numbers(starts)
    arcs: list[list[tuple[int, int]]] = []
    for p, q in number.order:
        deadline.check("Reading the condition at the end of a terminal")
        into: dict[int, int] = {}
        for symbols, pair in zip(bytes_of, zip(yes[p], no[q])):
            if pair == (0, 0):
                continue  # no text goes on with these bytes
            target = number[pair] if all(pair) else HOLDS if pair[0] else FAILS
            into[target] = into.get(target, 0) | symbols
        end = HOLDS if accepted.final[p] else FAILS
        for k, (first, empty) in enumerate([*values, (0, False)]):
            found = {end} if not first else {t for t, symbols in into.items() if symbols & first} | ({end} if empty else set())
            if len(found) == 1 and min(found) < 0:
                into[min(found)] = into.get(min(found), 0) | 1 << 256 + k
        arcs.append([(symbols, target) for target, symbols in into.items()])
    ahead = Ahead(arcs)
    return [Look(ahead, number[pair], True) for pair in starts]


def _behind_numbers(rests: Sequence[LetterDfa], limits: CompileLimits) -> tuple[ByteDfa, ByteDfa]:
    """What automata accept, each behind a character of its own; and all texts behind these."""
    arcs: list[list[tuple[int, int]]] = [[]]
    final = [False]
    for i, rest in enumerate(rests):
        first = len(arcs)
        arcs[0].append((1 << i, first))
        arcs += [[(letters, first + target) for letters, target in own] for own in rest.arcs]
        final += rest.final
    (every,), atoms = letter_sets([ANY])
    numbers = (1 << len(rests)) - 1
    texts = LetterDfa([[(numbers, 1)], [(every, 1)]], [False, True], atoms)
    return to_byte_dfa(minimize(LetterDfa(arcs, final, rests[0].atoms)), limits), to_byte_dfa(texts, limits)


def history_of(before: Sequence[LetterDfa], tokens: int, limits: CompileLimits, deadline: Deadline) -> History:
    """The automaton of conditions on the text so far, over bytes.

    Args:
      before: per condition the automaton of the texts that meet it.
      tokens: number of special tokens, symbols 256 and up; behind one the text begins anew.
    """
    automata = [to_byte_dfa(dfa, limits) for dfa in before]
    first = tuple(dfa.start for dfa in automata)
    number = Numbers([first])
    arcs: list[list[tuple[int, int]]] = []
    for states in number.order:
        deadline.check("Reading the conditions at the begin of terminals")
        into = {0: ((1 << tokens) - 1) << 256}
        for byte, after in enumerate(zip(*(dfa.table[q][dfa.byte_class].tolist() for dfa, q in zip(automata, states)))):
            into[number[after]] = into.get(number[after], 0) | 1 << byte
        arcs.append([*((symbols, target) for target, symbols in into.items() if symbols), (1 << 256 + tokens, HOLDS)])
        if len(number) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Reading the conditions at the begin of terminals")
    met = [frozenset(j for j, (dfa, q) in enumerate(zip(automata, states)) if dfa.final[q]) for states in number]
    return History(Ahead(arcs), met)


def either(conditions: Sequence[Look], every: int) -> Look:
    """That one of several conditions holds; `every`: all symbols and the end of the text."""
    if len(conditions) == 1:
        return conditions[0]
    first = tuple(look.state for look in conditions)
    number = Numbers([first])
    arcs: list[list[tuple[int, int]]] = []
    for states in number.order:
        own = [
            (symbols, [(i, target)])
            for i, q in enumerate(states)
            for symbols, target in (conditions[i].ahead.arcs[q] if q >= 0 else [(every, FAILS)])
        ]
        into: dict[int, int] = {}
        for symbols, found in disjoint(own):
            targets = dict(found)
            if HOLDS in targets.values():
                target = HOLDS
            elif len(targets) < len(states):
                continue
            elif set(targets.values()) == {FAILS}:
                target = FAILS
            else:
                target = number[tuple(targets[i] for i in range(len(states)))]
            into[target] = into.get(target, 0) | symbols
        arcs.append([(symbols, target) for target, symbols in into.items()])
    return Look(Ahead(arcs), 0, True)


def further(looks: Looks, every: int) -> list[tuple[int, Looks]]:
    """Disjoint sets of symbols that leave all of some conditions possible, each with what is left to be decided after them."""
    out: list[tuple[int, Looks]] = [(every, NO_LOOKS)]
    for look in looks:
        wanted = HOLDS if look.holds else FAILS
        moves = [
            (symbols, NO_LOOKS if target == wanted else frozenset([look._replace(state=target)]))
            for symbols, target in look.ahead.arcs[look.state]
            if target >= 0 or target == wanted
        ]
        out = [(a & b, x | y) for a, x in out for b, y in moves if a & b and not _contradict(x, y)]
    joined: dict[Looks, int] = {}
    for symbols, left in out:
        joined[left] = joined.get(left, 0) | symbols
    return [(symbols, left) for left, symbols in joined.items()]


def _contradict(some: Looks, more: Looks) -> bool:
    return any(look.opposite in some for look in more)
