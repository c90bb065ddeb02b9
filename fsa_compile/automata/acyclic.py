"""A finite list of texts to the minimal acyclic byte automaton, without a pattern in between.

The sorted texts give a trie whose nodes are numbered in preorder; nodes with the same future are then merged from the leaves up.
Large lists are merged a whole height at a time with NumPy, small ones node by node.

Source: the bottom-up scheme of D. Revuz, "Minimisation of acyclic deterministic automata in linear time", 1992.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.automata.byte_dfa import ByteDfa, dfa_from_arcs
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.limits import CompileLimits, Deadline

MOST_TEXTS, MOST_CHARACTERS = 1 << 23, 1 << 28
"""More than these are taken for a generator that does not end."""
_BYTES_PER_NODE = 120
"""Working memory per trie node, for the limit check."""

_DOING = "Building the automaton of the choices"


class _Trie(NamedTuple):
    """Nodes in preorder, node 0 the root; edge e leads to node e + 1.

    Attributes:
      final: bool[N], a text ends here.
      parent: int64[N - 1], source of edge e.
      byte: uint8[N - 1], label of edge e.
      depth: int64[N], distance from the root.
    """

    final: np.ndarray
    parent: np.ndarray
    byte: np.ndarray
    depth: np.ndarray


def checked_texts(strings: Iterable[str]) -> list[bytes]:
    """The distinct texts as sorted UTF-8.

    Raises:
      ConstraintError: an entry is not a str, or holds a surrogate; the message has its index. Or there are too many.
    """
    if isinstance(strings, (str, bytes)):
        raise ConstraintError("choices need a list of strings, not one string", fix="Put it into a list: choices([text]).")
    if not isinstance(strings, Iterable):
        raise ConstraintError(f"choices need a list of strings, not {type(strings).__name__}", fix="Give a list of str.")
    entries, size, reader = list[Any](), 0, iter(strings)
    while part := list(itertools.islice(reader, 1 << 16)):
        entries += part
        size += sum(len(entry) for entry in part if isinstance(entry, str))
        if len(entries) > MOST_TEXTS or size > MOST_CHARACTERS:
            what = f"there are more than {MOST_TEXTS:,} choices, or {MOST_CHARACTERS:,} characters in them"
            raise ConstraintError(what, fix="Give a list that ends, or token ids to compile_items.")
    try:
        return sorted({str.encode(entry) for entry in entries})
    except (TypeError, UnicodeEncodeError):
        pass
    for i, entry in enumerate(entries):
        if not isinstance(entry, str):
            raise ConstraintError(
                f"choice {i} is a {type(entry).__name__}, not a str",
                where=f"  choices[{i}] = {entry!r:.60}",
                fix="Convert it with str().",
            )
        try:
            entry.encode()
        except UnicodeEncodeError as error:
            raise ConstraintError(
                f"choice {i} holds a surrogate at offset {error.start}, which has no UTF-8 form",
                where=f"  choices[{i}] = {entry!r:.60}",
                fix="Write the character itself.",
            ) from None
    raise AssertionError("unreachable: every entry can be encoded")


def choices_dfa(texts: list[bytes], limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """The minimal automaton of sorted, distinct texts; at least one."""
    size = sum(map(len, texts))
    if size * _BYTES_PER_NODE > limits.max_bytes:
        raise LimitError("max_bytes", limits.max_bytes, f"{_DOING} ({size:,} bytes)")
    trie = _trie(texts, deadline)
    tallest = max(map(len, texts))
    large = len(trie.parent) > 50 * tallest + 200
    kept = _merge_by_height(trie, tallest, deadline) if large else None
    if kept is None:
        kept = _merge_one_by_one(trie, deadline)
    return _pack(trie, kept, limits)


def _trie(texts: list[bytes], deadline: Deadline) -> _Trie:
    n = len(texts)
    length = np.fromiter(map(len, texts), np.int64, n)
    offset = length.cumsum() - length
    data = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
    shared = _shared_prefixes(data, offset, length, deadline)
    new = length - shared
    first = 1 + new.cumsum() - new  # number of the first node that a text adds
    total = int(new.sum()) + 1
    final = np.zeros(total, bool)
    final[first + new - 1 if total > 1 else np.zeros(n, np.int64)] = True
    if length[0] == 0:
        final[0] = True
    within = np.arange(total - 1) - (first - 1).repeat(new)
    byte = data[(offset + shared).repeat(new) + within]
    parent = np.arange(total - 1)
    depth = np.zeros(total, np.int64)
    depth[1:] = shared.repeat(new) + within + 1
    starts, branch_at = first.tolist(), []
    path = [(0, 0)]  # segments (depth above the first node, first node) of the path to the last text
    for at, start in zip(shared.tolist(), starts):
        while path[-1][0] >= at > 0:
            path.pop()
        if at:
            above, node = path[-1]
            branch_at.append(node + at - above - 1)
        else:
            del path[1:]
            branch_at.append(0)
        path.append((at, start))
    adds = new > 0
    parent[first[adds] - 1] = np.array(branch_at)[adds]
    return _Trie(final, parent, byte, depth)


def _shared_prefixes(data: np.ndarray, offset: np.ndarray, length: np.ndarray, deadline: Deadline) -> np.ndarray:
    """int64[n], length of the prefix that each text shares with the one before it (0 for the first)."""
    shared = np.zeros(len(length), np.int64)
    active = np.arange(1, len(length))
    shortest = np.minimum(length[1:], length[:-1])
    at = 0
    while len(active):
        active = active[shortest[active - 1] > at]
        active = active[data[offset[active] + at] == data[offset[active - 1] + at]]
        at += 1
        shared[active] = at
        if not at & 255:
            deadline.check(_DOING)
    return shared


def _merge_one_by_one(trie: _Trie, deadline: Deadline) -> np.ndarray:
    """int64[N], the node that stands for each node."""
    n = len(trie.final)
    kept: dict[tuple[object, ...], int] = {}
    stands_for = [0] * n
    arcs: list[tuple[int, ...]] = [()] * n
    final, parent, byte = trie.final.tolist(), trie.parent.tolist(), trie.byte.tolist()
    for q in range(n - 1, -1, -1):  # children have higher numbers than their parents
        stands_for[q] = me = kept.setdefault((final[q], arcs[q]), q)
        if q:
            p = parent[q - 1]
            arcs[p] = (byte[q - 1], me, *arcs[p])
        if not q & 65_535:
            deadline.check(_DOING)
    return np.array(stands_for)


def _merge_by_height(trie: _Trie, tallest: int, deadline: Deadline) -> np.ndarray | None:
    """As `_merge_one_by_one`, for all nodes of one height at once.

    Nodes are compared by 64-bit sums of mixed (byte, child) pairs; at the end every merged node is compared with the node that
    stands for it, and None is returned if a sum was misleading.
    """
    n = len(trie.final)
    order = trie.depth[1:].argsort(kind="stable")
    bounds = np.bincount(trie.depth[1:], minlength=tallest + 1).cumsum()
    height = np.zeros(n, np.int64)
    for d in range(tallest, 0, -1):
        edges = order[bounds[d - 1] : bounds[d]]
        np.maximum.at(height, trie.parent[edges], height[edges + 1] + 1)
    # Edges by (height of the source, source, byte): within one parent the numbers of the children follow the bytes.
    edges = (height[trie.parent] * n + trie.parent).argsort(kind="stable")
    source = trie.parent[edges]
    heads = np.concatenate(([True], source[1:] != source[:-1]))
    starts = heads.nonzero()[0]
    owner = source[starts]
    levels = np.searchsorted(height[owner], np.arange(1, height[0] + 2))
    label = trie.byte[edges].astype(np.uint64)
    final = trie.final.astype(np.uint64)
    stands_for = np.arange(n)
    leaves = (height == 0).nonzero()[0]
    stands_for[leaves] = leaves[0]
    edge_end = len(edges)
    for h in range(int(height[0])):
        lo, hi = levels[h], levels[h + 1]
        first, last = starts[lo], starts[hi] if hi < len(starts) else edge_end
        nodes = owner[lo:hi]
        pair = stands_for[edges[first:last] + 1].astype(np.uint64) << np.uint64(8) | label[first:last]
        total = np.add.reduceat(mixed(pair), starts[lo:hi] - first) * np.uint64(2) + final[nodes]
        _, representative, group = np.unique(total, return_index=True, return_inverse=True)
        stands_for[nodes] = nodes[representative[group]]
        if not h & 255:
            deadline.check(_DOING)
    # The comparison, edge by edge.
    degree = np.bincount(trie.parent, minlength=n)
    begin = np.zeros(n, np.int64)
    begin[owner] = starts
    twin = begin[stands_for[source]] + (np.arange(edge_end) - begin[source])
    same = (degree == degree[stands_for]).all() and (trie.final == trie.final[stands_for]).all()
    if same:
        target = stands_for[edges + 1]
        same = bool((label == label[twin]).all() and (target == target[twin]).all())
    return stands_for if same else None


def _pack(trie: _Trie, stands_for: np.ndarray, limits: CompileLimits) -> ByteDfa:
    """The automaton of the merged trie; state 1 is the root."""
    nodes = np.flatnonzero(stands_for == np.arange(len(stands_for)))
    if limits.max_states <= len(nodes):
        raise LimitError("max_states", limits.max_states, _DOING)
    number = np.zeros(len(stands_for), np.int64)
    number[nodes] = np.arange(len(nodes))
    edges = np.flatnonzero(stands_for[trie.parent] == trie.parent)
    source, byte = number[trie.parent[edges]], trie.byte[edges].astype(np.int64)
    order = (source << 8 | byte).argsort(kind="stable")
    target = number[stands_for[edges + 1]]
    return dfa_from_arcs(source[order], byte[order], target[order], trie.final[nodes], 0, limits)
