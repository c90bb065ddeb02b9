"""`beam_search` and `sample_without_replacement`: several different texts per prompt, from one jitted program."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jax_decode.beams import beam_loop
from jax_decode.beams.ranking import Best, Perturbed, Ranking
from jax_decode.decoding import inputs
from jax_decode.decoding.origin import Origin
from jax_decode.decoding.programs import to_host
from jax_decode.decoding.requests import Asked, Request, check_places, check_rows, read_positive, read_request
from jax_decode.decoding.result import Generation, Written, collect
from jax_decode.errors import DecodeError, is_number, named_arguments, shown
from jax_decode.kernels.placement import on_automatic_axes, on_gpu, put_rows
from jax_decode.sampling.samplers import Categorical, check_sampler, prepared
from jax_decode.step.state import MAX_DEPTH, Status
from jax_decode.tables.tables import ConstraintTables

_MOST_PENALTY = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Hypotheses(Generation):
    """Different texts of every prompt, best first; those of prompt i are rows `i * num_return .. (i + 1) * num_return - 1`.

    No two rows of a prompt have the same tokens. Where a prompt's language has fewer texts, or the beams found fewer, the last
    rows have the status `ABSENT` and no tokens; `NOT_A_NUMBER` if a beam was given up because its logits were NaN. The
    log-probability of a stop token is that of all stop ids together.

    Attributes:
      num_return: rows per prompt.
      scores: float32[B], what the rows are ordered by, -inf for absent ones. Of `beam_search`: total raw log-probability
        / length ** length_penalty, the stop token counted. Of `sample_without_replacement`: the log-probability of the draw,
        perturbed by noise.
      draw_logprobs: float32[B], of `sample_without_replacement`: total log-probability at its temperature. Of `beam_search`:
        the total raw log-probability.
    """

    num_return: int
    scores: NDArray[np.float32]
    draw_logprobs: NDArray[np.float32]

    @property
    def found(self) -> NDArray[np.int64]:
        """int64[P], how many texts each prompt has."""
        present = np.array([status not in (Status.ABSENT, Status.NOT_A_NUMBER) for status in self.status])
        return present.reshape(-1, self.num_return).sum(1)

    def text(self, tokenizer: Any = None) -> list[list[str]]:
        """The texts of every prompt, best first, without the absent ones; for the tokenizer see `Generation.text`."""
        texts = super().text(tokenizer)
        n = self.num_return
        return [list(texts[i * n : i * n + found]) for i, found in enumerate(self.found)]


@named_arguments
@on_automatic_axes
def beam_search(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables | None = None,
    *,
    beams: int,
    max_new_tokens: Any,
    num_return: int | None = None,
    length_penalty: float = 0.0,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    chunk: int = 8,
    allow_truncation: bool = False,
) -> Hypotheses:
    """The most probable continuations of every prompt that beams find, each inside its prompt's constraint.

    A step extends every beam by every allowed token and keeps the `beams` most probable results; texts that end leave the
    beams and compete among themselves, so they neither displace beams nor are displaced by them. A prompt is done when no beam
    can still improve its `num_return` finished texts: log-probabilities only fall, so the bound is exact. With as many beams
    as there are beginnings of texts, the result is the exact n-best list.

    Args:
      decoder, prompts, tables, max_new_tokens, constraint, stop_ids, bos_id, max_depth, allow_truncation: see `generate`. The
        constrained rows' texts are ranked by the model's own probabilities, not by those among the allowed tokens.
      beams: texts that grow at a time.
      num_return: most texts to return per prompt, at most `beams`, which is the default.
      length_penalty: finished texts are ranked by log-probability / length ** length_penalty, the stop token counted (as in
        Hugging Face's transformers, whose default is 1). 0 ranks by probability; more favours long texts; -5 to 5.
      chunk: steps between two checks whether all prompts are done, on a GPU; elsewhere every step checks.

    Returns:
      `num_return` rows per prompt.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.
    """
    beams, num_return = _counts(beams, beams if num_return is None else num_return)
    if not is_number(length_penalty, -_MOST_PENALTY, _MOST_PENALTY):
        raise DecodeError(f"the length_penalty is {shown(length_penalty)}", fix="Give a number from -5 to 5.")
    asked = Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth)
    steps = read_positive(chunk, "chunk")
    request = read_request(decoder, prompts, tables, asked, least_steps=steps, allow_truncation=allow_truncation)
    ranking = Best(jax.device_put(np.float32(length_penalty)) if length_penalty else None)
    return _searched(decoder, request, ranking, beams, num_return, chunk)


@named_arguments
@on_automatic_axes
def sample_without_replacement(
    decoder: Any,
    prompts: Any,
    tables: ConstraintTables | None = None,
    *,
    key: jax.Array,
    num_samples: int,
    max_new_tokens: Any,
    temperature: Any = 1.0,
    constraint: Any = None,
    stop_ids: Any = None,
    bos_id: int | None = None,
    max_depth: Any = MAX_DEPTH,
    chunk: int = 8,
    allow_truncation: bool = False,
) -> Hypotheses:
    """Different texts per prompt: drawn one after another as `Categorical` draws, each among those not drawn before.

    The first row is a plain sample. With fewer texts in the language than rows, all of them are returned. The cost is that of a
    beam search with `num_samples` beams.

    Source: Kool, van Hoof, Welling 2019, Stochastic Beams and Where to Find Them.

    Args:
      decoder, prompts, tables, max_new_tokens, constraint, stop_ids, bos_id, max_depth, allow_truncation: see `generate`.
      key: one PRNG key (row r gets `fold_in(key, r)`), or one key per prompt or row.
      num_samples: rows per prompt.
      temperature: as in `Categorical`; all stop ids of a row count as one token.
      chunk: steps between two checks whether all prompts are done, on a GPU; elsewhere every step checks.

    Returns:
      `num_samples` rows per prompt, in the order in which they were drawn.

    Raises:
      DecodeError: an argument is wrong; says which, where, and what to do.
    """
    beams, _ = _counts(num_samples, num_samples)
    sampler = Categorical(temperature)
    check_sampler(sampler)
    traced = prepared(sampler)
    assert isinstance(traced, Categorical)
    asked = Asked(max_new_tokens, constraint, stop_ids, bos_id, max_depth)
    steps = read_positive(chunk, "chunk")
    request = read_request(decoder, prompts, tables, asked, least_steps=steps, allow_truncation=allow_truncation)
    if request.tables is not None and request.tables.has_temperatures:
        what = "rules of these grammars have temperatures, and distinct samples are drawn at one"
        raise DecodeError(what, fix="Use generate(..., num_samples=...), or leave the option temperature out of the grammar.")
    words = inputs.read_words(key, request.num_prompts, beams)
    inverse = None if traced.temperature is None else jax.device_put(np.float32(1.0 / traced.temperature))
    return _searched(decoder, request, Perturbed(words, inverse), beams, beams, chunk)


def _counts(beams: Any, num_return: Any) -> tuple[int, int]:
    beams, num_return = read_positive(beams, "the number of beams"), read_positive(num_return, "num_return")
    if num_return > beams:
        raise DecodeError(f"num_return is {num_return}, more than the {beams} beams", fix="Use more beams.")
    return beams, num_return


def _searched(decoder: Any, request: Request, ranking: Ranking, beams: int, keep: int, chunk: int) -> Hypotheses:
    """Runs the program and brings the result to the host, once."""
    asked = put_rows(request.joined())
    chunk = chunk if on_gpu(asked) else 1  # a loop on other devices checks itself; on a GPU the host waits for each check
    ids = decoder.vocab_size
    check_rows(beams * request.num_prompts, ids)
    check_places(beams, ids, "beams")
    sizes = beam_loop.Sizes(request.stop_ids.shape[1], request.steps, request.cache_length, beams, keep, chunk)
    texts = beam_loop.search(decoder, request.tables, ranking, asked, sizes=sizes)
    status, dropped, tokens, scores, weights, logprobs, raw = to_host(texts).parts()
    stops = request.stop_ids[request.rows(keep)]
    made = collect(Written(tokens, logprobs, raw, status, dropped), stops, single=False, origin=Origin.of(request, keep))
    fields = {f.name: getattr(made, f.name) for f in dataclasses.fields(Generation)}
    return Hypotheses(**fields, num_return=keep, scores=scores, draw_logprobs=weights)
