"""What the subset construction of frames returns: moves, calls, lexemes beside one another, tables. No algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from fsa_compile.arrays.bit_sets import union
from fsa_compile.automata.pushdown import RETURN
from fsa_compile.grammar.lexing.text_ahead import NO_LOOKS, Looks

Push: TypeAlias = "tuple[tuple[int, int], ...]"
Entry: TypeAlias = "tuple[int, Push, int]"
"""next control or RETURN, push string of (symbol, add), add."""
Action: TypeAlias = "tuple[int, list[Entry]]"
"""Set of symbol classes (a bit set) and what may be done on each of them."""


class Call(NamedTuple):
    """A call from a place; `add` when it begins an iteration of the place's frame; `looks`: what the place needs to come true."""

    callee: int
    after: int
    add: int
    looks: Looks = NO_LOOKS


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


Words: TypeAlias = "dict[tuple[int, int, Looks], dict[int, set[int]]]"
"""Per group of called terminals, whether they begin an iteration, and conditions, these terminals with the places after them."""


@dataclasses.dataclass(eq=False, slots=True)
class Part:
    """Symbols before which the same is possible at some places, and what; its actions once a control has needed them."""

    mask: int
    found: list[Any]
    words: Words
    actions: list[Action] | None = None


@dataclasses.dataclass(eq=False)
class FrameTables:
    """Controls and symbols before trimming and minimising. Control numbers begin at 0; there is no dead control.

    Controls share rows of actions, lists of entries and rows of returns: who changes one makes another one of it.

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


def lists_with_return(actions: Iterable[Iterable[Action]]) -> set[int]:
    """Identities of the lists of entries that hold a return; controls share lists."""
    lists = {id(entries): entries for some in actions for _, entries in some}
    return {key for key, entries in lists.items() if any(target == RETURN for target, _, _ in entries)}


def pushed(symbol: int, add: int, entries: list[Entry]) -> list[Entry]:
    """Entries of a callee as entries of its caller."""
    return [(target, ((symbol, add), *push), own) for target, push, own in entries if target != RETURN]


def words_of(calls: Iterable[Call], groups: Mapping[int, int]) -> Words:
    """Per group of called terminals those that may stand in one place. They share one symbol, whatever they begin with.

    Args:
      calls: from there, all of them possible before the same symbols.
      groups: of the callees that are terminals.
    """
    words: Words = {}
    for callee, after, add, looks in calls:
        if callee in groups:
            words.setdefault((groups[callee], add, looks), {}).setdefault(callee, set()).add(after)
    return words


def entered(
    calls: Iterable[Call], words: Words, groups: Mapping[int, int], counting: Collection[int]
) -> list[tuple[int, dict[int, set[int]]]]:
    """What is entered together by calls, with whether it begins an iteration, and the places after each callee.

    It is everything but the frames that count, and what begins an iteration, which are entered by themselves.

    Args:
      words, groups: see `words_of`; of a group all words are entered.
      counting: callees that count.
    """
    together: dict[tuple[int, int], dict[int, set[int]]] = {}
    for callee, after, add, looks in calls:
        if callee in groups:
            together.setdefault((add, -1), {}).update(words[groups[callee], add, looks])
        else:
            alone = callee if callee in counting else -1
            together.setdefault((add, alone), {}).setdefault(callee, set()).add(after)
    return [(add, callees) for (add, _), callees in together.items()]
