"""Keeps constraints beside model checkpoints, as Orbax checkpoints. Orbax is imported when used.

The canonical form of a constraint is its one `.npz` file; this is an export with the same arrays and header.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fsa_compile.artifact.arrays import ARRAYS, OPTIONAL_ARRAYS, check_vocabulary
from fsa_compile.artifact.artifact_checks import check_contents
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.file import MAGIC, VERSIONS, fields_of_header, header_fields
from fsa_compile.artifact.item_trie import MAGIC as MAGIC_OF_ITEMS
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.errors import ArtifactError
from jax_decode.errors import DecodeError, MissingPackageError, named_arguments, path_of


@named_arguments
def save_orbax(constraint: CompiledConstraint | CompiledItems, path: str | os.PathLike[str]) -> None:
    """Writes a constraint as an Orbax checkpoint; complete when this returns.

    Args:
      constraint: what to save; or a set of items.
      path: folder to create; it must not exist.

    Raises:
      DecodeError: Orbax is not installed, or something is at `path` already.
    """
    ocp, path = _import_orbax(), path_of(path, "a folder").absolute()
    if not isinstance(constraint, (CompiledConstraint, CompiledItems)):
        raise DecodeError(f"a {type(constraint).__name__} is no compiled constraint", fix="Pass the constraint, then the folder.")
    if path.exists():
        raise DecodeError("there is something here already", where=str(path), fix="Give a folder that does not exist.")
    if isinstance(constraint, CompiledItems):
        arrays, header = constraint.arrays, constraint.header
        header["dtypes"] = {name: array.dtype.str for name, array in arrays.items()}
    else:
        arrays = {name: np.ascontiguousarray(getattr(constraint, name)) for name in ARRAYS}
        header = header_fields(constraint)
    # Orbax refuses arrays without elements: they are in the header's shapes alone.
    header["shapes"] = {name: list(array.shape) for name, array in arrays.items()}
    kept = {name: array for name, array in arrays.items() if array.size}
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        args = ocp.args.Composite(arrays=ocp.args.StandardSave(kept), header=ocp.args.JsonSave(header))
        checkpointer.save(path, args=args)


@named_arguments
def load_orbax(path: str | os.PathLike[str], vocabulary: Any = None) -> CompiledConstraint | CompiledItems:
    """Reads what `save_orbax` wrote, with all the checks of `CompiledConstraint.load` (or `CompiledItems.load`).

    Args:
      path: the checkpoint's folder.
      vocabulary: optional; a vocabulary, or a tokenizer that has one: its fingerprint must be the constraint's.

    Raises:
      DecodeError: Orbax is not installed, or this is no such checkpoint.
      fsa_compile.errors.ArtifactError: its contents are wrong, or it belongs to another vocabulary.
    """
    ocp, path = _import_orbax(), path_of(path, "a folder").absolute()
    bad = "this is not a constraint checkpoint"
    fix = "Give a folder written by save_orbax."
    if not path.is_dir():
        raise DecodeError("there is no such folder", where=str(path), fix=fix)
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
            header = checkpointer.restore(path, args=ocp.args.Composite(header=ocp.args.JsonRestore()))["header"]
            of_items = header.get("magic") == MAGIC_OF_ITEMS
            dtypes = header["dtypes"] if of_items else {name: dtype for name, (dtype, _) in ARRAYS.items()}
            dimensions = {name: 1 if of_items else ARRAYS[name][1] for name in dtypes}
            given = [name for name in dtypes if name in header["shapes"] or name not in OPTIONAL_ARRAYS]
            shapes = {name: tuple(header["shapes"][name]) for name in given}
            if any(len(shapes[name]) != dimensions[name] for name in given):
                raise ValueError("wrong number of dimensions")
            target = {n: np.zeros(shape, dtypes[n]) for n, shape in shapes.items() if np.prod(shape)}
            args = ocp.args.Composite(arrays=ocp.args.StandardRestore(target))
            restored = checkpointer.restore(path, args=args)["arrays"]
    except (KeyError, TypeError, ValueError, OSError, AttributeError) as e:
        raise DecodeError(f"{bad} ({type(e).__name__})", where=str(path), fix=fix) from e
    arrays = {n: np.array(restored[n]) if n in restored else np.zeros(shapes[n], dtypes[n]) for n in given}
    if of_items:
        return CompiledItems.checked(header, arrays, str(path), vocabulary)

    def damaged(what: str) -> ArtifactError:
        return ArtifactError(what, where=str(path), fix="Compile and save the constraint again.")

    if header.get("magic") != MAGIC or header.get("format_version") not in VERSIONS:
        raise DecodeError(f"{bad} of this format version", where=str(path), fix=fix)
    constraint = CompiledConstraint(**(fields_of_header(header, damaged) | arrays))
    check_contents(constraint, path)  # what a device step relies on
    if vocabulary is not None:
        check_vocabulary(constraint, vocabulary, where=str(path))
    return constraint


def _import_orbax() -> Any:
    try:
        import orbax.checkpoint as ocp
    except ModuleNotFoundError as e:
        raise MissingPackageError("orbax-checkpoint", "Keeping tables beside a checkpoint", "models") from e
    return ocp
