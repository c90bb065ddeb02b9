"""Masked-diffusion models inside a constraint: canvases are filled block by block, the surest tokens or the leftmost first."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_decode.canvas.canvas import by_row, check_canvas, check_which, fill_with_confidence, read
from jax_decode.canvas.canvas_tables import CanvasTables
from jax_decode.canvas.trajectories import Sizes, Way, drawn, trajectories
from jax_decode.decoding.inputs import check_pytree, checked_key
from jax_decode.decoding.vocabularies import speller
from jax_decode.errors import DecodeError, checked_flag, is_number, is_whole, named_arguments, shown
from jax_decode.kernels.noise import key_words
from jax_decode.sampling.samplers import check_number
from jax_decode.step.argument_checks import check_key_words, is_floats, kind_of, numbers_of


@dataclasses.dataclass(frozen=True)
class Denoised:
    """Canvases that a model filled.

    Attributes:
      tokens: int32[B, L]; -1 throughout a row whose constraint no canvas of this length keeps, or for which the model gave a
        position no number. A single logit that is -inf or NaN makes its token improbable, not impossible.
      settled: int32[B, L], the step in which each position was settled, counted from 0: for pictures.
      log_weights: float32[B, N], log-weights of all draws of each row. The mean weight is an unbiased estimate of the probability
        that the model's own sampler keeps to the constraint. -inf where there is no canvas, 0 without a constraint.
    """

    tokens: NDArray[np.int32]
    settled: NDArray[np.int32]
    log_weights: NDArray[np.float32]

    def text(self, tokenizer: Any) -> list[str]:
        """The texts up to their stop ids; `tokenizer` is as in `Generation.text`."""
        tokenizer = speller(tokenizer, "")
        if not hasattr(tokenizer, "stop_ids"):
            what = f"a {type(tokenizer).__name__} has no 'stop_ids'"
            raise DecodeError(what, fix="Pass what fsa_compile.load_tokenizer(path) returns.")
        size, rows = getattr(tokenizer, "size", None), []
        for row in self.tokens.tolist():
            end = next((i for i, token in enumerate(row) if token in tokenizer.stop_ids or token < 0), len(row))
            rows.append(tokenizer.decode([token for token in row[:end] if size is None or token < size]))
        return rows


@named_arguments
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
    resample_below: float = 0.5,
) -> Denoised:
    """Fills a canvas behind every prompt, in one jitted program.

    A block begins masked. In every step the model gives a distribution for each of its positions; an exact sample of the block is
    drawn, given the constraint and the tokens that are settled; and its tokens at the positions of which the model is the
    surest (of the least entropy) are settled. So what is settled can always be completed. Without a constraint positions are
    drawn on their own: this is the model's own sampler, and those of its canvases that keep to the constraint are what
    rejection returns. Of several draws, half of them by that sampler, one is kept; the more, the closer to that distribution.

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
      draws: N, canvases of every row that are filled side by side (sequential Monte Carlo), of which one is kept: those which
        only the constraint wanted give way to copies of those which the model would have written.
      resample_below: a row's canvases are resampled when their effective number is below this share of N; 0 for never.

    Returns:
      The canvases. Every text of a row with a constraint is complete and in its language.

    Raises:
      DecodeError: an argument is wrong.

    Source: Del Moral, Doucet, Jasra 2006, Sequential Monte Carlo Samplers.
    """
    block = length if block is None else block
    _check(denoiser, {"length": length, "block": block, "steps": steps, "draws": draws}, temperature, resample_below)
    prompts, which = _rows(prompts, tables, which)
    words = key_words(jax.random.split(checked_key(key, 1, 1).reshape(()), len(prompts) * draws))
    prompts, which = (jnp.repeat(jnp.asarray(x, jnp.int32), draws, axis=0) for x in (prompts, which))
    way = Way(jnp.float32(temperature), jnp.bool_(checked_flag(left_to_right, "left_to_right")), jnp.float32(resample_below))
    made = trajectories(denoiser, prompts, tables, words, which, way, sizes=Sizes(length, block, steps, draws))
    end, kept = jax.device_get(made)
    return Denoised(end.canvas[kept], end.settled[kept], end.log_weight.reshape(-1, draws))


def _rows(prompts: Any, tables: Any, which: Any) -> tuple[Any, Any]:
    """Prompts and the rows' constraints, checked."""
    what, fix = f"the prompts are {kind_of(prompts)}", "Pass int32[B, P]."
    if np.ndim(numbers_of(prompts, what, fix)) != 2:
        raise DecodeError(what, fix=fix)
    rows = len(prompts)
    if tables is not None:
        check_canvas(tables)
        check_which(tables, which)
    if which is not None and np.shape(which) != (rows,):
        raise DecodeError(f"which has shape {np.shape(which)}", fix=f"Pass int32[{rows}].")
    return prompts, np.zeros(rows, np.int32) if which is None or tables is None else which


def _check(denoiser: Any, counts: dict[str, Any], temperature: Any, resample_below: Any) -> None:
    if not callable(denoiser) or not hasattr(denoiser, "mask_id"):
        fix = "Give a model with mask_id, called as denoiser(prompt, canvas)."
        raise DecodeError(f"a {type(denoiser).__name__} is no denoiser", fix=fix)
    check_pytree(denoiser, f"the denoiser ({type(denoiser).__name__})")
    for name, value in counts.items():
        if not is_whole(value, 1):
            raise DecodeError(f"{name} is {shown(value)}", fix="Give a whole number of at least 1.")
    if counts["length"] % counts["block"]:
        what = f"a canvas of {counts['length']} tokens is not made of blocks of {counts['block']}"
        raise DecodeError(what, fix="Let block divide length.")
    check_number(temperature, "temperature", math.inf, "", "Give a number above 0; near 0 the best tokens are taken.")
    if not is_number(resample_below, 0):
        raise DecodeError(f"resample_below is {shown(resample_below)}", fix="Give a number of at least 0; 0 never resamples.")


@named_arguments
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
        if not is_floats(x, 3):
            raise DecodeError(f"the log-probabilities are {kind_of(x)}", fix="Pass float32[B, L, V]: log_softmax(logits).")
        check_key_words(key, len(x), "proposed")
        what, fix = f"fixed is {kind_of(fixed)}", f"Pass int32{list(x.shape[:2])}, -1 where nothing is settled."
        if np.shape(numbers_of(fixed, what, fix)) != x.shape[:2]:
            raise DecodeError(what, fix=fix)
        token = drawn(x, key, jnp.asarray(fixed, jnp.int32))
        return token, jnp.take_along_axis(x, token[..., None], 2)[..., 0], state
    rows = read(tables, x, key, fixed=fixed, which=which, state=state, remaining=remaining)
    filled, sure = by_row(fill_with_confidence, tables, rows)
    return filled.tokens, sure, filled.state
