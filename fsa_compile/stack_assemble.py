"""Makes the artifact of a machine with a stack: nodes that matter, shared rows, arcs, levels, pushes and delta."""

from __future__ import annotations

from typing import Any

import numpy as np

from fsa_compile.artifact import ARC_BURST, UNREACHABLE, CompiledConstraint
from fsa_compile.assemble import RowPool, unspellable
from fsa_compile.byte_machine import ByteMachine
from fsa_compile.entry_walk import NARROW
from fsa_compile.errors import ConstraintError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.stack_costs import Costs, costs_of
from fsa_compile.level_grid import Grid
from fsa_compile.stack_groups import Groups, groups_of
from fsa_compile.stack_walk import StackArcs
from fsa_compile.vocabulary_tables import VocabularyTables

_DOING = "assembling the artifact"
_LEVEL_BYTES = 11 << 20
"""Where the rows of all levels take more, levels that add few tokens are left out: such tokens are then allowed only under
somewhat looser limits, but some token always is, and without limits every one."""
_FEWEST = (16, 64, 256, 1024)
"""Fewest tokens that a level may add, tried in this order."""


def assemble_machine(
    machine: ByteMachine,
    arcs: StackArcs,
    tables: VocabularyTables,
    *,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    extra: dict[str, Any],
    stacks: int,
) -> CompiledConstraint:
    """The artifact of a walked machine.

    Raises:
      UnspellableError: no token sequence spells an accepted text.
      ConstraintError: one token could pop any number of cells.
      LimitError: too many rows or bytes, or out of time.
    """
    groups = groups_of(arcs, tables, deadline)
    costs = costs_of(machine, arcs, groups, deadline)
    at_start = int(costs.distance[machine.start]) + int(costs.symbol_cost[list(machine.stack)].sum())
    if at_start >= UNREACHABLE:
        raise unspellable(source)
    nodes = _Nodes(machine, arcs, groups, costs, complete=tables.spells_every_byte)
    deadline.check(_DOING)
    return _Layout(machine, groups, costs, nodes, tables, limits, deadline).constraint(source, extra, stacks)


class _Nodes:
    """The nodes and token sets that matter, renumbered.

    Attributes:
      groups: int64[G'], the token sets kept.
      number: int64[N], new number of each node, 0 when dropped.
      accept: bool[N'].
      delta_row: int64[N'], into `delta`.
      delta: int64[*, P], new numbers; row 0 is dead.
      max_pops: longest path in delta.
    """

    def __init__(self, machine: ByteMachine, arcs: StackArcs, groups: Groups, costs: Costs, *, complete: bool) -> None:
        s = machine.num_controls
        useful = costs.group_cost < UNREACHABLE
        row, column = arcs.delta.nonzero()
        child = arcs.delta[row, column]
        alive = arcs.accept.copy()
        alive[groups.node[useful]] = True
        while True:  # a node without tokens of its own matters when one of its children does
            full = np.zeros(len(arcs.delta), bool)
            full[row[alive[child]]] = True
            more = full[arcs.delta_row] & ~alive
            if not more.any():
                break
            alive |= more
        alive[:s] &= costs.distance < UNREACHABLE
        alive[0] = False
        delta = np.where(alive[arcs.delta], arcs.delta, 0)
        keep = self._reached(machine, arcs, groups, useful, delta, alive) if not complete else alive
        keep[0] = True
        self.number = np.where(keep, np.cumsum(keep) - 1, 0)
        self.groups = (useful & keep[groups.node]).nonzero()[0]
        self.accept = (arcs.accept & keep)[keep]
        rows, self.delta_row = np.unique(self.number[delta][arcs.delta_row[keep]], axis=0, return_inverse=True)
        self.delta, self.delta_row = rows, self.delta_row.ravel()
        self.max_pops = self._longest_path()

    @staticmethod
    def _reached(
        machine: ByteMachine, arcs: StackArcs, groups: Groups, useful: np.ndarray, delta: np.ndarray, alive: np.ndarray
    ) -> np.ndarray:
        """Nodes that token sequences reach."""
        seen = np.zeros(len(alive), bool)
        seen[machine.start] = True
        while True:
            before = int(seen.sum())
            seen[groups.target[useful & seen[groups.node]]] = True
            seen[delta[arcs.delta_row[seen]].ravel()] = True
            if int(seen.sum()) == before:
                return seen & alive

    def _longest_path(self) -> int:
        """Most cells that one token pops."""
        row, column = self.delta.nonzero()
        edges = np.unique(row * len(self.number) + self.delta[row, column])
        row, child = edges // len(self.number), edges % len(self.number)
        depth = np.zeros(len(self.delta), np.int64)  # of each row: the longest path of its nodes
        for _ in range(len(self.accept) + 1):
            new = depth.copy()
            np.maximum.at(new, row, 1 + depth[self.delta_row[child]])
            if (new == depth).all():
                return int(depth.max())
            depth = new
        raise ConstraintError(
            "one token could close any number of nested rules, whose ends are empty",
            fix="Write the rule as a repetition, or let it end in a character of its own.",
        )


