"""Checkpoints: every layout restores the same model, and every way in which one can be wrong has its own error."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from oracles import numpy_gemma
from safetensors.numpy import save_file

import models
from models import layouts
from models.errors import CheckpointError, ConfigError
from models.gemma import Gemma
from models.tiny import VARIANTS, tiny_config, tiny_gemma


def write_orbax(path: pathlib.Path, tree: Any) -> pathlib.Path:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def assert_same(one: Gemma, other: Gemma) -> None:
    assert one.config == other.config
    a, b = layouts.flatten(one.params), layouts.flatten(other.params)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        np.testing.assert_array_equal(a[name], b[name])


def stored_form(decoder: Gemma, form: str) -> Any:
    flat = layouts.flatten(decoder.params)
    match form:
        case "nested":
            return decoder.params
        case "params":
            return {"params": decoder.params}
        case "flat":
            return layouts.to_flat(flat)
        case "flat &":
            return layouts.to_flat(flat, "&")
        case "vision":
            vision = {"vision_encoder": {"kernel": jnp.ones(3)}}
            extra = {"embedder": {**decoder.params["embedder"], "mm_soft_embedding_norm": {"scale": jnp.ones(2)}}}
            return {**decoder.params, **extra, **vision}
    return layouts.to_stacked(flat, int(form.split()[1]), jnp.stack)


@pytest.mark.parametrize("form", ["nested", "params", "flat", "flat &", "vision", "stacked 3", "stacked 2"])
def test_each_orbax_layout_restores_the_same_model(form: str, tmp_path: pathlib.Path) -> None:
    decoder = tiny_gemma(5, "gemma3")
    path = write_orbax(tmp_path / "checkpoint", stored_form(decoder, form))
    assert_same(models.load(decoder.config, path), decoder)


def test_the_stacked_form_has_the_official_names_and_shapes() -> None:
    flat = {f"layer_{i}/mlp/linear": np.full((2, 3), i) for i in range(5)}
    stacked = layouts.to_stacked({**flat, "embedder/input_embedding": np.zeros((4, 3))}, 2, np.stack)
    first = stacked["transformer/stacked_layers/attention_type_0/mlp/linear"]["w"]
    second = stacked["transformer/stacked_layers/attention_type_1/mlp/linear"]["w"]
    assert (first[:, 0, 0].tolist(), second[:, 0, 0].tolist()) == ([0, 2, 4], [1, 3])
    assert stacked["transformer/embedder"]["input_embedding"].shape == (4, 3)


@pytest.mark.parametrize(
    ("variant", "dtype"), [*((variant, jnp.float32) for variant in VARIANTS), ("gemma3", jnp.bfloat16)]
)
def test_save_and_load(variant: str, dtype: Any, tmp_path: pathlib.Path) -> None:
    decoder = tiny_gemma(2, variant, dtype=dtype)
    models.save(decoder, tmp_path / "inner" / "model")
    assert_same(models.load(None, tmp_path / "inner" / "model"), decoder)
    assert [child.name for child in (tmp_path / "inner").iterdir()] == ["model"]
    wide = models.load(decoder.config, tmp_path / "inner" / "model", dtype=jnp.float32)
    assert wide.dtype == jnp.float32


@pytest.mark.parametrize("stage", ["models.checkpoint.os.replace", "orbax.checkpoint.StandardCheckpointer.save"])
def test_an_interrupted_save_leaves_nothing(
    stage: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, interrupt)
    with pytest.raises(KeyboardInterrupt):
        models.save(tiny_gemma(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_saving_parameters_that_are_not_those_of_the_configuration(tmp_path: pathlib.Path) -> None:
    decoder = tiny_gemma()
    broken = dataclasses.replace(decoder, params={**decoder.params, "final_norm": {"scale": jnp.ones(3)}})
    with pytest.raises(CheckpointError, match=r"final_norm/scale has shape \(3,\)"):
        models.save(broken, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_published_name_takes_the_rows_of_the_checkpoint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = tiny_gemma(0, vocab_size=60)
    monkeypatch.setitem(models.CONFIGS, "gemma3-270m", tiny_config("gemma3", vocab_size=64))
    assert_same(models.load("gemma3-270m", write_orbax(tmp_path / "c", decoder.params)), decoder)


# Hugging Face names

HF_CONFIGS: dict[str, dict[str, Any]] = {
    "gemma1-mha": {"model_type": "gemma", "num_key_value_heads": 2, "num_attention_heads": 2},
    "gemma1-mqa": {"model_type": "gemma", "num_key_value_heads": 1, "num_attention_heads": 2},
    "gemma2": {"model_type": "gemma2", "query_pre_attn_scalar": 4, "sliding_window": 8},
    "gemma3": {
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": 8,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
}


def hf_document(variant: str) -> dict[str, Any]:
    config = tiny_config(variant)
    sizes = {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 32,
        "head_dim": 8,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    return {**sizes, **HF_CONFIGS[variant]}


@pytest.mark.parametrize("variant", VARIANTS)
def test_safetensors_against_the_numpy_oracle(variant: str, tmp_path: pathlib.Path) -> None:
    config = tiny_config(variant)
    tensors = numpy_gemma.random_tensors(config)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(hf_document(variant)))
    decoder = models.load(None, tmp_path)
    tokens = np.random.default_rng(0).integers(0, 64, (1, 20), dtype=np.int32)
    expected = numpy_gemma.logits(config, tensors, tokens[0])
    np.testing.assert_allclose(jax.jit(Gemma.forward)(decoder, tokens)[0], expected, atol=1e-4, rtol=0)
    assert np.std(expected) > 0.1
    direct = models.load(config, tmp_path / "model.safetensors", dtype=jnp.bfloat16)
    assert direct.dtype == jnp.bfloat16


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_shards_and_the_names_of_multimodal_files(prefix: str, tmp_path: pathlib.Path) -> None:
    config = tiny_config("gemma3")
    tensors = numpy_gemma.random_tensors(config)
    save_file(tensors, tmp_path / "whole.safetensors")
    shards: dict[str, dict[str, np.ndarray]] = {"a.safetensors": {}, "b.safetensors": {}}
    for i, (name, value) in enumerate(tensors.items()):
        shards[sorted(shards)[i % 2]][prefix + name.removeprefix("model.")] = value
    shards["b.safetensors"]["vision_tower.x.weight"] = np.ones(2, np.float32)
    inner = tmp_path / "shards"
    inner.mkdir()
    for file, content in shards.items():
        save_file(content, inner / file)
    index = {"weight_map": {name: file for file, content in shards.items() for name in content}}
    (inner / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = models.load(config, tmp_path / "whole.safetensors")
    assert_same(models.load(config, inner), whole)
    assert_same(models.load(config, inner / "model.safetensors.index.json"), whole)
    (inner / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names a shard that is not there: b\.safetensors"):
        models.load(config, inner)


def test_newer_rope_fields_mean_the_same() -> None:
    from models.hugging_face import read_config

    document = hf_document("gemma3")
    newer = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    new = {**{k: v for k, v in document.items() if k != "rope_scaling"}, "rope_parameters": newer}
    assert read_config(new, "") == read_config(document, "")
    assert read_config({"model_type": "gemma3", "text_config": document}, "") == read_config(document, "")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model_type": "llama"}, "of model type 'llama'"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is not supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "RoPE of type 'yarn' is not supported"),
        ({"hidden_size": "wide"}, "value of the wrong kind"),
        ({"layer_types": 3}, "value of the wrong kind"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
    ],
)
def test_foreign_configurations(change: dict[str, Any], text: str, tmp_path: pathlib.Path) -> None:
    save_file({"x": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**hf_document("gemma3"), **change}))
    with pytest.raises(CheckpointError, match=text) as caught:
        models.load(None, tmp_path)
    assert caught.value.where.endswith("config.json")


# What can be wrong


def test_nothing_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint here\.\n  .*/absent\n  Check the path"):
        models.load("gemma3-270m", tmp_path / "absent")


def test_not_a_checkpoint(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint of a kind that can be read"):
        models.load("gemma3-270m", tmp_path)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"no checkpoint of a kind that can be read.*\n.*model\.gguf"):
        models.load("gemma3-270m", file)


def test_the_folder_above_a_checkpoint(tmp_path: pathlib.Path) -> None:
    models.save(tiny_gemma(), tmp_path / "step_5")
    with pytest.raises(CheckpointError, match=r"Did you mean .*/step_5\?"):
        models.load(None, tmp_path)


def test_no_configuration(tmp_path: pathlib.Path) -> None:
    path = write_orbax(tmp_path / "c", tiny_gemma().params)
    with pytest.raises(CheckpointError, match="does not say which configuration it has: there is no gemma_config"):
        models.load(None, path)
    save_file({"x": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"there is no config\.json"):
        models.load(None, tmp_path / "model.safetensors")


@pytest.mark.parametrize("content", ["{", '{"attention_pattern": ["global"]}', "[]"])
def test_a_damaged_configuration(content: str, tmp_path: pathlib.Path) -> None:
    models.save(tiny_gemma(), tmp_path / "c")
    (tmp_path / "c" / "gemma_config.json").write_text(content)
    with pytest.raises(CheckpointError, match="Pass the configuration to load"):
        models.load(None, tmp_path / "c")


def both_kinds(decoder: Gemma, tmp_path: pathlib.Path) -> list[pathlib.Path]:
    """The same model as an Orbax directory and as a safetensors file."""
    save_file(numpy_gemma.random_tensors(decoder.config), tmp_path / "m.safetensors")
    return [write_orbax(tmp_path / "c", decoder.params), tmp_path / "m.safetensors"]


def test_missing_and_extra_parameters(tmp_path: pathlib.Path) -> None:
    decoder = tiny_gemma(0, "gemma2")
    deeper, shallower = (dataclasses.replace(decoder.config, num_layers=n) for n in (4, 1))
    for path in both_kinds(decoder, tmp_path):
        with pytest.raises(CheckpointError, match=r"The checkpoint lacks layers?[_.]2.*and \d+ more"):
            models.load(deeper, path)
        with pytest.raises(CheckpointError, match=r"holds layers?[_.]1.*which the configuration does not have"):
            models.load(shallower, path)


def test_wrong_shape(tmp_path: pathlib.Path) -> None:
    decoder = tiny_gemma(0, "gemma2")
    wider = dataclasses.replace(decoder.config, hidden_dim=48)
    for path in both_kinds(decoder, tmp_path):
        with pytest.raises(CheckpointError, match=r"Parameter .*mlp.* has shape .*32.*needs .*48.*more differ"):
            models.load(wider, path)
        with pytest.raises(CheckpointError, match=r"has shape \(64, 16\); the configuration needs \(65, 16\)\."):
            models.load(dataclasses.replace(decoder.config, vocab_size=65), path)


def test_the_error_names_the_published_size_that_fits(tmp_path: pathlib.Path) -> None:
    from models.matching import check_parameters

    found = {"final_norm/scale": (1152,), "layer_25/mlp/linear": (6912, 1152)}
    with pytest.raises(CheckpointError, match=r"those of gemma3-1b: load it under that name"):
        check_parameters({}, found, models.get_config("gemma3-270m"), "here")


def test_quantised_parameters(tmp_path: pathlib.Path) -> None:
    decoder = tiny_gemma(0, "gemma2")
    bad = {**decoder.params, "final_norm": {"scale": jnp.ones(16, jnp.int8)}}
    with pytest.raises(CheckpointError, match="final_norm/scale is stored as int8"):
        models.load(decoder.config, write_orbax(tmp_path / "c", bad))
    tensors = numpy_gemma.random_tensors(decoder.config)
    save_file({**tensors, "model.norm.weight": np.ones(16, np.int8)}, tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match=r"norm\.weight is stored as I8"):
        models.load(decoder.config, tmp_path / "m.safetensors")


@pytest.mark.parametrize("dtype", ["int8", "float99"])
def test_a_dtype_that_is_not_floating(dtype: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=f"dtype '{dtype}' is no floating dtype"):
        models.load("gemma3-1b", tmp_path, dtype=dtype)


def test_arrays_that_are_no_model(tmp_path: pathlib.Path) -> None:
    path = write_orbax(tmp_path / "c", {"a": [jnp.ones(2), 3], "transformer/stacked_layers/attention_type_0/x": 5})
    with pytest.raises(CheckpointError, match="The checkpoint lacks embedder/input_embedding"):
        models.load(tiny_config(), path)


def test_double_precision_is_narrowed(tmp_path: pathlib.Path) -> None:
    tensors = numpy_gemma.random_tensors(tiny_config())
    save_file({name: value.astype(np.float64) for name, value in tensors.items()}, tmp_path / "m.safetensors")
    assert models.load(tiny_config(), tmp_path / "m.safetensors").dtype == jnp.float32


def test_damaged_files(tmp_path: pathlib.Path) -> None:
    decoder = tiny_gemma()
    (tmp_path / "m.safetensors").write_bytes(b"\x05")
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        models.load(decoder.config, tmp_path / "m.safetensors")
    models.save(decoder, tmp_path / "c")
    (tmp_path / "c" / "_METADATA").write_text("{")
    with pytest.raises(CheckpointError, match=r"The checkpoint (cannot be read|does not say what it holds)"):
        models.load(None, tmp_path / "c")


def test_damaged_arrays(tmp_path: pathlib.Path) -> None:
    """In its own process: readers that Orbax has abandoned complain there after the error was raised."""
    models.save(tiny_gemma(), tmp_path / "c")
    data = [file for file in (tmp_path / "c").rglob("*") if file.is_file() and file.parent.name == "d"]
    assert data
    for file in data:
        file.write_bytes(file.read_bytes()[:-20])
    code = f"import models\ntry: models.load(None, {str(tmp_path / 'c')!r})\nexcept models.CheckpointError as e: print(e)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = out.stdout.splitlines()
    assert lines[0].startswith(("The checkpoint cannot be read", "The checkpoint does not say what it holds"))
    assert lines[1].strip() == str(tmp_path / "c")
    assert lines[2].strip().startswith("It is incomplete or damaged")


def test_an_index_without_a_map(tmp_path: pathlib.Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="no 'weight_map'"):
        models.load(tiny_config(), index)
    index.write_text('{"weight_map": {"a": 3}}')
    with pytest.raises(CheckpointError, match="no 'weight_map'"):
        models.load(tiny_config(), index)
    index.write_text("no json")
    with pytest.raises(CheckpointError, match="JSON file cannot be read"):
        models.load(tiny_config(), index)


def test_saving_over_something(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointError, match="something here already"):
        models.save(tiny_gemma(), tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        models.save(tiny_gemma(), file / "model")
