"""`Registry`: a folder of compiled constraints by name. Imports NumPy only; what is loaded is checked as by `load`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.file import MAGIC, read_header
from fsa_compile.artifact.item_trie import MAGIC as ITEMS_MAGIC
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.errors import ArtifactError, ConstraintError, checked_flag, named_fields
from fsa_compile.inputs.files import checked_path, replacing

INDEX = "index.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """What a registry knows about a constraint without loading it.

    Attributes:
      name: its name.
      kind: "constraint" or "items".
      source: what was compiled, for people; its first 200 characters.
      vocab_size: V.
      fingerprint: of the vocabulary.
      format_version: of the file.
      bytes: size of the file.
    """

    name: str
    kind: str
    source: str
    vocab_size: int
    fingerprint: str
    format_version: int
    bytes: int


@named_fields
class Registry:
    """A folder with one file per constraint, `NAME.npz`, and an index for programs that only want to look, `index.json`.

    The files are the truth: the index is written anew from their headers whenever something is saved or removed, and is never
    read here. Every file is replaced in one step, so several processes may use a folder at the same time; the index then has what
    the last of them saw, and `rebuild()` repairs it.

    Args:
      folder: where the files lie; made when first saved to.

    Examples:
      >>> import tempfile
      >>> from fsa_compile import Vocabulary, compile_choices
      >>> vocabulary = Vocabulary.from_tokens([b"yes", b"no", b""], stop_ids=[2])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     registry = Registry(folder)
      ...     registry.save("answer", compile_choices(["yes", "no"], vocabulary)).name
      ...     registry.names(), registry.load("answer", vocabulary).vocab_size
      'answer.npz'
      (['answer'], 3)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = checked_path(folder)

    def save(self, name: str, constraint: CompiledConstraint | CompiledItems, *, replace: bool = False) -> Path:
        """Writes a constraint and the index.

        Args:
          name: letters, digits, `.`, `_` and `-`, at most 100, the first a letter or a digit.
          constraint: what to keep.
          replace: whether one of this name may be replaced.

        Returns:
          The file.

        Raises:
          ConstraintError: the name cannot be one, is taken, or it is no constraint.
          OSError: the folder cannot be written.
        """
        path = self._path(name)
        if not isinstance(constraint, (CompiledConstraint, CompiledItems)):
            what = f"a compiled constraint is needed, not {type(constraint).__name__}"
            raise ConstraintError(what, fix="Make one with fsa_compile.compile_regex, compile_json_schema, compile_items, ...")
        if not checked_flag(replace, "replace") and path.exists():
            raise ConstraintError("there is a constraint of this name", where=str(path), fix="Pass replace=True, or rename it.")
        self.folder.mkdir(parents=True, exist_ok=True)
        constraint.save(path)
        self.rebuild()
        return path

    def load(self, name: str, tokenizer: Any) -> CompiledConstraint | CompiledItems:
        """Reads a constraint of either kind and checks its contents.

        Args:
          name: as it was saved.
          tokenizer: a tokenizer or its `Vocabulary`: the constraint must have been compiled for it. A number V for items that
            were compiled for one.

        Raises:
          ArtifactError: there is none, its file is damaged or of another version, or it belongs to another vocabulary.
        """
        entry = self.entry(name)
        path = self._path(name)
        if entry.kind == "constraint":
            constraint = CompiledConstraint.load(path)
            check_vocabulary(constraint, tokenizer, where=str(path))
            return constraint
        items = CompiledItems.load(path)
        if isinstance(tokenizer, int):
            from fsa_compile.items.item_inputs import catalogue_vocabulary

            tokenizer = catalogue_vocabulary(tokenizer, ())[0]
        check_vocabulary(items, tokenizer, where=str(path))
        return items

    def entry(self, name: str) -> Entry:
        """What is known about a constraint; reads its file's header only.

        Raises:
          ArtifactError: there is no such file, or it is damaged or of another version.
        """
        path = self._path(name)
        if not path.is_file():
            known = ", ".join(self.names()[:8])
            fix = f"Its constraints begin with {known}." if known else "The folder has no constraints."
            raise ArtifactError(f"there is no constraint '{name}'", where=str(self.folder), fix=fix)
        header = read_header(path, (MAGIC, ITEMS_MAGIC))
        return Entry(
            name=name,
            kind="constraint" if header["magic"] == MAGIC else "items",
            source=str(header.get("source", ""))[:200],
            vocab_size=int(header["vocab_size"]),
            fingerprint=str(header["fingerprint"]),
            format_version=int(header["format_version"]),
            bytes=path.stat().st_size,
        )

    def names(self) -> list[str]:
        """The names of all files that could be constraints, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(p.stem for p in self.folder.glob("*.npz") if p.is_file() and _is_name(p.stem))

    def remove(self, name: str) -> None:
        """Deletes a constraint.

        Raises:
          ArtifactError: there is none.
        """
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise ArtifactError(f"there is no constraint '{name}'", where=str(self.folder), fix="See names().") from None
        self.rebuild()

    def rebuild(self) -> dict[str, Entry]:
        """Writes `index.json` from the headers of all files, and returns it; files that cannot be read are left out."""
        entries = {}
        for name in self.names():
            with contextlib.suppress(ArtifactError, OSError):
                entries[name] = self.entry(name)
        if self.folder.is_dir():
            text = json.dumps({name: dataclasses.asdict(entry) for name, entry in entries.items()}, indent=1, sort_keys=True)
            with replacing(self.folder / INDEX) as file:
                file.write(f"{text}\n".encode())
        return entries

    def _path(self, name: str) -> Path:
        if not isinstance(name, str) or not _is_name(name):
            what = f"{name!r:.80} is no name of a constraint"
            fix = "Use letters, digits, '.', '_' and '-', at most 100, the first a letter or a digit."
            raise ConstraintError(what, fix=fix)
        return self.folder / f"{name}.npz"


def _is_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not _RESERVED.fullmatch(name) and not name.endswith(".")
