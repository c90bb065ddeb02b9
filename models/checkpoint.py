"""Loading and saving models: `load` from Orbax (official layouts) or safetensors, `save` to Orbax.

What is stored where is decided in `layouts.py` and `hugging_face.py`; what fits is decided in `matching.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.typing import DTypeLike

from models import layouts, safetensors_io
from models.config import GemmaConfig, get_config
from models.errors import CheckpointError, ConfigError, named_arguments
from models.gemma import Gemma, abstract_params
from models.matching import check_parameters, check_storage_dtypes

_CONFIG_FILE = "gemma_config.json"
_FINGERPRINT = "vocabulary_fingerprint"
_EMBEDDING = "embedder/input_embedding"
_DAMAGED = "It is incomplete or damaged: copy or download it again."
_ORBAX_MARKS = ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt")


@named_arguments
def load(
    name_or_config: str | GemmaConfig | None, path: str | os.PathLike[str], *, dtype: DTypeLike | None = None
) -> Gemma:
    """Load a Gemma text model.

    Reads Orbax directories in each layout of the official releases (nested, flat, stacked; vision parameters are left
    out), and safetensors under Hugging Face names (a file, an index of shards, or a directory).

    Args:
      name_or_config: a published size such as `"gemma3-270m"`, a `GemmaConfig`, or None to read the configuration
        that lies in the checkpoint (`save` writes one; Hugging Face directories have one). With a name, the rows of
        the embedding table are taken from the checkpoint, because conversions pad the vocabulary differently.
      path: the checkpoint, a local path.
      dtype: floating dtype of the parameters; None keeps that of the stored embedding table (float64 becomes float32).

    Returns:
      The model, on the default device.

    Raises:
      CheckpointError: the checkpoint is missing, unreadable, or does not fit the configuration.
      ConfigError: there is no published size of that name, or `dtype` is no floating dtype.
    """
    _check_dtype(dtype)
    named = isinstance(name_or_config, str)
    config = get_config(name_or_config) if isinstance(name_or_config, str) else name_or_config
    location = pathlib.Path(path).expanduser().absolute()
    if not location.exists():
        raise CheckpointError(
            "There is no checkpoint here.", where=str(location), fix="Check the path, or download the model first."
        )
    if safetensors_io.is_safetensors(location):
        return _load_safetensors(location, config, named, dtype)
    return _load_orbax(_orbax_root(location), config, named, dtype)


@named_arguments
def save(decoder: Gemma, path: str | os.PathLike[str]) -> None:
    """Save a model as an Orbax checkpoint in the official nested layout, with its configuration beside it.

    The directory appears under its name only when it is complete.

    Args:
      decoder: the model.
      path: a directory that does not exist yet.

    Raises:
      CheckpointError: the parameters are not those of the configuration, there is something at `path`, or it cannot be
        written.
    """
    target = pathlib.Path(path).expanduser().absolute()
    if target.exists():
        raise CheckpointError(
            "There is something here already.", where=str(target), fix="Remove it, or save to another path."
        )
    held = {name: tuple(jnp.shape(leaf)) for name, leaf in layouts.flatten(decoder.params).items()}
    check_parameters(_wanted(decoder.config), held, decoder.config, "the decoder to be saved")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        workspace = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise CheckpointError(f"The checkpoint cannot be written: {error}.", where=str(target)) from error
    try:
        draft = workspace / target.name
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(draft, decoder.params)
        known = {_FINGERPRINT: decoder.vocabulary_fingerprint} if decoder.vocabulary_fingerprint else {}
        text = json.dumps(decoder.config.to_json() | known, indent=2)
        (draft / _CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        os.replace(draft, target)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _load_safetensors(
    path: pathlib.Path, config: GemmaConfig | None, named: bool, dtype: DTypeLike | None
) -> Gemma:
    config = config or safetensors_io.find_config(path) or _no_config(path, "config.json")
    with safetensors_io.TensorFiles(path) as files:
        shapes, dtypes = files.shapes(), files.dtypes()
        embedding = "embed_tokens.weight"
        config = _with_rows(config, shapes.get(embedding)) if named else config
        dtype = dtype or _narrow(dtypes.get(embedding, "float32"))
        flat = safetensors_io.read_params(files, config, dtype)
    return Gemma(layouts.nest(flat), config)


def _load_orbax(root: pathlib.Path, config: GemmaConfig | None, named: bool, dtype: DTypeLike | None) -> Gemma:
    config = config or _saved_config(root)
    stored = _stored_arrays(root)
    flat_stored = layouts.flatten(stored)
    found = layouts.locate({name: getattr(leaf, "shape", ()) for name, leaf in flat_stored.items()})
    if named and _EMBEDDING in found:
        config = _with_rows(config, found[_EMBEDDING][1])
    check_parameters(_wanted(config), {name: shape for name, (_, shape) in found.items()}, config, str(root))
    sources = {source for (source, _), _ in found.values()}
    check_storage_dtypes({name: str(jnp.dtype(flat_stored[name].dtype)) for name in sources}, str(root))
    dtype = dtype or _narrow(flat_stored[found[_EMBEDDING][0][0]].dtype)
    restored = layouts.flatten(_restore(root, stored, sources, dtype))
    flat = {name: _take(restored, source) for name, (source, _) in found.items()}
    return Gemma(layouts.nest(flat), config, _saved_fingerprint(root))


def _wanted(config: GemmaConfig) -> dict[str, tuple[int, ...]]:
    """Flat name → shape of every parameter that `config` needs."""
    return {name: leaf.shape for name, leaf in layouts.flatten(abstract_params(config)).items()}


def _orbax_root(path: pathlib.Path) -> pathlib.Path:
    """The directory that holds the arrays: `path` itself, or its `default` item."""
    for root in (path, path / "default"):
        if (root / "_METADATA").exists() or (root / "manifest.ocdbt").exists():
            return root
    marks = ", ".join(_ORBAX_MARKS)
    fix = f"Point at an Orbax directory (it holds one of {marks}) or at a .safetensors file."
    inner = [child.name for child in path.iterdir() if (child / "_METADATA").exists()] if path.is_dir() else []
    if inner:
        fix = f"Did you mean {path / sorted(inner)[0]}?"
    raise CheckpointError("This is no checkpoint of a kind that can be read.", where=str(path), fix=fix)


def _stored_arrays(root: pathlib.Path) -> dict[str, Any]:
    """The tree of stored arrays' metadata (shape and dtype)."""
    with _orbax_errors(root), ocp.StandardCheckpointer() as checkpointer:
        metadata = checkpointer.metadata(root).item_metadata
        tree = getattr(metadata, "tree", metadata)
    if not isinstance(tree, dict) or not tree:
        raise CheckpointError(
            "The checkpoint does not say what it holds.",
            where=str(root),
            fix=_DAMAGED,
        )
    return tree


