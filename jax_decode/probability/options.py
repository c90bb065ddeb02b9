"""`option_probabilities`: how probable each text of a choice is, over all of its tokenizations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fsa_compile.errors import named_fields
from jax_decode.decoding.inputs import is_listed
from jax_decode.decoding.requests import Asked
from jax_decode.decoding.vocabularies import spells
from jax_decode.errors import DecodeError, named_arguments, shown
from jax_decode.kernels.placement import on_automatic_axes
from jax_decode.probability.mass import Mass, estimate, exact_mass, exact_or_samples
from jax_decode.probability.sequences import MAX_PREFIXES, Sequences, read_constrained
from jax_decode.probability.weights import by_group, log_mean_exp
from jax_decode.step.state import MAX_DEPTH
from jax_decode.tables.tables import ConstraintTables


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Probabilities of texts, n per prompt; with `rest` they sum to the mass.

    Attributes:
      texts: n of them.
      log_probabilities: float64[P, n], of each under the model, nats; -inf for one that the constraint does not allow, or that
        was not drawn.
      standard_errors: float64[P, n], of the log-probabilities, 0 where exact.
      rest: float64[P], log-probability of all other texts of the constraint.
      mass: of the constraint.
    """

    texts: list[str]
    log_probabilities: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    rest: NDArray[np.float64]
    mass: Mass

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64[P, n], of each text under the model."""
        return np.exp(self.log_probabilities)

    @property
    def conditional(self) -> NDArray[np.float64]:
        """float64[P, n], of each text given that the constraint holds."""
        return np.exp(self.log_probabilities - self.mass.log_mass[:, None])

    def __repr__(self) -> str:
        if len(self.log_probabilities) != 1:
            return f"Options of {len(self.log_probabilities)} prompts, {len(self.texts)} texts; {self.mass!r}"
        order = np.argsort(-self.log_probabilities[0], kind="stable")[:12]
        rows = [f"  {self.conditional[0, i]:7.2%}  {self.texts[i]!r}" for i in order]
        return "\n".join([f"Options given the constraint; {self.mass!r}", *rows])


@named_arguments
@on_automatic_axes
def option_probabilities(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables,
    tokenizer: Any,
    *,
    max_new_tokens: Any,
    options: Sequence[str] | None = None,
    key: jax.Array | None = None,
    samples: int = 1024,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    always_stop: bool = False,
    max_prefixes: int = MAX_PREFIXES,
    ignore_below: float = 0.0,
) -> Options:
    """Probability of each text of a constraint with few texts, summed over the tokenizations that the constraint allows.

    Args:
      decoder, prompts, tables, max_new_tokens, key, samples, constraint, stop_ids, bos_id, max_depth, always_stop, max_prefixes,
        ignore_below: as in `log_mass`.
      tokenizer: anything with `decode(ids) -> str`; as in `Generation.text`.
      options: the texts of interest; None for every text found, the most probable first.

    Returns:
      The probabilities, exact or estimated from the same importance samples as the mass.

    Raises:
      DecodeError: an argument is wrong, or there are too many sequences and no key.
    """
    request = read_constrained(decoder, prompts, tables, Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth))
    wanted = None if options is None else _checked(options)
    if not spells(tokenizer):
        raise DecodeError(f"the tokenizer ({type(tokenizer).__name__}) has no 'decode'", fix="Pass the model's tokenizer.")
    found = exact_or_samples(
        decoder, request, key=key, samples=samples, always_stop=always_stop, max_prefixes=max_prefixes, ignore_below=ignore_below
    )
    count = request.num_prompts
    if isinstance(found, Sequences):
        written = found.text(tokenizer)
        texts = _ordered(written, found.raw_logprobs) if wanted is None else wanted
        place = _places(written, texts)
        spots = found.prompt * (len(texts) + 1) + place
        logs = by_group(found.raw_logprobs, spots, count * (len(texts) + 1)).reshape(count, -1)
        mass = exact_mass(found)
        errors = np.zeros((count, len(texts)))
    else:
        log_weights = np.concatenate([part.log_weights for part in found], axis=1)
        rows = [np.array(_texts(part.generation, tokenizer), object).reshape(count, -1) for part in found]
        drawn = np.concatenate(rows, axis=1)
        texts = _ordered(drawn.reshape(-1).tolist(), log_weights.reshape(-1)) if wanted is None else wanted
        place = np.array(_places(drawn.reshape(-1).tolist(), texts)).reshape(drawn.shape)
        each = [log_mean_exp(np.where(place == i, log_weights, -np.inf)) for i in range(len(texts) + 1)]
        logs, every = np.stack([mean for mean, _ in each], 1), np.stack([error for _, error in each], 1)
        errors, mass = every[:, :-1], estimate(log_weights)
    return Options(texts=texts, log_probabilities=logs[:, :-1], standard_errors=errors, rest=logs[:, -1], mass=mass)


def _texts(generation: Any, tokenizer: Any) -> list[str]:
    texts = generation.text(tokenizer)
    return [texts] if isinstance(texts, str) else texts


def _checked(options: Sequence[str]) -> list[str]:
    fix = "Give a list of different texts, or None for all that the constraint allows."
    if not is_listed(options) or not all(isinstance(text, str) for text in options):
        raise DecodeError(f"the options are {shown(options)}, not a list of texts", fix=fix)
    if len(set(options)) != len(options):
        raise DecodeError("an option occurs twice", where=repr(max(options, key=list(options).count)), fix=fix)
    return list(options)


def _ordered(written: list[str], logs: NDArray[np.float64]) -> list[str]:
    """The different texts, the most probable first."""
    texts = sorted(set(written))
    index = {text: i for i, text in enumerate(texts)}
    total = by_group(logs, [index[text] for text in written], len(texts))
    return [texts[i] for i in np.argsort(-total, kind="stable")]


def _places(written: list[str], texts: list[str]) -> NDArray[np.intp]:
    """Index of each text among `texts`; one past the last for others."""
    index = {text: i for i, text in enumerate(texts)}
    return np.array([index.get(text, len(texts)) for text in written], np.intp)
