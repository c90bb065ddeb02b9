"""Constraints on a canvas: positions that are filled in any order, as diffusion language models fill them.

`unfolding` writes a constraint out as a finite automaton over tokens (NumPy); `canvas_tables` lays its edges out on the device;
`semiring` sums or maximizes over all of its texts; `canvas` answers: the most probable text, an exact sample, marginals, the
mass; `trajectories` fills canvases with a model, block by block, for `denoising`; `predictions` is a step of another sampler.
"""

from jax_decode.canvas.canvas import Filled, Marginals, log_mass, marginals, most_probable, sample
from jax_decode.canvas.canvas_tables import CanvasTables, to_canvas
from jax_decode.canvas.denoising import Denoised, denoise, proposed
from jax_decode.canvas.predictions import ConstrainedPredictions

__all__ = [
    "CanvasTables",
    "ConstrainedPredictions",
    "Denoised",
    "Filled",
    "Marginals",
    "denoise",
    "log_mass",
    "marginals",
    "most_probable",
    "proposed",
    "sample",
    "to_canvas",
]
