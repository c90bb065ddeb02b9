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
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