class _Layout:
    """The artifact's arrays."""

    def __init__(
        self,
        machine: ByteMachine,
        groups: Groups,
        costs: Costs,
        nodes: _Nodes,
        tables: VocabularyTables,
        limits: CompileLimits,
        deadline: Deadline,
    ) -> None:
        self.machine, self.groups, self.costs, self.nodes = machine, groups, costs, nodes
        self.tables, self.deadline = tables, deadline
        self.pool = RowPool(tables, limits)
        self.n = len(nodes.accept)
        chosen = nodes.groups
        self.node = nodes.number[groups.node[chosen]]
        self.target = nodes.number[groups.target[chosen]]
        self.hash, self.count = groups.hash[chosen], groups.size[chosen]
        self.cost, self.need = costs.group_cost[chosen], costs.group_need[chosen]
        self._number_pushes(groups.push[chosen])

    def _number_pushes(self, push: np.ndarray) -> None:
        """Numbers the push strings in use; the initial stack is one of them."""
        used = [(), *(self.groups.strings[p] for p in np.unique(push).tolist())]
        strings = {string: i for i, string in enumerate(dict.fromkeys(used))}
        number = np.array([strings.get(string, 0) for string in self.groups.strings], np.int64)
        self.initial = strings.setdefault(tuple((symbol, 0) for symbol in self.machine.stack), len(strings))
        self.strings = list(strings)
        self.push = number[push]

    def constraint(self, source: str, extra: dict[str, Any], stacks: int) -> CompiledConstraint:
        n, machine, costs = self.n, self.machine, self.costs
        kept = (self.nodes.number > 0).nonzero()[0]
        control = kept[kept < machine.num_controls]
        distance, need = np.zeros((2, n), np.int64)
        distance[0] = UNREACHABLE
        distance[1 : len(control) + 1], need[1 : len(control) + 1] = costs.distance[control], costs.need[control]
        wide = self.count > NARROW
        group = wide.nonzero()[0]
        row = np.zeros(len(wide), np.int64)
        row[group] = self.pool.numbers(self.hash[group], lambda i: self._row(group[i : i + 1]))
        arcs = self._arcs((~wide).nonzero()[0])
        levels = self._levels(wide)
        none = np.zeros(n, np.int64)
        symbols = machine.num_symbols
        return CompiledConstraint(
            vocab_size=self.tables.vocab_size,
            fingerprint=self.tables.fingerprint,
            stop_ids=self.tables.stop_ids,
            source=source,
            start=int(self.nodes.number[machine.start]),
            accept=self.nodes.accept,
            distance=_int32(distance),
            need=_int32(need),
            rows=self.pool.stacked(),
            group_offset=_offsets(self.node[group], n),
            group_row=_int32(row[group]),
            group_next=_int32(self.target[group]),
            group_push=_int32(self.push[group]),
            group_add=_int32(none[:1].repeat(len(group))),
            group_set=_int32(none[:1].repeat(len(group))),
            **arcs,
            **levels,
            level_slope=np.tile(np.array([0, 1, 0], np.int32), (n, 1)),
            ladder=np.zeros((n, 4), np.int32),
            increments=np.zeros((0, self.tables.vocab_size), np.uint16),
            push_offset=_int32(np.cumsum([0, *map(len, self.strings)])),
            push_symbol=_int32(np.array([symbol for string in self.strings for symbol, _ in string], np.int64)),
            push_register=np.zeros(sum(map(len, self.strings)), np.int32),
            symbol_ladder=np.zeros((symbols, 4), np.int32),
            symbol_cost=_int32(costs.symbol_cost),
            symbol_need=_int32(costs.symbol_need),
            symbol_slope=np.tile(np.array([0, 1, 0], np.int32), (symbols, 1)),
            delta_offset=_int32(self.nodes.delta_row * symbols),
            delta=_int32(self.nodes.delta.ravel()),
            initial_push=self.initial,
            max_pops=self.nodes.max_pops,
            max_push=max(map(len, self.strings)),
            stacks=1 if machine.deterministic else stacks,
            extra=extra | self._names(control),
        )

    def _names(self, control: np.ndarray) -> dict[str, Any]:
        """For people: what nodes 1, 2, … and the symbols stand for, where the machine says it."""
        names, symbols = self.machine.control_names, self.machine.symbol_names
        out: dict[str, Any] = {"controls": [names[c] for c in control.tolist() if c]} if names else {}
        return out | ({"symbols": list(symbols)} if symbols else {})

    def _row(self, group: np.ndarray) -> np.ndarray:
        """Bit row of the tokens of some token sets."""
        return self.groups.row_of(self.nodes.groups[group], self.tables)

    def _arcs(self, narrow: np.ndarray) -> dict[str, np.ndarray]:
        which, token = self.groups.tokens_of(self.nodes.groups[narrow])
        group = narrow[which]
        order = np.lexsort((token, self.node[group]))
        group, token = group[order], token[order]
        nothing = np.zeros(len(group), np.int32)
        return {
            "arc_offset": _offsets(self.node[group], self.n),
            "arc_token": _int32(token),
            "arc_next": _int32(self.target[group]),
            "arc_push": _int32(self.push[group]),
            "arc_add": nothing,
            "arc_set": nothing,
            "arc_cost": _int32(self.cost[group]),
            "arc_need": _int32(self.need[group]),
        }

    def _levels(self, wide: np.ndarray) -> dict[str, np.ndarray]:
        """Unions of a node's tokens by how many tokens and cells they take."""
        narrow_count = np.bincount(self.node, np.where(wide, 0, self.count), minlength=self.n)
        has_rows = (np.bincount(self.node, wide, minlength=self.n) > 0) | (narrow_count > ARC_BURST)
        member = has_rows[self.node].nonzero()[0]
        grid = Grid(self.node[member], self.cost[member], self.need[member], self.hash[member], self.count[member])
        cell = self._stored(grid)

        def build(i: int) -> np.ndarray:
            below, new = grid.difference(cell, i)
            row = self._row(member[new])
            return row | self.pool.of_hash(below) if below else row

        rows = self.pool.numbers(grid.union[cell], build)
        self.deadline.check(_DOING)
        return {
            "level_offset": _offsets(grid.node[cell], self.n),
            "level_cost": _int32(grid.cost[cell]),
            "level_need": _int32(grid.need[cell]),
            "level_row": _int32(rows),
        }

    def _stored(self, grid: Grid) -> np.ndarray:
        """Cells that become levels: all, or where their rows would take too much, fewer of those that add few tokens."""
        for fewest in (1, *_FEWEST):
            cell = grid.stored(fewest)
            if len(np.unique(grid.union[cell])) * self.tables.num_words * 4 <= _LEVEL_BYTES:
                break
        return cell


def _int32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32)


def _offsets(node: np.ndarray, n: int) -> np.ndarray:
    out = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(node, minlength=n), out=out[1:])
    return out
