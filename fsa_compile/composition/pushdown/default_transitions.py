"""Controls that read nearly everything as another one does, such as those inside the key of an open object: what differs.

A *derived* control has the moves of its *base* except at some bytes. From the first of these bytes on, both are followed side
by side through the vocabulary's trie, until they come to the same control: from there on nothing differs any more. So the token
sets of a derived control are those of its base, without the tokens that were followed, and with what it does with these itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct, numbered, occupied, order_of
from fsa_compile.arrays.ranges import ranges, spread
from fsa_compile.automata.pushdown import RETURN, UNCOUNTED, ByteMachine
from fsa_compile.composition.pushdown.items import Items
from fsa_compile.composition.regular.trie_walk import with_aliases
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.subtrees import Subtrees
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_DOING = "walking the vocabulary"
_MOST_BYTES = 48
"""Bytes at which a derived control, or what it leads to, may differ."""
_MOST_STEPS = 500
"""Trie nodes at which a control may be followed beside its base; one that differs at more is walked like any other."""
_GUESSES = 4
"""Classes of bytes, those with the most tokens, that tell which base a control may have."""
_NONE = np.zeros(0, np.int64)


class Derived(NamedTuple):
    """Controls with a base. Arrays by pairs are sorted by control.

    Attributes:
      node, base: int64[D], the derived controls, ascending, and their bases, which are not derived themselves.
      lost: (control, token) int64[*] each, tokens without the effect that they have in the base, unless `record` or a walk from
        `seed` says so again.
      record: (control, token, control reached) int64[*] each, tokens that stay in the frame.
      seed: (control, trie node, control before) int64[*] each, where the walk has to go on: the trie node is read next.
      tops: (control, trie node) int64[*] each, below which every token is lost.
      wide: int64[*], uncounted controls that most tokens leave as they are; the bases are among them.
    """

    node: np.ndarray
    base: np.ndarray
    lost: tuple[np.ndarray, np.ndarray]
    record: tuple[np.ndarray, np.ndarray, np.ndarray]
    seed: tuple[np.ndarray, np.ndarray, np.ndarray]
    tops: tuple[np.ndarray, np.ndarray]
    wide: np.ndarray


NONE_DERIVED = Derived(_NONE, _NONE, (_NONE, _NONE), (_NONE, _NONE, _NONE), (_NONE, _NONE, _NONE), (_NONE, _NONE), _NONE)


def derived_controls(machine: ByteMachine, tables: VocabularyTables, deadline: Deadline) -> Derived:
    """The controls that are worth deriving, and what they do differently.

    Args:
      machine: a deterministic one; others have none.

    Raises:
      LimitError: out of time.
    """
    if not machine.deterministic:
        return NONE_DERIVED
    moves = _Moves(machine)
    node, base, wide = _pairs(machine, moves, tables)
    found = _Lockstep(machine, moves, tables, deadline).followed(node, base) if len(node) else NONE_DERIVED
    return found._replace(wide=wide)


class _Moves:
    """What controls do, by action.

    Attributes:
      action: int32[S, C], of the machine.
      plain: int64[A], the next control where only the control changes, 0 where nothing is read, -1 where more happens.
      returns: bool[A].
    """

    def __init__(self, machine: ByteMachine) -> None:
        self.action, self.plain = machine.action, _plain_moves(machine)
        offset = machine.entry_offset
        some = np.diff(offset) > 0
        self.returns = np.zeros(len(some), bool)
        self.returns[some] = machine.entry_next[offset[:-1][some]] == RETURN

    def differ(self, own: np.ndarray, other: np.ndarray) -> np.ndarray:
        """bool[n, C], where two controls each do not do the same; if they return, it matters which control returns."""
        mine = self.action[own]
        return (mine != self.action[other]) | (self.returns[mine] & (own != other)[:, None])


def _plain_moves(machine: ByteMachine) -> np.ndarray:
    """int64[A], the next control where only the control changes, 0 where nothing is read, -1 where more happens."""
    offset = machine.entry_offset
    some = np.diff(offset) > 0
    at = offset[:-1][some]
    only = (machine.entry_push[at] == 0) & (machine.entry_add[at] == 0)
    if machine.sets is not None:
        only &= machine.sets.entry[at] == 0
    following = np.where(only, machine.entry_next[at], -1)
    goal = np.zeros(len(some), np.int64)
    goal[some] = np.where(following > 0, following, -1)
    return goal


def _pairs(machine: ByteMachine, moves: _Moves, tables: VocabularyTables) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(control, base) of those that may be derived, and the controls that may be bases: most tokens leave them as they are."""
    kind, size = machine.byte_class[:256], machine.num_controls
    weight = np.bincount(kind, tables.weight, machine.action.shape[1])
    control, symbol, action = machine.cells
    same = (moves.plain[action] == control).nonzero()[0]
    is_base = np.bincount(control[same], weight[symbol[same]], size) > weight.sum() / 2
    is_base[0] = False
    uncounted = machine.bounds[:, 0] == UNCOUNTED
    base = np.zeros(size, np.int64)
    for k in np.argsort(-weight)[:_GUESSES].tolist():
        goal = np.maximum(moves.plain[machine.action[:, k]], 0)
        base = np.where((base == 0) & is_base[goal], goal, base)
    node = (base != np.arange(len(base))).nonzero()[0]
    node = node[(base[node] > 0) & uncounted[node] & uncounted[base[node]] & ~is_base[node]]
    differs = moves.differ(node, base[node])
    number = differs @ np.bincount(kind, minlength=machine.action.shape[1])
    fits = (number <= _MOST_BYTES) & ~differs[:, machine.byte_class[256:]].any(1)
    node = node[fits]
    node = node[~_continued(machine, moves, node, base[node])]
    return node, base[node], (is_base & uncounted).nonzero()[0]


