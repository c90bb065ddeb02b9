"""Where lexemes of the longest match end: which of those that have been read it is, whether a shorter one may be needed yet.

A match settles a text: no shorter one is read any more. It does not where a condition on what follows may forbid it while a
shorter one, with what follows that, could go on (`forbidden_ends.settle_conditions`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fsa_compile.arrays.bit_sets import disjoint, union
from fsa_compile.grammar.frame_actions import first_symbols
from fsa_compile.grammar.lexing.longest_match import settles
from fsa_compile.grammar.lexing.terminals import Terminal
from fsa_compile.grammar.lexing.text_ahead import NO_LOOKS, Look, Looks

MOST_GENERATIONS = 4
"""Most lexemes that are read beside an older one which may still match: how far the lexer goes back."""


class Ending(NamedTuple):
    """Places where a control is once its lexeme has ended, or before it has begun one.

    Attributes:
      places: one place per terminal that it may be.
      early_places: the same before the symbols in `early`.
      rest: symbols before which it ends, END among them: no lexeme goes on with them.
      early: symbols with which a longer match has begun that may still fail.
      generation: of the lexeme.
      looks: conditions that its points needed already; it says nothing of points that need others.
      doubt: that the condition at its own end fails, which is what younger lexemes need where no symbol decides it.
      taken: symbols that it leaves to no other lexeme.
      precedes: terminals that go on with none of them.
    """

    places: frozenset[int]
    rest: int
    early: int
    generation: int
    looks: Looks = NO_LOOKS
    doubt: Look | None = None
    taken: int = 0
    early_places: frozenset[int] = frozenset()
    precedes: int = 0


class LexemeEnds:
    """Points inside lexemes, seen as texts that are a lexeme or the beginning of one.

    Args:
      terminals: all of them, settled.
      arcs: per item its (set of symbols, next item) pairs.
      point: terminal, its state and the place after it, of every item that is a point inside a lexeme; the terminal is -1 where
        another stack reads it.
      generation: of points that are younger than the oldest.
      looks: of points that need conditions on what follows to come true. A lexeme is compared with those alone that need the same
        conditions, and perhaps more: of others at most one is the text.
    """

    def __init__(
        self,
        terminals: Sequence[Terminal],
        arcs: Sequence[list[tuple[int, int]]],
        point: Mapping[int, tuple[int, int, int]],
        generation: Mapping[int, int],
        looks: Mapping[int, Looks],
    ) -> None:
        self._terminals, self._arcs, self._point, self._generation = terminals, arcs, point, generation
        self._looks = looks

    def matching(self, points: Iterable[int]) -> list[list[int]]:
        """The points at the end of a lexeme, of this stack or of another one: by generation, then by the terminal's rank; those
        that need different conditions apart, but for what another stack reads, too."""
        groups: dict[tuple[int, int, Looks], list[int]] = {}
        own: set[tuple[int, int]] = set()
        for i in points:
            t, q, place = self._point[i]
            if t >= 0 and self._terminals[t].automaton.final[q]:
                key = self._generation.get(i, 0), self._terminals[t].rank, self._looks.get(i, NO_LOOKS)
                groups.setdefault(key, []).append(i)
                if place >= 0:
                    own.add(key[:2])
        kept = [key for key, some in groups.items() if key[:2] not in own or any(self._point[i][2] >= 0 for i in some)]
        return [groups[key] for key in sorted(kept, key=lambda key: key[:2])]

    def preceded(self, points: list[int], beside: list[int]) -> int:
        """The terminals (a bit set) of which nothing longer is read where the lexeme ends at some points.

        Args:
          points: of one terminal.
          beside: all that began with it.
        """
        terminal = self._terminals[self._point[points[0]][0]]
        hosts = self._hosts(terminal, beside, matched=True)
        return union(self._terminals[host].precedes for host in hosts) if hosts else terminal.precedes

    def lost(self, i: int, precedes: int, beside: list[int]) -> bool:
        """Whether a point does not go on where a lexeme has ended that precedes some terminals."""
        t = self._point[i][0]
        if t < 0 or not precedes:
            return False
        hosts = self._hosts(self._terminals[t], beside)
        return all(precedes >> host & 1 for host in hosts or [t])

    def _hosts(self, terminal: Terminal, beside: list[int], *, matched: bool = False) -> list[int]:
        """The patterns as one of which a string is read; with `matched` those that match the text so far."""
        found = []
        for i in beside if terminal.within else ():
            t, q, _ = self._point[i]
            if t >= 0 and terminal.within >> t & 1:
                host = self._terminals[t]
                if not matched or host.automaton.final[q] or q in host.reserved:
                    found.append(t)
        return found

    def condition(self, i: int) -> int:
        """The symbols before which a lexeme may not end at a point."""
        t, q, _ = self._point[i]
        return self._terminals[t].guard.get(q, 0)

    def ahead(self, i: int) -> Look | None:
        """That the condition on what follows a lexeme holds that ends at a point; None where the next symbol decides."""
        t, q, _ = self._point[i]
        return self._terminals[t].ahead.get(q)

    def follow(self, i: int) -> int:
        """The symbols that matter behind the lexeme of a point."""
        return self._terminals[self._point[i][0]].follow

    def soonest(self, i: int) -> bool:
        """Whether the lexeme of a point goes on only where the condition at its end fails, which it has here."""
        t, q, _ = self._point[i]
        return self._terminals[t].soonest and q in self._terminals[t].ahead

    def settling(self, points: list[int]) -> int:
        """The symbols with which points go on so that no shorter match is read any more."""
        arcs = [(mask, [q]) for i in points for mask, q in self._arcs[i]]
        if not any(self._failing(q) for _, (q,) in arcs):
            return union(mask for mask, (q,) in arcs if self._settles(q))
        return union(mask for mask, targets in disjoint(arcs) if self._settled(targets))

    def not_settled(self, generations: list[list[int]]) -> list[list[int]]:
        """What is left of generations of items, oldest first: those down to a lexeme that is one whatever follows.

        What an older generation has read, too, is left out of a younger one: whatever follows, the older one is taken.
        """
        out, read = list[list[int]](), dict[int, None]()
        for targets in generations:
            if new := [i for i in dict.fromkeys(targets) if i not in read and not self._surpassed(i, read)]:
                out.append(new)
                read.update(dict.fromkeys(new))
            if not self._looks and self._settled(read):
                break
        return out

    def _surpassed(self, i: int, older: Iterable[int]) -> bool:
        """Whether one of older items is the text whatever follows, where a younger one could be."""
        if not self._looks:
            return False
        looks = self._looks.get(i, NO_LOOKS)
        beside = [j for j in older if self._looks.get(j, NO_LOOKS) <= looks]
        return bool(beside) and self._settled(beside)

    def _settles(self, i: int) -> bool:
        """Whether the text that an item has read is a lexeme whatever follows, or a word that is reserved."""
        t, q, _ = self._point.get(i, (-1, 0, -1))
        return i not in self._point or (t >= 0 and settles(self._terminals[t], q))

    def _failing(self, i: int) -> int:
        """The symbols at which a lexeme that an item has read may have to be cut shorter; 0 of what is none."""
        t, q, _ = self._point.get(i, (-1, 0, -1))
        return self._terminals[t].failing.get(q, 0) if t >= 0 else 0

    def _settled(self, items: Iterable[int]) -> bool:
        """Whether the text that items have read is a lexeme whatever follows, by one of them or by another."""
        items = list(items)
        if any(self._settles(i) for i in items):
            return True
        failing = [lost for i in items if (lost := self._failing(i))]
        if not failing:
            return False
        sure = [(mask, 0) for i in items for mask, q in self._arcs[i] if self._settles(q)]
        return not functools.reduce(int.__and__, failing) & ~first_symbols([sure])
