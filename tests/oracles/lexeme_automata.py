"""Deterministic automata of lexemes by Brzozowski derivatives, independent of `fsa_compile`: material for the Earley oracle.

Patterns are read with Python's own `re` parser; expressions are plain tuples with intersection and complement. The alphabet is
the partition of all code points by the character sets that occur (its classes are *atoms*).

Source: J. A. Brzozowski, "Derivatives of regular expressions", Journal of the ACM 11(4), 1964.
"""

from __future__ import annotations

import functools
import re
import re._constants as sre
import re._parser as sre_parser
from collections.abc import Iterable
from typing import Any

import numpy as np

TOP = 0x110000
EMPTY: tuple = ("alt", frozenset())
EPSILON: tuple = ("epsilon",)
EVERYTHING: tuple = ("not", EMPTY)
UNBOUNDED = 1 << 30
Expression = tuple


class UnsupportedError(Exception):
    """The expression uses a construct this oracle does not know."""


def cat(*parts: Expression) -> Expression:
    """One after the other."""
    out = EPSILON
    for part in reversed(parts):
        out = _cat(part, out)
    return out


def _cat(a: Expression, b: Expression) -> Expression:
    if EMPTY in (a, b):
        return EMPTY
    if a == EPSILON:
        return b
    if b == EPSILON:
        return a
    return ("cat", a[1], _cat(a[2], b)) if a[0] == "cat" else ("cat", a, b)


def alt(parts: Iterable[Expression]) -> Expression:
    """One of several."""
    flat: set[Expression] = set()
    for part in parts:
        flat |= part[1] if part[0] == "alt" else {part}
    if EVERYTHING in flat:
        return EVERYTHING
    return next(iter(flat)) if len(flat) == 1 else ("alt", frozenset(flat))


def both(parts: Iterable[Expression]) -> Expression:
    """All at once."""
    flat: set[Expression] = set()
    for part in parts:
        flat |= part[1] if part[0] == "and" else {part}
    flat.discard(EVERYTHING)
    if EMPTY in flat:
        return EMPTY
    if not flat:
        return EVERYTHING
    return next(iter(flat)) if len(flat) == 1 else ("and", frozenset(flat))


def negation(part: Expression) -> Expression:
    """Every text but these."""
    return part[1] if part[0] == "not" else ("not", part)


def repeat(part: Expression, low: int, high: int | None) -> Expression:
    """`low` to `high` times; None: any number."""
    if high == 0 or part == EPSILON:
        return EPSILON
    if part == EMPTY:
        return EPSILON if low == 0 else EMPTY
    return part if low == high == 1 else ("repeat", part, low, high)


class CharacterSets:
    """Character sets by number, and in the end the atoms: the coarsest partition that tells them apart."""

    def __init__(self) -> None:
        self._members: list[np.ndarray] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, member: np.ndarray) -> Expression:
        """The expression of one character of a set, bool[0x110000]."""
        member = member.copy()
        member[0xD800:0xE000] = False
        key = np.packbits(member).tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._members)
            self._members.append(member)
        return ("set", self._numbers[key])

    def characters(self, text: str, ignore_case: bool = False) -> Expression:
        """The expression of a string."""
        return cat(*(self.add(_one_of(same_letters(c) if ignore_case else c)) for c in text))

    def close(self) -> None:
        """Computes the atoms: `edges` and `atom` (of every interval between edges), `masks` (atoms of every set, as bits)."""
        edges = np.unique(np.concatenate([[0, 0xD800, 0xE000], *(np.flatnonzero(np.diff(m)) + 1 for m in self._members)]))
        rows = np.array([m[edges] for m in self._members] or np.zeros((1, len(edges)), bool)).T
        surrogate = (edges >= 0xD800) & (edges < 0xE000)
        _, atom = np.unique(np.hstack([rows, surrogate[:, None]]), axis=0, return_inverse=True)
        self.edges, self.atom = edges, atom.ravel()
        self.surrogates = int(self.atom[np.flatnonzero(surrogate)[0]])
        self.num_atoms = int(self.atom.max()) + 1
        self.masks = [sum(1 << a for a in set(self.atom[m[edges]].tolist())) for m in self._members]

    def atom_of(self, code_point: int) -> int:
        """The atom of a code point."""
        return int(self.atom[np.searchsorted(self.edges, code_point, "right") - 1])

    def example(self, atom: int, low: int = 0, high: int = TOP - 1) -> int | None:
        """A code point of an atom in an interval, a printable one where there is one."""
        for i in np.flatnonzero(self.atom == atom).tolist():
            first = max(int(self.edges[i]), low)
            last = min(int(self.edges[i + 1]) - 1 if i + 1 < len(self.edges) else TOP - 1, high)
            if first <= last:
                return min(max(first, 0x20), last)
        return None

    @functools.cache  # noqa: B019 - lives as long as the oracle
    def atoms_between(self, low: int, high: int) -> tuple[int, ...]:
        """Atoms of the scalar values of an interval."""
        first, last = np.searchsorted(self.edges, [low, high], "right") - 1
        return tuple(sorted(set(self.atom[first : last + 1].tolist()) - {self.surrogates}))


