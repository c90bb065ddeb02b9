"""Sets of Unicode scalar values, the letters of patterns. Knows nothing of patterns, properties or bytes.

A set is a pair `(ascii, wide)`: bit c of the integer `ascii` says whether ASCII character c belongs, `wide` is a sorted tuple of
disjoint, non-adjacent closed ranges of scalar values from 0x80 on. Surrogates are never members: they have no UTF-8 form.
Plain tuples, because the parser makes one for every character of a pattern.
"""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]
CodePointSet = tuple[int, Ranges]

ASCII = (1 << 128) - 1
LAST = 0x10FFFF
FIRST_SURROGATE, LAST_SURROGATE = 0xD800, 0xDFFF
ALL_WIDE: Ranges = ((0x80, FIRST_SURROGATE - 1), (LAST_SURROGATE + 1, LAST))
ANY: CodePointSet = (ASCII, ALL_WIDE)
NONE: CodePointSet = (0, ())


def is_surrogate(code_point: int) -> bool:
    """Whether the code point is half of a UTF-16 pair and no character."""
    return FIRST_SURROGATE <= code_point <= LAST_SURROGATE


def single(code_point: int) -> CodePointSet:
    """The set of one scalar value."""
    return (1 << code_point, ()) if code_point < 128 else (0, ((code_point, code_point),))


def interval(low: int, high: int) -> CodePointSet:
    """The scalar values `low` to `high`, both included."""
    ascii_ = (1 << min(high, 127) + 1) - (1 << low) if low < 128 else 0
    return ascii_, (normal(((max(low, 128), high),)) if high > 127 else ())


def normal(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorts and joins ranges of code points from 0x80 on, and cuts the surrogates out."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    if not any(low <= LAST_SURROGATE and high >= FIRST_SURROGATE for low, high in out):
        return tuple(out)
    cut: list[tuple[int, int]] = []
    for low, high in out:
        if low < FIRST_SURROGATE:
            cut.append((low, min(high, FIRST_SURROGATE - 1)))
        if high > LAST_SURROGATE:
            cut.append((max(low, LAST_SURROGATE + 1), high))
    return tuple(cut)


def complement(members: CodePointSet) -> CodePointSet:
    """All scalar values that are not members."""
    ascii_, wide = members
    return ASCII & ~ascii_, complement_wide(wide)


def complement_wide(wide: Ranges) -> Ranges:
    """The scalar values from 0x80 on outside the ranges."""
    if not wide:
        return ALL_WIDE
    out, at = [], 0x80
    for low, high in wide:
        if low > at:
            out.append((at, low - 1))
        at = high + 1
    if at <= LAST:
        out.append((at, LAST))
    return normal(out)


def union(*sets: CodePointSet) -> CodePointSet:
    """Members of at least one set."""
    ascii_ = 0
    ranges: list[tuple[int, int]] = []
    for a, wide in sets:
        ascii_ |= a
        ranges += wide
    return ascii_, (normal(ranges) if ranges else ())


def intersection(a: CodePointSet, b: CodePointSet) -> CodePointSet:
    """Members of both sets."""
    if not a[1] or not b[1]:
        return a[0] & b[0], ()
    outside = complement_wide(a[1]) + complement_wide(b[1])
    return a[0] & b[0], complement_wide(normal(outside))


def size(members: CodePointSet) -> int:
    """Number of scalar values in the set."""
    return members[0].bit_count() + sum(high - low + 1 for low, high in members[1])


def atoms(classes: list[Ranges]) -> tuple[list[Ranges], list[int]]:
    """Splits overlapping classes into disjoint ones.

    Args:
      classes: distinct, non-empty range tuples.

    Returns:
      The disjoint classes ("atoms"), and per input class the integer whose bit j says that atom j is part of it.
    """
    if len(classes) == 1:
        return list(classes), [1]
    events: dict[int, int] = {}
    for i, ranges in enumerate(classes):
        for low, high in ranges:
            events[low] = events.get(low, 0) ^ 1 << i
            events[high + 1] = events.get(high + 1, 0) ^ 1 << i
    pieces: dict[int, list[tuple[int, int]]] = {}
    inside, before = 0, 0
    for at in sorted(events):
        if inside:
            pieces.setdefault(inside, []).append((before, at - 1))
        inside ^= events[at]
        before = at
    parts = [0] * len(classes)
    for j, members in enumerate(pieces):
        while members:
            low_bit = members & -members
            parts[low_bit.bit_length() - 1] |= 1 << j
            members ^= low_bit
    return [normal(ranges) for ranges in pieces.values()], parts
