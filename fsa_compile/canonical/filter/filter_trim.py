"""`trimmed`: a filter without tokens after which no text at all can go on.

A state of the filter says what the splitter still allows, and the pair rule what may follow the last token inside a piece. Each
may leave something and both together nothing: where only white space may come, and a token for the first byte of a character was
taken, all of whose continuations would have been merged with it.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fsa_compile.canonical.encoder.pair_rule import PairRule
from fsa_compile.canonical.filter.contexts import ALL, ALL_APART, Contexts
from fsa_compile.canonical.filter.state_table import BLOCK, FilterTable
from fsa_compile.canonical.filter.token_filter import NONE


def trimmed(states: FilterTable, rule: PairRule, length: np.ndarray) -> FilterTable:
    """The table without such tokens. `length`: int64[V], bytes of each token."""
    while True:
        dead = _dead(states, Contexts(states, rule, length))
        if not dead:
            return states
        states = _without(states, dead)


def _dead(states: FilterTable, contexts: Contexts) -> dict[int, list[int]]:
    """The behaviours in which nothing may follow a token, and which it leads to."""
    rule = contexts.rule
    into: dict[int, list[int]] = {}
    by_after: dict[int, np.ndarray] = {}
    for depth, after in enumerate(contexts.after):
        for value in np.unique(after[after > 0]).tolist():
            number = int(contexts.base[depth]) + value
            by_after[number] = np.flatnonzero(after == value)
            for behaviour in contexts.members[number]:
                into.setdefault(behaviour, []).append(number)
    out: dict[int, list[int]] = {}
    for behaviour, numbers in into.items():
        alone = int(contexts.single[behaviour])
        depth = contexts.depth_of(alone)
        if contexts.all_final[alone]:
            continue
        bits = contexts.follows[alone, contexts.column[depth]]
        if depth:
            bits = np.where(states.inner > 0, bits, 0)
        if (bits & ALL_APART).any():
            continue
        tokens = np.concatenate([by_after[number] for number in numbers])
        held = rule.sets_hold_all(rule.set_of[tokens].astype(np.int64), np.flatnonzero(bits & ALL))
        for token in tokens[held].tolist():
            out.setdefault(token, []).append(behaviour)
    return out


def _without(states: FilterTable, dead: dict[int, list[int]]) -> FilterTable:
    """The table in which these tokens have classes of their own, without the states of these behaviours behind them."""
    kind, inner_kind = states.kind.copy(), states.inner_kind.copy()
    first = states.block.shape[2] * BLOCK
    groups = -(-len(dead) // BLOCK)
    every = np.arange(states.num_states)
    column = np.full((states.num_states, 2, groups * BLOCK), NONE, np.int32)
    for i, (token, behaviours) in enumerate(dead.items()):
        inner = int(states.inner[token])
        old = np.where(states.position > 0, states.inner_kind[states.position, inner], states.kind[token])
        after = states.target[states.block[every, :, old // BLOCK], (old % BLOCK)[:, None]]
        gone = np.isin(states.behaviour[after], behaviours) & (after >= 0)
        column[:, :, i] = np.where(gone, NONE, after)
        kind[token] = first + i if kind[token] else 0
        if inner:
            inner_kind[:, inner] = np.where(inner_kind[:, inner] > 0, first + i, 0)
    rows, number = np.unique(column.reshape(-1, BLOCK), axis=0, return_inverse=True)
    more = len(states.target) + number.reshape(states.num_states, 2, groups)
    return dataclasses.replace(
        states,
        kind=kind,
        inner_kind=inner_kind,
        block=np.concatenate([states.block, more.astype(np.int32)], 2),
        target=np.concatenate([states.target, rows.astype(np.int32)]),
    )
