"""Least fixpoints over a pushdown network, cheapest value first: every value is final when it is taken from the queue.

A place is worth the least of its ways; a way that calls is worth what the callee and the symbols that it pushes are worth; a
symbol the *most* of what may follow the return, as is an ending that its place pays for. All of these are superior functions
(monotone, and no result is below any argument), so values can be settled in ascending order as in Dijkstra's algorithm: every way
is looked at once, where rounds over everything would need as many rounds as the longest chain of tokens. Many places that become
known at once are worked on together.

Source: D. E. Knuth, "A generalization of Dijkstra's algorithm", Information Processing Letters 6 (1977).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts, occupied, order_of
from fsa_compile.arrays.ranges import indices, ranges

_FEW = 64
"""Up to this many places are updated one by one."""
_LISTED = 100_000
"""Up to this many ways are kept as a list too, whose single items are read faster."""


class Ways(NamedTuple):
    """Ways from places, by tokens with effects.

    Attributes:
      place, effect: int64[W], the ways, each once.
      target: int64[E], place that each effect leads to.
      push: int64[E], push string of each effect, 0 for none.
      string: int64[n, L], symbols of each push string, padded with the number of symbols.
      tokens: int64[E], 1, or 0 for the calls of a token whose end another way says; these push something.
    """

    place: np.ndarray
    effect: np.ndarray
    target: np.ndarray
    push: np.ndarray
    string: np.ndarray
    tokens: np.ndarray


class Waits:
    """What the calls among some ways wait for: their targets, and the symbols that they push; the same whichever ways count.

    Args:
      ways: their places and effects do not matter.
      returns: symbols and places int64[R]: where popping a symbol may lead, -1 where nothing goes on.
      closing: places int64[C] that pay for an ending, and where it leads, likewise.
      size, num_symbols: Q and P.

    Attributes:
      num_symbols: as given.
      pushed, first: symbols of all push strings, one after another, and where those of each one begin.
      calling: bool[E], effects that push.
      callers, waiting, returned: effects by target, effects by symbol that they push, and symbols by the place after the return.
      closers: places by where their endings lead.
      returns, endings: how many returns each symbol has, int64[P], and endings each place, int64[Q].
      asked: what each effect waits for: its target and its distinct symbols, int64[E].
      some: bool[Q], places that a call or a symbol waits for.
    """

    def __init__(
        self,
        ways: Ways,
        returns: tuple[np.ndarray, np.ndarray],
        closing: tuple[np.ndarray, np.ndarray],
        size: int,
        num_symbols: int,
    ) -> None:
        symbol, below = returns
        self.num_symbols = num_symbols
        some = ways.string < num_symbols
        self.pushed, self.first = ways.string[some].tolist(), [0, *some.sum(1).cumsum().tolist()]
        self.calling = ways.push > 0
        calling = self.calling.nonzero()[0]
        string = np.sort(ways.string, axis=1)
        once = string < num_symbols
        once[:, 1:] &= string[:, 1:] != string[:, :-1]
        effect, column = occupied(once[ways.push[calling]])
        waiting = calling[effect]
        known = (below >= 0).nonzero()[0]
        self.callers = _Lists(ways.target[calling], calling, size)
        self.waiting = _Lists(string[ways.push[waiting], column], waiting, num_symbols)
        self.returned = _Lists(below[known], symbol[known], size)
        self.returns = np.bincount(symbol, minlength=num_symbols)
        place, after = closing
        paid = (after >= 0).nonzero()[0]
        self.closers = _Lists(after[paid], place[paid], size)
        self.endings = np.bincount(place, minlength=size)
        self.asked = 1 + once.sum(1)[ways.push]
        self.some = np.zeros(size, bool)
        self.some[ways.target[calling]] = True
        self.some[below[known]] = True
        self.some[after[paid]] = True


def least_values(
    first: np.ndarray, ways: Ways, waits: Waits, step: int, unreachable: int
) -> tuple[np.ndarray, np.ndarray]:
    """Least values of places and symbols: of tokens to the end, or of stack cells that the way there takes.

    A way that pushes is worth 1 + the value of its target + those of the symbols, where tokens are counted; where cells are, the
    most of its target's value beside all symbols of the string, and of each symbol's value beside those below it.

    Args:
      first: bool[Q], places of value 0.
      ways: all others.
      waits: of the ways.
      step: what a way without a push adds to the value of its target: 1 for tokens, 0 for cells.
      unreachable: value of what no way settles; larger than any other.

    Returns:
      int64[Q] and int64[P].
    """
    size = len(first)
    calls = _Calls(ways, waits, step, unreachable)
    plain = (ways.push[ways.effect] == 0).nonzero()[0]
    before, before_at = _by(ways.target[ways.effect[plain]], ways.place[plain], size)
    queue, waited_for = _Queue(first, before, before_at, unreachable), waits.some.data
    while queue.parts:
        settled, at = queue.settle_least(step)
        if isinstance(settled, np.ndarray):
            hot = settled[waits.some[settled]]
            found = calls.settle_many(hot, at) if len(hot) > _FEW else calls.settle(hot.tolist(), at)
        else:
            found = calls.settle([place for place in settled if waited_for[place]], at)
        if len(found):
            queue.take(calls, found)
        if len(calls.closed):
            queue.take_endings(calls.closed, at)
    return queue.value, calls.of_symbol[:-1]


class _Queue:
    """Places by the least value found for each, those of one value together: few one by one, many as arrays.

    Args:
      first: bool[Q], places of value 0.
      before, before_at: places from which ways without a push lead to each place, and where those of each place begin.
      unreachable: as for `least_values`.

    Attributes:
      value: int64[Q], least values found so far.
      parts: places to settle, by value.
    """

    def __init__(self, first: np.ndarray, before: np.ndarray, before_at: np.ndarray, unreachable: int) -> None:
        size = len(first)
        self.value, self._settled = np.where(first, 0, unreachable), np.zeros(size, bool)
        self.parts: dict[int, list[list[int] | np.ndarray]] = {0: [first.nonzero()[0]]}
        self._mark = np.empty(size, np.int64)
        self._before, self._at = before, before_at
        self._begin = before_at.tolist()
        self._one_by_one = before.tolist() if len(before) <= _LISTED else before

    def settle_least(self, step: int) -> tuple[list[int] | np.ndarray, int]:
        """Settles the places of the least value and improves those before them: (the places, their value)."""
        at = min(self.parts)
        parts = self.parts.pop(at)
        if sum(map(len, parts)) <= _FEW:
            return self._settle_few(parts, at + step), at
        now = np.concatenate(parts)
        now = now[~self._settled[now]]
        self._settled[now] = True
        others = self._before[indices(self._at[now], self._at[now + 1])]
        others = others[self.value[others] > at + step]
        if len(others):
            self._put(others, at + step)
        return now, at

    def _settle_few(self, parts: list[list[int] | np.ndarray], beyond: int) -> list[int]:
        values, known = self.value.data, self._settled.data  # the same memory; single items are read several times as fast
        now = [p for part in parts for p in (part if isinstance(part, list) else part.tolist()) if not known[p]]
        more = []
        for place in now:
            known[place] = True
            for other in self._one_by_one[self._begin[place] : self._begin[place + 1]]:
                if values[other] > beyond:
                    values[other] = beyond
                    more.append(other)
        if more:
            self.parts.setdefault(beyond, []).append(more)
        return now

    def take(self, calls: _Calls, effects: list[int] | np.ndarray) -> None:
        """Improves the places of calls whose values have become known."""
        if len(effects) <= _FEW:
            values = self.value.data
            for effect in effects if isinstance(effects, list) else effects.tolist():
                found = calls.worth(effect, values)
                more = [place for place in calls.places(effect) if found < values[place]]
                if more:
                    for place in more:
                        values[place] = found
                    self.parts.setdefault(found, []).append(more)
            return
        places, worth = calls.worth_of(np.asarray(effects), self.value)
        while len(places):
            better = worth < self.value[places]
            places, worth = places[better], worth[better]
            if len(places):
                least = int(worth.min())
                self._put(places[worth == least], least)

    def take_endings(self, places: np.ndarray, at: int) -> None:
        """Improves the places of endings that have become known."""
        self._put(places[self.value[places] > at], at)

    def _put(self, places: np.ndarray, found: int) -> None:
        """Enters places for which a lesser value was found, once each."""
        number = np.arange(len(places))
        self._mark[places] = number
        self.value[places] = found
        self.parts.setdefault(found, []).append(places[self._mark[places] == number])


class _Calls:
    """Ways that call, and what they still wait for.

    Attributes:
      of_symbol: values of the symbols so far; the last one stands for none.
      closed: places whose endings became known when others were settled last.
    """

    def __init__(self, ways: Ways, waits: Waits, step: int, unreachable: int) -> None:
        self._ways, self._waits, self._step = ways, waits, step
        self._target, self._push, self._tokens = ways.target.data, ways.push.data, ways.tokens.data
        self.of_symbol = np.full(waits.num_symbols + 1, unreachable)
        self.of_symbol[-1] = 0
        self._symbols = self.of_symbol.data  # the same memory; single items are read several times as fast
        self._of_string: dict[int, int] = {}
        calling = waits.calling[ways.effect].nonzero()[0]
        self._places, self._places_at = _by(ways.effect[calling], ways.place[calling], len(ways.push))
        self._open, self._missing, self._endings = waits.returns.copy(), waits.asked.copy(), waits.endings.copy()
        self.closed = self._endings[:0]

    def settle(self, now: list[int], at: int) -> list[int]:
        """The effects of calls that know all they need, now that some places are settled at a value."""
        done, missing, still = list[int](), self._missing.data, self._open.data
        closed, endings = list[int](), self._endings.data
        waits = self._waits
        callers, returned, waiting = waits.callers, waits.returned, waits.waiting
        for place in now:
            told = callers.of(place)
            for s in returned.of(place):
                still[s] -= 1
                if not still[s]:
                    self._symbols[s] = at
                    told = told + waiting.of(s)
            for effect in told:
                missing[effect] -= 1
                if not missing[effect]:
                    done.append(effect)
            for above in waits.closers.of(place):
                endings[above] -= 1
                if not endings[above]:
                    closed.append(above)
        self.closed = np.array(closed, np.int64)
        return done

    def settle_many(self, now: np.ndarray, at: int) -> np.ndarray:
        """As `settle`, of many places."""
        waits = self._waits
        symbols = _none_left(self._open, waits.returned.of_many(now))
        self.of_symbol[symbols] = at
        self.closed = _none_left(self._endings, waits.closers.of_many(now))
        return _none_left(self._missing, np.concatenate((waits.callers.of_many(now), waits.waiting.of_many(symbols))))

    def places(self, effect: int) -> list[int]:
        """The places that have an effect."""
        return self._places[self._places_at[effect] : self._places_at[effect + 1]].tolist()

    def worth(self, effect: int, value: memoryview[int]) -> int:
        """What a call is worth, from the values of places."""
        target, push = value[self._target[effect]], self._push[effect]
        waits = self._waits
        string = waits.pushed[waits.first[push] : waits.first[push + 1]]
        known = self._of_string.get(push)
        if known is None:  # its symbols have been settled
            values = [self._symbols[s] for s in string]
            known = self._of_string[push] = sum(values) if self._step else max([v + i for i, v in enumerate(values)], default=0)
        return self._tokens[effect] + target + known if self._step else max(len(string) + target, known)

    def worth_of(self, effects: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(places, what they are worth by a call) of many effects."""
        target, string = value.take(self._ways.target.take(effects)), self._ways.string.take(self._ways.push.take(effects), 0)
        pushed, values = string < self._waits.num_symbols, self.of_symbol.take(string)
        if self._step:
            worth = self._ways.tokens[effects] + target + values.sum(1)
        else:
            worth = np.maximum(pushed.sum(1) + target, np.where(pushed, values + np.arange(string.shape[1]), 0).max(1))
        which, place = ranges(self._places_at[effects], self._places_at[effects + 1])
        return self._places[place], worth[which]


