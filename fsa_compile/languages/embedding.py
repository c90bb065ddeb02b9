"""Languages inside patterns: a pattern with places for other automata becomes one automaton.

A place is a letter past the last code point, so that the pattern is parsed, expanded and minimised like any other; the place's
automaton is then put between the states that its letter joins. Anchors and lookaround cannot see into a place, so patterns that
have both are refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.byte_nfa import ByteNfa
from fsa_compile.automata.letter_dfa import LetterDfa
from fsa_compile.automata.minimize import minimize
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import UnsupportedPatternError
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.glushkov import Positions
from fsa_compile.patterns.regex_tree import Alternate, Anchor, Atomic, Chars, Concat, Look, Node, Repeat, Text, children
from fsa_compile.patterns.subset_construction import determinize
from fsa_compile.unicode.code_points import LAST

if TYPE_CHECKING:
    from fsa_compile.languages.symbols import Symbol

_FIRST_PLACE = LAST + 0x1000


@dataclasses.dataclass(slots=True)
class Place(Chars):
    """The place of an embedded language; to everything that handles trees it is a letter that no other set has."""


class Embedded(NamedTuple):
    """A language in a pattern; start and end: the span of its group."""

    language: Language
    start: int
    end: int


def place(number: int, start: int, end: int) -> Place:
    """The node of embedded language `number`."""
    return Place((0, ((_FIRST_PLACE + number, _FIRST_PLACE + number),)), start, end)


class RereadsGroups(Protocol):
    """What reads the extension groups of a pattern again, under other limits."""

    def check(self, pattern: str, flags: int, limits: CompileLimits) -> None:
        """Raises what reading the pattern under these limits raises."""


class PatternWithPlaces(Language):
    """The texts of a pattern in which groups stand for other languages.

    Raises (when made):
      UnsupportedPatternError: an anchor, lookaround or atomic group stands beside the places.
    """

    def __init__(
        self, tree: Node, embedded: Sequence[Embedded], source: str, flags: int = 0, groups: RereadsGroups | None = None
    ) -> None:
        from fsa_compile.patterns.guarded_glushkov import strip_edges

        self._tree, self._embedded = strip_edges(tree), tuple(embedded)
        self._source, self._flags, self._groups = source, flags, groups
        self.description = source if not flags else f"{source} (flags {re.RegexFlag(flags)!s})"
        if (condition := condition_in(self._tree)) is not None:
            group = embedded[0]
            raise UnsupportedPatternError(
                "an anchor, lookaround or atomic group cannot stand in a pattern with the group "
                f"{source[group.start : group.end]:.60}",
                pattern=source, start=condition.start, end=condition.end,
                fix="Intersect instead: regex(...) & regex(...), or write the condition out.",
            )  # fmt: skip

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset().union(*(part.language.symbols for part in self._embedded))

    @property
    def holds_bytes(self) -> bool:
        return any(part.language.holds_bytes for part in self._embedded)

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        if self._groups is not None and limits != CompileLimits():
            self._groups.check(self._source, self._flags, limits)
        positions = Positions(self._tree, limits, deadline)
        if not positions.first:
            return None
        letters = minimize(determinize(positions, limits, deadline), acyclic=positions.acyclic)
        outer, places = _without_places(letters)
        parts = {number: self._embedded[number].language._build(limits, deadline) for _, number, _ in places}
        dfa = to_byte_dfa(outer, limits)
        nfa = ByteNfa(limits, deadline)
        nfa.add_states(dfa.final)
        nfa.add_arcs(*dfa.arcs)
        alive = True
        for begin, number, end in places:
            part = parts[number]
            if part is not None and part.start:
                nfa.add_part(part, [begin + 1], end + 1)
            else:
                alive = False
        return nfa.deterministic(dfa.start, trimmed=alive)

    def _why_empty(self) -> str:
        return "the pattern matches no text at all"


def sequence_of_parts(
    num_states: int,
    final: Sequence[int],
    parts: Sequence[tuple[Sequence[int], ByteDfa | None, int]],
    limits: CompileLimits,
    deadline: Deadline,
) -> ByteDfa | None:
    """The automaton that reads whole parts between states: `parts` are (states, automaton, next state); state 0 is initial."""
    nfa = ByteNfa(limits, deadline)
    ends = np.zeros(num_states, bool)
    ends[list(final)] = True
    nfa.add_states(ends)
    none = np.zeros(0, np.int64)
    nfa.add_arcs(none, none, none)
    for begin, part, end in parts:
        if part is not None and part.start:
            nfa.add_part(part, begin, end)
    return nfa.deterministic(0)


def _without_places(dfa: LetterDfa) -> tuple[LetterDfa, list[tuple[int, int, int]]]:
    """The automaton without the arcs of places, and these as (state, number of the place, next state)."""
    numbers = {128 + j: ranges for j, ranges in enumerate(dfa.atoms) if ranges[0][0] >= _FIRST_PLACE}
    mask = sum(1 << bit for bit in numbers)
    arcs_of, places = [], []
    for q, arcs in enumerate(dfa.arcs):
        kept = []
        for letters, target in arcs:
            if letters & mask:
                for bit, ranges in numbers.items():
                    if letters >> bit & 1:
                        for low, high in ranges:
                            places += [(q, c - _FIRST_PLACE, target) for c in range(low, high + 1)]
            if letters & ~mask:
                kept.append((letters & ~mask, target))
        arcs_of.append(kept)
    return LetterDfa(arcs_of, dfa.final, dfa.atoms), places


def moved(node: Node, start: int, end: int) -> Node | None:
    """A tree of another pattern, with all spans set to the given one; None when it depends on its surroundings."""
    match node:
        case Text():
            return Text(node.text, start, end)
        case Place() | Anchor() | Look() | Atomic():
            return None
        case Chars():
            return Chars(node.members, start, end)
        case Repeat():
            item = moved(node.item, start, end)
            return None if item is None else Repeat(item, node.low, node.high, start, end, node.lazy)
    children = node.items if isinstance(node, Concat) else node.branches
    parts = [moved(child, start, end) for child in children]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Concat(known, start, end) if isinstance(node, Concat) else Alternate(known, start, end)


def condition_in(node: Node) -> Anchor | Look | Atomic | None:
    """The first node that looks at its surroundings, or None."""
    todo = [node]
    while todo:
        node = todo.pop()
        if isinstance(node, Anchor | Look | Atomic):
            return node
        todo += reversed(children(node))
    return None
