"""Answers that may yet become calls: which tokens they go on with as any text does, and which belong to calls.

Where nothing marks a call, an answer is text that does not begin like one, up to the first byte of its arguments: this is a
*lead*. Behind a part of a lead, a token goes on as text unless it is a part of what is left of a lead, or begins with all of it.
Those tokens depend on the names alone; all others lead where they lead in any text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts, numbered, order_of
from fsa_compile.arrays.ranges import joined, segment_starts, spread
from fsa_compile.composition.tokens.budget_levels import Grid
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

TOKEN_BITS = 22
Entries = dict[str, np.ndarray]
"""Columns of arcs or groups: node, token or hash, and more."""


def lead_tokens(rests: Sequence[bytes], tables: VocabularyTables) -> tuple[np.ndarray, np.ndarray]:
    """(number of the text, token), int64[*] each, in ascending order of the texts: the tokens that belong to calls where this is
    left of a lead. None of the texts is empty."""
    size = np.array([len(rest) for rest in rests])
    text = np.frombuffer(b"".join(rests), np.uint8).astype(np.int64)
    end = size.cumsum()
    own, at, node = np.arange(len(size)), end - size, np.zeros(len(size), np.int64)
    found = [(own[:0], node[:0])]
    past = list(found)
    key = tables.trie_key
    while len(own):
        wanted = node * 256 + text[at]
        place = np.minimum(key.searchsorted(wanted), len(key) - 1)
        hit = key[place] == wanted
        own, at, node = own[hit], at[hit] + 1, 1 + place[hit]
        found.append((own, node))
        over = at == end[own]
        past.append((own[over], node[over]))
        own, at, node = own[~over], at[~over], node[~over]
    own, node = (np.concatenate(column) for column in zip(*past))
    while len(own):
        some, node = spread(tables.trie_first[node], tables.trie_count[node])
        own = own[some]
        found.append((own, node))
    own, node = (np.concatenate(column) for column in zip(*found))
    token = tables.trie_token[node]
    own, token = own[token >= 0], token[token >= 0]
    if len(tables.alias_offset):
        first = tables.alias_offset.astype(np.int64)
        some, more = spread(first[token], np.diff(first)[token])
        own, token = np.append(own, own[some]), np.append(token, tables.alias_token[more])
    order = own.argsort(kind="stable")
    return own[order], token[order].astype(np.int64)


class Rests:
    """What may be left of leads, by number, with the tokens that belong to calls there: many leads end alike.

    Attributes:
      first: where the tokens of each begin.
      token: of all, one text after the other.
    """

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {}
        self.first, self.token = np.zeros(1, np.int64), np.zeros(0, np.int64)

    def numbers(self, leads: Sequence[bytes], within: Sequence[int], tables: VocabularyTables) -> list[list[int]]:
        """For each lead, the numbers of what is left of it behind its first 0 to `within` bytes, less than its length."""
        known, before = self._number, len(self._number)
        out = [[known.setdefault(lead[read:], len(known)) for read in range(most + 1)] for lead, most in zip(leads, within)]
        if len(known) > before:
            of, token = lead_tokens(list(known)[before:], tables)
            self.first = np.append(self.first, self.first[-1] + firsts(of, len(known) - before)[1:])
            self.token = np.append(self.token, token)
        return out


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Bit rows by their hashes, and those that lack some tokens of one of these.

    Attributes:
      known: uint32[W] by hash.
      without: (hash of a known row, the tokens that are missing) by hash.
      tokens: those of other rows, by hash.
      size: how many tokens rows have, by hash, as far as it was asked for.
    """

    known: Mapping[int, np.ndarray]
    without: dict[int, tuple[int, np.ndarray]] = dataclasses.field(default_factory=dict)
    tokens: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    size: dict[int, int] = dataclasses.field(default_factory=dict)

    def __getitem__(self, row_hash: int) -> np.ndarray:
        if row_hash in self.known:
            return self.known[row_hash]
        base, tokens = self.without[row_hash]
        row = self.known[base].copy()
        np.bitwise_and.at(row, tokens >> 5, ~(np.uint32(1) << (tokens & 31).astype(np.uint32)))
        return row

    def add_to(self, row: np.ndarray, row_hash: int, tables: VocabularyTables) -> None:
        """Adds the tokens of a row to another one."""
        if row_hash in self.tokens:
            tables.add(row, self.tokens[row_hash])
        else:
            row |= self[row_hash]

    def sizes(self, hashes: np.ndarray) -> np.ndarray:
        """int64[n], how many tokens rows have."""
        known, which = numbered(hashes)
        size = self.size
        for row_hash in known.tolist():
            if row_hash not in size:
                size[row_hash] = int(np.bitwise_count(self.known[row_hash]).sum())
        return np.array([size[row_hash] for row_hash in known.tolist()], np.int64)[which]


