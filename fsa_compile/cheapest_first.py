"""Least fixpoints over a pushdown network, cheapest value first: every value is final when it is taken from the queue.

A place is worth the least of its ways; a way that calls is worth what the callee and the symbols that it pushes are worth, and a
symbol the *most* of what may follow the return. All of these are superior functions (monotone, and no result is below any
argument), so values can be settled in ascending order as in Dijkstra's algorithm: every way is looked at once, where rounds over
everything would need as many rounds as the longest chain of tokens. All places that become known at once are worked on together.

Source: D. E. Knuth, "A generalization of Dijkstra's algorithm", Information Processing Letters 6 (1977).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fsa_compile.distinct import distinct
from fsa_compile.vocabulary_tables import indices, ranges


class Ways(NamedTuple):
    """Ways from places, by tokens with effects.

    Attributes:
      place, effect: int64[W], the ways.
      target: int64[E], place that each effect leads to.
      push: int64[E], push string of each effect, 0 for none.
      string: int64[n, L], symbols of each push string, padded with the number of symbols.
    """

    place: np.ndarray
    effect: np.ndarray
    target: np.ndarray
    push: np.ndarray
    string: np.ndarray


def least_values(
    first: np.ndarray,
    ways: Ways,
    symbol: np.ndarray,
    below: np.ndarray,
    num_symbols: int,
    step: int,
    called: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    unreachable: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Least values of places and symbols.

    Args:
      first: bool[Q], places of value 0.
      ways: all others.
      symbol, below: int64[R], returns: where popping a symbol may lead, -1 where nothing goes on.
      num_symbols: P.
      step: what a way without a push adds to the value of its target.
      called: the values of ways with a push, from the values of their targets, their push strings, and the values of all symbols.
      unreachable: value of what no way settles; larger than any other.

    Returns:
      int64[Q] and int64[P].
    """
    size = len(first)
    calls = _Calls(ways, symbol, below, size, num_symbols, called, unreachable)
    plain = (ways.push[ways.effect] == 0).nonzero()[0]
    before, before_at = _by(ways.target[ways.effect[plain]], ways.place[plain], size)
    value, settled, mark = np.where(first, 0, unreachable), np.zeros(size, bool), np.empty(size, np.int64)
    queue: dict[int, list[np.ndarray]] = {0: [first.nonzero()[0]]}

    def put(places: np.ndarray, found: int) -> None:
        """Places for which a lesser value was found."""
        number = np.arange(len(places))
        mark[places] = number
        value[places] = found
        queue.setdefault(found, []).append(places[mark[places] == number])  # once each

    while queue:
        at = min(queue)
        waiting = queue.pop(at)
        now = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
        now = now[~settled[now]]
        settled[now] = True
        others = _of(before, before_at, now)
        others = others[value[others] > at + step]
        if len(others):
            put(others, at + step)
        places, found = calls.settle(now, at, value)
        while len(places):
            better = found < value[places]
            places, found = places[better], found[better]
            if len(places):
                least = int(found.min())
                put(places[found == least], least)
    return value, calls.of_symbol


class _Calls:
    """Ways that call, and what they wait for.

    Attributes:
      of_symbol: int64[P], values so far.
    """

    def __init__(
        self,
        ways: Ways,
        symbol: np.ndarray,
        below: np.ndarray,
        size: int,
        num_symbols: int,
        called: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
        unreachable: int,
    ) -> None:
        self._ways, self._called = ways, called
        self.of_symbol = np.full(num_symbols, unreachable)
        pushes = ways.push > 0
        by_push, calling = pushes[ways.effect].nonzero()[0], pushes.nonzero()[0]
        self._places, self._places_at = _by(ways.effect[by_push], ways.place[by_push], len(ways.push))
        self._callers, self._callers_at = _by(ways.target[calling], calling, size)
        string = np.sort(ways.string, axis=1)
        once = string < num_symbols
        once[:, 1:] &= string[:, 1:] != string[:, :-1]
        effect, column = once[ways.push[calling]].nonzero()
        waiting = calling[effect]
        self._waiting, self._waiting_at = _by(string[ways.push[waiting], column], waiting, num_symbols)
        known = (below >= 0).nonzero()[0]
        self._returned, self._returned_at = _by(below[known], symbol[known], size)
        self._open = np.bincount(symbol, minlength=num_symbols)
        self._missing = 1 + once.sum(1)[ways.push]
        self._some = np.zeros(size, bool)
        self._some[ways.target[calling]] = True
        self._some[below[known]] = True

    def settle(self, now: np.ndarray, at: int, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(places, values found for them) of the calls that know all they need, now that some places are settled at a value."""
        now = now[self._some[now]]
        if not len(now):
            return now, now
        effect, symbol = _of(self._callers, self._callers_at, now), _of(self._returned, self._returned_at, now)
        if len(symbol):
            np.subtract.at(self._open, symbol, 1)
            closed = distinct(symbol[self._open[symbol] == 0])
            self.of_symbol[closed] = at
            effect = np.concatenate((effect, _of(self._waiting, self._waiting_at, closed)))
        if len(effect):
            np.subtract.at(self._missing, effect, 1)
            effect = distinct(effect[self._missing[effect] == 0])
        if not len(effect):
            return effect, effect
        found = self._called(value[self._ways.target[effect]], self._ways.push[effect], self.of_symbol)
        which, place = ranges(self._places_at[effect], self._places_at[effect + 1])
        return self._places[place], found[which]


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


def _by(key: np.ndarray, item: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Items by key, and where those of each key begin."""
    order = key.argsort(kind="stable")
    return item[order], key[order].searchsorted(np.arange(size + 1))


def _of(items: np.ndarray, begin: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The items of some keys, from `_by`."""
    if len(keys) == 1:
        key = int(keys[0])
        return items[begin[key] : begin[key + 1]]
    return items[indices(begin[keys], begin[keys + 1])]
