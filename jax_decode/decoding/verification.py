"""How many drafted tokens a row keeps, and the token that follows them: the target's word on every draft.

Two rules, both with exactly the distribution of decoding without drafts. *Same draw*: the target draws at every position, with
the noise that belongs to the position; drafts are kept as long as they are what it drew. *Rejection*: a draft drawn from q is
kept with probability min(1, p/q), and at the first that is not, a token is drawn from the positive part of p - q. In both, p
and q are what the sampler draws from: the logits under the row's mask, at its temperature, truncated.

Source: Leviathan et al. 2023, §2.3 and Appendix A.1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels.columns import Columns
from jax_decode.kernels.noise import gumbel, threefry
from jax_decode.kernels.planes import NEVER, allowed_logits, clean, column_log_sum, drawable, log_add, log_sum, planes, scaled
from jax_decode.kernels.row_layout import words_for
from jax_decode.sampling.choices import Allowed, inverse_of
from jax_decode.sampling.samplers import Greedy, Sampler
from jax_decode.sampling.sampling import among, by_part, checked, choose
from jax_decode.sampling.truncation import threshold_of
from jax_decode.step.masking import MaskParts, allows, dense, parts_at

_DRAFT, _ACCEPT, _REPLACE = 1, 2, 3
"""Purposes of noise, beside that of drawing without drafts."""


class Verdict(NamedTuple):
    """Of every row.

    kept: int32[B], drafts that are kept; token: int32[B], what follows them, -1 where nothing is allowed, -2 where the logits are
    NaN; logprob: float32[R + 1, B], log-probability among the allowed tokens of every draft, and at place `kept` that of `token`.
    """

    kept: jax.Array
    token: jax.Array
    logprob: jax.Array


class Scores(NamedTuple):
    """Of rows of logits, float32[n]: log-sums over the allowed tokens at temperature 1 and over those that may be drawn, and the
    least scaled logit that may be drawn (None: any)."""

    allowed: jax.Array
    drawn: jax.Array
    threshold: jax.Array | None


def draft_key(key: jax.Array) -> jax.Array:
    """Words of the noise with which rows of uint32[B, 2] draw their drafts."""
    return _derived(key, _DRAFT)


def _derived(key: jax.Array, purpose: int) -> jax.Array:
    """Two words that are as good as independent of the key's own noise: their counters occur nowhere else."""
    step = jnp.full(key.shape[:1], purpose, jnp.uint32)
    return threefry(key, step, jnp.array([[0xFFFFFFFE, 0xFFFFFFFF]], jnp.uint32))


def scores_of(sampler: Sampler, allowed: Allowed) -> Scores:
    """The sums by which logits become log-probabilities."""
    if allowed.columns.shards is not None:
        return by_part(_scores_of, allowed, sampler, by_rows=False)
    return _scores_of(allowed, sampler)


def _scores_of(allowed: Allowed, sampler: Sampler) -> Scores:
    inverse = inverse_of(sampler, allowed)
    threshold = None if isinstance(sampler, Greedy) else threshold_of(sampler, allowed, inverse)
    values = allowed_logits(planes(allowed.logits, allowed.words, allowed.num_words))
    columns = [column_log_sum(values)]
    if inverse is not None or threshold is not None:
        columns.append(column_log_sum(drawable(values, inverse, threshold)))
    columns = jax.lax.optimization_barrier(columns)  # see `summary`
    sums = [log_sum(c) for c in columns]
    if allowed.listed is not None:
        _, ok, x = allowed.listed
        y = scaled(x, inverse)
        drawn = ok if threshold is None else ok & (y >= threshold[:, None])
        lists = [jnp.where(ok, x, NEVER), jnp.where(drawn, y, NEVER)]
        sums = [log_add(a, log_sum(b)) for a, b in zip(sums, lists)]
    if allowed.part is not None:
        sums = allowed.part.log_total(*sums)
    return Scores(sums[0], sums[-1], threshold)


def drawn_logprob(sampler: Sampler, allowed: Allowed, scores: Scores, parts: MaskParts | None, tokens: jax.Array) -> jax.Array:
    """Log-probability with which the sampler draws tokens int32[n], float32[n]; -inf where it never does, and for -1."""
    inverse = inverse_of(sampler, allowed)
    y = scaled(clean(_at(allowed.logits, tokens)), None if inverse is None else inverse.reshape(-1))
    ok = (tokens >= 0) & (tokens < allowed.logits.shape[1])
    if parts is not None:
        ok &= allows(parts, tokens, allowed.columns)
    if scores.threshold is not None:
        ok &= y >= scores.threshold
    return jnp.where(ok, y - scores.drawn, NEVER)


def by_same_draw(sampler: Sampler, allowed: Allowed, key: jax.Array, step: jax.Array, drafts: jax.Array) -> Verdict:
    """Keeps drafts as long as they are what the target draws. With `Greedy` that is its best token.

    Args:
      sampler: as traced.
      allowed: [(R + 1) * B] rows, those of one position together.
      key: uint32[B, 2].
      step: int32[R + 1, B], positions in the rows' own texts.
      drafts: int32[R, B], -1 for none.
    """
    places, batch = step.shape
    keys = jnp.tile(key, (places, 1))
    choice = choose(sampler, allowed, keys, step.reshape(-1).astype(jnp.uint32), with_raw=False, by_rows=False)
    drawn = checked(choice.token, allowed.logits).reshape(places, batch)
    kept = _leading((drawn[:-1] == drafts) & (drafts >= 0))
    return Verdict(kept, _row(drawn, kept), choice.logprob.reshape(places, batch))


