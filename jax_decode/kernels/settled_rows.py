"""What a sampler that cuts off chooses of every row: one kernel of a TPU over the largest logits of every column.

Eight rows are worked on at a time, one in every sublane. Their numbers come and go as XLA has them, with a row in every lane:
128 rows of them are turned at once.
"""

from __future__ import annotations

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
    """`Cells` of the kernel: tops [TOPS, R, W], memory for their weights, and the scaled logits of candidates [R, n] or None."""

    def __init__(self, tops: Any, weights: Any, listed: jax.Array | None) -> None:
        self.tops, self.weights, self.listed = tops, weights, listed
        self.listed_weights: jax.Array | None = None
        self.weighed = False
        lanes = tops.shape[2] // LANES
        self.wide = LANES * next(n for n in range(min(lanes, _TOGETHER), 0, -1) if lanes % n == 0)

    def slices(self, of: Callable[[Any, Any], Any], start: Any) -> Any:
        """`of(at, carry)` after one another for every `self.wide` columns."""
        count = self.tops.shape[2] // self.wide
        return jax.lax.fori_loop(0, count, lambda k, carry: of(pl.ds(k * self.wide, self.wide), carry), start)

    def fold(self, of: Callable[[jax.Array, jax.Array | float], Sequence[jax.Array]], kinds: Sequence[str]) -> list[jax.Array]:
        def of_slice(at: Any, carry: list[jax.Array]) -> list[jax.Array]:
            for t in range(TOPS):
                found = of(self.tops[t, :, at], self.weights[t, :, at] if self.weighed else 1.0)
                carry = [COMBINE[kind](x, y) for kind, x, y in zip(kinds, carry, found)]
            return carry

        height = self.tops.shape[1]
        lanes = self.slices(of_slice, [jnp.full((height, self.wide), START[kind], jnp.float32) for kind in kinds])
        out = [REDUCE[kind](x, 1, keepdims=True) for kind, x in zip(kinds, lanes)]
        if self.listed is None:
            return out
        found = of(self.listed, 1.0 if self.listed_weights is None else self.listed_weights)
        return [COMBINE[kind](x, REDUCE[kind](y, 1, keepdims=True)) for kind, x, y in zip(kinds, out, found)]

    def weigh(self, base: jax.Array) -> None:
        def of_slice(at: Any, carry: jax.Array) -> jax.Array:
            for t in range(TOPS):
                self.weights[t, :, at] = jnp.exp(self.tops[t, :, at] - base)
            return carry

        self.slices(of_slice, jnp.int32(0))
        if self.listed is not None:
            self.listed_weights = jnp.exp(self.listed - base)
        self.weighed = True

    def any(self, rows: jax.Array) -> jax.Array:
        return jnp.max(jnp.where(rows, 1.0, 0.0)) > 0

    def drawn(self, threshold: jax.Array, key: Words, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Best score of a column and the first that has it, [R, 1] each."""
        shape = (self.tops.shape[1], self.wide)

        def of_slice(at: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            best, first = carry
            column = at.start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
            score = score_of([self.tops[t, :, at] for t in range(TOPS)], threshold, key, step, column)
            return jnp.maximum(best, score), jnp.where(score > best, column, first)

        start = jnp.full(shape, NEVER, jnp.float32), jnp.full(shape, _NOTHING, jnp.int32)
        return _first_of_best(*self.slices(of_slice, start))


class _Rows(NamedTuple):
    """Numbers of a block of rows, [R, 1] each: words of their keys, step, what the cut is told, inverse temperature or None; and
    their candidates, [R, n]: tokens, and logits, -inf where there is none; None without a list."""

    key: tuple[jax.Array, jax.Array]
    step: jax.Array
    number: jax.Array
    inverse: jax.Array | None
    listed: tuple[jax.Array, jax.Array] | None


def settled(
    cut: Cut,
    number: jax.Array,
    tops: jax.Array,
    lanes: Lanes,
    listed: tuple[jax.Array, jax.Array] | None,
    inverse: jax.Array | None,
    noise: tuple[jax.Array, jax.Array],
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Threshold, draw and sums of every row: `Settled.packed`, int32[n, B], and whether the tops tell of all, int32[], 0 or 1.

    Args:
      cut, number: how much is kept, float32[] or [B].
      tops: float32[TOPS, B, W], scaled, of `tops_of`.
      lanes: of the same pass.
      listed: tokens int32[B, M] of the candidates, M at least 1, -1 where not allowed, and their logits float32[B, M].
      inverse: inverse temperature, float32[] or [B, 1], or None.
      noise: key words uint32[B, 2] and step uint32[B]; candidates have the noise of `W + 32` and their token.
      interpret: run without a TPU, slowly.
    """
    batch, width = tops.shape[1:]
    height, of_candidates = min(batch, SUBLANES), list(listed or ())
    given = _Given.of(number, inverse, noise, batch)
    sums, tree = jax.tree.flatten(lanes)
    in_lanes = [*given.rows.values(), *(x.T for x in of_candidates)]
    fields, sheets = _FIELDS + (3 if listed else 0), 1 + sum(-(-x.shape[1] // LANES) for x in of_candidates)

    def of_lanes(count: int) -> pl.BlockSpec:
        return pl.BlockSpec((count, LANES), lambda i: (0, jax.lax.div(i, TURNED)))

    rows, every = pl.pallas_call(
        _kernel(cut, given, tree, [x.shape[1] for x in of_candidates], batch),
        grid=(-(-batch // height),),
        in_specs=[
            pl.BlockSpec((TOPS, height, width), lambda i: (0, i, 0)),
            *(pl.BlockSpec((height, LANES), lambda i: (i, 0)) for _ in sums),
            *(pl.BlockSpec(memory_space=pltpu.SMEM) for _ in given.scalars),
            *(of_lanes(len(x)) for x in in_lanes),
        ],
        out_specs=[of_lanes(fields), pl.BlockSpec(memory_space=pltpu.SMEM)],
        out_shape=[jax.ShapeDtypeStruct((fields, batch), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.int32)],
        scratch_shapes=[
            pltpu.VMEM((TOPS, height, width), jnp.float32),
            pltpu.VMEM((LANES, LANES), jnp.int32),
            pltpu.VMEM((LANES, LANES * sheets), jnp.int32),
            pltpu.VMEM((LANES, LANES), jnp.int32),
        ],
        interpret=interpret,
        name="tops_settled",
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
    )(tops, *sums, *given.scalars.values(), *in_lanes)
    return rows, every[0, 0]


def _kernel(cut: Cut, given: _Given, tree: Any, lists: Sequence[int], batch: int) -> Callable[..., None]:
    """The kernel of `settled`; `tree`: of the lanes; `lists`: the lengths of the lists of candidates."""
    height = min(batch, SUBLANES)

    def kernel(*refs: Any) -> None:
        left = list(refs)
        tops = left.pop(0)
        lanes = jax.tree.unflatten(tree, [left.pop(0)[...] for _ in range(tree.num_leaves)])
        scalars = {name: left.pop(0)[0, 0] for name in given.scalars}
        small, long = [left.pop(0) for _ in given.rows], [left.pop(0) for _ in lists]
        out, every, weights, sheet, turned, results = left
        step = pl.program_id(0)
        first = pl.multiple_of(jax.lax.rem(step, TURNED) * SUBLANES, SUBLANES)
        pl.when(first == 0)(lambda: turn([small, *([x] for x in long)], sheet, turned))
        rows = given.rows_of(turned[pl.ds(first, height)], scalars, lists)
        real = step * height + jax.lax.broadcasted_iota(jnp.int32, (height, 1), 0) < batch
        found = _settled_block(cut, tops, weights, lanes, rows, real)
        lane = jax.lax.broadcasted_iota(jnp.int32, (height, LANES), 1)
        kept, values = jnp.zeros(lane.shape, jnp.int32), jax.tree.leaves(found)
        for k, x in enumerate(values):
            kept = jnp.where(lane == k, jax.lax.bitcast_convert_type(x, jnp.int32), kept)
        results[pl.ds(first, height)] = kept
        tell = jnp.where(jnp.min(jnp.where((found.whole != 0) | ~real, 1.0, 0.0)) > 0, 1, 0)
        every[0, 0] = jnp.where(step == 0, tell, every[0, 0] & tell)

        @pl.when((first == LANES - SUBLANES) | (step == pl.num_programs(0) - 1))
        def _() -> None:
            out[...] = results[...].T[: len(values)]

    return kernel


class _Given(NamedTuple):
    """What the kernel is told besides: numbers for all rows, float32[1, 1], and numbers of rows, 32 bits [n, B], by name."""

    scalars: dict[str, jax.Array]
    rows: dict[str, jax.Array]

    @classmethod
    def of(cls, number: jax.Array, inverse: jax.Array | None, noise: tuple[jax.Array, jax.Array], batch: int) -> _Given:
        """From the arguments of `settled`."""
        scalars, rows = {}, {"key": noise[0].T, "step": noise[1][None]}
        for name, x in (("number", number), ("inverse", inverse)):
            if x is not None and x.ndim == 0:
                scalars[name] = x.reshape(1, 1)
            elif x is not None:
                rows[name] = x.reshape(1, batch)
        return cls(scalars, rows)

    def rows_of(self, turned: jax.Array, scalars: dict[str, jax.Array], lists: Sequence[int]) -> _Rows:
        """Of a block of rows, int32[R, 128 * n] of `turn`; `scalars`: of all; `lists`: the lengths of the lists."""
        places = np.cumsum([0, *(len(x) for x in self.rows.values())])
        at = {name: turned[:, k : k + 1] for name, k in zip(self.rows, places)}
        at |= {"key1": turned[:, 1:2]}
        floats = {name: jax.lax.bitcast_convert_type(x, jnp.float32) for name, x in at.items()}
        floats |= {name: jnp.full_like(floats["step"], x) for name, x in scalars.items()}
        k0, k1, step = (jax.lax.bitcast_convert_type(at[name], jnp.uint32) for name in ("key", "key1", "step"))
        listed = None
        if lists:
            width = (turned.shape[1] - LANES) // 2
            token, bits = turned[:, LANES : LANES + width], turned[:, LANES + width :]
            lane = jax.lax.broadcasted_iota(jnp.int32, token.shape, 1)
            x = clean(jax.lax.bitcast_convert_type(bits, jnp.float32))
            listed = token, jnp.where((lane < lists[0]) & (token >= 0), x, NEVER)
        return _Rows((k0, k1), step, floats["number"], floats.get("inverse"), listed)


def _settled_block(cut: Cut, tops: Any, weights: Any, lanes: Lanes, rows: _Rows, real: jax.Array) -> Settled:
    """Of a block of rows, [R, 1] each; `tops`, `weights`: memory for [TOPS, R, W]."""
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
    cells = _Block(tops, weights, scaled_list)
    threshold = threshold_of(cells, cut, number, hidden, real)
    score, column = cells.drawn(threshold, rows.key, rows.step)
    whole = jnp.where(threshold > hidden, 1, 0)
    candidate = None
    if rows.listed is not None and scaled_list is not None:
        token, x = rows.listed
        noisy = scaled_list + gumbel(rows.key, rows.step, (tops.shape[2] + 32 + token).astype(jnp.uint32))
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
