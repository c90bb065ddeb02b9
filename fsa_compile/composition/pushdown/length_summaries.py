"""Leaves whose register measures: what a token adds to it follows from the token's length and where it begins and ends.

In a string whose shape and length are bounded together, a character raises the register by what it makes the string longer than
it has to be: by 1 + potential(after) - potential(before). Where every byte is a character, a whole token adds its length and the
difference of the potentials at its ends. So such a leaf is walked as if it did not count, which lets its tokens be read by whole
classes of bytes, and what they add is told afterwards. At a few bytes, as in an escape of two bytes for one character, a move may
add less; only what is *short* there is counted while walking.
"""

from __future__ import annotations

import dataclasses
import heapq
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import numbered, occupied, order_of
from fsa_compile.arrays.ranges import ranges, segment_sizes, segment_starts, spread
from fsa_compile.automata.pushdown import RETURN, UNCOUNTED, ByteMachine
from fsa_compile.composition.tokens.token_sets import TOKEN_BITS, Parts
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_FEWEST_CONTROLS = 32
"""Leaves with fewer controls are walked with their register."""
_MOST_SHORT = 64
"""Bytes, of all controls together, at which a move may add less."""


class Measure(NamedTuple):
    """How the register of a leaf is told from lengths.

    Attributes:
      potential: int64[S], of every control of the leaf's machine.
      machine: the leaf's machine, which counts only what is short, without bounds.
      high: upper bound of the register, else `UNCOUNTED`.
    """

    potential: np.ndarray
    machine: ByteMachine
    high: int

    def added(self, owner: np.ndarray, target: np.ndarray, read: np.ndarray, short: np.ndarray) -> np.ndarray:
        """What is added to the register from controls to others over some bytes, of which some were short."""
        return read + self.potential[target] - self.potential[owner] - short

    def fits(self, added: np.ndarray) -> np.ndarray:
        """Indices of what the upper bound allows."""
        return (added <= self.high).nonzero()[0] if self.high != UNCOUNTED else np.arange(len(added))


def measure_of(machine: ByteMachine, size: int) -> Measure | None:
    """The measure of a leaf; None where it is better walked with its register.

    Args:
      machine: of a leaf, whose first controls belong to it; deterministic.
      size: number of these.
    """
    if size < _FEWEST_CONTROLS or not machine.entry_add.any() or (machine.bounds[1:] != machine.bounds[1]).any():
        return None
    row, column = occupied(machine.action[1 : size + 1])
    entry = machine.entry_offset[machine.action[row + 1, column]]
    moves = (machine.entry_next[entry] > 0).nonzero()[0]
    source, column, entry = row[moves] + 1, column[moves], entry[moves]
    target, add = machine.entry_next[entry].astype(np.int64), machine.entry_add[entry].astype(np.int64)
    weight = np.bincount(machine.byte_class[:256], minlength=machine.action.shape[1])[column]
    potential = _potential(machine.num_controls, source, target, add, weight)
    short = 1 + potential[target] - potential[source] - add
    if (short < 0).any() or weight[short > 0].sum() > _MOST_SHORT:
        return None
    return Measure(potential, _counting(machine, source, column, target, short), int(machine.bounds[1, 1]))


