"""Token sets of the nodes of a stack walk: parts of runs put together, with the push strings on the way to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import distinct, equal_tuples, exampled, firsts, numbered, order_of
from fsa_compile.arrays.ranges import blocks, indices, joined, ranges, segment_sizes, segment_starts, spread
from fsa_compile.artifact.guards import Guards
from fsa_compile.composition.pushdown.arcs import StackArcs
from fsa_compile.composition.pushdown.default_transitions import Derived
from fsa_compile.composition.tokens.token_sets import TOKEN_BITS, Parts, joined_parts, parts_of
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "putting token sets together"
_PART_BYTES = 96
_MANY_LINKS = 100_000
"""Above this many links, runs with the same callers are looked for."""
_BLOCK = 1 << 18
"""Parts of token sets that are put together at once."""
PushString: TypeAlias = tuple[tuple[int, int], ...]


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


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Token sets of nodes with one effect each, sorted by node, target and push string; the sets of a node are disjoint.

    Attributes:
      node, target, push: int64[G].
      add: int64[G], what is added to the register of the node's frame.
      set: int64[G], register of the target's frame where something is pushed, else 0.
      hash: uint64[G].
      size: int64[G], number of tokens.
      part_offset: int64[G + 1]; group g consists of parts `part[part_offset[g]:part_offset[g + 1]]`.
      part: int64[*].
      parts: what they are.
      reduced: bool[G], whether some parts are taken away from those before them; others may follow.
      strings: push strings, bottom first, of (symbol, register of the frame it suspends); string 0 is empty. The register of
        a string's first frame is that of the node's, which is not known here: 0.
      sets: what they ask of and do to sets of keys; None where no frame has one.
    """

    node: np.ndarray
    target: np.ndarray
    push: np.ndarray
    add: np.ndarray
    set: np.ndarray
    hash: np.ndarray
    size: np.ndarray
    part_offset: np.ndarray
    part: np.ndarray
    parts: Parts
    reduced: np.ndarray
    strings: list[PushString]
    sets: GroupSets | None = None

    @cached_property
    def _some_reduced(self) -> bool:
        return bool(self.reduced.any())

    def tokens_of(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index into `group`, token) of every token of some groups that have no bit rows, in no order."""
        reduced = self.reduced[group]
        if not reduced.any():
            return self._listed(group)
        less, other = reduced.nonzero()[0], (~reduced).nonzero()[0]
        which, token = self._listed(group[other])
        less_which, less_token = self._listed(group[less])
        return np.concatenate((other[which], less[less_which])), np.concatenate((token, less_token))

    def _listed(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        which, at = ranges(self.part_offset[group], self.part_offset[group + 1])
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
        reduced = self.reduced[group]
        if not self._some_reduced or not reduced.any():
            return self._union(_taken(self.part, self.part_offset[group], self.part_offset[group + 1]), tables)
        rows = [self._less(int(g), tables) for g in group[reduced]]
        if not reduced.all():
            rows.append(self.row_of(group[~reduced], tables))
        return rows[0] if len(rows) == 1 else np.bitwise_or.reduce(rows)

    def add_to(self, rows: np.ndarray, which: np.ndarray, group: np.ndarray, tables: VocabularyTables) -> None:
        """Adds the tokens of some groups to bit rows uint32[n, W], those of group i to row `which[i]`."""
        if self._some_reduced and (reduced := self.reduced[group]).any():
            for row, g in zip(which[reduced].tolist(), group[reduced].tolist()):
                rows[row] |= self._less(g, tables)
            which, group = which[~reduced], group[~reduced]
        again, at = ranges(self.part_offset[group], self.part_offset[group + 1])
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
            rows.append(tables.pack(_taken(self.parts.token, begin, begin + (np.abs(size) if self._some_reduced else size))))
        return rows[0] if len(rows) == 1 else np.bitwise_or.reduce(rows)

    def _less(self, group: int, tables: VocabularyTables) -> np.ndarray:
        """Bit row of a group from some of whose parts tokens are taken away."""
        part = self.part[self.part_offset[group] : self.part_offset[group + 1]]
        taken = (self.parts.size[part] < 0).nonzero()[0]
        first, after = int(taken[0]), int(taken[-1]) + 1
        row = self._union(part[:first], tables) & ~self._union(part[first:after], tables)
        return row | self._union(part[after:], tables) if after < len(part) else row


class Effects:
    """The distinct effects of token sets.

    Args:
      groups: the token sets.
      kind: int64[G], which set of keys their nodes' frames have, 0 for none.

    Attributes:
      of_group: int64[G].
      target, push, add, set, kind: int64[E] each, as in `Groups`.
      strings, sets: as in `Groups`; the columns of `sets` are int64[E].
    """

    def __init__(self, groups: Groups, kind: np.ndarray) -> None:
        columns: tuple[np.ndarray, ...] = (groups.target, groups.push, groups.add, groups.set)
        if groups.sets is not None:
            columns += groups.sets.guard, groups.sets.held, groups.sets.wanted, kind
        example, self.of_group = equal_tuples(*columns)
        self.target, self.push, self.add, self.set = (column[example] for column in columns[:4])
        self.kind, self.strings, self.sets = kind[example], groups.strings, None
        if (sets := groups.sets) is not None:
            self.sets = GroupSets(sets.guards, sets.guard[example], sets.held[example], sets.wanted[example], sets.strings)


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


def groups_of(arcs: StackArcs, tables: VocabularyTables, deadline: Deadline, *, deterministic: bool) -> Groups:
    """The token sets of all nodes.

    Args:
      deterministic: whether no token has two effects in one node; if not, sets of different effects may overlap.

    Raises:
      LimitError: out of time or memory.
    """
    if deterministic and len(arcs.link_run) > _MANY_LINKS:
        arcs = _joined_runs(arcs)
    single = (arcs.owner, arcs.token, arcs.target, arcs.count)
    large = (arcs.row_owner, arcs.row_target, arcs.row_set)
    parts = joined_parts([parts_of(tables, single, large, arcs.sets), *arcs.leaves])
    paths = _paths(arcs, parts, deadline)
    first, nodes = firsts(parts.owner, arcs.num_owners), len(arcs.node_owner)
    size = first[paths.owner + 1] - first[paths.owner]
    deadline.check_bytes(int(size.sum()) * _PART_BYTES, _DOING)
    target, count, of_node = parts.target.astype(np.int32), parts.count.astype(np.int32), firsts(paths.node, nodes)
    counts = bool(count.any() or paths.add.any())

    def rows(some: slice) -> _Rows:
        part, push = joined(first[paths.owner[some]], size[some]), paths.push[some].repeat(size[some])
        none = np.broadcast_to(np.int32(0), len(part))
        out = _Rows(paths.node[some].repeat(size[some]), target[part], push, none, none, part)
        if not counts:
            return out
        own, pushed = count[part], push > 0
        return out._replace(add=np.where(pushed, paths.add[some].repeat(size[some]), own), set=np.where(pushed, own, 0))

    more, is_derived = None, np.zeros(nodes, bool)
    if len(arcs.derived.node):
        is_derived[arcs.derived.node] = True
        bases = distinct(arcs.derived.base)
        own = _joined_rows([rows(slice(of_node[base], of_node[base + 1])) for base in bases.tolist()])
        more, parts = _of_derived(arcs.derived, own, parts, tables)
    most = int(size.sum()) + (0 if more is None else len(more.part))
    deadline.check_bytes(most * _PART_BYTES, _DOING)
    if not deterministic:
        own, parts = _once(rows(slice(None)), parts, tables)
        found = iter([_grouped(own, parts, is_derived, counts)])
    else:
        every = blocks(np.bincount(paths.node, size, nodes).astype(np.int64), _BLOCK)
        each = ((some, rows(slice(of_node[some.start], of_node[min(some.stop, nodes)]))) for some in every)
        found = (_grouped(_with_derived(own, more, some), parts, is_derived, counts) for some, own in each)
    length, reduced, *columns = _put_together(found, most, deadline)
    offset = np.zeros(len(length) + 1, np.int64)
    length.cumsum(out=offset[1:])
    columns += [] if counts else [np.broadcast_to(np.int64(0), len(length))] * 2
    hashes, sizes, part, node, goal, push, add, final = columns
    return Groups(node, goal, push, add, final, hashes, sizes, offset, part, parts, reduced, paths.strings)


def _put_together(pieces: Iterator[tuple[np.ndarray, ...]], most: int, deadline: Deadline) -> list[np.ndarray]:
    """Columns of pieces, one piece after another, each of at most so many entries: memory that stays unused costs nothing."""
    out, size = list[np.ndarray](), list[int]()
    for piece in pieces:
        deadline.check(_DOING)
        out = out or [np.empty(most, column.dtype) for column in piece]
        size = size or [0 for _ in piece]
        for i, column in enumerate(piece):
            out[i][size[i] : size[i] + len(column)] = column
            size[i] += len(column)
    return [column[:n] for column, n in zip(out, size)]


class _Rows(NamedTuple):
    """Parts of token sets, which several may have.

    Attributes:
      node, target, push, add, set: int32[n], as in `Groups`.
      part: int64[n].
    """

    node: np.ndarray
    target: np.ndarray
    push: np.ndarray
    add: np.ndarray
    set: np.ndarray
    part: np.ndarray


def _joined_rows(rows: list[_Rows]) -> _Rows:
    return _Rows(*(np.concatenate(column) for column in zip(*rows)))


def _with_derived(rows: _Rows, more: _Rows | None, nodes: slice) -> _Rows:
    """The rows of some nodes, and those of derived controls among these before them."""
    if more is None:
        return rows
    at = ((more.node >= nodes.start) & (more.node < nodes.stop)).nonzero()[0]
    return _joined_rows([_Rows(*(column[at] for column in more)), rows]) if len(at) else rows


def _grouped(rows: _Rows, parts: Parts, is_derived: np.ndarray, counts: bool) -> tuple[np.ndarray, ...]:
    """(number of parts, whether some are taken away, hash, size, parts, node, target, push, and where something counts add, set)
    of token sets."""
    order, begin = _sorted(rows[:5])
    part = rows.part[order]
    length, reduced = segment_sizes(begin, len(order)), np.zeros(len(begin), bool)
    size = np.add.reduceat(parts.size[part], begin) if len(begin) else begin
    at = is_derived[rows.node[order[begin]]].nonzero()[0]
    if len(at):
        which, place = spread(begin[at], length[at])
        reduced[at[which[parts.size[part[place]] < 0]]] = True
        empty = at[size[at] <= 0]  # from which everything was taken away
        part = np.delete(part, spread(begin[empty], length[empty])[1])
        begin, length, reduced, size = (np.delete(column, empty) for column in (order[begin], length, reduced, size))
        example, begin = begin, length.cumsum() - length
    else:
        example = order[begin]
    hashes = np.add.reduceat(parts.hash[part], begin) if len(begin) else np.zeros(0, np.uint64)
    return length, reduced, hashes, size, part, *(column[example].astype(np.int64) for column in rows[: 5 if counts else 3])


def _joined_runs(arcs: StackArcs) -> StackArcs:
    """The same where runs that have the same callers are one run, which has the tokens of all of them. No token is read from a
    caller in two ways, so what is called from two such runs has no path twice."""
    is_node = np.zeros(arcs.num_owners, bool)
    is_node[arcs.node_owner] = True
    order = order_of(arcs.link_run)
    order = order[~is_node[arcs.link_run[order]]]
    run = arcs.link_run[order]
    begin = segment_starts(run)
    if not len(begin):
        return arcs
    call = mixed(arcs.link_caller) + mixed(arcs.link_count << 32 | arcs.link_symbol + 1) * np.uint64(3)
    _, example, which = exampled(np.add.reduceat(mixed(call[order]), begin))
    number = np.arange(arcs.num_owners)
    number[run[begin]] = run[begin[example]][which]
    kept = (number[arcs.link_run] == arcs.link_run).nonzero()[0]
    return dataclasses.replace(
        arcs,
        owner=number.astype(arcs.owner.dtype)[arcs.owner],
        row_owner=number[arcs.row_owner],
        link_run=arcs.link_run[kept],
        link_caller=number[arcs.link_caller[kept]],
        link_symbol=arcs.link_symbol[kept],
        link_count=arcs.link_count[kept],
        leaves=[dataclasses.replace(parts, owner=number[parts.owner]) for parts in arcs.leaves],
    )


def _of_derived(derived: Derived, rows: _Rows, parts: Parts, tables: VocabularyTables) -> tuple[_Rows, Parts]:
    """The token sets of derived controls but for their own: those of their bases, less what is lost; and the parts with what is.

    Args:
      rows: those of the bases, by node.
    """
    node, part = rows.node, rows.part
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
        part=np.concatenate((part[copied], len(parts.owner) + np.arange(len(of)))),
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
    for i in (row >= 0).nonzero()[0].tolist():
        b = int(base_of_place[i])
        mine = by_base[first[b] : first[b + 1]]
        bits = parts.rows[row[i]][token[mine] >> 5] >> (token[mine] & 31).astype(np.uint32)
        mine = mine[(bits & 1) > 0]
        out.append((owner[mine], token[mine], np.full(len(mine), place[i])))
    return tuple(np.concatenate(column) for column in zip(*out))  # type: ignore[return-value]


def _once(rows: _Rows, parts: Parts, tables: VocabularyTables) -> tuple[_Rows, Parts]:
    """Disjoint parts, one for every effect, of parts that may overlap."""
    columns, part = rows[:5], rows.part
    which, at = ranges(parts.begin[part], parts.begin[part] + parts.size[part])
    order, begin = _sorted((*(column[which] for column in columns), parts.token[at]))
    which, token = which[order[begin]], parts.token[at][order[begin]]
    order, begin = _sorted(tuple(column[which] for column in columns))
    which, token = which[order], token[order]
    columns = tuple(column[which[begin]] for column in columns)
    return _Rows(*columns, np.arange(len(begin))), Parts(
        owner=columns[0],
        target=columns[1],
        count=columns[3],
        hash=np.add.reduceat(tables.token_hash[token], begin) if len(begin) else np.zeros(0, np.uint64),
        size=segment_sizes(begin, len(token)),
        begin=begin,
        row=np.full(len(begin), -1),
        token=token.astype(np.int32),
        rows=[],
    )


def _sorted(columns: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(order of rows by the columns, the first one first; where a new row begins in it)."""
    key, room = columns[0].astype(np.int64), 1 << 62
    for column in columns[1:]:
        width = int(column.max(initial=0)) + 1
        if width == 1:
            continue
        room //= width
        if room <= int(columns[0].max(initial=0)) + 1:
            order = np.lexsort(columns[::-1])
            rows = np.stack([column[order] for column in columns])
            new = np.append(True, (rows[:, 1:] != rows[:, :-1]).any(0))[: len(order)]
            return order, new.nonzero()[0]
        key *= width
        key += column
    order = order_of(key)
    return order, segment_starts(key[order])


