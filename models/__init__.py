"""Gemma text models in Flax NNX, their checkpoints, and small models for tests and demos.

Names load on first use, so that importing this package costs neither JAX nor Flax.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        raise _explained(error) from error


def _explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, or the one that names the extra, if a package of the extra is missing."""
    from models.errors import MissingPackageError

    missing = (error.name or "").partition(".")[0]
    return MissingPackageError(missing) if missing in ("jax", "jaxlib", "flax", "orbax", "safetensors") else error
