"""Plain and single-quoted strings of bounded length, counted in a register.

A plain scalar cannot end in a space or a colon, so a run may have to read one more character after its last counted one.
Therefore the character after a single space, colon or the like is not counted: a count of n stands for n to 2 n characters, and
plain strings are read up to a count of half the bound. Longer ones are written in double quotes, where every length is exact.
"""

from __future__ import annotations

from collections.abc import Callable

from fsa_compile.automata.labelled_dfa import TextDfa
from fsa_compile.json_schema.machine_builder import Bounds, Controls, Moves
from fsa_compile.unicode.code_points import LAST
from fsa_compile.yaml_schema.yaml_strings import APOSTROPHE, YamlSpeller


def counted_single(
    controls: Controls, speller: YamlSpeller, outcome: int, code: Callable[..., int], low: int, high: int
) -> int:
    """The control after the opening apostrophe of low to high characters, none of which is an apostrophe."""
    ended, bounds = code("counted", outcome), (low, high)
    closing = controls.node(((APOSTROPHE, APOSTROPHE, controls.final(outcome)),))

    def loop(control: int) -> None:
        controls.bounds[control] = bounds
        controls.outcome[control] = ended
        controls.adds.add(control)
        controls.moves[control] = speller.single(((0, LAST, control),), 0, bounds)

    def begin(control: int) -> None:
        body = controls.later(("counted single", outcome, bounds), loop)
        controls.moves[control] = controls.moves[closing] if not low else ()
        controls.add_call(control, controls.symbol(((ended, closing),)), body)

    return controls.later(("single", outcome, bounds), begin)


_UNDECIDED = 12
"""Longest beginning of a plain string that might still become something else, such as a number."""


class CountedPlain:
    """The controls of one automaton of plain texts that all have the same outcome.

    Args:
      number: tells automata apart.
      dfa: of the texts of any length.
      outcome: what the frame ends with.
      bounds: least and most characters.
      most: strings up to this length are written out, not counted; at least `_UNDECIDED`.
    """

    def __init__(
        self, controls: Controls, speller: YamlSpeller, number: int, dfa: TextDfa, outcome: int, code: Callable[..., int],
        bounds: tuple[int, int], most: int,
    ) -> None:  # fmt: skip
        self._controls, self._speller, self._number, self._dfa, self._outcome = controls, speller, number, dfa, outcome
        (self._low, self._high), self._most = bounds, max(most, _UNDECIDED)
        self._core = _core(dfa)
        self._ended = code("counted", outcome)
        self._symbol = controls.symbol(((self._ended, controls.final(outcome)),))

    def first(self) -> Moves:
        """The moves that begin a text."""
        return self._speller.plain(tuple([(a, z, self._begun(t, 1)) for a, z, t in self._dfa.rows[0]]))

    def _begun(self, state: int, read: int) -> int:
        """The control of a state after `read` characters, none of which is counted."""

        def make(control: int) -> None:
            controls = self._controls
            if self._dfa.labels[state] and self._low <= read <= self._high:
                controls.outcome[control] = self._outcome
            counted = state in self._core
            bounds = self._bounds(read) if counted else None
            if bounds is not None:
                controls.add_call(control, self._symbol, self._counted(state, bounds))
            elif read < min(self._high, self._most if counted else _UNDECIDED):
                row = tuple([(a, z, self._begun(t, read + 1)) for a, z, t in self._dfa.rows[state]])
                controls.moves[control] = self._speller.plain(row)

        return self._controls.later(("plain", self._number, self._low, self._high, state, read), make)

    def _bounds(self, read: int) -> Bounds | None:
        """The bounds of the counted frame after `read` characters, the same for several values of it; None: write them out."""
        if self._high <= self._most:
            return None
        first, last = (1, 2) if read <= 2 else (3, _UNDECIDED)
        low, high = max(0, self._low - first), (self._high - last) // 2
        return (low, high) if max(1, low) <= high else None

    def _counted(self, state: int, bounds: Bounds) -> int:
        """The control of a state within the counted frame."""

        def make(control: int) -> None:
            controls, labels = self._controls, self._dfa.labels
            controls.bounds[control] = bounds
            row = self._dfa.rows[state]
            if labels[state]:
                controls.outcome[control] = self._ended
                controls.adds.add(control)
            else:
                row = tuple([piece for piece in row if labels[piece[2]]])
            reached = tuple([(a, z, self._counted(t, bounds)) for a, z, t in row])
            controls.moves[control] = self._speller.plain(reached, bounds)

        return self._controls.later(("counted plain", self._number, self._outcome, bounds, state), make)


def _core(dfa: TextDfa) -> frozenset[int]:
    """The states of texts that can be nothing but strings, if every one of them that does not accept leads to one that does."""
    reach: list[set[int]] = [{t for _, _, t in row} for row in dfa.rows]
    changed = True
    while changed:
        changed = False
        for found in reach:
            more = set().union(*(reach[t] for t in found)) - found
            if more:
                found |= more
                changed = True
    core = frozenset(q for q, found in enumerate(reach) if found and all(q in reach[t] for t in found))
    good = all(dfa.labels[q] or any(dfa.labels[t] for _, _, t in dfa.rows[q]) for q in core)
    return core if good else frozenset()
