"""Gemma parameters under Hugging Face names: which stored tensors make up ours, and `config.json` → `GemmaConfig`.

Only names, shapes and axis orders; `safetensors_io.py` opens the files.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from models.config import Attention, GemmaConfig, gemma1, gemma2, gemma3
from models.errors import CheckpointError, ConfigError

_PREFIX = re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.|model\.)")
_NOT_TEXT = re.compile(r"(^|\.)(vision_tower|multi_modal_projector|lm_head|rotary_emb)\.")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How one of our parameters is made.

    Attributes:
      sources: stored names without prefix, with the shape each must have.
      build: from the stored arrays to ours.
    """

    sources: tuple[tuple[str, tuple[int, ...]], ...]
    build: Callable[..., jax.Array]


def text_name(stored: str) -> str | None:
    """The stored name without its prefix, or None if it is no text parameter (or the tied output matrix)."""
    return None if _NOT_TEXT.search(stored) else _PREFIX.sub("", stored)


def recipes(config: GemmaConfig) -> dict[str, Recipe]:
    """Our flat parameter names → how to make them from the stored tensors."""
    D = config.embed_dim
    table = {
        "embedder/input_embedding": _same("embed_tokens.weight", (config.vocab_size, D)),
        "final_norm/scale": _same("norm.weight", (D,)),
    }
    for i in range(config.num_layers):
        for name, recipe in _layer(config, f"layers.{i}").items():
            table[f"layer_{i}/{name}"] = recipe
    return table


def _same(source: str, shape: tuple[int, ...]) -> Recipe:
    return Recipe(((source, shape),), lambda x: x)


def _layer(config: GemmaConfig, at: str) -> dict[str, Recipe]:
    return {**_attention(config, f"{at}.self_attn"), **_feed_forward(config, f"{at}.mlp"), **_norms(config, at)}


def _attention(config: GemmaConfig, at: str) -> dict[str, Recipe]:
    """Projections are stored as [out, in]; ours have heads apart and the model width before the head width."""
    N, K, D, H = config.num_heads, config.num_kv_heads, config.embed_dim, config.head_dim

    def heads(x: jax.Array) -> jax.Array:  # [n * H, D] -> [n, D, H]
        return jnp.swapaxes(x.reshape(-1, H, D), 1, 2)

    query = (f"{at}.q_proj.weight", (N * H, D))
    key, value = (f"{at}.k_proj.weight", (K * H, D)), (f"{at}.v_proj.weight", (K * H, D))
    output = (f"{at}.o_proj.weight", (D, N * H))
    table = {
        "attn/attn_vec_einsum/w": Recipe((output,), lambda o: jnp.transpose(o.reshape(D, N, H), (1, 2, 0))),
    }
    if config.multi_head:
        table["attn/qkv_einsum/w"] = Recipe((query, key, value), lambda *x: jnp.stack([heads(one) for one in x]))
    else:
        table["attn/q_einsum/w"] = Recipe((query,), heads)
        table["attn/kv_einsum/w"] = Recipe((key, value), lambda k, v: jnp.stack([heads(k), heads(v)]))
    if config.qk_norm:
        table["attn/_query_norm/scale"] = _same(f"{at}.q_norm.weight", (H,))
        table["attn/_key_norm/scale"] = _same(f"{at}.k_norm.weight", (H,))
    return table


def _feed_forward(config: GemmaConfig, at: str) -> dict[str, Recipe]:
    D, F = config.embed_dim, config.hidden_dim
    gate, up = (f"{at}.gate_proj.weight", (F, D)), (f"{at}.up_proj.weight", (F, D))

    def gating(g: jax.Array, u: jax.Array) -> jax.Array:
        both = jnp.stack([g, u])
        return both if config.transposed_gating else jnp.swapaxes(both, 1, 2)

    return {
        "mlp/gating_einsum": Recipe((gate, up), gating),
        "mlp/linear": Recipe(((f"{at}.down_proj.weight", (D, F)),), jnp.transpose),
    }


def _norms(config: GemmaConfig, at: str) -> dict[str, Recipe]:
    """Gemma 1 stores the norm before the feed-forward block under the name that later ones use for another."""
    names = {"pre_attention_norm": "input_layernorm"}
    if config.post_attention_norm:
        names["post_attention_norm"] = "post_attention_layernorm"
        names["pre_ffw_norm"] = "pre_feedforward_layernorm"
    else:
        names["pre_ffw_norm"] = "post_attention_layernorm"
    if config.post_ffw_norm:
        names["post_ffw_norm"] = "post_feedforward_layernorm"
    return {
        f"{ours}/scale": _same(f"{at}.{stored}.weight", (config.embed_dim,)) for ours, stored in names.items()
    }


