"""The arrays of one constraint, numbered as if it stood alone, then for the places that it gets in tables. NumPy only."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.arrays import ConstraintArrays
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.stored_arrays import StoredArray
from jax_decode.tables.concatenation import (
    ARC_NEXT,
    ARC_OFFSET,
    GROUP_OFFSET,
    LEVEL_OFFSET,
    LEVEL_ROW,
    START,
    TEXT_ROW,
    Parts,
    concatenate,
    with_own_starts,
)
from jax_decode.tables.profiles import Profile
from jax_decode.tables.stack_layout import (
    ADD,
    CHILD,
    CHILD_OFFSET,
    CONTEXT,
    DELTA_OFFSET,
    DEPTH,
    ENTRY_NEED,
    ENTRY_SYMBOL,
    PUSH,
    SET,
    SYMBOL,
    StackArrays,
    has_counters,
    pack_stacks,
)

TOGETHER = {
    "nodes": ("nodes", "frames", "counters"),
    "groups": ("groups",),
    "arcs": ("arcs",),
    "levels": ("levels",),
    "delta": ("delta",),
    "pushes": ("pushes",),
    "symbols": ("symbols",),
}
"""Tables of records whose entries have an owner, each with the arrays that have its index."""
_OF_SLOTS = ("start", "stop_ids", "source", "extra", "canonical")
"""Fields of a constraint that are not part of what its slots share."""


@dataclasses.dataclass(frozen=True)
class Body:
    """What a pool must know of a constraint to find it, or room for it.

    Attributes:
      key: digest of all that slots of it share; slot_key: of that and of what belongs to a slot.
      counters: whether it has any.
      units: entries that must lie together, per table of `TOGETHER`.
      row_keys, increment_keys: the contents of its bit rows and of its tables of numbers per token.
      num_symbols: P.
    """

    key: bytes
    slot_key: bytes
    counters: bool
    units: Mapping[str, NDArray[np.int64]]
    row_keys: list[bytes]
    increment_keys: list[bytes]
    num_symbols: int


class Alone(NamedTuple):
    """The arrays of a constraint as if it stood alone."""

    parts: Parts
    stacks: StackArrays


@dataclasses.dataclass(frozen=True)
class Places:
    """Where a constraint lies.

    Attributes:
      entries: of each table of `TOGETHER`, in its own order.
      rows, increments: entries of the tables of these names, for every one of its own.
      new_rows, new_increments: which of its own the tables do not have yet.
    """

    entries: Mapping[str, NDArray[np.int32]]
    rows: list[int]
    increments: list[int]
    new_rows: list[int]
    new_increments: list[int]


def content_key(row: NDArray[Any]) -> bytes:
    """Tells contents apart."""
    return hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()


def alone(c: CompiledConstraint, profile: Profile) -> Alone:
    """The arrays of a constraint whose sizes fit a profile."""
    parts, push = concatenate([c]), dict(profile.statics)["max_push"]
    parts = dataclasses.replace(parts, constraints=with_own_starts(parts.constraints, [c], [c], np.zeros(1, np.intp)))
    return Alone(parts, pack_stacks([c], push, False, stacked=profile.has_stack, counted=profile.counters))


def body_of(c: CompiledConstraint, made: Alone, profile: Profile) -> Body:
    """What a pool must know of a constraint; `made`: its arrays."""
    counters = has_counters(c)
    each = np.ones(c.num_nodes - 1, np.int64)
    units = {
        "nodes": np.array([len(each)], np.int64) if counters else each,  # registers count nodes
        "groups": np.diff(c.group_offset)[1:].astype(np.int64),
        "arcs": np.diff(c.arc_offset)[1:].astype(np.int64),
        "levels": np.diff(c.level_offset)[1:].astype(np.int64),
        "delta": np.array([len(c.delta) if c.num_symbols else 0], np.int64),
        "pushes": np.ones(len(made.stacks.pushes) - 1 if profile.has_stack else 0, np.int64),
        "symbols": np.array([c.num_symbols if profile.counters else 0], np.int64),
    }
    key = _digest(c)
    of_slot = repr((c.start, c.stop_ids, c.shortest_completion)).encode()
    return Body(
        key=key,
        slot_key=key + hashlib.blake2b(of_slot, digest_size=8).digest(),
        counters=counters,
        units=units,
        row_keys=[content_key(row) for row in made.parts.rows[2:]],
        increment_keys=[content_key(row) for row in c.increments],
        num_symbols=c.num_symbols,
    )


def _digest(c: CompiledConstraint) -> bytes:
    out = hashlib.blake2b(digest_size=16)
    for field in dataclasses.fields(ConstraintArrays):
        if field.name in _OF_SLOTS:
            continue
        value = getattr(c, field.name)
        if isinstance(value, (np.ndarray, StoredArray)):
            out.update(repr((field.name, value.dtype.str, value.shape)).encode())
            out.update(value.tobytes())
        else:
            out.update(repr((field.name, value)).encode())
    return out.digest()


def placed(body: Body, made: Alone, at: Places, profile: Profile) -> dict[str, NDArray[Any]]:
    """The records of a constraint with the numbers of its places, one for each entry, per array of `TOGETHER`."""
    entries, (parts, stacks) = at.entries, made
    node, row = _numbers(entries["nodes"], 2), _numbers(np.array(at.rows, np.int32), 2)
    group, level = _numbers(entries["groups"], 1), _numbers(entries["levels"], 1)
    out: dict[str, NDArray[Any]] = {"nodes": parts.nodes[2:].copy(), "groups": parts.groups[1:].copy()}
    for column, numbers in ((GROUP_OFFSET, group), (ARC_OFFSET, entries["arcs"]), (LEVEL_OFFSET, level)):
        own = out["nodes"][:, column]
        inside = own < len(numbers)  # a node without entries may point past the last one
        out["nodes"][:, column] = np.where(inside, numbers[np.where(inside, own, 0)] if len(numbers) else 0, 0)
    out["groups"] = np.stack([row[parts.groups[1:, 0]], node[parts.groups[1:, 1]]], 1)
    out["arcs"], out["levels"] = parts.arcs.copy(), parts.levels[1:].copy()
    out["arcs"][:, ARC_NEXT] = node[parts.arcs[:, ARC_NEXT]]
    out["levels"][:, LEVEL_ROW] = row[parts.levels[1:, LEVEL_ROW]]
    if not profile.has_stack:
        out["levels"] = out["levels"][:, :2]
        return out
    delta = int(entries["delta"][0]) if len(entries["delta"]) else 0
    symbols = int(entries["symbols"][0]) if len(entries["symbols"]) else 0
    own_delta = max(body.num_symbols, 1)  # children of nodes without any come first
    out["frames"] = stacks.frames[2:].copy()
    moved = delta - own_delta - symbols if body.num_symbols else 0
    out["frames"][:, DELTA_OFFSET] += moved
    out["delta"] = stacks.delta[own_delta if body.num_symbols else len(stacks.delta) :].copy()
    out["delta"][:, CHILD_OFFSET] += np.where(out["delta"][:, CHILD] > 0, moved, 0)
    out["delta"][:, CHILD] = node[out["delta"][:, CHILD]]
    string, increment = _numbers(entries["pushes"], 1), np.array(at.increments, np.int32)
    for name, effects in (("groups", stacks.group_effects[1:]), ("arcs", stacks.arc_effects)):
        out[name] = np.concatenate([out[name], _renumbered(effects, string, increment)], 1)
    out["pushes"] = stacks.pushes[1:].copy()
    out["pushes"][..., ENTRY_SYMBOL] += np.where(out["pushes"][..., ENTRY_NEED] > 0, symbols, 0)
    if profile.counters:
        out["counters"], out["symbols"] = stacks.counters[2:], stacks.symbols[: body.num_symbols]
    return out


def record_of(made: Alone, at: Places, profile: Profile) -> dict[str, NDArray[Any]]:
    """What a slot of a constraint holds: its record, and the first cells of its rows."""
    record = made.parts.constraints.copy()
    record[0, START] = _numbers(at.entries["nodes"], 2)[record[0, START]]
    record[0, TEXT_ROW] = _numbers(np.array(at.rows, np.int32), 2)[record[0, TEXT_ROW]]
    if not profile.has_stack:
        return {"constraints": record}
    cells = made.stacks.initial.copy()
    symbols = int(at.entries["symbols"][0]) if len(at.entries["symbols"]) else 0
    cells[..., SYMBOL] += np.where(cells[..., DEPTH] > 0, symbols, 0)
    cells[..., CONTEXT] = _numbers(at.entries["nodes"], 2)[cells[..., CONTEXT]]
    return {"constraints": record, "initial": cells}


def _numbers(entries: NDArray[np.int32], fixed: int) -> NDArray[np.int32]:
    """From numbers of a constraint that stands alone to those of its places; the first `fixed` stay."""
    return np.concatenate([np.arange(fixed, dtype=np.int32), entries])


def _renumbered(effects: NDArray[np.int32], string: NDArray[np.int32], increment: NDArray[np.int32]) -> NDArray[np.int32]:
    out = effects.copy()
    out[:, PUSH] = string[effects[:, PUSH]]
    if len(increment):
        for column in (ADD, SET):
            per_token = effects[:, column] < 0
            out[per_token, column] = -1 - increment[-1 - effects[per_token, column]]
    return out
