"""Logits that are not written: a model's last hidden states and its output embedding, and a kernel that samples among them.

A tile of the projection stays in a TPU core's memory, where the mask's planes and the draw meet it, so that a step writes and
reads no `[B, V]` array.

Source: Flash sampling (arXiv 2603.15854): the Gumbel maximum of a tile is enough of it. Here columns are drawn and not tokens, as
of logits in memory, so that draws are the same.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from fsa_compile.errors import named_fields
from jax_decode.errors import DecodeError
from jax_decode.kernels.gather import read
from jax_decode.kernels.one_pass import Read, Tree, over_block, specs_of
from jax_decode.kernels.row_layout import LANES

_LEAST_ROWS, _MOST_ROWS = 16, 128
_BYTES, _MOST_BYTES = 4 << 20, 12 << 20
"""In a core's memory: of a block's logits, of two blocks of the embedding, of two of the hidden states; and of all together."""


@named_fields
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Projection:
    """How logits are made of hidden states: `hidden @ embedding.T`.

    Attributes:
      embedding: float[V', D], an output embedding; a tied one is the table that reads tokens.
      soft_cap: None, or c for `c * tanh(logits / c)` (static).
    """

    embedding: jax.Array
    soft_cap: float | None = dataclasses.field(default=None, metadata={"static": True})

    def __post_init__(self) -> None:
        cap = self.soft_cap
        if cap is not None and not (isinstance(cap, numbers.Real) and 0 < cap < math.inf):
            raise DecodeError(f"soft_cap={cap!r:.60} is no positive number", fix="Pass the model's own, or None.")


@named_fields
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Projected:
    """Logits float32[B, V'] as what they are made of; stands in the place of logits in `sample`.

    Attributes:
      hidden: float[B, D], the model's last hidden state of every row, behind its last norm.
      projection: of the model.
    """

    hidden: jax.Array
    projection: Projection

    def check(self, where: str) -> None:
        """Raises `DecodeError` unless hidden states and embedding are those of logits [B, V']. JAX makes others of them, too."""
        if not isinstance(self.projection, Projection):
            what = f"{where}: the projection is a {type(self.projection).__name__}"
            raise DecodeError(what, fix="Pass Projected(hidden, Projection(embedding)).")
        kinds = [getattr(x, "dtype", None) for x in (self.hidden, self.projection.embedding)]
        if not all(kind is not None and jnp.issubdtype(kind, jnp.floating) for kind in kinds):
            raise DecodeError(f"{where}: hidden states and embedding are not both floating numbers", fix="Pass arrays of them.")
        hidden, table = self.hidden.shape, self.projection.embedding.shape
        if len(hidden) != 2 or len(table) != 2 or hidden[1] != table[1]:
            what = f"{where}: hidden states {tuple(hidden)} do not go with an embedding {tuple(table)}"
            raise DecodeError(what, fix="Pass float[B, D], those of one position per row, and float[V, D].")

    @property
    def shape(self) -> tuple[int, int]:
        """Of the logits."""
        return self.hidden.shape[0], self.projection.embedding.shape[0]

    @property
    def size(self) -> int:
        """How many logits there are."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        """Of the logits."""
        return jnp.float32

    def __len__(self) -> int:
        return self.hidden.shape[0]

    @property
    def logits(self) -> jax.Array:
        """float32[B, V']."""
        return self._capped(jnp.einsum("bd,vd->bv", self.hidden, self.projection.embedding, preferred_element_type=jnp.float32))

    def taken(self, index: jax.Array) -> jax.Array:
        """logits[b, index[b, i]], float32[B, n]: of few tokens."""
        rows = read(self.projection.embedding, index, rows=None)
        return self._capped(jnp.einsum("bd,bnd->bn", self.hidden, rows, preferred_element_type=jnp.float32))

    def _capped(self, x: jax.Array) -> jax.Array:
        cap = self.projection.soft_cap
        return x if cap is None else cap * jnp.tanh(x / cap)


def folded_projected(
    function: Callable[..., Tree], combine: Callable[[Tree, Tree], Tree], start: Any, source: Read, *, interpret: bool = False
) -> Tree:
    """`one_pass.folded` of `Projected` logits: the embedding is read once for every 128 rows, and no logit is written."""
    projected, words, num_words, rows = source
    assert isinstance(projected, Projected)
    hidden, table = projected.hidden, projected.projection.embedding
    batch, width = projected.shape
    planes, (height, block) = -(-width // num_words), block_of_table(batch, table, num_words)
    leaves, tree = jax.tree.flatten(start)
    first = [np.int32(x) if isinstance(x, int) else np.float32(x) for x in leaves]
    shape = Read(jax.ShapeDtypeStruct((batch, width), jnp.float32), words, num_words, rows)

    def kernel(hidden_ref: Any, table_ref: Any, *refs: Any) -> None:
        ins, lanes, tile = refs[: -len(first) - 1], refs[-len(first) - 1 : -1], refs[-1]
        column, plane = pl.program_id(1), pl.program_id(2)

        @pl.when((column == 0) & (plane == 0))
        def _() -> None:
            for ref, x in zip(lanes, first):
                ref[...] = jnp.full(ref.shape, x, ref.dtype)

        of_both = (((1,), (1,)), ((), ()))
        x = jax.lax.dot_general(hidden_ref[...], table_ref[...], of_both, preferred_element_type=jnp.float32)
        tile[plane] = projected._capped(x)

        def another(found: Tree, _: Any) -> None:
            kept = combine(jax.tree.unflatten(tree, [ref[...] for ref in lanes]), found)
            for ref, value in zip(lanes, jax.tree.leaves(kept)):
                ref[...] = value

        @pl.when(plane == planes - 1)
        def _() -> None:
            over_block(function, another, [*(tile.at[b] for b in range(planes)), *ins], shape, column * block)

    last, across = -(-width // block) - 1, num_words // block
    specs = [
        pl.BlockSpec((height, hidden.shape[1]), lambda i, j, b: (i, 0)),
        pl.BlockSpec((block, table.shape[1]), lambda i, j, b: (jnp.minimum(b * across + j, last), 0)),
        *specs_of(shape, height, block, lambda i, *_: i)[planes:],
        *(pl.BlockSpec((height, row.shape[1]), lambda i, j, b: (i, 0)) for row in rows),
    ]
    call = pl.pallas_call(
        kernel,
        grid=(-(-batch // height), across, planes),
        in_specs=specs,
        out_specs=[pl.BlockSpec((height, LANES), lambda i, j, b: (i, 0)) for _ in first],
        out_shape=[jax.ShapeDtypeStruct((batch, LANES), x.dtype) for x in first],
        scratch_shapes=[pltpu.VMEM((planes, height, block), jnp.float32)],
        interpret=interpret,
        name="projected",
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary"), disable_bounds_checks=True
        ),
    )
    return jax.tree.unflatten(tree, call(hidden, table, *[words] * source.parts, *rows))


def block_of_table(batch: int, table: Any, num_words: int) -> tuple[int, int]:
    """Rows and columns of a block: a core's memory holds all planes of these, and a step reads one of them from the table."""
    height, (width, depth) = min(batch, _MOST_ROWS), table.shape
    while height > _LEAST_ROWS and 2 * height * depth * table.dtype.itemsize > _BYTES:
        height = max(_LEAST_ROWS, 1 << (height - 1).bit_length() - 1)
    most = min(_BYTES // (-(-width // num_words) * height * 4), _BYTES // (2 * depth * table.dtype.itemsize)) // LANES
    lanes = num_words // LANES
    return height, LANES * max(n for n in range(1, max(min(most, lanes), 1) + 1) if lanes % n == 0)


def fits_inside(projected: Projected, num_words: int) -> bool:
    """Whether the kernel has room for the model's sizes in a core's memory."""
    table = projected.projection.embedding
    height, block = block_of_table(len(projected), table, num_words)
    tile = -(-table.shape[0] // num_words) * height * block * 4
    return tile + 2 * (height + block) * table.shape[1] * table.dtype.itemsize <= _MOST_BYTES
