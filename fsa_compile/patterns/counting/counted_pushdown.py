"""Controls over letters to the `ByteMachine`: spells characters in UTF-8 and numbers everything. Knows nothing of patterns.

An iteration is counted on its first byte. Where one first byte begins letters with different ways on, such as the quotation
marks in `[^“”]{0,300}”`, the byte is read first and the way is taken at the byte that tells it; a return then leads to a control
that has read the same bytes already. The only exception is what must be known before: whether a byte can be read at all.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.integers import equal_rows
from fsa_compile.automata.pushdown import NO_END, RETURN, UNCOUNTED, ByteMachine
from fsa_compile.automata.utf8 import template
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns.counting.counter_subsets import Conflict, Control, Controls, Way
from fsa_compile.unicode.code_points import Ranges

Entries: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""An action of the machine: its (next, push, add) triples."""
Live: TypeAlias = "list[tuple[Way, int]]"
"""Ways of a control that some bytes may begin, and the control each would have reached."""

_ASCII = (1 << 128) - 1
_LEAVES = (RETURN, 0, 0)


class _Row(NamedTuple):
    """A control inside a character: its frame's bounds, codes of its actions at the bytes 128..191, returns (symbol, control)."""

    low: int
    high: int
    codes: bytes
    returns: tuple[tuple[int, int], ...]


def spell(controls: Controls, limits: CompileLimits) -> ByteMachine:
    """The machine of deterministic controls. Raises `Conflict`: the bytes of a letter do not tell its way in time."""
    return _Speller(controls, limits).machine()


