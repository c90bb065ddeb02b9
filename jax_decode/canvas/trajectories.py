"""The jitted loop of denoising: canvases are filled step by step inside a constraint, weighted, and resampled in their groups.

A step draws a block from the model's distribution given the constraint, which is not what the model's own sampler would do, did
one know that its canvas would keep to the constraint. The weights hold the difference, so that sequential Monte Carlo over
whole trajectories has the distribution of that sampler's canvases, given that they keep to the constraint.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_decode.canvas.canvas import by_row, fill_and_settle, mass_of, read
from jax_decode.canvas.canvas_tables import BLOCK, CanvasTables
from jax_decode.kernels.noise import gumbel, threefry
from jax_decode.kernels.planes import NEVER, finite, log_sum
from jax_decode.probability.resampling import effective_size, systematic

_KEPT = 2**31
"""Counter of the noise that decides which canvas of a group is kept; those of steps are smaller."""


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
      state: int32[B], where the text stands before the block.
      log_weight: float32[B], of the trajectory; its mean over a group estimates the probability of the constraint.
    """

    canvas: jax.Array
    settled: jax.Array
    state: jax.Array
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
        first = at // steps * block
        cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=first, slice_size=block, axis=1)
        paste = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=1)
        logits = cut(denoiser(prompts, p.canvas)).astype(jnp.float32).at[..., denoiser.mask_id].set(NEVER)
        x = jax.nn.log_softmax(logits / way.temperature)
        asked = {"which": which, "remaining": length - first - block}
        if tables is not None and draws > 1:
            fixed = jnp.where(cut(p.settled) >= 0, cut(p.canvas), -1)
            mass = by_row(mass_of, tables, read(tables, x, key, fixed=fixed, state=p.state, **asked))
            p, x = _resampled(p, x, mass, key, at, way.resample_below, draws)
        now, known = cut(p.canvas), cut(p.settled) >= 0
        words = threefry(key, jnp.full(len(x), at, jnp.uint32), jnp.arange(2, dtype=jnp.uint32)[None, :])
        wanted = block * (at % steps + 1) // steps  # of this block, by the end of this step
        settle = _choice(x, known, wanted, way.left_to_right)
        if tables is None:
            tokens = drawn(x, words, jnp.where(known, now, -1))
        else:
            rows = read(tables, x, words, fixed=jnp.where(known, now, -1), state=p.state, **asked)
            (tokens, _, mass, behind), after = by_row(fill_and_settle, tables, rows, settle | known)
            weight = (p.log_weight if draws > 1 else p.log_weight + mass) - finite(after)
            state = jnp.where(at % steps == steps - 1, behind, p.state)
            p = p._replace(log_weight=jnp.where(mass > NEVER, weight, NEVER), state=state)
        canvas, settled = (jnp.where(settle, new, cut(old)) for new, old in ((tokens, p.canvas), (at, p.settled)))
        return p._replace(canvas=paste(p.canvas, canvas), settled=paste(p.settled, settled))

    rows = len(prompts)
    canvas = jnp.full((rows, length), denoiser.mask_id, jnp.int32)
    start = Trajectories(canvas, jnp.full_like(canvas, -1), jnp.ones(rows, jnp.int32), jnp.zeros(rows, jnp.float32))
    p = jax.lax.fori_loop(0, length // block * steps, step, start)
    index, groups = jnp.arange(draws, dtype=jnp.int32), rows // draws
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


def _resampled(
    p: Trajectories, x: jax.Array, mass: jax.Array, key: jax.Array, at: jax.Array, resample_below: jax.Array, draws: int
) -> tuple[Trajectories, jax.Array]:
    """The trajectories and their distributions with the constraint's mass in this step in the weights, and groups of too small an
    effective size resampled: those that the model would hardly complete give way before they are completed.

    Source: Whiteley and Lee 2014, Twisted particle filters; the twist is the mass.
    """
    rows, groups = len(x), len(x) // draws
    p = p._replace(log_weight=p.log_weight + mass)
    weights = p.log_weight.reshape(groups, draws)
    size = effective_size(weights)
    chosen = ((size < resample_below * draws) & (size > 0))[:, None]

    def forked(p: Trajectories, x: jax.Array) -> tuple[Trajectories, jax.Array]:
        parent = systematic(weights, key[::draws], jnp.broadcast_to(at.astype(jnp.uint32), (groups,)))
        parent = jnp.where(chosen, parent, jnp.arange(draws, dtype=jnp.int32)[None, :])
        parent = (jnp.arange(0, rows, draws, dtype=jnp.int32)[:, None] + parent).reshape(-1)
        mean = log_sum(weights)[:, None] - jnp.log(jnp.float32(draws))
        p, x = jax.tree.map(lambda a: a[parent], (p, x))
        return p._replace(log_weight=jnp.where(chosen, mean, weights).reshape(-1)), x

    return jax.lax.cond(chosen.any(), forked, lambda p, x: (p, x), p, x)
