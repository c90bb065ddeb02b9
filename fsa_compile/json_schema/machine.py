"""Controls to `ByteMachine`: what leads nowhere is cut, bytes become classes, moves become actions."""

from __future__ import annotations

import numpy as np

from fsa_compile.byte_machine import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine
from fsa_compile.json_schema.controls import Controls


class Reach:
    """What the controls of a finished pool can reach.

    Attributes:
      outcomes: per control a bit set of the outcomes that its frame can still end with.
      poisoned: controls that a value may return to, although nothing can follow there.
    """

    def __init__(self, controls: Controls, end: int) -> None:
        self._controls, self._end = controls, end
        self.outcomes = self._find_outcomes()
        self.poisoned = {
            target
            for symbol, entry in set(controls.call.values())
            for outcome, target in controls.symbols[symbol].items()
            if self.outcomes[entry] >> outcome & 1 and not self.outcomes[target]
        }

    def _find_outcomes(self) -> list[int]:
        """The least fixpoint: by own moves, and over calls by the outcomes of the callee."""
        c = self._controls
        before: list[list[int]] = [[] for _ in c.moves]
        for control, moves in enumerate(c.moves):
            for target in {target for _, _, target in moves}:
                before[target].append(control)
        sites: dict[int, set[tuple[int, int]]] = {}
        callers: dict[tuple[int, int], list[int]] = {}
        for control, call in c.call.items():
            if call not in callers:
                callers[call] = []
                for x in (call[1], *c.symbols[call[0]].values()):
                    sites.setdefault(x, set()).add(call)
            callers[call].append(control)
        out = [1 << outcome if outcome else 0 for outcome in c.outcome]
        out[self._end] |= 1
        todo = [control for control, bits in enumerate(out) if bits]
        while todo:
            at = todo.pop()
            bits = out[at]
            for control in before[at]:
                if bits & ~out[control]:
                    out[control] |= bits
                    todo.append(control)
            for call in sites.get(at, ()):
                ends = out[call[1]]
                after = 0
                for outcome, target in c.symbols[call[0]].items():
                    if ends >> outcome & 1:
                        after |= out[target]
                for control in callers[call] if after else ():
                    if after & ~out[control]:
                        out[control] |= after
                        todo.append(control)
        return out

    def live(self, start: int, symbol: int) -> list[int]:
        """The controls that can be reached and can reach an outcome, the first of them `start`."""
        c, out = self._controls, self.outcomes
        order = [start]
        seen = {start}

        def visit(target: int) -> None:
            if target not in seen and out[target]:
                seen.add(target)
                order.append(target)

        for outcome, target in c.symbols[symbol].items():
            if out[start] >> outcome & 1:
                visit(target)
        for control in order:
            for _, _, target in c.moves[control]:
                visit(target)
            call = c.call.get(control)
            if call is not None and out[call[1]]:
                visit(call[1])
                for outcome, target in c.symbols[call[0]].items():
                    if out[call[1]] >> outcome & 1:
                        visit(target)
        return order


