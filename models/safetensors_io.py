"""Reads a Gemma model from safetensors files with Hugging Face names: one file, an index of shards, or a directory."""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any

import jax
import safetensors
from jax.typing import DTypeLike

from models import hugging_face
from models.config import GemmaConfig
from models.errors import CheckpointError
from models.matching import check_parameters, check_storage_dtypes

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}


def is_safetensors(path: pathlib.Path) -> bool:
    """Whether `path` is a safetensors file, an index of shards, or a directory that holds such."""
    if path.is_dir():
        return any(path.glob("*.safetensors"))
    return path.name.endswith((".safetensors", ".safetensors.index.json"))


def find_config(path: pathlib.Path) -> GemmaConfig | None:
    """The configuration in the `config.json` beside the files at `path`, if there is one.

    Raises:
      CheckpointError: the file cannot be read, or describes another kind of model.
    """
    file = (path if path.is_dir() else path.parent) / "config.json"
    if not file.exists():
        return None
    document = _read_json(file)
    return hugging_face.read_config(document, str(file))


class TensorFiles:
    """Open safetensors files, addressed by tensor name. Use in a `with` statement.

    Raises:
      CheckpointError: a file is missing or is not a safetensors file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._stack = contextlib.ExitStack()
        self._holder: dict[str, Any] = {}
        self._stored: dict[str, str] = {}

    def __enter__(self) -> TensorFiles:
        with contextlib.ExitStack() as stack:
            for file in _files(self.path):
                self._open(file, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _open(self, file: pathlib.Path, stack: contextlib.ExitStack) -> None:
        try:
            handle = stack.enter_context(safetensors.safe_open(file, framework="flax"))
        except (OSError, safetensors.SafetensorError) as error:
            raise CheckpointError(
                f"This is not a complete safetensors file: {error}.", where=str(file), fix="Download it again."
            ) from error
        for stored in handle.keys():  # noqa: SIM118 - the handle is no mapping
            name = hugging_face.text_name(stored)
            if name is not None:
                self._holder[name], self._stored[name] = handle, stored

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name without prefix → shape, for every text parameter."""
        return {name: tuple(self._slice(name).get_shape()) for name in self._holder}

    def dtypes(self) -> dict[str, str]:
        """Name without prefix → dtype name."""
        stored = {name: self._slice(name).get_dtype() for name in self._holder}
        return {name: _DTYPES.get(dtype, dtype) for name, dtype in stored.items()}

    def read(self, name: str) -> jax.Array:
        """The tensor called `name`, as stored."""
        return self._holder[name].get_tensor(self._stored[name])

    def _slice(self, name: str) -> Any:
        return self._holder[name].get_slice(self._stored[name])


def read_params(files: TensorFiles, config: GemmaConfig, dtype: DTypeLike) -> dict[str, jax.Array]:
    """Our parameters under flat names, in `dtype`; one tensor is read at a time.

    Raises:
      CheckpointError: a tensor is missing, left over, or of the wrong shape or dtype.
    """
    where = str(files.path)
    table = hugging_face.recipes(config)
    wanted = dict(source for recipe in table.values() for source in recipe.sources)
    check_parameters(wanted, files.shapes(), config, where)
    check_storage_dtypes(files.dtypes(), where)
    return {
        name: recipe.build(*(files.read(source).astype(dtype) for source, _ in recipe.sources))
        for name, recipe in table.items()
    }


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """The safetensors files that `path` stands for."""
    if path.name.endswith(".safetensors"):
        return [path]
    if path.is_dir():
        indices = sorted(path.glob("*.safetensors.index.json"))
        if not indices:
            return sorted(path.glob("*.safetensors"))
        path = indices[0]
    shards = _read_json(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise CheckpointError(
            "The index has no 'weight_map'.", where=str(path), fix="Point at the .safetensors file itself."
        )
    files = [path.parent / pathlib.PurePath(shard).name for shard in sorted(set(shards.values()))]
    for file in files:
        if not file.exists():
            raise CheckpointError(
                f"The index names a shard that is not there: {file.name}.",
                where=str(path),
                fix="Download all shards into the same directory.",
            )
    return files


def _read_json(file: pathlib.Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"This JSON file cannot be read: {error}.", where=str(file)) from error
    if not isinstance(document, dict):
        raise CheckpointError("This JSON file does not hold an object.", where=str(file))
    return document
