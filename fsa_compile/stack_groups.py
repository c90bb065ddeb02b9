"""Token sets of the nodes of a stack walk: parts of runs put together, with the push strings on the way to them."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.limits import Deadline
from fsa_compile.stack_walk import StackArcs
from fsa_compile.vocabulary_tables import VocabularyTables, segment_starts

_DOING = "putting token sets together"
_PART_BYTES = 96
_TOKEN_BITS = 22
_PACKED_KEYS = 1 << (63 - _TOKEN_BITS)


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """Tokens of one owner into one target: the smallest sets.

    Attributes:
      owner, target: int64[B], by owner.
      hash: uint64[B], see `VocabularyTables.row_hash`.
      count: int64[B], number of tokens.
      begin: int64[B]; the tokens of part b are `token[begin[b] : begin[b] + count[b]]`, ascending; -1 of a bit row.
      row: int64[B], index into `rows`, or -1.
      token: int64[*].
      rows: bit rows.
    """

    owner: np.ndarray
    target: np.ndarray
    hash: np.ndarray
    count: np.ndarray
    begin: np.ndarray
    row: np.ndarray
    token: np.ndarray
    rows: list[np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Token sets of nodes, sorted by node; the sets of a node are disjoint.

    Attributes:
      node, target, push: int64[G].
      hash: uint64[G].
      count: int64[G], number of tokens.
      part_offset: int64[G + 1]; group g consists of parts `part[part_offset[g]:part_offset[g + 1]]`.
      part: int64[*].
      parts: what they are.
      strings: push strings, tuples of symbols, bottom first; string 0 is empty.
    """

    node: np.ndarray
    target: np.ndarray
    push: np.ndarray
    hash: np.ndarray
    count: np.ndarray
    part_offset: np.ndarray
    part: np.ndarray
    parts: Parts
    strings: list[tuple[int, ...]]

    def tokens_of(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index into `group`, token) of every token of some groups that have no bit rows."""
        which, at = ranges(self.part_offset[group], self.part_offset[group + 1])
        part = self.part[at]
        again, token = ranges(self.parts.begin[part], self.parts.begin[part] + self.parts.count[part])
        return which[again], self.parts.token[token]

    def row_of(self, group: int, tables: VocabularyTables) -> np.ndarray:
        """Bit row of one group."""
        return union(self.parts, self.part[self.part_offset[group] : self.part_offset[group + 1]], tables)


def ranges(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of the range, index) for every index of every range."""
    size = end - begin
    which = np.repeat(np.arange(len(begin)), size)
    return which, np.arange(len(which)) + np.repeat(begin - (np.cumsum(size) - size), size)


def union(parts: Parts, chosen: np.ndarray, tables: VocabularyTables) -> np.ndarray:
    """Bit row of the tokens of some disjoint parts."""
    rows = [parts.rows[r] for r in parts.row[chosen].tolist() if r >= 0]
    listed = chosen[parts.row[chosen] < 0]
    if len(listed):
        rows.append(tables.pack(parts.token[ranges(parts.begin[listed], parts.begin[listed] + parts.count[listed])[1]]))
    return rows[0] if len(rows) == 1 else np.bitwise_or.reduce(rows)


def groups_of(arcs: StackArcs, tables: VocabularyTables, num_controls: int, deadline: Deadline) -> Groups:
    """The token sets of all nodes.

    Raises:
      LimitError: out of time or memory.
    """
    parts = _parts(arcs, tables, num_controls)
    node, push, owner, strings = _paths(arcs, parts, deadline)
    first = np.searchsorted(parts.owner, np.arange(arcs.num_owners + 1))
    size = first[owner + 1] - first[owner]
    deadline.check_bytes(int(size.sum()) * _PART_BYTES, _DOING)
    which, part = ranges(first[owner], first[owner + 1])
    key = (node[which] * num_controls + parts.target[part]) * len(strings) + push[which]
    order = np.argsort(key, kind="stable")
    key, part = key[order], part[order]
    begin = segment_starts(key)
    kept = key[begin]
    deadline.check(_DOING)
    return Groups(
        node=kept // (len(strings) * num_controls),
        target=kept // len(strings) % num_controls,
        push=kept % len(strings),
        hash=np.add.reduceat(parts.hash[part], begin),
        count=np.add.reduceat(parts.count[part], begin),
        part_offset=np.append(begin, len(key)),
        part=part,
        parts=parts,
        strings=strings,
    )


def _parts(arcs: StackArcs, tables: VocabularyTables, num_controls: int) -> Parts:
    pair = arcs.owner * num_controls + arcs.target
    if arcs.num_owners * num_controls < _PACKED_KEYS:
        key = (pair << _TOKEN_BITS) | arcs.token
        key.sort()
        token, pair = key & ((1 << _TOKEN_BITS) - 1), key >> _TOKEN_BITS
    else:
        order = np.lexsort((arcs.token, pair))
        token, pair = arcs.token[order], pair[order]
    begin = segment_starts(pair)
    return Parts(
        owner=pair[begin] // num_controls,
        target=pair[begin] % num_controls,
        hash=np.add.reduceat(tables.token_hash[token], begin),
        count=np.append(begin[1:], len(pair)) - begin,
        begin=begin,
        row=np.full(len(begin), -1),
        token=token,
        rows=[],
    )


def _paths(
    arcs: StackArcs, parts: Parts, deadline: Deadline
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[int, ...]]]:
    """(node, push string, owner) of every way from a node through links to an owner that has tokens, and the strings."""
    full = np.zeros(arcs.num_owners, bool)
    full[parts.owner] = True
    useful = full.copy()
    while True:  # a run is worth following when it, or one that it calls, has tokens
        before = int(useful.sum())
        useful[arcs.link_caller[useful[arcs.link_run]]] = True
        if int(useful.sum()) == before:
            break
    kept = useful[arcs.link_run].nonzero()[0]
    kept = kept[np.argsort(arcs.link_caller[kept], kind="stable")]
    caller, run, symbol = arcs.link_caller[kept], arcs.link_run[kept], arcs.link_symbol[kept]
    first = np.searchsorted(caller, np.arange(arcs.num_owners + 1))
    strings: list[tuple[int, ...]] = [()]
    number: dict[tuple[int, ...], int] = {(): 0}
    n = len(arcs.node_owner)
    level = (np.arange(n), np.zeros(n, np.int64), arcs.node_owner)
    found = []
    while len(level[0]):
        found.append(tuple(column[full[level[2]]] for column in level))
        deadline.check(_DOING)
        node, push, owner = level
        which, at = ranges(first[owner], first[owner + 1])
        deadline.check_bytes(len(at) * _PART_BYTES, _DOING)
        level = (node[which], _longer(strings, number, push[which], symbol[at]), run[at])
    node, push, owner = (np.concatenate(column) for column in zip(*found))
    return node, push, owner, strings


def _longer(
    strings: list[tuple[int, ...]], number: dict[tuple[int, ...], int], push: np.ndarray, symbol: np.ndarray
) -> np.ndarray:
    """Push strings with one more symbol on top each; symbol 0 adds none, symbol i + 1 adds i."""
    if not len(push):
        return push
    width = int(symbol.max()) + 1
    pairs, which = np.unique(push * width + symbol, return_inverse=True)
    out = np.empty(len(pairs), np.int64)
    for j, (p, s) in enumerate(zip((pairs // width).tolist(), (pairs % width).tolist())):
        string = (*strings[p], s - 1) if s else strings[p]
        at = number.get(string)
        if at is None:
            at = number[string] = len(strings)
            strings.append(string)
        out[j] = at
    return out[which]
