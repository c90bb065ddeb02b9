"""Moore's refinement of controls and stack symbols together, and the byte machine made of the classes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from fsa_compile.arrays.bit_sets import members
from fsa_compile.arrays.graphs import reach
from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import distinct, ranked
from fsa_compile.arrays.ranges import ranges, spread
from fsa_compile.artifact.arrays import NO_TEMPERATURE
from fsa_compile.automata.pushdown import RETURN, UNCOUNTED, ByteMachine
from fsa_compile.grammar.conflicts import is_decided
from fsa_compile.grammar.frame_actions import Entry, FrameTables, Push


def minimal_machine(
    tables: FrameTables,
    byte_class: np.ndarray,
    specials: tuple[int, ...],
    name_control: Callable[[int], str],
    name_symbol: Callable[[int], str],
    temperature: Callable[[int], float | None] | None = None,
) -> ByteMachine:
    """The minimal byte machine of trimmed tables.

    Args:
      tables: controls and symbols.
      byte_class: int32[256 + T], class of every byte and special token in the tables' sets.
      specials: token ids of the special tokens.
      name_control, name_symbol: what a number of the tables stands for.
      temperature: of a control; those of different ones stay apart. None: no control has one.
    """
    order = _reachable(tables)
    heat: dict[int, float] = {}
    if temperature is not None:
        heat = {c: found for c in order if (found := temperature(c)) is not None}
    control_class, symbol_class = _Refinement(tables, order, heat).classes()
    control_class[RETURN] = RETURN
    machine = _Assembly(tables, order, control_class, symbol_class, byte_class, specials).machine(name_control, name_symbol)
    if not heat:
        return machine
    temperatures = np.full(machine.num_controls, NO_TEMPERATURE, np.float32)
    temperatures[[control_class[c] + 1 for c in heat]] = list(heat.values())
    return dataclasses.replace(machine, temperature=temperatures)


def _reachable(tables: FrameTables) -> list[int]:
    """Controls that are left, the initial one first."""

    @functools.cache
    def targets(key: int) -> list[int]:
        return list(dict.fromkeys([e[0] for _, entries in rows[key] for e in entries if e[0] != RETURN]))

    rows = {id(row): row for row in tables.actions}

    def after(c: int) -> Iterable[int]:
        return chain(targets(id(tables.actions[c])), tables.ret[c].values())

    return list(reach([tables.start], after))


class _Refinement:
    """Moore's refinement by random 64-bit hashes: a signature is a sum over what it holds, so its order does not matter.

    A control's signature sums, over its actions, the weight of the symbols times the hash of the entries; so actions whose
    entries have become equal count as one, however their symbols were divided. Two different signatures have the same hash
    with probability 2 ** -64.
    """

    def __init__(self, tables: FrameTables, order: list[int], heat: dict[int, float]) -> None:
        self._rng = np.random.default_rng(20)
        self.order = order
        number = {c: i for i, c in enumerate(order)}
        number[RETURN] = len(order)
        kinds: dict[tuple[int, tuple[int, int], float | None], int] = {}
        own = ((tables.end[c], tables.bounds[c], heat.get(c)) for c in order)
        self.kind = np.array([kinds.setdefault(one, len(kinds)) for one in own], np.int64)
        pushes: dict[Push, int] = {}
        groups: dict[tuple[Entry, ...], int] = {}
        by_id = {id(tables.actions[c]): tables.actions[c] for c in order}  # controls share rows, and these lists
        at = {key: i for i, key in enumerate(by_id)}
        self.actions = np.array([at[id(tables.actions[c])] for c in order], np.int64)
        """The row of actions of each control."""
        actions = [action for row in by_id.values() for action in row]
        lists = {id(entries): entries for _, entries in actions}
        of_list = {key: groups.setdefault(tuple(entries), len(groups)) for key, entries in lists.items()}
        self.owner = np.arange(len(by_id)).repeat([len(row) for row in by_id.values()])
        self.group = np.array([of_list[id(entries)] for _, entries in actions], np.int64)
        self.weight = self._weights([mask for mask, _ in actions])
        flat = [
            (g, number[t], pushes.setdefault(push, len(pushes)), add) for entries, g in groups.items() for t, push, add in entries
        ]
        self.entry = np.array(flat, np.int64).reshape(-1, 4).T
        self.num_groups = len(groups)
        symbols = {s: i for i, s in enumerate(sorted(
            {s for c in order for s in tables.ret[c]} | {s for push in pushes for s, _ in push}
        ))}  # fmt: skip
        self.symbols = list(symbols)
        length = max(map(len, pushes), default=0)
        self.push_symbol = np.full((length, len(pushes)), len(symbols), np.int64)
        self.push_add = np.zeros((length, len(pushes)), np.uint64)
        for push, j in pushes.items():
            for k, (s, add) in enumerate(push):
                self.push_symbol[k, j], self.push_add[k, j] = symbols[s], add
        rows: dict[tuple[tuple[int, int], ...], int] = {}
        of_row = {id(tables.ret[c]): tables.ret[c] for c in order}
        returns = {key: rows.setdefault(tuple(row.items()), len(rows)) for key, row in of_row.items()}
        self.row = np.array([returns[id(tables.ret[c])] for c in order], np.int64)
        back = [(i, symbols[s], number[r]) for row, i in rows.items() for s, r in row]
        self.ret = np.array(back, np.int64).reshape(-1, 3).T
        """Of every row of returns, which many controls share: its number, a symbol and a control."""
        self.begin = self.ret[0].searchsorted(np.arange(len(rows) + 1))

    def classes(self) -> tuple[dict[int, int], dict[int, int]]:
        """Class of every control and of every symbol, numbered from 0 in the order of their first members."""
        control = np.append(ranked(self.kind), -1)
        symbol = np.zeros(len(self.symbols) + 1, np.int64)
        count = -1
        while True:
            symbol[:-1] = self._symbol_classes(control)
            new = self._control_classes(control, symbol)
            if new.max(initial=0) == count:
                break
            count, control[:-1] = new.max(initial=0), new
        return dict(zip(self.order, new.tolist())), dict(zip(self.symbols, symbol[:-1].tolist()))

    def _symbol_classes(self, control: np.ndarray) -> np.ndarray:
        _, symbol, to = self.ret
        bound = len(self.order) + 1
        used = distinct(self.row * bound + control[:-1])  # rows with the classes of their controls
        which, place = ranges(self.begin[used // bound], self.begin[used // bound + 1])
        symbol, at, to = _distinct(symbol[place], used[which] % bound, control[to[place]], bound)
        return ranked(_sums(symbol, mixed(mixed(at) * _ODD + _as_hash(to)), len(self.symbols)))

    def _control_classes(self, control: np.ndarray, symbol: np.ndarray) -> np.ndarray:
        push = np.zeros(self.push_symbol.shape[1], np.uint64)
        for symbols, adds in zip(self.push_symbol, self.push_add):
            held = _as_hash(symbol[symbols]) * np.uint64(2) + adds + np.uint64(1)
            push = np.where(symbols < len(self.symbols), mixed(push + held), push)
        group_of, target, push_of, add = self.entry
        one = mixed(mixed(_as_hash(control[target])) + push[push_of] * _ODD + _as_hash(add))
        entries = mixed(_sums(group_of, one, self.num_groups))
        out = _sums(self.owner, self.weight * entries[self.group], int(self.actions.max()) + 1)[self.actions]
        row, through, to = self.ret
        row, through, to = _distinct(row, symbol[through], control[to], max(len(self.order), len(self.symbols)) + 1)
        out += _sums(row, mixed(mixed(through) * _ODD2 + _as_hash(to)), int(self.row.max()) + 1)[self.row]
        return ranked(mixed(out) + mixed(_as_hash(control[:-1]) * _ODD))

    def _weights(self, masks: list[int]) -> np.ndarray:
        """Per set of symbols the sum of a random weight per symbol."""
        distinct = {mask: i for i, mask in enumerate(dict.fromkeys(masks))}
        width = (max((mask.bit_length() for mask in distinct), default=0) + 7) // 8
        packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in distinct), np.uint8)
        bits = np.unpackbits(packed.reshape(len(distinct), width), axis=1, bitorder="little")
        of_symbol = self._rng.integers(0, 1 << 63, bits.shape[1], dtype=np.int64).astype(np.uint64) * np.uint64(2) + np.uint64(1)
        sums = (bits * of_symbol).sum(axis=1, dtype=np.uint64)
        return sums[np.array([distinct[mask] for mask in masks], np.int64)]


_ODD, _ODD2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


def _as_hash(x: np.ndarray) -> np.ndarray:
    return x.astype(np.uint64)


def _sums(index: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Sums of 64-bit values by ascending index, modulo 2 ** 64."""
    out = np.zeros(size, np.uint64)
    if len(index):
        begins = np.flatnonzero(np.diff(index, prepend=-1))
        out[index[begins]] = np.add.reduceat(values, begins)
    return out


