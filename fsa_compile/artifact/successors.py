"""Everything that may follow a configuration, whatever the limits: for writing a constraint out. Imports NumPy only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact.host_walk import Configuration, Effect, HostWalk
from fsa_compile.artifact.step_memo import memo_of


class Successors:
    """The outgoing token sets of configurations of a deterministic constraint.

    Args:
      walk: of the constraint; where it stands does not matter.
    """

    def __init__(self, walk: HostWalk) -> None:
        self._walk, self._constraint, self._guards = walk, walk.constraint, memo_of(walk.constraint).guards
        self._token_sets: dict[tuple[int | None, ...], list[NDArray[np.int64]]] = {}

    def of(self, at: Configuration) -> Iterator[tuple[NDArray[np.int64], Configuration]]:
        """Sets of text tokens, which are disjoint, and where each of them leads. Equal sets are one array."""
        c = self._constraint
        for source in self._walk.sources(at):
            stack = at.stack[: source.left]
            for g in range(c.group_offset[source.node], c.group_offset[source.node + 1]):
                effect = Effect(int(c.group_next[g]), int(c.group_push[g]), int(c.group_add[g]), int(c.group_set[g]))
                for tokens in self._alike(int(c.group_row[g]), None, effect):
                    yield tokens, self._walk.applied(stack, source, effect, int(tokens[0]))
            arcs = slice(int(c.arc_offset[source.node]), int(c.arc_offset[source.node + 1]))
            for number in np.unique(c.arc_effect[arcs]).tolist():
                effect = Effect(*(row := c.effects[number].tolist())[:4], *row[6:])
                if effect.guard and not self._guards[effect.guard].allows(source.used):
                    continue
                for tokens in self._alike(source.node, number, effect):
                    yield tokens, self._walk.applied(stack, source, effect, int(tokens[0]))

    def _alike(self, of: int, number: int | None, effect: Effect) -> list[NDArray[np.int64]]:
        """The tokens of a row, or of the arcs of a node with one effect, by the numbers that the effect looks up for each."""
        c, looked_up = self._constraint, [-1 - k for k in (effect.add, effect.set_to) if k < 0]
        known = self._token_sets.get(key := (of, number, *looked_up))
        if known is None:
            if number is None:
                tokens = c.row_tokens(of)
            else:
                arcs = slice(int(c.arc_offset[of]), int(c.arc_offset[of + 1]))
                tokens = c.arc_token[arcs][c.arc_effect[arcs] == number].astype(np.int64)
            place = np.zeros(len(tokens), np.int64)
            for k in looked_up:
                _, place = np.unique(place * (1 << 16) + c.increments[k, tokens], return_inverse=True)
            known = [tokens] if place.max(initial=0) == 0 else [tokens[place == i] for i in range(int(place.max()) + 1)]
            self._token_sets[key] = known
        return known
