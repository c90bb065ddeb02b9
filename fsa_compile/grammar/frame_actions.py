"""What the subset construction of frames returns: moves, calls, lexemes beside one another, tables. No algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from fsa_compile.arrays.bit_sets import union

Push: TypeAlias = "tuple[tuple[int, int], ...]"
Entry: TypeAlias = "tuple[int, Push, int]"
"""next control or RETURN, push string of (symbol, add), add."""
Action: TypeAlias = "tuple[int, list[Entry]]"
"""Set of symbol classes (a bit set) and what may be done on each of them."""


class Call(NamedTuple):
    """A call from a place; `add` when it begins an iteration of the place's frame."""

    callee: int
    after: int
    add: int


class Begin(NamedTuple):
    """A move that begins an iteration."""

    target: int


class Young(NamedTuple):
    """A move of a lexeme that began before an older one has failed; `MOST_GENERATIONS` + 1 when it begins now."""

    target: int
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class Shadow:
    """A lexeme that another reading begins, and its state after the symbol."""

    terminal: int
    state: int


@dataclasses.dataclass(eq=False)
class FrameTables:
    """Controls and symbols before trimming and minimising. Control numbers begin at 0; there is no dead control.

    Attributes:
      actions: per control, with disjoint sets of classes.
      end: per control NO_END, END_HERE or END_RETURN.
      ret: per control its control after a return, by symbol.
      symbol_callees: per symbol the callees that it suspends a frame for.
      bounds: per control lower and upper bound of what its frame counts, or UNCOUNTED twice.
      start: initial control.
      items: per control its items and the symbols it is restricted to, for people.
    """

    actions: list[list[Action]]
    end: list[int]
    ret: list[dict[int, int]]
    symbol_callees: list[frozenset[int]]
    symbol_places: list[dict[int, frozenset[int]]]
    bounds: list[tuple[int, int]]
    start: int
    items: list[tuple[frozenset[int], int]]


def first_symbols(arcs: Iterable[list[tuple[int, int]]]) -> int:
    """All symbols that arcs read."""
    return union(symbols for one in arcs for symbols, _ in one)
