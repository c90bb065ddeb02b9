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
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fsa_compile.byte_machine import END_HERE, END_RETURN, RETURN, ByteMachine
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.quotient import remember
from fsa_compile.token_walk import with_aliases
from fsa_compile.vocabulary_tables import VocabularyTables, segment_starts

_DOING = "walking the vocabulary"
_PAIR_BYTES = 96
"""Working memory of one (owner, trie node, control) while it is expanded, and what is kept of it."""


class Trie(NamedTuple):
    """The vocabulary's trie with nodes for the end of the text and for special tokens, which have no byte.

    Attributes:
      first, count: int64[T'], children.
      symbol: int64[T'], byte, or 256 + i for special token i; -1 for the end of the text and the root.
      token: int64[T'], token that ends here, or -1.
      level: int64[L + 1], first node of every depth, from depth 1.
      end: node of the end of the text.
    """

    first: np.ndarray
    count: np.ndarray
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
        count=np.concatenate([tables.trie_count, none]),
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
      accept: bool[N], whether the text may end here.
      owner, token, target: int64[A] each, single tokens.
      link_run, link_caller, link_symbol: int64[K] each; symbol + 1, 0 for a part of the caller's own frame.
      delta_row: int64[N], row of `delta` of each node.
      delta: int64[*, P], node after popping a symbol, 0 for none.
      num_owners: nodes and runs.
    """

    node_owner: np.ndarray
    accept: np.ndarray
    owner: np.ndarray
    token: np.ndarray
    target: np.ndarray
    link_run: np.ndarray
    link_caller: np.ndarray
    link_symbol: np.ndarray
    delta_row: np.ndarray
    delta: np.ndarray
    num_owners: int


def walk_machine(machine: ByteMachine, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline) -> StackArcs:
    """Every token of every node, and the inner nodes.

    Raises:
      ConstraintError: a special token is also text or an end-of-text id; one token can pop any number of cells.
      LimitError: too many nodes, out of time or memory.
    """
    _check_specials(machine, tables)
    return _Walk(machine, tables, limits, deadline).run()


def _check_specials(machine: ByteMachine, tables: VocabularyTables) -> None:
    for token in machine.specials:
        if not 0 <= token < tables.vocab_size or tables.length[token] > 0 or token in tables.stop_ids:
            raise ConstraintError(
                f"token {token} cannot stand in a grammar as a special token: it is text, ends the text, or does not exist",
                fix="Write text as a string, and leave the end of the text to the constraint.",
            )


class _Moves(NamedTuple):
    """The machine by control and symbol class, flat: index control * C + class.

    Attributes:
      next: int64[S * C], control, 0, or RETURN.
      push: int64[S * C], push string.
    """

    next: np.ndarray
    push: np.ndarray


def _moves(machine: ByteMachine) -> _Moves:
    begin = machine.entry_offset.astype(np.int64)
    single = np.diff(begin) > 0
    at = np.where(single, begin[:-1], 0)
    following, push = machine.entry_next.astype(np.int64), machine.entry_push.astype(np.int64)
    if not len(following):
        following = push = np.zeros(1, np.int64)
    action = machine.action.ravel()
    return _Moves(np.where(single, following[at], 0)[action], np.where(single, push[at], 0)[action])


class _Walk:
    """One walk; owners of the current wave below `first_run` are nodes, from there on runs."""

    def __init__(self, machine: ByteMachine, tables: VocabularyTables, limits: CompileLimits, deadline: Deadline) -> None:
        self.machine, self.tables, self.limits, self.deadline = machine, tables, limits, deadline
        self.trie = trie_with(tables, machine.specials)
        self.moves = _moves(machine)
        self.width = machine.action.shape[1]
        self.kind = np.append(machine.byte_class, 0).astype(np.int64)  # the last one answers symbol -1
        self.ret = machine.ret.astype(np.int64)
        self.stack_class = _alike(self.ret)
        self.records: list[tuple[np.ndarray, ...]] = []
        self.links: list[tuple[np.ndarray, ...]] = []
        self.pending: list[tuple[np.ndarray, ...]] = []
        self.num_owners = machine.num_controls
        self.first_run = self.num_owners
        self._forget_links()
        self.push_length = np.array([len(p) for p in machine.pushes])
        self.push_symbol = np.zeros((len(machine.pushes), max(1, int(self.push_length.max()))), np.int64)
        for i, string in enumerate(machine.pushes):
            self.push_symbol[i, : len(string)] = [symbol for symbol, _ in string]

    def _forget_links(self) -> None:
        self.link_begin = self.link_end = self.link_caller = self.link_symbol = np.zeros(0, np.int64)

    def run(self) -> StackArcs:
        self._wave(*self._root_items())
        control = (self.machine.end == END_RETURN).nonzero()[0]
        self.pending.append((control, np.full(len(control), self.trie.end), control))
        inner = _InnerNodes(self)
        while (seeds := inner.wave()) is not None:
            self._wave(*seeds)
        accept = np.concatenate([self.machine.end == END_HERE, *inner.accept])
        owner, token, target = with_aliases(self.tables, *(np.concatenate(c) for c in zip(*self.records)))
        run, caller, symbol = (np.concatenate(c) for c in zip(*self.links)) if self.links else (np.zeros(0, np.int64),) * 3
        return StackArcs(
            node_owner=np.concatenate(inner.owners),
            accept=accept,
            owner=owner,
            token=token,
            target=target,
            link_run=run,
            link_caller=caller,
            link_symbol=symbol,
            delta_row=np.concatenate(inner.rows),
            delta=inner.delta(),
            num_owners=self.num_owners,
        )

    def _root_items(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(control, trie node, control) of every first byte and special token that a control reads."""
        trie, machine = self.trie, self.machine
        root = np.arange(trie.first[0], trie.first[0] + trie.count[0])
        first = np.concatenate([root, np.arange(trie.end + 1, len(trie.first))])
        live = machine.action[:, machine.byte_class[trie.symbol[first]]] > 0
        control, at = live.nonzero()
        return control, first[at], control

    def _depth(self, node: np.ndarray) -> np.ndarray:
        depth = np.searchsorted(self.trie.level, node, side="right")
        depth[node >= self.trie.end] = 1
        return depth

    def _wave(self, owner: np.ndarray, node: np.ndarray, control: np.ndarray) -> None:
        """Walks items (owner, trie node that is read next, control), by depth in the trie."""
        self.first_run = self.num_owners
        self._forget_links()
        depth = self._depth(node)
        order = np.argsort(depth, kind="stable")
        owner, node, control, depth = owner[order], node[order], control[order], depth[order]
        last = int(depth[-1]) if len(depth) else 0
        begin = np.searchsorted(depth, np.arange(1, last + 2))
        none = np.zeros(0, np.int64)
        items, d = (none, none, none), 1
        while d <= last or len(items[0]):
            if d <= last and begin[d] > begin[d - 1]:
                more = slice(begin[d - 1], begin[d])
                items = tuple(np.concatenate(pair) for pair in zip(items, (owner[more], node[more], control[more])))
            items = self._level(*items)
            d += 1

    def _level(self, owner: np.ndarray, node: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, ...]:
        """Reads one symbol of every item; the items of the next depth."""
        read = []
        while len(owner):
            at = control * self.width + self.kind[self.trie.symbol[node]]
            following = self.moves.next[at]
            returns = (following == RETURN).nonzero()[0]
            goes = (following > 0).nonzero()[0]
            read.append((owner[goes], node[goes], following[goes], self.moves.push[at[goes]]))
            owner, node, control = self._returned(owner[returns], node[returns], control[returns])
        if not read:
            none = np.zeros(0, np.int64)
            return none, none, none
        owner, node, control, push = (np.concatenate(c) for c in zip(*read)) if len(read) > 1 else read[0]
        calls = push.nonzero()[0]
        if len(calls):
            runs = self._calls(owner[calls], node[calls], control[calls], push[calls])
            stays = (push == 0).nonzero()[0]
            owner, node, control = (np.concatenate(p) for p in zip((owner[stays], node[stays], control[stays]), runs))
        return self._children(owner, node, control)

    def _children(self, owner: np.ndarray, node: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, ...]:
        """Records the tokens that end at the items' nodes; the items of their children."""
        token = self.trie.token[node]
        ends = (token >= 0).nonzero()[0]
        if len(ends):
            self.records.append((owner[ends], token[ends], control[ends]))
        count = self.trie.count[node]
        upto = count.cumsum()
        total = int(upto[-1]) if len(upto) else 0
        if total > 50_000:
            self.deadline.check(_DOING)
            self.deadline.check_bytes(total * _PAIR_BYTES, _DOING)
        parent = np.repeat(np.arange(len(node)), count)
        child = (self.trie.first[node] + count - upto)[parent] + np.arange(total)
        return owner[parent], child, control[parent]

    def _returned(self, owner: np.ndarray, node: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, ...]:
        """Items whose frame ends: in nodes they are pending, in runs they go on in every caller."""
        own = (owner < self.first_run).nonzero()[0]
        if len(own):
            self.pending.append((owner[own], node[own], control[own]))
        inside = (owner >= self.first_run).nonzero()[0]
        if not len(inside):
            return owner[:0], node[:0], control[:0]
        run = owner[inside] - self.first_run
        begin, size = self.link_begin[run], self.link_end[run] - self.link_begin[run]
        which = np.repeat(inside, size)
        at = np.arange(len(which)) + np.repeat(begin - (np.cumsum(size) - size), size)
        caller, symbol = self.link_caller[at], self.link_symbol[at]
        control = np.where(symbol > 0, self.ret[control[which], symbol - 1], control[which])
        live = control.nonzero()[0]
        return caller[live], node[which[live]], control[live]

    def _calls(
        self, owner: np.ndarray, node: np.ndarray, control: np.ndarray, push: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Links calls to runs, all of them new at this depth; items (run, trie node just read, callee control)."""
        s = self.machine.num_controls
        starts, run = np.unique(node * s + control, return_inverse=True)
        first = self.num_owners
        self.num_owners += len(starts)
        self._add_links(first, *self._chained(first + run, owner, push))
        return np.arange(first, first + len(starts)), starts // s, starts % s

    def _chained(self, run: np.ndarray, caller: np.ndarray, push: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(run, caller, symbol + 1) of calls; the frames between a run and its caller become runs of their own."""
        length = self.push_length[push]
        if length.max() == 1:
            return run, caller, self.push_symbol[push, 0] + 1
        one = length == 1
        links = [(run[one], caller[one], self.push_symbol[push[one], 0] + 1)]
        run, caller, push, length = run[~one], caller[~one], push[~one], length[~one]
        distinct, which = np.unique(run * len(self.push_length) + push, return_inverse=True)
        size = self.push_length[distinct % len(self.push_length)] - 1
        begin = self.num_owners + np.cumsum(size) - size
        self.num_owners += int(size.sum())
        links.append((begin[which], caller, self.push_symbol[push, 0] + 1))
        below, place = np.repeat(begin, size), np.repeat(np.cumsum(size) - size, size)
        place = np.arange(len(place)) - place
        top = place + 1 == np.repeat(size, size)
        above = np.where(top, np.repeat(distinct // len(self.push_length), size), below + place + 1)
        links.append((above, below + place, self.push_symbol[np.repeat(distinct % len(self.push_length), size), place + 1] + 1))
        return tuple(np.concatenate(c) for c in zip(*links))  # type: ignore[return-value]

    def _add_links(self, first: int, run: np.ndarray, caller: np.ndarray, symbol: np.ndarray) -> None:
        """Adds the links of the runs made at this depth, the owners from `first` on."""
        order = np.argsort(run, kind="stable")
        run, caller, symbol = run[order], caller[order], symbol[order]
        self.links.append((run, caller, symbol))
        bounds = len(self.link_caller) + np.searchsorted(run, np.arange(first, self.num_owners + 1))
        self.link_begin = np.concatenate([self.link_begin, bounds[:-1]])
        self.link_end = np.concatenate([self.link_end, bounds[1:]])
        self.link_caller = np.concatenate([self.link_caller, caller])
        self.link_symbol = np.concatenate([self.link_symbol, symbol])


class _InnerNodes:
    """Nodes so far, and what follows from what is pending in those of the last wave."""

    def __init__(self, walk: _Walk) -> None:
        s = walk.machine.num_controls
        self.walk = walk
        self.owners = [np.arange(s)]
        self.accept: list[np.ndarray] = []
        self.rows: list[np.ndarray] = []
        self.num_nodes = s
        self._segments = [np.zeros((1, walk.ret.shape[1]), np.int64)]
        self._num_segments = 1
        self._memo: dict[int, int] = {0: 0}
        self._columns: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def delta(self) -> np.ndarray:
        """int64[*, P], node after popping a symbol; row 0 is dead."""
        return np.concatenate(self._segments)

    def wave(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Makes the children of the last wave's nodes; what the new ones among them read, or None."""
        walk = self.walk
        size = len(self.owners[-1])
        row = np.zeros(size, np.int64)
        self.rows.append(row)
        if not walk.pending:
            return None
        owner, node, control = (np.concatenate(c) for c in zip(*walk.pending))
        walk.pending = []
        index = owner - self.owners[-1][0]
        order = np.argsort(index, kind="stable")
        index, node, control = index[order], node[order], walk.stack_class[control[order]]
        begin = segment_starts(index)
        total = np.add.reduceat(_mix(node * walk.machine.num_controls + control), begin)
        _, example, which = np.unique(total, return_index=True, return_inverse=True)
        row[index[begin]] = self._num_segments + which
        lo, hi = begin[example], np.append(begin[1:], len(index))[example]
        return self._children(node, control, lo, hi)

    def _children(
        self, node: np.ndarray, control: np.ndarray, lo: np.ndarray, hi: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
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
        begin = np.cumsum(size) - size
        at = np.arange(len(pair)) - begin[pair] + lo[pair_set][pair]
        node, there = node[at], walk.ret[control[at], symbol[pair]]
        code = self._code(node, there)
        hashed = np.where(code > 0, _mix(node * (3 * walk.machine.num_controls) + code), np.uint64(0))
        total = np.add.reduceat(hashed, begin) if len(begin) else np.zeros(0, np.uint64)
        child, new = self._number(total)
        self._add_segments(columns, count, child)
        if not len(new):
            return None
        return self._seeds(pair, node, there, code, new)

    def _code(self, node: np.ndarray, control: np.ndarray) -> np.ndarray:
        """What becomes of pending items after a return: 0 dead, a control that reads on, S + a class of controls that
        return again, 2 S the end of the text."""
        walk, s = self.walk, self.walk.machine.num_controls
        following = walk.moves.next[control * walk.width + walk.kind[walk.trie.symbol[node]]]
        code = np.where(following == RETURN, s + walk.stack_class[control], np.where(following > 0, control, 0))
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

    def _seeds(
        self, pair: np.ndarray, node: np.ndarray, control: np.ndarray, code: np.ndarray, new: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Items of the new nodes that read on; those that return again are pending at once."""
        walk, s = self.walk, self.walk.machine.num_controls
        base = walk.num_owners
        walk.num_owners += len(new)
        self.owners.append(np.arange(base, walk.num_owners))
        owner = np.full(int(pair[-1]) + 1, -1)
        owner[new] = self.owners[-1]
        mine = ((owner[pair] >= 0) & (code > 0)).nonzero()[0]
        owner, node, control, code = owner[pair[mine]], node[mine], control[mine], code[mine]
        accept = np.zeros(len(new), bool)
        accept[owner[code == 2 * s] - base] = True
        self.accept.append(accept)
        again = ((code >= s) & (code < 2 * s)).nonzero()[0]
        if len(again):
            walk.pending.append((owner[again], node[again], code[again] - s))
        on = (code < s).nonzero()[0]
        return owner[on], node[on], control[on]

    def _symbol_classes(self, controls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Symbols through which all of some controls return alike: (class of each symbol, one symbol of each class); the
        last class is that of symbols through which none returns."""
        frame = np.unique(controls)
        key = frame.tobytes()
        found = self._columns.get(key)
        if found is None:
            column = (_mix(frame)[:, None] * self.walk.ret[frame].astype(np.uint64)).sum(0, dtype=np.uint64)
            _, example, which = np.unique(column, return_index=True, return_inverse=True)
            some = self.walk.ret[frame][:, example].any(0)
            number = np.where(some, np.cumsum(some) - 1, int(some.sum()))
            found = self._columns[key] = (number[which], example[some])
        return found


def _alike(rows: np.ndarray) -> np.ndarray:
    """The first row equal to each row, int64."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row.tobytes(), i) for i, row in enumerate(rows)], np.int64)


def _mix(values: np.ndarray) -> np.ndarray:
    """Random-looking uint64 of integers (the finaliser of SplitMix64), so that sets are told apart by their sums."""
    x = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