class _Speller:
    def __init__(self, controls: Controls, limits: CompileLimits) -> None:
        self._source, self._limits = controls, limits
        self._base = len(controls.controls) + 1
        self._rows: dict[_Row, int] = {}
        self._codes: list[np.ndarray] = []  # of the rows
        self._wheres: dict[tuple[tuple[int, int], tuple[tuple[Ranges, int], ...]], np.ndarray] = {}
        self._pushes: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        self._special: dict[Entries, int] = {}
        self._actions: list[Entries] = [()]  # of special action -i

    def machine(self) -> ByteMachine:
        source = self._source
        table = np.zeros((self._base, 256), np.int32)
        for number, control in enumerate(source.controls, 1):
            self._ascii(table[number], control)
            self._wide(table[number], control)
        inner = np.zeros((len(self._rows), 256), np.int32)
        if self._codes:
            inner[:, 128:192] = self._codes
        end = np.full(len(table) + len(inner), NO_END, np.int8)
        end[1 : self._base] = [control.end for control in source.controls]
        frames = [source.frames[control.frame] for control in source.controls]
        bounds = [(UNCOUNTED, UNCOUNTED), *[(f.low, f.high) for f in frames], *[(row.low, row.high) for row in self._rows]]
        byte_class, action, actions = self._numbered(np.concatenate((table, inner)))
        entries = np.array([entry for some in actions for entry in some], np.int32).reshape(-1, 3)
        return ByteMachine(
            byte_class=byte_class,
            specials=(),
            action=action,
            entry_offset=np.cumsum([0, *map(len, actions)], dtype=np.int32),
            entry_next=entries[:, 0].copy(),
            entry_push=entries[:, 1].copy(),
            entry_add=entries[:, 2].astype(np.int8),
            pushes=tuple(self._pushes),
            ret=self._returns(len(end)),
            end=end,
            bounds=np.array(bounds, np.int32),
            start=1,
            stack=(),
            symbol_names=tuple([source.name(symbol.callee) for symbol in source.symbols]),
        )

    def _numbered(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[Entries]]:
        """Byte classes, actions by control and class, and the entries of each action, from codes by control and byte."""
        representative, byte_class = equal_rows(table.T)
        codes, action = np.unique(np.append(table[:, representative], 0), return_inverse=True)
        zero = int(action[-1])  # the action without entries comes first, then moves, then the special ones
        action = ((action[:-1] - zero) % len(codes)).reshape(-1, len(representative)).astype(np.int32)
        entries = [self._entries(code) for code in [*codes[zero:].tolist(), *codes[:zero].tolist()]]
        return byte_class.astype(np.int32), action, entries

    def _returns(self, size: int) -> np.ndarray:
        source = self._source
        ret = np.zeros((size, len(source.symbols)), np.int32)
        for number, control in enumerate(source.controls, 1):
            if control.leaves:
                ret[number] = [symbol.back if symbol.callee == control.frame else 0 for symbol in source.symbols]
        for number, row in enumerate(self._rows, self._base):
            for symbol, back in row.returns:
                ret[number, symbol] = back
        return ret

    def _code(self, entries: Entries) -> int:
        """An action as one number: the control it leads to if it does nothing else, minus its number if it does, 0 for none."""
        if not entries or (len(entries) == 1 and entries[0][0] != RETURN and entries[0][1:] == (0, 0)):
            return entries[0][0] if entries else 0
        number = self._special.setdefault(entries, len(self._actions))
        if number == len(self._actions):
            self._actions.append(entries)
        return -number

    def _entries(self, code: int) -> Entries:
        return ((code, 0, 0),) if code > 0 else self._actions[-code]

    def _entry(self, way: Way, target: int) -> tuple[int, int, int]:
        return target, self._pushes.setdefault(way.pushes, len(self._pushes)), way.add

    def _ascii(self, row: np.ndarray, control: Control) -> None:
        """Writes the codes of one control at ASCII characters."""
        for way, letters, target in control.ways:
            if letters & _ASCII:
                row[:128][ascii_characters(letters)] = self._code((self._entry(way, target),))
        if control.returned & _ASCII:
            for byte in np.flatnonzero(ascii_characters(control.returned)).tolist():
                row[byte] = self._code((*self._entries(int(row[byte])), _LEAVES))

    def _wide(self, row: np.ndarray, control: Control) -> None:
        """Writes the codes of one control at first bytes of other characters."""
        leads = self._leads(control)
        if len(leads) == 1 and not control.returned >> 128:
            ((way, lead),) = leads
            row[128:][lead > 0] = [self._code((self._entry(way, target),)) for target in lead[lead > 0].tolist()]
        elif leads or control.returned >> 128:
            out = self._return_template(control)[0]
            for byte in range(0xC2, 0xF5):
                live = [(way, int(lead[byte - 128])) for way, lead in leads]
                row[byte] = self._decide(control, live, int(out[byte - 128]), (byte,))

    def _leads(self, control: Control) -> list[tuple[Way, np.ndarray]]:
        """For each way int32[128], the control after each first byte from 128 on."""
        by_way: dict[Way, list[tuple[Ranges, int]]] = {}
        for way, letters, target in control.ways:
            if letters >> 128:
                by_way.setdefault(way, []).append((self._source.characters(letters), target))
        return [(way, self._lead(tuple(classes))) for way, classes in by_way.items()]

    def _lead(self, classes: tuple[tuple[Ranges, int], ...]) -> np.ndarray:
        """Control after each first byte from 128 on, int32[128], for classes of characters and where they lead."""
        frame = self._source.frames[self._source.controls[classes[0][1] - 1].frame]
        bounds = frame.low, frame.high
        found = self._wheres.get((bounds, classes))
        if found is None:
            lead, rows = template(tuple([ranges for ranges, _ in classes]))
            k = len(classes)
            where = np.zeros(k + 1 + len(rows), np.int32)
            where[:k] = [target for _, target in reversed(classes)]
            for r, entries in enumerate(rows + k):  # children come before their parents
                where[k + 1 + r] = self._row(bounds, where[entries])
            found = self._wheres[bounds, classes] = where[lead + k]
        return found

    def _row(self, bounds: tuple[int, int], codes: np.ndarray, returns: tuple[tuple[int, int], ...] = ()) -> int:
        """Number of the control with these codes at the bytes 128..191."""
        number = self._rows.setdefault(_Row(*bounds, codes.tobytes(), returns), self._base + len(self._rows))
        if number == self._base + len(self._codes):
            if number > self._limits.max_states:
                raise LimitError("max_states", self._limits.max_states, "Spelling the pattern in UTF-8 bytes")
            self._codes.append(codes)
        return number

    def _return_template(self, control: Control) -> tuple[np.ndarray, np.ndarray]:
        letters = control.returned
        return template((self._source.characters(letters),) if letters >> 128 else ())

    def _decide(self, control: Control, live: Live, out: int, prefix: tuple[int, ...]) -> int:
        """Code of what to do at the last byte of the prefix.

        Args:
          control: where the character began.
          live: its ways, each with the control it would reach after this byte, or 0.
          out: entry of the return template after this byte; 0 when no letter of a return begins so.
          prefix: the character's bytes so far.
        """
        live = [(way, target) for way, target in live if target]
        frame = self._source.frames[control.frame]
        exact = frame.low == frame.high
        if not out and len(live) == 1:
            return self._code((self._entry(*live[0]),))
        if not out and not live:
            return 0
        if out and (not live or (exact and len(live) == 1 and live[0][0].counts)):
            return self._code((*[self._entry(*one) for one in live], _LEAVES))
        if not out and all(way.counts for way, _ in live):
            rest = [(way.uncounted(), target) for way, target in live]
            return self._code(((self._undecided(control, rest, 0, prefix), 0, 1),))
        return self._undecided(control, live, out, prefix)

    def _undecided(self, control: Control, live: Live, out: int, prefix: tuple[int, ...]) -> int:
        """The control that has read the prefix and still may go all the given ways, or return."""
        frame = self._source.frames[control.frame]
        entries = self._return_template(control)[1][out - 1] if out else np.zeros(64, np.int32)
        codes = np.zeros(64, np.int32)
        for byte in range(64):
            then = [(way, int(self._codes[target - self._base][byte])) for way, target in live]
            codes[byte] = self._decide(control, then, int(entries[byte]), (*prefix, 128 + byte))
        returns: list[tuple[int, int]] = []
        if out:
            for symbol, (callee, back) in enumerate(self._source.symbols):
                if callee == control.frame and (inside := self._resume(control, back, prefix)):
                    returns.append((symbol, inside))
        return self._row((frame.low, frame.high), codes, tuple(returns))

    def _resume(self, control: Control, back: int, prefix: tuple[int, ...]) -> int:
        """The control of the calling frame that has read a prefix; 0 when it cannot.

        The prefix was read before it was known whether the frame is left. So the caller must be able to go on whatever its own
        count is.

        Raises:
          Conflict: it may not.
        """
        caller = self._source.controls[back - 1]
        if caller.returned >> 128 and self._return_template(caller)[0][prefix[0] - 128]:
            raise Conflict((control.frame,))
        live = []
        for way, lead in self._leads(caller):
            target = int(lead[prefix[0] - 128])
            for byte in prefix[1:]:
                target = int(self._codes[target - self._base][byte - 128]) if target else 0
            if target:
                if way.counts:
                    raise Conflict((control.frame,))
                live.append((way, target))
        return self._undecided(caller, live, 0, prefix) if live else 0


def ascii_characters(letters: int) -> np.ndarray:
    """bool[128], the ASCII characters of a set of letters."""
    packed = np.frombuffer((letters & _ASCII).to_bytes(16, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little").view(bool)
