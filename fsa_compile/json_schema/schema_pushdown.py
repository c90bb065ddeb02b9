"""Controls to `ByteMachine`: what leads nowhere is cut, bytes become classes, moves become actions.

For some bounds, controls are copied before by what is hoped of their frames (`Aims`).
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from fsa_compile.arrays.integers import equal_rows, exampled, firsts, numbered, order_of
from fsa_compile.arrays.pages import small_pages
from fsa_compile.arrays.ranges import ranges
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine
from fsa_compile.json_schema.key_guards import KeyGuards
from fsa_compile.json_schema.machine_builder import Controls

_FAR = 1 << 40
"""Bytes to an outcome that cannot be reached, on a way that has to end with another."""


class Reach:
    """What the controls of a finished pool can reach.

    Attributes:
      outcomes: per control a bit set of the outcomes that its frame can still end with.
      poisoned: controls that a value may return to, although nothing can follow there.
      moves, source: int64[n, 3] and int64[n], own moves of all controls, and the controls.
    """

    def __init__(self, controls: Controls, end: int) -> None:
        self._controls, self._end = controls, end
        size = len(controls.moves)
        self.moves = _rows(controls.moves, 3)
        self.source = np.arange(size).repeat(np.fromiter(map(len, controls.moves), np.int64, size))
        _, first, _ = exampled(self.source * size + self.moves[:, 2])
        first.sort()
        source, target = self.source[first], self.moves[first, 2]
        self._targets, self._begin = target.tolist(), firsts(source, size).tolist()
        order = order_of(target)
        self._sources, self._sources_begin = source[order].tolist(), firsts(target, size).tolist()
        self.outcomes = self._find_outcomes()
        self.poisoned = {
            target
            for symbol, entry in {call for calls in controls.calls.values() for call in calls}
            for outcome, target in controls.symbols[symbol].items()
            if self.outcomes[entry] >> outcome & 1 and not self.outcomes[target]
        }
        for control, lists in controls.needed.items():
            if self.outcomes[control] and any(sum(self.outcomes[t] > 0 for t in ends) < least for ends, least in lists):
                self.poisoned.add(control)

    def _after(self, control: int) -> list[int]:
        """The controls that a control's own moves lead to."""
        return self._targets[self._begin[control] : self._begin[control + 1]]

    def _find_outcomes(self) -> list[int]:
        """The least fixpoint: by own moves, and over calls by the outcomes of the callee."""
        c, before, begin = self._controls, self._sources, self._sources_begin
        sites: dict[int, set[tuple[int, int]]] = {}
        callers: dict[tuple[int, int], list[int]] = {}
        for control, calls in c.calls.items():
            for call in calls:
                if call not in callers:
                    callers[call] = []
                    for x in (call[1], *c.symbols[call[0]].values()):
                        sites.setdefault(x, set()).add(call)
                callers[call].append(control)
        out = [1 << outcome if outcome else 0 for outcome in c.outcome]
        out[self._end] |= 1
        todo = [control for control, bits in enumerate(out) if bits]
        shut = {control for control in c.firsts if c.needed.get(control)}
        while todo:
            while todo:
                at = todo.pop()
                bits = out[at]
                for control in before[begin[at] : begin[at + 1]]:
                    if bits & ~out[control] and control not in shut:
                        out[control] |= bits
                        todo.append(control)
                for call in sites.get(at, ()):
                    ends = out[call[1]]
                    after = 0
                    for outcome, target in c.symbols[call[0]].items():
                        if ends >> outcome & 1:
                            after |= out[target]
                    for control in callers[call] if after else ():
                        if after & ~out[control] and control not in shut:
                            out[control] |= after
                            todo.append(control)
            todo = self._opened(shut, out)
        return out

    def _opened(self, shut: set[int], out: list[int]) -> list[int]:
        """Opens the beginnings of objects whose required members all have values that end; returns them.

        Without this, an object that must hold one like itself would only seem to end: each level would wait for the next.
        """
        c = self._controls
        opened = []
        for control in shut:
            if all(sum(self._has_value(end, out) for end in ends) >= least for ends, least in c.needed[control]):
                opened.append(control)
        shut.difference_update(opened)
        for control in opened:
            for target in self._after(control):
                out[control] |= out[target]
            for symbol, entry in c.calls.get(control, ()):
                for outcome, target in c.symbols[symbol].items():
                    out[control] |= out[target] if out[entry] >> outcome & 1 else 0
        return opened

    def _has_value(self, end: int, out: list[int]) -> bool:
        """Whether a value that ends may follow the key that ends at a control."""
        c = self._controls
        seen, todo = {end}, [end]
        while todo:
            control = todo.pop()
            if control in c.kind and control not in c.key_ends:
                return True  # a value that is not called has been read
            for symbol, entry in c.calls.get(control, ()):
                if any(out[entry] >> outcome & 1 for outcome, target in c.symbols[symbol].items() if target):
                    return True
            fresh = set(self._after(control)) - seen
            seen |= fresh
            todo += fresh
        return False

    def usable(self, symbol: int, entry: int) -> bool:
        """Whether a call can end and its caller go on."""
        ends, returns = self.outcomes[entry], self._controls.symbols[symbol]
        return any(ends >> outcome & 1 and self.outcomes[target] for outcome, target in returns.items())

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """(control, next one), int64[n] each, ascending: own moves to controls that can reach an outcome."""
        alive = np.fromiter(map(bool, self.outcomes), bool, len(self.outcomes))
        target = np.array(self._targets, np.int64)
        kept = alive[target]
        return np.arange(len(alive)).repeat(np.diff(self._begin))[kept], target[kept]

    def live(self, start: int, symbol: int, *more: int) -> list[int]:
        """The controls that can be reached and can reach an outcome, the first of them `start`; `more` are other entries."""
        c, out, targets, begin = self._controls, self.outcomes, self._targets, self._begin
        called: dict[tuple[int, int], list[int]] = {}

        def ends(y: int, entry: int) -> list[int]:
            return [target for outcome, target in c.symbols[y].items() if out[entry] >> outcome & 1 and out[target]]

        order = list(dict.fromkeys([start, *more, *(control for entry in (start, *more) for control in ends(symbol, entry))]))
        fresh = [bits > 0 for bits in out]
        for control in order:
            fresh[control] = False
        for control in order:  # breadth first, over own moves and then calls
            after = targets[begin[control] : begin[control + 1]]
            for call in c.calls.get(control, ()):
                if call not in called:
                    called[call] = [call[1], *ends(*call)] if self.usable(*call) else []
                after += called[call]
            for target in after:
                if fresh[target]:
                    fresh[target] = False
                    order.append(target)
        return order


