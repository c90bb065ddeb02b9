"""`StackDistances`: how many canonical tokens complete a text of a constraint with a stack, after each token.

As `lazy_distances`, but a way to the end leads through frames. Bounds for it are

    distance(node, t) + sum of cost[symbol] over the stack        tokens,
    need(node, t) + depth of the stack                            cells,

with the costs of symbols that the constraint has without the filter (`costs`). After each token t that can be completed
some next token u keeps to both:

    distance(node, t) = 1 + distance(target, u) + cost of the symbols that u pushes - cost of those that it pops,

and likewise for needs, one for each cell; where u ends frames, that holds *whatever* lies further down, with the most that may
be. The first bound is lowered by every such token and never below zero, so every such text can be completed. Distances are found
in rounds: tokens that end frames count one at first, and then as much as what they lead to in the last round.

That what has no distance cannot be completed is shown by counting in all tokens that end frames for *some* stack: where no more
can be completed then, nothing was left out. Elsewhere nothing is decided, and the caller may look further down the stack
(`windows`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import reduce
from typing import NamedTuple, TypeAlias

import numpy as np

from fsa_compile.artifact.bitmask import words_of
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.filter.contexts import DEPTHS, Contexts
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.canonical.lazy_product.decision import DecidedDistances, Place
from fsa_compile.canonical.lazy_product.pairs import Surplus
from fsa_compile.canonical.stacks.refinement import by_end, by_tokens
from fsa_compile.canonical.stacks.stack_edges import BOTTOM, StackEdges, symbols
from fsa_compile.canonical.stacks.stack_tokens import StackTokens
from fsa_compile.limits import Deadline

CELL = 1 << 18
"""Weight of a cell in a distance: ways to the end take as few cells as they can, and then as few tokens."""
_ROUNDS = 40
_PATIENCE = 5
"""Every this many rounds, tokens after which distances still grow are dropped: most of them only lead back to themselves."""
_MOST = (CELL >> 2, 256)
"""Most tokens and cells that it may take to complete a text below a frame, beside what the frame's symbol pays for."""
_Ending: TypeAlias = dict[int, dict[int, np.ndarray]]
"""Of nodes, the tokens that end frames, uint32[W], by the distance after them."""


class _Edges(NamedTuple):
    """node, what, target: int64[n] each; `what` are bit rows or tokens."""

    node: np.ndarray
    what: np.ndarray
    target: np.ndarray

    def ordered(self) -> _Edges:
        """By node, then by what."""
        order = np.lexsort((self.what, self.node))
        return _Edges(*(column[order] for column in self))


class _After(NamedTuple):
    """Tokens uint32[W], and what it takes to complete a text after them."""

    tokens: int
    cells: int
    row: np.ndarray


def _whatever(one: list[_After], other: list[_After]) -> list[_After]:
    """What can be completed in both cases, at the most that either takes."""
    out = []
    for a in one:
        for b in other:
            row = a.row & b.row
            if row.any():
                out.append(_After(max(a.tokens, b.tokens), max(a.cells, b.cells), row))
    return out


def _grown(before: _Ending, after: _Ending) -> dict[int, np.ndarray]:
    """The tokens whose distances grew."""
    out: dict[int, np.ndarray] = {}
    for node, by_distance in after.items():
        for distance, row in by_distance.items():
            for least, held in before.get(node, {}).items():
                if least < distance and (row & held).any():
                    out[node] = row & held | out[node] if node in out else row & held
    return out


