"""Which temperature holds in a control: the greatest of the lexemes that the next symbol may begin or go on."""

from __future__ import annotations

from collections.abc import Callable

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.automata.pushdown import RETURN
from fsa_compile.grammar.frame_actions import FrameTables, first_symbols
from fsa_compile.grammar.frame_subsets import FrameBuilder
from fsa_compile.grammar.lexing.follow_sets import first_and_last, terminals_of


def temperature_of_controls(tables: FrameTables, builder: FrameBuilder) -> Callable[[int], float | None] | None:
    """The temperature of a control by its number, of its own frame and what that calls; None where no terminal has one.

    What may follow a return is a matter of the control after it.

    Args:
      tables: trimmed tables.
    """
    given = {t: terminal.temperature for t, terminal in enumerate(builder.lexicon.terminals) if terminal.temperature is not None}
    if not given:
        return None
    network = builder.network
    first, _ = first_and_last([frame.dfa for frame in network.frames])
    begins = {t: first_symbols(builder.lexicon.terminals[t].automaton.arcs[:1]) for t in given}

    def of_control(c: int) -> float | None:
        read = union(mask for mask, entries in tables.actions[c] if any(entry[0] != RETURN for entry in entries))
        going = [i for i in builder.going(c) if builder.point[i][2] >= 0]
        found = {builder.point[i][0] for i in going if first_symbols([builder.arcs[i]]) & read}
        begun = union(ending.rest | ending.early for ending in builder.endings(c)) & read
        for k, q in (builder.place_frame[p] for p in builder.places(c) if p in builder.place_frame):
            here = terminals_of(network.frames[k].dfa.arcs[q], first)
            found |= {t for t in members(here) if t in given and begins[t] & begun}
        return max((given[t] for t in found if t in given), default=None)

    return of_control
