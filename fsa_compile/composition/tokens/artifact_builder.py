"""`ArtifactBuilder`: lays out the arrays of a `CompiledConstraint`; every assembler feeds it.

An assembler decides which tokens a node has, where they lead and what they cost. The builder decides how that is stored: entries
sorted by node in CSR form, each effect of an arc once, which nodes have mask rows, and the types of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fsa_compile.arrays.integers import firsts, order_of
from fsa_compile.arrays.ranges import joined, segment_sizes, segment_starts
from fsa_compile.artifact.arrays import ARC_BURST, ARRAYS
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.effects import arc_effects
from fsa_compile.artifact.stored_arrays import StoredArray
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_TOKEN_BITS = 22


class ArtifactBuilder:
    """Collects the entries of N nodes. Call `groups`, `arcs` and `levels` once each, in this order, then `constraint`.

    The integer columns of these methods have one entry per group, token set or level, in any order of nodes; entries of one node
    keep their order. `alike` names for every node the one whose entries it has: int64[N], ascending if there is nothing to copy.

    Attributes:
      arrays: fields of `CompiledConstraint`, so far.
    """

    def __init__(self, num_nodes: int) -> None:
        self._n = num_nodes
        self.arrays: dict[str, np.ndarray] = {}

    def groups(
        self,
        node: np.ndarray,
        row: np.ndarray,
        target: np.ndarray,
        push: np.ndarray | None = None,
        add: np.ndarray | None = None,
        set_to: np.ndarray | None = None,
        *,
        alike: np.ndarray | None = None,
    ) -> None:
        """Takes the wide groups: their node, row, target, push string, addition and setting, int64[G]; None stands for zeros."""
        columns = {"row": row, "next": target, "push": push, "add": add, "set": set_to}
        self._by_node("group", node, columns, alike)

    def arcs(
        self,
        node: np.ndarray,
        effect: np.ndarray,
        token: np.ndarray,
        size: np.ndarray | None = None,
        *,
        effects: np.ndarray | None = None,
        alike: np.ndarray | None = None,
    ) -> None:
        """Takes the narrow arcs.

        Args:
          node, effect: int64[M], of token sets.
          token: int64[A], the tokens of the sets, one set after the other.
          size: int64[M], the number of tokens of each set; 1 by default.
          effects: int32[E, 6 or 8], what `effect` counts into; without it, effects are the target nodes.
        """
        room = self._n.bit_length() if effects is None else max(1, len(effects)).bit_length()
        count = np.bincount(node, size, minlength=self._n)
        if self._n.bit_length() + _TOKEN_BITS + room < 63:
            key = node << _TOKEN_BITS + room | effect
            if size is not None:
                key = key.repeat(size)
            key |= token.astype(np.int64) << room
            key.sort()
            token = (key >> room & (1 << _TOKEN_BITS) - 1).astype(np.int32)
            effect = (key & (1 << room) - 1).astype(np.int32)
        else:
            if size is not None:
                node, effect = node.repeat(size), effect.repeat(size)
            order = np.lexsort((effect, token, node))
            token, effect = token[order], effect[order]
        if effects is not None:
            self.arrays["effects"] = effects
        self._take("arc", _offsets(count), {"token": token, "effect": effect}, alike)

    def arcs_in_lists(self, made: dict[str, Any], effects: np.ndarray) -> None:
        """Takes arcs that `stored_arcs` has made, and the effects they count into."""
        self.arrays |= made | {"effects": effects}

    def arcs_of_effects(self, node: np.ndarray, token: np.ndarray, *effect: ArrayLike) -> None:
        """Takes arcs one by one, with the columns of `arc_effects`."""
        effects, number = arc_effects(*effect)
        self.arcs(node, number.astype(np.int64), token, effects=effects)

    def masked(self) -> np.ndarray:
        """Whether nodes need levels, bool[N]; the arcs of the others are their masks."""
        groups, arcs = (self.arrays[f"{kind}_offset"] for kind in ("group", "arc"))
        return (groups[1:] > groups[:-1]) | (arcs[1:] - arcs[:-1] > ARC_BURST)

    def levels(
        self,
        node: np.ndarray,
        cost: np.ndarray,
        row: np.ndarray,
        need: np.ndarray | None = None,
        *,
        alike: np.ndarray | None = None,
    ) -> None:
        """Takes the levels, int64[L]; those of a node by ascending (cost, need). None stands for zeros."""
        self._by_node("level", node, {"cost": cost, "row": row, "need": need}, alike)

    def levels_by_cost(
        self,
        node: np.ndarray,
        cost: np.ndarray,
        hashes: np.ndarray,
        pool: RowPool,
        row_of: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Takes as levels the unions of a node's disjoint token sets up to each of their costs.

        Args:
          node, cost: int64[M], of the token sets.
          hashes: uint64[M], see `VocabularyTables.row_hash`.
          pool: takes the rows.
          row_of: bit row of the tokens of some of the sets.
        """
        if not len(node):
            return
        key = node << 32 | cost
        order = order_of(key)
        key = key[order]
        begin = segment_starts(key)
        end = np.append(begin[1:], len(key))
        key = key[begin]
        node = key >> 32
        # Running sums of hashes within a node are the hashes of its prefix unions.
        summed = np.add.reduceat(hashes[order], begin).cumsum()
        first = segment_starts(node)
        size = segment_sizes(first, len(node))
        summed -= np.append(np.uint64(0), summed[first[1:] - 1]).repeat(size)
        starts = np.zeros(len(node), bool)
        starts[first] = True

        def build(i: int) -> np.ndarray:
            row = row_of(order[begin[i] : end[i]])
            return row if starts[i] else row | pool.of_hash(int(summed[i - 1]))

        self.levels(node, key & 0xFFFFFFFF, pool.numbers(summed, build))

    def _by_node(
        self, kind: str, node: np.ndarray, columns: dict[str, np.ndarray | None], alike: np.ndarray | None
    ) -> None:
        """Takes entries with a node each."""
        values = {name: column for name, column in columns.items() if column is not None}
        if (node[1:] < node[:-1]).any():
            order = order_of(node)
            values = {name: column[order] for name, column in values.items()}
        self._take(kind, firsts(node, self._n), values, alike)

    def _take(
        self, kind: str, offset: np.ndarray, columns: dict[str, np.ndarray], alike: np.ndarray | None
    ) -> None:
        """Takes entries sorted by node, and copies those of nodes that stand for others."""
        if alike is not None and (alike[1:] <= alike[:-1]).any():
            size = np.diff(offset)[alike]
            at = joined(offset[alike], size)
            offset = _offsets(size)
            columns = {name: values[at] for name, values in columns.items()}
        self.arrays[f"{kind}_offset"] = offset
        self.arrays |= {f"{kind}_{name}": values for name, values in columns.items()}

    def typed(self, fields: dict[str, Any]) -> dict[str, Any]:
        """All arrays, and further fields, in the types of `CompiledConstraint`."""
        if "level_offset" not in self.arrays:
            none = np.zeros(0, np.int32)
            self.arrays |= {"level_offset": np.zeros(self._n + 1, np.int32), "level_cost": none, "level_row": none}
        out = self.arrays | fields
        plain = {name for name, v in out.items() if name in ARRAYS and not isinstance(v, StoredArray)}
        return {name: v.astype(ARRAYS[name][0], copy=False) if name in plain else v for name, v in out.items()}

    def constraint(
        self, tables: VocabularyTables, *, source: str, start: int, extra: dict[str, Any], **fields: Any
    ) -> CompiledConstraint:
        """The artifact.

        Args:
          tables: of the vocabulary.
          source, start, extra, fields: of the artifact, among them the bit rows that groups and levels count into; they may
            have any integer type.
        """
        return CompiledConstraint(
            vocab_size=tables.vocab_size,
            fingerprint=tables.fingerprint,
            stop_ids=tables.stop_ids,
            source=source,
            start=int(start),
            extra=extra,
            **self.typed(fields),
        )


def _offsets(size: np.ndarray) -> np.ndarray:
    out = np.zeros(len(size) + 1, np.int64)
    size.cumsum(out=out[1:], dtype=np.int64)
    return out
