"""Frozen configurations of the Gemma family and the registry of its published text sizes. Imports nothing of JAX.

A configuration says everything about the architecture and nothing about dtypes, devices or files.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from models.errors import ConfigError, named_arguments, named_fields


class Attention(enum.Enum):
    """What one layer attends to: the last `sliding_window` positions, or all of them."""

    LOCAL = "local"
    GLOBAL = "global"


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class GemmaConfig:
    """Architecture of one Gemma text model.

    Attributes:
      vocab_size: rows of the embedding table, V (may exceed the tokenizer's vocabulary).
      num_layers: transformer blocks.
      embed_dim: width of the residual stream, D.
      hidden_dim: width inside the gated feed-forward block, F.
      num_heads: query heads, N.
      num_kv_heads: key and value heads, K; N must be a multiple of it. K = N is multi-head, K = 1 multi-query.
      head_dim: width of one head, H (even).
      attention_pattern: kinds of the first layers, repeated over all layers.
      sliding_window: positions a local layer sees, the own one included; needed if the pattern has a local layer.
      post_attention_norm: normalise the attention block's output before it is added to the stream.
      post_ffw_norm: normalise the feed-forward block's output before it is added to the stream.
      qk_norm: normalise queries and keys per head.
      attention_soft_cap: `c` of `c * tanh(x / c)` on attention logits, or None.
      final_soft_cap: the same on the output logits, or None.
      query_scalar: queries are multiplied by `query_scalar ** -0.5`; None means `head_dim`.
      local_rope_base, global_rope_base: wave-length base of the rotary embedding, per kind of layer.
      local_rope_scale, global_rope_scale: positions are divided by this (linear interpolation).
      bidirectional: whether a position sees what follows it, too, as denoising models do.
      transposed_gating: storage order of `mlp/gating_einsum`, (2, F, D) if true, else (2, D, F).

    Source: Gemma Team 2024a (arXiv:2403.08295), 2024b (arXiv:2408.00118), 2025 (arXiv:2503.19786).
    """

    vocab_size: int
    num_layers: int
    embed_dim: int
    hidden_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_pattern: tuple[Attention, ...] = (Attention.GLOBAL,)
    sliding_window: int | None = None
    post_attention_norm: bool = False
    post_ffw_norm: bool = False
    qk_norm: bool = False
    attention_soft_cap: float | None = None
    final_soft_cap: float | None = None
    query_scalar: float | None = None
    local_rope_base: float = 10_000.0
    global_rope_base: float = 10_000.0
    local_rope_scale: float = 1.0
    global_rope_scale: float = 1.0
    transposed_gating: bool = True
    bidirectional: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "num_layers", "embed_dim", "hidden_dim", "num_heads", "num_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}.", where="GemmaConfig")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"{self.num_heads} query heads cannot be shared out over {self.num_kv_heads} key heads.",
                where="GemmaConfig.num_kv_heads",
                fix="Choose num_kv_heads so that it divides num_heads.",
            )
        if self.head_dim % 2:
            raise ConfigError(
                f"head_dim {self.head_dim} is odd.",
                where="GemmaConfig.head_dim",
                fix="The rotary embedding turns pairs of components: use an even number.",
            )
        if not self.attention_pattern:
            raise ConfigError("The attention pattern is empty.", where="GemmaConfig.attention_pattern")
        if Attention.LOCAL in self.attention_pattern and not self.sliding_window:
            raise ConfigError(
                "A local layer needs a sliding window.",
                where="GemmaConfig.sliding_window",
                fix="Give the number of positions a local layer sees.",
            )
        if min(self.local_rope_scale, self.global_rope_scale) < 1.0:
            raise ConfigError("A RoPE scale must be at least 1.", where="GemmaConfig")

    @property
    def multi_head(self) -> bool:
        """Whether every query head has its own key head (then one `qkv_einsum` holds all three)."""
        return self.num_kv_heads == self.num_heads

    @property
    def query_scale(self) -> float:
        """The factor on queries before they meet the keys."""
        return float(self.query_scalar or self.head_dim) ** -0.5

    def layer_kind(self, layer: int) -> Attention:
        """The kind of attention of block `layer`."""
        return self.attention_pattern[layer % len(self.attention_pattern)]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; `from_json` is the inverse."""
        fields = dataclasses.asdict(self)
        fields["attention_pattern"] = [kind.value for kind in self.attention_pattern]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> GemmaConfig:
        """The configuration that `to_json` wrote.

        Raises:
          ConfigError: a field is unknown, missing, or has a wrong value.
        """
        try:
            kinds = tuple(Attention(kind) for kind in fields["attention_pattern"])
            return cls(**{**fields, "attention_pattern": kinds})
        except (TypeError, KeyError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"This is not a saved model configuration: {error}.",
                fix="Pass the GemmaConfig itself, or a name of models.CONFIGS.",
            ) from error


_GEMMA2_PATTERN = (Attention.LOCAL, Attention.GLOBAL)
_GEMMA3_PATTERN = (*(Attention.LOCAL,) * 5, Attention.GLOBAL)


def gemma1(**fields: Any) -> GemmaConfig:
    """A Gemma 1 configuration: global attention, norms before each block only."""
    return GemmaConfig(**{"transposed_gating": False, **fields})


def gemma2(**fields: Any) -> GemmaConfig:
    """A Gemma 2 configuration: local and global layers in turn, both soft caps, norms on both sides."""
    defaults = {
        "attention_pattern": _GEMMA2_PATTERN,
        "sliding_window": 4096,
        "post_attention_norm": True,
        "post_ffw_norm": True,
        "attention_soft_cap": 50.0,
        "final_soft_cap": 30.0,
    }
    return GemmaConfig(**{**defaults, **fields})


def gemma3(**fields: Any) -> GemmaConfig:
    """A Gemma 3 text configuration: five local layers to a global one, query and key norms, no soft caps."""
    defaults = {
        "attention_pattern": _GEMMA3_PATTERN,
        "sliding_window": 1024,
        "post_attention_norm": True,
        "post_ffw_norm": True,
        "qk_norm": True,
        "global_rope_base": 1_000_000.0,
    }
    return GemmaConfig(**{**defaults, **fields})


def _sizes(
    vocab: int, layers: int, embed: int, hidden: int, heads: int, kv_heads: int, head_dim: int = 256
) -> dict[str, int]:
    return {
        "vocab_size": vocab,
        "num_layers": layers,
        "embed_dim": embed,
        "hidden_dim": hidden,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
    }


_V1, _V3 = 256_128, 262_144  # rows of the official embedding tables

CONFIGS: dict[str, GemmaConfig] = {
    "gemma-2b": gemma1(**_sizes(_V1, 18, 2048, 16_384, 8, 1)),
    "gemma-7b": gemma1(**_sizes(_V1, 28, 3072, 24_576, 16, 16)),
    "gemma2-2b": gemma2(**_sizes(_V1, 26, 2304, 9216, 8, 4), transposed_gating=False),
    "gemma2-9b": gemma2(**_sizes(_V1, 42, 3584, 14_336, 16, 8)),
    "gemma2-27b": gemma2(**_sizes(_V1, 46, 4608, 36_864, 32, 16, 128), query_scalar=4608 // 32),
    "gemma3-270m": gemma3(**_sizes(_V3, 18, 640, 2048, 4, 1), sliding_window=512),
    "gemma3-1b": gemma3(**_sizes(_V3, 26, 1152, 6912, 4, 1), sliding_window=512),
    "gemma3-4b": gemma3(**_sizes(_V3, 34, 2560, 10_240, 8, 4), global_rope_scale=8.0),
    "gemma3-12b": gemma3(**_sizes(_V3, 48, 3840, 15_360, 16, 8), global_rope_scale=8.0),
    "gemma3-27b": gemma3(
        **_sizes(_V3, 62, 5376, 21_504, 32, 16, 128), global_rope_scale=8.0, query_scalar=5376 // 32
    ),
}


@named_arguments
def get_config(name: str) -> GemmaConfig:
    """The published configuration called `name`, for example `"gemma3-270m"`.

    Raises:
      ConfigError: there is no such name; the text lists those there are.
    """
    try:
        return CONFIGS[name.lower().replace("_", "-")]
    except KeyError:
        raise ConfigError(
            f"There is no published size called {name!r}.",
            fix=f"Use one of {', '.join(CONFIGS)}, or pass a GemmaConfig.",
        ) from None
