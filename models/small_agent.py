"""The small agent: the small trained model after it learned to call tools in two protocols of chat models.

One responsibility: finding the shipped files. How they were made is in `tools.small_model.train_agent`.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from models.errors import ModelError, named_arguments

if TYPE_CHECKING:
    from models.gemma import Gemma

_FOLDER = pathlib.Path(__file__).parent / "small_agent"
PROTOCOLS = ("gemma4", "qwen3")


@named_arguments
def small_agent_tokenizer_path() -> pathlib.Path:
    """The SentencePiece `.model` file of the small agent: the small model's pieces and the special tokens of two protocols."""
    return _FOLDER / "tokenizer.model"


@named_arguments
def small_agent_template(protocol: str) -> str:
    """The chat template that the small agent learned for "gemma4" or "qwen3", Jinja text.

    Raises:
      ModelError: it did not learn that protocol.
    """
    if protocol not in PROTOCOLS:
        raise ModelError(f"The small agent knows no protocol {protocol!r:.60}.", fix=f"It knows {' and '.join(PROTOCOLS)}.")
    return (_FOLDER / f"{protocol}.jinja").read_text(encoding="utf-8")


@named_arguments
def load_small_agent(dtype: Any = "float32") -> Gemma:
    """The small agent, about 1.5 million parameters; it knows the tools of `tools.small_model.agent_corpus`.

    Raises:
      CheckpointError: the checkpoint is missing or damaged.
    """
    from models import load

    return load(None, _FOLDER / "checkpoint", dtype=dtype)
