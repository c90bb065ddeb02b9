"""Walks rows of a batch on the device and on the host side by side, comparing everything after every token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_decode
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.configurations import Configuration
from jax_decode.step.state import Status
from jax_decode.tables import tables as layout
from jax_decode.tables.stack_layout import DEPTH, PARENT, REGISTER, SYMBOL

mask = jax.jit(jax_decode.mask, static_argnames="width")
advance = jax.jit(jax_decode.advance)
Pick = Callable[[np.random.Generator, np.ndarray], int]


def any_of(rng: np.random.Generator, allowed: np.ndarray) -> int:
    """Any allowed token."""
    return int(rng.choice(np.flatnonzero(allowed)))


def favouring(tokens: Sequence[int], chance: float = 0.8) -> Pick:
    """One of some tokens where it is allowed, usually."""

    def pick(rng: np.random.Generator, allowed: np.ndarray) -> int:
        liked = [t for t in tokens if t < len(allowed) and allowed[t]]
        return int(rng.choice(liked)) if liked and rng.random() < chance else any_of(rng, allowed)

    return pick


class Bases:
    """How nodes and symbols of each constraint are numbered in the tables."""

    def __init__(self, tables: Any, constraints: Sequence[CompiledConstraint]) -> None:
        starts = np.asarray(tables.constraints)[:, layout.START]
        self.node = [int(starts[i]) - c.start for i, c in enumerate(constraints)]
        self.symbol = np.cumsum([0, *(c.num_symbols for c in constraints)]).tolist()


def configurations(state: Any, row: int, node_base: int, symbol_base: int, width: int) -> list[Configuration]:
    """What a row of the device state follows, in the numbers of its own constraint; costs are left 0. `width`: of a cell."""
    out = []
    numbers = np.asarray(state.cell[row])  # of whole registers: the last may be none of a cell
    cells = numbers[: len(numbers) // width * width].reshape(-1, width)
    for k, node in enumerate(np.asarray(state.node[row])):
        if not node:
            continue
        stack, at = [], int(state.top[row, k]) if state.top.shape[1] else 0
        while at:
            stack.append((int(cells[at, SYMBOL]) - symbol_base, int(cells[at, REGISTER])))
            parent = int(cells[at, PARENT])
            assert cells[at, DEPTH] == cells[parent, DEPTH] + 1
            at = parent
        register = int(state.register[row, k]) if state.register.shape[1] else 0
        out.append(Configuration(int(node) - node_base, register, tuple(stack[::-1])))
    return out


def walk_together(
    constraints: Sequence[CompiledConstraint],
    which: Sequence[int],
    *,
    limits: Sequence[int],
    depths: Sequence[int],
    pick: Pick = any_of,
    seed: int = 0,
    tables: Any = None,
) -> list[list[int]]:
    """Walks until every row has ended, choosing allowed tokens at random, and returns the rows' tokens.

    Masks, statuses, nodes, registers and stacks are compared before and after every token. Rows must end `ACCEPTED`.
    """
    rng = np.random.default_rng(seed)
    tables = jax_decode.to_device(list(constraints)) if tables is None else tables
    bases = Bases(tables, constraints)
    state = jax_decode.init_state(tables, np.array(which), np.array(limits), max_depth=np.array(depths))
    walks = [constraints[w].walk(depth) for w, depth in zip(which, depths)]
    out: list[list[int]] = [[] for _ in which]
    for step in range(max(limits) + 1):
        allowed, status = np.asarray(mask(tables, state)), np.asarray(state.status)
        tokens = np.full(len(which), -1, np.int32)
        for row, walk in enumerate(walks):
            if status[row] != Status.RUNNING:
                assert status[row] == Status.ACCEPTED
                assert walk.accepting
                assert not allowed[row].any()
                continue
            assert (allowed[row] == walk.allowed(limits[row] - step)).all()
            tokens[row] = pick(rng, allowed[row])
            out[row].append(int(tokens[row]))
            walk.advance(int(tokens[row]), limits[row] - step)
        if (status != Status.RUNNING).all():
            return out
        state = advance(tables, state, jnp.asarray(tokens))
        seen = jax.device_get(state)
        for row, (w, walk) in enumerate(zip(which, walks)):
            want = [at._replace(stack=tuple((c.symbol, c.register) for c in at.stack)) for at in walk.configurations]
            assert configurations(seen, row, bases.node[w], bases.symbol[w], tables.cell_width) == want
            assert bool(seen.dropped[row]) == walk.dropped
            assert max(len(at.stack) for at in walk.configurations) <= max(depths[row], 0)
    raise AssertionError("a row did not end within its limit")
