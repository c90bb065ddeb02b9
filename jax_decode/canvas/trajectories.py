"""The jitted loop of denoising: canvases are filled step by step inside a constraint, weighted, and resampled in their groups.

A step draws a block from the model's distribution given the constraint, which is not what the model's own sampler would do, did
one know that its canvas would keep to the constraint. The weights hold the difference, so that sequential Monte Carlo over
whole trajectories has the distribution of that sampler's canvases, given that they keep to the constraint. Half of several
canvases (of an odd number, one less than the others) are drawn by that sampler itself, which bounds the weights: of N, no canvas
counts more than N / (N // 2) times, which is twice or, of an odd number, at most three times.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.canvas.canvas import by_row, distributions, fill_and_settle, read
from jax_decode.canvas.canvas_tables import BLOCK, CanvasTables
from jax_decode.kernels.noise import gumbel, threefry
from jax_decode.kernels.planes import NEVER, finite, log_sum
from jax_decode.probability.resampling import effective_size, systematic

_KEPT = 2**31
"""Counter of the noise that decides which canvas of a group is kept; those of steps are smaller."""
_FREE = 2**32 - 2
"""Index of the noise that decides which canvases of a resampled group are the model's own."""


class Way(NamedTuple):
    """How positions are settled, traced.

    Attributes:
      temperature: float32[], of the model's distributions.
      left_to_right: bool[], whether positions are settled in their order; otherwise those of the least entropy first.
      resample_below: float32[], a group is resampled when its effective size is below this share of it.
    """

    temperature: jax.Array
    left_to_right: jax.Array
    resample_below: jax.Array


class Sizes(NamedTuple):
    """Static: tokens of a canvas and of a block of it, steps of a block, canvases of a group."""

    length: int
    block: int
    steps: int
    draws: int


class Trajectories(NamedTuple):
    """Canvases on their way.

    Attributes:
      canvas: int32[B, L], the mask's id where nothing is settled.
      settled: int32[B, L], the step in which a position was settled, or -1.
      state: int32[B], where the text stands before the block; 0 if it cannot be completed, or the model gave no number.
      free: bool[B], whether the model's own sampler draws it.
      log_ratio: float32[B], its log-probability by the model's own sampler less that by draws inside the constraint, since the
        group was resampled.
      log_weight: float32[B], of the trajectory at that time, at the end of all of it; its mean over a group estimates the
        probability of the constraint.
    """

    canvas: jax.Array
    settled: jax.Array
    state: jax.Array
    free: jax.Array
    log_ratio: jax.Array
    log_weight: jax.Array


