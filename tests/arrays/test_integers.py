"""Integers numbered by sorting and by marking: as `np.unique` has them."""

from __future__ import annotations

import numpy as np
import pytest

from fsa_compile.arrays import integers


@pytest.mark.parametrize("size", [0, 1, 250, integers._MARKED - 1, integers._MARKED, integers._MARKED + 7])
@pytest.mark.parametrize("high", [1, 300, integers._MARKED - 1, *(integers._SPARSE * integers._MARKED + n for n in (0, 1)), 1 << 40])
@pytest.mark.parametrize("low", [0, -5])
def test_numbered(size, high, low):
    values = np.random.default_rng(size + high).integers(low, high, size)
    every, which = integers.numbered(values)
    expected, numbers = np.unique(values, return_inverse=True)
    assert every.dtype == which.dtype == np.int64
    assert np.array_equal(every, expected)
    assert np.array_equal(which, numbers.ravel())


@pytest.mark.parametrize("size", [0, 1, 299, 300, 5000])
@pytest.mark.parametrize("high", [3, 1 << 20, 1 << 62])
@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_values_in_order_with_examples(size, high, kind):
    values = np.random.default_rng(size).integers(0, high, size).astype(kind)
    values[1::7] += kind(1)  # hashes may differ in their lower bits alone
    every, first, which = integers.exampled(values)
    expected = np.unique(values, return_index=True, return_inverse=True)
    assert [column.dtype for column in (every, first, which)] == [kind, np.int64, np.int64]
    assert all(np.array_equal(a, b.ravel()) for a, b in zip((every, first, which), expected))
    assert np.array_equal(integers.distinct(values), expected[0])
    order = values.argsort(kind="stable")
    assert np.array_equal(integers.order_of(values), order)
    assert all(map(np.array_equal, integers.in_order(values), (order, values[order])))


@pytest.mark.parametrize("high", [1, 9, 1 << 30])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_rows_sorted_together(high, columns):
    rows = np.random.default_rng(high).integers(0, high, (columns, 500))
    found = integers.sorted_rows(*(row.copy() for row in rows))
    assert list(zip(*(column.tolist() for column in found))) == sorted(zip(*rows.tolist()))


def test_numbers_of_known_values():
    rng, number, known = np.random.default_rng(5), dict[int, int](), (np.zeros(0, np.uint64), np.zeros(0, np.int64))
    for _ in range(6):
        values = np.unique(rng.integers(0, 60, 20).astype(np.uint64))
        found, new, known = integers.known_numbers(known, values, len(number))
        assert values[new].tolist() == [v for v in values.tolist() if v not in number]
        assert found.tolist() == [number.setdefault(v, len(number)) for v in values.tolist()]
