"""`compile_folder` on a Ray cluster: every task compiles a part of the constraints. Needs the extra `constrax[ray]`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fsa_compile.batch.folder import Record, compile_folder, read_constraints
from fsa_compile.compiler.arguments import vocabulary_of
from fsa_compile.errors import CallError, MissingPackageError, naming

_PARTS_PER_CORE = 4
"""So that a part with slow constraints does not keep the others waiting for long."""


@naming(CallError)
def compile_on_ray(
    constraints: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str],
    tokenizer: Any,
    folder: str | os.PathLike[str],
    *,
    parts: int | None = None,
    **options: Any,
) -> dict[str, Record]:
    """Compiles constraints into a folder that all machines of a Ray cluster share.

    Started again, it goes on where it stopped; so does a task that Ray starts again because its machine was lost.

    Args:
      constraints, tokenizer: see `compile_folder`.
      folder: an absolute path, on a file system that every machine sees there.
      parts: tasks; None: four per core of the cluster.
      options: `options`, `limits` and `retry` of `compile_folder`.

    Returns:
      The records of all constraints, in their order.

    Raises:
      MissingPackageError: Ray is not installed.
      ConstraintError: as `compile_folder`.
    """
    try:
        import ray
    except ModuleNotFoundError as e:
        raise MissingPackageError("ray", "Compiling on a Ray cluster", "ray") from e
    if not ray.is_initialized():
        ray.init()
    if not isinstance(constraints, Mapping):
        constraints = read_constraints(constraints)
    count = parts or max(1, int(ray.cluster_resources().get("CPU", 1)) * _PARTS_PER_CORE)
    shared = ray.put((dict(constraints), vocabulary_of(tokenizer), os.path.abspath(folder)))

    @ray.remote
    def compiled(given: tuple[Any, ...], part: int) -> dict[str, Record]:
        return compile_folder(*given, workers=1, shard=(part, count), progress=False, **options)

    found: dict[str, Record] = {}
    for part in ray.get([compiled.remote(shared, i) for i in range(count)]):
        found |= part
    return {name: found[name] for name in constraints}
