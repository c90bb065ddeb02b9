"""`ConstraintTables`: compiled constraints on the device, concatenated, repacked and padded to size buckets.

The only module that knows the device layout of a constraint. Reading the tables belongs to `masking` and `transition`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import ARC_BURST, UNREACHABLE
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from jax_decode.errors import DecodeError
from jax_decode.kernels.columns import Columns, Shards
from jax_decode.kernels.placement import with_automatic_axes
from jax_decode.kernels.row_layout import NO_TOKEN, only_tokens, packed, shards_of, words_for
from jax_decode.tables.canonical import PairTables, pair_arrays, with_partners
from jax_decode.tables.canonical_filter import FilterTables, filter_arrays
from jax_decode.tables.forced_spelling import forced_spellings
from jax_decode.tables.guard_layout import pack_sets
from jax_decode.tables.items import ItemTables, PackedItems, pack_items
from jax_decode.tables.stack_layout import longest_chain, pack_stacks

DEAD = 0
"""Node that allows nothing."""
FREE = 1
"""Node of a row without a constraint: every id of the tokenizer, back to itself."""
SEARCH_FANOUT = 8
"""Branching of the search among a node's arcs; its depth is static."""

GROUP_OFFSET, GROUP_COUNT, ARC_OFFSET, ARC_COUNT, LEVEL_OFFSET, LEVEL_COUNT, DISTANCE, ACCEPT = range(8)
"""Columns of `ConstraintTables.nodes`."""
ARC_TOKEN, ARC_NEXT, ARC_COST, ARC_NEED = range(4)
"""Columns of `ConstraintTables.arcs`."""
LEVEL_COST, LEVEL_ROW, LEVEL_NEED = range(3)
"""Columns of `ConstraintTables.levels`."""
START, TEXT_ROW, SHORTEST, SHALLOWEST, FIRST_TOP, PUSHES, PROMPT_LAST, FIRST_STATE = range(8)
"""Columns of `ConstraintTables.constraints`."""

