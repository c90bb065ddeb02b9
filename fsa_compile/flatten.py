"""A machine whose stacks are few becomes a byte automaton: every stack that can occur is written out.

Without recursion and counters a machine with frames is only a regular automaton told in fewer words. While those are not many
more, the regular walk is the faster one, and its artifact needs no stack on the device.
"""

from __future__ import annotations

import numpy as np

from fsa_compile.byte_dfa import ByteDfa
from fsa_compile.byte_machine import END_HERE, END_RETURN, RETURN, UNCOUNTED, ByteMachine


def flattened(machine: ByteMachine, most: int) -> ByteDfa | None:
    """The byte automaton of a machine's language.

    Args:
      machine: trimmed.
      most: states, at most.

    Returns:
      The automaton; None where the machine recurs, counts, reads special tokens, is not deterministic, or has more stacks and
      controls than `most`.
    """
    if machine.specials or not machine.deterministic or (machine.bounds != UNCOUNTED).any():
        return None
    try:
        return _Flattening(machine, most).automaton()
    except _UnboundedError:
        return None


class _UnboundedError(Exception):
    """Too many states, or a stack that holds a symbol twice."""


class _Flattening:
    """States are (stack, control) pairs; their keys are `number of the stack * S + control`, 0 for the dead one."""

    def __init__(self, machine: ByteMachine, most: int) -> None:
        self.machine, self.most = machine, most
        self.width = machine.num_controls
        live = np.diff(machine.entry_offset) > 0
        entry = machine.entry_offset[:-1][live]
        self.next, self.push = np.zeros(len(live), np.int64), np.zeros(len(live), np.int64)
        self.next[live], self.push[live] = machine.entry_next[entry], machine.entry_push[entry]
        self.number: dict[tuple[int, ...], int] = {}
        self.stacks: list[tuple[int, ...]] = []

    def automaton(self) -> ByteDfa:
        """The automaton, its states in the order of their keys. What a control leads to within its frame is done at once."""
        first = self._stack(self.machine.stack) * self.width + self.machine.start
        after = self._successors()
        keys, rows, final = [np.zeros(1, np.int64)], [np.zeros((1, self.machine.action.shape[1]), np.int64)], [np.zeros(1, bool)]
        seen, todo = {0, first}, [first]
        while todo:
            stack = todo[-1] // self.width
            mine = []
            while todo and todo[-1] // self.width == stack:
                mine.append(todo.pop())
                near = [stack * self.width + c for c in after[mine[-1] % self.width]]
                todo += [key for key in near if key not in seen]
                seen.update(near)
            if len(seen) > self.most:
                raise _UnboundedError
            keys.append(np.array(mine))
            rows.append(self._rows(stack, keys[-1] % self.width))
            final.append(self._final(stack, keys[-1] % self.width))
            new = set(np.unique(rows[-1]).tolist()) - seen
            seen |= new
            todo += sorted(new)
        key = np.concatenate(keys)
        at = np.argsort(key)
        table = np.searchsorted(key[at], np.concatenate(rows)[at])
        return self._reached(table, np.concatenate(final)[at], int(np.searchsorted(key[at], first)))

    def _successors(self) -> list[list[int]]:
        """Per control others of its frame: those it moves to, and those where what it calls may return to."""
        machine = self.machine
        source, kind = machine.action.nonzero()
        action = machine.action[source, kind]
        moves = (self.next[action] > 0) & (self.push[action] == 0)
        found = [source[moves] * self.width + self.next[action[moves]]]
        if machine.num_symbols:
            back, popped = machine.ret.nonzero()
            returned = np.unique(popped * self.width + machine.ret[back, popped])
            begin = np.searchsorted(returned, np.arange(machine.num_symbols + 1) * self.width)
            lowest = np.array([push[0][0] if push else -1 for push in machine.pushes])[self.push[action]]
            for pair in np.unique((source * machine.num_symbols + lowest)[lowest >= 0]).tolist():
                caller, symbol = divmod(pair, machine.num_symbols)
                found.append(caller * self.width + returned[begin[symbol] : begin[symbol + 1]] % self.width)
        out: list[list[int]] = [[] for _ in range(self.width)]
        for pair in np.unique(np.concatenate(found)).tolist():
            out[pair // self.width].append(pair % self.width)
        return out

    def _reached(self, table: np.ndarray, final: np.ndarray, start: int) -> ByteDfa:
        """The automaton without the states of a frame that this stack does not lead to."""
        seen = np.zeros(len(table), bool)
        seen[[0, start]] = True
        new = np.array([start])
        while len(new):
            after = np.zeros(len(table), bool)
            after[table[new].ravel()] = True
            new = (after & ~seen).nonzero()[0]
            seen |= after
        number = np.cumsum(seen) - 1
        byte_class = self.machine.byte_class[:256].astype(np.uint8)
        return ByteDfa(number[table[seen]].astype(np.int32), byte_class, final[seen], int(number[start]))

    def _stack(self, symbols: tuple[int, ...]) -> int:
        found = self.number.get(symbols)
        if found is None:
            if len(set(symbols)) < len(symbols) or len(self.stacks) >= self.most:
                raise _UnboundedError
            found = self.number[symbols] = len(self.stacks)
            self.stacks.append(symbols)
        return found

    def _rows(self, stack: int, control: np.ndarray) -> np.ndarray:
        """Keys of the states after every class, int64[n, C]."""
        action = self.machine.action[control]
        following, push = self.next[action], self.push[action]
        out = np.zeros(following.shape, np.int64)
        symbols = self.stacks[stack]
        for p in np.unique(push[following > 0]).tolist():
            above = self._stack(symbols + tuple(symbol for symbol, _ in self.machine.pushes[p]))
            which = (following > 0) & (push == p)
            out[which] = above * self.width + following[which]
        returns = following == RETURN
        below = self._returned(symbols, control, returns.any(1))
        if below is not None:
            at, place, there = below
            out[at] = np.where(returns[at], self._rows(place, there), out[at])
        return out

    def _final(self, stack: int, control: np.ndarray) -> np.ndarray:
        """Whether the text may end, bool[n]."""
        end = self.machine.end[control]
        out = end == END_HERE
        below = self._returned(self.stacks[stack], control, end == END_RETURN)
        if below is not None:
            at, place, there = below
            out[at] |= self._final(place, there)
        return out

    def _returned(
        self, symbols: tuple[int, ...], control: np.ndarray, asked: np.ndarray
    ) -> tuple[np.ndarray, int, np.ndarray] | None:
        """Of the controls asked for: which can return, the stack below, and the controls there."""
        if not symbols or not asked.any():
            return None
        there = self.machine.ret[control, symbols[-1]].astype(np.int64)
        at = (asked & (there > 0)).nonzero()[0]
        return (at, self._stack(symbols[:-1]), there[at]) if len(at) else None
