"""`without_registers`: a machine whose controls and cells know the registers, so that the result counts nothing."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.automata.pushdown import END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine, Configuration
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "writing out the counters of a canonical constraint"


def without_registers(machine: ByteMachine, limits: CompileLimits, deadline: Deadline) -> ByteMachine:
    """The machine itself where it counts nothing, else one whose places are its controls, each with a register.

    Args:
      machine: trimmed and deterministic, without sets of keys.
    """
    counts = (machine.bounds != UNCOUNTED).any() or machine.entry_add.any()
    counts = counts or any(add for string in machine.pushes for _, add in string)
    return _WithoutRegisters(machine, limits, deadline).made() if counts else machine


class _WithoutRegisters:
    def __init__(self, machine: ByteMachine, limits: CompileLimits, deadline: Deadline) -> None:
        self._machine, self._limits, self._deadline = machine, limits, deadline
        self._number: dict[tuple[int, int], int] = {}
        self._places: list[tuple[int, int]] = []
        self._symbols: dict[tuple[int, int], int] = {}
        self._pushes: dict[tuple[int, ...], int] = {(): 0}
        self._actions: dict[tuple[tuple[int, int], ...], int] = {}
        self._returning: list[int] = []
        self._ret: dict[tuple[int, int], int] = {}

    def made(self) -> ByteMachine:
        m = self._machine
        initial = tuple(self._symbol(cell) for cell in m.initial.stack)
        start = self._numbered(m.initial.control, m.initial.register)
        rows: list[np.ndarray] = []
        end = [NO_END]
        while len(rows) < len(self._places):
            if len(self._places) > self._limits.max_states:
                fix = "Lower the bounds of repetitions, or raise CompileLimits.max_states."
                raise LimitError("max_states", self._limits.max_states, _DOING, fix=fix)
            if not len(rows) % 256:
                self._deadline.check(_DOING)
            rows.append(self._row(len(rows) + 1))
            end.append(self._end(len(rows)))
        entries = [(target, push) for action in self._actions for target, push in action]
        ret = np.zeros((len(end), len(self._symbols)), np.int32)
        for (place, symbol), after in self._ret.items():
            ret[place, symbol] = after
        return dataclasses.replace(
            m,
            action=np.stack([np.zeros_like(rows[0]), *rows]),
            entry_offset=np.append(0, np.cumsum([0, *map(len, self._actions)])).astype(np.int32),
            entry_next=np.array([target for target, _ in entries], np.int32),
            entry_push=np.array([push for _, push in entries], np.int32),
            entry_add=np.zeros(len(entries), np.int8),
            pushes=tuple(tuple((symbol, 0) for symbol in string) for string in self._pushes),
            ret=ret,
            end=np.array(end, np.int8),
            bounds=np.full((len(end), 2), UNCOUNTED, np.int32),
            start=start,
            stack=initial,
            control_names=(),
            symbol_names=(),
        )

    def _numbered(self, control: int, register: int) -> int:
        place = control, register
        if place not in self._number:
            self._places.append(place)
            self._number[place] = len(self._places)
        return self._number[place]

    def _symbol(self, cell: tuple[int, int]) -> int:
        if cell not in self._symbols:
            self._symbols[cell] = len(self._symbols)
            for number in self._returning:
                self._return(number, cell)
        return self._symbols[cell]

    def _at(self, number: int, stack: tuple[tuple[int, int], ...] = ()) -> Configuration:
        return Configuration(*self._places[number - 1], stack, 0, (0,) * len(stack))

    def _return(self, number: int, cell: tuple[int, int]) -> None:
        for after in self._machine.returned(self._at(number, (cell,))):
            self._ret[number, self._symbols[cell]] = self._numbered(after.control, after.register)

    def _returns(self, number: int) -> None:
        if number not in self._returning:
            self._returning.append(number)
            for cell in list(self._symbols):
                self._return(number, cell)

    def _row(self, number: int) -> np.ndarray:
        """int32[C], actions of a place."""
        m = self._machine
        row = np.zeros(m.action.shape[1], np.int32)
        of_control = m.action[self._places[number - 1][0]]
        for action in np.unique(of_control[of_control > 0]).tolist():
            moves = []
            for e in range(m.entry_offset[action], m.entry_offset[action + 1]):
                if m.entry_next[e] == RETURN:
                    if m.enough(self._at(number)):
                        self._returns(number)
                        moves.append((RETURN, 0))
                elif (moved := m.moved(self._at(number), e)) is not None:
                    string = tuple(self._symbol(cell) for cell in moved.stack)
                    push = self._pushes.setdefault(string, len(self._pushes))
                    moves.append((self._numbered(moved.control, moved.register), push))
            if moves:
                row[of_control == action] = self._actions.setdefault(tuple(moves), len(self._actions) + 1)
        return row

    def _end(self, number: int) -> int:
        end = int(self._machine.end[self._places[number - 1][0]])
        if end != NO_END and not self._machine.enough(self._at(number)):
            return NO_END
        if end == END_RETURN:
            self._returns(number)
        return end
