"""Sets of items on the device: tries in level order beside the nodes of other constraints.

A node of a trie is a number from `num_ordinary` on, so that a row's `node` says by itself which kind of constraint it has. The
modules that read tables ask here for what tries add; to them such a node is the dead one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fsa_compile.items.artifact import CompiledItems
from jax_decode.reading import read

LISTED = 16
"""Nodes with more children have mask rows, as far as those take at most `ROW_BYTES` more memory than the trie; the others list
their children, which are read in one burst, as long as the longest list."""
ROW_BYTES = 16 << 20
_FANOUT = 8
"""Branching of the searches; their depths are static."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ItemTables:
    """Tries, one after another; every axis is padded to a power of two. Node t here is node `num_ordinary` + t of a row.

    Attributes:
      token: uint16 or int32[T], the token that leads to each node.
      first: int32[T + 1], where the children of each node begin; they end where those of the next begin.
      distance: uint8 or uint16[T], tokens to the end of the nearest item, 0 where one ends.
      wide: int32[X], nodes with mask rows, ascending, then 2**30.
      levels: int32[X, 2], where the levels of each wide node begin in `ConstraintTables.levels`, and how many there are.
      listed: int32[], most children of a node without mask rows.
      num_ordinary: number of the first node; search_depth, wide_depth: levels of the searches among a node's children and among
        the wide nodes.
    """

    token: jax.Array
    first: jax.Array
    distance: jax.Array
    wide: jax.Array
    levels: jax.Array
    listed: jax.Array
    num_ordinary: int
    search_depth: int
    wide_depth: int


_STATIC = ["num_ordinary", "search_depth", "wide_depth"]
jax.tree_util.register_dataclass(
    ItemTables, data_fields=[f.name for f in dataclasses.fields(ItemTables) if f.name not in _STATIC], meta_fields=_STATIC
)


@dataclasses.dataclass(frozen=True)
class PackedItems:
    """What `pack_items` makes of sets of items, as NumPy arrays.

    Attributes:
      arrays: of `ItemTables`, unpadded.
      sizes: its depths of search.
      burst: room for the longest list of children.
      roots: the first node of every set.
      rows: uint32[R, *], mask rows in the file's bit order; level_cost: the cost of each.
    """

    arrays: dict[str, NDArray[Any]]
    sizes: dict[str, int]
    burst: int
    roots: list[int]
    rows: NDArray[np.uint32]
    level_cost: NDArray[np.int32]


