"""A machine with a stack times an automaton over bytes: the texts of the machine that also pass a filter.

The filter's state travels with the control, through calls and returns: control c and filter state f become one control. That
alone would leave dead ends, since whether a frame can be finished in a way that suits the frames below it depends on these. So a
control also knows its *contract*: in which (control, filter state) pairs, and at which bytes, its frame may return so that the
rest can be finished. A pushed symbol remembers the contract of the frame that it suspends, and the frame above it gets one of its
own. Contracts come from *exits*: how frames entered in a pair can be left at all, a least fixed point over the whole machine.

Source: summaries of pushdown systems, after Bouajjani, Esparza and Maler, "Reachability analysis of pushdown automata", 1997.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "Filtering the frames of the constraint"

_Pair = tuple[int, int]
"""A control and a state of the filter."""
_Push = tuple[int, ...]
_Node = tuple[_Push, _Pair]
"""What goes on above some symbols that were pushed in a frame: () is the frame itself."""
_Exit = tuple[_Pair, int]
"""Where a frame returns, and at which symbols (bits; the highest one is the end of the text)."""


def is_plain(machine: ByteMachine) -> bool:
    """Whether `filtered_machine` takes it: it counts nothing, keeps no sets, and is deterministic."""
    return machine.sets is None and machine.deterministic and not (machine.bounds != UNCOUNTED).any()


def filtered_machine(machine: ByteMachine, passing: ByteDfa, limits: CompileLimits, deadline: Deadline) -> ByteMachine | None:
    """The machine of the texts that a filter lets pass, trimmed.

    Args:
      machine: trimmed and plain. Special tokens leave the filter's state as it is.

    Returns:
      None where no text passes.
    """
    exits = _Exits(machine, passing, limits, deadline)
    while True:
        known = dict(exits.returns)
        found = _Product(machine, exits).machine()
        if exits.returns == known:  # else contracts were made before all returns were known
            return found


class _Step(NamedTuple):
    """What a pair does at some symbols: `node` is entered, or None for a return."""

    symbols: int
    node: _Node | None


class _Exits:
    """How frames can be left.

    Attributes:
      symbols: joint classes of bytes and special tokens; the bit `end` stands for the end of the text.
      of: per node all its exits.
      returns: all pairs that return, and at which symbols.
      accepts: nodes from which the text may end above the frame, or in it without a return.
    """

    def __init__(self, machine: ByteMachine, passing: ByteDfa, limits: CompileLimits, deadline: Deadline) -> None:
        self.raw, self.final, self.first = machine, passing.final, passing.start
        self.limits, self.deadline = limits, deadline
        kinds: dict[tuple[int, int], int] = {}
        column = np.append(passing.byte_class.astype(np.int64), np.full(len(machine.specials), -1))
        pairs = zip(machine.byte_class.tolist(), column.tolist())
        self.class_of = np.array([kinds.setdefault(pair, len(kinds)) for pair in pairs], np.int32)
        self.machine_class = np.array([kind for kind, _ in kinds])
        self.end = 1 << len(kinds)
        columns = np.array([column for _, column in kinds])
        self.after = np.where(columns >= 0, passing.table[:, columns], np.arange(len(passing.final))[:, None])
        self.after[0] = 0
        entry = np.append(machine.entry_offset[:-1], 0)
        self.entry = np.where(machine.action > 0, entry[machine.action], -1)[:, self.machine_class]
        self.pushes = [tuple(symbol for symbol, _ in string) for string in machine.pushes]
        self.of: dict[_Node, set[_Exit]] = {}
        self.returns: dict[_Pair, int] = {}
        self.accepts: set[_Node] = set()
        self._steps: dict[_Pair, list[_Step]] = {}
        self._holders: dict[_Node, set[_Node]] = {}  # nodes that have all exits of a node
        self._callers: dict[_Pair, set[_Node]] = {}  # nodes above whose symbols a pair goes on
        self._todo: list[tuple[_Node, _Exit | None]] = []
        self._unseen: list[_Node] = []

    def steps(self, pair: _Pair) -> list[_Step]:
        """All that a pair can do, by what it does."""
        found = self._steps.get(pair)
        if found is None:
            control, f = pair
            masks: dict[_Node | None, int] = {}
            for j in np.flatnonzero((self.entry[control] >= 0) & (self.after[f] > 0)).tolist():
                node = self._entered(int(self.entry[control, j]), int(self.after[f, j]))
                masks[node] = masks.get(node, 0) | 1 << j
            found = self._steps[pair] = [_Step(mask, node) for node, mask in masks.items()]
        return found

    def _entered(self, entry: int, f: int) -> _Node | None:
        control = int(self.raw.entry_next[entry])
        return None if control == RETURN else (self.pushes[self.raw.entry_push[entry]], (control, f))

    def ends(self, pair: _Pair) -> int:
        """`END_HERE`, `END_RETURN` or `NO_END`, the filter taken into account."""
        end = int(self.raw.end[pair[0]])
        return NO_END if end == END_HERE and not self.final[pair[1]] else end

    def explore(self, node: _Node) -> None:
        """Makes sure that the exits of a node, and of all nodes it leads to, are known."""
        self._unseen.append(node)
        count = 0
        while self._unseen or self._todo:
            count += 1
            if not count & 1023:
                self.deadline.check(_DOING)
            if self._unseen:
                self._visit(self._unseen.pop())
                continue
            at, left = self._todo.pop()
            for holder in tuple(self._holders.get(at, ())):
                self._add(holder, left)
            if not at[0]:
                for caller in tuple(self._callers.get(at[1], ())):
                    self._leave(caller, caller[0], left)

    def _visit(self, node: _Node) -> None:
        if node in self.of:
            return
        self.of[node] = set()
        if len(self.of) > self.limits.max_states:
            raise LimitError("max_states", self.limits.max_states, _DOING)
        string, pair = node
        if string:
            frame: _Node = ((), pair)
            self._callers.setdefault(pair, set()).add(node)
            if frame not in self.of:
                self._unseen.append(frame)
                return
            for left in tuple(self.of[frame]):
                self._leave(node, string, left)
            if frame in self.accepts:
                self._leave(node, string, None)
            return
        returns = 0
        for step in self.steps(pair):
            if step.node is None:
                returns |= step.symbols
            else:
                self._hold(node, step.node)
        end = self.ends(pair)
        if end == END_HERE:
            self._add(node, None)
        elif end == END_RETURN:
            returns |= self.end
        if returns:
            self.returns[pair] = self.returns.get(pair, 0) | returns
            self._add(node, (pair, returns))

    def _hold(self, node: _Node, inner: _Node) -> None:
        """All exits of `inner` are exits of `node`."""
        holders = self._holders.setdefault(inner, set())
        if node in holders:
            return
        holders.add(node)
        if inner in self.of:
            for left in tuple(self.of[inner]):
                self._add(node, left)
            if inner in self.accepts:
                self._add(node, None)
        else:
            self._unseen.append(inner)

    def _add(self, node: _Node, left: _Exit | None) -> None:
        if left is None:
            if node not in self.accepts:
                self.accepts.add(node)
                self._todo.append((node, None))
        elif left not in self.of[node]:
            self.of[node].add(left)
            self._todo.append((node, left))

    def _leave(self, node: _Node, string: _Push, left: _Exit | None) -> None:
        """The frame above a node's symbols has an exit (None: the text may end in it): what follows in the node."""
        if left is None or not string:
            self._add(node, left)
            return
        rest = string[:-1]
        for inner, out in self._resumed(string[-1], left):
            if inner is None:
                self._leave(node, rest, out)
            else:
                self._hold(node, (rest + inner[0], inner[1]))

    def _resumed(self, symbol: int, left: _Exit) -> Iterator[tuple[_Node | None, _Exit | None]]:
        """What the frame below a symbol does when the one above is left: enters a node, or returns at once, or (None, None) the
        text may end there."""
        (control, f), symbols = left
        there = (int(self.raw.ret[control, symbol]), f)
        if not there[0]:
            return
        returns = 0
        for step in self.steps(there):
            if step.symbols & symbols:
                if step.node is None:
                    returns |= step.symbols & symbols
                else:
                    yield step.node, None
        if symbols & self.end:
            end = self.ends(there)
            if end == END_HERE:
                yield None, None
            elif end == END_RETURN:
                returns |= self.end
        if returns:
            self.returns[there] = self.returns.get(there, 0) | returns
            yield None, (there, returns)