_UNROLLED = 16
"""A table may be read this many entries past a node's own: padding at the end makes that safe."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstraintTables:
    """Constraints over one vocabulary, on the device: a pytree whose arrays are leaves.

    Pass it to jitted functions as an argument. Two tables of the same size buckets share one compilation; every axis
    below but W is padded to a power of two. Never donate it.

    Axes: N nodes (0 dead, 1 unconstrained), R bit rows (0 empty, 1 all ids), W words per row, G groups, A arcs,
    L levels, C constraints, E stop ids, S push strings (0 empty), P effective symbols, I per-token tables. The arrays from
    `frames` on have no elements where every constraint is regular, `counters` and `symbols` where none has a counter.

    Attributes:
      nodes: int32[N, 8], one record per node, see the column names of this module.
      groups: int32[G, 2], bit row and next node of each wide token set.
      arcs: int32[A, 4], token, next node, cost and need of each narrow one.
      levels: int32[L, 2] cost and bit row; int32[L, 4] where constraints have stacks: cost, bit row, need, 0.
      rows: uint32[R, W]; token `b * W + j` is bit b of word j (bit planes), so that a plane of logits is a slice. With a
        vocabulary that is spread over devices, that holds within every shard; `columns` says where a token's bit is.
      only: int32[R], the token of a row of one token, -1 for an empty row, -2 for a row of several.
      constraints: int32[C, 8], start node, row of all its text tokens, length of its shortest text in tokens, depth of stack
        that a text needs, index of the initial stack's top cell, whether it ever pushes, one more than the last token of the
        prompt that canonical texts continue (0: none), state of the tokenizer's filter behind it.
      stop_ids: int32[C, E], default end-of-text ids, padded with -1.
      num_constraints: how many of C are real; traced (a leaf), so that it is no part of the compiled program.
      frames: int32[N, 3], where the children of a node begin in `delta` (an offset for symbols), its need, and whether its
        constraint is followed on several stacks.
      counters: int32[N, 8], ladder and slope of each node.
      delta: int32[*], the source after popping a symbol.
      group_effects, arc_effects: int32[G, 4], int32[A, 4], push string, add and set of each token set, 0.
      pushes: int32[S, PM, 4], symbol, register, cost, and need and one more, of each entry, bottom first; the first entry of a
        string has its base symbol, and cost and need as if there were no counters.
      symbols: int32[P, 9], ladder, slope, cost and need of each effective symbol.
      increments: uint16[I, V].
      spelling: int32[N], the longest token of a node whose tokens all begin one and the same text, -1 for others; of no elements
        where the vocabulary is not known.
      initial: int32[C, PM + 1, 5 or 6], the first cells of every row: none, then the initial stack; `stack_layout` names the
        columns.
      keys, guards: int32[Q, W'] and int32[D, 4], masks of keys, and guards on sets of keys. This and the next three have no
        elements where no constraint has sets; `set_layout` names the columns.
      set_nodes: int32[N, *], twins, further distances and conditions of nodes.
      arc_sets: int32[A, 2], guard of each arc, and row of `keys` of the frame it opens.
      push_keys: int32[S, PM], rows of `keys` of the frames that push strings suspend, but the first.
      vocab_size: V, the tokenizer's ids; ids from V up are never allowed.
      fingerprint: of the vocabulary.
      max_groups: most groups of all sources of a configuration; max_levels: most levels of a node.
      max_candidates: most arcs of all sources without mask row of a configuration: 0 where no constraint has arcs.
      search_depth: levels of the search among the arcs of a node, `SEARCH_FANOUT ** search_depth` arcs at most.
      max_repeats: most arcs of a node with the same token: 1 where all constraints are deterministic.
      max_pops: D, most cells one token pops; max_push: PM, most cells it pushes; stacks: K, configurations per row.
      max_unset, max_conditions: most conditions of a guard on bits that are not set, and of a node on what leaves its frame.
      unless: int32[N, K, 2], of nodes of canonical constraints the row of the tokens that may not lead to certain states of the
        filter, and the list of these; of no elements where there are none.
      partners: 1 where canonical constraints have two nodes for every place, else 0.
      pairs: what tokens forbid after them, where the constraints are canonical; else None.
      filter: the states of the tokenizer's filter, likewise.
      items: tries of the constraints that are sets of items; None where none is. Their nodes are numbers from N on.
      shards: how the vocabulary is spread over devices, None where it is not.
    """

    nodes: jax.Array
    groups: jax.Array
    arcs: jax.Array
    levels: jax.Array
    rows: jax.Array
    only: jax.Array
    constraints: jax.Array
    stop_ids: jax.Array
    num_constraints: jax.Array
    frames: jax.Array
    counters: jax.Array
    delta: jax.Array
    group_effects: jax.Array
    arc_effects: jax.Array
    pushes: jax.Array
    symbols: jax.Array
    increments: jax.Array
    spelling: jax.Array
    initial: jax.Array
    keys: jax.Array
    guards: jax.Array
    set_nodes: jax.Array
    arc_sets: jax.Array
    push_keys: jax.Array
    unless: jax.Array
    vocab_size: int
    fingerprint: str
    max_groups: int
    max_levels: int
    max_candidates: int
    search_depth: int
    max_repeats: int
    max_pops: int
    max_push: int
    stacks: int
    max_unset: int
    max_conditions: int
    partners: int = 0
    pairs: PairTables | None = None
    filter: FilterTables | None = None
    items: ItemTables | None = None
    shards: Shards | None = None

    @property
    def has_stack(self) -> bool:
        """Whether any constraint has a stack or a register; static."""
        return self.frames.shape[0] > 0

    @property
    def has_counters(self) -> bool:
        """Whether any constraint has a counter; static."""
        return self.counters.shape[0] > 0

    @property
    def key_words(self) -> int:
        """W', words of a set of keys; 0 where no constraint has any; static."""
        return self.keys.shape[1]

    @property
    def num_words(self) -> int:
        """W, words of a bit row."""
        return self.rows.shape[1]

    @property
    def only_items(self) -> bool:
        """Whether all constraints are sets of items: every node outside their tries is the free or the dead one; static."""
        return self.items is not None and self.items.alone

    @property
    def columns(self) -> Columns:
        """How tokens lie in the words of bit rows; static."""
        return Columns(self.num_words, self.shards)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))

    def __repr__(self) -> str:
        return (
            f"ConstraintTables({self.nodes.shape[0]:,} nodes, {self.rows.shape[0]:,} rows, "
            f"{self.constraints.shape[0]} constraints (padded), {self.nbytes / 1e6:.2f} MB, {self.vocab_size:,} tokens)"
        )


