"""What the token walk of a machine with a stack works on: the trie, what is still to be read, and the machine's moves."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import exampled
from fsa_compile.arrays.ranges import segment_starts
from fsa_compile.artifact.guards import Guards
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.pushdown.counter_classes import Registers
from fsa_compile.composition.pushdown.links import Links, Returns
from fsa_compile.errors import ConstraintError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.memo import remember
from fsa_compile.vocabulary.subtrees import kinds_read, levels
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


class Trie(NamedTuple):
    """The vocabulary's trie with nodes for the end of the text and for special tokens, which have no byte.

    Attributes:
      first, children: int32[T'], first child and number of children.
      symbol: int32[T'], byte, or 256 + i for special token i; -1 for the end of the text and the root.
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

    def depth(self, node: np.ndarray) -> np.ndarray:
        """int64[n], bytes read up to some nodes, with theirs."""
        depth = self.level.searchsorted(node, side="right")
        depth[node >= self.end] = 1
        return depth


def trie_with(tables: VocabularyTables, specials: tuple[int, ...]) -> Trie:
    """The trie for a machine with the given special tokens."""
    found = tables.memo.get(("trie", specials))
    if found is not None:
        return found
    none = np.zeros(len(specials) + 1, np.int64)
    symbol = np.concatenate([tables.trie_byte, [-1], 256 + np.arange(len(specials))], dtype=np.int32, casting="same_kind")
    symbol[0] = -1
    trie = Trie(
        first=np.concatenate([tables.trie_first, none], dtype=np.int32, casting="same_kind"),
        children=np.concatenate([tables.trie_count, none], dtype=np.int32, casting="same_kind"),
        symbol=symbol,
        token=np.concatenate([tables.trie_token, [-1], np.array(specials, np.int64)]),
        level=np.array(levels(tables.trie_first)),
        end=len(tables.trie_first),
    )
    return remember(tables, ("trie", specials), trie)


def check_specials(machine: ByteMachine, tables: VocabularyTables) -> None:
    """Raises `ConstraintError` where a special token of a machine is also text, ends the text, or does not exist."""
    for token in machine.specials:
        if not 0 <= token < tables.vocab_size or tables.length[token] > 0 or token in tables.stop_ids:
            raise ConstraintError(
                f"token {token} cannot stand in a grammar as a special token: it is text, ends the text, or does not exist",
                fix="Write text as a string, and leave the end of the text to the constraint.",
            )


class Items(NamedTuple):
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

    def at(self, index: np.ndarray) -> Items:
        """Some of these, by their places or by whether each is one."""
        index = index.nonzero()[0] if index.dtype == bool else index
        owner, node, control = (column.take(index) for column in self[:3])  # a third faster than by brackets
        return Items(owner, node, control, self.begun_at(index))

    def once(self) -> Items:
        """The same once each; only what is not deterministic comes to one item in two ways."""
        return Items(*np.unique(np.stack(self), axis=1)) if len(self.owner) else self

    def begun_at(self, index: np.ndarray) -> np.ndarray:
        """The registers of some of these, by their places."""
        return self.begun.take(index) if self.begun.strides[0] else zeros(len(index))


_ZERO = np.zeros(1, np.int64)
_ZERO.flags.writeable = False


def zeros(size: int) -> np.ndarray:
    """int64[size], read-only, which takes no memory: what is begun where nothing counts. `Items` see that it is made of one."""
    return np.ndarray((size,), np.int64, _ZERO, strides=(0,))


def joined(items: list[Items]) -> Items:
    if len(items) == 1:
        return items[0]
    owner, node, control, begun = zip(*items)
    counts = any(column.strides[0] for column in begun)
    register = np.concatenate(begun) if counts else zeros(sum(map(len, begun)))
    return Items(np.concatenate(owner), np.concatenate(node), np.concatenate(control), register)


def joined_records(records: list[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    """The columns of all records: int32 if those of some are, which are the long ones (`TokenCounts.fitting`), else int64."""
    if not records:
        return [np.zeros(0, np.int64)] * 4
    kind = np.int32 if any(record[0].dtype == np.int32 for record in records) else np.int64
    return [np.concatenate(column, dtype=kind, casting="same_kind") for column in zip(*records)]


NO_ITEMS = Items(*(np.zeros(0, np.int64),) * 4)


class Moves:
    """The entries of a machine by control and symbol class.

    Attributes:
      next, push, add, guard: int64[E], of every entry; one more stands for none.
      forks: whether some control has several entries at a symbol.
      simple: whether the machine neither forks nor counts.
      kept, counted: uint64[S], bits of the bytes that leave each control as it is, and its register as it is or one higher; see
        `subtrees`.
    """

    def __init__(self, machine: ByteMachine) -> None:
        offset, none = machine.entry_offset.astype(np.int64), len(machine.entry_next)
        self._action = machine.action.ravel()
        self._size = size = np.diff(offset)
        self._begin = begin = np.where(size > 0, offset[:-1], none)
        guard = np.zeros(none, np.int32) if machine.sets is None else machine.sets.entry
        self.next, self.push, self.add, self.guard = (
            np.append(column, 0).astype(np.int64) for column in (machine.entry_next, machine.entry_push, machine.entry_add, guard)
        )
        self.forks = bool((size > 1).any())
        counts = bool(machine.entry_add.any()) or any(add for string in machine.pushes for _, add in string)
        self.simple = not self.forks and not counts
        self._plain = np.where((self.push == 0) & (self.next >= 0) & (self.guard == 0), self.next, -1)[begin]
        control, symbol, action = machine.cells
        same = (np.where(size == 1, self._plain, -1)[action] == control).nonzero()[0]
        control, symbol, action = control[same], symbol[same], action[same]
        kind, adds = machine.byte_class[:256], self.add[begin[action]]
        one, shape = adds == 1, machine.action.shape
        self.kept = kinds_read(control[~one], symbol[~one], shape, kind)
        self.counted = kinds_read(control[one], symbol[one], shape, kind) if one.any() else np.zeros_like(self.kept)

    def action(self, at: np.ndarray) -> np.ndarray:
        """The action at control * C + class."""
        return self._action.take(at)

    def live(self, action: np.ndarray) -> np.ndarray:
        """Whether anything is read by an action."""
        return self._size.take(action) > 0

    def begin(self, action: np.ndarray) -> np.ndarray:
        """First entry of an action."""
        return self._begin.take(action)

    def size(self, action: np.ndarray) -> np.ndarray:
        """Number of entries of an action."""
        return self._size.take(action)

    def plain(self, action: np.ndarray) -> np.ndarray:
        """What an action of a simple machine does: 0, the next control, or -1 where more happens."""
        return self._plain.take(action)


def alike(machine: ByteMachine) -> np.ndarray:
    """The first control that each one returns like, int64; the first one of all returns nowhere."""
    out = np.zeros(machine.num_controls, np.int64)
    control, symbol, after = machine.returns
    begin = segment_starts(control)
    if len(begin):
        some = control[begin]
        _, example, which = exampled(np.add.reduceat(mixed(symbol * machine.num_controls + after), begin))
        out[some] = some[example][which]
    return out


class WalkContext(Protocol):
    """What return nodes use of the walk that they belong to.

    Attributes:
      links: callers of runs.
      pending: tokens that have left the frames of the last wave's nodes.
      num_owners: nodes and runs so far.
      returns: controls after returns.
      stack_class: of controls that every symbol returns from alike.
    """

    machine: ByteMachine
    tables: VocabularyTables
    registers: Registers
    guards: Guards
    trie: Trie
    moves: Moves
    links: Links
    limits: CompileLimits
    deadline: Deadline
    pending: list[Items]
    num_owners: int
    returns: Returns
    stack_class: np.ndarray
    kind: np.ndarray
    width: int

    def begin_wave(self) -> None: ...
