"""What a beam is kept for: its probability, or its probability perturbed by noise. A ranking orders and moves nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.noise import gumbel
from jax_decode.planes import HIGHEST, LOWEST, NEVER, finite, log_sum, scaled

_ROOT = 0xFFFFFFFF
"""Step whose noise belongs to the empty text."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Best:
    """By log-probability under the model; finished texts by log-probability / length ** length_penalty.

    Attributes:
      length_penalty: float32[].
    """

    length_penalty: jax.Array

    def root(self, rows: int) -> jax.Array:
        """Rank of the empty text in every row, float32[R]."""
        return jnp.zeros(rows, jnp.float32)

    def log_probs(self, logits: jax.Array, ends: jax.Array, allowed: jax.Array) -> jax.Array:
        """Log-probability of every continuation over all of the model's logits.

        Args:
          logits: float32[R, V'], finite.
          ends: float32[R], log-mass of the stop tokens that are allowed, -inf for none.
          allowed: bool[R, V'], continuations that are text.

        Returns:
          float32[R, V' + 1], the end last; -inf where not allowed.
        """
        every = jnp.concatenate([jnp.where(allowed, logits, NEVER), ends[:, None]], axis=1)
        return _normalised(every, log_sum(logits))

    def ranks(self, rank: jax.Array, log_prob: jax.Array, step: jax.Array) -> jax.Array:
        """Ranks of continuations, float32[R, n], from those of their beginnings and their total log-probabilities."""
        del rank, step
        return log_prob

    def score(self, rank: jax.Array, length: jax.Array) -> jax.Array:
        """Score of finished texts of `length` tokens, the stop token included."""
        scored = rank / jnp.maximum(length, 1).astype(jnp.float32) ** self.length_penalty
        return jnp.where(rank == NEVER, NEVER, jnp.maximum(scored, LOWEST))

    def bound(self, rank: jax.Array, least: jax.Array, most: jax.Array) -> jax.Array:
        """The best score that a continuation of `least` to `most` tokens can reach: log-probabilities only fall."""
        return self.score(rank, jnp.where(self.length_penalty > 0, most, least))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Perturbed:
    """By log-probability plus Gumbel noise, coupled so that a text's rank is the best of its continuations'.

    The first k are then a sample of k texts without replacement.

    Source: Kool, van Hoof, Welling 2019, Stochastic Beams and Where to Find Them, §4 and appendix B.3.

    Attributes:
      keys: uint32[R, 2], words of each row's key.
      inverse: float32[], inverse temperature, None for 1.
    """

    keys: jax.Array
    inverse: Any

    def root(self, rows: int) -> jax.Array:
        """See `Best.root`."""
        return gumbel(self.keys, jnp.full(rows, _ROOT, jnp.uint32), jnp.zeros((1, 1), jnp.uint32))[:, 0]

    def log_probs(self, logits: jax.Array, ends: jax.Array, allowed: jax.Array) -> jax.Array:
        """Log-probability of every continuation among the allowed ones, at the temperature; see `Best.log_probs`."""
        every = jnp.concatenate([jnp.where(allowed, logits, NEVER), ends[:, None]], axis=1)
        every = jnp.where(every == NEVER, NEVER, scaled(every, self.inverse))
        return _normalised(every, log_sum(every))

    def ranks(self, rank: jax.Array, log_prob: jax.Array, step: jax.Array) -> jax.Array:
        """See `Best.ranks`: noise on every continuation, given that the largest result is the beginning's rank."""
        index = jnp.arange(log_prob.shape[1], dtype=jnp.uint32)[None]
        noise = gumbel(self.keys, jnp.full(rank.shape, step, jnp.uint32), index)
        noisy = jnp.where(log_prob == NEVER, NEVER, jnp.clip(log_prob + noise, LOWEST, HIGHEST))
        top = finite(rank)[:, None]
        gap = noisy - finite(noisy.max(1))[:, None]
        v = top - noisy + _log1mexp(gap)
        coupled = top - jnp.maximum(v, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(v)))
        coupled = jnp.minimum(jnp.maximum(coupled, LOWEST), top)
        return jnp.where((log_prob == NEVER) | (rank == NEVER)[:, None], NEVER, coupled)

    def score(self, rank: jax.Array, length: jax.Array) -> jax.Array:
        """See `Best.score`."""
        del length
        return rank

    def bound(self, rank: jax.Array, least: jax.Array, most: jax.Array) -> jax.Array:
        """See `Best.bound`: no continuation ranks above its beginning."""
        del least, most
        return rank


Ranking = Best | Perturbed


def _normalised(logits: jax.Array, total: jax.Array) -> jax.Array:
    """Log-probabilities, at most 0 and finite where the logit is not -inf."""
    shifted = jnp.clip(logits - finite(total)[:, None], LOWEST, 0.0)
    return jnp.where(logits == NEVER, NEVER, shifted)


def _log1mexp(x: jax.Array) -> jax.Array:
    """log(1 - exp(x)) of x <= 0; -inf at 0."""
    near = jnp.log(-jnp.expm1(x))
    return jnp.where(x > -0.693, near, jnp.log1p(-jnp.exp(x)))
