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

    def kernel(*refs: Any) -> None:
        row, group = pl.program_id(0), pl.program_id(1)
        column = group * _COLUMNS + jax.lax.broadcasted_iota(jnp.int32, (1, _COLUMNS), 1)
        word = None if union is None else _word(refs[1], refs[2], row, column, group, num_words, union[1].shape[1])
        of_rows = zip(refs[len(inputs) - len(rows) : len(inputs)], rows)
        own = [tuple(plt.load(ref.at[pl.ds(row, 1), pl.ds(i, 1)]) for i in range(of.shape[1])) for ref, of in of_rows]
        found = function(_planes(refs[0], word, row, column, group, num_words, width), column, *own)
        for ref, value in zip(refs[len(inputs) :], jax.tree.leaves(found)):
            ref[...] = value[:, None]

    one, x = jnp.zeros((1, _COLUMNS), jnp.int32), jnp.zeros((1, _COLUMNS), jnp.float32)
    parts: Planes = [(x, None if union is None else x > 0)] * -(-width // num_words)
    numbers = [tuple(row[:1, i : i + 1] for i in range(row.shape[1])) for row in rows]
    example = jax.eval_shape(function, parts, one, *numbers)
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


def _word(table: Any, of_rows: Any, row: Any, column: jax.Array, group: Any, num_words: int, sources: int) -> jax.Array:
    """The words of a program's columns: the union of the bit rows of all sources."""
    word = jnp.zeros(column.shape, jnp.uint32)
    for s in range(sources):
        source = plt.load(of_rows.at[row, jnp.int32(s)])
        word |= _read(table, source, group * _COLUMNS, _there(column, num_words, num_words), 0)
    return word


def _planes(logits: Any, word: jax.Array | None, row: Any, column: jax.Array, group: Any, num_words: int, width: int) -> Planes:
    """All planes of a program's columns."""
    parts: Planes = []
    for b in range(-(-width // num_words)):
        there = _there(column, min(num_words, width - b * num_words), num_words)
        x = clean(_read(logits, row, b * num_words + group * _COLUMNS, there, NEVER))
        x = x if there is None else jnp.where(there, x, NEVER)
        ok = None
        if word is not None:  # logits past plane 31 belong to no token of the vocabulary
            ok = (word & jnp.uint32(1 << b)) != 0 if b < 32 else jnp.zeros(word.shape, bool)
        parts.append((x, ok))
    return parts


def _there(column: jax.Array, end: int, num_words: int) -> jax.Array | None:
    """Which of a program's columns lie before `end`; None where all programs' do."""
    return None if end == num_words and num_words % _COLUMNS == 0 else column < end


def _read(ref: Any, row: Any, first: Any, there: jax.Array | None, other: float) -> jax.Array:
    """Numbers of a row from column `first` on, [1, _COLUMNS]."""
    return plt.load(ref.at[pl.ds(row, 1), pl.ds(first, _COLUMNS)], mask=there, other=None if there is None else other)