# What the library assumes where config.json leaves a field out.
_COMMON = {"head_dim": 256, "rope_theta": 10_000.0}
_GEMMA2 = {
    **_COMMON,
    "vocab_size": 256_000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 2,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {
        **_COMMON,
        "vocab_size": 256_000,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
    },
    "gemma2": _GEMMA2,
    "gemma3_text": {
        **_GEMMA2,
        "vocab_size": 262_208,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window_pattern": 6,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
}


def read_config(document: Mapping[str, Any], where: str) -> GemmaConfig:
    """The configuration that a Hugging Face `config.json` describes.

    Args:
      document: the parsed file.
      where: its path, for errors.

    Raises:
      CheckpointError: another kind of model, a feature that these models do not have, or a wrong value.
    """
    try:
        return _read_config(document, where)
    except ConfigError as error:
        raise CheckpointError(error.what, where=where, fix=error.fix) from error
    except (TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"A field has a value of the wrong kind: {error}.", where=where, fix="Download the file again."
        ) from error


def _read_config(document: Mapping[str, Any], where: str) -> GemmaConfig:
    kind = document.get("model_type")
    text = document
    if kind == "gemma3":
        text, kind = document.get("text_config") or {}, "gemma3_text"
    if kind not in _DEFAULTS:
        raise CheckpointError(
            f"The checkpoint is of model type {kind!r}.",
            where=where,
            fix=f"Supported are {', '.join(_DEFAULTS)} and gemma3 (its text part).",
        )
    given = {name: value for name, value in text.items() if value is not None}
    fields = {**_DEFAULTS[kind], **given}
    for name in ("attention_bias", "use_bidirectional_attention"):
        if fields.get(name):
            raise CheckpointError(f"{name} is not supported.", where=where, fix="Use a causal Gemma text model.")
    sizes = {
        "vocab_size": fields["vocab_size"],
        "num_layers": fields["num_hidden_layers"],
        "embed_dim": fields["hidden_size"],
        "hidden_dim": fields["intermediate_size"],
        "num_heads": fields["num_attention_heads"],
        "num_kv_heads": fields["num_key_value_heads"],
        "head_dim": fields["head_dim"],
    }
    if kind == "gemma":
        return gemma1(**sizes, global_rope_base=_rope(fields, "full_attention", where)[0])
    windowed = {
        "attention_pattern": _pattern(fields),
        "sliding_window": fields["sliding_window"],
        "query_scalar": fields["query_pre_attn_scalar"],
        "attention_soft_cap": fields["attn_logit_softcapping"],
        "final_soft_cap": fields["final_logit_softcapping"],
    }
    base, scale = _rope(fields, "full_attention", where)
    local_base, local_scale = _rope(fields, "sliding_attention", where)
    ropes = {
        "global_rope_base": base,
        "global_rope_scale": scale,
        "local_rope_base": local_base,
        "local_rope_scale": local_scale,
    }
    return (gemma2 if kind == "gemma2" else gemma3)(**sizes, **windowed, **ropes)


def _pattern(fields: Mapping[str, Any]) -> tuple[Attention, ...]:
    if "layer_types" in fields:
        return tuple(
            Attention.LOCAL if kind == "sliding_attention" else Attention.GLOBAL for kind in fields["layer_types"]
        )
    return (*(Attention.LOCAL,) * (fields["sliding_window_pattern"] - 1), Attention.GLOBAL)


def _rope(fields: Mapping[str, Any], kind: str, where: str) -> tuple[float, float]:
    """Base and scale for a kind of layer, from the newer field `rope_parameters` or the older ones."""
    newer = fields.get("rope_parameters") or {}
    newer = newer.get(kind, newer)
    local = kind == "sliding_attention" and "rope_local_base_freq" in fields
    older_base = fields["rope_local_base_freq"] if local else fields["rope_theta"]
    scaling = newer or ({} if local else fields.get("rope_scaling") or {})
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    if rope_type not in ("default", "linear"):
        raise CheckpointError(f"RoPE of type {rope_type!r} is not supported.", where=where)
    scale = scaling.get("factor", 1.0) if rope_type == "linear" else 1.0
    return float(newer.get("rope_theta", older_base)), float(scale)
