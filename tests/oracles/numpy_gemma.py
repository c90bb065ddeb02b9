"""Oracle: Gemma in NumPy from tensors with Hugging Face names, written from that library's conventions, one row, slow."""

from __future__ import annotations

import numpy as np

from models.config import Attention, GemmaConfig

Tensors = dict[str, np.ndarray]


def random_tensors(config: GemmaConfig, seed: int = 0) -> Tensors:
    """Random tensors with the names and shapes of a Hugging Face checkpoint."""
    rng = np.random.default_rng(seed)
    N, K, D, F, H = config.num_heads, config.num_kv_heads, config.embed_dim, config.hidden_dim, config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, D),
        "model.norm.weight": (D,),
    }
    for i in range(config.num_layers):
        layer = {
            "self_attn.q_proj": (N * H, D),
            "self_attn.k_proj": (K * H, D),
            "self_attn.v_proj": (K * H, D),
            "self_attn.o_proj": (D, N * H),
            "mlp.gate_proj": (F, D),
            "mlp.up_proj": (F, D),
            "mlp.down_proj": (D, F),
            "input_layernorm": (D,),
            "post_attention_layernorm": (D,),
        }
        if config.post_ffw_norm:
            layer |= {"pre_feedforward_layernorm": (D,), "post_feedforward_layernorm": (D,)}
        if config.qk_norm:
            layer |= {"self_attn.q_norm": (H,), "self_attn.k_norm": (H,)}
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    return {name: rng.normal(0.0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def logits(config: GemmaConfig, tensors: Tensors, tokens: np.ndarray) -> np.ndarray:
    """Logits [L, V] of one sequence of tokens [L]."""
    table = tensors["model.embed_tokens.weight"].astype(np.float64)
    x = table[tokens] * np.sqrt(config.embed_dim)
    for i in range(config.num_layers):
        start = f"model.layers.{i}."
        weights = {
            name.removeprefix(start).removesuffix(".weight"): value.astype(np.float64)
            for name, value in tensors.items()
            if name.startswith(start)
        }
        attended = _attend(config, i, weights, _norm(x, weights["input_layernorm"]))
        if config.post_attention_norm:
            attended = _norm(attended, weights["post_attention_layernorm"])
        x = x + attended
        before = "pre_feedforward_layernorm" if config.post_ffw_norm else "post_attention_layernorm"
        y = _norm(x, weights[before])
        y = (_gelu(y @ weights["mlp.gate_proj"].T) * (y @ weights["mlp.up_proj"].T)) @ weights["mlp.down_proj"].T
        x = x + (_norm(y, weights["post_feedforward_layernorm"]) if config.post_ffw_norm else y)
    return _cap(_norm(x, tensors["model.norm.weight"].astype(np.float64)) @ table.T, config.final_soft_cap)


def _attend(config: GemmaConfig, layer: int, weights: Tensors, x: np.ndarray) -> np.ndarray:
    local = config.layer_kind(layer) is Attention.LOCAL
    base = config.local_rope_base if local else config.global_rope_base
    scale = config.local_rope_scale if local else config.global_rope_scale
    length, H = len(x), config.head_dim
    heads = []
    for n in range(config.num_heads):
        k = n // (config.num_heads // config.num_kv_heads)
        q_rows, k_rows = slice(n * H, (n + 1) * H), slice(k * H, (k + 1) * H)
        query, key = x @ weights["self_attn.q_proj"][q_rows].T, x @ weights["self_attn.k_proj"][k_rows].T
        value = x @ weights["self_attn.v_proj"][k_rows].T
        if config.qk_norm:
            query, key = _norm(query, weights["self_attn.q_norm"]), _norm(key, weights["self_attn.k_norm"])
        query, key = _rotate(query, base, scale), _rotate(key, base, scale)
        out = np.zeros((length, H))
        for i in range(length):
            first = max(0, i - config.sliding_window + 1) if local and config.sliding_window else 0
            scores = key[first : i + 1] @ query[i] / np.sqrt(config.query_scalar or H)
            scores = _cap(scores, config.attention_soft_cap)
            odds = np.exp(scores - scores.max())
            out[i] = odds / odds.sum() @ value[first : i + 1]
        heads.append(out)
    return np.concatenate(heads, axis=1) @ weights["self_attn.o_proj"].T


def _rotate(x: np.ndarray, base: float, scale: float) -> np.ndarray:
    half = x.shape[1] // 2
    out = np.empty_like(x)
    for position in range(len(x)):
        for i in range(half):
            angle = position / scale / base ** (2 * i / x.shape[1])
            turned = (x[position, i] + 1j * x[position, i + half]) * np.exp(1j * angle)
            out[position, i], out[position, i + half] = turned.real, turned.imag
    return out


def _norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * (1 + weight)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _cap(x: np.ndarray, cap: float | None) -> np.ndarray:
    return x if cap is None else cap * np.tanh(x / cap)
