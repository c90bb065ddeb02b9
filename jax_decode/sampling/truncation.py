"""Thresholds of top-k, top-p and min-p: the least scaled logit that may still be drawn, exact, per row."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_decode.kernels.planes import LOWEST
from jax_decode.sampling.choices import Allowed, best_logit, best_of_columns, largest
from jax_decode.sampling.samplers import MinP, Sampler, TopK, TopP
from jax_decode.sampling.top_p import mass_threshold


def threshold_of(sampler: Sampler, allowed: Allowed, inverse: jax.Array | None) -> jax.Array | None:
    """The least scaled logit that `sampler` may draw, float32[B]; None when it draws among all allowed tokens.

    Tokens of equal logits are kept or dropped together.
    """
    match sampler:
        case TopK(k=k):
            return _kth_largest(allowed, inverse, k)
        case TopP(p=p):
            return mass_threshold(allowed, inverse, jnp.asarray(p, jnp.float32))
        case MinP(p=p):
            best = best_logit(allowed, inverse)
            return jnp.maximum(best + jnp.log(jnp.asarray(p, jnp.float32)), LOWEST)
    return None


def _kth_largest(allowed: Allowed, inverse: jax.Array | None, k: int) -> jax.Array:
    """The k-th largest scaled logit, float32[B]; the lowest number where fewer than k tokens are allowed.

    The k largest tokens lie in the k columns of largest maximum, so only 32 k tokens are sorted.
    """
    y = best_of_columns(allowed, inverse, k)
    if y.shape[1] < k:
        return jnp.full(y.shape[:1], LOWEST, jnp.float32)
    return jnp.maximum(largest(y, k).min(1), LOWEST)
