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

A frame that counts ends from its lower bound on. What is missing at register n is paid for apart (`counter_costs`): from
every control that may end the frame, one token (and what it opens) begins some more iterations and comes to an end again.
Distances within a frame are those of ways that begin no more iterations than they must, so they are open whatever the
register.

Frames with a set of keys: see `guard_costs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.integers import distinct, numbered
from fsa_compile.arrays.ranges import ranges, segment_starts, spread
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.automata.standing import standing_at
from fsa_compile.composition.pushdown.arcs import Places, StackArcs
from fsa_compile.composition.pushdown.call_sets import CallSets, Leaves, nested_ways, within
from fsa_compile.composition.pushdown.counter_costs import STRIDE, Doing, Rests, Windows
from fsa_compile.composition.pushdown.guard_costs import Pairs, SetCosts
from fsa_compile.composition.pushdown.least_fixpoint import Waits, Ways, least_sums, least_values
from fsa_compile.composition.pushdown.token_groups import Effects, Groups
from fsa_compile.limits import Deadline

_FAR = int(UNREACHABLE)
_DOING = "bounding the rest of a text"
_MOST_ROUNDS = 64
_MOST_NARROWED = 1 << 19
_WRITTEN = 1 << 16
"""Up to this many token sets, ways are looked at written out."""
_Values: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
_Standing: TypeAlias = set[tuple[int, int]]
_Iterating: TypeAlias = Callable[[np.ndarray], np.ndarray]
_After: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Costs(NamedTuple):
    """Bounds; `UNREACHABLE` where there is no way to the end.

    Attributes:
      distance, need: int64[S], by control; `distance` without what is missing up to a lower bound.
      symbol_cost, symbol_need: int64[P], likewise.
      effect_cost, effect_need: int64[E], of the distinct effects of token sets, the token included; without what is missing in
        the node's own frame.
      rests: tokens for missing iterations, by kind of frame.
      effect: int64[G], the effect of each token set.
      sets: weights of missing keys, and what they change; None where no frame has a set.
    """

    distance: np.ndarray
    need: np.ndarray
    symbol_cost: np.ndarray
    symbol_need: np.ndarray
    effect_cost: np.ndarray
    effect_need: np.ndarray
    rests: Rests
    effect: np.ndarray
    sets: SetCosts | None = None

    @property
    def group_cost(self) -> np.ndarray:
        """int64[G], of each token set."""
        return self.effect_cost[self.effect]

    @property
    def stuck(self) -> bool:
        """Whether some token set leads to no end."""
        return bool((self.effect_cost >= _FAR).any() and (self.group_cost >= _FAR).any())

    def at_most(self, bound: int) -> Costs:
        """The same with no value above the bound."""
        names = ("distance", "need", "symbol_cost", "symbol_need", "effect_cost", "effect_need")
        values = {name: getattr(self, name) for name in names}
        least = {name: np.minimum(some, bound) for name, some in values.items() if some.max(initial=0) > bound}
        return self._replace(rests=self.rests.at_most(bound), **least)


def costs_of(machine: ByteMachine, arcs: StackArcs, groups: Groups, deadline: Deadline) -> Costs:
    """Least bounds of all controls, symbols and token sets.

    Needs come first, so that texts fit into the least stack. A way of few cells may come back to where it began, though: where
    this leaves the start without a distance, the needs are those of the cheapest ways. Endings that no token goes on from forbid
    a bound; where one is missing, only those count whose symbol may lie on top there.
    """
    bounds = _Bounds(machine, arcs, groups, deadline)
    found, standing = bounds.found(), None
    if found.stuck and bounds.can_be_narrowed:
        standing = bounds.standing(machine, groups)
        other = _Bounds(machine, arcs, groups, deadline, standing).found()
        found = other if other.distance[machine.start] < _FAR else found
    if found.distance[machine.start] < _FAR:
        return found
    cheapest = _Bounds(machine, arcs, groups, deadline, standing).cheapest(machine.start)
    if cheapest is None:
        return found
    other = _Bounds(machine, arcs, groups, deadline, standing).found(cheapest)
    return other if other.distance[machine.start] < _FAR else found


class _Bounds:
    """The solution, step by step. The value of a place or symbol leaves out what is missing up to a lower bound."""

    def __init__(
        self, machine: ByteMachine, arcs: StackArcs, groups: Groups, deadline: Deadline, standing: _Standing | None = None
    ) -> None:
        self.places = places = Places(machine, arcs, standing)
        self.registers = registers = arcs.registers
        self.effects, self.deadline = Effects(groups, registers.set_kind[arcs.kind]), deadline
        self.num_controls, self.num_symbols = machine.num_controls, machine.num_symbols
        strings, length = groups.strings, groups.strings.length
        string = np.full((len(length), int(length.max())), self.num_symbols)
        register = np.zeros(string.shape, np.int64)
        at = spread(length * 0, length)
        string[at], register[at] = strings.symbol, strings.register
        effects, none = self.effects, np.zeros(0, np.int64)
        every = Ways(none, none, effects.target, effects.push, string, np.ones(len(effects.target), np.int64))
        self.written = self.does = Doing(registers, every, register, effects.set)
        self.first = groups.first
        self.size = self.real = len(places.node)
        written = machine.sets is not None or registers.counts or len(groups.node) <= _WRITTEN
        self.nested = None if written else groups.nested
        self.strays = np.isin(places.control[places.above], [] if machine.strays is None else machine.strays)
        self.may_close = np.zeros(len(places.node), bool)
        self.may_close[places.above] = True
        self.wanted = none if effects.sets is None else effects.sets.wanted.nonzero()[0]
        self.windows = Windows(registers, arcs.classes)
        self.sets: SetCosts | None = None
        if self.nested is not None:
            self._take_nested(*self.nested, arcs.derived.node)
        elif machine.sets is None:
            place, effect = self.every
            self._choose(place, effect, np.zeros(len(place), np.int64))
        else:
            place, effect = self.every
            self.sets = SetCosts(machine, registers, effects, places.node, places.control, place, effect)
            useful = self.sets.pairs
            self._choose(useful.place, useful.effect, useful.case)
        self.agreed = False
        self.waits: Waits | None = None
        self.in_order = self.sets is None and not registers.low.any()
        self.iterates, self.must_iterate = (none, none), none
        if registers.counts:
            self._separate_iterations()

    @cached_property
    def every(self) -> tuple[np.ndarray, np.ndarray]:
        """(place, effect) of every way, written out."""
        place, group = ranges(self.first[self.places.node], self.first[self.places.node + 1])
        effect = self.effects.of_group[group]
        if self.effects.sets is not None:  # halves of a token set may do the same
            place, effect = np.divmod(distinct(place * len(self.effects.target) + effect), len(self.effects.target))
        return place, effect

    def _take_nested(self, sets: CallSets, leaves: Leaves, derived: np.ndarray) -> None:
        """Takes ways through sets that are called; those of derived controls are written out."""
        node, of_group = self.places.node.copy(), self.effects.of_group
        full = np.isin(node, derived).nonzero()[0]
        which, group = ranges(self.first[node[full]], self.first[node[full] + 1])
        node[full] = -1
        effect, number = numbered(of_group[group])
        written = full[which], number, self.written.target[effect], self.written.string[self.written.push[effect]]
        self._take(*nested_ways(sets, leaves, node, written, self.num_controls, self.num_symbols))

    def _take(self, ways: Ways, size: int) -> None:
        """Takes ways of their own effects, and so many places, from the first one behind the real ones on those of sets."""
        self.does, self.waits = Doing(self.registers, ways, ways.string, ways.push), None
        self._choose(ways.place, ways.effect, np.zeros(len(ways.place), np.int64))
        places, more, self.size = self.places, np.zeros(size - self.real, np.int64), size
        places.kind = np.append(places.kind[: self.real], more)
        places.ends, self.may_close = (np.append(some[: self.real], more > 0) for some in (places.ends, self.may_close))

    @property
    def can_be_narrowed(self) -> bool:
        """Whether some endings go on with no token, and it takes little to find where these are."""
        below = self.places.below
        return bool((below < 0).any()) and len(self.every[0]) + len(below) <= _MOST_NARROWED

    def standing(self, machine: ByteMachine, groups: Groups) -> _Standing:
        """(place, symbol) where the symbol may lie on top of the stack."""
        places, effects, known = self.places, self.effects, self.places.below >= 0
        place, effect = self.every
        edges = place, effects.target[effect], effects.push[effect]
        returns = places.above[known], places.symbol[known], places.below[known]
        return standing_at(edges, groups.strings, returns, (machine.start, machine.stack), machine.num_symbols)

    def cheapest(self, start: int) -> tuple[np.ndarray, np.ndarray] | None:
        """bool[W], ways that are cheapest from their places, whatever they need; bool[Q], likewise endings. None where no way
        leads from the start to an end."""
        if self.sets is not None:
            self.sets.count_leads()
            self.agreed = True
        best = np.full((len(self.must_iterate), STRIDE + 2), _FAR)
        distance, symbol_cost, known, asked = self._at_most(self._token_costs, self._costs_after, self._iterating, best, 1)
        if distance[start] >= _FAR:
            return None
        ways = self._token_costs(distance, symbol_cost, known)[self.effect] <= distance[self.place]
        return ways, self.may_close & (self._ending(asked) <= distance)

    def found(self, among: tuple[np.ndarray, np.ndarray] | None = None) -> Costs:
        """The bounds.

        Args:
          among: the ways and endings that needs are of; None: all.
        """
        every = self.place, self.effect, self.case, self.may_close
        if among is not None:
            ways, self.may_close = among
            self._choose(self.place[ways], self.effect[ways], self.case[ways])
        need, symbol_need, token_need = self._find_needs()
        *chosen, self.may_close = every
        self._choose(*chosen)
        if self.nested is not None and among is not None:
            need, token_need = self._of_all_ways(need, symbol_need)
        self._select(token_need, need, symbol_need)
        distance, symbol_cost, known = self._find_costs()
        if self.nested is not None:
            self.does = self.written
            token_need = self._token_needs(need, symbol_need, np.zeros(len(self.registers.low), np.int64))
        token_cost = self._token_costs(distance, symbol_cost, known)
        if self.sets is not None:
            token_cost = self.sets.effect_costs(self._costs_apart(distance, symbol_cost, known))
        s = self.num_controls
        rests = self._rests(known)
        of_group = self.effects.of_group
        of_control = need[:s] if self.sets is None else self.sets.of_nodes(need)
        return Costs(distance[:s], of_control, symbol_cost, symbol_need, token_cost, token_need, rests, of_group, self.sets)

    def _find_needs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Needs of places, symbols and effects."""
        most = np.where(self.registers.low > 0, _FAR, 0)
        rounds = 0
        while True:
            need, symbol_need, more = self._solved(self._token_needs, self._needs_after, self._iteration_needs, most, 0)
            need = np.maximum(need, more[self.places.kind])
            symbol_need = np.maximum(symbol_need, more[self.registers.of_symbol])
            if self.sets is None:
                return need, symbol_need, self._token_needs(need, symbol_need, more)

            def token_needs(of_target: np.ndarray) -> np.ndarray:
                return self._needs_apart(of_target, symbol_need, more)  # noqa: B023

            if self.sets.settle_needs(token_needs, need):
                token_need = self.sets.needs(token_needs, need)
                self.sets.select(token_need, need)
                self.sets.count_leads()
                self.agreed = True
                return need, symbol_need, token_need
            self.sets.check_rounds(rounds)
            rounds += 1

    def _find_costs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Costs of places, symbols and iterations."""
        best = np.full((len(self.must_iterate), STRIDE + 2), _FAR)
        while True:
            distance, symbol_cost, known = self._solved(self._token_costs, self._costs_after, self._iterating, best, 1)
            if not self.windows.lengthen(known, self.places.kind[self.must_iterate]):
                break
        for rounds in range(1 if self.sets is None else 1_000):
            if self.sets is None or self.sets.settle(self._costs_apart(distance, symbol_cost, known), distance):
                break
            self.sets.check_rounds(rounds)
            distance, symbol_cost, known = self._solved(self._token_costs, self._costs_after, self._iterating, known, 1)
        return distance, symbol_cost, known

    def _separate_iterations(self) -> None:
        """From now on, tokens that begin iterations count only where a frame cannot end without; where it can, they are kept
        apart as ways to begin one more."""
        places, effects = self.places, self.effects
        # One node for each place, and behind them one for each symbol: the place after any return.
        size = len(places.node)
        first = np.concatenate((places.ends | self.may_close, np.zeros(self.num_symbols, bool)))
        string, length = self.does.string, self.does.length
        bottom = np.where(length > 0, string[:, 0], 0) if string.shape[1] else length
        after = np.where(effects.push > 0, size + bottom[effects.push], effects.target)
        known = (places.below >= 0).nonzero()[0]
        value = least_sums(
            first,
            np.concatenate((self.place, size + places.symbol[known])),
            np.concatenate((after[self.effect], places.below[known])),
            np.concatenate((effects.add[self.effect], np.zeros(len(known), np.int64))),
            _FAR,
        )
        after = value[after]
        begun = (effects.add + after)[self.effect]
        closes = (places.ends | self.may_close) & (self.registers.low[places.kind] > 0)
        added = effects.add[self.effect]
        iterates = closes[self.place] & (added > 0) & (begun == added)
        stays = closes.copy()
        stays[self.place[iterates & (added == 1)]] = False  # cannot go on below the lower bound: not an end that counts
        self.may_close &= ~stays
        iterates &= ~stays[self.place]
        self.iterates = self.place[iterates], self.effect[iterates]
        self.must_iterate = (closes & ~stays).nonzero()[0]
        few = begun <= value[self.place]
        self._choose(self.place[few], self.effect[few], self.case[few])

    def _select(self, token_need: np.ndarray, need: np.ndarray, symbol_need: np.ndarray) -> None:
        """From now on, only tokens and endings within each place's need count."""
        self.may_close &= self._ending(self._needs_after(need, symbol_need)) <= need
        if self.nested is not None:
            self._take(*within(self._ways, token_need, need[: self.real], self.size, _FAR, self.deadline))
            return
        fits = token_need[self.effect] <= need[self.place]
        self._choose(self.place[fits], self.effect[fits], self.case[fits])
        place, effect = self.iterates
        fits = token_need[effect] <= need[place]
        self.iterates = place[fits], effect[fits]

    def _of_all_ways(self, need: np.ndarray, symbol_need: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(needs of places, those of called sets by all their ways; needs of effects)."""
        need, more = need.copy(), np.zeros(len(self.registers.low), np.int64)
        need[self.real :] = _FAR
        while True:
            self.deadline.check(_DOING)
            values = self._token_needs(need, symbol_need, more)
            new = self._by_token(values)[self.real :]
            if (new == need[self.real :]).all():
                return need, values
            need[self.real :] = new

    def _choose(self, place: np.ndarray, effect: np.ndarray, case: np.ndarray) -> None:
        self.place, self.effect, self.case, self.begin = place, effect, case, segment_starts(place)
        if self.sets is not None:
            self.pairs = Pairs(place, case, effect, self.sets.came)

    def _token_needs(self, need: np.ndarray, symbol_need: np.ndarray, more: np.ndarray) -> np.ndarray:
        needs = self._needs_apart(need[self.does.target], symbol_need, more)
        needs[self.wanted] = _FAR
        return needs

    def _needs_apart(self, of_target: np.ndarray, symbol_need: np.ndarray, more: np.ndarray) -> np.ndarray:
        """Needs of token sets from those of their targets' frames."""
        does, width = self.does, self.does.string.shape[1]
        string, low = np.append(symbol_need, -width)[does.string], self.registers.low.any()
        if low:
            string = np.maximum(string, np.where(does.missing > 0, more[does.kind], 0))
        string = np.where(does.string < self.num_symbols, string + np.arange(width), 0).max(1, initial=0)
        out = of_target
        if low:
            out = np.maximum(out, np.where(does.target_missing > 0, more[does.target_kind], 0))
        out, at, push = out.copy(), does.calling, does.push[does.calling]
        out[at] = np.maximum(out[at] + does.length[push], string[push])
        return np.minimum(out, _FAR, out=out)

    def _token_costs(self, distance: np.ndarray, symbol_cost: np.ndarray, best: np.ndarray) -> np.ndarray:
        values = self._costs_apart(distance, symbol_cost, best)
        values[self.wanted] = _FAR
        return values

    def _costs_apart(self, distance: np.ndarray, symbol_cost: np.ndarray, best: np.ndarray) -> np.ndarray:
        """Costs without the values of controls where required keys are next."""
        does = self.does
        string, own = np.append(symbol_cost, 0)[does.string], distance[does.target]
        if self.registers.low.any():
            rests = self._rests(best)
            string = string + rests.at(does.kind, does.register)
            own = own + rests.at(does.target_kind, does.final)
        if self.sets is not None:
            own[self.wanted] = 0
            opening, weight = self.sets.opened(distance)
            own[opening] += weight
        own += does.tokens
        own[does.calling] += string.sum(1)[does.push[does.calling]]
        return np.minimum(own, _FAR, out=own)

    def _rests(self, best: np.ndarray) -> Rests:
        return self.windows.rests(best, self.places.kind[self.must_iterate])

    def _needs_after(self, need: np.ndarray, symbol_need: np.ndarray) -> np.ndarray:
        """What each ending asks of the control that ends the frame, beyond what the popped symbol allows."""
        below = np.append(need, _FAR)[self.places.below]
        return np.where(below <= symbol_need[self.places.symbol], 0, np.where(below >= _FAR, _FAR, below - 1))

    def _costs_after(self, distance: np.ndarray, symbol_cost: np.ndarray) -> np.ndarray:
        below = np.append(distance, _FAR)[self.places.below]
        allowed = symbol_cost[self.places.symbol]
        return np.where((below >= _FAR) | (allowed >= _FAR), _FAR, np.maximum(below - allowed, 0))

    def _ending(self, asked: np.ndarray, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The most that any ending asks of each place, others than some nothing; nothing where the text may end, `UNREACHABLE`
        where nothing ends."""
        out = np.where(self.may_close, 0, _FAR)
        np.maximum.at(out, self.places.above[among], asked)
        out = np.where(self.places.ends, 0, out)
        return out if self.sets is None or self.agreed else self.sets.raised(out)

    def _by_token(self, values: np.ndarray) -> np.ndarray:
        """The least of each place's token sets."""
        if self.sets is not None:
            out = self.pairs.least_of_each(values, self.size)
            self.sets.agree(out, costs=self.agreed)
            return out if self.agreed else self.sets.raised(out)
        out = np.full(self.size, _FAR)
        if len(self.begin):
            out[self.place[self.begin]] = np.minimum.reduceat(values[self.effect], self.begin)
        return out

    def _iteration_needs(self, values: np.ndarray) -> np.ndarray:
        """int64[F], what one more iteration takes at most, by kind of frame; 0 where there is no lower bound."""
        out = np.zeros(len(self.registers.low), np.int64)
        if self.registers.counts:
            at = self.must_iterate
            np.maximum.at(out, self.places.kind[at], self._iterating(values)[:, 1])
        return out

    def _iterating(self, values: np.ndarray) -> np.ndarray:
        """int64[n, STRIDE + 2], the least value of the tokens that begin k iterations, of the places that have to begin some;
        the last column is that of more than `STRIDE`."""
        out = np.full((len(self.must_iterate), STRIDE + 2), _FAR)
        place, effect = self.iterates
        row = self.must_iterate.searchsorted(place)
        np.minimum.at(out, (row, np.minimum(self.effects.add[effect], STRIDE + 1)), values[effect])
        return out

    def _solved(
        self, token_values: _Values, values_after: _After, iterating: _Iterating, unknown: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values of all places, symbols, and of iterations that satisfy all rules.

        Args:
          token_values: of all effects, from those of places, symbols and iterations.
          values_after: what each ending asks of its control, from those of places and symbols.
          iterating: values of iterations from those of effects.
          unknown: values of iterations to begin with.
          step: what one token adds: 1 for costs, 0 for needs.
        """
        value, symbol, iteration, _ = self._at_most(token_values, values_after, iterating, unknown, step)
        while True:  # symbols settled, controls pay no more than the difference
            self.deadline.check(_DOING)
            new = self._by_token(token_values(value, symbol, iteration))
            new = np.minimum(value, np.minimum(new, self._ending(values_after(value, symbol))))
            if (new == value).all():
                return value, symbol, iteration
            value = new

    def _at_most(
        self, token_values: _Values, values_after: _After, iterating: _Iterating, unknown: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Values of all places, symbols and of iterations, and int64[E], what endings ask of their controls."""
        places = self.places
        left_out = self.strays.copy()
        while True:
            self.deadline.check(_DOING)
            if self.in_order:
                value, symbol, iteration = *self._in_order(step, left_out), unknown
            else:
                value, symbol, iteration = self._least(token_values, iterating, unknown, left_out)
            below = np.append(value, _FAR)[places.below]
            known = below < _FAR
            some = np.zeros(self.num_symbols, bool)
            some[places.symbol[known]] = True
            more = ~left_out & ~known & (some & (symbol >= _FAR))[places.symbol]
            if not more.any():
                break
            left_out |= more
        found = None
        if self.strays.any() and (value >= _FAR).any():
            found = self._from_below(token_values, values_after, iterating, unknown)
        return found or (value, symbol, iteration, np.where(left_out, below, 0))

    def _from_below(
        self, token_values: _Values, values_after: _After, iterating: _Iterating, unknown: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """What `_at_most` finds when strays ask for no more than the difference; None where this does not settle.

        After a stray, another may be the shortest way on, through all frames of a stack; paid in full, that would never end.
        """
        asked = np.zeros(len(self.places.above), np.int64)
        for _ in range(_MOST_ROUNDS):
            value, symbol, iteration = self._least(token_values, iterating, unknown, self.strays, asked)
            more = np.where(self.strays, values_after(value, symbol), 0)
            if (more <= asked).all():
                return value, symbol, iteration, asked
            asked = np.maximum(asked, more)
        return None

    @property
    def _ways(self) -> Ways:
        does = self.does
        return Ways(self.place, self.effect, does.target, does.push, does.string, does.tokens)

    def _in_order(self, step: int, left_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `_least` finds where no frame has a lower bound or a set."""
        places, ways, waits = self.places, self._ways, self.waits
        first = self.may_close.copy()
        first[places.above[left_out]] = False
        if waits is None or left_out.any():
            returns, paid = ~left_out, left_out & self.may_close[places.above]
            waits = Waits(
                ways,
                (places.symbol[returns], places.below[returns]),
                (places.above[paid], places.below[paid]),
                self.size,
                self.num_symbols,
            )
            self.waits = None if left_out.any() else waits
        return least_values(places.ends | first, ways, waits, step, _FAR)

    def _least(
        self,
        token_values: _Values,
        iterating: _Iterating,
        iteration: np.ndarray,
        left_out: np.ndarray,
        asked: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Least values, from above, when the endings left out are paid for by their controls: in full where `asked` is None."""
        places, width = self.places, self.size + 1
        pairs = distinct((places.symbol * width + places.below + 1)[~left_out])
        begin = segment_starts(pairs // width)
        returned, paid_below = pairs[begin] // width, pairs % width - 1
        known = np.full(width, _FAR)  # the last one stands for no place
        full = (left_out if asked is None else np.zeros_like(left_out)).nonzero()[0]
        ending = self._ending(np.zeros(len(places.above), np.int64) if asked is None else asked)
        while True:
            self.deadline.check(_DOING)
            symbol = np.full(self.num_symbols, _FAR)
            if len(begin):
                symbol[returned] = np.maximum.reduceat(known[paid_below], begin)
            values = token_values(known[:-1], symbol, iteration)
            new = np.minimum(self._by_token(values), self._ending(known[places.below[full]], full) if len(full) else ending)
            more = iterating(values) if self.registers.counts else iteration
            if (new == known[:-1]).all() and (more is iteration or (more == iteration).all()):
                return new, symbol, iteration
            known[:-1], iteration = new, more