def _one_of(characters: Iterable[str]) -> np.ndarray:
    out = np.zeros(TOP, bool)
    out[[ord(c) for c in characters]] = True
    return out


@functools.cache
def _cased() -> tuple[str, ...]:
    return tuple(c for c in map(chr, range(TOP)) if c.lower() != c or c.upper() != c or c in "ıſ")


@functools.cache
def same_letters(character: str, flags: int = 0) -> str:
    """The characters that Python's `re.IGNORECASE` takes for this one, itself included; flags may hold `re.ASCII`."""
    test = re.compile(re.escape(character), re.IGNORECASE | flags)
    return character + "".join(c for c in _cased() if c != character and test.fullmatch(c))


_TESTS = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": lambda c: c.isalnum() or c == "_"}


@functools.cache
def _category(name: str, ascii_only: bool) -> np.ndarray:
    test, limit = _TESTS[name], 128 if ascii_only else TOP
    return np.fromiter((c < limit and test(chr(c)) for c in range(TOP)), bool, TOP)


class PatternReader:
    """Reads patterns into expressions over some character sets."""

    def __init__(self, sets: CharacterSets) -> None:
        self._sets = sets
        self._flags = 0

    def read(self, pattern: str, flags: str = "") -> Expression:
        """The expression of a pattern in Python's dialect; flags is a subset of "imsx"."""
        tree = sre_parser.parse(pattern, sum({"i": re.I, "m": re.M, "s": re.S, "x": re.X}[f] for f in flags))
        self._flags = tree.state.flags
        return self._sequence(list(tree))

    def _sequence(self, items: list[Any]) -> Expression:
        if not items:
            return EPSILON
        (op, value), rest = items[0], items[1:]
        if op in (sre.ASSERT, sre.ASSERT_NOT) and value[0] > 0:
            ahead = cat(self._sequence(list(value[1])), EVERYTHING)
            return both([ahead if op is sre.ASSERT else negation(ahead), self._sequence(rest)])
        if op is sre.SUBPATTERN and not value[1] and not value[2]:
            return self._sequence([*value[3], *rest])
        return cat(self._item(op, value), self._sequence(rest))

    def _item(self, op: Any, value: Any) -> Expression:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return self._sets.add(self._members(op, value))
        if op is sre.SUBPATTERN:
            before, self._flags = self._flags, (self._flags | value[1]) & ~value[2]
            out = self._closed(value[3])
            self._flags = before
            return out
        if op is sre.BRANCH:
            return alt([self._closed(branch) for branch in value[1]])
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return repeat(self._closed(value[2]), value[0], None if value[1] is sre.MAXREPEAT else value[1])
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return ("behind", self._behind(value[1]), op is sre.ASSERT)
        if op is sre.AT and value in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
            words = self._sets.add(_category("WORD", bool(self._flags & re.ASCII)))
            return ("boundary", words, value is sre.AT_BOUNDARY)
        raise UnsupportedError(str(op))

    def _closed(self, items: Any) -> Expression:
        """Of a part whose end is not the end of the whole: a look ahead would see past it."""
        items = list(items)
        if any(op in (sre.ASSERT, sre.ASSERT_NOT) and value[0] > 0 for op, value in items):
            raise UnsupportedError("a lookahead inside a group")
        return self._sequence(items)

    def _behind(self, items: Any) -> Expression:
        items = list(items)
        if len(items) != 1 or items[0][0] not in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            raise UnsupportedError("a lookbehind of more than one character")
        return self._sets.add(self._members(*items[0]))

    def _members(self, op: Any, value: Any) -> np.ndarray:
        out = np.zeros(TOP, bool)
        if op in (sre.LITERAL, sre.NOT_LITERAL):
            self._put(out, value, value)
            return ~out if op is sre.NOT_LITERAL else out
        if op is sre.ANY:
            out[:] = True
            out[10] = bool(self._flags & re.DOTALL)
            return out
        negate = False
        for kind, item in value:
            if kind is sre.NEGATE:
                negate = True
            elif kind is sre.CATEGORY:
                name = str(item).removeprefix("CATEGORY_")
                members = _category(name.removeprefix("NOT_"), bool(self._flags & re.ASCII))
                out |= ~members if name.startswith("NOT_") else members
            else:
                self._put(out, *(item if kind is sre.RANGE else (item, item)))
        return ~out if negate else out

    def _put(self, out: np.ndarray, low: int, high: int) -> None:
        out[low : high + 1] = True
        if self._flags & re.IGNORECASE:
            for c in _cased():
                if low <= ord(c) <= high:
                    out[[ord(x) for x in same_letters(c, self._flags & re.ASCII)]] = True


