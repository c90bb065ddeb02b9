"""Which terminals may stand beside one another in a grammar."""

from __future__ import annotations

from collections.abc import Iterable

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.automata.symbol_dfa import SymbolDfa
from fsa_compile.grammar.frame_actions import first_symbols
from fsa_compile.grammar.lexing.terminals import Terminal


def first_and_last(frames: list[SymbolDfa]) -> tuple[list[int], list[int]]:
    """Per frame the terminals (bit sets) that its texts may begin and end with."""
    begins = [list(dfa.arcs[0]) for dfa in frames]
    ends = [list({s for arcs in dfa.arcs for s, target in arcs.items() if dfa.final[target]}) for dfa in frames]
    return _reached_by_calls(begins), _reached_by_calls(ends)


def _reached_by_calls(symbols: list[list[int]]) -> list[int]:
    """Per frame the terminals (a bit set) among some of its symbols, and of the frames that are called by these."""
    out = [0] * len(symbols)
    changed = True
    while changed:
        changed = False
        for k, some in enumerate(symbols):
            found = terminals_of(some, out)
            changed |= found != out[k]
            out[k] = found
    return out


def contexts_of(count: int, frames: list[SymbolDfa], ignore: list[int]) -> set[int]:
    """The sets of terminals that may follow the same terminal, or begin the text; ignored ones may stand anywhere."""
    first, last = first_and_last(frames)
    ignored = union(1 << t for t in ignore)
    return {context | ignored for context in (first[0], *follow_sets(count, frames, first, last)) if context | ignored}


def places_of(frames: list[SymbolDfa], ignore: list[int]) -> set[int]:
    """The sets of terminals that begin at the same state of a frame, and what is ignored; in some places more may begin."""
    first, _ = first_and_last(frames)
    ignored = union(1 << t for t in ignore)
    return {ignored} | {terminals_of(arcs, first) | ignored for dfa in frames for arcs in dfa.arcs}


def follow_sets(count: int, frames: list[SymbolDfa], first: list[int], last: list[int]) -> list[int]:
    """Per terminal the terminals (a bit set) that may follow it."""
    follow = [0] * count
    for dfa in frames:
        before = [0] * len(dfa.arcs)
        for arcs in dfa.arcs:
            for symbol, target in arcs.items():
                before[target] |= 1 << symbol if symbol >= 0 else last[~symbol]
        for q, arcs in enumerate(dfa.arcs):
            after = terminals_of(arcs, first)
            for t in members(before[q]):
                follow[t] |= after
    return follow


def following(terminals: list[Terminal], frames: list[SymbolDfa], ignore: list[int]) -> tuple[list[int], list[int]]:
    """Per terminal the terminals that may follow it, ignored ones among them, and the symbols that these begin with."""
    first, last = first_and_last(frames)
    ignored = union(1 << t for t in ignore)
    follow = [after | ignored for after in follow_sets(len(terminals), frames, first, last)]
    for t in ignore:
        follow[t] = (1 << len(terminals)) - 1
    begin = [first_symbols(t.automaton.arcs[:1]) for t in terminals]
    return follow, [union(begin[t] for t in members(after)) for after in follow]


def terminals_of(arcs: Iterable[int], first: list[int]) -> int:
    """The terminals (a bit set) that may be read first from a state with these arcs."""
    mask = 0
    for symbol in arcs:
        mask |= 1 << symbol if symbol >= 0 else first[~symbol]
    return mask
