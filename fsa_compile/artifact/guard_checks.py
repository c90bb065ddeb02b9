"""What the arrays of sets of keys must hold; a part of `artifact_checks`. Imports NumPy only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fsa_compile.artifact.arrays import MAX_CONDITIONS, MAX_KEYS, MOST_COUNT, ConstraintArrays

_Need = Callable[[Any, str], None]


def are_twins(c: ConstraintArrays) -> np.ndarray:
    """bool[N], nodes that are twins of others."""
    out = np.zeros(c.num_nodes, bool)
    if c.has_sets:
        inside = c.twin[(c.twin > 0) & (c.twin < c.num_nodes)]
        out[inside] = True
    return out


def first_twin(c: ConstraintArrays) -> int:
    """The number of nodes that are no twins; twins come last."""
    return c.num_nodes - int(are_twins(c).sum())


def check_key_sets(c: ConstraintArrays, need: _Need) -> None:
    """Checks the arrays from `keys` to `push_keys`, and the columns of `effects` that refer to them."""
    n, rows, guards = c.num_nodes, len(c.keys), len(c.guards)
    need(1 <= c.keys.shape[1] <= MAX_KEYS // 32 and not c.keys[0].any(), "'keys' must have 1 to 8 words and an empty first row")
    need(guards and c.guards.shape[1] == 4 and not c.guards[0].any(), "'guards' must have 4 columns and a first row for none")
    first, count, every, more = c.guards.T.astype(np.int64)
    inside = (c.guards >= 0).all() and (first + count <= rows).all() and (every < rows).all() and (more < rows).all()
    need(inside, "a guard's mask is not one of 'keys'")
    need(c.twin.shape == (n,) and c.wanted.shape == (n, 2), "'twin' and 'wanted' must have one entry per node")
    twins = c.twin[c.twin > 0]
    in_order = (c.twin >= 0).all() and (np.sort(twins) == np.arange(n - len(twins), n)).all()
    in_order = in_order and not c.twin[n - len(twins) :].any() and not c.twin[0]
    need(in_order, "twins must be the last nodes, each that of one other")
    behind = slice(n - len(twins), n)
    for name in ("group_offset", "level_offset"):
        need(not np.diff(getattr(c, name))[behind].any(), "a twin has more than arcs")
    need(not c.accept[behind].any(), "a twin accepts")
    need(((c.wanted[:, 0] >= 0) & (c.wanted[:, 0] < guards)).all(), "'wanted' has a guard that does not exist")
    need(((c.wanted[:, 1] < MOST_COUNT) & (c.wanted[:, 1] > -MOST_COUNT)).all(), "'wanted' has a number out of range")
    most = c.pop_guard.shape[1]
    need(most <= MAX_CONDITIONS and c.pop_guard.shape == (n, most), "'pop_guard' must have one row per node, of few guards")
    need(((c.pop_guard >= 0) & (c.pop_guard < guards)).all(), "'pop_guard' has a guard that does not exist")
    need(c.pop_offset.shape == (n, 1 << most), "'pop_offset' must have an entry for every case of every node")
    if c.num_symbols:
        aligned = (c.pop_offset >= 0).all() and (c.pop_offset <= len(c.delta) - c.num_symbols).all()
        need(aligned and not (c.pop_offset % c.num_symbols).any(), "'pop_offset' is no segment of 'delta'")
        same = c.delta_offset.shape == (n,) and (c.pop_offset[:, 0] == c.delta_offset).all()
        need(same, "'pop_offset' and 'delta_offset' differ")
    need(len(c.push_keys) == len(c.push_symbol), "'push_keys' and 'push_symbol' differ in length")
    need(((c.push_keys >= 0) & (c.push_keys < rows)).all(), "'push_keys' has a row that does not exist")
    guard, held = c.effects[1:, 6], c.effects[1:, 7]
    need(((guard >= 0) & (guard < guards)).all() and ((held >= 0) & (held < rows)).all(), "an effect has no such guard or keys")
