"""Text around values: a machine of the text and the machines of its values become one byte machine.

The text is the lowest frame, or a machine with frames of its own. A value is a call: its first byte pushes a symbol for the state
that follows it, and below its own first symbol that is where it returns to. One byte must always tell what comes: where it does
not, the format is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fsa_compile.arrays.graphs import reached
from fsa_compile.arrays.integers import distinct, firsts
from fsa_compile.arrays.ranges import ranges
from fsa_compile.artifact.arrays import NO_TEMPERATURE
from fsa_compile.artifact.guards import NO_GUARD, Guard, KeySets
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine
from fsa_compile.formats.request import FormatError
from fsa_compile.formats.text_labels import TextAutomaton
from fsa_compile.formats.tree import Value
from fsa_compile.limits import Deadline


def framed_machine(
    automaton: TextAutomaton, machines: Sequence[ByteMachine], deadline: Deadline, starts: Sequence[int] | None = None
) -> ByteMachine:
    """One machine of an automaton and the machines of its values.

    Args:
      automaton: of the text.
      machines: of its values, each with one symbol on its stack at first and one control where texts end; one machine may read
        several of the values.
      starts: the controls at which the values begin; None: each at its machine's own.

    Raises:
      FormatError: after some text the next byte can be read in two ways.
    """
    first = [machine.start for machine in machines] if starts is None else starts
    places = zip(machines, first, automaton.schemas)
    values = [Value(machine, start, node.pointer) for machine, start, node in places]
    outer, number = _text_machine(automaton)
    calls = [(at, value, int(number[after]) - 1) for at, called in automaton.calls.items() for value, after in called.items()]
    return _Framing(outer, values, sorted(calls), deadline).machine()


def with_values(outer: ByteMachine, values: Sequence[Value], deadline: Deadline) -> ByteMachine:
    """A machine with values in the place of some special tokens: of token `~number` stands value `number`.

    Args:
      outer: without a stack at first and without bit sets, deterministic.
      values: each of a machine with one symbol on its stack at first and one control where texts end; one machine may read
        several. None of their texts is empty.

    Raises:
      FormatError: after some text the next byte can be read in two ways.
    """
    calls = []
    for place, token in enumerate(outer.specials):
        if token < 0:
            action = outer.action[:, outer.byte_class[256 + place]]
            calls += [(int(at), ~token, int(outer.entry_offset[action[at]])) for at in np.flatnonzero(action)]
    return _Framing(outer, values, sorted(calls), deadline).machine()


def _text_machine(automaton: TextAutomaton) -> tuple[ByteMachine, np.ndarray]:
    """(an automaton without its values as a machine; by state, number of the action that leads there, 0 for none)."""
    states = len(automaton.table)
    is_target = np.zeros(states, bool)
    is_target[automaton.table] = True
    is_target[[after for called in automaton.calls.values() for after in called.values()]] = True
    is_target[0] = False
    targets = is_target.nonzero()[0]
    number = np.where(is_target, is_target.cumsum(), 0).astype(np.int32)
    machine = ByteMachine(
        byte_class=automaton.byte_class.astype(np.int32),
        specials=automaton.specials,
        action=number[automaton.table],
        entry_offset=np.append(0, np.arange(len(targets) + 1)).astype(np.int32),
        entry_next=targets.astype(np.int32),
        entry_push=np.zeros(len(targets), np.int32),
        entry_add=np.zeros(len(targets), np.int8),
        pushes=((),),
        ret=np.zeros((states, 0), np.int32),
        end=np.where(automaton.final, END_HERE, NO_END).astype(np.int8),
        bounds=np.full((states, 2), UNCOUNTED, np.int32),
        start=automaton.start,
        stack=(),
        control_names=("", *map(str, range(1, states))) if automaton.labels else (),
    )
    return machine, number


@dataclasses.dataclass(slots=True)
class _Offsets:
    """What is added to the numbers of one machine; 0 stays 0 in all but symbols."""

    control: int
    symbol: int
    action: int
    entry: int
    push: int
    guard: int
    kind: int


class _Framing:
    """A machine, and values that may begin at some of its controls.

    Args:
      calls: control of the outer machine, number of the value that begins there, entry that leads behind it; ascending.
    """

    def __init__(
        self, outer: ByteMachine, values: Sequence[Value], calls: list[tuple[int, int, int]], deadline: Deadline
    ) -> None:
        self.outer, self.values, self.calls = outer, values, calls
        self._first_of: dict[int, dict[int, int]] = {}
        inner = list({id(value.machine): value.machine for value in values}.values())
        self.machines = machines = [*inner, outer]
        index = {id(machine): number for number, machine in enumerate(machines)}
        self.machine_of = [index[id(value.machine)] for value in values]
        """Of every value, the number of its machine."""
        self.specials = tuple(sorted({token for machine in machines for token in machine.specials if token >= 0}))
        self.offsets: list[_Offsets] = []
        totals = _Offsets(0, 0, 0, 0, 0, 0, 0)
        for machine in machines:
            self.offsets.append(dataclasses.replace(totals))
            totals.control += machine.num_controls - 1
            totals.symbol += machine.num_symbols
            totals.action += len(machine.entry_offset) - 2
            totals.entry += len(machine.entry_next)
            totals.push += len(machine.pushes) - 1
            totals.guard += len(machine.sets.guards) - 1 if machine.sets else 0
            totals.kind += len(machine.sets.required) - 1 if machine.sets else 0
        self.totals, self.above = totals, self.offsets[-1]
        begun: list[set[int]] = [set() for _ in machines]
        for _, number, _ in self.calls:
            begun[self.machine_of[number]].add(values[number].start)
        self.outermost = [_outermost(machine, begin) for machine, begin in zip(machines, begun)]
        following = outer.entry_next[[entry for _, _, entry in self.calls]].tolist()
        self.uses = sorted({(number, after) for (_, number, _), after in zip(self.calls, following) if after != RETURN})
        self.symbol = {after: totals.symbol + i for i, after in enumerate(sorted({after for _, after in self.uses}))}
        self.controls = 1 + totals.control
        symbols = totals.symbol + len(self.symbol)
        deadline.check_bytes(4 * self.controls * symbols, "Putting the values' machines together")
        classes = [self._widened(machine.byte_class, machine.specials) for machine in (outer, *inner)]
        _, self.first, byte_class = np.unique(np.stack(classes), axis=1, return_index=True, return_inverse=True)
        self.byte_class = byte_class.reshape(-1).astype(np.int32)
        self.kinds = [kinds[self.first] for kinds in (*classes[1:], classes[0])]
        """Per machine, its class of every class of all; -1 for special tokens that it does not have."""
        self.action = np.zeros((self.controls, len(self.first)), np.int32)
        self.ret = np.zeros((self.controls, symbols), np.int32)
        self.end = np.full(self.controls, NO_END, np.int8)
        self.entries: list[tuple[int, int, int, int]] = []
        """Next, push string, add, guard of the entries beside the machines' own; each has an action of its own."""
        self.pushes: list[tuple[tuple[int, int], ...]] = [()]
        self._entry_number: dict[tuple[int, int, int, int], int] = {}
        self._push_number: dict[tuple[tuple[int, int], ...], int] = {}

    def machine(self) -> ByteMachine:
        for number in range(len(self.machines)):
            self._copy(number)
        for machine, offset in zip(self.machines, self.offsets):
            self.pushes += [tuple((s + offset.symbol, add) for s, add in push) for push in machine.pushes[1:]]
        self.end[self.above.control + 1 :] = self.outer.end[1:]
        for call in self.calls:
            self._add_call(*call)
        for number in range(len(self.machines) - 1):
            self._add_returns(number)
        own = np.array(self.entries, np.int64).reshape(-1, 4)
        none = (np.zeros(0, np.int64),) * 5
        joined = [np.concatenate(parts) for parts in zip(none, *(self._entries(n) for n in range(len(self.machines))))]
        offsets, following, push, add, guard = joined
        total = int(self.totals.entry)
        bounds = np.full((self.controls, 2), UNCOUNTED, np.int32)
        for machine, at in zip(self.machines, self.offsets):
            bounds[at.control + 1 : at.control + machine.num_controls] = machine.bounds[1:]
        reserve = np.full(self.controls, -1, np.int32)
        for machine, at in zip(self.machines, self.offsets):
            if machine.token_reserve is not None:
                reserve[at.control + 1 : at.control + machine.num_controls] = machine.token_reserve[1:]
        sets = self._sets(np.concatenate((guard, own[:, 3])).astype(np.int32)) if self.totals.guard else None
        heat = self._temperature()
        return ByteMachine(
            byte_class=self.byte_class,
            specials=self.specials,
            action=self.action,
            entry_offset=np.concatenate(([0, 0], offsets, total + 1 + np.arange(len(own)))).astype(np.int32),
            entry_next=np.concatenate((following, own[:, 0])).astype(np.int32),
            entry_push=np.concatenate((push, own[:, 1])).astype(np.int32),
            entry_add=np.concatenate((add, own[:, 2])).astype(np.int8),
            pushes=tuple(self.pushes),
            ret=self.ret,
            end=self.end,
            bounds=bounds,
            start=self._control(self.outer.start),
            stack=(),
            control_names=self._control_names(),
            symbol_names=self._symbol_names(),
            deterministic=all(machine.deterministic for machine in self.machines),
            sets=sets,
            token_reserve=reserve if (reserve >= 0).any() else None,
            temperature=heat if (heat != NO_TEMPERATURE).any() else None,
        )

    def _temperature(self) -> np.ndarray:
        """Temperatures of all controls; where a value may begin, that at its start counts too."""
        out = np.full(self.controls, NO_TEMPERATURE, np.float32)
        for machine, at in zip(self.machines, self.offsets):
            if machine.temperature is not None:
                out[at.control + 1 : at.control + machine.num_controls] = machine.temperature[1:]
        for control, number, _ in self.calls:
            inner = self.values[number].machine.temperature
            if inner is not None:
                place = self._control(control)
                out[place] = max(out[place], inner[self.values[number].start])
        return out

    def _control_names(self) -> tuple[str, ...]:
        """The outer machine's own names of its controls, where it has any."""
        if not self.outer.control_names:
            return ()
        return (*("",) * (1 + self.above.control), *self.outer.control_names[1:])

    def _symbol_names(self) -> tuple[str, ...]:
        """The machines' own names of their symbols, where one has any."""
        if not any(machine.symbol_names for machine in self.machines):
            return ()
        own = [name for machine in self.machines for name in machine.symbol_names or ("",) * machine.num_symbols]
        return (*own, *("value" for _ in self.symbol))

    def _widened(self, kinds: np.ndarray, specials: tuple[int, ...]) -> np.ndarray:
        """int32[256 + T], classes of all letters; -1 for special tokens that are not among its own."""
        out = np.full(256 + len(self.specials), -1, np.int32)
        out[:256] = kinds[:256]
        for place, token in enumerate(specials):
            if token >= 0:
                out[256 + self.specials.index(token)] = kinds[256 + place]
        return out

    def _control(self, state: int) -> int:
        """The control of one of the outer machine's."""
        return self.above.control + state if state else 0

    def _copy(self, number: int) -> None:
        """A machine's own controls."""
        machine, at = self.machines[number], self.offsets[number]
        kinds = self.kinds[number]
        order, first = np.argsort(kinds, kind="stable"), firsts(1 + kinds, machine.action.shape[1] + 1)
        control, kind, action = machine.cells
        cell, place = ranges(first[1 + kind], first[2 + kind])
        self.action[control[cell] + at.control, order[place]] = action[cell] + at.action
        control, symbol, after = machine.returns
        # Bounds on the rest of a text take every return for possible: through the first symbol, only where there is one.
        some = ~np.isin(symbol, machine.stack) | self.outermost[number][control]
        self.ret[control[some] + at.control, symbol[some] + at.symbol] = after[some] + at.control

    def _entries(self, number: int) -> tuple[np.ndarray, ...]:
        """A machine's entries in the numbers of all: ends of its actions, next, push, add, guard."""
        machine, at = self.machines[number], self.offsets[number]
        following, push = machine.entry_next.astype(np.int64), machine.entry_push.astype(np.int64)
        guard = machine.sets.entry.astype(np.int64) if machine.sets else np.zeros(len(following), np.int64)
        return (
            machine.entry_offset[2:].astype(np.int64) + at.entry,
            np.where(following > 0, following + at.control, following),
            np.where(push > 0, push + at.push, 0),
            machine.entry_add.astype(np.int64),
            np.where(guard > 0, guard + at.guard, 0),
        )

    def _own_action(self, following: int, push: tuple[tuple[int, int], ...] = (), add: int = 0) -> int:
        """The action with one entry of the text's own."""
        string = 0
        if push:
            string = self._push_number.setdefault(push, len(self.pushes))
            if string == len(self.pushes):
                self.pushes.append(push)
        entry = (following, string, add, 0)
        found = self._entry_number.setdefault(entry, len(self.entries))
        if found == len(self.entries):
            self.entries.append(entry)
        return 1 + self.totals.action + found

    def _add_call(self, control: int, number: int, entry: int) -> None:
        """The first bytes of a value that may begin in a control of the outer machine, and what follows it there."""
        outer, value, at = self.outer, self.values[number], self.offsets[self.machine_of[number]]
        machine = value.machine
        first = self._first_actions(number)
        after, row = int(outer.entry_next[entry]), self.action[self._control(control)]
        if after == RETURN:
            self._add_return(row, list(first), number)
            return
        before = tuple((s + self.above.symbol, add) for s, add in outer.pushes[outer.entry_push[entry]])
        bottom = (*before, (self.symbol[after], int(outer.entry_add[entry])), *((s + at.symbol, 0) for s in machine.stack))
        for kind, action in first.items():
            if row[kind]:
                self._refuse_beginning(number, kind)
            low, high = machine.entry_offset[action : action + 2].tolist()
            guarded = machine.sets is not None and machine.sets.guards[machine.sets.entry[low]] != NO_GUARD
            if high - low != 1 or machine.entry_next[low] == RETURN or guarded:
                self._refuse(number, kind, "begins the value in more than one way")
            push = tuple((s + at.symbol, add) for s, add in machine.pushes[machine.entry_push[low]])
            following = int(machine.entry_next[low]) + at.control
            row[kind] = self._own_action(following, bottom + push, int(machine.entry_add[low]))

    def _first_actions(self, number: int) -> dict[int, int]:
        """The actions of a value's machine at its first byte, by class of letters."""
        found = self._first_of.get(number)
        if found is None:
            value = self.values[number]
            actions = _columns(value.machine.action[value.start], self.kinds[self.machine_of[number]])
            at = actions.nonzero()[0]
            found = self._first_of[number] = dict(zip(at.tolist(), actions[at].tolist()))
        return found

    def _add_return(self, row: np.ndarray, first: list[int], number: int) -> None:
        """A frame of the outer machine ends where a value may begin."""
        leave = self._own_action(RETURN)
        ends = {leave, *(1 + self.above.action + np.flatnonzero(self.outer.entry_next[self.outer.entry_offset[1:-1]] == RETURN))}
        for kind in first:
            if row[kind] and row[kind] not in ends:
                self._refuse_beginning(number, kind)
            row[kind] = row[kind] or leave

    def _refuse_beginning(self, number: int, kind: int) -> None:
        if self.values[number].machine.token_reserve is not None:
            self._refuse_count(number)
        self._refuse(number, kind, "begins the value as well as other text that may stand here")

    def _add_returns(self, number: int) -> None:
        """Where the values of a machine may end: on what may follow them, and with the text where that may end there."""
        machine, at = self.machines[number], self.offsets[number]
        assert len(machine.stack) == 1
        uses = [(value, after) for value, after in self.uses if self.machine_of[value] == number]
        followers = [self._control(after) for _, after in uses]
        readable = (self.action[followers] != 0).any(0)
        if machine.token_reserve is not None and (self.first[readable] < 256).any():
            self._refuse_count(uses[0][0])
        leave = self._own_action(RETURN)
        last = np.flatnonzero(machine.end == END_HERE)
        assert len(last) == 1
        assert not machine.action[last].any()
        end = int(last[0]) + at.control
        self.action[end, readable] = leave
        for use in uses:
            self.ret[end, self.symbol[use[1]]] = self._control(use[1])
        may_end = bool((self.end[followers] != NO_END).any())
        returning = machine.end == END_RETURN
        if may_end:
            self.end[at.control : at.control + machine.num_controls][returning] = END_RETURN
            self.end[end] = END_RETURN
        for control in np.flatnonzero(returning & _closing(machine, self.outermost[number])).tolist():
            row = self.action[control + at.control]
            row[readable & (row == 0)] = leave
            own = _columns(machine.action[control], self.kinds[number])
            for kind in np.flatnonzero(readable & (own > 0)).tolist():
                if machine.entry_next[machine.entry_offset[own[kind]]] != RETURN:
                    self._refuse(uses[0][0], kind, "goes on with the value as well as with the text behind it")

    def _sets(self, entry: np.ndarray) -> KeySets:
        """The bit sets of all machines."""
        parts = []
        for machine, at in zip(self.machines, self.offsets):
            sets = machine.sets or _no_sets(machine)
            parts.append((sets, np.where(sets.kind > 0, sets.kind + at.kind, 0)))
        whole = [dataclasses.replace(sets, kind=kind) for sets, kind in parts]

        def joined(name: str) -> np.ndarray:
            columns = [np.asarray(getattr(sets, name)) for sets in whole]
            return np.concatenate([columns[0][:1], *(column[1:] for column in columns)])

        number: dict[Guard, int] = {NO_GUARD: 0}
        same = [0, *(number.setdefault(guard, len(number)) for sets in whole for guard in sets.guards[1:])]
        return KeySets(
            guards=tuple(number),
            entry=np.array(same, np.int32)[entry],
            kind=joined("kind").astype(np.int32),
            required=(0, *(bits for sets in whole for bits in sets.required[1:])),
            keys=(0, *(keys for sets in whole for keys in sets.keys[1:])),
            open=joined("open"),
            first=joined("first"),
            after=joined("after"),
            end=joined("end").astype(np.int32),
            came=joined("came").astype(np.int32),
            new=(0, *(keys for sets in whole for keys in sets.new[1:])),
        )

    def _refuse_count(self, number: int) -> None:
        fix = "Let a special token end it, or bound it by characters."
        what = "text whose tokens are counted ends only with a special token, and here text may follow it"
        raise FormatError(what, pointer=self.values[number].pointer, fix=fix)

    def _refuse(self, number: int, kind: int, what: str) -> None:
        letter = int(self.first[kind])
        if letter >= 256:
            shown = f"special token {self.specials[letter - 256]}"
        else:
            shown = f"byte {chr(letter) if 0x20 < letter < 0x7F else f'0x{letter:02x}'!r}"
        raise FormatError(
            f"the {shown} {what}, so it cannot be told what it is", pointer=self.values[number].pointer,
            fix="Let the text before and behind a value begin otherwise, as tags such as <call> do; join alternatives by anyOf.",
        )  # fmt: skip


