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

_COLUMNS = 256
"""Columns of a program, a power of two: with their 32 planes 64 registers of each of 128 threads."""
_WARPS = 4

Tree = TypeVar("Tree")


def folded(
    function: Callable[..., Tree],
    logits: jax.Array,
    words: jax.Array | None,
    num_words: int,
    rows: Sequence[jax.Array] = (),
    *,
    interpret: bool = False,
) -> Tree:
    """What `function` says of groups of columns, [B, n] each.

    Args:
      function: `(parts, column int32[1, m], *rows)` -> a tree of arrays [1] of those columns together.
      logits: float[B, V'].
      words: uint32[B, W], bit planes of the allowed tokens; None allows all.
      num_words: W.
      rows: arrays [B, k]; `function` takes the k numbers of one row of each, [1, 1] each.
      interpret: run without a GPU, slowly.
    """
    batch, width = logits.shape
    inputs = [logits, *([] if words is None else [words]), *rows]

    def of_columns(refs: Sequence[Any], row: Any, group: Any) -> Tree:
        column = group * _COLUMNS + jax.lax.broadcasted_iota(jnp.int32, (1, _COLUMNS), 1)
        at = pl.ds(row, 1)
        whole = num_words if num_words % _COLUMNS == 0 else 0

        def read(ref: Any, first: int, end: int, other: float) -> tuple[jax.Array, jax.Array | None]:
            """The numbers from column `first` on, and which of them lie before column `end` of them (None: all)."""
            there = None if end == whole else column < end
            own = ref.at[at, pl.ds(first + group * _COLUMNS, _COLUMNS)]
            return plt.load(own, mask=there, other=None if there is None else other), there

        word = None if words is None else read(refs[1], 0, num_words, 0)[0]
        parts: Planes = []
        for b in range(-(-width // num_words)):
            x, there = read(refs[0], b * num_words, min(num_words, width - b * num_words), NEVER)
            x = clean(x) if there is None else jnp.where(there, clean(x), NEVER)
            ok = None
            if word is not None:  # logits past plane 31 belong to no token of the vocabulary
                ok = (word & jnp.uint32(1 << b)) != 0 if b < 32 else jnp.zeros(word.shape, bool)
            parts.append((x, ok))
        own = [
            tuple(plt.load(ref.at[at, pl.ds(i, 1)]) for i in range(of.shape[1]))
            for ref, of in zip(refs[len(inputs) - len(rows) :], rows)
        ]
        return function(parts, column, *own)

    def kernel(*refs: Any) -> None:
        found = of_columns(refs[: len(inputs)], pl.program_id(0), pl.program_id(1))
        for ref, value in zip(refs[len(inputs) :], jax.tree.leaves(found)):
            ref[...] = value[:, None]

    one = jnp.zeros((1, _COLUMNS), jnp.int32)
    numbers = [tuple(row[:1, i : i + 1] for i in range(row.shape[1])) for row in rows]
    example = jax.eval_shape(function, _example(width, num_words, words is not None), one, *numbers)
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
