"""TEXT_TOKEN and PARAGRAPH_TOKEN: arcs that read any one token, made deterministic together with those that read bytes.

A token may continue the bytes of the text before it and also be "any token", so that states of the result are sets. The text
has to be UTF-8 as a whole: a character may be split between neighbouring any-tokens, and nowhere else beside one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.ranges import segment_sizes, segment_starts
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.composition.regular.trie_walk import TokenArcs, walk_tokens
from fsa_compile.composition.tokens.class_walk import NARROW
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "Making the constraint deterministic token by token"

_Members = frozenset[tuple[int, int]]
"""States at once: (state of the automaton, state of the character that is not complete or 0)."""


class _Tokens(NamedTuple):
    """Outgoing tokens of one state: bit rows and single tokens with what they lead to."""

    rows: list[tuple[np.ndarray, tuple[int, int]]]
    token: np.ndarray
    target: list[tuple[int, int]]


def with_any_tokens(
    dfa: ByteDfa,
    arcs: TokenArcs,
    wild: list[tuple[int, bool, int]],
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
) -> tuple[ByteDfa, TokenArcs]:
    """The deterministic token automaton of byte arcs and any-token arcs.

    Args:
      dfa: the byte automaton; `arcs` are its tokens.
      wild: (state, whether the token may hold no line break, next state).

    Returns:
      An automaton whose start and final states count (it has no byte arcs), and the tokens of its states.

    Raises:
      LimitError: too many states, or too much time or memory.
    """
    walk = _Subsets(dfa, arcs, wild, tables, deadline)
    first: _Members = frozenset({(dfa.start, 0)})
    ids: dict[_Members, int] = {frozenset(): 0, first: 1}
    todo = [first]
    single: list[tuple[int, np.ndarray, int]] = []
    by_row: list[tuple[int, int, int]] = []
    sets: list[np.ndarray] = []
    for number, members in enumerate(todo, 1):
        deadline.check(_DOING)
        for row, tokens, after in walk.partition(members):
            goal = ids.setdefault(after, len(ids))
            if goal == len(todo) + 1:
                todo.append(after)
            if row is None:
                single.append((number, tokens, goal))
            else:
                by_row.append((number, goal, len(sets)))
                sets.append(row)
        if len(ids) > limits.max_states:
            raise LimitError("max_states", limits.max_states, _DOING)
        deadline.check_bytes(len(sets) * tables.num_words * 4, _DOING)
    final = np.array([False, *(any(dfa.final[q] and not u for q, u in members) for members in todo)])
    S = len(final)
    carrier = ByteDfa(table=np.zeros((S, 1), np.int32), byte_class=np.zeros(256, np.uint8), final=final, start=1)
    count = [len(tokens) for _, tokens, _ in single]
    row_state, row_target, row_set = np.array(by_row, np.int64).reshape(-1, 3).T
    return carrier, TokenArcs(
        state=np.repeat(np.array([s for s, _, _ in single], np.int64), count),
        token=np.concatenate([np.zeros(0, np.int64), *(tokens for _, tokens, _ in single)]),
        target=np.repeat(np.array([t for _, _, t in single], np.int64), count),
        row_state=row_state,
        row_target=row_target,
        row_set=row_set,
        sets=sets,
        hashes=np.array([tables.row_hash(row) for row in sets], np.uint64),
    )


class _Subsets:
    """What sets of states read, token by token."""

    def __init__(
        self, dfa: ByteDfa, arcs: TokenArcs, wild: list[tuple[int, bool, int]], tables: VocabularyTables, deadline: Deadline
    ) -> None:
        self._tables, self._arcs = tables, arcs
        order = np.argsort(arcs.state, kind="stable")
        self._token, self._target = arcs.token[order], arcs.target[order]
        self._begin = np.searchsorted(arcs.state[order], np.arange(dfa.num_states + 1))
        self._row_order = np.argsort(arcs.row_state, kind="stable")
        self._row_begin = np.searchsorted(arcs.row_state[self._row_order], np.arange(dfa.num_states + 1))
        self._wild: dict[int, list[tuple[bool, int]]] = {}
        for q, no_breaks, r in wild:
            self._wild.setdefault(q, []).append((no_breaks, r))
        self._steps = _character_steps(tables, deadline)
        self._alive = self._alive_inside()
        self._outgoing: dict[tuple[int, int], _Tokens] = {}

    def _alive_inside(self) -> set[tuple[int, int]]:
        """(state, incomplete character) from which any-tokens can complete the character."""
        inside = sorted({u for steps in self._steps for u, _, _ in steps} - {0})
        alive: set[tuple[int, int]] = set()
        before = -1
        while len(alive) > before:
            before = len(alive)
            for q, out in self._wild.items():
                for u in inside:
                    if any(u == a and (b == 0 or (r, b) in alive) for n, r in out for a, b, _ in self._steps[n]):
                        alive.add((q, u))
        return alive

    def _tokens_of(self, state: tuple[int, int]) -> _Tokens:
        found = self._outgoing.get(state)
        if found is not None:
            return found
        q, inside = state
        rows: list[tuple[np.ndarray, tuple[int, int]]] = []
        token: np.ndarray = np.zeros(0, np.int64)
        target: list[tuple[int, int]] = []
        if not inside:
            lo, hi = self._begin[q], self._begin[q + 1]
            token, target = self._token[lo:hi], [(r, 0) for r in self._target[lo:hi].tolist()]
            for i in self._row_order[self._row_begin[q] : self._row_begin[q + 1]].tolist():
                rows.append((self._arcs.sets[self._arcs.row_set[i]], (int(self._arcs.row_target[i]), 0)))
        for no_breaks, r in self._wild.get(q, ()):
            for u, after, row in self._steps[no_breaks]:
                if u == inside and (not after or (r, after) in self._alive):
                    rows.append((row, (r, after)))
        found = self._outgoing[state] = _Tokens(rows, token, target)
        return found

    def partition(self, members: _Members) -> list[tuple[np.ndarray | None, np.ndarray, _Members]]:
        """Disjoint token sets and the states that each leads to: (bit row, or None for a list), list, states."""
        parts: list[tuple[np.ndarray, _Members]] = []
        tokens, targets = [], []
        numbers: dict[tuple[int, int], int] = {}
        for state in sorted(members):
            out = self._tokens_of(state)
            for row, target in out.rows:
                parts = _refined(parts, row, frozenset({target}))
            tokens.append(out.token)
            targets += [numbers.setdefault(t, len(numbers)) for t in out.target]
        listed = _by_targets(np.concatenate(tokens), np.array(targets, np.int64), list(numbers))
        taken = self._tables.pack(np.concatenate([t for t, _ in listed])) if listed else None
        groups: dict[_Members, tuple[list[np.ndarray], list[np.ndarray]]] = {}
        for row, after in parts:
            if taken is not None:
                for chosen, more in listed:
                    both = chosen[_has(row, chosen)]
                    if len(both):
                        groups.setdefault(after | more, ([], []))[1].append(both)
                row = row & ~taken
            groups.setdefault(after, ([], []))[0].append(row)
        for chosen, more in listed:
            alone = np.ones(len(chosen), bool)
            for row, _ in parts:
                alone &= ~_has(row, chosen)
            if alone.any():
                groups.setdefault(more, ([], []))[1].append(chosen[alone])
        return [found for after, group in groups.items() if (found := self._token_set(*group, after)) is not None]

    def _token_set(
        self, rows: list[np.ndarray], lists: list[np.ndarray], after: _Members
    ) -> tuple[np.ndarray | None, np.ndarray, _Members] | None:
        """One token set as a bit row when it is large, else as a list; None when it is empty."""
        tokens = np.concatenate([np.zeros(0, np.int64), *lists])
        if rows:
            row = np.bitwise_or.reduce([*rows, self._tables.pack(tokens)])
            if int(np.bitwise_count(row).sum()) > NARROW:
                return row, tokens, after
            tokens = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        return (None, tokens, after) if len(tokens) else None


def _refined(parts: list[tuple[np.ndarray, _Members]], row: np.ndarray, target: _Members) -> list[tuple[np.ndarray, _Members]]:
    """Disjoint rows after adding one more row with its target."""
    out = []
    for other, after in parts:
        both = other & row
        if both.any():
            out.append((both, after | target))
            rest = other & ~row
            if rest.any():
                out.append((rest, after))
            row = row & ~both
        else:
            out.append((other, after))
    if row.any():
        out.append((row, target))
    return out


def _by_targets(
    token: np.ndarray, target: np.ndarray, names: list[tuple[int, int]]
) -> list[tuple[np.ndarray, _Members]]:
    """Tokens by the set of targets that they lead to."""
    if not len(token):
        return []
    key = np.unique(token * len(names) + target)
    token, target = key // len(names), key % len(names)
    begin = segment_starts(token)
    size = segment_sizes(begin, len(token))
    groups: dict[tuple[int, ...], list[int]] = {}
    once = size == 1
    for t, c in zip(target[begin[once]].tolist(), token[begin[once]].tolist()):
        groups.setdefault((t,), []).append(c)
    for b, n in zip(begin[~once].tolist(), size[~once].tolist()):
        groups.setdefault(tuple(target[b : b + n].tolist()), []).append(int(token[b]))
    return [(np.array(tokens), frozenset(names[t] for t in goals)) for goals, tokens in groups.items()]


def _has(row: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Which tokens a bit row contains."""
    return (row[tokens >> 5] >> (tokens & 31).astype(np.uint32) & 1).astype(bool)


