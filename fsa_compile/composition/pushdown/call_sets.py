"""What nodes read through calls: all that is called with one symbol is one set of owners, and equal sets are looked at once.

A token that begins in a node and ends in a run has called its way there. Nodes have thousands of such ways in common, since they
call the same procedures: `x` and `y` may follow a `+` here and a `(` there. So owners are put together as the states of an
automaton are by the subset construction, with calls for symbols; the token sets of a set are those of its own members, and those
of the sets that it calls, each with one symbol more below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import (
    distinct,
    equal_tuples,
    exampled,
    firsts,
    known_numbers,
    numbered,
    order_of,
    ordered,
    sorted_rows,
)
from fsa_compile.arrays.ranges import joined, ranges, segment_starts, spread
from fsa_compile.composition.pushdown.arcs import StackArcs
from fsa_compile.composition.pushdown.least_fixpoint import Ways
from fsa_compile.composition.tokens.token_sets import Parts, joined_parts, parts_of
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "putting token sets together"
_PART_BYTES = 96
PushString: TypeAlias = tuple[tuple[int, int], ...]


class CallSets(NamedTuple):
    """Sets of owners: the first N are those of nodes, the others are called.

    Attributes:
      nodes, size: N, and the number of sets.
      set, member: int64[*], the owners of each set, the parts of their frames included.
      above, symbol, register, below: int64[E], calls: from a set, pushing a symbol over a register, into a set.
    """

    nodes: int
    size: int
    set: np.ndarray
    member: np.ndarray
    above: np.ndarray
    symbol: np.ndarray
    register: np.ndarray
    below: np.ndarray


def parts_and_calls(arcs: StackArcs, tables: VocabularyTables, deadline: Deadline) -> tuple[Parts, CallSets]:
    """What owners read, and the sets of owners that nodes call: all that `groups_of` needs of the arcs' tokens and links."""
    single = (arcs.owner, arcs.token, arcs.target, arcs.count)
    large = (arcs.row_owner, arcs.row_target, arcs.row_set)
    parts = joined_parts([parts_of(tables, single, large, arcs.sets), *arcs.leaves])
    full = np.zeros(arcs.num_owners, bool)
    full[parts.owner] = True
    return parts, call_sets(arcs, full, deadline)


