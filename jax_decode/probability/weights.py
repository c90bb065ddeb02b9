"""Arithmetic of log-weights on the host, in float64: sums, effective sample sizes, standard errors, self-normalised draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding.result import Generation
from jax_decode.errors import DecodeError, named_arguments, no_numbers
from jax_decode.step.state import Status

Floats = NDArray[np.float64]


def log_sum_exp(x: Any) -> Floats:
    """Log of the sum of exponentials over the last axis, -inf for none."""
    x = np.asarray(x, np.float64)
    best = x.max(-1, keepdims=True, initial=-np.inf)
    base = np.where(np.isfinite(best), best, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - base).sum(-1)) + base[..., 0]


def by_group(x: Any, group: Any, count: int) -> Floats:
    """`log_sum_exp` of the entries of every group, float64[count]."""
    x, group = np.asarray(x, np.float64), np.asarray(group)
    return np.array([log_sum_exp(x[group == g]) for g in range(count)], np.float64)


@named_arguments
def log_weights(generation: Generation) -> Floats:
    """Importance log-weight of every row that `generate` sampled, float64[B]: raw minus constrained log-probability.

    The rows must come from `Categorical()` at temperature 1. Then the mean of the exponentials, over the rows of one prompt and
    constraint, estimates the constraint's mass without bias (with `always_stop`, see `jax_decode.probability`), and the rows
    with these weights follow the model's own distribution over the constraint's texts, not the locally renormalised one.
    Rows that ended anything but accepted have -inf.

    Args:
      generation: with raw log-probabilities.

    Raises:
      DecodeError: the model's logits were NaN in one of the rows.
    """
    if not isinstance(generation, Generation):
        raise DecodeError(f"a {type(generation).__name__} is no result of generate", fix="Pass what generate returned.")
    for row, status in enumerate(generation.status):
        if status == Status.NOT_A_NUMBER:
            raise no_numbers(f"in row {row}")
    accepted = np.array([s == Status.ACCEPTED for s in generation.status], bool)
    return np.where(accepted, generation.raw_total_logprob - generation.total_logprob, -np.inf)


def normalized(log_weights: Any) -> Floats:
    """Weights that sum to 1 over the last axis; all 0 where every log-weight is -inf."""
    log_weights = np.asarray(log_weights, np.float64)
    total = log_sum_exp(log_weights)[..., None]
    return np.where(np.isfinite(total), np.exp(log_weights - np.where(np.isfinite(total), total, 0.0)), 0.0)


def effective_sample_size(log_weights: Any) -> Floats:
    """(sum w)² / sum w² over the last axis: how many equally weighted samples these are worth; 0 for no weight at all."""
    squares = (normalized(log_weights) ** 2).sum(-1)
    return np.where(squares > 0, 1 / np.where(squares > 0, squares, 1.0), 0.0)


def log_mean_exp(log_weights: Any) -> tuple[Floats, Floats]:
    """Log of the mean weight over the last axis, and the standard error of that log.

    The error is the standard error of the mean divided by the mean (delta method); infinite for fewer than two weights, NaN where
    all weights are 0.
    """
    log_weights = np.asarray(log_weights, np.float64)
    count = log_weights.shape[-1]
    mean = log_sum_exp(log_weights) - np.log(count)
    if count < 2:
        return mean, np.full(mean.shape, np.inf)
    relative = normalized(log_weights) * count
    error = relative.std(-1, ddof=1) / np.sqrt(count)
    return mean, np.where(np.isfinite(mean), error, np.nan)


def draw_rows(log_weights: Any, seed: Any, size: int) -> NDArray[np.intp]:
    """Self-normalised resampling: indices of `size` entries, drawn independently by weight, int[..., size].

    Args:
      log_weights: [..., n].
      seed: anything `np.random.default_rng` takes.
      size: how many.

    Raises:
      DecodeError: no entry has any weight.
    """
    weights = np.atleast_2d(normalized(log_weights))
    if not (weights.sum(-1) > 0).all():
        raise DecodeError("no row has any weight, so none can be drawn", fix="Sample more rows, or check the constraint.")
    rng = np.random.default_rng(seed)
    weights = weights / weights.sum(-1, keepdims=True)
    drawn = np.stack([rng.choice(w.size, size, p=w) for w in weights.reshape(-1, weights.shape[-1])])
    return drawn.reshape(*np.shape(log_weights)[:-1], size)
