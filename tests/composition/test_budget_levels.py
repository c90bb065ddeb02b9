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


def test_what_cells_add() -> None:
    """Of every kept cell the last one before it within its limits, and the token sets that are in its own limits alone."""
    rng, several = np.random.default_rng(2), 0
    for _ in range(80):
        size = int(rng.integers(1, 60))
        node = np.sort(rng.integers(0, 5, size))
        cost, need = rng.integers(1, 6, size), rng.integers(0, 1 + rng.integers(0, 4), size)
        grid = Grid(node, cost, need, rng.integers(1, 1 << 60, size).astype(np.uint64), np.ones(size, np.int64))
        cells = np.sort(rng.permutation(len(grid.node))[: 1 + int(rng.integers(0, len(grid.node)))])
        some = np.sort(rng.permutation(len(cells))[: 1 + int(rng.integers(0, len(cells)))])
        below, which, member = grid.differences(cells, some)
        assert (np.diff(which) >= 0).all()
        for place, i in enumerate(some.tolist()):
            others = [j for j in range(i) if grid.node[cells[j]] == grid.node[cells[i]] and grid.need[cells[j]] <= grid.need[cells[i]]]
            fits = [(node == grid.node[c]) & (cost <= grid.cost[c]) & (need <= grid.need[c]) for c in cells[[i, *others[-1:]]]]
            assert below[place] == (grid.union[cells[others[-1]]] if others else 0)
            assert sorted(member[which == place].tolist()) == (fits[0] & ~fits[1] if others else fits[0]).nonzero()[0].tolist()
            assert sorted(grid.difference(cells, i)[1].tolist()) == sorted(member[which == place].tolist())
            several += bool(others) and others[-1] < i - 1
    assert several > 50


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
