"""Token sets of the nodes of a stack walk: parts of runs put together, with the push strings on the way to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct, equal_tuples, firsts, numbered, occupied, order_of, ordered, sorted_rows
from fsa_compile.arrays.ranges import blocks, indices, joined, ranges, segment_sizes, segment_starts, spread
from fsa_compile.artifact.guards import Guards
from fsa_compile.composition.pushdown.arcs import StackArcs
from fsa_compile.composition.pushdown.call_sets import CallSets, Leaves, PushStrings, Strings, called_sets, leaves_of
from fsa_compile.composition.pushdown.default_transitions import Derived
from fsa_compile.composition.tokens.token_sets import TOKEN_BITS, Parts
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "putting token sets together"
_PART_BYTES = 96
_BLOCK = 1 << 15
"""Parts of token sets that are put together at once: so many stay in the cache."""
_MOST_BITS = 63


class GroupSets(NamedTuple):
    """The sets of keys in the effects of token sets; see `guarded_groups`.

    Attributes:
      guards: by number.
      guard: int64[G], guard of each token set, on the set of its node's frame.
      held: int64[G], guard whose change is the set of the target's frame, where something is pushed.
      wanted: bool[G], whether some required key may come next at the target, which has not come yet.
      strings: of each push string, guards whose changes are the sets of the suspended frames; the first one's is not known: 0.
    """

    guards: Guards
    guard: np.ndarray
    held: np.ndarray
    wanted: np.ndarray
    strings: list[tuple[int, ...]]


class EffectTable(NamedTuple):
    """Effects, by target, then by push string, then by what they do to registers.

    Attributes:
      target, push: int64[E].
      add: int64[E], what is added to the register of the node's frame.
      set: int64[E], register of the target's frame where something is pushed, else 0.
    """

    target: np.ndarray
    push: np.ndarray
    add: np.ndarray
    set: np.ndarray

    def at(self, index: np.ndarray) -> EffectTable:
        return EffectTable(*(column[index] for column in self))

    @classmethod
    def of(cls, *columns: np.ndarray) -> tuple[EffectTable, np.ndarray]:
        """(the distinct ones, int64[n], the number of each) of columns with an entry for every token set."""
        example, number = equal_tuples(*columns)
        return cls(*columns).at(example), number


_WHOLE = 16
"""Bit rows that are kept for others to be taken from."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Groups:
    """Token sets of nodes with one effect each, sorted by node and effect, or by node and leaf; the sets of a node are disjoint.

    Attributes:
      node: integers [G], of 32 bits where nothing is counted, as the next two.
      effect: integers [G], into `effects`, of which some may be no set's.
      leaf: integers [G], which parts a group consists of; many groups have the same ones.
      part_offset: int64[L + 1]; leaf i has the parts `part[part_offset[i]:part_offset[i + 1]]`.
      part: int64[*].
      parts: what they are.
      leaf_hash, leaf_size: uint64[L], int64[L], of the tokens of each leaf, and their number.
      leaf_reduced: bool[L], whether some parts are taken away from those before them; others may follow.
      strings: push strings, bottom first, of (symbol, register of the frame it suspends); string 0 is empty. The register of
        a string's first frame is that of the node's, which is not known here: 0.
      first: int64[N + 1], where those of each node begin.
      sets: what they ask of and do to sets of keys; None where no frame has one.
      nested: what the nodes read and call, but those of derived controls; None where registers change.
    """

    node: np.ndarray
    effect: np.ndarray
    effects: EffectTable
    leaf: np.ndarray
    part_offset: np.ndarray
    part: np.ndarray
    parts: Parts
    leaf_hash: np.ndarray
    leaf_size: np.ndarray
    leaf_reduced: np.ndarray
    strings: PushStrings
    first: np.ndarray
    sets: GroupSets | None = None
    nested: tuple[CallSets, Leaves] | None = None

    def with_effects(self, add: np.ndarray, final: np.ndarray, strings: PushStrings) -> Groups:
        """The same with other additions, settings and push strings."""
        own = self.effects.at(self.effect)
        effects, effect = EffectTable.of(own.target, own.push, add, final)
        return dataclasses.replace(self, effect=effect, effects=effects, strings=strings)

    @cached_property
    def goal(self) -> np.ndarray:
        """int64[E], of every effect a number of its target and push string; effects are sorted by these."""
        new = np.zeros(len(self.effects.push), bool)
        for column in self.effects[:2]:
            new[1:] |= column[1:] != column[:-1]
        return new.cumsum()

    @cached_property
    def hash(self) -> np.ndarray:
        """uint64[G]."""
        return self.leaf_hash[self.leaf]

    @cached_property
    def size(self) -> np.ndarray:
        """int64[G], number of tokens."""
        return self.leaf_size[self.leaf]

    @cached_property
    def some_reduced(self) -> bool:
        """Whether any leaf is reduced."""
        return bool(self.leaf_reduced.any())

    @cached_property
    def _whole(self) -> dict[bytes, np.ndarray]:
        """Bit rows from which tokens are taken away, by their parts: most derived controls have one of a few bases."""
        return {}

    def tokens_of(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`tokens_of_leaves` of some groups."""
        return self.tokens_of_leaves(self.leaf[group])

    def tokens_of_leaves(self, leaf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index into `leaf`, token) of every token of some leaves that have no bit rows, in no order."""
        reduced = self.leaf_reduced[leaf]
        if not reduced.any():
            return self._listed(leaf)
        less, other = reduced.nonzero()[0], (~reduced).nonzero()[0]
        which, token = self._listed(leaf[other])
        less_which, less_token = self._listed(leaf[less])
        return np.concatenate((other[which], less[less_which])), np.concatenate((token, less_token))

    def _listed(self, leaf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        which, at = ranges(self.part_offset[leaf], self.part_offset[leaf + 1])
        part = self.part[at]
        size = self.parts.size[part]
        again, token = ranges(self.parts.begin[part], self.parts.begin[part] + np.abs(size))
        which, token = which[again], self.parts.token[token]
        taken = size < 0
        if not taken.any():
            return which, token
        key = (which << TOKEN_BITS | token) << 1 | ~taken[again]
        key.sort()
        begin = segment_starts(key >> 1)
        left = begin[np.add.reduceat((key & 1) * 2 - 1, begin) > 0]
        return key[left] >> 1 + TOKEN_BITS, key[left] >> 1 & (1 << TOKEN_BITS) - 1

    def row_of(self, group: np.ndarray, tables: VocabularyTables) -> np.ndarray:
        """Bit row of the tokens of some groups."""
        leaf = self.leaf[group]
        if not self.some_reduced or not (reduced := self.leaf_reduced[leaf]).any():
            return self._union(_taken(self.part, self.part_offset[leaf], self.part_offset[leaf + 1]), tables)
        rows = [self._less(int(g), tables) for g in group[reduced]]
        if not reduced.all():
            rows.append(self.row_of(group[~reduced], tables))
        return rows[0] if len(rows) == 1 else np.bitwise_or.reduce(rows)

    def add_to(self, rows: np.ndarray, which: np.ndarray, group: np.ndarray, tables: VocabularyTables) -> None:
        """Adds the tokens of some groups to bit rows uint32[n, W], those of group i to row `which[i]`."""
        if self.some_reduced and (reduced := self.leaf_reduced[self.leaf[group]]).any():
            for row, g in zip(which[reduced].tolist(), group[reduced].tolist()):
                rows[row] |= self._less(g, tables)
            which, group = which[~reduced], group[~reduced]
        leaf = self.leaf[group]
        again, at = ranges(self.part_offset[leaf], self.part_offset[leaf + 1])
        which, part = which[again], self.part[at]
        if self.parts.rows:
            of_part = self.parts.row[part]
            for row, r in zip(which[of_part >= 0].tolist(), of_part[of_part >= 0].tolist()):
                rows[row] |= self.parts.rows[r]
            which, part = which[of_part < 0], part[of_part < 0]
        again, at = spread(self.parts.begin[part], self.parts.size[part])
        tables.add_to(rows, which[again], self.parts.token[at])

    def _union(self, part: np.ndarray, tables: VocabularyTables) -> np.ndarray:
        rows = list[np.ndarray]()
        if self.parts.rows:
            row = self.parts.row[part]
            rows += [self.parts.rows[r] for r in row[row >= 0].tolist()]
            part = part[row < 0]
        if len(part) or not rows:
            begin, size = self.parts.begin[part], self.parts.size[part]
            rows.append(tables.pack(_taken(self.parts.token, begin, begin + (np.abs(size) if self.some_reduced else size))))
        return rows[0] if len(rows) == 1 else np.bitwise_or.reduce(rows)

    def _less(self, group: int, tables: VocabularyTables) -> np.ndarray:
        """Bit row of a group from some of whose parts tokens are taken away."""
        leaf = self.leaf[group]
        part = self.part[self.part_offset[leaf] : self.part_offset[leaf + 1]]
        taken = (self.parts.size[part] < 0).nonzero()[0]
        first, after = int(taken[0]), int(taken[-1]) + 1
        key = part[:first].tobytes()
        whole = self._whole.get(key)
        if whole is None:
            if len(self._whole) >= _WHOLE:
                self._whole.clear()
            whole = self._whole[key] = self._union(part[:first], tables)
        row = whole & ~self._union(part[first:after], tables)
        return row | self._union(part[after:], tables) if after < len(part) else row


class Effects:
    """The distinct effects of token sets, told apart by sets of keys as well.

    Args:
      groups: the token sets.
      kind: int64[N], which set of keys the frame of each node has, 0 for none.

    Attributes:
      of_group: int64[G].
      target, push, add, set, kind: int64[E] each; no `kind` where there are no sets.
      strings, sets: as in `Groups`; the columns of `sets` are int64[E].
    """

    def __init__(self, groups: Groups, kind: np.ndarray) -> None:
        table, self.of_group, self.kind, self.sets = groups.effects, groups.effect, kind[:0], None
        if (sets := groups.sets) is not None:
            kind = kind[groups.node]
            example, self.of_group = equal_tuples(groups.effect, sets.guard, sets.held, sets.wanted, kind)
            table, self.kind = table.at(groups.effect[example]), kind[example]
            self.sets = GroupSets(sets.guards, sets.guard[example], sets.held[example], sets.wanted[example], sets.strings)
        (self.target, self.push, self.add, self.set), self.strings = table, groups.strings


_FEW = 12
"""So many pieces are joined one by one."""


def _taken(values: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The values of every range, one range after the other."""
    if len(begin) == 1:
        return values[begin.item() : end.item()]
    if len(begin) > _FEW:
        return values[indices(begin, end)]
    pieces = [values[b:e] for b, e in zip(begin.tolist(), end.tolist())]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces) if pieces else values[:0]


def groups_of(
    arcs: StackArcs, parts: Parts, sets: CallSets, tables: VocabularyTables, deadline: Deadline, *, deterministic: bool,
    by_leaf: bool,
) -> Groups:  # fmt: skip
    """The token sets of all nodes.

    Args:
      parts, sets: of `parts_and_calls`.
      deterministic: whether no token has two effects in one node; if not, sets of different effects may overlap.
      by_leaf: whether those of a node are sorted by their leaves, of which equal ones are then one, not by their effects; only
        where it is deterministic.

    Raises:
      LimitError: out of time or memory.
    """
    ways = _Ways(arcs, parts, sets, deadline)
    offset, part = ways.leaves.offset, ways.leaves.part
    more, is_derived = None, np.zeros(len(arcs.node_owner), bool)
    if not deterministic:
        own, parts = _once(_in_parts(ways.rows(slice(0, len(is_derived))), offset, part), ways.effects, parts, tables)
        offset, part = np.arange(len(parts.owner) + 1), np.arange(len(parts.owner))
        most, found = len(part), iter([_Rows(*sorted_rows(*own))])
    else:
        if len(arcs.derived.node):
            is_derived[arcs.derived.node] = True
            more, parts, (offset, part) = _of_derived(arcs.derived, ways, parts, tables)
        if by_leaf:
            kind, offset, part = Leaves.distinct(offset, part, parts)
            more = more if more is None else more._replace(leaf=kind[more.leaf])
            ways.sort_by_leaf(kind)
        most = int(ways.size.sum()) + (0 if more is None else len(more.leaf))
        every = blocks(ways.size, _BLOCK)
        found = (ways.in_order(some, _within(more, some), is_derived) for some in every)
    deadline.check_bytes(most * _PART_BYTES, _DOING)
    node, effect, leaf = _put_together(found, most, np.int64 if ways.counts else np.int32, deadline)
    hashes, sizes, reduced = parts.hash[:0], parts.size[:0], is_derived[:0]
    if len(part):
        hashes, sizes = (np.add.reduceat(column[part], offset[:-1]) for column in (parts.hash, parts.size))
        reduced = np.minimum.reduceat(parts.size[part], offset[:-1]) < 0
    nested = None if ways.counts else (ways.sets, ways.leaves)
    of_leaves = offset, part, parts, hashes, sizes, reduced
    first = np.append(0, ways.size.cumsum()) if deterministic and more is None else firsts(node, len(is_derived))
    return Groups(node, effect, ways.effects, leaf, *of_leaves, ways.strings, first, nested=nested)


def _put_together(pieces: Iterator[_Rows], most: int, dtype: type[np.signedinteger[Any]], deadline: Deadline) -> _Rows:
    """Columns of pieces, one after another, of at most so many entries in all: memory that stays unused costs nothing."""
    out, size = [np.empty(0, dtype)] * 3, 0
    for piece in pieces:
        deadline.check(_DOING)
        out = out if size else [np.empty(most, dtype) for _ in piece]
        for column, values in zip(out, piece):
            column[size : size + len(values)] = values
        size += len(piece[0])
    return _Rows(*(column[:size] for column in out))


class _Rows(NamedTuple):
    """Token sets of nodes.

    Attributes:
      node, effect: int64[n], as in `Groups`.
      leaf: int64[n], which parts they consist of, or one part.
    """

    node: np.ndarray
    effect: np.ndarray
    leaf: np.ndarray


def _joined_rows(*rows: _Rows) -> _Rows:
    return _Rows(*(np.concatenate(column) for column in zip(*rows)))


def _in_parts(rows: _Rows, offset: np.ndarray, part: np.ndarray) -> _Rows:
    """Rows of single parts, from rows of leaves."""
    which, at = ranges(offset[rows.leaf], offset[rows.leaf + 1])
    return _Rows(*(column[which] for column in rows))._replace(leaf=part[at])


def _within(rows: _Rows | None, nodes: slice) -> _Rows | None:
    """The rows of some nodes, if there are any."""
    if rows is None or not len(at := ((rows.node >= nodes.start) & (rows.node < nodes.stop)).nonzero()[0]):
        return None
    return _Rows(*(column[at] for column in rows))


def _of_derived(
    derived: Derived, ways: _Ways, parts: Parts, tables: VocabularyTables
) -> tuple[_Rows, Parts, tuple[np.ndarray, np.ndarray]]:
    """The token sets of derived controls, by leaves of their own; all parts; and the (offset, part) of all leaves."""
    offset, part = ways.leaves.offset, ways.leaves.part
    own, bases = (_in_parts(ways.rows(distinct(nodes)), offset, part) for nodes in (derived.node, derived.base))
    by_node = order_of(bases.node)
    more, parts = _of_bases(derived, _Rows(*(column[by_node] for column in bases)), parts, tables)
    rows = _joined_rows(more, own)
    order, begin = ordered(rows[:2])
    added, length = rows.leaf[order], segment_sizes(begin, len(order))
    empty = (np.add.reduceat(parts.size[added], begin) <= 0).nonzero()[0]  # from which everything was taken away
    example = np.delete(order[begin], empty)
    added, length = np.delete(added, joined(begin[empty], length[empty])), np.delete(length, empty)
    found = _Rows(*(column[example] for column in rows))._replace(leaf=len(offset) - 1 + np.arange(len(length)))
    return found, parts, (np.concatenate((offset, offset[-1] + length.cumsum())), np.concatenate((part, added)))


def _of_bases(derived: Derived, rows: _Rows, parts: Parts, tables: VocabularyTables) -> tuple[_Rows, Parts]:
    """The parts of derived controls but for their own: those of their bases, less what is lost; and all parts with what is.

    Args:
      rows: the parts of the bases, by node.
    """
    node, part = rows.node, rows.leaf
    begin, end = (node.searchsorted(derived.base, side=side) for side in ("left", "right"))
    which, copied = ranges(begin, end)
    owner, token, of = _lost(derived, node, part, parts, tables)
    key = owner * len(part) + of
    by_set = order_of(key)
    first = segment_starts(key[by_set])
    owner, token, of = owner[by_set[first]], token[by_set], of[by_set[first]]
    taken = Parts(
        owner=derived.node[owner],
        target=parts.target[part[of]],
        count=parts.count[part[of]],
        hash=np.uint64(0) - np.add.reduceat(tables.token_hash[token], first) if len(first) else np.zeros(0, np.uint64),
        size=first - np.append(first[1:], len(token)),
        begin=len(parts.token) + first,
        row=np.full(len(first), -1),
        token=token.astype(np.int32),
        rows=[],
    )
    both = _Rows(*(np.concatenate((column[copied], column[of])) for column in rows))
    names = ("owner", "target", "count", "hash", "size", "begin", "row", "token")
    more = {name: np.concatenate([getattr(parts, name), getattr(taken, name)]) for name in names}
    return both._replace(
        node=np.concatenate((derived.node[which], taken.owner)),
        leaf=np.concatenate((part[copied], len(parts.owner) + np.arange(len(of)))),
    ), Parts(**more, rows=parts.rows)


def _lost(
    derived: Derived, node: np.ndarray, part: np.ndarray, parts: Parts, tables: VocabularyTables
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(index of a derived control, token, place in `part`) of every token that is lost, where its base has it.

    Args:
      node, part: of the bases, by node.
    """
    bases, base_of = numbered(derived.base)
    owner = derived.node.searchsorted(derived.lost[0])
    token, base = derived.lost[1], base_of[owner]
    base_of_place, place = ranges(*(node.searchsorted(bases, side=side) for side in ("left", "right")))
    row = parts.row[part[place]]
    listed = (row < 0).nonzero()[0]
    begin = parts.begin[part[place[listed]]]
    which, at = ranges(begin, begin + parts.size[part[place[listed]]])
    size = tables.vocab_size
    keys = base_of_place[listed[which]] * size + parts.token[at]
    sort = order_of(keys)
    keys, of = keys[sort], place[listed[which[sort]]]
    wanted = base * size + token
    at = np.minimum(keys.searchsorted(wanted), max(len(keys) - 1, 0))
    found = (keys[at] == wanted).nonzero()[0] if len(keys) else at[:0]
    out = [(owner[found], token[found], of[at[found]])]
    by_base = order_of(base)
    first = base[by_base].searchsorted(np.arange(len(bases) + 1))
    large = (row >= 0).nonzero()[0]
    begin = segment_starts(base_of_place[large])
    for some in map(slice, begin.tolist(), [*begin[1:].tolist(), len(large)]):
        b = int(base_of_place[large[some.start]])
        mine = by_base[first[b] : first[b + 1]]
        word, bit = token[mine] >> 5, (token[mine] & 31).astype(np.uint32)
        which, at = occupied(np.stack([parts.rows[r][word] for r in row[large[some]].tolist()]) >> bit & 1)
        out.append((owner[mine[at]], token[mine[at]], place[large[some][which]]))
    return tuple(np.concatenate(column) for column in zip(*out))  # type: ignore[return-value]


def _once(rows: _Rows, effects: EffectTable, parts: Parts, tables: VocabularyTables) -> tuple[_Rows, Parts]:
    """Disjoint parts, one for every effect, of single parts that may overlap."""
    columns, part = rows[:2], rows.leaf
    which, at = ranges(parts.begin[part], parts.begin[part] + parts.size[part])
    order, begin = ordered((*(column[which] for column in columns), parts.token[at]))
    which, token = which[order[begin]], parts.token[at][order[begin]]
    order, begin = ordered(tuple(column[which] for column in columns))
    which, token = which[order], token[order]
    columns = tuple(column[which[begin]] for column in columns)
    return _Rows(*columns, np.arange(len(begin))), Parts(
        owner=columns[0],
        target=effects.target[columns[1]],
        count=effects.add[columns[1]],
        hash=np.add.reduceat(tables.token_hash[token], begin) if len(begin) else np.zeros(0, np.uint64),
        size=segment_sizes(begin, len(token)),
        begin=begin,
        row=np.full(len(begin), -1),
        token=token.astype(np.int32),
        rows=[],
    )


class _Ways:
    """Ways from nodes to token sets.

    Attributes:
      sets, leaves: what they go through, and what the token sets consist of.
      size: int64[N], how many token sets each node has.
      counts: whether registers change.
      effects, strings: as in `Groups`.
    """

    def __init__(self, arcs: StackArcs, parts: Parts, sets: CallSets, deadline: Deadline) -> None:
        n, strings = len(arcs.node_owner), Strings()
        self.sets, self.leaves = sets, (leaves := leaves_of(sets, parts, arcs.num_owners))
        called, of_call = called_sets(sets, leaves, strings, deadline)
        calls = (sets.above < n).nonzero()[0]
        order = order_of(sets.above[calls])
        self._above, self._of_call = sets.above[calls[order]], of_call[order]
        self._own, self._calls = firsts(leaves.set, sets.size)[: n + 1], firsts(self._above, n)
        self._called = called.size
        upto = np.append(0, self._called[self._of_call].cumsum())
        self.size = np.diff(self._own) + np.diff(upto[self._calls])
        self.counts = bool(parts.count.any() or sets.register.any())
        self.strings = strings.all
        deadline.check_bytes(int(self._called.sum()) * _PART_BYTES, _DOING)
        # The token sets of nodes themselves, and behind them those of all distinct calls, however many nodes make these.
        own = self._own[-1]
        self._first = own + self._called.cumsum() - self._called
        target, none = np.concatenate((leaves.target[:own], called.target)), np.zeros(own, np.int64)
        add = np.concatenate((leaves.register[:own], called.under))
        rest = map(np.append, (none, add, none), (called.string, add[:0], called.register))
        self.effects, effect = EffectTable.of(target, *rest)
        # An effect and a leaf are one number, so that one array is read at random, and a sort carries both.
        self._room, self._by_leaf = len(self.leaves.offset).bit_length(), False
        self._wide = len(self.effects.target).bit_length()
        effect <<= self._room
        self._code = code = np.empty(own + int(called.size.sum()), np.int64)
        np.bitwise_or(effect[:own], np.arange(own), out=code[:own])
        effect, done = effect[own:], own
        for some in blocks(called.size, _BLOCK):
            at = joined(called.begin[some], size := called.size[some])
            here = code[done : (done := done + len(at))]
            np.bitwise_or(effect.take(at), called.leaf.take(joined(called.first[some], size)), out=here)

    def sort_by_leaf(self, kind: np.ndarray) -> None:
        """From now on, token sets are sorted by leaf; what is said of each leaf stands for it."""
        leaf = kind.take(self._code & (1 << self._room) - 1)
        leaf <<= self._wide
        self._code >>= self._room
        self._code |= leaf
        self._room, self._wide, self._by_leaf = self._wide, int(kind.max(initial=0)).bit_length(), True

    def in_order(self, nodes: slice, derived: _Rows | None, is_derived: np.ndarray) -> _Rows:
        """The token sets of some nodes by node, then by effect or leaf; those of derived controls are found already."""
        if derived is not None or (nodes.stop - nodes.start).bit_length() + self._wide + self._room > _MOST_BITS:
            rows = self.rows(nodes)
            if derived is not None:
                own = (~is_derived[rows.node]).nonzero()[0]
                rows = _joined_rows(derived, _Rows(*(column[own] for column in rows)))
            return self._rows(*sorted_rows(*self._rows(*rows)))
        key = self._keys(nodes)
        key.sort()
        low = key & (1 << self._room) - 1
        key >>= self._room
        key &= (1 << self._wide) - 1
        return self._rows(np.arange(nodes.start, nodes.stop).repeat(self.size[nodes]), key, low)

    def rows(self, nodes: slice | np.ndarray) -> _Rows:
        """The token sets of some nodes."""
        nodes = np.arange(nodes.start, nodes.stop) if isinstance(nodes, slice) else nodes
        own, calls = (indices(first[nodes], first[nodes + 1]) for first in (self._own, self._calls))
        at = joined(self._first[call := self._of_call[calls]], size := self._called[call])
        node = np.concatenate((self.leaves.set[own], self._above[calls].repeat(size)))
        code = np.concatenate((self._code[own], self._code.take(at)))
        return self._rows(node, code >> self._room, code & (1 << self._room) - 1)

    def _rows(self, node: np.ndarray, high: np.ndarray, low: np.ndarray) -> _Rows:
        return _Rows(node, low, high) if self._by_leaf else _Rows(node, high, low)

    def _keys(self, nodes: slice) -> np.ndarray:
        """Nodes from the first of some on, with the number of effect and leaf, of each of their token sets."""
        own, calls = (slice(first[nodes.start], first[nodes.stop]) for first in (self._own, self._calls))
        call, shift, size = self._of_call[calls], self._wide + self._room, int(own.stop - own.start)
        of_own, of_call = ((of - nodes.start) << shift for of in (self.leaves.set[own], self._above[calls]))
        at = joined(self._first[call], called := self._called[call])
        key = np.empty(size + len(at), np.int64)
        np.bitwise_or(of_own, self._code[own], out=key[:size])
        self._code.take(at, out=key[size:], mode="clip")  # other modes take by way of a copy
        key[size:] |= of_call.repeat(called)
        return key
