"""Seeded random Gemma models of a few thousand parameters, one per variant of the architecture, for tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from models.config import Attention, GemmaConfig, gemma1, gemma2, gemma3
from models.errors import ConfigError, named_arguments
from models.gemma import Gemma

_WINDOW = 8  # short, so that tests pass it soon

VARIANTS = ("gemma1-mha", "gemma1-mqa", "gemma2", "gemma3")


def tiny_config(variant: str = "gemma3", vocab_size: int = 64) -> GemmaConfig:
    """A very small configuration of one of `VARIANTS`.

    Raises:
      ConfigError: there is no such variant.
    """
    size = {"vocab_size": vocab_size, "embed_dim": 16, "hidden_dim": 32, "head_dim": 8}
    match variant:
        case "gemma1-mha":
            return gemma1(**size, num_layers=2, num_heads=2, num_kv_heads=2)
        case "gemma1-mqa":
            return gemma1(**size, num_layers=2, num_heads=2, num_kv_heads=1)
        case "gemma2":
            return gemma2(
                **size, num_layers=2, num_heads=4, num_kv_heads=2, sliding_window=_WINDOW, query_scalar=16 // 4
            )
        case "gemma3":
            pattern = (Attention.LOCAL, Attention.LOCAL, Attention.GLOBAL)
            return gemma3(
                **size,
                num_layers=3,
                num_heads=4,
                num_kv_heads=2,
                sliding_window=_WINDOW,
                attention_pattern=pattern,
                global_rope_scale=8.0,
            )
    raise ConfigError(f"There is no tiny variant {variant!r}.", fix=f"Use one of {', '.join(VARIANTS)}.")


@named_arguments
def tiny_gemma(
    seed: int = 0, variant: str = "gemma3", vocab_size: int = 64, dtype: DTypeLike = jnp.float32
) -> Gemma:
    """A random model of `tiny_config(variant, vocab_size)`; the same seed gives the same parameters."""
    return Gemma.init(tiny_config(variant, vocab_size), jax.random.key(seed), dtype=dtype)
