"""Inner nodes of the token walk: what is left of the tokens that leave a node's frame, by the symbol that they pop.

What is pending in a node, returned through a symbol, is one more node, told apart by its contents. Where lexemes have
temperatures, these are among them: an item at a trie node behind all others, which no token reads, stands for the place itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import distinct, exampled, firsts, known_numbers, numbered, order_of
from fsa_compile.arrays.ranges import blocks, indices, ranges, segment_sizes, segment_starts, spread
from fsa_compile.automata.pushdown import END_HERE, END_RETURN, RETURN
from fsa_compile.composition.pushdown.arcs import Children
from fsa_compile.composition.pushdown.counter_classes import Classes
from fsa_compile.composition.pushdown.guarded_pops import GuardedPops
from fsa_compile.composition.pushdown.items import Items, WalkContext, joined, zeros
from fsa_compile.composition.regular.trie_walk import with_aliases
from fsa_compile.composition.tokens.token_sets import Parts, shared_parts
from fsa_compile.errors import LimitError

_DOING = "walking the vocabulary"
_PAIR_BYTES = 96
"""Working memory of one (set of what is pending, symbol, trie node)."""
_BLOCK = 1 << 16
"""So many (set of what is pending, symbol, class of bytes) are looked at together."""
_LARGE = 8
"""From so many trie nodes of a group on, the tokens that end there are one set for all nodes."""


class _Groups(NamedTuple):
    """What is pending in sets, by set, control and class of the byte that is read next.

    Attributes:
      node: int64[n], trie nodes, by group.
      begin, size: int64[G], of each group in `node`.
      content: int64[G], the same number where the trie nodes are the same.
      control: int64[G], before the return.
      first: int64[sets + 1], where the groups of each set begin.
    """

    node: np.ndarray
    begin: np.ndarray
    size: np.ndarray
    content: np.ndarray
    control: np.ndarray
    first: np.ndarray


class InnerNodes:
    """Nodes so far, and what follows from what is pending in those of the last wave.

    Attributes:
      owners, kinds, shapes: of the nodes of each wave: their owners, the kinds of their frames, and the shapes of their classes.
      accept: of each wave but the first.
      rows: of each wave, row of `delta` for every class of every node.
      temperature: of the nodes of each wave; empty where the machine has none.
      parts: tokens of nodes, beside those that the walk finds.
    """

    def __init__(self, walk: WalkContext, classes: Classes) -> None:
        s = walk.machine.num_controls
        self.walk, self.classes = walk, classes
        self.owners, self.kinds = [np.arange(s)], [walk.registers.of_control]
        self.shapes = [classes.of_control]
        self.accept: list[np.ndarray] = []
        self.rows: list[np.ndarray] = []
        self.pops = GuardedPops(walk.guards)
        self.num_nodes = s
        given = walk.machine.temperature
        self.temperature: list[np.ndarray] = [] if given is None else [given]
        self._heat = np.zeros(1) if given is None else distinct(given)
        self._here = len(walk.trie.first)
        ends = [((walk.machine.end == END_RETURN).nonzero()[0], walk.trie.end)]
        ends += [(distinct(walk.machine.returns[0]), self._here)] if self.temperature else []
        for control, node in ends:
            walk.pending.append(Items(control, np.full(len(control), node), control, zeros(len(control))))
        self._segments: list[tuple[np.ndarray, ...]] = []
        self._num_segments = 1
        self._known = np.zeros(1, np.uint64), np.zeros(1, np.int64)  # contents, ascending, and their nodes
        self._frames = np.zeros(0, np.uint64), np.zeros(0, np.int64)  # sets of controls, ascending, and their numbers
        self._class_first = np.zeros(1, np.int64)  # where the classes of each set begin among these, one after another
        self._class_symbols: list[np.ndarray] = []
        self._class_sizes: list[np.ndarray] = []
        self._state = _states(walk)[walk.machine.action].ravel()
        self.parts: list[Parts] = []
        own = walk.machine.sets is None and walk.machine.token_reserve is None and not walk.registers.counts
        self._sharing = own and walk.moves.simple and walk.machine.deterministic

    def delta(self) -> Children:
        """Nodes after popping a symbol."""
        parts = self._segments or [(np.zeros(0, np.int64),) * 3]
        row, symbol, node = (np.concatenate(column) for column in zip(*parts))
        order = order_of(row * self.walk.returns.num_symbols + symbol)
        return Children(row[order], symbol[order], node[order], self._num_segments, self.walk.returns.num_symbols)

    def wave(self) -> Items | None:
        """Makes the children of the last wave's nodes; what the new ones among them read, or None."""
        walk, kinds = self.walk, self.kinds[-1]
        size = self.classes.size[self.shapes[-1]]
        base = int(size.sum())
        if not walk.pending:
            self.rows.append(np.zeros(base, np.int64))
            return None
        pending = joined(walk.pending)
        walk.pending = []
        first = size.cumsum() - size
        more = 0
        if walk.machine.sets is None:
            index, lo, hi, node, control = self._by_class(pending, first)
            if not walk.machine.deterministic:
                index, lo, hi, node, control = _parted(*_once(*_listed(index, lo, hi, node, control)))
        else:
            first_node = self.num_nodes - len(kinds)
            counted = walk.registers.counted[kinds[pending.owner - self.owners[-1][0]]]
            guard = np.where(counted, 0, pending.begun)
            free, some, more = self.pops.parted(pending.owner, guard, int(self.owners[-1][0]), first_node)
            listed = _listed(*self._by_class(pending.at(free), first))
            if not walk.machine.deterministic:
                listed = _once(*listed)
            guarded = pending.node[some], walk.stack_class[pending.control[some]]
            index, lo, hi, node, control = _parted(*self.pops.extended(listed, first, guarded, base))
        row = np.zeros(base + more, np.int64)
        self.rows.append(row[:base])
        self.pops.rows.append(row[base:])
        if not len(index):
            return None
        upto = np.append(np.uint64(0), mixed(node * walk.machine.num_controls + control).cumsum(dtype=np.uint64))
        _, example, which = exampled(upto[hi] - upto[lo])
        row[index] = self._num_segments + which
        return self._children(node, control, lo[example], hi[example])

    def _by_class(
        self, pending: Items, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What is pending while a node's register belongs to a class: (class, begin, end) of those with anything, ascending, and
        (trie node, control) of what is pending, of which a class has a range: that between two numbers of iterations begun.

        Args:
          first: int64[n], number of the first class of every node of the last wave.
        """
        walk, registers = self.walk, self.walk.registers
        local = pending.owner - self.owners[-1][0]
        if not registers.counts:
            order = order_of(local)
            local = local[order]
            begin = segment_starts(local)
            index, lo, hi = local[begin], begin, np.append(begin[1:], len(local))
        else:
            begun = np.where(registers.counted[self.kinds[-1][local]], pending.begun, 0)
            width = int(begun.max(initial=0)) + 1
            key = local * width + begun
            order = order_of(key)
            key = key[order]
            some = distinct(key // width)
            shape, kind = self.shapes[-1][some], self.kinds[-1][some]
            which, at = spread(self.classes.first[shape], self.classes.size[shape])
            value, kind, some = self.classes.value[at], kind[which], some[which]
            least = np.where(registers.counted[kind], np.clip(registers.low[kind] - value, 0, width), 0)
            most = np.where(registers.counted[kind], np.minimum(registers.high[kind] - value, width - 1), 0)
            lo, hi = key.searchsorted(some * width + least), key.searchsorted(some * width + most, side="right")
            index = first[some] + at - self.classes.first[self.shapes[-1][some]]
            full = (lo < hi).nonzero()[0]
            index, lo, hi = index[full], lo[full], hi[full]
        return index, lo, hi, pending.node[order], walk.stack_class[pending.control[order]]

    def _children(self, node: np.ndarray, control: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Items | None:
        """Children of distinct pending sets, (node, control)[lo:hi] each."""
        walk = self.walk
        groups = self._by_byte(ranges(lo, hi), node, control)
        pair_set, symbol_class = spread(*self._symbol_classes(groups))
        class_size = np.concatenate(self._class_sizes)
        class_begin = class_size.cumsum() - class_size
        symbols = np.concatenate(self._class_symbols)
        symbol = symbols[class_begin[symbol_class]]
        pair, way, live = self._after_return(groups, pair_set, symbol)
        ways, kind = int(way.max(initial=-1)) + 1, walk.registers.of_symbol[symbol]
        total, begin = np.zeros(len(pair_set), np.uint64), segment_starts(pair)
        if len(begin):
            total[pair[begin]] = np.add.reduceat(self._totals(groups, live, ways)[way], begin)
        some = total > 0
        total[some] += mixed(-1 - kind[some])  # nodes of different kinds are different nodes
        child, new = self._number(total)
        full = child.nonzero()[0]
        which, at = spread(class_begin[symbol_class[full]], class_size[symbol_class[full]])
        self._segments.append((self._num_segments + pair_set[full[which]], symbols[at], child[full[which]]))
        self._num_segments += len(lo)
        if not len(new):
            return None
        self.kinds.append(kind[new])
        self.shapes.append(kind[new])
        owner = np.full(len(pair_set), -1)
        owner[new] = np.arange(walk.num_owners, walk.num_owners + len(new))
        walk.num_owners += len(new)
        walk.begin_wave()
        self.owners.append(owner[new])
        mine = (owner[pair] >= 0).nonzero()[0]
        first = firsts(live[0], ways)
        which, at = ranges(first[way[mine]], first[way[mine] + 1])
        return self._seeds(groups, owner, pair[mine[which]], live[1][at], live[2][at])

    def _by_byte(self, places: tuple[np.ndarray, np.ndarray], node: np.ndarray, control: np.ndarray) -> _Groups:
        """What is pending; what reads the same class of bytes does the same after a return.

        Args:
          places: (set, place in `node` and `control`) of everything that is pending, by set.
        """
        walk = self.walk
        of_set, at = places
        node, control = node[at], control[at]
        read = np.where(node < walk.trie.end, walk.kind[walk.trie.symbol[np.minimum(node, walk.trie.end)]], walk.width + node)
        order = order_of((of_set * walk.machine.num_controls + control) * (walk.width + self._here + 1) + read)
        node, control, of_set, read = node[order], control[order], of_set[order], read[order]
        new = np.ones(len(node), bool)
        new[1:] = (of_set[1:] != of_set[:-1]) | (control[1:] != control[:-1]) | (read[1:] != read[:-1])
        begin = new.nonzero()[0]
        return _Groups(
            node,
            begin,
            segment_sizes(begin, len(node)),
            exampled(np.add.reduceat(mixed(node), begin))[2],
            control[begin],
            firsts(of_set[begin], int(of_set[-1]) + 1),  # the last sets may be in no pair: nothing returns from them
        )

    def _after_return(
        self, groups: _Groups, pair_set: np.ndarray, symbol: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """What becomes of sets after a return: (pair, number of a way) of every pair's ways, by pair; and (way, group, code) of
        what is not dead, by way. A way is what one control's groups, wherever they stand, come to in one control after it; where
        several stacks may come to the same, all that a pair's set comes to.

        Args:
          pair_set, symbol: int64[n], the set and the symbol of every pair, by set.
        """
        walk, s = self.walk, self.walk.machine.num_controls
        of_set = np.arange(len(groups.first) - 1).repeat(np.diff(groups.first))
        begin = segment_starts(of_set * s + groups.control) if walk.machine.deterministic else segment_starts(of_set)
        first, size = firsts(of_set[begin], len(groups.first) - 1), segment_sizes(begin, len(of_set))
        pair, unit = ranges(first[pair_set], first[pair_set + 1])
        example = way = np.arange(len(pair))
        if walk.machine.deterministic:
            there = walk.returns.at(groups.control[begin[unit]], symbol[pair]).astype(np.int64)
            on = there.nonzero()[0]
            pair, unit, content = pair[on], unit[on], exampled(np.add.reduceat(mixed(groups.content), begin))[2]
            _, example, way = exampled(content[unit] * s + there[on])
        unit, popped, found = unit[example], symbol[pair[example]], [(way[:0],) * 3]
        for some in blocks(size[unit], _BLOCK):
            which, group = spread(begin[unit[some]], size[unit[some]])
            there = walk.returns.at(groups.control[group], popped[some][which]).astype(np.int64)
            code = self._code(groups.node[groups.begin[group]], there)
            live = code.nonzero()[0]
            found.append((which[live] + some.start, group[live], code[live]))
            walk.deadline.check(_DOING)
        return pair, way, tuple(map(np.concatenate, zip(*found)))  # type: ignore[return-value]

    def _totals(self, groups: _Groups, live: tuple[np.ndarray, np.ndarray, np.ndarray], num_ways: int) -> np.ndarray:
        """uint64[n], of every way what tells its contents from others."""
        (way, group, code), total = live, np.zeros(num_ways, np.uint64)
        begin = segment_starts(way)
        if not len(begin):
            return total
        upto = np.append(begin, len(way))
        for some in blocks(np.add.reduceat(groups.size[group], begin), _BLOCK):
            rows, own = slice(upto[some.start], upto[min(some.stop, len(begin))]), begin[some]
            if not self.walk.machine.deterministic:
                of, node, codes = self._entries(groups, way[rows], group[rows], code[rows])
                starts = segment_starts(of)
            else:  # once each, and no group is empty
                first, size = groups.begin[group[rows]], groups.size[group[rows]]
                self.walk.deadline.check_bytes(int(size.sum()) * _PAIR_BYTES, _DOING)
                node, codes = groups.node.take(indices(first, first + size)), code[rows].repeat(size)
                starts = (size.cumsum() - size)[own - rows.start]
            each = node * (3 * self.walk.machine.num_controls)
            each += codes
            total[way[own]] = np.add.reduceat(mixed(each), starts)
        return total

    def _entries(self, groups: _Groups, pair: np.ndarray, group: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, ...]:
        """(pair, trie node, code) of everything in some groups, by pair, once each."""
        size = groups.size[group]
        self.walk.deadline.check_bytes(int(size.sum()) * _PAIR_BYTES, _DOING)
        which, member = spread(groups.begin[group], size)
        out = pair[which], groups.node[member], code[which]
        return out if self.walk.machine.deterministic or not len(which) else tuple(np.unique(np.stack(out), axis=1))

    def _code(self, node: np.ndarray, control: np.ndarray) -> np.ndarray:
        """What becomes of pending items after a return: 0 dead, a control that reads on, S + a class of controls that
        return again, 2 S the end of the text."""
        walk, s = self.walk, self.walk.machine.num_controls
        here = (node == self._here).nonzero()[0] if self.temperature else node[:0]
        symbol = walk.kind[walk.trie.symbol[node if not len(here) else np.where(node == self._here, 0, node)]]
        state = self._state[control * walk.width + symbol]
        code = np.where(state > 0, control, 0)
        returns = (state == 2).nonzero()[0]
        code[returns] = s + walk.stack_class[control[returns]]
        end = (node == walk.trie.end).nonzero()[0]
        kind = walk.machine.end[control[end]]
        code[end] = np.where(kind == END_HERE, 2 * s, np.where(kind == END_RETURN, s + walk.stack_class[control[end]], 0))
        if len(here):
            known = self._heat.searchsorted(self.temperature[0][control[here]])
            code[here] = known * s + walk.stack_class[control[here]]
            code[here] += np.where(code[here] > 0, 2 * s, 0)
        return code

    def _number(self, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(node of every set, index of an example of every new one)."""
        every, example, which = exampled(total)
        ids, new, self._known = known_numbers(self._known, every, self.num_nodes)
        self.num_nodes += len(new)
        if self.num_nodes > self.walk.limits.max_states:
            raise LimitError("max_states", self.walk.limits.max_states, _DOING)
        return ids[which], example[new]

    def _seeds(self, groups: _Groups, owner: np.ndarray, pair: np.ndarray, group: np.ndarray, code: np.ndarray) -> Items:
        """Items of the new nodes that read on; those that return again are pending at once.

        Args:
          owner: of the pairs that became nodes.
          pair, group, code: of what is not dead in these.
        """
        walk, s = self.walk, self.walk.machine.num_controls
        first, size = int(self.owners[-1][0]), len(self.owners[-1])
        others, seeds = self._take_together(groups, owner[pair], group, code)
        pair, node, code = self._entries(groups, pair[others], group[others], code[others])
        owner = owner[pair]
        accept = np.zeros(size, bool)
        accept[owner[code == 2 * s] - first] = True
        self.accept.append(accept)

        def items(at: np.ndarray, control: np.ndarray) -> Items:
            return Items(owner[at], node[at], control, zeros(len(at)))

        again = ((code >= s) & (code < 2 * s)).nonzero()[0]
        if len(again):
            walk.pending.append(items(again, code[again] - s))
        if self.temperature:
            at = (node == self._here).nonzero()[0]
            known, control = np.divmod(code[at] - 2 * s, s)
            self.temperature.append(np.full(size, self._heat[0], np.float32))
            self.temperature[-1][owner[at] - first] = self._heat[known]
            walk.pending.append(items(at[control > 0], control[control > 0]))
        on = (code < s).nonzero()[0]
        return joined([items(on, code[on]), *seeds])

    def _take_together(
        self, groups: _Groups, owner: np.ndarray, group: np.ndarray, code: np.ndarray
    ) -> tuple[np.ndarray, list[Items]]:
        """Reads large groups, each once for all nodes, while they stay large: (which groups are left, items of what is behind
        the others). The tokens that end there are sets that many nodes have in common, and what is called with a group is one run
        for all of it."""
        walk = self.walk
        large = (groups.size[group] >= _LARGE) & (code < walk.machine.num_controls) & self._sharing
        others, seeds = (~large).nonzero()[0], list[Items]()
        owner, group, control = owner[large], group[large], code[large]
        _, example, content = exampled(groups.content[group])
        which, at = spread(groups.begin[group[example]], groups.size[group[example]])
        node, count = groups.node[at], len(example)
        while len(owner):
            begin = firsts(which, count)
            symbol = walk.kind[walk.trie.symbol[node[begin[content]]]]
            action = walk.moves.action(control * walk.width + symbol)
            target, entry = walk.moves.plain(action), walk.moves.begin(action)
            large = begin[content + 1] - begin[content] >= _LARGE
            on, calls = large & (target > 0), large & (walk.moves.push[entry] > 0) & (walk.moves.next[entry] > 0)
            apart = ((target != 0) & ~(on | calls)).nonzero()[0]
            row, at = ranges(begin[content[apart]], begin[content[apart] + 1])
            seeds.append(Items(owner[apart[row]], node[at], control[apart[row]], zeros(len(row))))
            called = self._called(owner[calls], content[calls], entry[calls])
            owner, content, control = map(np.append, (owner[on], content[on], target[on]), called)
            ends = (walk.trie.token[node] >= 0).nonzero()[0]
            tokens = with_aliases(walk.tables, which[ends], walk.trie.token[node[ends]])
            self.parts.append(shared_parts(walk.tables, (owner, control, content), *tokens))
            which, node, after, count = self._parted_by_byte(which, node, count)
            row, content = ranges(after[content], after[content + 1])
            owner, control = owner[row], control[row]
        return others, seeds

    def _called(self, caller: np.ndarray, content: np.ndarray, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(run, set of trie nodes, control) of what calls lead to, each once for all callers."""
        walk, s = self.walk, self.walk.machine.num_controls
        keys, which = numbered(content * s + walk.moves.next[entry])
        run, nothing = walk.num_owners + np.arange(len(keys)), np.zeros(len(entry), np.int64)
        first, walk.num_owners = walk.num_owners, walk.num_owners + len(keys)
        walk.num_owners = walk.links.chain(first, walk.num_owners, run[which], caller, walk.moves.push[entry], nothing)
        return run, keys // s, keys % s

    def _parted_by_byte(
        self, which: np.ndarray, node: np.ndarray, count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """The children of some sets of trie nodes, in sets of those that read the same class of bytes: (set, trie node); where
        the sets that come of each one begin, int64[count + 1]; and their number."""
        walk = self.walk
        of, child = spread(walk.trie.first[node], walk.trie.children[node])
        key = which[of] * walk.width + walk.kind[walk.trie.symbol[child]]
        order = order_of(key)
        every, which = numbered(key[order])
        return which, child[order], firsts(every // walk.width, count), len(every)

    def _symbol_classes(self, groups: _Groups) -> tuple[np.ndarray, np.ndarray]:
        """(first class, how many) of every set: classes of symbols through which all of its controls return alike, where one
        does."""
        size = np.diff(groups.first)
        of_set = np.arange(len(size)).repeat(size)
        at = segment_starts(of_set * self.walk.machine.num_controls + groups.control)
        control, first = groups.control[at], firsts(of_set[at], len(size))
        every, example, which = exampled(np.add.reduceat(mixed(control), first[:-1]))
        frame, new, self._frames = known_numbers(self._frames, every, len(self._frames[0]))
        if len(new):
            self._add_frames(control, first[example[new]], first[example[new] + 1])
        frame = frame[which]
        return self._class_first[frame], self._class_first[frame + 1] - self._class_first[frame]

    def _add_frames(self, control: np.ndarray, begin: np.ndarray, end: np.ndarray) -> None:
        """Adds the classes of sets of controls, each `control[begin:end]`, ascending."""
        source, symbol, after = self.walk.machine.returns
        first, width = firsts(source, self.walk.machine.num_controls), self.walk.machine.num_symbols
        frame, at = ranges(begin, end)
        of, at = ranges(first[control[at]], first[control[at] + 1])
        key = frame[of] * width + symbol[at]
        order = order_of(key)
        starts = segment_starts(key[order])
        column = np.add.reduceat((mixed(source) * after.astype(np.uint64))[at[order]], starts) if len(starts) else mixed(starts)
        frame, symbol = np.divmod(key[order[starts]], width)
        order = order_of(column)
        order = order[order_of(frame[order])]
        frame, column = frame[order], column[order]
        new = np.ones(len(frame), bool)
        new[1:] = (frame[1:] != frame[:-1]) | (column[1:] != column[:-1])
        starts = new.nonzero()[0]
        self._class_symbols.append(symbol[order])
        self._class_sizes.append(segment_sizes(starts, len(frame)))
        self._class_first = np.append(self._class_first, self._class_first[-1] + firsts(frame[starts], len(begin))[1:])


def _states(walk: WalkContext) -> np.ndarray:
    """int8[A], what an action does: 0 nothing, 1 it reads on, 2 it only returns."""
    offset = walk.machine.entry_offset
    size = np.diff(offset)
    out = (size > 0).astype(np.int8)
    one = (size == 1).nonzero()[0]
    out[one[walk.machine.entry_next[offset[one]] == RETURN]] = 2
    return out


def _listed(
    index: np.ndarray, lo: np.ndarray, hi: np.ndarray, node: np.ndarray, control: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(class, trie node, control) of everything that is pending, from ranges."""
    which, at = ranges(lo, hi)
    return index[which], node[at], control[at]


def _parted(
    index: np.ndarray, node: np.ndarray, control: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ranges of what is pending, by class."""
    begin = segment_starts(index)
    return index[begin], begin, np.append(begin[1:], len(index)), node, control


def _once(index: np.ndarray, node: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same once each; only what is not deterministic comes to one thing in two ways."""
    index, node, control = np.unique(np.stack([index, node, control]), axis=1)
    return index, node, control
