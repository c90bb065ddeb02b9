"""`ModelRows`: the forbidden sets as bit rows in the model's own token order, compact enough for a device.

A row per distinct set would take gigabytes. Sets that agree in their long intervals differ in few tokens, so a set is stored as
one of few base rows and a list of tokens to flip in it.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.canonical.encoder.pair_rule import PairRule

MOST_FLIPS = 256
"""Most tokens in which a set may differ from its base row."""
_LONG = 256
"""Intervals at least this long are what sets with a common base row agree in."""
_CHUNK = 256


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ModelRows:
    """Forbidden sets of all tokens.

    Axes: V tokens, D distinct sets, R base rows, W = ceil(V / 32) words, F flips.

    Attributes:
      set_of: int32[V], the set that each token forbids as its next token.
      row_of: int32[D], base row of each set.
      rows: uint32[R, W], token t is bit t % 32 of word t // 32; row 0 is empty.
      flip_offset: int32[D + 1]; `flip_token[flip_offset[d]:flip_offset[d + 1]]` are the tokens in which set d differs from its
        base row, at most `MOST_FLIPS`.
      flip_token: int32[F].
    """

    set_of: np.ndarray
    row_of: np.ndarray
    rows: np.ndarray
    flip_offset: np.ndarray
    flip_token: np.ndarray

    @property
    def max_flips(self) -> int:
        """Most flips of one set."""
        return int(np.diff(self.flip_offset).max(initial=0))

    def forbidden_row(self, token: int) -> np.ndarray:
        """bool[V], the tokens that may not follow `token` inside one piece; as `PairRule.forbidden_row`."""
        group = self.set_of[token]
        row = np.unpackbits(self.rows[self.row_of[group]].view(np.uint8), bitorder="little", count=len(self.set_of)).astype(bool)
        row[self.flip_token[self.flip_offset[group] : self.flip_offset[group + 1]]] ^= True
        return row


def model_rows(rule: PairRule) -> ModelRows:
    """The rows of a pair rule."""
    leader_of = _leaders(rule)
    leaders = np.unique(leader_of)
    row_of = np.searchsorted(leaders, leader_of)
    owner, begin, end = _differences(rule, np.arange(len(leader_of)), leader_of)
    length = end - begin
    place = np.repeat(begin - (np.cumsum(length) - length), length) + np.arange(int(length.sum()))
    count = np.bincount(owner, weights=length, minlength=len(leader_of)).astype(np.int64)
    return ModelRows(
        set_of=rule.set_of.astype(np.int32),
        row_of=row_of.astype(np.int32),
        rows=_bit_rows(rule, leaders),
        flip_offset=np.concatenate([[0], np.cumsum(count)]).astype(np.int32),
        flip_token=rule.token_at[place].astype(np.int32),
    )


def _leaders(rule: PairRule) -> np.ndarray:
    """int64[D]: the set whose row each set is stored by. Set 0, the empty one, is the first leader.

    Sets with the same long intervals stand in one group. In each round the first set without a leader leads all others of its
    group that differ from it in few tokens.
    """
    sums = np.append(np.uint64(0), np.cumsum(_hashes(rule), dtype=np.uint64))
    group = sums[rule.set_offset[1:]] - sums[rule.set_offset[:-1]]
    leader_of = np.full(len(group), -1)
    left = np.arange(len(group))
    while len(left):
        _, first, inverse = np.unique(group[left], return_index=True, return_inverse=True)
        leader = left[first][inverse.ravel()]
        owner, begin, end = _differences(rule, left, leader)
        near = np.bincount(owner, weights=end - begin, minlength=len(left)) <= MOST_FLIPS
        leader_of[left[near]] = leader[near]
        left = left[~near]
    return leader_of


def _hashes(rule: PairRule) -> np.ndarray:
    """uint64[I], 0 for short intervals."""
    mixed = rule.begin.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= rule.end.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed[rule.end - rule.begin < _LONG] = 0
    return mixed


def _differences(rule: PairRule, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Symmetric differences of pairs of sets as intervals: index of the pair, begin, end. Each end of an interval toggles."""
    keys = []
    width = rule.vocab_size + 1
    for sets in (a, b):
        start = rule.set_offset[sets].astype(np.int64)
        count = rule.set_offset[sets + 1] - start
        index = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        base = np.repeat(np.arange(len(sets)), count) * width
        keys += [base + rule.begin[index], base + rule.end[index]]
    key = np.sort(np.concatenate(keys))
    begin, end = key[::2], key[1::2]
    some = begin < end
    return begin[some] // width, begin[some] % width, end[some] % width


def _bit_rows(rule: PairRule, sets: np.ndarray) -> np.ndarray:
    words = (rule.vocab_size + 31) // 32
    out = np.zeros((len(sets), words), np.uint32)
    for low in range(0, len(sets), _CHUNK):
        part = sets[low : low + _CHUNK]
        edge = np.zeros((len(part), rule.vocab_size + 1), np.int8)
        count = np.diff(rule.set_offset)[part]
        row = np.repeat(np.arange(len(part)), count)
        index = np.repeat(rule.set_offset[part] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        edge[row, rule.begin[index]] = 1  # intervals of a set are apart: no two share an end
        edge[row, rule.end[index]] = -1
        member = np.zeros((len(part), words * 32), bool)
        member[:, : rule.vocab_size] = np.cumsum(edge[:, :-1], axis=1, dtype=np.int8)[:, rule.place]
        out[low : low + _CHUNK] = np.packbits(member, axis=1, bitorder="little").view(np.uint32)
    return out
