"""What a sampler that cuts off chooses of rows whose largest few of every column do not tell it: from all of their logits.

Eight rows are worked on at a time. Their logits are read once and stay in a TPU core's memory, so that a search over them needs
no arrays outside of it. Mostly there are no such rows; then the kernel ends after a first small block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jax_decode.kernels.column_tops import Cut
from jax_decode.kernels.one_pass import Read, over_block, specs_of
from jax_decode.kernels.planes import NEVER, Planes, allowed_logits, drawable
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.settled_rows import Given, Lanes, Untold, Written, columns_of_block, packed_lanes, settled_block
from jax_decode.kernels.turned_rows import SUBLANES, TURNED

_MEMORY = 13 << 20
"""Bytes for the logits of eight rows and for lists of candidates; a v5e's kernel has 16 MiB."""
_WHOLE = 5
"""Lane of `Settled.whole` in `packed_lanes`."""


def fits(width: int, candidates: int) -> bool:
    """Whether a core's memory holds eight rows of so many logits, and so many candidates of 128 rows: two blocks of both lists,
    of which one comes in meanwhile, and what they are turned into."""
    return 4 * (SUBLANES * width + 6 * LANES * candidates) <= _MEMORY


def settled_whole(
    cut: Cut, given: Given, source: Read, lanes: Lanes, rows: Written, untold: Untold, *, interpret: bool = False
) -> Written:
    """`rows` of `settled`, with those that its tops do not tell of.

    Args:
      cut, given, lanes, untold: of `settled`.
      source: logits and words; no rows.
      interpret: run without a TPU, slowly.
    """
    logits, num_words, batch = source.logits, source.num_words, len(source.logits)
    eights, eight, width = _shape_of(source)
    sums, tree = jax.tree.flatten(lanes)
    of_logits, of_words = (lambda i, blocks, n=n: jax.lax.div(blocks[0, i], n) for n in (eights, 1))
    planes = specs_of(source, batch if batch <= SUBLANES else eights * SUBLANES, width, of_logits, of_words)
    masks = [source.words] * source.parts

    def tile(i: Any, _: Any, blocks: Any) -> Any:
        return jax.lax.div(blocks[0, i], TURNED)

    specs, shapes = Written.outputs(given, batch, tile)
    first = 1 + len(planes) + len(sums) + len(given.arrays)
    found = pl.pallas_call(
        _kernel(cut, given, source, tree),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(untold.turns[0][0, 0], untold.turns[1][0, 0]),
            in_specs=[
                *planes,
                *(pl.BlockSpec((eight, LANES), lambda i, j, blocks: (blocks[0, i], 0)) for _ in sums),
                *given.specs(tile),
                *specs,
            ],
            out_specs=specs,
            scratch_shapes=[
                pltpu.VMEM((-(-logits.shape[1] // num_words), eight, num_words), jnp.float32),
                *given.memory,
                pltpu.VMEM((LANES, LANES), jnp.int32),
            ],
        ),
        out_shape=shapes,
        input_output_aliases={first + k: k for k in range(len(rows))},
        interpret=interpret,
        name="rows_settled",
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary"), disable_bounds_checks=True),
    )(untold.blocks, *[logits] * (len(planes) - len(masks)), *masks, *sums, *given.arrays, *rows)
    return Written(*found)


def _shape_of(source: Read) -> tuple[int, int, int]:
    """How many eights of rows a block of logits has, how many rows are worked on, and columns of a block."""
    return 4 // source.logits.dtype.itemsize, min(len(source.logits), SUBLANES), columns_of_block(source.num_words)


def _kernel(cut: Cut, given: Given, source: Read, tree: Any) -> Callable[..., None]:
    """The kernel of `settled_whole`; `tree`: of the lanes."""
    eights, eight, width = _shape_of(source)
    batch, num_words = len(source.logits), source.num_words
    count = -(-source.logits.shape[1] // num_words) + source.parts

    def kernel(blocks: Any, *refs: Any) -> None:
        planes, sums = refs[:count], refs[count : count + tree.num_leaves]
        own, (cells, sheet, turned, results) = refs[count + len(sums) : -8], refs[-4:]
        before, out = Written(*refs[-8:-6]), Written(*refs[-6:-4])
        step, begin = pl.program_id(0), pl.program_id(1) * width
        block = blocks[0, step]
        first = pl.multiple_of(jax.lax.rem(block, TURNED) * SUBLANES, SUBLANES)
        tile, last = (jax.lax.div(x, TURNED) for x in (block, blocks[0, jnp.maximum(step - 1, 0)]))

        def kept(parts: Planes, _: jax.Array) -> Sequence[jax.Array]:
            scale = given.rows_of(own, turned[pl.ds(first, eight)]).inverse
            return [jnp.where(y == 0, 0.0, y) for y in drawable(allowed_logits(parts), scale, None)]  # zeros have one sign

        def written(values: Sequence[jax.Array], at: Any) -> None:
            place = pl.multiple_of(begin + at.start, LANES)
            for b, y in enumerate(values):
                cells[b, :, pl.ds(place, LANES)] = y

        def begun() -> None:
            @pl.when((step == 0) | (tile != last))
            def _() -> None:
                sheet[: given.fields] = before.rows[...]
                results[...] = sheet[...].T

            given.turn(own, sheet, turned)

        def decided() -> None:
            lanes = jax.tree.unflatten(tree, [ref[...] for ref in sums])
            lanes = lanes._replace(hidden=jnp.full_like(lanes.hidden, NEVER))
            real = block * SUBLANES + jax.lax.broadcasted_iota(jnp.int32, (eight, 1), 0) < batch
            found = settled_block(cut, cells, None, lanes, given.rows_of(own, turned[pl.ds(first, eight)]), real)
            old = results[pl.ds(first, eight)]
            results[pl.ds(first, eight)] = jnp.where(old[:, _WHOLE : _WHOLE + 1] > 0, old, packed_lanes(found))
            out.write(results[...], num_words)

        some = blocks[0, blocks.shape[1] - 1] > 0
        half = jax.lax.rem(block, eights) if eights > 1 and batch > SUBLANES else None
        pl.when(~some)(lambda: out.copy(before))
        pl.when(some & (begin == 0))(begun)
        pl.when(some)(lambda: over_block(kept, written, planes, source, begin, half))
        pl.when(some & (begin + width == num_words))(decided)

    return kernel
