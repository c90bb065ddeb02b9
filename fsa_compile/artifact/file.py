"""The file form of a constraint: an uncompressed `.npz` with a JSON header. Knows names and shapes, not meanings.

Imports NumPy and the standard library only. What the arrays must hold is checked in `artifact_checks`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fsa_compile.artifact.arrays import ARRAYS, SCALARS, SET_ARRAYS, ConstraintArrays
from fsa_compile.artifact.bit_columns import column_bits, packed, packed_size, unpacked
from fsa_compile.artifact.canonical_part import NAMES, CanonicalPart
from fsa_compile.artifact.stored_arrays import KINDS, LEAST_BYTES, LEAST_IN_PARTS, StoredArray, of_parts, stored_arrays
from fsa_compile.errors import ArtifactError
from fsa_compile.inputs.files import open_regular, replacing

MAGIC = "constrax constraint"
FORMAT_VERSION = 4
"""Version of the files of canonical constraints: what they say of the tokenizer's filter has entries of its own."""
KEYS_VERSION = 3
"""Version of the files of other constraints with sets of keys."""
PLAIN_VERSION = 2
"""Version of the files of all others: they are what they were before there were any."""
CONTEXT_VERSION = 5
"""Version of the files of constraints whose cells cost what lies below them makes them: those have neither keys nor filters."""
TEMPERATURE_VERSION = 6
"""Version of the files of constraints with temperatures of rules: what else they hold is in their headers."""
STORED_VERSION = 7
"""Version of the files with arrays in parts (`stored_arrays`); `contents` in their headers is the version of all else."""
BITS_VERSION = 8
"""Version of the files of large constraints, whose numbers take the bits they need (`bit_columns`): `bits` in their headers has
the shape of each such array and the bits of its columns. They may have arrays in parts."""
VERSIONS = (PLAIN_VERSION, KEYS_VERSION, FORMAT_VERSION, CONTEXT_VERSION, TEMPERATURE_VERSION, STORED_VERSION, BITS_VERSION)
_LARGE = (STORED_VERSION, BITS_VERSION)
_MOST_WIDENED = 64
"""Arrays kept as bits are together at most so many times as large as their file, so that no small file fills the memory."""
_MAX_HEADER = 64 << 20
_MOST_MEMBERS = 4 * len(ARRAYS)
_MAX_NPY_HEADER = 1_024
"""Characters of an array's own header: NumPy writes 118; its reader evaluates them as a Python literal."""
_MOST_EXTENT = 1 << 40


def version_of(constraint: ConstraintArrays) -> int:
    """The version of a constraint's file."""
    if len(constraint.temperature):
        return TEMPERATURE_VERSION
    if constraint.is_canonical:
        return FORMAT_VERSION
    if constraint.context:
        return CONTEXT_VERSION
    return KEYS_VERSION if constraint.has_sets else PLAIN_VERSION


def _scalars(version: int) -> list[str]:
    """The scalar fields that files of a version hold."""
    return [name for name in SCALARS if name != "context" or version in (CONTEXT_VERSION, TEMPERATURE_VERSION)]


def header_fields(constraint: ConstraintArrays) -> dict[str, Any]:
    """What a header says of a constraint beside its arrays."""
    fields = {name: getattr(constraint, name) for name in _scalars(version_of(constraint))} | constraint.canonical.header()
    return fields | {"magic": MAGIC, "format_version": version_of(constraint), "stop_ids": list(constraint.stop_ids)}


def _contents(header: dict[str, Any]) -> int:
    """The version of all that a file holds but the form of its arrays."""
    version: int = header["format_version"]
    return header["contents"] if version in _LARGE else version


def fields_of_header(header: dict[str, Any], bad: Callable[[str], ArtifactError]) -> dict[str, Any]:
    """The fields of a constraint but its arrays, from a header.

    Raises:
      ArtifactError: `bad`, where what is said of canonical tokens is of a wrong type.
    """
    fields = {name: header[name] for name in _scalars(_contents(header))} | {"stop_ids": tuple(header["stop_ids"])}
    if _contents(header) == FORMAT_VERSION:
        return fields | {"canonical": CanonicalPart.of_header(header, bad)}
    extra = {name: value for name, value in header["extra"].items() if name not in NAMES}
    return fields | {"canonical": CanonicalPart.of_header(header["extra"], bad), "extra": extra}


