"""Thousands of constraints of any kind, compiled into a folder: by several processes, on several machines, and resumable.

The folder holds a file `NAME.npz` per constraint and a manifest, to which a line is appended whenever a constraint is done,
refused ones too. A run that was killed is started again with the same arguments: it reads the manifest and goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from fsa_compile.batch.processes import in_processes
from fsa_compile.batch.schemas import check_batch, check_workers, cores, output_folder, shown
from fsa_compile.compiler.arguments import vocabulary_of
from fsa_compile.compiler.cache import CompileCache
from fsa_compile.errors import ConstraintError, checked_flag, is_whole
from fsa_compile.formats.request import FormatError
from fsa_compile.inputs.files import checked_path, open_regular
from fsa_compile.inputs.guard import guarded_loop
from fsa_compile.inputs.json_input import check_json
from fsa_compile.interop.structured_outputs import compile_structured_outputs
from fsa_compile.json_schema import SchemaOptions
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

_LONGEST_NAME = 255 - len("..12345678.part")
"""Bytes of a file's name, with room for that of the file while it is written."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A line of a manifest.

    Attributes:
      name: of the constraint.
      key: digest of the constraint, the options, the vocabulary and this package's code: where it differs, it is compiled again.
      bytes: size of `NAME.npz`, 0 where there is none.
      error: why there is no file, or None; kind: the error's type. A constraint whose compilation killed its process has one.
      seconds: that it took.
    """

    name: str
    key: str
    bytes: int = 0
    error: str | None = None
    kind: str | None = None
    seconds: float = 0.0

    def line(self) -> str:
        """The record as a line of a manifest."""
        return json.dumps({k: v for k, v in dataclasses.asdict(self).items() if v is not None}) + "\n"


@guarded_loop
def compile_folder(
    constraints: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str],
    tokenizer: Any,
    folder: str | os.PathLike[str],
    *,
    options: SchemaOptions | None = None,
    limits: CompileLimits | None = None,
    workers: int | None = None,
    shard: tuple[int, int] = (0, 1),
    retry: bool = False,
    progress: bool | None = None,
) -> dict[str, Record]:
    """Compiles constraints into a folder, and goes on where an earlier run with the same arguments stopped.

    No constraint stops the others: what cannot be compiled is a record with an error, whatever the reason.

    Args:
      constraints: by name what `compile_structured_outputs` takes, such as `{"json": schema}`, `{"regex": pattern}`,
        `{"choice": [...]}`, `{"grammar": text}`; or a file with one such object a line, its name in `name`.
      tokenizer, options, limits: see `compile_structured_outputs`; the limits are for each constraint.
      folder: where `NAME.npz` and the manifests go; made if missing.
      workers: processes; None: one per core. They are started afresh, so a script that calls this needs
        `if __name__ == "__main__":`.
      shard: (i, n): only the i-th of n parts, for n machines that share the folder. Names decide, not their order; every part has
        a manifest of its own.
      retry: compile those again that had an error.
      progress: show a progress bar on standard error; None: if that is a terminal. Needs tqdm.

    Returns:
      The records of all constraints that were asked for, in their order, earlier runs' included. `read_manifest` reads them back.

    Raises:
      ConstraintError: the vocabulary or the file of constraints cannot be read, a name cannot be a file's, or an argument is
        wrong.

    Examples:
      >>> import tempfile
      >>> vocabulary = Vocabulary.from_tokens([b"yes", b"no", b""], stop_ids=[2])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     made = compile_folder({"answer": {"choice": ["no"]}, "odd": {"regex": "["}}, vocabulary, folder, workers=1)
      ...     {name: record.kind for name, record in made.items()}, read_manifest(folder) == made
      ({'answer': None, 'odd': 'RegexSyntaxError'}, True)
    """
    part, parts = _checked_shard(shard)
    check_workers(workers)
    check_batch(options, limits, progress)
    folder, retry = checked_path(folder), checked_flag(retry, "retry")
    if not isinstance(constraints, Mapping):
        constraints = read_constraints(constraints)
    names = [name for name in constraints if zlib.crc32(str(name).encode("utf-8", "surrogatepass")) % parts == part]
    folder.mkdir(parents=True, exist_ok=True)
    task = _Task(vocabulary_of(tokenizer), options, limits, output_folder(folder, constraints))
    found, refused, left = _sorted_out(task, {name: constraints[name] for name in names}, retry)
    if left or refused:
        with _appended(task.folder / _manifest(part, parts)) as manifest:
            for record in itertools.chain(refused, shown(_made(task, left, workers), len(left), progress, "constraints")):
                manifest.write(record.line())
                manifest.flush()
                found[record.name] = record
    return {name: found[name] for name in names}


def _made(task: _Task, left: dict[str, tuple[str, Any]], workers: int | None) -> Iterator[Record]:
    """Records of what is left, compiled by several processes where that pays."""
    count = min(workers or cores(), len(left))
    if count <= 1:
        return map(task, left, *zip(*left.values()))

    def lost(name: str, error: Exception) -> Record:
        return Record(name=name, key=left[name][0], error=str(error), kind=type(error).__name__)

    tables_for(task.vocabulary)  # into the cache on disk, from where the processes read them
    return in_processes(task, left, count, lost)


def _sorted_out(
    task: _Task, constraints: Mapping[str, Any], retry: bool
) -> tuple[dict[str, Record], list[Record], dict[str, tuple[str, Any]]]:
    """Records of earlier runs that still hold, those of what is refused at once, and (key, constraint) of the rest by name."""
    known = read_manifest(task.folder)
    found: dict[str, Record] = {}
    refused: list[Record] = []
    left: dict[str, tuple[str, Any]] = {}
    for name, constraint in constraints.items():
        given = task.prepared(name, constraint)
        key = given.key if isinstance(given, Record) else given
        if name in known and _still_holds(known[name], key, task.folder, retry):
            found[name] = known[name]
        elif isinstance(given, Record):
            refused.append(given)
        else:
            left[name] = key, constraint
    return found, refused, left


@guarded_loop
def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Record]:
    """The last record of every constraint of a folder, from the manifests of all its parts, in the order they were done.

    A line that a killed run left unfinished is passed over.
    """
    found: dict[str, Record] = {}
    for path in sorted(checked_path(folder).glob("manifest*.jsonl")):
        with open_regular(path) as file:
            lines = file.read().decode("utf-8", "replace").splitlines()
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                record = Record(**json.loads(line))
                found[record.name] = record
    return found


@guarded_loop
def read_constraints(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Constraints from a file with one JSON object a line: `{"name": ..., "json": ...}`, see `compile_folder`.

    Raises:
      ConstraintError: a line is no such object, or two have the same name; says which line.
      OSError: the file cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
    with open_regular(checked_path(path)) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where, fix = f"{path}, line {number}", 'Write one object a line: {"name": "date", "regex": "[0-9]{4}"}.'
            try:
                item = json.loads(line.decode("utf-8-sig"))
                name = item.pop("name")
            except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as e:
                raise ConstraintError("this line is not a JSON object with a name", where=where, fix=fix) from e
            if not isinstance(name, str) or name in found:
                raise ConstraintError(f"the name {name!r} is not a string, or was there before", where=where, fix=fix)
            found[name] = item
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """What every process needs to know."""

    vocabulary: Vocabulary
    options: SchemaOptions | None
    limits: CompileLimits | None
    folder: Path

    def prepared(self, name: str, constraint: Any) -> str | Record:
        """The key of a constraint, or a record of why it is refused before it is compiled."""
        try:
            if "\0" in name or len(os.fsencode(self._path(name).name)) > _LONGEST_NAME:
                fix = "Use fewer characters, and none that are NUL."
                raise ConstraintError(f"{name!r:.40} cannot be the name of a file", fix=fix)
            check_json(constraint, self.limits or CompileLimits(), FormatError, what="the constraint")
            return CompileCache.key([constraint, repr(self.options), repr(self.limits)], self.vocabulary)
        except (ConstraintError, UnicodeEncodeError, RecursionError) as error:
            digest = hashlib.sha256(f"{name!r} {error}".encode("utf-8", "replace")).hexdigest()
            return Record(name=name, key=digest, error=str(error), kind=type(error).__name__)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"

    def __call__(self, name: str, key: str, constraint: Any) -> Record:
        start = time.perf_counter()
        path = self._path(name)
        try:
            made = compile_structured_outputs(constraint, self.vocabulary, options=self.options, limits=self.limits)
            made.save(path)
        except Exception as error:  # whatever it is, the others go on, and the manifest tells
            path.unlink(missing_ok=True)
            return Record(name=name, key=key, error=str(error), kind=type(error).__name__, seconds=_since(start))
        return Record(name=name, key=key, bytes=path.stat().st_size, seconds=_since(start))


def _still_holds(record: Record, key: str, folder: Path, retry: bool) -> bool:
    """Whether a constraint need not be compiled again."""
    if record.key != key:
        return False
    if record.error is not None:
        return not retry
    path = folder / f"{record.name}.npz"
    return path.exists() and path.stat().st_size == record.bytes


@contextlib.contextmanager
def _appended(path: Path) -> Iterator[TextIO]:
    """A manifest to write lines to, behind what is there: a line that a killed run left unfinished is ended first."""
    torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with open(path, "a", encoding="utf-8") as file:
        if torn:
            file.write("\n")
        yield file


def _manifest(part: int, parts: int) -> str:
    return "manifest.jsonl" if parts == 1 else f"manifest-{part}-of-{parts}.jsonl"


def _checked_shard(shard: Any) -> tuple[int, int]:
    try:
        part, parts = shard
        if is_whole(parts, 1) and is_whole(part, 0, int(parts) - 1):
            return int(part), int(parts)
    except (TypeError, ValueError):
        pass
    raise ConstraintError(f"the shard is {shard!r}", fix="Give (i, n) with i from 0 to n - 1.")


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 4)
