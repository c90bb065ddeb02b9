"""Leaves that do the same again and again, such as strings whose states tell their length: one control is walked for many.

A *shift* leads from controls to controls that do the same as they at every byte, up to the shift: from the states of a string of
n characters to those of n + 1, from outside to where it is. It fails somewhere, as at an upper bound of the length. A control
from which no token gets to where it fails has, for every token, what the control that is shifted there has, with its target
shifted. So of a chain of controls the first is walked, and those so near the end that a token might notice it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.integers import distinct, firsts, order_of
from fsa_compile.arrays.ranges import indices, ranges
from fsa_compile.automata.pushdown import UNCOUNTED, ByteMachine
from fsa_compile.composition.pushdown.length_summaries import with_callers
from fsa_compile.composition.tokens.token_sets import Parts
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables

_FEWEST_CONTROLS = 1_000
"""Leaves with fewer controls are walked as they are."""


class Shift(NamedTuple):
    """Controls of a leaf that need not be walked.

    Attributes:
      image: int64[S], where each control is shifted to, 0 for those that are not.
      control: int64[D], the controls that are not walked.
      root, times: int64[D] each, the walked control that each of them is the shifted one of, and how many times it is shifted.
    """

    image: np.ndarray
    control: np.ndarray
    root: np.ndarray
    times: np.ndarray

    def parts(self, parts: Parts, links: tuple[np.ndarray, ...]) -> Parts:
        """The parts of all controls, from those of the walked ones, whose tokens they share.

        Args:
          links: (run, caller, symbol, count), of runs that are parts of their callers' frames; their parts become those of the
            callers.
        """
        owner, at = with_callers(parts.owner, links, len(self.image))
        owner, target, at = self._of_all(owner, parts.target[at], at)
        columns = {name: getattr(parts, name)[at] for name in ("count", "hash", "size", "begin", "row")}
        return Parts(owner=owner, target=target, token=parts.token, rows=parts.rows, **columns)

    def leaving(self, leaving: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Where tokens leave the leaf, as in `Summary`, from all controls, from what is known of the walked ones."""
        owner, node, control, count = leaving
        owner, control, at = self._of_all(owner, control, np.arange(len(owner)))
        return owner, node[at], control, count[at]

    def _of_all(self, owner: np.ndarray, target: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(owner, target, index) of everything that the walked controls have, and of the same shifted to others; by owner."""
        order = order_of(owner)
        owner, target, at = owner[order], target[order], at[order]
        first = firsts(owner, len(self.image))
        which, row = ranges(first[self.root], first[self.root + 1])
        shifted, times, image = target[row], self.times[which], self.image
        while times.any():
            odd = (times & 1).nonzero()[0]
            shifted[odd] = image[shifted[odd]]
            times, image = times >> 1, image[image]
        owner = np.concatenate((owner, self.control[which]))
        order = order_of(owner)
        return owner[order], np.concatenate((target, shifted))[order], np.concatenate((at, at[row]))[order]


def shift_of(machine: ByteMachine, size: int, tables: VocabularyTables) -> Shift | None:
    """A shift of a leaf by which at least half of its controls need not be walked; None where none is found.

    Args:
      machine: of a leaf, whose first controls belong to it; deterministic.
      size: number of these.
    """
    if size < _FEWEST_CONTROLS or machine.entry_add.any() or (machine.bounds != UNCOUNTED).any():
        return None
    entry = machine.entry_offset[machine.action]
    reads = machine.entry_offset[machine.action + 1] > entry
    goal = np.where(reads, np.append(machine.entry_next, 0)[entry], 0).astype(np.int64)
    own = np.arange(1, size + 1)
    moves = ((goal[own] > 0) & (goal[own] <= size) & (goal[own] != own[:, None])).any(0)
    weight = np.bincount(machine.byte_class[:256], tables.weight, machine.action.shape[1])
    image = _image(goal, size, int(np.where(moves, weight, -1).argmax()))
    there = np.append(image, -1)[goal[own]]  # a return stays one
    same = (goal[image[own]] == there).all(1) & ~((goal[own] > 0) & (there == 0)).any(1)
    safe = np.zeros(len(goal), bool)
    safe[own] = same & (image[own] > 0) & (image[own] <= size)
    safe[own] &= ~_leading(goal, own[~safe[own]], int(tables.length.max(initial=0)) - 1)[own]
    return _chains(image, safe, size)


def _image(goal: np.ndarray, size: int, common: int) -> np.ndarray:
    """int64[S], where each control is shifted to, if there is a shift by one move of the given class of bytes."""
    image = np.zeros(len(goal), np.int64)
    image[size + 1 :] = np.arange(size + 1, len(goal))
    inside = (goal[1 : size + 1, common] > 0) & (goal[1 : size + 1, common] <= size)
    new = 1 + inside.nonzero()[0]
    image[new] = goal[new, common]
    while len(new):
        target, there = goal[new].ravel(), goal[image[new]].ravel()
        some = (target > 0) & (there > 0)
        target, there = target[some], there[some]
        fresh = image[target] == 0
        image[target[fresh]] = there[fresh]
        new = distinct(target[fresh])
    return image


def _leading(goal: np.ndarray, some: np.ndarray, steps: int) -> np.ndarray:
    """bool[S], which controls lead to some in at most so many moves."""
    source, column = (goal > 0).nonzero()
    before, target = np.divmod(distinct(source * len(goal) + goal[source, column]), len(goal))
    order = order_of(target)
    before, first = before[order], firsts(target, len(goal))
    out = np.zeros(len(goal), bool)
    out[some] = True
    for _ in range(steps):
        if not len(some):
            break
        found = before[indices(first[some], first[some + 1])]
        some = distinct(found[~out[found]])
        out[some] = True
    return out


def _chains(image: np.ndarray, safe: np.ndarray, size: int) -> Shift | None:
    """The controls that are shifted ones of others, which are not."""
    source = (safe & (image != np.arange(len(image)))).nonzero()[0]
    known = np.zeros(len(image), bool)
    known[image[source]] = True
    moves = np.zeros(len(image), bool)
    moves[source] = True
    root = np.arange(len(image))
    wave, times = (moves & ~known).nonzero()[0], 0
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    known[:] = False
    known[wave] = True
    while len(wave):
        times += 1
        there = image[wave]
        fresh = ~known[there]
        wave, there = wave[fresh], there[fresh]
        root[there] = root[wave]
        there = distinct(there)
        known[there] = True
        found.append((there, root[there], np.full(len(there), times)))
        wave = there[moves[there]]
    if 2 * sum(len(there) for there, _, _ in found) < size:
        return None
    return Shift(image, *(np.concatenate(column) for column in zip(*found)))
