"""What the arrays of an artifact must hold, so that no file can lead a device step out of bounds or past its stack.

Imports NumPy only. The layout is described in `artifact`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fsa_compile.arrays.integers import distinct
from fsa_compile.arrays.ranges import indices
from fsa_compile.artifact import arrays
from fsa_compile.artifact.arrays import ConstraintArrays
from fsa_compile.artifact.guard_checks import are_twins, check_key_sets, first_twin
from fsa_compile.artifact.stored_arrays import StoredEffects, StoredTokens
from fsa_compile.errors import ArtifactError

MAX_STACKS = 64
"""Most configurations that may be followed at once."""
MAX_POPS = 4_096
"""Most cells that one token may pop: few tokens have that many bytes."""
_MOST_POPPED = 1 << 30
"""Largest number of steps from a node to its children while sums over sources are formed."""
_MOST_PUSHED = 1 << 26
"""Most cells of all push strings, each as long as the longest, as they lie on the device."""

_Need = Callable[[Any, str], None]


def check_contents(c: ConstraintArrays, path: Path) -> None:
    """Raises `ArtifactError` for the first id, offset or bit that a device step could trip over; `path` is named in it."""

    def need(condition: Any, sentence: str) -> None:
        if not condition:
            raise ArtifactError(sentence, where=str(path), fix="Compile and save the constraint again.")

    if c.has_sets:
        c = c.written_out()
    _check_nodes_and_rows(c, need)
    _check_sets(c, need)
    _check_levels(c, need)
    _check_symbols(c, need)
    _check_pushes(c, need)
    _check_effects(c, need)
    check_lengths(c, need)
    if c.has_sets:
        check_key_sets(c, need)
    _check_pops(c, need)
    _check_canonical(c, need)
    for name in ("unenforced", "open_objects"):
        places = c.extra.get(name, [])
        need(isinstance(places, list) and all(isinstance(place, str) for place in places), f"'{name}' is no list of places")


def check_lengths(c: ConstraintArrays, need: _Need) -> None:
    """Checks that what it takes to finish a text fits the numbers of a step, wherever the text stands."""
    inside = (c.distance[1:] < arrays.MOST_COUNT).all() and (c.distance >= (-arrays.MOST_COUNT if c.has_sets else 0)).all()
    need(inside and c.distance[0] <= arrays.UNREACHABLE, "a node cannot reach an accepting one")
    for name, costs in (("level_cost", c.level_cost), ("effects: cost", c.effects[1:, 4])):
        _check_numbers(np.abs(costs) if c.has_sets else costs, name, need)
    _check_numbers(c.symbol_cost, "symbol_cost", need)
    for name, slopes in (("level_slope", c.level_slope), ("symbol_slope", c.symbol_slope)):
        _check_numbers(slopes.reshape(-1), name, need)
        steep = slopes.astype(np.int64)
        need((steep[:, 1] > 0).all(), f"'{name}' divides by zero")
        need((steep[:, 2] * -(-steep[:, 0] // np.maximum(steep[:, 1], 1)) < arrays.MOST_COUNT).all(), f"'{name}' is too steep")


def _check_nodes_and_rows(c: ConstraintArrays, need: _Need) -> None:
    n = c.num_nodes
    need(n >= 2 and len(c.distance) == n, "'accept' and 'distance' must describe the same nodes, at least 2")
    need(0 < c.start < n, f"start node {c.start} is not one of nodes 1..{n - 1}")
    words = (c.vocab_size + 31) // 32
    need(len(c.rows) >= 1 and c.rows.shape[1] == words, f"'rows' must have {words} words for {c.vocab_size:,} tokens")
    need(not c.rows[0].any(), "row 0 must be empty")
    spare = words * 32 - c.vocab_size
    if spare:
        need(not (c.rows[:, -1] >> np.uint32(32 - spare)).any(), "a row has bits past the end of the vocabulary")
    need(not c.accept[0], "the dead node accepts")
    for name, width in (("need", 0), ("ladder", 4), ("level_slope", 3)):
        need(getattr(c, name).shape == ((n, width) if width else (n,)), f"'{name}' must have one entry per node")
    if c.is_regular:
        need(((c.distance == 0) == c.accept).all(), "'distance' is not 0 exactly where 'accept' says")
    need(not c.is_regular or (c.distance[1:] < n).all(), "a node cannot reach an accepting one")
    _check_numbers(c.need, "need", need)
    heat = c.temperature
    need(not len(heat) or (len(heat) == n and not c.is_canonical), "'temperature' must have one entry per node, or none")
    within = (heat >= arrays.LEAST_TEMPERATURE) & (heat <= arrays.MOST_TEMPERATURE)
    known = (heat == arrays.NO_TEMPERATURE) | (heat == 0) | within
    need(bool(known.all()) and (heat[:1] == arrays.NO_TEMPERATURE).all(), "'temperature' has a number out of range")
    need(1 <= c.stacks <= MAX_STACKS, f"'stacks' must be in 1..{MAX_STACKS}")
    need(c.stacks == 1 or not c.is_canonical, "a canonical constraint cannot be followed on several stacks")
    need(c.stacks == 1 or not c.has_sets, "sets of keys cannot be followed on several stacks")
    need(c.is_regular or not c.canonical.partners, "only places of regular constraints have two nodes")


def _check_sets(c: ConstraintArrays, need: _Need) -> None:
    n, r = c.num_nodes, len(c.rows)
    for kind, length in (("group", len(c.group_row)), ("arc", len(c.arc_token)), ("level", len(c.level_row))):
        offset = getattr(c, f"{kind}_offset")
        need(len(offset) == n + 1, f"'{kind}_offset' must have one entry per node and one more")
        ascending = offset[0] == 0 and offset[-1] == length and _rises(offset)
        need(ascending, f"'{kind}_offset' must rise from 0 to the number of {kind}s ({length})")
        need(offset[1] == 0, f"the dead node must have no {kind}s")
    for name, low, bound in (
        ("group_row", 1, r),
        ("group_next", 1, n),
        ("arc_token", 0, c.vocab_size),
        ("arc_effect", 1, len(c.effects)),
        ("level_row", 1, r),
    ):
        _check_ids(_once(getattr(c, name)), name, low, bound, need)
    for first, *others in (
        ("group_row", "group_next", "group_push", "group_add", "group_set"),
        ("arc_token", "arc_effect"),
        ("level_row", "level_cost", "level_need"),
    ):
        for other in others:
            need(len(getattr(c, first)) == len(getattr(c, other)), f"'{first}' and '{other}' differ in length")
    lists = c.arc_token.parts["offset"] if isinstance(c.arc_token, StoredTokens) else c.arc_offset
    rising = _ascending(_once(c.arc_token), lists, strictly=c.stacks == 1 and not c.has_sets)
    need(rising, "the arcs of a node are not sorted by token")
    if c.has_sets:  # only twins may have a token twice
        plain = c.arc_offset[: first_twin(c) + 1]
        need(_ascending(c.arc_token[: plain[-1]], plain, strictly=c.stacks == 1), "a node has two arcs with one token")


def _once(values: Any) -> np.ndarray:
    """The entries of an array, those of equal lists of arcs once."""
    if isinstance(values, StoredTokens):
        return values.parts["token"]
    return values.parts["effect"] if isinstance(values, StoredEffects) else values


def _check_levels(c: ConstraintArrays, need: _Need) -> None:
    _check_numbers(c.level_need, "level_need", need)
    both = (c.level_cost + (arrays.MOST_COUNT if c.has_sets else 0)).astype(np.int64) * arrays.MOST_COUNT + c.level_need
    need(_ascending(both, c.level_offset, strictly=True), "the levels of a node are not sorted by cost")
    no_level = np.diff(c.level_offset) == 0
    need(not np.diff(c.group_offset)[no_level].any(), "a node has groups but no mask row")
    burst = no_level & ~are_twins(c)
    need((np.diff(c.arc_offset)[burst] <= arrays.ARC_BURST).all(), f"a node without mask row has over {arrays.ARC_BURST} arcs")


def _check_symbols(c: ConstraintArrays, need: _Need) -> None:
    p = c.num_symbols
    for name, width in (("symbol_need", 0), ("symbol_ladder", 4), ("symbol_slope", 3)):
        need(getattr(c, name).shape == ((p, width) if width else (p,)), f"'{name}' must have one entry per symbol")
    _check_numbers(c.symbol_need, "symbol_need", need)
    _check_ladders(c.ladder, c.num_nodes, "ladder", need)
    _check_ladders(c.symbol_ladder, p, "symbol_ladder", need)


def _check_pushes(c: ConstraintArrays, need: _Need) -> None:
    offset, length = c.push_offset, len(c.push_symbol)
    need(len(offset) >= 2 and offset[0] == 0 and offset[1] == 0, "'push_offset' must begin with the empty push string")
    need(offset[-1] == length and _rises(offset), f"'push_offset' must rise to the number of symbols ({length})")
    need(len(c.push_register) == length, "'push_symbol' and 'push_register' differ in length")
    _check_ids(c.push_symbol, "push_symbol", 0, c.num_symbols, need)
    _check_numbers(c.push_register, "push_register", need)
    longest = int(np.diff(offset).max())
    need(c.max_push == longest, f"'max_push' is {c.max_push}; the longest push string has {longest} symbols")
    room = (len(offset) - 1) * max(longest, 1)
    need(room < _MOST_PUSHED, f"{len(offset) - 1:,} push strings of up to {longest:,} symbols do not fit into memory")
    need(0 <= c.initial_push < len(offset) - 1, f"initial push string {c.initial_push} is not one of {len(offset) - 1}")


def _check_effects(c: ConstraintArrays, need: _Need) -> None:
    tables = len(c.increments)
    need(c.increments.shape[1] == c.vocab_size, f"'increments' must have {c.vocab_size:,} columns")
    width = 8 if c.has_sets else 6
    need(len(c.effects) and c.effects.shape[1] == width, f"'effects' must have {width} columns and a first row for none")
    target, push, add, set_to, _, cells = c.effects[1:, :6].T
    _check_ids(target, "effects: target", 1, c.num_nodes, need)
    for name, value in (("group_push", c.group_push), ("effects: push", push)):
        _check_ids(value, name, 0, len(c.push_offset) - 1, need)
    registers = (c.group_add, c.group_set, add, set_to)
    for name, value in zip(("group_add", "group_set", "effects: add", "effects: set"), registers):
        _check_ids(value, name, -tables, arrays.MOST_COUNT, need)
    _check_numbers(cells, "effects: need", need)


def _check_pops(c: ConstraintArrays, need: _Need) -> None:
    n, p = c.num_nodes, c.num_symbols
    need(len(c.delta_offset) == n, "'delta_offset' must have one entry per node")
    if not p:
        need(not len(c.delta) and not c.delta_offset.any(), "'delta' must be empty where there are no symbols")
        need(c.max_pops == 0, f"'max_pops' is {c.max_pops}, but there are no symbols")
        return
    need(len(c.delta) and len(c.delta) % p == 0 and not (c.delta_offset % p).any(), f"'delta' must be segments of {p}")
    _check_ids(c.delta_offset, "delta_offset", 0, len(c.delta) - p + 1, need)
    at, child = c.children
    _check_ids(child, "delta", 0, n, need)
    segments = c.pop_offset.T // p if c.has_sets else c.delta_offset[None] // p
    segments = _without_contexts(c, segments, need)
    need(not np.isin(at // p, segments[:, 0]).any(), "the dead node has children")
    few = 0 <= c.max_pops <= MAX_POPS and c.max_pops * (n + len(at)) <= _MOST_POPPED
    need(few, f"'max_pops' {c.max_pops} is out of range")
    exact = longest_path(at // p, child, segments, c.max_pops) == c.max_pops
    need(exact, f"'max_pops' {c.max_pops} is not the length of the longest path in 'delta'")


def _without_contexts(c: ConstraintArrays, segments: np.ndarray, need: _Need) -> np.ndarray:
    """The segments of nodes whose children tokens come to: contexts have none, and may lead back to themselves."""
    need(0 <= c.context < c.num_nodes, f"context {c.context} is not one of {c.num_nodes} nodes")
    if not c.context:
        return segments
    need(not c.has_sets and not c.is_canonical, "constraints with sets of keys, and canonical ones, have no contexts")
    of_node, is_context = segments[0], np.zeros(c.num_nodes, bool)
    at, child = c.children
    begin = (at // c.num_symbols).searchsorted(np.arange(len(c.delta) // c.num_symbols + 1))

    def edges(nodes: np.ndarray) -> np.ndarray:
        own = distinct(of_node[nodes])
        return indices(begin[own], begin[own + 1])

    todo = np.array([c.context])
    while len(todo):
        is_context[todo] = True
        todo = distinct(child[edges(todo)])
        todo = todo[~is_context[todo]]
    sized = sum(np.diff(getattr(c, f"{kind}_offset")) for kind in ("group", "arc", "level"))
    need(not (sized[is_context].any() or c.accept[is_context].any()), "a context has tokens, or accepts")
    own = edges(is_context.nonzero()[0])
    need((c.distance[child[own]] <= c.symbol_cost[at[own] % c.num_symbols]).all(), "a cell costs less than nothing")
    others = ~is_context
    inside = not is_context[child[edges(others.nonzero()[0])]].any() and others[c.start] and others[c.group_next].all()
    need(inside and others[c.effects[1:, 0]].all(), "a token leads to a context")
    return np.where(is_context, segments[:, :1], segments)


def longest_path(of_segment: np.ndarray, child: np.ndarray, segments: np.ndarray, most: int) -> int:
    """The most edges of a path in a graph; more than `most` where there are more, or a circle.

    A path is peeled off from its end: in every round those nodes whose children are all gone. All rounds together look at every
    edge once.

    Args:
      of_segment, child: int64[E], int32[E], the segments, which ascend, and their children.
      segments: int32[K, N], the segments whose children are those of every node.
    """
    edges = np.argsort(child, kind="stable")
    into = np.searchsorted(child[edges], np.arange(segments.shape[1] + 1))
    count = 1 + max(int(segments.max(initial=0)), int(of_segment[-1]) if len(of_segment) else 0)
    left = np.bincount(of_segment, minlength=count)
    users = np.argsort(segments.reshape(-1), kind="stable")
    used = np.searchsorted(segments.reshape(-1)[users], np.arange(count + 1))
    waits = np.full(segments.shape[1], len(segments))
    gone, length = np.flatnonzero(left == 0), -1
    while len(gone):
        nodes = users[indices(used[gone], used[gone + 1])] % segments.shape[1]
        np.subtract.at(waits, nodes, 1)
        nodes = distinct(nodes[waits[nodes] == 0])
        length += bool(len(nodes))
        if length > most:
            return length
        hit = of_segment[edges[indices(into[nodes], into[nodes + 1])]]
        np.subtract.at(left, hit, 1)
        gone = distinct(hit[left[hit] == 0])
    return length if not waits.any() else most + 1


def _rises(offset: np.ndarray) -> bool:
    """Whether offsets never fall; differences of int32 would wrap around."""
    return bool((offset[1:] >= offset[:-1]).all())


def _check_canonical(c: ConstraintArrays, need: _Need) -> None:
    """States are compared with the tokenizer's filter where that is known."""
    own = c.canonical
    inside = -1 <= own.last < c.vocab_size and 0 <= own.shortest <= arrays.MOST_COUNT and own.state >= -1
    need(inside, "where a canonical constraint begins is out of range")
    need(all(state >= 0 for states in own.excepted for state in states), "an exception of a canonical constraint has no state")
    most = max(Counter(node for node, *_ in own.unless).values(), default=1)
    need(c.num_nodes * most <= arrays.MOST_EXCEPTIONS, "a node has more exceptions than fit into memory with those of all others")
    for node, row, number in own.unless:
        inside = 0 < node < c.num_nodes and 0 < row < c.num_rows and 0 <= number < len(own.excepted)
        need(inside, f"an exception of a canonical constraint: node {node}, row {row} or list {number} is out of range")


def _check_ids(ids: np.ndarray, name: str, low: int, bound: int, need: _Need) -> None:
    inside = not len(ids) or (ids.min() >= low and ids.max() < bound)
    need(inside, f"'{name}' has an id outside {low}..{bound - 1}")


def _check_numbers(numbers: np.ndarray, name: str, need: _Need) -> None:
    need(not len(numbers) or (numbers.min() >= 0 and numbers.max() < arrays.MOST_COUNT), f"'{name}' has a number out of range")


def _check_ladders(ladder: np.ndarray, size: int, name: str, need: _Need) -> None:
    """Every entry is some base, or none: with all its rungs it stays inside."""
    _check_numbers(ladder.reshape(-1), name, need)
    top = np.arange(size) + ladder[:, 1].astype(np.int64) + ladder[:, 3]
    need((top < size).all(), f"a rung of '{name}' lies outside")


def _ascending(values: np.ndarray, offset: np.ndarray, *, strictly: bool) -> bool:
    """Whether values rise within each segment."""
    if len(values) < 2:
        return True
    first = np.zeros(len(values) + 1, bool)
    first[offset] = True
    rises = np.diff(values) > 0 if strictly else np.diff(values) >= 0
    return bool((rises | first[1:-1]).all())
