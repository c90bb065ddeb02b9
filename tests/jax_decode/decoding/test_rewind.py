"""Random drafts of which a random part is kept, inside `lax.scan`: the state is that of a replay of the kept tokens alone."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import hand_made
from oracles import hand_pushdown as by_hand

import jax_decode
from jax_decode import Status
from jax_decode.step.forced import advance_some
from jax_decode.tables.stack_layout import PARENT, REGISTER, SYMBOL

TWIN_TOKENS = [b"", b"a", b"b", b"c", b"aa", b"ab", b"bb", b"cc", b"abb", b"aabb", b"aaa", b"ccc", b"ac", b"aac"]
CASES = {
    "regular": hand_made.random_constraint(3),
    "stack": by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS),
    "two stacks": by_hand.composed(by_hand.twins(), TWIN_TOKENS, stacks=2),
    "counters": by_hand.counted(7, 9),
}
DRAFT, DEPTH = 4, 8


def contents(tables, state):
    """What the stacks hold, from the top down, as far as the depth limit goes: int32[B, K, DEPTH, 2], -1 below the bottom."""
    rows = jnp.arange(state.top.shape[0], dtype=jnp.int32)[:, None]
    at, found = state.top, []
    numbers = state.cell.shape[1] // max(tables.cell_width, 1) * tables.cell_width  # those beyond fill a register up
    cells = state.cell[:, :numbers].reshape(len(rows), -1, tables.cell_width)
    for _ in range(DEPTH if state.top.shape[1] else 0):
        cell = cells[rows, at]
        pair = jnp.stack([cell[..., SYMBOL], cell[..., REGISTER]], -1)
        found.append(jnp.where((at > 0)[..., None], pair, -1))
        at = jnp.where(at > 0, cell[..., PARENT], 0)
    return jnp.stack(found, 2) if found else jnp.zeros((len(rows), 0), jnp.int32)


def alike(tables, a, b):
    """Which rows of two states are the same in everything that matters, bool[B]."""
    pairs = [(a.node, b.node), (a.register, b.register), (contents(tables, a), contents(tables, b)), (a.remaining, b.remaining)]
    pairs += [(a.status, b.status), (a.dropped, b.dropped), (jax_decode.mask(tables, a), jax_decode.mask(tables, b))]
    return functools.reduce(jnp.logical_and, [(x == y).reshape(x.shape[0], -1).all(1) for x, y in pairs])


@functools.partial(jax.jit, static_argnames="forget")
def histories(tables, first, keys, forget=True):
    """Rounds of drafting `DRAFT` random allowed tokens and keeping some; beside it, a state that takes the kept ones only.

    Returns, for every round and row, whether both are alike, how many drafts were taken, and how many of them kept.
    """

    def draft(state, key):
        allowed = jax_decode.mask(tables, state)
        token = jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)).astype(jnp.int32)
        token = jnp.where(allowed.any(1), token, -1)
        return jax_decode.advance(tables, state, token), (state.position, token)

    def one_round(carry, key):
        state, replay = carry
        keys = jax.random.split(key, DRAFT + 1)
        state, (before, tokens) = jax.lax.scan(draft, state, keys[:DRAFT])
        taken = ((before.status == Status.RUNNING) & (tokens >= 0)).sum(0)
        positions = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), before, state.position)
        kept = jnp.minimum(jax.random.randint(keys[-1], taken.shape, 0, DRAFT + 1), taken)
        rows = jnp.arange(len(kept), dtype=jnp.int32)
        if forget:
            state = state.rewound(jax.tree.map(lambda field: field[kept, rows], positions))

        def take(i, replay):
            return advance_some(tables, replay, tokens[i], i < kept)

        replay = jax.lax.fori_loop(0, DRAFT, take, replay)
        return (state, replay), (alike(tables, state, replay), taken, kept)

    return jax.lax.scan(one_round, (first, first), keys)[1]


def first_state(tables, batch):
    return jax_decode.init_state(tables, np.zeros(batch, np.int32), np.arange(batch) % 30 + 20, max_depth=DEPTH)


@pytest.mark.parametrize("name", CASES)
def test_rewinding_is_a_replay_of_what_was_kept(name, exhaustive):
    """Histories end at the end of the text, at the limit, and inside; the full count is 10,000 and more."""
    tables = jax_decode.to_device(CASES[name])
    batch, rounds = (5_000, 24) if exhaustive else (48, 5 if name == "two stacks" else 12)  # whose texts end soon
    equal, taken, kept = map(
        np.asarray, histories(tables, first_state(tables, batch), jax.random.split(jax.random.key(5), rounds))
    )
    assert equal.all()
    rejected = kept < taken
    assert (taken > 0).sum() >= (10_000 if exhaustive else 100)
    assert rejected.sum() > (taken > 0).sum() / 3
    assert ((taken < DRAFT) & rejected).any()  # texts that ended inside a draft were taken back, too


def test_the_check_finds_states_that_were_not_taken_back():
    tables = jax_decode.to_device(CASES["regular"])
    equal, taken, kept = map(
        np.asarray, histories(tables, first_state(tables, 16), jax.random.split(jax.random.key(5), 4), forget=False)
    )
    assert not equal[kept < taken].all()
