"""The text that a constraint forces: jump-forward decoding, on the host. Imports NumPy only."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fsa_compile.artifact.bitmask import BitmaskWalk

MAX_FORCED_BYTES = 4096
"""Longest text that is looked for at one go."""


def forced_bytes(walk: BitmaskWalk, tokens: Sequence[bytes], limit: int = MAX_FORCED_BYTES) -> bytes:
    """The longest byte string that every completion of a walk's text goes on with, whatever its tokens are.

    All tokenizations are followed at once, place by place in the text, and the string ends where two of them differ, where the
    text may end, or where a token comes that is no text. So it is exact, also where the tokenization matters.

    Args:
      walk: where the text stands; it is not changed.
      tokens: the bytes of every id.
      limit: most bytes.
    """
    text = bytearray()
    end = limit
    order = itertools.count()
    places: list[tuple[int, int, Any]] = [(0, next(order), walk)]
    seen: set[tuple[int, Any]] = set()
    while places and places[0][0] < end:
        at, _, here = heapq.heappop(places)
        key = (at, here.position)
        if key in seen:
            continue
        seen.add(key)
        ids = np.flatnonzero(here.allowed())
        if here.accepting or here.finished or not len(ids):
            return bytes(text[: min(at, end)])
        going = []
        for token in ids.tolist():
            piece = tokens[token]
            if not piece:
                return bytes(text[: min(at, end)])
            end = min(end, at + _agreement(text, at, piece))
            if end <= at:
                return bytes(text[:end])
            text[at:] = piece if at + len(piece) > len(text) else text[at:]
            going.append((at + len(piece), token))
        for place, token in going:
            if place < end:
                there = here.copy()
                there.advance(token)
                heapq.heappush(places, (place, next(order), there))
    return bytes(text[:end])


def _agreement(text: bytearray, at: int, piece: bytes) -> int:
    """How far a piece agrees with the text from `at` on, if they differ; else more than both."""
    for i in range(min(len(piece), len(text) - at)):
        if text[at + i] != piece[i]:
            return i
    return 1 << 62
