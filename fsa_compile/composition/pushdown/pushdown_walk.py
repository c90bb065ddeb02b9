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
from their second letter on, are walked once. Where levels are long, all items that the same owners share become one such run.
Machines are deterministic, so the parts of an owner are disjoint and the hashes of token sets add up.

Controls that differ from another one at few bytes are not walked (`derived_controls`), and parts of machines that many machines
share are walked once (`summaries`).

Frames with a set of keys do not count; there, the number of a guard (`guard_arrays`) stands for the register:
what the token asked of the set so far, and did to it. In runs the set was empty at first, so nothing is asked of it.
"""

from __future__ import annotations

import functools

import numpy as np

from fsa_compile.arrays.integers import distinct, exampled, in_order, numbered, occupied, order_of
from fsa_compile.arrays.ranges import indices, ranges, segment_sizes, segment_starts, spread
from fsa_compile.artifact.guards import Guards
from fsa_compile.automata.pushdown import END_HERE, RETURN, ByteMachine
from fsa_compile.composition.pushdown import items as walk_items
from fsa_compile.composition.pushdown.arcs import StackArcs
from fsa_compile.composition.pushdown.class_entries import Entries
from fsa_compile.composition.pushdown.counter_classes import Classes, Registers, TokenCounts
from fsa_compile.composition.pushdown.default_transitions import NONE_DERIVED, derived_controls, derived_pending
from fsa_compile.composition.pushdown.items import NO_ITEMS, Items, Moves, alike, joined, joined_records, trie_with, zeros
from fsa_compile.composition.pushdown.length_summaries import measure_of, measured
from fsa_compile.composition.pushdown.links import Links, Returns, called_alike
from fsa_compile.composition.pushdown.return_nodes import InnerNodes
from fsa_compile.composition.pushdown.shifted_leaves import shift_of
from fsa_compile.composition.pushdown.summaries import LeafProcedure, Summary, UsedSummaries, leaf_procedures_of
from fsa_compile.composition.regular.trie_walk import with_aliases
from fsa_compile.composition.tokens.class_walk import Entered, TokenSet
from fsa_compile.composition.tokens.pruned import CutTrie, Nodes, cut_trie
from fsa_compile.composition.tokens.token_sets import parts_of
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "walking the vocabulary"
_MANY, _SEVERAL = 50_000, 5_000
"""Levels with fewer items are not checked against the limits, or not searched for what owners share."""
_NODES, _MOST_DISTINCT = 32, 0.75
"""One trie node in this many is sampled; items are not shared where at least this share of the sample is distinct."""
_SHARED = 200_000
"""Tokens that must be read several times from one control for it to be worth that owners share a run."""
_PAIR_BYTES = 96
"""Working memory of one (owner, trie node, control) while it is expanded, and what is kept of it."""


def walk_machine(machine: ByteMachine, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline) -> StackArcs:
    """Every token of every node, and the inner nodes.

    Raises:
      ConstraintError: a special token is also text or an end-of-text id; one token can pop any number of cells.
      LimitError: too many nodes, out of time or memory.
    """
    walk_items.check_specials(machine, tables)
    registers = Registers(machine)
    most = np.zeros(len(registers.low), np.int64)
    while True:
        walk = Walk(machine, tables, registers, most, limits, deadline)
        arcs = walk.run()
        if (walk.most <= arcs.classes.most).all():
            return arcs
        most = walk.most  # an inner node counts further than any control: its registers need more classes


def summarize(machine: ByteMachine, size: int, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline) -> Summary:
    """Walks the machine of a leaf, whose first controls belong to it; raises what `walk_machine` does."""
    measure, none = measure_of(machine, size), np.zeros(0, np.int64)
    walked = machine if measure is None else measure.machine
    registers = Registers(walked)
    walk = Walk(walked, tables, registers, registers.low * 0, limits, deadline, whole=False)
    if measure is None:
        shift = shift_of(machine, size, tables)
        if shift is None:
            return walk.leaf(size)
        walk.shares, walk.skipped = False, shift.control
        found = walk.leaf(size)
        return Summary(shift.parts(found.parts, found.links), (none,) * 4, shift.leaving(found.leaving), size, 0)
    walk.shares = False
    found = walk.leaf(size)
    leaving = Items(*found.leaving)
    added = measure.added(leaving.owner, leaving.control, walk.trie.depth(leaving.node) - 1, leaving.begun)
    leaving = leaving._replace(begun=added).at(measure.fits(added))
    return Summary(measured(found.parts, found.links, measure, tables), (none,) * 4, tuple(leaving), size, 0)


class Walk:
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
        self.subtrees = tables.subtrees
        self.moves = Moves(machine)
        self.most_added = 1 + int(machine.entry_add.max(initial=0))
        self.registers = registers
        self.low, self.high = (bound[registers.of_control] for bound in (registers.low, registers.high))
        self.width = machine.action.shape[1]
        self.kind = np.append(machine.byte_class, 0).astype(np.int64)  # the last one answers symbol -1
        self.whole = Nodes(self.trie.first, self.trie.children, self.trie.token, self.trie.symbol)
        self.nodes = self.whole
        self.stack_class = alike(machine)
        self.returns = Returns(machine, self.stack_class)
        self.records: list[tuple[np.ndarray, ...]] = []
        self.links = Links(machine.pushes)
        self.pending: list[Items] = []
        self.guards = Guards(() if machine.sets is None else machine.sets.guards[1:])
        self.first_cut, self.after_cut = 0, 0
        self.num_owners = machine.num_controls
        self.first_run = self.num_owners
        self.by_token, self.derived, leaves = TokenCounts(machine), NONE_DERIVED, list[LeafProcedure]()
        if whole:  # not a leaf itself
            self.derived = derived_controls(machine, tables, deadline)
            if machine.sets is None:
                walk = functools.partial(summarize, tables=tables, limits=limits, deadline=deadline)
                apart = np.append(self.derived.node, self.by_token.counted.nonzero()[0])
                leaves = leaf_procedures_of(machine, apart, distinct(self.derived.base), tables, walk, self.derived.wide)
        self.leaves, self.shares = UsedSummaries(machine, leaves), True
        self.skipped = self.derived.node
        self.apart = machine.deterministic and machine.sets is None and not registers.counts
        self.uncounted = self.apart and self.moves.simple and not self.by_token.counted.any()
        self.entries = Entries(machine, tables) if machine.deterministic else None
        self.cut: CutTrie | None = None
        self.found: Entered | None = None

    def run(self) -> StackArcs:
        leaving = self._take_leaves()
        self.begin_wave()
        self._wave(joined([self._root_items(), leaving]))
        if len(self.derived.node) and self.pending:
            self.pending.append(derived_pending(self.derived, joined(self.pending), self.subtrees))
        most = self._most_counted(self.registers.of_control)
        inner = InnerNodes(self, Classes(self.registers, np.maximum(most, self.most), self._most_of_controls()))
        while (seeds := inner.wave()) is not None:
            self._wave(seeds)
        self.records.append((*self.derived.record, np.zeros(len(self.derived.record[0]), np.int64)))
        (owner, token, target, count), rows, sets = self._tokens()
        links = self.links.joined(np.int32)
        kind = np.concatenate(inner.kinds)
        self.most = np.maximum(self.most, self._most_counted(kind, np.concatenate(inner.owners)))
        return StackArcs(
            node_owner=np.concatenate(inner.owners),
            registers=self.registers,
            kind=kind,
            shape=np.concatenate(inner.shapes),
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
            leaves=[*self.leaves.parts, *inner.parts],
            temperature=np.concatenate(inner.temperature) if inner.temperature else None,
        )

    def _tokens(
        self,
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, np.ndarray, np.ndarray], list[TokenSet]]:
        """(owner, token, target, count) of single tokens, (owner, target, set) of large sets, and the sets, as in `StackArcs`."""
        records = joined_records(self.records)
        if not self.registers.counts:
            self.records = []  # a leaf of 5 million tokens has room for these or for what is made of them
        single = with_aliases(self.tables, *records)
        none = np.zeros(0, np.int64)
        if self.found is None:
            return single, (none, none, none), []
        more = (*self.found.single, np.zeros(len(self.found.single[0]), np.int64))
        both = (np.concatenate(c, dtype=c[0].dtype, casting="same_kind") for c in zip(single, more))
        return tuple(both), self.found.by_row, self.found.sets

    def leaf(self, size: int) -> Summary:
        """Walks the machine of a leaf, whose first controls belong to it."""
        self.begin_wave()
        self._wave(self._root_items())
        parts = parts_of(self.tables, *self._tokens())
        pending = joined(self.pending) if self.pending else NO_ITEMS
        pending = pending.at(pending.owner <= size)
        return Summary(parts, self.links.joined(), tuple(pending), size, self.num_owners - self.machine.num_controls)

    def _take_leaves(self) -> Items:
        """Adds what was found of the leaves; what is to be read where tokens leave them."""
        items = self.leaves.taken(self.num_owners)
        self.num_owners += self.leaves.runs
        action = self.moves.action(items.control * self.width + self.kind[self.trie.symbol[items.node]])
        returns, live = self.moves.next[self.moves.begin(action)] == RETURN, self.moves.live(action)
        pending = items.at(returns & live)
        self.pending.append(pending)
        inside = pending.at(self.trie.depth(pending.node) > 1)  # at least one byte is read by the entry of a leaf
        called = self.leaves.called(inside.at(inside.begun >= self.low[inside.control]), self.returns)
        self.links.parts += self.leaves.links
        return joined([items.at(~returns & live), *called])

    def _most_counted(self, kind: np.ndarray, owners: np.ndarray | None = None) -> np.ndarray:
        """int64[F], most iterations begun by one token in nodes of each kind, so far."""
        most = np.zeros(len(self.registers.low), np.int64)
        if not self.registers.counts:
            return most
        of_owner = np.zeros(self.num_owners, np.int64)
        of_owner[owners if owners is not None else np.arange(len(kind))] = kind
        for owner, count in self._begun():
            np.maximum.at(most, of_owner[owner], count)
        most[~self.registers.counted] = 0
        return most

    def _most_of_controls(self) -> np.ndarray:
        """int64[S], most iterations begun by one token of each control."""
        most = np.zeros(self.num_owners, np.int64)
        if self.registers.counts:
            for owner, count in self._begun():
                np.maximum.at(most, owner, count)
        return most[: self.machine.num_controls]

    def _begun(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(owner, iterations begun) of everything found so far that begins some, which is little of it."""
        counts = [(owner, begun) for owner, *_, begun in self.records]
        counts += [(caller, begun) for _, caller, _, begun in self.links.parts]
        counts += [(items.owner, items.begun) for items in self.pending]
        counts += [(parts.owner, parts.count) for parts in self.leaves.parts]
        return [(owner[some], begun[some]) for owner, begun in counts if len(some := begun.nonzero()[0])]

    def _root_items(self) -> Items:
        """(control, trie node, control) of every first byte and special token that a control reads; those of derived controls
        begin where they leave their frame."""
        trie, machine = self.trie, self.machine
        root = np.arange(trie.first[0], trie.first[0] + trie.children[0])
        first = np.concatenate([root, np.arange(trie.end + 1, len(trie.first))])
        live = (machine.action > 0).take(machine.byte_class[trie.symbol[first]], axis=1)
        live[self.skipped] = False
        self.leaves.known(live[:, : len(root)], trie.symbol[root])
        control, at = occupied(live)
        owner, node, inside = self.derived.seed
        nodes, controls = np.concatenate((first[at], node)), np.concatenate((control, inside))
        begun = (self.by_token.counted[controls] & (nodes < trie.end)).astype(np.int64)
        return Items(np.concatenate((control, owner)), nodes, controls, begun)

    def begin_wave(self) -> None:
        """From now on, new owners are runs of the next wave."""
        self.first_run = self.num_owners
        self.links.begin_wave()

    def _wave(self, seeds: Items) -> None:
        """Walks items, by depth in the trie."""
        if self.uncounted:
            seeds = seeds._replace(begun=zeros(len(seeds.owner)))
        depth = self.trie.depth(seeds.node)
        order = order_of(depth)
        seeds, depth = seeds.at(order), depth[order]
        last = int(depth[-1]) if len(depth) else 0
        begin = depth.searchsorted(np.arange(1, last + 2))
        items, d = NO_ITEMS, 1
        while d <= last or len(items.owner):
            if not len(items.owner):
                d = int(depth[depth.searchsorted(d)])
            if d <= last and begin[d] > begin[d - 1]:
                items = joined([items, Items(*(column[begin[d - 1] : begin[d]] for column in seeds))])
            if d > 1 and len(items.owner) > _SEVERAL and self._repeated(items):
                items = self._shared(items)
            items = self._read(items)
            if d == 1:
                items = self._shared(items if self.entries is None else self._entered(items))
            items = self._children(items, d)
            d += 1
        self.entries = self.cut = None
        self.nodes = self.whole

    def _read(self, items: Items) -> Items:
        """Items after reading one symbol, runs begun by it included."""
        moved, called, action = [], [], self._action(items)
        if self.moves.simple:
            following = self.moves.plain(action)
            on = (following > 0).nonzero()[0]
            if len(on) == len(following):
                return items._replace(control=following)
            moved.append(Items(items.owner[on], items.node[on], following[on], items.begun_at(on)))
            more = (following < 0).nonzero()[0]
            if not len(more):
                return moved[0]
            items, action = items.at(more), action.take(more)
        while len(items.owner):
            items, entry = self._entries(items, action)
            if self.machine.sets is not None:
                items, entry = self._guarded(items, entry)
            following, push = self.moves.next.take(entry), self.moves.push.take(entry)
            back, ahead = (following == RETURN).nonzero()[0], following > 0
            stays = (ahead & (push == 0)).nonzero()[0]
            calls = (ahead & (push > 0)).nonzero()[0]
            if len(stays):
                moved.append(self._counted(items.at(stays), following[stays], entry[stays]))
            if len(calls):
                some = len(calls) < len(entry)
                called.append((self._uncut(items.at(calls) if some else items), entry[calls] if some else entry))
            if not len(back):
                break
            items = self._returned(self._uncut(items.at(back)))
            items = items if self.machine.deterministic else items.once()
            action = self._action(items)
        if called:
            moved.append(self._calls(joined([c for c, _ in called]), np.concatenate([e for _, e in called])))
        items = joined(moved) if moved else NO_ITEMS
        return items if self.machine.deterministic else items.once()

    def _action(self, items: Items) -> np.ndarray:
        """The actions of items at their symbols."""
        return self.moves.action(items.control * self.width + self.kind.take(self.nodes.symbol.take(items.node)))

    def _entries(self, items: Items, action: np.ndarray) -> tuple[Items, np.ndarray]:
        """(item, entry) of everything that the items may do by their actions, bounds aside."""
        if not self.moves.forks:
            return items, self.moves.begin(action)
        which, entry = spread(self.moves.begin(action), self.moves.size(action))
        return items.at(which), entry

    def _guarded(self, items: Items, entry: np.ndarray) -> tuple[Items, np.ndarray]:
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

    def _counted(self, items: Items, control: np.ndarray, entry: np.ndarray) -> Items:
        """Items in their next control; those whose loop is full are dropped."""
        if not self.registers.counts:
            return items._replace(control=control)
        count = items.begun + self.moves.add[entry]
        out = items._replace(control=control, begun=count)
        return out.at((count <= self.high[control]).nonzero()[0])

    def _children(self, items: Items, depth: int) -> Items:
        """Records the tokens that end at the items' nodes, of the given depth; the items of their children."""
        nodes, numbers = self.nodes, self.tables.numbers
        token = nodes.token.take(items.node)
        if len(ends := (token >= 0).nonzero()[0]):
            found = items.owner[ends], token[ends], items.control[ends], items.begun_at(ends)
            self.records.append(self.by_token.fitting(found))
        size = self._unread(items, depth)
        upto = size.cumsum()
        total = int(upto[-1]) if len(upto) else 0
        if total > _MANY:
            self.deadline.check(_DOING)
            self.deadline.check_bytes(total * _PAIR_BYTES, _DOING)
        if (most := max(total, len(size))) > len(numbers):
            numbers = np.arange(most)
        parent = numbers[: len(size)].repeat(size)
        child = (nodes.first.take(items.node) + size - upto).take(parent) + numbers[:total]
        return Items(items.owner.take(parent), child, items.control.take(parent), items.begun_at(parent))

    def _unread(self, items: Items, depth: int) -> np.ndarray:
        """Number of children that are still to be read, of each item: none where the control stays as it is on all bytes below,
        or counts all of them; these tokens are recorded."""
        size, below = self.nodes.children.take(items.node), self.subtrees
        inside = (size > 0).nonzero()[0]
        if self.cut is not None:
            inside = inside[items.node[inside] < len(self.trie.first)]
        kinds, control = below.kinds[items.node[inside]], items.control[inside]
        for add, read in enumerate((self.moves.kept, self.moves.counted)[: 1 + self.registers.counts]):
            stays = inside[kinds & ~read[control] == 0]
            if not len(stays):
                continue
            node = items.node[stays]
            begin, count = below.begin[node], below.end[node] - below.begin[node]
            which = stays.repeat(count)
            token = below.token[np.arange(len(which)) + (begin + count - count.cumsum()).repeat(count)]
            begun = items.begun[which] + (self.tables.length[token] - depth) if add else items.begun_at(which)
            found = items.owner[which], token, items.control[which], begun
            if add:
                fits = (begun <= self.high[found[2]]).nonzero()[0]
                found = tuple(column[fits] for column in found)
            self.records.append(self.by_token.fitting(found))
            size[stays] = 0
        return size

    def _of_cut(self, owner: np.ndarray) -> np.ndarray:
        return (owner >= self.first_cut) & (owner < self.after_cut)

    def _uncut(self, items: Items) -> Items:
        """Items that leave the frame of a run of the cut, at the nodes of the whole trie."""
        if self.cut is None:
            return items
        size, node = len(self.trie.first), items.node.copy()
        inside = (node >= size).nonzero()[0]
        node[inside] = self.cut.node[node[inside] - size]
        return items._replace(node=node)

    def _entered(self, items: Items) -> Items:
        """Walks what leads into controls that read whole classes by symbol strings; the rest of the items, and runs of the
        tokens of those controls that push or pop, shared by all owners that read the same byte into them."""
        assert self.entries is not None
        text = items.node < self.trie.end
        by_string = np.zeros(len(text), bool)
        byte = self.trie.symbol[items.node]
        by_string[text] = self.entries.chosen(items.owner[text], byte[text], items.control[text])
        if self.machine.sets is not None or self.registers.counts:
            by_string &= items.begun == 0
        chosen = by_string.nonzero()[0]
        if not len(chosen):
            return items
        owner, byte, control = items.owner[chosen], byte[chosen], items.control[chosen]
        self.found, (of_entry, token) = self.entries.walked(owner, byte, control, self.deadline)
        self.cut = cut_trie(self.tables, of_entry, token, self.subtrees.depth)
        self.nodes = self.cut.behind(self.whole)
        keys, which = numbered(control * len(self.tables.trie_first) + items.node[chosen])
        root = self.cut.root(keys)
        some = (root >= 0).nonzero()[0]
        self.first_cut, self.after_cut = self.num_owners, self.num_owners + len(some)
        self.num_owners = self.after_cut
        run = np.full(len(keys), -1)
        run[some] = np.arange(self.first_cut, self.after_cut)
        linked = (run[which] >= 0).nonzero()[0]
        nothing = np.zeros(len(linked), np.int64)
        self.links.add(self.first_cut, self.num_owners, run[which[linked]], owner[linked], nothing - 1, nothing)
        into = keys[some] // len(self.tables.trie_first)
        runs = Items(run[some], root[some] + len(self.trie.first), into, zeros(len(some)))
        return joined([items.at((~by_string).nonzero()[0]), runs])

    def _repeated(self, items: Items) -> bool:
        """Whether many items are those of other owners as well, judging by some of the trie nodes."""
        some = (items.node % _NODES == 0).nonzero()[0]
        keys = items.node[some] * self.machine.num_controls + items.control[some]
        return len(distinct(keys)) < _MOST_DISTINCT * len(some)

    def _shared(self, items: Items) -> Items:
        """Items, all before their symbol or all after it, of which many owners have the same: what the same owners share becomes
        one run."""
        if not self.shares or not self.machine.deterministic or self.machine.sets is not None:
            return items
        below = self.subtrees
        able = (items.node < len(below.begin)) & (items.begun == 0) & (self.registers.of_control[items.control] == 0)
        at = able.nonzero()[0]
        node = items.node[at]
        weight = below.end[node] - below.begin[node]
        if weight.sum() < _SHARED:
            return items
        order, key = in_order(node * self.machine.num_controls + items.control[at])
        at, begin = at[order], segment_starts(key)
        size = segment_sizes(begin, len(at))
        if (weight[order[begin]] * (size - 1)).sum() < _SHARED:
            return items
        several, run, self.num_owners = self.links.as_runs(self.num_owners, items.owner[at], begin, size)
        rest = np.ones(len(items.owner), bool)
        rest[at[indices(begin[several], begin[several] + size[several])]] = False
        shared = items.at(at[begin[several]])._replace(owner=run)
        return joined([items.at(rest.nonzero()[0]), shared])

    def _returned(self, items: Items) -> Items:
        """Items whose frame ends: in nodes they are pending, in runs they go on in every caller."""
        known = items.owner < self.first_run
        own = known.nonzero()[0]
        if len(own):
            self.pending.append(items.at(own))
        enough = ~known
        if self.registers.counts:
            enough &= items.begun >= self.low[items.control]
        inside = enough.nonzero()[0]
        if not len(inside):
            return NO_ITEMS
        begin, end = (column[items.owner[inside] - self.first_run] for column in self.links.of_run.columns)
        if self.apart and (end - begin).sum() > _SEVERAL:
            items = items.at(inside)
            _, example, like = exampled(items.owner * self.machine.num_controls + items.control)
            of = begin[example], end[example], items.control[example]
            reader, control, goes_on, self.num_owners = self.links.together(self.num_owners, *of, self.returns)
            which, at = ranges(goes_on[like], goes_on[like + 1])
            return Items(reader.take(at), items.node.take(which), control.take(at), zeros(len(at)))
        which, at = ranges(begin, end)
        which = inside[which]
        caller, symbols, begun = self.links.callers.columns
        symbol = symbols[at]
        control = np.where(symbol >= 0, self.returns.at(items.control[which], symbol), items.control[which])
        live = control.nonzero()[0]
        at, which = at[live], which[live]
        # A part of the caller's frame has the caller's set.
        count = zeros(len(at)) if self.uncounted else np.where(symbol[live] >= 0, begun[at], items.begun[which])
        return Items(caller[at], items.node[which], control[live], count)

    def _calls(self, items: Items, entry: np.ndarray) -> Items:
        """Links calls to runs, all of them new at this depth; what the runs have read."""
        push = self.moves.push.take(entry)
        count = items.begun if self.uncounted else items.begun + self.links.push_add[:, 0].take(push)
        if self.registers.counts:
            fits = (count <= self.high[items.control]).nonzero()[0]
            items, entry, push, count = items.at(fits), entry[fits], push[fits], count[fits]
        s = self.machine.num_controls
        most = self.most_added
        key = items.node * s
        key += self.moves.next.take(entry)
        key = key * most + self.moves.add.take(entry) if most > 1 else key
        order, key = in_order(key)
        begin = segment_starts(key)
        starts, size, which = key[begin], segment_sizes(begin, len(key)), np.arange(len(begin))
        caller, push, count = items.owner.take(order), push.take(order), count if self.uncounted else count.take(order)
        if len(key) > _SEVERAL and self.machine.deterministic and self.machine.sets is None:
            begin, size, which, at = called_alike(begin, size, caller, push, count)
            caller, push, count = caller.take(at), push.take(at), count.take(at)
        first = self.num_owners
        self.num_owners += len(size)
        run = np.arange(first, self.num_owners).repeat(size)
        if self.links.longest_push == 1:
            self.links.take(run, begin, caller, self.links.push_symbol[push, 0], count)
        else:
            self.num_owners = self.links.chain(first, self.num_owners, run, caller, push, count)
        if most == 1:
            return Items(first + which, starts // s, starts % s, zeros(len(starts)))
        return Items(first + which, starts // (most * s), starts // most % s, starts % most)
