"""Small constraints made by hand or at random, for tests of the device half: nothing of the compiler is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.arrays import ARC_BURST, UNREACHABLE


def from_table(
    target: NDArray[np.int32],
    accept: Sequence[bool],
    *,
    stop_ids: tuple[int, ...] = (),
    start: int = 1,
    wide: int = 3,
    salt: str = "",
) -> CompiledConstraint:
    """The artifact of a dense automaton, written down by its definition.

    Args:
      target: int32[N, V], next node of every token, 0 where forbidden; node 0 is dead.
      accept: accepting nodes, [N].
      stop_ids: end-of-text ids; forbidden as text everywhere.
      start: first node.
      wide: token sets of at least this many tokens become bit rows.
      salt: part of the fingerprint.
    """
    num_nodes, vocab_size = target.shape
    distance = _distances(target, np.asarray(accept, bool))
    target = np.where(distance[target] >= UNREACHABLE, 0, target)
    rows: dict[bytes, int] = {np.zeros((vocab_size + 31) // 32, np.uint32).tobytes(): 0}

    def row_of(tokens: NDArray[np.int64]) -> int:
        bits = np.zeros((vocab_size + 31) // 32 * 32, bool)
        bits[tokens] = True
        return rows.setdefault(np.packbits(bits, bitorder="little").tobytes(), len(rows))

    groups, arcs, levels = [], [], []
    offsets: list[list[int]] = [[0], [0], [0]]
    for n in range(num_nodes):
        mine = [] if n == 0 else [(t, np.flatnonzero(target[n] == t)) for t in np.unique(target[n]) if t]
        broad = [(t, tokens) for t, tokens in mine if len(tokens) >= wide]
        narrow = sorted((int(k), int(t)) for t, tokens in mine if len(tokens) < wide for k in tokens)
        groups += [(row_of(tokens), int(t)) for t, tokens in broad]
        arcs += narrow
        if broad or len(narrow) > ARC_BURST:
            cost = np.where(target[n] > 0, 1 + distance[target[n]], UNREACHABLE)
            levels += [(int(c), row_of(np.flatnonzero(cost <= c))) for c in np.unique(cost[target[n] > 0])]
        for offset, items in zip(offsets, (groups, arcs, levels)):
            offset.append(len(items))
    name = f"{vocab_size} {stop_ids} {salt}".encode()
    pair = lambda x: np.array(x, np.int32).reshape(-1, 2).T.copy()  # noqa: E731
    (group_row, group_next), (arc_token, arc_next), (level_cost, level_row) = pair(groups), pair(arcs), pair(levels)
    return CompiledConstraint(
        vocab_size=vocab_size,
        fingerprint=hashlib.sha256(name).hexdigest(),
        stop_ids=stop_ids,
        source="by hand",
        start=start,
        accept=np.asarray(accept, bool),
        distance=distance,
        rows=np.frombuffer(b"".join(rows), np.uint32).reshape(len(rows), -1).copy(),
        group_offset=np.array(offsets[0], np.int32),
        group_row=group_row,
        group_next=group_next,
        arc_offset=np.array(offsets[1], np.int32),
        arc_token=arc_token,
        arc_effect=arc_next,
        level_offset=np.array(offsets[2], np.int32),
        level_cost=level_cost,
        level_row=level_row,
    )


def random_constraint(
    seed: int, vocab_size: int = 64, num_nodes: int = 12, *, stop_ids: tuple[int, ...] = (0,), fan: int = 3
) -> CompiledConstraint:
    """A random automaton with wide, narrow and mixed nodes, every node able to finish, some only after several tokens."""
    rng = np.random.default_rng(seed)
    target = np.zeros((num_nodes, vocab_size), np.int32)
    for n in range(1, num_nodes):
        kind = rng.integers(4)
        if kind == 0:  # narrow: a few tokens
            tokens = rng.choice(vocab_size, int(rng.integers(1, 5)), replace=False)
            target[n, tokens] = rng.integers(1, num_nodes, len(tokens))
        elif kind == 1:  # wide: most tokens to few targets
            target[n] = rng.choice(rng.integers(0, num_nodes, fan), vocab_size)
        elif kind == 2:  # many targets of one token each
            target[n] = np.where(rng.random(vocab_size) < 0.5, rng.integers(1, num_nodes, vocab_size), 0)
        else:  # mixed
            target[n] = np.where(rng.random(vocab_size) < 0.6, rng.integers(1, num_nodes), 0)
            tokens = rng.choice(vocab_size, min(vocab_size, 6), replace=False)
            target[n, tokens] = rng.integers(1, num_nodes, len(tokens))
        if n + 1 < num_nodes:  # a path through all nodes, so that each can finish
            target[n, rng.integers(vocab_size)] = n + 1
    target[:, list(stop_ids)] = 0
    target[0] = 0
    for n in range(1, num_nodes - 1):
        if not (target[n] == n + 1).any():
            free = np.flatnonzero(~np.isin(np.arange(vocab_size), stop_ids))
            target[n, rng.choice(free)] = n + 1
    accept = rng.random(num_nodes) < 0.2
    accept[0], accept[-1] = False, True
    return from_table(target, accept, stop_ids=stop_ids)


def one_of(texts: Sequence[Sequence[int]], vocab_size: int, *, stop_ids: tuple[int, ...] = (0,)) -> CompiledConstraint:
    """Exactly the given token sequences (a trie: all nodes narrow where few branch)."""
    children: list[dict[int, int]] = [{}, {}]
    accept = [False, False]
    for text in texts:
        node = 1
        for token in text:
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
                accept.append(False)
            node = children[node][token]
        accept[node] = True
    target = np.zeros((len(children), vocab_size), np.int32)
    for n, mine in enumerate(children):
        for token, child in mine.items():
            target[n, token] = child
    return from_table(target, accept, stop_ids=stop_ids, wide=vocab_size + 1)


def repeated(tokens: Sequence[int], low: int, high: int, vocab_size: int, *, stop_ids=(0,)) -> CompiledConstraint:
    """`low` to `high` tokens, each of the given set."""
    target = np.zeros((high + 2, vocab_size), np.int32)
    for n in range(1, high + 1):
        target[n, list(tokens)] = n + 1
    return from_table(target, [n > low for n in range(high + 2)], stop_ids=stop_ids)


def _distances(target: NDArray[np.int32], accept: NDArray[np.bool_]) -> NDArray[np.int32]:
    distance = np.where(accept, 0, UNREACHABLE).astype(np.int32)
    distance[0] = UNREACHABLE
    while True:
        through = np.where(target > 0, distance[target], UNREACHABLE).min(1) + 1
        better = np.minimum(distance, np.minimum(through, UNREACHABLE)).astype(np.int32)
        better[0] = UNREACHABLE
        if (better == distance).all():
            return distance
        distance = better
