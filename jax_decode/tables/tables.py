"""`ConstraintTables`: compiled constraints on the device, concatenated, repacked and padded to size buckets.

The only module that knows the device layout of a constraint. Reading the tables belongs to `masking` and `transition`.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import ARC_BURST
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from jax_decode.errors import MOST_LOGITS, DecodeError, is_whole, named_arguments, shown
from jax_decode.kernels.columns import Columns, Shards
from jax_decode.kernels.placement import with_automatic_axes
from jax_decode.kernels.row_layout import NO_TOKEN, only_tokens, packed, shards_of, words_for
from jax_decode.tables.canonical import PairTables, pair_arrays, with_partners
from jax_decode.tables.canonical_filter import FilterTables, filter_arrays
from jax_decode.tables.concatenation import (
    START,
    Parts,
    bucket,
    concatenate,
    exceptions,
    inverse_temperatures,
    padded,
    placeholder,
    static_sizes,
    stop_table,
    stored_once,
    with_items,
    with_own_starts,
)
from jax_decode.tables.forced_spelling import forced_spellings
from jax_decode.tables.guard_layout import SetSizes, pack_sets, sizes_of_sets
from jax_decode.tables.items import BLOCK, ItemTables, PackedItems, pack_items
from jax_decode.tables.profiles import Profile, choose_profile, closest
from jax_decode.tables.remarks import NO_REMARKS, Remarks
from jax_decode.tables.stack_layout import has_counters, pack_stacks

_LOG = logging.getLogger("jax_decode")
_UNROLLED = 16
"""A table may be read this many entries past a node's own: padding at the end makes that safe."""
_FEW = 64
"""Constraints that there is always room for in a profile."""
SLACK = {"groups": 32, "arcs": 128, "levels": 32}
"""Entries past a node's own that may be read in any profile."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstraintTables:
    """Constraints over one vocabulary, on the device: a pytree whose arrays are leaves.

    Pass it to jitted functions as an argument. Two tables of the same profile and scale share one compilation; without a profile,
    every axis below but W is padded to a power of two. Never donate it.

    Axes: N nodes (0 dead, 1 unconstrained), R bit rows (0 empty, 1 all ids), W words per row, G groups, A arcs,
    L levels, C constraints, E stop ids, S push strings (0 empty), P effective symbols, I per-token tables. The arrays from
    `frames` on have no elements where every constraint is regular, `counters` and `symbols` where none has a counter.

    Attributes:
      nodes: int32[N, 8], one record per node, see the column names of this module.
      groups: int32[G, 2], bit row and next node of each wide token set; int32[G, 5] where constraints have stacks: then push
        string, add and set.
      arcs: int32[A, 4], token, cost, need and next node of each narrow one; int32[A, 7] where constraints have stacks: then push
        string, add and set; int32[A, 9] where they have sets of keys: then guard, and row of `keys` of the frame it opens.
      levels: int32[L, 2] cost and bit row; int32[L, 4] where constraints have stacks: cost, bit row, need, 0.
      rows: uint32[R, W]; token `b * W + j` is bit b of word j (bit planes), so that a plane of logits is a slice. With a
        vocabulary that is spread over devices, that holds within every shard; `columns` says where a token's bit is.
      only: int32[R], the token of a row of one token, -1 for an empty row, -2 for a row of several.
      constraints: int32[C, 8], start node, row of all its text tokens, length of its shortest text in tokens, depth of stack
        that a text needs, index of the initial stack's top cell, whether it ever pushes, one more than the last token of the
        prompt that canonical texts continue (0: none), state of the tokenizer's filter behind it.
      stop_ids: int32[C, E], default end-of-text ids, padded with -1.
      num_constraints: how many of C are real; traced (a leaf), so that it is no part of the compiled program.
      frames: int32[N, 3], where the children of a node begin in `delta` (an offset for symbols), its need, and how many
        stacks its constraint is followed on, 0 for one.
      counters: int32[N, 8], ladder and slope of each node.
      delta: int32[*, 3], the source after popping a symbol, where its own children begin, and its distance.
      pushes: int32[S, PM, 4], symbol, register, cost, and need and one more, of each entry, bottom first; the first entry of a
        string has its base symbol, and cost and need as if there were no counters.
      symbols: int32[P, 9], ladder, slope, cost and need of each effective symbol.
      increments: uint32[I, V / 2], that of token t in half t % 2 of word t / 2, the lower one first.
      spelling: int32[N], the longest token of a node whose tokens all begin one and the same text, -1 for others; of no elements
        where the vocabulary is not known.
      initial: int32[C, PM + 1, 6 or 7], the first cells of every row: none, then the initial stack; `stack_layout` names the
        columns.
      keys, guards: int32[Q, W'] and int32[D, 4], masks of keys, and guards on sets of keys. This and the next two have no
        elements where no constraint has sets; `guard_layout` names the columns.
      set_nodes: int32[N, *], twins, further distances and conditions of nodes.
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
      inverse_temperature: float32[N], one over the temperature of a node, infinite for none; of no elements where no constraint
        has temperatures.
      partners: 1 where canonical constraints have two nodes for every place, else 0.
      pairs: what tokens forbid after them, where the constraints are canonical; else None.
      filter: the states of the tokenizer's filter, likewise.
      items: tries of the constraints that are sets of items; None where none is. Their nodes are numbers from N on.
      shards: how the vocabulary is spread over devices, None where it is not.
      profile: that the sizes come from, None for sizes of the constraints' own.
      remarks: what users are told, no part of a program.
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
    pushes: jax.Array
    symbols: jax.Array
    increments: jax.Array
    spelling: jax.Array
    initial: jax.Array
    keys: jax.Array
    guards: jax.Array
    set_nodes: jax.Array
    push_keys: jax.Array
    unless: jax.Array
    inverse_temperature: jax.Array
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
    profile: Profile | None = None
    remarks: Remarks = NO_REMARKS

    @property
    def has_stack(self) -> bool:
        """Whether any constraint has a stack or a register; static."""
        return self.frames.shape[0] > 0

    @property
    def has_counters(self) -> bool:
        """Whether any constraint has a counter; static."""
        return self.counters.shape[0] > 0

    @property
    def has_temperatures(self) -> bool:
        """Whether any constraint has temperatures; static."""
        return self.inverse_temperature.shape[0] > 0

    @property
    def key_words(self) -> int:
        """W', words of a set of keys; 0 where no constraint has any; static."""
        return self.keys.shape[1]

    @property
    def cell_width(self) -> int:
        """C, columns of a cell; static."""
        return self.initial.shape[2]

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
        sizes = [n for n in _STATIC if n.startswith("max_") or n in ("search_depth", "stacks", "partners")]
        statics = ", ".join(f"{name} {getattr(self, name)}" for name in sizes)
        kinds = [self.has_stack, self.has_counters, self.key_words, self.pairs is not None, self.items is not None]
        names = ("stacks", "counters", "sets of keys", "canonical", "items", "temperatures")
        has = [name for name, there in zip(names, [*kinds, self.has_temperatures]) if there]
        return (
            f"ConstraintTables(profile {str(self.profile or 'none')!r}, {self.nodes.shape[0]:,} nodes, "
            f"{self.rows.shape[0]:,} rows, {self.constraints.shape[0]} constraints (padded), {self.nbytes / 1e6:.2f} MB, "
            f"{self.vocab_size:,} tokens; {' and '.join(has) or 'regular'}; static: {statics})"
        )


_KINDS = ("int", "str", "Shards | None", "Profile | None", "Remarks")
_STATIC = [f.name for f in dataclasses.fields(ConstraintTables) if f.type in _KINDS]
jax.tree_util.register_dataclass(
    ConstraintTables,
    data_fields=[f.name for f in dataclasses.fields(ConstraintTables) if f.name not in _STATIC],
    meta_fields=_STATIC,
)


@named_arguments
def to_device(
    constraint: CompiledConstraint | CompiledItems | Sequence[CompiledConstraint | CompiledItems],
    *,
    canonical: Any = None,
    logits_width: int | None = None,
    vocabulary: Any = None,
    sharding: Any = None,
    vocabulary_axis: str | None = None,
    profile: Profile | str | None = None,
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
      profile: the sizes that are part of a compiled program: a name out of `jax_decode.PROFILES`, or "keys", "parallel" or
        "items", for the smallest tables that hold the constraints; a name with a scale ("general x16"), or another's
        `tables.profile`, for that very program; None for the smallest profile that fits, or sizes of their own where none does.

    Returns:
      The tables.

    Raises:
      DecodeError: not constraints, different vocabularies, logits narrower than the vocabulary, canonical tables missing or not
        theirs, canonical constraints that cannot share tables, a vocabulary that the axis does not divide, a profile without
        room for them.
    """
    every = _checked([constraint] if isinstance(constraint, (CompiledConstraint, CompiledItems)) else constraint, logits_width)
    catalogues = {id(c): c for c in every if isinstance(c, CompiledItems)}
    standing_in = {i: placeholder(c.vocab_size, c.fingerprint, c.stop_ids) for i, c in catalogues.items()}
    given = [standing_in[id(c)] if isinstance(c, CompiledItems) else c for c in every]
    _check_canonical(given, canonical)
    constraints, stored = stored_once(given := with_partners(given) if any(c.canonical.partners for c in given) else given)
    columns, place = _placement(max(every[0].vocab_size, logits_width or 0), sharding, vocabulary_axis)
    parts, sizes, more = concatenate(constraints), static_sizes(constraints), dict[str, Any]()
    which = [i for i, c in enumerate(constraints) if any(c is other for other in standing_in.values())]
    parts, sizes, beside = _items_beside(parts, sizes, list(catalogues.values()), which)
    chosen = _chosen_profile(profile, constraints, parts, sizes, beside)
    sizes |= {} if chosen is None else dict(chosen.statics)
    if beside is not None:
        more["items"] = _item_tables(beside, place, chosen)
    arrays, found = _arrays(constraints, parts, sizes, columns, chosen)
    arrays |= _arrays_of_rows(parts, arrays["initial"], given, constraints, stored, chosen)
    if vocabulary is not None:
        forced = np.concatenate([forced_spellings(c, vocabulary)[1:] for c in constraints])
        arrays["spelling"] = padded(np.append(np.full(2, NO_TOKEN, np.int32), forced), len(arrays["nodes"]), NO_TOKEN)
    if canonical is not None:
        rows, nodes, own = parts.row_numbers, len(arrays["nodes"]), constraints[0].canonical
        arrays["unless"], excepted = exceptions(constraints, rows, nodes, in_buckets=chosen is not None)
        more |= _canonical_tables(canonical, columns, excepted, place, chosen) | {"partners": int(own.partners)}
    more |= found | {"vocab_size": every[0].vocab_size, "fingerprint": every[0].fingerprint}
    return ConstraintTables(**(place(arrays) | sizes | more), shards=columns.shards, profile=chosen, remarks=Remarks.of(every))


def _placement(width: int, sharding: Any, vocabulary_axis: str | None) -> tuple[Columns, Any]:
    """Where tokens lie in mask rows for `width` logits, and what puts arrays on their devices."""
    if sharding is not None and not isinstance(sharding, (jax.Device, jax.sharding.Sharding)):
        what = f"the sharding is a {type(sharding).__name__}"
        raise DecodeError(what, fix="Pass a device, a sharding such as NamedSharding(mesh, P()), or None.")
    sharding = with_automatic_axes(sharding)
    shards = shards_of(sharding, vocabulary_axis, width)
    columns = Columns(words_for(width) if shards is None else shards.count * shards.num_words, shards)
    return columns, functools.partial(_placed, sharding=sharding, shards=shards)


@dataclasses.dataclass(frozen=True)
class _Beside:
    """Tries, the node of the first one's root, and whether there are no other constraints."""

    items: PackedItems
    base: int
    alone: bool


def _items_beside(
    parts: Parts, sizes: dict[str, Any], catalogues: Sequence[CompiledItems], which: list[int]
) -> tuple[Parts, dict[str, Any], _Beside | None]:
    """Sets of items, at the places `which` of all constraints: all parts, all static sizes, and the tries, None without sets."""
    if not catalogues:
        return parts, sizes, None
    items = pack_items(catalogues)
    parts = with_items(parts, catalogues, which, items)
    base, alone = int(parts.constraints[which[0], START] - items.roots[0]), len(which) == len(parts.constraints)
    levels = bucket(int(items.arrays["levels"][:, 1].max(initial=1)), 1 if alone else 4)
    changed = {
        "max_candidates": max(sizes["max_candidates"], bucket(items.longest_list, 4)),
        "max_levels": levels if alone else max(sizes["max_levels"], levels),
    }
    return parts, sizes | changed, _Beside(items, base, alone)


def _arrays_of_rows(
    parts: Parts,
    initial: NDArray[np.int32],
    given: Sequence[CompiledConstraint],
    constraints: Sequence[CompiledConstraint],
    stored: NDArray[np.intp],
    profile: Profile | None,
) -> dict[str, Any]:
    """The arrays with axis C; `initial`, of the constraints stored, among them."""
    return {
        "constraints": _with_room(with_own_starts(parts.constraints[stored], given, constraints, stored), profile),
        "stop_ids": _with_room(stop_table(given), profile, fill=-1),
        "initial": _with_room(initial[stored], profile) if len(initial) else initial,
        "num_constraints": np.int32(len(given)),
    }


def _chosen_profile(
    asked: Profile | str | None,
    constraints: Sequence[CompiledConstraint],
    parts: Parts,
    sizes: dict[str, Any],
    tries: _Beside | None,
) -> Profile | None:
    """The constraints' profile, None for sizes of their own."""
    special = tries is not None and not tries.alone
    if special and asked is not None:
        what = "no profile has room for sets of items beside other constraints"
        raise DecodeError(what, where="profile", fix="Make tables of their own for sets of items, or leave the profile out.")
    sets = sizes_of_sets(constraints)
    sizes = sizes | {"key_words": sets.words, "max_unset": sets.unset, "max_conditions": sets.conditions}
    used = {name: len(getattr(parts, name)) + SLACK.get(name, 0) for name in ("nodes", "groups", "arcs", "levels", "rows")}
    counters = any(map(has_counters, constraints))
    if not all(c.is_regular for c in constraints):
        symbols = sum(c.num_symbols for c in constraints)
        used["delta"] = max(symbols, 1) + sum(len(c.delta) for c in constraints)
        used["pushes"] = 1 + sum(len(c.push_offset) - 2 for c in constraints)
        used["increments"] = sum(len(c.increments) for c in constraints)
        used["symbols"] = symbols + 1 if counters else 0
    if sets.words:
        used |= {name: 1 + sum(len(getattr(c, name)) - 1 for c in constraints if c.has_sets) for name in ("keys", "guards")}
    if tries is not None:
        used |= {"tokens": len(tries.items.arrays["first"]), "wide": len(tries.items.arrays["levels"])}
    chosen = None if special else choose_profile(asked, sizes, used, counters, constraints[0].vocab_size)
    if chosen is None:
        kind = closest(sizes, used)
        lacking = kind.lacks(sizes, used, counters)
        why = f"{kind.name!r}, the closest, lacks {lacking}" if lacking else f"most of {str(kind)!r} would be empty"
        why = "sets of items beside others" if special else why
        _LOG.info("these constraints fit no profile, so a program is compiled for them: %s", why)
    return chosen


def _arrays(
    constraints: Sequence[CompiledConstraint], parts: Parts, sizes: dict[str, Any], columns: Columns, profile: Profile | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of `ConstraintTables` in their final shapes, but for axis C of `initial`; and static sizes found on the way."""

    def room(table: NDArray[Any], name: str, least: int, slack: int = 0) -> NDArray[Any]:
        size = bucket(len(table) + slack, least) if profile is None else profile.size(name)
        return padded(table, size)

    of_sets = sizes_of_sets(constraints)
    if profile is not None:
        of_sets = SetSizes(profile.key_words, sizes["max_unset"], sizes["max_conditions"])
    sets = pack_sets(constraints, sizes["max_push"], of_sets)
    stacked = any(not c.is_regular for c in constraints) if profile is None else profile.has_stack
    counted = any(map(has_counters, constraints)) if profile is None else profile.counters
    stacks = pack_stacks(constraints, sizes["max_push"], sizes["stacks"] > 1, stacked=stacked, counted=counted)
    words = columns.num_words
    groups, arcs = parts.groups, parts.arcs
    if stacked:
        groups, arcs = np.concatenate([groups, stacks.group_effects], 1), np.concatenate([arcs, stacks.arc_effects], 1)
    arcs = np.concatenate([arcs, sets.arc_sets], 1) if sets.keys.shape[1] else arcs
    arrays: dict[str, Any] = {
        "nodes": room(parts.nodes, "nodes", 64),
        "groups": room(groups, "groups", 64, max(_UNROLLED, sizes["max_groups"])),
        "arcs": room(arcs, "arcs", 64, max(ARC_BURST, sizes["max_candidates"])),
        "levels": room(parts.levels if stacked else parts.levels[:, :2], "levels", 64, max(_UNROLLED, sizes["max_levels"])),
        "rows": room(packed(parts.rows, words, columns.shards), "rows", 16),
        "spelling": np.zeros(0, np.int32),
        "unless": np.zeros((0, 1, 2), np.int32),
        "initial": stacks.initial,
    }
    arrays["inverse_temperature"] = inverse_temperatures(constraints, len(arrays["nodes"]))
    arrays["only"] = np.full(len(arrays["rows"]), NO_TOKEN, np.int32)
    arrays["only"][: len(parts.rows)] = only_tokens(parts.rows)
    for name in ("frames", "counters", "delta", "pushes", "symbols", "increments"):
        table = getattr(stacks, name)
        if name == "increments" and counted and profile is not None:
            table = np.zeros((1, -(-constraints[0].vocab_size // 2)), np.uint32) if not len(table) else table
        if name in ("frames", "counters"):  # the same index as nodes
            there = counted if name == "counters" else stacked
            arrays[name] = table if not there else padded(table, len(arrays["nodes"]))
        else:
            arrays[name] = room(table, name, 1 if name == "increments" else 64) if len(table) else table
    for name in ("keys", "guards", "set_nodes", "push_keys"):
        table = getattr(sets, name)
        if table.shape[1] and len(table):
            same = {"set_nodes": "nodes", "push_keys": "pushes"}.get(name)
            arrays[name] = room(table, name, 64) if same is None else padded(table, len(arrays[same]))
        else:
            arrays[name] = table
    if sets.keys.shape[1]:
        arrays["initial"] = np.pad(arrays["initial"], ((0, 0), (0, 0), (0, sets.keys.shape[1])))
    return arrays, {"max_unset": sets.max_unset, "max_conditions": sets.max_conditions}


def _with_room(table: NDArray[Any], profile: Profile | None, fill: int = 0) -> NDArray[Any]:
    """A table with one entry per constraint, with room for `_FEW` at least in profiles, so that batches share programs."""
    return padded(table, bucket(len(table), 1 if profile is None else _FEW), fill)


def _canonical_tables(
    canonical: Any, columns: Columns, excepted: list[list[int]], place: Any, profile: Profile | None
) -> dict[str, Any]:
    pairs = canonical.model_rows
    states = filter_arrays(canonical.filter_table, columns, excepted)
    if profile is not None and excepted:  # lists of states add rows
        states |= {name: padded(states[name], bucket(len(states[name]), 64)) for name in ("rows", "inside_rows")}
    on_host, max_flips = pair_arrays(pairs, packed(pairs.rows, columns.num_words, columns.shards), columns.num_words * 32)
    return {
        "pairs": PairTables(**place(on_host), max_flips=max_flips),
        "filter": FilterTables(**place(states)),
    }


def _item_tables(beside: _Beside, place: Any, profile: Profile | None) -> ItemTables:
    """Tries on the device."""
    items = beside.items

    def size(name: str, table: NDArray[Any]) -> int:
        if profile is None:
            return bucket(len(table) + 1, 1 if table.ndim > 1 else 64)
        of_words = name in ("wide", "wide_before")  # one word for 32 nodes, and two more at most
        return profile.size("tokens") // 32 + 2 if of_words else profile.size("wide" if table.ndim > 1 else "tokens") + 1

    tries = {name: padded(table, size(name, table)) if table.ndim else table for name, table in items.arrays.items()}
    tries["first"][len(items.arrays["first"]) :] = items.arrays["first"][-1]
    burst = bucket(max(items.longest_list, items.longest_block), 4)
    burst = burst if profile is None else max(burst, BLOCK)
    return ItemTables(**place(tries), num_ordinary=beside.base, burst=burst, alone=beside.alone)


def _placed(arrays: dict[str, Any], sharding: Any, shards: Shards | None) -> dict[str, Any]:
    """The arrays on their devices; `rows` is spread over the shards."""
    where = dict.fromkeys(arrays, sharding)
    if shards is not None:
        where["rows"] = NamedSharding(shards.mesh, PartitionSpec(None, shards.axis))
    if isinstance(sharding, NamedSharding) and not sharding.is_fully_addressable:  # every process puts its own pieces
        pieces = ((name, np.asarray(array), where[name]) for name, array in arrays.items())
        return {name: jax.make_array_from_callback(x.shape, to, x.__getitem__) for name, x, to in pieces}
    return jax.device_put(arrays, sharding if shards is None else where)


def _check_canonical(constraints: Sequence[CompiledConstraint], canonical: Any) -> None:
    """Raises `DecodeError` unless canonical constraints come with the tables they were made with, and others without."""
    if canonical is not None and not hasattr(canonical, "identity"):
        what = f"'canonical' is a {type(canonical).__name__}, not the tables of a tokenizer"
        raise DecodeError(what, fix="Pass canonical=fsa_compile.canonical_tables(tokenizer), or leave it out.")
    identity = "" if canonical is None else canonical.identity
    for i, c in enumerate(constraints):
        if c.canonical.tables != identity:
            what = "the constraint is canonical, and its tokenizer's tables are not given"
            fix = "Pass canonical=fsa_compile.canonical_tables(tokenizer)."
            if identity:
                what = "the constraint was not made with the canonical tables given"
                fix = "Compile all constraints with canonical=True, with the same tokenizer and version of its encoder."
            raise DecodeError(what, where=f"constraint {i}", fix=fix)
        if c.is_canonical and c.stacks > 1:
            what = f"the constraint is canonical and followed on {c.stacks} stacks at once"
            fix = "Bound its nesting (max_depth=), so that its stacks are written out, or compile it without canonical=True."
            raise DecodeError(what, where=f"constraint {i}", fix=fix)


def checked_constraints(given: Any, where: str) -> list[CompiledConstraint | CompiledItems]:
    """A list of constraints over one vocabulary, as it was given to a function; raises `DecodeError` for anything else."""
    what = f"{where} takes one CompiledConstraint or a list of them"
    fix = "Compile one with fsa_compile, or read one with CompiledConstraint.load."
    try:
        constraints = list(given)
    except (TypeError, MemoryError):
        raise DecodeError(f"{what}, not {type(given).__name__}", fix=fix) from None
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
    return constraints


def _checked(given: Any, logits_width: int | None) -> list[CompiledConstraint | CompiledItems]:
    constraints = checked_constraints(given, "to_device")
    if logits_width is not None and not is_whole(logits_width, 1, MOST_LOGITS):
        fix = f"Pass the number of the model's logits, at most {MOST_LOGITS:,}."
        raise DecodeError(f"logits_width is {shown(logits_width)}", fix=fix)
    if logits_width is not None and logits_width < constraints[0].vocab_size:
        raise DecodeError(
            f"the model's {logits_width:,} logits are fewer than the vocabulary's {constraints[0].vocab_size:,} ids",
            fix="Compile the constraint for the tokenizer of this model.",
        )
    return constraints
