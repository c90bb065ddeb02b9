"""Push strings: what a token pushes, bottom first, of (symbol, register of the frame that it suspends)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.arrays.integers import known_numbers, numbered, order_of
from fsa_compile.arrays.ranges import spread

PushString: TypeAlias = tuple[tuple[int, int], ...]


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
        entry = _hashes(spread(self.length * 0, self.length)[1], self.symbol, self.register, more)
        out, full = np.zeros(len(self), np.uint64), self.length.nonzero()[0]
        if len(full):
            out[full] = np.add.reduceat(entry, self.first[full])
        return out

    def places(self, some: np.ndarray) -> np.ndarray:
        """Where the entries of some strings are, one string after another."""
        return spread(self.first[some], self.length[some])[1]


def _hashes(*columns: np.ndarray) -> np.ndarray:
    """uint64, of rows of numbers."""
    return mixed(np.stack([mixed(column) * np.uint64(2 * i + 1) for i, column in enumerate(columns)]).sum(0))


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
            rank[at[np.lexsort((rank[above[at]], register[at], symbol[at]))]] = np.arange(len(at))
        used, which = numbered(string)
        order = np.lexsort((rank[used], length[used]))
        number = np.empty(len(used), np.int64)
        number[order] = np.arange(1, len(used) + 1)
        sizes = np.append(0, length[used[order]])
        entries, left = np.append(0, used[order]).repeat(sizes), spread(sizes * 0, sizes)[1]
        while len(some := left.nonzero()[0]):
            entries[some] = above[entries[some]]
            left[some] -= 1
        self.all = PushStrings(sizes, symbol[entries], register[entries])
        return number[which]
