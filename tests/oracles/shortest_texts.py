"""How many tokens the rest of a text takes at least: breadth first over configurations of the byte machine, stacks written out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsa_compile.automata.pushdown import ByteMachine, Configuration


class ShortestTexts:
    """Least numbers of tokens from configurations of one machine to an accepted text.

    Args:
      tokens: symbols of every token; the empty ones are not text.
      most: configurations that one question may come to.
      deepest: stacks of more cells are given up.
    """

    def __init__(self, machine: ByteMachine, tokens: Sequence[Sequence[int]], most: int = 20_000, deepest: int = 1_000) -> None:
        self.machine, self.most, self.deepest = machine, most, deepest
        self._tokens = [list(token) for token in dict.fromkeys(map(tuple, tokens)) if token]
        self._after: dict[Configuration, list[Configuration]] = {}

    def after(self, here: Configuration) -> list[Configuration]:
        """Where single tokens lead."""
        found = self._after.get(here)
        if found is None:
            every = {there: None for token in self._tokens for there in self.machine.run(token, [here])}
            found = self._after[here] = [there for there in every if len(there.stack) <= self.deepest]
        return found

    def rest(self, configurations: Iterable[Configuration], within: int = 1 << 30) -> int | None:
        """Tokens of a shortest rest; None where there is none within the given number, or where it was not found.

        `decided` then says which: False after a search that was cut short.
        """
        self.decided = True
        seen = dict.fromkeys(configurations)
        now = list(seen)
        for count in range(within + 1):
            if any(self.machine.may_end([here]) for here in now):
                return count
            later = {there: None for here in now for there in self.after(here) if there not in seen}
            if not later:
                return None
            seen |= later
            now = list(later)
            if len(seen) > self.most:
                self.decided = False
                return None
        return None