def write(constraint: ConstraintArrays, path: Path, *, key: str | None = None) -> None:
    """Writes a constraint atomically; see `CompiledConstraint.save`. A key says in the header what the file was written for."""
    held = _held(constraint.has_sets, len(constraint.temperature) > 0)
    names = [name for name in ARRAYS if name in held]
    shapes = {n: [str(getattr(constraint, n).dtype), list(getattr(constraint, n).shape)] for n in names}
    header = header_fields(constraint) | {"arrays": shapes} | ({} if key is None else {"key": key})
    members, in_parts = dict[str, np.ndarray](), stored_arrays(constraint.rows, constraint.delta, LEAST_IN_PARTS)
    for name in names:
        array = in_parts.get(name, getattr(constraint, name))
        if isinstance(array, StoredArray):
            members |= {f"{name}.{part}": values for part, values in array.parts.items()}
        else:
            members[name] = array
    if sum(values.nbytes for values in members.values()) >= LEAST_BYTES:
        members, bits = _in_bits(members)
        header |= {"format_version": BITS_VERSION, "contents": version_of(constraint), "bits": bits}
    elif len(members) > len(names):
        header |= {"format_version": STORED_VERSION, "contents": version_of(constraint)}
    text = json.dumps(header, ensure_ascii=True, sort_keys=True).encode()
    write_members(path, {"header": np.frombuffer(text, np.uint8)} | members)


def _in_bits(members: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, list[list[int]]]]:
    """Arrays as a file holds them, and the shapes and bits of those that are bits; none where it would be too small for them."""
    out, bits = dict(members), dict[str, list[list[int]]]()
    for name, array in members.items():
        of_columns = column_bits(array)
        if of_columns is not None:
            out[name], bits[name] = packed(array, of_columns), [list(array.shape), of_columns]
    widened = sum(members[name].nbytes for name in bits)
    return (out, bits) if widened <= _MOST_WIDENED * sum(array.nbytes for array in out.values()) else (members, {})


def write_members(path: Path, members: dict[str, np.ndarray]) -> None:
    """Writes arrays to an uncompressed `.npz` file: all of it, or nothing."""
    if not path.name or (path.exists() and not path.is_file()):
        raise OSError(errno.EINVAL, "a folder, a pipe or a device is not replaced; name a file", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder; make it first", str(path.parent))
    arrays: dict[str, Any] = {name: np.ascontiguousarray(value) for name, value in members.items()}
    with replacing(path) as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())


