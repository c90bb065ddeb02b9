"""`written_out`: a machine with stacks, counters, sets of keys or several readings as a regular one, for the canonical product.

States are the sets of configurations that a text leads to, registers and stacks included, so nothing is approximated: the
language is the machine's, but for texts whose stack grows beyond `max_depth`. What cannot be completed within it is cut, so
that the result has no dead ends.

Source: Koo et al. 2024, §5.1 (bounded stacks as states).
"""

from __future__ import annotations

import numpy as np

from fsa_compile.arrays.graphs import Numbers, moves, reached
from fsa_compile.automata.pushdown import END_HERE, NO_END, ByteMachine, Configuration
from fsa_compile.errors import ConstraintError, LimitError, UnsatisfiableError
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "writing out the stacks and counters of a canonical constraint"


def written_out(
    machine: ByteMachine,
    limits: CompileLimits,
    deadline: Deadline,
    *,
    max_depth: int | None,
    way_out: str,
    why: str = "canonical=True",
) -> ByteMachine:
    """The regular machine of a machine's texts.

    Args:
      machine: trimmed.
      max_depth: most cells of a stack; None: texts may nest as deep as they can, where that is bounded.
      way_out: the end of a sentence for machines that nest without bound.
      why: what asks for it, for the same.

    Raises:
      ConstraintError: no bound is given, and there is none.
      UnsatisfiableError: every text nests deeper.
    """
    table, end = _Writing(machine, limits, deadline, max_depth, way_out, why).table()
    live = _completable(table, end)
    if not live[1]:
        what = f"every accepted text nests deeper than max_depth={max_depth}"
        raise UnsatisfiableError(what, fix=f"Raise max_depth, or compile without {why}.")
    number = np.where(live, np.cumsum(live), 0)
    action = np.zeros((int(live.sum()) + 1, table.shape[1]), np.int32)
    action[1:] = number[table[live]]
    count = len(action)
    # The action that leads to state s is number s.
    return ByteMachine(
        byte_class=machine.byte_class,
        specials=machine.specials,
        action=action,
        entry_offset=np.append(0, np.arange(count)).astype(np.int32),
        entry_next=np.arange(1, count, dtype=np.int32),
        entry_push=np.zeros(count - 1, np.int32),
        entry_add=np.zeros(count - 1, np.int8),
        pushes=((),),
        ret=np.zeros((count, 0), np.int32),
        end=np.append(NO_END, np.where(end[live], END_HERE, NO_END)).astype(np.int8),
        bounds=np.full((count, 2), -1, np.int32),
        start=1,
        stack=(),
    )


class _Writing:
    def __init__(
        self, machine: ByteMachine, limits: CompileLimits, deadline: Deadline, max_depth: int | None, way_out: str, why: str
    ) -> None:
        self._machine, self._limits, self._deadline = machine, limits, deadline
        self._depth, self._way_out, self._why = max_depth, way_out, why
        self._symbol = np.zeros(machine.action.shape[1], np.int64)
        """One symbol of each class."""
        self._symbol[machine.byte_class[::-1]] = np.arange(len(machine.byte_class))[::-1]
        self._readable = [np.flatnonzero(row).tolist() for row in machine.action]

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """int32[S, C] and bool[S]: following states and which may end; state 0 is dead, 1 the start."""
        first = frozenset({self._machine.initial})
        number = Numbers[frozenset[Configuration]]([frozenset(), first])
        rows: list[np.ndarray] = []
        end: list[bool] = []
        for here in number.order:
            row = np.zeros(self._machine.action.shape[1], np.int32)
            for kind in self._classes(here):
                row[kind] = number[self._after(here, int(self._symbol[kind]))]
            rows.append(row)
            end.append(self._machine.may_end(here))
            if len(number) > self._limits.max_states:
                fix = "Lower the bounds of repetitions and depths, or raise CompileLimits.max_states."
                raise LimitError("max_states", self._limits.max_states, _DOING, fix=fix)
            if not len(rows) % 256:
                self._deadline.check(_DOING)
        return np.stack(rows), np.array(end)

    def _classes(self, here: frozenset[Configuration]) -> list[int]:
        every = [self._readable[configuration.control] for configuration in here]
        return every[0] if len(every) == 1 else sorted({kind for part in every for kind in part})

    def _after(self, here: frozenset[Configuration], symbol: int) -> frozenset[Configuration]:
        after = self._machine.step(here, symbol)
        return frozenset(c for c in after if self._fits(c))

    def _fits(self, configuration: Configuration) -> bool:
        if self._depth is not None:
            return len(configuration.stack) <= self._depth
        symbols = [symbol for symbol, _ in configuration.stack]
        if len(set(symbols)) < len(symbols):
            what = f"{self._why} needs a bound on how deep texts nest, and here they nest without one"
            raise ConstraintError(what, fix=self._way_out)
        return True


def _completable(table: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which states lead to an end, bool[S]; state 0 is dead."""
    source, target = moves(table)
    return reached(target, source, end.nonzero()[0].tolist(), len(table))
