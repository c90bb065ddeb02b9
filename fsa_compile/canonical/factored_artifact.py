"""The artifact of a constraint beside which the tokenizer's filter is followed.

It has the constraint's own nodes, those that are reached, with the tokens that can be completed, and costs in canonical tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fsa_compile.artifact import ARC_BURST, CompiledConstraint
from fsa_compile.canonical.factored_decision import DecidedDistances
from fsa_compile.canonical.factored_distances import FAR
from fsa_compile.canonical.indices import numbered
from fsa_compile.distinct import order_of
from fsa_compile.entry_walk import NARROW
from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary_tables import VocabularyTables, segment_starts

_DOING = "assembling the artifact"


def assemble_factored(
    constraint: CompiledConstraint,
    distances: DecidedDistances,
    tables: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
) -> CompiledConstraint:
    """The artifact.

    Args:
      constraint: the constraint without the filter.
      distances: its own.
      tables: of the vocabulary.
      limits, deadline: of the compilation.
      extra: of the artifact.

    Raises:
      LimitError: too many rows or bytes, or out of time.
    """
    d = distances
    stays = np.flatnonzero(d.cost < FAR)
    wide = _wide_sets(d)
    reached = _reached(constraint, d, stays, wide)
    number = np.where(reached, np.cumsum(reached), 0)
    number[0] = 0
    stays = stays[reached[d.source[stays]]]
    source, token, target, cost = number[d.source[stays]], d.token[stays], number[d.target[stays]], d.cost[stays]
    count = int(reached.sum()) + 1
    rows = Rows(tables, limits)
    groups: list[tuple[int, int, int]] = []
    parts: dict[int, list[tuple[int, np.ndarray]]] = {}
    for node, row, into, by_cost in wide:
        if reached[node]:
            groups.append((int(number[node]), rows.number(row), int(number[into])))
            parts.setdefault(int(number[node]), []).extend(by_cost)
    narrow = np.ones(len(source), bool)
    if len(source):
        key = source * count + target
        order = order_of(key)
        begin = segment_starts(key[order])
        size = np.diff(np.append(begin, len(order)))
        for at, length in zip(begin[size > NARROW].tolist(), size[size > NARROW].tolist()):
            chosen = order[at : at + length]
            narrow[chosen] = False
            here = int(source[chosen[0]])
            groups.append((here, rows.number(tables.pack(token[chosen])), int(target[chosen[0]])))
            parts.setdefault(here, [])
    in_order = np.flatnonzero(narrow)
    in_order = in_order[order_of(source[in_order] * tables.vocab_size + token[in_order])]
    nodes = np.arange(count + 1)
    arc_offset = np.searchsorted(source[in_order], nodes)
    for here in np.flatnonzero(np.diff(arc_offset) > ARC_BURST).tolist():
        parts.setdefault(here, [])
    most = int(cost.max(initial=0)) + 1
    effect, kind = numbered(target[in_order] * most + cost[in_order], count * most)
    effects = np.zeros((len(effect) + 1, 6), np.int32)
    effects[1:, 0], effects[1:, 4] = effect // most, effect % most
    levels: list[tuple[int, int, int]] = []
    of_node = np.searchsorted(source, nodes)
    for here in sorted(parts):
        deadline.check(_DOING)
        own = slice(of_node[here], of_node[here + 1])
        levels += [(here, up_to, rows.number(row)) for up_to, row in _levels(parts[here], token[own], cost[own], tables)]
    unless = [(node, d.unless_of(node)) for node in sorted(d.shunned) if reached[node]]
    noted = [[int(number[node]), rows.number(bits), d.shunned[node]] for node, bits in unless if bits is not None]
    if noted:
        extra = {**extra, "canonical_unless": {"states": d.shunned_states(), "rows": noted}}
    group = np.array(sorted(groups), np.int32).reshape(-1, 3)
    level = np.array(levels, np.int32).reshape(-1, 3)
    kept = np.flatnonzero(reached)
    return CompiledConstraint(
        vocab_size=tables.vocab_size,
        fingerprint=tables.fingerprint,
        stop_ids=tables.stop_ids,
        source=constraint.source,
        start=int(number[constraint.start]),
        accept=np.append(False, constraint.accept[kept]),
        distance=np.append(FAR, distances.nearest[kept]).astype(np.int32),
        rows=rows.stacked(),
        group_offset=np.searchsorted(group[:, 0], nodes).astype(np.int32),
        group_row=np.ascontiguousarray(group[:, 1]),
        group_next=np.ascontiguousarray(group[:, 2]),
        arc_offset=arc_offset.astype(np.int32),
        arc_token=token[in_order].astype(np.int32),
        arc_effect=(kind + 1).astype(np.int32),
        effects=effects,
        level_offset=np.searchsorted(level[:, 0], nodes).astype(np.int32),
        level_cost=np.ascontiguousarray(level[:, 1]),
        level_row=np.ascontiguousarray(level[:, 2]),
        extra=extra,
    )


class Rows:
    """Distinct bit rows; row 0 is empty."""

    def __init__(self, tables: VocabularyTables, limits: CompileLimits) -> None:
        self.empty = np.zeros(tables.num_words, np.uint32)
        self._rows = [self.empty]
        self._number = {self._rows[0].tobytes(): 0}
        self._limits = limits

    def number(self, row: np.ndarray) -> int:
        key = row.tobytes()
        found = self._number.get(key)
        if found is None:
            found = self._number[key] = len(self._rows)
            self._rows.append(row)
            if found >= self._limits.max_rows:
                raise LimitError("max_rows", self._limits.max_rows, "storing the constraint's token sets")
            if found * row.nbytes > self._limits.max_bytes:
                raise LimitError("max_bytes", self._limits.max_bytes, "storing the constraint's token sets")
        return found

    def stacked(self) -> np.ndarray:
        return np.stack(self._rows)


def _wide_sets(d: DecidedDistances) -> list[tuple[int, np.ndarray, int, list[tuple[int, np.ndarray]]]]:
    """The larger sets that keep tokens: node, bit row, target, and the tokens of each cost."""
    out = []
    known: dict[tuple[int, int], tuple[np.ndarray, list[tuple[int, np.ndarray]]]] = {}
    for node, groups in d.groups.items():
        for number, target in groups:
            if (number, target) not in known:
                row = d.row(number)
                by_cost = [(level + 1, row & bits) for level, bits in d.wide[target].levels]
                by_cost = [(cost, bits) for cost, bits in by_cost if bits.any()]
                known[number, target] = (np.bitwise_or.reduce([bits for _, bits in by_cost]) if by_cost else row, by_cost)
            row, by_cost = known[number, target]
            if by_cost:
                out.append((node, row, target, by_cost))
    return out


def _reached(
    constraint: CompiledConstraint,
    d: DecidedDistances,
    stays: np.ndarray,
    wide: list[tuple[int, np.ndarray, int, list[tuple[int, np.ndarray]]]],
) -> np.ndarray:
    """The nodes that tokens that stay lead to from the start, bool[N]."""
    count = constraint.num_nodes
    more = np.array([node * count + target for node, _, target, _ in wide], np.int64)
    links, _ = numbered(np.append(d.source[stays] * count + d.target[stays], more), count**2)
    after: dict[int, list[int]] = {}
    for source, target in zip((links // count).tolist(), (links % count).tolist()):
        after.setdefault(source, []).append(target)
    found, todo = {constraint.start}, [constraint.start]
    while todo:
        new = [target for target in after.get(todo.pop(), ()) if target not in found]
        found.update(new)
        todo += new
    seen = np.zeros(count, bool)
    seen[list(found)] = True
    return seen


def _levels(
    wide: list[tuple[int, np.ndarray]], token: np.ndarray, cost: np.ndarray, tables: VocabularyTables
) -> list[tuple[int, np.ndarray]]:
    """Bit rows of the tokens that cost at most so much, by ascending cost."""
    by_cost: dict[int, np.ndarray] = {}
    for most, bits in wide:
        by_cost[most] = by_cost[most] | bits if most in by_cost else bits
    for most in np.flatnonzero(np.bincount(cost)).tolist():
        bits = tables.pack(token[cost == most])
        by_cost[most] = by_cost[most] | bits if most in by_cost else bits
    out: list[tuple[int, np.ndarray]] = []
    for most in sorted(by_cost):
        out.append((most, out[-1][1] | by_cost[most] if out else by_cost[most]))
    return out