def _distinct(a: np.ndarray, b: np.ndarray, c: np.ndarray, base: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct triples of numbers below the base (the first ones are free), in ascending order."""
    keys = distinct((a * base + b) * base + c)
    return keys // (base * base), keys // base % base, keys % base


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
        self.of_list: dict[int, int] = {}

    def machine(self, name_control: Callable[[int], str], name_symbol: Callable[[int], str]) -> ByteMachine:
        kinds = int(self.byte_class.max()) + 1
        action = np.zeros((self.size, kinds), np.int32)
        ret = np.zeros((self.size, self.num_symbols), np.int32)
        end = np.zeros(self.size, np.int8)
        bounds = np.full((self.size, 2), UNCOUNTED, np.int32)
        deterministic = True
        masks: dict[int, int] = {}
        places: list[tuple[int, int, int]] = []
        for k, c in self.of_class.items():
            for mask, entries in self.tables.actions[c]:
                deterministic &= len(entries) < 2 or is_decided(entries, self.tables.bounds[c])
                places.append((k + 1, masks.setdefault(mask, len(masks)), self._action(entries)))
            row = self.tables.ret[c]
            ret[k + 1, [self.symbol[s] for s in row]] = [self.control[r] + 1 for r in row.values()]
            end[k + 1] = self.tables.end[c]
            bounds[k + 1] = self.tables.bounds[c]
        of_mask = [np.fromiter(members(mask), np.int64) for mask in masks]
        at, mask_of, number = np.array(places, np.int64).reshape(-1, 3).T
        size = np.array([len(some) for some in of_mask], np.int64)
        begin = size.cumsum() - size
        which, column = spread(begin[mask_of], size[mask_of])
        action[at[which], np.concatenate([np.zeros(0, np.int64), *of_mask])[column]] = number[which]
        columns, kind = np.unique(action, axis=1, return_inverse=True)
        names: dict[int, dict[str, None]] = {}
        for s, k in self.symbol.items():  # equal symbols are one: it stands for all of their callees
            names.setdefault(k, {}).update(dict.fromkeys(name_symbol(s).split(" | ")))
        offsets = np.array(self.offset, np.int32)
        return ByteMachine(
            byte_class=kind.ravel()[self.byte_class].astype(np.int32), specials=self.specials, action=columns,
            entry_offset=offsets, entry_next=np.array(self.next, np.int32), entry_push=np.array(self.push, np.int32),
            entry_add=np.array(self.add, np.int8), pushes=tuple(self.pushes), ret=ret, end=end,
            bounds=bounds, start=self.control[self.tables.start] + 1, stack=(),
            control_names=("", *(name_control(self.of_class[k]) for k in range(self.size - 1))),
            symbol_names=tuple(" | ".join(names[k]) for k in range(self.num_symbols)),
            deterministic=deterministic,
        )  # fmt: skip

    def _action(self, entries: Sequence[Entry]) -> int:
        if id(entries) in self.of_list:  # controls share lists
            return self.of_list[id(entries)]
        key = _entries_key(entries, self.control, self.symbol)
        found = self.action_of.get(key)
        if found is None:
            found = self.action_of[key] = len(self.offset) - 1
            for target, push, add in sorted(key) if isinstance(key, frozenset) else [key]:
                self.next.append(target + 1 if target != RETURN else RETURN)
                self.push.append(self.pushes.setdefault(push, len(self.pushes)))
                self.add.append(add)
            self.offset.append(len(self.next))
        self.of_list[id(entries)] = found
        return found
