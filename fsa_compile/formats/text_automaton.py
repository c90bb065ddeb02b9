"""Trees of formats to deterministic automata whose letters are bytes, special tokens, and calls of values."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np

from fsa_compile.arrays.graphs import leading, reach
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.errors import LimitError, PatternError, UnsatisfiableError
from fsa_compile.formats.request import FormatError
from fsa_compile.formats.tree import (
    Format,
    FreeText,
    Joined,
    Json,
    OneOf,
    Parts,
    Regex,
    Repeated,
    Special,
    Text,
    Token,
    Until,
    Value,
    Words,
)
from fsa_compile.languages import constructors as languages
from fsa_compile.limits import CompileLimits, Deadline


@dataclasses.dataclass(frozen=True, eq=False)
class TextAutomaton:
    """A trimmed deterministic automaton. State 0 is dead; with no other, it accepts nothing.

    Attributes:
      table: int32[S, C], next state by state and class of letters.
      byte_class: int32[256 + T], class of every byte and special token.
      final: bool[S].
      start: initial state.
      calls: by state, the values that may begin there: number of the schema, and the state after the value.
      schemas: the different schemas, and values of machines.
      specials: token ids of the special tokens, in the order of their letters.
    """

    table: np.ndarray
    byte_class: np.ndarray
    final: np.ndarray
    start: int
    calls: dict[int, dict[int, int]]
    schemas: tuple[Json | Value, ...]
    specials: tuple[int, ...] = ()


def text_automaton(root: Format, limits: CompileLimits, deadline: Deadline) -> TextAutomaton:
    """The automaton of a tree.

    Raises:
      LimitError: more states than `max_states`, or more time than there is.
      FormatError: a pattern that is not one.
    """
    build = _Nondeterministic(limits, deadline)
    build.specials = sorted(_tokens(root))
    start, end = build.state(), build.state()
    build.add(root, start, end)
    return _deterministic(build, start, end, limits, deadline)


def _tokens(root: Format) -> set[int]:
    """The ids of all special tokens of a tree."""
    out: set[int] = set()
    todo: list[Format] = [root]
    while todo:
        match todo.pop():
            case Token(ids=ids):
                out |= ids
            case Parts(parts=children) | OneOf(branches=children):
                todo += children
            case Repeated(part=child):
                todo.append(child)
            case Joined(part=child, between=between):
                todo += [child, between]
    return out


class _Nondeterministic:
    """States with moves that read nothing, whole automata between two states, bytes, and calls."""

    def __init__(self, limits: CompileLimits, deadline: Deadline) -> None:
        self._limits, self._deadline = limits, deadline
        self.free: list[list[int]] = []
        self.bytes: list[dict[int, list[int]]] = []
        self.calls: list[list[tuple[int, int]]] = []
        self.schemas: dict[object, tuple[int, Json | Value]] = {}
        self.specials: list[int] = []
        self._dfas: dict[Format, ByteDfa] = {}

    def state(self) -> int:
        if len(self.free) >= self._limits.max_states:
            raise LimitError("max_states", self._limits.max_states, "Writing out the text around the values")
        self.free.append([])
        self.bytes.append({})
        self.calls.append([])
        return len(self.free) - 1

    def add(self, node: Format, begin: int, end: int) -> None:
        """The node's texts between two states."""
        match node:
            case Text(text=text):
                here = begin
                for byte in text.encode():
                    there = self.state()
                    self.bytes[here].setdefault(byte, []).append(there)
                    here = there
                self.free[here].append(end)
            case Json():
                key = json.dumps(node.schema, sort_keys=False, default=repr)
                number, _ = self.schemas.setdefault(key, (len(self.schemas), node))
                self.calls[begin].append((number, end))
            case Special():
                raise TypeError("the vocabulary of a special token is not known")
            case Value():
                number, _ = self.schemas.setdefault((id(node.machine), node.start), (len(self.schemas), node))
                self.calls[begin].append((number, end))
            case Token(ids=ids):
                for token in ids:
                    self.bytes[begin].setdefault(256 + self.specials.index(token), []).append(end)
            case Parts(parts=parts):
                here = begin
                for part in parts:
                    there = self.state()
                    self.add(part, here, there)
                    here = there
                self.free[here].append(end)
            case OneOf(branches=branches):
                for branch in branches:
                    first = self.state()
                    self.free[begin].append(first)
                    self.add(branch, first, end)
            case Repeated():
                self._repeated(node, begin, end)
            case Joined(part=part, between=between):
                first, last = self.state(), self.state()
                self.free[begin].append(first)
                self.add(part, first, last)
                self.add(between, last, first)
                self.free[last].append(end)
            case _:
                self._automaton(node, begin, end)

    def _repeated(self, node: Repeated, begin: int, end: int) -> None:
        here = begin
        for _ in range(node.low):
            there = self.state()
            self.add(node.part, here, there)
            here = there
        for _ in range(0 if node.high is None else node.high - node.low):
            self.free[here].append(end)
            there = self.state()
            self.add(node.part, here, there)
            here = there
        if node.high is None:
            loop = self.state()
            self.free[here].append(loop)
            self.add(node.part, loop, loop)
            here = loop
        self.free[here].append(end)

    def _automaton(self, node: Format, begin: int, end: int) -> None:
        if node not in self._dfas:
            self._dfas[node] = self._byte_dfa(node)
        dfa = self._dfas[node]
        number = [self.state() for _ in range(dfa.num_states)]
        for source, byte, target in zip(*(column.tolist() for column in dfa.arcs)):
            self.bytes[number[source]].setdefault(byte, []).append(number[target])
        for state in np.flatnonzero(dfa.final).tolist():
            self.free[number[state]].append(end)
        if dfa.num_states > 1:
            self.free[begin].append(number[dfa.start])

    def _byte_dfa(self, node: Format) -> ByteDfa:
        match node:
            case FreeText(without=without, not_first=not_first):
                made = languages.regex("(?s:.*)") if not without else ~languages.regex(f"(?s:.*(?:{_any(without)}).*)")
                if not_first:
                    made = made - languages.regex(f"(?s:(?:{_any(not_first)}).*)")
            case Words(language=made):
                pass
            case Until(end=mark, marks=marks, without=without):
                made = languages.regex(f"(?s:.*){re.escape(mark)}") - languages.regex(f"(?s:.*(?:{_any(marks)}).+)")
                if without:
                    made = made - languages.regex(f"(?s:.*(?:{_any(without)}).*)")
            case Regex(pattern=pattern, pointer=pointer):
                try:
                    return languages.regex(pattern).to_byte_dfa(self._limits, self._deadline)
                except (PatternError, UnsatisfiableError) as error:
                    raise FormatError(f"this pattern cannot be used: {error}", pointer=pointer) from None
            case _:
                raise TypeError(type(node).__name__)
        return made.to_byte_dfa(self._limits, self._deadline)


