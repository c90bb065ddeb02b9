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

from fsa_compile.artifact.item_trie import CompiledItems
from jax_decode.kernels.gather import read

LISTED = 16
"""Nodes with more children have mask rows, as far as those take at most `ROW_BYTES` more memory than the trie; the others list
their children, which are read in one burst, as long as the longest list."""
ROW_BYTES = 16 << 20
BLOCK = 16
"""Tokens of a block: a node with a mask row also says where the children of every block of ids begin."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ItemTables:
    """Tries, one after another; every axis is padded to a power of two. Node t here is node `num_ordinary` + t of a row.

    Nodes with mask rows are called wide. They are numbered by ascending node: bit t mod 32 of `wide[t // 32]` says whether t is
    one, and `wide_before[t // 32]` how many come before these 32.

    Attributes:
      token: uint16 or int32[T], the token that leads to each node.
      first: int32[T + 1], where the children of each node begin; they end where those of the next begin.
      distance: uint8 or uint16[T], tokens to the end of the nearest item, 0 where one ends.
      wide: uint32[X'], wide_before: int32[X'], see above; X' reaches past the last wide node.
      levels: int32[X, 2], where the levels of each wide node begin in `ConstraintTables.levels`, and how many there are.
      blocks: uint16 or int32[X, ceil(V / BLOCK) + 1], how many children of each wide node come before every block of ids.
      listed: int32[], most children of a node without mask rows.
      num_ordinary: number of the first node.
      burst: most children that a step reads: of a node without mask rows, or of one block.
      alone: whether the tables have no other constraints: what is no node of a trie is then the free or the dead node.
    """

    token: jax.Array
    first: jax.Array
    distance: jax.Array
    wide: jax.Array
    wide_before: jax.Array
    levels: jax.Array
    blocks: jax.Array
    listed: jax.Array
    num_ordinary: int
    burst: int
    alone: bool


_STATIC = ["num_ordinary", "burst", "alone"]
jax.tree_util.register_dataclass(
    ItemTables, data_fields=[f.name for f in dataclasses.fields(ItemTables) if f.name not in _STATIC], meta_fields=_STATIC
)


@dataclasses.dataclass(frozen=True)
class PackedItems:
    """What `pack_items` makes of sets of items, as NumPy arrays.

    Attributes:
      arrays: of `ItemTables`, unpadded.
      longest_list, longest_block: most children of a node without mask rows, and of a block of one with.
      roots: the first node of every set.
      rows: uint32[R, *], mask rows in the file's bit order; level_cost: the cost of each.
    """

    arrays: dict[str, NDArray[Any]]
    longest_list: int
    longest_block: int
    roots: list[int]
    rows: NDArray[np.uint32]
    level_cost: NDArray[np.int32]


def pack_items(sets: Sequence[CompiledItems]) -> PackedItems:
    """Joins sets of items; their wide nodes get mask rows."""
    roots = list(np.cumsum([0, *(c.num_nodes + 1 for c in sets)])[:-1])  # a node between two sets, where the children of one end
    firsts = [c.first + base for c, base in zip(sets, roots)]
    vocab_size = sets[0].vocab_size
    wide, levels, costs = list[int](), list[tuple[int, int]](), list[int]()
    rows = [np.zeros((0, -(-vocab_size // 32)), np.uint32)]
    starts = np.arange(-(-vocab_size // BLOCK) + 1) * BLOCK
    blocks = [np.zeros((0, len(starts)), np.int64)]
    children = np.concatenate([np.diff(c.first) for c in sets])
    listed = _longest_list(sets, children)
    for c, base in zip(sets, roots):
        for node in np.flatnonzero(np.diff(c.first) > listed):
            of_node, row = _levels(c, int(node))
            wide.append(base + int(node))
            levels.append((len(costs), len(of_node)))
            costs += of_node
            rows.append(row)
            blocks.append(np.searchsorted(c.token[c.first[node] : c.first[node + 1]], starts)[None])
    before = np.concatenate(blocks)
    flags = np.zeros((wide[-1] if wide else 0) // 32 * 32 + 64, bool)  # past the last one at least one word is empty
    flags[wide] = True
    words = np.packbits(flags, bitorder="little").view("<u4")
    arrays = {
        "token": np.concatenate([np.append(c.token, np.zeros_like(c.token, shape=1)) for c in sets])[:-1],
        "first": np.concatenate(firsts).astype(np.int32),
        "distance": np.concatenate([np.append(c.distance, np.zeros_like(c.distance, shape=1)) for c in sets])[:-1],
        "wide": words,
        "wide_before": np.append(0, np.cumsum(flags.reshape(-1, 32).sum(1)))[:-1].astype(np.int32),
        "levels": np.array(levels, np.int32).reshape(-1, 2),
        "blocks": before.astype(np.uint16 if before.max(initial=0) < 1 << 16 else np.int32),
        "listed": np.array(listed, np.int32),
    }
    longest = int(children[children <= listed].max()), int(np.diff(before).max(initial=0))
    return PackedItems(arrays, *longest, roots, np.concatenate(rows), np.array(costs, np.int32))


def _longest_list(sets: Sequence[CompiledItems], children: NDArray[np.int32]) -> int:
    """The smallest bound of lists with which the nodes of more children, which are wide, take no more memory than they may."""
    children = children[children > LISTED]
    each = sets[0].vocab_size // 8 + sets[0].vocab_size // BLOCK * (2 if children.max(initial=0) < 1 << 16 else 4)
    most = ROW_BYTES + sum(c.nbytes for c in sets)
    listed = LISTED
    while (wide := np.count_nonzero(children > listed)) and wide * each > most:
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


def node_in(items: ItemTables | None, node: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """Nodes as the other tables know them, and nodes of tries, -1 elsewhere (None without tries), from nodes of rows."""
    if items is None:
        return node, None
    own = node >= items.num_ordinary
    return jnp.where(own, 0, node), jnp.where(own, node - items.num_ordinary, -1)


def to_end(items: ItemTables, node: jax.Array) -> jax.Array:
    """Tokens to the end of the nearest item, int32."""
    return read(items.distance, node).astype(jnp.int32)


def _wide_number(items: ItemTables, node: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Number among the wide nodes (any number elsewhere), and whether a node is one; elementwise over int32[B]."""
    at = jnp.minimum(node >> 5, items.wide.shape[0] - 1)
    word, bit = read(items.wide, at), jnp.uint32(1) << (node & 31).astype(jnp.uint32)
    number = read(items.wide_before, at) + jax.lax.population_count(word & (bit - 1)).astype(jnp.int32)
    return jnp.minimum(number, items.levels.shape[0] - 1), (word & bit) != 0


