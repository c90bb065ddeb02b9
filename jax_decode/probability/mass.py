"""`log_mass`: the probability of a constraint after a prompt, exact where its sequences can be enumerated, else estimated."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding import inputs
from jax_decode.decoding.requests import Asked, Request, read_positive
from jax_decode.errors import DecodeError, is_whole, named_arguments
from jax_decode.kernels.placement import on_automatic_axes
from jax_decode.probability.particles import WeightedGeneration, weighted
from jax_decode.probability.proposals import Masked
from jax_decode.probability.sequences import MAX_PREFIXES, Sequences, enumerated, read_constrained
from jax_decode.probability.weights import effective_sample_size, log_mean_exp
from jax_decode.step.state import MAX_DEPTH
from jax_decode.tables.tables import ConstraintTables

BATCH = 64
"""Samples of one prompt that are drawn together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mass:
    """Probability of the constraint of each prompt.

    Attributes:
      log_mass: float64[P], nats.
      standard_error: float64[P], of `log_mass`, so relative to the mass; 0 where exact. It is itself an estimate: where the
        effective sample size is small, beginnings that matter may never have been drawn, and it is too small.
      effective_sample_size: float64[P], of the importance weights; infinite where exact.
      exact: whether all sequences were enumerated, but for those of `ignored`.
      ignored: float64[P], probability of the sequences left out by `ignore_below` is at most this.
    """

    log_mass: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    effective_sample_size: NDArray[np.float64]
    exact: bool
    ignored: NDArray[np.float64]

    def __float__(self) -> float:
        if len(self.log_mass) != 1:
            raise TypeError(f"there are {len(self.log_mass)} prompts; take log_mass")
        return float(self.log_mass[0])

    def __repr__(self) -> str:
        if self.exact:
            rows = [f"{m:.4f}" for m in self.log_mass[:8]]
        else:
            each = zip(self.log_mass[:8], self.standard_error, self.effective_sample_size)
            rows = [f"{m:.4f} ± {e:.4f} (effective samples: {n:.1f})" for m, e, n in each]
        more = ", …" if len(self.log_mass) > 8 else ""
        left_out = f" but for at most {self.ignored.max():.1e}" if self.ignored.any() else ""
        return f"Mass(log_mass: {', '.join(rows)}{more}; {f'exact{left_out}' if self.exact else 'importance sampling'})"


@named_arguments
@on_automatic_axes
def log_mass(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables,
    *,
    max_new_tokens: Any,
    key: jax.Array | None = None,
    samples: int = 1024,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    always_stop: bool = False,
    max_prefixes: int = MAX_PREFIXES,
    ignore_below: float = 0.0,
) -> Mass:
    """log P(constraint | prompt) under the model alone.

    Args:
      decoder, prompts, tables, max_new_tokens, constraint, stop_ids, bos_id, max_depth: as in `generate`; every prompt needs a
        constraint. The mass is that of the sequences within the limits.
      key: for importance sampling, if there are too many sequences; None: then that is an error.
      samples: number of importance samples per prompt, rounded up to a multiple of 64.
      always_stop: whether the stop token counts even where nothing else is allowed; see `jax_decode.probability`.
      max_prefixes: sequences are enumerated if at most this many prefixes of one length can go on, of all prompts together;
        0 to sample in any case.
      ignore_below: as in `enumerate_sequences`.

    Returns:
      The mass, with a standard error where it is an estimate. Importance samples are drawn token by token among the allowed ones;
      the weight of one is the product of the allowed mass at every step.

    Raises:
      DecodeError: an argument is wrong, or there are too many sequences and no key.

    Source: Cognetta et al. 2025, §5.1 (mass of a pattern).
    """
    request = read_constrained(decoder, prompts, tables, Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth))
    found = exact_or_samples(
        decoder, request, key=key, samples=samples, always_stop=always_stop, max_prefixes=max_prefixes, ignore_below=ignore_below
    )
    if isinstance(found, Sequences):
        return exact_mass(found)
    return estimate(np.concatenate([part.log_weights for part in found], axis=1))


def exact_mass(found: Sequences) -> Mass:
    """The mass of all sequences."""
    zeros = np.zeros(found.num_prompts)
    infinite = zeros + np.inf
    return Mass(log_mass=found.log_mass, standard_error=zeros, effective_sample_size=infinite, exact=True, ignored=found.ignored)


def estimate(log_weights: NDArray[np.float64]) -> Mass:
    """The mass of importance weights float64[P, n]."""
    mean, error = log_mean_exp(log_weights)
    size, zeros = effective_sample_size(log_weights), np.zeros(len(log_weights))
    return Mass(log_mass=mean, standard_error=error, effective_sample_size=size, exact=False, ignored=zeros)


def exact_or_samples(
    decoder: Any, request: Request, *, key: Any, samples: int, always_stop: bool, max_prefixes: int, ignore_below: float
) -> Sequences | list[WeightedGeneration]:
    """All sequences, or importance samples if there are too many.

    Raises:
      DecodeError: an argument is wrong, or there are too many sequences and no key.
    """
    samples = read_positive(samples, "samples")
    size = min(samples, BATCH)
    if key is not None:
        key = inputs.checked_key(key, request.num_prompts, size)
    found = (
        enumerated(decoder, request, always_stop=always_stop, max_prefixes=max_prefixes, ignore_below=ignore_below)
        if not is_whole(max_prefixes, 0, 0)
        else None
    )
    if found is not None:
        return found
    if key is None:
        raise DecodeError(
            f"the constraint has too many token sequences to enumerate (max_prefixes={max_prefixes:,})",
            fix="Pass key=jax.random.key(seed) for importance sampling, give ignore_below=1e-9, or raise max_prefixes.",
        )
    keys = _split(key, request.num_prompts, size, -(-samples // size))
    return [weighted(decoder, request, one, size, 0.0, Masked(), always_stop=always_stop) for one in keys]


def _split(key: Any, prompts: int, size: int, batches: int) -> Iterator[jax.Array]:
    """Keys of every row of every batch."""
    rows = inputs.read_keys(key, prompts, size)
    for batch in jax.device_put(np.arange(batches, dtype=np.uint32)):
        yield jax.vmap(jax.random.fold_in, (0, None))(rows, batch)
