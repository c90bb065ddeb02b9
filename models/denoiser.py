"""`Denoiser`: a Gemma network that fills in masked tokens of a canvas behind a prompt, as diffusion language models do.

The small one that comes with the package was made by `tools.small_model.train_diffusion`.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from models.errors import ModelError, named_arguments, named_fields
from models.gemma import Gemma

PROMPT, CANVAS, BLOCK = 80, 48, 16
"""Tokens of the small denoiser: room for the prompt, of the canvas, and of a block of it."""
PAD_ID, EOS_ID, MASK_ID = 0, 1, 3
"""What stands before a short prompt, what ends a text and fills the canvas behind it, and what is not known yet."""


@named_fields
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Denoiser:
    """A network that sees the whole canvas, as a pytree.

    Attributes:
      model: with attention to both sides (`GemmaConfig.bidirectional`).
      mask_id: token of a position that is to be filled in (static).
    """

    model: Gemma
    mask_id: int = dataclasses.field(default=MASK_ID, metadata={"static": True})

    @property
    def vocab_size(self) -> int:
        """The width of the logits, V."""
        return self.model.vocab_size

    def prompts(self, texts: Any, tokenizer: Any) -> np.ndarray:
        """Prompts as the small denoiser reads them, int32[B, PROMPT]: aligned to the right, after the id that starts a text.

        Raises:
          ModelError: a prompt is too long.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        out = np.full((len(texts), PROMPT), PAD_ID, np.int32)
        for i, text in enumerate(texts):
            row = [tokenizer.vocabulary.bos_id, *tokenizer.encode(text)]
            if len(row) > PROMPT:
                raise ModelError(f"Prompt {i} has {len(row)} tokens.", fix=f"The small denoiser reads at most {PROMPT}.")
            out[i, PROMPT - len(row) :] = row
        return out

    def __call__(self, prompt: jax.Array, canvas: jax.Array) -> jax.Array:
        """Logits of every position of a canvas, float32[B, L, V]; `prompt` int32[B, P], `canvas` int32[B, L] with `mask_id`."""
        both = jax.numpy.concatenate([prompt, canvas], axis=1)
        return self.model.forward(both, skip=prompt.shape[1])


@named_arguments
def load_small_denoiser(dtype: Any = "float32") -> Denoiser:
    """The small denoiser, about 1.5 million parameters; it knows the prompts of the small model.

    Raises:
      CheckpointError: the checkpoint is missing or damaged.
    """
    from models import load

    return Denoiser(load(None, pathlib.Path(__file__).parent / "small_diffusion" / "checkpoint", dtype=dtype))
