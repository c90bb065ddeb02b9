"""Loops of regular automata that many automata share, such as string bodies: what their tokens do is known (`summaries`).

Only loops that most tokens leave as they are count as such, with what stands between (the bytes of a character, escapes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.ranges import ranges
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import NO_END, UNCOUNTED, ByteMachine
from fsa_compile.composition.pushdown.summaries import LeafProcedure, Summary, leaf_procedures_of
from fsa_compile.composition.regular.trie_walk import KnownTokens, TokenLists
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


def known_tokens(dfa: ByteDfa, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline) -> KnownTokens | None:
    """What the tokens of the loops of an automaton do; None where there are no such loops.

    Raises:
      LimitError: out of time or memory.
    """
    weight = np.bincount(dfa.byte_class, tables.weight, dfa.table.shape[1])
    stays = (dfa.table == np.arange(dfa.num_states)[:, None]) @ weight
    bases = (stays[1:] > weight.sum() / 2).nonzero()[0] + 1
    if not len(bases):
        return None

    def walk(machine: ByteMachine, size: int) -> Summary:
        from fsa_compile.composition.pushdown.pushdown_walk import summarize  # most loops are known, and it loads many modules

        return summarize(machine, size, tables, limits, deadline)

    leaves = leaf_procedures_of(_machine(dfa), bases[:0], bases, tables, walk, only_loops=True)
    inside = np.zeros(dfa.num_states, bool)
    found = [_Tokens.of(leaf) for leaf in leaves]
    for leaf in leaves:
        inside[leaf.controls[: leaf.walk.size]] = True
    columns = [tuple(np.concatenate(column) for column in zip(*parts)) for parts in zip(*(tokens[:2] for tokens in found))]
    (row_state, row_target, row_set), (origin, node, state) = columns
    first = np.cumsum([0, *(len(tokens.rows) for tokens in found)])
    row_set = row_set + np.repeat(first[:-1], [len(tokens.by_row[0]) for tokens in found])
    state = dfa.table[state, dfa.byte_class[tables.trie_byte[node]]].astype(np.int64)
    on = state.nonzero()[0]
    return KnownTokens(
        inside=inside,
        lists=_joined([tokens.lists for tokens in found]),
        by_row=(row_state, row_target, row_set),
        sets=[row for tokens in found for row in tokens.rows],
        hashes=np.concatenate([tokens.hashes for tokens in found]),
        begun=(origin[on], node[on], state[on]),
    )


class _Tokens(NamedTuple):
    """Tokens of the states of a leaf.

    Attributes:
      by_row: (state, target, index into `rows`).
      begun: (state, trie node, state reached): the trie node is read next.
      lists: single tokens.
      rows, hashes: of large sets.
    """

    by_row: tuple[np.ndarray, ...]
    begun: tuple[np.ndarray, ...]
    lists: TokenLists
    rows: list[np.ndarray]
    hashes: np.ndarray

    @classmethod
    def of(cls, leaf: LeafProcedure) -> _Tokens:
        number, parts = np.append(0, leaf.controls), leaf.walk.parts
        control, owner = _owners(leaf)
        first = parts.owner.searchsorted(np.arange(int(owner.max()) + 2))
        which, part = ranges(first[owner], first[owner + 1])
        state, target = number[control[which]], number[parts.target[part]]
        row = parts.row[part]
        narrow, wide = (row < 0).nonzero()[0], (row >= 0).nonzero()[0]
        of = part[narrow]
        hashes = np.zeros(len(parts.rows), np.uint64)
        hashes[row[wide]] = parts.hash[part[wide]]
        of_leaving, node, there, _ = leaf.walk.leaving
        begin, size = (column[of].astype(np.int64) for column in (parts.begin, parts.size))
        return cls(
            (state[wide], target[wide], row[wide].astype(np.int64)),
            (number[of_leaving], node.astype(np.int64), number[there]),
            TokenLists(state[narrow], target[narrow], begin, size, parts.hash[of], parts.token),
            parts.rows,
            hashes,
        )


def _joined(lists: list[TokenLists]) -> TokenLists:
    if len(lists) == 1:
        return lists[0]
    first = np.cumsum([0, *(len(known.token) for known in lists)]).tolist()
    moved = [known._replace(begin=known.begin + before) for known, before in zip(lists, first)]
    return TokenLists(*(np.concatenate(column) for column in zip(*moved)))


def _owners(leaf: LeafProcedure) -> tuple[np.ndarray, np.ndarray]:
    """(control, owner) of everything that has a control's tokens: itself, and the runs that are parts of it."""
    run, caller = leaf.walk.links[:2]
    order = caller.argsort(kind="stable")
    run, caller = run[order], caller[order]
    control = owner = np.arange(1, leaf.walk.size + 1)
    found = [(control, owner)]
    while len(owner):
        which, at = ranges(caller.searchsorted(owner), caller.searchsorted(owner, side="right"))
        control, owner = control[which], run[at]
        found.append((control, owner))
    control, owner = (np.concatenate(column) for column in zip(*found))
    return control, owner


def _machine(dfa: ByteDfa) -> ByteMachine:
    """The automaton as a machine; how its text ends does not matter here."""
    size = dfa.num_states
    return ByteMachine(
        byte_class=dfa.byte_class.astype(np.int32),
        specials=(),
        action=dfa.table,
        entry_offset=np.append(0, np.arange(size)).astype(np.int32),
        entry_next=np.arange(1, size, dtype=np.int32),
        entry_push=np.zeros(size - 1, np.int32),
        entry_add=np.zeros(size - 1, np.int8),
        pushes=((),),
        ret=np.zeros((size, 0), np.int32),
        end=np.full(size, NO_END, np.int8),
        bounds=np.full((size, 2), UNCOUNTED, np.int32),
        start=dfa.start,
        stack=(),
    )