class Aims:
    """Copies the controls of a finished pool, one copy for each outcome that a caller hopes for.

    Bounds on the rest of a text give every control one distance and every stack symbol one cost (`costs`), so a frame heads for
    one of its ends, whoever called it. Where one caller hopes that an element is valid and another that it is not, no such bound
    may exist. Here a call wants of its callee the outcome from which the caller gets to its own aim by the fewest bytes; an end
    with another outcome is a stray, which pays for what the caller has to do then.
    """

    def __init__(self, controls: Controls, reach: Reach) -> None:
        self._controls, self._reach = controls, reach
        self._nearest = _nearest_ends(controls, reach)
        self._copies: dict[tuple[int, int], int] = {}
        self._symbols: dict[tuple[int, int, int], int] = {}
        self._kinds: dict[tuple[int, int], int] = {}
        self._strays: dict[tuple[int, int], int] = {}
        self._first_stray = 1 + max(controls.outcome)
        self._todo: list[tuple[int, int, int]] = []

    def called(self, symbol: int, entry: int) -> tuple[int, int]:
        """The call of the whole value, copied with all that it leads to."""
        call = self._call(symbol, entry, 0)
        while self._todo:
            self._fill(*self._todo.pop())
        return call

    def _copy(self, control: int, wanted: int) -> int:
        """The control, in a frame of which an outcome is wanted; those outside all frames are the same for all."""
        if not wanted or not self._reach.outcomes[control]:
            return control if not wanted else 0
        found = self._copies.get((control, wanted))
        if found is None:
            c = self._controls
            outcome = self._end(c.outcome[control], wanted) if c.outcome[control] else 0
            found = self._copies[control, wanted] = c.new((), outcome, c.bounds.get(control))
            if outcome >= self._first_stray:
                c.strays.add(found)
            self._todo.append((found, control, wanted))
        return found

    def _fill(self, copy: int, control: int, wanted: int) -> None:
        c = self._controls
        c.moves[copy] = tuple((low, high, self._copy(t, wanted)) for low, high, t in c.moves[control] if self._reach.outcomes[t])
        calls = c.calls.get(control, ())
        if calls:
            c.calls[copy] = tuple(self._call(*call, wanted) for call in calls if self._reach.usable(*call))
        for controls in (c.adds, c.firsts, c.before):
            if control in controls:
                controls.add(copy)
        for values in (c.potential, c.closing, c.key_ends):
            if control in values:
                values[copy] = values[control]
        if control in c.kind:
            kind = c.kind[control]
            if (kind, wanted) not in self._kinds:
                self._kinds[kind, wanted] = c.new_kind(c.required[kind - 1])
            c.kind[copy] = self._kinds[kind, wanted]
        if control in c.needed:
            c.needed[copy] = [(tuple(self._copy(end, wanted) for end in ends), least) for ends, least in c.needed[control]]
        for _, _, target in c.moves[control]:
            bit = c.value_ends.get((control, target))
            if bit is not None:
                c.value_ends[copy, self._copy(target, wanted)] = bit

    def _call(self, symbol: int, entry: int, wanted: int) -> tuple[int, int]:
        """A call from a frame of which an outcome is wanted."""
        c, near = self._controls, self._nearest

        def bytes_by(outcome: int) -> int:
            after = near[c.symbols[symbol][outcome]]
            return near[entry][outcome] + after.get(wanted, _FAR + min(after.values(), default=_FAR))

        hoped = min((o for o in c.symbols[symbol] if o in near[entry]), key=bytes_by)
        key = symbol, wanted, hoped
        if key not in self._symbols:
            self._symbols[key] = len(c.symbols)
            c.symbols.append({self._end(o, hoped): self._copy(t, wanted) for o, t in c.symbols[symbol].items()})
            c.symbol_names.append(c.symbol_names[symbol])
        return self._symbols[key], self._copy(entry, hoped)

    def _end(self, outcome: int, wanted: int) -> int:
        """The outcome of frames that end with one where another is wanted, or this one."""
        return outcome if outcome == wanted else self._strays.setdefault((outcome, wanted), self._first_stray + len(self._strays))


