"""The token walk of machines with a stack: `ByteMachine` ∘ detokenizing transducer, with what every token pushes and pops.

Everything is written in terms of *owners*, sets of (trie node, control) pairs from which tokens are read on:

* a *node* becomes a node of the artifact. A control is the node of all tokens from their first byte; an *inner node* is
  what remains of the tokens that read the frame of another node to its end and now return through one symbol;
* a *run* is the part of tokens inside a frame that was entered by a call within them, from the byte of the call on. It is
  named by (trie node, callee control) alone, so all contexts share it: identifiers are walked once, not once per context.

Runs know their callers by *links* (run, caller, symbol). Where a run's frame ends inside a token, the walk goes on in every
caller, in the control after the return; where a node's own frame ends, the rest of the token is *pending*. What is pending
in a node, returned through a symbol, is one more (inner) node, told apart by its contents. A token is finite and a return
reads nothing, so the longest chain of inner nodes bounds how many cells any token pops.

A link without a symbol says that a run is a part of its caller's own frame: parts that many owners share, such as words
from their second letter on, are walked once. Machines are deterministic, so the parts of an owner are disjoint and the
hashes of token sets add up.

Controls that differ from another one at few bytes are not walked (`derived_controls`), and parts of machines that many machines
share are walked once (`leaf_walks`).

Frames with a set of keys do not count; there, the number of a guard (`key_sets`) stands for the register: what the token asked
of the set so far, and did to it. In runs the set was empty at first, so nothing is asked of it.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fsa_compile.byte_machine import END_HERE, END_RETURN, RETURN, ByteMachine
from fsa_compile.derived_controls import NONE_DERIVED, Derived, derived_controls
from fsa_compile.entry_walk import Entered, TokenSet
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.guarded_pops import GuardedPops, PopClasses
from fsa_compile.key_sets import Guards
from fsa_compile.leaf_walks import Leaf, LeafCall, LeafWalk, leaf_calls, leaves_of
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.quotient import remember
from fsa_compile.registers import Classes, Registers
from fsa_compile.stack_entries import Cut, Entries
from fsa_compile.token_parts import Parts, parts_of
from fsa_compile.token_walk import with_aliases
from fsa_compile.trie_subtrees import kinds_read, subtrees_of
from fsa_compile.vocabulary_tables import VocabularyTables, segment_starts

_DOING = "walking the vocabulary"
_MANY = 50_000
"""Levels with fewer items are not checked against the limits."""
_PAIR_BYTES = 96
"""Working memory of one (owner, trie node, control) while it is expanded, and what is kept of it."""


class Trie(NamedTuple):
    """The vocabulary's trie with nodes for the end of the text and for special tokens, which have no byte.

    Attributes:
      first, children: int64[T'], first child and number of children.
      symbol: int64[T'], byte, or 256 + i for special token i; -1 for the end of the text and the root.
      token: int64[T'], token that ends here, or -1.
      level: int64[L + 1], first node of every depth, from depth 1.
      end: node of the end of the text.
    """

    first: np.ndarray
    children: np.ndarray
    symbol: np.ndarray
    token: np.ndarray
    level: np.ndarray
    end: int


def trie_with(tables: VocabularyTables, specials: tuple[int, ...]) -> Trie:
    """The trie for a machine with the given special tokens."""
    found = tables.memo.get(("trie", specials))
    if found is not None:
        return found
    size, more = len(tables.trie_first), len(specials) + 1
    none = np.zeros(more, np.int64)
    level = [1]
    while level[-1] < size:
        level.append(int(tables.trie_first[level[-1]]))
    symbol = np.concatenate([tables.trie_byte, [-1], 256 + np.arange(len(specials))])
    symbol[0] = -1
    trie = Trie(
        first=np.concatenate([tables.trie_first, none]),
        children=np.concatenate([tables.trie_count, none]),
        symbol=symbol,
        token=np.concatenate([tables.trie_token, [-1], np.array(specials, np.int64)]),
        level=np.array(level),
        end=size,
    )
    return remember(tables, ("trie", specials), trie)


@dataclasses.dataclass(frozen=True, eq=False)
class StackArcs:
    """What every node and run reads, before pushes are put together.

    Owners are numbered in one space: `node_owner` says which of them are nodes; the first S are the controls.

    Attributes:
      node_owner: int64[N], owner of each node; node c < S is control c.
      kind: int64[N], kind of each node's frame, see `Registers`.
      classes: of the registers.
      accept: bool[N], whether the text may end here, if the register allows it.
      owner, token, target, count: int64[A] each, single tokens; count is the register after it, in nodes what is added to it.
      row_owner, row_target, row_set: int64[B] each, large sets of tokens that leave the register as it is.
      sets: what they are.
      link_run, link_caller, link_symbol, link_count: int64[K] each, calls; `link_count` is the register of the caller's frame
        while it is suspended, in nodes what is added to it. Symbol -1: the run is a part of its caller's own frame.
      delta_row: int64[*], row of `delta` for every class of every node, by node.
      delta: int64[*, P], node after popping a symbol, 0 for none.
      num_owners: nodes and runs.
      derived: controls whose tokens are those of another one as well, but for the lost ones.
      guards: what counts stand for in frames with sets; only `Guards()` where no frame has one.
      pops: more rows of `delta`, of nodes whose tokens leave a frame under a condition on its set.
      leaves: tokens found earlier; their owners have no others above.
    """

    node_owner: np.ndarray
    kind: np.ndarray
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
    delta: np.ndarray
    num_owners: int
    derived: Derived
    guards: Guards
    pops: PopClasses
    leaves: list[Parts]


def walk_machine(machine: ByteMachine, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline) -> StackArcs:
    """Every token of every node, and the inner nodes.

    Raises:
      ConstraintError: a special token is also text or an end-of-text id; one token can pop any number of cells.
      LimitError: too many nodes, out of time or memory.
    """
    _check_specials(machine, tables)
    registers = Registers(machine)
    most = np.zeros(len(registers.low), np.int64)
    while True:
        walk = _Walk(machine, tables, registers, most, limits, deadline)
        arcs = walk.run()
        if (walk.most <= arcs.classes.most).all():
            return arcs
        most = walk.most  # an inner node counts further than any control: its registers need more classes


def _check_specials(machine: ByteMachine, tables: VocabularyTables) -> None:
    for token in machine.specials:
        if not 0 <= token < tables.vocab_size or tables.length[token] > 0 or token in tables.stop_ids:
            raise ConstraintError(
                f"token {token} cannot stand in a grammar as a special token: it is text, ends the text, or does not exist",
                fix="Write text as a string, and leave the end of the text to the constraint.",
            )


class _Items(NamedTuple):
    """What is still to be read, by owner.

    Attributes:
      owner: int64[n].
      node: int64[n], trie node whose symbol is read next (or was read last).
      control: int64[n], before that (or after).
      begun: int64[n], register of the frame: in runs absolute, in nodes what was added to it.
    """

    owner: np.ndarray
    node: np.ndarray
    control: np.ndarray
    begun: np.ndarray

    def at(self, index: np.ndarray | slice) -> _Items:
        return _Items(self.owner[index], self.node[index], self.control[index], self.begun[index])


def _joined(items: list[_Items]) -> _Items:
    return items[0] if len(items) == 1 else _Items(*(np.concatenate(column) for column in zip(*items)))


_NO_ITEMS = _Items(*(np.zeros(0, np.int64),) * 4)


class _Moves:
    """The entries of a machine by control and symbol class.

    Attributes:
      begin, size: int64[S * C], entries by control * C + class.
      next, push, add, guard: int64[E], of every entry; one more stands for none.
      forks: whether some control has several entries at a symbol.
      plain: int64[S * C], of a machine that neither forks nor counts: 0, the next control, or -1 where more happens.
      kept, counted: uint64[S], bits of the bytes that leave each control as it is, and its register as it is or one higher; see
        `trie_subtrees`.
    """

    def __init__(self, machine: ByteMachine) -> None:
        offset, action = machine.entry_offset.astype(np.int64), machine.action.ravel()
        size = np.diff(offset)
        none = len(machine.entry_next)
        self.size = size[action]
        self.begin = np.where(size > 0, offset[:-1], none)[action]
        guard = np.zeros(none, np.int32) if machine.sets is None else machine.sets.entry
        self.next, self.push, self.add, self.guard = (
            np.append(column, 0).astype(np.int64) for column in (machine.entry_next, machine.entry_push, machine.entry_add, guard)
        )
        self.forks = bool((size > 1).any())
        self.plain = None
        if not self.forks and not machine.entry_add.any() and not any(add for string in machine.pushes for _, add in string):
            self.plain = np.where((self.push == 0) & (self.next >= 0) & (self.guard == 0), self.next, -1)[self.begin]
        begin = self.begin.reshape(machine.action.shape)
        same = (self.next[begin] == np.arange(len(begin))[:, None]) & (self.push[begin] == 0)
        same &= (self.size.reshape(begin.shape) == 1) & (self.guard[begin] == 0)
        kind, adds = machine.byte_class[:256], self.add[begin] == 1
        self.kept = kinds_read(same & ~adds, kind)
        self.counted = kinds_read(same & adds, kind) if adds.any() else np.zeros_like(self.kept)

    def live(self, at: np.ndarray) -> np.ndarray:
        """Whether anything is read at control * C + class."""
        return self.size[at] > 0


class _Columns:
    """Columns of equal length that grow.

    Attributes:
      columns: int64, longer than they are filled.
      size: how far they are filled.
    """

    def __init__(self, number: int) -> None:
        self.columns = [np.zeros(1024, np.int64) for _ in range(number)]
        self.size = 0

    def extend(self, *more: np.ndarray) -> None:
        """Appends to every column."""
        end = self.size + len(more[0])
        if end > len(self.columns[0]):
            self.columns = [np.concatenate([column[: self.size], np.zeros(2 * end, np.int64)]) for column in self.columns]
        for column, values in zip(self.columns, more):
            column[self.size : end] = values
        self.size = end


class _Walk:
    """One walk; owners of the current wave below `first_run` are nodes, from there on runs."""

    def __init__(
        self,
        machine: ByteMachine,
        tables: VocabularyTables,
        registers: Registers,
        most: np.ndarray,
        limits: CompileLimits,
        deadline: Deadline,
        *,
        whole: bool = True,
    ) -> None:
        self.machine, self.tables, self.limits, self.deadline = machine, tables, limits, deadline
        self.most = most
        self.trie = trie_with(tables, machine.specials)
        self.subtrees = subtrees_of(tables)
        self.moves = _Moves(machine)
        self.registers = registers
        self.low, self.high = registers.low[registers.of_control], registers.high[registers.of_control]
        self.width = machine.action.shape[1]
        self.kind_of = np.append(machine.byte_class, 0).astype(np.int64)[self.trie.symbol]  # the last one answers symbol -1
        self.ret = machine.ret.astype(np.int64)
        self.stack_class = _alike(self.ret)
        self.records: list[tuple[np.ndarray, ...]] = []
        self.links: list[tuple[np.ndarray, ...]] = []
        self.pending: list[_Items] = []
        self.guards = Guards(() if machine.sets is None else machine.sets.guards[1:])
        self.first_cut, self.cut_of = 0, np.zeros(0, np.int64)
        self.num_owners = machine.num_controls
        self.first_run = self.num_owners
        self.derived, leaves = NONE_DERIVED, list[Leaf]()
        if whole:  # not a leaf itself
            self.derived = derived_controls(machine, tables, deadline)
            if machine.sets is None:
                leaves = leaves_of(machine, self.derived.node, np.unique(self.derived.base), tables, self._leaf_walk)
        self.leaves, self.calls = leaves, leaf_calls(machine, leaves)
        self.leaf_parts: list[Parts] = []
        self._forget_links()
        self.entries = Entries(machine, tables) if machine.deterministic else None
        self.cut: Cut | None = None
        self.found: Entered | None = None
        self.push_length = np.array([len(p) for p in machine.pushes])
        self.push_symbol, self.push_add = np.zeros((2, len(machine.pushes), max(1, int(self.push_length.max()))), np.int64)
        for i, string in enumerate(machine.pushes):
            self.push_symbol[i, : len(string)] = [symbol for symbol, _ in string]
            self.push_add[i, : len(string)] = [add for _, add in string]

    def _forget_links(self) -> None:
        self.of_run, self.callers = _Columns(2), _Columns(3)

    def run(self) -> StackArcs:
        leaving = self._take_leaves()
        self._wave(_joined([self._root_items(), leaving]))
        self._derive_pending()
        control = (self.machine.end == END_RETURN).nonzero()[0]
        self.pending.append(_Items(control, np.full(len(control), self.trie.end), control, np.zeros(len(control), np.int64)))
        most = self._most_counted(self.registers.of_control)
        inner = _InnerNodes(self, Classes(self.registers, np.maximum(most, self.most)))
        while (seeds := inner.wave()) is not None:
            self._wave(seeds)
        self.records.append((*self.derived.record, np.zeros(len(self.derived.record[0]), np.int64)))
        (owner, token, target, count), rows, sets = self._tokens()
        links = self._all_links()
        kind = np.concatenate(inner.kinds)
        self.most = np.maximum(self.most, self._most_counted(kind, np.concatenate(inner.owners)))
        return StackArcs(
            node_owner=np.concatenate(inner.owners),
            kind=kind,
            classes=inner.classes,
            accept=np.concatenate([self.machine.end == END_HERE, *inner.accept]),
            owner=owner,
            token=token,
            target=target,
            count=count,
            row_owner=rows[0],
            row_target=rows[1],
            row_set=rows[2],
            sets=sets,
            link_run=links[0],
            link_caller=links[1],
            link_symbol=links[2],
            link_count=links[3],
            delta_row=np.concatenate(inner.rows),
            delta=inner.delta(),
            num_owners=self.num_owners,
            derived=self.derived,
            guards=self.guards,
            pops=inner.pops.classes(),
            leaves=self.leaf_parts,
        )

    def _tokens(
        self,
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, np.ndarray, np.ndarray], list[TokenSet]]:
        """(owner, token, target, count) of single tokens, (owner, target, set) of large sets, and the sets, as in `StackArcs`."""
        records = [np.concatenate(c) for c in zip(*self.records)] if self.records else [np.zeros(0, np.int64)] * 4
        single = with_aliases(self.tables, *records)
        none = np.zeros(0, np.int64)
        if self.found is None:
            return single, (none, none, none), []
        more = (*self.found.single, np.zeros(len(self.found.single[0]), np.int64))
        return tuple(np.concatenate(c) for c in zip(single, more)), self.found.by_row, self.found.sets

    def _all_links(self) -> tuple[np.ndarray, ...]:
        return tuple(np.concatenate(c) for c in zip(*self.links)) if self.links else (np.zeros(0, np.int64),) * 4

    def _leaf_walk(self, machine: ByteMachine, size: int) -> LeafWalk:
        """Walks the machine of a leaf, whose first controls belong to it."""
        registers = Registers(machine)
        walk = _Walk(machine, self.tables, registers, registers.low * 0, self.limits, self.deadline, whole=False)
        walk._wave(walk._root_items())
        single, rows, sets = walk._tokens()
        parts = parts_of(self.tables, single, rows, sets)
        pending = _joined(walk.pending) if walk.pending else _NO_ITEMS
        pending = pending.at(pending.owner <= size)
        parts = dataclasses.replace(parts, token=parts.token.astype(np.int32))
        return LeafWalk(parts, walk._all_links(), tuple(pending), size, walk.num_owners - machine.num_controls)

    def _take_leaves(self) -> _Items:
        """Adds what was found of the leaves; what is to be read where tokens leave them."""
        leaving = [_NO_ITEMS]
        for controls, found in self.leaves:
            number = np.concatenate([[0], controls, np.arange(self.num_owners, self.num_owners + found.runs)])
            self.num_owners += found.runs
            parts = found.parts
            self.leaf_parts.append(dataclasses.replace(parts, owner=number[parts.owner], target=number[parts.target]))
            run, caller, symbol, count = found.links
            self.links.append((number[run], number[caller], symbol, count))
            owner, node, control, count = found.leaving
            leaving.append(_Items(number[owner], node, number[control], count))
        items = _joined(leaving)
        at = items.control * self.width + self.kind_of[items.node]
        returns = self.moves.next[self.moves.begin[at]] == RETURN
        pending = items.at(returns & self.moves.live(at))
        self.pending.append(pending)
        return _joined([items.at(~returns & self.moves.live(at)), *(self._called_leaf(call, pending) for call in self.calls)])

    def _called_leaf(self, call: LeafCall, pending: _Items) -> _Items:
        """Links a call to the control of a leaf; what is to be read in the caller where tokens return from there.

        Args:
          pending: of the leaves.
        """
        caller, entry, symbol, _ = call
        none = np.zeros(1, np.int64)
        self.links.append((none + entry, none + caller, none + symbol, none))
        back = pending.at((pending.owner == entry) & (self._depth(pending.node) > 1))  # at least one byte is read by the entry
        back = back.at((back.begun >= self.low[back.control]) & (self.ret[back.control, symbol] > 0))
        return _Items(back.owner * 0 + caller, back.node, self.ret[back.control, symbol], back.begun * 0)

    def _most_counted(self, kind: np.ndarray, owners: np.ndarray | None = None) -> np.ndarray:
        """int64[F], most iterations begun by one token in nodes of each kind, so far."""
        most = np.zeros(len(self.registers.low), np.int64)
        if not self.registers.counts:
            return most
        of_owner = np.zeros(self.num_owners, np.int64)
        of_owner[owners if owners is not None else np.arange(len(kind))] = kind
        counts = [(owner, begun) for owner, *_, begun in self.records]
        counts += [(caller, begun) for _, caller, _, begun in self.links]
        counts += [(items.owner, items.begun) for items in self.pending]
        counts += [(parts.owner, parts.count) for parts in self.leaf_parts]
        for owner, count in counts:
            np.maximum.at(most, of_owner[owner], count)
        most[~self.registers.counted] = 0
        return most

    def _root_items(self) -> _Items:
        """(control, trie node, control) of every first byte and special token that a control reads; those of derived controls
        begin where they leave their frame."""
        trie, machine = self.trie, self.machine
        root = np.arange(trie.first[0], trie.first[0] + trie.children[0])
        first = np.concatenate([root, np.arange(trie.end + 1, len(trie.first))])
        live = machine.action[:, machine.byte_class[trie.symbol[first]]] > 0
        live[self.derived.node] = False
        for controls, found in self.leaves:
            live[controls[: found.size]] = False
        for call in self.calls:
            live[call.caller, : len(root)] &= ~call.bytes[trie.symbol[root]]
        control, at = live.nonzero()
        owner, node, inside = self.derived.seed
        zeros = np.zeros(len(at) + len(owner), np.int64)
        return _Items(np.append(control, owner), np.append(first[at], node), np.append(control, inside), zeros)

    def _derive_pending(self) -> None:
        """What is pending in the bases is so in derived controls, too, except below what these do differently."""
        derived, below = self.derived, self.subtrees
        if not len(derived.node) or not self.pending:
            return
        pending = _joined(self.pending)
        pending = pending.at(np.argsort(pending.owner, kind="stable"))
        first = np.searchsorted(pending.owner, derived.base)
        size = np.searchsorted(pending.owner, derived.base, side="right") - first
        which = np.repeat(np.arange(len(size)), size)
        at = np.arange(len(which)) + np.repeat(first - (np.cumsum(size) - size), size)
        node = pending.node[at]
        owner, top = derived.tops
        begin = np.searchsorted(owner, derived.node)
        count = np.searchsorted(owner, derived.node, side="right") - begin
        pair = np.repeat(np.arange(len(which)), count[which])
        number = np.arange(len(pair)) - (np.cumsum(count[which]) - count[which])[pair]
        over, under = top[begin[which[pair]] + number], np.minimum(node[pair], len(below.begin) - 1)
        lost = np.zeros(len(which), bool)
        lost[pair[below.holds(over, under) & (node[pair] < len(below.begin))]] = True
        keep = (~lost).nonzero()[0]
        items = pending.at(at[keep])
        self.pending.append(items._replace(owner=derived.node[which[keep]]))

    def _depth(self, node: np.ndarray) -> np.ndarray:
        depth = np.searchsorted(self.trie.level, node, side="right")
        depth[node >= self.trie.end] = 1
        return depth

    def _wave(self, seeds: _Items) -> None:
        """Walks items, by depth in the trie."""
        self.first_run = self.num_owners
        self._forget_links()
        depth = self._depth(seeds.node)
        order = np.argsort(depth, kind="stable")
        seeds, depth = seeds.at(order), depth[order]
        last = int(depth[-1]) if len(depth) else 0
        begin = np.searchsorted(depth, np.arange(1, last + 2))
        items, d = _NO_ITEMS, 1
        while d <= last or len(items.owner):
            if not len(items.owner):
                d = int(depth[np.searchsorted(depth, d)])
            if d <= last and begin[d] > begin[d - 1]:
                items = _joined([items, seeds.at(slice(begin[d - 1], begin[d]))])
            items = self._read(items)
            if d == 1 and self.entries is not None:
                items = self._entered(items)
            items = self._children(items, d)
            d += 1
        self.entries = self.cut = None

    def _read(self, items: _Items) -> _Items:
        """Items after reading one symbol, runs begun by it included."""
        if self.moves.plain is not None:
            following = self.moves.plain[items.control * self.width + self.kind_of[items.node]]
            if following.min(initial=0) >= 0:
                on = following.nonzero()[0]
                return _Items(items.owner[on], items.node[on], following[on], items.begun[on])
        moved, called = [], []
        while len(items.owner):
            which, entry = self._entries(items)
            items = items.at(which)
            if self.machine.sets is not None:
                items, entry = self._guarded(items, entry)
            following, push = self.moves.next[entry], self.moves.push[entry]
            returned = self._returned(items.at((following == RETURN).nonzero()[0]))
            stays = ((following > 0) & (push == 0)).nonzero()[0]
            calls = ((following > 0) & (push > 0)).nonzero()[0]
            moved.append(self._counted(items.at(stays), following[stays], self.moves.add[entry[stays]]))
            if len(calls):
                called.append((items.at(calls), entry[calls]))
            items = self._distinct(returned)
        if called:
            moved.append(self._calls(_joined([c for c, _ in called]), np.concatenate([e for _, e in called])))
        return self._distinct(_joined(moved)) if moved else _NO_ITEMS

    def _entries(self, items: _Items) -> tuple[np.ndarray | slice, np.ndarray]:
        """(item, entry) of everything that the items may do at their symbol, bounds aside."""
        at = items.control * self.width + self.kind_of[items.node]
        if not self.moves.forks:
            return slice(None), self.moves.begin[at]
        size = self.moves.size[at]
        which = np.repeat(np.arange(len(at)), size)
        return which, np.arange(len(which)) + np.repeat(self.moves.begin[at] - (np.cumsum(size) - size), size)

    def _guarded(self, items: _Items, entry: np.ndarray) -> tuple[_Items, np.ndarray]:
        """Items and their entries without those whose guard lets nothing pass; what is asked and done so far."""
        at = self.moves.guard[entry].nonzero()[0]
        if not len(at):
            return items, entry
        owner = items.owner[at]
        known = (owner >= self.first_run) & ~self._of_cut(owner)
        begun = items.begun.copy()
        begun[at] = self.guards.compositions(begun[at], self.moves.guard[entry[at]], known)
        passed = (begun >= 0).nonzero()[0]
        return items._replace(begun=begun).at(passed), entry[passed]

    def _distinct(self, items: _Items) -> _Items:
        """The same items once each; only what is not deterministic comes to one item in two ways."""
        if self.machine.deterministic or not len(items.owner):
            return items
        return _Items(*np.unique(np.stack(items), axis=1))

    def _counted(self, items: _Items, control: np.ndarray, add: np.ndarray) -> _Items:
        """Items in their next control; those whose loop is full are dropped."""
        if not self.registers.counts:
            return items._replace(control=control)
        count = items.begun + add
        out = items._replace(control=control, begun=count)
        return out.at((count <= self.high[control]).nonzero()[0])

    def _children(self, items: _Items, depth: int) -> _Items:
        """Records the tokens that end at the items' nodes, of the given depth; the items of their children."""
        trie, numbers = self.trie, self.tables.numbers
        token = trie.token[items.node]
        ends = (token >= 0).nonzero()[0]
        if self.cut is not None:
            ends = ends[self._in_cut(self.cut.token, items.owner[ends], items.node[ends])]
        if len(ends):
            self.records.append((items.owner[ends], token[ends], items.control[ends], items.begun[ends]))
        size = self._unread(items, depth)
        upto = size.cumsum()
        total = int(upto[-1]) if len(upto) else 0
        if total > _MANY:
            self.deadline.check(_DOING)
            self.deadline.check_bytes(total * _PAIR_BYTES, _DOING)
        if (most := max(total, len(size))) > len(numbers):
            numbers = np.arange(most)
        parent = numbers[: len(size)].repeat(size)
        child = (trie.first[items.node] + size - upto)[parent] + numbers[:total]
        items = _Items(items.owner[parent], child, items.control[parent], items.begun[parent])
        return items if self.cut is None else self._cut_off(items)

    def _unread(self, items: _Items, depth: int) -> np.ndarray:
        """Number of children that are still to be read, of each item: none where the control stays as it is on all bytes below,
        or counts all of them; these tokens are recorded."""
        size, below = self.trie.children[items.node], self.subtrees
        inside = (size > 0).nonzero()[0]
        if self.cut is not None:
            inside = inside[~self._of_cut(items.owner[inside])]
        kinds, control = below.kinds[items.node[inside]], items.control[inside]
        for add, read in enumerate((self.moves.kept, self.moves.counted)[: 1 + self.registers.counts]):
            stays = inside[kinds & ~read[control] == 0]
            if not len(stays):
                continue
            node = items.node[stays]
            begin, count = below.begin[node], below.end[node] - below.begin[node]
            which = stays.repeat(count)
            token = below.token[np.arange(len(which)) + (begin + count - count.cumsum()).repeat(count)]
            begun = items.begun[which] + add * (self.tables.length[token] - depth)
            found = items.owner[which], token, items.control[which], begun
            if add:
                fits = (begun <= self.high[found[2]]).nonzero()[0]
                found = tuple(column[fits] for column in found)
            self.records.append(found)
            size[stays] = 0
        return size

    def _cut_off(self, items: _Items) -> _Items:
        """Items without those that the cut does not lead to."""
        assert self.cut is not None
        items = items.at(self._in_cut(self.cut.path, items.owner, items.node).nonzero()[0])
        if not self._of_cut(items.owner).any():
            self.cut = None
        return items

    def _in_cut(self, table: np.ndarray, owner: np.ndarray, node: np.ndarray) -> np.ndarray:
        """Whether owners read on at trie nodes: all do but the runs of the cut, which `table` bool[E, T] tells."""
        out = np.ones(len(owner), bool)
        cut = self._of_cut(owner)
        out[cut] = table[self.cut_of[owner[cut] - self.first_cut], node[cut]]
        return out

    def _of_cut(self, owner: np.ndarray) -> np.ndarray:
        return (owner >= self.first_cut) & (owner < self.first_cut + len(self.cut_of))

    def _entered(self, items: _Items) -> _Items:
        """Walks what leads into controls that read whole classes by symbol strings; the rest of the items, and runs of the
        tokens of those controls that push or pop, shared by all owners that read the same byte into them."""
        assert self.entries is not None
        text = items.node < self.trie.end
        by_string = np.zeros(len(text), bool)
        byte = self.trie.symbol[items.node]
        by_string[text] = self.entries.chosen(items.owner[text], byte[text], items.control[text])
        if self.machine.sets is not None:
            by_string &= items.begun == 0
        chosen = by_string.nonzero()[0]
        if not len(chosen):
            return items
        owner, byte, control = items.owner[chosen], byte[chosen], items.control[chosen]
        found, self.cut = self.entries.walked(owner, byte, control, self.deadline)
        self.found = found
        keys, which = np.unique(items.node[chosen] * self.machine.num_controls + control, return_inverse=True)
        node, control = keys // self.machine.num_controls, keys % self.machine.num_controls
        entry = np.searchsorted(self.cut.entry, control)
        some = self.cut.path[entry, node]
        self.first_cut, self.cut_of = self.num_owners, entry[some]
        self.num_owners += len(self.cut_of)
        run = np.where(some, self.first_cut + np.cumsum(some) - 1, -1)
        linked = (run[which] >= 0).nonzero()[0]
        nothing = np.zeros(len(linked), np.int64)
        self._add_links(self.first_cut, run[which[linked]], owner[linked], nothing - 1, nothing)
        runs = _Items(run[some], node[some], control[some], np.zeros(len(self.cut_of), np.int64))
        return _joined([items.at((~by_string).nonzero()[0]), runs])

    def _returned(self, items: _Items) -> _Items:
        """Items whose frame ends: in nodes they are pending, in runs they go on in every caller."""
        own = (items.owner < self.first_run).nonzero()[0]
        if len(own):
            self.pending.append(items.at(own))
        inside = ((items.owner >= self.first_run) & (items.begun >= self.low[items.control])).nonzero()[0]
        if not len(inside):
            return _NO_ITEMS
        run = items.owner[inside] - self.first_run
        begin, end = (column[run] for column in self.of_run.columns)
        size = end - begin
        which = np.repeat(inside, size)
        at = np.arange(len(which)) + np.repeat(begin - (np.cumsum(size) - size), size)
        caller, symbols, begun = self.callers.columns
        symbol = symbols[at]
        control = np.where(symbol >= 0, self.ret[items.control[which], symbol], items.control[which])
        live = control.nonzero()[0]
        at, which = at[live], which[live]
        count = np.where(symbol[live] >= 0, begun[at], items.begun[which])  # a part of the caller's frame has the caller's set
        return _Items(caller[at], items.node[which], control[live], count)

    def _calls(self, items: _Items, entry: np.ndarray) -> _Items:
        """Links calls to runs, all of them new at this depth; what the runs have read."""
        push = self.moves.push[entry]
        count = items.begun + self.push_add[push, 0]
        if self.registers.counts:
            fits = (count <= self.high[items.control]).nonzero()[0]
            items, entry, push, count = items.at(fits), entry[fits], push[fits], count[fits]
        s = self.machine.num_controls
        key = (items.node * s + self.moves.next[entry]) * 2 + self.moves.add[entry]
        starts, run = np.unique(key, return_inverse=True)
        first = self.num_owners
        self.num_owners += len(starts)
        self._add_links(first, *self._chained(first + run, items.owner, push, count))
        return _Items(np.arange(first, first + len(starts)), starts // (2 * s), starts // 2 % s, starts % 2)

    def _chained(
        self, run: np.ndarray, caller: np.ndarray, push: np.ndarray, count: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(run, caller, symbol, register of the caller's frame) of calls; the frames between a run and its caller become
        runs of their own."""
        length = self.push_length[push]
        if length.max(initial=1) == 1:
            return run, caller, self.push_symbol[push, 0], count
        one = length == 1
        links = [(run[one], caller[one], self.push_symbol[push[one], 0], count[one])]
        run, caller, push, count = run[~one], caller[~one], push[~one], count[~one]
        width = len(self.push_length)
        distinct, which = np.unique(run * width + push, return_inverse=True)
        run, string = distinct // width, distinct % width
        size = self.push_length[string] - 1
        begin = self.num_owners + np.cumsum(size) - size
        self.num_owners += int(size.sum())
        links.append((begin[which], caller, self.push_symbol[push, 0], count))
        of, frame = np.repeat(np.arange(len(size)), size), np.arange(int(size.sum()))
        place = frame - (np.cumsum(size) - size)[of]
        frame += begin[0] if len(begin) else 0
        above = np.where(place + 1 == size[of], run[of], frame + 1)
        links.append((above, frame, self.push_symbol[string[of], place + 1], self.push_add[string[of], place + 1]))
        return tuple(np.concatenate(c) for c in zip(*links))  # type: ignore[return-value]

    def _add_links(self, first: int, *columns: np.ndarray) -> None:
        """Adds the links of the runs made at this depth, the owners from `first` on; columns from `_chained`."""
        order = np.argsort(columns[0], kind="stable")
        run, *rest = (column[order] for column in columns)
        self.links.append((run, *rest))
        bounds = self.callers.size + np.searchsorted(run, np.arange(first, self.num_owners + 1))
        self.of_run.extend(bounds[:-1], bounds[1:])
        self.callers.extend(*rest)


class _InnerNodes:
    """Nodes so far, and what follows from what is pending in those of the last wave.

    Attributes:
      owners, kinds: of the nodes of each wave: their owners, and the kinds of their frames.
      accept: of each wave but the first.
      rows: of each wave, row of `delta` for every class of every node.
    """

    def __init__(self, walk: _Walk, classes: Classes) -> None:
        s = walk.machine.num_controls
        self.walk, self.classes = walk, classes
        self.owners, self.kinds = [np.arange(s)], [walk.registers.of_control]
        self.accept: list[np.ndarray] = []
        self.rows: list[np.ndarray] = []
        self.pops = GuardedPops(walk.guards)
        self.num_nodes = s
        self._segments = [np.zeros((1, walk.ret.shape[1]), np.int64)]
        self._num_segments = 1
        self._memo: dict[int, int] = {0: 0}
        self._columns: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def delta(self) -> np.ndarray:
        """int64[*, P], node after popping a symbol; row 0 is dead."""
        return np.concatenate(self._segments)

    def wave(self) -> _Items | None:
        """Makes the children of the last wave's nodes; what the new ones among them read, or None."""
        walk, kinds = self.walk, self.kinds[-1]
        size = self.classes.size[kinds]
        base = int(size.sum())
        if not walk.pending:
            self.rows.append(np.zeros(base, np.int64))
            return None
        pending = _joined(walk.pending)
        walk.pending = []
        first = np.cumsum(size) - size
        if walk.machine.sets is None:
            more = 0
            index, node, control = self._by_class(pending, first)
        else:
            first_node = self.num_nodes - len(kinds)
            counted = walk.registers.counted[kinds[pending.owner - self.owners[-1][0]]]
            guard = np.where(counted, 0, pending.begun)
            free, some, more = self.pops.parted(pending.owner, guard, int(self.owners[-1][0]), first_node)
            index, node, control = self._by_class(pending.at(free), first)
            index, node, control = self.pops.extended(
                (index, node, control), first, (pending.node[some], walk.stack_class[pending.control[some]]), base
            )
        row = np.zeros(base + more, np.int64)
        self.rows.append(row[:base])
        self.pops.rows.append(row[base:])
        if not len(index):
            return None
        begin = segment_starts(index)
        total = np.add.reduceat(mixed(node * walk.machine.num_controls + control), begin)
        _, example, which = np.unique(total, return_index=True, return_inverse=True)
        row[index[begin]] = self._num_segments + which
        lo, hi = begin[example], np.append(begin[1:], len(index))[example]
        return self._children(node, control, lo, hi)

    def _by_class(self, pending: _Items, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(class of a node's register, trie node, control) of what is pending while the register belongs to it.

        Args:
          first: int64[n], number of the first class of every node of the last wave.
        """
        walk = self.walk
        local = pending.owner - self.owners[-1][0]
        kind = self.kinds[-1][local]
        control = walk.stack_class[pending.control]
        if walk.registers.counts:
            size = self.classes.size[kind]
            which = np.repeat(np.arange(len(local)), size)
            place = np.arange(len(which)) - (np.cumsum(size) - size)[which]
            after = self.classes.value[self.classes.first[kind[which]] + place] + pending.begun[which]
            counted, registers = kind[which], walk.registers
            fits = ~registers.counted[counted] | ((after >= registers.low[counted]) & (after <= registers.high[counted]))
            which, place = which[fits], place[fits]
            index = first[local[which]] + place
            node, control = pending.node[which], control[which]
        else:
            index, node = local, pending.node
        if walk.machine.deterministic:
            order = np.argsort(index, kind="stable")
            return index[order], node[order], control[order]
        index, node, control = np.unique(np.stack([index, node, control]), axis=1)
        return index, node, control

    def _children(self, node: np.ndarray, control: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> _Items | None:
        """Children of distinct pending sets, (node, control)[lo:hi] each."""
        walk = self.walk
        columns = [self._symbol_classes(control[a:b]) for a, b in zip(lo.tolist(), hi.tolist())]
        count = np.array([len(symbols) for _, symbols in columns])
        symbol = np.concatenate([symbols for _, symbols in columns])
        pair_set = np.repeat(np.arange(len(lo)), count)
        size = (hi - lo)[pair_set]
        walk.deadline.check(_DOING)
        walk.deadline.check_bytes(int(size.sum()) * _PAIR_BYTES, _DOING)
        pair = np.repeat(np.arange(len(pair_set)), size)
        at = np.arange(len(pair)) - (np.cumsum(size) - size)[pair] + lo[pair_set][pair]
        node, there = node[at], walk.ret[control[at], symbol[pair]]
        code = self._code(node, there)
        pair, node, there, code = self._live(pair, node, there, code)
        begin = segment_starts(pair)
        total, kind = np.zeros(len(pair_set), np.uint64), walk.registers.of_symbol[symbol]
        if len(begin):
            total[pair[begin]] = np.add.reduceat(mixed(node * (3 * walk.machine.num_controls) + code), begin)
        some = total > 0
        total[some] += mixed(-1 - kind[some])  # nodes of different kinds are different nodes
        child, new = self._number(total)
        self._add_segments(columns, count, child)
        if not len(new):
            return None
        self.kinds.append(kind[new])
        return self._seeds(_Items(pair, node, there, code), new, len(pair_set))

    def _live(self, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        """Entries (pair, trie node, control, code) that are not dead, once each."""
        live = columns[3].nonzero()[0]
        columns = tuple(column[live] for column in columns)
        if self.walk.machine.deterministic or not len(live):
            return columns
        pair, node, _control, code = columns
        _, first = np.unique(np.stack([pair, node, code]), axis=1, return_index=True)
        return tuple(column[first] for column in columns)

    def _code(self, node: np.ndarray, control: np.ndarray) -> np.ndarray:
        """What becomes of pending items after a return: 0 dead, a control that reads on, S + a class of controls that
        return again, 2 S the end of the text."""
        walk, s = self.walk, self.walk.machine.num_controls
        at = control * walk.width + walk.kind_of[node]
        begin = walk.moves.begin[at]
        size = walk.moves.size[at]
        returns = (walk.moves.next[begin] == RETURN) & (size == 1)
        code = np.where(returns, s + walk.stack_class[control], np.where(size > 0, control, 0))
        end = (node == walk.trie.end).nonzero()[0]
        kind = walk.machine.end[control[end]]
        code[end] = np.select([kind == END_HERE, kind == END_RETURN], [2 * s, s + walk.stack_class[control[end]]], 0)
        return code

    def _number(self, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(node of every set, index of an example of every new one)."""
        distinct, example, which = np.unique(total, return_index=True, return_inverse=True)
        ids, new = np.empty(len(distinct), np.int64), []
        for j, h in enumerate(distinct.tolist()):
            known = self._memo.get(h)
            if known is None:
                known = self._memo[h] = self.num_nodes
                self.num_nodes += 1
                new.append(int(example[j]))
            ids[j] = known
        if self.num_nodes > self.walk.limits.max_states:
            raise LimitError("max_states", self.walk.limits.max_states, _DOING)
        return ids[which], np.array(new, np.int64)

    def _add_segments(self, columns: list[tuple[np.ndarray, np.ndarray]], count: np.ndarray, child: np.ndarray) -> None:
        begin = np.cumsum(count) - count
        segment = np.stack([np.append(child[b : b + n], 0)[c] for (c, _), b, n in zip(columns, begin.tolist(), count.tolist())])
        self._segments.append(segment)
        self._num_segments += len(segment)

    def _seeds(self, entries: _Items, new: np.ndarray, num_pairs: int) -> _Items:
        """Items of the new nodes that read on; those that return again are pending at once.

        Args:
          entries: (pair, trie node, control, code).
          new: int64[n], the pairs that became nodes.
        """
        walk, s = self.walk, self.walk.machine.num_controls
        base = walk.num_owners
        walk.num_owners += len(new)
        self.owners.append(np.arange(base, walk.num_owners))
        owner = np.full(num_pairs, -1)
        owner[new] = self.owners[-1]
        mine = entries.at((owner[entries.owner] >= 0).nonzero()[0])
        owner, code = owner[mine.owner], mine.begun
        accept = np.zeros(len(new), bool)
        accept[owner[code == 2 * s] - base] = True
        self.accept.append(accept)
        items = _Items(owner, mine.node, mine.control, np.zeros(len(owner), np.int64))
        again = ((code >= s) & (code < 2 * s)).nonzero()[0]
        if len(again):
            walk.pending.append(items.at(again)._replace(control=code[again] - s))
        return items.at((code < s).nonzero()[0])

    def _symbol_classes(self, controls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Symbols through which all of some controls return alike: (class of each symbol, one symbol of each class); the
        last class is that of symbols through which none returns."""
        frame = np.unique(controls)
        key = frame.tobytes()
        found = self._columns.get(key)
        if found is None:
            column = (mixed(frame)[:, None] * self.walk.ret[frame].astype(np.uint64)).sum(0, dtype=np.uint64)
            _, example, which = np.unique(column, return_index=True, return_inverse=True)
            some = self.walk.ret[frame][:, example].any(0)
            number = np.where(some, np.cumsum(some) - 1, int(some.sum()))
            found = self._columns[key] = (number[which], example[some])
        return found


def _alike(rows: np.ndarray) -> np.ndarray:
    """The first row equal to each row, int64; the first row is all 0."""
    seen: dict[bytes, int] = {}
    out = np.zeros(len(rows), np.int64)
    some = np.flatnonzero(rows.any(1))
    out[some] = [seen.setdefault(row.tobytes(), i) for i, row in zip(some.tolist(), rows[some])]
    return out


def mixed(values: np.ndarray) -> np.ndarray:
    """Random-looking uint64 of integers (the finaliser of SplitMix64), so that sets are told apart by their sums."""
    x = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
