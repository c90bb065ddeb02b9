"""Integers numbered by sorting and by marking: as `np.unique` has them."""

from __future__ import annotations

import numpy as np
import pytest

from fsa_compile.arrays import integers


@pytest.mark.parametrize("size", [0, 1, 250, integers._MARKED - 1, integers._MARKED, integers._MARKED + 7])
@pytest.mark.parametrize("high", [1, 300, integers._MARKED - 1, integers._MARKED + 1, 1 << 40])
@pytest.mark.parametrize("low", [0, -5])
def test_numbered(size, high, low):
    values = np.random.default_rng(size + high).integers(low, high, size)
    every, which = integers.numbered(values)
    expected, numbers = np.unique(values, return_inverse=True)
    assert every.dtype == which.dtype == np.int64
    assert np.array_equal(every, expected)
    assert np.array_equal(which, numbers.ravel())
