"""Samples from JAX language models inside compiled constraints, entirely on the accelerator.

Needs jax and NumPy. Names load on first use; only that jax can be found is checked at once, since nothing here does without.
"""

import importlib.util

import lazy_loader

if importlib.util.find_spec("jax") is None:
    from jax_decode.errors import MissingPackageError

    raise MissingPackageError("jax", "Decoding", "decode")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
