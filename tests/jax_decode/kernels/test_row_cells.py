"""The kernel over the cells of rows' stacks, by Pallas's interpreter, against a loop of NumPy."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from jax_decode.kernels import row_cells
from jax_decode.kernels.row_cells import written_and_followed


def _by_numpy(cell, given, parent, width, count):
    cell, ways = np.array(cell), []
    for row, (place, top, *new) in zip(cell, np.asarray(given).tolist()):
        row[place : place + len(new)] = new
        way = [top]
        for _ in range(count - 1):
            way.append(row[way[-1] * width + parent])
        ways.append([*way, *(x for t in way for x in row[t * width : t * width + width])])
    return cell, np.array(ways)


def _never(*_):
    raise AssertionError("these sizes are the kernel's")


@pytest.mark.parametrize(("batch", "numbers", "width", "pushes", "count"), [
    (1, 128, 6, 1, 1), (5, 256, 6, 4, 5), (32, 384, 7, 3, 2), (70, 1280, 6, 4, 5), (200, 896, 9, 8, 9),
])  # fmt: skip
def test_cells_are_written_and_read(batch, numbers, width, pushes, count):
    rng = np.random.default_rng(batch)
    cells = numbers // width
    cell = rng.integers(0, cells, (batch, numbers))
    place = rng.integers(0, cells - pushes + 1, batch) * width
    place[0] = min(127 // width, cells - pushes) * width  # numbers of two registers
    new = rng.integers(0, cells, (batch, pushes * width))
    top = np.where(rng.random(batch) < 0.5, place // width + pushes - 1, rng.integers(0, cells, batch))
    given = jnp.asarray(np.concatenate([place[:, None], top[:, None], new], 1), jnp.int32)
    sizes = {"parent": width // 2, "width": width, "count": count}
    found = written_and_followed(_never, jnp.asarray(cell, jnp.int32), given, **sizes, interpret=True)
    for got, want in zip(found, _by_numpy(cell, given, **sizes)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("numbers", "pushes", "count"), [(200, 1, 2), (256, 30, 2), (256, 2, 40), (row_cells.MOST_NUMBERS * 2, 1, 1)])
def test_other_sizes_are_left_to_xla(numbers, pushes, count):
    found = functools.partial(written_and_followed, lambda *x: x, interpret=True)
    cell, given = jnp.zeros((2, numbers), jnp.int32), jnp.zeros((2, 2 + pushes * 6), jnp.int32)
    assert found(cell, given, 1, 6, count) == (cell, given)
