"""64-bit hashes of integer arrays."""

from __future__ import annotations

import numpy as np

_BLOCK = 1 << 14
"""Numbers that are worked on at once, so that all steps read them from the processor's cache."""


def mixed(values: np.ndarray) -> np.ndarray:
    """Random-looking uint64 of integers (the finaliser of SplitMix64), so that sets are told apart by their sums."""
    out = np.array(values, np.uint64, order="C")
    every = out.reshape(-1)
    shifted = np.empty(min(len(every), _BLOCK), np.uint64)
    for begin in range(0, len(every), _BLOCK):
        x = every[begin : begin + _BLOCK]
        y = shifted[: len(x)]
        x += np.uint64(1)
        x *= np.uint64(0x9E3779B97F4A7C15)
        x ^= np.right_shift(x, np.uint64(30), out=y)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= np.right_shift(x, np.uint64(27), out=y)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= np.right_shift(x, np.uint64(31), out=y)
    return out