def levels_of(items: ItemTables, node: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where the levels of nodes int32[B] begin, and how many they are: none but of wide nodes."""
    at, wide = _wide_number(items, node)
    span = read(items.levels, at)
    return jnp.where(wide, span[:, 0], 0), jnp.where(wide, span[:, 1], 0)


def child(items: ItemTables, node: jax.Array, tokens: jax.Array) -> jax.Array:
    """The row's node after one more token, int32[B], 0 where it is forbidden."""
    begin, end = read(items.first, node), read(items.first, node + 1)
    if items.blocks.shape[0]:
        number, wide = _wide_number(items, node)
        block = tokens // BLOCK
        before, past = (read(items.blocks, number, block + i).astype(jnp.int32) for i in range(2))
        begin, end = jnp.where(wide, begin + before, begin), jnp.where(wide, begin + past, end)
    place = begin[:, None] + jnp.arange(items.burst, dtype=jnp.int32)[None]
    token = read(items.token, jnp.minimum(place, items.token.shape[0] - 1)).astype(jnp.int32)
    return jnp.where((place < end[:, None]) & (token == tokens[:, None]), place + items.num_ordinary, 0).max(1)


def only_lists(items: ItemTables, node: jax.Array, alive: jax.Array) -> jax.Array:
    """Whether all rows that are alive, bool[B], stand at nodes int32[B] of tries that have no mask rows, bool[]."""
    item = node - items.num_ordinary
    at = jnp.maximum(item, 0)
    short = read(items.first, at + 1) - read(items.first, at) <= items.listed
    return (((item >= 0) & short) | ~alive).all()


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
