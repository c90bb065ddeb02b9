"""What walks follow: configurations, and the positions that a text reaches, with what is known of them. Imports NumPy only."""

from __future__ import annotations

from typing import NamedTuple

from fsa_compile.artifact.step_memo import Mask


class Cell(NamedTuple):
    """One suspended frame: its effective symbol, its register, the cost of this cell and all below it, its set of keys, and its
    context."""

    symbol: int
    register: int
    cost: int
    used: int = 0
    context: int = 0


class Configuration(NamedTuple):
    """A node, the register of its frame, and the suspended frames, bottom first; the set of keys of its frame, as bits."""

    node: int
    register: int
    stack: tuple[Cell, ...]
    used: int = 0


class Effect(NamedTuple):
    """What a token set does: the target's base node, and see `artifact`."""

    target: int
    push: int
    add: int
    set_to: int
    guard: int = 0
    held: int = 0


class Source(NamedTuple):
    """A node reached by popping: the register of its frame, how many cells are left, and the set of its frame."""

    node: int
    register: int
    left: int
    used: int = 0


class Position:
    """What everything that may follow depends on, and what is known of that.

    Attributes:
      configurations, finished, dropped: by these positions are equal.
      after: where tokens lead that were taken here without limits.
      mask: without limits; distance; widest: tokens enough for every token of the mask. None while they are not known.
    """

    __slots__ = ("after", "configurations", "distance", "dropped", "finished", "mask", "widest")

    def __init__(self, configurations: tuple[Configuration, ...], finished: bool = False, dropped: bool = False) -> None:
        self.configurations, self.finished, self.dropped = configurations, finished, dropped
        self.after = dict[int, Position]()
        self.mask: Mask | None = None
        self.distance: int | None = None
        self.widest: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> tuple[tuple[Configuration, ...], bool, bool]:
        """What positions are told apart by."""
        return self.configurations, self.finished, self.dropped
