"""A slow recogniser of regular expressions over bytes, independent of `fsa_compile`.

It parses with Python's own `re` parser and simulates a nondeterministic automaton over *code points*; bytes of an
unfinished character are kept aside until the character is complete. There is no UTF-8 automaton, no subset construction over
classes and no trimming by graph search in it, so it shares no step with the compiler it checks.
"""

from __future__ import annotations

import re
import re._constants as sre
import re._parser as sre_parser
from collections.abc import Iterable
from typing import Any

import numpy as np

TOP = 0x110000


class UnsupportedError(Exception):
    """The pattern uses a construct this oracle does not know."""


def _category(test: Any, ascii_only: bool) -> np.ndarray:
    limit = 128 if ascii_only else TOP
    return np.fromiter((c < limit and test(chr(c)) for c in range(TOP)), bool, TOP)


_TESTS = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": lambda c: c.isalnum() or c == "_"}
_categories: dict[tuple[str, bool], np.ndarray] = {}


class ByteOracle:
    """Prefix and membership test of one pattern, by bytes.

    States are small integers made on demand; 0 is dead. A state is a set of automaton states and the bytes of an unfinished
    character.
    """

    def __init__(self, pattern: str, flags: int = 0) -> None:
        tree = sre_parser.parse(pattern, flags)
        self._flags = tree.state.flags
        self._epsilon: list[list[int]] = []
        self._arcs: list[list[tuple[int, int]]] = []  # (index of a class, target)
        self._classes: list[np.ndarray] = []  # counts of members below each code point
        self._class_ids: dict[bytes, int] = {}
        start, self._end = self._node(), self._node()
        self._build(tree, start, self._end)
        self._live = self._productive()
        self._states: dict[tuple[frozenset[int], bytes], int] = {(frozenset(), b""): 0}
        self._list: list[tuple[frozenset[int], bytes]] = [(frozenset(), b"")]
        self._table = np.full((1, 256), -1, np.int64)
        self._table[0] = 0
        self.start = self._intern(self._closure([start]), b"")

    # The automaton (Thompson's construction over the parser's tree).

    def _node(self) -> int:
        self._epsilon.append([])
        self._arcs.append([])
        return len(self._epsilon) - 1

    def _arc(self, a: int, b: int, member: np.ndarray) -> None:
        member = member.copy()
        member[0xD800:0xE000] = False
        key = np.packbits(member).tobytes()
        if key not in self._class_ids:
            self._class_ids[key] = len(self._classes)
            self._classes.append(np.concatenate([[0], np.cumsum(member)]))
        if member.any():
            self._arcs[a].append((self._class_ids[key], b))

    def _build(self, items: Iterable[Any], a: int, b: int) -> None:
        for op, value in items:
            after = self._node()
            self._item(op, value, a, after)
            a = after
        self._epsilon[a].append(b)

    def _item(self, op: Any, value: Any, a: int, b: int) -> None:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            self._arc(a, b, self._members(op, value))
        elif op is sre.SUBPATTERN:
            _, added, removed, body = value
            before = self._flags
            self._flags = (self._flags | added) & ~removed
            self._build(body, a, b)
            self._flags = before
        elif op is sre.BRANCH:
            for body in value[1]:
                self._build(body, a, b)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            low, high, body = value
            for _ in range(low):
                after = self._node()
                self._build(body, a, after)
                a = after
            if high is sre.MAXREPEAT:
                loop = self._node()
                self._epsilon[a].append(loop)
                again = self._node()
                self._build(body, loop, again)
                self._epsilon[again].append(loop)
                self._epsilon[loop].append(b)
            else:
                for _ in range(high - low):
                    after = self._node()
                    self._epsilon[a].append(b)
                    self._build(body, a, after)
                    a = after
                self._epsilon[a].append(b)
        else:
            raise UnsupportedError(str(op))

    def _members(self, op: Any, value: Any) -> np.ndarray:
        out = np.zeros(TOP, bool)
        if self._flags & re.IGNORECASE:
            raise UnsupportedError("IGNORECASE")
        if op is sre.LITERAL:
            out[value] = True
        elif op is sre.NOT_LITERAL:
            out[value] = True
            out = ~out
        elif op is sre.ANY:
            out[:] = True
            if not self._flags & re.DOTALL:
                out[10] = False
        else:
            negate = False
            for kind, item in value:
                if kind is sre.NEGATE:
                    negate = True
                elif kind is sre.LITERAL:
                    out[item] = True
                elif kind is sre.RANGE:
                    out[item[0] : item[1] + 1] = True
                elif kind is sre.CATEGORY:
                    out |= self._category(str(item))
                else:
                    raise UnsupportedError(str(kind))
            if negate:
                out = ~out
        return out

    def _category(self, name: str) -> np.ndarray:
        name = name.removeprefix("CATEGORY_")
        ascii_only = bool(self._flags & re.ASCII)
        plain = name.removeprefix("NOT_")
        key = (plain, ascii_only)
        if key not in _categories:
            _categories[key] = _category(_TESTS[plain], ascii_only)
        return ~_categories[key] if name.startswith("NOT_") else _categories[key]

    def _productive(self) -> set[int]:
        """Automaton states from which the end can be reached."""
        live = {self._end}
        while True:
            more = {
                n
                for n in range(len(self._arcs))
                if n not in live and (any(t in live for t in self._epsilon[n]) or any(t in live for _, t in self._arcs[n]))
            }
            if not more:
                return live
            live |= more

    def _closure(self, nodes: Iterable[int]) -> frozenset[int]:
        seen, todo = set(nodes), list(nodes)
        while todo:
            for t in self._epsilon[todo.pop()]:
                if t not in seen:
                    seen.add(t)
                    todo.append(t)
        return frozenset(seen & self._live)

    # Bytes.

    def _intern(self, nodes: frozenset[int], pending: bytes) -> int:
        if not nodes:
            return 0
        key = (nodes, pending)
        if key not in self._states:
            self._states[key] = len(self._list)
            self._list.append(key)
            self._table = np.concatenate([self._table, np.full((1, 256), -1)])
        return self._states[key]

    def step(self, state: int, byte: int) -> int:
        """State after one byte; 0 when no accepted text continues so."""
        known = int(self._table[state, byte])
        if known < 0:
            known = self._step(state, byte)
            self._table[state, byte] = known
        return known

    def _step(self, state: int, byte: int) -> int:
        nodes, pending = self._list[state]
        pending += bytes([byte])
        low, high = _completions(pending)
        if low > high:
            return 0
        if low == high and len(pending) == _need(pending[0]):
            return self._intern(self._closure([t for n in nodes for c, t in self._arcs[n] if self._any(c, low, low)]), b"")
        alive = any(self._any(c, low, high) and t in self._live for n in nodes for c, t in self._arcs[n])
        return self._intern(nodes, pending) if alive else 0

    def _any(self, number: int, low: int, high: int) -> bool:
        counts = self._classes[number]
        return bool(counts[high + 1] > counts[low])

    def accepting(self, state: int) -> bool:
        """Whether the bytes so far are an accepted text."""
        nodes, pending = self._list[state]
        return not pending and self._end in nodes

    def run(self, data: bytes, state: int | None = None) -> int:
        """State after some bytes."""
        q = self.start if state is None else state
        for byte in data:
            q = self.step(q, byte)
        return q

    def run_tokens(self, state: int, data: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """State after each token of a vocabulary, int64[V]; 0 for forbidden ones and for ids that are not text."""
        length = np.diff(offset)
        out = np.full(len(length), state)
        out[length == 0] = 0
        active = np.flatnonzero(out)
        place = 0
        while len(active):
            byte = data[offset[active] + place]
            pairs = np.unique(out[active] * 256 + byte)
            for pair in pairs[self._table[pairs // 256, pairs % 256] < 0].tolist():
                self.step(pair // 256, pair % 256)
            out[active] = self._table[out[active], byte]
            place += 1
            active = active[(out[active] > 0) & (length[active] > place)]
        return out


def _need(lead: int) -> int:
    """Bytes of a character by its first byte; 0 when no character starts so."""
    return 1 if lead < 0x80 else 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0


def _completions(pending: bytes) -> tuple[int, int]:
    """Lowest and highest scalar value whose UTF-8 form starts with some bytes; (1, 0) when there is none."""
    need = _need(pending[0])
    if not need or any(not 0x80 <= b < 0xC0 for b in pending[1:]):
        return 1, 0
    value = pending[0] if need == 1 else pending[0] & (0x7F >> need)
    for b in pending[1:]:
        value = value << 6 | b & 0x3F
    left = 6 * (need - len(pending))
    low, high = value << left, (value << left) + (1 << left) - 1
    low, high = max(low, (0, 0, 0x80, 0x800, 0x10000)[need]), min(high, TOP - 1)
    if 0xD800 <= low <= 0xDFFF:
        low = 0xE000
    if 0xD800 <= high <= 0xDFFF:
        high = 0xD7FF
    return (low, high) if low <= high else (1, 0)
