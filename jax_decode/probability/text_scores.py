"""`score_texts`: log-probabilities of texts, summed over all of their tokenizations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jax_decode.decoding.requests import Asked, read_request
from jax_decode.errors import DecodeError, checked_flag, named_arguments
from jax_decode.kernels.placement import on_automatic_axes
from jax_decode.probability.mass import exact_or_samples
from jax_decode.probability.scoring import scored
from jax_decode.probability.sequences import MAX_PREFIXES, Sequences, read_constrained
from jax_decode.probability.tokenizations import tokenizations
from jax_decode.probability.weights import by_group, log_mean_exp
from jax_decode.step.state import MAX_DEPTH
from jax_decode.tables.tables import ConstraintTables, to_device

_ROWS = 64
"""Tokenizations that are scored together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextScores:
    """Log-probabilities of n texts after one prompt, each summed over its tokenizations; nats.

    Attributes:
      texts: the texts.
      raw_logprobs: float64[n], under the model.
      logprobs: float64[n], that sampling token by token among the allowed ones writes the text; -inf for one that is not
        accepted. Without tables the raw ones.
      standard_errors: float64[n], of `raw_logprobs`; 0 where exact.
      tokenizations: int64[n], how many were summed, or drawn.
      exact: whether they are all, but for those of `ignored`.
      ignored: float64[n], probability of the tokenizations left out by `ignore_below` is at most this.
    """

    texts: list[str]
    raw_logprobs: NDArray[np.float64]
    logprobs: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    tokenizations: NDArray[np.int64]
    exact: bool
    ignored: NDArray[np.float64]


@named_arguments
@on_automatic_axes
def score_texts(
    decoder: Any,
    prompt: Any,
    texts: Sequence[str],
    tokenizer: Any,
    tables: ConstraintTables | None = None,
    *,
    key: jax.Array | None = None,
    samples: int = 256,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    always_stop: bool = False,
    max_prefixes: int = MAX_PREFIXES,
    ignore_below: float = 0.0,
) -> TextScores:
    """Log-probabilities of texts that continue a prompt, over all of their tokenizations.

    Args:
      decoder, tables, constraint, stop_ids, bos_id, max_depth, always_stop: as in `score`.
      prompt: token ids of one prompt.
      texts: the texts.
      tokenizer: as in `tokenizations`.
      key, samples, max_prefixes, ignore_below: as in `log_mass`: where the texts have too many tokenizations, some are drawn,
        with importance weights.

    Returns:
      The log-probabilities.

    Raises:
      DecodeError: an argument is wrong; no tokens write a text; or they have too many tokenizations and there is no key.
    """
    constraints = tokenizations(texts, tokenizer)
    if not constraints:
        raise DecodeError("there is no text", fix="Give a list of strings.")
    count, longest = len(constraints), max(max(len(text.encode()) for text in texts), 1)
    each = Asked(longest, list(range(count)), stop_ids, bos_id, max_depth)
    lattices = read_constrained(decoder, [prompt] * count, to_device(constraints), each)
    asked = each._replace(max_new_tokens=longest + 1, constraint=constraint)
    request = read_request(decoder, [prompt], tables, asked, least_steps=16, allow_truncation=True)
    always_stop = checked_flag(always_stop, "always_stop")
    found = exact_or_samples(
        decoder, lattices, key=key, samples=samples, always_stop=False, max_prefixes=max_prefixes, ignore_below=ignore_below
    )
    rows, owner, proposed = _rows(found, count)
    raw, local = (x - proposed for x in _totals(decoder, request, rows, always_stop))
    return _summed(list(texts), found, owner, raw, local)


def _summed(
    texts: list[str], found: Any, owner: NDArray[np.intp], raw: NDArray[np.float64], local: NDArray[np.float64]
) -> TextScores:
    """The texts' scores, from those of tokenizations [n] of texts `owner`; `found`: from `exact_or_samples`."""
    count, exact = len(texts), isinstance(found, Sequences)
    tokenizations = np.bincount(owner, minlength=count)
    drawn = np.zeros(count) if exact else np.log(tokenizations)
    errors = [0.0 if exact else float(log_mean_exp(raw[owner == i])[1]) for i in range(count)]
    return TextScores(
        texts=texts,
        raw_logprobs=by_group(raw, owner, count) - drawn,
        logprobs=by_group(local, owner, count) - drawn,
        standard_errors=np.array(errors, np.float64),
        tokenizations=tokenizations,
        exact=exact,
        ignored=found.ignored if exact else np.zeros(count),
    )


def _rows(found: Any, count: int) -> tuple[list[NDArray[np.int32]], NDArray[np.intp], NDArray[np.float64]]:
    """Token sequences, the text each writes, and the log-probability with which it was drawn: 0 for all of them."""
    if isinstance(found, Sequences):
        return found.tokens, found.prompt.astype(np.intp), np.zeros(len(found))
    rows = [row for part in found for row in part.generation.tokens]
    owner = [np.repeat(np.arange(count), part.log_weights.shape[1]) for part in found]
    proposed = [part.generation.raw_total_logprob - part.log_weights.reshape(-1) for part in found]
    return rows, np.concatenate(owner), np.concatenate(proposed)


def _totals(
    decoder: Any, request: Any, rows: list[NDArray[np.int32]], always_stop: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Raw and constrained log-probability of every row."""
    parts = [
        scored(decoder, request, rows[i : i + _ROWS], limited=False, always_stop=always_stop) for i in range(0, len(rows), _ROWS)
    ]
    return (
        np.concatenate([part.raw_total_logprob for part in parts]),
        np.concatenate([part.total_logprob for part in parts]),
    )
