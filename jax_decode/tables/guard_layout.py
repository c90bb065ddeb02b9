"""Repacks the sets of keys of constraints for the device. NumPy only; used by `tables`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.constraint import CompiledConstraint
from jax_decode.errors import DecodeError

TWIN, WANTED, WANTED_DISTANCE, POPS = range(4)
"""Columns of `ConstraintTables.set_nodes`; from `POPS` on the guards of a node's conditions, then where its children begin in
every case."""
FIRST_UNSET, NUM_UNSET, ALL, ADDED = range(4)
"""Columns of `ConstraintTables.guards`: rows of `keys`, and how many."""


@dataclasses.dataclass(frozen=True)
class SetArrays:
    """Unpadded arrays, see `ConstraintTables`; of length 0 where no constraint has sets of keys.

    max_unset, max_conditions: most `unset` masks of a guard, most conditions of a node.
    """

    keys: NDArray[np.int32]
    guards: NDArray[np.int32]
    set_nodes: NDArray[np.int32]
    arc_sets: NDArray[np.int32]
    push_keys: NDArray[np.int32]
    max_unset: int
    max_conditions: int


@dataclasses.dataclass(frozen=True)
class SetSizes:
    """Static sizes of sets of keys: words of a set, most `unset` masks of a guard, most conditions of a node."""

    words: int = 0
    unset: int = 0
    conditions: int = 0


def sizes_of_sets(constraints: Sequence[CompiledConstraint]) -> SetSizes:
    """The sizes that constraints need, all 0 where none has sets."""
    own = [c for c in constraints if c.has_sets]
    return SetSizes(
        words=max((c.keys.shape[1] for c in own), default=0),
        unset=max((int(c.guards[:, NUM_UNSET].max()) for c in own), default=0),
        conditions=max((c.pop_guard.shape[1] for c in own), default=0),
    )


def pack_sets(constraints: Sequence[CompiledConstraint], max_push: int, sizes: SetSizes) -> SetArrays:
    """All sets one after another.

    Args:
      constraints: in order, numbered as in `pack_stacks`.
      max_push: PM, entries per push string in the result.
      sizes: those of `sizes_of_sets`, or larger ones.

    Raises:
      DecodeError: some constraints have sets, and others are followed on several stacks.
    """
    if not sizes.words:
        none = np.zeros((0, 4), np.int32)
        return SetArrays(np.zeros((0, 0), np.int32), none, none, none[:, :2], np.zeros((0, max_push), np.int32), 0, 0)
    if any(c.stacks > 1 for c in constraints):
        raise DecodeError(
            "some constraints have keys in every order, and others are followed on several stacks",
            fix="Move them to the device in tables of their own.",
        )
    words, most = sizes.words, sizes.conditions
    keys, guards = [np.zeros((1, words), np.int32)], [np.zeros((1, 4), np.int32)]
    nodes = [np.zeros((2, POPS + most + (1 << most)), np.int32)]
    arcs, pushes = [np.zeros((0, 2), np.int32)], [np.zeros((1, max_push), np.int32)]
    row, guard, node, symbols = 0, 0, 1, 0
    segments = max(sum(c.num_symbols for c in constraints), 1)
    for c in constraints:
        shift = segments - symbols if c.num_symbols else 0
        nodes.append(_nodes(c, guard, node, shift, most))
        effect = c.effects[c.arc_effect, 6:] if c.has_sets else np.zeros((len(c.arc_token), 2), np.int32)
        arcs.append(np.where(effect > 0, effect + np.array([guard, row]), 0).astype(np.int32))
        pushes.append(_push_keys(c, row, max_push)[1:])
        if c.has_sets:
            wide = np.zeros((len(c.keys), words), np.uint32)
            wide[:, : c.keys.shape[1]] = c.keys
            keys.append(wide[1:].view(np.int32))
            of_rows = c.guards.copy()
            for column in (FIRST_UNSET, ALL, ADDED):
                of_rows[:, column] = np.where(of_rows[:, column] > 0, of_rows[:, column] + row, 0)
            guards.append(of_rows[1:])
            row, guard = row + len(c.keys) - 1, guard + len(c.guards) - 1
        node, symbols, segments = node + c.num_nodes - 1, symbols + c.num_symbols, segments + len(c.delta)
    return SetArrays(
        keys=np.concatenate(keys),
        guards=np.concatenate(guards),
        set_nodes=np.concatenate(nodes),
        arc_sets=np.concatenate(arcs),
        push_keys=np.concatenate(pushes),
        max_unset=sizes.unset,
        max_conditions=most,
    )


def _nodes(c: CompiledConstraint, guard: int, node: int, shift: int, most: int) -> NDArray[np.int32]:
    """Records of all nodes but the dead one; what the constraint has no column for is as if it were not there."""
    n = c.num_nodes
    out = np.zeros((n - 1, POPS + most + (1 << most)), np.int32)
    offset = out[:, POPS + most :]
    offset[:] = (c.delta_offset[1:] + shift)[:, None]
    if not c.has_sets:
        return out
    out[:, TWIN] = np.where(c.twin[1:] > 0, c.twin[1:] + node, 0)
    out[:, WANTED] = np.where(c.wanted[1:, 0] > 0, c.wanted[1:, 0] + guard, 0)
    out[:, WANTED_DISTANCE] = c.wanted[1:, 1]
    own = c.pop_guard.shape[1]
    out[:, POPS : POPS + own] = np.where(c.pop_guard[1:] > 0, c.pop_guard[1:] + guard, 0)
    offset[:, : 1 << own] = c.pop_offset[1:] + shift
    return out


def _push_keys(c: CompiledConstraint, row: int, width: int) -> NDArray[np.int32]:
    """int32[S, PM], rows of `keys` of the frames that push strings suspend."""
    size = np.diff(c.push_offset)
    out = np.zeros((len(size), width), np.int32)
    if c.has_sets and len(c.push_keys):
        string = np.repeat(np.arange(len(size)), size)
        place = np.arange(len(string)) - np.repeat(c.push_offset[:-1], size)
        out[string, place] = np.where(c.push_keys > 0, c.push_keys + row, 0)
    return out
