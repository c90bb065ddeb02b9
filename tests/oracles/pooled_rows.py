"""Rows of a pool on the device beside host walks of their constraints: all masks are compared, and every row goes on alike."""

from __future__ import annotations

import collections
import functools
import random
from typing import Any

import jax
import numpy as np
from oracles.device_limits import met

import jax_decode
from jax_decode.serving.rows import move_row, put_row, swap_rows, take_rows

_begin = jax.jit(jax_decode.init_state, static_argnames="max_tokens")
_see, _take = jax.jit(jax_decode.mask), jax.jit(jax_decode.advance)
_fork, _rewind = jax.jit(jax_decode.fork), jax.jit(jax_decode.rewind)
put, move, swap, taken_out = jax.jit(put_row), jax.jit(move_row), jax.jit(swap_rows), jax.jit(take_rows)


class PooledRows:
    """A batch.

    Attributes:
      state: of the device; walks, slots: of every row, None where there is none.
    """

    def __init__(self, pool: jax_decode.ConstraintPool, rows: int, max_tokens: int) -> None:
        self.pool = pool
        self._begin = functools.partial(_begin, max_tokens=max_tokens)
        self.state = self._begun(-1, rows)
        self.walks: list[Any] = [None] * rows
        self.slots: list[int | None] = [None] * rows

    def _begun(self, slot: int, rows: int = 1) -> Any:
        return self._begin(self.pool.tables, np.full(rows, slot, np.int32), np.full(rows, 2**30, np.int32))

    def start(self, row: int, constraint: Any, slot: int) -> None:
        self.state = put(self.state, np.int32(row), self._begun(slot))
        self.walks[row], self.slots[row] = constraint.walk(max_depth=64), slot

    def step(self, rng: random.Random) -> int:
        """Compares all masks, and takes a token in every row; rows that end lose their walk. Returns how many were compared."""
        allowed, remaining = np.asarray(_see(self.pool.tables, self.state)), np.asarray(self.state.remaining)
        tokens, count = np.full(len(self.walks), -1, np.int32), 0
        for row, walk in enumerate(self.walks):
            if walk is None:
                continue
            left = met(walk, int(remaining[row]) if remaining[row] < 2**29 else None)  # a limit of tokens holds for rows with a stack
            assert (allowed[row] == walk.allowed(left)).all(), (row, walk.constraint.source)
            count += 1
            tokens[row] = rng.choice(np.flatnonzero(allowed[row]).tolist())
            walk.advance(int(tokens[row]), left)  # of several stacks, those are dropped first that the limit does not let end
        self.state = _take(self.pool.tables, self.state, tokens)
        running = np.asarray(self.state.running)
        for row, walk in enumerate(self.walks):
            if walk is not None and not running[row]:
                assert walk.accepting or walk.finished
                self.walks[row] = None
        return count


class TurnedRows(PooledRows):
    """Rows that are swapped, copied, forked, set aside and rewound, besides taking tokens.

    Attributes:
      history: of every row, positions and walks that it may be taken back to; aside: rows that were taken out.
      constraint_of: by slot; counts: of what was done.
    """

    HAPPENINGS: Any = ()

    def __init__(self, pool: Any, rows: int, max_tokens: int, rng: random.Random) -> None:
        super().__init__(pool, rows, max_tokens)
        self.rng, self.counts = rng, collections.Counter[str]()
        self.history: list[list[Any]] = [[] for _ in range(rows)]
        self.aside: list[Any] = []
        self.constraint_of: dict[int, Any] = {}

    def entered(self) -> tuple[Any, int] | None:
        """A constraint and its slot, used once more; None where there is no room."""
        raise NotImplementedError

    def again(self, slot: int) -> None:
        """One more row uses a slot."""

    def given_back(self, slot: int) -> None:
        """One less."""

    def start(self, row: int, constraint: Any, slot: int) -> None:
        self.constraint_of[slot], self.history[row] = constraint, []
        super().start(row, constraint, slot)

    def leave(self, row: int) -> None:
        """Ends a row."""
        if (slot := self.slots[row]) is not None:
            self.given_back(slot)
        self._hold(row, (None, None, []))

    def rows_leave(self) -> None:
        """Ends all rows, also those that were taken out."""
        for row in range(len(self.walks)):
            self.leave(row)
        for _, (_, slot, _) in self.aside:
            self.given_back(slot)
        self.aside = []

    def rows_enter(self) -> None:
        for row, walk in enumerate(self.walks):
            if walk is None and self.rng.random() < 0.6:
                self.leave(row)
                if found := self.entered():
                    self.start(row, *found)

    def rows_step(self) -> None:
        before = jax.device_get(self.state.position)
        for row, walk in enumerate(self.walks):
            if walk is not None:
                self.history[row].append((type(before)(*(field[row] for field in before)), walk.copy()))
        self.counts["masks"] += self.step(self.rng)

    def _held(self, row: int) -> Any:
        return self.walks[row], self.slots[row], self.history[row]

    def _hold(self, row: int, held: Any) -> None:
        self.walks[row], self.slots[row], self.history[row] = held

    def _copied(self, row: int) -> Any:
        """What goes with a copy of a row."""
        walk, slot, history = self._held(row)
        if slot is not None:
            self.again(slot)
        return None if walk is None else walk.copy(), slot, [(position, walk.copy()) for position, walk in history]

    def _any(self) -> int:
        return self.rng.randrange(len(self.walks))

    def rows_swap(self) -> None:
        one, other = self._any(), self._any()
        self.state = swap(self.state, np.int32(one), np.int32(other))
        held = self._held(other)
        self._hold(other, self._held(one))
        self._hold(one, held)

    def rows_move(self) -> None:
        one, other = self._any(), self._any()
        if one != other:
            copied = self._copied(one)
            self.leave(other)
            self._hold(other, copied)
            self.state = move(self.state, np.int32(one), np.int32(other))

    def rows_fork(self) -> None:
        parent = [self._any() for _ in self.walks]
        copies = [self._copied(one) for one in parent]
        for row, copied in enumerate(copies):
            self.leave(row)
            self._hold(row, copied)
        self.state = _fork(self.state, np.array(parent, np.int32))

    def rows_rewind(self) -> None:
        """Takes rows back to any earlier place, also those whose text has ended since."""
        position = jax.tree.map(np.array, jax.device_get(self.state.position))
        for row, history in enumerate(self.history):
            if history and self.rng.random() < 0.5:
                at = self.rng.randrange(len(history))
                kept, self.walks[row] = history[at]
                self.history[row] = history[:at]
                for field, value in zip(position, kept):
                    field[row] = value
                self.counts["rewound"] += 1
        self.state = _rewind(self.state, position)

    def rows_aside(self) -> None:
        row = self._any()
        if self.walks[row] is not None:
            self.aside.append((taken_out(self.state, np.array([row], np.int32)), self._held(row)))
            self._hold(row, (None, None, []))

    def rows_back(self) -> None:
        free = next((row for row, slot in enumerate(self.slots) if slot is None), None)
        if self.aside and free is not None:
            kept, held = self.aside.pop(self.rng.randrange(len(self.aside)))
            self._hold(free, held)
            self.state = put(self.state, np.int32(free), kept)


TurnedRows.HAPPENINGS = (
    *(TurnedRows.rows_enter, TurnedRows.rows_step) * 3, TurnedRows.rows_swap, TurnedRows.rows_move, TurnedRows.rows_fork, TurnedRows.rows_rewind,
    TurnedRows.rows_aside, TurnedRows.rows_back,
)  # fmt: skip
