"""Exact probabilities by plain recursion in NumPy: the toy decoder's logits, the host walk's masks, float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Leaf(NamedTuple):
    """A whole sequence (without its stop token), raw and locally renormalised probability, whether a stop token was counted."""

    tokens: tuple[int, ...]
    raw: float
    local: float
    stopped: bool


class ToyModel:
    """The toy decoder, float64, one prefix at a time."""

    def __init__(self, decoder) -> None:
        self.table = np.asarray(decoder.params["table"], np.float64)
        self.bias = np.asarray(decoder.params["bias"], np.float64)

    def probabilities(self, tokens) -> np.ndarray:
        """Of the next token, float64[V]."""
        memory = np.zeros(len(self.bias))
        for token in tokens:
            memory = 0.5 * memory + self.table[token]
        logits = memory + np.sin(len(tokens)) * self.bias
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()


def leaves(decoder, constraint, prompt, limit: int, *, max_depth=None, always_stop=False) -> list[Leaf]:
    """All sequences that decoding under a limit can write."""
    model, walk, out = ToyModel(decoder), constraint.walk(max_depth), []
    stops = list(constraint.stop_ids)

    def visit(tokens: tuple[int, ...], raw: float, local: float) -> None:
        complete = walk.accepting
        if len(tokens) == limit:
            assert complete
            out.append(Leaf(tokens, raw, local, False))
            return
        mask = walk.allowed(limit - len(tokens))
        text = mask.copy()
        text[stops] = False
        if complete and not text.any() and not (always_stop and stops):
            out.append(Leaf(tokens, raw, local, False))
            return
        p = model.probabilities((*prompt, *tokens))
        share = p[mask].sum()
        if mask[stops].any():
            q = p[stops].sum()
            out.append(Leaf(tokens, raw * q, local * q / share, True))
        for token in np.flatnonzero(text):
            walk.advance(int(token), limit - len(tokens))
            visit((*tokens, int(token)), raw * p[token], local * p[token] / share)
            walk.rewind(1)

    visit((), 1.0, 1.0)
    return out


def mass(found: list[Leaf]) -> float:
    """Sum of the raw probabilities."""
    return sum(leaf.raw for leaf in found)
