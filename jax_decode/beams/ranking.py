"""What a beam is kept for: its probability, or its probability perturbed by noise. A ranking orders and moves nothing."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import HIGHEST, LOWEST, NEVER, finite, log_add, log_sum, scaled

_ROOT = 0xFFFFFFFF
"""Step whose noise belongs to the empty text."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Best:
    """By log-probability under the model; finished texts by log-probability / length ** length_penalty.

    Attributes:
      length_penalty: float32[], None for 0.
    """

    length_penalty: Any

    def of_rows(self, row: jax.Array) -> Best:
        """The ranking of some rows, int32[n]."""
        del row
        return self

    def root(self, rows: int) -> jax.Array:
        """Rank of the empty text in every row, float32[R]."""
        return jnp.zeros(rows, jnp.float32)

    def score(self, rank: jax.Array, length: jax.Array) -> jax.Array:
        """Score of finished texts of `length` tokens, the stop token included."""
        if self.length_penalty is None:
            return rank
        scored = rank / jnp.maximum(length, 1).astype(jnp.float32) ** self.length_penalty
        return jnp.where(rank == NEVER, NEVER, jnp.maximum(scored, LOWEST))

    def bound(self, rank: jax.Array, least: jax.Array, most: jax.Array) -> jax.Array:
        """The best score that a continuation of `least` to `most` tokens can reach: log-probabilities only fall."""
        return rank if self.length_penalty is None else self.score(rank, jnp.where(self.length_penalty > 0, most, least))


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

    def of_rows(self, row: jax.Array) -> Perturbed:
        """See `Best.of_rows`."""
        return Perturbed(self.keys[row], self.inverse)

    def root(self, rows: int) -> jax.Array:
        """See `Best.root`."""
        return gumbel(self.keys, jnp.full(rows, _ROOT, jnp.uint32), jnp.zeros((1, 1), jnp.uint32))[:, 0]

    def log_probs(self, logits: Sequence[jax.Array]) -> list[jax.Array]:
        """Log-probabilities at the temperature, over all parts together.

        Args:
          logits: float32[R, n] each, finite; -inf where not allowed.
        """
        parts = [jnp.where(x == NEVER, NEVER, scaled(x, self.inverse)) for x in logits]
        total = finite(functools.reduce(log_add, [log_sum(x) for x in parts]))[:, None]
        return [jnp.where(x == NEVER, NEVER, jnp.clip(x - total, LOWEST, 0.0)) for x in parts]

    def ranks(
        self, rank: jax.Array, log_prob: Sequence[jax.Array], step: jax.Array, index: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Ranks of all continuations: noise on each, given that the largest result is the beginning's rank.

        Args:
          rank: float32[R], of the beginnings.
          log_prob: float32[R, n] each, total log-probabilities, -inf where not allowed.
          step: int32[].
          index: int32[1 or R, n] each, what the noise of a continuation depends on beside its row and the step: no two are alike.
        """
        steps = jnp.full(rank.shape, step, jnp.uint32)
        noise = [gumbel(self.keys, steps, i.astype(jnp.uint32)) for i in index]
        noisy = [jnp.where(x == NEVER, NEVER, jnp.clip(x + g, LOWEST, HIGHEST)) for x, g in zip(log_prob, noise)]
        most = finite(functools.reduce(jnp.maximum, [x.max(1) for x in noisy]))[:, None]
        top = finite(rank)[:, None]

        def coupled(own: jax.Array) -> jax.Array:
            v = top - own + _log1mexp(own - most)
            result = top - jnp.maximum(v, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(v)))
            result = jnp.minimum(jnp.maximum(result, LOWEST), top)
            return jnp.where((own == NEVER) | (rank == NEVER)[:, None], NEVER, result)

        return [coupled(x) for x in noisy]

    def score(self, rank: jax.Array, length: jax.Array) -> jax.Array:
        """See `Best.score`."""
        del length
        return rank

    def bound(self, rank: jax.Array, least: jax.Array, most: jax.Array) -> jax.Array:
        """See `Best.bound`: no continuation ranks above its beginning."""
        del least, most
        return rank


Ranking = Best | Perturbed


def _log1mexp(x: jax.Array) -> jax.Array:
    """log(1 - exp(x)) of x <= 0; -inf at 0."""
    near = jnp.log(-jnp.expm1(x))
    return jnp.where(x > -0.693, near, jnp.log1p(-jnp.exp(x)))
