"""Systematic resampling of groups of particles, on the device."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jax_decode.kernels.noise import threefry
from jax_decode.kernels.planes import NEVER, finite, log_sum

_INDEX = 2**32 - 1
"""Counter of the uniform numbers; the draws of tokens use small ones."""


def weights_of(log_weights: jax.Array) -> jax.Array:
    """Weights float32[G, N] that sum to 1 in every group; all 0 where all log-weights are -inf."""
    return jnp.exp(log_weights - finite(log_sum(log_weights))[:, None])


def effective_size(log_weights: jax.Array) -> jax.Array:
    """(sum w)² / sum w² of log-weights float32[G, N], float32[G]; 0 for no weight at all."""
    squares = jnp.square(weights_of(log_weights)).sum(1)
    return jnp.where(squares > 0, 1 / jnp.where(squares > 0, squares, 1.0), 0.0)


def systematic(log_weights: jax.Array, key: jax.Array, step: jax.Array) -> jax.Array:
    """The parent of every particle: particle i has floor or ceil of N times its weight children, that many in the mean.

    Source: Kitagawa 1996, Monte Carlo Filter and Smoother for Non-Gaussian Nonlinear State Space Models, appendix.

    Args:
      log_weights: float32[G, N], some of them above -inf in every group.
      key: uint32[G, 2]; step: uint32[G]: one uniform number per group depends on them.

    Returns:
      int32[G, N], indices inside the group, ascending. A particle without weight has no children.
    """
    count = log_weights.shape[1]
    bits = threefry(key, step, jnp.full((1, 1), _INDEX, jnp.uint32)).astype(jnp.float32)
    offset = jnp.minimum(bits * jnp.float32(2.0**-32), jnp.float32(1 - 2.0**-24))
    ends = jnp.cumsum(weights_of(log_weights), axis=1)
    points = (jnp.arange(count, dtype=jnp.float32)[None] + offset) / count * ends[:, -1:]
    search = functools.partial(jnp.searchsorted, side="right", method="scan_unrolled")
    parent = jax.vmap(search)(ends, points).astype(jnp.int32)
    last = (count - 1 - jnp.argmax(log_weights[:, ::-1] > NEVER, axis=1)).astype(jnp.int32)  # rounding may point past the last
    return jnp.minimum(parent, last[:, None])
