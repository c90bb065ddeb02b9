"""Published samplers of constrained texts, as their papers describe them, one row at a time in NumPy: for `league.py`.

They ask a model for one prefix at a time, which is what is counted; a memo answers what was asked before without counting less.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Prefix = tuple[int, ...]


class Node(NamedTuple):
    """What may follow a prefix: tokens int64[n], their probabilities float64[n] under the model, and which end the text."""

    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    ends: NDArray[np.bool_]


class Tree:
    """All texts of a constraint within a limit, under a model.

    Args:
      model: the probabilities of the next token behind a prefix, float64[V].
      constraint: compiled.
      limit: most tokens.
    """

    def __init__(self, model: Callable[[Prefix], NDArray[np.float64]], constraint: Any, limit: int) -> None:
        self.model, self.constraint, self.limit = model, constraint, limit
        self.stops = list(constraint.stop_ids)
        self.passes = 0
        self.at = functools.cache(self._at)

    def ask(self, prefix: Prefix) -> Node:
        """The node of a prefix, counted as a pass of the model."""
        self.passes += 1
        return self.at(prefix)

    def _walk(self, prefix: Prefix) -> Any:
        walk = self.constraint.walk()
        for i, token in enumerate(prefix):
            walk.advance(int(token), self.limit - i)
        return walk

    def _over(self, walk: Any, length: int) -> bool:
        """Whether a text ends here because nothing can follow."""
        if length == self.limit:
            return True
        follow = walk.allowed(self.limit - length).copy()
        follow[self.stops] = False
        return walk.accepting and not follow.any()

    def _at(self, prefix: Prefix) -> Node:
        walk = self._walk(prefix)
        tokens = np.flatnonzero(walk.allowed(self.limit - len(prefix)))
        ends = np.zeros(len(tokens), bool)
        for i, token in enumerate(tokens):
            if token in self.stops:
                ends[i] = True
                continue
            walk.advance(int(token), self.limit - len(prefix))
            ends[i] = self._over(walk, len(prefix) + 1)
            walk.rewind(1)
        return Node(tokens, self.model(prefix)[tokens], ends)

    def texts(self, least: float) -> tuple[dict[Prefix, float], float]:
        """The probability of every text whose beginnings all have at least this one, and a bound of that of the others."""
        found: dict[Prefix, float] = {}
        others = 0.0
        left: list[tuple[Prefix, float]] = [((), 1.0)]
        while left:
            prefix, probability = left.pop()
            node = self.at(prefix)
            for token, p, ends in zip(node.tokens.tolist(), node.probabilities.tolist(), node.ends.tolist()):
                if probability * p < least:
                    others += probability * p
                    continue
                text = (*prefix, token)
                if ends:
                    found[text] = probability * p
                else:
                    left.append((text, probability * p))
        return found, others


def _drawn(rng: Any, weights: NDArray[np.float64]) -> int:
    ends = np.cumsum(weights)
    return min(int(np.searchsorted(ends, rng.random() * ends[-1], side="right")), len(weights) - 1)


def masked(tree: Tree, rng: Any, start: Prefix = ()) -> Prefix:
    """A text drawn token by token among the allowed ones."""
    prefix = start
    while True:
        node = tree.ask(prefix)
        i = _drawn(rng, node.probabilities)
        prefix = (*prefix, int(node.tokens[i]))
        if node.ends[i]:
            return prefix


def rejection(tree: Tree, rng: Any) -> Prefix | None:
    """A text drawn from the model, or None once a token is not allowed."""
    prefix: Prefix = ()
    while True:
        node = tree.ask(prefix)
        place = rng.random()
        if place >= node.probabilities.sum():
            return None
        i = min(int(np.searchsorted(np.cumsum(node.probabilities), place, side="right")), len(node.tokens) - 1)
        prefix = (*prefix, int(node.tokens[i]))
        if node.ends[i]:
            return prefix


class Trie:
    """Bounds of the mass behind every prefix that was met: 1 before the model was asked, then what its tokens add up to."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.bound: dict[Prefix, float] = {}

    def weights(self, prefix: Prefix, node: Node) -> NDArray[np.float64]:
        """The probability of every allowed token times the bound behind it."""
        behind = [self.bound.get((*prefix, int(t)), 1.0) for t in node.tokens]
        return node.probabilities * np.array(behind)

    def learn(self, met: list[Prefix]) -> None:
        """Bounds anew, of prefixes that were met on one way, from its end to its start."""
        for prefix in reversed(met):
            self.bound[prefix] = float(self.weights(prefix, self.tree.at(prefix)).sum())

    def cars(self, rng: Any) -> Prefix | None:
        """Constrained adaptive rejection: one attempt. Source: Parys et al. 2025 (arXiv 2510.01902)."""
        prefix, met = (), []
        text: Prefix | None = None
        while True:
            node = self.tree.ask(prefix)
            known = prefix in self.bound
            met.append(prefix)
            weights = self.weights(prefix, node) if known else node.probabilities
            place = rng.random() * (weights.sum() if known else 1.0)
            if place >= weights.sum():
                break
            i = min(int(np.searchsorted(np.cumsum(weights), place, side="right")), len(weights) - 1)
            prefix = (*prefix, int(node.tokens[i]))
            if node.ends[i]:
                text = prefix
                break
        self.learn(met)
        return text

    def asap(self, rng: Any) -> Prefix:
        """Masked, weighted by the bounds, never rejected. Source: Park et al. 2024, Grammar-Aligned Decoding (2405.21047)."""
        prefix, met = (), []
        while True:
            node = self.tree.ask(prefix)
            met.append(prefix)
            i = _drawn(rng, self.weights(prefix, node))
            prefix = (*prefix, int(node.tokens[i]))
            if node.ends[i]:
                self.learn(met)
                return prefix


def chain(tree: Tree, rng: Any, steps: int) -> Prefix:
    """The end of a Metropolis-Hastings chain whose proposals write the text anew, masked, from a random position on.

    Source: Anaya Gonzalez et al. 2025 (arXiv 2506.05754), with positions drawn uniformly.
    """

    def along(text: Prefix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log-probabilities of every token: under the model, and masked."""
        raw, local = [], []
        for t, token in enumerate(text):
            node = tree.at(text[:t])
            p = float(node.probabilities[int(np.searchsorted(node.tokens, token))])
            raw.append(np.log(p))
            local.append(np.log(p / node.probabilities.sum()))
        return np.array(raw), np.array(local)

    def proposal(there: Prefix, here: Prefix, local: NDArray[np.float64]) -> float:
        """Log-probability of proposing `there` from `here`; `local`: of `there`."""
        same = next((i for i, (a, b) in enumerate(zip(there, here)) if a != b), min(len(there), len(here)))
        cuts = [local[i:].sum() for i in range(min(same + 1, len(here)))]
        return float(np.logaddexp.reduce(cuts) - np.log(len(here)))

    text = masked(tree, rng)
    raw, local = along(text)
    for _ in range(steps):
        other = masked(tree, rng, text[: rng.integers(len(text))])
        other_raw, other_local = along(other)
        ratio = other_raw.sum() - raw.sum() + proposal(text, other, local) - proposal(other, text, other_local)
        if np.log(rng.random()) < ratio:
            text, raw, local = other, other_raw, other_local
    return text