def _continued(machine: ByteMachine, moves: _Moves, node: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Which controls go on from others that are neither derived nor their base, at many bytes: bool[n].

    Such are the last ones of a chain, as of the first characters of a string with a least length. If they were derived, the walk
    of the chain would have to stop before them, in most tokens.
    """
    out = np.zeros(len(node), bool)
    if not len(node):
        return out
    size, controls = np.bincount(machine.byte_class[:256], minlength=machine.action.shape[1]), machine.num_controls
    of_base = np.zeros(controls, np.int64)
    of_base[node] = base
    at, column, action = machine.cells
    goal = np.maximum(moves.plain[action], 0)
    other = (of_base[goal] > 0) & (of_base[at] == 0) & (at != of_base[goal])
    at, goal, column = at[other], goal[other], column[other]
    pair, which = numbered(at * controls + goal)
    many = np.bincount(which, size[column], len(pair)) > _MOST_BYTES
    out[node.searchsorted(distinct(pair[many] % controls))] = True
    return out


class _Lockstep:
    """Follows controls and their bases side by side."""

    def __init__(self, machine: ByteMachine, moves: _Moves, tables: VocabularyTables, deadline: Deadline) -> None:
        self._moves, self._tables, self._deadline = moves, tables, deadline
        self._steps = np.zeros(machine.num_controls, np.int64)
        self._kind = machine.byte_class[:256].astype(np.int64)
        self._by_kind = self._kind.argsort(kind="stable")
        self._kind_size = np.bincount(self._kind, minlength=machine.action.shape[1])
        self._kind_first = self._kind_size.cumsum() - self._kind_size
        self._lost: list[tuple[np.ndarray, np.ndarray]] = []
        self._record: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._seed: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._tops: list[tuple[np.ndarray, np.ndarray]] = []
        self._rejected = [_NONE]

    def followed(self, node: np.ndarray, base: np.ndarray) -> Derived:
        owner, above, own, other = node, np.zeros(len(node), np.int64), node, base
        while len(owner):
            self._deadline.check(_DOING)
            owner, above, own, other = self._level(owner, above, own, other)
        rejected = distinct(np.concatenate(self._rejected))
        kept = ~np.isin(node, rejected)
        lost = self._lost_tokens(rejected)
        tops = _sorted(self._tops, 2, rejected)
        record, seed = _sorted(self._record, 3, rejected), _sorted(self._seed, 3, rejected)
        return Derived(node[kept], base[kept], lost, record, seed, tops, _NONE)  # type: ignore[arg-type]

    def _lost_tokens(self, rejected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lost tokens, once each, with all ids that write the same bytes."""
        tables = self._tables
        owner, token = with_aliases(tables, *_sorted(self._lost, 2, rejected))
        key = distinct(owner * tables.vocab_size + token)
        return key // tables.vocab_size, key % tables.vocab_size

    def _level(
        self, owner: np.ndarray, above: np.ndarray, own: np.ndarray, other: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One byte more.

        Args:
          owner: derived controls.
          above: trie nodes read so far.
          own, other: the controls that the owner and its base have come to, 0 for none.
        """
        which, byte = self._differing(owner, own, other)
        which, child = self._children(above[which], byte, which)
        self._steps += np.bincount(owner[which], minlength=len(self._steps))
        far = self._steps > _MOST_STEPS
        if far.any():
            self._rejected.append(far.nonzero()[0])
            kept = ~far[owner[which]]
            which, child = which[kept], child[kept]
        kind = self._kind[self._tables.trie_byte[child]]
        owner, before = owner[which], own[which]
        action, plain = self._moves.action, self._moves.plain
        own, other = plain[action[before, kind]], plain[action[other[which], kind]]
        on = (own != other) | (own < 0)
        owner, child, before, own, other = owner[on], child[on], before[on], own[on], other[on]
        leaves = (own < 0) | (other < 0)
        walks = (own < 0) | ((own > 0) & (other <= 0))
        self._seed.append((owner[walks], child[walks], before[walks]))
        token = self._tables.trie_token[child]
        ends = token >= 0
        self._lost.append((owner[ends], token[ends]))
        ends &= ~walks & (own > 0)
        self._record.append((owner[ends], token[ends], own[ends]))
        self._lose_below(owner[leaves], child[leaves])
        on = ~walks & ((own > 0) | (other > 0)) & ~leaves
        return owner[on], child[on], own[on], other[on]

    def _differing(self, owner: np.ndarray, own: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(item, byte) where two controls differ; owners with too many such bytes are given up."""
        item, kind = occupied(self._moves.differ(own, other))
        count = self._kind_size[kind]
        many = (np.bincount(item, count, len(own)) > _MOST_BYTES)
        self._rejected.append(owner[many])
        kept = ~many[item]
        item, kind, count = item[kept], kind[kept], count[kept]
        which, at = spread(self._kind_first[kind], count)
        return item[which], self._by_kind[at]

    def _children(self, above: np.ndarray, byte: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(item, child) of the trie nodes that have a child with the byte."""
        keys = self._tables.trie_key
        wanted = above * 256 + byte
        at = keys.searchsorted(wanted)
        found = (keys[np.minimum(at, len(keys) - 1)] == wanted).nonzero()[0]
        return which[found], at[found] + 1

    def _lose_below(self, owner: np.ndarray, node: np.ndarray) -> None:
        """All tokens below some trie nodes are lost to their owners."""
        below = self._tables.subtrees
        self._tops.append((owner, node))
        if not len(node):
            return
        which, at = ranges(below.begin[node], below.end[node])
        self._lost.append((owner[which], below.token[at]))


def _sorted(parts: Sequence[tuple[np.ndarray, ...]], width: int, rejected: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns of all parts, by control, without those that were given up."""
    columns = [np.concatenate([part[i] for part in parts]) for i in range(width)]
    if len(rejected):
        keep = ~np.isin(columns[0], rejected)
        columns = [column[keep] for column in columns]
    order = order_of(columns[0])
    return tuple(column[order] for column in columns)


def derived_pending(derived: Derived, pending: Items, below: Subtrees) -> Items:
    """What is pending in derived controls: what is pending in their bases, except below what they do differently.

    Args:
      derived: controls with bases.
      pending: all that is pending.
      below: of the vocabulary's trie.
    """
    pending = pending.at(order_of(pending.owner))
    first = pending.owner.searchsorted(derived.base)
    which, at = ranges(first, pending.owner.searchsorted(derived.base, side="right"))
    node = pending.node[at]
    owner, top = derived.tops
    begin = owner.searchsorted(derived.node)
    count = owner.searchsorted(derived.node, side="right") - begin
    pair = np.repeat(np.arange(len(which)), count[which])
    number = np.arange(len(pair)) - (count[which].cumsum() - count[which])[pair]
    over, under = top[begin[which[pair]] + number], np.minimum(node[pair], len(below.begin) - 1)
    lost = np.zeros(len(which), bool)
    lost[pair[below.holds(over, under) & (node[pair] < len(below.begin))]] = True
    keep = (~lost).nonzero()[0]
    return pending.at(at[keep])._replace(owner=derived.node[which[keep]])
