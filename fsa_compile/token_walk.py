"""The token walk: byte automaton ∘ detokenizing transducer, vectorised over all states at once.

The reference for this composition is `detokenize.py` (Koo et al. 2024, Algorithms 1 and 2, with OpenFst); this module is
the fast path and yields the same token acceptor. An origin state reads a token's first byte on its own; the rest is
walked

* from *entry* states (states that read whole classes of bytes, such as a string body) over symbol strings, once per entry
  whatever the number of origins (`quotient.py`), giving bit rows that are restricted by first byte per origin;
* from every other state by a breadth-first join of (state, trie node) pairs.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.byte_dfa import ByteDfa
from fsa_compile.limits import Deadline
from fsa_compile.quotient import Quotient, quotient_for, remember, symbol_steps, walk_bytes, walk_strings
from fsa_compile.vocabulary_tables import VocabularyTables, segment_starts

NARROW = 64
"""Largest token set stored as arcs; larger ones become bit rows."""
_WIDE_BYTES = 16
"""Live bytes from which a state may serve as an entry."""
_HEAVY = 1024
"""Tokens under an origin's first bytes from which its entry is worth a row operation instead of a join."""
_MAX_ENTRY_STATES = 20_000
"""Automata with more states are joined only: the tables of powers would cost more than they save."""


@dataclasses.dataclass(frozen=True, eq=False)
class TokenArcs:
    """Outgoing tokens of every state, as single tokens and as bit rows; all parts of one state are disjoint.

    Attributes:
      state, token, target: int64[A] single tokens.
      row_state, row_target, row_set: int64[B], a state's tokens into a target include set `row_set`.
      sets: distinct bit rows.
      hashes: of each set (see `VocabularyTables.row_hash`).
    """

    state: np.ndarray
    token: np.ndarray
    target: np.ndarray
    row_state: np.ndarray
    row_target: np.ndarray
    row_set: np.ndarray
    sets: list[np.ndarray]
    hashes: np.ndarray


@dataclasses.dataclass(frozen=True)
class _BitSet:
    row: np.ndarray
    hash: int
    count: int
    tokens: np.ndarray | None
    """int64[count] when there are at most `NARROW`."""


def walk_tokens(dfa: ByteDfa, tables: VocabularyTables, deadline: Deadline) -> TokenArcs:
    """Every (state, token, target) of the token automaton.

    Args:
      dfa: byte automaton, trimmed.
      tables: of the vocabulary.
      deadline: checked between levels.

    Raises:
      LimitError: out of time.
    """
    source, byte, target = dfa.arcs
    wide = _wide_states(dfa)
    by_entry = _entry_arcs(dfa, tables, wide)
    plain = ~by_entry & (tables.root_child[byte] > 0)
    seeds = source[plain], tables.root_child[byte[plain]], target[plain]
    joined = join(dfa, tables, *seeds, deadline)
    if not by_entry.any():
        none = np.zeros(0, np.int64)
        return TokenArcs(*joined, none, none, none, [], np.zeros(0, np.uint64))
    listed, (row_state, row_target, row_set), sets = _walk_entries(
        dfa, tables, wide, source[by_entry], byte[by_entry], target[by_entry]
    )
    deadline.check("walking the vocabulary")
    state, token, reached = (np.concatenate(pair) for pair in zip(joined, listed))
    hashes = np.array([s.hash for s in sets], np.uint64)
    return TokenArcs(state, token, reached, row_state, row_target, row_set, [s.row for s in sets], hashes)


