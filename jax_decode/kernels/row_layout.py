"""Mask rows from the file's bit order to the device's: bit planes, of a whole vocabulary or of every shard of it by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.sharding import Mesh, NamedSharding
from numpy.typing import NDArray

from jax_decode.errors import DecodeError
from jax_decode.kernels.columns import Shards

LANES = 128
"""Words per bit row are a multiple of this: the lanes of a TPU register, and a coalesced read elsewhere."""
NO_TOKEN, SEVERAL_TOKENS = -1, -2
"""In place of the only token of a row that does not have one."""

_CHUNK_BYTES = 1 << 20
"""Rows repacked at a time: as many as stay in cache."""


def words_for(width: int) -> int:
    """W, the words of a bit row over `width` ids."""
    return -(-width // (32 * LANES)) * LANES


def shards_of(sharding: Any, axis: str | None, width: int) -> Shards | None:
    """How `width` logits are spread over an axis of a sharding's mesh; None for no axis."""
    if axis is None:
        return None
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
    if not isinstance(mesh, Mesh) or axis not in mesh.axis_names:
        what = f"'sharding' has no mesh with an axis {axis!r}"
        raise DecodeError(what, where="vocabulary_axis", fix="Pass sharding=NamedSharding(mesh, PartitionSpec()).")
    if not sharding.is_fully_replicated:
        fix = "Pass sharding=NamedSharding(mesh, PartitionSpec()): only what is as wide as the vocabulary is spread."
        raise DecodeError("the tables cannot be spread but over the vocabulary", where=str(sharding.spec), fix=fix)
    count = mesh.shape[axis]
    if width % count:
        fix = "Give the model a multiple of that (pad its output embedding), and say so with logits_width=."
        raise DecodeError(f"{width:,} logits cannot be spread evenly over {count} devices", where=f"axis {axis!r}", fix=fix)
    own = width // count
    return Shards(mesh, axis, count, own, words_for(own), words_for(width))


def packed(rows: NDArray[np.uint32], num_words: int, shards: Shards | None) -> NDArray[np.uint32]:
    """Bit rows in the file's order as bit planes, uint32[R, num_words], packed for every shard by itself."""
    if shards is None:
        return pack_planes(rows, num_words)
    pieces = [_bit_slice(rows, s * shards.width, shards.width) for s in range(shards.count)]
    return np.concatenate([pack_planes(piece, shards.num_words) for piece in pieces], 1)


def pack_planes(rows: NDArray[np.uint32], num_words: int) -> NDArray[np.uint32]:
    """Reorders bit rows from the file's order to bit planes.

    Args:
      rows: uint32[R, *]; token t is bit t % 32 of word t // 32.
      num_words: W of the result, at least the words given.

    Returns:
      uint32[R, W]; token `b * W + j` is bit b of word j.
    """
    out = np.empty((len(rows), num_words), np.uint32)
    step = max(1, _CHUNK_BYTES // (num_words * 4))
    for lo in range(0, len(rows), step):
        part = rows[lo : lo + step]
        wide = np.zeros((len(part), num_words), np.uint32)
        wide[:, : part.shape[1]] = part
        # File word b * W/32 + i holds tokens of plane b: for every i, a square of 32 words whose bits are transposed.
        squares = wide.reshape(len(part), 32, num_words // 32)
        _transpose_bits(squares)
        out[lo : lo + step] = squares.transpose(0, 2, 1).reshape(len(part), num_words)
    return out


def only_tokens(rows: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Of bit rows uint32[R, *] in the file's order: the token of each row of one token, else `NO_TOKEN` or `SEVERAL_TOKENS`."""
    filled = rows != 0
    full, word = np.count_nonzero(filled, axis=1), filled.argmax(1)
    bits = rows[np.arange(len(rows)), word]
    single = (full == 1) & ((bits & (bits - np.uint32(1))) == 0)
    token = word * 32 + np.frexp(bits.astype(np.float64))[1] - 1  # a power of two is 0.5 * 2 ** (its bit + 1)
    return np.where(single, token, np.where(full == 0, NO_TOKEN, SEVERAL_TOKENS)).astype(np.int32)


def _transpose_bits(squares: NDArray[np.uint32]) -> None:
    """Transposes 32 x 32 bits in place, uint32[R, 32, n]: bit k of word b becomes bit b of word k.

    Source: Warren, Hacker's Delight, 2nd ed., §7-3: swap halves, then quarters of the halves, and so on.
    """
    count, _, n = squares.shape
    for width, mask in ((16, 0x0000FFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        pairs = squares.reshape(count, 16 // width, 2, width, n)  # a view: the array is contiguous
        upper, lower = pairs[:, :, 0], pairs[:, :, 1]
        swap = ((upper >> np.uint32(width)) ^ lower) & np.uint32(mask)
        upper ^= swap << np.uint32(width)
        lower ^= swap


def _bit_slice(rows: NDArray[np.uint32], start: int, count: int) -> NDArray[np.uint32]:
    """`count` bits of rows uint32[R, *] from bit `start` on, low bits first; bits past the end are 0."""
    word, shift, size = start // 32, start % 32, -(-count // 32)
    part = rows[:, word : word + size + 1]
    part = np.pad(part, ((0, 0), (0, size + 1 - part.shape[1])))
    out = part[:, :-1] >> np.uint32(shift)
    if shift:
        out |= part[:, 1:] << np.uint32(32 - shift)
    out[:, -1] &= np.uint32(0xFFFFFFFF) >> np.uint32(-count % 32)
    return out