def read_members(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file, every size checked before it is allocated.

    Raises:
      ArtifactError: no such file, or not an uncompressed `.npz` of plain arrays.
    """
    bad = _complaint(path)
    with _opened(path, bad) as archive:
        infos = archive.infolist()
        if len(infos) > _MOST_MEMBERS:
            raise bad("this is not a constraint file: it has too many members")
        length = path.stat().st_size
        return {info.filename.removesuffix(".npy"): _member(archive, info, length, bad) for info in infos}


def read_header(path: Path, magics: tuple[str, ...]) -> dict[str, Any]:
    """The header of a file alone; the kinds of files are told apart by their magic strings.

    Raises:
      ArtifactError: no such file, or its header is not one of these, or damaged.
    """
    bad = _complaint(path)
    with _opened(path, bad) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        if "header.npy" not in infos:
            raise bad("this is not a constraint file: it has no header")
        data = _member(archive, infos["header.npy"], path.stat().st_size, bad)
    try:
        header: Any = json.loads(data.tobytes()) if data.dtype == np.uint8 and data.size <= _MAX_HEADER else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("magic") not in magics:
        raise bad("this is not a constraint file: its header does not say so")
    for name, kind in (("vocab_size", int), ("format_version", int), ("fingerprint", str)):
        if not isinstance(header.get(name), kind):
            raise bad(f"the header's '{name}' is missing or not of type {kind.__name__}")
    return header


def _complaint(path: Path) -> Callable[..., ArtifactError]:
    """An error about a file, from what is wrong with it."""

    def bad(what: str, fix: str = "Compile and save the constraint again.") -> ArtifactError:
        return ArtifactError(what, where=str(path), fix=fix)

    return bad


@contextlib.contextmanager
def _opened(path: Path, bad: Callable[..., ArtifactError]) -> Iterator[zipfile.ZipFile]:
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(open_regular(path))))
        except FileNotFoundError as e:
            raise bad("there is no such file", "Check the path.") from e
        except Exception as e:  # the standard library raises errors of many types for damaged archives
            raise bad(f"this is not a constraint file, or it was cut short ({e})") from e
        yield archive


def read(path: Path) -> dict[str, Any]:
    """The fields of a file's constraint, whose contents are still to be checked.

    Raises:
      ArtifactError: the file is no constraint file, is damaged, or is of another version.
    """
    header, arrays = _read(path)
    return arrays | fields_of_header(header, _complaint(path))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file, every size checked before it is allocated."""

    bad = _complaint(path)
    with _opened(path, bad) as archive:
        length = path.stat().st_size
        infos = {info.filename: info for info in archive.infolist()}
        if len(infos) > _MOST_MEMBERS:
            raise bad("this is not a constraint file: it has too many members")
        if "header.npy" not in infos:
            raise bad("this is not a constraint file: it has no header")
        header_bytes = _member(archive, infos["header.npy"], length, bad)
        if header_bytes.dtype != np.uint8 or header_bytes.ndim != 1 or header_bytes.size > _MAX_HEADER:
            raise bad("the header is not a byte string of sane length")
        try:
            header = json.loads(header_bytes.tobytes())
        except (ValueError, RecursionError) as e:
            raise bad("the header is not JSON") from e
        _check_header(header, bad)
        arrays, held = dict[str, Any](), _held(_has_sets(header), _contents(header) == TEMPERATURE_VERSION)
        bits = _Bits(header, length, bad)

        def member(name: str, dtype: type, ndim: int) -> np.ndarray:
            if f"{name}.npy" not in infos:
                raise bad(f"array '{name}' is missing")
            value = bits.widened(name, _member(archive, infos[f"{name}.npy"], length, bad), np.dtype(dtype))
            if value.dtype != dtype or value.ndim != ndim:
                raise bad(f"array '{name}' is {value.dtype} of {value.ndim} dimensions, not {np.dtype(dtype)} of {ndim}")
            return value

        for name, kind in ARRAYS.items():
            promised = header["arrays"].get(name)
            if name in KINDS and header["format_version"] in _LARGE and f"{name}.npy" not in infos:
                parts = {part: member(f"{name}.{part}", *how) for part, how in KINDS[name].PARTS.items()}
                array = of_parts(name, parts, _shape(promised, kind, bad), arrays, _need(bad))
                is_small = name == "delta" and array.size * array.dtype.itemsize < LEAST_BYTES
                arrays[name] = np.asarray(array) if is_small else array
            elif name in held:
                arrays[name] = member(name, *kind)
                if [str(arrays[name].dtype), list(arrays[name].shape)] != promised:
                    raise bad(f"array '{name}' has not the shape its header promises")
    return header, arrays


class _Bits:
    """The arrays of a file that are kept as bits, every size checked before it is allocated."""

    def __init__(self, header: dict[str, Any], length: int, bad: Callable[..., ArtifactError]) -> None:
        self.bits = header["bits"] if header["format_version"] == BITS_VERSION else {}
        self.room, self.bad = _MOST_WIDENED * length, bad

    def widened(self, name: str, data: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
        """A member of the file, written out if it is kept as bits."""
        if name not in self.bits:
            return data
        told = self.bits[name]
        are_lists = isinstance(told, list) and [type(x) for x in told] == [list, list]
        if not are_lists or not all(type(n) is int for x in told for n in x):
            raise self.bad(f"the header does not say the bits of array '{name}'")
        shape, bits = told
        inside = len(shape) in (1, 2) and all(0 < n < _MOST_EXTENT for n in shape) and math.prod(shape[1:]) == len(bits)
        if not inside or dtype.kind not in "iu" or max(map(abs, bits)) > min(8 * dtype.itemsize, 32):
            raise self.bad(f"the shape or the bits of array '{name}' are out of range")
        self.room -= math.prod(shape) * dtype.itemsize
        if self.room < 0:
            raise self.bad(f"array '{name}' is much longer than the file")
        if data.dtype != np.uint8 or data.shape != (packed_size(shape, bits),):
            raise self.bad(f"array '{name}' does not hold as many bits as the header says")
        return unpacked(data, dtype, tuple(shape), bits)


def _need(bad: Callable[[str], ArtifactError]) -> Callable[[Any, str], None]:
    """Raises what `bad` makes of a sentence where a condition does not hold."""

    def need(condition: Any, sentence: str) -> None:
        if not condition:
            raise bad(sentence)

    return need


def _shape(promised: Any, kind: tuple[type, int], bad: Callable[[str], ArtifactError]) -> tuple[int, ...]:
    """The shape of an array in parts, by the header."""
    dtype, ndim = kind
    is_shape = isinstance(promised, list) and len(promised) == 2 and promised[0] == str(np.dtype(dtype))
    shape = promised[1] if is_shape else None
    if not isinstance(shape, list) or len(shape) != ndim or not all(type(n) is int and 0 <= n < _MOST_EXTENT for n in shape):
        raise bad("the header does not say the shape of an array in parts")
    return tuple(shape)


def _has_sets(header: dict[str, Any]) -> bool:
    """Whether a file holds the arrays of sets of keys."""
    version = _contents(header)
    return version == KEYS_VERSION or (version in (FORMAT_VERSION, TEMPERATURE_VERSION) and "keys" in header["arrays"])


def _held(sets: bool, temperature: bool) -> set[str]:
    """Names of the arrays in a file of a constraint with or without sets of keys, and temperatures."""
    return set(ARRAYS) - (set() if sets else set(SET_ARRAYS)) - (set() if temperature else {"temperature"})


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, length: int, bad: Any) -> np.ndarray:
    """One array of the archive; its size is known to be at most the file's before anything is read."""
    name = info.filename.removesuffix(".npy")
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > length or info.file_size != info.compress_size:
        raise bad(f"array '{name}' is compressed or larger than the file; constraint files are neither")
    try:
        data = archive.read(info)  # checks the CRC
        stream = io.BytesIO(data)
        version = np.lib.format.read_magic(stream)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = reader(stream, max_header_size=_MAX_NPY_HEADER)
    except Exception as e:  # NumPy evaluates the header: what it raises for a bad one is of many types
        raise bad(f"array '{name}' is corrupt ({e})") from e
    if dtype.kind not in "biufU" or not dtype.itemsize or fortran:
        raise bad(f"array '{name}' is not a plain numeric array")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or max(shape, default=0) > _MOST_EXTENT or count * dtype.itemsize != len(data) - stream.tell():
        raise bad(f"array '{name}' does not hold as many values as its shape says")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape) if count else np.zeros(shape, dtype)