def _joined(one: dict[int, np.ndarray], other: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    return one | {node: row | one[node] if node in one else row for node, row in other.items()}


def _without(ending: _Ending, rows: dict[int, np.ndarray]) -> _Ending:
    """The rest of some tokens."""
    out: _Ending = {}
    for node, by_distance in ending.items():
        if node in rows:
            by_distance = {key: row & ~rows[node] for key, row in by_distance.items()}
        left = {key: row for key, row in by_distance.items() if row.any()}
        if left:
            out[node] = left
    return out


def _equal(one: _Ending, other: _Ending) -> bool:
    return one.keys() == other.keys() and all(
        one[node].keys() == other[node].keys() and all((one[node][key] == other[node][key]).all() for key in one[node])
        for node in one
    )


class StackDistances:
    """The distances of a constraint with a stack.

    Args:
      constraint: deterministic, without counters and sets of keys.
      state: of the filter, before the first token.
      last: the token before the first, -1 for none.
      slack: tokens that symbols may cost beyond their costs without the filter: frames may take more tokens to end.

    Attributes:
      edges: of the constraint.
      decided: whether what has no distance cannot be completed. Where that is so:
      tokens: that can be completed.
      symbol_cost: int64[P].

      Elsewhere:
      unsure: nodes where it is not certain what can be completed.
      gave_up: whether tokens that end frames were left out since distances after them grew without end: more slack may help.
      apart: of each symbol what stacks with it on top should be told apart by; None where nothing of the kind is known.
    """

    def __init__(
        self, constraint: CompiledConstraint, contexts: Contexts, deadline: Deadline, state: int, last: int, slack: int
    ) -> None:
        self._constraint, self._contexts, self._deadline = constraint, contexts, deadline
        self._state, self._last = state, last
        self.edges = StackEdges(constraint)
        self._none = np.zeros(constraint.rows.shape[1], np.uint32)
        self.decided = False
        self.apart: list[Hashable] | None = None
        self.gave_up = False
        ends = self._accepting()
        self._accept = [may for _, may in ends]
        self.unsure = {node for node, (must, may) in enumerate(ends) if must != may}
        if self.unsure:
            self.apart = by_end(self.edges, ends)
            return
        self._layout()
        self.symbol_cost = constraint.symbol_cost.astype(np.int64) + slack
        self._delay = self.edges.delays(self.symbol_cost + CELL)
        self._alone = self._without_stack()
        if self._alone.fits and self._settle():
            self._decide()

    @property
    def nearest(self) -> np.ndarray:
        """int64[N], the least distance of each node over the tokens that lead to it."""
        return self.tokens.nearest(self._delay)

    @property
    def start(self) -> int:
        """Distance from the start, frames below included."""
        below = self.edges.strings[self._constraint.initial_push]
        first = self.tokens.distances.start
        return FAR if first >= FAR else first % CELL + sum(int(self.symbol_cost[symbol]) for symbol in below)

    def _accepting(self) -> list[tuple[bool, bool]]:
        """Of each node, whether a text may end there whatever lies on the stack, and whether it may for some stack."""
        e, c = self.edges, self._constraint
        known: dict[int, tuple[bool, bool]] = {0: (False, False)}

        def of(node: int) -> tuple[bool, bool]:
            if node not in known:
                if c.accept[node]:
                    known[node] = True, True
                else:
                    below = [of(e.after_pop(node, symbol)) for symbol in symbols(e.tops[node])]
                    empty = bool(e.tops[node] >> BOTTOM & 1)
                    every = bool(below) and not empty and all(must for must, _ in below)
                    known[node] = every, any(may for _, may in below)
            return known[node]

        return [of(node) for node in range(c.num_nodes)]

    def _layout(self) -> None:
        """Finds which nodes stand beside others, and which have tokens that end frames."""
        e, c = self.edges, self._constraint
        n = c.num_nodes
        opened = np.zeros(n, bool)
        opened[c.start] = True
        opened[e.base[e.group_target]] = opened[e.base[e.arc_target]] = True
        self._copies: dict[int, list[int]] = {}
        for k, node in enumerate(e.copy_of.tolist()):
            self._copies.setdefault(node, []).append(n + k)
        copied = [(n + k, node) for k, node in enumerate(e.copy_of.tolist())]
        self._links = (*copied, *self._linked(np.flatnonzero(opened).tolist()))
        self._poppable = [node for node in range(n) if opened[node] and any(self._children(node))]
        tail = self._contexts.tail[: c.vocab_size]
        self._known_tails = words_of(np.flatnonzero((tail >= 0) & (tail < DEPTHS)), c.vocab_size)

    def _linked(self, opened: list[int]) -> Iterator[tuple[int, int]]:
        """The inner nodes that stand beside those that tokens lead to, and beside these in turn."""
        todo, known = opened, set(opened)
        for node in todo:  # grows
            for inner in dict.fromkeys(self._children(node)):
                if inner:
                    yield node, inner
                    if inner not in known:
                        known.add(inner)
                        todo.append(inner)

    def _children(self, node: int) -> list[int]:
        return [self.edges.after_pop(node, symbol) for symbol in symbols(self.edges.tops[node])]

    def _settle(self) -> bool:
        """Finds all distances; whether they fit, and are final."""
        ending = self._ending(first=True)
        given_up: dict[int, np.ndarray] = {}
        for number in range(1, _ROUNDS + 1):
            self.tokens = self._with_ending(ending)
            before, ending = ending, _without(self._ending(), given_up)
            if not number % _PATIENCE:
                given_up = _joined(given_up, _grown(before, ending))
                ending = _without(ending, given_up)
            if _equal(before, ending):
                self.gave_up = bool(given_up)
                self._certain = {node: np.bitwise_or.reduce(list(rows.values())) for node, rows in ending.items()}
                return True
        return False

    def _tells_apart(self) -> bool:
        """Whether every distance has its tokens below the weight of a cell, and is below `FAR`.

        A way to the end adds less than half of either at once, so one that came to more would have a place in the upper half.
        """
        half, far = CELL // 2, FAR // 2
        d = self.tokens.distances
        levels = [level for wide in d.wide.values() for level, _ in wide.levels]
        found = np.append(d.distances, levels).astype(np.int64)
        found = found[found < FAR]
        fewest = bool((found % CELL < half).all() and (found < far).all())
        return fewest and bool((self._delay % CELL < half - _MOST[0]).all() and (self._delay < far).all())

    def _decide(self) -> None:
        """Finds out whether no more could be completed with every token that some stack lets follow.

        Tokens that depend on the filter's state are looked at where nothing else is in doubt only: there may be many of them.
        """
        possible = self._possible()
        may = self._possibly(possible)
        if may is None:
            return
        more, places = may.beyond(self.tokens), list[Place]()
        if not more:
            if not self.tokens.distances.decided():
                return
            known = self._possible()
            if known.keys() != possible.keys() or any((row != possible[node]).any() for node, row in known.items()):
                may = self._possibly(known)
            if may is None or not may.distances.decided():
                return
            more = may.beyond(self.tokens)
            places += self.tokens.sometimes_otherwise(may)
        places += may.places(more, {*self._poppable})
        if (may.distances.start < FAR) != (self.tokens.distances.start < FAR):
            places.append(may.distances.place_of_start())
        self.unsure = {*more, *(place.node for place in places)}
        if self.unsure:
            self.apart = by_tokens(self.edges, self.tokens, places, self._certain)
        else:
            self.decided = self._tells_apart() and self.tokens.unless_agrees()

    def _possibly(self, possible: dict[int, np.ndarray]) -> StackTokens | None:
        """What can be completed where these tokens may end frames of nodes; None where some may end inside a character or not."""
        if any((row & ~self._known_tails).any() for row in possible.values()):
            return None
        return self._with_ending({node: {0: row} for node, row in possible.items()})

    def _without_stack(self) -> DecidedDistances:
        """The constraint without its stack: its nodes are those of `edges`."""
        c, e = self._constraint, self.edges
        n = c.num_nodes
        place, group = e.sets_of(e.copy_of, "group")
        columns = (e.group_node, n + place), (e.group_row, e.group_row[group]), (e.group_target, e.group_target[group])
        groups = _Edges(*map(np.concatenate, columns)).ordered()
        place, arc = e.sets_of(e.copy_of, "arc")
        columns = (e.arc_node, n + place), (e.arc_token, e.arc_token[arc]), (e.arc_target, e.arc_target[arc])
        arcs = _Edges(*map(np.concatenate, columns)).ordered()
        every_node = np.arange(e.count + 1)
        alone = CompiledConstraint(
            vocab_size=c.vocab_size,
            fingerprint=c.fingerprint,
            stop_ids=c.stop_ids,
            source=c.source,
            start=c.start,
            accept=np.array(self._accept)[e.base],
            distance=c.distance[e.base],
            rows=c.rows,
            group_offset=np.searchsorted(groups.node, every_node).astype(np.int32),
            group_row=groups.what.astype(np.int32),
            group_next=groups.target.astype(np.int32),
            arc_offset=np.searchsorted(arcs.node, every_node).astype(np.int32),
            arc_token=arcs.what.astype(np.int32),
            arc_effect=arcs.target.astype(np.int32),
            level_offset=np.zeros(e.count + 1, np.int32),
            level_cost=np.zeros(0, np.int32),
            level_row=np.zeros(0, np.int32),
        )
        surplus = Surplus(self._links, self._delay)
        return DecidedDistances(alone, self._contexts, self._deadline, self._state, self._last, surplus)

    def _with_ending(self, ending: _Ending) -> StackTokens:
        """What can be completed where these tokens end frames from nodes."""
        self._deadline.check("completing the canonical tokens of the constraint")
        exits: dict[int, list[tuple[int, np.ndarray]]] = {}
        for node, by_distance in ending.items():
            found = [(distance, row & self._known_tails) for distance, row in by_distance.items()]
            for one in (node, *self._copies.get(node, ())):
                exits[one] = found
        return StackTokens(self.edges, self._alone.with_exits(exits))

    def _ending(self, *, first: bool = False) -> _Ending:
        """Of each node, the tokens that end frames and can be completed whatever lies further down; at first all of them."""
        e = self.edges
        known: dict[int, list[_After]] = {}

        def after(node: int) -> list[_After]:
            bits = e.tops[node]
            inner = [(symbol, e.after_pop(node, symbol)) for symbol in symbols(bits)]
            if bits >> BOTTOM & 1 or not inner or not all(at for _, at in inner):
                return []
            parts = []
            for symbol, at in inner:
                if at not in known:
                    own = [_After(0, 0, self.edges.tokens_of(at))] if first else self._after(at)
                    known[at] = [*own, *after(at)]
                paid = int(self.symbol_cost[symbol])
                parts.append([_After(max(0, x.tokens - paid), max(0, x.cells - 1), x.row) for x in known[at]])
            return reduce(_whatever, parts)

        out: _Ending = {}
        for node in self._poppable:
            for tokens, cells, row in after(node):
                if row.any():
                    of_node, key = out.setdefault(node, {}), tokens + CELL * cells
                    of_node[key] = of_node[key] | row if key in of_node else row
        return out

    def _after(self, node: int) -> list[_After]:
        """The tokens of a node of the constraint that can be completed, by what that takes after them."""
        token, _, cost = self.tokens.listed(node)
        by_cost: dict[int, np.ndarray] = {}
        for most in np.unique(cost).tolist():
            by_cost[most] = words_of(token[cost == most], self._constraint.vocab_size)
        for _, held in self.tokens.wide(node):
            for most, bits in held:
                by_cost[most] = by_cost[most] | bits if most in by_cost else bits
        out = [_After((most - 1) % CELL, (most - 1) // CELL, bits) for most, bits in sorted(by_cost.items())]
        return [x for x in out if x.tokens <= _MOST[0] and x.cells <= _MOST[1]]

    def _possible(self) -> dict[int, np.ndarray]:
        """Of nodes the tokens that end frames and can be completed for some stack, uint32[W]."""
        known: dict[int, np.ndarray] = {}

        def of(node: int) -> np.ndarray:
            out = self._none
            for inner in self._children(node):
                if inner:
                    if inner not in known:
                        known[inner] = self.tokens.own(inner) | of(inner)
                    out = out | known[inner]
            return out

        found = ((node, of(node)) for node in self._poppable)
        return {node: row for node, row in found if row.any()}
