"""`CompiledConstraint`: a constraint's arrays with what people do to them: save, load, walk. Imports NumPy only."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Self

from fsa_compile.artifact import file as artifact_file
from fsa_compile.artifact.arrays import UNBOUNDED, ConstraintArrays, check_vocabulary
from fsa_compile.artifact.artifact_checks import check_contents
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.errors import ArtifactError
from fsa_compile.inputs.files import checked_path


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CompiledConstraint(ConstraintArrays):
    """A constraint over one vocabulary, ready for the host walk and for the device.

    Its fields are those of `ConstraintArrays`.
    """

    @property
    def shortest_completion(self) -> int:
        """Number of tokens within which some accepted text is complete (the end-of-text token not counted); the least one
        for a regular constraint, at most a little more for others, and for canonical ones with `canonical_unless` or a stack."""
        if self.is_canonical:
            return self.canonical_start[1]
        return self.walk().distance

    @property
    def unenforced(self) -> tuple[str, ...]:
        """JSON pointers of the keywords that the constraint leaves out, which are to be checked in the value; see
        `SchemaOptions.unenforced`."""
        return tuple(self.extra.get("unenforced", ()))

    @property
    def open_objects(self) -> tuple[str, ...]:
        """JSON pointers of the objects of a JSON Schema that may have other keys than those it names, as is the standard's
        default; `SchemaOptions(additional_properties=False)` closes them."""
        return tuple(self.extra.get("open_objects", ()))

    @property
    def has_bounds(self) -> bool:
        """Whether it is known within how many tokens and stack cells a text can be completed, so that limits can be kept."""
        return self.is_canonical or (self.shortest_completion < UNBOUNDED and self.shortest_depth < UNBOUNDED)

    @property
    def shortest_depth(self) -> int:
        """Number of stack cells within which some accepted text is complete."""
        return HostWalk.of_arrays(self).need

    def walk(self, max_depth: int | None = None) -> HostWalk:
        """A new host executor at the start of the text, within a depth of stack or without limit."""
        return HostWalk(self, max_depth)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the constraint to one uncompressed `.npz` file, atomically.

        An interrupted save leaves the old file, or none, never half of one.

        Args:
          path: file to write; replaced when it exists.

        Raises:
          OSError: the file cannot be written.
        """
        artifact_file.write(self, checked_path(path, ArtifactError))

    @classmethod
    def load(cls, path: str | os.PathLike[str], vocabulary: Any = None) -> Self:
        """Reads a constraint and checks everything a device step relies on.

        Nothing is unpickled, and no array is allocated before its size was checked against the file's own length.

        Args:
          path: file written by `save`.
          vocabulary: optional; a `Vocabulary`, or a tokenizer that has one: its fingerprint must be the artifact's.

        Raises:
          ArtifactError: what is wrong with the file, or that it belongs to another vocabulary.
        """
        path = checked_path(path, ArtifactError)
        constraint = cls(**artifact_file.read(path))
        check_contents(constraint, path)
        if vocabulary is not None:
            check_vocabulary(constraint, vocabulary, where=str(path))
        return constraint
