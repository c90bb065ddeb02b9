"""Makes the artifact of a machine with a stack: rows, arcs and levels of every class of every node, pushes and delta."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import distinct, exampled, firsts, numbered, order_of, ranked
from fsa_compile.arrays.ranges import joined, ranges, segment_sizes, segment_starts, spread
from fsa_compile.artifact.arrays import MOST_COUNT, NO_TEMPERATURE, UNBOUNDED, UNREACHABLE
from fsa_compile.artifact.artifact_checks import check_lengths
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.effects import arc_effects
from fsa_compile.artifact.stored_arrays import LEAST_BYTES, TokenSets, is_smaller, stored_arcs
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.arcs import StackArcs
from fsa_compile.composition.pushdown.call_sets import parts_and_calls
from fsa_compile.composition.pushdown.costs import Costs, costs_of
from fsa_compile.composition.pushdown.counter_classes import Registers
from fsa_compile.composition.pushdown.guard_arrays import SetLayout
from fsa_compile.composition.pushdown.guarded_groups import with_sets
from fsa_compile.composition.pushdown.nodes import Increments, Nodes
from fsa_compile.composition.pushdown.set_unions import LevelMembers, LevelRows, NarrowSets, RangeSums, SetRanges, Unions
from fsa_compile.composition.pushdown.spelling import bytes_not_alone, check_bounds_of_some
from fsa_compile.composition.pushdown.token_groups import Groups, groups_of
from fsa_compile.composition.regular.regular_artifact import unspellable
from fsa_compile.composition.tokens.artifact_builder import ArtifactBuilder
from fsa_compile.composition.tokens.budget_levels import Grid
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.errors import ConstraintError, NoBoundError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "assembling the artifact"


def _must_fit(fits: Any, _: str) -> None:
    if not fits:
        what = f"a text takes more tokens than counters hold ({MOST_COUNT:,})"
        raise ConstraintError(what, fix="Ask for fewer repetitions, items or characters at least, above all within each other.")


def _must_be_known(fits: Any, _: str) -> None:
    if not fits:
        raise NoBoundError


def assemble_machine(
    machine: ByteMachine,
    arcs: StackArcs,
    tables: VocabularyTables,
    *,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
    stacks: int,
) -> CompiledConstraint:
    """The artifact of a walked machine.

    Raises:
      UnspellableError: no token sequence spells an accepted text, or which do depends on the whole stack.
      ConstraintError: one token could pop any number of cells.
      LimitError: too many rows or bytes, or out of time.
    """
    single = machine.deterministic and machine.sets is None and not arcs.registers.counts
    parts, calls = parts_and_calls(arcs, tables, deadline)
    groups = groups_of(arcs, parts, calls, tables, deadline, deterministic=machine.deterministic, by_leaf=single)
    groups = with_sets(machine, arcs, groups)
    arcs = arcs.without_tokens()
    costs, groups = costs_of(machine, arcs, groups, deadline), dataclasses.replace(groups, nested=None)
    complete = not len(bytes_not_alone(machine, tables))
    if complete:  # every text can be finished; where no bound was found, only limits need one
        costs = costs.at_most(UNBOUNDED)
    else:
        check_bounds_of_some(machine, arcs, groups, costs, tables, source)
    registers = arcs.registers
    stack = list(machine.stack)
    missing = costs.rests.at(np.arange(len(registers.low)), np.zeros(1, np.int64))
    at_start = costs.distance[machine.start] + missing[registers.of_control[machine.start]]
    at_start += costs.symbol_cost[stack].sum() + missing[registers.of_symbol[stack]].sum()
    if at_start >= UNREACHABLE:
        raise unspellable(source)
    nodes = Nodes(machine, registers, arcs, groups, costs, complete=complete)
    deadline.check(_DOING)
    sets = None
    if groups.sets is not None and costs.sets is not None:
        sets = SetLayout(machine, registers, groups.sets, costs.sets)
        add, final, strings = sets.progress(groups, arcs.kind, costs.effect)
        groups = groups.with_effects(add, final, strings)
    layout = _Layout(machine, arcs.registers, groups, costs, nodes, RowPool(tables, limits), deadline, sets)
    made = layout.constraint(source, extra, stacks, arcs)
    check_lengths(made, _must_fit if sets is None else _must_be_known)
    return made


def _chosen(values: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Values at distinct places, ascending: the array itself where these are all."""
    return values if len(some) == len(values) else values.take(some)