@dataclasses.dataclass(frozen=True, eq=False)
class Called:
    """The tokens that belong to calls, in sets that many nodes share.

    Attributes:
      nodes: int64[N], the answers that may yet be calls, ascending.
      kind: int64[N], the set of each.
      tokens: sorted set << TOKEN_BITS | token.
    """

    nodes: np.ndarray
    kind: np.ndarray
    tokens: np.ndarray

    @classmethod
    def of(cls, nodes: np.ndarray, kind: np.ndarray, cell: np.ndarray, rests: Rests) -> Called:
        """Of sets of the tokens of some rests: `cell` is sorted set << TOKEN_BITS | number of the rest."""
        rest = cell & (1 << TOKEN_BITS) - 1
        at, token = spread(rests.first[rest], np.diff(rests.first)[rest])
        return cls(nodes, kind, distinct((cell >> TOKEN_BITS)[at] << TOKEN_BITS | rests.token[token]))

    def holds(self, node: np.ndarray, token: np.ndarray) -> np.ndarray:
        """bool[n], whether tokens belong to calls at nodes."""
        return _within(self.kind[self.nodes.searchsorted(node)] << TOKEN_BITS | token, self.tokens)


def called_tokens(pairs: Sequence[np.ndarray], rests: Rests, nodes: np.ndarray, read: np.ndarray) -> Called:
    """The tokens that belong to calls.

    Args:
      pairs: of each name, number of what is read of an answer << TOKEN_BITS | number in `rests` of what is left.
      nodes: the answers that may yet be calls, ascending.
      read: number of what is read of each.
    """
    pair = distinct(np.concatenate(pairs))
    first = firsts(pair >> TOKEN_BITS, int(max(read.max(), pair.max(initial=0) >> TOKEN_BITS)) + 1)
    size = np.diff(first)[read]
    left = pair[joined(first[read], size)] & (1 << TOKEN_BITS) - 1
    kind = len(rests.first) + np.arange(len(nodes))
    alone = size == 1
    kind[alone] = left[(size.cumsum() - size)[alone]]
    return Called.of(nodes, kind, distinct(kind.repeat(size) << TOKEN_BITS | left), rests)