def _nearest_ends(controls: Controls, reach: Reach) -> list[dict[int, int]]:
    """Per control, the fewest bytes to the end of its frame by outcome."""
    before: dict[int, list[int]] = defaultdict(list)
    for control, moves in enumerate(controls.moves):
        for target in {target for _, _, target in moves}:
            before[target].append(control)
    callers: dict[tuple[int, int], list[int]] = defaultdict(list)
    entered: dict[int, set[tuple[int, int]]] = defaultdict(set)
    returned: dict[int, set[tuple[tuple[int, int], int]]] = defaultdict(set)
    for control, calls in controls.calls.items():
        for call in calls:
            callers[call].append(control)
            entered[call[1]].add(call)
            for outcome, target in controls.symbols[call[0]].items():
                returned[target].add((call, outcome))
    out: list[dict[int, int]] = [{} for _ in controls.moves]
    queue = [(0, control, outcome) for control, outcome in enumerate(controls.outcome) if outcome]
    queue += [(0, control, 0) for control, bits in enumerate(reach.outcomes) if bits & 1]
    heapq.heapify(queue)
    while queue:
        least, control, outcome = heapq.heappop(queue)
        if outcome in out[control]:
            continue
        out[control][outcome] = least
        for earlier in before[control]:
            if outcome not in out[earlier]:
                heapq.heappush(queue, (least + 1, earlier, outcome))
        for call in entered[control]:
            after = controls.symbols[call[0]].get(outcome, 0)
            for end, rest in out[after].items():
                for caller in callers[call]:
                    heapq.heappush(queue, (least + rest, caller, end))
        for call, by in returned[control]:
            inside = out[call[1]].get(by)
            if inside is not None:
                for caller in callers[call]:
                    heapq.heappush(queue, (least + inside, caller, outcome))
    return out


