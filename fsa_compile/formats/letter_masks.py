"""Sets of letters as bit masks: bit b is byte b, and bit 256 + i special token i."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts, order_of
from fsa_compile.automata.byte_dfa import ByteDfa


def byte_masks(dfa: ByteDfa, source: np.ndarray, target: np.ndarray) -> list[int]:
    """The bytes that lead from one state to another, as bit masks, for pairs of states."""
    of_class = np.zeros(dfa.table.shape[1], object)
    for byte, kind in enumerate(dfa.byte_class.tolist()):
        of_class[kind] |= 1 << byte
    packed = np.packbits(dfa.table[source] == target[:, None], axis=1, bitorder="little")
    known: dict[bytes, int] = {}
    out = []
    for row in packed:
        key = row.tobytes()
        if key not in known:
            known[key] = sum(of_class[np.unpackbits(row, count=len(of_class), bitorder="little") > 0].tolist())
        out.append(known[key])
    return out


def parted(moves: list[tuple[int, int]]) -> list[tuple[int, int | frozenset[int]]]:
    """Disjoint masks, by their first letters, and the state or states that all of a mask's letters lead to."""
    masks = [mask for mask, _ in moves]
    if sum(masks) == functools.reduce(operator.or_, masks, 0):  # disjoint
        return sorted(moves, key=_first_letter)
    targets: dict[int, list[int]] = {}
    for mask, target in moves:
        targets.setdefault(mask, []).append(target)
    seen, parts = 0, list[tuple[int, list[int]]]()
    for mask, more in targets.items():
        both, seen = mask & seen, mask | seen
        if both:
            parts = [
                (part, there + more * is_read)
                for letters, there in parts
                for part, is_read in ((letters & mask, True), (letters & ~mask, False))
                if part
            ]
        if mask != both:
            parts.append((mask ^ both, more))
    out = [(mask, there[0] if len(there) == 1 else frozenset(there)) for mask, there in parts]
    return sorted(out, key=_first_letter)


def _first_letter(part: tuple[int, object]) -> int:
    return part[0] & -part[0]


def classes_of(masks: Iterable[int], size: int) -> np.ndarray:
    """int32[size], classes of the letters that the same masks hold."""
    every = set(masks)
    data = b"".join(mask.to_bytes(-(-size // 8), "little") for mask in every)
    packed = np.frombuffer(data, np.uint8).reshape(len(every), -(-size // 8))
    read = np.unpackbits(packed, axis=1, count=size, bitorder="little")
    kinds: dict[bytes, int] = {}
    return np.array([kinds.setdefault(letter.tobytes(), len(kinds)) for letter in np.ascontiguousarray(read.T)], np.int32)


def table_of(masks: list[int], at: np.ndarray, there: np.ndarray, byte_class: np.ndarray, states: int) -> np.ndarray:
    """int32[S, C] of masks of letters, states, and next states."""
    table = np.zeros((states, int(byte_class.max()) + 1), np.int32)
    known: dict[int, int] = {}
    kind = np.array([known.setdefault(mask, len(known)) for mask in masks], np.int64)
    order, first = order_of(kind), firsts(kind, len(known))
    at, there = at[order], there[order]
    for mask, low, high in zip(known, first.tolist(), first[1:].tolist()):
        letters = np.unpackbits(np.frombuffer(mask.to_bytes(-(-len(byte_class) // 8), "little"), np.uint8), bitorder="little")
        kinds = distinct(byte_class[letters[: len(byte_class)] > 0])
        table[at[low:high, None], kinds] = there[low:high, None]
    return table