def join(
    dfa: ByteDfa, tables: VocabularyTables, origin: np.ndarray, node: np.ndarray, state: np.ndarray, deadline: Deadline
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Breadth-first join of automaton states and trie nodes.

    Args:
      origin, node, state: int64[n], pairs (state reached, trie node) and the state each belongs to.

    Returns:
      (origin, token, state reached) of every token under the given pairs.
    """
    table, kind, width = dfa.table.ravel(), dfa.byte_class.astype(np.int64), dfa.table.shape[1]
    first, count, byte, ending = tables.trie_first, tables.trie_count, tables.trie_byte, tables.trie_token
    found = []
    while len(node):
        token = ending[node]
        ends = (token >= 0).nonzero()[0]
        if len(ends):
            found.append((origin[ends], token[ends], state[ends]))
        children = count[node]
        upto = children.cumsum()
        total = int(upto[-1])
        if not total:
            break
        if total > 1_000_000:
            deadline.check("walking the vocabulary")
        parent = np.arange(len(node)).repeat(children)
        child = np.arange(total) + (first[node] - (upto - children))[parent]
        reached = table[(state * width)[parent] + kind[byte[child]]]
        on = reached.nonzero()[0]
        node, state, origin = child[on], reached[on].astype(np.int64), origin[parent[on]]
    if not found:
        none = np.zeros(0, np.int64)
        return none, none, none
    origin, token, state = (np.concatenate(column) for column in zip(*found))
    return _with_aliases(tables, origin, token, state)


def _with_aliases(
    tables: VocabularyTables, origin: np.ndarray, token: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Adds the ids that write the same bytes as a token found in the trie."""
    if not len(tables.alias_offset):
        return origin, token, state
    begin = tables.alias_offset[token].astype(np.int64)
    more = tables.alias_offset[token + 1] - begin
    which = np.repeat(np.arange(len(token)), more)
    at = np.arange(len(which)) + np.repeat(begin - (np.cumsum(more) - more), more)
    return (
        np.concatenate([origin, origin[which]]),
        np.concatenate([token, tables.alias_token[at].astype(np.int64)]),
        np.concatenate([state, state[which]]),
    )


def _wide_states(dfa: ByteDfa) -> np.ndarray:
    """States that read many bytes, or loop, and do not tell letters or digits apart: bool[S]."""
    source, _, target = dfa.arcs
    s = dfa.num_states
    if s > _MAX_ENTRY_STATES or len(source) < _WIDE_BYTES:
        return np.zeros(s, bool)
    wide = np.bincount(source, minlength=s) >= _WIDE_BYTES
    wide[source[source == target]] = True
    return _reads_classes(dfa, wide)


def _entry_arcs(dfa: ByteDfa, tables: VocabularyTables, wide: np.ndarray) -> np.ndarray:
    """Which of the automaton's arcs are walked from an entry state: bool[E].

    A wide state becomes an entry when some origin has many tokens under the bytes that lead into it.
    """
    source, byte, target = dfa.arcs
    into = wide[target].nonzero()[0]
    if not len(into):
        return np.zeros(len(source), bool)
    pair = source[into] * dfa.num_states + target[into]
    order = np.argsort(pair, kind="stable")
    begin = segment_starts(pair[order])
    weight = np.add.reduceat(tables.weight[byte[into[order]]], begin)
    entry = np.zeros(dfa.num_states, bool)
    entry[target[into[order[begin[weight > _HEAVY]]]]] = True
    return entry[target]


def _reads_classes(dfa: ByteDfa, candidates: np.ndarray) -> np.ndarray:
    """States that do not tell letters, digits or continuation bytes apart: only from these are strings worth walking."""
    out = np.zeros(len(candidates), bool)
    chosen = np.flatnonzero(candidates)
    rows = dfa.table[chosen][:, dfa.byte_class]
    alike = np.ones(len(chosen), bool)
    for low, high in ((0x61, 0x7B), (0x41, 0x5B), (0x30, 0x3A), (0x80, 0x90), (0x90, 0xA0), (0xA0, 0xC0)):
        alike &= (rows[:, low:high] == rows[:, low : low + 1]).all(1)
    out[chosen] = alike
    return out


def _walk_entries(
    dfa: ByteDfa,
    tables: VocabularyTables,
    wide: np.ndarray,
    source: np.ndarray,
    byte: np.ndarray,
    target: np.ndarray,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], list[_BitSet]]:
    """Tokens over the given arcs (source, byte, entry): single tokens, and sets by (state, target)."""
    quotient, steps, key = quotient_for(tables, symbol_steps(dfa, wide))
    entries, entry = np.unique(target, return_inverse=True)
    (who, string, reached), told_apart = walk_strings(quotient, steps, entries)

    # Sets of strings by (entry, state reached): large ones become bit rows, small ones single tokens.
    s = dfa.num_states
    pair = who * s + reached
    order = np.argsort(pair, kind="stable")
    pair, string = pair[order], string[order]
    begin = segment_starts(pair)
    size = np.append(begin[1:], len(pair)) - begin
    large = np.add.reduceat(quotient.tokens[string], begin) > NARROW if len(begin) else np.zeros(0, bool)
    small = np.repeat(~large, size)
    leads = np.zeros((len(entries), 256), bool)
    leads[entry, byte] = True
    entry_lists = _single_tokens(dfa, tables, quotient, pair[small], string[small], told_apart, entries, leads)

    # Origins with the same first bytes into an entry share everything.
    byte_sets, pair_source, pair_entry, pair_set = _first_bytes(source, byte, entry)
    listed = _restrict_lists(tables, entry_lists, s, len(entries), byte_sets, pair_source, pair_entry, pair_set)
    rows = [
        _string_row(tables, quotient, key, string[b : b + n])
        for b, n in zip(begin[large].tolist(), size[large].tolist())
    ]
    return _restrict_rows(
        tables, rows, pair[begin[large]], s, len(entries), byte_sets, (pair_source, pair_entry, pair_set), listed
    )


