"""Ranges laid end to end, short ones and long ones, against Python's own."""

import numpy as np
import pytest

from fsa_compile.arrays import ranges


@pytest.mark.parametrize("number", [0, 1, 50])
@pytest.mark.parametrize("longest", [0, 1, 2 * ranges._SHORT, 5 * ranges._SHORT])
def test_every_index_of_every_range(number: int, longest: int) -> None:
    rng = np.random.default_rng(number + longest)
    begin, size = rng.integers(0, 90, number), rng.integers(0, longest + 1, number)
    expected = [(i, at) for i, (b, n) in enumerate(zip(begin.tolist(), size.tolist())) for at in range(b, b + n)]
    assert list(zip(*(column.tolist() for column in ranges.spread(begin, size)))) == expected
    assert list(zip(*(column.tolist() for column in ranges.ranges(begin, begin + size)))) == expected
    assert ranges.indices(begin, begin + size).tolist() == ranges.joined(begin, size).tolist() == [at for _, at in expected]
