"""What a sampler that cuts off chooses of every row: one kernel of a TPU over the largest logits of every column.

Eight rows are worked on at a time, one in every sublane. Their numbers come and go as XLA has them, with a row in every lane:
128 rows of them are turned at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jax_decode.kernels.column_tops import COMBINE, REDUCE, START, TOPS, Cut, score_of, threshold_of
from jax_decode.kernels.noise import Words, gumbel
from jax_decode.kernels.planes import NEVER, Sum, clean, finite, log_add, scaled
from jax_decode.kernels.row_layout import LANES
from jax_decode.kernels.turned_rows import SUBLANES, TURNED, turn

_TOGETHER = 4
"""Registers of a row of 128 lanes that are worked on side by side."""
_NOTHING = 2**31 - 1
"""Larger than every token and column."""
_FIELDS = 6
"""Of `Settled` without a candidate."""
_COLUMN = 2
"""Place of `Settled.column` among them."""


class Lanes(NamedTuple):
    """Of the columns of a lane, [B, 128] each: the largest logit that is not among the tops, and sums over the allowed logits,
    over the others, and over the allowed ones at the temperature (None: not asked for)."""

    hidden: jax.Array
    inside: Sum
    outside: Sum | None
    drawn: Sum | None


class Settled(NamedTuple):
    """Of each row, [B], as the kernel writes it and as the other way is brought into the same form.

    threshold: float32; score, column: of the column that is drawn, float32, -inf for none, and int32; allowed, raw: log-sum-exp
    over the allowed logits with the candidates, and over all, float32; whole: int32, 1 where the tops tell; where they do not,
    what is chosen means nothing. candidate: score, token and logit of the candidate that is drawn, float32, int32, float32; None
    without a list.
    """

    threshold: jax.Array
    score: jax.Array
    column: jax.Array
    allowed: jax.Array
    raw: jax.Array
    whole: jax.Array
    candidate: tuple[jax.Array, jax.Array, jax.Array] | None

    @property
    def packed(self) -> jax.Array:
        """int32[n, B]."""
        every = [self.threshold, self.score, self.column, self.allowed, self.raw, self.whole, *(self.candidate or ())]
        return jnp.stack([jax.lax.bitcast_convert_type(x, jnp.int32) for x in every])

    @classmethod
    def unpacked(cls, rows: jax.Array | Sequence[jax.Array]) -> Settled:
        """Of `packed`, or of its rows."""

        def number(k: int) -> jax.Array:  # each by itself: of all together they would be an operation of their own
            return jax.lax.bitcast_convert_type(rows[k], jnp.float32)

        listed = (number(6), rows[7], number(8)) if len(rows) > _FIELDS else None
        return cls(number(0), number(1), rows[2], number(3), number(4), rows[5], listed)


class _Block:
    """`Cells` of a kernel: scaled logits of a block of rows, -inf where not allowed, and those of its candidates.

    planes: [n, R, W]; weights: memory for as many, or None to work them out every time; listed: float32[R, m] or None.
    """

    def __init__(self, planes: Any, weights: Any, listed: jax.Array | None) -> None:
        self.planes, self.weights, self.listed = planes, weights, listed
        self.base: jax.Array | None = None
        lanes, most = planes.shape[2] // LANES, max(_TOGETHER * TOPS // planes.shape[0], 1)
        self.wide = LANES * next(n for n in range(min(lanes, most), 0, -1) if lanes % n == 0)

    def slices(self, of: Callable[[Any, Any], Any], start: Any) -> Any:
        """`of(at, carry)` after one another for every `self.wide` columns."""
        count = self.planes.shape[2] // self.wide
        return jax.lax.fori_loop(0, count, lambda k, carry: of(pl.ds(k * self.wide, self.wide), carry), start)

    def fold(self, of: Callable[[jax.Array, jax.Array | float], Sequence[jax.Array]], kinds: Sequence[str]) -> list[jax.Array]:
        def of_slice(at: Any, carry: list[jax.Array]) -> list[jax.Array]:
            found = of(self.planes[:, :, at], self._weight(at))
            every = ([x, *(y[t] for t in range(len(y)))] for x, y in zip(carry, found))
            return [functools.reduce(COMBINE[kind], x) for kind, x in zip(kinds, every)]

        height = self.planes.shape[1]
        lanes = self.slices(of_slice, [jnp.full((height, self.wide), START[kind], jnp.float32) for kind in kinds])
        out = [REDUCE[kind](x, 1, keepdims=True) for kind, x in zip(kinds, lanes)]
        if self.listed is None:
            return out
        found = of(self.listed[None], 1.0 if self.base is None else jnp.exp(self.listed - self.base)[None])
        return [COMBINE[kind](x, REDUCE[kind](y[0], 1, keepdims=True)) for kind, x, y in zip(kinds, out, found)]

    def _weight(self, at: Any) -> jax.Array | float:
        if self.base is None:
            return 1.0
        return jnp.exp(self.planes[:, :, at] - self.base[None]) if self.weights is None else self.weights[:, :, at]

    def weigh(self, base: jax.Array) -> None:
        def of_slice(at: Any, carry: jax.Array) -> jax.Array:
            self.weights[:, :, at] = jnp.exp(self.planes[:, :, at] - base[None])
            return carry

        if self.weights is not None:
            self.slices(of_slice, jnp.int32(0))
        self.base = base

    def any(self, rows: jax.Array) -> jax.Array:
        return jnp.max(jnp.where(rows, 1.0, 0.0)) > 0

    def drawn(self, threshold: jax.Array, key: Words, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Best score of a column and the first that has it, [R, 1] each."""
        shape = (self.planes.shape[1], self.wide)

        def of_slice(at: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            best, first = carry
            column = at.start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
            score = score_of(self.planes[:, :, at], threshold, key, step, column)
            return jnp.maximum(best, score), jnp.where(score > best, column, first)

        start = jnp.full(shape, NEVER, jnp.float32), jnp.full(shape, _NOTHING, jnp.int32)
        return _first_of_best(*self.slices(of_slice, start))


class OfRows(NamedTuple):
    """Numbers of a block of rows, [R, 1] each: words of their keys, step, what the cut is told, inverse temperature or None; and
    their candidates, [R, n]: tokens, and logits, -inf where there is none; None without a list."""

    key: tuple[jax.Array, jax.Array]
    step: jax.Array
    number: jax.Array
    inverse: jax.Array | None
    listed: tuple[jax.Array, jax.Array] | None


class Given(NamedTuple):
    """What a kernel is told besides: numbers for all rows, float32[1, 1]; numbers of rows, 32 bits [n, B], by name; and, with a
    list, tokens int32 and logits float32 of its candidates, [M, B] each."""

    scalars: dict[str, jax.Array]
    rows: dict[str, jax.Array]
    lists: tuple[jax.Array, ...]

    @classmethod
    def of(
        cls,
        number: jax.Array,
        inverse: jax.Array | None,
        noise: tuple[jax.Array, jax.Array],
        listed: tuple[jax.Array, jax.Array] | None,
    ) -> Given:
        """From the arguments of a draw.

        Args:
          number: how much is kept, float32[] or [B].
          inverse: inverse temperature, float32[] or [B, 1], or None.
          noise: key words uint32[B, 2] and step uint32[B]; candidates have the noise of `W + 32` and their token.
          listed: tokens int32[B, M], M at least 1, -1 where not allowed, and their logits float32[B, M].
        """
        scalars, rows = {}, {"key": noise[0].T, "step": noise[1][None]}
        for name, x in (("number", number), ("inverse", inverse)):
            if x is not None and x.ndim == 0:
                scalars[name] = x.reshape(1, 1)
            elif x is not None:
                rows[name] = x.reshape(1, -1)
        return cls(scalars, rows, tuple(x.T for x in listed or ()))

    @property
    def arrays(self) -> list[jax.Array]:
        """In the order of `specs`."""
        return [*self.scalars.values(), *self.rows.values(), *self.lists]

    def specs(self, tile: Callable[..., Any]) -> list[pl.BlockSpec]:
        """Of 128 rows; `tile`: which, of the place in the grid."""
        scalars = [pl.BlockSpec(memory_space=pltpu.SMEM) for _ in self.scalars]
        return scalars + [of_lanes(len(x), tile) for x in (*self.rows.values(), *self.lists)]

    @property
    def memory(self) -> list[Any]:
        """For the numbers of 128 rows, and for turning them."""
        sheets = 1 + sum(-(-len(x) // LANES) for x in self.lists)
        return [pltpu.VMEM((LANES, LANES), jnp.int32), pltpu.VMEM((LANES, LANES * sheets), jnp.int32)]

    @property
    def fields(self) -> int:
        """Numbers that are written of every row."""
        return _FIELDS + (3 if self.lists else 0)

    def turn(self, refs: Sequence[Any], sheet: Any, turned: Any) -> None:
        """Turns 128 rows; `refs`: of `specs`."""
        some = len(self.scalars)
        small, long = refs[some : some + len(self.rows)], refs[some + len(self.rows) :]
        turn([small, *([x] for x in long)], sheet, turned)

    def rows_of(self, refs: Sequence[Any], turned: jax.Array) -> OfRows:
        """Of a block of rows, int32[R, 128 * n] of what `turn` has made."""
        places = np.cumsum([0, *(len(x) for x in self.rows.values())])
        at = {name: turned[:, k : k + 1] for name, k in zip(self.rows, places)}
        at |= {"key1": turned[:, 1:2]}
        floats = {name: jax.lax.bitcast_convert_type(x, jnp.float32) for name, x in at.items()}
        floats |= {name: jnp.full_like(floats["step"], ref[0, 0]) for name, ref in zip(self.scalars, refs)}
        k0, k1, step = (jax.lax.bitcast_convert_type(at[name], jnp.uint32) for name in ("key", "key1", "step"))
        listed = None
        if self.lists:
            width = (turned.shape[1] - LANES) // 2
            token, bits = turned[:, LANES : LANES + width], turned[:, LANES + width :]
            lane = jax.lax.broadcasted_iota(jnp.int32, token.shape, 1)
            x = clean(jax.lax.bitcast_convert_type(bits, jnp.float32))
            listed = token, jnp.where((lane < len(self.lists[0])) & (token >= 0), x, NEVER)
        return OfRows((k0, k1), step, floats["number"], floats.get("inverse"), listed)


def of_lanes(count: int, tile: Callable[..., Any]) -> pl.BlockSpec:
    """Of `count` numbers of 128 rows."""
    return pl.BlockSpec((count, LANES), lambda *place: (0, tile(*place)))


def columns_of_block(width: int) -> int:
    """Of a block of logits of rows that the tops do not tell: few, because one comes in where none is needed."""
    return LANES * (2 if width % (2 * LANES) == 0 else 1)


class Untold(NamedTuple):
    """The blocks of eight rows that the tops do not tell of all.

    blocks: int32[1, n + 1], which of all n, from the first place on, and last how many; turns: how often a grid is to go over
    their rows, and over `columns_of_block` of their columns, int32[1, 1] each; once where there are none.
    """

    blocks: jax.Array
    turns: tuple[jax.Array, jax.Array]


class Written(NamedTuple):
    """What the kernels write of every row: `Settled.packed`, int32[n, B]; and by itself the column that is drawn, int32[1, B],
    the last where there is none. That is an index of reads by XLA, for which a part of an array is an operation of its own."""

    rows: jax.Array
    column: jax.Array

    @staticmethod
    def outputs(given: Given, batch: int, tile: Callable[..., Any]) -> tuple[list[pl.BlockSpec], list[jax.ShapeDtypeStruct]]:
        """How they lie in a kernel, see `Given.specs`, and their shapes."""
        sizes = given.fields, 1
        return [of_lanes(n, tile) for n in sizes], [jax.ShapeDtypeStruct((n, batch), jnp.int32) for n in sizes]

    def write(self, lanes: jax.Array, width: int) -> None:
        """In a kernel, of 128 rows: numbers int32[128, 128] of `packed_lanes`; `width`: how many columns there are."""
        turned = lanes.T
        self._set(turned[: self.rows.shape[0]], jnp.minimum(turned[_COLUMN : _COLUMN + 1], width - 1))

    def copy(self, other: Written) -> None:
        """In a kernel, likewise."""
        self._set(*(x[...] for x in other))

    def _set(self, *values: jax.Array) -> None:
        ref: Any
        for ref, x in zip(self, values):
            ref[...] = x


def settled(cut: Cut, given: Given, tops: jax.Array, lanes: Lanes, *, interpret: bool = False) -> tuple[Written, Untold]:
    """Threshold, draw and sums of every row, and of which rows the tops do not tell.

    Args:
      cut: what is kept.
      given: of the rows.
      tops: float32[TOPS, B, W], scaled, of `tops_of`.
      lanes: of the same pass.
      interpret: run without a TPU, slowly.
    """
    batch, width = tops.shape[1:]
    height, one = min(batch, SUBLANES), jax.ShapeDtypeStruct((1, 1), jnp.int32)
    blocks = -(-batch // height)
    sums, tree = jax.tree.flatten(lanes)

    def tile(i: Any) -> Any:
        return jax.lax.div(i, TURNED)

    specs, shapes = Written.outputs(given, batch, tile)
    rows, column, untold, *turns = pl.pallas_call(
        _kernel(cut, given, tree, batch),
        grid=(blocks,),
        in_specs=[
            pl.BlockSpec((TOPS, height, width), lambda i: (0, i, 0)),
            *(pl.BlockSpec((height, LANES), lambda i: (i, 0)) for _ in sums),
            *given.specs(tile),
        ],
        out_specs=[*specs, *[pl.BlockSpec(memory_space=pltpu.SMEM)] * 3],
        out_shape=[
            *shapes,
            jax.ShapeDtypeStruct((1, blocks + 1), jnp.int32),
            one,
            one,
        ],
        scratch_shapes=[
            pltpu.VMEM((TOPS, height, width), jnp.float32),
            *given.memory,
            pltpu.VMEM((LANES, LANES), jnp.int32),
        ],
        interpret=interpret,
        name="tops_settled",
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
    )(tops, *sums, *given.arrays)
    return Written(rows, column), Untold(untold, (turns[0], turns[1]))


def _kernel(cut: Cut, given: Given, tree: Any, batch: int) -> Callable[..., None]:
    """The kernel of `settled`; `tree`: of the lanes."""
    height = min(batch, SUBLANES)

    def kernel(tops: Any, *refs: Any) -> None:
        own = refs[tree.num_leaves : tree.num_leaves + len(given.arrays)]
        lanes = jax.tree.unflatten(tree, [ref[...] for ref in refs[: tree.num_leaves]])
        out, column, untold, *turns, weights, sheet, turned, results = refs[tree.num_leaves + len(own) :]
        step = pl.program_id(0)
        first = pl.multiple_of(jax.lax.rem(step, TURNED) * SUBLANES, SUBLANES)
        pl.when(first == 0)(lambda: given.turn(own, sheet, turned))
        real = step * height + jax.lax.broadcasted_iota(jnp.int32, (height, 1), 0) < batch
        found = settled_block(cut, tops, weights, lanes, given.rows_of(own, turned[pl.ds(first, height)]), real)
        results[pl.ds(first, height)] = packed_lanes(found)
        tell = jnp.min(jnp.where((found.whole != 0) | ~real, 1.0, 0.0)) > 0
        blocks = untold.shape[1] - 1
        count = jnp.where(step == 0, 0, untold[0, blocks])
        pl.when(step == 0)(lambda: untold.__setitem__((0, 0), 0))
        pl.when(~tell)(lambda: untold.__setitem__((0, count), step))
        count = jnp.where(tell, count, count + 1)
        untold[0, blocks] = count
        for ref, most in zip(turns, (count, tops.shape[2] // columns_of_block(tops.shape[2]))):
            ref[0, 0] = jnp.where(count > 0, most, 1)

        @pl.when((first == LANES - SUBLANES) | (step == pl.num_programs(0) - 1))
        def _() -> None:
            Written(out, column).write(results[...], tops.shape[2])

    return kernel


def packed_lanes(found: Settled) -> jax.Array:
    """Numbers of rows [R, 1] side by side, int32[R, 128]."""
    values = [jax.lax.bitcast_convert_type(x, jnp.int32) for x in jax.tree.leaves(found)]
    lane = jax.lax.broadcasted_iota(jnp.int32, (len(values[0]), LANES), 1)
    out = jnp.zeros(lane.shape, jnp.int32)
    for k, x in enumerate(values):
        out = jnp.where(lane == k, x, out)
    return out


def settled_block(cut: Cut, planes: Any, weights: Any, lanes: Lanes, rows: OfRows, real: jax.Array) -> Settled:
    """Of a block of rows, [R, 1] each; `planes`, `weights`: of `_Block`; `real`: bool[R, 1], all others are left alone."""
    inside = _row_sum(lanes.inside)
    drawn = inside if lanes.drawn is None else _row_sum(lanes.drawn)
    raw = inside if lanes.outside is None else log_add(inside, _row_sum(lanes.outside))
    hidden = jnp.max(lanes.hidden, 1, keepdims=True)
    scaled_list = None
    if rows.listed is not None:
        x = rows.listed[1]
        scaled_list = x if rows.inverse is None else jnp.where(x == NEVER, NEVER, scaled(x, rows.inverse))
        inside, drawn = log_add(inside, _log_sum(x)), log_add(drawn, _log_sum(scaled_list))
    number = rows.number
    if cut is not Cut.COUNT:
        number = jnp.log(number)
    if cut is Cut.MASS:
        number = jnp.where(rows.number >= 1, jnp.inf, drawn + number)
    cells = _Block(planes, weights, scaled_list)
    threshold = threshold_of(cells, cut, number, hidden, real)
    score, column = cells.drawn(threshold, rows.key, rows.step)
    whole = jnp.where(threshold > hidden, 1, 0)
    candidate = None
    if rows.listed is not None and scaled_list is not None:
        token, x = rows.listed
        noisy = scaled_list + gumbel(rows.key, rows.step, (planes.shape[2] + 32 + token).astype(jnp.uint32))
        noisy = jnp.where((x > NEVER) & (scaled_list >= threshold), noisy, NEVER)
        best, first = _first_of_best(noisy, token)
        value = jnp.max(jnp.where((noisy == best) & (token == first), x, NEVER), 1, keepdims=True)
        candidate = best, first, value
    return Settled(threshold, score, column, inside, raw, whole, candidate)


def _row_sum(x: Sum) -> jax.Array:
    """Logarithm of the sum over all lanes, [R, 1], -inf for none."""
    most = jnp.max(x.most, 1, keepdims=True)
    base = finite(most)
    return base + jnp.log(jnp.sum(x.total * jnp.exp(x.most - base), 1, keepdims=True))


def _log_sum(x: jax.Array) -> jax.Array:
    base = finite(jnp.max(x, 1, keepdims=True))
    return base + jnp.log(jnp.sum(jnp.exp(x - base), 1, keepdims=True))


def _first_of_best(score: jax.Array, item: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of every row, [R, 1] each, the best score and the least of its items."""
    best = jnp.max(score, 1, keepdims=True)
    return best, jnp.min(jnp.where(score == best, item, _NOTHING), 1, keepdims=True)
