"""A function of one row as one kernel for all rows of a batch, a row in every lane (Pallas, compiled by Mosaic for a TPU).

On a TPU every operation of a step takes more than a microsecond, however little it does, and most of a step's work is on a few
numbers of every row. Tables lie in the core's memory with their records along the lanes, where one instruction reads a record of
128 for each of 128 rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from jax_decode.kernels.one_pass import wanted
from jax_decode.kernels.placement import spread_by_xla
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.row_program import NotARowProgramError, RowProgram, flat, numbers, traced, typed, where_compiled
from jax_decode.kernels.target import LANES as LANES_TARGET
from jax_decode.kernels.target import target

MOST_ENTRIES = 1 << 15
"""Of a table: every read looks at all of it, 1,024 entries at a time."""
_SUBLANES, _BLOCK = 8, 1024
_AT_ONCE, _RUNS = 24, 2
"""Entries, or lists of entries, that one loop looks for: more do not fit into the registers."""
_MANY = 4
"""Blocks from which on lists of entries are looked for together."""


def in_lanes(*tables: jax.Array) -> bool:
    """Whether what is traced now is a program that uses this kernel, and the tables have few enough entries (`MOST_ENTRIES`)."""
    if any(_entries(table) > MOST_ENTRIES for table in tables):
        return False
    return target() == "tpu" and wanted("tpu") and _reads_along_lanes() and not spread_by_xla()


def _reads_along_lanes() -> bool:
    """Whether the TPU that is here, if one is, has the instruction that reads at an index for every lane: not a v2 or v3."""
    return jax.default_backend() != "tpu" or jax.devices()[0].device_kind not in ("TPU v2", "TPU v3")


def by_lanes(function: Callable[[Any, Any], Any], tables: Any, rows: Any, *, interpret: bool = False) -> Any:
    """`function(tables, rows)` by one kernel.

    Args:
      function: of integers and truth values; closes over nothing that is traced.
      tables: a tree of arrays that it only reads records of, by `kernels.gather`: all axes but the last at indices.
      rows: a tree of arrays [B, ...], and what it returns likewise.
      interpret: run without a TPU, slowly.

    Raises:
      NotARowProgramError: while tracing.
    """
    program = traced(LANES_TARGET, function, tables, (rows,))
    if any(used and _entries(x) > MOST_ENTRIES for x, used in zip(jax.tree.leaves(tables), program.used)):
        raise NotARowProgramError(function.__name__)
    by_kernel = functools.partial(_called, program, f"lanes_{function.__name__}", interpret)
    return by_kernel(tables, rows) if interpret else where_compiled("tpu", LANES_TARGET, by_kernel, function, tables, rows)


def _called(program: RowProgram, name: str, interpret: bool, tables: Any, rows: Any) -> Any:
    """The results of all rows."""
    leaves, of_tables = jax.tree.leaves(rows), jax.tree.leaves(tables)
    count = len(of_tables)
    ours = [i for i in range(count) if program.used[i]]
    own = [i for i, x in enumerate(leaves) if x.size and program.used[count + i]]
    outs, out_tree = jax.tree.flatten(program.shapes)
    batch = len(leaves[0])

    def kernel(*refs: Any) -> None:
        given: list[Any] = [None] * count + [numbers([], (1, *x.shape[1:])) if not x.size else None for x in leaves]
        for i, ref in zip(ours, refs):
            given[i] = _Table(ref, of_tables[i].shape)
        for i, ref in zip(own, refs[len(ours) :]):
            x = leaves[i]
            given[count + i] = numbers([typed(ref[k : k + 1], x.dtype) for k in range(ref.shape[0])], (1, *x.shape[1:]))
        for ref, found in zip(refs[len(ours) + len(own) :], program.run(given)):
            for k, x in enumerate(found.flat):
                ref[k : k + 1] = jnp.broadcast_to(typed(x, np.int32), (1, LANES))

    def spec(count: int) -> pl.BlockSpec:
        return pl.BlockSpec((count, LANES), lambda i: (0, i))

    shown = [_across(of_tables[i]) for i in ours]
    whole = [pl.BlockSpec((x.shape[0], -(-x.shape[1] // _BLOCK) * _BLOCK), lambda i: (0, 0)) for x in shown]
    columns = [leaves[i].reshape(batch, -1).T for i in own]
    columns = [x if x.dtype.itemsize == 4 else x.astype(jnp.int32) for x in columns]
    sizes = [max(x.size, 1) for x in outs]
    found = pl.pallas_call(
        kernel,
        grid=(-(-batch // LANES),),
        in_specs=[*whole, *(spec(len(x)) for x in columns)],
        out_specs=[spec(n) for n in sizes],
        out_shape=[jax.ShapeDtypeStruct((n, batch), jnp.int32) for n in sizes],
        interpret=interpret,
        name=name,
    )(*shown, *columns)
    return jax.tree.unflatten(out_tree, [x.T.reshape(batch, *s.shape[1:]).astype(s.dtype) for x, s in zip(found, outs)])


def _entries(table: jax.Array) -> int:
    return int(np.prod(table.shape[:-1] or table.shape))


def _across(table: jax.Array) -> jax.Array:
    """Records along the lanes, columns along the sublanes."""
    return table.reshape(_entries(table), -1).T.astype(jnp.int32)


class _Table:
    """Reads of a table in the core's memory."""

    def __init__(self, ref: Any, shape: Sequence[int]) -> None:
        self.ref, self.shape = ref, tuple(shape)
        self.blocks = ref.shape[1] // _BLOCK
        self.read: dict[Any, Any] = {}

    def gather(self, index: Any, sizes: Sequence[int], columns: Sequence[int], sums: dict[int, Any]) -> Any:
        """See `row_program.Memory`."""
        shape, count, rest = self.shape, index.shape[-1], tuple(sizes[index.shape[-1] :])
        places = index.reshape(-1, count)
        of_records = max(len(shape) - 1, 1)
        rows = [flat(place[:of_records], shape[:of_records]) for place in places]
        own = {int(place[-1]) for place in places} if count > of_records else {0}
        assert len(own) == 1, "the numbers of one read are of one column"
        columns = columns if rest else [*own]
        found = np.empty((len(rows), rest[0] if rest else 1), object)
        for k, record in enumerate(self._records(rows, columns, sums)):
            for c, x in zip(columns, record):
                found[k, c if rest else 0] = x
        return found.reshape(*index.shape[:-1], *rest)

    def scatter(self, index: Any, values: Any) -> Any:
        """Tables are only read."""
        raise NotARowProgramError("scatter")

    def _records(self, index: Sequence[Any], columns: Sequence[int], sums: dict[int, Any]) -> list[list[Any]]:
        """Columns of the records at every index; `sums`: of which numbers an index is a sum, if it is a number and a constant."""
        runs: dict[int, Any] = {}
        for i in index:
            base, place, _ = sums.get(id(i), (i, 0, None))
            runs.setdefault(id(base), (base, {}))[1][int(place)] = i
        every = list(runs.values())
        together = self.blocks >= _MANY and min(len(own) for _, own in every) > _SUBLANES
        for begin in range(0, len(every) if together else 0, _RUNS):
            self._read_runs(every[begin : begin + _RUNS], columns)
        left = [(i, c) for i in index for c in columns if (id(i), c) not in self.read]
        for begin in range(0, len(left), _AT_ONCE):
            self._read_some(left[begin : begin + _AT_ONCE])
        return [[self.read[id(i), c][1] for c in columns] for i in index]

    def _read_runs(self, runs: Sequence[tuple[Any, dict[int, Any]]], columns: Sequence[int]) -> None:
        """Of lists of entries that lie one after another: 8 of them by one instruction, where those of 128 lie along sublanes."""
        spans = [(base + min(own), range(min(own), max(own) + 1)) for base, own in runs]
        windows = [[(begin >> 3) + k for k in range(-(-(len(span) + _SUBLANES - 1) // _SUBLANES))] for begin, span in spans]
        at = {(r, k): jnp.broadcast_to(x, (_SUBLANES, LANES)) for r, own in enumerate(windows) for k, x in enumerate(own)}
        place, block = {k: (x >> 4) & (LANES - 1) for k, x in at.items()}, {k: ((x >> 11) << 4) | (x & 15) for k, x in at.items()}
        found = {(key, c): jnp.zeros((_SUBLANES, LANES), jnp.int32) for key in at for c in columns}
        for b in range(-(-self.ref.shape[1] // (LANES * LANES)) * 16):
            if b % 16 == 0:
                across = {c: self._transposed(c, b // 16 * LANES * LANES) for c in columns}
            for key in at:
                for c in columns:
                    own = across[c][b % 16 * _SUBLANES : (b % 16 + 1) * _SUBLANES]
                    own = jnp.take_along_axis(own, place[key], 1, mode="promise_in_bounds")
                    found[key, c] = jnp.where(block[key] == b, own, found[key, c])
        for r, (begin, span) in enumerate(spans):
            for c in columns:
                x = jnp.concatenate([found[(r, k), c] for k in range(len(windows[r]))], 0)
                for bit in (4, 2, 1):  # from where the list begins on
                    moves = jnp.broadcast_to((begin & bit) != 0, x.shape)
                    x = jnp.where(moves, jnp.concatenate([x[bit:], x[:bit]], 0), x)
                for k, i in runs[r][1].items():
                    self.read[id(i), c] = i, x[k - span.start : k - span.start + 1]

    def _transposed(self, column: int, first: int) -> jax.Array:
        """Entries of a column from one on, int32[128, 128], those of 128 along the sublanes."""
        tiles = min((self.ref.shape[1] - first) // LANES, LANES)
        own = self.ref[column : column + 1, first : first + tiles * LANES].reshape(tiles, LANES)
        return jnp.concatenate([own, jnp.zeros((LANES - tiles, LANES), jnp.int32)], 0).T if tiles < LANES else own.T

    def _read_some(self, some: list[tuple[Any, int]]) -> None:
        """Of every index the entry of a column: one instruction looks at 1,024 of them."""
        at = {id(i): jnp.broadcast_to(i, (_SUBLANES, LANES)) for i, _ in some}
        place, block = {k: x & (LANES - 1) for k, x in at.items()}, {k: x >> 10 for k, x in at.items()}

        def another(j: Any, found: Sequence[jax.Array]) -> list[jax.Array]:
            own = {c: self.ref[c : c + 1, pl.ds(j * _BLOCK, _BLOCK)].reshape(_SUBLANES, LANES) for _, c in some}
            seen = [jnp.take_along_axis(own[c], place[id(i)], 1, mode="promise_in_bounds") for i, c in some]
            return seen if self.blocks == 1 else [jnp.where(block[id(i)] == j, x, y) for (i, _), x, y in zip(some, seen, found)]

        found = [jnp.zeros((_SUBLANES, LANES), jnp.int32)] * len(some)
        if self.blocks > 1:
            found = jax.lax.fori_loop(0, self.blocks, another, found, unroll=max(_AT_ONCE // len(some), 1))
        else:
            found = another(0, found)
        order = jax.lax.broadcasted_iota(jnp.int32, (_SUBLANES, LANES), 0)
        for (i, c), x in zip(some, found):
            own = order == ((at[id(i)] >> 7) & (_SUBLANES - 1))
            self.read[id(i), c] = i, jnp.where(own, x, 0).sum(0, keepdims=True)
