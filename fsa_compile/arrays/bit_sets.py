"""Sets of small integers as bits of one integer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def members(mask: int) -> Iterator[int]:
    """The elements, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Iterable[int]) -> int:
    """The elements of all sets."""
    out = 0
    for mask in masks:
        out |= mask
    return out


def disjoint(parts: list[tuple[int, list[T]]]) -> list[tuple[int, list[T]]]:
    """Splits overlapping sets into disjoint ones that are not empty, each with the values of all sets that hold it."""
    out: list[tuple[int, list[T]]] = []
    seen = 0
    for mask, values in parts:
        if not mask & seen:
            if mask:
                out.append((mask, values))
                seen |= mask
            continue
        seen |= mask
        split = []
        for other, others in out:
            both = mask & other
            if both:
                split.append((both, others + values))
                mask &= ~both
                if both != other:
                    split.append((other & ~both, others))
            else:
                split.append((other, others))
        if mask:
            split.append((mask, values))
        out = split
    return out
