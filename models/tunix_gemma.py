"""A model of this package as google-tunix's Gemma 3, for its samplers and trainers. That package is imported on use."""

from __future__ import annotations

import importlib
from typing import Any

import jax.numpy as jnp
from flax import nnx

from models import layouts
from models.errors import ModelError, named_arguments
from models.gemma import Gemma


@named_arguments
def to_tunix(model: Gemma) -> Any:
    """The same network with the same parameters as a `tunix.models.gemma3.model.Gemma3`, an NNX module.

    Args:
      model: such as `load_small()`.

    Raises:
      ModelError: google-tunix is not installed.
    """
    try:
        gemma3: Any = importlib.import_module("tunix.models.gemma3.model")
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{error.name} is not installed, a package of google-tunix or one that it needs", fix="pip install google-tunix"
        ) from error
    c = model.config
    kinds = {"local": gemma3.AttentionType.LOCAL_SLIDING, "global": gemma3.AttentionType.GLOBAL}
    # The pattern of layers is a constant of that module, which its layers read while they are made.
    before, gemma3.GEMMA3_ATTENTION_PATTERN = gemma3.GEMMA3_ATTENTION_PATTERN, tuple(kinds[k.value] for k in c.attention_pattern)
    try:
        config = gemma3.ModelConfig(
            num_layers=c.num_layers, num_embed=c.vocab_size, embed_dim=c.embed_dim, hidden_dim=c.hidden_dim,
            num_heads=c.num_heads, head_dim=c.head_dim, num_kv_heads=c.num_kv_heads, sliding_window_size=c.sliding_window,
            local_base_frequency=int(c.local_rope_base), global_base_frequency=int(c.global_rope_base), param_dtype=jnp.float32,
        )  # fmt: skip
        other = gemma3.Gemma3(config, rngs=nnx.Rngs(0))
    finally:
        gemma3.GEMMA3_ATTENTION_PATTERN = before
    state = nnx.state(other, nnx.Param)
    values: dict[Any, Any] = dict(nnx.to_flat_state(state))
    for name, value in layouts.flatten(model.params).items():
        layer, _, rest = name.partition("/")
        of_layer = layer.startswith("layer_")
        path: tuple[Any, ...] = ("layers", int(layer[6:]), *rest.split("/")) if of_layer else tuple(name.split("/"))
        if rest == "mlp/gating_einsum":
            for part, kernel in zip(("gate_proj", "up_proj"), value):
                values[(*path[:-1], part, "kernel")].set_value(kernel.T)
        elif rest == "mlp/linear":
            values[(*path[:-1], "down_proj", "kernel")].set_value(value)
        else:
            values[path].set_value(value)
    nnx.update(other, state)
    return other
