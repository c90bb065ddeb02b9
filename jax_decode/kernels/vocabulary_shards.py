"""Work on a vocabulary that is spread over devices: every device looks at its own logits; maxima, ids and sums are exchanged.

The only module with collectives. Where a vocabulary is not spread there is no `Part`, and nothing of this is used.

What crosses between devices, per row: a few numbers of every shard (`Part.every`: best score and its token, log-sums); k of each
for a top-k (`Part.beside`); one sum for every look of a top-p (`Part.total`); and for a draw the masses of W columns, V / 32
numbers, added up where each device needs them. The last is the price of drawing the token that one device draws: noise belongs
to columns of 32 tokens, which lie on several devices. Logits and masks stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_decode.errors import DecodeError
from jax_decode.kernels.columns import Shards
from jax_decode.kernels.placement import rows_axis
from jax_decode.kernels.planes import NEVER, column_max, log_sum


class Part(NamedTuple):
    """A device's shard, seen from inside.

    shards: how the vocabulary is spread; first: int32[], the shard's first token.
    """

    shards: Shards
    first: jax.Array

    def every(self, *values: jax.Array) -> list[jax.Array]:
        """Numbers float32 or int32 [B] of every shard, [n, B] each; one exchange."""
        words = jnp.stack([jax.lax.bitcast_convert_type(x, jnp.int32) for x in values])
        found = jax.lax.all_gather(words, self.shards.axis)
        return [jax.lax.bitcast_convert_type(found[:, i], x.dtype) for i, x in enumerate(values)]

    def beside(self, values: jax.Array) -> jax.Array:
        """Numbers [B, k] of all shards beside each other, [B, n * k], in the order of the shards."""
        return jax.lax.all_gather(values, self.shards.axis, axis=1, tiled=True)

    def largest(self, values: jax.Array) -> jax.Array:
        """The largest over all shards, of the same shape."""
        return jax.lax.pmax(values, self.shards.axis)

    def total(self, values: jax.Array) -> jax.Array:
        """The sum over all shards, of the same shape."""
        return jax.lax.psum(values, self.shards.axis)

    def log_total(self, *values: jax.Array) -> list[jax.Array]:
        """Log-sums float32[B] over all shards from those of each."""
        return [log_sum(x.T) for x in self.every(*values)]

    def owns(self, token: jax.Array) -> jax.Array:
        """Whether tokens belong to the shard."""
        return (token >= self.first) & (token < self.first + self.shards.width)

    def local(self, token: jax.Array) -> jax.Array:
        """Places of tokens among the shard's logits; some place for those of others."""
        return jnp.clip(token - self.first, 0, self.shards.width - 1)


def on_shards(
    function: Callable[..., Any], shards: Shards, logits: jax.Array, words: jax.Array, *arguments: Any, by_rows: bool = True
) -> Any:
    """Calls a function on every device with its own part of the vocabulary.

    Args:
      function: takes a `Part`, its logits [B, width] and words [B, num_words], and the arguments; returns arrays that are the
        same on every device.
      logits: float[B, V']; words: uint32[B, W]; both are spread, or will be.
      arguments: pytrees of arrays with one row per row of logits, and of numbers; every device gets them whole.
      by_rows: whether rows lie as `sharded_rows` puts them. Each device then works on its own; else XLA decides.

    Raises:
      DecodeError: while tracing, for logits of another width than the tables were made for.
    """
    if logits.shape[1] != shards.count * shards.width:
        raise DecodeError(
            f"the logits are {logits.shape[1]:,} wide; the tables were made for {shards.count} shards of {shards.width:,}",
            fix="Pass the number of the model's logits: to_device(..., logits_width=).",
        )

    def inside(logits: jax.Array, words: jax.Array, arguments: tuple[Any, ...]) -> Any:
        first = jax.lax.axis_index(shards.axis) * jnp.int32(shards.width)
        return function(Part(shards, first.astype(jnp.int32)), logits, words, *arguments)

    axis = rows_axis(shards.mesh) if by_rows else None
    if axis == shards.axis or (axis is not None and logits.shape[0] % shards.mesh.shape[axis]):
        axis = None
    rows, spread = PartitionSpec(axis), PartitionSpec(axis, shards.axis)
    return jax.shard_map(
        inside,
        mesh=shards.mesh,
        in_specs=(spread, spread, jax.tree.map(lambda x: rows if jnp.ndim(x) else PartitionSpec(), arguments)),
        out_specs=rows,
        axis_names={shards.axis} | ({axis} if axis is not None else set()),
        check_vma=False,
    )(logits, words, arguments)


def column_masses(part: Part, values: list[jax.Array], num_words: int) -> tuple[jax.Array, jax.Array]:
    """Log-masses of columns of the whole vocabulary, each device's share of them.

    Column j holds the tokens j, W + j, 2 W + j, …, as on one device, whichever shards they lie in.

    Args:
      part: the device's.
      values: float32[B, num_words] per plane of the shard, -inf where nothing may be drawn.
      num_words: words of a bit row of the shard.

    Returns:
      Log-masses float32[B, m]; the columns int32[1, m] they belong to; m is about W / n.
    """
    shards = part.shards
    top = part.largest(column_max(values).max(1))
    base = jnp.where(top == NEVER, 0.0, top)[:, None]
    # Relative to the row's best: columns that underflow have no chance, since noise lies within 26 of each other.
    mass = _by_column(part, [jnp.exp(x - base) for x in values], num_words)
    share = -(-shards.columns // shards.count)
    mass = jnp.pad(mass, ((0, 0), (0, share * shards.count - shards.columns)))
    mine = jax.lax.psum_scatter(mass, shards.axis, scatter_dimension=1, tiled=True)
    column = jax.lax.axis_index(shards.axis).astype(jnp.int32) * share + jnp.arange(share, dtype=jnp.int32)
    return base + jnp.log(mine), column[None]


def _by_column(part: Part, masses: list[jax.Array], num_words: int) -> jax.Array:
    """Sums of the shard's masses over the tokens of every column, float32[B, W]."""
    shards = part.shards
    width, columns, batch = shards.width, shards.columns, masses[0].shape[0]
    if width == 32 * num_words and width % columns == 0:  # whole planes of the vocabulary, cut into some of the shard's
        each = columns // num_words
        return jnp.concatenate([sum(masses[c::each][1:], masses[c]) for c in range(each)], 1)
    flat = jnp.concatenate(masses, 1)[:, :width]
    count = -(-(width + columns - 1) // columns)
    room = jnp.zeros((batch, count * columns), jnp.float32)
    room = jax.lax.dynamic_update_slice(room, flat, (jnp.int32(0), part.first % columns))
    return room.reshape(batch, count, columns).sum(1)
