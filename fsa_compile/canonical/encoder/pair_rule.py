"""`PairRule`: which token may not follow which, exactly, as intervals of one order of the vocabulary.

A greedy encoder leaves two neighbouring tokens apart exactly when no merge ever wins across their border. While none has, the
encoder works on each side as if it were alone, so only the symbols that ever stand at the border matter: the right spine of
the first token's merge tree and the left spine of the second's.

    forbidden(a, b)  ⟺  some x on a's right spine and y on b's left spine have a merge (x, y) with
                        m < death of x in a   and   m ≤ death of y in b,      m = max(rank(x, y), birth x, birth y)

The birth of a symbol is the largest rank in its tree (before all others for atoms), its death the birth of the symbol that
consumes it (never for the whole token). The comparison is strict on one side because the leftmost of equal ranks wins. Where a
token's last merge is not its latest one, birth and death may coincide, and raw ranks decide: keys hold both.

A sequence of tokens is what the encoder makes of its text (within one piece of the splitter) exactly when every token is its
own form and no adjacent pair is forbidden.

Order the vocabulary by a walk of the tree in which the parent of a token is the left part of its last merge, children by
descending rank. Then the tokens that one merge (x, y) forbids are one interval that begins at y, and what a token forbids is a
union of few intervals.

Source: Tran-Thien 2024, "Transformers are efficient compilers of canonical BPE" (pairwise rule); Cognetta et al. 2025, §3.3.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from fsa_compile.canonical.encoder.merge_table import MergeTable
from fsa_compile.canonical.encoder.merge_trees import MergeTrees, merge_trees
from fsa_compile.errors import TokenizerError

_KEY = np.int64(1) << 20
"""Keys are (birth + 1) * _KEY + raw rank; every rank is smaller."""
_FOREVER = _KEY * _KEY
_SPAN = _FOREVER * 2
_SEARCH = 16
"""One binary search costs about as much as counting over this many tokens of the vocabulary."""
_SORTED = 256
"""From this many keys on, they are sorted before they are looked up."""
_GRID = 64
"""Up to this many pairs of a set and a token are looked up one by one."""
_KNOWN = 1 << 15
"""Slots of a direct-mapped memo of answers,"""
_ASKED = 16, 4096
"""used for batches of between these many questions: a search among all intervals mostly waits for memory."""
_MIX = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
_CHUNK = 20_000
"""Tokens whose intervals are made at a time."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PairRule:
    """The pair rule of one merge table.

    Axes: V tokens, D distinct forbidden sets, I intervals.

    Attributes:
      own: bool[V], tokens that merging their own atoms gives back; only these have a rule.
      place: int32[V], position of each token in the order of the module's docstring; tokens without a rule come last.
      set_of: int32[V], the forbidden set of each token; set 0 is empty, and tokens without a rule have it.
      set_offset: int32[D + 1]; intervals of set d are `set_offset[d]:set_offset[d + 1]`, ascending and apart.
      begin, end: int32[I], half-open intervals of places.
    """

    own: np.ndarray
    place: np.ndarray
    set_of: np.ndarray
    set_offset: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    @property
    def vocab_size(self) -> int:
        """V."""
        return len(self.own)

    @cached_property
    def token_at(self) -> np.ndarray:
        """int64[V], the inverse of `place`."""
        return np.argsort(self.place)

    @cached_property
    def holders(self) -> np.ndarray:
        """int64[V], how many forbidden sets hold each token."""
        size = self.vocab_size + 1
        change = np.bincount(self.begin, minlength=size) - np.bincount(self.end, minlength=size)
        return np.cumsum(change)[:-1][self.place]

    @cached_property
    def set_size(self) -> np.ndarray:
        """int64[D], tokens of each forbidden set."""
        return np.diff(np.append(0, np.cumsum(self.end.astype(np.int64) - self.begin))[self.set_offset])

    @cached_property
    def _owner(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.set_offset) - 1, dtype=np.int32), np.diff(self.set_offset))

    def holding(self, token: int) -> np.ndarray:
        """bool[D], the forbidden sets that hold a token."""
        out = np.zeros(len(self.set_offset) - 1, bool)
        place = self.place[token]
        out[self._owner[(self.begin <= place) & (place < self.end)]] = True
        return out

    @cached_property
    def _interval_keys(self) -> tuple[np.ndarray, np.ndarray]:
        """Where intervals begin and end, all sets' in one order; one that ends before all others stands first."""
        owner = np.repeat(np.arange(len(self.set_offset) - 1) * (2 * self.vocab_size), np.diff(self.set_offset))
        return np.append(-1, owner + self.begin), np.append(-1, owner + self.end)

    def forbidden(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Whether tokens may not stand next to each other inside one piece.

        Args:
          first, second: int[n] or broadcast together; tokens for which `own` holds.

        Returns:
          bool[n].
        """
        return self.set_holds(self.set_of[first], second)

    def set_holds(self, group: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Whether forbidden sets hold tokens.

        Args:
          group: int[n], numbers of sets.
          second: int[n], token ids; both may be broadcast together.

        Returns:
          bool[n].
        """
        key = np.asarray(group, np.int64) * (2 * self.vocab_size) + self.place[second]
        if not _ASKED[0] <= key.size <= _ASKED[1]:
            return self._search(key)
        asked, known = key.reshape(-1), self._known
        at = (asked * _MIX >> 32) & (_KNOWN - 1)
        found = known.take(at)
        out = (found & 1).astype(bool)
        new = (found >> 1 != asked).nonzero()[0]
        if len(new):
            out[new] = held = self._search(asked[new])
            known[at[new]] = asked[new] << 1 | held
        return out.reshape(key.shape)

    @cached_property
    def _known(self) -> np.ndarray:
        """int64[_KNOWN], keys of set and token with the answer as their last bit: one element each, for threads share them."""
        return np.full(_KNOWN, -1, np.int64)

    def _search(self, key: np.ndarray) -> np.ndarray:
        """Whether keys of set and token lie in an interval."""
        begin, end = self._interval_keys
        if key.size < _SORTED:
            return key < end[begin.searchsorted(key, side="right") - 1]
        # Sorted keys are found several times as fast: neighbours share most of the search, and what it reads.
        order = key.argsort(axis=None)
        out = np.empty(key.size, bool)
        ordered = key.reshape(-1)[order]
        out[order] = ordered < end[begin.searchsorted(ordered, side="right") - 1]
        return out.reshape(key.shape)

    def sets_hold_all(self, groups: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Whether forbidden sets hold every one of some tokens.

        Args:
          groups: int64[n], numbers of sets.
          tokens: int64[m], distinct.

        Returns:
          bool[n].
        """
        if len(groups) * len(tokens) <= _GRID:
            return np.logical_and.reduce(self.set_holds(groups[:, None], tokens), 1)
        out = self.set_size[groups] >= len(tokens)
        some = groups[out]
        begin = self.set_offset[some].astype(np.int64)
        count = self.set_offset[some + 1] - begin
        if not len(count):
            return out
        ends = np.cumsum(count)
        index = np.repeat(begin - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)
        edges = self.end[index], self.begin[index]
        if _SEARCH * (len(index) + len(tokens)) < self.vocab_size:
            places = np.sort(self.place[tokens])
            to, of = (np.searchsorted(places, edge) for edge in edges)
        else:
            chosen = np.zeros(self.vocab_size + 1, np.int32)
            chosen[self.place[tokens] + 1] = 1
            before = np.cumsum(chosen, dtype=np.int32)  # tokens at places below each one
            to, of = (before[edge] for edge in edges)
        held = np.append(0, np.cumsum(to - of, dtype=np.int64))
        out[out] = held[ends] - held[ends - count] == len(tokens)
        return out

    def forbidden_row(self, first: int) -> np.ndarray:
        """bool[V], the tokens that may not follow `first` inside one piece."""
        group = int(self.set_of[first])
        edge = np.zeros(self.vocab_size + 1, np.int32)
        part = slice(self.set_offset[group], self.set_offset[group + 1])
        np.add.at(edge, self.begin[part], 1)
        np.add.at(edge, self.end[part], -1)
        return np.cumsum(edge[:-1]).astype(bool)[self.place]

    def canonical_pair(self, first: int, second: int) -> bool:
        """Whether the encoder gives back exactly these two tokens for their joint text, if no splitter cuts it."""
        return bool(self.own[first] and self.own[second] and not self.forbidden(np.array(first), np.array(second)))


def pair_rule(table: MergeTable, trees: MergeTrees | None = None) -> PairRule:
    """The pair rule of a merge table.

    Args:
      trees: its merge trees, where they are known already.

    Raises:
      TokenizerError: more ranks than keys can hold.
    """
    trees = merge_trees(table) if trees is None else trees
    if len(table.rank) and int(table.rank.max()) >= int(_KEY) - 2:
        raise TokenizerError(f"a merge has the rank {int(table.rank.max()):,}; at most {int(_KEY) - 3:,} are supported")
    order = _Order(trees)
    spines = _BorderMerges(table, trees, order)
    tokens = np.flatnonzero(trees.own)
    parts = [spines.intervals(tokens[lo : lo + _CHUNK]) for lo in range(0, len(tokens), _CHUNK)]
    owner, begin, end = (np.concatenate(part) for part in zip(*parts)) if parts else (np.zeros(0, np.int64),) * 3
    set_of, chosen = _distinct_sets(owner, begin, end, table.vocab_size)
    offset = np.searchsorted(owner, np.arange(table.vocab_size + 1))
    count = np.diff(offset)[chosen]
    index = np.repeat(offset[chosen] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
    return PairRule(
        own=trees.own,
        place=order.place.astype(np.int32),
        set_of=set_of.astype(np.int32),
        set_offset=np.concatenate([[0, 0], np.cumsum(count)]).astype(np.int32),
        begin=begin[index].astype(np.int32),
        end=end[index].astype(np.int32),
    )


class _Order:
    """The order of the vocabulary.

    Attributes:
      birth, key: int64[V]; key is (birth + 1) * _KEY + raw rank, 0 for atoms.
      place: int64[V]; size: int64[V], tokens in the subtree below each token, itself included.
      children: int64[*], tokens that are merged, by (left part, descending key).
    """

    def __init__(self, trees: MergeTrees) -> None:
        left, total = trees.left, len(trees.left)
        self.birth = trees.births()
        self.key = np.where(trees.rank >= 0, (self.birth + 1) * _KEY + trees.rank, 0)
        own = np.flatnonzero(trees.own)
        depth = _depths(left)
        self.size = np.ones(total, np.int64)
        for level in range(int(depth.max(initial=0)), 0, -1):
            here = own[depth[own] == level]
            np.add.at(self.size, left[here], self.size[here])
        ordered = own[np.lexsort((-self.key[own], left[own]))]
        inside = _offset_in_family(left[ordered], self.size[ordered])
        relative = np.zeros(total, np.int64)
        relative[ordered] = inside
        self.place = np.full(total, -1, np.int64)
        roots = own[left[own] < 0]
        self.place[roots] = relative[roots]
        for level in range(1, int(depth.max(initial=0)) + 1):
            here = own[depth[own] == level]
            self.place[here] = self.place[left[here]] + 1 + relative[here]
        rest = np.flatnonzero(~trees.own)
        self.place[rest] = len(own) + np.arange(len(rest))
        self.children = ordered[left[ordered] >= 0]


def _depths(parent: np.ndarray) -> np.ndarray:
    """int64[V], distance of each node from its root."""
    depth, at = np.zeros(len(parent), np.int64), parent.copy()
    while (at >= 0).any():
        inner = at >= 0
        depth[inner] += 1
        at[inner] = parent[at[inner]]
    return depth


def _offset_in_family(parent: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Sum of the sizes of the siblings before each one; siblings stand together."""
    before = np.cumsum(size) - size
    first = np.ones(len(parent), bool)
    first[1:] = parent[1:] != parent[:-1]
    return before - np.maximum.accumulate(np.where(first, before, 0))


class _BorderMerges:
    """All merges by their left part, each with its key and the interval of tokens that it forbids."""

    def __init__(self, table: MergeTable, trees: MergeTrees, order: _Order) -> None:
        self._right, self._key = trees.right, order.key
        use = trees.own[table.left] & trees.own[table.right]
        x, y, rank = table.left[use], table.right[use], table.rank[use]
        birth = order.birth
        moment = np.maximum(rank, np.maximum(birth[x], birth[y]))
        # Children of y that die late enough; if y is born at that very moment, raw ranks tell which.
        least = (moment + 1) * _KEY + np.where(moment == birth[y], rank, 0)
        family = trees.left[order.children]
        at = np.searchsorted(family * _SPAN - order.key[order.children], y * _SPAN - least, side="right") - 1
        last = order.children[np.maximum(at, 0)] if len(order.children) else np.zeros(len(y), np.int64)
        has = (at >= 0) & (trees.left[last] == y)
        end = np.where(has, order.place[last] + order.size[last], order.place[y] + 1)
        key = (moment + 1) * _KEY + rank
        by_left = np.lexsort((key, x))
        self._first = np.searchsorted(x[by_left], np.arange(table.vocab_size + 1))
        self._flat = x[by_left] * _SPAN + key[by_left]
        self._begin, self._end = order.place[y][by_left], end[by_left]

    def intervals(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Owner, begin and end of what `tokens` (ascending) forbid: by owner, ascending, touching intervals joined."""
        owner, at, bound = tokens, tokens, np.full(len(tokens), _FOREVER)
        owners, begins, ends = [], [], []
        while len(at):
            low = self._first[at]
            count = np.searchsorted(self._flat, at * _SPAN + bound, side="left") - low
            index = np.repeat(low - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
            owners.append(np.repeat(owner, count))
            begins.append(self._begin[index])
            ends.append(self._end[index])
            inner = self._right[at] >= 0
            owner, above, at = owner[inner], at[inner], self._right[at[inner]]
            same = self._key[above] // _KEY == self._key[at] // _KEY
            bound = np.where(same, self._key[above], self._key[above] // _KEY * _KEY)
        return _joined(np.concatenate(owners), np.concatenate(begins), np.concatenate(ends), len(self._right))


def _joined(
    owner: np.ndarray, begin: np.ndarray, end: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorts intervals by owner and joins those of one owner that overlap or touch."""
    if not len(owner):
        return owner, begin, end
    shift = owner * (4 * size)
    order = np.argsort(shift + begin, kind="stable")
    owner, shift = owner[order], shift[order]
    begin, reach = shift + begin[order], np.maximum.accumulate(shift + end[order])
    new = np.ones(len(owner), bool)
    new[1:] = begin[1:] > reach[:-1]
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(owner)) - 1
    return owner[first], (begin - shift)[first], reach[last] - shift[last]


def _distinct_sets(owner: np.ndarray, begin: np.ndarray, end: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers equal interval lists alike, from 1; owners without intervals have 0.

    Returns:
      int64[V] number of each owner's set, and int64[D - 1] one owner per number.
    """
    mixed = (begin.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ (end.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    sums = np.append(np.uint64(0), np.cumsum(mixed, dtype=np.uint64))
    offset = np.searchsorted(owner, np.arange(size + 1))
    owners = np.flatnonzero(np.diff(offset))
    hashes = sums[offset[owners + 1]] - sums[offset[owners]]
    _, chosen, number = np.unique(hashes, return_index=True, return_inverse=True)
    like = owners[chosen[number.ravel()]]
    count = np.diff(offset)
    if (count[owners] != count[like]).any():
        raise RuntimeError("two forbidden sets share a 64-bit hash")
    other = np.repeat(offset[like] - offset[owners], count[owners]) + np.arange(len(owner))
    if (begin != begin[other]).any() or (end != end[other]).any():
        raise RuntimeError("two forbidden sets share a 64-bit hash")
    out = np.zeros(size, np.int64)
    out[owners] = number.ravel() + 1
    return out, owners[chosen]
