"""Logits and mask planes in one kernel that reads every logit once (Pallas, compiled by Mosaic for a TPU).

XLA splits the same work on a TPU into two to four passes, with comparisons of every plane in memory between them. The arithmetic
is the callers', on the planes of 128 columns at a time; only how blocks come and go is written here.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jax_decode.kernels.planes import NEVER, Planes, clean
from jax_decode.kernels.row_layout import LANES

_BLOCK_BYTES = 9 << 20
"""Logits in a core's memory: two blocks, of which one is read while the other is worked on. A v5e's kernel has 16 MiB."""
_SUBLANES = 8
MOST_SOURCES = 8
"""Bit rows for every row that a kernel joins itself: each takes room in a core's memory."""

Tree = TypeVar("Tree")


def wanted(platform: str) -> bool:
    """Whether programs for a TPU, or for an NVIDIA GPU, use a kernel.

    By default where a single one is attached: XLA cannot partition a kernel over a mesh. The environment variable
    JAX_DECODE_KERNELS decides otherwise: `xla` never, `pallas` always (to compile ahead of time for a TPU elsewhere; Triton
    compiles for a GPU that is here). Batches of fewer logits than `blocks.SMALL` do without it in any case.

    Args:
      platform: "tpu" or "gpu".
    """
    choice, here = os.environ.get("JAX_DECODE_KERNELS", "auto"), jax.default_backend() == platform
    if platform == "gpu" and not (here and _triton_compiles()):
        return False
    return choice == "pallas" or (choice == "auto" and here and jax.device_count() == 1)


def _triton_compiles() -> bool:
    """Whether this JAX has Pallas for Triton, and Triton compiles for the GPU: from compute capability 8.0 on, not for a T4."""
    major = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")[0]
    return major.isdigit() and int(major) >= 8 and importlib.util.find_spec("jax.experimental.pallas.triton") is not None


class Read(NamedTuple):
    """What a kernel reads.

    Attributes:
      logits: float[B, V'], or what `kernels.projected` makes them of.
      words: uint32[B, W], bit planes of the allowed tokens, or uint32[S, B, W], S parts of them; None allows all.
      num_words: W.
      rows: arrays [B, n] that a function of columns takes a row block of each.
    """

    logits: Any
    words: jax.Array | None
    num_words: int
    rows: Sequence[jax.Array] = ()

    @property
    def parts(self) -> int:
        """S, 0 without words."""
        return 0 if self.words is None else math.prod(self.words.shape[:-2])


def passed(
    function: Callable[..., tuple[Tree, Sequence[jax.Array]]],
    combine: Callable[[Tree, Tree], Tree],
    start: Any,
    each: int,
    source: Read,
    *,
    interpret: bool = False,
) -> tuple[Tree, jax.Array | None]:
    """What a pass over the logits finds: `combine` over the columns of every lane, [B, 128] each, and of every column itself,
    float32[each, B, W], or None for `each` 0.

    Args:
      function: `(parts, column int32[R, 128], *rows)` -> a tree of arrays [R, 128] of the columns, and `each` more.
      combine: associative and commutative.
      start: a tree of Python numbers, its neutral element: int for int32, float for float32.
      source: what is read.
      interpret: run without a TPU, slowly.
    """
    leaves, tree = jax.tree.flatten(start)
    first = [np.int32(x) if isinstance(x, int) else np.float32(x) for x in leaves]
    count = len(first) + (each > 0)

    def kernel(*refs: Any) -> None:
        ins, outs = refs[:-count], refs[-count:]
        lanes = outs[: len(first)]
        if first:

            @pl.when(pl.program_id(1) == 0)
            def _() -> None:
                for ref, x in zip(lanes, first):
                    ref[...] = jnp.full(ref.shape, x, ref.dtype)

        def another(found: tuple[Tree, Sequence[jax.Array]], at: Any) -> None:
            kept = combine(jax.tree.unflatten(tree, [ref[...] for ref in lanes]), found[0]) if first else ()
            for ref, value in zip(lanes, jax.tree.leaves(kept)):
                ref[...] = value
            for k, value in enumerate(found[1]):
                outs[-1][k, :, at] = value

        over_block(function, another, ins, source, pl.program_id(1) * ins[0].shape[1])

    logits, num_words = source.logits, source.num_words
    height, block = block_of(len(logits), logits.shape[1], num_words, logits.dtype.itemsize)
    shapes = [jax.ShapeDtypeStruct((len(logits), LANES), x.dtype) for x in first]
    specs = [pl.BlockSpec((height, LANES), lambda i, j: (i, 0)) for _ in first]
    if each:
        shapes.append(jax.ShapeDtypeStruct((each, len(logits), num_words), jnp.float32))
        specs.append(pl.BlockSpec((each, height, block), lambda i, j: (0, i, j)))
    out = _called(kernel, shapes, specs, source, interpret)
    return jax.tree.unflatten(tree, out[: len(first)]), out[-1] if each else None