def _sums(values: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The sum of each range, none of them empty."""
    which, at = ranges(begin, end)
    return np.add.reduceat(values[at], segment_starts(which)) if len(which) else values[:0]


class _Layout:
    """The artifact's arrays."""

    def __init__(
        self,
        machine: ByteMachine,
        registers: Registers,
        groups: Groups,
        costs: Costs,
        nodes: Nodes,
        pool: RowPool,
        deadline: Deadline,
        key_sets: SetLayout | None,
    ) -> None:
        self.machine, self.registers, self.groups, self.costs, self.nodes = machine, registers, groups, costs, nodes
        self.tables, self.pool, self.deadline, self.key_sets = pool.tables, pool, deadline, key_sets
        self.increments = Increments(pool.tables)
        self.n, self.alike = len(nodes.kind), np.arange(len(nodes.kind))
        self.sets = self._sets()
        self.sums = RangeSums(self.sets, groups)
        self.out = ArtifactBuilder(self.n)
        self._number_pushes()

    def _sets(self) -> SetRanges:
        """The token sets of every class: those that the loop's upper bound lets in, with what is missing to the lower one."""
        nodes, groups, costs, registers = self.nodes, self.groups, self.costs, self.registers
        if not registers.counts:
            group = nodes.groups
            number = nodes.number if self.key_sets is not None else nodes.number.astype(np.int32)
            node = number.take(_chosen(groups.node, group))
            one = np.broadcast_to(np.int64(1), len(group))
            sets = SetRanges(node, group, one)
        elif registers.low.any():
            whole = self._ranges()
            whole = whole._replace(cost=costs.group_cost[whole.group])
            pairs: Any = zip(whole, self._missing_some())  # which all have costs
            sets = SetRanges(*map(np.concatenate, pairs))
        else:
            sets = self._ranges()
        if self.key_sets is not None:
            sets = sets._replace(node=self._with_twins(sets.node, sets.group))
        if self.key_sets is not None or registers.low.any():
            sets = sets.at(order_of(sets.node))
        return sets

    def _ranges(self) -> SetRanges:
        """Token sets in classes of registers that no lower bound is missing anything to, as long ranges as there are."""
        nodes, groups, costs, registers = self.nodes, self.groups, self.costs, self.registers
        group = nodes.groups
        new = np.ones(len(group), bool)
        if groups.sets is None and len(group):
            np.greater(group[1:], group[:-1] + 1, out=new[1:])
            for column in (groups.node, groups.goal[groups.effect], costs.group_cost, costs.effect_need[costs.effect]):
                of_group = column[group]
                new[1:] |= of_group[1:] != of_group[:-1]
        begin = new.nonzero()[0]
        add = groups.effects.add[groups.effect[group]]
        width = int(add.max(initial=0)) + 1
        key = (new.cumsum() - 1) * width + add
        group = group[begin]
        # What a range adds ascends, so that in every class its first sets fit.
        kind = nodes.kind
        room = np.where(kind == 0, width - 1, np.clip(registers.high[kind] - nodes.value, -1, width - 1))
        of_node = firsts(groups.node[group], len(nodes.number))
        first = of_node[nodes.symbolic]
        size = of_node[nodes.symbolic + 1] - first
        closing = nodes.classes.ladder[nodes.shape, 1]
        size[nodes.place < closing] = 0
        if self.key_sets is None:
            size[self._repeated(room, closing, width)] = 0
        node, which = spread(first, size)
        count = key.searchsorted(which * width + room[node], side="right") - begin[which]
        some = (count > 0).nonzero()[0]
        group = group[which[some]]
        return SetRanges(node[some], group, count[some])

    def _repeated(self, room: np.ndarray, closing: np.ndarray, width: int) -> np.ndarray:
        """bool[N'], classes near an upper bound that the same token sets fit in as in the class before: no token begins just as
        many iterations as that one has room for. Fills in `alike`."""
        nodes, groups = self.nodes, self.groups
        out = nodes.place > closing + 1
        after = out.nonzero()[0]
        if not len(after) or not len(nodes.groups):
            return out
        begins = distinct(groups.node[nodes.groups] * width + groups.effects.add[groups.effect[nodes.groups]])
        asked = nodes.symbolic[after] * width + room[after - 1]
        out[after] = begins[np.minimum(begins.searchsorted(asked), len(begins) - 1)] != asked
        np.maximum.accumulate(np.where(out, 0, self.alike), out=self.alike)
        return out

    def _missing_some(self) -> SetRanges:
        """Token sets, each for itself, in the classes of registers below a lower bound, with what is then missing."""
        nodes, groups, costs, registers = self.nodes, self.groups, self.costs, self.registers
        base = nodes.number[groups.node[nodes.groups]]
        which, node = spread(base, nodes.classes.ladder[nodes.shape[base], 1])
        group = nodes.groups[which]
        begun, kind = groups.effects.add[groups.effect[group]], nodes.kind[node]
        after = nodes.value[node] + begun
        sloped = nodes.sloped(kind, nodes.place[node])
        rest = np.where(sloped, costs.rests.beyond(kind, begun), costs.rests.at(kind, after))
        cost = np.minimum(costs.group_cost[group] + rest, UNREACHABLE)
        fits = ((after <= registers.high[kind]) & (cost < UNREACHABLE)).nonzero()[0]
        group = group[fits]
        return SetRanges(node[fits], group, np.ones_like(fits), cost[fits])

    def _of_sets(self, values: np.ndarray) -> np.ndarray:
        """Values of the first token set of every range."""
        return _chosen(values, self.sets.group) if self.sets.single else values[self.sets.group]

    def _with_twins(self, node: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Nodes of token sets; those of guarded ones are twins of their own, behind all others."""
        assert self.key_sets is not None
        assert self.groups.sets is not None
        guarded = self.groups.sets.guard[group] > 0
        self.key_sets.twins, which = numbered(node[guarded])
        node = node.copy()
        node[guarded] = len(self.nodes.kind) + which.reshape(-1)
        self.n = len(self.nodes.kind) + len(self.key_sets.twins)
        self.alike = np.arange(self.n)
        return node

    def _number_pushes(self) -> None:
        """Numbers the push strings in use, int64 by their numbers in `groups`; the initial stack is one of them."""
        initial = tuple((symbol, 0) for symbol in self.machine.stack)
        every, sets = self.groups.strings.longer(initial), self.groups.sets
        held = np.zeros(len(every.symbol), np.int64)
        if sets is not None:
            held[: len(held) - len(initial)] = [guard for string in sets.strings for guard in string]
        pushed = np.zeros(len(every), bool)
        met = np.zeros(len(self.groups.effects.push), bool)
        met[self._of_sets(self.groups.effect)] = True
        pushed[self.groups.effects.push[met]] = pushed[0] = pushed[-1] = True
        used = pushed.nonzero()[0]
        number = ranked(every.hashes(held)[used])
        self.push = np.zeros(len(every), np.int64)
        self.push[used], self.initial = number, int(number[-1])
        first = np.empty(int(number.max()) + 1, np.int64)
        first[number[::-1]] = used[::-1]
        self.strings, self.held_strings = every.some(first), held[every.places(first)]

    def constraint(self, source: str, extra: dict[str, Any], stacks: int, arcs: StackArcs) -> CompiledConstraint:
        """The artifact; `arcs` are those of the walk."""
        wide, low, high = self._wide()
        self._groups(low, high)
        if not self._many_arcs(wide, low):
            self._arcs(~wide)
        self._levels()
        arrays = self._node_arrays() | self._symbol_arrays()
        if arcs.temperature is not None:
            own = np.append(arcs.temperature, np.float32(NO_TEMPERATURE))  # twins have none
            arrays["temperature"] = own[np.append(self.nodes.symbolic, np.full(self.n - len(self.nodes.symbolic), -1))]
        if self.key_sets is not None:
            arrays |= self._set_arrays(arrays, arcs)
        return self.out.constraint(
            self.tables,
            rows=self.pool.stored(),
            source=source,
            start=self.nodes.number[self.machine.start],
            extra=extra | self._names(),
            increments=self.increments.stacked(),
            initial_push=self.initial,
            max_pops=self.nodes.max_pops,
            max_push=int(self.strings.length.max()),
            stacks=1 if self.machine.deterministic else stacks,
            **arrays,
        )

    def _set_arrays(self, arrays: dict[str, np.ndarray], arcs: StackArcs) -> dict[str, np.ndarray]:
        """The arrays of sets of keys, and those of nodes with the twins behind them."""
        sets, nodes = self.key_sets, self.nodes
        assert sets is not None
        none = len(sets.twins)
        control = np.where(nodes.symbolic < self.machine.num_controls, nodes.symbolic, 0)
        distance, wanted = sets.distances(control, arrays["distance"])
        twin = np.zeros(self.n, np.int64)
        twin[sets.twins] = len(nodes.kind) + np.arange(none)
        out = {name: np.concatenate((arrays[name], np.zeros((none, *arrays[name].shape[1:]), arrays[name].dtype)))
               for name in ("accept", "need", "ladder")}  # fmt: skip
        offset = np.concatenate((arrays["delta_offset"], np.full(none, nodes.delta_row[0] * nodes.children.num_symbols)))
        pop_guard, pop_offset = sets.pops(arcs.pops, nodes, nodes.pop_row)
        pop_offset[len(nodes.kind) :] = offset[len(nodes.kind) :, None]
        out |= {
            "distance": np.concatenate((distance, np.zeros(none, np.int64))),
            "level_slope": np.concatenate((arrays["level_slope"], arrays["level_slope"][sets.twins])),
            "delta_offset": offset,
            "twin": twin,
            "wanted": np.concatenate((wanted, np.zeros((none, 2), np.int64))),
            "pop_guard": pop_guard,
            "pop_offset": pop_offset,
            "push_keys": sets.held(self.held_strings),
        }
        return out | sets.arrays()

    def _names(self) -> dict[str, Any]:
        """For people: what nodes 1, 2, … and the symbols stand for, where the machine says it; inner nodes have no name."""
        machine, nodes = self.machine, self.nodes
        out: dict[str, Any] = {}
        if machine.control_names:
            names = [*machine.control_names, ""]
            out["controls"] = [names[c] for c in np.minimum(nodes.symbolic[1:], len(names) - 1).tolist()]
        if machine.symbol_names:
            out["symbols"] = [machine.symbol_names[s] for s in nodes.symbol.tolist()]
        return out

    def _node_arrays(self) -> dict[str, np.ndarray]:
        nodes, costs, registers = self.nodes, self.costs, self.registers
        self.deadline.check_bytes(4 * nodes.children.num_rows * nodes.children.num_symbols, _DOING)  # what devices write out
        controls = self.machine.num_controls
        control = np.where(nodes.symbolic < controls, nodes.symbolic, 0)
        distance = np.where(control > 0, costs.distance[control] + self._missing(nodes.kind, nodes.shape, nodes.place), 0)
        distance[0] = UNREACHABLE
        ladder = np.where((nodes.place == 0)[:, None], nodes.classes.ladder[nodes.shape], 0)
        return {
            "accept": nodes.accept & ((nodes.kind == 0) | (nodes.value >= registers.low[nodes.kind])),
            "distance": np.minimum(distance, UNREACHABLE),
            "need": np.where(control > 0, costs.need[control], 0),
            "ladder": ladder,
            "level_slope": self._slopes(nodes.kind, nodes.place),
            "delta_offset": nodes.delta_row * nodes.children.num_symbols,
            "delta": nodes.children.flat(),
        }

    def _missing(self, kind: np.ndarray, shape: np.ndarray, place: np.ndarray) -> np.ndarray:
        """What is missing at each class of registers, without the slope of those far below the lower bound."""
        if not self.registers.low.any():
            return np.zeros(len(kind), np.int64)
        classes, rests = self.nodes.classes, self.costs.rests
        value = classes.value[classes.first[shape] + place]
        return np.where(self.nodes.sloped(kind, place), rests.largest[kind], rests.at(kind, value))

    def _slopes(self, kind: np.ndarray, place: np.ndarray) -> np.ndarray:
        """The slopes of the registers far below the lower bound."""
        out = np.tile(np.array([0, 1, 0]), (len(kind), 1))
        if self.registers.low.any():
            rests = self.costs.rests
            sloped = (self.nodes.sloped(kind, place) & (rests.tokens[kind] > 0)).nonzero()[0]
            columns = (rests.anchor, rests.stride, np.minimum(rests.tokens, MOST_COUNT))
            out[sloped] = np.stack([column[kind[sloped]] for column in columns], 1)
        if self.key_sets is not None:  # the register says what the required keys that have come weigh
            some, total = self.key_sets.slope(kind)
            out[some] = np.stack([total, np.ones_like(total), np.ones_like(total)], 1)[some]
        return out

    def _symbol_arrays(self) -> dict[str, np.ndarray]:
        nodes, costs, registers = self.nodes, self.costs, self.registers
        symbol, place = nodes.symbol, nodes.symbol_place
        kind = registers.of_symbol[symbol]
        cost = costs.symbol_cost[symbol] + self._missing(kind, kind, place)
        return {
            "symbol_ladder": np.where((place == 0)[:, None], nodes.classes.ladder[kind], 0),
            # A symbol below which no text ends is pushed nowhere: any number that a file may hold does.
            "symbol_cost": np.where(cost < UNREACHABLE, cost, MOST_COUNT - 1),
            "symbol_need": costs.symbol_need[symbol],
            "symbol_slope": self._slopes(kind, place),
            "push_offset": self.strings.first,
            "push_symbol": nodes.symbol_number[self.strings.symbol],
            "push_register": self.strings.register,
        }

    def _wide(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(whether each token set belongs to a wide group, of one node, target and push string; where wide groups begin; where
        they end)."""
        sets, groups = self.sets, self.groups
        if sets.single:  # each has an effect of its own
            wide = (groups.leaf_size > NARROW).take(self._of_sets(groups.leaf))
            low = wide.nonzero()[0]
            low = low[np.lexsort((groups.effect[sets.group[low]], sets.node[low]))]
            return wide, low, low + 1
        effect = self._of_sets(groups.effect)
        columns = sets.node, groups.goal[effect]
        new = np.ones(len(sets.node), bool)
        new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        narrow = np.zeros(len(new), bool)
        if groups.sets is not None:  # only arcs can have a guard, or a set in the frame they open
            held = groups.sets.held[sets.group]
            new[1:] |= np.diff(held) != 0
            narrow = (sets.node >= len(self.nodes.kind)) | (held > 0)
        begin = new.nonzero()[0]
        if not len(begin):
            return narrow, begin, begin
        total = np.add.reduceat(self.sums.all_sizes, begin)
        wide = (total > NARROW).repeat(segment_sizes(begin, len(new))) & ~narrow
        chosen = wide[begin].nonzero()[0]
        return wide, begin[chosen], np.append(begin, len(wide))[chosen + 1]

    def _groups(self, lo: np.ndarray, hi: np.ndarray) -> None:
        """Takes the wide groups; `lo` and `hi`: where they begin and end among the token sets."""
        sets, groups = self.sets, self.groups
        first = sets.group[lo]
        hashes = self.sums.hashes(lo) if sets.single else _sums(self.sums.all_hashes, lo, hi)
        unions = Unions(groups, self.tables)
        row = self.pool.numbers(hashes, lambda i: unions.row_of(sets.groups(np.arange(lo[i], hi[i]))[1]))
        goal, push, *changes = groups.effects.at(groups.effect[first])
        add, final = self._varying(first) if self.registers.counts else changes
        node = sets.node[lo].astype(np.int64, copy=False)
        self.out.groups(node, row, self.nodes.number[goal], self.push[push], add, final, alike=self.alike)

    def _varying(self, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the token sets that go with the given ones by node, target and push string add to the register, and what they set
        it to: the value common to all of them, or -1 - a table of values by token. The classes of a node share the table."""
        groups = self.groups
        goal, new = groups.goal[groups.effect], np.ones(len(groups.node), bool)
        new[1:] = (groups.node[1:] != groups.node[:-1]) | (goal[1:] != goal[:-1])
        begin = new.nonzero()[0]
        end = np.append(begin[1:], len(new))
        run = (new.cumsum() - 1)[first]
        out = []
        for values in groups.effects.at(groups.effect)[2:]:
            varies = (np.minimum.reduceat(values, begin) < np.maximum.reduceat(values, begin)) if len(begin) else new
            some = distinct(run[varies[run]])
            of_run = values[begin]
            if len(some):
                of_run[some] = -1 - self._tables(values, begin[some], end[some])
            out.append(of_run[run])
        return out[0], out[1]

    def _tables(self, values: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Number of the table of every range of token sets."""
        groups = self.groups

        def content(new: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            which, group = ranges(begin[new], end[new])
            of, token = groups.tokens_of(group)
            if groups.leaf_reduced[groups.leaf[group]].any():
                order = order_of(of)
                of, token = of[order], token[order]
            return which[of], token, values[group[of]]

        keys = [groups.hash[b:e].tobytes() + values[b:e].tobytes() for b, e in zip(begin.tolist(), end.tolist())]
        return self.increments.numbers(keys, content)

    def _arcs(self, narrow: np.ndarray) -> None:
        """Takes the token sets that are narrow, bool[M]."""
        sets, groups, keyed = self.sets, self.groups, self.key_sets is not None
        if not self.registers.counts and not keyed and len(sets.group) == len(groups.node):  # each is its own range
            group: Any = narrow
            node, alike = sets.node[narrow], self.alike
        else:
            some, alike = self._narrow_once(narrow.nonzero()[0])
            of, group = sets.groups(some)
            node = sets.node.take(some) if sets.single else sets.node[some][of]
        if self.registers.low.any():  # what is missing to a lower bound is a matter of the class
            assert sets.cost is not None
            effects, effect = self._effects(group if keyed else groups.effect[group], sets.cost[some][of])
        else:
            kind = self.costs.effect[group]
            example = np.full(len(self.costs.effect_cost), -1, kind.dtype)
            example[kind] = group if keyed else kind
            used = (example >= 0).nonzero()[0]
            number = np.zeros(len(example), np.int32)
            effects, number[used] = self._effects(example[used], self.costs.effect_cost[used])
            effect = number.take(kind)
        simple = self.machine.deterministic and self.key_sets is None
        leaf = groups.leaf[group]
        if simple and groups.leaf_size.take(leaf).sum() >= LEAST_BYTES // 8:
            by_node = order_of(node)
            first = firsts(node, self.n)
            columns = effect.take(by_node), leaf.take(by_node)
            if self._stored(first, lambda some: tuple(c[first[some.start] : first[some.stop]] for c in columns), effects, alike):
                return
        group = group.nonzero()[0] if group is narrow else group
        listed, which = self._once(group)
        size, (number, token) = groups.leaf_size[groups.leaf[listed]], groups.tokens_of(listed)
        if groups.leaf_reduced[groups.leaf[listed]].any():
            token = token[order_of(number)]
        begin = size.cumsum() - size
        if listed is not group:
            begin, size = begin[which], size[which]
            token = token[joined(begin, size)]
        self.out.arcs(node.astype(np.int64, copy=False), effect, token, size, effects=effects, alike=alike)

    def _many_arcs(self, wide: np.ndarray, low: np.ndarray) -> bool:
        """Takes the token sets that are not wide, those at `low` are, if they are many ranges of one each. Whether it has."""
        sets, groups, nodes, size = self.sets, self.groups, self.nodes, len(wide) - len(low)
        whole = len(sets.group) == len(groups.node) and self.key_sets is None and not self.registers.counts
        if not whole or not self.machine.deterministic or size < LEAST_BYTES // 8:
            return False
        first = groups.first[np.append(nodes.symbolic, len(nodes.number))]
        narrow = NarrowSets(first, wide, np.bincount(sets.node[low], minlength=self.n), self.costs.effect, groups.leaf)
        effect, number = narrow.effects(len(self.costs.effect_cost))
        effects, number[effect] = self._effects(effect, self.costs.effect_cost[effect])
        return self._stored(narrow.first, lambda some: narrow.numbered(some, number), effects, self.alike)

    def _stored(self, first: np.ndarray, columns: Callable[[slice], Any], effects: np.ndarray, alike: np.ndarray) -> bool:
        """Takes arcs in lists where they take less room so: as of `stored_arcs`. Whether they do."""
        made = stored_arcs(first, columns, TokenSets(self.groups.leaf_hash, self.groups.tokens_of_leaves), alike)
        if made is None or not is_smaller(made["arc_token"]):
            return False
        self.out.arcs_in_lists(made, effects)
        return True

    def _effects(self, some: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`arc_effects` of some effects of the given costs; where there are sets of keys, of some token sets."""
        effect, kind = (some, some) if self.key_sets is None else (self.groups.effect[some], self.costs.effect[some])
        target, push, add, final = self.groups.effects.at(effect)
        target, need = self.nodes.number[target], self.costs.effect_need[kind]
        return arc_effects(target, self.push[push], add, final, cost, need, *self._set_effects(some))

    def _narrow_once(self, narrow: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the narrow token sets of one of every few nodes that have the same ones; int64[N'], which one stands for each)."""
        node = self.sets.node[narrow]
        begin = segment_starts(node)
        if not len(begin) or not self.registers.counts or self.registers.low.any():
            return narrow, self.alike
        signature = np.add.reduceat(mixed(self.sets.group[narrow] << 32 | self.sets.length[narrow]), begin)
        _, example, which = exampled(signature)
        alike = np.arange(self.n)
        alike[node[begin]] = node[begin[example]][which]
        return narrow[alike[node] == node], alike[self.alike]

    def _once(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the distinct token sets, ascending; the place of each one among them): classes have many in common, whose tokens are
        listed once. The same array where there are no others."""
        if (group[1:] > group[:-1]).all():
            return group, np.arange(len(group))
        used = np.zeros(len(self.groups.node), bool)
        used[group] = True
        return used.nonzero()[0], (used.cumsum() - 1)[group]

    def _set_effects(self, group: np.ndarray) -> tuple[np.ndarray, ...]:
        """Guards, and rows of the sets of opened frames, of token sets; nothing where there are no sets."""
        if self.key_sets is None or self.groups.sets is None:
            return ()
        sets = self.groups.sets
        return self.key_sets.guards_of(sets.guard[group]), self.key_sets.held(sets.held[group])

    def _levels(self) -> None:
        """Unions of a node's tokens by how many tokens and cells they take."""
        has_rows = self.out.masked()
        has_rows[len(self.nodes.kind) :] = False
        levels = LevelMembers(self.sets, self.sums, self.costs, self.nodes, self.pool)
        members, alike = levels.found(has_rows, deterministic=self.machine.deterministic)
        grid = Grid(members.node, members.cost, members.need, members.hash, members.size)
        cell = grid.fitting(self.tables.num_words * 4)
        made = LevelRows(grid, cell, members, self.pool)
        rows = self.pool.numbers(grid.union[cell], made.row, made.ahead)
        self.deadline.check(_DOING)
        self.out.levels(grid.node[cell], grid.cost[cell], rows, grid.need[cell], alike=alike[self.alike])
