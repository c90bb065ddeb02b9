"""The token walk: byte automaton ∘ detokenizing transducer, vectorised over all states at once.

The reference for this composition is `detokenize.py` (Koo et al. 2024, Algorithms 1 and 2, with OpenFst); this module is
the fast path and yields the same token acceptor. An origin state reads a token's first byte on its own; the rest is
walked

* from *entry* states (states that read whole classes of bytes, such as a string body) over symbol strings, once per entry
  whatever the number of origins (`token_classes`), giving bit rows that are restricted by first byte per origin;
* from every other state by a breadth-first join of (state, trie node) pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import order_of
from fsa_compile.arrays.ranges import ranges, segment_sizes, segment_starts
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.composition.tokens.class_walk import NARROW, entry_arcs, walk_entries, wide_states
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "walking the vocabulary"
_PAIR_BYTES = 64
"""Working memory of one (state, trie node) pair while it is expanded."""
_FEW_PAIRS = 50_000
"""Levels with fewer new pairs are not checked against the limits."""
_MANY_PAIRS = 400_000
"""Levels with more new pairs are stepped by the arcs of their states where these are few, as in a suffix automaton."""
_PART = 4_000_000
"""Tokens below the first bytes of states that are joined at once."""
_KEPT_BYTES = 96
"""Memory of one pair reached, until the token sets are assembled."""
_FEW_ENTERED = 5_000
"""With fewer tokens below all arcs into entries, as those of a number, joining them costs less than walking strings."""


class TokenArcs(NamedTuple):
    """Outgoing tokens of every state, as single tokens and as bit rows; all parts of one state are disjoint.

    Attributes:
      state, token, target: int64[A] single tokens.
      row_state, row_target, row_set: int64[B], a state's tokens into a target include set `row_set`.
      sets: distinct bit rows.
      hashes: of each set (see `VocabularyTables.row_hash`).
      lists: more single tokens, in lists that are known.
    """

    state: np.ndarray
    token: np.ndarray
    target: np.ndarray
    row_state: np.ndarray
    row_target: np.ndarray
    row_set: np.ndarray
    sets: list[np.ndarray]
    hashes: np.ndarray
    lists: TokenLists | None = None


class TokenLists(NamedTuple):
    """Lists of tokens with one state and one target each, of which there may be several; all of them are disjoint.

    Attributes:
      state, target: int64[P].
      begin, size: int64[P]; tokens of list p are `token[begin[p] : begin[p] + size[p]]`.
      hash: uint64[P], see `VocabularyTables.row_hash`.
      token: int64[*].
    """

    state: np.ndarray
    target: np.ndarray
    begin: np.ndarray
    size: np.ndarray
    hash: np.ndarray
    token: np.ndarray


class KnownTokens(NamedTuple):
    """Tokens of some states that need not be walked.

    Attributes:
      inside: bool[S], these states.
      lists: single tokens.
      by_row: (state, target, index into `sets`) int64[*] each.
      sets, hashes: as in `TokenArcs`.
      begun: (state, trie node, state reached) int64[*] each, where tokens of these states have to be walked from.
    """

    inside: np.ndarray
    lists: TokenLists
    by_row: tuple[np.ndarray, ...]
    sets: list[np.ndarray]
    hashes: np.ndarray
    begun: tuple[np.ndarray, ...]


def walk_tokens(
    dfa: ByteDfa, tables: VocabularyTables, deadline: Deadline, known: KnownTokens | None = None
) -> TokenArcs:
    """Every (state, token, target) of the token automaton.

    Args:
      dfa: byte automaton, trimmed.
      tables: of the vocabulary.
      deadline: checked between levels.
      known: what is known of some states.

    Raises:
      LimitError: out of time.
    """
    if known is not None:
        return _with_known(dfa, tables, known, deadline)
    return _walked(dfa, tables, dfa.arcs, deadline)


def _with_known(dfa: ByteDfa, tables: VocabularyTables, known: KnownTokens, deadline: Deadline) -> TokenArcs:
    """The tokens of all states, those of some being known."""
    source, byte, target = dfa.arcs
    others = (~known.inside[source]).nonzero()[0]
    found = _walked(dfa, tables, (source[others], byte[others], target[others]), deadline)
    origin, node, reached = known.begun
    single = zip((found.state, found.token, found.target), join(dfa, tables, origin, node, reached, deadline))
    by_row = zip((found.row_state, found.row_target, found.row_set), (*known.by_row[:2], known.by_row[2] + len(found.sets)))
    state, token, into = (np.concatenate(column) for column in single)
    row_state, row_target, row_set = (np.concatenate(column) for column in by_row)
    hashes = np.concatenate((found.hashes, known.hashes))
    return TokenArcs(state, token, into, row_state, row_target, row_set, found.sets + known.sets, hashes, known.lists)


def _walked(
    dfa: ByteDfa, tables: VocabularyTables, arcs: tuple[np.ndarray, np.ndarray, np.ndarray], deadline: Deadline
) -> TokenArcs:
    """The tokens whose first bytes are read by some arcs (source, byte, target), sorted as `ByteDfa.arcs` are."""
    source, byte, target = arcs
    wide = wide_states(dfa)
    by_entry = entry_arcs(dfa, tables, wide, arcs)
    if by_entry.any() and tables.weight[byte[by_entry]].sum() < _FEW_ENTERED:
        by_entry[:] = False
    plain = (~by_entry & (tables.root_child[byte] > 0)).nonzero()[0]
    first = tables.root_child[byte[plain]]
    joined = _join_in_parts(dfa, tables, source[plain], first, target[plain], deadline)
    if not by_entry.any():
        return joined
    entered = walk_entries(dfa, tables, wide, source[by_entry], byte[by_entry], target[by_entry], deadline)
    deadline.check(_DOING)
    entered_hashes = np.array([s.hash for s in entered.sets], np.uint64)
    row_state, row_target, row_set = entered.by_row
    state, token, reached = (
        np.concatenate(pair) for pair in zip((joined.state, joined.token, joined.target), entered.single)
    )
    return TokenArcs(
        state, token, reached,
        np.concatenate([joined.row_state, row_state]),
        np.concatenate([joined.row_target, row_target]),
        np.concatenate([joined.row_set, row_set + len(joined.sets)]),
        joined.sets + [s.row for s in entered.sets],
        np.concatenate([joined.hashes, entered_hashes]),
    )  # fmt: skip


def _join_in_parts(
    dfa: ByteDfa, tables: VocabularyTables, origin: np.ndarray, node: np.ndarray, state: np.ndarray, deadline: Deadline
) -> TokenArcs:
    """`join` of as many pairs at once as memory allows; large sets of tokens become bit rows after every part."""
    none = np.zeros(0, np.int64)
    below = tables.weight[tables.trie_byte[node]].cumsum()
    if not len(node) or below[-1] <= _PART:
        at, token, reached = join(dfa, tables, origin, node, state, deadline)
        return TokenArcs(at, token, reached, none, none, none, [], np.zeros(0, np.uint64))
    cuts = np.unique(below.searchsorted(np.arange(_PART, below[-1], _PART)))
    single: list[tuple[np.ndarray, ...]] = []
    rows: list[tuple[np.ndarray, np.ndarray, list[int]]] = []
    numbers: dict[int, int] = {}
    sets: list[np.ndarray] = []
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(node)]):
        deadline.check(_DOING)
        at, token, reached = join(dfa, tables, origin[begin:end], node[begin:end], state[begin:end], deadline)
        pair = at * dfa.num_states + reached
        order = order_of(pair)
        pair, token = pair[order], token[order]
        first = segment_starts(pair)
        size = segment_sizes(first, len(pair))
        wide = (size > NARROW).nonzero()[0]
        hashes = np.add.reduceat(tables.token_hash[token], first)[wide] if len(first) else np.zeros(0, np.uint64)
        which = []
        for group, hashed in zip(wide.tolist(), hashes.tolist()):
            if (number := numbers.setdefault(hashed, len(sets))) == len(sets):
                sets.append(tables.pack(token[first[group] : first[group] + size[group]]))
                deadline.check_bytes(len(sets) * sets[0].nbytes, _DOING)
            which.append(number)
        narrow = np.repeat(size <= NARROW, size)
        single.append((pair[narrow] // dfa.num_states, token[narrow], pair[narrow] % dfa.num_states))
        rows.append((pair[first[wide]] // dfa.num_states, pair[first[wide]] % dfa.num_states, which))
    row_state, row_target, row_set = (np.concatenate([np.array(part, np.int64) for part in column]) for column in zip(*rows))
    at, token, reached = (np.concatenate(column) for column in zip(*single))
    return TokenArcs(at, token, reached, row_state, row_target, row_set, sets, np.array(list(numbers), np.uint64))


def join(
    dfa: ByteDfa, tables: VocabularyTables, origin: np.ndarray, node: np.ndarray, state: np.ndarray, deadline: Deadline
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Breadth-first join of automaton states and trie nodes.

    Args:
      origin, node, state: int64[n], pairs (state reached, trie node) and the state each belongs to.

    Returns:
      (origin, token, state reached) of every token under the given pairs.
    """
    none = np.zeros(0, np.int64)
    if not len(node):
        return none, none, none
    # States are kept multiplied by the table's width, so that one addition makes an index.
    width = dfa.table.shape[1]
    table, kind = (dfa.table * np.int32(width)).ravel(), dfa.byte_class
    same = dfa.identity_classes
    beyond, count, byte = tables.trie_beyond, tables.trie_count, tables.trie_byte
    numbers = tables.numbers
    first_arc = numbers[:0]
    state = state * width
    levels, reached_so_far = [], 0
    while len(node):
        levels.append((origin, node, state))
        reached_so_far += len(node)
        size = count.take(node)
        upto = size.cumsum()
        total = int(upto[-1])
        if not total:
            break
        if total > _FEW_PAIRS:
            deadline.check(_DOING)
            deadline.check_bytes(total * _PAIR_BYTES + reached_so_far * _KEPT_BYTES, _DOING)
        if total > _MANY_PAIRS:
            at = state // width
            if not len(first_arc):
                first_arc = dfa.arcs[0].searchsorted(np.arange(dfa.num_states + 1))
            few = 8 * (first_arc[at + 1] - first_arc[at]) < count[node]  # arcs of the state instead of children of the node
            if few.any():
                wide = ~few
                narrow = _by_arcs(dfa, tables, first_arc, origin[few], node[few], at[few], deadline)
                rest = _by_children(dfa, tables, origin[wide], node[wide], at[wide])
                origin, node, state = (np.concatenate(pair) for pair in zip(narrow, rest))
                state *= width
                continue
        if (most := max(total, len(node))) > len(numbers):
            numbers = np.arange(2 * most)
        parent = numbers[: len(node)].repeat(size)
        child = (beyond.take(node) - upto).take(parent)
        child += numbers[:total]
        read = byte.take(child)
        reached = table.take(state.take(parent) + (read if same else kind.take(read)))
        on = reached.nonzero()[0]
        node, state, origin = child.take(on), reached.take(on), origin.take(parent.take(on))
    origin, node, state = (np.concatenate(column) for column in zip(*levels))
    token = tables.trie_token.take(node)
    ends = (token >= 0).nonzero()[0]
    origin, token, state = with_aliases(tables, origin.take(ends), token.take(ends), state.take(ends) // width)
    return origin, token, state


def _by_arcs(
    dfa: ByteDfa,
    tables: VocabularyTables,
    first_arc: np.ndarray,
    origin: np.ndarray,
    node: np.ndarray,
    state: np.ndarray,
    deadline: Deadline,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs one byte on, (origin, node, state), by looking up the bytes that each state reads among its node's children."""
    _, byte, target = dfa.arcs
    parent, at = ranges(first_arc[state], first_arc[state + 1])
    deadline.check_bytes(len(at) * _PAIR_BYTES, _DOING)
    wanted = node[parent] * 256 + byte[at]
    child = tables.trie_key.searchsorted(wanted)
    on = (tables.trie_key[np.minimum(child, len(tables.trie_key) - 1)] == wanted).nonzero()[0]
    return origin[parent[on]], child[on] + 1, target[at[on]]


def _by_children(
    dfa: ByteDfa, tables: VocabularyTables, origin: np.ndarray, node: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs one byte on, (origin, node, state), by stepping with the byte of every child."""
    parent, child = ranges(tables.trie_first[node], tables.trie_beyond[node])
    reached = dfa.table[state[parent], dfa.byte_class[tables.trie_byte[child]]].astype(np.int64)
    on = reached.nonzero()[0]
    return origin[parent[on]], child[on], reached[on]


def with_aliases(
    tables: VocabularyTables, origin: np.ndarray, token: np.ndarray, *more: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Adds the ids that write the same bytes as a token found in the trie; further columns go along."""
    if not len(tables.alias_offset):
        return origin, token, *more
    which, at = ranges(tables.alias_offset[token].astype(np.int64), tables.alias_offset[token + 1])
    if not len(which):
        return origin, token, *more
    alias = tables.alias_token[at].astype(np.int64)
    return (
        np.concatenate([origin, origin[which]]),
        np.concatenate([token, alias]),
        *(np.concatenate([column, column[which]]) for column in more),
    )
