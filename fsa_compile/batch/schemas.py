"""Many JSON Schemas compiled on all cores, with a progress bar."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.batch.processes import in_processes
from fsa_compile.compiler.arguments import checked_cache, vocabulary_of
from fsa_compile.compiler.cache import CompileCache
from fsa_compile.errors import ConstraintError, checked_flag, is_whole
from fsa_compile.inputs.files import checked_path
from fsa_compile.inputs.guard import guarded_loop
from fsa_compile.json_schema import SchemaOptions, compile_json_schema
from fsa_compile.json_schema.schema_options import checked_options
from fsa_compile.limits import CompileLimits, checked_limits
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

_T = TypeVar("_T")
_FEW = 16
"""So many schemas are compiled sooner than processes start."""


@dataclasses.dataclass(frozen=True, eq=False)
class BatchResult:
    """What came of one schema.

    Attributes:
      name: of the schema.
      constraint: the artifact, or None where there is none, or where it was written to a file.
      path: the file, or None.
      error: why there is no artifact, or None.
    """

    name: str
    constraint: CompiledConstraint | None = None
    path: Path | None = None
    error: ConstraintError | None = None


@guarded_loop
def compile_schemas(
    schemas: Mapping[str, Any],
    tokenizer: Any,
    *,
    options: SchemaOptions | None = None,
    limits: CompileLimits | None = None,
    output: str | os.PathLike[str] | None = None,
    cache: CompileCache | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> dict[str, BatchResult]:
    """Compiles many JSON Schemas over one vocabulary, several at a time.

    A schema that cannot be compiled does not stop the others.

    Args:
      schemas: decoded JSON, or its text, by name.
      tokenizer, options, limits: see `compile_json_schema`; the limits are for each schema.
      output: folder to write `NAME.npz` files to, instead of keeping the artifacts in memory.
      cache: see `compile_json_schema`.
      workers: processes; None: one per core, none besides this one where there are few schemas. The processes are started
        afresh, so a script that calls this needs `if __name__ == "__main__":`, as with any use of `multiprocessing`.
      progress: show a progress bar on standard error; None: if that is a terminal. Needs tqdm.

    Returns:
      The results by name, in the order of the schemas.

    Raises:
      ConstraintError: the vocabulary cannot be read, a name cannot be a file's, or an argument is wrong.

    Examples:
      >>> vocabulary = Vocabulary.from_tokens([b"true", b"false", b"null", b""], stop_ids=[3])
      >>> made = compile_schemas({"flag": {"type": "boolean"}, "none": False}, vocabulary)
      >>> made["flag"].constraint.walk().allowed().tolist(), type(made["none"].error).__name__
      ([True, True, False, False], 'UnsatisfiableSchemaError')
    """
    if not isinstance(schemas, Mapping):
        what = f"schemas must be a mapping of names to schemas, not {type(schemas).__name__}"
        raise ConstraintError(what, fix='Write {"name": schema}.')
    check_workers(workers)
    checked_cache(cache)
    check_batch(options, limits, progress)
    vocabulary = vocabulary_of(tokenizer)
    folder = None if output is None else output_folder(checked_path(output), schemas)
    task = _Task(vocabulary, options, limits, folder, cache)
    tables_for(vocabulary)  # into the cache on disk, from where the processes read them
    count = min(workers or cores(), len(schemas))
    if workers is None and len(schemas) < _FEW:
        count = 1
    results: Iterator[BatchResult] = itertools.starmap(task, schemas.items())
    if count > 1:
        results = in_processes(task, {name: (schema,) for name, schema in schemas.items()}, count, _lost)
    found = {result.name: result for result in shown(results, len(schemas), progress, "schemas")}
    return {name: found[name] for name in schemas}


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """What every process needs to know."""

    vocabulary: Vocabulary
    options: SchemaOptions | None
    limits: CompileLimits | None
    folder: Path | None
    cache: CompileCache | None

    def __call__(self, name: str, schema: Any) -> BatchResult:
        try:
            made = compile_json_schema(
                schema, self.vocabulary, options=self.options, limits=self.limits, cache=self.cache
            )  # fmt: skip
        except ConstraintError as error:
            return BatchResult(name, error=error)
        if self.folder is None:
            return BatchResult(name, made)
        path = self.folder / f"{name}.npz"
        made.save(path)
        return BatchResult(name, path=path)


def _lost(name: str, error: Exception) -> BatchResult:
    if not isinstance(error, (BrokenProcessPool, pickle.PicklingError, TypeError, AttributeError)):
        raise error  # such as a full disk
    what = f"the schema was not compiled in another process: {error} ({type(error).__name__})"
    return BatchResult(name, error=ConstraintError(what, where=name, fix="Compile it with workers=1, or lower its limits."))


def check_workers(workers: int | None) -> None:
    """Raises `ConstraintError` for a number of processes that is none."""
    if workers is not None and not is_whole(workers, 1):
        raise ConstraintError(f"workers must be a positive int, not {workers!r}")


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_batch(options: SchemaOptions | None, limits: CompileLimits | None, progress: bool | None) -> None:
    """Raises `ConstraintError` for what else every constraint would be refused for."""
    checked_options(options)
    if limits is not None:
        checked_limits(limits)
    if progress is not None:
        checked_flag(progress, "progress")


def output_folder(output: str | os.PathLike[str], names: Iterable[str]) -> Path:
    """The folder as a path; raises `ConstraintError` where there is none, or a name cannot be a file's."""
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise ConstraintError(f"{name!r} cannot be the name of a file", fix="Name the schemas without slashes.")
    folder = Path(output)
    if not folder.is_dir():
        raise ConstraintError(f"there is no folder {folder}", where=str(folder), fix="Make it first.")
    return folder


def shown(results: Iterable[_T], total: int, progress: bool | None, what: str) -> Iterable[_T]:
    """The results, counted by a progress bar where one is wanted; see `compile_schemas`."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return results
    try:
        from tqdm import tqdm
    except ImportError:
        return results
    return tqdm(results, total=total, desc=what, leave=False)