_STATIC = [f.name for f in dataclasses.fields(ConstraintTables) if f.type in ("int", "str", "Shards | None")]
jax.tree_util.register_dataclass(
    ConstraintTables,
    data_fields=[f.name for f in dataclasses.fields(ConstraintTables) if f.name not in _STATIC],
    meta_fields=_STATIC,
)


def to_device(
    constraint: CompiledConstraint | CompiledItems | Sequence[CompiledConstraint | CompiledItems],
    *,
    canonical: Any = None,
    logits_width: int | None = None,
    vocabulary: Any = None,
    sharding: Any = None,
    vocabulary_axis: str | None = None,
) -> ConstraintTables:
    """Moves one constraint, or several over one vocabulary, to the device.

    Args:
      constraint: one or more, sets of items (`compile_items`) among them; row indices of `generate` and `init_state`
        count in this order.
      canonical: `fsa_compile.canonical_tables(tokenizer)`, for constraints compiled with `canonical=True`; all must be.
      logits_width: number of logits of the model where it exceeds the tokenizer's; wider logits than told here work
        too (the ids beyond are masked).
      vocabulary: optional; the constraints' vocabulary, or a tokenizer that has one. Drafts then know the texts that a constraint
        forces, in whichever tokens; see `ForcedText`.
      sharding: device or sharding to place the arrays on, as in `jax.device_put`; None for the default device.
      vocabulary_axis: axis of the sharding's mesh over which the model's logits are spread, if they are. Mask rows are packed for
        every shard and spread with them; masking and choosing then happen where the logits lie, see `docs/devices.md`.

    Returns:
      The tables.

    Raises:
      DecodeError: not constraints, different vocabularies, logits narrower than the vocabulary, canonical tables missing or not
        theirs, canonical constraints that cannot share tables, a vocabulary that the axis does not divide.
    """
    every = [constraint] if isinstance(constraint, (CompiledConstraint, CompiledItems)) else constraint
    every = _checked(every, logits_width)
    first = every[0]
    catalogues = {id(c): c for c in every if isinstance(c, CompiledItems)}
    standing_in = {i: _placeholder(c) for i, c in catalogues.items()}
    given = [standing_in[id(c)] if isinstance(c, CompiledItems) else c for c in every]
    _check_canonical(given, canonical)
    if any(c.has_partners for c in given):
        given = with_partners(given)
    constraints, stored = _stored_once(given)
    width = max(first.vocab_size, logits_width or 0)
    sharding = with_automatic_axes(sharding)
    shards = shards_of(sharding, vocabulary_axis, width)
    num_words = words_for(width) if shards is None else shards.count * shards.num_words
    parts = _concatenate(constraints)
    sizes = _static_sizes(constraints)
    items = pack_items(list(catalogues.values())) if catalogues else None
    alone = len(catalogues) == len(constraints)
    if items is not None:
        which = [i for i, c in enumerate(constraints) if any(c is other for other in standing_in.values())]
        parts = _with_items(parts, list(catalogues.values()), which, items)
        sizes["max_candidates"] = max(sizes["max_candidates"], _bucket(items.longest_list, 4))
        levels = _bucket(int(items.arrays["levels"][:, 1].max(initial=1)), 1 if alone else 4)
        sizes["max_levels"] = levels if alone else max(sizes["max_levels"], levels)
    rows = np.zeros((_bucket(len(parts.rows), 16), num_words), np.uint32)
    rows[: len(parts.rows)] = packed(parts.rows, num_words, shards)
    only = np.full(len(rows), NO_TOKEN, np.int32)
    only[: len(parts.rows)] = only_tokens(parts.rows)
    max_groups, max_levels = sizes["max_groups"], sizes["max_levels"]
    sets = pack_sets(constraints, sizes["max_push"])
    sizes |= {"max_unset": sets.max_unset, "max_conditions": sets.max_conditions}
    stacks = pack_stacks(constraints, sizes["max_push"], sizes["stacks"] > 1)
    arrays: dict[str, Any] = {
        "nodes": _padded(parts.nodes, 64, 0),
        "groups": _padded(parts.groups, 64, max(_UNROLLED, max_groups)),
        "arcs": _padded(parts.arcs, 64, max(ARC_BURST, sizes["max_candidates"])),
        "levels": _padded(parts.levels if len(stacks.frames) else parts.levels[:, :2], 64, max(_UNROLLED, max_levels)),
        "rows": rows,
        "only": only,
        "constraints": _padded(_with_own_starts(parts.constraints[stored], given, constraints, stored), 1, 0),
        "stop_ids": _stop_table(given),
        "num_constraints": np.int32(len(given)),
        "spelling": np.zeros(0, np.int32),
        "unless": np.zeros((0, 1, 2), np.int32),
    }
    if vocabulary is not None:
        forced = [forced_spellings(c, vocabulary)[1:] for c in constraints]
        arrays["spelling"] = np.full(len(arrays["nodes"]), NO_TOKEN, np.int32)
        arrays["spelling"][2 : 2 + sum(map(len, forced))] = np.concatenate(forced)
    for field in dataclasses.fields(stacks):
        table = getattr(stacks, field.name)
        if field.name == "initial" and len(table):
            table = table[stored]
        arrays[field.name] = _padded(table, 1 if field.name in ("increments", "initial") else 64, 0) if len(table) else table
    if len(stacks.frames):  # a group and an arc have the same index in both of their tables
        for name in ("group", "arc"):
            arrays[f"{name}_effects"] = _padded(getattr(stacks, f"{name}_effects"), len(arrays[f"{name}s"]), 0)
    for name in ("keys", "guards", "set_nodes", "push_keys", "arc_sets"):
        table = getattr(sets, name)
        least = len(arrays["arcs"]) if name == "arc_sets" else 64
        arrays[name] = _padded(table, least, 0) if table.shape[1] and len(table) else table
    if sets.keys.shape[1]:
        arrays["initial"] = np.pad(arrays["initial"], ((0, 0), (0, 0), (0, sets.keys.shape[1])))
    if canonical is not None:
        pairs = canonical.model_rows
        on_host, max_flips = pair_arrays(pairs, packed(pairs.rows, num_words, shards), num_words * 32)
        sizes["pairs"] = PairTables(**_placed(on_host, sharding, shards), max_flips=max_flips)
        arrays["unless"], shunned = _exceptions(constraints, len(arrays["nodes"]))
        on_host = filter_arrays(canonical.filter_table, Columns(num_words, shards), shunned)
        sizes["filter"] = FilterTables(**_placed(on_host, sharding, shards))
        sizes["partners"] = int(constraints[0].has_partners)
    if items is not None:
        base = parts.constraints[which[0], START] - items.roots[0]
        tries = {n: _padded(x, 1 if x.ndim > 1 else 64, 1) if x.ndim else x for n, x in items.arrays.items()}
        tries["first"][len(items.arrays["first"]) :] = items.arrays["first"][-1]
        burst = _bucket(max(items.longest_list, items.longest_block), 4)
        sizes["items"] = ItemTables(**_placed(tries, sharding, None), num_ordinary=int(base), burst=burst, alone=alone)
    fields: dict[str, Any] = _placed(arrays, sharding, shards) | sizes
    return ConstraintTables(**fields, vocab_size=first.vocab_size, fingerprint=first.fingerprint, shards=shards)


