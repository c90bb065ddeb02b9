"""A search for the border of a probability mass, which ends at a number above the border with few tokens between the two.

Places to look at are integers in the order of floats: of logits, or of their exponentials.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from jax_decode.kernels.planes import LOWEST, NEVER, from_order, to_order
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.vocabulary_shards import Part

FEW = 32
"""Tokens between the border and the number above it, at most: those are sorted."""
TILES = 8
"""Pieces that a sum is added up in."""
_FAR = -1e30
_TURNS, _GUESSES = 8, 24
"""Guesses before all others go half way, and before every second one goes to the next token below: where many are equal."""
_ROUGHLY, _HALVES = 6, 4
"""Looks at a sample, and how many of them go half way at first, where nothing is known of the border."""
_BESIDE = 1 / 64
"""Of the way between two thresholds: how far beside the guess a sample is looked at, so that both come near."""
_AIM, _MOST_BESIDE = 0.7, 1 / 4
"""How far above the guess a search looks: this share of `FEW` tokens, and at most this much of the way between two thresholds."""
_SUM_ERROR = 4e-6
"""Relative error of a sum of exponentials, generously."""
_ROUNDING = 2e-7
"""Relative error of one sum of two numbers, generously."""

Over: TypeAlias = Callable[..., jax.Array]


class ByLogit(NamedTuple):
    """The tokens that a search is among; places are logits.

    over: `over(function, combine, *rows)` combines what a function says of every plane's tokens, [B, W] or in tiles; the
    function takes scaled logits, -inf where not allowed, their exponentials relative to `base` float32[B], and the numbers of
    rows float32[B] in a shape that broadcasts. listed: scaled logits of the candidates, [B, M]; part: of the vocabulary, see
    `Allowed`; each: how many tokens each one stands for, but for those listed.
    """

    over: Over
    listed: jax.Array
    base: jax.Array
    part: Part | None
    each: float = 1.0

    def mass(self, low: jax.Array, high: jax.Array) -> jax.Array:
        """Mass of the tokens from `low` up to `high`."""
        def of(y: jax.Array, e: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
            return jnp.where((y >= low) & (y < high), e, 0.0)

        ends = from_order(low), from_order(high)
        listed = of(self.listed, jnp.exp(self.listed - self.base[:, None]), *(x[:, None] for x in ends)).sum(1)
        whole = self.each * _row_sums(self.over(of, jnp.add, *ends)) + listed
        return whole if self.part is None else self.part.total(whole)

    def number_from(self, low: jax.Array) -> jax.Array:
        """How many of them, without those listed, are not below a place."""
        count = _row_sums(self.over(lambda y, e, low: jnp.where(y >= low, 1.0, 0.0), jnp.add, from_order(low)))
        return count if self.part is None else self.part.total(count)

    def below(self, high: jax.Array) -> jax.Array:
        """The place of the largest token below `high`."""
        end = from_order(high)
        most = self.over(under, jnp.maximum, end).reshape(len(high), -1).max(1)
        most = jnp.maximum(most, under(self.listed, None, end[:, None]).max(1, initial=NEVER))
        return to_order(most if self.part is None else self.part.largest(most))

    def total(self) -> jax.Array:
        """Mass of all."""
        return self.mass(*self.ends())

    def ends(self) -> tuple[jax.Array, jax.Array]:
        """Places below and above all. What follows a zero is a normal number: to many devices all smaller ones are zeros."""
        tiny = jnp.finfo(jnp.float32).tiny
        above = jnp.where(jnp.abs(self.base) < tiny, to_order(jnp.full_like(self.base, tiny)), to_order(self.base) + 1)
        return to_order(jnp.full_like(self.base, LOWEST)), above

    def logit(self, place: jax.Array) -> jax.Array:
        """The logit of a place, relative to `base`."""
        return from_order(place) - self.base

    def place(self, logit: jax.Array) -> jax.Array:
        return to_order(jnp.maximum(logit + self.base, LOWEST))

    def weight(self, place: jax.Array) -> jax.Array:
        """The least mass of a token that is not below a place."""
        return jnp.exp(self.logit(place))


class ByExponential(NamedTuple):
    """The same; places are exponentials, of which there is one number for each token to look at.

    Tokens whose exponentials are equal are one to the search, though their logits may differ.

    exps: float32[B, V'] in one piece or two, the first of whole planes, relative to the best logit, 0 where not allowed; listed:
    of the candidates, [B, M]; num_words: W; each: as in `ByLogit`.
    """

    exps: tuple[jax.Array, ...]
    listed: jax.Array
    num_words: int
    each: float = 1.0

    def mass(self, low: jax.Array, high: jax.Array) -> jax.Array:
        def of(e: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
            e = jnp.where(e >= low, e, 0.0)  # one after the other: half the time of both conditions joined
            return jnp.where(e < high, e, 0.0)

        ends = from_order(low)[:, None], from_order(high)[:, None]
        return self._sum(lambda e: of(e, *ends))

    def total(self) -> jax.Array:
        return self._sum(lambda e: e)

    def _sum(self, function: Callable[[jax.Array], jax.Array]) -> jax.Array:
        whole = self.each * lanes_sum(pieces_lanes(self.exps, function))
        return whole + lanes_sum(row_lanes(self.listed, function)) if self.listed.shape[1] else whole

    def number_from(self, low: jax.Array) -> jax.Array:
        return lanes_sum(pieces_lanes(self.exps, lambda e: jnp.where(e >= from_order(low)[:, None], 1.0, 0.0)))

    def below(self, high: jax.Array) -> jax.Array:
        listed = jnp.where(self.listed < from_order(high)[:, None], self.listed, 0.0)
        return to_order(jnp.maximum(self.columns_below(high).max(1), listed.max(1, initial=0.0)))

    def columns_below(self, high: jax.Array) -> jax.Array:
        """The largest exponential of every column below a place, [B, W]; 0 where there is none."""
        first, *others = self.exps
        whole = first.shape[1] // self.num_words * self.num_words
        planes = first[:, :whole].reshape(len(high), -1, self.num_words)
        below = jnp.where(planes < from_order(high)[:, None, None], planes, 0.0)
        # As integers: the compiler hands a maximum of floats to a library, for which it writes them to memory.
        most = jax.lax.bitcast_convert_type(below, jnp.int32).max(1, initial=0)
        most = jax.lax.bitcast_convert_type(most, jnp.float32)
        rest = (others[0] if others else first[:, whole:])[:, : self.num_words]  # nothing is allowed past plane 31
        if not rest.shape[1]:
            return most
        rest = jnp.maximum(jnp.where(rest < from_order(high)[:, None], rest, 0.0), most[:, : rest.shape[1]])
        return jnp.concatenate([rest, most[:, rest.shape[1] :]], 1)

    def ends(self) -> tuple[jax.Array, jax.Array]:
        rows = (len(self.exps[0]),)
        return to_order(jnp.zeros(rows)), to_order(jnp.ones(rows)) + _ABOVE

    def logit(self, place: jax.Array) -> jax.Array:
        return jnp.log(from_order(place))

    def place(self, logit: jax.Array) -> jax.Array:
        return to_order(jnp.exp(logit))

    def weight(self, place: jax.Array) -> jax.Array:
        return from_order(place)


Tokens: TypeAlias = ByLogit | ByExponential
_ABOVE = 16
"""Numbers that an exponential of 0 may be above 1, at most."""


def under(y: jax.Array, _: jax.Array | None, high: jax.Array) -> jax.Array:
    """Logits below `high`."""
    return jnp.where(y < high, y, NEVER)


def _row_sums(columns: jax.Array) -> jax.Array:
    """Sums of rows float32[B, W] or [B, W / 128, 128], [B].

    For a CPU added up in tiles first: its compiler hands a long sum to a library, and then writes every plane that `columns`
    adds up to memory.
    """

    def by_tiles(columns: jax.Array) -> jax.Array:
        return _tiles_sum(jax.lax.optimization_barrier(columns).reshape(len(columns), -1, LANES)).sum(1)

    return jax.lax.platform_dependent(columns, cpu=by_tiles, default=lambda x: x.reshape(len(x), -1).sum(1))


def _tiles_sum(tiles: jax.Array) -> jax.Array:
    """Of tiles float32[B, n, 128], [B, 128]."""
    while (count := tiles.shape[1]) > 1:  # few at a time: each is an operation to compile
        few = next(n for n in range(min(count, 2 * TILES), 0, -1) if count % n == 0)
        tiles = functools.reduce(jnp.add, jnp.split(tiles, few if few > 1 else count, 1))
    return tiles[:, 0]


def row_lanes(x: jax.Array, function: Callable[[jax.Array], jax.Array] = lambda x: x) -> jax.Array:
    """What a function makes of numbers [B, V'], added up to [B, 128], for a CPU: a loop that XLA does not hand to a library, for
    which it would write what the function makes to memory."""
    size = x.shape[1] // (TILES * LANES) * LANES
    parts = []
    if size:
        whole = functools.reduce(jnp.add, (function(x[:, i * size : (i + 1) * size]) for i in range(TILES)))
        parts.append(_tiles_sum(jax.lax.optimization_barrier(whole).reshape(len(x), -1, LANES)))
    if rest := x.shape[1] - TILES * size:
        last = jnp.pad(function(x[:, TILES * size :]), ((0, 0), (0, -rest % LANES)))
        parts.append(_tiles_sum(last.reshape(len(x), -1, LANES)))
    return functools.reduce(jnp.add, parts)


def pieces_lanes(pieces: Sequence[jax.Array], function: Callable[[jax.Array], jax.Array] = lambda x: x) -> jax.Array:
    """`row_lanes` of all pieces."""
    return functools.reduce(jnp.add, (row_lanes(x, function) for x in pieces))


def lanes_sum(lanes: jax.Array) -> jax.Array:
    """Of `row_lanes`, [B], in an order that does not depend on B."""
    eight = functools.reduce(jnp.add, jnp.split(lanes, LANES // TILES, 1))
    return functools.reduce(jnp.add, jnp.split(eight, TILES, 1))[:, 0]


class Border(NamedTuple):
    """Where the border of a top-p lies, [B] each: from `low` on tokens have enough mass, from `high` on they have not.

    low, high: int32, places; above: float32, mass from `high` on; between: float32, mass of the tokens between the two, and
    `error`, how wrong that may be; weight_low, weight_high: float32, what the two count for in the next guess.
    """

    low: jax.Array
    high: jax.Array
    above: jax.Array
    between: jax.Array
    error: jax.Array
    weight_low: jax.Array
    weight_high: jax.Array

    @property
    def packed(self) -> jax.Array:
        """int32[7, B]: a loop of a CPU copies and writes every number of its own by an operation of its own."""
        return jnp.stack([*self[:2], *(jax.lax.bitcast_convert_type(x, jnp.int32) for x in self[2:])])

    @classmethod
    def unpacked(cls, numbers: jax.Array) -> Border:
        """Of `packed`."""
        return cls(*numbers[:2], *jax.lax.bitcast_convert_type(numbers[2:], jnp.float32))

    def told(self, place: jax.Array, mass: jax.Array, wanted: jax.Array) -> Border:
        """With the mass of the tokens from a place between the two up to `high`."""
        whole = self.above + mass
        enough = whole >= wanted
        ratio = jnp.abs(jnp.log(jnp.maximum(whole, 1e-30) / wanted))
        return Border(
            jnp.where(enough, place, self.low),
            jnp.where(enough, self.high, place),
            jnp.where(enough, self.above, self.above + mass),
            jnp.where(enough, mass, self.between - mass),
            jnp.where(enough, _SUM_ERROR * mass, self.error),
            jnp.where(enough, ratio, self.weight_low),
            jnp.where(enough, self.weight_high, ratio),
        )

    def guess(self, tokens: Tokens, beside: jax.Array) -> jax.Array:
        """Where mass reaches what is wanted if its logarithm is linear in the logit, but for `beside`, float32[], of the way from
        `low` to `high`; far from all logits the place half way."""
        low, high = tokens.logit(self.low), tokens.logit(self.high)
        share = self.weight_low / jnp.maximum(self.weight_low + self.weight_high, 1e-37) + beside
        guess = jnp.where(low > _FAR, tokens.place(low + (high - low) * share), self.half_way())
        return jnp.clip(guess, self.low + 1, self.high - 1)

    def middle(self, tokens: Tokens) -> jax.Array:
        """The place half way between the two logits; far from all logits between the two numbers in the order of the floats."""
        low, high = tokens.logit(self.low), tokens.logit(self.high)
        middle = jnp.where(low > _FAR, tokens.place(0.5 * (low + high)), self.half_way())
        return jnp.clip(middle, self.low + 1, self.high - 1)

    def half_way(self) -> jax.Array:
        return (self.low & self.high) + ((self.low ^ self.high) >> 1)  # of two integers without overflow, rounded down


class Found(NamedTuple):
    """What `search` returns, [B] each: `low`, `high` and `above` as in `Border`, and the mass wanted."""

    low: jax.Array
    high: jax.Array
    above: jax.Array
    wanted: jax.Array


class Guesses(NamedTuple):
    """Places to look for a border at, int32[B] each: `least` is not above it, it probably lies between the two `near`, if given,
    and is hardly ever beyond the two `wide`."""

    least: jax.Array
    near: tuple[jax.Array, ...] = ()
    wide: tuple[jax.Array, ...] = ()


def search(tokens: Tokens, total: jax.Array, p: jax.Array, done: jax.Array, guesses: Guesses) -> Found:
    """Two thresholds with the border between them, and at most `FEW` tokens, or tokens of one place, from the border to the upper
    one; the lower one may be far below.

    They are looked for at the guesses, then by regula falsi, `_AIM` of those tokens above what that says. Ties are met by going
    from token to token.

    Args:
      tokens: all; total: their mass, [B].
      p: probability wanted.
      done: rows that need no search, bool[B].
      guesses: of these, `least` is looked at where no other is below the border.
    """
    wanted = p * total
    border = start(*tokens.ends(), total, wanted)
    for guess in guesses.near:
        place = jnp.clip(guess, border.low + 1, border.high - 1)
        border = border.told(place, tokens.mass(place, border.high), wanted)

    def settled(border: Border) -> jax.Array:
        """Rows in which few tokens are missing, or few left: each has at least the mass of one at `low`."""
        missing = jnp.minimum(wanted - border.above + _ROUNDING * wanted, border.between + border.error)
        return (border.low >= border.high - 1) | (missing < FEW * tokens.weight(border.low)) | done

    def place_of(count: jax.Array, border: Border) -> jax.Array:
        aim = jnp.minimum(_AIM * FEW * tokens.weight(border.low) / jnp.maximum(border.between, 1e-37), _MOST_BESIDE)
        place = jnp.where(count >= _TURNS, border.middle(tokens), border.guess(tokens, aim))
        if guesses.wide:
            low, high = guesses.wide
            wide = jnp.where(border.low < low, low, jnp.where(border.high > high, high, place))
            place = jnp.where(count == 0, wide, place)
        place = jnp.where((count == len(guesses.wide) // 2) & (border.low < guesses.least), guesses.least, place)
        return jnp.clip(place, border.low + 1, border.high - 1)

    def another(count: jax.Array, border: Border) -> Border:
        place, below = place_of(count, border), functools.partial(tokens.below, border.high)
        to_token = (count >= _GUESSES) & (count % 2 == 0)
        place = jax.lax.cond(to_token, lambda: jnp.clip(below(), border.low, border.high - 1), lambda: place)
        moved = border.told(place, tokens.mass(place, border.high), wanted)
        # The next token below `high` that has enough is the border.
        return moved._replace(high=jnp.where(to_token & (moved.low == place), place + 1, moved.high))

    found = _narrowed(border, another, settled)
    return Found(found.low, found.high, found.above, wanted)


def about(tokens: Tokens, border: Border, least: jax.Array, wanted: jax.Array, done: jax.Array) -> Border:
    """The border among a sample narrowed by `_ROUGHLY` looks, from both sides, until few tokens are left between the two.

    Args:
      least: a place that is not above it, int32[B].
      wanted: mass; done: rows that need no search, bool[B].
    """

    def settled(border: Border) -> jax.Array:
        return (border.between + border.error < FEW * tokens.each * tokens.weight(border.low)) | done

    def another(count: jax.Array, border: Border) -> Border:
        beside = jnp.where(count % 2 == 0, -_BESIDE, _BESIDE)
        place = jnp.where(count < _HALVES, border.middle(tokens), border.guess(tokens, beside))
        place = jnp.where((count == 0) & (border.low < least), jnp.clip(least, border.low + 1, border.high - 1), place)
        return border.told(place, tokens.mass(place, border.high), wanted)

    return _narrowed(border, another, settled, _ROUGHLY)


def _narrowed(
    border: Border,
    another: Callable[[jax.Array, Border], Border],
    settled: Callable[[Border], jax.Array],
    most: int | None = None,
) -> Border:
    """The border after looks at other places, `most` of them if given, until all rows are settled; those that are stay as they
    are."""

    def look(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        count, border = carry[0], Border.unpacked(carry[1])
        stays = settled(border)
        moved = Border(*(jnp.where(stays, old, new) for old, new in zip(border, another(count, border))))
        return count + 1, moved.packed

    def goes_on(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        unsettled = ~settled(Border.unpacked(carry[1])).all()
        return unsettled if most is None else unsettled & (carry[0] < most)

    return Border.unpacked(jax.lax.while_loop(goes_on, look, (jnp.int32(0), border.packed))[1])


def start(low: jax.Array, high: jax.Array, mass: jax.Array, wanted: jax.Array) -> Border:
    """Before anything is known but the mass between the two ends."""
    weights = (jnp.abs(jnp.log(jnp.maximum(x, 1e-30))) for x in (mass / wanted, wanted))
    return Border(low, high, jnp.zeros_like(mass), mass, _SUM_ERROR * mass, *weights)
