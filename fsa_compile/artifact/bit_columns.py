"""Arrays of whole numbers in files, every column with as many bits as its largest number has. Imports NumPy only.

A number of b bits has b // 8 byte planes, low bytes first, and b % 8 bit planes. Columns that never fall are kept as differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_MOST_COLUMNS = 8
"""Wider arrays stay as they are: they are bit rows."""
_LEAST_SAVED = 8
"""Arrays stay as they are where less than one part in so many would be saved."""


def column_bits(array: np.ndarray) -> list[int] | None:
    """The bits of every column, negative for one that is kept as differences; None for an array that stays as it is."""
    columns = math.prod(array.shape[1:])
    if array.dtype.kind not in "iu" or not array.size or array.ndim > 2 or columns > _MOST_COLUMNS:
        return None
    bits = [_bits(column) for column in _columns(array)]
    return bits if packed_size(array.shape, bits) * _LEAST_SAVED <= array.nbytes * (_LEAST_SAVED - 1) else None


def _bits(column: np.ndarray) -> int:
    bits = int(column.max()).bit_length()
    if (column[1:] < column[:-1]).any():
        return bits
    rising = max(int(column[0]), int(np.diff(column).max(initial=0))).bit_length()
    return -rising if rising < bits else bits


def _columns(array: np.ndarray) -> list[np.ndarray]:
    """uint32[n], the columns of an array of whole numbers; negative ones as their bits say."""
    return list(array.reshape(len(array), -1).astype(np.int64).astype(np.uint32).T)


def packed_size(shape: Sequence[int], bits: Sequence[int]) -> int:
    """Bytes of an array of a shape whose columns have so many bits."""
    return sum(abs(b) // 8 * shape[0] + abs(b) % 8 * -(-shape[0] // 8) for b in bits)


def packed(array: np.ndarray, bits: Sequence[int]) -> np.ndarray:
    """uint8[`packed_size`], the planes of every column, one column after another."""
    planes = [np.zeros(0, np.uint8)]
    for column, b in zip(_columns(array), bits):
        numbers = np.diff(column, prepend=np.uint32(0)) if b < 0 else column
        whole, rest = divmod(abs(b), 8)
        of_bytes = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)
        planes += [of_bytes[:, i] for i in range(whole)]
        planes += [np.packbits(of_bytes[:, whole] >> i & 1) for i in range(rest)]
    return np.concatenate(planes)


def unpacked(data: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], bits: Sequence[int]) -> np.ndarray:
    """The array that `packed` made uint8[`packed_size`] of."""
    count, out, at = shape[0], np.empty((shape[0], len(bits)), dtype), 0
    for i, b in enumerate(bits):
        whole, rest = divmod(abs(b), 8)
        of_bytes = np.zeros((count, 4), np.uint8)
        for byte in range(whole):
            of_bytes[:, byte] = data[at : at + count]
            at += count
        for bit in range(rest):
            plane = data[at : at + -(-count // 8)]
            of_bytes[:, whole] |= np.unpackbits(plane, count=count) << bit
            at += len(plane)
        numbers = of_bytes.view("<u4").ravel()
        out[:, i] = numbers.cumsum(dtype=np.uint32) if b < 0 else numbers
    return out.reshape(shape)
