"""Walked leaves on disk, beside the tables of their vocabulary: a process that finds string bodies there need not walk them.

What is stored depends on the code that walked it, so a folder belongs to one state of the package's files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fsa_compile.arrays.hashing import mixed
from fsa_compile.composition.tokens.token_sets import Parts
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables, cache_folder

T = TypeVar("T")

_LEAST_SECONDS = 0.003
"""A leaf that is walked faster is not stored: reading it takes about a third of that."""
_MOST_FILES = 512
"""Leaves of one vocabulary."""
_MOST_BYTES = 48 << 20
"""Of one leaf; the largest ones, of URIs and the like, take two seconds to walk and a thirtieth of that to read."""
_MOST_IN_ALL = 192 << 20
"""Bytes of the leaves of one vocabulary."""
_STALE_SECONDS = 86_400.0
"""A leaf that was not read for so long makes room for new ones, as does one that was never read: it is as old as that from the
beginning. So what a long run needs once does not drive out the common ones, and does not keep new ones out."""
_UNUSED_SECONDS = 30 * 86_400.0
"""After so long without a new leaf, the folder of another state of the package's files is deleted."""
_ROW = 1 << 10
"""Words of which one sum is made."""
_COLUMNS = tuple(field.name for field in dataclasses.fields(Parts) if field.name != "rows")


def stocked(tables: VocabularyTables, key: bytes, walk: Callable[[], T], make: Callable[..., T]) -> T:
    """A leaf from the disk, or walked now, and stored if that took long.

    Args:
      tables: the vocabulary.
      key: tells leaves of one vocabulary apart.
      walk: walks it; what it returns has the fields of `summaries.Summary`.
      make: makes one of these fields.
    """
    folder = _folder(tables.fingerprint)
    if folder is None:
        return walk()
    path = folder / f"{key.hex()}.npy"
    if (fields := _read(path, key)) is not None:
        return make(*fields)
    begin = time.process_time()
    found = walk()
    if time.process_time() - begin >= _LEAST_SECONDS:
        _store(found, path, key)
    return found


def _folder(fingerprint: str) -> Path | None:
    base = cache_folder()
    return None if base is None else base / f"leaves-{fingerprint[:32]}-{_code()}"


@functools.cache
def _code() -> str:
    """Tells states of the files apart that leaves depend on: names, sizes and times of change."""
    root, found = str(Path(__file__).parents[2]), []
    for name in ("composition", "automata", "vocabulary", "arrays"):
        for folder, _, files in os.walk(os.path.join(root, name)):
            found += [os.path.join(folder, file) for file in files if file.endswith(".py")]
    states = ((path[len(root) :], os.stat(path)) for path in sorted(found))
    text = "\n".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)
    return hashlib.sha256(f"{np.__version__}\n{text}".encode()).hexdigest()[:16]


