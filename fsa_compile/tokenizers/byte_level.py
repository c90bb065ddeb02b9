"""GPT-2's way of printing bytes: each byte is one visible character.

Source: Radford et al. 2019 (GPT-2); openai/gpt-2 `src/encoder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Bytes that print as themselves keep their code point; the others take code points from 256 on, in byte order.
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in set(_VISIBLE)]

BYTE_TO_CHAR: dict[int, str] = {byte: chr(byte) for byte in _VISIBLE} | {
    byte: chr(256 + i) for i, byte in enumerate(_HIDDEN)
}
"""Printed character of every byte."""

_CHAR_TO_BYTE = np.full(256 + len(_HIDDEN) + 1, -1, np.int16)
for _byte, _char in BYTE_TO_CHAR.items():
    _CHAR_TO_BYTE[ord(_char)] = _byte


def unprint_bytes(printed: Sequence[str]) -> list[bytes | None]:
    """The bytes of each token in GPT-2's byte characters; None for those with a character that stands for no byte."""
    lengths = np.fromiter(map(len, printed), np.int64, len(printed))
    ends = np.cumsum(lengths)
    codes = np.frombuffer("".join(printed).encode("utf-32-le", "surrogatepass"), "<u4")
    # Code points past the table share its last entry, which is no byte.
    values = _CHAR_TO_BYTE[np.minimum(codes, len(_CHAR_TO_BYTE) - 1)]
    wrong = np.zeros(len(printed), bool)
    wrong[np.searchsorted(ends, np.flatnonzero(values < 0), side="right")] = True
    raw = values.astype(np.uint8).tobytes()
    begins = (ends - lengths).tolist()
    tokens: list[bytes | None] = [raw[a:b] for a, b in zip(begins, ends.tolist())]
    for i in np.flatnonzero(wrong).tolist():
        tokens[i] = None
    return tokens
