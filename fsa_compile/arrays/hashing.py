"""64-bit hashes of integer arrays."""

from __future__ import annotations

import numpy as np


def mixed(values: np.ndarray) -> np.ndarray:
    """Random-looking uint64 of integers (the finaliser of SplitMix64), so that sets are told apart by their sums."""
    x = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
