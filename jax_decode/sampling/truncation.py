"""Thresholds of top-k, top-p and min-p: the least scaled logit that may still be drawn, exact, per row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.kernels import one_pass
from jax_decode.kernels.blocks import SMALL, by_blocks
from jax_decode.kernels.column_tops import from_order, to_order
from jax_decode.kernels.columns import Columns
from jax_decode.kernels.gather import read
from jax_decode.kernels.planes import (
    LOWEST,
    NEVER,
    Planes,
    allowed_logits,
    clean,
    column_max,
    cut,
    drawable,
    finite,
    planes,
    scaled,
)
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.vocabulary_shards import Part
from jax_decode.sampling.samplers import Greedy, MinP, Sampler, TopK, TopP


class Allowed(NamedTuple):
    """The choices of every row.

    logits: float[B, V']; words: uint32[B, W], bit planes, or None for all; word_at: the words of columns int32[B, n], read from
    the tables so that no consumer needs `words` in memory; columns: how tokens lie in the words; listed: (token, allowed, clean
    logit) [B, M] of the candidate list, or None; part: on a device that has a shard of the vocabulary, which: all else is then of
    this shard, its tokens counted from the shard's first; inverse, union: see `MaskParts`.
    """

    logits: jax.Array
    words: jax.Array | None
    word_at: Callable[[jax.Array], jax.Array]
    columns: Columns
    listed: tuple[jax.Array, jax.Array, jax.Array] | None
    part: Part | None = None
    inverse: jax.Array | None = None
    union: tuple[jax.Array, jax.Array] | None = None

    @property
    def num_words(self) -> int:
        """W, words of a bit row."""
        return self.columns.num_words


def inverse_of(sampler: Sampler, allowed: Allowed) -> jax.Array | None:
    """Inverse temperature: float32[], or float32[B, 1] where constraints have temperatures; None for 1, and for `Greedy`."""
    if isinstance(sampler, Greedy):
        return None
    own = None if sampler.temperature is None else 1.0 / jnp.asarray(sampler.temperature, jnp.float32)
    if allowed.inverse is None:
        return own
    return jnp.where(allowed.inverse == jnp.inf, 1.0 if own is None else own, allowed.inverse)[:, None]


def threshold_of(sampler: Sampler, allowed: Allowed, inverse: jax.Array | None) -> jax.Array | None:
    """The least scaled logit that `sampler` may draw, float32[B]; None when it draws among all allowed tokens.

    Tokens of equal logits are kept or dropped together.
    """
    match sampler:
        case TopK(k=k):
            return _kth_largest(allowed, inverse, k)
        case TopP(p=p):
            return _mass_threshold(allowed, inverse, jnp.asarray(p, jnp.float32))
        case MinP(p=p):
            best = _best(allowed, inverse)
            return jnp.maximum(best + jnp.log(jnp.asarray(p, jnp.float32)), LOWEST)
    return None


def _scaled_planes(allowed: Allowed, inverse: jax.Array | None) -> list[jax.Array]:
    """Scaled logits per plane, [B, W] each, -inf where not allowed."""
    return drawable(allowed_logits(planes(allowed.logits, allowed.words, allowed.num_words)), inverse, None)


def listed_logits(allowed: Allowed, inverse: jax.Array | None) -> jax.Array:
    """Scaled logits of the candidates, [B, M], -inf where not allowed; M may be 0."""
    if allowed.listed is None:
        return jnp.zeros((allowed.logits.shape[0], 0), jnp.float32)
    _, ok, x = allowed.listed
    return jnp.where(ok, scaled(x, inverse), NEVER)


def _column_best(allowed: Allowed, inverse: jax.Array | None, high: jax.Array | None = None) -> jax.Array:
    """Largest scaled logit of every column, float32[B, W], -inf where none is allowed; below `high` float32[B], if given."""

    def kept(x: jax.Array, *limits: jax.Array) -> jax.Array:
        """Without the logits that are not below the limit; `limits`: it, and the inverse temperature, [n, 1] each, if given."""
        if not limits:
            return x
        return jnp.where(scaled(x, limits[1] if len(limits) > 1 else None) < limits[0], x, NEVER)

    def of_planes(logits: jax.Array, words: jax.Array | None, *limits: jax.Array) -> jax.Array:
        return column_max([kept(x, *limits) for x in allowed_logits(planes(logits, words, num_words))])

    def by_kernel(logits: jax.Array, words: jax.Array | None, *limits: jax.Array) -> jax.Array:
        def most(parts: Planes, _: jax.Array, *limits: jax.Array) -> jax.Array:
            return column_max([kept(x, *limits) for x in allowed_logits(parts)])

        return one_pass.mapped(most, logits, words, num_words, limits)

    def by_few(logits: jax.Array, words: jax.Array | None, *limits: jax.Array) -> jax.Array:
        def of_block(logits: jax.Array, words: jax.Array | None, *limits: jax.Array) -> jax.Array:
            x = jax.lax.optimization_barrier(kept(clean(logits), *limits))
            return column_max(list(cut(x, words, num_words, NEVER)))

        return by_blocks(of_block, logits, words, *limits)

    num_words = allowed.num_words
    limits = [] if high is None else [high[:, None]]
    if high is not None and inverse is not None:
        limits.append(jnp.broadcast_to(inverse, (len(high), 1)))
    forms = {} if allowed.logits.size < SMALL else {"cpu": by_few}
    if one_pass.wanted("tpu") and allowed.part is None:
        forms["tpu"] = by_kernel
    best = jax.lax.platform_dependent(allowed.logits, allowed.words, *limits, default=of_planes, **forms)
    return drawable([best], inverse, None)[0]


def _best(allowed: Allowed, inverse: jax.Array | None) -> jax.Array:
    listed = listed_logits(allowed, inverse)
    return _best_of(allowed, _column_best(allowed, inverse), listed)


def _best_of(allowed: Allowed, top: jax.Array, listed: jax.Array) -> jax.Array:
    best = jnp.maximum(top.max(1), listed.max(1, initial=-jnp.inf))
    return best if allowed.part is None else allowed.part.largest(best)


def _kth_largest(allowed: Allowed, inverse: jax.Array | None, k: int) -> jax.Array:
    """The k-th largest scaled logit, float32[B]; the lowest number where fewer than k tokens are allowed.

    The k largest tokens lie in the k columns of largest maximum, so only 32 k tokens are sorted.
    """
    y = _best_of_columns(allowed, inverse, k)
    if y.shape[1] < k:
        return jnp.full(y.shape[:1], LOWEST, jnp.float32)
    return jnp.maximum(_largest(y, k).min(1), LOWEST)


def _best_of_columns(allowed: Allowed, inverse: jax.Array | None, k: int, high: jax.Array | None = None) -> jax.Array:
    """Scaled logits float32[B, n] among which the k largest allowed ones are, of those below `high` if given; else -inf."""
    most = _column_best(allowed, inverse, high)
    logits, num_words = allowed.logits, allowed.num_words
    _, column = jax.lax.top_k(most, min(k, num_words))
    count = -(-logits.shape[1] // num_words)
    token = column.astype(jnp.int32)[:, :, None] + (jnp.arange(min(count, 32), dtype=jnp.int32) * num_words)[None, None]
    ok = token < logits.shape[1]
    if allowed.words is not None:
        word = allowed.word_at(column)[:, :, None]
        ok &= ((word >> jnp.arange(token.shape[2], dtype=jnp.uint32)[None, None]) & 1) != 0
    batch = jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None, None]
    x = clean(read(logits, batch, jnp.minimum(token, logits.shape[1] - 1), rows=None))
    y = jnp.where(ok.reshape(len(x), -1), scaled(x.reshape(len(x), -1), inverse), NEVER)
    y = jnp.concatenate([y, listed_logits(allowed, inverse)], 1)
    y = y if high is None else jnp.where(y < high[:, None], y, NEVER)
    return y if allowed.part is None else allowed.part.beside(_largest(y, min(k, y.shape[1])))


def _largest(y: jax.Array, k: int) -> jax.Array:
    """The k largest, descending; the last of them is best taken as the least, or XLA sorts all for it."""
    return jax.lax.top_k(y, k)[0]


class _Border(NamedTuple):
    """Where the border of a top-p lies, [B] each: from `low` on tokens have enough mass, from `high` on they have not.

    low, high: int32, in the order of the floats; above: float32, mass from `high` on; between: float32, mass of the tokens
    between the two, and `error`, how wrong that may be; weight_low, weight_high: float32, what the two count for in the next
    guess.
    """

    low: jax.Array
    high: jax.Array
    above: jax.Array
    between: jax.Array
    error: jax.Array
    weight_low: jax.Array
    weight_high: jax.Array

    def told(self, place: jax.Array, mass: jax.Array, wanted: jax.Array) -> _Border:
        """With the mass of the tokens from a place between the two up to `high`."""
        whole = self.above + mass
        enough = whole >= wanted
        ratio = jnp.abs(jnp.log(jnp.maximum(whole, 1e-30) / wanted))
        return _Border(
            jnp.where(enough, place, self.low),
            jnp.where(enough, self.high, place),
            jnp.where(enough, self.above, self.above + mass),
            jnp.where(enough, mass, self.between - mass),
            jnp.where(enough, _SUM_ERROR * mass, self.error),
            jnp.where(enough, ratio, self.weight_low),
            jnp.where(enough, self.weight_high, ratio),
        )

    def guess(self, beside: jax.Array) -> jax.Array:
        """Where mass reaches what is wanted if its logarithm is linear in the logit, but for `beside`, float32[], of the way from
        `low` to `high`; far from all logits the place half way."""
        low, high = from_order(self.low), from_order(self.high)
        share = self.weight_low / jnp.maximum(self.weight_low + self.weight_high, 1e-37) + beside
        guess = jnp.where(low > _FAR, to_order(low + (high - low) * share), self.half_way())
        return jnp.clip(guess, self.low + 1, self.high - 1)

    def middle(self) -> jax.Array:
        """The place half way between the two logits; far from all logits between the two numbers in the order of the floats."""
        low, high = from_order(self.low), from_order(self.high)
        middle = jnp.where(low > _FAR, to_order(0.5 * (low + high)), self.half_way())
        return jnp.clip(middle, self.low + 1, self.high - 1)

    def half_way(self) -> jax.Array:
        return (self.low & self.high) + ((self.low ^ self.high) >> 1)  # of two integers without overflow, rounded down


_Over = Callable[..., jax.Array]


class _Tokens(NamedTuple):
    """The tokens that a search is among.

    over: of `_over_planes` or `_over_kernel`, with exponentials relative to `base` float32[B]; listed: scaled logits of the
    candidates, [B, M]; part: of the vocabulary, see `Allowed`.
    """

    over: _Over
    listed: jax.Array
    base: jax.Array
    part: Part | None

    def mass(self, low: jax.Array, high: jax.Array) -> jax.Array:
        """Mass of the tokens from `low` up to `high`."""
        def of(y: jax.Array, e: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
            return jnp.where((y >= low) & (y < high), e, 0.0)

        ends = from_order(low), from_order(high)
        listed = of(self.listed, jnp.exp(self.listed - self.base[:, None]), *(x[:, None] for x in ends)).sum(1)
        whole = _row_sums(self.over(of, jnp.add, *ends)) + listed
        return whole if self.part is None else self.part.total(whole)

    def below(self, high: jax.Array) -> jax.Array:
        """The largest logit below `high`."""
        end = from_order(high)
        most = self.over(_under, jnp.maximum, end).reshape(len(high), -1).max(1)
        most = jnp.maximum(most, _under(self.listed, None, end[:, None]).max(1, initial=NEVER))
        return to_order(most if self.part is None else self.part.largest(most))


def _under(y: jax.Array, _: jax.Array | None, high: jax.Array) -> jax.Array:
    """Logits below `high`."""
    return jnp.where(y < high, y, NEVER)


def _over_planes(parts: Callable[[], Iterator[tuple[jax.Array, jax.Array]]]) -> _Over:
    """`over(function, combine, *rows)` combines what a function says of every plane's tokens, [B, W] or in tiles.

    The function takes scaled logits of a plane, -inf where not allowed, their exponentials, and the numbers of rows float32[B]
    in a shape that broadcasts.
    """

    def over(function: Callable[..., jax.Array], combine: Callable[..., jax.Array], *rows: jax.Array) -> jax.Array:
        of_planes = (function(y, e, *(x.reshape(-1, *[1] * (y.ndim - 1)) for x in rows)) for y, e in parts())
        return functools.reduce(combine, of_planes)

    return over


def _over_kernel(allowed: Allowed, inverse: jax.Array | None, base: jax.Array) -> _Over:
    """The same by a kernel: in a loop, XLA's compiler for TPUs writes every number out over all columns, those of planes too."""
    own = [base[:, None], *(() if inverse is None else (jnp.broadcast_to(inverse, (len(base), 1)),))]

    def over(function: Callable[..., jax.Array], combine: Callable[..., jax.Array], *rows: jax.Array) -> jax.Array:
        def of_columns(parts: Planes, _: jax.Array, base: jax.Array, *rest: jax.Array) -> jax.Array:
            scale, numbers = (None, rest) if inverse is None else (rest[0], rest[1:])
            values = drawable(allowed_logits(parts), scale, None)
            return functools.reduce(combine, (function(y, jnp.exp(y - base), *numbers) for y in values))

        numbers = [*own, *(x[:, None] for x in rows)]
        return one_pass.mapped(of_columns, allowed.logits, allowed.words, allowed.num_words, numbers)

    return over


def _row_sums(columns: jax.Array) -> jax.Array:
    """Sums of rows float32[B, W] or [B, W / 128, 128], [B].

    For a CPU added up in tiles first: its compiler hands a long sum to a library, and then writes every plane that `columns`
    adds up to memory.
    """

    def by_tiles(columns: jax.Array) -> jax.Array:
        sums = jax.lax.optimization_barrier(columns).reshape(len(columns), -1, LANES)
        while (tiles := sums.shape[1]) > 1:  # few at a time: each is an operation to compile
            few = next(n for n in range(min(tiles, 2 * _TILES), 0, -1) if tiles % n == 0)
            few = few if few > 1 else tiles
            sums = functools.reduce(jnp.add, jnp.split(sums, few, 1))
        return sums[:, 0].sum(1)

    return jax.lax.platform_dependent(columns, cpu=by_tiles, default=lambda x: x.reshape(len(x), -1).sum(1))


class _Found(NamedTuple):
    """What `_search` returns, [B] each: `low`, `high` and `above` as in `_Border`, and the mass wanted."""

    low: jax.Array
    high: jax.Array
    above: jax.Array
    wanted: jax.Array


_FAR = -1e30
_TURNS, _GUESSES = 8, 24
"""Guesses before all others go half way, and before every second one goes to the next logit below: where many are equal."""
_FEW = 64
"""Tokens between two thresholds that are sorted."""
_COLLISIONS = 1.5
"""Times the best of some columns that the largest few tokens may have in mass, where columns hold two of them."""
_TILES = 8
"""Pieces of a row in memory that are looked at side by side."""
_BESIDE = 1 / 16
_SHARE, _LEAST_SAMPLED = 16, 512
"""Of all columns about one in so many is a sample, where there are at least so many."""
_SUM_ERROR = 4e-6
"""Relative error of a sum of exponentials, generously."""


def _mass_threshold(allowed: Allowed, inverse: jax.Array | None, p: jax.Array) -> jax.Array:
    """A threshold whose tokens are those of the largest threshold that still has probability p, float32[B].

    A search leaves few tokens between two thresholds; those alone are sorted. A CPU sorts the largest few first: where they have
    the probability, as they mostly have in texts, nothing is searched.
    """
    top, listed = _column_best(allowed, inverse), listed_logits(allowed, inverse)
    best = _best_of(allowed, top, listed)

    def of_all(kernel: bool, logits: jax.Array, words: jax.Array | None, *rows: jax.Array) -> jax.Array:
        top, listed, best = rows
        base, own = finite(best), allowed._replace(logits=logits, words=words)
        over = (_over_kernel if kernel else _over_scaled)(own, inverse, base)
        tokens, guesses = _Tokens(over, listed, base, own.part), _guesses(own, inverse, p, top, best)
        found = _search(tokens, _total(tokens), p, (best == NEVER) | (p >= 1), guesses)
        return _border_within(found, _best_of_columns(own, inverse, _FEW, from_order(found.high)), base)

    def by_few(logits: jax.Array, words: jax.Array | None, *rows: jax.Array) -> jax.Array:
        of_rows = inverse is not None and inverse.ndim > 0  # else one number for all of them

        def of_block(scale: jax.Array | None, logits: jax.Array, words: jax.Array | None, *rows: jax.Array) -> jax.Array:
            own = allowed._replace(logits=logits, words=words)
            return _threshold_in_memory(own, scale if of_rows else inverse, p, *rows)

        return by_blocks(of_block, inverse if of_rows else None, logits, words, *rows)

    forms: dict[str, Callable[..., jax.Array]] = {}
    if allowed.part is None:
        forms |= {} if allowed.logits.size < SMALL else {"cpu": by_few}
        forms |= {"tpu": functools.partial(of_all, True)} if one_pass.wanted("tpu") else {}
    by_xla = functools.partial(of_all, False)
    border = jax.lax.platform_dependent(allowed.logits, allowed.words, top, listed, best, default=by_xla, **forms)
    return jnp.where((p >= 1) | (best == NEVER), LOWEST, border)


def _threshold_in_memory(
    allowed: Allowed, inverse: jax.Array | None, p: jax.Array, top: jax.Array, listed: jax.Array, best: jax.Array
) -> jax.Array:
    """`_mass_threshold` of rows whose scaled logits stay in a cache; `top`: of `_column_best`."""
    base = finite(best)
    y, e = _in_memory(allowed, inverse, base)
    planes, tokens = y.reshape(len(y), -1, allowed.num_words), _Tokens(_over_tiles(y, e), listed, base, None)

    def of_columns(column: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.take_along_axis(planes, column[:, None], 2).reshape(len(y), -1), listed], 1)

    few, nothing = min(_FEW, top.shape[1]), jnp.full_like(best, NEVER)
    total, (largest, column) = _total(tokens), jax.lax.top_k(top, few)
    everything = _Found(to_order(nothing), _ends(tokens)[1], jnp.zeros_like(best), p * total)
    of_best = jnp.exp(largest - base[:, None]).sum(1) + jnp.exp(listed - base[:, None]).sum(1)
    likely = _COLLISIONS * of_best >= everything.wanted  # else the largest few are not sorted in vain
    first = jax.lax.cond(likely.any(), lambda: _border_within(everything, of_columns(column), base), lambda: nothing)
    first = jnp.where(likely, first, nothing)  # whatever the neighbours are
    done = (first > NEVER) | (best == NEVER) | (p >= 1)

    def searched() -> jax.Array:
        found = _search(tokens, total, p, done, _guesses(allowed, inverse, p, top, best))
        high = from_order(found.high)
        pieces = jax.lax.optimization_barrier(tokens.over(_under, jnp.maximum, high)).reshape(len(y), -1, allowed.num_words)
        rest = of_columns(jax.lax.top_k(column_max(list(jnp.moveaxis(pieces, 1, 0))), few)[1])
        return jnp.where(done, first, _border_within(found, _under(rest, None, high[:, None]), base))

    return jax.lax.cond(done.all(), lambda: first, searched)


