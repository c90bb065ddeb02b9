"""`ProductGraph`: the nodes of a canonical product that token sequences reach, and what every token leads to.

A product node stands for (node of the constraint, state of the filter). The constraint's tokens are followed in arrays, a layer
of product nodes at a time; sets with many tokens are split by what the filter makes of them, not token by token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.canonical.tables import CanonicalTables
from fsa_compile.canonical.token_filter import NONE, START, Moves
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "following the canonical tokens of the constraint"
_LISTED = 4096
"""Token sets up to this size are listed token by token."""
_CHUNK = 256
"""Bit rows unpacked at a time."""


class WideSet(NamedTuple):
    """Many tokens of a product node that lead to the same nodes: targets after an allowed and after a forbidden pair, or -1.

    token: int64[n]; sets: int64[n], their forbidden sets.
    """

    source: int
    token: np.ndarray
    sets: np.ndarray
    targets: tuple[int, int]


class ProductGraph(NamedTuple):
    """The reached nodes; 0 is the start. Axes: X nodes, E listed tokens.

    Attributes:
      node: int64[X], of the constraint.
      accept: bool[X].
      source: int64[E], ascending; token: int64[E].
      targets: int64[2, E], nodes after an allowed and after a forbidden pair, -1 for none.
      wide: further tokens.
    """

    node: np.ndarray
    accept: np.ndarray
    source: np.ndarray
    token: np.ndarray
    targets: np.ndarray
    wide: list[WideSet]


def explore(
    constraint: CompiledConstraint, tables: CanonicalTables, limits: CompileLimits, deadline: Deadline, state: int
) -> ProductGraph:
    """All product nodes that are reached from the constraint's start and a state of the filter.

    Raises:
      LimitError: too many states, or out of time.
    """
    return _Exploration(constraint, tables, limits, deadline).graph(state)


class _Listed(NamedTuple):
    """The tokens of a constraint's nodes one by one: of node q those from `offset[q]` to `offset[q + 1]`."""

    offset: np.ndarray
    token: np.ndarray
    target: np.ndarray


class _Kinds(NamedTuple):
    """The tokens of a bit row by their class in the filter: `token[begin[i]:begin[i + 1]]` are of class `kind[i]`."""

    token: np.ndarray
    sets: np.ndarray
    begin: np.ndarray
    kind: np.ndarray


