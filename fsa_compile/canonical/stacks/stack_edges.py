"""`StackEdges`: what the tokens of a constraint with a stack do, as a graph of nodes without a stack.

Tokens that push lead to a copy of their target, one for each target and push string; what the frame below still takes is a delay
of the copy. What may lie on top of the stack at each node is worked out here too.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Literal

import numpy as np

from fsa_compile.arrays.ranges import joined
from fsa_compile.artifact.bitmask import words_of
from fsa_compile.artifact.constraint import CompiledConstraint

BOTTOM = 0
"""Bit of `StackEdges.tops` for the empty stack; symbol s is bit s + 1."""


class StackEdges:
    """Axes: N nodes of the constraint, K copies, G groups, A arcs, P symbols.

    Args:
      constraint: with a stack, deterministic, without counters and sets of keys.

    Attributes:
      count: N + K.
      copy_of: int64[K], the node that each copy is of; copy k is node N + k.
      copy_push: int64[K], its push string.
      group_node, group_target: int64[G], with copies as targets; group_row: int64[G].
      arc_node, arc_target, arc_token: int64[A].
      tops: for each node, the symbols that may lie on top of the stack, as bits; of inner nodes after the pops.
    """

    def __init__(self, constraint: CompiledConstraint) -> None:
        c = self.constraint = constraint
        n = c.num_nodes
        effect = c.effects[c.arc_effect].astype(np.int64)
        self.group_node = np.repeat(np.arange(n), np.diff(c.group_offset))
        self.arc_node = np.repeat(np.arange(n), np.diff(c.arc_offset))
        self.group_row, self.arc_token = c.group_row.astype(np.int64), c.arc_token.astype(np.int64)
        strings = len(c.push_offset) - 1
        target = np.concatenate([c.group_next, effect[:, 0]]).astype(np.int64)
        push = np.concatenate([c.group_push, effect[:, 1]]).astype(np.int64)
        pushes = push > 0
        copies, which = np.unique(target[pushes] * strings + push[pushes], return_inverse=True)
        self.copy_of, self.copy_push = np.divmod(copies, strings)
        target[pushes] = n + which.ravel()
        self.group_target, self.arc_target = target[: len(c.group_next)], target[len(c.group_next) :]
        self.count = n + len(copies)
        self.base = np.append(np.arange(n), self.copy_of)
        """int64[N + K], the node that each node stands for."""
        self.strings = [c.push_symbol[a:b].tolist() for a, b in zip(c.push_offset[:-1].tolist(), c.push_offset[1:].tolist())]
        self.push_of = np.append(np.zeros(n, np.int64), self.copy_push)
        """int64[N + K], the push string that leads to each node."""
        self.tops = self._tops()

    def after_pop(self, node: int, symbol: int) -> int:
        """The inner node after popping a symbol, 0 for none."""
        return int(self.constraint.delta[self.constraint.delta_offset[node] + symbol])

    def tokens_of(self, node: int) -> np.ndarray:
        """All tokens of a node of the constraint, uint32[W], but those that end its frame."""
        c = self.constraint
        out = words_of(c.arc_token[c.arc_offset[node] : c.arc_offset[node + 1]].astype(np.int64), c.vocab_size)
        for row in c.group_row[c.group_offset[node] : c.group_offset[node + 1]].tolist():
            out |= c.rows[row]
        return out

    def delays(self, weight: np.ndarray) -> np.ndarray:
        """int64[N + K], the weights of the symbols that a push puts on the stack, by those of symbols int64[P]."""
        of_string = np.array([sum(int(weight[symbol]) for symbol in string) for string in self.strings], np.int64)
        return of_string[self.push_of]

    @cached_property
    def links(self) -> list[list[int]]:
        """Of each node of the constraint, what its tokens lead to, each once."""
        n = self.constraint.num_nodes
        key = np.concatenate([self.group_node * self.count + self.group_target, self.arc_node * self.count + self.arc_target])
        source, target = np.divmod(np.unique(key), self.count)
        begin = np.searchsorted(source, np.arange(n + 1)).tolist()
        every = target.tolist()
        return [every[a:b] for a, b in itertools.pairwise(begin)]

    def sets_of(self, nodes: np.ndarray, kind: Literal["group", "arc"]) -> tuple[np.ndarray, np.ndarray]:
        """(place in `nodes`, group or arc) of the groups or arcs of some nodes of the constraint."""
        offset = getattr(self.constraint, f"{kind}_offset")
        begin, size = offset[nodes], offset[nodes + 1] - offset[nodes]
        return np.repeat(np.arange(len(nodes)), size), joined(begin, size)

    def _tops(self) -> list[int]:
        c = self.constraint
        tops = [0] * c.num_nodes
        under = [0] * len(c.symbol_cost)
        initial = self.strings[c.initial_push]
        top = 1 << BOTTOM
        for symbol in initial:
            under[symbol] |= top
            top = 2 << symbol
        tops[c.start] = top
        todo, waiting = [c.start], {c.start}
        popping: list[set[int]] = [set() for _ in under]

        def more(node: int, bits: int) -> None:
            if bits & ~tops[node]:
                tops[node] |= bits
                if node not in waiting:
                    waiting.add(node)
                    todo.append(node)

        while todo:
            node = todo.pop()
            waiting.discard(node)
            here = tops[node]
            for target in self.links[node]:
                string, bits = self.strings[int(self.push_of[target])], here
                for symbol in string:
                    if bits & ~under[symbol]:
                        under[symbol] |= bits
                        for inner in list(popping[symbol]):
                            more(inner, under[symbol])
                    bits = 2 << symbol
                more(int(self.base[target]), bits)
            for symbol in symbols(here):
                inner = self.after_pop(node, symbol)
                if inner:
                    popping[symbol].add(inner)
                    more(inner, under[symbol])
        return tops


def symbols(bits: int) -> list[int]:
    """The symbols among some bits of `StackEdges.tops`."""
    bits >>= 1
    out = []
    while bits:
        low = bits & -bits
        out.append(low.bit_length() - 1)
        bits ^= low
    return out