def call_sets(arcs: StackArcs, full: np.ndarray, deadline: Deadline) -> CallSets:
    """The sets that nodes come to.

    Args:
      full: bool[*], owners that have tokens of their own.
    """
    size = len(arcs.node_owner)
    (owner, parts), (key, run), bits = _useful_links(arcs, full)
    mask = (1 << bits) - 1
    first_part = firsts(owner, arcs.num_owners)
    begin = segment_starts(key)  # of the runs that an owner calls with one label
    key = key[begin]
    label, first = key & mask, firsts(key >> bits, arcs.num_owners)
    end = np.append(begin[1:], len(run))
    total = np.add.reduceat(mixed(run), begin) if len(begin) else mixed(begin)
    known = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    of_set, member = np.arange(size), arcs.node_owner
    members, calls = list[tuple[np.ndarray, ...]](), list[tuple[np.ndarray, ...]]()
    while len(of_set):
        found = [(of_set[:0], of_set[:0])]
        while len(of_set):  # parts of a frame belong to the sets of its owner
            members.append((of_set, member))
            deadline.check(_DOING)
            which, at = ranges(first[member], first[member + 1])
            found.append((of_set[which] << bits | label[at], at))
            if not len(parts):
                break
            which, at = ranges(first_part[member], first_part[member + 1])
            deadline.check_bytes(len(at) * _PART_BYTES, _DOING)
            of_set, member = of_set[which], parts[at]
        key, called = sorted_rows(*(np.concatenate(column) for column in zip(*found)))
        starts = segment_starts(key)
        if not len(starts):
            break
        sets, example, which = exampled(np.add.reduceat(total[called], starts))
        number, new, known = known_numbers(known, sets, size)
        size += len(new)
        calls.append((key[starts] >> bits, (key[starts] & mask) - 1, number[which]))
        place, at = ranges(starts[example[new]], np.append(starts[1:], len(key))[example[new]])
        of_set, at = number[new][place], called[at]
        which, at = ranges(begin[at], end[at])
        of_set, member = of_set[which], run[at]
    counts = int(arcs.link_count.max(initial=0)) + 1
    none = np.zeros(0, np.int64)
    of_set, member = (np.concatenate(column) for column in zip(*members)) if members else (none, none)
    above, by, below = (np.concatenate(column) for column in zip(*calls)) if calls else (none, none, none)
    return CallSets(len(arcs.node_owner), size, of_set, member, above, by // counts, by % counts, below)


def _useful_links(
    arcs: StackArcs, full: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], int]:
    """The links that lead to tokens: (caller, run) of those whose run is a part of the caller's frame; (caller << bits | label,
    run) of the others, both in this order; and the bits. Labels are 1 + symbol * (most of all registers + 1) + register."""
    useful, run, caller = full.copy(), arcs.link_run, arcs.link_caller
    while len(run):  # a run is worth following when it, or one that it calls, has tokens
        worth = useful.take(run)
        if not worth.any():
            break
        useful[caller[worth]] = True
        left = ~worth
        run, caller = run[left], caller[left]
    kept, inside = useful.take(arcs.link_run), arcs.link_symbol < 0
    counts = int(arcs.link_count.max(initial=0)) + 1
    bits = max(0, (1 + int(arcs.link_symbol.max(initial=-1))) * counts).bit_length()
    inside &= kept
    kept ^= inside
    parts, calls = inside.nonzero()[0], kept.nonzero()[0]
    owner, key = (arcs.link_caller.take(some).astype(np.int64, copy=False) for some in (parts, calls))
    key <<= bits
    label = arcs.link_symbol.take(calls)
    if counts > 1:
        label = label.astype(np.int64) * counts + arcs.link_count.take(calls)
    label += 1
    key |= label
    run_of_part, run = (arcs.link_run.take(some) for some in (parts, calls))
    return sorted_rows(owner, run_of_part), sorted_rows(key, run), bits  # type: ignore[return-value]


class Called(NamedTuple):
    """Token sets behind calls, each a number of a distinct (symbol, register, set). The k-th one of call c is leaf
    `leaf[first[c] + k]`, and what it does stands at `begin[c] + k`: calls that do the same, in the same order, share that.

    Attributes:
      size, first, begin: int64[C], how many each call has, and where they begin.
      leaf: int64[*].
      target, string: int64[*], where they lead, and the number of the push string.
      under, register: int64[*], registers of the frame that the symbol suspends, and of the target's frame.
    """

    size: np.ndarray
    first: np.ndarray
    begin: np.ndarray
    leaf: np.ndarray
    target: np.ndarray
    string: np.ndarray
    under: np.ndarray
    register: np.ndarray


