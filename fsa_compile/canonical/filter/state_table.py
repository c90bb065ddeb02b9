"""`FilterTable`: all states of a tokenizer's filter, numbered, with what every token leads to, as arrays for walks and devices.

A filter has some thousand states and a vocabulary a hundred thousand tokens, but tokens between characters fall into few classes,
and inside a character only few tokens can follow. So a state's row of next states is indexed by class, cut into blocks, and equal
blocks are stored once.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from functools import cached_property

import numpy as np

from fsa_compile.canonical.filter.token_filter import NONE, START, TokenFilter

BLOCK = 64
"""Classes per block."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FilterTable:
    """The states of a filter that token sequences reach, `START` first.

    Axes: X states, V tokens, N positions (0 lies between two characters, others inside of one), T tokens that begin inside a
    character, G blocks of a row, P distinct blocks.

    Attributes:
      position: int32[X].
      final: bool[X], whether a text may end in the state.
      kind: int32[V], class of each token between characters.
      inner: int32[V], number of each token among those that begin inside a character, from 1; 0 for others.
      inner_kind: int32[N, T + 1], class of each of these by position.
      left: int32[N], bytes that are left of the character.
      block: int32[X, 2, G], blocks of each state's row, for pairs that the rule allows and for those that it forbids.
      target: int32[P, BLOCK], next state of each class, `NONE` for none.
      reading_offset: int32[X + 1]; reading: int32[*, 2], how the cuts of each state are read, where there is a splitter.
    """

    position: np.ndarray
    final: np.ndarray
    kind: np.ndarray
    inner: np.ndarray
    inner_kind: np.ndarray
    left: np.ndarray
    block: np.ndarray
    target: np.ndarray
    reading_offset: np.ndarray
    reading: np.ndarray

    @property
    def num_states(self) -> int:
        """X."""
        return len(self.position)

    def step(self, state: int, token: int, apart: bool) -> int:
        """The state after a token, `NONE` for none; `apart` says whether the pair rule forbids it after the last one."""
        position = self.position[state]
        kind = self.inner_kind[position, self.inner[token]] if position else self.kind[token]
        return int(self.target[self.block[state, int(apart), kind // BLOCK], kind % BLOCK])

    @cached_property
    def _alive(self) -> np.ndarray:
        """uint64[P], classes of each block that lead somewhere."""
        return np.packbits(self.target >= 0, axis=1, bitorder="little").view("<u8").ravel()

    @cached_property
    def _behaviours(self) -> tuple[np.ndarray, np.ndarray]:
        """An example of each behaviour, and the behaviour of each state."""
        left = self.left[self.position]
        alive = self._alive[self.block].reshape(self.num_states, -1)
        key = np.concatenate([self.position[:, None].astype(np.uint64), self.final[:, None].astype(np.uint64), alive], 1)
        first, kind = distinct_rows(key)
        # Inside a character it also counts what a token leads to; fewer bytes are left there, so fewer such states come first.
        for depth in range(1, int(left.max(initial=0)) + 1):
            _, like = distinct_rows(np.append(kind, NONE)[self.target])
            inside = np.flatnonzero(left == depth)
            rows = np.concatenate([kind[inside, None], like[self.block[inside]].reshape(len(inside), -1)], 1)
            kind[inside] = self.num_states * depth + distinct_rows(rows)[1]
        _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
        return first, kind.ravel()

    @property
    def behaviour(self) -> np.ndarray:
        """int64[X], number of what may follow a state until the next character begins: position, whether it is final, tokens of
        both kinds; and inside a character the behaviours that these lead to."""
        return self._behaviours[1]

    @property
    def example(self) -> np.ndarray:
        """int64[*], a state of each behaviour."""
        return self._behaviours[0]

    def leads_to(self, state: int, chosen: np.ndarray) -> np.ndarray:
        """bool[2, V], the tokens that lead to chosen states (bool[X]) after an allowed and after a forbidden pair."""
        position = self.position[state]
        kind = self.inner_kind[position][self.inner] if position else self.kind
        after = self.target[self.block[state]].reshape(2, -1)
        return ((after >= 0) & chosen[after])[:, kind]

    def may_follow(self, state: int) -> np.ndarray:
        """bool[2, V], the tokens that lead somewhere after an allowed and after a forbidden pair."""
        position = self.position[state]
        kind = self.inner_kind[position][self.inner] if position else self.kind
        return self.target[self.block[state]].reshape(2, -1)[:, kind] >= 0


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One index of each kind of row, and the kind of each row."""
    rows = np.ascontiguousarray(rows)
    _, first, kind = np.unique(
        rows.view([("", np.void, rows.dtype.itemsize * rows.shape[1])]).ravel(), return_index=True, return_inverse=True
    )
    return first, kind.ravel()


def filter_table(token_filter: TokenFilter, special: np.ndarray) -> FilterTable:
    """Finds all states.

    Args:
      token_filter: as it was made, or one that numbers its states as the table then does.
      special: bool[V], tokens that write nothing: each is a cut of its own where a text may end.
    """
    rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    classes: dict[int, np.ndarray] = {}
    waiting: dict[int, list[int]] = defaultdict(list, {0: [START]})
    found = {START}
    while waiting:
        position = min(waiting)
        for state in waiting.pop(position):
            moves = token_filter.moves(state)
            if position not in classes:
                classes[position] = moves.class_of + 1
            mark = [NONE, START if token_filter.final(state) else NONE]
            branches = moves.allowed, moves.forbidden
            allowed, forbidden = (np.concatenate([mark[:1], x, mark[1:]]).astype(np.int32) for x in branches)
            rows[state] = allowed, forbidden
            for after in np.unique(np.concatenate(branches)).tolist():
                if after >= 0 and after not in found:
                    found.add(after)
                    waiting[token_filter.position(after)].append(after)
        if position:
            token_filter.forget(position)
    order = sorted(found)
    if order != list(range(len(order))):
        raise RuntimeError("the filter numbered states that cannot be reached")
    kind = classes[0].astype(np.int32)
    kind[special] = len(rows[START][0]) - 1
    begins = np.zeros(len(kind), bool)
    at = np.array([token_filter.position(state) for state in order])
    for position, of in classes.items():
        if position:
            leads = np.any([rows[state][0] >= 0 for state in np.flatnonzero(at == position).tolist()], axis=0)
            begins |= leads[of] & ~special
    inside = np.flatnonzero(begins)
    inner = np.zeros(len(kind), np.int32)
    inner[inside] = 1 + np.arange(len(inside))
    inner_kind = np.zeros((max(classes) + 1, len(inside) + 1), np.int32)
    for position, of in classes.items():
        if position:
            inner_kind[position, 1:] = np.where(special[inside], 0, of[inside])
    width = max(len(row[0]) for row in rows.values())
    block, target = _blocks([rows[state] for state in order], -(-width // BLOCK))
    readings = [token_filter.readings(state) for state in order]
    return FilterTable(
        position=at.astype(np.int32),
        final=np.array([token_filter.final(state) for state in order]),
        kind=kind,
        inner=inner,
        inner_kind=inner_kind,
        left=token_filter.bytes_left()[: len(inner_kind)],
        block=block,
        target=target,
        reading_offset=np.cumsum([0, *map(len, readings)]).astype(np.int32),
        reading=np.array([pair for each in readings for pair in each], np.int32).reshape(-1, 2),
    )


def _blocks(rows: list[tuple[np.ndarray, np.ndarray]], groups: int) -> tuple[np.ndarray, np.ndarray]:
    number: dict[bytes, int] = {}
    parts: list[np.ndarray] = []
    block = np.zeros((len(rows), 2, groups), np.int32)
    empty = np.full(groups * BLOCK, NONE, np.int32)
    for at, pair in enumerate(rows):
        for branch, row in enumerate(pair):
            padded = empty.copy()
            padded[: len(row)] = row
            for g, part in enumerate(padded.reshape(groups, BLOCK)):
                key = part.tobytes()
                known = number.get(key)
                if known is None:
                    known = number[key] = len(parts)
                    parts.append(part)
                block[at, branch, g] = known
    return block, np.stack(parts)