Contract = frozenset[_Exit]
_Control = tuple[int, int, int]
"""Control, filter state, number of the contract."""


class _Product:
    def __init__(self, machine: ByteMachine, exits: _Exits) -> None:
        self.raw, self.exits = machine, exits
        self.contracts: list[dict[_Pair, int]] = []
        self.numbers: dict[Contract, int] = {}
        self.above: dict[tuple[int, int], int] = {}
        self.controls: dict[_Control, int] = {}
        self.todo: list[_Control] = []
        self.symbols: dict[tuple[int, int], int] = {}
        self.returning: dict[int, list[_Control]] = {}
        self.suspended: dict[int, list[tuple[int, int]]] = {}
        self.ret: dict[tuple[int, int], int] = {}
        self.push_number: dict[_Push, int] = {(): 0}

    def machine(self) -> ByteMachine | None:
        start: _Pair = (self.raw.start, self.exits.first)
        self.exits.explore((self.raw.stack, start))
        bottom = self._contract({})
        top, stack = self._pushed(bottom, self.raw.stack)
        if not self._live(((), start), top):
            return None
        first = self._control(start, top)
        rows: list[dict[int, tuple[int, int]]] = []
        end = [NO_END]
        for control, f, contract in self.todo:
            pair, held = (control, f), self.contracts[contract].get((control, f), 0)
            row: dict[int, tuple[int, int]] = {}
            for step in self.exits.steps(pair):
                for symbols, target, push in self._moves(step, contract, held):
                    row[symbols] = (target, push)
            rows.append(row)
            how = self.exits.ends(pair)
            end.append(how if how != END_RETURN or held & self.exits.end else NO_END)
            if held:
                self.returning.setdefault(contract, []).append((control, f, contract))
                for symbol in self.suspended.get(contract, ()):
                    self._join((control, f, contract), symbol)
            if not len(rows) & 255:
                self.exits.deadline.check(_DOING)
        return self._arrays(rows, end, first, stack)

    def _moves(self, step: _Step, contract: int, held: int) -> Iterator[tuple[int, int, int]]:
        if step.node is None:
            if step.symbols & held:
                yield step.symbols & held, RETURN, 0
            return
        string, pair = step.node
        if self._live(step.node, contract):
            top, symbols = self._pushed(contract, string)
            yield step.symbols, self._control(pair, top), self.push_number.setdefault(symbols, len(self.push_number))

    def _live(self, node: _Node, contract: int) -> bool:
        """Whether a frame with this contract can be finished when it enters a node."""
        self.exits.explore(node)
        if node in self.exits.accepts:
            return True
        wanted = self.contracts[contract]
        return any(wanted.get(pair, 0) & symbols for pair, symbols in self.exits.of[node])

    def _contract(self, wanted: dict[_Pair, int]) -> int:
        key = frozenset(wanted.items())
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.contracts)
            self.contracts.append(wanted)
            self.exits.deadline.check(_DOING)
            if found > self.exits.limits.max_states:
                raise LimitError("max_states", self.exits.limits.max_states, _DOING)
        return found

    def _pushed(self, contract: int, string: _Push) -> tuple[int, _Push]:
        """Contract of the frame above symbols pushed in a frame, and the symbols of the product."""
        symbols = []
        for symbol in string:
            key = (symbol, contract)
            number = self.symbols.get(key)
            if number is None:
                number = self.symbols[key] = len(self.symbols)
                self.above[key] = self._above(symbol, contract)
                self.suspended.setdefault(self.above[key], []).append(key)
                for control in tuple(self.returning.get(self.above[key], ())):
                    self._join(control, key)
            symbols.append(number)
            contract = self.above[key]
        return contract, tuple(symbols)

    def _above(self, symbol: int, contract: int) -> int:
        """The contract of frames above a symbol: the pairs and symbols at which the frame below can go on."""
        wanted: dict[_Pair, int] = {}
        below = self.contracts[contract]
        for pair, symbols in tuple(self.exits.returns.items()):
            there = (int(self.raw.ret[pair[0], symbol]), pair[1])
            if not there[0]:
                continue
            good = 0
            held = below.get(there, 0)
            for step in self.exits.steps(there):
                if step.symbols & symbols:
                    if step.node is None:
                        good |= step.symbols & symbols & held
                    elif self._live(step.node, contract):
                        good |= step.symbols & symbols
            if symbols & self.exits.end:
                how = self.exits.ends(there)
                if how == END_HERE or (how == END_RETURN and held & self.exits.end):
                    good |= self.exits.end
            if good:
                wanted[pair] = good
        return self._contract(wanted)

    def _join(self, control: _Control, symbol: tuple[int, int]) -> None:
        """Notes where a control returns through a symbol."""
        there = int(self.raw.ret[control[0], symbol[0]])
        if there:
            target = self._control((there, control[1]), symbol[1])
            self.ret[self.controls[control], self.symbols[symbol]] = target

    def _control(self, pair: _Pair, contract: int) -> int:
        key = (*pair, contract)
        found = self.controls.get(key)
        if found is None:
            found = self.controls[key] = len(self.controls) + 1
            self.todo.append(key)
            if found > self.exits.limits.max_states:
                raise LimitError("max_states", self.exits.limits.max_states, _DOING)
        return found

    def _arrays(self, rows: list[dict[int, tuple[int, int]]], end: list[int], first: int, stack: _Push) -> ByteMachine:
        width = len(self.exits.machine_class)
        action = np.zeros((len(rows) + 1, width), np.int32)
        entries: dict[tuple[int, int], int] = {}
        for number, row in enumerate(rows, 1):
            for symbols, entry in row.items():
                kind = entries.setdefault(entry, len(entries) + 1)
                packed = np.frombuffer(symbols.to_bytes(width // 8 + 1, "little"), np.uint8)
                action[number, np.unpackbits(packed, bitorder="little")[:width] == 1] = kind
        following = np.array([target for target, _ in entries], np.int32)
        ret = np.zeros((len(rows) + 1, len(self.symbols)), np.int32)
        for (control, symbol), target in self.ret.items():
            ret[control, symbol] = target
        names = self.raw.control_names
        symbol_names = self.raw.symbol_names
        return ByteMachine(
            byte_class=self.exits.class_of,
            specials=self.raw.specials,
            action=action,
            entry_offset=np.append(0, np.arange(len(entries) + 1)).astype(np.int32),
            entry_next=following,
            entry_push=np.array([push for _, push in entries], np.int32),
            entry_add=np.zeros(len(entries), np.int8),
            pushes=tuple(tuple((symbol, 0) for symbol in string) for string in self.push_number),
            ret=ret,
            end=np.array(end, np.int8),
            bounds=np.full((len(rows) + 1, 2), UNCOUNTED, np.int32),
            start=first,
            stack=stack,
            control_names=("", *(names[c] for c, _, _ in self.todo)) if names else (),
            symbol_names=tuple(symbol_names[s] for s, _ in self.symbols) if symbol_names else (),
        )
