"""Which cells of a grid are stored, against a search of every node."""

import numpy as np
import pytest

from fsa_compile.composition.tokens.budget_levels import Grid


@pytest.mark.parametrize("fewest", [4, 16])
def test_stored_cells(fewest: int) -> None:
    rng = np.random.default_rng(fewest)
    for _ in range(60):
        size = int(rng.integers(1, 80))
        node = np.sort(rng.integers(0, 12, size))
        cost, need = rng.integers(1, 5, size), rng.integers(0, 1 + rng.integers(0, 3), size)
        count = rng.integers(1, 30, size)
        grid = Grid(node, cost, need, count.astype(np.uint64), count)
        assert grid.stored(fewest).tolist() == _searched(grid, fewest)


def test_as_many_cells_are_kept_as_there_is_room_for() -> None:
    rng, chosen = np.random.default_rng(0), set()
    for _ in range(300):
        size = int(rng.integers(1, 200))
        node = np.sort(rng.integers(0, 6, size))
        cost, need = rng.integers(1, 40, size), rng.integers(0, 1 + rng.integers(0, 3), size)
        count = rng.integers(1, 1 + 2 ** int(rng.integers(1, 12)), size)
        grid, row_bytes = Grid(node, cost, need, rng.integers(1, 1 << 60, size).astype(np.uint64), count), 2 ** int(rng.integers(13, 21))
        for fewest, most in ((1, 1 << 20), *((n, 10 << 20) for n in (4, 16, 64, 256, 1024, 4096)), (1 << 30, 0)):
            cells = grid.stored(fewest)
            if len(np.unique(grid.union[cells])) * row_bytes <= most:
                break
        chosen.add(fewest)
        assert grid.fitting(row_bytes).tolist() == cells.tolist()
    assert len(chosen) > 5


def _searched(grid: Grid, fewest: int) -> list[int]:
    out: list[int] = []
    all_that_add = set(grid.stored().tolist())
    for node in np.unique(grid.node).tolist():
        cells = (grid.node == node).nonzero()[0].tolist()
        kept: list[int] = []
        for cell in cells:
            if cell != cells[-1] and cell not in all_that_add:
                continue
            within = [k for k in kept if grid.need[k] <= grid.need[cell]]
            before = int(grid.count[within[-1]]) if within else 0
            more = int(grid.count[cell]) - before
            if more > 0 and (not before or cell == cells[-1] or more >= fewest):
                kept.append(cell)
        out += kept
    return out
