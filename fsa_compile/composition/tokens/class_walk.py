"""Tokens that begin with a byte into a wide *entry* state, walked once per entry for all origins.

Wide states read whole classes of bytes (string bodies, words, numbers). What follows a token's first byte is walked from
each entry over symbol strings (`token_classes`); the tokens found form sets by (entry, state reached). An origin state takes
its share of a set: the tokens whose first byte leads from it into the entry. Equal sets, equal first bytes and so equal
shares are computed once, which makes hundreds of alike states as cheap as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct, equal_rows, exampled, numbered, order_of
from fsa_compile.arrays.ranges import indices, ranges, segment_sizes, segment_starts
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.composition.tokens.token_classes import (
    TokenClasses,
    end_unread,
    powers_of,
    symbol_steps,
    token_classes_of,
    walk_bytes,
    walk_strings,
)
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.memo import remember_set
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

NARROW = 64
"""Largest token set stored as arcs; larger ones become bit rows."""
_WIDE_BYTES = 16
"""Live bytes from which a state may serve as an entry."""
HEAVY = 1024
"""Tokens under an origin's first bytes from which its entry is worth a row operation instead of a join."""
_MAX_ENTRY_STATES = 100_000
"""Automata with more states are joined only: the tables of powers would cost more than they save."""
_CHUNK = 2_000_000
"""(entry, string) pairs walked at a time."""
_FEW_TOKENS = 2_000
"""Rows of fewer tokens are made from these."""
_NO_ROW = np.zeros(0, np.uint32)
_DOING = "walking the vocabulary"
_SHARE_BYTES = 96
"""Memory of one token or set in one origin's share, until the token sets are assembled."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TokenSet:
    """A large token set.

    Attributes:
      row: uint32[W], of more than `NARROW` tokens.
      hash: see `VocabularyTables.row_hash`.
      count: number of tokens.
      tokens: int64[count] when there are at most `NARROW` after all, else None.
    """

    row: np.ndarray
    hash: int
    count: int
    tokens: np.ndarray | None


class Entered(NamedTuple):
    """Tokens over the arcs into entries, disjoint parts of each origin's tokens.

    Attributes:
      single: int64[A] each, (origin, token, state reached).
      by_row: int64[B] each, (origin, state reached, index into `sets`).
      sets: large token sets.
      aside: (entry, token) of the tokens that reach the state `aside`, which have no part in the above.
    """

    single: tuple[np.ndarray, np.ndarray, np.ndarray]
    by_row: tuple[np.ndarray, np.ndarray, np.ndarray]
    sets: list[TokenSet]
    aside: tuple[np.ndarray, np.ndarray]


def wide_states(dfa: ByteDfa, among: np.ndarray | None = None) -> np.ndarray:
    """States that read many bytes, or loop, and do not tell letters or digits apart: bool[S].

    Args:
      among: bool[S], those in question; all by default.
    """
    s = dfa.num_states
    if among is not None:
        return _reads_classes(dfa, among) if s <= _MAX_ENTRY_STATES else np.zeros(s, bool)
    source, _, target = dfa.arcs
    if s > _MAX_ENTRY_STATES or len(source) < _WIDE_BYTES:
        return np.zeros(s, bool)
    wide = np.bincount(source, minlength=s) >= _WIDE_BYTES
    wide[source[source == target]] = True
    return _reads_classes(dfa, wide)


def entry_arcs(
    dfa: ByteDfa, tables: VocabularyTables, wide: np.ndarray, arcs: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Which of some arcs, by default all of the automaton, are walked from an entry state: bool[E].

    A wide state becomes an entry when some origin has many tokens under neighbouring bytes that lead into it.
    """
    source, byte, target = dfa.arcs if arcs is None else arcs
    into = wide[target].nonzero()[0]
    if not len(into):
        return np.zeros(len(source), bool)
    goal = target[into]
    begin = segment_starts(source[into] * dfa.num_states + goal)  # runs of neighbouring bytes with one target
    weight = np.add.reduceat(tables.weight[byte[into]], begin)
    entry = np.zeros(dfa.num_states, bool)
    entry[goal[begin[weight > HEAVY]]] = True
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


