"""Bounds in frames with a set of keys: what required keys that have not come still take, and why some token always helps.

The bound of a configuration has, for every frame, the weights of its required keys that have not come. After a member, the rest
of a frame's bound is what ending it takes; the weight of a key is what its whole member takes. Between a comma and the end of a
key there are two cases: some required key that may come next has not come (`wanted`; the key about to be read brings its weight
back), or none (then it is one more key than there must be). In either case, whatever key of the case is free, there is a token on
the way to it after which the bound is smaller: the value of a control is the largest, over those keys, of the least of the tokens
that lead to the key. Of keys that are not required, only so many can have come; so many of the least values do not count.

Needs likewise, but that required keys raise the need of the whole frame, wherever it stands.

Weights are found by counting the tokens to the end of each key, and raised until the values of `wanted` controls that members
are followed by fit below those of the ends: keys that begin alike can make this necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fsa_compile.arrays.integers import distinct, equal_tuples, numbered
from fsa_compile.arrays.ranges import segment_sizes, segment_starts, spread
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.artifact.guards import Guard
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.counter_classes import Registers
from fsa_compile.composition.pushdown.token_groups import Effects
from fsa_compile.errors import NoBoundError

_FAR = int(UNREACHABLE)
_MOST_ROUNDS = 64
_COSTS, _WANTED, _CHECKED, _GOING_ON = range(4)
"""Roles of a pair: in a place's own cost; in that of `wanted`; as what must fit; in the cost where nothing ends the object."""