def _placed(arrays: dict[str, Any], sharding: Any, shards: Shards | None) -> dict[str, Any]:
    """The arrays on their devices; `rows` is spread over the shards."""
    where = dict.fromkeys(arrays, sharding)
    if shards is not None:
        where["rows"] = NamedSharding(shards.mesh, PartitionSpec(None, shards.axis))
    if isinstance(sharding, NamedSharding) and not sharding.is_fully_addressable:  # every process puts its own pieces
        pieces = ((name, np.asarray(array), where[name]) for name, array in arrays.items())
        return {name: jax.make_array_from_callback(x.shape, to, x.__getitem__) for name, x, to in pieces}
    return jax.device_put(arrays, sharding if shards is None else where)


def _stored_once(constraints: list[CompiledConstraint]) -> tuple[list[CompiledConstraint], NDArray[np.intp]]:
    """Constraints without those that differ from an earlier one in their start only, and which of these each one is.

    A constraint that is given twice, or that `fsa_compile.heal_batch` let begin at several places, takes room once.
    """
    numbers: dict[tuple[int, ...], int] = {}
    kept: list[CompiledConstraint] = []
    for c in constraints:
        key = (id(c.rows), id(c.arc_token), id(c.group_next), id(c.accept), c.initial_push)
        if key not in numbers:
            numbers[key] = len(kept)
            kept.append(c)
    which = [numbers[id(c.rows), id(c.arc_token), id(c.group_next), id(c.accept), c.initial_push] for c in constraints]
    return kept, np.array(which, np.intp)


