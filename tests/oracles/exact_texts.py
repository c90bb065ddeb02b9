"""The exact distribution of constrained sampling over all texts of a small constraint, by walking every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fsa_compile.artifact import CompiledConstraint
from jax_decode import Categorical, MinP, TopK, TopP


def drawn(sampler: Any, logits: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Probabilities with which a sampler draws among the allowed tokens; from the definitions, not from the package."""
    y = np.where(allowed, logits[: len(allowed)] / float(sampler.temperature or 1.0), -np.inf)
    p = np.exp(y - y.max())
    p /= p.sum()
    match sampler:
        case TopK(k=k):
            p = np.where(p >= np.sort(p)[-min(k, allowed.sum())], p, 0)
        case TopP(p=most):
            order = np.sort(p)[::-1]
            p = np.where(p >= order[np.argmax(np.cumsum(order) >= most - 1e-9)], p, 0)
        case MinP(p=least):
            p = np.where(p >= least * p.max(), p, 0)
        case _:
            assert isinstance(sampler, Categorical)
    return p / p.sum()


@jax.jit
def last_logits(decoder: Any, block: jax.Array, length: jax.Array) -> jax.Array:
    """Logits float32[B, V] behind `length` int32[B] tokens of each row of int32[B, L]."""
    return decoder.apply(block, decoder.init_cache(len(block), 64), length, last_only=True)[0][:, -1]


def distribution(
    decoder: Any, prompt: Sequence[int], constraint: CompiledConstraint, limit: int, sampler: Any
) -> dict[tuple[int, ...], float]:
    """Probability of every token sequence, stop token included, that sampling within `limit` tokens can end with."""
    out: dict[tuple[int, ...], float] = {}
    level: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    for step in range(limit):
        if not level:
            break
        block = np.zeros((1 << (len(level) - 1).bit_length(), len(prompt) + limit), np.int32)  # few shapes: few programs
        block[: len(level), : len(prompt) + step] = [[*prompt, *ids] for ids, _ in level]
        logits = last_logits(decoder, block, np.full(len(block), len(prompt) + step, np.int32))
        following: list[tuple[tuple[int, ...], float]] = []
        for (ids, mass), x in zip(level, np.asarray(logits[: len(level)], np.float64)):
            walk = constraint.walk()
            for i, token in enumerate(ids):
                walk.advance(token, limit - i)
            p = drawn(sampler, x, walk.allowed(limit - step))
            for token in map(int, np.flatnonzero(p)):
                text, share = (*ids, token), mass * float(p[token])
                if token in constraint.stop_ids or step + 1 == limit:
                    out[text] = share
                else:
                    following.append((text, share))
        level = following
    return out


def distance(exact: dict[tuple[int, ...], float], samples: Sequence[tuple[int, ...]]) -> tuple[float, float]:
    """Total-variation distance between a distribution and samples, and a bound that right samples keep but once in a million.

    The bound: the mean of the distance is at most half the sum of the standard deviations of the shares, and one sample
    changes it by at most 1/n (McDiarmid).
    """
    n = len(samples)
    counts: dict[tuple[int, ...], int] = {}
    for ids in samples:
        counts[ids] = counts.get(ids, 0) + 1
    found = 0.5 * sum(abs(exact.get(ids, 0.0) - counts.get(ids, 0) / n) for ids in {*exact, *counts})
    p = np.array(list(exact.values()))
    return found, float(0.5 * np.sqrt(p * (1 - p) / n).sum() + np.sqrt(np.log(1e6) / (2 * n)))
