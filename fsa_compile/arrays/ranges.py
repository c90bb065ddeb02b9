"""Ranges and segments of integer arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_SHORT = 4
"""Ranges of fewer indices than this in the mean are spread by taking; `repeat` is slow where it repeats few times."""
_NUMBERS = np.arange(1 << 16)
_NUMBERS.flags.writeable = False


def counted(size: int) -> np.ndarray:
    """int64[size], 0, 1, 2, ...; not to be written to."""
    return _NUMBERS[:size] if size <= len(_NUMBERS) else np.arange(size)


def segment_starts(values: np.ndarray) -> np.ndarray:
    """Indices at which a new value begins, int64."""
    if not len(values):
        return np.zeros(0, np.int64)
    begins = np.empty(len(values), bool)
    begins[0] = True
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins.nonzero()[0]


def segment_sizes(begin: np.ndarray, end: int) -> np.ndarray:
    """How many indices each segment has: from where it begins to where the next one does, and the last one to the end, int64."""
    out = np.empty(len(begin), np.int64)
    out[:-1], out[-1:] = begin[1:], end
    out -= begin
    return out


def ranges(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of the range, index) for every index of every range."""
    return spread(begin, end - begin)


def spread(begin: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of the range, index) for every index of every range, from where the ranges begin and how many indices each has."""
    which = counted(len(size)).repeat(size)
    shift = begin + size - np.add.accumulate(size)  # half of the time that `cumsum` takes for a few numbers
    at = shift.take(which) if len(which) < _SHORT * len(size) else shift.repeat(size)
    at += counted(len(at))
    return which, at


def indices(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Every index of every range, one range after the other."""
    return joined(begin, end - begin)


def gather_segments(start: np.ndarray, count: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the chosen segments laid end to end, and the indices of their elements."""
    sizes = count[chosen]
    offset = np.concatenate([[0], np.cumsum(sizes)])
    index = np.arange(int(offset[-1])) + np.repeat(start[chosen] - offset[:-1], sizes)
    return offset.astype(np.int32), index


def joined(begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The indices of many ranges, one range after another."""
    out = (begin + count - np.add.accumulate(count)).repeat(count)
    out += counted(len(out))
    return out


def blocks(size: np.ndarray, most: int) -> Iterator[slice]:
    """Slices, one after another, of what has the given sizes; those of a slice add up to at most so much, or it is one alone."""
    upto, begin = size.cumsum(), 0
    while begin < len(size):
        before = int(upto[begin - 1]) if begin else 0
        end = max(begin + 1, int(upto.searchsorted(before + most, side="right")))
        yield slice(begin, end)
        begin = end