def _columns(table: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """The columns of some classes; nothing for class -1."""
    return np.where(kinds >= 0, table.take(kinds, axis=-1), 0)


def _outermost(machine: ByteMachine, starts: set[int]) -> np.ndarray:
    """bool[S], controls that can be reached in the frame of the whole value, directly above the first symbol."""
    size = machine.num_controls
    bottom = np.array([push[0][0] if push else -1 for push in machine.pushes])[machine.entry_push]
    # A call leads to a node of its first symbol, and that one to where frames return through it.
    leads = np.where(bottom >= 0, size + bottom, np.maximum(machine.entry_next, 0))
    control, _, action = machine.cells
    which, entry = ranges(machine.entry_offset[action], machine.entry_offset[action + 1])
    _, symbol, there = machine.returns
    source, target = np.concatenate((control[which], size + symbol)), np.concatenate((leads[entry], there))
    source, target = np.divmod(distinct(source * (size + machine.num_symbols) + target), size + machine.num_symbols)
    return reached(source[target > 0], target[target > 0], starts, size + machine.num_symbols)[:size]


def _closing(machine: ByteMachine, outermost: np.ndarray) -> np.ndarray:
    """bool[S], controls behind which a value may be complete: those of its own frame, and of frames that end together with it."""
    (last,) = np.flatnonzero(machine.end == END_HERE)
    returning = machine.end == END_RETURN
    control, symbol, after = machine.returns
    found = outermost & returning & (machine.ret[:, machine.stack[0]] == last)
    inner = returning[control] & (symbol != machine.stack[0])
    while True:
        more = control[inner & found[after] & ~found[control]]
        if not len(more):
            return found
        found[more] = True


def _no_sets(machine: ByteMachine) -> KeySets:
    count = machine.num_controls
    none, zeros, nothing = np.zeros(count, bool), np.zeros(count, np.int32), (0,) * count
    entry = np.zeros(len(machine.entry_next), np.int32)
    return KeySets((NO_GUARD,), entry, zeros, (0,), nothing, none, none, none, zeros - 1, zeros, nothing)