class Leaves(NamedTuple):
    """Parts that are one token set, of one set of owners.

    Attributes:
      set, target, register: int64[L], by set.
      offset, part: int64[L + 1], int64[*]; leaf i consists of `part[offset[i]:offset[i + 1]]`.
    """

    set: np.ndarray
    target: np.ndarray
    register: np.ndarray
    offset: np.ndarray
    part: np.ndarray

    @staticmethod
    def distinct(offset: np.ndarray, part: np.ndarray, parts: Parts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(the number of each leaf among the distinct ones; their `offset` and `part`): leaves of equal tokens are one."""
        if not len(part):
            return part, offset, part
        example, kind = exampled(np.add.reduceat(parts.hash[part], offset[:-1]))[1:]
        size = np.diff(offset)[example]
        return kind, np.append(0, size.cumsum()), part[joined(offset[example], size)]


def leaves_of(sets: CallSets, parts: Parts, num_owners: int) -> Leaves:
    """The token sets that the members of sets have of their own."""
    first = firsts(parts.owner, num_owners)
    which, part = ranges(first[sets.member], first[sets.member + 1])
    of_set, target, count = sets.set[which], parts.target[part], parts.count[part]
    wide, high = int(target.max(initial=0)) + 1, int(count.max(initial=0)) + 1
    key = (of_set * wide + target) * high + count
    order = order_of(key)
    begin = segment_starts(key[order])
    at = order[begin]
    return Leaves(of_set[at], target[at], count[at], np.append(begin, len(part)), part[order])


class PushStrings:
    """Push strings by number; 0 is the empty one.

    Attributes:
      length: int64[n], of each string.
      first: int64[n + 1], where each string begins in the next two.
      symbol, register: int64[*].
    """

    def __init__(self, length: np.ndarray, symbol: np.ndarray, register: np.ndarray) -> None:
        self.length, self.symbol, self.register = length, symbol, register
        self.first = np.append(0, length.cumsum())

    @classmethod
    def of(cls, strings: Iterable[PushString]) -> PushStrings:
        """From few strings."""
        every = list(strings)
        pairs = np.array([pair for string in every for pair in string], np.int64).reshape(-1, 2)
        return cls(np.array([len(string) for string in every], np.int64), *pairs.T)

    def __len__(self) -> int:
        return len(self.length)

    def __iter__(self) -> Iterator[PushString]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> PushString:
        some = slice(self.first[i], self.first[i + 1])
        return tuple(zip(self.symbol[some].tolist(), self.register[some].tolist()))

    def longer(self, string: PushString) -> PushStrings:
        """These and one more."""
        symbol, register = np.array(string, np.int64).reshape(-1, 2).T
        columns = (self.length, len(string)), (self.symbol, symbol), (self.register, register)
        return PushStrings(*(np.append(values, more) for values, more in columns))

    def some(self, which: np.ndarray) -> PushStrings:
        """Some of these."""
        at = self.places(which)
        return PushStrings(self.length[which], self.symbol[at], self.register[at])

    def hashes(self, more: np.ndarray) -> np.ndarray:
        """uint64[n], of what each string consists of, with a further column int64[*] of its entries."""
        entry = _hashes(joined(self.length * 0, self.length), self.symbol, self.register, more)
        out, full = np.zeros(len(self), np.uint64), self.length.nonzero()[0]
        if len(full):
            out[full] = np.add.reduceat(entry, self.first[full])
        return out

    def places(self, some: np.ndarray) -> np.ndarray:
        """Where the entries of some strings are, one string after another."""
        return joined(self.first[some], self.length[some])


def _hashes(*columns: np.ndarray) -> np.ndarray:
    """uint64, of rows of numbers."""
    weight = np.arange(1, 2 * len(columns), 2, dtype=np.uint64)
    return mixed((mixed(np.stack(columns)) * weight[:, None]).sum(0))


class Strings:
    """Numbers of push strings while they grow; 0 is the empty one.

    Attributes:
      all: the strings, once `only` has been called.
    """

    def __init__(self) -> None:
        self.all = PushStrings.of([()])
        self._known = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._parts = np.zeros((4, 1), np.int64)  # of each string: its length, its bottom's symbol and register, the string above

    def below(self, symbol: np.ndarray, register: np.ndarray, string: np.ndarray) -> np.ndarray:
        """Strings with one more (symbol, register) at the bottom each."""
        high, most = int(register.max(initial=0)) + 1, self._parts.shape[1]
        keys, which = numbered((symbol * high + register) * most + string)
        parts = np.stack((self._parts[0, keys % most] + 1, keys // most // high, keys // most % high, keys % most))
        hashes = _hashes(*parts[1:])
        order = order_of(hashes)
        numbers = np.empty(len(keys), np.int64)
        numbers[order], new, self._known = known_numbers(self._known, hashes[order], most)
        self._parts = np.concatenate((self._parts, parts[:, order[new]]), axis=1)
        return numbers[which]

    def only(self, string: np.ndarray) -> np.ndarray:
        """Leaves only some strings, none of them empty, numbered by their length and what they push: the new number of each."""
        length, symbol, register, above = self._parts
        rank = np.zeros(len(length), np.int64)
        for size in range(1, int(length.max()) + 1):
            at = (length == size).nonzero()[0]
            rank[at[ordered((symbol[at], register[at], rank[above[at]]))[0]]] = np.arange(len(at))
        used, which = numbered(string)
        order = ordered((length[used], rank[used]))[0]
        number = np.empty(len(used), np.int64)
        number[order] = np.arange(1, len(used) + 1)
        sizes = np.append(0, length[used[order]])
        entries, left = np.append(0, used[order]).repeat(sizes), joined(sizes * 0, sizes)
        while len(some := left.nonzero()[0]):
            entries[some] = above[entries[some]]
            left[some] -= 1
        self.all = PushStrings(sizes, symbol[entries], register[entries])
        return number[which]


def called_sets(sets: CallSets, leaves: Leaves, strings: Strings, deadline: Deadline) -> tuple[Called, np.ndarray]:
    """(the token sets behind the distinct calls of nodes, the number of each call of a node)."""
    nodes = sets.nodes
    own = firsts(leaves.set, sets.size)
    first, size = np.zeros(sets.size, np.int64), np.zeros(sets.size, np.int64)
    height = np.zeros(sets.size, np.int64)
    inner = (sets.above >= nodes).nonzero()[0]
    above, below = sets.above[inner], sets.below[inner]
    while True:  # a run reads on where its caller stopped, so calls do not go round in circles
        deadline.check(_DOING)
        higher = height.copy()
        np.maximum.at(higher, above, height[below] + 1)
        if (higher == height).all():
            break
        height = higher
    columns = tuple(np.zeros(0, np.int64) for _ in range(4))
    height[:nodes] = -1
    for level in range(int(height.max(initial=-1)) + 1):
        deadline.check(_DOING)
        some = (height == level).nonzero()[0]
        which, leaf = ranges(own[some], own[some + 1])
        found = [(some[which], leaves.target[leaf], np.zeros_like(leaf), leaves.register[leaf], leaf)]
        calls = inner[height[above] == level]
        if len(calls):
            which, at = spread(first[sets.below[calls]], size[sets.below[calls]])
            call = calls[which]
            string = strings.below(sets.symbol[call], sets.register[call], columns[1][at])
            found.append((sets.above[call], columns[0][at], string, columns[2][at], columns[3][at]))
        of_set, *more = (np.concatenate(column) for column in zip(*found))
        order = order_of(of_set)
        size[some] = np.bincount(of_set, minlength=sets.size)[some]
        first[some] = len(columns[0]) + size[some].cumsum() - size[some]
        columns = tuple(np.concatenate((column, added[order])) for column, added in zip(columns, more))
    calls = (sets.above < nodes).nonzero()[0]
    high = int(sets.register.max(initial=0)) + 1
    every, of_call = numbered((sets.symbol[calls] * high + sets.register[calls]) * sets.size + sets.below[calls])
    over, below = np.divmod(every, sets.size)
    target, string, register, leaf = columns
    example, kind = equal_tuples(over, _lists(first, size, target, string, register)[below])
    call, at = spread(first[below[example]], size[below[example]])
    deadline.check_bytes(len(at) * _PART_BYTES, _DOING)
    symbol, under = np.divmod(over[example][call], high)
    longer = strings.only(strings.below(symbol, under * 0, string[at]))
    begin = firsts(call, len(example))[kind]
    return Called(size[below], first[below], begin, leaf, target[at], longer, under, register[at]), of_call


def _lists(first: np.ndarray, size: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    """int64[n], the same number where the columns have the same at `first[i]` and the `size[i] - 1` places behind it."""
    which, at = spread(first, size)
    total, begin = np.zeros(len(size), np.uint64), segment_starts(which)
    if len(begin):
        rows = _hashes(at - first[which], *(column[at] for column in columns))
        total[which[begin]] = np.add.reduceat(rows, begin)
    return exampled(total)[2]


def nested_ways(
    sets: CallSets, leaves: Leaves, node: np.ndarray, written: tuple[np.ndarray, ...], controls: int, symbols: int
) -> tuple[Ways, int]:
    """The ways of places by what their nodes read and call, and the number of places: behind those given, one more stands for
    each set that is called.

    Args:
      node: int64[Q], of each place; -1 where its ways are all written out.
      written: these ways: the places int64[n], and what each does int64[n]: of these, where they lead and what they push,
        int64[m], int64[m, L].
      controls, symbols: how many there are. Effect c < `controls` leads to control c by the end of a token.
    """
    place, does, target, string = written
    nodes = sets.nodes
    every = np.concatenate((np.where(node < 0, sets.size, node), np.arange(nodes, sets.size)))
    first = firsts(leaves.set, sets.size + 1)
    reader, leaf = ranges(first[every], first[every + 1])
    order, first = order_of(sets.above), firsts(sets.above, sets.size + 1)
    caller, at = ranges(first[every], first[every + 1])
    keys, which = numbered(sets.below[order[at]] * symbols + sets.symbol[order[at]])
    called, symbol = np.divmod(keys, symbols)
    effect = np.concatenate((leaves.target[leaf], controls + which, controls + len(keys) + does))
    place = np.concatenate((reader, caller, place))
    strings = np.full((1 + symbols + len(string), max(1, string.shape[1])), symbols)
    strings[1 : 1 + symbols, 0] = np.arange(symbols)
    strings[1 + symbols :, : string.shape[1]] = string
    order, ends = order_of(place), np.arange(controls)
    return Ways(
        place[order],
        effect[order],
        np.concatenate((ends, called + (len(node) - nodes), target)),
        np.concatenate((0 * ends, symbol + 1, np.where((string < symbols).any(1), 1 + symbols + np.arange(len(string)), 0))),
        strings,
        np.concatenate((0 * ends + 1, 0 * symbol, 0 * target + 1)),
    ), len(every)


def within(
    ways: Ways, value: np.ndarray, most: np.ndarray, size: int, unreachable: int, deadline: Deadline
) -> tuple[Ways, int]:
    """The ways of places that take no more stack cells than each place's most, and the number of places: a called set stands
    there once for every number of cells that calls leave to it, behind all others.

    Args:
      ways: of `nested_ways`.
      value: int64[E], cells that each effect takes at least.
      most: int64[Q], without the sets; `unreachable` where all ways fit.
      size: number of places, the sets among them.
    """
    first, effects, unlimited = firsts(ways.place, size), len(ways.target), np.arange(len(most), size)
    todo = {cells: [(at := (most == cells).nonzero()[0], at)] for cells in distinct(most).tolist()}
    if unreachable in todo:
        todo[unreachable].append((unlimited, unlimited))
    kept, target, push, taken = [(first[:0], first[:0])], [ways.target], [ways.push], 0
    while todo:
        cells = max(todo)
        old, number = (np.concatenate(column) for column in zip(*todo.pop(cells)))
        which, at = ranges(first[old], first[old + 1])
        effect = ways.effect[at]
        fits = value[effect] <= cells
        which, effect = which[fits], effect[fits]
        calls = (ways.tokens[effect] == 0).nonzero()[0]
        if len(calls) and cells < unreachable:
            used, of_call = numbered(effect[calls])
            called, goal = numbered(ways.target[used])
            effect[calls] = effects + of_call
            target.append(size + goal)
            push.append(ways.push[used])
            todo.setdefault(cells - 1, []).append((called, size + np.arange(len(called))))
            effects, size = effects + len(used), size + len(called)
        kept.append((number[which], effect))
        deadline.check(_DOING)
        taken += len(effect)
        deadline.check_bytes(taken * _PART_BYTES, _DOING)
    place, effect = (np.concatenate(column) for column in zip(*kept))
    order, tokens = order_of(place), np.append(ways.tokens, np.zeros(effects - len(ways.tokens), np.int64))
    return Ways(place[order], effect[order], np.concatenate(target), np.concatenate(push), ways.string, tokens), size
