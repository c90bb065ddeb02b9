"""`TokenFilter`: where a token sequence stands in its splitter, as states that are made when they are reached.

Together with the pair rule a filter says exactly which sequences an encoder makes. A state stands for all ways to read the cuts
of what was written so far (at most a few are alive). After a state and a token two states may follow: one if the pair rule allows
the last two tokens inside one piece, so that there may be a cut between them or none; one if it forbids them, so that there must
be a cut.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.automata.utf8_classes import BAD, utf8_classes
from fsa_compile.canonical.encoder.pair_rule import PairRule
from fsa_compile.canonical.encoder.splitter import Splitter
from fsa_compile.errors import LimitError

NONE = -1
"""No state: the sequence is not what the encoder makes of any text."""
START = 0
"""State before the first token of a text, and after a special token."""
_MAX_STATES = 100_000


class Moves(NamedTuple):
    """What follows a state: tokens by class.

    Attributes:
      class_of: int32[V], class of each token, -1 for tokens that cannot come next.
      allowed, forbidden: int32[K], next state of each class, after a pair that the rule allows or forbids; `NONE` for none.
    """

    class_of: np.ndarray
    allowed: np.ndarray
    forbidden: np.ndarray


class TokenFilter(abc.ABC):
    """The filter of one encoder."""

    _nodes: np.ndarray
    """int32[U, 256], the UTF-8 automaton."""

    def __init__(self, rule: PairRule) -> None:
        self.rule = rule
        self._moves: dict[int, Moves] = {}
        self._states: list[tuple[int, tuple[Any, ...]]] = []
        """Of each state its position, and what it knows beside it."""
        self._numbers: dict[tuple[int, tuple[Any, ...]], int] = {}

    @abc.abstractmethod
    def final(self, state: int) -> bool:
        """Whether a text may end here."""

    def position(self, state: int) -> int:
        """Node of the UTF-8 automaton, 0 between characters."""
        return self._states[state][0]

    @abc.abstractmethod
    def readings(self, state: int) -> list[tuple[int, int]]:
        """What a state knows beside its position, as pairs: of each way to read the cuts the state of the splitter and the node
        of the trie of whole tokens; or the nodes of the trie of cut pieces."""

    def bytes_left(self) -> np.ndarray:
        """int32[U], bytes that are left of the character at every node of the UTF-8 automaton."""
        nodes = self._nodes
        left = np.zeros(len(nodes), np.int32)
        for _ in range(3):
            after = np.where(nodes == BAD, 0, 1 + np.where(nodes > 0, left[np.where((nodes > 0) & (nodes != BAD), nodes, 0)], 0))
            left[1:] = after[1:].max(1)
        return left

    @abc.abstractmethod
    def number_as(self, positions: list[int], readings: list[list[tuple[int, int]]]) -> None:
        """Numbers states as they were numbered before; only a new filter can."""

    def forget(self, position: int) -> None:
        """Frees what is kept of a position inside a character."""
        del position

    def _number(self, node: int, known: tuple[Any, ...]) -> int:
        """The number of a state, which may be new."""
        found = self._numbers.get((node, known))
        if found is None:
            found = self._numbers[node, known] = len(self._states)
            self._states.append((node, known))
            if found > _MAX_STATES:
                fix = "Compile the constraint without canonical=True."
                raise LimitError("canonical filter states", _MAX_STATES, "following the splitter", fix=fix)
        return found

    @abc.abstractmethod
    def _new_moves(self, state: int) -> Moves: ...

    def moves(self, state: int) -> Moves:
        """What may follow a state."""
        found = self._moves.get(state)
        if found is None:
            found = self._moves[state] = self._new_moves(state)
        return found

    def step(self, state: int, last: int, token: int) -> int:
        """The state after a token; `NONE` if the sequence is then none the encoder makes.

        Args:
          state: before it.
          last: the token before it, -1 at the start.
          token: the token.
        """
        moves = self.moves(state)
        kind = int(moves.class_of[token])
        if kind < 0:
            return NONE
        apart = last >= 0 and bool(self.rule.forbidden(np.array(last), np.array(token)))
        return int(moves.forbidden[kind] if apart else moves.allowed[kind])

    def accepts(self, tokens: list[int]) -> bool:
        """Whether the encoder makes exactly these tokens of their text."""
        state, last = START, -1
        for token in tokens:
            state = self.step(state, last, token)
            if state == NONE:
                return False
            last = token
        return self.final(state)


class _Reading(NamedTuple):
    """One way to read the cuts: a state of the splitter, and where its piece stands in the trie of whole tokens."""

    splitter: int
    piece: int


_FREE, _SOLO, _FIRST = 0, 1, 2
"""Nodes of the trie: left it; the piece is a whole token; nothing was read yet, or a piece begins."""


class _Tokens(NamedTuple):
    """The tokens that can follow inside or between characters, by what they do: K classes.

    splitter: int16[K, S], splitter state after each one, -1 for none; node: int32[K], UTF-8 node; token: int32[K], the token
    itself for those that are not their own form or are edges of the trie, else -1; own: bool[K].
    """

    class_of: np.ndarray
    splitter: np.ndarray
    node: np.ndarray
    token: np.ndarray
    own: np.ndarray


class SplitterFilter(TokenFilter):
    """Byte-level encoders with a splitter.

    Where a piece of text that equals a token becomes that token even though merging does not reach it, such a token may stand
    only between two cuts, and what merging makes of it must not fill a piece alone: a trie follows the beginnings of pieces.

    Args:
      packed: all token bytes and their offsets, as `Vocabulary.packed`.
      whole_tokens: what merging makes of each such token; None where the encoder has no such rule.
    """

    def __init__(
        self,
        rule: PairRule,
        splitter: Splitter,
        packed: tuple[np.ndarray, np.ndarray],
        whole_tokens: dict[int, tuple[int, ...]] | None,
    ) -> None:
        super().__init__(rule)
        self._splitter = splitter
        self._data, self._offset = packed
        self._nodes = utf8_classes(splitter.class_of)
        self._live, self._alike = _states_inside(self._nodes, splitter.next)
        self._whole = whole_tokens is not None
        whole_tokens = whole_tokens or {}
        self._edges: dict[tuple[int, int], int] = {}
        self._terminal: set[int] = set()
        for pieces in whole_tokens.values():
            node = _FIRST
            for piece in pieces:
                node = self._edges.setdefault((node, piece), 3 + len(self._edges))
            self._terminal.add(node)
        self._listed = np.zeros(rule.vocab_size, bool)
        self._listed[[piece for _, piece in self._edges] + list(whole_tokens)] = True
        self._tokens: dict[int, _Tokens] = {}
        self._by_hash: dict[int, int] = {}
        """Number of each state that was looked up, by a 64-bit hash of it."""
        self._number(0, (_Reading(0, _FIRST),))

    def final(self, state: int) -> bool:
        node, readings = self._states[state]
        return node == 0 and any(self._splitter.final[r.splitter] and self._may_end(r.piece) for r in readings)

    def readings(self, state: int) -> list[tuple[int, int]]:
        return [(reading.splitter, reading.piece) for reading in self._states[state][1]]

    def forget(self, position: int) -> None:
        self._tokens.pop(position, None)
        for state, (node, _) in enumerate(self._states):
            if node == position:
                self._moves.pop(state, None)

    def number_as(self, positions: list[int], readings: list[list[tuple[int, int]]]) -> None:
        for position, pairs in zip(positions, readings):
            self._number(position, tuple(_Reading(*pair) for pair in pairs))

    def _may_end(self, piece: int) -> bool:
        return piece not in self._terminal

    def _new_moves(self, state: int) -> Moves:
        node, readings = self._states[state]
        tokens = self._tokens.get(node)
        if tokens is None:
            tokens = self._tokens[node] = self._read_tokens(node)
        cut = [self._after(tokens, self._splitter.cut[r.splitter], _FIRST) for r in readings if self._may_cut(node, r)]
        joined = [self._after(tokens, r.splitter, r.piece) for r in readings if r.piece != _SOLO]
        forbidden = self._numbered(tokens, cut)
        return Moves(tokens.class_of, self._numbered(tokens, cut + joined), forbidden)

    def _may_cut(self, node: int, reading: _Reading) -> bool:
        return node == 0 and self._may_end(reading.piece) and self._splitter.cut[reading.splitter] >= 0

    def _after(self, tokens: _Tokens, splitter: int, piece: int) -> np.ndarray:
        """Reading after each class of tokens, as splitter + S * piece, -1 for none."""
        states = tokens.splitter[:, splitter].astype(np.int64)
        alive = (states >= 0) & self._live[tokens.node, states]
        states = self._alike[tokens.node, states]
        if piece != _FIRST or not self._whole:
            alive &= tokens.own
        pieces = np.zeros(len(states), np.int64)
        if piece != _FREE:
            for k in np.flatnonzero(alive & (tokens.token >= 0)).tolist():
                pieces[k] = self._edges.get((piece, int(tokens.token[k])), _FREE) if tokens.own[k] else _SOLO
        return np.where(alive, states + self._live.shape[1] * pieces, NONE)

    def _numbered(self, tokens: _Tokens, columns: list[np.ndarray]) -> np.ndarray:
        out = np.full(len(tokens.node), NONE, np.int32)
        if not columns:
            return out
        size = self._live.shape[1]
        rows = np.sort(np.stack(columns, 1), axis=1)
        rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = NONE  # a reading counts once
        some = np.flatnonzero((rows >= 0).any(1))
        key = np.where(rows[some] >= 0, _mixed(rows[some]), np.uint64(0)).sum(1, dtype=np.uint64)
        key += _mixed(tokens.node[some].astype(np.int64) + (1 << 40))
        distinct, first, kind = np.unique(key, return_index=True, return_inverse=True)
        numbers = [self._by_hash.get(h, NONE) for h in distinct.tolist()]
        for i, number in enumerate(numbers):
            if number == NONE:
                k = some[first[i]]
                readings = tuple(_Reading(code % size, code // size) for code in sorted(rows[k].tolist()) if code >= 0)
                numbers[i] = self._by_hash[int(distinct[i])] = self._number(int(tokens.node[k]), readings)
        out[some] = np.array(numbers, np.int32)[kind.ravel()]
        return out

    def _read_tokens(self, node: int) -> _Tokens:
        """What every token does from a UTF-8 node, for all states of the splitter at once."""
        size = len(self._splitter.next)
        length = np.diff(self._offset)
        token = np.flatnonzero(length > 0)
        if node:
            token = token[self._nodes[node, self._data[self._offset[token]]] != BAD]
        state = np.tile(np.arange(size, dtype=np.int16), (len(token), 1))
        at = np.full(len(token), node, np.int32)
        # One row more for dead threads: index -1 reads it.
        table = np.concatenate([self._splitter.next, np.full((1, self._splitter.next.shape[1]), NONE)]).astype(np.int16)
        live = np.arange(len(token))
        for position in range(int(length[token].max(initial=0))):
            live = live[length[token[live]] > position]
            after = self._nodes[at[live], self._data[self._offset[token[live]] + position]]
            done = live[after < 0]
            state[done] = table[state[done], ~after[after < 0][:, None]]
            state[live[after == BAD]] = NONE
            at[live] = np.maximum(after, 0)
            live = live[after != BAD]
        at[(state == NONE).all(1)] = 0
        own = self.rule.own[token]
        alone = np.where(self._listed[token], token, -1)
        chosen, kind = _distinct_rows(state, at, alone, own)
        class_of = np.full(self.rule.vocab_size, -1, np.int32)
        class_of[token] = kind
        return _Tokens(class_of, state[chosen], at[chosen], alone[chosen], own[chosen])


def _mixed(values: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each number that is not negative."""
    out = (values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    out ^= out >> np.uint64(29)
    out *= np.uint64(0x94D049BB133111EB)
    return out ^ (out >> np.uint64(32))


def _distinct_rows(state: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One example of each kind of row, and the kind of every row."""
    if not len(state):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    every = np.concatenate([state.astype(np.int64), *(column.astype(np.int64)[:, None] for column in columns)], 1)
    weights = np.random.default_rng(5).integers(1, 1 << 62, every.shape[1]) * 2 + 1
    _, chosen, kind = np.unique(every @ weights, return_index=True, return_inverse=True)
    kind = kind.ravel()
    if (every != every[chosen[kind]]).any():
        raise RuntimeError("two kinds of tokens share a 64-bit hash")
    return chosen, kind


def _states_inside(nodes: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the splitter's states are worth inside a character, of which only the class is still to come.

    Returns:
      bool[U, S]: whether some character can be completed from a UTF-8 node in a state; and int16[U, S]: the least state that goes
      on as this one does.
    """
    reach = np.zeros((len(nodes), step.shape[1]), bool)
    node, byte = np.nonzero((nodes >= 0) & (nodes != BAD))
    ends, last = np.nonzero(nodes < 0)
    reach[ends, ~nodes[ends, last]] = True
    for _ in range(2):  # a character has at most four bytes, so at most two more lie between its first and its last
        np.logical_or.at(reach, node, reach[nodes[node, byte]])
    live = np.ones((len(nodes), len(step)), bool)  # between characters the text may also end
    alike = np.tile(np.arange(len(step), dtype=np.int16), (len(nodes), 1))
    for at in range(1, len(nodes)):
        after = step[:, reach[at]]
        _, first, kind = np.unique(after, axis=0, return_index=True, return_inverse=True)
        live[at], alike[at] = (after >= 0).any(1), first[kind.ravel()]
    return live, alike
