"""Where a lexeme stands within a character, and is one when that character is whole, whichever it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from fsa_compile.arrays.bit_sets import union
from fsa_compile.grammar.lexing.terminal_automata import Automaton

_WHOLE = 0
_FURTHER = [
    [(0xC2, 0xDF, 1), (0xE0, 0xE0, 4), (0xE1, 0xEC, 2), (0xED, 0xED, 5), (0xEE, 0xEF, 2), (0xF0, 0xF0, 6), (0xF1, 0xF3, 3),
     (0xF4, 0xF4, 7), (0, 0x7F, _WHOLE)],
    [(0x80, 0xBF, _WHOLE)], [(0x80, 0xBF, 1)], [(0x80, 0xBF, 2)],
    [(0xA0, 0xBF, 1)], [(0x80, 0x9F, 1)], [(0x90, 0xBF, 2)], [(0x80, 0x8F, 2)],
]  # fmt: skip
"""Within UTF-8, by how a character has begun: first and last byte that may follow, and how it stands then."""


class Characters:
    """How characters go on, in symbol classes. `byte_class`: the class of every byte."""

    def __init__(self, byte_class: Sequence[int]) -> None:
        self._further = [
            [(union(1 << c for c in byte_class[low : high + 1]), after) for low, high, after in ways] for ways in _FURTHER
        ]
        self._beyond = union(1 << c for c in byte_class[128:256])

    def sure(self, automaton: Automaton, settled: Callable[[int], bool]) -> frozenset[int]:
        """The states of a terminal within a character at whose end, whichever it is, the text is a lexeme.

        Args:
          settled: whether the text that leads to a state is a lexeme, whatever follows.
        """
        arcs = automaton.arcs
        if not any(mask & self._beyond for out in arcs for mask, _ in out):
            return frozenset()
        first = 0, _WHOLE
        seen, todo = {first}, [first]
        while todo:
            q, within = todo.pop()
            for symbols, after in self._further[within]:
                new = {(r, after) for mask, r in arcs[q] if mask & symbols} - seen
                seen |= new
                todo += new

        @functools.cache
        def holds(q: int, within: int) -> bool:
            if within == _WHOLE:
                return settled(q)
            ways = self._further[within]
            read = union(mask for mask, _ in arcs[q])
            return not any(symbols & ~read for symbols, _ in ways) and all(
                holds(r, after) for symbols, after in ways for mask, r in arcs[q] if mask & symbols
            )

        no = {q for q, within in seen if within == _WHOLE or not holds(q, within)}
        return frozenset({q for q, _ in seen} - no)
