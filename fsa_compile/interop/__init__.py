"""Constraints inside other people's servers and samplers: masks on the host, and the request formats that servers take.

* `matcher`: `Matcher`, with the vocabulary of a serving engine's grammar backend.
* `jump_forward`: `forced_bytes`, the text that a constraint forces.
* `torch_processor`: `ConstraintLogitsProcessor` for PyTorch `transformers`; its work is in `batch_masks`, without torch.
* `response_format`: `compile_response_format`, for `response_format`, `tools`, `tool_choice` and structural tags.
* `structured_outputs`: `compile_structured_outputs`, for vLLM's field of this name.
* `output_format`, `frame_text`: what those describe as a tree, and the tree as a byte machine.

Nothing here imports jax; torch is imported when a processor is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "BatchMasks": "batch_masks",
    "ConstraintLogitsProcessor": "torch_processor",
    "FormatError": "request",
    "Matcher": "matcher",
    "ToolTags": "response_format",
    "compile_response_format": "response_format",
    "compile_structured_outputs": "structured_outputs",
    "forced_bytes": "jump_forward",
}

if TYPE_CHECKING:
    from fsa_compile.interop.batch_masks import BatchMasks as BatchMasks
    from fsa_compile.interop.jump_forward import forced_bytes as forced_bytes
    from fsa_compile.interop.matcher import Matcher as Matcher
    from fsa_compile.interop.request import FormatError as FormatError
    from fsa_compile.interop.response_format import ToolTags as ToolTags
    from fsa_compile.interop.response_format import compile_response_format as compile_response_format
    from fsa_compile.interop.structured_outputs import compile_structured_outputs as compile_structured_outputs
    from fsa_compile.interop.torch_processor import ConstraintLogitsProcessor as ConstraintLogitsProcessor

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fsa_compile.interop' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fsa_compile.interop.{home}"), name)
    globals()[name] = value
    return value