class Pairs:
    """Which effects may be the one that helps, and in which of their places' cases.

    Args:
      place, case, effect: int64[n] each, an effect at a place; pairs of a place with one case are alternatives, all cases count.
      keys: by place, int64[Q], how many of the cases may be out of the question, at most, and bool[Q, K], those that are not, of
        which the least value is enough; None: all but one may.

    Attributes:
      place, effect, case: the same by ascending place and case.
    """

    def __init__(
        self, place: np.ndarray, case: np.ndarray, effect: np.ndarray, keys: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        cases, effects = int(case.max(initial=0)) + 1, int(effect.max(initial=0)) + 1
        assert (int(place.max(initial=0)) + 1) * cases * effects < 1 << 63  # far more would not fit in memory
        key = (place * cases + case) * effects + effect
        key.sort()
        which, self.effect = np.divmod(key, effects)
        self.place, self.case = np.divmod(which, cases)
        self._begin = segment_starts(which)
        begun = self.place[self._begin]
        self._first = segment_starts(begun)
        self._places = begun[self._first]
        count = segment_sizes(self._first, len(begun))
        several = (count > 1).nonzero()[0]
        self._several, self._count = self._places[several], count[several]
        self._which, self._cases = spread(self._first[several], self._count)
        self._heads = self._count.cumsum() - self._count
        self._keys = keys
        if keys is not None:
            came, new = keys
            self._certain = new[begun[self._cases], self.case[self._begin[self._cases]]]
            self._came = came[self._several]
            between = (self._came > 0) & (self._came < self._count - 1)
            self._between = between.nonzero()[0]
            self._inner = between[self._which].nonzero()[0]

    def of(self, chosen: np.ndarray) -> Pairs:
        """Some of them, all cases of which count."""
        return Pairs(self.place[chosen], self.case[chosen], self.effect[chosen])

    def least_of_each(self, values: np.ndarray, size: int) -> np.ndarray:
        """int64[size], of every place the largest of its cases' least values; UNREACHABLE for places without any."""
        out = np.full(size, _FAR)
        if len(self._begin):
            least = np.minimum.reduceat(values[self.effect], self._begin)
            out[self._places] = least[self._first]
            if len(self._several):
                out[self._several] = self._largest(least[self._cases])
        return out

    def _largest(self, least: np.ndarray) -> np.ndarray:
        """The values of places with several cases from those of the cases."""
        if self._keys is None:
            return np.maximum.reduceat(least, self._heads)
        some = np.where(self._came > 0, np.maximum.reduceat(least, self._heads), np.minimum.reduceat(least, self._heads))
        if len(self._between):
            of, ordered = self._which[self._inner], least[self._inner]
            ordered = ordered[np.lexsort((ordered, of))]
            count = self._count[self._between]
            some[self._between] = ordered[count.cumsum() - count + self._came[self._between]]
        return np.minimum(some, np.minimum.reduceat(np.where(self._certain, least, _FAR), self._heads))


class SetCosts:
    """Weights, and the cases of places in frames with sets.

    Attributes:
      pairs: of all places, apart from the case of `wanted`.
      came: int64[Q], the most keys that may have come, of those that are not required; bool[Q, K], the keys that have not.
      wanted: of every control that has required keys next, its cost in that case; else UNREACHABLE.
      wanted_need: likewise.
      floor: by kind, cells that reading required keys may take.
    """

    def __init__(
        self, machine: ByteMachine, registers: Registers, effects: Effects, node: np.ndarray, control: np.ndarray,
        place: np.ndarray, effect: np.ndarray,
    ) -> None:  # fmt: skip
        assert machine.sets is not None
        assert effects.sets is not None
        self._sets, self._effects, self._of = machine.sets, effects, effects.sets
        self._node, self._control = node, control
        self._required, self._others = machine.sets.required_next, machine.sets.others_next
        self._num_places = len(node)
        self._own_kind = machine.sets.kind[control]
        self._number_keys(machine, registers)
        self._find_pairs(place, effect)
        number, bits = dict[int, int](), range(int(self.pairs.case.max(initial=0)) + 1)
        row = np.array([number.setdefault(keys, len(number)) for keys in machine.sets.new])
        new = np.array([[keys >> bit & 1 for bit in bits] for keys in number], bool)
        self.came = machine.sets.came[control].astype(np.int64), new[row[control]]
        self.wanted = np.full(machine.num_controls, _FAR)
        self.wanted_need = np.full(machine.num_controls, _FAR)
        self.floor = np.zeros(len(machine.sets.required), np.int64)

    # weights

    def _number_keys(self, machine: ByteMachine, registers: Registers) -> None:
        """Numbers the required keys, and the (kind, set) pairs in which some may be missing."""
        sets, effects = self._sets, self._effects
        self._key_number: dict[tuple[int, int], int] = {}
        for kind, mask in enumerate(sets.required):
            for bit in _bits(mask):
                self._key_number[kind, bit] = len(self._key_number)
        self._key_kind = np.array([kind for kind, _ in self._key_number], np.int64)
        ends = (sets.end >= 0).nonzero()[0]
        pairs = [(self._key_number.get((int(sets.kind[c]), int(sets.end[c])), -1), int(c)) for c in ends]
        table = np.array([pair for pair in pairs if pair[0] >= 0], np.int64).reshape(-1, 2)
        self._end_key, self._end_control = table.T
        self.lead = np.ones(len(self._key_number), np.int64)
        self.weight = np.full(len(self._key_number), _FAR)
        lacking: dict[tuple[int, int], int] = {(0, 0): 0}

        def lack(kind: int, held: int) -> int:
            missing = sets.required[kind] & ~self._of.guards.all[held].set
            return lacking.setdefault((kind, missing), len(lacking)) if missing else 0

        of_control, of_symbol = registers.set_kind[registers.of_control], registers.set_kind[registers.of_symbol]
        longest = max(map(len, effects.strings))
        string = np.zeros((len(effects.strings), longest + 1), np.int64)
        for i, (entries, kept) in enumerate(zip(effects.strings, self._of.strings)):
            for k in range(1, len(entries)):
                string[i, k] = lack(int(of_symbol[entries[k][0]]), kept[k])
        target = np.zeros(len(effects.target), np.int64)
        # The frame of a text's first value becomes an object's frame without a push.
        opens = ((effects.push > 0) | (effects.kind == 0)) & (of_control[effects.target] > 0)
        brought = np.where(effects.push > 0, self._of.held, self._of.guard)
        for e in opens.nonzero()[0].tolist():
            target[e] = lack(int(of_control[effects.target[e]]), int(brought[e]))
        suspends = np.append(of_symbol, 0)[[entries[0][0] if entries else -1 for entries in effects.strings]][effects.push]
        begins = (effects.push > 0) & (effects.kind == 0) & (suspends > 0)
        suspended = np.zeros(len(effects.target), np.int64)
        for e in begins.nonzero()[0].tolist():
            suspended[e] = lack(int(suspends[e]), int(self._of.guard[e]))
        opening = ((target > 0) | (suspended > 0) | (string.max(1) > 0)[effects.push]).nonzero()[0]
        self._string, self._opening = string, (opening, target[opening], suspended[opening], effects.push[opening])
        pairs = [(i, self._key_number[kind, bit]) for (kind, missing), i in lacking.items() for bit in _bits(missing)]
        self._lacks, self._lacked = np.array(pairs, np.int64).reshape(-1, 2).T
        self._num_lacking = len(lacking)

    def opened(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64[n] each, effects that open frames in which some key is missing, and the weights of what is missing, from the
        values of places."""
        found = np.zeros(len(self.weight), np.int64)
        np.maximum.at(found, self._end_key, value[self._end_control])
        self.weight = np.minimum(np.where(found > 0, found - 1 + self.lead, _FAR), _FAR)
        missing = np.bincount(self._lacks, self.weight[self._lacked], self._num_lacking)
        missing = np.minimum(missing, _FAR).astype(np.int64)
        opening, target, suspended, push = self._opening
        return opening, np.minimum(missing[target] + missing[suspended] + missing[self._string].sum(1)[push], _FAR)

    def total(self, kind: int) -> int:
        """Sum of the weights of a kind of frame's required keys."""
        return self.of_keys(kind, self._sets.required[kind])

    def of_keys(self, kind: int, keys: int) -> int:
        """Sum of the weights of the required ones among some keys."""
        return sum(int(self.weight[self._key_number[kind, bit]]) for bit in _bits(keys & self._sets.required[kind]))

    def rewards(self) -> np.ndarray:
        """int64[E], weights of the required keys that effects bring."""
        guards, out = self._of.guards.all, np.zeros(len(self._effects.target), np.int64)
        brings = np.array([guard.set > 0 for guard in guards])[self._of.guard].nonzero()[0]
        pairs, which = numbered(self._effects.kind[brings] * len(guards) + self._of.guard[brings])
        of_pair = [self.of_keys(pair // len(guards), guards[pair % len(guards)].set) for pair in pairs.tolist()]
        out[brings] = np.array(of_pair, np.int64)[which]
        return out

    # cases

    def _find_pairs(self, place: np.ndarray, effect: np.ndarray) -> None:
        """Every pair of a place and an effect counts in the cases of its situation; few situations differ."""
        keyed = self._own_kind[place] > 0
        rest = (~keyed & ~self._of.wanted[effect]).nonzero()[0]
        place, effect, free = place[keyed], effect[keyed], (place[rest], np.zeros(len(rest), np.int64), effect[rest])
        control, target = self._control[place], self._effects.target[effect]
        leads = self._of.wanted[effect] & (self._effects.push[effect] == 0)
        sets, required = self._sets, _numbers(self._required)
        all_required = _numbers(sets.required)[self._own_kind[place]]
        profile = (all_required, _numbers(sets.keys)[control], sets.first[control], sets.open[control], sets.after[control])
        example, which = equal_tuples(
            *profile, required[control], self._others[control],
            self._of.guard[effect], self._of.wanted[effect], np.where(leads, 1 + required[target], 0),
        )  # fmt: skip
        situations = [self._situation(int(control[e]), int(effect[e])) for e in example.tolist()]
        cases = np.array([case for _, some in situations for case in some], np.int64).reshape(-1, 2)
        fixed = np.array([is_fixed for is_fixed, _ in situations], bool)
        self._fixed = distinct(place[fixed[which]])
        size = np.array([len(some) for _, some in situations], np.int64)
        at, row = spread((size.cumsum() - size)[which], size[which])
        rows = place[at], cases[row, 1], effect[at]
        role = cases[row, 0]
        ending = np.zeros(self._num_places, bool)
        ending[rows[0][role == _COSTS]] = True
        chosen = (role == _COSTS) | (role == _GOING_ON) & ~ending[rows[0]]  # the object cannot end yet
        columns = [np.concatenate((a, b[chosen])) for a, b in zip(free, rows)]
        self.pairs = Pairs(columns[0], columns[1], columns[2])
        self._wanted, self._checked = (Pairs(*[column[role == kind] for column in rows]) for kind in (_WANTED, _CHECKED))

    def _situation(self, c: int, e: int) -> tuple[bool, list[tuple[int, int]]]:
        """Whether a place's value is agreed on, and the cases in which an effect at a control counts, by their roles."""
        sets, guard, wants = self._sets, self._of.guards.all[self._of.guard[e]], bool(self._of.wanted[e])
        free_keys, required, all_required = _free_keys(guard), self._required[c], sets.required[sets.kind[c]]
        unmet = guard.all & ~all_required
        if sets.first[c]:
            role = _CHECKED if all_required else _COSTS
            return bool(all_required), [] if guard.all else [(role, 0)]
        out: list[tuple[int, int]] = []
        if sets.keys[c] or sets.open[c]:
            if not guard.all:
                out += [(_WANTED, j) for j in _bits(free_keys & required & self._leads_to(e, guard))]
            if not self._others[c]:
                return True, out
            if not wants and not guard.all & ~required:
                if sets.open[c]:
                    out += [(_COSTS, 0)] if not guard.unset else []
                else:
                    out += [(_COSTS, j) for j in _bits(free_keys & sets.keys[c] & ~all_required)]
        elif sets.after[c]:
            if not wants and not unmet:
                out += [] if guard.unset else [(_COSTS, 0)]
                out += [(_GOING_ON, j) for j in _bits(free_keys & ~all_required)] if guard.unset else []
            if not guard.all:
                out += [(_CHECKED, j) for j in _bits(free_keys & all_required & self._leads_to(e, guard))]
        elif not guard.conditional:
            out += [] if wants else [(_COSTS, 0)]
        return False, out

    def _leads_to(self, effect: int, guard: Guard) -> int:
        """The required keys that an effect brings, or that are nearer after it."""
        wants = self._of.wanted[effect] and not self._effects.push[effect]
        return guard.set | (self._required[self._effects.target[effect]] if wants else 0)

    def agree(self, values: np.ndarray, *, costs: bool) -> None:
        """Puts in the values of places that are agreed on: one token ends such a frame (UNREACHABLE where some required key
        cannot come); as to needs, what the frame needs anyway."""
        weights = np.bincount(self._key_kind, self.weight, len(self._sets.required))
        far = costs & (weights >= _FAR)
        values[self._fixed] = np.where(far[self._own_kind[self._fixed]], _FAR, int(costs)) if far.any() else int(costs)

    def raised(self, needs: np.ndarray) -> np.ndarray:
        """Needs of places with those of their frames' required keys."""
        if not self.floor.any():
            return needs
        return np.where(needs < _FAR, np.maximum(needs, self.floor[self._own_kind]), needs)

    def settle_needs(self, effect_needs: Callable[[np.ndarray], np.ndarray], need: np.ndarray) -> bool:
        """Finds the needs of `wanted` controls; raises `floor` where reading a required key takes more.

        Args:
          effect_needs: needs of all effects from those of their targets.
          need: of all places.

        Returns:
          Whether no floor was raised.
        """
        own, inner = self._own_and_inner()
        self.wanted_need = np.full(len(self.wanted), _FAR)
        floor = self.floor[self._sets.kind]
        while True:
            values = effect_needs(self._targets(need))
            new = own.least_of_each(values, self._num_places)[: len(self.wanted)]
            new = np.where(new < _FAR, np.maximum(new, floor), new)
            if (new == self.wanted_need).all():
                break
            self.wanted_need = new
        raised = self.floor.copy()
        for pairs in (self._checked, inner):
            least = pairs.least_of_each(values, self._num_places)
            at = distinct(pairs.place)
            at = at[least[at] < _FAR]
            np.maximum.at(raised, self._own_kind[at], least[at])
        same = bool((raised == self.floor).all())
        self.floor = raised
        return same

    def _own_and_inner(self) -> tuple[Pairs, Pairs]:
        """The pairs of the case of `wanted`: of controls, and of inner nodes."""
        own = self._node[self._wanted.place] == self._control[self._wanted.place]
        return self._wanted.of(own), self._wanted.of(~own)

    def _targets(self, need: np.ndarray) -> np.ndarray:
        """int64[E], needs of the targets of effects."""
        target = self._effects.target
        return np.where(self._of.wanted, self.wanted_need[target], need[target])

    def needs(self, effect_needs: Callable[[np.ndarray], np.ndarray], need: np.ndarray) -> np.ndarray:
        """int64[E], needs of all effects."""
        return effect_needs(self._targets(need))

    def of_nodes(self, need: np.ndarray) -> np.ndarray:
        """int64[S], needs of controls in either case."""
        size = len(self.wanted)
        some = self.wanted_need < _FAR
        return np.where(some, np.maximum(need[:size], self.wanted_need), need[:size])

    def select(self, effect_need: np.ndarray, need: np.ndarray) -> None:
        """From now on, only effects within each place's need count."""
        size = len(self.wanted)
        own = np.append(self.wanted_need, np.full(self._num_places - size, _FAR))
        wanted = np.where(np.arange(self._num_places) < size, own, self.raised(need))
        for name, most in (("_wanted", wanted), ("_checked", need)):
            pairs: Pairs = getattr(self, name)
            setattr(self, name, pairs.of(effect_need[pairs.effect] <= most[pairs.place]))

    # the case that required keys are next

    def count_leads(self) -> None:
        """Sets `lead`: tokens from the end of a member to the end of each required key, the last of them included."""
        effects, pairs = self._effects, self._wanted
        control = np.concatenate((self._control[pairs.place], self._control[self._checked.place]))
        own = np.concatenate((self._node[pairs.place] == self._control[pairs.place], np.zeros(len(self._checked.place), bool)))
        effect = np.concatenate((pairs.effect, self._checked.effect))
        key = np.concatenate((pairs.case, self._checked.case))
        first = self._sets.first[control]
        control, own, effect, key = control[~first], own[~first], effect[~first], key[~first]
        brings = np.array([guard.set for guard in self._of.guards.all], object)[self._of.guard[effect]]
        done = np.array([bool(mask >> k & 1) for mask, k in zip(brings, key.tolist())], bool)
        going = ~done & (effects.push[effect] == 0) & self._of.wanted[effect]
        length = np.full((len(self._sets.keys), int(key.max(initial=0)) + 1), _FAR)
        while True:
            value = np.where(done, 1, np.where(going, 1 + length[effects.target[effect], key], _FAR))
            new = np.full(length.shape, _FAR)
            np.minimum.at(new, (control[own], key[own]), value[own])
            if (new == length).all():
                break
            length = new
        best: dict[tuple[int, int], int] = {}
        for c, k, v in zip(control[~own].tolist(), key[~own].tolist(), value[~own].tolist()):
            best[c, k] = min(best.get((c, k), _FAR), v)
        for (c, k), v in best.items():
            number = self._key_number[int(self._sets.kind[c]), k]
            if v < _FAR:
                self.lead[number] = max(int(self.lead[number]), v)

    def settle(self, effect_costs: np.ndarray, value: np.ndarray) -> bool:
        """Finds the values of `wanted` controls; raises `lead` where they do not fit below the values of ends.

        Args:
          effect_costs: int64[E], without those of the targets of `wanted` effects, and without rewards.
          value: of all places.

        Returns:
          Whether all fit.
        """
        base = np.where(effect_costs >= _FAR, _FAR, effect_costs - self.rewards())
        pairs, inner = self._own_and_inner()
        self.wanted = np.full(len(self.wanted), _FAR)
        while True:
            costs = self._complete(base)
            new = pairs.least_of_each(costs, self._num_places)[: len(self.wanted)]
            if (new == self.wanted).all():
                break
            self.wanted = new
        costs = self._complete(base)
        excess: dict[int, int] = {}
        for kept in (self._checked, inner):
            least = kept.least_of_each(costs, self._num_places)
            at = distinct(kept.place)
            for p in at[(least[at] > value[at]) & (least[at] < _FAR) & (value[at] < _FAR)].tolist():
                kind = int(self._own_kind[p])
                excess[kind] = max(excess.get(kind, 0), int(least[p] - value[p]))
        for kind, more in excess.items():
            for bit in _bits(self._sets.required[kind]):
                self.lead[self._key_number[kind, bit]] += more
        return not excess

    def _complete(self, base: np.ndarray) -> np.ndarray:
        to = np.where(self._of.wanted, self.wanted[self._effects.target], 0)
        return np.where((base >= _FAR) | (to >= _FAR), _FAR, base + to)

    def effect_costs(self, effect_costs: np.ndarray) -> np.ndarray:
        """The costs of all effects, with the values of `wanted` controls and the rewards."""
        return self._complete(np.where(effect_costs >= _FAR, _FAR, effect_costs - self.rewards()))

    @staticmethod
    def check_rounds(number: int) -> None:
        """Weights of a machine of finite frames settle soon."""
        if number > _MOST_ROUNDS:
            raise NoBoundError


def _numbers(masks: Sequence[int]) -> np.ndarray:
    """A number for each mask, the same for equal ones."""
    known = {0: 0}
    return np.array([known.setdefault(mask, len(known)) if mask else 0 for mask in masks], np.int64)


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def _free_keys(guard: Guard) -> int:
    """Keys of which one that has not come is all that the conditions on unset bits ask for."""
    out = -1 if not guard.unset else guard.unset[0]
    for mask in guard.unset[1:]:
        out &= mask
    return out if out >= 0 else (1 << 257) - 1