def walk_entries(
    dfa: ByteDfa,
    tables: VocabularyTables,
    wide: np.ndarray,
    source: np.ndarray,
    byte: np.ndarray,
    target: np.ndarray,
    deadline: Deadline,
    *,
    aside: int = 0,
) -> Entered:
    """Tokens over the given arcs.

    Args:
      wide: bool[S] from `wide_states`.
      source, byte, target: int64[n] arcs chosen by `entry_arcs`.
      deadline: checked between chunks.
      aside: a state whose tokens are only listed by entry; 0 for none.

    Raises:
      LimitError: out of time or memory.
    """
    token_classes, steps, key = token_classes_of(tables, symbol_steps(dfa, wide))
    end_unread(dfa, wide, steps, key)
    entries, entry = numbered(target)
    read, (apart_who, apart_string) = _walk_in_chunks(token_classes, steps, entries, deadline)
    byte_sets, *pairs = _first_bytes(source, byte, entry)
    leads = np.zeros((len(entries), 256), bool)
    leads[entry, byte] = True
    apart = _walk_apart(dfa, tables, token_classes, entries, leads, apart_who, apart_string)
    listed_aside = apart[2] == aside
    split = [(apart[0][listed_aside], apart[1][listed_aside])]
    apart = tuple(column[~listed_aside] for column in apart)
    single = [_restrict_lists(tables, apart, len(entries), source, byte, entry)]
    if aside:
        who, string, reached = read
        there = (reached == aside).nonzero()[0]
        which, token = token_classes.tokens_of(string[there])
        owner = who[there][which]
        led = leads[owner, tables.first_byte[token]].nonzero()[0]
        split.append((owner[led], token[led]))
        here = (reached != aside).nonzero()[0]
        read = who[here], string[here], reached[here]
    apart_entry, apart_token = (np.concatenate(column) for column in zip(*split))
    listed = entries[apart_entry], apart_token
    who, string, reached = read
    sets = _StringSets(who, string, reached, dfa.num_states, len(entries), token_classes)
    if not len(sets.pair):
        none = np.zeros(0, np.int64)
        return Entered(single[0], (none, none, none), [], listed)

    def shares(combination: np.ndarray) -> _Shares:
        return _Shares(tables, token_classes, key, sets.members, byte_sets, combination)

    found, rows, large = _met_by_origins(sets, pairs, len(byte_sets), shares, deadline)
    first, second, third = (np.concatenate(column) for column in zip(single[0], found))
    return Entered((first, second, third), rows, large, listed)


class _StringSets:
    """The sets of strings by (entry, state reached), numbered so that equal sets share a number.

    Attributes:
      pair: int64[P], entry * S + state reached, ascending.
      number: int64[P], the set of each.
      members: strings of every set.
      of_entry: int64[E + 1], where the pairs of each entry begin.
    """

    def __init__(
        self, who: np.ndarray, string: np.ndarray, reached: np.ndarray, num_states: int, num_entries: int, classes: TokenClasses
    ) -> None:
        self.num_states = num_states
        bits = classes.num_strings.bit_length()
        record = ((who * num_states + reached) << bits) | string
        record.sort()
        pair, string = record >> bits, record & ((1 << bits) - 1)
        begin = segment_starts(pair)
        self.pair = pair[begin]
        if not len(begin):
            return
        _, example, self.number = exampled(np.add.reduceat(classes.string_hash[string], begin))
        size = segment_sizes(begin, len(pair))
        self.members = [string[b : b + n] for b, n in zip(begin[example].tolist(), size[example].tolist())]
        self.of_entry = np.searchsorted(self.pair // num_states, np.arange(num_entries + 1))


def _met_by_origins(
    sets: _StringSets,
    pairs: Sequence[np.ndarray],
    num_byte_sets: int,
    shares_of: Callable[[np.ndarray], _Shares],
    deadline: Deadline,
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray], list[TokenSet]]:
    """Every origin meets every set of its entries; equal (set, first bytes) combinations have equal shares.

    Args:
      pairs: origin, entry and number of the first bytes of every pair of an origin and an entry, see `_first_bytes`.
      num_byte_sets: F.
      shares_of: shares of combinations, numbered set * F + first bytes.

    Returns:
      `Entered.single`, `by_row` and `sets`.
    """
    pair_source, pair_entry, pair_set = pairs
    low, high = sets.of_entry[pair_entry], sets.of_entry[pair_entry + 1]
    deadline.check_bytes(int((high - low).sum()) * _SHARE_BYTES, _DOING)
    which, at = ranges(low, high)
    combination, inverse = numbered(sets.number[at] * num_byte_sets + pair_set[which])
    shares = shares_of(combination)
    small = shares.start[inverse + 1] > shares.start[inverse]
    low, high = shares.start[inverse[small]], shares.start[inverse[small] + 1]
    deadline.check_bytes(int((high - low).sum()) * _SHARE_BYTES, _DOING)
    member, token_at = ranges(low, high)
    origin, goal = pair_source[which], sets.pair[at] % sets.num_states
    single = origin[small][member], shares.token[token_at], goal[small][member]
    large = (shares.row_of[inverse] >= 0).nonzero()[0]
    return single, (origin[large], goal[large], shares.row_of[inverse[large]]), shares.sets


