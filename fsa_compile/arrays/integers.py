"""Distinct integers of an array, and what is not 0 in a table, several times as fast as `np.unique` and `np.nonzero` for the
short arrays that a compilation is made of.

Callers have one-dimensional arrays of integers only, so none of the cases that NumPy's function tells apart matter here.
"""

from __future__ import annotations

import numpy as np


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, ascending."""
    if len(values) < 2:
        return values
    ordered = values.copy()
    ordered.sort()
    return ordered[_begins(ordered)]


def numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct values, ascending; the number of each value among them, int64)."""
    size = len(values)
    if size >= _MARKED and values.dtype == np.int64 and (most := int(values.view(np.uint64).max())) < _SPARSE * size:
        seen = np.zeros(most + 1, bool)
        seen[values] = True
        every = seen.nonzero()[0]
        number = np.empty(most + 1, np.int32)
        number[every] = np.arange(len(every), dtype=np.int32)
        return every, number.take(values).astype(np.int64)
    every, _, which = exampled(values)
    return every, which


def exampled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the distinct values, ascending; where each occurs first; the number of each value among them), int64."""
    order, ordered = in_order(values)
    begins = _begins(ordered)
    number = np.add.accumulate(begins, dtype=np.int64)  # half of the time that `cumsum` takes for a few numbers
    number -= 1
    which = np.empty(len(values), np.int64)
    which[order] = number
    at = begins.nonzero()[0]
    return ordered.take(at), order.take(at), which


_LONG = 200
"""Arrays from this length on are looked at for small values."""
_LONGER = 300
_MARKED, _SPARSE = 1_000, 6
"""Arrays from this length on are numbered by marking their values, where these are less than so many times as large."""
_FALLS = 2


def order_of(values: np.ndarray) -> np.ndarray:
    """The stable order that sorts the values, int64; 16 bits sort by radix, and numbers without their places faster than with."""
    return _sorted(values)[0]


def in_order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(`order_of`; the values in this order)."""
    order, packed = _sorted(values)
    return order, values.take(order) if packed is None else packed >> len(values).bit_length()


def _sorted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(`order_of`; the sorted values and their places in as many bits as their number has, where they were sorted so)."""
    size = len(values)
    if size >= _LONGER and values.dtype == np.uint64:
        return _by_upper_bits(values), None
    if size < _LONG or values.dtype != np.int64:
        return values.argsort(kind="stable"), None
    high = int(values.view(np.uint64).max())  # negative numbers are the largest ones
    if high < 1 << 16:
        return values.astype(np.uint16).argsort(kind="stable"), None
    room = size.bit_length()
    if size < _LONGER or high >> 63 - room or np.count_nonzero(values[1:] < values[:-1]) <= _FALLS:
        return values.argsort(kind="stable"), None  # which is fast where all is sorted but for a few pieces
    packed = values << room
    packed |= np.arange(size)
    packed.sort()
    return packed & (1 << room) - 1, packed


def _by_upper_bits(values: np.ndarray) -> np.ndarray:
    """`order_of` uint64 that are random: their upper bits tell them apart, and their places take those of the lower ones."""
    room = np.uint64(len(values).bit_length())
    packed = values >> room << room
    packed |= np.arange(len(values), dtype=np.uint64)
    packed.sort()
    packed &= (np.uint64(1) << room) - np.uint64(1)
    order = packed.view(np.int64)
    ordered = values[order]
    return order if (ordered[1:] >= ordered[:-1]).all() else values.argsort(kind="stable")


def sorted_rows(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """Columns of numbers int64, none of them negative, sorted together by the first one, then by the next one, and so on; the
    given ones may be overwritten."""
    room = [int(column.max(initial=0)).bit_length() for column in columns]
    if sum(room) > 63:
        order = np.lexsort(columns[::-1])
        return tuple(column[order] for column in columns)
    key = columns[0]
    for column, bits in zip(columns[1:], room[1:]):
        key <<= bits
        key |= column
    key.sort()
    out = []
    for bits in room[:0:-1]:
        out.append(key & (1 << bits) - 1)
        key >>= bits
    return (key, *out[::-1])


_ROOM = 1 << 62


def ordered(columns: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(order of rows by the columns, the first one first; where a new row begins in it)."""
    key, room = columns[0].astype(np.int64), _ROOM
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
    return order, _begins(key[order]).nonzero()[0]


def ranked(values: np.ndarray) -> np.ndarray:
    """The number of each value, the distinct ones numbered in the order in which they first occur, int64."""
    _, first, which = exampled(values)
    rank = np.empty(len(first), np.int64)
    rank[first.argsort()] = np.arange(len(first))
    return rank[which]


def known_numbers(
    known: tuple[np.ndarray, np.ndarray], values: np.ndarray, first: int
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """(the number of each of some distinct ascending values, int64; which of them are new, int64; what is known from now on):
    what is known are ascending values and their numbers, and new ones are numbered from `first` on."""
    seen, numbers = known
    at = seen.searchsorted(values)
    at[at == len(seen)] = 0
    out = np.where(seen[at] == values, numbers[at], -1) if len(seen) else np.full(len(values), -1)
    new = (out < 0).nonzero()[0]
    if not len(new):
        return out, new, known
    out[new] = np.arange(first, first + len(new))
    seen, numbers = np.concatenate((seen, values[new])), np.concatenate((numbers, out[new]))
    order = seen.argsort(kind="stable")  # which is fast: two pieces, each in order
    return out, new, (seen[order], numbers[order])


def equal_tuples(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where each distinct tuple of numbers occurs first; the number of each tuple), int64. Columns hold no negative numbers."""
    key = columns[0].astype(np.int64, copy=False)
    for column in columns[1:]:
        width = int(column.max(initial=0)) + 1
        if width == 1:
            continue
        if width * (int(key.max(initial=0)) + 1) >= _ROOM:
            key = numbered(key)[1]
        key = key * width + column
    return exampled(key)[1:]


def equal_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where each distinct row occurs first; the number of each row, numbered in the order in which they first occur), int64."""
    seen: dict[bytes, int] = {}
    which = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in np.ascontiguousarray(rows)], np.int64)
    return exampled(which)[1], which


def occupied(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) int64[*] each, of what is not 0 in a table of two dimensions, row by row."""
    at = (table.ravel() != 0).nonzero()[0]
    row, column = np.divmod(at, table.shape[1])
    return row, column


def firsts(values: np.ndarray, size: int) -> np.ndarray:
    """Where each of the numbers 0, 1, ..., `size` begins among the values, of 0 to `size` - 1, once they are sorted:
    int64[size + 1]."""
    out = np.zeros(size + 1, np.int64)
    np.add.accumulate(np.bincount(values, minlength=size), out=out[1:])
    return out


def _begins(ordered: np.ndarray) -> np.ndarray:
    begins = np.empty(len(ordered), bool)
    begins[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return begins
