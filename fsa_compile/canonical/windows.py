"""`windowed`: a machine whose controls also know the topmost cells of the stack.

What may be completed in canonical tokens often depends on the next few frames below: whether `}` may stand alone depends on what
may come behind it. A window over the stack makes that a matter of the control. The stack of the result holds the cells below the
window. The registers become part of controls and cells, so that the result counts nothing.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.byte_machine import END_HERE, END_RETURN, NO_END, RETURN, ByteMachine, Configuration
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_Cell: TypeAlias = tuple[int, int]
"""Symbol and register of a suspended frame."""
_Below: TypeAlias = tuple[_Cell, bool]
"""A cell below the window, and whether it is the last one."""
_DOING = "following the stack of a canonical constraint"


class _Place(NamedTuple):
    """control, register: of the frame; window: topmost cells, bottom first; whole: whether there are no others."""

    control: int
    register: int
    window: tuple[_Cell, ...]
    whole: bool


def windowed(machine: ByteMachine, size: int, limits: CompileLimits, deadline: Deadline) -> ByteMachine:
    """The machine with windows of some cells.

    Args:
      machine: trimmed and deterministic, without sets of keys.
      size: cells in a window, at least 1.
      limits: `max_states` bounds the controls.
      deadline: an already running time budget.

    Raises:
      LimitError: too many controls, or out of time.
    """
    return _Windows(machine, size, limits, deadline).made()


class _Windows:
    def __init__(self, machine: ByteMachine, size: int, limits: CompileLimits, deadline: Deadline) -> None:
        self._machine, self._size, self._limits, self._deadline = machine, size, limits, deadline
        self._number: dict[_Place, int] = {}
        self._places: list[_Place] = []
        self._rows: dict[int, np.ndarray] = {}
        self._symbols: dict[_Below, int] = {}
        self._pushes: dict[tuple[int, ...], int] = {(): 0}
        self._actions: dict[tuple[int, int], int] = {}
        self._below: dict[_Cell, list[_Below]] = {}
        self._returning: dict[_Cell, list[int]] = {}
        self._ret: dict[tuple[int, int], int] = {}
        self._end: dict[int, int] = {}
        self._kinds: dict[int, list[tuple[int, np.ndarray]]] = {}

    def made(self) -> ByteMachine:
        first = self._machine.initial
        window, push = self._placed(first.stack, whole=True)
        start = self._numbered(_Place(first.control, first.register, window, not push))
        done = 0
        while done < len(self._places):
            self._row(done + 1)
            done += 1
            if len(self._places) > self._limits.max_states:
                fix = "Lower the bounds of repetitions, or raise CompileLimits.max_states."
                raise LimitError("max_states", self._limits.max_states, _DOING, fix=fix)
            if not done % 256:
                self._deadline.check(_DOING)
        count = len(self._places) + 1
        action = np.zeros((count, self._machine.action.shape[1]), np.int32)
        end = np.zeros(count, np.int8)
        for number, row in self._rows.items():
            action[number], end[number] = row, self._end[number]
        ret = np.zeros((count, len(self._symbols)), np.int32)
        for (place, symbol), after in self._ret.items():
            ret[place, symbol] = after
        moves = np.array(list(self._actions), np.int64).reshape(-1, 2)
        return ByteMachine(
            byte_class=self._machine.byte_class,
            specials=self._machine.specials,
            action=action,
            entry_offset=np.append(0, np.arange(len(moves) + 1)).astype(np.int32),
            entry_next=moves[:, 0].astype(np.int32),
            entry_push=moves[:, 1].astype(np.int32),
            entry_add=np.zeros(len(moves), np.int8),
            pushes=tuple(tuple((symbol, 0) for symbol in string) for string in self._pushes),
            ret=ret,
            end=end,
            bounds=np.full((count, 2), -1, np.int32),
            start=start,
            stack=push,
        )

    def _placed(self, stack: tuple[_Cell, ...], *, whole: bool) -> tuple[tuple[_Cell, ...], tuple[int, ...]]:
        """The window over some topmost cells, and the symbols of those that do not fit; `whole`: there are no others."""
        over = len(stack) - self._size
        if over <= 0:
            return stack, ()
        below = [(cell, whole and not i) for i, cell in enumerate(stack[:over])]
        for under, cell in zip(below, stack[1:]):
            self._lies_below(cell, under)
        return stack[over:], tuple(self._symbols.setdefault(one, len(self._symbols)) for one in below)

    def _lies_below(self, cell: _Cell, under: _Below) -> None:
        known = self._below.setdefault(cell, [])
        if under not in known:
            known.append(under)
            for place in self._returning.get(cell, ()):
                self._return(place, under)

    def _numbered(self, place: _Place) -> int:
        number = self._number.get(place)
        if number is None:
            self._places.append(place)
            number = self._number[place] = len(self._places)
        return number

    def _at(self, place: _Place) -> Configuration:
        return Configuration(place.control, place.register, place.window, 0, (0,) * len(place.window))

    def _popped(self, place: _Place) -> _Place | None:
        """After a return that the window knows all about."""
        for after in self._machine.returned(self._at(place)):
            return _Place(after.control, after.register, after.stack, place.whole)
        return None

    def _row(self, number: int) -> np.ndarray:
        """int32[C], actions of a place."""
        known = self._rows.get(number)
        if known is not None:
            return known
        place = self._places[number - 1]
        m = self._machine
        row = np.zeros(m.action.shape[1], np.int32)
        returns = False
        for action, kinds in self._of_control(place.control):
            for e in range(m.entry_offset[action], m.entry_offset[action + 1]):
                if m.entry_next[e] != RETURN:
                    moved = m.moved(self._at(place), e)
                    if moved is not None:
                        row[kinds] = self._move(place, moved)
                elif (after := self._popped(place)) is not None and place.whole:
                    behind = self._row(self._numbered(after))
                    some = kinds[behind[kinds] > 0]
                    row[some] = behind[some]
                elif after is not None:
                    row[kinds] = self._action(RETURN, 0)
                    returns = True
        end = int(m.end[place.control])
        if end == END_HERE and not m.enough(self._at(place)):
            end = NO_END
        elif end == END_RETURN:
            after = self._popped(place)
            returns |= after is not None and not place.whole
            if after is None:
                end = NO_END
            elif place.whole:
                self._row(self._numbered(after))
                end = self._end[self._numbered(after)]
        self._rows[number], self._end[number] = row, end
        if returns:
            bottom = place.window[0]
            self._returning.setdefault(bottom, []).append(number)
            for under in self._below.get(bottom, ()):
                self._return(number, under)
        return row

    def _return(self, number: int, under: _Below) -> None:
        """Where a return leads that brings a cell into the window."""
        place = self._places[number - 1]
        after = self._popped(place)
        assert after is not None
        cell, last = under
        there = _Place(after.control, after.register, (cell, *after.window), last)
        symbol = self._symbols.setdefault(under, len(self._symbols))
        self._ret[number, symbol] = self._numbered(there)

    def _of_control(self, control: int) -> list[tuple[int, np.ndarray]]:
        found = self._kinds.get(control)
        if found is None:
            row = self._machine.action[control]
            found = self._kinds[control] = [(a, np.flatnonzero(row == a)) for a in np.unique(row[row > 0]).tolist()]
        return found

    def _move(self, place: _Place, moved: Configuration) -> int:
        window, push = self._placed(moved.stack, whole=place.whole)
        there = _Place(moved.control, moved.register, window, place.whole and not push)
        return self._action(self._numbered(there), self._pushes.setdefault(push, len(self._pushes)))

    def _action(self, target: int, push: int) -> int:
        return self._actions.setdefault((target, push), len(self._actions) + 1)
