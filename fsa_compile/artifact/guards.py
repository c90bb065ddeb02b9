"""Bit sets beside the stack: which keys of an object have been used, and the conditions on them.

A frame of a `ByteMachine` may have a bit set beside its counter; it starts empty, a call saves it with the caller's frame, a
return restores it. An entry may carry a `Guard`: it can be taken only where its conditions hold, and then sets some bits. So an
object reads its keys in every order, none of them twice, by a machine that is linear in their number.

Guards form a monoid: a token that passes several of them in one frame passes their composition. A frame that was entered
within the token has a known set; there, conditions are decided at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

IMPOSSIBLE = -1
"""Composition of guards that no set satisfies."""


class Guard(NamedTuple):
    """Conditions on a bit set, and its change.

    Attributes:
      unset: masks, of each of which some bit is not set; none contains another.
      all: bits that are set.
      set: bits that are set afterwards.
    """

    unset: tuple[int, ...] = ()
    all: int = 0
    set: int = 0

    def allows(self, used: int) -> bool:
        """Whether the conditions hold for a set."""
        return not self.all & ~used and all(mask & ~used for mask in self.unset)

    @property
    def conditional(self) -> bool:
        """Whether there is any condition."""
        return bool(self.unset or self.all)


NO_GUARD = Guard()


def composed(first: Guard, second: Guard) -> Guard | None:
    """What two guards, one after the other, ask of the set and do to it; None when no set satisfies both."""
    needed = first.all | second.all & ~first.set
    masks = {mask & ~needed for mask in first.unset}
    masks |= {mask & ~first.set & ~needed for mask in second.unset}
    if 0 in masks:
        return None
    least = [mask for mask in masks if not any(other != mask and not other & ~mask for other in masks)]
    return Guard(tuple(sorted(least)), needed, first.set | second.set)


def on_empty(guard: Guard) -> Guard | None:
    """A guard where the set is known to be empty before; None where it does not let anything pass."""
    return None if guard.all else Guard((), 0, guard.set)


class Guards:
    """Guards by number; 0 is `NO_GUARD`."""

    def __init__(self, known: Iterable[Guard] = ()) -> None:
        self.all: list[Guard] = []
        self._number: dict[Guard, int] = {}
        self._composed: dict[tuple[int, int, bool], int] = {}
        for guard in (NO_GUARD, *known):
            self.number(guard)

    def number(self, guard: Guard) -> int:
        """The number of a guard."""
        found = self._number.setdefault(guard, len(self.all))
        if found == len(self.all):
            self.all.append(guard)
        return found

    def composition(self, first: int, second: int, *, known: bool = False) -> int:
        """Number of the composition of two guards, or IMPOSSIBLE. `known`: the set was empty before the first."""
        key = (first, second, known)
        found = self._composed.get(key)
        if found is None:
            guard = composed(self.all[first], self.all[second])
            if known and guard is not None:
                guard = on_empty(guard)
            found = self._composed[key] = IMPOSSIBLE if guard is None else self.number(guard)
        return found

    def compositions(self, first: np.ndarray, second: np.ndarray, known: np.ndarray) -> np.ndarray:
        """int64[n], elementwise `composition`."""
        width = len(self.all)
        keys, which = np.unique((first * width + second) * 2 + known, return_inverse=True)
        columns = (keys // (2 * width)).tolist(), (keys // 2 % width).tolist(), (keys % 2 > 0).tolist()
        out = [self.composition(a, b, known=k) for a, b, k in zip(*columns)]
        return np.array(out, np.int64)[which.reshape(-1)]


@dataclasses.dataclass(frozen=True, eq=False)
class KeySets:
    """The bit sets of a `ByteMachine`.

    Axes: S controls, E entries, F kinds of frames with a set (kind 0 has none).

    Attributes:
      guards: guard 0 is `NO_GUARD`.
      entry: int32[E], guard of each entry, in the frame of the control it is an entry of, before anything is pushed.
      kind: int32[S], kind of each control's frame; 0 also where the set no longer matters.
      required: by kind, the bits that must be set before a frame ends.
      keys: by control, the keys that may come next, where the control stands before or in a key; else 0.
      open: bool[S], whether keys may come next whatever the set: without a bit, or known not to have come.
      first: bool[S], the control stands before the first key: the set is empty.
      after: bool[S], the control stands after a member.
      end: int32[S], bit of the key that the control stands after, else -1.
      came: int32[S], the most keys that are not required that may have come before.
      new: by control, the keys that cannot have come before.
    """

    guards: tuple[Guard, ...]
    entry: np.ndarray
    kind: np.ndarray
    required: tuple[int, ...]
    keys: tuple[int, ...]
    open: np.ndarray
    first: np.ndarray
    after: np.ndarray
    end: np.ndarray
    came: np.ndarray
    new: tuple[int, ...]

    @cached_property
    def required_next(self) -> list[int]:
        """Per control, the required keys that may come next; none where the frame begins, since no key has come before."""
        first = self.first.tolist()
        return [0 if f else keys & self.required[kind] for keys, kind, f in zip(self.keys, self.kind.tolist(), first)]

    @cached_property
    def others_next(self) -> np.ndarray:
        """Per control, whether a key that is not required may come next: bool[S]."""
        beyond = [keys & ~self.required[kind] > 0 for keys, kind in zip(self.keys, self.kind.tolist())]
        return self.open | np.array(beyond)

    def extended(self, controls: int, entries: int) -> KeySets:
        """With more controls and entries, behind the others, that have no part in it."""
        more = np.zeros(controls, np.int32)
        return dataclasses.replace(
            self,
            entry=np.append(self.entry, np.zeros(entries, np.int32)),
            kind=np.append(self.kind, more),
            keys=(*self.keys, *more.tolist()),
            open=np.append(self.open, more > 0),
            first=np.append(self.first, more > 0),
            after=np.append(self.after, more > 0),
            end=np.append(self.end, more - 1),
            came=np.append(self.came, more),
            new=(*self.new, *more.tolist()),
        )