def _character_steps(tables: VocabularyTables, deadline: Deadline) -> tuple[list[tuple[int, int, np.ndarray]], ...]:
    """Tokens by what they do to an incomplete character, all of them and those without line breaks.

    Returns:
      Lists of (incomplete character before, after, bit row); 0 is "none". Index 0: all tokens; 1: without line breaks.
    """
    from fsa_compile.automata.boolean import universal_text

    text = universal_text()
    arcs = walk_tokens(text, tables, deadline)
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    for q, r, s in zip(arcs.row_state.tolist(), arcs.row_target.tolist(), arcs.row_set.tolist()):
        found.setdefault((q, r), []).append(arcs.sets[s])
    pair = arcs.state * text.num_states + arcs.target
    for key in np.unique(pair).tolist():
        row = tables.pack(arcs.token[pair == key])
        found.setdefault(divmod(key, text.num_states), []).append(row)
    breaks = _tokens_with(tables, b"\n\r")
    number = {text.start: 0}
    for q, r in sorted(found):
        for state in (q, r):
            number.setdefault(state, len(number))
    every = [(number[q], number[r], np.bitwise_or.reduce(rows)) for (q, r), rows in sorted(found.items())]
    return every, [(q, r, row & ~breaks) for q, r, row in every]


def _tokens_with(tables: VocabularyTables, forbidden: bytes) -> np.ndarray:
    """Bit row of the tokens that hold one of some bytes."""
    at = np.isin(tables.data, np.frombuffer(forbidden, np.uint8)).nonzero()[0]
    return tables.pack(np.unique(np.searchsorted(tables.offset, at, side="right") - 1))
