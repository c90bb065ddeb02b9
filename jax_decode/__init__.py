"""Samples from JAX language models inside compiled constraints, entirely on the accelerator.

Needs jax and NumPy. Names load on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Categorical": "samplers",
    "Choice": "sampling",
    "ConstraintState": "state",
    "ConstraintTables": "tables",
    "DecodeError": "errors",
    "Decoder": "decoder",
    "FunctionDecoder": "decoder",
    "Generation": "generation",
    "Greedy": "samplers",
    "MinP": "samplers",
    "Status": "state",
    "TopK": "samplers",
    "TopP": "samplers",
    "advance": "transition",
    "generate": "generating",
    "init_state": "state",
    "key_words": "noise",
    "load_orbax": "orbax",
    "mask": "masking",
    "mask_logits": "masking",
    "mask_words": "masking",
    "sample": "sampling",
    "save_orbax": "orbax",
    "to_device": "tables",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jax_decode' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jax_decode.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