def _restore(root: pathlib.Path, stored: dict[str, Any], names: set[str], dtype: DTypeLike) -> dict[str, Any]:
    """The stored arrays called `names` (flat), in `dtype` and in the stored tree; others are not read."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def select(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for key, leaf in tree.items():
            if isinstance(leaf, dict):
                if inner := select(leaf, f"{prefix}{key}/"):
                    chosen[key] = inner
            elif f"{prefix}{key}" in names:
                chosen[key] = jax.ShapeDtypeStruct(tuple(leaf.shape), dtype, sharding=sharding)
        return chosen

    target = select(stored)
    if len(names) == len(layouts.flatten(stored)):
        with _orbax_errors(root), ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(root, target)
    how = ocp.checkpoint_utils.construct_restore_args(target)
    request = ocp.args.PyTreeRestore(item=target, restore_args=how, partial_restore=True)
    with _orbax_errors(root), ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(root, args=request)


@contextlib.contextmanager
def _orbax_errors(root: pathlib.Path) -> Iterator[None]:
    """Turn whatever Orbax raises over a damaged directory into one error, without its log lines."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:  # Orbax and TensorStore document no common base class
        raise CheckpointError(
            f"The checkpoint cannot be read: {type(error).__name__}: {str(error).splitlines()[0]}",
            where=str(root),
            fix=_DAMAGED,
        ) from error
    finally:
        logger.setLevel(level)


def _take(restored: dict[str, jax.Array], source: layouts.Slice) -> jax.Array:
    name, turn = source
    return restored[name] if turn is None else restored[name][turn]


def _check_dtype(dtype: DTypeLike | None) -> None:
    try:
        floating = dtype is None or jnp.issubdtype(jnp.dtype(dtype), jnp.floating)
    except TypeError:
        floating = False
    if not floating:
        raise ConfigError(f"dtype {dtype!r} is no floating dtype.", fix="Use 'float32' or 'bfloat16', or leave it out.")


def _narrow(dtype: DTypeLike) -> DTypeLike:
    """`dtype`, or float32 for float64, which JAX has only on request."""
    return jnp.float32 if jnp.dtype(dtype) == jnp.dtype("float64") else dtype


def _with_rows(config: GemmaConfig, shape: tuple[int, ...] | None) -> GemmaConfig:
    """`config` with as many embedding rows as the checkpoint has."""
    return dataclasses.replace(config, vocab_size=shape[0]) if shape else config


def _saved_config(root: pathlib.Path) -> GemmaConfig:
    file = root / _CONFIG_FILE
    if not file.exists():
        return _no_config(root, _CONFIG_FILE)
    return _saved_fields(root)[0]


def _saved_fingerprint(root: pathlib.Path) -> str:
    """As `save` has written it; "" where there is none, or no configuration that can be read."""
    try:
        return _saved_fields(root)[1]
    except CheckpointError:
        return ""


def _saved_fields(root: pathlib.Path) -> tuple[GemmaConfig, str]:
    """The configuration beside a checkpoint, and the fingerprint of its vocabulary ("" for none)."""
    file = root / _CONFIG_FILE
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        fingerprint = str(fields.pop(_FINGERPRINT, "")) if isinstance(fields, dict) else ""
        return GemmaConfig.from_json(fields), fingerprint
    except (OSError, ValueError) as error:
        what = error.what if isinstance(error, ConfigError) else f"This JSON file cannot be read: {error}."
        raise CheckpointError(what, where=str(file), fix="Pass the configuration to load().") from error


def _no_config(path: pathlib.Path, name: str) -> GemmaConfig:
    raise CheckpointError(
        f"The checkpoint does not say which configuration it has: there is no {name}.",
        where=str(path),
        fix="Pass a published name such as 'gemma3-270m', or a GemmaConfig, to load().",
    )
