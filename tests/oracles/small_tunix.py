"""The small model that comes with the package as google-tunix's Gemma 3. Needs that package."""

from __future__ import annotations

import jax.numpy as jnp
from flax import nnx
from tunix.models.gemma3 import model as gemma3

import models
from models import layouts


def small_tunix():
    """Its network with the same parameters: an NNX module as Tunix's samplers and trainers take them."""
    small = models.load_small()
    c = small.config
    kinds = {"local": gemma3.AttentionType.LOCAL_SLIDING, "global": gemma3.AttentionType.GLOBAL}
    pattern, gemma3.GEMMA3_ATTENTION_PATTERN = gemma3.GEMMA3_ATTENTION_PATTERN, tuple(kinds[k.value] for k in c.attention_pattern)
    try:
        config = gemma3.ModelConfig(
            num_layers=c.num_layers, num_embed=c.vocab_size, embed_dim=c.embed_dim, hidden_dim=c.hidden_dim, num_heads=c.num_heads,
            head_dim=c.head_dim, num_kv_heads=c.num_kv_heads, sliding_window_size=c.sliding_window,
            local_base_frequency=int(c.local_rope_base), global_base_frequency=int(c.global_rope_base), param_dtype=jnp.float32,
        )  # fmt: skip
        model = gemma3.Gemma3(config, rngs=nnx.Rngs(0))
    finally:
        gemma3.GEMMA3_ATTENTION_PATTERN = pattern
    state = nnx.state(model, nnx.Param)
    values = dict(nnx.to_flat_state(state))
    for name, value in layouts.flatten(small.params).items():
        layer, _, rest = name.partition("/")
        path = ("layers", int(layer[6:]), *rest.split("/")) if layer.startswith("layer_") else tuple(name.split("/"))
        if rest == "mlp/gating_einsum":
            for part, kernel in zip(("gate_proj", "up_proj"), value):
                values[(*path[:-1], part, "kernel")].set_value(kernel.T)
        elif rest == "mlp/linear":
            values[(*path[:-1], "down_proj", "kernel")].set_value(value)
        else:
            values[path].set_value(value)
    nnx.update(model, state)
    return model
