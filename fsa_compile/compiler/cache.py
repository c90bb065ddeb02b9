"""Artifacts on disk by what they were made from, so that a constraint is compiled once per machine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

from fsa_compile.artifact import file as artifact_file
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.errors import ArtifactError, ConstraintError, is_whole, named_fields, shown
from fsa_compile.inputs.files import checked_path
from fsa_compile.inputs.json_input import check_json, json_text
from fsa_compile.limits import MOST_DIGITS, CompileLimits
from fsa_compile.vocabulary.vocabulary import Vocabulary

_MAX_BYTES = 1 << 30
_ABANDONED = 3_600.0
"""Seconds after which a file that is still being written has no writer any more."""
_ANY_SIZE = CompileLimits(max_input=1 << 62, max_values=1 << 62, max_nesting=1 << 20, max_digits=MOST_DIGITS)


@named_fields
class CompileCache:
    """A folder of artifacts. Several processes may use it at the same time.

    A file is named by a digest of what was compiled, of all options, of the vocabulary, of this package's code and of Unicode's
    version, so a file that does not fit is never read. Damaged files are compiled again. Reading checks an artifact as
    `CompiledConstraint.load` does.

    Args:
      folder: where the files lie; made when first needed. None: `constraints` in `$CONSTRAX_CACHE`, else in the user's cache
        folder.
      max_bytes: the files used longest ago are deleted when all together take more.

    Attributes:
      folder: where the files lie.
      hits, misses: how often an artifact was read, and how often it was compiled.

    Examples:
      >>> import tempfile
      >>> vocabulary = Vocabulary.from_tokens([b"yes", b"no", b""], stop_ids=[2])
      >>> from fsa_compile.compiler.entry_points import compile_choices
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     cache = CompileCache(folder)
      ...     for _ in range(2):
      ...         made = cache.get({"choices": ["yes"]}, vocabulary, lambda: compile_choices(["yes"], vocabulary))
      ...     print(cache.hits, cache.misses, made.source)
      1 1 1 choices
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, max_bytes: int = _MAX_BYTES) -> None:
        if not is_whole(max_bytes, 0, sys.maxsize):
            raise ConstraintError(f"max_bytes must be an int that is not negative, not {max_bytes!r}")
        self.folder = _default_folder() if folder is None else checked_path(folder)
        self.hits = self.misses = 0
        self._max_bytes = int(max_bytes)

    def get(self, what: Any, vocabulary: Vocabulary, make: Callable[[], CompiledConstraint]) -> CompiledConstraint:
        """The artifact of a constraint, from disk or made now.

        Args:
          what: everything that the result depends on besides the vocabulary, as JSON values; the order of keys matters.
          vocabulary: which the constraint is compiled over.
          make: compiles it; its exceptions pass through, and nothing is kept of them.
        """
        key = self.key(what, vocabulary)
        path = self.folder / f"{key}.npz"
        if path.is_file():
            with contextlib.suppress(ArtifactError, OSError):
                found = _entry(path, key, vocabulary)
                with contextlib.suppress(OSError):
                    os.utime(path)  # the time of last use, for `_shrink`
                self.hits += 1
                return found
        made = make()
        self.misses += 1
        with contextlib.suppress(OSError):  # a disk that cannot be written only costs time
            self.folder.mkdir(parents=True, exist_ok=True)
            artifact_file.write(made, path, key=key)
            self._shrink(keep=path)
        return made

    @staticmethod
    def key(what: Any, vocabulary: Vocabulary) -> str:
        """Name of a constraint's file: values of different types have different keys.

        Raises:
          ConstraintError: `what` holds something else than JSON values.
        """
        if not hasattr(vocabulary, "fingerprint"):
            raise ConstraintError(f"the vocabulary is {shown(vocabulary)}", fix="Give tokenizer.vocabulary.")
        check_json(what, _ANY_SIZE, _no_key, what="what an artifact is made from")
        text = json_text([what, vocabulary.fingerprint, code_digest()])
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    def clear(self) -> None:
        """Deletes all artifacts of the folder."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [path for path in self.folder.glob("*.npz") if len(path.stem) == 40 and path.is_file()]

    def _shrink(self, keep: Path) -> None:
        long_ago = time.time() - _ABANDONED
        for path in self.folder.glob(".*.npz.*.part"):  # of writers that were killed
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < long_ago:
                    path.unlink()
        sizes = []
        for path in self._files():
            with contextlib.suppress(OSError):  # another process may have deleted it
                status = path.stat()
                sizes.append((path == keep, status.st_mtime, status.st_size, path))
        total = sum(size for _, _, size, _ in sizes)
        for new, _, size, path in sorted(sizes):
            if total <= self._max_bytes or new:
                break
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                total -= size


def _entry(path: Path, key: str, vocabulary: Vocabulary) -> CompiledConstraint:
    """The artifact of a file that was written for a key; raises `ArtifactError` for that of another one."""
    if artifact_file.read_header(path, (artifact_file.MAGIC,)).get("key") != key:
        raise ArtifactError("the file was written for another constraint", where=str(path))
    return CompiledConstraint.load(path, vocabulary)


def _no_key(what: str, *, pointer: str, fix: str = "") -> ConstraintError:
    return ConstraintError(f"{what}, so it cannot be looked up", where=f"at {pointer}", fix=fix or "Leave the cache out.")


def _default_folder() -> Path:
    given = os.environ.get("CONSTRAX_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "constrax"
    return base / "constraints"


@functools.cache
def code_digest() -> str:
    """Digest of what may make other artifacts of the same input: the compiling half's own source, and the Unicode data of the
    running Python and of `regex`, from which classes such as `\\w` and `\\p{Lu}` are read."""
    digest = hashlib.sha256(repr(_unicode_data()).encode())
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _unicode_data() -> tuple[str, str | None]:
    """The version of Python's Unicode data, and that of `regex`, which has its own; None where it is not installed."""
    from importlib import metadata  # fsa_compile: lazy, it imports what reads mails

    with contextlib.suppress(metadata.PackageNotFoundError):
        return unidata_version, metadata.version("regex")
    return unidata_version, None
