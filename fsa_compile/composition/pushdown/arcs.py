"""`StackArcs`: what the token walk of a machine with a stack found; and `Places`, between which frames of it end."""

from __future__ import annotations

import dataclasses
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct, exampled, firsts
from fsa_compile.arrays.ranges import ranges
from fsa_compile.artifact.guards import Guards
from fsa_compile.artifact.stored_arrays import LEAST_BYTES, StoredChildren, is_smaller
from fsa_compile.automata.pushdown import END_HERE, ByteMachine
from fsa_compile.composition.pushdown.counter_classes import Classes, Registers
from fsa_compile.composition.pushdown.default_transitions import Derived
from fsa_compile.composition.pushdown.guarded_pops import PopClasses
from fsa_compile.composition.tokens.class_walk import TokenSet
from fsa_compile.composition.tokens.token_sets import Parts


class Children(NamedTuple):
    """A table of nodes by row and symbol, most of which are none: those that are.

    Attributes:
      row, symbol, node: int64[n], by row and symbol.
      num_rows, num_symbols: of the table; row 0 is empty.
    """

    row: np.ndarray
    symbol: np.ndarray
    node: np.ndarray
    num_rows: int
    num_symbols: int

    def at(self, row: np.ndarray, symbol: np.ndarray) -> np.ndarray:
        """Nodes at some places, 0 for none, int64[n]."""
        if not len(self.row):
            return np.zeros(len(row), np.int64)
        keys, wanted = self.row * self.num_symbols + self.symbol, row * self.num_symbols + symbol
        found = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
        return np.where(keys[found] == wanted, self.node[found], 0)

    def among(self, some: np.ndarray) -> Children:
        """Those at which bool[n] is true."""
        at = some.nonzero()[0]
        return self._replace(row=self.row[at], symbol=self.symbol[at], node=self.node[at])

    def flat(self) -> np.ndarray | StoredChildren:
        """The table, row by row: int32[num_rows * num_symbols]. A large one is never written out."""
        at, shape = self.row * self.num_symbols + self.symbol, (self.num_rows * self.num_symbols,)
        stored = StoredChildren({"at": at.astype(np.int32), "value": self.node.astype(np.int32)}, shape)
        if len(at) and stored.size * stored.dtype.itemsize >= LEAST_BYTES and is_smaller(stored):
            return stored
        return np.asarray(stored)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StackArcs:
    """What every node and run reads, before pushes are put together.

    Owners are numbered in one space: `node_owner` says which of them are nodes; the first S are the controls.

    Attributes:
      node_owner: int64[N], owner of each node; node c < S is control c.
      registers: of the machine.
      kind: int64[N], kind of each node's frame, see `Registers`.
      shape: int64[N], shape of its classes, see `Classes`.
      classes: of the registers.
      accept: bool[N], whether the text may end here, if the register allows it.
      owner, token, target, count: int64[A] each, single tokens; count is the register after it, in nodes what is added to it.
      row_owner, row_target, row_set: int64[B] each, large sets of tokens that leave the register as it is.
      sets: what they are.
      link_run, link_caller, link_symbol, link_count: integers [K] each, calls; `link_count` is the register of the caller's frame
        while it is suspended, in nodes what is added to it. Symbol -1: the run is a part of its caller's own frame.
      delta_row: int64[*], row of `delta` for every class of every node, by node.
      delta: node after popping a symbol.
      num_owners: nodes and runs.
      derived: controls whose tokens are those of another one as well, but for the lost ones.
      guards: what counts stand for in frames with sets; only `Guards()` where no frame has one.
      pops: more rows of `delta`, of nodes whose tokens leave a frame under a condition on its set.
      leaves: tokens found earlier; their owners have no others above.
      temperature: float32[N], of every node as of `ByteMachine`'s controls, or None.
    """

    node_owner: np.ndarray
    registers: Registers
    kind: np.ndarray
    shape: np.ndarray
    classes: Classes
    accept: np.ndarray
    owner: np.ndarray
    token: np.ndarray
    target: np.ndarray
    count: np.ndarray
    row_owner: np.ndarray
    row_target: np.ndarray
    row_set: np.ndarray
    sets: list[TokenSet]
    link_run: np.ndarray
    link_caller: np.ndarray
    link_symbol: np.ndarray
    link_count: np.ndarray
    delta_row: np.ndarray
    delta: Children
    num_owners: int
    derived: Derived
    guards: Guards
    pops: PopClasses
    leaves: list[Parts]
    temperature: np.ndarray | None

    def without_tokens(self) -> StackArcs:
        """The same without what token sets are made of, which is most of it."""
        none = np.zeros(0, np.int64)
        names = ("owner", "token", "target", "count", "row_owner", "row_target", "row_set")
        columns: dict[str, Any] = dict.fromkeys((*names, "link_run", "link_caller", "link_symbol", "link_count"), none)
        return dataclasses.replace(self, **columns, sets=[], leaves=[])


class Places:
    """(node, control) pairs: the controls, and the controls that frames return to, at the inner nodes after the return.

    Attributes:
      node, control: int64[Q]; place c < S is control c.
      above, symbol, below: int64[E], ways to end a frame: from a place, popping a symbol, to a place (-1: no token goes on; where
        it is known which symbols may lie on top at each place, only those).
      ends: bool[Q], the text may end here.
    """

    def __init__(self, machine: ByteMachine, arcs: StackArcs, standing: set[tuple[int, int]] | None) -> None:
        s = machine.num_controls
        numbers: dict[int, int] = {}
        node, control = [np.arange(s)], [np.arange(s)]
        above, symbol, below = [], [], []
        begin, count = 0, s
        classes = arcs.classes
        size = classes.size[arcs.shape]
        class_begin = size.cumsum() - size
        closing = classes.ladder[:, 1]  # the first class in which a frame may end
        returning, symbols, after = machine.returns
        first_return = firsts(returning, s)
        while begin < count:
            at, way = ranges(first_return[control[-1]], first_return[control[-1] + 1])
            popped, there = symbols[way], after[way]
            shape = arcs.shape[node[-1][at]]
            which, place = ranges(closing[shape], classes.size[shape])
            at, popped, there = at[which], popped[which], there[which]
            child = arcs.delta.at(arcs.delta_row[class_begin[node[-1][at]] + place], popped)
            keys, first, which = exampled(child * s + there)
            ids = np.array([*map(numbers.get, keys.tolist(), repeat(-1))], np.int64)
            new = ((ids < 0) & (keys >= s)).nonzero()[0]  # the dead node is none
            ids[new] = np.arange(count, count + len(new))
            numbers.update(zip(keys[new].tolist(), ids[new].tolist()))
            width = len(numbers) + s + 1
            ways = distinct(((at + begin) * machine.num_symbols + popped) * width + ids[which] + 1)
            above.append(ways // width // machine.num_symbols)
            symbol.append(ways // width % machine.num_symbols)
            below.append(ways % width - 1)
            node.append(child[first[new]])
            control.append(there[first[new]])
            begin, count = count, count + len(new)
        self.node, self.control = np.concatenate(node), np.concatenate(control)
        self.above, self.symbol, self.below = np.concatenate(above), np.concatenate(symbol), np.concatenate(below)
        if standing is not None:
            pairs = zip(self.above.tolist(), self.symbol.tolist())
            kept = (self.below >= 0) | np.fromiter((pair in standing for pair in pairs), bool, len(self.above))
            self.above, self.symbol, self.below = self.above[kept], self.symbol[kept], self.below[kept]
        self.kind = arcs.kind[self.node]
        self.ends = (machine.end[self.control] == END_HERE) & arcs.accept[self.node]
