"""Constraints inside other people's servers and samplers: masks on the host, and the request formats that servers take.

* `matcher`: `Matcher`, with the vocabulary of a serving engine's grammar backend.
* `jump_forward`: `forced_bytes`, the text that a constraint forces.
* `torch_processor`: `ConstraintLogitsProcessor` for PyTorch `transformers`; its work is in `batch_masks`, without torch.
* `response_format`: `compile_response_format`, for `response_format`, `tools`, `tool_choice` and structural tags.
* `structured_outputs`: `compile_structured_outputs`, for vLLM's field of this name.
* `tree`, `framing`: what those describe as a tree, and the tree as a byte machine.

Nothing here imports jax; torch is imported when a processor is called.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
