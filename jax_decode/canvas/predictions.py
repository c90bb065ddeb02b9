"""The constraint's part of the diffusion sampler in the `gemma` repository, which renoises what it has not accepted yet."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jax_decode.canvas.canvas import by_row, check_canvas, check_which, distributions, fill, read
from jax_decode.canvas.canvas_tables import CanvasTables
from jax_decode.errors import DecodeError, is_number, is_whole, shown
from jax_decode.kernels.noise import key_words
from jax_decode.kernels.planes import finite


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ConstrainedPredictions:
    """What `gemma.diffusion`'s `DiffusionSampler(sample_from_predictions=...)` calls in every step, inside a constraint.

    Tokens are an exact sample of the canvas given the constraint. Those of least entropy are accepted, until their entropies come
    to the bound, and the others are replaced by random ids, as without a constraint; in the last step all are accepted, so that
    the text of the canvas is in the language. It has to end within one canvas, and the sampler must not stop early: its
    other canvases hold random ids.

    Attributes:
      tables: from `to_canvas`, with the sampler's `end_tokens` as stop ids; constants of the sampler's program.
      text_vocab_size: random ids are below.
      entropy_bound: nats.
      which: the constraint of all rows.

    Raises:
      DecodeError: no text of the constraint fits into a canvas (when it is traced).

    Source: the published interface, `SampleFromPredictions` in `gemma/diffusion/_sampler.py` of google-deepmind/gemma.
    """

    tables: CanvasTables
    text_vocab_size: int
    entropy_bound: float = 0.1
    which: int = 0

    def _check(self) -> None:
        check_canvas(self.tables)
        check_which(self.tables, self.which)
        if not is_whole(self.which, 0) or not is_whole(self.text_vocab_size, 1) or not is_number(self.entropy_bound, 0):
            told = f"which={shown(self.which)}, {shown(self.text_vocab_size)} ids, entropy_bound={shown(self.entropy_bound)}"
            raise DecodeError(f"predictions cannot be made with {told}", fix="Give whole numbers, and nats of at least 0.")

    def __call__(
        self,
        *,
        rng: jax.Array,
        denoiser_logits: jax.Array,
        canvas: jax.Array,
        current_noise_proportion: jax.Array,
        target_noise_proportion: jax.Array,
    ) -> jax.Array:
        """The next canvas, int32[B, L]: logits float[B, L, V], canvas int32[B, L], proportions float[B]."""
        del current_noise_proportion
        self._check()
        rows, length = canvas.shape
        if (least := int(np.asarray(self.tables.distance)[self.which, 1])) > length:
            what = f"a text of the constraint has at least {least} tokens, and the canvas {length}"
            raise DecodeError(what, fix="Give the sampler a longer canvas_length.")
        drawn, renoised = jax.random.split(rng)
        x = distributions(denoiser_logits)
        asked = read(self.tables, x, key_words(jax.random.split(drawn, rows)), which=jnp.int32(self.which))
        filled = by_row(functools.partial(fill, True), self.tables, asked)
        entropy = -(jnp.exp(x) * finite(x)).sum(2)
        order = jnp.argsort(entropy, axis=1)
        ordered = jnp.take_along_axis(entropy, order, 1)
        below = jnp.cumsum(ordered, axis=1) - ordered <= float(self.entropy_bound)
        accepted = jnp.take_along_axis(below, jnp.argsort(order, axis=1), 1)
        accepted |= (target_noise_proportion <= 0)[:, None]
        random = jax.random.randint(renoised, canvas.shape, 0, self.text_vocab_size, jnp.int32)
        return jnp.where(accepted, filled.tokens, random)
