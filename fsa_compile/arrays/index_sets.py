"""Arithmetic on arrays of indices: ranges one after another, the tokens of bit rows, numbers for distinct values. NumPy only."""

from __future__ import annotations

import numpy as np

from fsa_compile.arrays import integers as distinct

_MARKED = 1 << 18
"""Below this size distinct numbers are found by marking them,"""
_MARKED_FEW = 1 << 14
_EACH = 128
"""and for a few of them below this one, and as much for each of them."""
_SPARSE = 8
"""Of rows with less than such a part of words that are not zero only those are unpacked."""


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
