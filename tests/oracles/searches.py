"""Enumeration of all texts of a constraint under a toy decoder, and a beam search in plain Python: nothing of the device half."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np


class Text(NamedTuple):
    """A finished text: its tokens, whether stop ids end it, and its log-probability under the model, the end included."""

    tokens: tuple[int, ...]
    stopped: bool
    logprob: float

    @property
    def length(self) -> int:
        """Tokens, the stop token counted."""
        return len(self.tokens) + self.stopped


def toy_logits(decoder, prompt) -> Callable[[tuple[int, ...]], np.ndarray]:
    """The logits of `oracles.toy_decoder.toy` after the prompt and further tokens, float64[V]."""
    table, bias = (np.asarray(decoder.params[name], np.float64) for name in ("table", "bias"))
    memories: dict[tuple[int, ...], np.ndarray] = {(): np.zeros(table.shape[1])}

    def memory(tokens: tuple[int, ...]) -> np.ndarray:
        if tokens not in memories:
            memories[tokens] = 0.5 * memory(tokens[:-1]) + table[tokens[-1]]
        return memories[tokens]

    return lambda tokens: memory((*prompt, *tokens)) + np.sin(len(prompt) + len(tokens)) * bias


def log_sum(x: np.ndarray) -> float:
    """log sum exp, -inf for none."""
    return float(x.max() + np.log(np.exp(x - x.max()).sum())) if len(x) else -math.inf


class Expansion(NamedTuple):
    """What may follow a text: (token, log-probability) pairs, and the log-probability of its end (None: it cannot end)."""

    tokens: list[tuple[int, float]]
    end: float | None
    stopped: bool


def expand(logits, walk, tokens: tuple[int, ...], limit: int, stops: tuple[int, ...]) -> Expansion:
    """Continuations after `tokens`, which the walk has taken (None: no constraint)."""
    x = logits(tokens)
    every = log_sum(x)
    if walk is None:
        allowed, accepting = np.ones(len(x), bool), True
    else:
        allowed, accepting = walk.allowed(limit - len(tokens)).copy(), walk.accepting
    allowed[list(stops)] = False
    follow = [(int(t), float(x[t] - every)) for t in np.flatnonzero(allowed)]
    if accepting and stops:
        return Expansion(follow, log_sum(x[list(stops)]) - every, True)
    return Expansion(follow, 0.0 if accepting and walk is not None and not follow else None, False)


def all_texts(logits, walk, limit: int, stops: tuple[int, ...]) -> list[Text]:
    """Every text within the limit."""

    def grow(tokens: tuple[int, ...], logprob: float) -> Iterator[Text]:
        follow, end, stopped = expand(logits, walk, tokens, limit, stops)
        if end is not None:
            yield Text(tokens, stopped, logprob + end)
        for token, more in follow:
            longer = (*tokens, token)
            if len(longer) == limit:
                yield Text(longer, False, logprob + more)
                continue
            if walk is not None:
                walk.advance(token, limit - len(tokens))
            yield from grow(longer, logprob + more)
            if walk is not None:
                walk.rewind(1)

    return list(grow((), 0.0))


def beam_search(logits, fresh: Callable, limit: int, stops: tuple[int, ...], beams: int, penalty: float) -> list[Text]:
    """Every text that a beam search without early stopping finishes, best first; `fresh` makes a walk or None."""
    going: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Text] = []
    while going:
        longer = []
        for logprob, tokens in going:
            walk = fresh()
            for i, token in enumerate(tokens if walk is not None else ()):
                walk.advance(token, limit - i)
            follow, end, stopped = expand(logits, walk, tokens, limit, stops)
            if end is not None:
                finished.append(Text(tokens, stopped, logprob + end))
            longer += [(logprob + more, (*tokens, token)) for token, more in follow]
        best = sorted(longer, key=lambda item: -item[0])[:beams]
        finished += [Text(tokens, False, logprob) for logprob, tokens in best if len(tokens) == limit]
        going = [item for item in best if len(item[1]) < limit]
    return ranked(finished, penalty)


def score(text: Text, penalty: float) -> float:
    """Log-probability / length ** penalty."""
    return text.logprob / max(text.length, 1) ** penalty


def ranked(texts: list[Text], penalty: float) -> list[Text]:
    """Best first."""
    return sorted(texts, key=lambda text: -score(text, penalty))
