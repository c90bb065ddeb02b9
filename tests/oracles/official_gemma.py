"""Oracle: the official `gemma` package on our configurations and parameters. Needs its own environment.

That environment is `tests/models/parity/requirements-gemma3.txt`; importing this module alone needs only ours.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.config import Attention, GemmaConfig
from models.gemma import abstract_params

BATCH, LENGTH = 2, 24  # three times the sliding window of the tiny models


def official_logits(config: GemmaConfig, params: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """Logits float32[B, L, V] of the official model with our parameters.

    Args:
      config: our configuration.
      params: nested parameters.
      tokens: int32[B, L], none of them 0 (which the official code takes for padding).
    """
    gm = import_gm()
    model = gm.nn.Gemma3_1B(config=official_config(config), dtype=jnp.float32)
    out = model.apply({"params": params}, jnp.asarray(tokens))
    return np.asarray(out.logits, np.float32)


def import_gm() -> Any:
    """The official module `gemma.gm`; its checkpoint part still wants a class that kauldron has since renamed."""
    from kauldron import kd

    if not hasattr(kd.ckpts, "AbstractPartialLoader"):
        kd.ckpts.AbstractPartialLoader = kd.ckpts.InitTransform
    from gemma import gm

    return gm


def official_config(config: GemmaConfig) -> Any:
    from gemma.gm.nn import _config, _modules

    kinds = {
        Attention.LOCAL: _modules.AttentionType.LOCAL_SLIDING,
        Attention.GLOBAL: _modules.AttentionType.GLOBAL,
    }
    scaling = _config.QueryPreAttentionNormalisation
    by_width = config.query_scalar == config.embed_dim // config.num_heads
    if config.query_scalar and not by_width:
        raise ValueError(f"The official package has no query scale {config.query_scalar} ** -0.5.")
    return _config.TransformerConfig(
        num_embed=config.vocab_size,
        embed_dim=config.embed_dim,
        hidden_dim=config.hidden_dim,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        num_kv_heads=config.num_kv_heads,
        final_logit_softcap=config.final_soft_cap,
        use_post_attn_norm=config.post_attention_norm,
        use_post_ffw_norm=config.post_ffw_norm,
        attention_types=tuple(kinds[config.layer_kind(i)] for i in range(config.num_layers)),
        query_pre_attn_norm=(
            scaling.BY_ONE_OVER_SQRT_EMBED_DIM_DIV_NUM_HEADS if by_width else scaling.BY_ONE_OVER_SQRT_HEAD_DIM
        ),
        attn_logits_soft_cap=config.attention_soft_cap,
        sliding_window_size=config.sliding_window,
        transpose_gating_einsum=config.transposed_gating,
        use_qk_norm=config.qk_norm,
        local_base_frequency=int(config.local_rope_base),
        global_base_frequency=int(config.global_rope_base),
        local_scale_factor=config.local_rope_scale,
        global_scale_factor=config.global_rope_scale,
    )


def random_case(config: GemmaConfig, seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """Random nested parameters, norm scales included, and random tokens int32[B, L] without 0."""
    rng = np.random.default_rng(seed)
    shapes = abstract_params(config)
    params = jax.tree.map(lambda x: rng.normal(0.0, 0.4, x.shape).astype(np.float32), shapes)
    return params, rng.integers(1, config.vocab_size, (BATCH, LENGTH), dtype=np.int32)
