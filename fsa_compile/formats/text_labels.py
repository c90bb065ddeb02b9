"""`TextAutomaton`: what texts around values become, and what labels tell of its states."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import numpy as np

from fsa_compile.formats import tree

END = -1
"""Label of the end of all text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Label of free text that may not begin like a call.

    Attributes:
      number: of the place in the tree.
      before, behind: what stands around names at the beginning of a call, up to the first byte of its arguments.
      state: 0 where anything may follow; else of what is read of a character.
    """

    number: int
    before: bytes
    behind: bytes
    state: int = 0

    def lead(self, name: bytes) -> bytes:
        """The beginning of a call."""
        return self.before + name + self.behind


@dataclasses.dataclass(frozen=True, slots=True)
class Before:
    """Label of an answer that may yet begin like a call: what is read of what stands before a name."""

    answer: Answer
    read: bytes


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
      labels: by state, the places in the tree that it stands for, where the tree has names; else (). A state behind one name: the
        name. Others: outside of names, and what stands behind each, a number, END at the end, `Answer` and `Before`; within a
        name, the place before it, or the answer that it may yet be, and what is read of the name; behind a name, the place before
        it, the name, and a number. Trees that differ in their names alone agree in these; a str where they may not.
      left: int64[S] of a sketch, how much is read of what stands behind a name, where an answer has begun like a call up to
        there; else -1.
      is_sketch: whether answers that have begun like a call go on as calls alone: `known_parts` and `part_joins` add what else
        they go on with.
    """

    table: np.ndarray
    byte_class: np.ndarray
    final: np.ndarray
    start: int
    calls: dict[int, dict[int, int]]
    schemas: tuple[tree.Json | tree.Value, ...]
    specials: tuple[int, ...] = ()
    labels: tuple[frozenset[Hashable] | bytes, ...] = ()
    left: np.ndarray | None = None
    is_sketch: bool = False
