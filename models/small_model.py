"""The small trained model that comes with the package, and the small programmer with its tokenizer: where the files are.

One responsibility: finding the shipped files, which needs no package. How they were made is in `tools.small_model.train_small`
and `tools.small_model.train_programmer`.
"""

from __future__ import annotations

import importlib.resources
import pathlib
from typing import TYPE_CHECKING

from models.errors import CheckpointError, named_arguments

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from models.gemma import Gemma


def _shipped(name: str) -> pathlib.Path:
    path = pathlib.Path(str(importlib.resources.files("models"))) / "small" / name
    if not path.exists():
        raise CheckpointError(
            "The small model's files are not here.",
            where=str(path),
            fix="Install the package from a folder (not from inside a zip file), or run "
            "`python -m tools.small_model.train_small --out models/small` in the repository.",
        )
    return path


@named_arguments
def small_tokenizer_path() -> pathlib.Path:
    """The SentencePiece `.model` file of the small model.

    Raises:
      CheckpointError: The file did not come with this installation.
    """
    return _shipped("tokenizer.model")


def small_checkpoint_path() -> pathlib.Path:
    """The Orbax checkpoint of the small model (official nested layout, bfloat16), a folder.

    Raises:
      CheckpointError: The folder did not come with this installation.
    """
    return _shipped("checkpoint")


@named_arguments
def load_small(dtype: DTypeLike = "float32") -> Gemma:
    """The small trained model, about 1.5 million parameters; it knows the prompts of `tools.small_model.corpus`.

    Args:
      dtype: Dtype of the parameters. The file holds bfloat16, which is slow on CPUs; "bfloat16" keeps it.

    Returns:
      The model, on the default device.

    Raises:
      CheckpointError: The checkpoint is missing or damaged.
      MissingPackageError: JAX, Flax or Orbax is not installed.

    Examples:
      >>> import models
      >>> models.load_small().vocab_size
      2048
    """
    from models import load  # through the package, which explains what is not installed

    return load(None, small_checkpoint_path(), dtype=dtype)


@named_arguments
def load_small_programmer(dtype: DTypeLike = "float32") -> Gemma:
    """The small model after some minutes on small Python functions; it knows the comments of `tools.small_model.program_corpus`.

    Its prompts are such comments, one line each, and its tokenizer is the small model's.

    Args:
      dtype: Dtype of the parameters, as for `load_small`.

    Raises:
      CheckpointError: The checkpoint is missing or damaged.
      MissingPackageError: JAX, Flax or Orbax is not installed.
    """
    from models import load

    return load(None, pathlib.Path(__file__).parent / "small_programmer" / "checkpoint", dtype=dtype)
