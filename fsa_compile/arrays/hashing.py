"""64-bit hashes of integer arrays."""

from __future__ import annotations

import numpy as np

_BLOCK = 1 << 14
"""Numbers that are worked on at once, so that all steps read them from the processor's cache."""
_ONE, _FIRST, _SECOND, _THIRD, _BY_30, _BY_27, _BY_31 = (
    np.array(number, np.uint64)  # NumPy takes half as long with an array as with a number
    for number in (1, 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 30, 27, 31)
)


def mixed(values: np.ndarray) -> np.ndarray:
    """Random-looking uint64 of integers (the finaliser of SplitMix64), so that sets are told apart by their sums."""
    out = np.array(values, np.uint64, order="C")
    every = out.reshape(-1)
    for begin in range(0, len(every), _BLOCK):
        x = every[begin : begin + _BLOCK]
        x += _ONE
        x *= _FIRST
        x ^= x >> _BY_30
        x *= _SECOND
        x ^= x >> _BY_27
        x *= _THIRD
        x ^= x >> _BY_31
    return out