def folded(
    function: Callable[..., Tree],
    combine: Callable[[Tree, Tree], Tree],
    start: Any,
    source: Read,
    *,
    interpret: bool = False,
) -> Tree:
    """`combine` over the columns of every lane, [B, 128] each; as in `passed`, but `function` returns the tree alone."""

    def alone(*arguments: Any) -> tuple[Tree, tuple[()]]:
        return function(*arguments), ()

    return passed(alone, combine, start, 0, source, interpret=interpret)[0]


def mapped(function: Callable[..., jax.Array], source: Read, *, interpret: bool = False) -> jax.Array:
    """What `function` says of every column, float32[B, W]; as in `passed`, but `function` returns one array."""

    def alone(*arguments: Any) -> tuple[tuple[()], list[jax.Array]]:
        return (), [function(*arguments)]

    found = passed(alone, lambda a, _: a, (), 1, source, interpret=interpret)[1]
    assert found is not None
    return found[0]


def over_block(
    function: Callable[..., Tree],
    another: Callable[[Tree, Any], None],
    refs: Sequence[Any],
    source: Read,
    first: jax.Array,
    eight: jax.Array | None = None,
) -> None:
    """Calls `another` with the columns of every 128 lanes of a block.

    `refs`: planes, parts of the words, rows; `first`: the block's first column; `eight`: which eight rows of a block of sixteen,
    int32[], or None.
    """
    width, masks, num_words = source.logits.shape[1], source.parts, source.num_words
    count = -(-width // num_words)
    logits, words, rows = refs[:count], refs[count : count + masks], refs[count + masks :]
    block = logits[0].shape[1]

    def slice_of(k: jax.Array, _: jax.Array) -> jax.Array:
        at = pl.ds(k * LANES, LANES)
        height = logits[0].shape[0] if eight is None else _SUBLANES
        column = first + k * LANES + jax.lax.broadcasted_iota(jnp.int32, (height, LANES), 1)
        word = functools.reduce(jnp.bitwise_or, [ref[:, at] for ref in words]) if words else None
        parts: Planes = []
        for b, ref in enumerate(logits):
            x = clean(ref[:, at])
            if eight is not None:
                x = jnp.where(eight == 0, x[:_SUBLANES], x[_SUBLANES:])
            if (b + 1) * num_words > width:
                x = jnp.where(column < width - b * num_words, x, NEVER)
            ok = None
            if word is not None:  # logits past plane 31 belong to no token of the vocabulary
                ok = (word & jnp.uint32(1 << b)) != 0 if b < 32 else jnp.zeros(word.shape, bool)
            parts.append((x, ok))
        another(function(parts, column, *(row[...] for row in rows)), at)
        return jnp.int32(0)

    jax.lax.fori_loop(0, block // LANES, slice_of, jnp.int32(0))


def block_of(batch: int, width: int, num_words: int, itemsize: int) -> tuple[int, int]:
    """Rows and columns of a block: as many columns as fit, all planes of them."""
    height = min(batch, _SUBLANES * 4 // itemsize)
    most = _BLOCK_BYTES // (2 * -(-width // num_words) * height * itemsize * LANES)
    lanes = num_words // LANES
    return height, LANES * max(n for n in range(1, max(min(most, lanes), 1) + 1) if lanes % n == 0)


def _called(
    kernel: Callable[..., None],
    shapes: list[jax.ShapeDtypeStruct],
    outs: list[pl.BlockSpec],
    source: Read,
    interpret: bool,
) -> list[jax.Array]:
    logits, words, num_words, rows = source
    batch, width = logits.shape
    height, block = block_of(batch, width, num_words, logits.dtype.itemsize)
    specs = specs_of(source, height, block, lambda i: i)
    specs += [pl.BlockSpec((height, row.shape[1]), lambda i, j: (i, 0)) for row in rows]
    call = pl.pallas_call(
        kernel,
        grid=(-(-batch // height), num_words // block),
        in_specs=specs,
        out_specs=outs,
        out_shape=shapes,
        interpret=interpret,
        # Blocks are where `plane` says; to check every copy takes as long as an operation.
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"), disable_bounds_checks=True),
    )
    return call(*[logits] * -(-width // num_words), *[words] * source.parts, *rows)


def specs_of(
    source: Read, height: int, block: int, row: Callable[..., Any], row_of_words: Callable[..., Any] | None = None
) -> list[pl.BlockSpec]:
    """Of the blocks of every plane and of the parts of the words.

    `row`: which rows, of the first place in the grid and what is known before; `row_of_words`: which eight rows, unless a block
    has words of as many rows as logits.
    """
    words, width, num_words = source.words, source.logits.shape[1], source.num_words
    last = -(-width // block) - 1
    own, rows = (row, height) if row_of_words is None else (row_of_words, min(height, _SUBLANES))

    def plane(b: int) -> pl.BlockSpec:
        return pl.BlockSpec((height, block), lambda i, j, *at: (row(i, *at), jnp.minimum(b * (num_words // block) + j, last)))

    specs = [plane(b) for b in range(-(-width // num_words))]
    for part in np.ndindex(words.shape[:-2]) if words is not None else ():
        shape = (*(None for _ in part), rows, block)
        specs.append(pl.BlockSpec(shape, lambda i, j, *at, part=part: (*part, own(i, *at), j)))
    return specs
