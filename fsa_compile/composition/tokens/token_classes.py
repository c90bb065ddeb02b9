"""Walks wide states over the vocabulary's symbol strings instead of its tokens.

A state such as a JSON string body reads nearly every token, but treats most bytes alike. Tokens are therefore walked as
*symbol strings* (`vocabulary_tables`): what follows the first byte, as runs of symbols. Symbols that no state of the
automaton tells apart are merged first, which leaves some hundreds or thousands of distinct strings for 128,000 tokens;
one run is one step, by a table of powers, so the states of a counted run such as `[a-z]{1,500}` are not stepped through.

Where a state tells two bytes of one symbol apart (`name` inside a JSON key), the tokens of that string are walked byte
by byte instead, so the result is exact for every automaton.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import occupied
from fsa_compile.arrays.ranges import gather_segments, indices, segment_starts, spread
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.vocabulary_tables import (
    BYTE_SYMBOL,
    NUM_SYMBOLS,
    SYMBOL_CHARACTER,
    VocabularyTables,
    distinct_strings,
    runs,
)

_SINGLE = np.flatnonzero((np.bincount(BYTE_SYMBOL, minlength=NUM_SYMBOLS) == 1)[BYTE_SYMBOL])
"""Bytes that have a symbol of their own."""
_TOGETHER = np.flatnonzero(~(np.bincount(BYTE_SYMBOL, minlength=NUM_SYMBOLS) == 1)[BYTE_SYMBOL])
_TOGETHER = _TOGETHER[np.argsort(BYTE_SYMBOL[_TOGETHER], kind="stable")]
"""The other bytes, those of one symbol side by side."""
_TOGETHER_STARTS = segment_starts(BYTE_SYMBOL[_TOGETHER])
_TOGETHER_SYMBOLS = BYTE_SYMBOL[_TOGETHER[_TOGETHER_STARTS]]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TokenClasses:
    """The vocabulary's symbol strings after merging symbols into classes; class 0 is dead and its strings are dropped.

    Attributes:
      offset, run_class, run_length: runs of string g are `offset[g]:offset[g + 1]`; strings are sorted by first class.
      first: int64[C + 1], strings whose first class is c are `first[c]:first[c + 1]`; those of class 0 have no run.
      string_of: int32[V], string of each token, or the number of strings when it was dropped.
      tokens: int64[G], number of tokens of each string.
      by_string, token_start: int64[V] token ids sorted by string, and int64[G] where each string's tokens begin.
      longest: int64[C], longest run of each class.
    """

    offset: np.ndarray
    run_class: np.ndarray
    run_length: np.ndarray
    first: np.ndarray
    string_of: np.ndarray
    tokens: np.ndarray
    by_string: np.ndarray
    token_start: np.ndarray
    longest: np.ndarray

    @property
    def num_strings(self) -> int:
        """G, distinct strings."""
        return len(self.tokens)

    @cached_property
    def string_hash(self) -> np.ndarray:
        """uint64[G], a random-looking number per string; a set of strings is told apart by the sum (collisions: 2**-64)."""
        return mixed(np.arange(self.num_strings))

    def tokens_of(self, strings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index into `strings`, token) of every token of the given strings."""
        which, at = spread(self.token_start[strings], self.tokens[strings])
        return which, self.by_string[at]


def symbol_steps(dfa: ByteDfa, wide: np.ndarray) -> np.ndarray:
    """Next state by state and symbol: int64[S + 1, NUM_SYMBOLS].

    Entry S means: walk byte by byte from here. So it is for states that tell bytes of the symbol apart, and for every
    state that is not wide, so that literal states do not split symbols that the wide ones read alike. Row S leads to
    itself.

    Args:
      wide: bool[S], states that read whole classes of bytes.
    """
    s = dfa.num_states
    chosen = wide.nonzero()[0]
    full = dfa.table[chosen][:, dfa.byte_class].astype(np.int64)
    steps = np.zeros((s + 1, NUM_SYMBOLS), np.int64)
    steps[:s][~wide & dfa.table.any(1)] = s
    steps[s] = s
    mine = steps[chosen]
    mine[:, BYTE_SYMBOL[_SINGLE]] = full[:, _SINGLE]
    together = full[:, _TOGETHER]
    low = np.minimum.reduceat(together, _TOGETHER_STARTS, axis=1)
    high = np.maximum.reduceat(together, _TOGETHER_STARTS, axis=1)
    mine[:, _TOGETHER_SYMBOLS] = np.where(low == high, low, s)
    steps[chosen] = mine
    if full[:, 0x80:].any():
        steps[chosen, SYMBOL_CHARACTER] = _character_step(full, mine, steps)
    steps[:, 0] = 0
    return steps