class _Exploration:
    def __init__(
        self, constraint: CompiledConstraint, tables: CanonicalTables, limits: CompileLimits, deadline: Deadline
    ) -> None:
        self._constraint, self._filter = constraint, tables.filter
        self._limits, self._deadline = limits, deadline
        self._set_of = tables.rule.set_of
        self._special = np.diff(tables.packed[1]) == 0
        self._listed, self._groups = _split_sets(constraint)
        self._kinds: dict[tuple[int, int], _Kinds] = {}
        self._states: list[int] = []
        """States of the filter by their own numbers here."""
        self._own = np.full(64, -1, np.int64)
        """Own number of each state of the filter, one place further for `NONE`."""
        self._number = np.full((8, constraint.num_nodes), -1, np.int32)
        """Product node of each own state and node of the constraint."""
        self._found: list[np.ndarray] = []
        """Keys of the product nodes: own state * N + node of the constraint."""
        self._count = 0

    def graph(self, state: int) -> ProductGraph:
        nodes = self._constraint.num_nodes
        self._numbered(self._own_numbers(np.array([state])), np.array([self._constraint.start]))
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        wide: list[WideSet] = []
        done = 0
        while done < self._count:
            self._deadline.check(_DOING)
            keys = np.concatenate(self._found)[done:]
            self._found = [np.concatenate(self._found)]
            own, q = np.divmod(keys, nodes)
            for mine in np.unique(own).tolist():
                chosen = np.flatnonzero(own == mine)
                parts.append(self._followed(mine, done + chosen, q[chosen]))
                wide += self._followed_wide(mine, done + chosen, q[chosen])
            done += len(keys)
        key = np.concatenate(self._found)
        source, token, targets = (np.concatenate(part, axis=-1) for part in zip(*parts))
        if (source[1:] < source[:-1]).any():
            order = np.argsort(source, kind="stable")
            source, token, targets = source[order], token[order], targets[:, order]
        final = np.array([self._filter.final(state) for state in self._states])
        accept = self._constraint.accept[key % nodes] & final[key // nodes]
        return ProductGraph(key % nodes, accept, source, token, targets, wide)

    def _own_numbers(self, states: np.ndarray) -> np.ndarray:
        """Own numbers of states of the filter, -1 for `NONE`."""
        if states.max(initial=0) + 2 > len(self._own):
            self._own = np.append(self._own, np.full(int(states.max()) + 2, -1))
        new = np.unique(states[(self._own[states + 1] < 0) & (states >= 0)])
        if len(new):
            self._own[new + 1] = np.arange(len(self._states), len(self._states) + len(new))
            self._states += new.tolist()
            if len(self._states) > len(self._number):
                grown = np.full((2 * len(self._states), self._number.shape[1]), -1, np.int32)
                self._deadline.check_bytes(grown.nbytes, _DOING)
                grown[: len(self._number)] = self._number
                self._number = grown
        return self._own[states + 1]

    def _numbered(self, own: np.ndarray, node: np.ndarray) -> np.ndarray:
        """Product nodes of own states and nodes of the constraint; -1 where the state is."""
        found = np.where(own >= 0, self._number[own, node], -1).astype(np.int64)
        missing = (found < 0) & (own >= 0)
        if missing.any():
            new = np.unique(own[missing] * self._constraint.num_nodes + node[missing])
            self._number.reshape(-1)[new] = np.arange(self._count, self._count + len(new))
            self._found.append(new)
            self._count += len(new)
            if self._count > self._limits.max_states:
                raise LimitError("max_states", self._limits.max_states, _DOING)
            found[missing] = self._number[own[missing], node[missing]]
        return found

    def _after(self, mine: int, kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Own states after classes of tokens, -1 being special tokens: for allowed and for forbidden pairs."""
        state = self._states[mine]
        moves = self._filter.moves(state)
        special = START if self._filter.final(state) else NONE  # a cut of its own
        out = []
        for states in (moves.allowed, moves.forbidden):
            then = np.append(states, special)[kind]  # -1 reads the last
            out.append(self._own_numbers(then.astype(np.int64)))
        return out[0], out[1]

    def _followed(self, mine: int, source: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The listed tokens of product nodes of one state: sources, tokens, targets."""
        begin, end = self._listed.offset[node], self._listed.offset[node + 1]
        count = end - begin
        index = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        token, source = self._listed.token[index], np.repeat(source, count)
        kind = self._filter.moves(self._states[mine]).class_of[token]
        can = (kind >= 0) | self._special[token]
        allowed, forbidden = self._after(mine, kind)
        can &= (allowed >= 0) | (forbidden >= 0)
        if not can.all():
            index, token, source, allowed, forbidden = (x[can] for x in (index, token, source, allowed, forbidden))
        target = self._listed.target[index]
        return source, token, np.stack([self._numbered(allowed, target), self._numbered(forbidden, target)])

    def _followed_wide(self, mine: int, source: np.ndarray, node: np.ndarray) -> list[WideSet]:
        out = []
        moves = self._filter.moves(self._states[mine])
        for x, q in zip(source.tolist(), node.tolist()):
            for row, target in self._groups.get(q, ()):
                kinds = self._by_kind(row, moves)
                allowed, forbidden = self._after(mine, kinds.kind)
                there = np.full(len(allowed), target)
                a, f = self._numbered(allowed, there), self._numbered(forbidden, there)
                code, part = np.unique((a + 1) * (self._count + 1) + f + 1, return_inverse=True)
                of_token = np.repeat(part.ravel(), np.diff(kinds.begin))
                order = np.argsort(of_token.astype(np.int16), kind="stable")
                ends = np.cumsum(np.bincount(of_token, minlength=len(code)))
                for i, pair in enumerate(code.tolist()):
                    if pair:
                        chosen = order[ends[i - 1] if i else 0 : ends[i]]
                        targets = (pair // (self._count + 1) - 1, pair % (self._count + 1) - 1)
                        out.append(WideSet(x, kinds.token[chosen], kinds.sets[chosen], targets))
        return out

    def _by_kind(self, row: int, moves: Moves) -> _Kinds:
        # Filter states share the array of classes as long as they stand at the same place inside a character.
        key = (row, id(moves.class_of))
        found = self._kinds.get(key)
        if found is None:
            token = self._constraint.row_tokens(row)
            token = token[(moves.class_of[token] >= 0) | self._special[token]]
            kind = moves.class_of[token]
            order = np.argsort(kind.astype(np.int16) if kind.max(initial=0) < 1 << 15 else kind, kind="stable")
            token, kind = token[order], kind[order]
            first = np.flatnonzero(np.append(True, kind[1:] != kind[:-1])) if len(kind) else np.zeros(0, np.int64)
            sets = self._set_of[token].astype(np.int64)
            found = self._kinds[key] = _Kinds(token, sets, np.append(first, len(token)), kind[first])
        return found


def _split_sets(constraint: CompiledConstraint) -> tuple[_Listed, dict[int, list[tuple[int, int]]]]:
    """Arcs and smaller token sets one by one; and of each node the larger sets, as (row, target)."""
    c = constraint
    size = np.bitwise_count(c.rows).sum(1)
    owner = np.repeat(np.arange(c.num_nodes), np.diff(c.group_offset))
    small = size[c.group_row] <= _LISTED
    large: dict[int, list[tuple[int, int]]] = {}
    for q, row, target in zip(owner[~small].tolist(), c.group_row[~small].tolist(), c.group_next[~small].tolist()):
        large.setdefault(q, []).append((row, target))
    rows, place = np.unique(c.group_row[small], return_inverse=True)
    tokens, count = [np.zeros(0, np.int64)], size[rows].astype(np.int64)
    for low in range(0, len(rows), _CHUNK):
        bits = np.unpackbits(c.rows[rows[low : low + _CHUNK]].view(np.uint8), axis=1, bitorder="little")
        tokens.append(np.nonzero(bits)[1])
    every, begin = np.concatenate(tokens), np.cumsum(count) - count
    count, begin = count[place.ravel()], begin[place.ravel()]
    index = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
    q = np.concatenate([np.repeat(np.arange(c.num_nodes), np.diff(c.arc_offset)), np.repeat(owner[small], count)])
    token = np.concatenate([c.arc_token.astype(np.int64), every[index]])
    target = np.concatenate([c.arc_next.astype(np.int64), np.repeat(c.group_next[small].astype(np.int64), count)])
    order = np.argsort(q, kind="stable")
    offset = np.append(0, np.cumsum(np.bincount(q, minlength=c.num_nodes)))
    return _Listed(offset, token[order], target[order]), large
