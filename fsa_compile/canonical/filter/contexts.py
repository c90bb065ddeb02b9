"""`Contexts`: what may follow a token, whatever stood before it.

A token leaves the filter in one of a few states, depending on what came before. So it can be said of most pairs of tokens that
the second may *always* follow the first, or that it *never* may, without knowing more; the compiler proves with the one that
texts can be completed, and with the other that they cannot.

States that allow the same at once are one *behaviour*. The behaviours that a token can lead to, split by the bytes that are left
of a character (the *depth*; 0 is between two characters), are its *surroundings*, numbered per depth. Together with the token's
forbidden set they are its *context*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.ranges import joined
from fsa_compile.artifact.bitmask import holds, packed
from fsa_compile.canonical.encoder.pair_rule import PairRule
from fsa_compile.canonical.filter.row_facts import KnownRows
from fsa_compile.canonical.filter.state_sets import StateSets
from fsa_compile.canonical.filter.state_table import BLOCK, FilterTable

DEPTHS = 4
ALL, ALL_APART, ANY, ANY_APART = 1, 2, 4, 8
"""Bits of `Contexts.follows`."""
ANYWHERE = -1
_MOST_COLUMNS = 2048
_MOST_UNIONS = 256
_MOST_HOLDING = 128
_MOST_BLOCKS = 512
_MOST_STEPS = 1 << 16


class _Follows(NamedTuple):
    """Of one depth: bits by surroundings and column of the next token, uint8[S, C]; column of each token, int32[V]; and
    surroundings in which a text may end always, and sometimes, bool[S]."""

    bits: np.ndarray
    column: np.ndarray
    all_final: np.ndarray
    any_final: np.ndarray


class Contexts:
    """The surroundings of all tokens of one tokenizer.

    Attributes:
      after: int32[DEPTHS, V], surroundings of each token at each depth, 0 where it leads to none.
      tail: int32[V], the depth that a token leads to whatever came before; -1 where that depends, -2 where it leads nowhere.
      order: int64[V], all tokens: of those that may follow the same surroundings first the ones that few tokens forbid, these
        before all second ones, and so on.
    """

    def __init__(self, states: FilterTable, rule: PairRule, length: np.ndarray) -> None:
        self._states, self.rule, self.length = states, rule, length
        depth = states.left[states.position[states.example]]
        numbers = self._number_surroundings(depth)
        self._of_depth = [self._follows(d, list(numbers[d]), depth) for d in range(DEPTHS)]
        self.class_of = np.where(states.inner > 0, int(states.kind.max()) + states.inner, states.kind)
        """int32[V], equal for tokens that lead from every state to the same ones."""
        self.num_classes = int(self.class_of.max()) + 1
        self._example = np.zeros(self.num_classes, np.int64)
        self._example[self.class_of] = np.arange(len(self.class_of))
        self._join_depths()
        self.single = np.array([self.base[d] + numbers[d][b,] for b, d in enumerate(depth.tolist())])
        self.members = [behaviours for each in numbers for behaviours in each]
        """The behaviours of all surroundings."""
        self._order_tokens()
        self._columns: dict[int, np.ndarray] = {}
        self._unions: dict[bytes, np.ndarray] = {}
        self._holding: dict[int, np.ndarray] = {}
        self._counts: dict[bytes, np.ndarray] = {}
        self._held: dict[tuple[bytes, bytes], np.ndarray] = {}
        self._inside = [self._inside_of(d) for d in range(DEPTHS)]
        self._inside_follows: dict[int, np.ndarray] = {}
        self._inside_unions: dict[tuple[int, bytes], np.ndarray] = {}
        self._states_after: dict[tuple[int, int], frozenset[int]] = {}
        self._then: dict[tuple[int, int, int, bool], frozenset[int]] = {}
        self._joined: dict[tuple[int, ...], tuple[np.ndarray, bool, bool]] = {}
        self.place_of = list(zip(states.behaviour.tolist(), states.left[states.position].tolist()))
        """Behaviour and depth of each state."""
        self._state_sets = StateSets(self.num_classes, self.states_after, self.place_of)

    def _number_surroundings(self, depth: np.ndarray) -> list[dict[tuple[int, ...], int]]:
        """Numbers the surroundings of each depth, those of single behaviours and of all tokens (`after`), by their behaviours."""
        numbers: list[dict[tuple[int, ...], int]] = [{(): 0} for _ in range(DEPTHS)]
        for behaviour, d in enumerate(depth.tolist()):
            numbers[d].setdefault((behaviour,), len(numbers[d]))
        self.after = np.zeros((DEPTHS, len(self._states.kind)), np.int32)
        known: dict[tuple[int, ...], list[int]] = {}
        for tokens, found in self._following(depth):
            numbered = known.get(found)
            if numbered is None:
                parts: list[list[int]] = [[] for _ in range(DEPTHS)]
                for behaviour in found:
                    parts[depth[behaviour]].append(behaviour)
                numbered = known[found] = [numbers[d].setdefault(tuple(p), len(numbers[d])) for d, p in enumerate(parts)]
            self.after[:, tokens] = np.array(numbered, np.int32)[:, None]
        return numbers

    def _join_depths(self) -> None:
        """What is known of the surroundings of each depth, for all of them, numbered one depth after the other."""
        self.width = max(part.bits.shape[1] for part in self._of_depth)
        base = np.cumsum([0, *(len(part.bits) for part in self._of_depth)])
        self.base = base[:-1].astype(np.int64)
        """Where the surroundings of each depth begin, where all are numbered."""
        self.follows = np.zeros((int(base[-1]), self.width), np.uint8)
        for begin, part in zip(base.tolist(), self._of_depth):
            self.follows[begin : begin + len(part.bits), : part.bits.shape[1]] = part.bits
        self.all_final = np.concatenate([part.all_final for part in self._of_depth])
        self.any_final = np.concatenate([part.any_final for part in self._of_depth])
        self.column = np.stack([part.column for part in self._of_depth])
        self._flat = self.after.ravel(), self.column.ravel()
        self.ending = packed(self.all_final[self.base[0] + self.after[0]] & (self.after[0] > 0))
        every = self.follows & (ALL | ALL_APART) != self.follows >> 2
        self.ambiguous = every.any(1) | (self.all_final != self.any_final)

    def _order_tokens(self) -> None:
        """The tokens by where they lead, and in the order in which they are tried."""
        single = (self.after > 0).sum(0)
        self.tail = np.select([single == 1, single > 1], [np.argmax(self.after > 0, 0), -1], -2).astype(np.int32)
        self.between = packed(self.tail == 0)
        self.elsewhere = packed((self.tail == -1) | (self.tail > 0))
        by_column = np.lexsort((self.rule.holders, self.column[0]))
        first = np.searchsorted(self.column[0][by_column], self.column[0][by_column])
        columns = np.arange(self._of_depth[0].bits.shape[1] + 1)
        self._by_column, self._column_begin = by_column, np.searchsorted(self.column[0][by_column], columns)
        # Where the filter was trimmed, some columns have no token any more.
        self._filled = np.flatnonzero(np.diff(self._column_begin))
        self.order = by_column[np.argsort(np.arange(len(by_column)) - first, kind="stable")]
        self.rank = np.empty(len(by_column), np.int64)
        self.rank[self.order] = np.arange(len(by_column))
        self.rows = KnownRows(self.class_of, self.elsewhere, self.order, self.rank)

    def of_state(self, state: int) -> int:
        """The surroundings of one state of the filter, numbered among all."""
        return int(self.single[self._states.behaviour[state]])

    def depth_of(self, surroundings: int) -> int:
        """The depth of surroundings, numbered among all."""
        return int(np.searchsorted(self.base, surroundings, side="right")) - 1

    def after_at(self, depth: np.ndarray, token: np.ndarray) -> np.ndarray:
        """int32[n], `after` of tokens at depths."""
        return self._flat[0].take(depth * self.after.shape[1] + token)

    def column_at(self, depth: np.ndarray, token: np.ndarray) -> np.ndarray:
        """int32[n], `column` of tokens at depths."""
        return self._flat[1].take(depth * self.column.shape[1] + token)

    def alone(self, surroundings: int) -> np.ndarray:
        """int64[n], the surroundings of single behaviours that make up some."""
        return self.single[list(self.members[surroundings])]

    def joined(self, behaviours: tuple[int, ...]) -> tuple[np.ndarray, bool, bool]:
        """A row of `follows` and whether a text may end always, and sometimes, for any behaviours of one depth."""
        known = self._joined.get(behaviours)
        if known is not None:
            return known
        if len(self._joined) >= _MOST_STEPS:
            self._joined.clear()
        alone = self.single[list(behaviours)]
        rows = self.follows[alone]
        every, some = np.bitwise_and.reduce(rows), np.bitwise_or.reduce(rows)
        final = self.all_final[alone]
        row = (every & (ALL | ALL_APART)) | (some & (ANY | ANY_APART))
        known = self._joined[behaviours] = row, bool(final.all()), bool(final.any())
        return known

    def inside(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Contexts at a depth inside a character: tokens, ascending, and the surroundings of one behaviour, int64[n] each."""
        return self._inside[depth]

    def following_inside(self, depth: int, tokens: np.ndarray) -> np.ndarray:
        """bool[n], which of these contexts some token may follow; tokens that do not begin inside a character follow none."""
        found = self._inside_follows.get(depth)
        count = len(self._inside[depth][0])
        if found is None:
            before, surroundings = self._inside[depth]
            begin = np.zeros(int(self._states.inner.max(initial=0)) + 1, np.int64)
            begin[self._states.inner] = np.arange(len(self._states.inner))
            bits = self.follows[surroundings[None], self.column[depth, begin][:, None]]
            sets, of = np.unique(self.rule.set_of[before], return_inverse=True)
            apart = self.rule.set_holds(sets[None], begin[:, None])[:, of.ravel()]
            found = (bits & np.where(apart, np.uint8(ALL_APART), np.uint8(ALL))) > 0
            found[0] = False
            padded = np.zeros((len(found), -(-count // 64) * 64), bool)
            padded[:, :count] = found
            found = self._inside_follows[depth] = np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
        begins = np.zeros(len(found), bool)
        begins[self._states.inner[tokens]] = True
        begins[0] = False
        key = depth, begins.tobytes()
        some = self._inside_unions.get(key)
        if some is None:
            if len(self._inside_unions) >= _MOST_UNIONS:
                self._inside_unions.pop(next(iter(self._inside_unions)), None)
            some = self._inside_unions[key] = np.bitwise_or.reduce(found[begins], axis=0)
        return np.unpackbits(some.view(np.uint8), bitorder="little", count=count).view(bool)

    def state_sets(self) -> StateSets:
        """The sets of states that were met so far, or new ones where these are many."""
        if self._state_sets.is_large:
            self._state_sets = StateSets(self.num_classes, self.states_after, self.place_of)
        return self._state_sets

    def states_after(self, state: int, kind: int) -> frozenset[int]:
        """States of the filter that tokens of a class may lead to from one; `ANYWHERE - d` stands for any state at depth d."""
        found = self._states_after.get((state, kind))
        if found is None:
            if len(self._states_after) >= _MOST_STEPS:
                self._states_after.clear()
            s = self._states
            token = int(self._example[kind])
            inner = int(s.inner[token])
            every = np.flatnonzero(s.left[s.position] == ANYWHERE - state) if state < 0 else np.array([state])
            position = s.position[every]
            kinds = np.where(position > 0, s.inner_kind[position, inner], s.kind[token])
            targets = s.target[s.block[every, :, kinds // BLOCK], (kinds % BLOCK)[:, None]]
            found = self._states_after[state, kind] = frozenset(np.unique(targets[targets >= 0]).tolist())
        return found

    def behaviours_then(self, behaviour: int, before: int, token: int, apart: bool) -> frozenset[int]:
        """The behaviours that a token leads to from those states of one that a token before it may lead to (-1 for all of its
        states), after a pair that the rule allows or forbids."""
        kind = int(self.class_of[before]) if before >= 0 else -1
        key = behaviour, kind, int(self.class_of[token]), apart
        found = self._then.get(key)
        if found is None:
            if len(self._then) >= _MOST_STEPS:
                self._then.clear()
            if kind < 0:
                states = np.flatnonzero(self._states.behaviour == behaviour)
            else:
                every = frozenset[int]().union(*(self.states_after(ANYWHERE - depth, kind) for depth in range(DEPTHS)))
                states = np.array([state for state in every if self.place_of[state][0] == behaviour], np.int64)
            found = self._then[key] = frozenset(self.behaviours_after(states, token, apart).tolist())
        return found

    def states_in(self, behaviours: Sequence[int]) -> list[int]:
        """All states of some behaviours."""
        chosen = np.zeros(len(self._states.example), bool)
        chosen[list(behaviours)] = True
        return chosen[self._states.behaviour].nonzero()[0].tolist()

    def behaviours_after(self, states: np.ndarray, token: int, apart: bool) -> np.ndarray:
        """int64[n], behaviours that a token leads to from states, after a pair that the rule allows or forbids."""
        s = self._states
        position = s.position[states]
        kind = np.where(position > 0, s.inner_kind[position, s.inner[token]], s.kind[token])
        return s.behaviour[s.target[s.block[states, int(apart), kind // BLOCK], kind % BLOCK]]

    def _inside_of(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.flatnonzero(self.after[depth]) if depth else np.zeros(0, np.int64)
        alone = [self.alone(int(self.base[depth] + after)) for after in self.after[depth, tokens].tolist()]
        return np.repeat(tokens, [len(part) for part in alone]), np.concatenate([np.zeros(0, np.int64), *alone])

    def columns_of(self, bits: np.ndarray) -> np.ndarray:
        """int64[C], how many tokens of a bit row each column has between characters."""
        key = bits.tobytes()
        found = self._counts.get(key)
        if found is None:
            if len(self._counts) >= _MOST_UNIONS:
                self._counts.pop(next(iter(self._counts)), None)
            member = np.unpackbits(bits.view(np.uint8), bitorder="little").view(bool)[self._by_column]
            found = np.zeros(len(self._column_begin) - 1, np.int64)
            found[self._filled] = np.add.reduceat(member, self._column_begin[self._filled], dtype=np.int64)
            self._counts[key] = found
        return found

    def tokens_in(self, bits: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """int64[n], the tokens of a bit row that are in some columns between characters."""
        begin = self._column_begin[columns]
        tokens = self._by_column[joined(begin, self._column_begin[columns + 1] - begin)]
        return tokens[holds(bits, tokens)]

    def always(self, token: int) -> np.ndarray:
        """uint32[W], the tokens after which `token` may come between two characters, wherever they stand."""
        found = self._columns.get(token)
        if found is None:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.pop(next(iter(self._columns)), None)
            part = self._of_depth[0]
            of = part.bits[:, part.column[token]]
            apart = self.sets_holding(token)[self.rule.set_of]
            bits = of[self.after[0]]
            found = self._columns[token] = packed((bits & np.where(apart, np.uint8(ALL_APART), np.uint8(ALL))) > 0)
        return found

    def sets_holding(self, token: int) -> np.ndarray:
        """bool[D], the forbidden sets that hold a token."""
        found = self._holding.get(token)
        if found is None:
            if len(self._holding) >= _MOST_HOLDING:
                self._holding.pop(next(iter(self._holding)), None)
            found = self._holding[token] = self.rule.holding(token)
        return found

    def held(self, blocks: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        """By which bit of `follows` tokens may always follow what leaves some forbidden sets: of each block of tokens and sets
        every pair, uint8[*], sets running first."""
        keys = [(tokens.tobytes(), sets.tobytes()) for tokens, sets in blocks]
        found = {key: self._held.get(key) for key in keys}
        new = {key: i for i, key in enumerate(keys) if found[key] is None}
        if new:
            chosen = [blocks[i] for i in new.values()]
            group = np.concatenate([np.tile(sets, len(tokens)) for tokens, sets in chosen])
            held = self.rule.set_holds(group, np.concatenate([np.repeat(tokens, len(sets)) for tokens, sets in chosen]))
            bits = np.where(held, np.uint8(ALL_APART), np.uint8(ALL))
            ends = np.cumsum([len(tokens) * len(sets) for tokens, sets in chosen])
            made = dict(zip(new, np.split(bits, ends[:-1])))
            if len(self._held) >= _MOST_BLOCKS:
                self._held.clear()
            self._held.update(made)
            found |= made
        return [part for key in keys if (part := found[key]) is not None]

    def always_one_of(self, tokens: np.ndarray) -> np.ndarray:
        """uint32[W], the tokens after which one of some tokens may come between two characters, wherever they stand."""
        key = tokens.tobytes()
        found = self._unions.get(key)
        if found is None:
            if len(self._unions) >= _MOST_UNIONS:
                self._unions.pop(next(iter(self._unions)), None)
            found = np.zeros_like(self.ending)
            for token in tokens.tolist():
                found |= self.always(token)
            self._unions[key] = found
        return found

    def _following(self, depth: np.ndarray) -> list[tuple[np.ndarray, tuple[int, ...]]]:
        """Tokens, and the behaviours that they lead to."""
        s = self._states
        begins = s.inner > 0
        by_class: dict[tuple[int, int], list[int]] = {}
        count = len(s.example)
        for position in np.unique(s.position).tolist():
            here = np.flatnonzero(s.position == position)
            rows = s.block[here].reshape(-1, s.block.shape[2])
            for g in range(rows.shape[1]):
                target = s.target[np.unique(rows[:, g])]
                row, column = np.nonzero(target >= 0)
                keys = np.unique(column * count + s.behaviour[target[row, column]])
                for key in keys.tolist():
                    by_class.setdefault((position, g * BLOCK + key // count), []).append(key % count)
        out: list[tuple[np.ndarray, tuple[int, ...]]] = []
        order = np.argsort(s.kind, kind="stable")
        order = order[~begins[order]]
        for tokens in np.split(order, np.flatnonzero(np.diff(s.kind[order])) + 1):
            if len(tokens):
                out.append((tokens, tuple(by_class.get((0, int(s.kind[tokens[0]])), ()))))
        for token in np.flatnonzero(begins).tolist():
            kinds = s.inner_kind[:, s.inner[token]]
            every: set[int] = set()
            for position in np.flatnonzero(kinds).tolist():
                every.update(by_class.get((position, int(kinds[position])), ()))
            out.append((np.array([token]), tuple(sorted(every))))
        return out

    def _follows(self, d: int, sets: Sequence[tuple[int, ...]], depth: np.ndarray) -> _Follows:
        s = self._states
        mine = np.flatnonzero(depth == d)
        size = len(s.kind)
        if not len(mine):
            none = np.zeros(len(sets), bool)
            return _Follows(np.zeros((len(sets), 1), np.uint8), np.zeros(size, np.int32), none, none)
        alive = s.target[s.block[s.example[mine]]].reshape(len(mine), 2, -1) >= 0
        if d:
            kinds = s.inner_kind[s.position[s.example[mine]]]
            alive = np.take_along_axis(alive, kinds[:, None, :], 2)
        bits = np.packbits(alive.reshape(2 * len(mine), -1), axis=0)
        _, first, column = np.unique(bits.T, axis=0, return_index=True, return_inverse=True)
        alive = alive[:, :, first]
        place = np.full(len(depth), -1)
        place[mine] = np.arange(len(mine))
        out = np.zeros((len(sets), len(first)), np.uint8)
        final = s.final[s.example[mine]]
        ends = np.zeros((2, len(sets)), bool)
        for i, behaviours in enumerate(sets):
            if behaviours:
                chosen = place[list(behaviours)]
                every, some = alive[chosen].all(0), alive[chosen].any(0)
                out[i] = every[0] * ALL + every[1] * ALL_APART + some[0] * ANY + some[1] * ANY_APART
                ends[:, i] = final[chosen].all(), final[chosen].any()
        return _Follows(out, column.ravel()[s.inner if d else s.kind].astype(np.int32), ends[0], ends[1])
