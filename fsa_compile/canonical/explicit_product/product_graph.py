"""`ProductGraph`: the nodes of a canonical product that token sequences reach, and what every token leads to.

A product node stands for (node of the constraint, state of the filter). The constraint's tokens are followed in arrays, a layer
of product nodes at a time; sets with many tokens are split by what the filter makes of them, not token by token.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.ranges import joined
from fsa_compile.artifact.bitmask import tokens_of
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.canonical.filter.token_filter import NONE, START
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

_DOING = "following the canonical tokens of the constraint"
_LISTED = 4096
"""Token sets up to this size are listed token by token."""
_FEW = 256
"""Of larger sets, tokens that lead elsewhere than most are listed if they are no more than this."""
_EDGE_BYTES = 64
"""Memory that a listed token takes while distances are computed."""


@dataclasses.dataclass(frozen=True, eq=False)
class WideSet:
    """Many tokens of product nodes that lead to the same nodes.

    Attributes:
      token: int64[n].
      sets: int64[n], their forbidden sets.
      targets: after an allowed and after a forbidden pair, -1 for none.
      sources: the product nodes that have these tokens, most of them states inside a token that merging does not reach.
    """

    token: np.ndarray
    sets: np.ndarray
    targets: tuple[int, int]
    sources: list[int] = dataclasses.field(default_factory=list)


class ProductGraph(NamedTuple):
    """Nodes, all reached ones among them; 0 is the start. Axes: X nodes, E listed tokens.

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
    """All product nodes that are reached from the constraint's start and a state of the filter."""
    return _Exploration(constraint, tables, limits, deadline).graph(state)