def _any(texts: tuple[str, ...]) -> str:
    return "|".join(re.escape(text) for text in texts)


def _deterministic(build: _Nondeterministic, start: int, end: int, limits: CompileLimits, deadline: Deadline) -> TextAutomaton:
    """Subsets of states; a letter is a class of bytes that no state tells apart."""
    byte_class, members = _classes(build)
    numbers: dict[frozenset[int], int] = {}
    order: list[frozenset[int]] = []

    def number(states: set[int]) -> int:
        key = frozenset(reach(states, build.free.__getitem__))
        found = numbers.setdefault(key, len(order) + 1)
        if found > len(order):
            order.append(key)
            if found > limits.max_states:
                raise LimitError("max_states", limits.max_states, "Writing out the text around the values")
        return found

    number({start})
    moves: list[dict[int, int]] = []
    calls: dict[int, dict[int, int]] = {}
    for at, states in enumerate(order, 1):
        deadline.check("Writing out the text around the values")
        reached: dict[int, set[int]] = {}
        called: dict[int, set[int]] = {}
        for state in states:
            for byte, targets in build.bytes[state].items():
                reached.setdefault(byte, set()).update(targets)
            for schema, target in build.calls[state]:
                called.setdefault(schema, set()).add(target)
        moves.append({kind: number(reached[byte]) for kind, byte in enumerate(members) if byte in reached})
        if called:
            calls[at] = {schema: number(targets) for schema, targets in called.items()}
    table = np.zeros((len(order) + 1, len(members)), np.int32)
    for at, row in enumerate(moves, 1):
        for kind, target in row.items():
            table[at, kind] = target
    final = np.array([False, *(end in states for states in order)])
    schemas = tuple(node for _, node in build.schemas.values())
    return _trimmed(TextAutomaton(table, byte_class, final, 1, calls, schemas, tuple(build.specials)))


def _classes(build: _Nondeterministic) -> tuple[np.ndarray, list[int]]:
    """int32[256 + T], classes of letters, and one letter of each."""
    signature: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(256 + len(build.specials))]
    for state, moves in enumerate(build.bytes):
        for byte, targets in moves.items():
            signature[byte].append((state, tuple(targets)))
    kinds: dict[tuple[tuple[int, tuple[int, ...]], ...], int] = {}
    byte_class = np.array([kinds.setdefault(tuple(s), len(kinds)) for s in signature], np.int32)
    return byte_class, [int(np.argmax(byte_class == kind)) for kind in range(len(kinds))]


def _trimmed(automaton: TextAutomaton) -> TextAutomaton:
    """Without states that lead nowhere."""
    table, final = automaton.table, automaton.final
    after = [[*row, *automaton.calls.get(state, {}).values()] for state, row in enumerate(table.tolist())]
    live = set(leading(after, np.flatnonzero(final).tolist()))
    kept = np.zeros(len(final), np.int32)
    kept[sorted(live - {0})] = np.arange(1, len(live - {0}) + 1)
    rows = np.flatnonzero(np.append(True, kept[1:] > 0))
    calls = {
        int(kept[source]): {schema: int(kept[target]) for schema, target in called.items() if kept[target]}
        for source, called in automaton.calls.items()
        if kept[source]
    }
    calls = {source: called for source, called in calls.items() if called}
    start = int(kept[automaton.start])
    return dataclasses.replace(automaton, table=kept[table[rows]], final=final[rows], start=start, calls=calls)
