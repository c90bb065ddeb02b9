"""Moore's refinement of controls and stack symbols together, and the byte machine made of the classes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fsa_compile.byte_machine import RETURN, UNCOUNTED, ByteMachine
from fsa_compile.frames import Entry, FrameTables


def minimal_machine(
    tables: FrameTables,
    byte_class: np.ndarray,
    specials: tuple[int, ...],
    name_control: Callable[[int], str],
    name_symbol: Callable[[int], str],
) -> ByteMachine:
    """The minimal byte machine of trimmed tables.

    Args:
      tables: controls and symbols.
      byte_class: int32[256 + T], class of every byte and special token in the tables' sets.
      specials: token ids of the special tokens.
      name_control, name_symbol: what a number of the tables stands for.
    """
    order = _reachable(tables)
    control_class, symbol_class = _refine(tables, order)
    return _Assembly(tables, order, control_class, symbol_class, byte_class, specials).machine(name_control, name_symbol)


def _reachable(tables: FrameTables) -> list[int]:
    """Controls that are left, the initial one first."""
    order, seen = [tables.start], {tables.start}
    for c in order:
        for t in [e[0] for _, entries in tables.actions[c] for e in entries if e[0] != RETURN] + [*tables.ret[c].values()]:
            if t not in seen:
                seen.add(t)
                order.append(t)
    return order


def _refine(tables: FrameTables, order: list[int]) -> tuple[dict[int, int], dict[int, int]]:
    symbols = sorted({s for c in order for s in tables.ret[c]} | {
        s for c in order for _, entries in tables.actions[c] for _, push, _ in entries for s, _ in push
    })  # fmt: skip
    columns: dict[int, list[tuple[int, int]]] = {s: [] for s in symbols}
    for c in order:
        for s, r in tables.ret[c].items():
            columns[s].append((c, r))
    control = dict.fromkeys(order, 0)
    control[RETURN] = RETURN
    symbol = dict.fromkeys(symbols, 0)
    count = 0
    while True:
        ids: dict[Hashable, int] = {}
        for s in symbols:
            symbol[s] = ids.setdefault(frozenset((control[c], control[r]) for c, r in columns[s]), len(ids))
        new: dict[Hashable, int] = {}
        merged = {}
        for c in order:
            by_entries: dict[Any, int] = {}
            for mask, entries in tables.actions[c]:
                key = _entries_key(entries, control, symbol)
                by_entries[key] = by_entries.get(key, 0) | mask
            returns = frozenset((symbol[s], control[r]) for s, r in tables.ret[c].items())
            signature = (control[c], tables.end[c], frozenset(by_entries.items()), returns)
            merged[c] = new.setdefault(signature, len(new))
        merged[RETURN] = RETURN
        if len(new) == count:
            return control, symbol
        control, count = merged, len(new)


def _entries_key(entries: Sequence[Entry], control: dict[int, int], symbol: dict[int, int]) -> Any:
    if len(entries) == 1:
        ((target, push, add),) = entries
        return control[target], tuple([(symbol[s], a) for s, a in push]), add
    return frozenset((control[t], tuple([(symbol[s], a) for s, a in push]), add) for t, push, add in entries)


class _Assembly:
    def __init__(
        self, tables: FrameTables, order: list[int], control: dict[int, int], symbol: dict[int, int],
        byte_class: np.ndarray, specials: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.tables, self.control, self.symbol = tables, control, symbol
        self.byte_class, self.specials = byte_class, specials
        self.of_class: dict[int, int] = {}
        for c in order:
            self.of_class.setdefault(control[c], c)
        self.size = len(self.of_class) + 1
        self.num_symbols = len(set(symbol.values()))
        self.offset = [0, 0]
        self.next: list[int] = []
        self.push: list[int] = []
        self.add: list[int] = []
        self.pushes: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        self.action_of: dict[Hashable, int] = {}

    def machine(self, name_control: Callable[[int], str], name_symbol: Callable[[int], str]) -> ByteMachine:
        kinds = int(self.byte_class.max()) + 1
        action = np.zeros((self.size, kinds), np.int32)
        ret = np.zeros((self.size, self.num_symbols), np.int32)
        end = np.zeros(self.size, np.int8)
        for k, c in self.of_class.items():
            for mask, entries in self.tables.actions[c]:
                action[k + 1, _members(mask)] = self._action(entries)
            for s, r in self.tables.ret[c].items():
                ret[k + 1, self.symbol[s]] = self.control[r] + 1
            end[k + 1] = self.tables.end[c]
        columns, kind = np.unique(action, axis=1, return_inverse=True)
        names: dict[int, dict[str, None]] = {}
        for s, k in self.symbol.items():  # equal symbols are one: it stands for all of their callees
            names.setdefault(k, {}).update(dict.fromkeys(name_symbol(s).split(" | ")))
        offsets = np.array(self.offset, np.int32)
        return ByteMachine(
            byte_class=kind.ravel()[self.byte_class].astype(np.int32), specials=self.specials, action=columns,
            entry_offset=offsets, entry_next=np.array(self.next, np.int32), entry_push=np.array(self.push, np.int32),
            entry_add=np.array(self.add, np.int8), pushes=tuple(self.pushes), ret=ret, end=end,
            bounds=np.full((self.size, 2), UNCOUNTED, np.int32), start=self.control[self.tables.start] + 1, stack=(),
            control_names=("", *(name_control(self.of_class[k]) for k in range(self.size - 1))),
            symbol_names=tuple(" | ".join(names[k]) for k in range(self.num_symbols)),
            deterministic=bool((np.diff(offsets) <= 1).all()),
        )  # fmt: skip

    def _action(self, entries: Sequence[Entry]) -> int:
        key = _entries_key(entries, self.control, self.symbol)
        found = self.action_of.get(key)
        if found is None:
            found = self.action_of[key] = len(self.offset) - 1
            for target, push, add in sorted(key) if isinstance(key, frozenset) else [key]:
                self.next.append(target + 1 if target != RETURN else RETURN)
                self.push.append(self.pushes.setdefault(push, len(self.pushes)))
                self.add.append(add)
            self.offset.append(len(self.next))
        return found


def _members(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