def _with_own_starts(
    table: NDArray[np.int32],
    constraints: Sequence[CompiledConstraint],
    kept: Sequence[CompiledConstraint],
    stored: NDArray[np.intp],
) -> NDArray[np.int32]:
    """The records of all constraints, from those of the ones they are stored as."""
    for record, c, at in zip(table, constraints, stored.tolist()):
        if c is not kept[at]:
            record[START] += c.start - kept[at].start
            record[SHORTEST], record[SHALLOWEST] = c.shortest_completion, c.shortest_depth
            record[[PROMPT_LAST, FIRST_STATE]] = _canonical_start(c)
    return table


def _placeholder(items: CompiledItems) -> CompiledConstraint:
    """Stands for a set of items among other constraints: one node that nothing leads from; `_with_items` puts in the rest."""
    none, one = np.zeros(3, np.int32), np.zeros(0, np.int32)
    return CompiledConstraint(
        vocab_size=items.vocab_size,
        fingerprint=items.fingerprint,
        stop_ids=items.stop_ids,
        source=items.source,
        start=1,
        accept=np.zeros(2, bool),
        distance=np.array([UNREACHABLE, 0], np.int32),
        rows=np.zeros((1, (items.vocab_size + 31) // 32), np.uint32),
        group_offset=none,
        group_row=one,
        group_next=one,
        arc_offset=none,
        arc_token=one,
        arc_effect=one,
        level_offset=none,
        level_cost=one,
        level_row=one,
    )


def _with_items(parts: _Parts, catalogues: Sequence[CompiledItems], which: list[int], items: PackedItems) -> _Parts:
    """Adds the mask rows of sets of items, and where the sets begin.

    Args:
      catalogues: the sets; which: their places among all constraints; items: made of them.
    """
    base, row = _bucket(len(parts.nodes), 64), len(parts.rows)
    level = np.zeros((len(items.rows), 4), np.int32)
    level[:, LEVEL_COST], level[:, LEVEL_ROW] = items.level_cost, row + np.arange(len(level))
    items.arrays["levels"][:, 0] += len(parts.levels)
    texts = list[NDArray[np.uint32]]()
    constraints = parts.constraints.copy()
    for i, c, root in zip(which, catalogues, items.roots):
        used = np.unique(c.token[1:]).astype(np.int64)
        text = np.zeros(parts.rows.shape[1], np.uint32)
        np.bitwise_or.at(text, used >> 5, np.uint32(1) << (used & 31).astype(np.uint32))
        constraints[i, [START, TEXT_ROW, SHORTEST]] = base + root, row + len(level) + len(texts), c.shortest_completion
        texts.append(text)
    return dataclasses.replace(
        parts,
        levels=np.concatenate([parts.levels, level]),
        rows=np.concatenate([parts.rows, items.rows, texts]),
        constraints=constraints,
    )


def _check_canonical(constraints: Sequence[CompiledConstraint], canonical: Any) -> None:
    """Raises `DecodeError` unless canonical constraints come with the tables they were made with, and others without."""
    identity = None if canonical is None else canonical.identity
    for i, c in enumerate(constraints):
        if c.extra.get("canonical") != identity:
            what = "the constraint is canonical, and its tokenizer's tables are not given"
            fix = "Pass canonical=fsa_compile.canonical_tables(tokenizer)."
            if identity is not None:
                what = "the constraint was not made with the canonical tables given"
                fix = "Compile all constraints with canonical=True, with the same tokenizer and version of its encoder."
            raise DecodeError(what, where=f"constraint {i}", fix=fix)
        if c.is_canonical and c.stacks > 1:
            what = f"the constraint is canonical and followed on {c.stacks} stacks at once"
            fix = "Bound its nesting (max_depth=), so that its stacks are written out, or compile it without canonical=True."
            raise DecodeError(what, where=f"constraint {i}", fix=fix)


def _static_sizes(constraints: Sequence[CompiledConstraint]) -> dict[str, Any]:
    """The sizes that are part of the compiled program, in buckets."""
    groups = levels = arcs = candidates = 0
    repeats = pops = longest = stacks = 1
    for c in constraints:
        of_groups, of_arcs, of_levels = (np.diff(x).astype(np.int64) for x in (c.group_offset, c.arc_offset, c.level_offset))
        groups = max(groups, longest_chain(c, of_groups) * c.stacks)
        listed = np.where(of_levels > 0, 0, of_arcs)
        if c.has_partners:  # both nodes of a place are read
            listed = np.append(0, np.repeat(listed[1::2] + listed[2::2], 2))
        candidates = max(candidates, longest_chain(c, listed) * c.stacks)
        bursts = np.where(of_levels > 0, 0, of_arcs)
        if c.has_sets:  # twins are sources, too
            bursts = bursts + np.where(c.twin > 0, bursts[c.twin], 0)
        candidates = max(candidates, longest_chain(c, bursts) * c.stacks)
        levels, arcs = max(levels, int(of_levels.max())), max(arcs, int(of_arcs.max()))
        stacks = max(stacks, c.stacks)
        if (c.stacks > 1 or c.has_sets) and len(c.arc_token):
            owner = np.repeat(np.arange(c.num_nodes), of_arcs)
            repeats = max(repeats, int(np.unique(owner * c.vocab_size + c.arc_token, return_counts=True)[1].max()))
    pops, longest = max(c.max_pops for c in constraints), max(c.max_push for c in constraints)
    depth = 2
    while SEARCH_FANOUT**depth < arcs:
        depth += 1
    return {
        "max_groups": _bucket(groups, 4),
        "max_levels": _bucket(levels, 4),
        "max_candidates": -(-max(candidates, 1) // ARC_BURST) * ARC_BURST if arcs else 0,
        "search_depth": depth if arcs else 0,
        "max_repeats": repeats,
        "max_pops": pops + pops % 2,
        "max_push": 0 if all(c.is_regular for c in constraints) else _bucket(longest, 1),
        "stacks": stacks,
    }


@dataclasses.dataclass(frozen=True)
class _Parts:
    """All constraints one after another, unpadded; `rows` still in the file's bit order, `levels` with all columns."""

    nodes: NDArray[np.int32]
    groups: NDArray[np.int32]
    arcs: NDArray[np.int32]
    levels: NDArray[np.int32]
    rows: NDArray[np.uint32]
    constraints: NDArray[np.int32]


def _concatenate(constraints: Sequence[CompiledConstraint]) -> _Parts:
    """Joins the constraints behind the dead and the unconstrained node; offsets are added to every id."""
    vocab_size = constraints[0].vocab_size
    every = np.zeros((2, (vocab_size + 31) // 32), np.uint32)
    every[1] = np.packbits(np.arange(every.shape[1] * 32) < vocab_size, bitorder="little").view("<u4")
    nodes = [np.array([[0] * 8, [0, 1, 0, 0, 0, 1, 0, 0]], np.int32)]
    groups, levels = [np.array([[1, FREE]], np.int32)], [np.array([[1, 1, 0, 0]], np.int32)]
    arcs, rows, table = [np.zeros((0, 4), np.int32)], [every], []
    sizes = np.array([2, 1, 0, 1, 2])  # nodes, groups, arcs, levels, rows so far
    for c in constraints:
        base = sizes[0] - 1  # its dead node is the common one: node n becomes base + n
        row_base = sizes[4] - 1
        nodes.append(_node_records(c, sizes))
        groups.append(np.stack([c.group_row + row_base, c.group_next + base], 1).astype(np.int32))
        arcs.append(np.stack([c.arc_token, c.arc_next + base, c.arc_cost, c.arc_need], 1).astype(np.int32))
        level = [c.level_cost, c.level_row + row_base, c.level_need, np.zeros_like(c.level_need)]
        levels.append(np.stack(level, 1).astype(np.int32))
        rows += [c.rows[1:], _text_row(c)[None]]
        sizes += [c.num_nodes - 1, len(c.group_row), len(c.arc_token), len(c.level_row), c.num_rows]
        top = c.push_offset[c.initial_push + 1] - c.push_offset[c.initial_push]
        first = [base + c.start, sizes[4] - 1, c.shortest_completion, c.shortest_depth, top, c.max_push > 0]
        table.append([*first, *_canonical_start(c)])
    return _Parts(
        nodes=np.concatenate(nodes),
        groups=np.concatenate(groups),
        arcs=np.concatenate(arcs),
        levels=np.concatenate(levels),
        rows=np.concatenate(rows),
        constraints=np.array(table, np.int32),
    )


def _exceptions(constraints: Sequence[CompiledConstraint], count: int) -> tuple[NDArray[np.int32], list[list[int]]]:
    """`ConstraintTables.unless` for so many nodes, and the lists of states it numbers."""
    found = [c.canonical_unless for c in constraints]
    out = np.zeros((count, max([unless.shape[1] for _, unless in found], default=1), 2), np.int32)
    known: list[list[int]] = []
    node, row = 2, 2  # of the constraint's own first ones
    for c, (lists, unless) in zip(constraints, found):
        if lists:
            known += [states for states in lists if states not in known]
            number = np.array([known.index(states) for states in lists], np.int32)
            own = out[node : node + c.num_nodes - 1, : unless.shape[1]]
            own[..., 0] = np.where(unless[1:, :, 0] > 0, unless[1:, :, 0] + row - 1, 0)
            own[..., 1] = number[unless[1:, :, 1]]
        node, row = node + c.num_nodes - 1, row + c.num_rows
    return out if known else out[:0], known


def _canonical_start(c: CompiledConstraint) -> tuple[int, int]:
    """Of a canonical constraint one more than the prompt's last token, 0 for none, and the state of the filter."""
    if not c.is_canonical:
        return 0, 0
    last, _, state = c.canonical_start
    return last + 1, state


def _node_records(c: CompiledConstraint, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Records of all nodes but the dead one."""
    columns = []
    for offset, base in ((c.group_offset, sizes[1]), (c.arc_offset, sizes[2]), (c.level_offset, sizes[3])):
        columns += [offset[1:-1] + base, np.diff(offset)[1:]]
    columns += [np.minimum(c.distance[1:], UNREACHABLE), c.accept[1:]]
    return np.stack(columns, 1).astype(np.int32)


def _text_row(c: CompiledConstraint) -> NDArray[np.uint32]:
    """Bit row (file order) of every token the constraint allows anywhere."""
    row = np.bitwise_or.reduce(c.rows, axis=0)
    np.bitwise_or.at(row, c.arc_token >> 5, np.uint32(1) << (c.arc_token & 31).astype(np.uint32))
    return row


def _stop_table(constraints: Sequence[CompiledConstraint]) -> NDArray[np.int32]:
    stops = np.full((_bucket(len(constraints), 1), _bucket(max(len(c.stop_ids) for c in constraints), 1)), -1, np.int32)
    for i, c in enumerate(constraints):
        stops[i, : len(c.stop_ids)] = c.stop_ids
    return stops


def _checked(constraints: Any, logits_width: int | None) -> list[CompiledConstraint | CompiledItems]:
    what = "to_device takes one CompiledConstraint or a list of them"
    fix = "Compile one with fsa_compile, or read one with CompiledConstraint.load."
    try:
        constraints = list(constraints)
    except TypeError:
        raise DecodeError(f"{what}, not {type(constraints).__name__}", fix=fix) from None
    if not constraints:
        raise DecodeError(f"{what}; the list is empty", fix=fix)
    for i, c in enumerate(constraints):
        if not isinstance(c, (CompiledConstraint, CompiledItems)):
            raise DecodeError(f"{what}, not {type(c).__name__}", where=f"constraint {i}", fix=fix)
    first = constraints[0]
    for i, c in enumerate(constraints):
        if (c.fingerprint, c.vocab_size) != (first.fingerprint, first.vocab_size):
            raise DecodeError(
                f"the constraints belong to different vocabularies: {first.fingerprint[:12]} ({first.vocab_size:,} tokens) "
                f"and {c.fingerprint[:12]} ({c.vocab_size:,})",
                where=f"constraints 0 and {i}",
                fix="Compile them for one tokenizer; make separate tables for separate models.",
            )
    if logits_width is not None and logits_width < first.vocab_size:
        raise DecodeError(
            f"the model's {logits_width:,} logits are fewer than the vocabulary's {first.vocab_size:,} ids",
            fix="Compile the constraint for the tokenizer of this model.",
        )
    return constraints


def _bucket(size: int, least: int) -> int:
    """The smallest power of two that is at least `size` and `least`."""
    return 1 << (max(size, least) - 1).bit_length()


def _padded(table: NDArray[Any], least: int, slack: int) -> NDArray[Any]:
    """`table` with zero rows appended up to its bucket, at least `slack` of them."""
    out = np.zeros((_bucket(len(table) + slack, least), *table.shape[1:]), table.dtype)
    out[: len(table)] = table
    return out