def _walk_in_chunks(
    token_classes: TokenClasses, steps: np.ndarray, entries: np.ndarray, deadline: Deadline
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """`walk_strings` over bounded numbers of entries at a time."""
    size = max(1, _CHUNK // max(1, token_classes.num_strings))
    states, steps, entries = _met(steps, entries)
    powers = powers_of(token_classes, steps, deadline)
    if size >= len(entries):
        (who, string, reached), told_apart = walk_strings(token_classes, steps, powers, entries)
        return (who, string, states[reached]), told_apart
    read, apart, kept = [], [], 0
    for at in range(0, len(entries), size):
        deadline.check(_DOING)
        (who, string, reached), (apart_who, apart_string) = walk_strings(token_classes, steps, powers, entries[at : at + size])
        read.append((who + at, string, states[reached]))
        apart.append((apart_who + at, apart_string))
        kept += len(who) + len(apart_who)
        deadline.check_bytes(kept * _SHARE_BYTES, _DOING)
    return tuple(map(np.concatenate, zip(*read))), tuple(map(np.concatenate, zip(*apart)))


def _met(steps: np.ndarray, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the states that symbols lead to from entries, ascending; steps and entries, in the numbers of these). Most walks of a
    large machine meet few of its states. The first state and the last are among them, whatever leads there."""
    met = np.zeros(len(steps), bool)
    met[[0, -1]] = met[entries] = True
    new = entries
    while len(new):
        there = distinct(steps[new].ravel())
        new = there[~met[there]]
        met[new] = True
    states = met.nonzero()[0]
    number = met.cumsum() - 1
    return states, number[steps[states]], number[entries]


class _Shares:
    """The share of each (string set, first bytes) combination: single tokens when few, else a token set.

    Attributes:
      start, token: int64[C + 1], int64[*]; tokens of combination c are `token[start[c]:start[c + 1]]`.
      row_of: int64[C], index into `sets`, or -1.
      sets: the large shares.
    """

    def __init__(
        self,
        tables: VocabularyTables,
        token_classes: TokenClasses,
        key: bytes,
        members: list[np.ndarray],
        byte_sets: np.ndarray,
        combination: np.ndarray,
    ) -> None:
        number, lead = combination // len(byte_sets), combination % len(byte_sets)
        strings = np.concatenate(members)
        sizes = np.array([len(m) for m in members])
        count = np.add.reduceat(token_classes.tokens[strings], sizes.cumsum() - sizes)
        few = count[number] <= NARROW
        owner, token = self._few(tables, token_classes, members, number, lead, few.nonzero()[0], byte_sets)
        self.row_of = np.full(len(combination), -1)
        self.sets: list[TokenSet] = []
        more_owner, more_token = [owner], [token]
        many = (~few).nonzero()[0]
        rows = {n: _string_row(tables, token_classes, key, members[n]) for n in distinct(number[many]).tolist()}
        for c, n, b in zip(many.tolist(), number[many].tolist(), lead[many].tolist()):
            found = _restricted(tables, *rows[n], byte_sets[b])
            if found.tokens is None:
                self.row_of[c] = len(self.sets)
                self.sets.append(found)
            elif found.count:
                more_owner.append(np.full(found.count, c))
                more_token.append(found.tokens)
        owner, token = np.concatenate(more_owner), np.concatenate(more_token)
        order = order_of(owner)
        self.token = token[order]
        self.start = owner[order].searchsorted(np.arange(len(combination) + 1))

    @staticmethod
    def _few(
        tables: VocabularyTables,
        token_classes: TokenClasses,
        members: list[np.ndarray],
        number: np.ndarray,
        lead: np.ndarray,
        chosen: np.ndarray,
        byte_sets: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(combination, token) of the chosen combinations, whose sets have few tokens, all at once."""
        if not len(chosen):
            none = np.zeros(0, np.int64)
            return none, none
        sizes = np.array([len(members[i]) for i in number[chosen].tolist()])
        strings = np.concatenate([members[i] for i in number[chosen].tolist()])
        which, token = token_classes.tokens_of(strings)
        owner = chosen.repeat(sizes)[which]
        mine = byte_sets[lead[owner], tables.first_byte[token]].nonzero()[0]
        return owner[mine], token[mine]


def _first_bytes(
    source: np.ndarray, byte: np.ndarray, entry: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct sets of first bytes, bool[F, 256], and per (origin, entry) pair: origin, entry index, set index."""
    num_entries = int(entry.max()) + 1
    key = source * num_entries + entry
    begin = segment_starts(key)  # arcs come by source and byte: neighbours share a pair, which leaves less to sort
    pair, which = numbered(key[begin])
    member = np.zeros((len(pair), 256), bool)
    member[which.repeat(segment_sizes(begin, len(key))), byte] = True
    example, index = equal_rows(np.packbits(member, axis=1))
    return member[example], pair // num_entries, pair % num_entries, index


def _walk_apart(
    dfa: ByteDfa,
    tables: VocabularyTables,
    token_classes: TokenClasses,
    entries: np.ndarray,
    leads: np.ndarray,
    who: np.ndarray,
    string: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(entry index, token, state reached) of the strings that have to be walked byte by byte.

    Only tokens whose first byte leads into the entry from some origin matter: `leads` is bool[E, 256].
    """
    which, token = token_classes.tokens_of(string)
    who = who[which]
    led = leads[who, tables.first_byte[token]].nonzero()[0]
    who, token = who[led], token[led]
    return walk_bytes(dfa, tables, who, token, entries[who])


def _restrict_lists(
    tables: VocabularyTables,
    entry_lists: tuple[np.ndarray, np.ndarray, np.ndarray],
    num_entries: int,
    source: np.ndarray,
    byte: np.ndarray,
    entry: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(origin, token, target): each arc takes from its entry's list the tokens that start with its byte."""
    who, token, reached = entry_lists
    key = who * 256 + tables.first_byte[token]
    order = order_of(key)
    token, reached = token[order], reached[order]
    begin = key[order].searchsorted(np.arange(num_entries * 256 + 1))
    led = entry * 256 + byte
    which, at = ranges(begin[led], begin[led + 1])
    return source[which], token[at].astype(np.int64), reached[at]


def _string_row(
    tables: VocabularyTables, token_classes: TokenClasses, key: bytes, strings: np.ndarray
) -> tuple[bytes, np.ndarray]:
    """(key of the set, bit row of all tokens of some strings)."""
    chosen = np.zeros(token_classes.num_strings + 1, bool)
    chosen[strings] = True
    name = key + np.packbits(chosen).tobytes()
    row = tables.set_memo.get(("strings", name))
    if row is None:
        if token_classes.tokens[strings].sum() < _FEW_TOKENS:
            row = tables.pack(token_classes.tokens_of(strings)[1])
        else:
            member = np.zeros(tables.num_words * 32, bool)
            member[: tables.vocab_size] = chosen[token_classes.string_of]
            row = np.packbits(member, bitorder="little").view(np.uint32)
        remember_set(tables, ("strings", name), row)
    return name, row


def _starting_row(tables: VocabularyTables, member: np.ndarray) -> np.ndarray:
    """Bit row of the tokens whose first byte belongs to a set bool[256]."""
    key = ("starting", member.tobytes())
    row = tables.set_memo.get(key)
    if row is None:
        token, begin = tables.by_first_byte
        chosen = member.nonzero()[0]
        row = remember_set(tables, key, tables.pack(token[indices(begin[chosen], begin[chosen + 1])]))
    return row


def _restricted(
    tables: VocabularyTables, name: bytes, row: np.ndarray, member: np.ndarray
) -> TokenSet:
    """The tokens of a row whose first byte belongs to a set."""
    key = ("restricted", name, member.tobytes())
    found = tables.set_memo.get(key)
    if found is None:
        both = row & _starting_row(tables, member)
        count = int(np.bitwise_count(both).sum())
        if count > NARROW:
            found = TokenSet(both, tables.row_hash(both), count, None)
        else:
            found = TokenSet(_NO_ROW, 0, count, tables.unpack(both))
        remember_set(tables, key, found)
    return found
