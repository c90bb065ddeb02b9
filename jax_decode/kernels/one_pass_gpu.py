"""Logits and mask planes in one kernel that reads every logit once (Pallas, compiled by Triton for an NVIDIA GPU).

XLA splits the same work on a GPU into a kernel that writes comparisons of every plane to memory, one that reads them beside the
logits, and a reduction. Here a program holds all planes of some columns of one row in registers, and writes one result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from jax_decode.kernels.planes import NEVER, Planes, clean

_COLUMNS = 128
"""Columns of a program, a power of two: one for each of its threads, which holds their 32 planes in registers."""
_WARPS = 4

Tree = TypeVar("Tree")


def folded(
    function: Callable[..., Tree],
    logits: jax.Array,
    union: tuple[jax.Array, jax.Array] | None,
    num_words: int,
    rows: Sequence[jax.Array] = (),
    *,
    interpret: bool = False,
) -> Tree:
    """What `function` says of groups of columns, [B, n] each.

    Args:
      function: `(parts, column int32[1, m], *rows)` -> a tree of arrays [1] of those columns together.
      logits: float[B, V'].
      union: bit rows uint32[R, W], and int32[B, S], which of them hold the allowed tokens of every row; None allows all.
      num_words: W.
      rows: arrays [B, k]; `function` takes the k numbers of one row of each, [1, 1] each.
      interpret: run without a GPU, slowly.
    """
    batch, width = logits.shape
    inputs = [logits, *(union or ()), *rows]

    def of_columns(refs: Sequence[Any], row: Any, group: Any) -> Tree:
        column = group * _COLUMNS + jax.lax.broadcasted_iota(jnp.int32, (1, _COLUMNS), 1)
        whole = num_words if num_words % _COLUMNS == 0 else 0

        def read(ref: Any, row: Any, first: int, end: int, other: float) -> tuple[jax.Array, jax.Array | None]:
            """The numbers of a row from column `first` on, and which of them lie before column `end` of them (None: all)."""
            there = None if end == whole else column < end
            own = ref.at[pl.ds(row, 1), pl.ds(first + group * _COLUMNS, _COLUMNS)]
            return plt.load(own, mask=there, other=None if there is None else other), there

        word = None
        for s in range(0 if union is None else union[1].shape[1]):
            of_source, _ = read(refs[1], plt.load(refs[2].at[row, jnp.int32(s)]), 0, num_words, 0)
            word = of_source if word is None else word | of_source
        parts: Planes = []
        for b in range(-(-width // num_words)):
            x, there = read(refs[0], row, b * num_words, min(num_words, width - b * num_words), NEVER)
            x = clean(x) if there is None else jnp.where(there, clean(x), NEVER)
            ok = None
            if word is not None:  # logits past plane 31 belong to no token of the vocabulary
                ok = (word & jnp.uint32(1 << b)) != 0 if b < 32 else jnp.zeros(word.shape, bool)
            parts.append((x, ok))
        own = [
            tuple(plt.load(ref.at[pl.ds(row, 1), pl.ds(i, 1)]) for i in range(of.shape[1]))
            for ref, of in zip(refs[len(inputs) - len(rows) :], rows)
        ]
        return function(parts, column, *own)

    def kernel(*refs: Any) -> None:
        found = of_columns(refs[: len(inputs)], pl.program_id(0), pl.program_id(1))
        for ref, value in zip(refs[len(inputs) :], jax.tree.leaves(found)):
            ref[...] = value[:, None]

    one = jnp.zeros((1, _COLUMNS), jnp.int32)
    numbers = [tuple(row[:1, i : i + 1] for i in range(row.shape[1])) for row in rows]
    example = jax.eval_shape(function, _example(width, num_words, union is not None), one, *numbers)
    groups = -(-num_words // _COLUMNS)
    shapes = [jax.ShapeDtypeStruct((batch, groups), x.dtype) for x in jax.tree.leaves(example)]
    call = pl.pallas_call(
        kernel,
        grid=(batch, groups),
        in_specs=[pl.BlockSpec() for _ in inputs],
        out_specs=[pl.BlockSpec((1, 1), lambda i, j: (i, j)) for _ in shapes],
        out_shape=shapes,
        interpret=interpret,
        compiler_params=plt.CompilerParams(num_warps=_WARPS),
    )
    return jax.tree.unflatten(jax.tree.structure(example), call(*inputs))


def _example(width: int, num_words: int, masked: bool) -> Planes:
    """The shapes of a program's planes."""
    x = jnp.zeros((1, _COLUMNS), jnp.float32)
    return [(x, x > 0 if masked else None)] * -(-width // num_words)
