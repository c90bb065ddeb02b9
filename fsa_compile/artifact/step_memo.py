"""What host walks of one constraint have in common: its arrays as Python reads them fast, and the masks and steps already found.

NumPy takes about a microsecond for every scalar it hands to Python, a `memoryview` a twentieth of that. And most steps were taken
before, by this walk or by another one: positions form an automaton that is built as far as texts have gone.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fsa_compile.artifact.arrays import ConstraintArrays
from fsa_compile.artifact.bitmask import words_of
from fsa_compile.artifact.guards import Guard
from fsa_compile.artifact.stored_arrays import StoredChildren, StoredEffects, StoredRows, StoredTokens

MOST_BYTES = 256 << 20
"""Masks of all constraints together that are kept, beside those that are rows of a constraint."""
MOST_STEPS = 1 << 16
"""Steps of one constraint that are kept."""
_INTEGERS = (
    "arc_offset", "effects", "group_offset", "group_row", "group_next", "group_push", "group_add",
    "group_set", "level_offset", "level_row", "level_slope", "distance", "need", "ladder", "delta_offset", "push_offset",
    "push_symbol", "push_register", "symbol_ladder", "symbol_cost", "symbol_need", "symbol_slope",
)  # fmt: skip


class Mask(NamedTuple):
    """A mask without limits: its words, the same as int32, and whether it forbids anything."""

    words: np.ndarray
    signed: np.ndarray
    must_apply: bool


class Memo:
    """Of one constraint; see the module. Attributes with the names of its arrays are views of them.

    Attributes:
      keys, guards: the sets of keys and the guards as Python numbers.
      firsts: the first position of walks, by their limit of depth.
      positions: all that are kept, under their configurations and their walk's limit of depth.
      rows, row_index: words of rows; of rows in pieces, the pieces and their numbers by row, else None.
      arc_begin, arc_token: where the arcs of every node begin in `arc_token`.
      has_registers: whether any effect changes a register, or any node depends on one.
    """

    def __init__(self, c: ConstraintArrays) -> None:
        for name in _INTEGERS:
            setattr(self, name, _view(getattr(c, name)))
        parts: Any = c.rows.parts if isinstance(c.rows, StoredRows) else None
        self.rows: Any = _view(parts["piece"] if parts else c.rows)
        self.row_index: Any = _view(parts["index"]) if parts else None
        self.delta: Any = _ChildrenView(c.delta) if isinstance(c.delta, StoredChildren) else _view(c.delta)
        tokens, effects = c.arc_token, c.arc_effect
        self._first: Any = None
        self._class: Any = None
        self._effect: Any
        if isinstance(tokens, StoredTokens) and isinstance(effects, StoredEffects):
            self.arc_begin: Any = _view(np.append(tokens.begin, np.zeros(c.num_nodes - len(tokens.begin), np.int32)))
            self.arc_token: Any = _view(tokens.parts["token"])
            self._first, self._class, self._effect = (_view(effects.parts[name]) for name in ("first", "class", "effect"))
        else:
            self.arc_begin, self.arc_token, self._effect = self.arc_offset, _view(np.asarray(tokens)), _view(np.asarray(effects))
        self.accept: Any = _view(c.accept)
        self.keys = [int.from_bytes(row.astype("<u4").tobytes(), "little") for row in c.keys]
        self.guards = [
            Guard(tuple(self.keys[first : first + count]), self.keys[every], self.keys[more])
            for first, count, every, more in c.guards.tolist()
        ]
        self.has_registers = bool(c.ladder.any() or c.group_add.any() or c.effects[:, 2].any())
        self.firsts = dict[int, Any]()
        self.positions = dict[Any, Any]()
        self._masks = dict[tuple[int, ...], Mask]()
        self._of_rows = dict[tuple[tuple[int, ...], bool], Mask]()
        self._stops = words_of(c.stop_ids, c.vocab_size)
        self._bytes = self._steps = 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # for type checkers: the views are set by name

    def effect_of(self, node: int, arc: int) -> int:
        """The effect of an arc of a node, by its place in `arc_token`."""
        effect: int = self._effect[arc if self._first is None else self._first[node] + self._class[arc]]
        return effect

    def mask_of(self, c: ConstraintArrays, nodes: tuple[int, ...]) -> Mask:
        """The mask of a configuration without limits, by the nodes of its sources."""
        mask = self._masks.get(nodes)
        if mask is None:
            if _KEPT.bytes > MOST_BYTES:
                _KEPT.forget()
            mask = self._masks[nodes] = self._made(c, nodes)
        return mask

    def _made(self, c: ConstraintArrays, nodes: tuple[int, ...]) -> Mask:
        rows, arcs = [], list[Any]()
        for node in nodes:
            lo, hi = self.level_offset[node], self.level_offset[node + 1]
            if hi > lo:
                rows.append(self.level_row[hi - 1])
            elif self.arc_offset[node + 1] > self.arc_offset[node]:
                arcs.append(c.arc_token[self.arc_offset[node] : self.arc_offset[node + 1]])
        accepting = any(self.accept[node] for node in nodes)
        key = None if arcs else (tuple(rows), accepting)
        if key is not None and (known := self._of_rows.get(key)) is not None:
            return known
        is_row, is_new = len(rows) == 1 and not arcs and not accepting, isinstance(c.rows, StoredRows)
        words = c.rows[rows[0]] if rows else np.zeros(c.rows.shape[1], np.uint32)
        if not is_row:
            words = words if is_new else words.copy()
            for row in rows[1:]:
                words |= c.rows[row]
            if arcs:
                add_tokens(words, arcs[0] if len(arcs) == 1 else np.concatenate(arcs))
            if accepting:
                words |= self._stops
        if is_new or not is_row:
            self._bytes += words.nbytes
            _KEPT.bytes += words.nbytes
        mask = mask_from(words, c.vocab_size)
        if key is not None:
            self._of_rows[key] = mask
        return mask

    def cost_of(self, c: ConstraintArrays, node: int, register: int) -> int:
        """Most tokens that a token of a node, itself included, and the rest of the node's frame take."""
        lo, hi = self.level_offset[node], self.level_offset[node + 1]
        if hi > lo:
            most = int(c.level_cost[hi - 1])
        else:
            arcs = c.arc_effect[self.arc_offset[node] : self.arc_offset[node + 1]]
            most = int(c.effects[arcs, 4].max(initial=0))
        w = self.level_slope[node, 2]
        return most + (w and w * -(-max(0, self.level_slope[node, 0] - register) // self.level_slope[node, 1]))

    def kept(self, configurations: Any, max_depth: int, make: Callable[[Any], Any]) -> Any:
        """The position of these configurations that is kept, or a new one, kept from now on; to be called for every step.

        What is known of a position depends on the limit of depth of its walk.
        """
        self._steps += 1
        if self._steps > MOST_STEPS:
            self.forget()
        key = (configurations, max_depth)
        position = self.positions.get(key)
        if position is None:
            position = self.positions[key] = make(configurations)
        return position

    def forget(self) -> None:
        """Forgets all masks and positions; walks go on with those they hold."""
        for kept in (self.firsts, self.positions, self._masks, self._of_rows):
            kept.clear()
        _KEPT.bytes -= self._bytes
        self._bytes = self._steps = 0


class _Kept:
    """The memos of all constraints that are alive, and the bytes of their masks."""

    def __init__(self) -> None:
        self.memos = weakref.WeakKeyDictionary[ConstraintArrays, Memo]()
        self.bytes = 0

    def forget(self) -> None:
        """Forgets all masks."""
        for memo in list(self.memos.values()):
            memo.forget()
        self.bytes = 0  # those of constraints that are gone, too


_KEPT = _Kept()


def memo_of(c: ConstraintArrays) -> Memo:
    """What is known of a constraint."""
    memo = _KEPT.memos.get(c)
    if memo is None:
        memo = _KEPT.memos[c] = Memo(c)
    return memo


def mask_from(words: np.ndarray, vocab_size: int) -> Mask:
    """A mask of words, uint32[ceil(V / 32)]."""
    whole, rest = divmod(vocab_size, 32)
    if whole and int(words[0]) != 0xFFFFFFFF:  # nearly always
        return Mask(words, words.view(np.int32), True)
    full = bool((words[:whole] == 0xFFFFFFFF).all()) and (not rest or int(words[whole]) == (1 << rest) - 1)
    return Mask(words, words.view(np.int32), not full)


def add_tokens(words: np.ndarray, tokens: np.ndarray) -> None:
    """Sets the bits of token ids in a row uint32[W]."""
    if len(tokens) <= _SCALARS:
        for token in tokens.tolist():
            words[token >> 5] |= _BITS[token & 31]
    else:
        np.bitwise_or.at(words, tokens >> 5, _BITS.take(tokens & 31))


_SCALARS = 6
"""Up to this many tokens: scalar bit sets."""
_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


class _ChildrenView:
    """Children in parts, as Python reads them fast."""

    def __init__(self, delta: StoredChildren) -> None:
        self._at, self._value = _view(delta.parts["at"]), _view(delta.parts["value"])

    def __getitem__(self, at: int) -> int:
        found = bisect.bisect_left(self._at, at)
        value: int = self._value[found] if found < len(self._at) and self._at[found] == at else 0
        return value


def _view(array: np.ndarray) -> Any:
    array = np.ascontiguousarray(array)
    return array.tolist() if array.size == 0 else array.astype(array.dtype.newbyteorder("="), copy=False).data
