"""Which symbols may lie on top of a stack under a control: the configurations of a pushdown system, of which only this is kept.

Source: Bouajjani, Esparza, Maler 1997, Reachability Analysis of Pushdown Automata (saturation), with one symbol of each stack.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Sequence

import numpy as np


def standing(
    moves: Iterable[tuple[int, int]],
    calls: Iterable[tuple[int, int]],
    entries: Iterable[tuple[int, int]],
    under: Iterable[tuple[int, int]],
    returns: Iterable[tuple[int, int, int]],
) -> set[tuple[int, int]]:
    """All (place, symbol) such that the symbol may be the top of the stack at the place; some that cannot be may be among them.

    Args:
      moves: (place, place) within a frame.
      calls: (place, symbol that suspends its frame).
      entries: (place, top of the stack) where frames begin.
      under: (symbol, the one below it) that are pushed together.
      returns: (place, popped symbol, place after it).
    """
    after, suspends, popping = (collections.defaultdict[int, list[int]](list) for _ in range(3))
    for place, other in moves:
        after[place].append(other)
    for place, symbol in calls:
        suspends[place].append(symbol)
    leads = collections.defaultdict[tuple[int, int], list[int]](list)
    for place, symbol, other in returns:
        leads[place, symbol].append(other)
    below = collections.defaultdict[int, list[int]](list)
    found: set[tuple[int, int]] = set()
    lies: set[tuple[int, int]] = set()
    todo = list(entries)

    def lay(symbol: int, other: int) -> None:
        if (symbol, other) not in lies:
            lies.add((symbol, other))
            below[symbol].append(other)
            todo.extend((place, other) for place in popping[symbol])

    for symbol, other in under:
        lay(symbol, other)
    while todo:
        pair = todo.pop()
        if pair in found:
            continue
        found.add(pair)
        place, top = pair
        todo.extend((other, top) for other in after[place])
        for symbol in suspends[place]:
            lay(symbol, top)
        for other in leads.get(pair, ()):
            popping[top].append(other)
            todo.extend((other, symbol) for symbol in below[top])
    return found


def standing_at(
    edges: tuple[np.ndarray, np.ndarray, np.ndarray],
    strings: Iterable[Sequence[tuple[int, int]]],
    returns: tuple[np.ndarray, np.ndarray, np.ndarray],
    start: tuple[int, Sequence[int]],
    nothing: int,
) -> set[tuple[int, int]]:
    """`standing` of places whose tokens push strings of symbols.

    Args:
      edges: of tokens: int64[n] each, place, target, and which string is pushed.
      strings: of (symbol, its register), bottom first; string 0 is empty.
      returns: int64[m] each, place, popped symbol, place after it.
      start: the first place, and the stack there, bottom first.
      nothing: stands for the top of the empty stack.
    """
    place, target, push = edges
    inside = push == 0
    called = dict.fromkeys(zip(place[~inside].tolist(), push[~inside].tolist()))
    entered = dict.fromkeys(zip(target[~inside].tolist(), push[~inside].tolist()))
    symbols = [[symbol for symbol, _ in string] for string in strings]
    first, stack = start
    laid = [(above, below) for string in symbols for below, above in itertools.pairwise(string)]
    laid += [(above, below) for below, above in itertools.pairwise([nothing, *stack])]
    return standing(
        zip(place[inside].tolist(), target[inside].tolist()),
        ((p, symbols[string][0]) for p, string in called),
        [(first, [nothing, *stack][-1]), *((p, symbols[string][-1]) for p, string in entered)],
        laid,
        zip(*(column.tolist() for column in returns)),
    )
