"""A function of one row as one kernel for all rows of a batch, a program for every row (Pallas, compiled by Triton for a GPU).

XLA makes ten to twenty kernels of what a step does with a few numbers of every row. Each is a launch, and none can begin before
the last one has ended; here a program does one after another what its row needs, and reads tables where they lie.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from jax_decode.kernels.one_pass import wanted
from jax_decode.kernels.placement import spread_by_xla
from jax_decode.kernels.row_program import NotARowProgramError, RowProgram, flat, numbers, traced, typed, where_compiled
from jax_decode.kernels.target import PROGRAMS, target


def in_programs() -> bool:
    """Whether what is traced now is a program that uses this kernel."""
    return target() == "gpu" and wanted("gpu") and not spread_by_xla()


def by_programs(
    function: Callable[..., Any], tables: Any, rows: Any, memory: jax.Array | None = None, *, interpret: bool = False
) -> Any:
    """`function(tables, rows)`, or `function(tables, rows, memory)`, by one kernel.

    Args:
      function: of integers and truth values; closes over nothing that is traced. With memory, what it returns ends with that.
      tables: a tree of arrays that it reads.
      rows: a tree of arrays [B, ...], and what it returns likewise; all their numbers are brought into registers.
      memory: [B, M], more numbers of every row, which it reads and writes where they lie; None for none.
      interpret: run without a GPU, slowly.

    Raises:
      NotARowProgramError: while tracing.
    """
    in_place = [] if memory is None else [memory]
    program = traced(PROGRAMS, function, tables, (rows, *in_place))
    read = [x for x, used in zip(jax.tree.leaves(tables), program.used) if used]
    if any(x.size >= 1 << 31 or x.dtype == bool for x in (*read, *in_place)):
        raise NotARowProgramError(function.__name__)
    by_kernel = functools.partial(_called, program, f"rows_{function.__name__}", interpret)
    if interpret:
        return by_kernel(tables, rows, *in_place)
    return where_compiled("cuda", PROGRAMS, by_kernel, function, tables, rows, *in_place)


def _called(program: RowProgram, name: str, interpret: bool, tables: Any, rows: Any, *in_place: jax.Array) -> Any:
    """The results of all rows."""
    of_tables, leaves = jax.tree.leaves(tables), jax.tree.leaves(rows)
    ours = [i for i in range(len(of_tables)) if program.used[i]]
    outs, tree = jax.tree.flatten(program.shapes)
    outs = outs[: len(outs) - len(in_place)]
    batch = len(leaves[0])
    own = [bool(x.size) and used for x, used in zip(leaves, program.used[len(of_tables) :])]
    columns = [x.reshape(batch, -1).astype(jnp.int32) for x, used in zip(leaves, own) if used]
    inputs = [x.reshape(-1) for x in (jnp.concatenate(columns, 1), *(of_tables[i] for i in ours), *in_place)]
    width = sum(x.size for x in outs)

    def kernel(*refs: Any) -> None:
        row = pl.program_id(0)
        given: list[Any] = [None] * len(of_tables)
        for i, ref in zip(ours, refs[1:]):
            given[i] = _Memory(ref, of_tables[i].shape)
        place = row * (inputs[0].size // batch)
        for x, used in zip(leaves, own):
            size = x.size // batch if used else 0
            found = [typed(plt.load(refs[0].at[place + k]), x.dtype) for k in range(size)]
            given.append(numbers(found, (1, *x.shape[1:])) if used or not x.size else None)
            place += size
        for memory in in_place:
            given.append(_Memory(refs[-1], (1, *memory.shape[1:]), row * memory.shape[1], interpret))
        results = program.run(given)[: len(outs)]
        for k, x in enumerate(x for result in results for x in result.flat):
            plt.store(refs[len(inputs)].at[row * width + k], jnp.asarray(typed(x, np.int32)))

    shapes = [jax.ShapeDtypeStruct((batch * width,), jnp.int32), *(jax.ShapeDtypeStruct((x.size,), x.dtype) for x in in_place)]
    written, *kept = pl.pallas_call(
        kernel,
        grid=(batch,),
        in_specs=[pl.BlockSpec() for _ in inputs],
        out_specs=[pl.BlockSpec() for _ in shapes],
        out_shape=shapes,
        input_output_aliases={len(inputs) - 1: 1} if in_place else {},
        interpret=interpret,
        compiler_params=plt.CompilerParams(num_warps=1),
        name=name,
    )(*inputs)
    written, ends = written.reshape(batch, width), np.cumsum([x.size for x in outs]).tolist()
    of_rows = [written[:, end - x.size : end].reshape(batch, *x.shape[1:]).astype(x.dtype) for x, end in zip(outs, ends)]
    return jax.tree.unflatten(tree, of_rows + [x.reshape(y.shape) for x, y in zip(kept, in_place)])


class _Memory:
    """An array in the device's memory, or of every row its own part of one; what was written makes older handles useless."""

    def __init__(self, ref: Any, shape: tuple[int, ...], begin: Any = None, interpret: bool = False) -> None:
        self.ref, self.shape, self.begin, self.interpret = ref, shape, begin, interpret
        self.written = False

    def gather(self, index: Any, sizes: Sequence[int], columns: Sequence[int], sums: dict[int, Any]) -> Any:
        """See `row_program.Memory`."""
        if self.written:
            raise NotARowProgramError("what was there before is read")
        count = index.shape[-1]
        rest = tuple(sizes[count:])
        width = math.prod(self.shape[count:])
        found = np.full((math.prod(index.shape[:-1]), rest[0] if rest else 1), np.int32(0), object)
        for k, place in enumerate(index.reshape(-1, count)):
            begin = flat(place, self.shape) * np.int32(width)
            for c in columns if rest else [0]:
                found[k, c] = plt.load(self.ref.at[self._at(begin + np.int32(c))])
        return found.reshape(*index.shape[:-1], *rest)

    def scatter(self, index: Any, values: Any) -> _Memory:
        """See `row_program.Memory`."""
        if self.begin is None or self.written:
            raise NotARowProgramError("scatter")
        for place, value in zip(index.reshape(-1, index.shape[-1]), values.flat):
            plt.store(self.ref.at[self._at(flat(place, self.shape))], jnp.asarray(typed(value, self.ref.dtype)))
        if not self.interpret:
            plt.debug_barrier()  # one thread writes, and all read
        self.written = True
        return _Memory(self.ref, self.shape, self.begin, self.interpret)

    def _at(self, place: Any) -> Any:
        return jnp.int32(place) if self.begin is None else self.begin + place