def byte_machine(controls: Controls, reach: Reach, start: int, symbol: int, end: int) -> ByteMachine:
    """The machine of a finished, unpoisoned pool.

    Args:
      reach: what its controls reach.
      start: entry of the whole value.
      symbol: stack symbol below it.
      end: the control that `symbol` returns to when the value is complete.
    """
    live = reach.live(start, symbol)
    number = {control: i + 1 for i, control in enumerate(live)}
    builder = _Builder(controls, reach, live, number)
    symbols = builder.symbols(symbol)
    rows = builder.rows()
    byte_class, columns = _byte_classes(rows)
    S = len(live) + 1
    entries: dict[tuple[int, int, int], int] = {}
    action = np.zeros((S, columns), np.int32)
    for source, first, last, entry in rows:
        action[source, byte_class[first] : byte_class[last] + 1] = entries.setdefault(entry, len(entries) + 1)
    ret = np.zeros((S, len(symbols)), np.int32)
    row_of: dict[int, np.ndarray] = {}
    returning = [(number[c], controls.outcome[c]) for c in live if controls.outcome[c]]
    for _, outcome in returning:
        if outcome not in row_of:
            row_of[outcome] = np.array([number.get(controls.symbols[y].get(outcome, 0), 0) for y in symbols], np.int32)
    end_of = np.full(S, NO_END, np.int8)
    end_of[number[end]] = END_HERE
    readable: dict[int, np.ndarray] = {}
    leave = entries.setdefault((RETURN, 0, 0), len(entries) + 1)
    for control, outcome in sorted(returning, key=lambda pair: -pair[1]):  # counted frames first: values return into them
        row = row_of[outcome]
        if outcome not in readable:
            readable[outcome] = (action[row[row > 0]] != 0).any(0)
        ret[control] = row
        action[control, readable[outcome] & (action[control] == 0)] = leave
        if (end_of[row] == END_HERE).any():
            end_of[control] = END_RETURN
    action, byte_class = _merged_columns(action, byte_class)
    bounds = np.full((S, 2), UNCOUNTED, np.int32)
    for control, pair in controls.bounds.items():
        if control in number:
            bounds[number[control]] = pair
    keys = np.array(list(entries), np.int32).reshape(-1, 3)
    return ByteMachine(
        byte_class=byte_class,
        specials=(),
        action=action,
        entry_offset=np.concatenate(([0], np.arange(len(keys) + 1))).astype(np.int32),
        entry_next=keys[:, 0].copy(),
        entry_push=keys[:, 1].copy(),
        entry_add=keys[:, 2].astype(np.int8),
        pushes=tuple(builder.pushes),
        ret=ret,
        end=end_of,
        bounds=bounds,
        start=number[start],
        stack=(symbols[symbol],),
    )


class _Builder:
    """Numbers symbols and push strings, and expands calls into moves."""

    def __init__(self, controls: Controls, reach: Reach, live: list[int], number: dict[int, int]) -> None:
        self._controls, self._reach, self._live, self._number = controls, reach, live, number
        self._symbol_number: dict[int, int] = {}
        self.pushes: list[tuple[tuple[int, int], ...]] = [()]
        self._push_number: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        self._expanded: dict[int, list[tuple[int, int, int, tuple[tuple[int, int], ...], int]]] = {}

    def symbols(self, first: int) -> dict[int, int]:
        """Numbers of the stack symbols that are pushed by live controls, in order."""
        self._symbol_number = {first: 0}
        for control in self._live:
            call = self._controls.call.get(control)
            if call is not None and self._reach.outcomes[call[1]]:
                self._symbol_number.setdefault(call[0], len(self._symbol_number))
        return self._symbol_number

    def rows(self) -> list[tuple[int, int, int, tuple[int, int, int]]]:
        """(control, first byte, last byte, (next, push string, add)) of every live move."""
        out = []
        for control in self._live:
            source = self._number[control]
            for low, high, target, push, add in self._moves(control):
                number = self._push_number.setdefault(push, len(self.pushes))
                if number == len(self.pushes):
                    self.pushes.append(push)
                out.append((source, low, high, (self._number[target], number, add)))
        return out

    def _moves(self, control: int) -> list[tuple[int, int, int, tuple[tuple[int, int], ...], int]]:
        """Moves with what they push; a call has those of its entry."""
        found = self._expanded.get(control)
        if found is not None:
            return found
        c, outcomes = self._controls, self._reach.outcomes
        add = int(control in c.adds)
        own = [(low, high, target, (), add) for low, high, target in c.moves[control] if outcomes[target]]
        call = c.call.get(control)
        if call is not None and outcomes[call[1]]:
            symbol = (self._symbol_number[call[0]], 0)
            own += [(low, high, target, (symbol, *push), add) for low, high, target, push, add in self._moves(call[1])]
        self._expanded[control] = own
        return own


def _byte_classes(rows: list[tuple[int, int, int, tuple[int, int, int]]]) -> tuple[np.ndarray, int]:
    """int32[256], class of each byte: runs of bytes between the edges of moves; and their number."""
    edge = np.zeros(257, bool)
    for _, first, last, _ in rows:
        edge[first] = edge[last + 1] = True
    edge[0] = False
    byte_class = np.cumsum(edge[:256]).astype(np.int32)
    return byte_class, int(byte_class[-1]) + 1


def _merged_columns(action: np.ndarray, byte_class: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal columns become one class."""
    columns = np.ascontiguousarray(action.T)
    ids: dict[bytes, int] = {}
    merged = np.array([ids.setdefault(column.tobytes(), len(ids)) for column in columns], np.int32)
    _, first = np.unique(merged, return_index=True)
    return np.ascontiguousarray(action[:, first]), merged[byte_class]