def _character_step(full: np.ndarray, mine: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The one state that all complete characters lead to, whatever their bytes, else the marker: of some states.

    Args:
      full: int64[n, 256], next state of these states by byte.
      mine: int64[n, NUM_SYMBOLS], by symbol.
      steps: int64[S + 1, NUM_SYMBOLS], of all states by symbol.
    """
    s = len(steps) - 1
    low, mid, high = steps[:, 5], steps[:, 6], steps[:, 7]
    both = np.where(mid == high, mid, s)
    tail = np.where(low == both, low, s)
    early = np.where(low == mid, low, s)
    two, three = tail[tail], tail[tail[tail]]
    ends = [
        tail[mine[:, 8]],
        tail[high[full[:, 0xE0]]],
        two[mine[:, 10]],
        tail[early[full[:, 0xED]]],
        two[both[full[:, 0xF0]]],
        three[mine[:, 13]],
        two[low[full[:, 0xF4]]],
    ]
    lowest, highest = np.minimum.reduce(ends), np.maximum.reduce(ends)
    return np.where(lowest == highest, lowest, s)


def token_classes_of(tables: VocabularyTables, steps: np.ndarray) -> tuple[TokenClasses, np.ndarray, bytes]:
    """The token_classes for an automaton, cached by which symbols it tells apart.

    Args:
      tables: of the vocabulary.
      steps: from `symbol_steps`.

    Returns:
      The token_classes; int64[S + 1, C], next state by state and class; the token_classes's key among those of the vocabulary.
    """
    same = (steps[:-1, 1:] == steps[:-1, 1:2]).all(1)  # symbol 0 stands for none
    kept = (~same).nonzero()[0]
    live = steps[np.append(kept, (same & (steps[:-1, 1] > 0)).nonzero()[0][:1])].T  # one row is enough of those alike in all
    columns: dict[bytes, int] = {bytes(8 * live.shape[1]): 0}
    class_of = np.array([columns.setdefault(c.tobytes(), len(columns)) for c in live], np.uint8)
    class_steps = np.zeros((len(steps), len(columns)), np.int64)
    class_steps[:, class_of] = steps
    class_steps[:, 0] = 0
    key = class_of.tobytes()
    token_classes = tables.memo.get(("token_classes", key))
    if token_classes is None:
        token_classes = remember(tables, ("token_classes", key), _build(tables, class_of, len(columns)))
    return token_classes, class_steps, key


def end_unread(dfa: ByteDfa, wide: np.ndarray, steps: np.ndarray, key: bytes) -> None:
    """Lets strings end in states that are not wide where these read no byte of a class, in place.

    `symbol_steps` does not look at what these states read, so as not to tell symbols apart for their sake; but where they read
    nothing, as at the end of a word of bounded length, no token has to be walked to find that out.

    Args:
      wide: bool[S], as for `symbol_steps`.
      steps: int64[S + 1, C] from `token_classes_of`; row S, the marker, stays.
      key: of the token_classes, from there.
    """
    marker = len(steps) - 1
    met = np.zeros(len(steps), bool)
    met[steps[:-1][wide]] = True
    met[:-1] &= ~wide
    met[[0, marker]] = False
    chosen = met.nonzero()[0]
    if not len(chosen):
        return
    class_of = np.frombuffer(key, np.uint8)
    holds = np.zeros((256, steps.shape[1]), np.float32)
    holds[np.arange(256), class_of[BYTE_SYMBOL]] = 1
    holds[0x80:, class_of[SYMBOL_CHARACTER]] = 1
    reads = (dfa.table[chosen] > 0)[:, dfa.byte_class].astype(np.float32) @ holds > 0
    steps[chosen] = np.where(reads, steps[chosen], 0)


def _build(tables: VocabularyTables, class_of: np.ndarray, num_classes: int) -> TokenClasses:
    count = np.diff(tables.run_offset)
    kind = class_of[tables.run_symbol].astype(np.int64)
    owner = np.repeat(np.arange(len(count)), count)
    dead = np.zeros(len(count), bool)
    dead[owner[kind == 0]] = True
    keep = ~dead[owner]
    owner, kind, length = runs(owner[keep], kind[keep], tables.run_length[keep].astype(np.int64))
    alive = np.flatnonzero(~dead)
    count = np.bincount(owner, minlength=len(dead))[alive]
    number, chosen = distinct_strings(kind, length, count)
    start = np.cumsum(count) - count
    leading = np.zeros(len(chosen), np.int64)
    some = count[chosen] > 0
    leading[some] = kind[start[chosen[some]]]
    order = np.argsort(leading, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    offset, picked = gather_segments(start, count, chosen[order])
    old_to_new = np.full(len(dead) + 1, len(order), np.int32)  # last entry: for ids that are not text
    old_to_new[alive] = rank[number]
    string_of = old_to_new[tables.string_of]
    tokens = np.bincount(string_of, minlength=len(order) + 1)[:-1]
    narrow = string_of.astype(np.uint16) if len(order) < 1 << 16 else string_of  # 16 bits sort by radix
    longest = np.zeros(num_classes, np.int64)
    np.maximum.at(longest, kind[picked], length[picked])
    return TokenClasses(
        offset=offset.astype(np.int64),
        run_class=kind[picked],
        run_length=length[picked],
        first=np.searchsorted(leading[order], np.arange(num_classes + 1)),
        string_of=string_of,
        tokens=tokens,
        by_string=np.argsort(narrow, kind="stable"),
        token_start=np.cumsum(tokens) - tokens,
        longest=longest,
    )


class Powers(NamedTuple):
    """Runs of one class as single steps.

    Attributes:
      table: int32[n * (S + 1)], state after some symbols of one class by state, one table after the other.
      begin: int64[*], where in `table` that of each run of the token_classes begins.
    """

    table: np.ndarray
    begin: np.ndarray


def powers_of(token_classes: TokenClasses, steps: np.ndarray, deadline: Deadline) -> Powers:
    """The powers of an automaton's steps as far as the vocabulary's runs reach, or until nothing changes.

    Args:
      steps: int64[S + 1, C] from `token_classes_of`.
      deadline: checked as the table grows.

    Raises:
      LimitError: out of time or memory.
    """
    longest = token_classes.longest
    once = np.ascontiguousarray(steps.T, np.int32)
    rows: list[list[np.ndarray]] = [[row] for row in once]
    number = len(rows)
    active = (longest >= 2).nonzero()[0]
    before = once[active]
    for power in range(3, int(longest.max(initial=1)) + 2):
        following = once[active[:, None], before]
        changed = (following != before).any(1)
        active, before = active[changed], following[changed]
        for kind, row in zip(active.tolist(), before):
            rows[kind].append(row)
        number += len(active)
        deadline.check_bytes(2 * number * 4 * len(steps), "walking the vocabulary")
        more = longest[active] >= power
        active, before = active[more], before[more]
        if not len(active):
            break
    size = np.array([len(of_kind) for of_kind in rows])
    first = np.cumsum(size) - size
    kind = token_classes.run_class
    begin = (first[kind] + np.minimum(token_classes.run_length, size[kind]) - 1) * len(steps)
    return Powers(once.ravel() if number == len(rows) else np.concatenate([row for of_kind in rows for row in of_kind]), begin)


def walk_strings(
    token_classes: TokenClasses, steps: np.ndarray, powers: Powers, entries: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Walks every string from every entry state.

    Args:
      token_classes: with C classes.
      steps: int64[S + 1, C] from `token_classes_of`.
      powers: of the steps, from `powers_of`.
      entries: int64[E], states to start from.

    Returns:
      (entry index, string, state reached) of every string read to its end, and (entry index, string) of those that
      some state on the way tells apart and that have to be walked byte by byte.
    """
    marker = len(steps) - 1
    table, begin = powers
    who, kind = occupied(steps[entries])
    entry, string = _expand(who, token_classes.first[kind], token_classes.first[kind + 1])
    state = entries[entry]
    silent = np.arange(token_classes.first[0], token_classes.first[1])
    every = np.repeat(np.arange(len(entries)), len(silent))
    done = [(every, np.tile(silent, len(entries)), entries[every])]
    handed: list[tuple[np.ndarray, np.ndarray]] = []
    run, end = token_classes.offset[string], token_classes.offset[string + 1]
    while len(string):
        state = table[begin[run] + state]
        run = run + 1
        told = (state == marker).nonzero()[0]
        if len(told):
            handed.append((entry[told], string[told]))
            state[told] = 0
        on = (run < end) & (state > 0)
        ended = ((run == end) & (state > 0)).nonzero()[0]
        if len(ended):
            done.append((entry[ended], string[ended], state[ended]))
        entry, string, state, run, end = entry[on], string[on], state[on], run[on], end[on]
    none = np.zeros(0, np.int64)
    read = tuple(np.concatenate(column) for column in zip(*done))
    told_apart = tuple(np.concatenate(column) for column in zip(*handed)) if handed else (none, none)
    return read, told_apart  # type: ignore[return-value]


def _expand(who: np.ndarray, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(who, index) for every index of every range."""
    return np.repeat(who, end - begin), indices(begin, end)


def walk_bytes(
    dfa: ByteDfa, tables: VocabularyTables, origin: np.ndarray, token: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads tokens byte by byte from their second byte on.

    Args:
      origin: int64[n], carried along.
      token: int64[n], token ids.
      state: int64[n], state after the token's first byte.

    Returns:
      (origin, token, state reached) of the tokens that were read to their end.
    """
    table, kind, width = dfa.table.ravel(), dfa.byte_class.astype(np.int64), dfa.table.shape[1]
    at, end = tables.offset[token] + 1, tables.offset[token + 1]
    done = []
    while len(token):
        finished = np.flatnonzero(at == end)
        if len(finished):
            done.append((origin[finished], token[finished], state[finished]))
        on = np.flatnonzero(at < end)
        origin, token, state, at, end = origin[on], token[on], state[on], at[on], end[on]
        state = table[state * width + kind[tables.data[at]]].astype(np.int64)
        on = np.flatnonzero(state)
        origin, token, state, at, end = origin[on], token[on], state[on], at[on] + 1, end[on]
    if not done:
        none = np.zeros(0, np.int64)
        return none, none, none
    return tuple(np.concatenate(column) for column in zip(*done))  # type: ignore[return-value]