class _Paths(NamedTuple):
    """Ways from a node through calls to an owner that has tokens.

    Attributes:
      node, push, add, owner: int32[n], by node; `push` into `strings`, `add` to the node's frame before it is suspended.
      strings: as in `Groups`.
    """

    node: np.ndarray
    push: np.ndarray
    add: np.ndarray
    owner: np.ndarray
    strings: list[PushString]


def _paths(arcs: StackArcs, parts: Parts, deadline: Deadline) -> _Paths:
    full = np.zeros(arcs.num_owners, bool)
    full[parts.owner] = True
    useful, left = full.copy(), np.arange(len(arcs.link_run))
    while len(left):  # a run is worth following when it, or one that it calls, has tokens
        worth = useful[arcs.link_run[left]]
        if not worth.any():
            break
        useful[arcs.link_caller[left[worth]]] = True
        left = left[~worth]
    kept = useful[arcs.link_run].nonzero()[0]
    kept = kept[order_of(arcs.link_caller[kept])]
    run, symbol, count = (column[kept].astype(np.int32) for column in (arcs.link_run, arcs.link_symbol, arcs.link_count))
    first = firsts(arcs.link_caller[kept], arcs.num_owners)
    strings = _Strings()
    n = len(arcs.node_owner)
    node, push, add = np.arange(n, dtype=np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32)
    owner = arcs.node_owner.astype(np.int32)
    found = []
    while len(node):
        some = full[owner].nonzero()[0]
        found.append(tuple(column[some] for column in (node, push, add, owner)))
        deadline.check(_DOING)
        which, at = ranges(first[owner], first[owner + 1])
        deadline.check_bytes(len(at) * _PART_BYTES, _DOING)
        push = push[which]
        bottom, symbols = push == 0, symbol[at]
        add = np.where(bottom, count[at], add[which])
        called = (symbols >= 0).nonzero()[0]
        if len(called) == len(at):
            push = strings.longer(push, symbols, np.where(bottom, 0, count[at]))
        else:
            push[called] = strings.longer(push[called], symbols[called], np.where(bottom[called], 0, count[at[called]]))
        node, owner = node[which], run[at]
    node, push, add, owner = (np.concatenate(column) for column in zip(*found))
    order = node.argsort(kind="stable")  # which is fast: a few pieces, each in order
    return _Paths(node[order], push[order], add[order], owner[order], strings.all)


class _Strings:
    """Push strings by number."""

    def __init__(self) -> None:
        self.all: list[PushString] = [()]
        self._number: dict[PushString, int] = {(): 0}

    def longer(self, push: np.ndarray, symbol: np.ndarray, register: np.ndarray) -> np.ndarray:
        """Strings with one more (symbol, register) on top each."""
        if not len(push):
            return push
        wide, high = int(symbol.max()) + 1, int(register.max()) + 1
        keys, which = numbered((push.astype(np.int64) * wide + symbol) * high + register)
        out = np.empty(len(keys), np.int32)
        columns = keys // (wide * high), keys // high % wide, keys % high
        for j, (p, s, r) in enumerate(zip(*(column.tolist() for column in columns))):
            string = (*self.all[p], (s, r))
            at = self._number.get(string)
            if at is None:
                at = self._number[string] = len(self.all)
                self.all.append(string)
            out[j] = at
        return out[which]
