"""Where a lexer that goes back reads what the machine of frames does not: such a grammar is refused."""

from __future__ import annotations

from fsa_compile.arrays.bit_sets import union
from fsa_compile.arrays.graphs import reach
from fsa_compile.grammar.frame_actions import first_symbols
from fsa_compile.grammar.frame_subsets import FrameBuilder


def narrowing(builder: FrameBuilder) -> dict[int, int]:
    """Controls with sets of symbols, each of which begins a longer match and also a next lexeme that is not read beside it.

    Moves in the same frame are read beside the longer match where the builder goes back. Calls and returns never are, nor are
    more lexemes than there are generations.

    Args:
      builder: after `build`.
    """
    reached = {c for c, _ in builder.reached}
    out = {c: mask for c, mask in builder.too_far.items() if c in reached}
    for c, early in builder.early.items():
        places = builder.places(c) if c in reached else ()
        unread = union(_calls_at(builder, p) if builder.back else _readable_at(builder, p) for p in places)
        if unread & early:
            out[c] = out.get(c, 0) | unread & early
    waiting: dict[frozenset[int], list[int]] = {}
    for symbol in builder.below:
        waiting.setdefault(builder.symbol_callees[symbol], []).append(symbol)

    def further(node: tuple[frozenset[int], int]) -> list[tuple[frozenset[int], int]]:
        """Ends that the end of some callees may be at once, each with a symbol that waits for it."""
        ended = frozenset(builder.ends[p] for p in builder.after_call(*node) if builder.ends[p] > 0)
        return [(ended, under) for callees in builder.below[node[1]] if ended for under in waiting.get(callees, ())]

    for c, callees in builder.reached:
        ended = frozenset(builder.ends[p] for p in builder.places(c) if builder.ends[p] > 0) if c in builder.early else None
        if ended:
            nodes = reach([(ended, symbol) for symbol in waiting.get(callees, ())], further)
            after = union(_readable_at(builder, p) for node in nodes for p in builder.after_call(*node))
            if after & builder.early[c]:
                out[c] = out.get(c, 0) | after & builder.early[c]
    return out


def _calls_at(builder: FrameBuilder, p: int) -> int:
    """The symbols with which a call begins at a place."""
    return union(mask for mask, _ in builder.calls[p])


def _readable_at(builder: FrameBuilder, p: int) -> int:
    """The symbols with which something begins at a place."""
    return first_symbols([builder.arcs[p], builder.begins.get(p, [])]) | _calls_at(builder, p)
