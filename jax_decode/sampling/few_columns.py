"""Draws of a sampler that cuts off, on a CPU: among the columns that reach the threshold, where a row has few of them.

Sums over all logits need no noise, no threshold and no masses of columns then, and what is drawn is a few tokens of every row.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from jax_decode.kernels.gather import read
from jax_decode.kernels.noise import gumbel
from jax_decode.kernels.planes import NEVER, clean, finite, scaled
from jax_decode.sampling.choices import Allowed, column_best_logits
from jax_decode.sampling.samplers import Sampler
from jax_decode.sampling.summary import NO_ITEM, Noise, Rows, Summary, in_memory
from jax_decode.sampling.truncation import threshold_of

MOST_KEPT = 64
"""Tokens that a top-k may keep to be drawn this way."""
_MOST = 192
"""Columns of a row up to which it is drawn by these alone: beyond, reading them one by one takes longer than all of a row."""
_TOGETHER = 128
"""Columns that are worked on together, of whichever rows they are."""
_WORD = 32
_ORDINARY = (-46.0, 80.0)
"""Where the best logit lies between these, exponentials are relative to nothing, as `summary.in_memory` has them, so that draws
are the same; below, those of other logits that are kept might vanish."""


class Few(NamedTuple):
    """Columns that reach the threshold, as bits: bit i of word g is column i * G + g.

    words: uint32[B, G], 0 in rows of many columns; ends: int32[B, G], how many there are up to the end of a word; rows: int32[B],
    up to the end of a row; many: bool[B], rows of more than `_MOST`.
    """

    words: jax.Array
    ends: jax.Array
    rows: jax.Array
    many: jax.Array

    @classmethod
    def of(cls, top: jax.Array, threshold: jax.Array) -> Few:
        """`top` float32[B, W]: the best of every column, -inf where nothing is allowed; `threshold` float32[B]."""
        here = (top >= threshold[:, None]) & (top != NEVER)
        here = jnp.pad(here, ((0, 0), (0, -here.shape[1] % _WORD))).reshape(len(here), _WORD, -1)
        words = (here.astype(jnp.uint32) << jnp.arange(_WORD, dtype=jnp.uint32)[None, :, None]).sum(1, dtype=jnp.uint32)
        many = jax.lax.population_count(words).sum(1, dtype=jnp.uint32) > _MOST
        words = jnp.where(many[:, None], jnp.uint32(0), words)
        ends = _running(jax.lax.population_count(words))
        return cls(words, ends, jnp.cumsum(ends[:, -1], dtype=jnp.int32), many)

    def places(self, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(row, column) of columns int32[n] in order, of all rows; of the last row for those that there are not."""
        groups = self.words.shape[1]
        row = jnp.minimum((self.rows[None] <= number[:, None]).sum(1, dtype=jnp.int32), len(self.rows) - 1)
        within = number - jnp.where(row > 0, read(self.rows, jnp.maximum(row - 1, 0)), 0)
        group = jnp.minimum((self.ends[row] <= within[:, None]).sum(1, dtype=jnp.int32), groups - 1)
        word = read(self.words, row, group)
        left = within - (read(self.ends, row, group) - jax.lax.population_count(word).astype(jnp.int32))
        return row, _bit(word, left) * groups + group


def _running(counts: jax.Array) -> jax.Array:
    """Running totals along rows of small numbers [B, G]; a product, which a CPU has a fast form of."""
    groups = jnp.arange(counts.shape[1], dtype=jnp.int32)
    upto = (groups[:, None] <= groups[None]).astype(jnp.float32)
    return (counts.astype(jnp.float32) @ upto).astype(jnp.int32)


def _bit(word: jax.Array, left: jax.Array) -> jax.Array:
    """Place of the set bit with `left` set ones below it."""
    place = jnp.zeros_like(left)
    for size in (16, 8, 4, 2, 1):
        below = jax.lax.population_count(word & jnp.uint32((1 << size) - 1)).astype(jnp.int32)
        beyond = left >= below
        left, place = jnp.where(beyond, left - below, left), jnp.where(beyond, place + size, place)
        word = jnp.where(beyond, word >> jnp.uint32(size), word)
    return place


def cut_and_summed_by_few(
    sampler: Sampler, allowed: Allowed, inverse: jax.Array | None, noise: Noise, with_raw: bool
) -> tuple[jax.Array, Summary]:
    """`truncation.threshold_of` and `summary.summarize` with it, on a CPU: how a row is drawn depends on its own logits alone."""
    top, threshold = column_best_logits(allowed, inverse), threshold_of(sampler, allowed, inverse)
    assert threshold is not None
    rows, few = Rows(noise, inverse, threshold), Few.of(top, threshold)
    given = allowed.num_words, with_raw, allowed.logits, allowed.words

    def of_all() -> Summary:
        return in_memory(*given, rows)[1]

    def of_sums() -> Summary:
        return in_memory(*given, None)[1]

    every = jax.lax.cond(few.many.any(), of_all, of_sums)
    score, item = _drawn(few, allowed, rows, top)
    found = every._replace(score=jnp.where(few.many, every.score, score), item=jnp.where(few.many, every.item, item))
    return threshold, found if with_raw else found._replace(raw=jnp.full_like(found.raw, jnp.nan))


def _drawn(few: Few, allowed: Allowed, rows: Rows, top: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Score and column of the rows that have few."""
    logits, columns, noise = allowed.logits, allowed.num_words, rows.noise
    assert rows.threshold is not None
    assert noise is not None
    batch, width = logits.shape
    best = finite(top.max(1))
    base = best if rows.inverse is not None else jnp.where((best > _ORDINARY[0]) & (best < _ORDINARY[1]), 0.0, best)
    key, threshold = cast(jax.Array, noise.key), rows.threshold
    plane = jnp.arange(min(-(-width // columns), 32), dtype=jnp.int32)[:, None]

    def some(number: Any, kept: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        number = number * _TOGETHER + jnp.arange(_TOGETHER, dtype=jnp.int32)
        row, column = few.places(number)
        token = column[None] + plane * columns
        x = clean(read(logits, row[None], jnp.minimum(token, width - 1), rows=None))
        inverse = rows.inverse if rows.inverse is None or not rows.inverse.ndim else read(rows.inverse[:, 0], row)[None]
        y, own = scaled(x, inverse), read(base, row)
        ok = (token < width) & (y >= read(threshold, row)[None])
        if allowed.words is not None:
            ok &= ((read(allowed.words, row, column)[None] >> plane.astype(jnp.uint32)) & 1) != 0
        e = jax.lax.optimization_barrier(jnp.where(ok, jnp.exp(y - own[None]), 0.0))
        mass = functools.reduce(jnp.add, e)
        words = read(key[:, 0], row)[:, None], read(key[:, 1], row)[:, None]
        found = own + jnp.log(mass) + gumbel(words, read(noise.step, row), column[:, None].astype(jnp.uint32))[:, 0]
        found = jnp.where(number < few.rows[-1], found, NEVER)
        score, item = kept
        most = score.at[row].max(found)
        item = jnp.where(most > score, NO_ITEM, item)
        return most, item.at[row].min(jnp.where(found == most[row], column, NO_ITEM))

    start = jnp.full(batch, NEVER), jnp.full(batch, NO_ITEM, jnp.int32)
    return jax.lax.fori_loop(0, -(-few.rows[-1] // _TOGETHER), some, start)