_Edges: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Sources, tokens and targets, as in `ProductGraph`."""


class Listed(NamedTuple):
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
        self._seed = tables.splitter is None and not len(tables.cut_pieces)
        size = np.bitwise_count(constraint.rows).sum(1)
        self._listed, self._groups = split_sets(constraint, size <= _LISTED, size)
        self._kinds: dict[tuple[int, int], _Kinds] = {}
        self._wide: dict[tuple[int, int, bytes], WideSet] = {}
        self._states: list[int] = []
        """States of the filter by their own numbers here."""
        self._own = np.full(64, -1, np.int64)
        """Own number of each state of the filter, one place further for `NONE`."""
        self._number = np.full((8, constraint.num_nodes), -1, np.int32)
        """Product node of each own state and node of the constraint."""
        self._found: list[np.ndarray] = []
        """Keys of the product nodes: own state * N + node of the constraint."""
        self._count = self._edges = 0

    def graph(self, state: int) -> ProductGraph:
        nodes = self._constraint.num_nodes
        self._numbered(self._own_numbers(np.array([state])), np.array([self._constraint.start]))
        if self._seed and state == START:  # the one state between characters, in which nearly all nodes are reached: all at once
            self._numbered(np.zeros(nodes - 1, np.int64), np.arange(1, nodes))
        parts: list[_Edges] = []
        done = 0
        while done < self._count:
            self._deadline.check(_DOING)
            keys = np.concatenate(self._found)[done:]
            self._found = [np.concatenate(self._found)]
            own, q = np.divmod(keys, nodes)
            place = np.array([self._filter.position(state) for state in self._states])[own]
            # Filter states at the same place inside a character share the array of classes: they are followed together.
            for mine in np.unique(place).tolist():
                self._deadline.check(_DOING)
                chosen = np.flatnonzero(place == mine)
                parts += self._followed(mine, own[chosen], done + chosen, q[chosen])
            done += len(keys)
        key = np.concatenate(self._found)
        source, token, targets = (np.concatenate(part, axis=-1) for part in zip(*parts))
        if (source[1:] < source[:-1]).any():
            order = np.argsort(source, kind="stable")
            source, token, targets = source[order], token[order], targets[:, order]
        final = np.array([self._filter.final(state) for state in self._states])
        accept = self._constraint.accept[key % nodes] & final[key // nodes]
        return ProductGraph(key % nodes, accept, source, token, targets, list(self._wide.values()))

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

    def _after(self, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Own states after every class of tokens, int64[n, K + 1], after allowed and after forbidden pairs; the last is for
        special tokens."""
        moves = [self._filter.moves(self._states[i]) for i in own.tolist()]
        special = [[START if self._filter.final(self._states[i]) else NONE] for i in own.tolist()]  # a cut of its own
        branches = (np.stack([m.allowed for m in moves]), np.stack([m.forbidden for m in moves]))
        allowed, forbidden = (self._own_numbers(np.append(states, special, axis=1).astype(np.int64)) for states in branches)
        return allowed, forbidden

    def _followed(self, place: int, own: np.ndarray, source: np.ndarray, node: np.ndarray) -> list[_Edges]:
        """The listed tokens of product nodes whose states lie at one place, with the same classes; larger sets are kept aside."""
        states, row = np.unique(own, return_inverse=True)
        class_of, row = self._filter.moves(self._states[states[0]]).class_of, row.ravel()
        after = self._after(states)
        begin = self._listed.offset[node]
        count = self._listed.offset[node + 1] - begin
        self._edges += int(count.sum())
        self._deadline.check_bytes(self._edges * _EDGE_BYTES, _DOING)
        index = joined(begin, count)
        token, target = self._listed.token[index], self._listed.target[index]
        kind = class_of[token]
        can = (kind >= 0) | self._special[token]
        if not can.all():
            token, target, kind = token[can], target[can], kind[can]
        of = np.repeat(np.arange(len(source)), count)[can]
        allowed, forbidden = (states[row[of], kind] for states in after)
        can = (allowed >= 0) | (forbidden >= 0)
        if not can.all():
            token, target, of, allowed, forbidden = (x[can] for x in (token, target, of, allowed, forbidden))
        out = [(source[of], token, np.stack([self._numbered(allowed, target), self._numbered(forbidden, target)]))]
        for x, q, r in zip(source.tolist(), node.tolist(), row.tolist()) if self._groups else ():
            states_after = after[0][r], after[1][r]
            out += [self._followed_wide(x, group, states_after, place, class_of) for group in self._groups.get(q, ())]
        return out

    def _followed_wide(
        self, x: int, group: tuple[int, int], after: tuple[np.ndarray, np.ndarray], place: int, class_of: np.ndarray
    ) -> _Edges:
        """The tokens of a large set of a product node that are listed; the others are kept as sets."""
        row, target = group
        kinds = self._by_kind(row, place, class_of)
        there = np.full(len(kinds.kind), target)
        targets = np.stack([self._numbered(states[kinds.kind], there) for states in after])
        size = np.diff(kinds.begin)
        _, part = np.unique((targets[0] + 1) * (self._count + 1) + targets[1] + 1, return_inverse=True)
        part = np.where((targets >= 0).any(0), part.ravel(), -1)
        large = np.bincount(part + 1, weights=size, minlength=2)[1:] > _FEW
        listed = np.flatnonzero((part >= 0) & ~large[part])
        for i in np.flatnonzero(large).tolist():
            chosen = np.flatnonzero(part == i)
            a, f = targets[:, chosen[0]].tolist()
            key = (row, place, np.append(chosen, [a, f]).tobytes())
            wide = self._wide.get(key)
            if wide is None:
                index = joined(kinds.begin[chosen], size[chosen])
                wide = self._wide[key] = WideSet(kinds.token[index], kinds.sets[index], (a, f))
            wide.sources.append(x)
        index = joined(kinds.begin[listed], size[listed])
        self._edges += len(index)
        return np.full(len(index), x), kinds.token[index], np.repeat(targets[:, listed], size[listed], axis=1)

    def _by_kind(self, row: int, place: int, class_of: np.ndarray) -> _Kinds:
        key = (row, place)
        found = self._kinds.get(key)
        if found is None:
            token = self._constraint.row_tokens(row)
            token = token[(class_of[token] >= 0) | self._special[token]]
            kind = class_of[token]
            order = np.argsort(kind.astype(np.int16) if kind.max(initial=0) < 1 << 15 else kind, kind="stable")
            token, kind = token[order], kind[order]
            first = np.flatnonzero(np.append(True, kind[1:] != kind[:-1])) if len(kind) else np.zeros(0, np.int64)
            sets = self._set_of[token].astype(np.int64)
            found = self._kinds[key] = _Kinds(token, sets, np.append(first, len(token)), kind[first])
        return found


def split_sets(
    constraint: CompiledConstraint, listed: np.ndarray, size: np.ndarray
) -> tuple[Listed, dict[int, list[tuple[int, int]]]]:
    """Arcs and the token sets of some bit rows (bool[R]) one by one; and of each node the other sets, as (row, target). `size`
    has the tokens of each row, int[R]."""
    c = constraint
    owner = np.repeat(np.arange(c.num_nodes), np.diff(c.group_offset))
    small = listed[c.group_row]
    large: dict[int, list[tuple[int, int]]] = {}
    for q, row, target in zip(owner[~small].tolist(), c.group_row[~small].tolist(), c.group_next[~small].tolist()):
        large.setdefault(q, []).append((row, target))
    rows, place = np.unique(c.group_row[small], return_inverse=True)
    count = size[rows].astype(np.int64)
    every, begin = tokens_of(c.rows[rows]), np.cumsum(count) - count
    count, begin = count[place.ravel()], begin[place.ravel()]
    index = joined(begin, count)
    q = np.concatenate([np.repeat(np.arange(c.num_nodes), np.diff(c.arc_offset)), np.repeat(owner[small], count)])
    token = np.concatenate([c.arc_token.astype(np.int64), every[index]])
    target = np.concatenate([c.arc_next.astype(np.int64), np.repeat(c.group_next[small].astype(np.int64), count)])
    order = np.argsort(q, kind="stable")
    offset = np.append(0, np.cumsum(np.bincount(q, minlength=c.num_nodes)))
    return Listed(offset, token[order], target[order]), large
