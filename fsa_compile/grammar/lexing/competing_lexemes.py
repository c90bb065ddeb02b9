"""Longest match across parallel stacks: which lexemes other readings of the text may have begun.

With one stack all readings of a text are in one control, so each lexeme sees those that began with it. With several stacks each
reading has a stack of its own, and its lexemes must not end where one of another reading could go on. So a reading takes along
*shadows*: lexemes that never end and only keep the real ones from ending. Which other readings there are is known roughly: what
they may read now can follow the terminal that was read last. So with several stacks some text can be refused that any
number of them would read if they saw one another; none is accepted that they would not read.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsa_compile.arrays.graphs import reach
from fsa_compile.automata.symbol_dfa import SymbolDfa
from fsa_compile.grammar.lexing.follow_sets import first_and_last, follow_sets, terminals_of


def competitor_sets(frames: list[SymbolDfa], count: int, ignore: Iterable[int]) -> list[list[int]]:
    """Per frame and state the terminals (a bit set) that may follow a terminal which may just have been read there.

    Args:
      frames: automata of the frames, the first one where texts start.
      count: number of terminals.
      ignore: ignored terminals.
    """
    first, last = first_and_last(frames)
    follow = follow_sets(count, frames, first, last)
    before = [[0] * len(dfa.arcs) for dfa in frames]
    for k, dfa in enumerate(frames):
        for arcs in dfa.arcs:
            for symbol, target in arcs.items():
                before[k][target] |= 1 << symbol if symbol >= 0 else last[~symbol]
    changed = True
    while changed:  # what stands before a frame stands before its initial state
        changed = False
        for k, dfa in enumerate(frames):
            for q, arcs in enumerate(dfa.arcs):
                for symbol in arcs:
                    if symbol < 0 and before[k][q] & ~before[~symbol][0]:
                        before[~symbol][0] |= before[k][q]
                        changed = True
    ignored = sum(1 << t for t in set(ignore))
    begins = _may_begin(frames)
    out = []
    for k, states in enumerate(before):
        sets = []
        for q, terminals in enumerate(states):
            mask = ignored | (first[0] if q == 0 and k in begins else 0) | terminals_of(frames[k].arcs[q], first)
            for t in range(count):
                if terminals >> t & 1:
                    mask |= follow[t]
            sets.append(mask)
        out.append(sets)
    return out


def _may_begin(frames: list[SymbolDfa]) -> set[int]:
    """Frames that the first lexeme of a text may lie in."""
    return set(reach([0], lambda k: [~symbol for symbol in frames[k].arcs[0] if symbol < 0]))