def _check_header(header: Any, bad: Any) -> None:
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise bad("this is not a constraint file: its header does not say so")
    version = header.get("format_version")
    if version not in VERSIONS:
        newer = isinstance(version, int) and version > VERSIONS[-1]
        raise bad(
            f"the file has format version {version}; this constrax reads versions {VERSIONS[0]} to {VERSIONS[-1]}",
            "Upgrade constrax." if newer else "Compile and save the constraint again.",
        )
    if version in _LARGE and (header.get("contents") not in VERSIONS or header["contents"] in _LARGE):
        raise bad("the header does not say what version its contents are of")
    if version == BITS_VERSION and not isinstance(header.get("bits"), dict):
        raise bad("the header does not say which arrays are kept as bits")
    for name in _scalars(_contents(header)):
        value = header.get(name)
        if not isinstance(value, SCALARS[name]) or isinstance(value, bool):
            raise bad(f"the header's '{name}' is missing or not of type {SCALARS[name].__name__}")
    if not isinstance(header.get("arrays"), dict):
        raise bad("the header does not list the arrays")
    if not 0 < header["vocab_size"] < 2**24:
        raise bad(f"the header's vocab_size {header['vocab_size']} is out of range")
    for token in header["stop_ids"]:
        if not isinstance(token, int) or not 0 <= token < header["vocab_size"]:
            raise bad(f"stop id {token!r} is not an id of the vocabulary")
