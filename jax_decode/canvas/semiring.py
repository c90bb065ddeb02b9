"""Sums over all texts of a constraint on a canvas, in the log semiring and in the max-plus semiring.

Everything is a sum over lists that were made beforehand: tokens → classes → token sets → labels → edges → states.
Work per position is the vocabulary once, plus the edges; never states times vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.canvas.canvas_tables import BLOCK, CanvasTables
from jax_decode.kernels.planes import NEVER, finite

_UNROLLED = 16
"""Most edges of a state whose sum is written out; the sum of more is one of partial sums."""


@dataclasses.dataclass(frozen=True)
class Semiring:
    """How weights of alternatives are added; those of consecutive tokens are added as numbers.

    Attributes:
      segments: `(values [n, ...], index int32[n], count)` -> the sum of every index, [count, ...], -inf for none.
      sum: of an array over an axis.
      elementwise: the sum of several arrays; compiled into one loop over their elements.
    """

    segments: Callable[[jax.Array, jax.Array, int], jax.Array]
    sum: Callable[[jax.Array, int], jax.Array]
    elementwise: Callable[[Sequence[jax.Array]], jax.Array]


def _log_segments(values: jax.Array, index: jax.Array, count: int) -> jax.Array:
    base = finite(jax.ops.segment_max(values, index, count))
    return base + jnp.log(jax.ops.segment_sum(jnp.exp(values - base[index]), index, count))


def _log_sum(values: jax.Array, axis: int) -> jax.Array:
    base = finite(values.max(axis))
    return base + jnp.log(jnp.exp(values - jnp.expand_dims(base, axis)).sum(axis))


def _log_elementwise(values: Sequence[jax.Array]) -> jax.Array:
    base = finite(_largest(values))
    return base + jnp.log(functools.reduce(jnp.add, [jnp.exp(v - base) for v in values]))


def _largest(values: Sequence[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.maximum, values)


LOG = Semiring(_log_segments, _log_sum, _log_elementwise)
"""Probabilities of alternatives add up."""
MAX = Semiring(jax.ops.segment_max, lambda values, axis: values.max(axis), _largest)
"""The best of the alternatives counts."""


class SetWeights(NamedTuple):
    """Weights at every position: float32[J, L] of token sets, [K, L] of token classes, [N / BLOCK, L] of blocks of a class."""

    values: jax.Array
    classes: jax.Array
    blocks: jax.Array


def set_weights(ring: Semiring, tables: CanvasTables, x: jax.Array) -> SetWeights:
    """The weights of everything that log-probabilities are read for; x: float32[L, V']."""
    by_token = x.T
    wide = by_token.at[tables.order].get(mode="fill", fill_value=NEVER)
    blocks = ring.sum(wide.reshape(-1, BLOCK, x.shape[0]), 1)
    classes = ring.segments(blocks, tables.block_class, tables.holds.shape[1])
    rows = ring.segments(classes[tables.held_class], tables.held_row, tables.holds.shape[0])
    values = jnp.concatenate([rows, by_token.at[tables.arc_token].get(mode="fill", fill_value=NEVER)])
    return SetWeights(values, classes, blocks)


def label_weights(ring: Semiring, tables: CanvasTables, values: jax.Array) -> jax.Array:
    """The weight of every label at every position, float32[L, G]."""
    return ring.segments(values[tables.term_value], tables.term_label, len(tables.first_term)).T


def forward(ring: Semiring, tables: CanvasTables, labels: jax.Array, state: jax.Array) -> jax.Array:
    """The weight of all beginnings that lead to a state, before every position, float32[L, S]."""
    first = jnp.where(jnp.arange(len(tables.distance)) == state, 0.0, NEVER)
    rows = _rows(tables, tables.entering, tables.source)

    def step(alpha: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _sums(ring, rows, weight, alpha)[tables.entered], alpha

    return jax.lax.scan(step, first, labels)[1]


def backward(ring: Semiring, tables: CanvasTables, labels: jax.Array, remaining: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The weight of all ways to go on from a state: before the first position float32[S], and behind every one float32[L, S]."""
    last = jnp.where(tables.distance <= remaining, 0.0, NEVER)
    rows = _rows(tables, tables.leaving, tables.target)

    def step(beta: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _sums(ring, rows, weight, beta), beta

    return jax.lax.scan(step, last, labels, reverse=True)


def through(ring: Semiring, tables: CanvasTables, labels: jax.Array, ahead: jax.Array, behind: jax.Array) -> jax.Array:
    """The weight of all texts at every position, float32[L], with other weights of its labels than the position had in `forward`,
    whose result is `ahead`, and in `backward`, whose result is `behind`."""
    rows = _rows(tables, tables.leaving, tables.target)
    return ring.sum(ahead + jax.lax.map(lambda at: _sums(ring, rows, *at), (labels, behind)), 1)


_Rows = list[tuple[jax.Array, jax.Array]]
"""Of edges, labels and the states at one end, int32[at most _UNROLLED, *, n] each."""


def _rows(tables: CanvasTables, edges: Sequence[jax.Array], ends: jax.Array) -> _Rows:
    shaped = [e.reshape(min(len(e), _UNROLLED), -1, e.shape[1]) for e in edges]
    return [(tables.edge_label[e], ends[e]) for e in shaped]


def _sums(ring: Semiring, rows: _Rows, weight: jax.Array, ends: jax.Array) -> jax.Array:
    """The sum of every column of edges, in their order: of a label's weight and that of a state."""
    each = [ring.elementwise([weight[label] + ends[end] for label, end in zip(*of, strict=True)]) for of in rows]
    return jnp.concatenate([of[0] if len(of) == 1 else ring.sum(of, 0) for of in each])
