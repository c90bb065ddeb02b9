"""How many tokens and stack cells it takes to finish a frame: bounds under which a text can always be completed.

A configuration is safe within T tokens and H cells when

    distance[control] + sum of cost[symbol] over the stack <= T   and
    max(depth + need[control], max over cells i of i + need[symbol i]) <= H       (i: cells below the cell).

For every safe configuration that does not accept there is *one* token after which it is safe within T - 1 and H: a witness
for both limits at once. It is a token of the first place, on the way down the stack through frames that end at once, whose
bounds come from a token; that holds for all values that satisfy

* by a token of the place: need' = what the token's pushes and target need, distance' = 1 + cost of its pushes + distance of
  its target; only tokens that need no more than the place's own `need` count for `distance`;
* by ending the frame, whatever symbol lies on top: distance' >= distance of the place after popping it - cost[symbol], and
  likewise for `need`.

So an ending may be paid for by the symbol or by the control that ends the frame. The symbol pays where it can: cost[symbol]
is the most that any ending takes. Where an ending leads to the same symbol again (the word `not`, which another `not` may
follow, where an identifier would do), no such maximum exists; it is left out, and its control pays the difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fsa_compile.artifact import UNREACHABLE
from fsa_compile.byte_machine import END_HERE, ByteMachine
from fsa_compile.limits import Deadline
from fsa_compile.stack_groups import Groups, ranges
from fsa_compile.stack_walk import StackArcs
from fsa_compile.vocabulary_tables import segment_starts

_FAR = int(UNREACHABLE)
_DOING = "bounding the rest of a text"
_Values: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Costs:
    """Bounds; `UNREACHABLE` where there is no way to the end.

    Attributes:
      distance, need: int64[S], by control.
      symbol_cost, symbol_need: int64[P].
      group_cost, group_need: int64[G], the token included.
    """

    distance: np.ndarray
    need: np.ndarray
    symbol_cost: np.ndarray
    symbol_need: np.ndarray
    group_cost: np.ndarray
    group_need: np.ndarray


class _Places:
    """(node, control) pairs: the controls, and the controls that frames return to, at the inner nodes after the return.

    Attributes:
      node, control: int64[Q]; place c < S is control c.
      above, symbol, below: int64[E], ways to end a frame: from a place, popping a symbol, to a place (-1: no token goes on).
      ends: bool[Q], the text may end here.
    """

    def __init__(self, machine: ByteMachine, arcs: StackArcs) -> None:
        s = machine.num_controls
        numbers: dict[int, int] = {}
        node, control = [np.arange(s)], [np.arange(s)]
        above, symbol, below = [], [], []
        begin, count = 0, s
        while begin < count:
            at, popped = machine.ret[control[-1]].nonzero()
            there = machine.ret[control[-1][at], popped].astype(np.int64)
            child = arcs.delta[arcs.delta_row[node[-1][at]], popped]
            keys, first, which = np.unique(child * s + there, return_index=True, return_inverse=True)
            ids, new = np.full(len(keys), -1), []
            for j, k in enumerate(keys.tolist()):
                if k >= s:  # the dead node is none
                    if k not in numbers:
                        numbers[k] = count + len(new)
                        new.append(int(first[j]))
                    ids[j] = numbers[k]
            above.append(at + begin)
            symbol.append(popped)
            below.append(ids[which])
            node.append(child[new])
            control.append(there[new])
            begin, count = count, count + len(new)
        self.node, self.control = np.concatenate(node), np.concatenate(control)
        self.above, self.symbol, self.below = np.concatenate(above), np.concatenate(symbol), np.concatenate(below)
        self.ends = (machine.end[self.control] == END_HERE) & arcs.accept[self.node]


def costs_of(machine: ByteMachine, arcs: StackArcs, groups: Groups, deadline: Deadline) -> Costs:
    """Least bounds of all controls, symbols and token sets."""
    return _Bounds(machine, arcs, groups, deadline).found()


class _Bounds:
    def __init__(self, machine: ByteMachine, arcs: StackArcs, groups: Groups, deadline: Deadline) -> None:
        self.groups, self.deadline = groups, deadline
        self.places = places = _Places(machine, arcs)
        self.num_controls, self.num_symbols = machine.num_controls, machine.num_symbols
        first = np.searchsorted(groups.node, np.arange(len(arcs.node_owner) + 1))
        self.place, self.group = ranges(first[places.node], first[places.node + 1])
        longest = max(map(len, groups.strings))
        self.string = np.full((len(groups.strings), longest), self.num_symbols)
        for i, string in enumerate(groups.strings):
            self.string[i, : len(string)] = [symbol for symbol, _ in string]
        self.length = np.array([len(string) for string in groups.strings])
        self.may_close = np.zeros(len(places.node), bool)
        self.may_close[places.above] = True
        self._choose(np.ones(len(self.group), bool))

    def found(self) -> Costs:
        need, symbol_need = self._solved(self._group_needs, self._needs_after)
        group_need = self._group_needs(need, symbol_need)
        self._select(group_need, need, symbol_need)
        distance, symbol_cost = self._solved(self._group_costs, self._costs_after)
        group_cost = self._group_costs(distance, symbol_cost)
        s = self.num_controls
        return Costs(distance[:s], need[:s], symbol_cost, symbol_need, group_cost, group_need)

    def _select(self, group_need: np.ndarray, need: np.ndarray, symbol_need: np.ndarray) -> None:
        """From now on, only tokens and endings within each place's need count."""
        self._choose(group_need[self.group] <= need[self.place])
        self.may_close &= self._ending(self._needs_after(need, symbol_need)) <= need

    def _choose(self, which: np.ndarray) -> None:
        self.place, self.group = self.place[which], self.group[which]
        self.begin = segment_starts(self.place)
        self.with_groups = self.place[self.begin]

    def _group_needs(self, need: np.ndarray, symbol_need: np.ndarray) -> np.ndarray:
        padded = np.append(symbol_need, -self.string.shape[1])
        string = (padded[self.string] + np.arange(self.string.shape[1])).max(1, initial=0)
        push, target = self.groups.push, self.groups.target
        return np.minimum(np.maximum(self.length[push] + need[target], string[push]), _FAR)

    def _group_costs(self, distance: np.ndarray, symbol_cost: np.ndarray) -> np.ndarray:
        string = np.append(symbol_cost, 0)[self.string].sum(1)
        return np.minimum(1 + distance[self.groups.target] + string[self.groups.push], _FAR)

    def _needs_after(self, need: np.ndarray, symbol_need: np.ndarray) -> np.ndarray:
        """What each ending asks of the control that ends the frame, beyond what the popped symbol allows."""
        below = np.append(need, _FAR)[self.places.below]
        return np.where(below <= symbol_need[self.places.symbol], 0, np.where(below >= _FAR, _FAR, below - 1))

    def _costs_after(self, distance: np.ndarray, symbol_cost: np.ndarray) -> np.ndarray:
        below = np.append(distance, _FAR)[self.places.below]
        allowed = symbol_cost[self.places.symbol]
        return np.where((below >= _FAR) | (allowed >= _FAR), _FAR, np.maximum(below - allowed, 0))

    def _ending(self, asked: np.ndarray) -> np.ndarray:
        """The most that any ending asks of each place; nothing where the text may end, `UNREACHABLE` where nothing ends."""
        out = np.where(self.may_close, 0, _FAR)
        np.maximum.at(out, self.places.above, asked)
        return np.where(self.places.ends, 0, out)

    def _by_token(self, values: np.ndarray) -> np.ndarray:
        """The least of each place's token sets."""
        out = np.full(len(self.places.node), _FAR)
        if len(self.begin):
            out[self.with_groups] = np.minimum.reduceat(values[self.group], self.begin)
        return out

    def _solved(self, group_values: _Values, values_after: _Values) -> tuple[np.ndarray, np.ndarray]:
        """Values of all places and symbols that satisfy both rules.

        Args:
          group_values: of all token sets, from those of places and symbols.
          values_after: what each ending asks of its control, from the same.
        """
        places = self.places
        left_out = np.zeros(len(places.above), bool)
        while True:
            value, symbol = self._least(group_values, left_out)
            known = np.append(value, _FAR)[places.below] < _FAR
            some = np.zeros(self.num_symbols, bool)
            some[places.symbol[known]] = True
            more = ~left_out & ~known & (some & (symbol >= _FAR))[places.symbol]
            if not more.any():
                break
            left_out |= more
        while True:  # symbols settled, controls pay no more than the difference
            new = np.minimum(self._by_token(group_values(value, symbol)), self._ending(values_after(value, symbol)))
            new = np.minimum(new, value)
            if (new == value).all():
                return value, symbol
            value = new

    def _least(self, group_values: _Values, left_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least values, from above, when the endings left out are paid for in full by their controls."""
        places, paid = self.places, ~left_out
        value = np.full(len(places.node), _FAR)
        returned = np.zeros(self.num_symbols, bool)
        returned[places.symbol[paid]] = True
        while True:
            self.deadline.check(_DOING)
            below = np.append(value, _FAR)[places.below]
            symbol = np.where(returned, 0, _FAR)
            np.maximum.at(symbol, places.symbol[paid], below[paid])
            by_token = self._by_token(group_values(value, symbol))
            new = np.minimum(by_token, self._ending(np.where(left_out, below, 0)))
            if (new == value).all():
                return value, symbol
            value = new