def byte_machine(controls: Controls, reach: Reach, start: int, symbol: int, end: int) -> ByteMachine:
    """The machine of a finished, unpoisoned pool.

    Args:
      start, symbol: entry of the whole value, and the stack symbol below it.
      end: the control that `symbol` returns to when the value is complete.
    """
    return byte_machines(controls, reach, [start], symbol, end)[0]


@small_pages()  # of the table of returns, few entries of which are not 0
def byte_machines(
    controls: Controls, reach: Reach, starts: list[int], symbol: int, end: int
) -> tuple[ByteMachine, list[int]]:
    """One machine for several values, as `byte_machine` makes it for one, and its controls at which they begin."""
    start = starts[0]
    live = reach.live(start, symbol, *starts[1:])
    number = np.zeros(len(controls.moves), np.int32)
    number[live] = np.arange(1, len(live) + 1)
    guards = KeyGuards(controls, reach.outcomes, reach.edges, live) if controls.required else None
    moves = MoveTable(controls, reach, live, number, symbol, guards)
    action, byte_class = moves.action()
    ret, end_of = np.zeros((len(live) + 1, len(moves.symbols)), np.int32), np.full(len(live) + 1, NO_END, np.int8)
    end_of[number[end]] = END_HERE
    _add_returns(controls, live, number, moves, action, ret, end_of)
    machine = assembled(controls, number, moves, action, byte_class, ret, end_of, (symbol, start))
    if guards is not None:
        leaving = np.zeros(1, np.int32)
        sets = guards.sets(np.concatenate((moves.entries[:, 3], leaving)).astype(np.int32), live)
        machine = dataclasses.replace(machine, sets=sets)
    return machine, number[starts].tolist()


def assembled(
    controls: Controls,
    number: np.ndarray,
    moves: MoveTable,
    action: np.ndarray,
    byte_class: np.ndarray,
    ret: np.ndarray,
    end_of: np.ndarray,
    call: tuple[int, int],
) -> ByteMachine:
    """The machine of finished tables; its last entry is the one that returns.

    Args:
      number: int32, control of the machine by control of the pool, 0 for dead ones.
      moves: the entries of `action`.
      action: int32[S, C], 1 + entry by control and class of bytes.
      byte_class: int32[256].
      ret: int32[S, P], the control after a return.
      end_of: int8[S], how the text may end at a control.
      call: stack symbol below the whole value, and its entry.
    """
    action, byte_class = _merged_columns(action, byte_class)
    symbol, start = call
    bounds = np.full((len(ret), 2), UNCOUNTED, np.int32)
    for control, pair in controls.bounds.items():
        if number[control]:
            bounds[number[control]] = pair
    entries = np.concatenate((moves.entries, [(RETURN, 0, 0, 0)]))
    strays = number[np.fromiter(controls.strays, np.int64)] if controls.strays else None
    return ByteMachine(
        byte_class=byte_class,
        specials=(),
        action=action,
        entry_offset=np.concatenate(([0], np.arange(len(entries) + 1))).astype(np.int32),
        entry_next=entries[:, 0].astype(np.int32),
        entry_push=entries[:, 1].astype(np.int32),
        entry_add=entries[:, 2].astype(np.int8),
        pushes=tuple(moves.pushes),
        ret=ret,
        end=end_of,
        bounds=bounds,
        start=int(number[start]),
        stack=(moves.symbols[symbol],),
        strays=strays,
        symbol_names=tuple(_called(controls.symbol_names[number]) for number in moves.symbols),
    )


