"""Least fixpoints over a pushdown network, cheapest value first: every value is final when it is taken from the queue.

A place is worth the least of its ways; a way that calls is worth what the callee and the symbols that it pushes are worth, and a
symbol the *most* of what may follow the return. All of these are superior functions (monotone, and no result is below any
argument), so values can be settled in ascending order as in Dijkstra's algorithm: every way is looked at once, where rounds over
everything would need as many rounds as the longest chain of tokens.

Source: D. E. Knuth, "A generalization of Dijkstra's algorithm", Information Processing Letters 6 (1977).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Ways(NamedTuple):
    """Ways from places, by tokens with effects.

    Attributes:
      place, effect: int64[W], the ways.
      target: int64[E], place that each effect leads to.
      push: int64[E], push string of each effect, 0 for none.
      strings: symbols of each push string.
    """

    place: np.ndarray
    effect: np.ndarray
    target: np.ndarray
    push: np.ndarray
    strings: Sequence[Sequence[int]]


def least_values(
    first: np.ndarray,
    ways: Ways,
    symbol: np.ndarray,
    below: np.ndarray,
    num_symbols: int,
    step: int,
    called: Callable[[int, int, list[int]], int],
    unreachable: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Least values of places and symbols.

    Args:
      first: bool[Q], places of value 0.
      ways: all others.
      symbol, below: int64[R], returns: where popping a symbol may lead, -1 where nothing goes on.
      num_symbols: P.
      step: what a way without a push adds to the value of its target.
      called: the value of a way with a push, from the value of its target, its push string, and the values of all symbols.
      unreachable: value of what no way settles; larger than any other.

    Returns:
      int64[Q] and int64[P].
    """
    size = len(first)
    value, of_symbol = np.where(first, 0, unreachable).tolist(), [unreachable] * num_symbols
    pushes = ways.push > 0
    by_push = pushes[ways.effect]
    plain, calls, calling = (~by_push).nonzero()[0], by_push.nonzero()[0], pushes.nonzero()[0]
    before, before_at = _by(ways.target[ways.effect[plain]], ways.place[plain], size)
    places, places_at = _by(ways.effect[calls], ways.place[calls], len(ways.push))
    callers, callers_at = _by(ways.target[calling], calling, size)
    waiting, waiting_at = _by(*_waiting(ways, calling), num_symbols)
    known = (below >= 0).nonzero()[0]
    returned, returned_at = _by(below[known], symbol[known], size)
    open_returns = np.bincount(symbol, minlength=num_symbols).tolist()
    asked = np.array([1 + len(set(string)) for string in ways.strings], np.int64)
    missing = asked[ways.push].tolist()
    target, push = ways.target.tolist(), ways.push.tolist()
    queue: dict[int, list[int]] = {0: first.nonzero()[0].tolist()}
    settled = [False] * size

    def told(effect: int) -> None:
        """One more of the values that a call needs is settled."""
        missing[effect] -= 1
        if missing[effect]:
            return
        found = called(value[target[effect]], push[effect], of_symbol)
        if found < unreachable:
            for place in places[places_at[effect] : places_at[effect + 1]]:
                if found < value[place]:
                    value[place] = found
                    queue.setdefault(found, []).append(place)

    while queue:
        at = min(queue)
        beyond = at + step
        for place in queue[at]:  # which may grow meanwhile
            if settled[place]:
                continue
            settled[place] = True
            for other in before[before_at[place] : before_at[place + 1]]:
                if beyond < value[other]:
                    value[other] = beyond
                    queue.setdefault(beyond, []).append(other)
            for effect in callers[callers_at[place] : callers_at[place + 1]]:
                told(effect)
            for s in returned[returned_at[place] : returned_at[place + 1]]:
                open_returns[s] -= 1
                if not open_returns[s]:
                    of_symbol[s] = at
                    for effect in waiting[waiting_at[s] : waiting_at[s + 1]]:
                        told(effect)
        del queue[at]
    return np.array(value, np.int64), np.array(of_symbol, np.int64)


def least_sums(first: np.ndarray, source: np.ndarray, target: np.ndarray, weight: np.ndarray, unreachable: int) -> np.ndarray:
    """Least sums of weights on the way to a first node (Dijkstra).

    Args:
      first: bool[Q], nodes of value 0.
      source, target, weight: int64[E], edges; the value of a source is at most that of the target plus the weight, 0 or more.
      unreachable: value of nodes without a way.

    Returns:
      int64[Q].
    """
    value = np.where(first, 0, unreachable).tolist()
    order = target.argsort(kind="stable")
    edges = list(zip(source[order].tolist(), weight[order].tolist()))
    begin = target[order].searchsorted(np.arange(len(first) + 1)).tolist()
    queue: dict[int, list[int]] = {0: first.nonzero()[0].tolist()}
    settled = [False] * len(first)
    while queue:
        at = min(queue)
        for node in queue[at]:  # which may grow meanwhile
            if settled[node]:
                continue
            settled[node] = True
            for other, more in edges[begin[node] : begin[node + 1]]:
                if at + more < value[other]:
                    value[other] = at + more
                    queue.setdefault(at + more, []).append(other)
        del queue[at]
    return np.array(value, np.int64)


def _by(key: np.ndarray, item: np.ndarray, size: int) -> tuple[list[int], list[int]]:
    """Items by key, and where those of each key begin."""
    order = key.argsort(kind="stable")
    return item[order].tolist(), key[order].searchsorted(np.arange(size + 1)).tolist()


def _waiting(ways: Ways, calling: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(symbol, effect) for every symbol in the push string of an effect, once each."""
    strings = [list(set(string)) for string in ways.strings]
    size = np.array([len(string) for string in strings], np.int64)
    first = size.cumsum() - size
    symbols = np.array([s for string in strings for s in string], np.int64)
    push = ways.push[calling]
    which = np.repeat(np.arange(len(push)), size[push])
    at = np.arange(len(which)) + np.repeat(first[push] - (size[push].cumsum() - size[push]), size[push])
    return symbols[at], calling[which]
