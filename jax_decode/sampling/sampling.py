"""Chooses one allowed token per row, with its log-probabilities, without ever building a `[B, V]` array.

Drawing is exact and in two levels. The allowed tokens fall into W columns of 32 (one mask word each) and a short candidate list.
First a column or a candidate wins by the Gumbel maximum of its log-mass, then a token of the winning column by the Gumbel
maximum of its logit. That takes W + 32 random numbers per row where drawing among the logits takes V, has no running sum whose
rounding could select a token without mass, and does not depend on the order in which a device adds.

Source: Gumbel-max: Maddison, Tarlow, Minka 2014, A* Sampling §2; max-stability is what makes two levels exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_decode.errors import checked_flag, named_arguments
from jax_decode.kernels import one_pass
from jax_decode.kernels.blocks import SMALL
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import NEVER, allowed_logits, clean, drawable, log_add, log_sum, planes
from jax_decode.kernels.projected import Projected, fits_inside
from jax_decode.kernels.row_layout import words_for
from jax_decode.kernels.vocabulary_shards import Part, column_masses, on_shards
from jax_decode.sampling.by_tops import cut_and_chosen
from jax_decode.sampling.candidates import Candidate, Drawn, best_candidate, mass_of
from jax_decode.sampling.choices import Allowed, inverse_of
from jax_decode.sampling.samplers import Categorical, Greedy, Sampler, check_sampler
from jax_decode.sampling.summary import NO_ITEM, Noise, Rows, Summary, at_once, in_one_pass, summarize
from jax_decode.sampling.truncation import threshold_of
from jax_decode.sampling.within_column import Choice, chosen_of, taken, within_column
from jax_decode.step.argument_checks import check_key_words, check_logits, check_state, check_step, check_tables
from jax_decode.step.masking import MaskParts, mask_parts, parts_at
from jax_decode.step.state import NO_NUMBER, ConstraintState
from jax_decode.tables.tables import ConstraintTables


@named_arguments
def sample(
    sampler: Sampler,
    logits: jax.Array | Projected,
    key: jax.Array,
    step: jax.Array,
    tables: ConstraintTables | None = None,
    state: ConstraintState | None = None,
    *,
    with_raw: bool = True,
) -> Choice:
    """Chooses a token for every row.

    Where a row's grammar asks for a temperature, that stands in the place of the sampler's.

    Args:
      sampler: one of `jax_decode.sampling.samplers`.
      logits: float[B, V'] (float32 or bfloat16), V' at least `tables.vocab_size`; or `Projected`, what a model would make them
        of: on a TPU `Greedy` and `Categorical` then choose inside of the projection, and no logits are written.
      key: uint32[B, 2] from `noise.key_words`, one per row.
      step: uint32[B], position in each row's own text; a row's noise depends on its key and this alone.
      tables: the constraints, or None: then every id is allowed.
      state: where every row stands; needed with tables.
      with_raw: static; False saves the work of the raw log-probabilities, which are then NaN in constrained batches.

    Returns:
      The tokens and their log-probabilities.

    Raises:
      DecodeError: while tracing, for arguments that do not go together; says what to pass.
    """
    check_sampler(sampler, traced=True)
    check_tables(tables, "sample", optional=True)
    if tables is not None:
        check_state(tables, state, "sample")
    if isinstance(logits, Projected):
        logits.check("sample")
        check_logits(jax.ShapeDtypeStruct(logits.shape, logits.dtype), tables, state, "sample")
    else:
        check_logits(logits, tables, state, "sample")
    check_key_words(key, logits.shape[0], "sample")
    check_step(step, logits.shape[0], "sample")
    if step.ndim != 1:
        step = jnp.broadcast_to(step.reshape(-1), logits.shape[:1])
    with_raw = checked_flag(with_raw, "with_raw")
    if tables is None or state is None:
        parts, columns = None, Columns(words_for(logits.shape[1]))
    else:
        parts, columns = mask_parts(tables, state), tables.columns
    return choose(sampler, among(as_read(sampler, logits, columns), parts, columns), key, step, with_raw=with_raw)


def as_read(sampler: Sampler, logits: jax.Array | Projected, columns: Columns) -> jax.Array | Projected:
    """`logits` as they are, or those that are projected where no kernel chooses inside of the projection."""
    if not isinstance(logits, Projected):
        return logits
    inside = isinstance(sampler, (Greedy, Categorical)) and columns.shards is None and logits.size >= SMALL
    fits = logits.hidden.dtype == logits.projection.embedding.dtype and fits_inside(logits, columns.num_words)
    return logits if inside and fits and one_pass.wanted("tpu") else logits.logits


def among(logits: jax.Array | Projected, parts: MaskParts | None, columns: Columns) -> Allowed:
    """Logits float[B, V'] and what a mask (None: everything) allows of them; `columns` are the mask's.

    Of logits that are spread over devices, `columns` with shards lets each device work on its own without a mask, too.
    """
    if parts is None and columns.shards is None:
        return Allowed(logits, None, lambda column: column.astype(jnp.uint32), columns, None)
    if parts is None:
        every, none = jnp.full((len(logits), columns.num_words), 0xFFFFFFFF, jnp.uint32), jnp.zeros((len(logits), 1), jnp.int32)
        parts = parts_at(every, none, none > 0)
    listed = (parts.token, parts.allowed, clean(taken(logits, parts.token)))
    return Allowed(logits, parts.words, parts.word_at, columns, listed, None, parts.inverse, parts.union)


def by_part(function: Callable[..., Any], allowed: Allowed, *arguments: Any, by_rows: bool = True) -> Any:
    """`function(allowed, *arguments)` with every device's own part of `allowed`, whose vocabulary is spread over devices.

    Args:
      function: sees `Allowed.part`, and returns what is the same on every device.
      arguments, by_rows: see `on_shards`.
    """
    shards = allowed.columns.shards
    assert shards is not None
    assert allowed.listed is not None
    assert allowed.words is not None

    def inside(part: Part, logits: jax.Array, words: jax.Array, listed: Any, inverse: Any, rest: Any) -> Any:
        token, ok = listed
        own = part.local(token)
        of_list = (own, ok & part.owns(token), clean(taken(logits, own)))
        mine = parts_at(words, *of_list[:2])
        return function(Allowed(logits, words, mine.word_at, Columns(shards.num_words), of_list, part, inverse), *rest)

    rows = (allowed.listed[:2], allowed.inverse)
    return on_shards(inside, shards, allowed.logits, allowed.words, *rows, arguments, by_rows=by_rows)


def choose(
    sampler: Sampler, allowed: Allowed, key: jax.Array, step: jax.Array, *, with_raw: bool = True, by_rows: bool = True
) -> Choice:
    """Chooses a token for every row of `among(...)`; `by_rows`: see `on_shards`, the other arguments are those of `sample`."""
    if allowed.columns.shards is not None:
        return by_part(functools.partial(_chosen, with_raw), allowed, sampler, key, step, by_rows=by_rows)
    return _chosen(with_raw, allowed, sampler, key, step)


def _chosen(with_raw: bool, allowed: Allowed, sampler: Sampler, key: jax.Array, step: jax.Array) -> Choice:
    logits, words = allowed.logits, allowed.words
    inverse = inverse_of(sampler, allowed)
    noise = None if isinstance(sampler, Greedy) else Noise(key, step)
    if isinstance(logits, Projected):
        in_memory = functools.partial(_chosen, with_raw, sampler=sampler, key=key, step=step)
        return jax.lax.platform_dependent(
            tpu=lambda: _projected(with_raw or words is None, allowed, inverse, noise),
            default=lambda: in_memory(allowed=allowed._replace(logits=logits.logits)),
        )
    small, with_raw = logits.size < SMALL, with_raw or words is None
    if noise is not None and allowed.part is None and not small:
        return cut_and_chosen(sampler, allowed, inverse, noise, with_raw)
    threshold = None if noise is None else threshold_of(sampler, allowed, inverse)
    if allowed.part is not None:
        return _of_parts(allowed, allowed.part, inverse, threshold, noise, with_raw)
    return chosen_of(allowed, inverse, noise, Drawn(threshold, *_summed(allowed, inverse, threshold, noise, with_raw)))


def _projected(
    with_raw: bool, allowed: Allowed, inverse: jax.Array | None, noise: Noise | None, *, interpret: bool = False
) -> Choice:
    """What is chosen inside of a projection, on a TPU."""
    given, rows = (allowed.num_words, with_raw, allowed.logits, allowed.words), Rows(noise, inverse)
    found = in_one_pass(*given, rows, union=allowed.union, interpret=interpret)
    found = found if with_raw else found._replace(raw=jnp.full_like(found.raw, jnp.nan))
    return chosen_of(allowed, inverse, noise, Drawn(None, *_with_list(allowed, inverse, None, noise, found)))


def _summed(
    allowed: Allowed, inverse: jax.Array | None, threshold: jax.Array | None, noise: Noise | None, with_raw: bool
) -> tuple[Summary, Candidate | None]:
    """What is drawn of few logits, or the best of any: with the candidates' mass, and the best of those if it is not in it."""
    logits, words, num_words, listed = allowed.logits, allowed.words, allowed.num_words, allowed.listed
    if logits.size < SMALL:
        of_list = None if listed is None else listed[:2]
        found = at_once(num_words, with_raw, logits, words, Rows(noise, inverse, threshold), of_list)
        found = found if with_raw else found._replace(raw=jnp.full_like(found.raw, jnp.nan))
        if listed is None or noise is None:
            return found, None
        return found, best_candidate(listed, inverse, threshold, noise, num_words + 32)
    found = summarize(logits, words, num_words, with_raw=with_raw, union=allowed.union)
    return _with_list(allowed, inverse, threshold, noise, found)


def _with_list(
    allowed: Allowed, inverse: jax.Array | None, threshold: jax.Array | None, noise: Noise | None, found: Summary
) -> tuple[Summary, Candidate | None]:
    """A summary of the columns with the candidates' mass, and the best candidate."""
    if allowed.listed is None:
        return found, None
    found = found._replace(allowed=log_add(found.allowed, mass_of(allowed.listed)))
    return found, best_candidate(allowed.listed, inverse, threshold, noise, allowed.num_words + 32)


def checked(token: jax.Array, logits: jax.Array) -> jax.Array:
    """Chosen tokens int32[B], `NO_NUMBER` where the logit is NaN.

    Choosing takes NaN for the least probable, so there was nothing else.

    Args:
      token: -1 where nothing is allowed.
      logits: float[B, V'], those it was chosen by.
    """
    own = taken(logits, jnp.clip(token, 0, logits.shape[1] - 1)[:, None])[:, 0]
    return jnp.where((token >= 0) & jnp.isnan(own), NO_NUMBER, token)


def _of_parts(
    allowed: Allowed, part: Part, inverse: jax.Array | None, threshold: jax.Array | None, noise: Noise | None, with_raw: bool
) -> Choice:
    """What all devices choose together, each from its part of the vocabulary."""
    assert allowed.listed is not None
    _, ok, x = allowed.listed
    columns = part.shards.columns
    summary = summarize(allowed.logits, allowed.words, allowed.num_words, with_raw=with_raw)
    if noise is None:
        drawn, own, token, value = summary.score, summary.score, summary.item, summary.score
    else:
        values = drawable(allowed_logits(planes(allowed.logits, allowed.words, allowed.num_words)), inverse, threshold)
        mass, index = column_masses(part, values, allowed.num_words)
        score = mass + gumbel(*noise, index.astype(jnp.uint32))
        best = score.max(1)
        first = jnp.where((score == best[:, None]) & (score != NEVER), index, NO_ITEM).min(1)
        drawn, column = _best_of(*part.every(best, first))
        token, own, value = within_column(allowed, column, columns, inverse, threshold, noise)
    listed = best_candidate(allowed.listed, inverse, threshold, noise, columns + 32 + part.first)
    sums = [log_add(summary.allowed, log_sum(jnp.where(ok, x, NEVER))), summary.raw]
    token, candidate = (jnp.where(t == NO_ITEM, t, t + part.first) for t in (token, listed[1]))
    every = part.every(own, token, value, listed[0], candidate, listed[2], *sums)
    _, token, value = _best_of(*every[:3])
    best, candidate, listed_value = _best_of(*every[3:6])
    score = every[0].max(0) if noise is None else drawn
    wins = (best > score) | ((best == score) & (candidate < token))
    token, value = jnp.where(wins, candidate, token), jnp.where(wins, listed_value, value)
    allowed_sum, raw_sum = (log_sum(x.T) for x in every[6:])
    none = jnp.maximum(score, best) == NEVER
    return Choice(jnp.where(none, -1, token), value - allowed_sum, value - raw_sum)


def _best_of(score: jax.Array, item: jax.Array, *more: jax.Array) -> tuple[jax.Array, ...]:
    """Of several shards [n, B] the best score, its item (the lowest among equals), and what belongs to it, [B] each."""
    best = score.max(0)
    first = jnp.where(score == best[None], item, NO_ITEM).min(0)
    here = (score == best[None]) & (item == first[None])
    return best, first, *(jnp.where(here, x, NEVER).max(0) for x in more)
