"""Masked-diffusion models inside a constraint: canvases are filled block by block, the surest tokens or the leftmost first."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_decode.canvas.canvas import by_row, fill_with_confidence, read
from jax_decode.canvas.canvas_tables import CanvasTables
from jax_decode.errors import DecodeError, is_whole
from jax_decode.kernels.noise import gumbel, key_words, threefry
from jax_decode.kernels.planes import NEVER

_LAST = 1e6
"""What is taken from the rank of tokens that end a text."""


@dataclasses.dataclass(frozen=True)
class Denoised:
    """Canvases that a model filled.

    Attributes:
      tokens: int32[B, L]; -1 throughout a row whose constraint no canvas of this length keeps.
      settled: int32[B, L], the step in which each position was settled, counted from 0: for pictures.
      log_weights: float32[B, N], importance log-weights of all draws of each row: how probable the model's own sampler makes a
        canvas, relative to how probable it was drawn; -inf where there is none.
    """

    tokens: NDArray[np.int32]
    settled: NDArray[np.int32]
    log_weights: NDArray[np.float32]

    def text(self, tokenizer: Any) -> list[str]:
        """The texts up to their stop ids; `tokenizer` is as in `Generation.text`."""
        tokenizer = getattr(tokenizer, "vocabulary", tokenizer)
        rows = []
        for row in self.tokens.tolist():
            end = next((i for i, token in enumerate(row) if token in tokenizer.stop_ids or token < 0), len(row))
            rows.append(tokenizer.decode(row[:end]))
        return rows


def denoise(
    denoiser: Any,
    prompts: Any,
    tables: CanvasTables | None,
    *,
    key: jax.Array,
    length: int,
    block: int | None = None,
    steps: int = 8,
    temperature: float = 1.0,
    which: Any = None,
    left_to_right: bool = False,
    draws: int = 1,
) -> Denoised:
    """Fills a canvas behind every prompt, in one jitted program.

    A block begins masked. In every step the model gives a distribution for each of its positions; an exact sample of the block is
    drawn, given the constraint and the tokens that are settled; and the tokens of it that are the most probable, given the same,
    are settled, those that end the text last, since they would fix its length. So what is settled can always be completed.
    Without a constraint positions are drawn on their own.

    Args:
      denoiser: a pytree with `mask_id` and a call `(prompt int32[B, P], canvas int32[B, L]) -> logits float[B, L, V]`, such as
        `models.load_small_denoiser()`.
      prompts: int32[B, P], in the form that the model reads.
      tables: from `to_canvas`, or None.
      key: a typed PRNG key; every row gets its own.
      length: L, tokens of the canvas.
      block: tokens of a block, a divisor of `length`; None for one block.
      steps: per block.
      temperature: of the model's distributions, above 0.
      which: int32[B], the constraint of each row; default: 0.
      left_to_right: whether positions are settled in their order instead of the surest first; best with as many steps as a block
        has tokens.
      draws: N, canvases of every row, of which one is kept, by weight. What the model's own sampler would have written is kept
        more often than what only the constraint wanted. With `left_to_right`, one position per step, and many draws, what is kept
        follows the distribution of the model's own sampler given the constraint, as rejection does.

    Returns:
      The canvases. Every text of a row with a constraint is complete and in its language.

    Raises:
      DecodeError: an argument is wrong.
    """
    block = length if block is None else block
    _check({"length": length, "block": block, "steps": steps, "draws": draws}, temperature)
    prompts = jnp.asarray(prompts)
    if prompts.ndim != 2 or not jnp.issubdtype(prompts.dtype, jnp.integer):
        raise DecodeError(f"the prompts are {prompts.dtype}{list(prompts.shape)}", fix="Pass int32[B, P].")
    words = key_words(jax.random.split(key, len(prompts) * draws))
    which = jnp.zeros(len(prompts), jnp.int32) if which is None else jnp.asarray(which, jnp.int32)
    prompts, which = (jnp.repeat(x.astype(jnp.int32), draws, axis=0) for x in (prompts, which))
    given = (denoiser, prompts, tables, words, jnp.float32(temperature), which, jnp.bool_(left_to_right))
    tokens, settled, weights = jax.device_get(_denoised(*given, length=length, block=block, steps=steps))
    weights = weights.reshape(-1, draws)
    noise = np.random.default_rng(np.asarray(words).reshape(-1)).gumbel(size=weights.shape)
    kept = np.arange(len(weights)) * draws + (weights + noise).argmax(1)
    return Denoised(tokens[kept], settled[kept], weights)


def _check(numbers: dict[str, Any], temperature: Any) -> None:
    for name, value in numbers.items():
        if not is_whole(value, 1):
            raise DecodeError(f"{name} is {value!r}", fix="Give a whole number of at least 1.")
    if numbers["length"] % numbers["block"]:
        what = f"a canvas of {numbers['length']} tokens is not made of blocks of {numbers['block']}"
        raise DecodeError(what, fix="Let block divide length.")
    if not temperature > 0:
        raise DecodeError(f"the temperature is {temperature!r}", fix="Give a number above 0; near 0 the best tokens are taken.")


@functools.partial(jax.jit, static_argnames=("length", "block", "steps"))
def _denoised(
    denoiser: Any,
    prompts: jax.Array,
    tables: CanvasTables | None,
    key: jax.Array,
    temperature: jax.Array,
    which: jax.Array,
    left_to_right: jax.Array,
    *,
    length: int,
    block: int,
    steps: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, steps and log-weights of every row.

    The log-weight adds, for every token that is settled, its log-probability under the model minus that given the constraint.
    """
    rows = len(prompts)

    def step(at: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        canvas, settled, state, _, weight = carry
        first = at // steps * block
        logits = jax.lax.dynamic_slice_in_dim(denoiser(prompts, canvas), first, block, 1).astype(jnp.float32)
        logits = logits.at[..., denoiser.mask_id].set(NEVER)
        now = jax.lax.dynamic_slice_in_dim(canvas, first, block, 1)
        known = jax.lax.dynamic_slice_in_dim(settled, first, block, 1) >= 0
        x = jax.nn.log_softmax(logits / temperature)
        words = threefry(key, jnp.full(rows, at, jnp.uint32), jnp.arange(2, dtype=jnp.uint32)[None, :])
        tokens, sure, behind = proposed(tables, x, words, jnp.where(known, now, -1), which, state, length - first - block)
        wanted = block * (at % steps + 1) // steps  # of this block, by the end of this step
        rank = sure
        if tables is not None:
            rank = jnp.where((tokens[..., None] == tables.end_token[which][:, None]).any(-1), sure - _LAST, sure)
        rank = jnp.where(left_to_right, -jnp.arange(block, dtype=jnp.float32)[None, :], rank)
        place = jnp.argsort(jnp.argsort(-jnp.where(known, jnp.inf, rank), axis=1), axis=1)
        settle = (place < wanted) & ~known
        own = jnp.take_along_axis(x, jnp.maximum(tokens, 0)[..., None], 2)[..., 0]
        weight += jnp.where(settle, own - sure, 0.0).sum(1)
        canvas = jax.lax.dynamic_update_slice_in_dim(canvas, jnp.where(settle, tokens, now), first, 1)
        when = jnp.where(settle, at, jax.lax.dynamic_slice_in_dim(settled, first, block, 1))
        settled = jax.lax.dynamic_update_slice_in_dim(settled, when, first, 1)
        last = at % steps == steps - 1
        return canvas, settled, jnp.where(last, behind, state), behind, weight

    canvas = jnp.full((rows, length), denoiser.mask_id, jnp.int32)
    start = jnp.ones(rows, jnp.int32)
    carry = (canvas, jnp.full_like(canvas, -1), start, start, jnp.zeros(rows, jnp.float32))
    canvas, settled, state, _, weight = jax.lax.fori_loop(0, length // block * steps, step, carry)
    return jnp.where(state[:, None] > 0, canvas, -1), settled, jnp.where(state > 0, weight, NEVER)


def proposed(
    tables: CanvasTables | None,
    x: jax.Array,
    key: jax.Array,
    fixed: jax.Array,
    which: jax.Array,
    state: jax.Array,
    remaining: jax.Array | int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One denoising step's proposal for every position: all that a model's own sampler needs of the constraint.

    Args:
      tables: from `to_canvas`, or None.
      x: float32[B, L, V], log-probabilities.
      key: uint32[B, 2]; fixed: int32[B, L], settled tokens, -1 elsewhere; which, state, remaining: as in `most_probable`.

    Returns:
      int32[B, L], a sample that keeps to the constraint; float32[B, L], the log-probability of each of its tokens, given the
      constraint; int32[B], the state behind the canvas.
    """
    if tables is None:
        index = jnp.arange(x.shape[2], dtype=jnp.uint32)[None, :]
        noise = jax.vmap(lambda l: gumbel(key, jnp.full(len(x), l, jnp.uint32), index), out_axes=1)(jnp.arange(x.shape[1]))
        token = jnp.where(fixed >= 0, fixed, (x + noise).argmax(-1).astype(jnp.int32))
        return token, jnp.take_along_axis(x, token[..., None], 2)[..., 0], state
    rows = read(tables, x, key, fixed=fixed, which=which, state=state, remaining=remaining)
    filled, sure = by_row(fill_with_confidence, tables, rows)
    return filled.tokens, sure, filled.state
