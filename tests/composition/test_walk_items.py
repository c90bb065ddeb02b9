"""Items of a walk whose registers take no memory, and the longest chain of nodes that one token pops."""

from types import SimpleNamespace

import numpy as np
import pytest

from fsa_compile.composition.pushdown.arcs import Children
from fsa_compile.composition.pushdown.items import Items, joined, zeros
from fsa_compile.composition.pushdown.nodes import Nodes
from fsa_compile.errors import ConstraintError


def test_registers_that_are_all_zero_are_not_written_out() -> None:
    owner, at = np.arange(5), np.array([4, 0, 0, 2, 1, 3])
    none, some = Items(owner, owner + 1, owner + 2, zeros(5)), Items(owner, owner + 1, owner + 2, owner + 3)
    for items, written in ((none, False), (some, True)):
        for found in (items.at(at), items.at(owner > 2), items, joined([items, items])):
            assert bool(found.begun.strides[0]) == written
            assert found.begun.tolist() == [n + 3 if written else 0 for n in found.owner.tolist()]
    both = joined([none, some])
    assert both.begun.tolist() == [0] * 5 + [3, 4, 5, 6, 7]
    assert both.owner.tolist() == [0, 1, 2, 3, 4] * 2
    with pytest.raises(ValueError, match="read-only"):
        none.begun[0] = 1


def test_the_longest_path_of_nodes() -> None:
    rng, longest = np.random.default_rng(3), set()
    for _ in range(200):
        n, rows, edges = (int(rng.integers(1, most)) for most in (12, 9, 14))
        row, child = rng.integers(1, rows + 1, edges), rng.integers(0, n, edges)
        own = rng.integers(0, rows + 1, n + 2)  # the last two are more rows of nodes that have one
        of_row = np.append(np.arange(n), rng.integers(0, n, 2))
        nodes = SimpleNamespace(symbolic=np.arange(n), delta_row=own, children=Children(row, row, child, rows + 1, 1))
        after = {r: {int(c) for c in child[row == r]} for r in range(rows + 1)}
        length = dict.fromkeys(after, 0)
        for _ in range(n + 2):
            of_node = {node: max(length[int(r)] for r in own[of_row == node]) for node in range(n)}
            length = {r: max((1 + of_node[c] for c in some), default=0) for r, some in after.items()}
        longest.add(expected := max(length.values()))
        if expected > n:  # in a circle
            with pytest.raises(ConstraintError, match="close any number of nested rules"):
                Nodes._longest_path(nodes, of_row)  # type: ignore[arg-type]
        else:
            assert Nodes._longest_path(nodes, of_row) == expected  # type: ignore[arg-type]
    assert len(longest) > 4