def with_text(
    arcs: Entries, groups: Entries, text: int, called: Called, rows: Rows, tables: VocabularyTables
) -> tuple[Entries, Entries, Entries] | None:
    """The arcs and groups with those that answers, which may yet be calls, have as any text; None where both have a token.

    Args:
      arcs, groups: without these.
      text: node of an answer where anything may follow.
      rows: takes new ones.

    Returns:
      Arcs; groups; and node, effect and hash of the sets of tokens of all arcs that were added. There are no sets where calls
      have some of these tokens.
    """
    nodes = called.nodes
    own = np.isin(arcs["node"], nodes)
    node, mine = arcs["node"][own], arcs["token"][own]
    mine = mine[~called.holds(node, mine)]  # special tokens, where an answer begins
    some = (arcs["node"] == text).nonzero()[0]
    if np.isin(mine, arcs["token"][some]).any():
        return None
    at, node = np.tile(some, len(nodes)), nodes.repeat(len(some))
    effects, which = numbered(arcs["effect"][some])
    if np.isin(arcs["token"][some], called.tokens & (1 << TOKEN_BITS) - 1).any():
        kept = ~called.holds(node, arcs["token"][at])
        at, node = at[kept], node[kept]
        effects = effects[:0]
    more = {name: values[at] for name, values in arcs.items()} | {"node": node}
    hashes = np.zeros(len(effects), np.uint64)
    for place in range(len(effects)):
        tokens = arcs["token"][some[which == place]]
        hashes[place] = tables.token_hash[tokens].sum()
        rows.tokens[int(hashes[place])], rows.size[int(hashes[place])] = tokens, len(tokens)
    sets = {"node": nodes.repeat(len(effects)), "effect": np.tile(effects, len(nodes)), "hash": np.tile(hashes, len(nodes))}
    parts = [groups]
    for group in (groups["node"] == text).nonzero()[0].tolist():
        row = rows[int(groups["hash"][group])]
        if bits(row, mine).any():
            return None
        hashes = _cut(int(groups["hash"][group]), row, called, rows, tables)
        left = hashes != 0
        columns = {name: values[group].repeat(int(left.sum())) for name, values in groups.items()}
        parts.append(columns | {"node": nodes[left], "hash": hashes[left]})
    return (
        {name: np.concatenate((values, more[name])) for name, values in arcs.items()},
        {name: np.concatenate([part[name] for part in parts]) for name in groups},
        sets,
    )


def _within(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """bool[n], which values are among the ordered ones."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(ordered.searchsorted(values), len(ordered) - 1)] == values


def bits(row: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """bool[n], which tokens a bit row has."""
    return (row[tokens >> 5] >> (tokens & 31).astype(np.uint32) & 1) > 0


def _cut(row_hash: int, row: np.ndarray, called: Called, rows: Rows, tables: VocabularyTables) -> np.ndarray:
    """uint64[nodes], hashes of a set without the tokens that belong to calls there; new sets are added to `rows`."""
    token = called.tokens & (1 << TOKEN_BITS) - 1
    inside = bits(row, token)
    token, of = token[inside], called.tokens[inside] >> TOKEN_BITS
    begin = segment_starts(of)
    first = np.append(begin, len(of))
    out = np.full(int(called.kind.max()) + 1, row_hash, np.uint64)
    changed = of[begin]
    if len(begin):
        out[changed] -= np.add.reduceat(tables.token_hash[token], begin)
    whole = int(rows.sizes(np.array([row_hash], np.uint64))[0])
    for new, low, high in zip(out[changed].tolist(), first.tolist(), first[1:].tolist()):
        if new and new not in rows.known and new not in rows.without:
            rows.without[new], rows.size[new] = (row_hash, token[low:high]), whole - (high - low)
    return out[called.kind]


def levels_of(arcs: Entries, groups: Entries, rows: Rows, pool: RowPool) -> tuple[Entries, np.ndarray]:
    """The levels of some nodes, and the hash of each, uint64[L].

    Args:
      arcs: node, token, cost and need.
      groups: node, hash, cost and need.
      pool: takes new rows.
    """
    tables = pool.tables
    node, cost, need = (np.concatenate((arcs[name], groups[name])) for name in ("node", "cost", "need"))
    hashes = np.concatenate((tables.token_hash[arcs["token"]], groups["hash"]))
    count = np.concatenate((np.ones(len(arcs["node"]), np.int64), rows.sizes(groups["hash"])))
    order = order_of(node)
    grid = Grid(*(column[order] for column in (node, cost, need, hashes, count)))
    cell = grid.fitting(tables.num_words * 4)
    tokens = arcs["token"]

    def build(i: int) -> np.ndarray:
        below, new = grid.difference(cell, i)
        row = pool.of_hash(below).copy() if below else np.zeros(tables.num_words, np.uint32)
        new = order[new]
        tables.add(row, tokens[new[new < len(tokens)]])
        for group in new[new >= len(tokens)].tolist():
            rows.add_to(row, int(hashes[group]), tables)
        return row

    made = pool.numbers(grid.union[cell], build)
    return {"node": grid.node[cell], "cost": grid.cost[cell], "need": grid.need[cell], "row": made}, grid.union[cell]