_ROUNDS = 32
"""So often edges of weight 0 are followed together: most nodes are worth nothing, and nearly all of these are found by then."""


def least_sums(first: np.ndarray, source: np.ndarray, target: np.ndarray, weight: np.ndarray, unreachable: int) -> np.ndarray:
    """Least sums of weights on the way to a first node (Dijkstra).

    Args:
      first: bool[Q], nodes of value 0.
      source, target, weight: int64[E], edges; the value of a source is at most that of the target plus the weight, 0 or more.
      unreachable: value of nodes without a way.

    Returns:
      int64[Q].
    """
    worth = np.where(first, 0, unreachable)
    free = (weight == 0).nonzero()[0]
    at, to = source[free], target[free]
    for _ in range(_ROUNDS):
        worth[at[worth[to] == 0]] = 0
        left = worth[at] > 0
        if left.all():
            break
        at, to = at[left], to[left]
    left = (worth[source] > 0).nonzero()[0]
    source, target, weight = source[left], target[left], weight[left]
    order, value = order_of(target), worth.tolist()
    edges = list(zip(source[order].tolist(), weight[order].tolist()))
    begin = firsts(target, len(first)).tolist()
    queue: dict[int, list[int]] = {0: distinct(target[worth[target] == 0]).tolist()}
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
    order = order_of(key)
    return item[order], firsts(key, size)


def _none_left(counts: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Counts one less for each time that a number is told; the numbers whose count comes to 0 by that."""
    np.subtract.at(counts, told, 1)
    return distinct(told[counts[told] == 0])


class _Lists:
    """Items by key."""

    def __init__(self, key: np.ndarray, item: np.ndarray, size: int) -> None:
        self._items, self._begin = _by(key, item, size)
        self._listed = self._items.tolist() if len(item) <= _LISTED else self._items
        self._at = self._begin.data

    def of(self, key: int) -> list[int]:
        """The items of a key."""
        found = self._listed[self._at[key] : self._at[key + 1]]
        return found if isinstance(found, list) else found.tolist()

    def of_many(self, keys: np.ndarray) -> np.ndarray:
        """The items of some keys, key by key."""
        return self._items[indices(self._begin[keys], self._begin[keys + 1])]
