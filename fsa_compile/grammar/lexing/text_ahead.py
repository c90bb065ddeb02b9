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
from fsa_compile.automata.boolean import combine, universal_text
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.patterns.regex_tree import Node

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

    def before(self, *outcomes: int, state: int = 0) -> int:
        """The symbols with one of some outcomes."""
        return union(symbols for symbols, target in self.arcs[state] if target in outcomes)

    def holds(self, rest: Iterable[int]) -> bool:
        """Whether it holds before symbols, the last of which is the end of the text."""
        state = 0
        for symbol in rest:
            state = next((target for symbols, target in self.arcs[state] if symbols >> symbol & 1), FAILS)
            if state < 0:
                break
        return state == HOLDS

    def undecided(self) -> int:
        """The symbols that do not decide it."""
        return union(symbols for symbols, target in self.arcs[0] if target >= 0)


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


Looks: TypeAlias = "frozenset[Look]"
NO_LOOKS: Looks = frozenset()


def ahead_of(rest: Node, values: Sequence[tuple[int, bool]], limits: CompileLimits, deadline: Deadline) -> Ahead:
    """The condition that the rest of a text matches a pattern, over bytes.

    Args:
      rest: the pattern, of all of the rest.
      values: of the special tokens, symbols 256 and up: the bytes with which a value begins that stands in the token's place, as
        a bit set, and whether that may be empty; no bytes for a token that is none. Such a token ends the text.

    Returns:
      The condition; a value whose first byte does not decide it tells nothing.
    """
    letters = build_automaton(rest, limits, deadline)
    if letters is None:
        return Ahead([[((1 << 257 + len(values)) - 1, FAILS)]])
    yes = to_byte_dfa(letters, limits)
    no = combine("-", universal_text(), yes, limits, deadline)
    number, order = {(yes.start, no.start): 0}, [(yes.start, no.start)]
    arcs: list[list[tuple[int, int]]] = []
    for p, q in order:
        deadline.check("Reading the condition at the end of a terminal")
        into: dict[int, int] = {}
        for byte, pair in enumerate(zip(yes.table[p][yes.byte_class].tolist(), no.table[q][no.byte_class].tolist())):
            if pair == (0, 0):
                continue  # no text goes on with this byte
            if all(pair) and pair not in number:
                number[pair] = len(order)
                order.append(pair)
            target = number[pair] if all(pair) else HOLDS if pair[0] else FAILS
            into[target] = into.get(target, 0) | 1 << byte
        end = HOLDS if yes.final[p] else FAILS
        for k, (first, empty) in enumerate([*values, (0, False)]):
            found = {end} if not first else {t for t, symbols in into.items() if symbols & first} | ({end} if empty else set())
            if len(found) == 1 and min(found) < 0:
                into[min(found)] = into.get(min(found), 0) | 1 << 256 + k
        arcs.append([(symbols, target) for target, symbols in into.items()])
    return Ahead(arcs)


def history_of(before: Sequence[Node], tokens: int, limits: CompileLimits, deadline: Deadline) -> History:
    """The automaton of conditions on the text so far, over bytes.

    Args:
      before: per condition a pattern of the texts that meet it.
      tokens: number of special tokens, symbols 256 and up; behind one the text begins anew.
    """
    nothing = ByteDfa(np.zeros((1, 1), np.int32), np.zeros(256, np.uint8), np.zeros(1, bool), 0)
    letters = [build_automaton(tree, limits, deadline) for tree in before]
    automata = [nothing if dfa is None else to_byte_dfa(dfa, limits) for dfa in letters]
    first = tuple(dfa.start for dfa in automata)
    number, order = {first: 0}, [first]
    arcs: list[list[tuple[int, int]]] = []
    for states in order:
        deadline.check("Reading the conditions at the begin of terminals")
        into = {0: ((1 << tokens) - 1) << 256}
        for byte, after in enumerate(zip(*(dfa.table[q][dfa.byte_class].tolist() for dfa, q in zip(automata, states)))):
            if after not in number:
                number[after] = len(order)
                order.append(after)
            into[number[after]] = into.get(number[after], 0) | 1 << byte
        arcs.append([*((symbols, target) for target, symbols in into.items() if symbols), (1 << 256 + tokens, HOLDS)])
        if len(order) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Reading the conditions at the begin of terminals")
    met = [frozenset(j for j, (dfa, q) in enumerate(zip(automata, states)) if dfa.final[q]) for states in order]
    return History(Ahead(arcs), met)


def either(conditions: Sequence[Ahead], every: int) -> Ahead:
    """The condition that one of several holds; `every`: all symbols and the end of the text."""
    if len(conditions) == 1:
        return conditions[0]
    first = (0,) * len(conditions)
    number, order = {first: 0}, [first]
    arcs: list[list[tuple[int, int]]] = []
    for states in order:
        own = [
            (symbols, [(i, target)])
            for i, q in enumerate(states)
            for symbols, target in (conditions[i].arcs[q] if q >= 0 else [(every, FAILS)])
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
                where = tuple(targets[i] for i in range(len(states)))
                if where not in number:
                    number[where] = len(order)
                    order.append(where)
                target = number[where]
            into[target] = into.get(target, 0) | symbols
        arcs.append([(symbols, target) for target, symbols in into.items()])
    return Ahead(arcs)


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
    return any(look._replace(holds=not look.holds) in some for look in more)
