"""`Links`: the callers of runs of a token walk, and the push strings by which runs are entered; `Returns`: where they go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import exampled, firsts, in_order, numbered, order_of
from fsa_compile.arrays.ranges import joined, ranges, segment_sizes, spread
from fsa_compile.automata.pushdown import ByteMachine

_LONG = 1 << 12
"""Links of runs from so many on are kept as 32-bit numbers."""


class Columns:
    """Columns of equal length that grow.

    Attributes:
      columns: int64, longer than they are filled.
      size: how far they are filled.
    """

    def __init__(self, number: int) -> None:
        self.columns = [np.empty(1024, np.int64) for _ in range(number)]
        self.size = 0

    def extend(self, *more: np.ndarray) -> None:
        """Appends to every column."""
        end = self.size + len(more[0])
        if end > len(self.columns[0]):
            shorter, self.columns = self.columns, [np.empty(2 * end, np.int64) for _ in self.columns]
            for column, values in zip(self.columns, shorter):
                column[: self.size] = values[: self.size]
        for column, values in zip(self.columns, more):
            column[self.size : end] = values
        self.size = end


_DENSE = 1 << 20
"""Tables of returns with more entries are read at random in less memory: controls that return alike have one row."""


class Returns:
    """Controls after returns.

    Args:
      like: of every control, the first one that returns like it.

    Attributes:
      num_controls, num_symbols: of the machine.
    """

    def __init__(self, machine: ByteMachine, like: np.ndarray) -> None:
        self.num_controls, self.num_symbols = machine.num_controls, machine.num_symbols
        self._row = np.arange(self.num_controls)
        if self.num_controls * self.num_symbols > _DENSE:
            every, self._row = numbered(like)
            control, symbol, after = machine.returns
            row = np.full(self.num_controls, -1)
            row[every] = np.arange(len(every))
            some = (row[control] >= 0).nonzero()[0]
            table = np.zeros((len(every), self.num_symbols), np.int32)
            table[row[control[some]], symbol[some]] = after[some]
        else:
            table = machine.ret
        self._table = table.reshape(-1)
        self._row *= self.num_symbols

    def at(self, control: np.ndarray, symbol: np.ndarray | int) -> np.ndarray:
        """int32[n], 0 where that cannot be; anything for symbol -1."""
        place = self._row.take(control)
        place += symbol
        return self._table.take(place)


class Links:
    """Links of runs to their callers: int64[n] each, (run, caller, symbol or -1, register of the caller's frame).

    Args:
      pushes: (symbol, register) pairs of every push string of the machine, the bottom first.

    Attributes:
      parts: all links so far; numbers of 32 bits where they are many, and registers that are all 0 take no memory.
      of_run: where the links of each run of this wave begin and end in `callers`.
      callers: (caller, symbol, register) of the links of this wave.
      push_symbol, push_add: int64[P, L], of every push string.
      longest_push: L, at least 1.
    """

    def __init__(self, pushes: Sequence[Sequence[tuple[int, int]]]) -> None:
        self.parts: list[tuple[np.ndarray, ...]] = []
        self._length = np.array([len(p) for p in pushes])
        self.longest_push = int(self._length.max())
        self.push_symbol, self.push_add = np.zeros((2, len(pushes), max(1, self.longest_push)), np.int64)
        which, at = spread(self._length * 0, self._length)
        pairs = [pair for string in pushes for pair in string]
        self.push_symbol[which, at], self.push_add[which, at] = np.array(pairs, np.int64).reshape(-1, 2).T
        number: dict[tuple[tuple[int, int], ...], int] = {}
        # What a string has above its lowest symbol, by its first number: frames that calls from other places have in common.
        self._above = np.array([number.setdefault(tuple(string[1:]), i) for i, string in enumerate(pushes)])
        self.of_run, self.callers = Columns(2), Columns(3)

    def begin_wave(self) -> None:
        """Forgets which runs have which callers; `parts` stay."""
        self.of_run.size = self.callers.size = 0

    def joined(self, kind: type[np.signedinteger[Any]] = np.int64) -> tuple[np.ndarray, ...]:
        """The four columns of all links, of the given type; registers that are all 0 take no memory if it is that of 32 bits."""
        if not self.parts:
            return (np.zeros(0, np.int64),) * 4
        *columns, counts = zip(*self.parts)
        if kind is np.int64 or any(count.any() for count in counts if count.strides[0]):
            columns.append(counts)
            return tuple(np.concatenate(column, dtype=kind, casting="same_kind") for column in columns)
        found = [np.concatenate(column, dtype=kind, casting="same_kind") for column in columns]
        return *found, np.broadcast_to(kind(0), len(found[0]))

    def chain(
        self, first: int, num_owners: int, run: np.ndarray, caller: np.ndarray, push: np.ndarray, count: np.ndarray
    ) -> int:
        """Adds the links of calls; the frames between a run and its caller become runs of their own.

        Args:
          first: the first run made at this depth; num_owners: number of owners so far.
          run, caller, push, count: int64[n] each; `count` is the register of the caller's frame.

        Returns:
          The number of owners, with the new runs.
        """
        length = self._length[push]
        one = length == 1
        links = [(run[one], caller[one], self.push_symbol[push[one], 0], count[one])]
        run, caller, push, count = run[~one], caller[~one], push[~one], count[~one]
        width = len(self._length)
        pairs, which = numbered(run * width + self._above[push])
        run, string = pairs // width, pairs % width
        size = self._length[string] - 1
        begin = num_owners + size.cumsum() - size
        links.append((begin[which], caller, self.push_symbol[push, 0], count))
        of, frame = np.repeat(np.arange(len(size)), size), np.arange(int(size.sum()))
        place = frame - (size.cumsum() - size)[of]
        frame += begin[0] if len(begin) else 0
        above = np.where(place + 1 == size[of], run[of], frame + 1)
        links.append((above, frame, self.push_symbol[string[of], place + 1], self.push_add[string[of], place + 1]))
        num_owners += int(size.sum())
        self.add(first, num_owners, *(np.concatenate(c) for c in zip(*links)))
        return num_owners

    def add(self, first: int, num_owners: int, *columns: np.ndarray) -> None:
        """Adds the links of the runs made at this depth, the owners from `first` on."""
        own = columns[0] - first  # which are small more often
        order = order_of(own)
        run, *rest = (column.take(order) for column in columns)
        self.take(run, firsts(own, num_owners - first)[:-1], *rest)

    def take(self, run: np.ndarray, begin: np.ndarray, *rest: np.ndarray) -> None:
        """Adds links sorted by run; `begin` says where those of each run of this depth begin."""
        self.parts.append((run, *rest) if len(run) < _LONG else _narrowed(run, *rest))
        bounds = np.concatenate((begin, [len(run)]))
        bounds += self.callers.size
        self.of_run.extend(bounds[:-1], bounds[1:])
        self.callers.extend(*rest)

    def together(
        self, num_owners: int, begin: np.ndarray, end: np.ndarray, control: np.ndarray, returns: Returns
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Who goes on after returns from runs of calls: callers that do so in one control as one new run, a part of the frames of
        all of them. Nothing counts.

        Args:
          num_owners: number of owners so far.
          begin, end, control: int64[n], where the callers of each run are, and the control that returns.
          returns: of the machine.

        Returns:
          (owner and its control int64[m], where those of each return begin int64[n + 1], number of owners with new runs).
        """
        of, at = ranges(begin, end)
        caller, symbols, _ = self.callers.columns
        symbol, s = symbols[at], returns.num_controls
        after = np.where(symbol >= 0, returns.at(control[of], symbol), control[of])
        live = after.nonzero()[0]
        key = of[live] * s + after[live]
        order, key = in_order(key)
        live = live[order]
        owner, whole = caller[at[live]], symbol[live] < 0
        start = (np.append(True, key[1:] != key[:-1])[: len(key)] | whole).nonzero()[0]  # a part would be the same part again
        size, key, reader = segment_sizes(start, len(key)), key[start], owner[start]
        several, run, num_owners = self.as_runs(num_owners, owner, start, size)
        reader[several] = run
        return reader, key % s, firsts(key // s, len(begin)), num_owners

    def as_runs(
        self, num_owners: int, owner: np.ndarray, begin: np.ndarray, size: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Makes several owners one run, a part of the frames of all of them; the same owners are one run wherever they stand.

        Args:
          num_owners: number of owners so far.
          owner: int64[m]; segment i are the `size[i]` ones from `begin[i]` on.

        Returns:
          (the segments of more than one owner, the run of each, number of owners with new runs).
        """
        several = (size > 1).nonzero()[0]
        sets = np.add.reduceat(mixed(owner), begin)[several] if len(begin) else mixed(begin)
        _, example, which = exampled(sets)
        example = several[example]
        run, place = spread(begin[example], length := size[example])
        none = np.zeros_like(run)
        run += num_owners
        self.take(run, length.cumsum() - length, owner[place], none - 1, none)
        return several, num_owners + which, num_owners + len(example)


def _narrowed(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns of links as 32-bit numbers; the last one is made of one number where all are 0."""
    *others, count = (column.astype(np.int32) for column in columns)
    return *others, count if count.any() else np.broadcast_to(count[:1].copy(), len(count))


def called_alike(
    begin: np.ndarray, size: np.ndarray, caller: np.ndarray, push: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Runs of which those with the same callers are one.

    Args:
      begin, size: int64[n], where the calls of each run begin, and how many there are.
      caller, push, count: int64[m], of every call.

    Returns:
      (where the calls of each run that is left begin, int64[k]; how many, int64[k]; the number of each run among these, int64[n];
      the calls that are left, int64[*]).
    """
    call = mixed(caller << 32 | push)
    if count.any():
        call = mixed(call + mixed(count) * np.uint64(3))
    _, example, which = exampled(np.add.reduceat(call, begin))
    size = size[example]
    at = joined(begin[example], size)
    return size.cumsum() - size, size, which, at