def pack_items(sets: Sequence[CompiledItems]) -> PackedItems:
    """Joins sets of items; their wide nodes get mask rows."""
    roots = list(np.cumsum([0, *(c.num_nodes for c in sets)])[:-1])
    firsts = [c.first[:-1] + base for c, base in zip(sets, roots)]
    firsts.append(np.array([roots[-1] + sets[-1].num_nodes]))
    wide, levels, costs = list[int](), list[tuple[int, int]](), list[int]()
    rows = [np.zeros((0, -(-sets[0].vocab_size // 32)), np.uint32)]
    most = max(int(np.diff(c.first).max()) for c in sets)
    listed = _longest_list(sets)
    for c, base in zip(sets, roots):
        for node in np.flatnonzero(np.diff(c.first) > listed):
            of_node, row = _levels(c, int(node))
            wide.append(base + int(node))
            levels.append((len(costs), len(of_node)))
            costs += of_node
            rows.append(row)
    arrays = {
        "token": np.concatenate([c.token for c in sets]),
        "first": np.concatenate(firsts).astype(np.int32),
        "distance": np.concatenate([c.distance for c in sets]),
        "wide": np.array(wide, np.int32),
        "levels": np.array(levels, np.int32).reshape(-1, 2),
        "listed": np.array(listed, np.int32),
    }
    sizes = {"search_depth": _depth(most), "wide_depth": _depth(len(wide))}
    return PackedItems(arrays, sizes, min(listed, most), roots, np.concatenate(rows), np.array(costs, np.int32))


def _longest_list(sets: Sequence[CompiledItems]) -> int:
    """The smallest bound of lists with which the mask rows of nodes with more children take no more memory than they may."""
    children = np.concatenate([np.diff(c.first) for c in sets])
    children = children[children > LISTED]
    row = -(-sets[0].vocab_size // 32) * 4
    most = ROW_BYTES + sum(c.nbytes for c in sets)
    listed = LISTED
    while (wide := np.count_nonzero(children > listed)) and wide * row > most:
        listed *= 2
    return listed


def _levels(items: CompiledItems, node: int) -> tuple[list[int], NDArray[np.uint32]]:
    """Costs of a node's levels, ascending, and their rows: the children whose items fit into that many tokens."""
    children = slice(int(items.first[node]), int(items.first[node + 1]))
    token, cost = items.token[children].astype(np.int64), items.distance[children].astype(np.int64) + 1
    costs = np.unique(cost)
    rows = np.zeros((len(costs), -(-items.vocab_size // 32)), np.uint32)
    bit = np.uint32(1) << (token & 31).astype(np.uint32)
    for i, most in enumerate(costs):
        fits = cost <= most
        np.bitwise_or.at(rows[i], token[fits] >> 5, bit[fits])
    return costs.tolist(), rows


def _depth(size: int) -> int:
    depth = 1
    while _FANOUT**depth < size:
        depth += 1
    return depth


def node_in(items: ItemTables | None, node: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """Nodes as the other tables know them, and nodes of tries, -1 elsewhere (None without tries), from nodes of rows."""
    if items is None:
        return node, None
    own = node >= items.num_ordinary
    return jnp.where(own, 0, node), jnp.where(own, node - items.num_ordinary, -1)


def to_end(items: ItemTables, node: jax.Array) -> jax.Array:
    """Tokens to the end of the nearest item, int32."""
    return read(items.distance, node).astype(jnp.int32)


def levels_of(items: ItemTables, node: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where the levels of nodes int32[B] begin, and how many they are: none but of wide nodes."""
    at, hit = _search(items.wide, jnp.zeros_like(node), jnp.full_like(node, items.wide.shape[0]), node, items.wide_depth)
    span = read(items.levels, at)
    return jnp.where(hit, span[:, 0], 0), jnp.where(hit, span[:, 1], 0)


def child(items: ItemTables, node: jax.Array, tokens: jax.Array) -> jax.Array:
    """The row's node after one more token, int32[B], 0 where it is forbidden."""
    at, hit = _search(items.token, read(items.first, node), read(items.first, node + 1), tokens, items.search_depth)
    return jnp.where(hit, at + items.num_ordinary, 0)


def _search(table: jax.Array, at: jax.Array, end: jax.Array, value: jax.Array, depth: int) -> tuple[jax.Array, jax.Array]:
    """Index of a value in the ascending part `at:end` of a table, and whether it is there; elementwise over the rows."""
    last = table.shape[0] - 1
    for level in reversed(range(depth)):
        stride = _FANOUT**level
        step = jnp.zeros_like(at)
        for i in range(1, _FANOUT):
            probe = at + i * stride
            below = read(table, jnp.minimum(probe, last)).astype(jnp.int32) <= value
            step += jnp.where((probe < end) & below, stride, 0)
        at += step
    at = jnp.minimum(at, last)
    return at, (at < end) & (read(table, at).astype(jnp.int32) == value)


def listed_children(items: ItemTables, node: jax.Array, slots: jax.Array, most: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Tokens of the children of nodes int32[B] that have no mask rows.

    Args:
      items: from the tables.
      node: nodes of tries.
      slots: int32[1, n], 0, 1, ...
      most: int32[B], tokens that may still be taken.

    Returns:
      int32[B, n], and bool[B, n]: which exist and can be completed.
    """
    begin = read(items.first, node)
    count = read(items.first, node + 1) - begin
    place = jnp.minimum(begin[:, None] + slots, items.token.shape[0] - 1)
    fits = (slots < count[:, None]) & (count <= items.listed)[:, None] & (to_end(items, place) < most[:, None])
    return read(items.token, place).astype(jnp.int32), fits
