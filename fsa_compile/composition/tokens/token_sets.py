"""Tokens of one owner with one target and count: the smallest sets that a stack walk's token sets are put together from."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.arrays.integers import order_of, sorted_rows
from fsa_compile.arrays.ranges import segment_sizes, segment_starts
from fsa_compile.composition.tokens.class_walk import TokenSet
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

TOKEN_BITS = 22


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """Tokens of one owner with one target and count: the smallest sets.

    Attributes:
      owner, target, count: int64[B], by owner; the register as in `StackArcs`.
      hash: uint64[B], see `VocabularyTables.row_hash`.
      size: int64[B], number of tokens, negative where they are taken away from the parts before.
      begin: int64[B]; the tokens of part b are `token[begin[b] : begin[b] + abs(size[b])]`, ascending; -1 of a bit row.
      row: int64[B], index into `rows`, or -1.
      token: int32[*].
      rows: bit rows.
    """

    owner: np.ndarray
    target: np.ndarray
    count: np.ndarray
    hash: np.ndarray
    size: np.ndarray
    begin: np.ndarray
    row: np.ndarray
    token: np.ndarray
    rows: list[np.ndarray]


def parts_of(
    tables: VocabularyTables,
    single: tuple[np.ndarray, ...],
    rows: tuple[np.ndarray, ...],
    sets: list[TokenSet],
) -> Parts:
    """The parts of single tokens and of large sets.

    Args:
      single: (owner, token, target, count) int64[A], single tokens.
      rows: (owner, target, index into `sets`) int64[B], large sets whose count is 0.
      sets: what they are.
    """
    owner, token, target, count = single
    width, most = int(target.max(initial=0)) + 1, int(count.max(initial=0)) + 1
    pair = owner.astype(np.int64)
    pair *= width
    pair += target
    pair *= most
    pair += count
    pair, token = sorted_rows(pair, token)
    token = token.astype(np.int32)
    begin = segment_starts(pair)
    narrow = Parts(
        owner=pair[begin] // (width * most),
        target=pair[begin] // most % width,
        count=pair[begin] % most,
        hash=np.add.reduceat(tables.token_hash[token], begin) if len(begin) else np.zeros(0, np.uint64),
        size=segment_sizes(begin, len(pair)),
        begin=begin,
        row=np.full(len(begin), -1),
        token=token,
        rows=[],
    )
    if not len(rows[0]):
        return narrow
    none = np.zeros(len(rows[0]), np.int64)
    wide = Parts(
        owner=rows[0],
        target=rows[1],
        count=none,
        hash=np.array([s.hash for s in sets], np.uint64)[rows[2]],
        size=np.array([s.count for s in sets])[rows[2]],
        begin=none - 1,
        row=rows[2],
        token=token[:0],
        rows=[s.row for s in sets],
    )
    return joined_parts([narrow, wide])


def shared_parts(
    tables: VocabularyTables, parts: tuple[np.ndarray, np.ndarray, np.ndarray], which: np.ndarray, token: np.ndarray
) -> Parts:
    """Parts of which several have the tokens of one set.

    Args:
      parts: (owner, target, set) int64[B] each; those of sets without tokens are none.
      which, token: int64[A], of every token of the sets.
    """
    key, token = sorted_rows(which, token)
    token = token.astype(np.int32)
    begin = segment_starts(key)
    place = np.full(max(int(parts[2].max(initial=0)), int(key.max(initial=0))) + 1, -1)
    place[key[begin]] = np.arange(len(begin))
    some = (place[parts[2]] >= 0).nonzero()[0]
    at, none = place[parts[2][some]], np.zeros(len(some), np.int64)
    return Parts(
        owner=parts[0][some],
        target=parts[1][some],
        count=none,
        hash=(np.add.reduceat(tables.token_hash[token], begin) if len(begin) else tables.token_hash[:0])[at],
        size=segment_sizes(begin, len(key))[at],
        begin=begin[at],
        row=none - 1,
        token=token,
        rows=[],
    )


def joined_parts(parts: list[Parts]) -> Parts:
    """All parts together, by owner."""
    if len(parts) == 1:
        return parts[0]
    tokens = np.cumsum([0, *(len(p.token) for p in parts)])
    rows = np.cumsum([0, *(len(p.rows) for p in parts)])
    owner = np.concatenate([p.owner for p in parts])
    order = order_of(owner)
    row = np.concatenate([np.where(p.row >= 0, p.row + before, -1) for p, before in zip(parts, rows)])
    begin = np.concatenate([np.where(p.row >= 0, -1, p.begin + before) for p, before in zip(parts, tokens)])
    return Parts(
        owner=owner[order],
        target=np.concatenate([p.target for p in parts])[order],
        count=np.concatenate([p.count for p in parts])[order],
        hash=np.concatenate([p.hash for p in parts])[order],
        size=np.concatenate([p.size for p in parts])[order],
        begin=begin[order],
        row=row[order],
        token=np.concatenate([p.token for p in parts]),
        rows=[row for p in parts for row in p.rows],
    )
