"""Patterns with large repetitions to a `ByteMachine` that counts them, so that no bound costs states.

A control is a set of positions of one frame (see `counted_frames`) that may come next; all of them stand in the same iteration,
so one register per frame suffices. At every control and byte there is one way on: inside the iteration, into the next one
(`add`), into the frame of a repetition (push), or out of this one (RETURN). Where two of these meet, as in `.{0,300}x`, the
number of iterations read is not known from the text so far, and the repetition is written out instead; only "next iteration"
and "out" of a repetition `{n}` may meet, since its register tells them apart.

An iteration is counted on its first byte. Letters are those of `letters`; their UTF-8 spelling comes last, from `utf8.template`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from fsa_compile.byte_machine import END_HERE, END_RETURN, NO_END, RETURN, UNCOUNTED, ByteMachine
from fsa_compile.code_points import Ranges, normal
from fsa_compile.counted_frames import LARGE, Frame, build_frames
from fsa_compile.errors import LimitError
from fsa_compile.letters import letter_sets
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.positions import END, ConditionFound
from fsa_compile.syntax_tree import Node
from fsa_compile.utf8 import template

Futures: TypeAlias = "frozenset[int]"
"""Positions that may come next in a frame; END: its piece may stop here."""
Control: TypeAlias = "tuple[int, Futures]"
"""A frame's number and what may come next in it."""
Site: TypeAlias = "tuple[int, int]"
"""A call site: frame and position; the stack symbol of its call."""
Pushes: TypeAlias = "tuple[tuple[Site, int], ...]"
"""Push string, bottom first: call sites, each with the `add` of the frame it suspends."""
Entries: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""An action of the machine: its (next, push, add) triples."""
T = TypeVar("T")

_ASCII = (1 << 128) - 1


class Way(NamedTuple):
    """How a control reads a letter, apart from where it leads."""

    pushes: Pushes
    add: int

    def counts(self) -> int:
        """Whether it begins an iteration of the frame it starts in."""
        return self.pushes[0][1] if self.pushes else self.add


class Conflict(Exception):  # noqa: N818  (a signal within this module's construction, never shown)
    """The repetitions of these frames cannot be counted."""

    def __init__(self, frames: Iterable[int]) -> None:
        self.frames = set(frames)


class Moves(NamedTuple):
    """What a control reads.

    Attributes:
      ways: (way, letters, target) triples; the letter sets are disjoint.
      returned: letters that are read after a return.
    """

    ways: list[tuple[Way, int, Control]]
    returned: int


def counted_machine(tree: Node, limits: CompileLimits, deadline: Deadline, *, large: int = LARGE) -> ByteMachine | None:
    """The machine of a pattern that counts its large repetitions.

    Args:
      tree: syntax tree from `regex_syntax.parse`.
      limits: `max_states` bounds the controls.
      deadline: a running time budget.
      large: repetitions with more positions than this, written out, are counted.

    Returns:
      None when there is nothing to count, or when it cannot be counted exactly; the pattern is to be written out then.

    Raises:
      LimitError: too many controls, or too much time.
    """
    written_out: frozenset[int] = frozenset()
    while True:
        try:
            frames = build_frames(tree, large, written_out, limits, deadline)
        except ConditionFound:
            from fsa_compile.conditions import strip_edges

            stripped = strip_edges(tree)
            if stripped is tree or stripped == tree:
                return None
            tree = stripped
            continue
        if frames is None:
            return None
        try:
            return _Machine(_Controls(frames, limits, deadline)).build(limits)
        except Conflict as conflict:
            repeats = [frames[f].repeat for f in conflict.frames]
            written_out |= frozenset(id(repeat) for repeat in repeats if repeat is not None)


class _Controls:
    """The reachable controls over letters.

    Attributes:
      frames: from `build_frames`.
      number: controls by number from 1 on, the initial one first.
      moves: what each reads, in the same order.
      ranges: characters of each atom of the letters.
    """

    def __init__(self, frames: list[Frame], limits: CompileLimits, deadline: Deadline) -> None:
        self.frames = frames
        every, self.ranges = letter_sets([members for frame in frames for members in frame.positions.sets])
        self.letters: list[list[int]] = []
        for frame in frames:
            size = len(frame.positions.sets)
            self.letters.append(every[:size])
            every = every[size:]
        self._begun: dict[int, list[tuple[Way, int, Control]]] = {}
        self._reads: dict[Control, int] = {}
        self._ends: dict[Control, bool] = {}
        self.lead_bytes: dict[int, np.ndarray] = {}
        root = len(frames) - 1
        counts = frames[root].high != UNCOUNTED
        start: Control = (root, frozenset((END,)) if counts else frames[root].positions.first)
        self.number = {start: 1}
        self.moves: list[Moves] = []
        todo = [start]
        for control in todo:
            moves = self._moves(control)
            self.moves.append(moves)
            for way, _, target in moves.ways:
                found = [target]
                found += [(f, frames[f].positions.follow[p]) for (f, p), _ in way.pushes]
                for c in found:
                    if c not in self.number:
                        self.number[c] = len(self.number) + 1
                        todo.append(c)
            if len(todo) > limits.max_states:
                raise LimitError("max_states", limits.max_states, "Making the pattern deterministic")
            if not len(self.moves) & 255:
                deadline.check("Making the pattern deterministic")

    def ends(self, control: Control) -> bool:
        """Whether the text may end here, enough iterations provided."""
        found = self._ends.get(control)
        if found is None:
            f, futures = control
            after = [(g, self.frames[g].positions.follow[p]) for g, p in self.frames[f].sites]
            found = self._ends[control] = END in futures and (not after or any(map(self.ends, after)))
        return found

    def _begin(self, f: int, futures: Iterable[int], add: int) -> list[tuple[Way, int, Control]]:
        """The ways into the given positions."""
        positions, letters = self.frames[f].positions, self.letters[f]
        out = []
        for p in futures:
            if p == END:
                continue
            callee = positions.calls.get(p)
            if callee is None:
                out.append((Way((), add), letters[p], (f, positions.follow[p])))
            else:
                push = (((f, p), add),)
                out += [(Way(push + way.pushes, way.add), read, target) for way, read, target in self._iteration(callee)]
        return out

    def _iteration(self, f: int) -> list[tuple[Way, int, Control]]:
        """The ways into the next iteration of a counted frame."""
        found = self._begun.get(f)
        if found is None:
            found = self._begun[f] = self._begin(f, self.frames[f].positions.first, 1)
        return found

    def _after(self, f: int) -> int:
        """Letters that may be read after the last iteration of a frame."""
        out = 0
        for g, p in self.frames[f].sites:
            out |= self._readable((g, self.frames[g].positions.follow[p]))
        return out

    def _readable(self, control: Control) -> int:
        """Letters that may be read here, returns included."""
        found = self._reads.get(control)
        if found is None:
            f, futures = control
            found = 0
            for _, letters, _ in self._begin(f, futures, 0):
                found |= letters
            if END in futures and self.frames[f].high != UNCOUNTED:
                for _, letters, _ in self._iteration(f):
                    found |= letters
                found |= self._after(f)
            self._reads[control] = found
        return found

    def _moves(self, control: Control) -> Moves:
        f, futures = control
        frame = self.frames[f]
        ways = self._begin(f, futures, 0)
        returned = 0
        if END in futures and frame.high != UNCOUNTED:
            ways = ways + self._iteration(f)
            returned = self._after(f)
        by_way: dict[tuple[Way, Control], int] = {}
        for letters, together in _disjoint([(letters, (way, target)) for way, letters, target in ways]):
            way = together[0][0]
            if any(other != way for other, _ in together):
                self._refuse(f, [way for way, _ in together])
            g = together[0][1][0]
            target = g, frozenset().union(*[after for _, (_, after) in together])
            by_way[way, target] = by_way.get((way, target), 0) | letters
        self._check_bytes(f, by_way, returned)
        return Moves([(way, letters, target) for (way, target), letters in by_way.items()], returned)

    def _check_bytes(self, f: int, by_way: dict[tuple[Way, Control], int], returned: int) -> None:
        """Sees to it that the first byte of a letter tells the way."""
        reads: dict[Way, int] = {}
        for (way, _), letters in by_way.items():
            reads[way] = reads.get(way, 0) | letters
        first = [(way, self.first_bytes(letters)) for way, letters in reads.items()]
        for i, (way, mine) in enumerate(first):
            for other, others in first[:i]:
                if (mine & others).any():
                    self._refuse(f, [way, other])
        if returned:
            out = self.first_bytes(returned)
            exact = self.frames[f].low == self.frames[f].high
            for way, mine in first:
                if not (exact and way.counts()) and (mine & out).any():
                    raise Conflict((f,))

    def first_bytes(self, letters: int) -> np.ndarray:
        """bool[256], the first bytes of a set of letters."""
        found = self.lead_bytes.get(letters)
        if found is None:
            found = np.zeros(256, bool)
            found[:128] = _ascii_bytes(letters)
            if letters >> 128:
                found[128:] = template((self.characters(letters >> 128),))[0] != 0
            self.lead_bytes[letters] = found
        return found

    def characters(self, atoms: int) -> Ranges:
        """The characters of a set of atoms."""
        members = [ranges for j, ranges in enumerate(self.ranges) if atoms >> j & 1]
        return members[0] if len(members) == 1 else normal([r for m in members for r in m])

    def _refuse(self, f: int, ways: list[Way]) -> None:
        """Raises the conflict between different ways on one letter."""
        if len({way.counts() for way in ways}) > 1:
            raise Conflict((f,))
        strings = {way.pushes for way in ways}
        shared = 0
        while all(len(s) > shared for s in strings) and len({s[shared] for s in strings}) == 1:
            shared += 1
        called = {site for s in strings for site, _ in s[shared:]}
        raise Conflict(self.frames[g].positions.calls[p] for g, p in called)


class _Machine:
    """Spells the letters of controls in bytes and numbers everything."""

    def __init__(self, controls: _Controls) -> None:
        self._controls = controls
        self._symbols: dict[Site, int] = {}
        self._pushes: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        self._special: dict[Entries, int] = {}
        self._special_list: list[Entries] = []
        frames = controls.frames
        self._bounds = [(UNCOUNTED, UNCOUNTED)] + [(frames[f].low, frames[f].high) for f, _ in controls.number]
        self._rows: dict[tuple[int, int, bytes], int] = {}
        self._spelt: dict[tuple[tuple[int, int], tuple[tuple[Ranges, int], ...]], np.ndarray] = {}

    def build(self, limits: CompileLimits) -> ByteMachine:
        controls = self._controls
        count = len(controls.number) + 1
        table = np.zeros((count, 256), np.int32)  # see `_code`
        end = np.zeros(count, np.int8)
        for control, number in controls.number.items():
            self._fill(table[number], controls.moves[number - 1], limits)
            if controls.ends(control):
                end[number] = END_RETURN if controls.frames[control[0]].sites else END_HERE
        rows = np.zeros((len(self._rows), 256), np.int32)
        if len(rows):
            rows[:, 128:192] = np.frombuffer(b"".join([row for _, _, row in self._rows]), np.int32).reshape(-1, 64)
        return self._numbered(np.concatenate((table, rows)), np.concatenate((end, np.full(len(rows), NO_END, np.int8))))

    def _fill(self, row: np.ndarray, moves: Moves, limits: CompileLimits) -> None:
        """Writes what one control does at every byte."""
        number = self._controls.number
        by_way: dict[Way, dict[int, int]] = {}
        for way, letters, control in moves.ways:
            by_way.setdefault(way, {})[number[control]] = letters
        for way, targets in by_way.items():
            for target, letters in targets.items():
                if letters & _ASCII:
                    row[:128][_ascii_bytes(letters)] = self._action(way, target)
            wide = [(self._controls.characters(letters >> 128), target) for target, letters in targets.items() if letters >> 128]
            if wide:
                lead = self._spell(tuple(wide), limits)
                row[128:][lead > 0] = [self._action(way, after) for after in lead[lead > 0].tolist()]
        if moves.returned:
            leaves = (RETURN, 0, 0)
            out = self._controls.first_bytes(moves.returned)
            for byte in np.flatnonzero(out).tolist():
                row[byte] = self._code((*self._entries(int(row[byte])), leaves))

    def _spell(self, wide: tuple[tuple[Ranges, int], ...], limits: CompileLimits) -> np.ndarray:
        """Control after each first byte from 128 on, int32[128], for classes of characters and where they lead."""
        bounds = self._bounds[wide[0][1]]
        found = self._spelt.get((bounds, wide))
        if found is not None:
            return found
        lead, rows = template(tuple([ranges for ranges, _ in wide]))
        k, base = len(wide), len(self._controls.number) + 1
        where = np.zeros(k + 1 + len(rows), np.int32)
        where[:k] = [target for _, target in reversed(wide)]
        for r, entries in enumerate(rows + k):  # children come before their parents
            where[k + 1 + r] = base + self._rows.setdefault((*bounds, where[entries].tobytes()), len(self._rows))
        if len(self._rows) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Spelling the pattern in UTF-8 bytes")
        found = self._spelt[bounds, wide] = where[lead + k]
        return found

    def _action(self, way: Way, target: int) -> int:
        """The code of going one way to a control."""
        string = []
        for site, add in way.pushes:
            string.append((self._symbols.setdefault(site, len(self._symbols)), add))
        return self._code(((target, self._pushes.setdefault(tuple(string), len(self._pushes)), way.add),))

    def _code(self, entries: Entries) -> int:
        """An action as one number: that of the control, if it only moves there, else negative."""
        if len(entries) == 1 and entries[0][0] != RETURN and entries[0][1:] == (0, 0):
            return entries[0][0]
        code = self._special.setdefault(entries, -len(self._special) - 1)
        if -code > len(self._special_list):
            self._special_list.append(entries)
        return code

    def _entries(self, code: int) -> Entries:
        if code == 0:
            return ()
        return ((code, 0, 0),) if code > 0 else self._special_list[-code - 1]

    def _numbered(self, table: np.ndarray, end: np.ndarray) -> ByteMachine:
        """The machine; `table` holds codes by control and byte."""
        columns: dict[bytes, int] = {}
        byte_class = np.array([columns.setdefault(column.tobytes(), len(columns)) for column in table.T.copy()], np.int32)
        representative = np.zeros(len(columns), np.int64)
        representative[byte_class] = np.arange(256)
        codes, action = np.unique(np.append(table[:, representative], 0), return_inverse=True)
        zero = int(action[-1])  # action 0 must be the empty one: the codes are rotated, negative ones go last
        actions = [self._entries(code) for code in [*codes[zero:].tolist(), *codes[:zero].tolist()]]
        action = ((action[:-1] - zero) % len(codes)).reshape(-1, len(columns))
        entries = np.array([entry for some in actions for entry in some], np.int32).reshape(-1, 3)
        controls = self._controls
        ret = np.zeros((len(table), len(self._symbols)), np.int32)
        for (g, p), symbol in self._symbols.items():
            callee = controls.frames[g].positions.calls[p]
            back = controls.number[g, controls.frames[g].positions.follow[p]]
            for (f, futures), number in controls.number.items():
                if f == callee and END in futures:
                    ret[number, symbol] = back
        return ByteMachine(
            byte_class=byte_class,
            specials=(),
            action=action.astype(np.int32),
            entry_offset=np.cumsum([0, *map(len, actions)], dtype=np.int32),
            entry_next=entries[:, 0].copy(),
            entry_push=entries[:, 1].copy(),
            entry_add=entries[:, 2].astype(np.int8),
            pushes=tuple(self._pushes),
            ret=ret,
            end=end,
            bounds=np.array(self._bounds + [(low, high) for low, high, _ in self._rows], np.int32),
            start=1,
            stack=(),
            symbol_names=tuple(self._symbol_name(site) for site in self._symbols),
        )

    def _symbol_name(self, site: Site) -> str:
        frame = self._controls.frames[self._controls.frames[site[0]].positions.calls[site[1]]]
        assert frame.repeat is not None
        return f"{{{frame.low},{frame.high}}} at offset {frame.repeat.start}"


def _ascii_bytes(letters: int) -> np.ndarray:
    """bool[128], the ASCII characters of a set of letters."""
    packed = np.frombuffer((letters & _ASCII).to_bytes(16, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little").view(bool)


def _disjoint(parts: list[tuple[int, T]]) -> list[tuple[int, list[T]]]:
    """Splits overlapping letter sets into disjoint ones, each with the values of all sets that hold it."""
    seen = 0
    for letters, _ in parts:
        if letters & seen:
            break
        seen |= letters
    else:
        return [(letters, [value]) for letters, value in parts if letters]
    out: list[tuple[int, list[T]]] = []
    for letters, value in parts:
        refined, rest = [], letters
        for other, values in out:
            both = rest & other
            if not both:
                refined.append((other, values))
                continue
            refined.append((both, [*values, value]))
            if both != other:
                refined.append((other & ~both, values))
            rest &= ~both
        if rest:
            refined.append((rest, [value]))
        out = refined
    return out
