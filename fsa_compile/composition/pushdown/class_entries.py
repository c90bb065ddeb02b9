"""Controls that read whole classes of bytes, such as string bodies and words, in the walk of a machine with a stack.

What tokens do from such a control without pushing or popping is read off the symbol strings of the vocabulary, as for regular
automata (`class_walk`). Tokens that push or pop on the way are only listed there; the walk reads them byte by byte, along the
trie cut down to their paths.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fsa_compile.arrays.integers import numbered
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.tokens.class_walk import HEAVY, Entered, walk_entries, wide_states
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_WIDE_BYTES = 16
"""Bytes that a control has to read without a push or pop to be worth an entry."""


class Entries:
    """The moves of a machine as a byte automaton; one more state stands for everything that pushes, pops or counts."""

    def __init__(self, machine: ByteMachine, tables: VocabularyTables) -> None:
        s = machine.num_controls
        offset = machine.entry_offset
        single = (np.diff(offset) == 1).nonzero()[0]  # actions of one entry; a machine for the empty text alone has none
        at = offset[single]
        plain = (machine.entry_push[at] == 0) & (machine.entry_next[at] > 0) & (machine.entry_add[at] == 0)
        if machine.sets is not None:
            plain &= machine.sets.entry[at] == 0
        goal = np.where(np.diff(offset) == 0, 0, s).astype(np.int32)
        goal[single[plain]] = machine.entry_next[at[plain]]
        self._machine, self._goal, self._tables, self._other = machine, goal, tables, s
        control, symbol, action = machine.cells
        target = goal[action]
        inside = ((target > 0) & (target != s)).nonzero()[0]
        size = np.bincount(machine.byte_class[:256], minlength=machine.action.shape[1])
        reads = np.bincount(control[inside], size[symbol[inside]], s + 1)
        reads[:s][machine.bounds[:, 1] >= 0] = 0
        self._some = reads >= _WIDE_BYTES

    @cached_property
    def _dfa(self) -> ByteDfa:
        """The moves; many walks never come to a control that is worth it."""
        machine, s = self._machine, self._other
        table = np.full((s + 1, machine.action.shape[1]), s, np.int32)
        table[:s] = self._goal[machine.action]
        table[:s][machine.bounds[:, 1] >= 0] = 0
        table[0] = 0
        return ByteDfa(table, machine.byte_class[:256].astype(np.uint8), np.zeros(s + 1, bool), 1)

    @cached_property
    def _wide(self) -> np.ndarray:
        """bool[S + 1], the controls that read whole classes of bytes; the state for everything else is one of them."""
        wide = wide_states(self._dfa, self._some)
        wide[self._other] = True
        return wide

    def chosen(self, owner: np.ndarray, byte: np.ndarray, control: np.ndarray) -> np.ndarray:
        """Which arcs (owner, first byte, control reached) are worth walking by symbol strings: bool[n]."""
        entry = np.zeros(self._other + 1, bool)
        into = self._some[control].nonzero()[0]
        if len(into):
            pair, which = numbered(owner[into] * (self._other + 1) + control[into])
            weight = np.bincount(which, self._tables.weight[byte[into]])
            entry[(pair % (self._other + 1))[weight > HEAVY]] = True
        if entry.any():
            entry &= self._wide
        return entry[control]

    def walked(
        self, owner: np.ndarray, byte: np.ndarray, control: np.ndarray, deadline: Deadline
    ) -> tuple[Entered, tuple[np.ndarray, np.ndarray]]:
        """What is read without a push or pop, and (control, token) of the other tokens of every entry."""
        order = np.lexsort((byte, owner))
        found = walk_entries(
            self._dfa, self._tables, self._wide, owner[order], byte[order], control[order], deadline, aside=self._other
        )
        return found, found.aside