def _called(names: Iterable[str]) -> str:
    """What a stack symbol waits for; of many keys, some."""
    first = list(islice(names, 4))
    return " | ".join(first[:3]) + (" | …" if len(first) > 3 else "")


_Called: TypeAlias = "tuple[int, int, int, tuple[tuple[int, int], ...], int]"
"""(first byte, last byte, next control, push string, add) of a move of a callee."""


class MoveTable:
    """The live moves of all controls, calls expanded, as arrays.

    Attributes:
      symbols: number of every stack symbol that is pushed.
      pushes: push strings.
      entries: int64[E, 4], distinct (next, push string, add, guard); entry e is action e + 1.
    """

    def __init__(
        self, controls: Controls, reach: Reach, live: list[int], number: np.ndarray, symbol: int, guards: KeyGuards | None = None
    ) -> None:
        self._controls, self._reach, self._number = controls, reach, number
        self.symbols = {symbol: 0}
        self._known: dict[tuple[int, int], list[_Called]] = {}
        self.pushes: list[tuple[tuple[int, int], ...]] = [()]
        push_number: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        mine = number[reach.source].nonzero()[0]
        whose, own = reach.source[mine], reach.moves[mine]
        self._adds, self._potential = _counting(controls)
        adds = np.where(number[own[:, 2]] > 0, self._adds[whose] + self._potential[own[:, 2]], 0)
        guarded = np.zeros(len(own), np.int64) if guards is None else self._own_guards(guards, live)[mine]
        rows = [np.column_stack((number[whose], own, np.zeros(len(own), np.int64), adds, guarded))]
        called = []
        calling = number[np.fromiter(controls.calls, np.int64, len(controls.calls))]
        for row in np.sort(calling[calling > 0]).tolist():
            control = live[row - 1]
            for call in controls.calls[control]:
                guard = 0 if guards is None else guards.of_call(control)
                for low, high, target, push, add in self._called(*call):
                    found = push_number.setdefault(push, len(self.pushes))
                    if found == len(self.pushes):
                        self.pushes.append(push)
                    called.append((row, low, high, target, found, add, guard))
        rows.append(_rows([called], 7))
        table = np.concatenate(rows)
        table[:, 3] = number[table[:, 3]]
        self._table = table[table[:, 3] > 0]
        width = int(self._table[:, 3].max(initial=0)) + 1
        strings, most = len(self.pushes), int(self._table[:, 5].max(initial=0)) + 1
        key = ((self._table[:, 6] * strings + self._table[:, 4]) * most + self._table[:, 5]) * width + self._table[:, 3]
        distinct, self._entry = numbered(key)
        pushing = distinct // width // most
        self.entries = np.column_stack((distinct % width, pushing % strings, distinct // width % most, pushing // strings))

    def _own_guards(self, guards: KeyGuards, live: list[int]) -> np.ndarray:
        """Guards of all controls' own moves."""
        c, source = self._controls, self._reach.source
        begin, out = source.searchsorted(np.arange(len(c.moves))).tolist(), [0] * len(source)
        for control in live:
            if control in guards.kind:
                if guards.is_run[control] and all(guards.is_run[target] for _, _, target in c.moves[control]):
                    continue  # within a key
                for at, (_, _, target) in enumerate(c.moves[control], begin[control]):
                    out[at] = guards.of_move(control, target) if self._number[target] else 0
        return np.array(out, np.int64)

    def _called(self, symbol: int, entry: int) -> list[_Called]:
        """The moves of a callee's entry, with what they push; none when the callee or its caller cannot end."""
        found = self._known.get((symbol, entry))
        if found is None:
            found = self._known[symbol, entry] = self._find_called(symbol, entry)
        return found

    def _find_called(self, symbol: int, entry: int) -> list[_Called]:
        c, out = self._controls, list[_Called]()
        if self._reach.usable(symbol, entry):
            pushed = (self.symbols.setdefault(symbol, len(self.symbols)), 0)
            add, more = int(self._adds[entry]), self._potential
            out += [(low, high, target, (pushed,), add + int(more[target])) for low, high, target in c.moves[entry]]
            for below in c.calls.get(entry, ()):
                out += [(low, high, target, (pushed, *push), add) for low, high, target, push, add in self._called(*below)]
        return out

    def action(self) -> tuple[np.ndarray, np.ndarray]:
        """int32[S, C], 1 + entry by control and class of bytes; int32[256], the classes: runs of bytes between edges of moves."""
        table = self._table
        edge = np.zeros(257, bool)
        edge[table[:, 1]] = True
        edge[table[:, 2] + 1] = True
        edge[0] = False
        byte_class = np.cumsum(edge[:256]).astype(np.int32)
        first, last = byte_class[table[:, 1]], byte_class[table[:, 2]]
        row, column = ranges(first, last + 1)
        action = np.zeros((int(self._number.max()) + 1, int(byte_class[-1]) + 1), np.int32)
        action[table[row, 0], column] = self._entry[row] + 1
        return action, byte_class


def _counting(controls: Controls) -> tuple[np.ndarray, np.ndarray]:
    """int64[N] each: what a move adds to the register of its frame is the first of its source and the second of its target.

    Inside a character the potential is the least of what it may end in: a character is begun only where one can be finished.
    """
    own = np.zeros(len(controls.moves), np.int64)
    own[list(controls.adds)] = 1
    potential = np.zeros(len(controls.moves), np.int64)
    known = dict(controls.potential)

    def least(control: int) -> int:
        if control not in known:
            known[control] = min(least(target) for _, _, target in controls.moves[control])
        return known[control]

    for control in controls.potential:
        for _, _, target in controls.moves[control]:
            least(target)
    potential[list(known)] = list(known.values())
    return own - potential, potential


def _rows(parts: Iterable[Iterable[tuple[int, ...]]], width: int) -> np.ndarray:
    """int64[n, width], the tuples of all parts; several times as fast as `np.array` of a list of them."""
    return np.fromiter(chain.from_iterable(chain.from_iterable(parts)), np.int64).reshape(-1, width)


def _add_returns(
    controls: Controls,
    live: list[int],
    number: np.ndarray,
    moves: MoveTable,
    action: np.ndarray,
    ret: np.ndarray,
    end_of: np.ndarray,
) -> None:
    """Fills in where frames end: on the bytes that can be read after the return, and at the end of the text."""
    leave = len(moves.entries) + 1
    ending: dict[int, list[int]] = {}
    for control in live:
        if controls.outcome[control]:
            ending.setdefault(controls.outcome[control], []).append(int(number[control]))
    for outcome in sorted(ending, reverse=True):  # counted frames first: values return into them
        row = number[[controls.symbols[y].get(outcome, 0) for y in moves.symbols]]
        readable = (action[row[row > 0]] != 0).any(0)
        at = np.array(ending[outcome])
        ret[at] = row
        action[at] = np.where(readable & (action[at] == 0), leave, action[at])
        if (end_of[row] == END_HERE).any():
            end_of[at] = END_RETURN


def _merged_columns(action: np.ndarray, byte_class: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal columns become one class."""
    first, merged = equal_rows(action.T)
    return np.ascontiguousarray(action[:, first]), merged.astype(np.int32)[byte_class]
