"""A machine whose stacks are few becomes a byte automaton: every stack that can occur is written out.

Without recursion and counters a machine with frames is only a regular automaton told in fewer words. While those are not many
more, the regular walk is the faster one, and its artifact needs no stack on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.graphs import moves, reached
from fsa_compile.arrays.integers import distinct, occupied
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, RETURN, UNCOUNTED, ByteMachine


def flattened(machine: ByteMachine, most: int) -> ByteDfa | None:
    """The byte automaton of a machine's language.

    Args:
      machine: trimmed.
      most: controls, stacks, and pairs of them, at most.

    Returns:
      The automaton; None where the machine recurs, counts, reads special tokens, is not deterministic, or has more stacks and
      controls than `most`.
    """
    if machine.specials or not machine.deterministic or machine.num_controls > most + 1:
        return None
    if (machine.bounds != UNCOUNTED).any():
        return None
    calling = machine.entry_push.nonzero()[0]
    action = machine.entry_offset.searchsorted(calling, side="right") - 1
    if (machine.action[machine.entry_next[calling]] == action[:, None]).any():
        return None  # what is entered does the same call again, as "[" does where anything may follow it
    moves = _Moves(machine)
    try:
        found = _Stacks(machine, moves, most)
    except _UnboundedError:
        return None
    return _automaton(machine, moves, found)


class _UnboundedError(Exception):
    """Too many pairs or stacks, or a stack that holds a symbol twice."""


class _Moves:
    """What the controls of a machine do.

    Attributes:
      next, push: int64[A], by action; 0 for none.
      within: by control, the controls that it moves to in its frame.
      calls: by control, the (push string, control entered) pairs of its calls.
    """

    def __init__(self, machine: ByteMachine) -> None:
        self._machine = machine
        live = np.diff(machine.entry_offset) > 0
        entry = machine.entry_offset[:-1][live]
        self.next, self.push = np.zeros((2, len(live)), np.int64)
        self.next[live], self.push[live] = machine.entry_next[entry], machine.entry_push[entry]
        control, _, action = machine.cells
        control, action = np.divmod(distinct((control * len(live) + action)[self.next[action] > 0]), len(live))
        self.within: list[list[int]] = [[] for _ in range(machine.num_controls)]
        self.calls: list[list[tuple[int, int]]] = [[] for _ in range(machine.num_controls)]
        for at, push, target in zip(control.tolist(), self.push[action].tolist(), self.next[action].tolist()):
            if push:
                self.calls[at].append((push, target))
            else:
                self.within[at].append(target)

    def returned(self, symbol: int) -> list[int]:
        """The controls that some return through a symbol leads to."""
        return sorted(set(self._machine.ret[:, symbol].tolist()) - {0})


class _Stacks:
    """The stacks that can occur, and the pairs of a stack and a control in its uppermost frame, perhaps some too many.

    Attributes:
      below, top: by stack, the stack without its uppermost symbol, and that symbol; -1 for the empty stack, number 0.
      start: number of the machine's initial stack.
      above: (stack, push string): the stack after it.
      pairs: stack * S + control.
    """

    def __init__(self, machine: ByteMachine, moves: _Moves, most: int) -> None:
        self.below, self.top = [-1], [-1]
        self.above: dict[tuple[int, int], int] = {}
        self._held: list[frozenset[int]] = [frozenset()]
        self._number: dict[tuple[int, int], int] = {}
        self._moves, self._most, self._width = moves, most, machine.num_controls
        self.pairs: set[int] = set()
        self._todo: list[int] = []
        self.start = self._pushed(0, machine.stack)
        self._add(self.start, [machine.start])
        strings = [tuple(symbol for symbol, _ in push) for push in machine.pushes]
        while self._todo:
            stack, control = divmod(self._todo.pop(), self._width)
            self._add(stack, moves.within[control])
            for push, target in moves.calls[control]:
                there = self.above.get((stack, push))
                if there is None:
                    there = self.above[stack, push] = self._pushed(stack, strings[push])
                self._add(there, [target])

    def _add(self, stack: int, controls: list[int]) -> None:
        base = stack * self._width
        for control in controls:
            if base + control not in self.pairs:
                self.pairs.add(base + control)
                self._todo.append(base + control)
        if len(self.pairs) > self._most:
            raise _UnboundedError

    def _pushed(self, stack: int, symbols: tuple[int, ...]) -> int:
        """The stack with more symbols on top; what they may return to is added."""
        for symbol in symbols:
            number = self._number.get((stack, symbol))
            if number is None:
                if symbol in self._held[stack] or len(self.top) > self._most:
                    raise _UnboundedError
                number = self._number[stack, symbol] = len(self.top)
                self.below.append(stack)
                self.top.append(symbol)
                self._held.append(self._held[stack] | {symbol})
                self._add(stack, self._moves.returned(symbol))
            stack = number
        return stack


class _Places(NamedTuple):
    """Cells of a table: what a control does at a class of bytes.

    Attributes:
      row, column: int64[n], of the table.
      stack, control: int64[n], who reads; a return changes them, but not the cell.
    """

    row: np.ndarray
    column: np.ndarray
    stack: np.ndarray
    control: np.ndarray


def _automaton(machine: ByteMachine, moves: _Moves, found: _Stacks) -> ByteDfa:
    """The automaton whose states are the pairs, as far as some text leads to them."""
    width = machine.num_controls
    stack, control = np.divmod(np.array(sorted(found.pairs)), width)
    number = np.zeros((len(found.top), width), np.int32)
    number[stack, control] = np.arange(1, len(stack) + 1)
    above = np.zeros((len(found.top), len(machine.pushes)), np.int64)
    above[:, 0] = np.arange(len(found.top))
    for (at, push), there in found.above.items():
        above[at, push] = there
    below, top = np.array(found.below), np.array(found.top)
    action = machine.action[control]
    following, push = moves.next[action], moves.push[action]
    table = np.zeros((len(stack) + 1, action.shape[1]), np.int32)
    table[1:] = np.where(following > 0, number[above[stack[:, None], push], np.maximum(following, 0)], 0)
    row, column = occupied(following == RETURN)
    places = _Places(row, column, stack[row], control[row])
    while len(places.row):
        places = _after_return(machine, places, below, top)
        action = machine.action[places.control, places.column]
        following, push = moves.next[action], moves.push[action]
        moved = (following > 0).nonzero()[0]
        there = number[above[places.stack[moved], push[moved]], following[moved]]
        table[places.row[moved] + 1, places.column[moved]] = there
        places = _Places(*(column[following == RETURN] for column in places))
    final = np.append(False, machine.end[control] == END_HERE)
    row = (machine.end[control] == END_RETURN).nonzero()[0]
    places = _Places(row, row, stack[row], control[row])
    while len(places.row):
        places = _after_return(machine, places, below, top)
        end = machine.end[places.control]
        final[places.row[end == END_HERE] + 1] = True
        places = _Places(*(column[end == END_RETURN] for column in places))
    return _reached(table, final, int(number[found.start, machine.start]), machine.byte_class)


def _after_return(machine: ByteMachine, places: _Places, below: np.ndarray, top: np.ndarray) -> _Places:
    """Those of some places that can return, in the control and the stack after the return."""
    symbol = top[places.stack]
    there = np.where(symbol >= 0, machine.ret[places.control, symbol], 0) if machine.num_symbols else places.control * 0
    at = there.nonzero()[0]
    return _Places(places.row[at], places.column[at], below[places.stack[at]], there[at])


def _reached(table: np.ndarray, final: np.ndarray, start: int, byte_class: np.ndarray) -> ByteDfa:
    """The automaton without the states that no text leads to."""
    kept = np.flatnonzero(reached(*moves(table), [0, start], len(table)))
    number = np.zeros(len(table), np.int32)
    number[kept] = np.arange(len(kept))
    return ByteDfa(number[table[kept]], byte_class[:256].astype(np.uint8), final[kept], int(number[start]))
