"""The arrays of an artifact that say what its sets of keys are for: see `artifact`."""

from __future__ import annotations

import numpy as np

from fsa_compile.artifact.guards import Guard, Guards
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.call_sets import PushStrings
from fsa_compile.composition.pushdown.counter_classes import Registers
from fsa_compile.composition.pushdown.guard_costs import SetCosts
from fsa_compile.composition.pushdown.guarded_pops import PopClasses
from fsa_compile.composition.pushdown.nodes import Nodes
from fsa_compile.composition.pushdown.token_groups import Groups, GroupSets


class SetLayout:
    """Numbers guards and masks, and twins of nodes, as they are used.

    Attributes:
      twins: nodes of the artifact that have guarded arcs; twin i is node N + i.
    """

    def __init__(self, machine: ByteMachine, registers: Registers, sets: GroupSets, costs: SetCosts) -> None:
        assert machine.sets is not None
        self._machine, self._registers, self._of, self._costs = machine, registers, sets, costs
        self._sets = machine.sets
        most = max((guard.set | guard.all for guard in (*machine.sets.guards, *sets.guards.all)), default=0)
        wide = max((mask for guard in machine.sets.guards for mask in guard.unset), default=0)
        self._words = -(-max(most, wide, 1).bit_length() // 32)
        self._masks: dict[int, int] = {0: 0}
        self._rows: list[int] = [0]
        self._guards = Guards()
        self.twins = np.zeros(0, np.int64)

    def mask(self, bits: int) -> int:
        """Row of `keys` with some bits."""
        found = self._masks.get(bits)
        if found is None:
            found = self._masks[bits] = len(self._rows)
            self._rows.append(bits)
        return found

    def guard(self, guard: Guard) -> int:
        """Number of a guard in the artifact."""
        return self._guards.number(guard)

    def guards_of(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers in the artifact of guards of the walk."""
        return self._each(numbers, lambda number: self.guard(self._of.guards.all[number]))

    def held(self, numbers: np.ndarray) -> np.ndarray:
        """Rows of `keys` that are the changes of guards of the walk."""
        return self._each(numbers, lambda number: self.mask(self._of.guards.all[number].set))

    @staticmethod
    def _each(numbers: np.ndarray, of: object) -> np.ndarray:
        assert callable(of)
        distinct, which = np.unique(numbers, return_inverse=True)
        return np.array([of(number) for number in distinct.tolist()], np.int64)[which.reshape(-1)]

    def progress(
        self, groups: Groups, kind: np.ndarray, effect: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, PushStrings]:
        """Additions, settings and push strings whose registers are the weights of the required keys that have come.

        Args:
          kind: int64[N], kinds of the nodes of the walk.
          effect: int64[G], numbers of the effects of the token sets.
        """
        guards, costs = self._of.guards.all, self._costs
        keyed = self._registers.set_kind
        effects = groups.effects.at(groups.effect)
        target = keyed[self._registers.of_control[effects.target]]
        own = keyed[kind[groups.node]]
        add = np.where(own > 0, costs.rewards()[effect], effects.add)
        first = np.array([keyed[self._registers.of_symbol[string[0][0]]] if string else 0 for string in groups.strings])
        becomes = np.where(effects.push > 0, first[effects.push], target)
        for g in ((own == 0) & (becomes > 0) & (self._of.guard > 0)).nonzero()[0].tolist():
            add[g] = costs.of_keys(int(becomes[g]), guards[self._of.guard[g]].set)
        final = effects.set.copy()
        for g in ((target > 0) & (effects.push > 0) & (self._of.held > 0)).nonzero()[0].tolist():
            final[g] = costs.of_keys(int(target[g]), guards[self._of.held[g]].set)
        strings = []
        for string, kept in zip(groups.strings, self._of.strings):
            kinds = [int(keyed[self._registers.of_symbol[symbol]]) for symbol, _ in string]
            strings.append(tuple(
                (symbol, costs.of_keys(k, guards[held].set) if k else register)
                for (symbol, register), k, held in zip(string, kinds, kept)
            ))  # fmt: skip
        return add, final, PushStrings.of(strings)

    def slope(self, kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(whether frames of some kinds have required keys, the sum of their weights)."""
        total = np.array([self._costs.total(k) for k in range(len(self._sets.required))])[self._registers.set_kind[kind]]
        return total > 0, total

    def distances(self, control: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distances of nodes, and for each (guard, distance where it holds); guard 0 where there is one distance only.

        Args:
          control: int64[N'], control of each node, 0 for none.
          distance: int64[N'], where no required key is next.
        """
        required = self._sets.required_next
        both = np.array([o or bool(k & ~r) for o, k, r in zip(self._sets.open, self._sets.keys, required)])
        out, wanted = distance.copy(), np.zeros((len(control), 2), np.int64)
        for i in np.array([mask > 0 for mask in required])[control].nonzero()[0].tolist():
            c = int(control[i])
            value = int(self._costs.wanted[c])
            if both[c]:
                wanted[i] = self.guard(Guard((required[c],))), value
            else:
                out[i] = value
        return out, wanted

    def pops(self, pops: PopClasses, nodes: Nodes, of_walk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(guards of the cases of every node, offset into `delta` of every case of every node).

        Args:
          of_walk: int64[*], rows of `nodes.children` of the cases; -1 where the node is left out.
        """
        width = nodes.children.num_symbols
        size = len(nodes.kind) + len(self.twins)
        most = max((len(found) for node, found in pops.conditions.items() if nodes.number[node]), default=0)
        guards, offset = np.zeros((size, most), np.int64), np.zeros((size, 1 << most), np.int64)
        offset[: len(nodes.kind)] = (nodes.delta_row * width)[:, None]
        for node, found in pops.conditions.items():
            number = int(nodes.number[node])
            if number:
                guards[number, : len(found)] = [self.guard(guard) for guard in found]
        for node, case, row in zip(pops.node.tolist(), pops.case.tolist(), of_walk.tolist()):
            if row >= 0:
                offset[int(nodes.number[node]), case] = row * width
        return guards, offset

    def arrays(self) -> dict[str, np.ndarray]:
        """`keys` and `guards`; call it last."""
        guards = np.zeros((len(self._guards.all), 4), np.int64)
        for i, guard in enumerate(self._guards.all):
            rows = [len(self._rows) + k for k in range(len(guard.unset))]
            self._rows += guard.unset
            guards[i] = rows[0] if rows else 0, len(rows), self.mask(guard.all), self.mask(guard.set)
        data = b"".join(bits.to_bytes(4 * self._words, "little") for bits in self._rows)
        return {"keys": np.frombuffer(data, "<u4").reshape(-1, self._words).astype(np.uint32), "guards": guards}
