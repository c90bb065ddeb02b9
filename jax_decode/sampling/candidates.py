"""The tokens that a state lists one by one, beside the columns: the best of them, and the mass of all."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import NEVER, log_add, log_sum, scaled
from jax_decode.kernels.target import target
from jax_decode.sampling.choices import Allowed
from jax_decode.sampling.summary import NO_ITEM, Noise, Summary

_MANY = 1 << 11
"""Candidates of a batch from which three reductions beside vectorised noise take less time on a CPU than one."""

Candidate = tuple[jax.Array, jax.Array, jax.Array]
"""Of each row, [B]: score float32, -inf for none, token int32, and clean logit float32."""


class Drawn(NamedTuple):
    """The threshold of every row, float32[B] or None; what `summary.summarize` says with it, `allowed` with the candidates; and
    the best candidate, None without a list."""

    threshold: jax.Array | None
    summary: Summary
    candidate: Candidate | None


def with_candidates(
    allowed: Allowed, inverse: jax.Array | None, noise: Noise, threshold: jax.Array | None, summary: Summary
) -> Drawn:
    """`summary`, of the columns alone, beside the candidates."""
    if allowed.listed is None:
        return Drawn(threshold, summary, None)
    candidate = best_candidate(allowed.listed, inverse, threshold, noise, allowed.num_words + 32)
    return Drawn(threshold, summary._replace(allowed=log_add(summary.allowed, mass_of(allowed.listed))), candidate)


def best_candidate(
    listed: tuple[jax.Array, jax.Array, jax.Array],
    inverse: jax.Array | None,
    threshold: jax.Array | None,
    noise: Noise | None,
    base: Any,
) -> Candidate:
    """Each row's best candidate; among equals the lowest id.

    Noise belongs to a token and not to its place in the list, which depends on how long lists may be; `base`: index of token 0's.
    """
    token, ok, x = listed
    y = scaled(x, inverse)
    if threshold is not None:
        ok = ok & (y >= threshold[:, None])
    if noise is not None:
        y = y + gumbel(*noise, (base + token).astype(jnp.uint32))
    found = (jnp.where(ok, y, NEVER), jnp.where(ok, token, NO_ITEM), jnp.where(ok, x, NEVER))
    return first_of_best(*found)


def mass_of(listed: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
    """Log-sum-exp of the candidates' logits, [B], -inf for none; on a GPU by one kernel instead of two."""
    x = jnp.where(listed[1], listed[2], NEVER)
    return jax.lax.reduce(x, np.float32(NEVER), log_add, (1,)) if target() == "gpu" else log_sum(x)


def first_of_best(score: jax.Array, item: jax.Array, value: jax.Array) -> Candidate:
    """Of every row, [B, n] each, the best score, the least of its items and the value there."""
    if target() == "cpu" and score.size >= _MANY:  # what one reduction of three reads is worked out in its loop, not vectorised
        best = score.max(1)
        first = jnp.where(score == best[:, None], item, NO_ITEM).min(1)
        return best, first, jnp.where((score == best[:, None]) & (item == first[:, None]), value, NEVER).max(1)
    none = np.float32(NEVER), np.int32(NO_ITEM), np.float32(NEVER)
    best, first, there = jax.lax.reduce((score, item, value), none, _first_best, (1,))
    return best, first, there


def _first_best(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Of two (score, item, more): the larger score, the smaller item among equals."""
    takes = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return tuple(jnp.where(takes, x, y) for x, y in zip(a, b))
