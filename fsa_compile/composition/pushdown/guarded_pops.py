"""Tokens that leave a frame under a condition on its set of keys: one more child of the frame's node for each case.

What is pending in a node may depend on the set of the node's frame: `}}` ends an object only when its required keys have come.
The conditions on what is pending in a node are numbered; for every combination of those that can hold together while the others
do not, the node has a child.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct
from fsa_compile.arrays.ranges import ranges
from fsa_compile.artifact.arrays import MAX_CONDITIONS
from fsa_compile.artifact.guards import NO_GUARD, Guard, Guards, composed
from fsa_compile.errors import LimitError


class PopClasses(NamedTuple):
    """Attributes:
      node, case, row: int64[n] each, node of the walk, which of its conditions hold (bit i: condition i), row of `delta`.
      conditions: by node, guards without a change of the set.
    """

    node: np.ndarray
    case: np.ndarray
    row: np.ndarray
    conditions: dict[int, list[Guard]]


class GuardedPops:
    """Conditions of nodes, wave by wave.

    Attributes:
      rows: of each wave, row of `delta` by case of its nodes.
    """

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self.rows: list[np.ndarray] = []
        self._nodes: list[int] = []
        self._cases: list[int] = []
        self._conditions: dict[int, list[Guard]] = {}
        self._wave: list[tuple[int, int, np.ndarray]] = []

    def classes(self) -> PopClasses:
        """All of them."""
        row = np.concatenate(self.rows) if self.rows else np.zeros(0, np.int64)
        return PopClasses(np.array(self._nodes, np.int64), np.array(self._cases, np.int64), row, self._conditions)

    def parted(
        self, owner: np.ndarray, begun: np.ndarray, first_owner: int, first_node: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """What is pending under no condition, what under some, and how many cases there are.

        Args:
          owner, begun: int64[n], owners of what is pending, and their guards.
          first_owner, first_node: of the wave.

        Raises:
          LimitError: a node has more than `MAX_CONDITIONS` conditions.
        """
        guards = self._guards.all
        conditional = np.array([guard.conditional for guard in guards])[begun]
        free, some = (~conditional).nonzero()[0], conditional.nonzero()[0]
        by_node: dict[int, dict[int, list[int]]] = {}
        every: dict[Guard, int] = {}
        number = {b: every.setdefault(guards[b]._replace(set=0), len(every)) for b in distinct(begun[some]).tolist()}
        for i, (o, b) in enumerate(zip(owner[some].tolist(), begun[some].tolist())):
            by_node.setdefault(o - first_owner, {}).setdefault(number[b], []).append(i)
        condition = list(every)
        self._wave = []
        for local, found in by_node.items():
            conditions = [condition[c] for c in found]
            if len(conditions) > MAX_CONDITIONS:
                raise LimitError(
                    "MAX_CONDITIONS", MAX_CONDITIONS, "Telling apart the sets of keys with which one token ends an object",
                    fix='Use SchemaOptions(key_order="declared").',
                )  # fmt: skip
            self._conditions[first_node + local] = conditions
            for case in possible_cases(tuple(conditions)):
                items = [i for bit, of_condition in enumerate(found.values()) if case >> bit & 1 for i in of_condition]
                self._wave.append((local, case, np.array(items, np.int64)))
                self._nodes.append(first_node + local)
                self._cases.append(case)
        return free, some, len(self._wave)

    def extended(
        self, pending: tuple[np.ndarray, ...], first: np.ndarray, some: tuple[np.ndarray, np.ndarray], base: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(index, trie node, control) of what is pending, that of the cases last.

        Args:
          pending: what is pending under no condition, by ascending index.
          first: int64[n], index of every node of the wave.
          some: (trie node, control) of what is pending under some condition.
          base: first index of the cases.
        """
        if not self._wave:
            return pending[0], pending[1], pending[2]
        index, node, control = pending
        own = first[[local for local, _, _ in self._wave]]
        case, at = ranges(index.searchsorted(own), index.searchsorted(own, side="right"))
        items = np.concatenate([items for _, _, items in self._wave])
        of_item = np.arange(len(own)).repeat([len(items) for _, _, items in self._wave])
        order = np.concatenate((case, of_item)).argsort(kind="stable")
        more = (
            base + np.concatenate((case, of_item))[order],
            np.concatenate((node[at], some[0][items]))[order],
            np.concatenate((control[at], some[1][items]))[order],
        )
        index, node, control = (np.concatenate(columns) for columns in zip(pending, more))
        return index, node, control


@functools.lru_cache(maxsize=256)
def possible_cases(conditions: tuple[Guard, ...]) -> list[int]:
    """Cases (bit i: condition i holds) that some set might be, without the case that none holds; all that can be are among them.

    Args:
      conditions: guards without a change of the set.
    """
    cases: list[tuple[int, Guard]] = [(0, NO_GUARD)]
    for bit, guard in enumerate(conditions):
        held = [(case | 1 << bit, both) for case, known in cases if (both := composed(known, guard)) is not None]
        cases += held
    return [
        case for case, known in cases
        if case and not any(_follows(guard, known) for bit, guard in enumerate(conditions) if not case >> bit & 1)
    ]  # fmt: skip


def _follows(guard: Guard, known: Guard) -> bool:
    """Whether a condition holds wherever another does."""
    return not guard.all & ~known.all and all(any(not mask & ~more for mask in known.unset) for more in guard.unset)
