"""The tokens of a token automaton times filters over tokens: every state of the one with every state of the others."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.ranges import ranges
from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.composition.prefix.partial_tokens import WHOLE_TOKENS
from fsa_compile.composition.regular.regular_artifact import assemble, distances
from fsa_compile.composition.regular.trie_walk import TokenArcs, walk_tokens
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.errors import LimitError
from fsa_compile.filters.filter_base import TokenDfa, TokenFilter, empty_after
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables, tables_for

_DOING = "Filtering the tokens of the constraint"
_DENSE = 1 << 26
"""Up to this many pairs of states, those seen are kept in an array and not in a set."""


def compose_filtered(
    dfa: ByteDfa,
    tokenizer: Any,
    vocabulary: Vocabulary,
    filters: Sequence[TokenFilter],
    *,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
) -> CompiledConstraint:
    """The artifact of a byte automaton whose token sequences also pass filters; exact like `compose`, without dead ends.

    Args:
      dfa: trimmed byte automaton.
      tokenizer: what the filters are told of besides the vocabulary.
      filters: at least one.

    Raises:
      UnsatisfiableError: no token sequence of an accepted text passes the filters.
      ConstraintError: a filter that the tokenizer does not have what it takes for.
    """
    tables = tables_for(vocabulary)
    arcs = walk_tokens(dfa, tables, deadline)
    joint = joined([one.automaton(tokenizer, vocabulary, limits) for one in filters], limits)
    found = _Product(dfa, arcs, joint, tables, limits, deadline).trimmed()
    if found is None:
        raise empty_after(source, filters, "Loosen the filters: no tokens are left that spell an accepted text.")
    shell, arcs = found
    return assemble(shell, arcs, tables, source=source, limits=limits, deadline=deadline, extra={WHOLE_TOKENS: True})


def joined(automata: Sequence[TokenDfa], limits: CompileLimits) -> TokenDfa:
    """The automaton of what passes all of several."""
    return functools.reduce(lambda a, b: _intersection(a, b, limits), automata)


def _intersection(a: TokenDfa, b: TokenDfa, limits: CompileLimits) -> TokenDfa:
    width = b.table.shape[1]
    pairs, token_class = np.unique(a.token_class.astype(np.int64) * width + b.token_class, return_inverse=True)
    left, right = a.table[:, pairs // width].astype(np.int64), b.table[:, pairs % width].astype(np.int64)
    size = len(b.table)
    number = {0: 0, size + 1: 1}
    todo, rows = [0, size + 1], []
    for key in todo:
        p, q = left[key // size], right[key % size]
        row = []
        for reached in np.where((p > 0) & (q > 0), p * size + q, 0).tolist():
            row.append(number.setdefault(reached, len(number)))
            if row[-1] == len(todo):
                todo.append(reached)
        if len(todo) > limits.max_states:
            raise LimitError("max_states", limits.max_states, "Combining filters over tokens")
        rows.append(row)
    keys = np.array(todo)
    final = a.final[keys // size] & b.final[keys % size]
    return TokenDfa(np.array(rows, np.int32), token_class.astype(np.int32), final)


class _Share(NamedTuple):
    """What a state of the filter does with all tokens of texts.

    Attributes:
      main: where most of them lead, 0 if these are few.
      row: uint32[W], those that lead there; None if all do.
      token, target: int64[n], the others that are not forbidden.
    """

    main: int
    row: np.ndarray | None
    token: np.ndarray
    target: np.ndarray


class _Product:
    """Pairs (state, filter state) from the start, level by level; their keys are state * F + filter state."""

    def __init__(
        self, dfa: ByteDfa, arcs: TokenArcs, joint: TokenDfa, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline
    ) -> None:
        self.dfa, self.joint, self.tables, self.deadline = dfa, joint, tables, deadline
        self.width = len(joint.table)
        order = np.argsort(arcs.state, kind="stable")
        self.token, self.target = arcs.token[order], arcs.target[order]
        self.begin = np.searchsorted(arcs.state[order], np.arange(dfa.num_states + 1))
        order = np.argsort(arcs.row_state, kind="stable")
        self.row_set, self.row_target = arcs.row_set[order], arcs.row_target[order]
        self.row_begin = np.searchsorted(arcs.row_state[order], np.arange(dfa.num_states + 1))
        self.sets, self.hashes = list(arcs.sets), arcs.hashes.tolist()
        self.shares: dict[int, _Share] = {}
        self.parts: dict[tuple[int, int], tuple[int, np.ndarray, np.ndarray]] = {}
        self.single: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.rows: list[tuple[int, int, int]] = []
        self.seen = np.zeros(dfa.num_states * self.width if dfa.num_states * self.width <= _DENSE else 0, bool)
        self.known: set[int] = set()
        frontier = self._new(np.array([dfa.start * self.width + 1]))
        levels, count, kept = [frontier], 1, 0
        while len(frontier):
            deadline.check(_DOING)
            reached = self._expand(frontier)
            frontier = self._new(reached)
            levels.append(frontier)
            count += len(frontier)
            kept += len(reached)
            if count > limits.max_states:
                raise LimitError("max_states", limits.max_states, _DOING)
            deadline.check_bytes(kept * 48, _DOING)
        self.keys = np.sort(np.concatenate(levels))

    def _new(self, keys: np.ndarray) -> np.ndarray:
        """Those not seen before, once each."""
        keys = np.unique(keys)
        if len(self.seen):
            keys = keys[~self.seen[keys]]
            self.seen[keys] = True
        else:
            keys = np.array([key for key in keys.tolist() if key not in self.known], np.int64)
            self.known.update(keys.tolist())
        return keys

    def _expand(self, keys: np.ndarray) -> np.ndarray:
        """Records the tokens of some pairs; the pairs they lead to."""
        state, at = np.divmod(keys, self.width)
        which, arc = ranges(self.begin[state], self.begin[state + 1])
        token = self.token[arc]
        after = self.joint.table[at[which], self.joint.token_class[token]].astype(np.int64)
        alive = after > 0
        reached = self.target[arc[alive]] * self.width + after[alive]
        self.single.append((keys[which[alive]], token[alive], reached))
        out = [reached]
        wide = (self.row_begin[state + 1] > self.row_begin[state]).nonzero()[0]
        for key, q, f in zip(keys[wide].tolist(), state[wide].tolist(), at[wide].tolist()):
            for i in range(int(self.row_begin[q]), int(self.row_begin[q + 1])):
                target = int(self.row_target[i]) * self.width
                chosen, listed, after = self._part(int(self.row_set[i]), f)
                if chosen >= 0:
                    there = target + self.shares[f].main
                    self.rows.append((key, there, chosen))
                    out.append(np.array([there]))
                if len(listed):
                    self.single.append((np.full(len(listed), key), listed, target + after))
                    out.append(target + after)
        return np.concatenate(out)

    def _share(self, f: int) -> _Share:
        found = self.shares.get(f)
        if found is None:
            text = self.tables.length > 0
            after = np.where(text, self.joint.table[f, self.joint.token_class], 0).astype(np.int64)
            counts = np.bincount(after, minlength=2)
            counts[0] = 0
            main = int(counts.argmax())
            row = None
            if counts[main] <= NARROW:
                main = 0
            elif counts[main] < text.sum():
                row = self.tables.pack((after == main).nonzero()[0])
            token = ((after > 0) & (after != main)).nonzero()[0]
            found = self.shares[f] = _Share(main, row, token, after[token])
        return found

    def _part(self, number: int, f: int) -> tuple[int, np.ndarray, np.ndarray]:
        """What is left of a set of tokens: number of the set that goes the main way (-1: none), other tokens, their targets."""
        found = self.parts.get((number, f))
        if found is None:
            share, row = self._share(f), self.sets[number]
            held = (row[share.token >> 5] >> (share.token & 31).astype(np.uint32)) & 1 == 1
            chosen = number
            if share.main == 0:
                chosen = -1
            elif share.row is not None:
                left = row & share.row
                hashed = self.tables.row_hash(left)
                chosen = -1 if not left.any() else number if hashed == self.hashes[number] else len(self.sets)
                if chosen == len(self.sets):
                    self.sets.append(left)
                    self.hashes.append(hashed)
                    self.deadline.check_bytes(len(self.sets) * left.nbytes, _DOING)
            found = self.parts[number, f] = (chosen, share.token[held], share.target[held])
        return found

    def trimmed(self) -> tuple[ByteDfa, TokenArcs] | None:
        """Only pairs from which a text can be finished, numbered from 1, and their tokens; None where the start is not one."""
        keys = np.append(-1, self.keys)
        source, token, target = (np.concatenate(column) for column in zip(*self.single))
        rows = np.array(self.rows, np.int64).reshape(-1, 3)
        source, target = np.searchsorted(keys, source), np.searchsorted(keys, target)
        row_source, row_target = np.searchsorted(keys, rows[:, 0]), np.searchsorted(keys, rows[:, 1])
        accept = np.zeros(len(keys), bool)
        accept[1:] = self.dfa.final[self.keys // self.width] & self.joint.final[self.keys % self.width]
        distance = distances(np.concatenate([source, row_source]), np.concatenate([target, row_target]), accept)
        alive = distance < UNREACHABLE
        start = int(np.searchsorted(keys, self.dfa.start * self.width + 1))
        if not alive[start]:
            return None
        number = np.cumsum(alive)
        kept, kept_rows = alive[source] & alive[target], alive[row_source] & alive[row_target]
        arcs = TokenArcs(
            number[source[kept]], token[kept], number[target[kept]],
            number[row_source[kept_rows]], number[row_target[kept_rows]], rows[kept_rows, 2],
            self.sets, np.array(self.hashes, np.uint64),
        )  # fmt: skip
        final = np.append(False, accept[alive])
        return ByteDfa(np.zeros((len(final), 1), np.int32), np.zeros(256, np.uint8), final, int(number[start])), arcs