class LexemeAutomaton:
    """The trimmed deterministic automaton of one expression. State 0 is dead; `start` is 0 for the empty language.

    Attributes:
      step: step[q][atom], the state after one character.
      final: whether a lexeme may end in q.
      more: whether a longer text can still be one.
      on: the atoms with which q can go on, as bits.
      longest: characters of the longest text, or UNBOUNDED.
      left: least number of characters from q to a final state.
    """

    def __init__(self, expression: Expression, sets: CharacterSets, max_states: int = 20_000) -> None:
        self._masks = sets.masks
        behind = _contains(expression, "behind") or _contains(expression, "boundary")
        used = sorted(_sets_of(expression))
        signature = [tuple(sets.masks[k] >> a & 1 for k in used) for a in range(sets.num_atoms)]
        representative = {s: a for a, s in enumerate(signature)}
        names: dict[tuple[Expression, int], int] = {(expression, -1): 0}
        todo, rows = [(expression, -1)], []
        for node, back in todo:
            row = {}
            for s, a in representative.items():
                key = (self._derive(node, a, back), a if behind else -1)
                if key[0] != EMPTY:
                    row[s] = names.setdefault(key, len(names))
                    if row[s] == len(todo):
                        todo.append(key)
            rows.append(row)
            if len(todo) > max_states:
                raise UnsupportedError("a lexeme of too many states")
        final = [self._nullable(node, back, -1) for node, back in todo]
        live = _live(rows, final)
        number = {q: i + 1 for i, q in enumerate(sorted(live))}
        self.start = number.get(0, 0)
        self.final = [False] + [final[q] for q in sorted(live)]
        self.step = [[0] * sets.num_atoms]
        for q in sorted(live):
            row = [number.get(rows[q].get(s, -1), 0) for s in signature]
            row[sets.surrogates] = 0
            self.step.append(row)
        self.more = [any(row) for row in self.step]
        self.on = [sum(1 << a for a, q in enumerate(row) if q) for row in self.step]
        self.longest = _longest([set(row) - {0} for row in self.step], self.start)
        self.left = _distances([set(row) - {0} for row in self.step], self.final)

    def _nullable(self, node: Expression, back: int, ahead: int) -> bool:
        """Whether the expression may match nothing between two characters, given by their atoms; -1 where there is none."""
        kind = node[0]
        if kind == "cat":
            return self._nullable(node[1], back, ahead) and self._nullable(node[2], back, ahead)
        if kind in ("alt", "and"):
            return (any if kind == "alt" else all)(self._nullable(x, back, ahead) for x in node[1])
        if kind == "not":
            return not self._nullable(node[1], back, ahead)
        if kind == "repeat":
            return node[2] == 0 or self._nullable(node[1], back, ahead)
        if kind == "behind":
            return self._member(node[1], back) == node[2]
        if kind == "boundary":
            return (self._member(node[1], back) != self._member(node[1], ahead)) == node[2]
        return kind == "epsilon"

    def _member(self, node: Expression, atom: int) -> bool:
        return atom >= 0 and bool(self._masks[node[1]] >> atom & 1)

    def _derive(self, node: Expression, a: int, back: int) -> Expression:
        kind = node[0]
        if kind == "set":
            return EPSILON if self._member(node, a) else EMPTY
        if kind == "cat":
            first = cat(self._derive(node[1], a, back), node[2])
            return alt([first, self._derive(node[2], a, back)]) if self._nullable(node[1], back, a) else first
        if kind in ("alt", "and"):
            return (alt if kind == "alt" else both)([self._derive(x, a, back) for x in node[1]])
        if kind == "not":
            return negation(self._derive(node[1], a, back))
        if kind == "repeat":
            _, part, low, high = node
            rest = repeat(part, max(low - 1, 0), None if high is None else high - 1)
            return cat(self._derive(part, a, back), rest)
        return EMPTY


def _contains(node: Expression, kind: str) -> bool:
    return node[0] == kind or any(_contains(child, kind) for child in _children(node))


def _sets_of(node: Expression) -> set[int]:
    here = {node[1]} if node[0] == "set" else set()
    return here.union(*(_sets_of(child) for child in _children(node)))


def _children(node: Expression) -> list[Expression]:
    if node[0] in ("alt", "and"):
        return list(node[1])
    return [x for x in node[1:] if isinstance(x, tuple)]


def _longest(after: list[set[int]], start: int) -> int:
    """Length of the longest path from a state, UNBOUNDED when there is a cycle; every state leads to a final one."""
    reached, length = {start}, 0
    while reached and length <= len(after):
        reached = set().union(*(after[q] for q in reached))
        length += 1
    return UNBOUNDED if reached else length - 1


def _distances(after: list[set[int]], final: list[bool]) -> list[int]:
    out = [0 if f else len(final) for f in final]
    for _ in final:
        new = [min([d, *(out[t] + 1 for t in ts)]) for d, ts in zip(out, after)]
        if new == out:
            break
        out = new
    return out


def _live(rows: list[dict], final: list[bool]) -> set[int]:
    before: list[set[int]] = [set() for _ in rows]
    for q, row in enumerate(rows):
        for t in row.values():
            before[t].add(q)
    live = {q for q, f in enumerate(final) if f}
    todo = list(live)
    while todo:
        for q in before[todo.pop()] - live:
            live.add(q)
            todo.append(q)
    return live
