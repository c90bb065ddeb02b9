"""Arithmetic on arrays of indices: ranges one after another, the tokens of bit rows, numbers for distinct values. NumPy only."""

from __future__ import annotations

import numpy as np

from fsa_compile import distinct

_MARKED = 1 << 18
"""Below this size distinct numbers are found by marking them,"""
_MARKED_FEW = 1 << 14
_EACH = 128
"""and for a few of them below this one, and as much for each of them."""
_SPARSE = 8
"""Of rows with less than such a part of words that are not zero only those are unpacked."""


def joined(begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The indices of many ranges, one range after another."""
    out = (begin + count - count.cumsum()).repeat(count)
    out += np.arange(len(out))
    return out


def tokens_of(rows: np.ndarray) -> np.ndarray:
    """int64[n], the tokens of bit rows uint32[R, W], row by row and ascending, or of one, uint32[W]."""
    flat = rows.reshape(-1)
    some = (flat != 0).nonzero()[0]
    if rows.ndim == 1 and _SPARSE * len(some) > len(flat):
        return np.unpackbits(flat.astype("<u4", copy=False).view(np.uint8), bitorder="little").view(bool).nonzero()[0]
    place = np.unpackbits(flat[some].astype("<u4", copy=False).view(np.uint8), bitorder="little").view(bool).nonzero()[0]
    return (some % rows.shape[-1] << 5)[place >> 5] | (place & 31)


def numbered(values: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ones of some numbers below `size`, ascending, and the place of each number among them: int64 each."""
    if size > min(_MARKED + 8 * len(values), _MARKED_FEW + _EACH * len(values)):
        return distinct.numbered(values)
    marked = np.zeros(size, bool)
    marked[values] = True
    found = marked.nonzero()[0]
    place = np.empty(size, np.int64)
    place[found] = np.arange(len(found))
    return found, place.take(values)
