"""The second level of a draw: a token of the column that won, and what is chosen between it and the best candidate."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels.gather import places, read, whole
from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import NEVER, clean, scaled
from jax_decode.kernels.projected import Projected
from jax_decode.sampling.candidates import Drawn, first_of_best
from jax_decode.sampling.choices import Allowed
from jax_decode.sampling.summary import Noise


class Choice(NamedTuple):
    """What `sample` returns.

    token: int32[B], -1 where nothing is allowed; logprob: float32[B], log-probability over the allowed tokens in nats;
    raw_logprob: float32[B], log-probability over all logits. Both at temperature 1, before any truncation.
    """

    token: jax.Array
    logprob: jax.Array
    raw_logprob: jax.Array


def chosen_of(allowed: Allowed, inverse: jax.Array | None, noise: Noise | None, drawn: Drawn) -> Choice:
    """The choice of every row by what is drawn of the columns and of the list; without noise, by the best of both."""
    score, item, allowed_sum, raw_sum = drawn.summary
    if noise is None:
        chosen, value = item, score
    else:
        chosen, _, value = within_column(allowed, item, allowed.num_words, inverse, drawn.threshold, noise)
    if drawn.candidate is not None:
        best, token, listed_value = drawn.candidate
        wins = (best > score) | ((best == score) & (token < chosen))
        chosen = jnp.where(wins, token, chosen)
        value = jnp.where(wins, listed_value, value)
        score = jnp.maximum(score, best)
    return Choice(jnp.where(score == NEVER, -1, chosen), value - allowed_sum, value - raw_sum)


def within_column(
    allowed: Allowed,
    column: jax.Array,
    columns: int,
    inverse: jax.Array | None,
    threshold: jax.Array | None,
    noise: Noise,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws one token of each row's column of all W: the token, its score and its clean logit, [B] each."""
    logits, part = allowed.logits, allowed.part
    column = jnp.minimum(column, columns - 1)  # a row that allows nothing has no column
    width = logits.shape[1] if part is None else part.shards.count * part.shards.width
    plane = whole(places(min(-(-width // columns), 32), column.shape))
    token = column[:, None] + plane * columns
    own, ok = token, token < width
    if part is not None:
        own, ok = part.local(token), ok & part.owns(token)
    x = clean(taken(logits, jnp.minimum(own, logits.shape[1] - 1)))
    if allowed.words is not None:
        if part is None:
            word, bit = allowed.word_at(column[:, None]), plane
        else:
            place, bit = allowed.columns.place(own)
            word = allowed.word_at(place)
        ok &= ((word >> bit.astype(jnp.uint32)) & 1) != 0
    y = scaled(x, inverse)
    if threshold is not None:
        ok &= y >= threshold[:, None]
    score = jnp.where(ok, y + gumbel(*noise, (columns + plane).astype(jnp.uint32)), NEVER)
    score, token, x = first_of_best(score, token, x)
    return token if part is None else part.local(token), score, x


def taken(logits: jax.Array | Projected, index: jax.Array) -> jax.Array:
    """logits[b, index[b, i]]."""
    if isinstance(logits, Projected):
        return logits.taken(index)
    return read(logits, jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None], index)
