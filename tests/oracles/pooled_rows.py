"""Rows of a pool on the device beside host walks of their constraints: all masks are compared, and every row goes on alike."""

from __future__ import annotations

import functools
import random
from typing import Any

import jax
import numpy as np

import jax_decode
from jax_decode.serving.rows import move_row, put_row, swap_rows, take_rows

_begin = jax.jit(jax_decode.init_state, static_argnames="max_tokens")
_see, _take = jax.jit(jax_decode.mask), jax.jit(jax_decode.advance)
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
            left = int(remaining[row])  # a limit of tokens holds for rows with a stack
            due = walk.allowed(left if walk.distance <= left < 2**29 else None)
            assert (allowed[row] == due).all(), (row, walk.constraint.source)
            count += 1
            tokens[row] = rng.choice(np.flatnonzero(allowed[row]).tolist())
            walk.advance(int(tokens[row]))
        self.state = _take(self.pool.tables, self.state, tokens)
        running = np.asarray(self.state.running)
        for row, walk in enumerate(self.walks):
            if walk is not None and not running[row]:
                assert walk.accepting or walk.finished
                self.walks[row] = None
        return count
