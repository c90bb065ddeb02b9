"""Published sizes have the published numbers of parameters; wrong configurations are refused with a clear text."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import jax
import pytest

import models
from models.config import CONFIGS, GemmaConfig, get_config
from models.errors import ConfigError
from models.gemma import abstract_params
from models.tiny import VARIANTS, tiny_config

# With the vocabulary of the published weights (Hugging Face model cards); official Orbax files pad 256,000 to 256,128.
PUBLISHED = {
    "gemma-2b": (256_000, 2_506_172_416),
    "gemma-7b": (256_000, 8_537_680_896),
    "gemma2-2b": (256_000, 2_614_341_888),
    "gemma2-9b": (256_000, 9_241_705_984),
    "gemma2-27b": (256_000, 27_227_128_320),
    "gemma3-270m": (262_144, 268_098_176),
    "gemma3-1b": (262_144, 999_885_952),
    "gemma3-4b": (262_144, 3_880_099_328),
    "gemma3-12b": (262_144, 11_765_788_416),
    "gemma3-27b": (262_144, 27_009_002_240),
}


def test_every_registered_size_is_checked() -> None:
    assert PUBLISHED.keys() == CONFIGS.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_number_of_parameters(name: str, exhaustive: bool) -> None:
    """Counted with one layer and with two, as every further one adds the same; in full with all of them."""
    vocab, total = PUBLISHED[name]
    config = get_config(name)
    assert config.vocab_size == {256_000: 256_128}.get(vocab, vocab)

    def counted(layers: int) -> int:
        shapes = abstract_params(dataclasses.replace(config, vocab_size=vocab, num_layers=layers), "bfloat16")
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))

    if exhaustive:
        assert counted(config.num_layers) == total
    else:
        one, two = counted(1), counted(2)
        assert one + (config.num_layers - 1) * (two - one) == total


def test_parameter_names_are_the_official_ones() -> None:
    one, three = abstract_params(tiny_config("gemma1-mha")), abstract_params(tiny_config("gemma3"))
    assert one["layer_0"]["attn"].keys() == {"qkv_einsum", "attn_vec_einsum"}
    assert one["layer_0"].keys() == {"attn", "mlp", "pre_attention_norm", "pre_ffw_norm"}
    names = {"q_einsum", "kv_einsum", "attn_vec_einsum", "_query_norm", "_key_norm"}
    assert three["layer_2"]["attn"].keys() == names
    assert three["layer_0"].keys() == one["layer_0"].keys() | {"post_attention_norm", "post_ffw_norm"}
    assert three.keys() == {"embedder", "final_norm", "layer_0", "layer_1", "layer_2"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_tiny_model_is_tiny_and_seeded(variant: str) -> None:
    a, b, c = (models.tiny_gemma(seed, variant, vocab_size=50) for seed in (1, 1, 2))
    assert 1_000 < a.num_parameters < 20_000
    assert a.vocab_size == 50
    leaves = [jax.tree.leaves(d.params) for d in (a, b, c)]
    assert all((x == y).all() for x, y in zip(leaves[0], leaves[1]))
    assert any((x != y).any() for x, y in zip(leaves[0], leaves[2]))


@pytest.mark.parametrize("config", [*CONFIGS.values(), *map(tiny_config, VARIANTS)])
def test_json_round_trip(config: GemmaConfig) -> None:
    again = GemmaConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert again == config
    assert hash(again) == hash(config)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_kv_heads": 3}, "4 query heads cannot be shared out over 3 key heads"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
        ({"sliding_window": None}, "A local layer needs a sliding window"),
        ({"num_layers": 0}, "num_layers must be at least 1, not 0"),
        ({"attention_pattern": ()}, "The attention pattern is empty"),
        ({"global_rope_scale": 0.5}, "A RoPE scale must be at least 1"),
    ],
)
def test_wrong_configurations(change: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        dataclasses.replace(tiny_config("gemma3"), **change)


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match=r"no published size called 'gemma9'.*\n.*gemma3-270m"):
        get_config("gemma9")
    with pytest.raises(ConfigError, match=r"no tiny variant 'gpt'.*\n.*gemma2"):
        tiny_config("gpt")
    with pytest.raises(ConfigError, match="not a saved model configuration"):
        GemmaConfig.from_json({"attention_pattern": ["global"], "colour": 3})
    with pytest.raises(AttributeError, match="nothing"):
        _ = models.nothing
    assert get_config("Gemma3_270M") is CONFIGS["gemma3-270m"]


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import models, sys; print([m for m in ('jax', 'flax', 'orbax', 'numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