def _read(path: Path, key: bytes) -> tuple[Any, ...] | None:
    """The fields of a stored leaf; None where there is none that can be used."""
    try:
        if path.is_symlink() or (state := path.stat()).st_size > 2 * _MOST_BYTES:
            return None
        data = path.read_bytes()
        if time.time() - state.st_mtime > _STALE_SECONDS / 8:
            with contextlib.suppress(OSError):  # somebody else's folder
                os.utime(path)
        if _check(data, 16, key) != data[:16]:
            return None
        count = int.from_bytes(data[16:24], "little")
        head = np.frombuffer(data, np.int64, 4 * count + 2, 32)
        at, arrays = 32 + head.nbytes, list[np.ndarray]()
        for kind, rows, columns, size in head[2:].reshape(-1, 4).tolist():
            array = np.frombuffer(data, _KINDS[kind], size, at)
            at += -(-array.nbytes // 8) * 8
            array = array.astype(np.int32) if array.dtype in _SMALL else array
            arrays.append(array if columns < 0 else array.reshape(rows, columns))
    except (OSError, ValueError, IndexError):  # a cache that cannot be read, for whatever reason, is made anew
        return None
    own, links, leaving = len(_COLUMNS), 4, len(arrays) - len(_COLUMNS) - 4 - 1
    parts = Parts(**dict(zip(_COLUMNS, arrays)), rows=list(arrays[-1]))
    return parts, tuple(arrays[own : own + links]), tuple(arrays[own + links : own + links + leaving]), *head[:2].tolist()


def _check(data: bytes, begin: int, key: bytes) -> bytes:
    """Tells whether a leaf is as it was written, under its own key: 16 bytes of its words from `begin` on, by odd factors. A hash
    of the bytes would take most of the time that reading does."""
    words = np.frombuffer(data, np.uint64, offset=begin)
    whole = len(words) - len(words) % _ROW
    columns, rows = (mixed(np.arange(size)) | np.uint64(1) for size in (_ROW, whole // _ROW + 1))
    sums = np.append(words[:whole].reshape(-1, _ROW) @ columns, words[whole:] @ columns[: len(words) - whole])
    return hashlib.blake2b((sums @ rows).tobytes() + len(words).to_bytes(8, "little"), digest_size=16, key=key).digest()


_KINDS = tuple(np.dtype(name) for name in ("int64", "uint64", "int32", "uint32", "int16", "int8"))
_SMALL = _KINDS[-2:]
"""What int32 is stored as where it fits."""


def _stored(array: np.ndarray) -> np.ndarray:
    """The same numbers in the smallest type, if they are int32."""
    if array.dtype != np.int32:
        return array
    most = max(int(array.max(initial=0)), -1 - int(array.min(initial=0)))
    return array.astype(np.int8 if most < 1 << 7 else np.int16 if most < 1 << 15 else np.int32, copy=False)


def _store(found: Any, path: Path, key: bytes) -> None:
    """Writes a leaf atomically; a disk that cannot be written only costs time."""
    rows = np.stack(found.parts.rows) if found.parts.rows else np.zeros((0, 1), np.uint32)
    arrays = [_stored(a) for a in (*(getattr(found.parts, name) for name in _COLUMNS), *found.links, *found.leaving, rows)]
    if any(array.dtype not in _KINDS for array in arrays) or len(found.links) != 4 or sum(a.nbytes for a in arrays) > _MOST_BYTES:
        return
    shapes = [(_KINDS.index(a.dtype), len(a), a.shape[1] if a.ndim > 1 else -1, a.size) for a in arrays]
    head = np.array([found.size, found.runs, *(x for shape in shapes for x in shape)], np.int64)
    body = [head.tobytes(), *(a.tobytes() + b"\0" * (-a.nbytes % 8) for a in arrays)]
    text = len(arrays).to_bytes(8, "little") + b"\0" * 8 + b"".join(body)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            _delete_unused(path.parent)
        if not _made_room(path.parent, len(text)):
            return
        part.write_bytes(_check(text, 0, key) + text)
        os.utime(part, (unread := time.time() - _STALE_SECONDS, unread))
        os.replace(part, path)
    except OSError:
        return
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _made_room(folder: Path, size: int) -> bool:
    """Whether a leaf of a size has room in a folder, once stale ones are deleted where that is needed, and at most one other."""
    files = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder)]
    left, held, leaving = len(files), sum(length for _, length, _ in files), list[str]()
    for used, length, path in sorted(files):
        if left < _MOST_FILES and held + size <= _MOST_IN_ALL:
            break
        leaving.append(path)
        left, held = left - 1, held - length
        if time.time() - used < _STALE_SECONDS:
            break
    if left >= _MOST_FILES or held + size > _MOST_IN_ALL:
        return False
    for path in leaving:
        os.unlink(path)
    return True


def _delete_unused(folder: Path) -> None:
    """Deletes folders of the same vocabulary, made by other states of the package's files, that nothing was added to for long."""
    for other in folder.parent.glob(folder.name.rpartition("-")[0] + "-*"):
        if other != folder and not other.is_symlink() and time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