def _border_within(found: _Found, y: jax.Array, base: jax.Array) -> jax.Array:
    """Where the mass reaches what is wanted, float32[B]: at one of the tokens between two thresholds, or at the lower one.

    `y`: scaled logits float32[B, n], the `_FEW` largest below `high` among them.
    """
    low = from_order(found.low)
    y = _largest(jnp.where(y >= low[:, None], y, NEVER), min(_FEW, y.shape[1]))
    enough = found.above[:, None] + jnp.cumsum(jnp.exp(y - base[:, None]), 1) >= found.wanted[:, None]
    return jnp.maximum(jnp.where(enough & (y > NEVER), y, NEVER).max(1), low)


def _over_scaled(allowed: Allowed, inverse: jax.Array | None, base: jax.Array) -> _Over:
    return _over_planes(lambda: ((y, jnp.exp(y - base[:, None])) for y in _scaled_planes(allowed, inverse)))


def _in_memory(allowed: Allowed, inverse: jax.Array | None, base: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scaled logits, -inf where not allowed, and their exponentials, [B, pieces, n, 128] each, for a search that looks at them
    often."""
    y = jax.lax.optimization_barrier(scaled(clean(allowed.logits), inverse))
    y = jax.lax.optimization_barrier(jnp.concatenate(list(cut(y, allowed.words, allowed.num_words, NEVER)), 1))
    e = jax.lax.optimization_barrier(jnp.exp(y - base[:, None]))
    planes = y.shape[1] // allowed.num_words
    pieces = planes if planes % _TILES else _TILES  # of whole planes
    return tuple(x.reshape(len(x), pieces, -1, LANES) for x in (y, e))


def _over_tiles(y: jax.Array, e: jax.Array) -> _Over:
    return _over_planes(lambda: ((y[:, b], e[:, b]) for b in range(y.shape[1])))


def _guesses(
    allowed: Allowed, inverse: jax.Array | None, p: jax.Array, top: jax.Array, best: jax.Array
) -> list[jax.Array]:
    """Places to look for the border of probability p at, int32[B] each: one that is not above it, two it probably is between.
    `top`: of `_column_best`; `best`: of all.

    From a search among a sixteenth of the columns: the tokens below the border are many, so that a sample tells their mass well;
    most of those with much mass are the best of their columns, whose mass is known.
    """
    base, count = finite(best), jnp.float32(allowed.logits.shape[1])
    if allowed.part is not None:
        count = count * allowed.part.shards.count
    # All tokens below this together have less than what may be missing.
    least = to_order(base - jnp.log(count / jnp.maximum(1 - p, 1e-7)))
    num_words, some = allowed.num_words, max(allowed.num_words // _SHARE // LANES, 1) * LANES
    if num_words < _LEAST_SAMPLED:
        return [least]
    none = (best == NEVER) | (p >= 1)
    starts = range(0, allowed.logits.shape[1], num_words)
    logits = jnp.concatenate([allowed.logits[:, lo : lo + some] for lo in starts], 1)
    words = None if allowed.words is None else allowed.words[:, :some]
    sample = allowed._replace(logits=logits, words=words, columns=Columns(some))
    tokens = _Tokens(_over_tiles(*_in_memory(sample, inverse, base)), jnp.zeros((len(best), 0)), base, allowed.part)
    mass, of_best = _total(tokens), jnp.exp(top - base[:, None])
    others = mass - of_best[:, :some].sum(1) if allowed.part is None else mass
    every = num_words / some * others + (of_best.sum(1) if allowed.part is None else 0)
    wanted = jnp.maximum(mass - (1 - p) * every * (some / num_words), 1e-3 * mass)
    near = _narrowed(tokens, _border(*_ends(tokens), mass, wanted), [least], wanted, none | (mass == 0), roughly=True)
    low, high = from_order(near.low), from_order(near.high)
    return [least, *(to_order(jnp.maximum(x, LOWEST)) for x in (low - (high - low), high + (high - low)))]


def _total(tokens: _Tokens) -> jax.Array:
    """Mass of all tokens."""
    return tokens.mass(*_ends(tokens))


def _ends(tokens: _Tokens) -> tuple[jax.Array, jax.Array]:
    """Places below and above all logits. What follows a zero is a normal number: to many devices all smaller ones are zeros."""
    tiny = jnp.finfo(jnp.float32).tiny
    above = jnp.where(jnp.abs(tokens.base) < tiny, to_order(jnp.full_like(tokens.base, tiny)), to_order(tokens.base) + 1)
    return to_order(jnp.full_like(tokens.base, LOWEST)), above


def _search(tokens: _Tokens, total: jax.Array, p: jax.Array, done: jax.Array, guesses: list[jax.Array]) -> _Found:
    """Two thresholds with at most `_FEW` tokens between them, or tokens of equal logits alone.

    Args:
      tokens: all; total: their mass, [B].
      p: probability wanted.
      done: rows that need no search, bool[B].
      guesses: of `_guesses`.
    """
    wanted = p * total
    border = _narrowed(tokens, _border(*_ends(tokens), total, wanted), guesses, wanted, done)
    return _Found(border.low, border.high, border.above, wanted)


def _border(low: jax.Array, high: jax.Array, mass: jax.Array, wanted: jax.Array) -> _Border:
    """Before anything is known but the mass between the two ends."""
    weights = (jnp.abs(jnp.log(jnp.maximum(x, 1e-30))) for x in (mass / wanted, wanted))
    return _Border(low, high, jnp.zeros_like(mass), mass, _SUM_ERROR * mass, *weights)


def _narrowed(
    tokens: _Tokens, border: _Border, guesses: list[jax.Array], wanted: jax.Array, done: jax.Array, *, roughly: bool = False
) -> _Border:
    """The border narrowed until it is settled: at given places, then by regula falsi, a little to both sides of what it says, so
    that both ends come near. Ties are met by going from token to token.

    `guesses`: the first is a place that is not above the border; looked at where no other is below it. Rows that are `done`,
    bool[B], stay wherever they are. `roughly`: after `_GUESSES` all do, settled or not.
    """

    def settled(border: _Border) -> jax.Array:
        """Rows of whose logits between the two thresholds few are left: each has at least the mass of one at `low`."""
        few = border.between + border.error < _FEW * jnp.exp(from_order(border.low) - tokens.base)
        return (border.high - border.low == 1) | few | done

    def another(carry: tuple[jax.Array, _Border]) -> tuple[jax.Array, _Border]:
        count, border = carry
        place = jnp.where(count < _TURNS, border.guess(jnp.where(count % 2 == 0, -_BESIDE, _BESIDE)), border.middle())
        to_token = jnp.bool_(False) if roughly else (count >= _GUESSES) & (count % 2 == 0)
        if not roughly:
            below = functools.partial(tokens.below, border.high)
            place = jax.lax.cond(to_token, lambda: jnp.clip(below(), border.low, border.high - 1), lambda: place)
        place = jnp.where((count == 0) & (border.low < least), jnp.clip(least, border.low + 1, border.high - 1), place)
        moved = border.told(place, tokens.mass(place, border.high), wanted)
        # The next token below `high` that has enough is the border.
        moved = moved._replace(high=jnp.where(to_token & (moved.low == place), place + 1, moved.high))
        stays = settled(border)
        return count + 1, _Border(*(jnp.where(stays, old, new) for old, new in zip(border, moved)))

    least, *others = guesses
    for guess in others:
        place = jnp.clip(guess, border.low + 1, border.high - 1)
        border = border.told(place, tokens.mass(place, border.high), wanted)

    def goes_on(carry: tuple[jax.Array, _Border]) -> jax.Array:
        return ~settled(carry[1]).all() & (~jnp.bool_(roughly) | (carry[0] < _GUESSES))

    return jax.lax.while_loop(goes_on, another, (jnp.int32(0), border))[1]