def _first_bytes(
    source: np.ndarray, byte: np.ndarray, entry: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct sets of first bytes, bool[F, 256], and per (origin, entry) pair: origin, entry index, set index."""
    pair, which = np.unique(source * (int(entry.max()) + 1) + entry, return_inverse=True)
    member = np.zeros((len(pair), 256), bool)
    member[which, byte] = True
    numbers: dict[bytes, int] = {}
    packed = np.packbits(member, axis=1)
    index = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in packed])
    _, example = np.unique(index, return_index=True)
    return member[example], pair // (int(entry.max()) + 1), pair % (int(entry.max()) + 1), index


def _single_tokens(
    dfa: ByteDfa,
    tables: VocabularyTables,
    quotient: Quotient,
    pair: np.ndarray,
    string: np.ndarray,
    told_apart: tuple[np.ndarray, np.ndarray],
    entries: np.ndarray,
    leads: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(entry index, token, state reached) of the small sets, and of the strings that are walked byte by byte.

    Only tokens whose first byte leads into the entry from some origin matter: `leads` is bool[E, 256].
    """
    who, apart = told_apart
    s = dfa.num_states
    which, small = quotient.tokens_of(string)
    led = leads[pair[which] // s, tables.first_byte[small]].nonzero()[0]
    which, small = which[led], small[led]
    which_apart, long = quotient.tokens_of(apart)
    who = who[which_apart]
    led = leads[who, tables.first_byte[long]]
    who, long = who[led], long[led]
    walked = walk_bytes(dfa, tables, who, long, entries[who])
    return (
        np.concatenate([pair[which] // s, walked[0]]),
        np.concatenate([small, walked[1]]),
        np.concatenate([pair[which] % s, walked[2]]),
    )


def _restrict_lists(
    tables: VocabularyTables,
    entry_lists: tuple[np.ndarray, np.ndarray, np.ndarray],
    s: int,
    num_entries: int,
    byte_sets: np.ndarray,
    pair_source: np.ndarray,
    pair_entry: np.ndarray,
    pair_set: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(origin, token, target): each origin takes from its entries the tokens that start with its own first bytes."""
    who, token, reached = entry_lists
    order = np.argsort(who, kind="stable")
    who, token, reached = who[order], token[order], reached[order]
    begin = np.searchsorted(who, np.arange(num_entries + 1))
    size = (begin[1:] - begin[:-1])[pair_entry]
    which = np.repeat(np.arange(len(pair_entry)), size)
    at = np.arange(len(which)) + np.repeat(begin[pair_entry] - (np.cumsum(size) - size), size)
    keep = np.flatnonzero(byte_sets[pair_set[which], tables.first_byte[token[at]]])
    return pair_source[which[keep]], token[at[keep]].astype(np.int64), reached[at[keep]]


def _string_row(
    tables: VocabularyTables, quotient: Quotient, key: bytes, strings: np.ndarray
) -> tuple[bytes, np.ndarray]:
    """(key of the set, bit row of all tokens of some strings)."""
    chosen = np.zeros(quotient.num_strings + 1, bool)
    chosen[strings] = True
    name = key + np.packbits(chosen).tobytes()
    row = tables.memo.get(("strings", name))
    if row is None:
        member = np.zeros(tables.num_words * 32, bool)
        member[: tables.vocab_size] = chosen[quotient.string_of]
        row = remember(tables, ("strings", name), np.packbits(member, bitorder="little").view(np.uint32))
    return name, row


def _starting_row(tables: VocabularyTables, member: np.ndarray) -> np.ndarray:
    """Bit row of the tokens whose first byte belongs to a set bool[256]."""
    key = ("starting", member.tobytes())
    row = tables.memo.get(key)
    if row is None:
        chosen = np.flatnonzero(member & (tables.weight > 0))
        row = remember(tables, key, np.bitwise_or.reduce(tables.starts_with[chosen], axis=0))
    return row


def _restricted(
    tables: VocabularyTables, name: bytes, row: np.ndarray, member: np.ndarray
) -> _BitSet:
    """The tokens of a row whose first byte belongs to a set."""
    key = ("restricted", name, member.tobytes())
    found = tables.memo.get(key)
    if found is None:
        both = row & _starting_row(tables, member)
        count = int(np.bitwise_count(both).sum())
        tokens = np.flatnonzero(np.unpackbits(both.view(np.uint8), bitorder="little")) if count <= NARROW else None
        found = remember(tables, key, _BitSet(both, tables.row_hash(both), count, tokens))
    return found


def _restrict_rows(
    tables: VocabularyTables,
    rows: list[tuple[bytes, np.ndarray]],
    row_pair: np.ndarray,
    s: int,
    num_entries: int,
    byte_sets: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
    listed: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], list[_BitSet]]:
    """Each origin's share of its entries' rows; shares that turn out small are listed."""
    pair_source, pair_entry, pair_set = pairs
    row_entry, row_target = row_pair // s, row_pair % s
    begin = np.searchsorted(row_entry, np.arange(num_entries + 1))
    size = (begin[1:] - begin[:-1])[pair_entry]
    which = np.repeat(np.arange(len(pair_entry)), size)
    at = np.arange(len(which)) + np.repeat(begin[pair_entry] - (np.cumsum(size) - size), size)

    # Rows of different entries are often equal (every state of a counted run): number the distinct ones.
    names: dict[bytes, int] = {}
    distinct = np.array([names.setdefault(name, len(names)) for name, _ in rows], np.int64)
    by_number = {number: rows[i] for i, number in enumerate(distinct.tolist())}
    combination, inverse = np.unique(distinct[at] * len(byte_sets) + pair_set[which], return_inverse=True)
    sets = [
        _restricted(tables, *by_number[c // len(byte_sets)], byte_sets[c % len(byte_sets)]) for c in combination.tolist()
    ]
    count = np.array([x.count for x in sets], np.int64)
    large = count > NARROW
    keep = large[inverse]
    listed_parts = [listed]
    small = np.flatnonzero(~keep & (count[inverse] > 0))
    if len(small):
        lengths = count[inverse[small]]
        tokens = [t for i in inverse[small].tolist() if (t := sets[i].tokens) is not None]
        listed_parts.append((
            np.repeat(pair_source[which[small]], lengths),
            np.concatenate(tokens),
            np.repeat(row_target[at[small]], lengths),
        ))
    final = tuple(np.concatenate(column) for column in zip(*listed_parts))
    chosen = np.flatnonzero(keep)
    renumber = np.cumsum(large) - 1
    by_row = (pair_source[which[chosen]], row_target[at[chosen]], renumber[inverse[chosen]])
    return final, by_row, [x for x, big in zip(sets, large.tolist()) if big]

