"""`SizedMemo`: results kept for later calls, as many as have a bounded size together. Threads may share one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class SizedMemo(Generic[T]):
    """A memo that drops what was used longest ago.

    A bound on the number of entries says nothing about memory where one entry may be as large as ten thousand others.

    Args:
      most: largest sum of sizes.
      size: size of a value, in whatever unit `most` has.
      largest: size of the largest value that is kept; None: an eighth of `most`.
    """

    def __init__(self, most: int, size: Callable[[T], int], *, largest: int | None = None) -> None:
        self._most, self._size_of = most, size
        self._largest = most // 8 if largest is None else largest
        self._lock = threading.Lock()
        self._values: dict[Hashable, tuple[T, int]] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made now where it is not kept; exceptions of `make` pass through."""
        with self._lock:
            found = self._values.pop(key, None)
            if found is not None:
                self._values[key] = found
                return found[0]
        value = make()
        size = self._size_of(value) + 1
        if size <= self._largest:
            with self._lock:
                self.size += size - self._values.pop(key, (value, 0))[1]
                self._values[key] = value, size
                while self.size > self._most:
                    self.size -= self._values.pop(next(iter(self._values)))[1]
        return value

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._values.clear()
            self.size = 0
