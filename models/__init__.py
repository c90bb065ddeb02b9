"""Gemma text models in Flax NNX, their checkpoints, and small models for tests and demos.

Names load on first use, so that importing this package costs neither JAX nor Flax.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Attention": "models.config",
    "CONFIGS": "models.config",
    "CheckpointError": "models.errors",
    "ConfigError": "models.errors",
    "Gemma": "models.gemma",
    "GemmaConfig": "models.config",
    "KVCache": "models.kv_cache",
    "ModelError": "models.errors",
    "Transformer": "models.transformer",
    "get_config": "models.config",
    "load": "models.checkpoint",
    "load_small": "models.small_model",
    "save": "models.checkpoint",
    "small_tokenizer_path": "models.small_model",
    "tiny_gemma": "models.tiny",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        raise _explained(error) from error


def _explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, or the one that names the extra, if a package of the extra is missing."""
    from models.errors import MissingPackageError

    missing = (error.name or "").partition(".")[0]
    return MissingPackageError(missing) if missing in ("jax", "jaxlib", "flax", "orbax", "safetensors") else error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