@functools.partial(jax.jit, static_argnames="sizes")
def trajectories(
    denoiser: Any,
    prompts: jax.Array,
    tables: CanvasTables | None,
    key: jax.Array,
    which: jax.Array,
    way: Way,
    *,
    sizes: Sizes,
) -> tuple[Trajectories, jax.Array]:
    """All trajectories at their end, and which one of every group of rows is kept, int32[B / draws].

    Args:
      denoiser, prompts int32[B, P], tables, which int32[B]: as in `denoise`; `draws` consecutive rows are a group.
      key: uint32[B, 2].
      way, sizes: how positions are settled, and how many.
    """
    length, block, steps, draws = sizes

    def step(at: jax.Array, p: Trajectories) -> Trajectories:
        if tables is not None and draws > 1:
            p = _resampled(p, key, at, way.resample_below, draws)
        first = at // steps * block
        cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=first, slice_size=block, axis=1)
        paste = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=1)
        logits = cut(denoiser(prompts, p.canvas)).astype(jnp.float32).at[..., denoiser.mask_id].set(NEVER)
        x = distributions(logits, 1 / way.temperature).at[..., denoiser.mask_id].set(NEVER)
        p = p._replace(state=jnp.where(jnp.isnan(x).any((1, 2)), 0, p.state))
        now, known = cut(p.canvas), cut(p.settled) >= 0
        words = threefry(key, jnp.full(len(x), at, jnp.uint32), jnp.arange(2, dtype=jnp.uint32)[None, :])
        wanted = block * (at % steps + 1) // steps  # of this block, by the end of this step
        settle, fixed = _choice(x, known, wanted, way.left_to_right), jnp.where(known, now, -1)
        if tables is None:
            tokens = drawn(x, words, fixed)
        else:
            rows = read(tables, x, words, fixed=fixed, which=which, state=p.state, remaining=length - first - block)
            given = None if draws == 1 else jnp.where(p.free[:, None], drawn(x, words, fixed), -1)
            (tokens, _, mass, behind), after = by_row(fill_and_settle, tables, rows, settle | known, given)
            p = p._replace(
                state=jnp.where((after > NEVER) & (p.state > 0), jnp.where(at % steps == steps - 1, behind, p.state), 0),
                log_ratio=p.log_ratio + finite(mass) - finite(after),
            )
        canvas, settled = (jnp.where(settle, new, cut(old)) for new, old in ((tokens, p.canvas), (at, p.settled)))
        return p._replace(canvas=paste(p.canvas, canvas), settled=paste(p.settled, settled))

    rows = len(prompts)
    canvas = jnp.full((rows, length), denoiser.mask_id, jnp.int32)
    index, groups = jnp.arange(draws, dtype=jnp.int32), rows // draws
    state, free, none = jnp.ones(rows, jnp.int32), jnp.arange(rows) % draws < draws // 2, jnp.zeros(rows, jnp.float32)
    start = Trajectories(canvas, jnp.full_like(canvas, -1), state, free, none, none)
    p = jax.lax.fori_loop(0, length // block * steps, step, start)
    p = p._replace(log_weight=_weight(p, draws))
    noise = gumbel(key[::draws], jnp.full(groups, _KEPT, jnp.uint32), index.astype(jnp.uint32)[None, :])
    kept = jnp.arange(groups, dtype=jnp.int32) * draws + (p.log_weight.reshape(groups, draws) + noise).argmax(1).astype(jnp.int32)
    return p._replace(canvas=jnp.where(p.state[:, None] > 0, p.canvas, -1)), kept


def drawn(x: jax.Array, key: jax.Array, fixed: jax.Array) -> jax.Array:
    """Tokens drawn from every position on its own, int32[B, L]: a block of the vocabulary first, then a token of it.

    Arguments as in `canvas.read`.
    """
    rows, length, width = x.shape
    blocks = jnp.pad(x, ((0, 0), (0, 0), (0, -width % BLOCK)), constant_values=NEVER).reshape(rows, length, -1, BLOCK)

    def best(kind: int, of: jax.Array) -> jax.Array:
        index = jnp.arange(of.shape[2], dtype=jnp.uint32)[None, :]
        noise = jax.vmap(lambda l: gumbel(key, jnp.full(rows, l, jnp.uint32), index), out_axes=1)(2 * jnp.arange(length) + kind)
        return (of + noise).argmax(2).astype(jnp.int32)

    part = best(0, jax.nn.logsumexp(blocks, axis=3))
    within = best(1, jnp.take_along_axis(blocks, part[..., None, None], 2)[:, :, 0])
    return jnp.where(fixed >= 0, fixed, part * BLOCK + within)


def _choice(x: jax.Array, known: jax.Array, wanted: jax.Array, left_to_right: jax.Array) -> jax.Array:
    """Which positions are settled now, bool[B, L]: as many as are missing of `wanted`.

    It depends on the distributions, not on what was drawn: so the constraint changes the tokens of a trajectory, not its order,
    and weights are masses alone.
    """
    certain = (jnp.exp(x) * finite(x)).sum(2)  # more is less entropy
    rank = jnp.where(left_to_right, -jnp.arange(x.shape[1], dtype=jnp.float32)[None, :], certain)
    place = jnp.argsort(jnp.argsort(-jnp.where(known, jnp.inf, rank), axis=1), axis=1)
    return (place < wanted) & ~known


def _weight(p: Trajectories, draws: int) -> jax.Array:
    """Log-weights of all trajectories, float32[B]: of their draws, by the mixture of both ways to draw.

    Source: Hesterberg 1995, Weighted Average Importance Sampling and Defensive Mixture Distributions.
    """
    share = draws // 2 / draws
    ratio = -jnp.logaddexp(jnp.log(share), jnp.log1p(-share) - p.log_ratio) if share else p.log_ratio
    return jnp.where(p.state > 0, p.log_weight + ratio, NEVER)


def _resampled(p: Trajectories, key: jax.Array, at: jax.Array, resample_below: jax.Array, draws: int) -> Trajectories:
    """The trajectories, of which groups of too small an effective size are resampled: those that cannot be completed, and those
    that only the constraint wanted, give way to others."""
    rows, groups = len(p.state), len(p.state) // draws
    weights = _weight(p, draws).reshape(groups, draws)
    size = effective_size(weights)
    chosen = ((size < resample_below * draws) & (size > 0))[:, None]

    def forked(p: Trajectories) -> Trajectories:
        now, index = jnp.broadcast_to(at.astype(jnp.uint32), (groups,)), jnp.arange(draws, dtype=jnp.int32)[None, :]
        parent = jnp.where(chosen, systematic(weights, key[::draws], now), index)
        parent = (jnp.arange(0, rows, draws, dtype=jnp.int32)[:, None] + parent).reshape(-1)
        # Siblings follow each other: which of them are the model's own is turned by chance, so that all have the same share.
        turn = threefry(key[::draws], now, jnp.full((1, 1), _FREE, jnp.uint32)) % draws
        free = (index.astype(jnp.uint32) + turn) % draws < draws // 2
        mean = log_sum(weights)[:, None] - jnp.log(jnp.float32(draws))
        afresh, own = jnp.broadcast_to(chosen, weights.shape).reshape(-1), jax.tree.map(lambda a: a[parent], p)
        return own._replace(
            free=jnp.where(afresh, free.reshape(-1), own.free),
            log_ratio=jnp.where(afresh, 0.0, own.log_ratio),
            log_weight=jnp.where(afresh, jnp.broadcast_to(mean, weights.shape).reshape(-1), own.log_weight),
        )

    return jax.lax.cond(chosen.any(), forked, lambda p: p, p)