class Drafted(NamedTuple):
    """What rejection needs to know of the drafts: their tokens int32[R, B] (-1 for none), the log-probabilities with which they
    were drawn, float32[R, B], the draft's logits float[R, B, V''], and whether it drew under the masks."""

    tokens: jax.Array
    logprobs: jax.Array
    logits: jax.Array
    masked: bool


def by_rejection(
    sampler: Sampler,
    allowed: Allowed,
    parts: MaskParts | None,
    key: jax.Array,
    step: jax.Array,
    drafted: Drafted,
    width: int,
) -> Verdict:
    """Keeps a draft with probability min(1, p/q), and draws what replaces the first that is not kept.

    Args:
      sampler: as traced, not `Greedy`.
      allowed, key, step: as in `by_same_draw`.
      parts: the masks that `allowed` was made of.
      drafted: the drafts.
      width: ids that can be drawn: the tokenizer's, or without tables the logits.
    """
    places, batch = step.shape
    scores = scores_of(sampler, allowed)
    none = jnp.full((1, batch), -1, jnp.int32)
    tokens = jnp.concatenate([drafted.tokens, none])
    target = drawn_logprob(sampler, allowed, scores, parts, tokens.reshape(-1)).reshape(places, batch)[:-1]
    uniform = _uniform(_derived(key, _ACCEPT), step[:-1])
    readable = checked(tokens.reshape(-1), allowed.logits).reshape(places, batch)[:-1] >= 0
    kept = _leading(readable & (jnp.log(uniform) <= target - drafted.logprobs))

    # Dense only where a token must be drawn: one position per row.
    rows = jnp.arange(batch, dtype=jnp.int32)
    here = kept * batch + rows
    mine = None if parts is None else parts_at(*(x[here] for x in parts.arrays))
    cut = None if scores.threshold is None else scores.threshold[here]
    of_target = among(allowed.logits[here], mine, allowed.columns)
    p = dense_logprobs(sampler, of_target, Scores(scores.allowed[here], scores.drawn[here], cut), mine, width)
    replaced = _row(tokens, kept) >= 0  # else every draft was kept, and p itself is drawn from
    mask = mine if drafted.masked else None
    logits = drafted.logits[jnp.minimum(kept, places - 2), rows]
    of_draft = among(logits, mask, allowed.columns if drafted.masked else Columns(words_for(logits.shape[1])))
    q = dense_logprobs(sampler, of_draft, scores_of(sampler, of_draft), mask, width)
    rest = jnp.where(p > q, p + jnp.log1p(-jnp.exp(jnp.minimum(q - p, 0.0))), NEVER)
    rest = jnp.where((replaced & (rest > NEVER).any(1))[:, None], rest, p)
    noise = gumbel(_derived(key, _REPLACE), _row(step, kept).astype(jnp.uint32), jnp.arange(width, dtype=jnp.uint32)[None])
    token = jnp.argmax(rest + noise, 1).astype(jnp.int32)
    token = checked(jnp.where((p > NEVER).any(1), token, -1), allowed.logits[here])

    chosen = jnp.where(jnp.arange(places, dtype=jnp.int32)[:, None] == kept[None], token[None], tokens)
    logprob = clean(_at(allowed.logits, chosen.reshape(-1))) - scores.allowed
    return Verdict(kept, token, logprob.reshape(places, batch))


def dense_logprobs(sampler: Sampler, allowed: Allowed, scores: Scores, parts: MaskParts | None, width: int) -> jax.Array:
    """Log-probability with which the sampler draws each id below `width`, float32[n, width]; -inf for never."""
    y = scaled(clean(allowed.logits[:, :width]), inverse_of(sampler, allowed))
    out = y - scores.drawn[:, None]
    if scores.threshold is not None:
        out = jnp.where(y >= scores.threshold[:, None], out, NEVER)
    return out if parts is None else jnp.where(dense(parts, width, allowed.columns), out, NEVER)


def _at(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """logits[n, tokens[n]]; any number where the token has none."""
    index = jnp.clip(tokens, 0, logits.shape[1] - 1)[:, None]
    return jnp.take_along_axis(logits, index, axis=1)[:, 0]


def _row(values: jax.Array, place: jax.Array) -> jax.Array:
    """values[place[b], b] of [R, B]."""
    return jnp.take_along_axis(values, place[None], axis=0)[0]


def _uniform(key: jax.Array, step: jax.Array) -> jax.Array:
    """A number in (0, 1) for every position int32[R, B] of a row, float32[R, B]."""
    places, batch = step.shape
    bits = threefry(jnp.tile(key, (places, 1)), step.reshape(-1).astype(jnp.uint32), jnp.zeros((1, 1), jnp.uint32))
    return ((bits[:, 0] >> 8).astype(jnp.float32).reshape(places, batch) + 0.5) * jnp.float32(2.0**-24)


def _leading(kept: jax.Array) -> jax.Array:
    """How many of bool[R, B] are true from the first on, int32[B]."""
    return jnp.cumprod(kept.astype(jnp.int32), 0).sum(0, dtype=jnp.int32)
