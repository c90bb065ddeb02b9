"""Writes into tables in place: every entry that is named has its values afterwards, no other has changed, nothing is compiled."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jax_decode.serving import device_writes
from jax_decode.serving.device_writes import Written, warm, write

TABLES = {"arcs": ("arcs",), "nodes": ("nodes", "frames"), "constraints": ("constraints", "initial")}
APART = {"rows": ("rows", "only")}
SHAPES = {"arcs": (9000, 7), "nodes": (700, 8), "frames": (700, 3), "constraints": (16, 8), "initial": (16, 5, 6),
          "rows": (200, 4), "only": (200,)}  # fmt: skip


def entries_of(rng: np.random.Generator, size: int, pieces: int) -> np.ndarray:
    """Distinct entries in some pieces, in any order; some of them at the beginning or the end of the table."""
    cuts = np.sort(rng.choice(np.arange(1, size), 2 * pieces - 2, replace=False))
    cuts = np.concatenate([[0], cuts, [size]]) if rng.random() < 0.5 else np.sort(rng.choice(size + 1, 2 * pieces, replace=False))
    every = [np.arange(b, e, dtype=np.int32) for b, e in cuts.reshape(-1, 2)]
    return np.concatenate([every[i] for i in rng.permutation(pieces)])


@pytest.mark.parametrize("tables", [TABLES, APART], ids=["together", "apart"])
def test_entries_are_written_and_no_others(tables):
    rng = np.random.default_rng(0)
    kinds = {name: np.uint32 if name == "rows" else np.int32 for names in tables.values() for name in names}
    expected = {name: rng.integers(0, 1 << 30, SHAPES[name]).astype(kind) for name, kind in kinds.items()}
    own = warm({name: jnp.asarray(array) for name, array in expected.items()}, tables)
    programs = device_writes._written._cache_size()
    for _ in range(60):
        what = {}
        for table, names in tables.items():
            size = SHAPES[names[0]][0]
            if rng.random() < 0.25:
                continue
            if table == "constraints":
                entries = rng.choice(size, 1).astype(np.int32)
            elif table == "rows":
                entries = rng.choice(size, rng.integers(1, 150), replace=False).astype(np.int32)
            else:
                entries = entries_of(rng, size, int(rng.integers(1, 6)))
                entries = entries[: rng.integers(1, len(entries) + 1)] if rng.random() < 0.5 else entries
            values = {n: rng.integers(0, 1 << 30, (len(entries), *SHAPES[n][1:])).astype(kinds[n]) for n in names}
            what[table] = Written(entries, values)
            for name in names:
                expected[name][entries] = values[name]
        if what:
            own = write(own, tables, what)
        for name, array in expected.items():
            np.testing.assert_array_equal(np.asarray(own[name]), array, err_msg=name)
    assert device_writes._written._cache_size() == programs