def _potential(size: int, source: np.ndarray, target: np.ndarray, add: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """int64[S], such that moves add 1 and the difference along a tree of those at many bytes."""
    most = int(add.max(initial=0)) + 1
    key, which = numbered((source * size + target) * most + add)
    weights = np.bincount(which, weight).astype(np.int64)
    near: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]
    pairs = key // most
    for a, b, gain, bytes_ in zip(*(x.tolist() for x in (pairs // size, pairs % size, key % most - 1, weights))):
        near[a].append((-bytes_, b, gain))
        near[b].append((-bytes_, a, -gain))
    out, seen = np.zeros(size, np.int64), [False] * size
    for first in range(1, size):
        heap = [(0, first, 0)]
        while heap:
            _, control, value = heapq.heappop(heap)
            if not seen[control]:
                seen[control], out[control] = True, value
                for order, other, gain in near[control]:
                    if not seen[other]:
                        heapq.heappush(heap, (order, other, value + gain))
    return out


def _counting(
    machine: ByteMachine, source: np.ndarray, column: np.ndarray, target: np.ndarray, short: np.ndarray
) -> ByteMachine:
    """The machine of a leaf whose moves add what is short, and whose frames have no bounds."""
    most = int(short.max(initial=0)) + 1
    every, which = numbered(target * most + short)
    leave = len(every) + 1
    at = machine.entry_offset[machine.action]
    returns = (np.diff(machine.entry_offset)[machine.action] > 0) & (machine.entry_next[at] == RETURN)
    action = np.where(returns, leave, 0).astype(np.int32)
    action[source, column] = which + 1
    return dataclasses.replace(
        machine,
        action=action,
        entry_offset=np.append(0, np.arange(leave + 1)).astype(np.int32),
        entry_next=np.append(every // most, RETURN).astype(np.int32),
        entry_push=np.zeros(leave, np.int32),
        entry_add=np.append(every % most, 0).astype(np.int8),
        bounds=np.full_like(machine.bounds, UNCOUNTED) if most == 1 else np.full_like(machine.bounds, (0, UNCOUNTED)),
    )


def measured(parts: Parts, links: tuple[np.ndarray, ...], measure: Measure, tables: VocabularyTables) -> Parts:
    """The parts of the walk of the measure's machine, with what their tokens add to the leaf's register as far as that fits.

    Tokens are told apart by their length once for every part that lists them, and once for every row, which many parts may have.

    Args:
      links: (run, caller, symbol, count), of runs that are parts of their callers' frames; their parts become those of the
        callers.
    """
    listed, wide = (parts.row < 0).nonzero()[0], (parts.row >= 0).nonzero()[0]
    which, at = spread(parts.begin[listed], parts.size[listed])
    rows = [tables.unpack(row) for row in parts.rows]
    every = len(listed) + len(rows)
    token = np.concatenate((parts.token[at], *rows)).astype(np.int64)
    source = np.concatenate((which, np.arange(len(listed), every).repeat([len(row) for row in rows])))
    longest = int(tables.length.max()) + 1
    key = (source * longest + tables.length[token]) << TOKEN_BITS | token
    key.sort()
    token, pair = key & (1 << TOKEN_BITS) - 1, key >> TOKEN_BITS
    begin = segment_starts(pair)  # of the pieces: tokens of one list or row and one length
    size, source = segment_sizes(begin, len(pair)), pair[begin] // longest
    first = source.searchsorted(np.arange(every + 1))
    of_part = np.concatenate((np.arange(len(listed)), len(listed) + parts.row[wide]))
    which, piece = ranges(first[of_part], first[of_part + 1])
    part = np.concatenate((listed, wide))[which]
    owner, which = with_callers(parts.owner[part], links, len(measure.potential))
    part, piece = part[which], piece[which]
    added = measure.added(owner, parts.target[part], pair[begin[piece]] % longest, parts.count[part])
    kept = measure.fits(added)
    kept = kept[order_of(owner[kept])]
    piece = piece[kept]
    hashes = np.add.reduceat(tables.token_hash[token], begin) if len(begin) else np.zeros(0, np.uint64)
    return Parts(
        owner=owner[kept],
        target=parts.target[part[kept]],
        count=added[kept],
        hash=hashes[piece],
        size=size[piece],
        begin=begin[piece],
        row=np.full(len(piece), -1),
        token=token,
        rows=[],
    )


def with_callers(owner: np.ndarray, links: tuple[np.ndarray, ...], controls: int) -> tuple[np.ndarray, np.ndarray]:
    """(control, index) of every owner; a run stands for all controls that it is linked to."""
    run, caller = links[:2]
    order = order_of(run)
    run, caller = run[order], caller[order]
    own = (owner < controls).nonzero()[0]
    others = (owner >= controls).nonzero()[0]
    which, at = ranges(run.searchsorted(owner[others]), run.searchsorted(owner[others], side="right"))
    return np.concatenate((owner[own], caller[at])), np.concatenate((own, others[which]))
