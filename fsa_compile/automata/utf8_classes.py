"""`Utf8Classes`: valid UTF-8 as a byte automaton that tells the class of every finished character."""

from __future__ import annotations

import numpy as np

BAD = np.int32(1 << 20)
"""No transition."""


def utf8_classes(class_of: np.ndarray) -> np.ndarray:
    """The minimal automaton of the characters that have a class.

    Args:
      class_of: int[0x110000], class of each code point, negative where it must not occur (surrogates for example).

    Returns:
      int32[U, 256], row 0 for the place between two characters: the next row (>= 1), or ~class where the byte completes a
      character, or `BAD`.
    """
    builder = _Builder()
    tail = np.where(class_of >= 0, ~class_of.astype(np.int32), BAD)
    root = np.full(256, BAD, np.int32)
    root[:0x80] = tail[:0x80]
    two = builder.nodes(tail[0x80:0x800].reshape(-1, 64))
    root[0xC2:0xE0] = two
    blocks = np.full(0x140000 >> 6, BAD, np.int32)  # of 64 code points; those that have shorter encodings stay bad
    blocks[0x800 >> 6 : 0x10000 >> 6] = builder.nodes(tail[0x800:0x10000].reshape(-1, 64))
    root[0xE0:0xF0] = builder.nodes(blocks[: 0x10000 >> 6].reshape(-1, 64))
    blocks[: 0x10000 >> 6] = BAD
    blocks[0x10000 >> 6 : 0x110000 >> 6] = builder.nodes(tail[0x10000:].reshape(-1, 64))
    planes = builder.nodes(blocks.reshape(-1, 64))
    root[0xF0:0xF5] = builder.nodes(planes.reshape(-1, 64))
    return builder.table(root)


class _Builder:
    """Distinct nodes by their 64 continuations; a node without any is `BAD`."""

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {np.full(64, BAD, np.int32).tobytes(): int(BAD)}
        self._rows: list[np.ndarray] = []

    def nodes(self, rows: np.ndarray) -> np.ndarray:
        """The node of each row of continuations, int32[n]."""
        out = np.empty(len(rows), np.int32)
        for i, row in enumerate(rows.astype(np.int32)):
            key = row.tobytes()
            found = self._number.get(key)
            if found is None:
                self._rows.append(row)
                found = self._number[key] = len(self._rows)
            out[i] = found
        return out

    def table(self, root: np.ndarray) -> np.ndarray:
        out = np.full((len(self._rows) + 1, 256), BAD, np.int32)
        out[0] = root
        if self._rows:
            out[1:, 0x80:0xC0] = np.stack(self._rows)
        return out
