"""`CompiledConstraint`: the frozen NumPy arrays that carry a constraint to the device, and their file form.

Imports NumPy and the standard library only, so that a decoding process needs neither pynini nor a tokenizer library. The
layout is written down here once; `promote.py` fills it, `jax_decode.tables` repacks it, `HostWalk` executes it in NumPy.

A *node* is a state of the token automaton. Node 0 is dead. The outgoing tokens of a node are disjoint sets, one per
target, stored in one of two ways: *wide* sets are bit rows shared by all nodes (`group_*`), *narrow* ones are arcs sorted
by token (`arc_*`). A node whose tokens are all narrow and few (`ARC_BURST` at most) has no mask row: its arcs are its
mask. Every other node has *levels*: bit rows of all its tokens that can still finish within a number of tokens.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import secrets
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fsa_compile.errors import ArtifactError

MAGIC = "constrax constraint"
FORMAT_VERSION = 1
ARC_BURST = 64
"""Most arcs a node without a mask row may have; the device reads them in one burst."""
UNREACHABLE = np.int32(2**30)
"""Distance of a node from which no accepting node can be reached (node 0 only)."""
_MAX_HEADER = 64 << 20


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CompiledConstraint:
    """A regular constraint over one vocabulary, ready for the host walk and for the device.

    Axes: N nodes, R rows, W = ceil(V / 32) words, G wide groups, A narrow arcs, L levels, V tokenizer ids.

    Attributes:
      vocab_size: V.
      fingerprint: of the vocabulary it was compiled for (hex).
      stop_ids: default end-of-text ids of that vocabulary; never part of a token set.
      source: what was compiled, for people (a pattern, a description).
      start: initial node.
      accept: bool[N], the text so far belongs to the language.
      distance: int32[N], least number of further tokens to an accepting node (0 when accepting).
      rows: uint32[R, W], token sets; token t is bit t % 32 of word t // 32; row 0 is empty.
      group_offset: int32[N + 1]; groups of node n are `group_offset[n]:group_offset[n + 1]`.
      group_row, group_next: int32[G], token set and target of each wide group.
      arc_offset: int32[N + 1]; arcs of node n, sorted by token.
      arc_token, arc_next: int32[A].
      level_offset: int32[N + 1]; levels of node n, ascending cost; none when the node's arcs are its mask.
      level_cost: int32[L], tokens that the level's costliest token and the rest of its completion take.
      level_row: int32[L], row of all tokens whose cost is at most `level_cost` (a prefix union).
      extra: small JSON values a front end wants to keep (names, options).
    """

    vocab_size: int
    fingerprint: str
    stop_ids: tuple[int, ...]
    source: str
    start: int
    accept: np.ndarray
    distance: np.ndarray
    rows: np.ndarray
    group_offset: np.ndarray
    group_row: np.ndarray
    group_next: np.ndarray
    arc_offset: np.ndarray
    arc_token: np.ndarray
    arc_next: np.ndarray
    level_offset: np.ndarray
    level_cost: np.ndarray
    level_row: np.ndarray
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ARRAYS:
            getattr(self, name).setflags(write=False)

    @property
    def num_nodes(self) -> int:
        """N, the dead node included."""
        return len(self.accept)

    @property
    def num_rows(self) -> int:
        """R, the empty row included."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(self, name).nbytes for name in ARRAYS)

    @property
    def shortest_completion(self) -> int:
        """Least number of tokens of an accepted text (the end-of-text token not counted)."""
        return int(self.distance[self.start])

    @property
    def max_groups(self) -> int:
        """K, the largest number of wide groups of a node: what one device step tests."""
        return int(np.diff(self.group_offset).max())

    def __repr__(self) -> str:
        source = self.source if len(self.source) <= 60 else self.source[:57] + "..."
        return (
            f"CompiledConstraint({source!r}, {self.num_nodes:,} nodes, {self.num_rows:,} rows, "
            f"{self.nbytes / 1e6:.2f} MB, {self.vocab_size:,} tokens)"
        )

    def walk(self) -> HostWalk:
        """A new host executor at the start of the text."""
        return HostWalk(self)

    def outgoing(self, node: int) -> np.ndarray:
        """Target node of every token, int32[V], 0 where forbidden. Slow and plain: for tests and drawings."""
        out = np.zeros(self.vocab_size, np.int32)
        for g in range(self.group_offset[node], self.group_offset[node + 1]):
            out[self.row_tokens(self.group_row[g])] = self.group_next[g]
        arcs = slice(self.arc_offset[node], self.arc_offset[node + 1])
        out[self.arc_token[arcs]] = self.arc_next[arcs]
        return out

    def row_tokens(self, row: int) -> np.ndarray:
        """Token ids of a bit row, ascending, int64."""
        return np.flatnonzero(_unpack(self.rows[row], self.vocab_size))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the constraint to one uncompressed `.npz` file, atomically.

        An interrupted save leaves the old file, or none, never half of one.

        Args:
          path: file to write; replaced when it exists.

        Raises:
          OSError: the file cannot be written.
        """
        path = Path(path)
        header = {
            "magic": MAGIC,
            "format_version": FORMAT_VERSION,
            "arrays": {n: [str(getattr(self, n).dtype), list(getattr(self, n).shape)] for n in ARRAYS},
            **{name: getattr(self, name) for name in _SCALARS},
        }
        text = json.dumps(header, ensure_ascii=True, sort_keys=True).encode()
        members: dict[str, np.ndarray] = {"header": np.frombuffer(text, np.uint8)}
        members |= {name: np.ascontiguousarray(getattr(self, name)) for name in ARRAYS}
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            with open(part, "wb") as file:
                np.savez(file, allow_pickle=False, **members)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str], vocabulary: Any = None) -> CompiledConstraint:
        """Reads a constraint and checks everything a device step relies on.

        Nothing is unpickled, and no array is allocated before its size was checked against the file's own length.

        Args:
          path: file written by `save`.
          vocabulary: optional; a `Vocabulary`, or a tokenizer that has one: its fingerprint must be the artifact's.

        Raises:
          ArtifactError: what is wrong with the file, or that it belongs to another vocabulary.
        """
        path = Path(path)
        header, arrays = _read(path)
        fields: dict[str, Any] = {**arrays, **{name: header[name] for name in _SCALARS}}
        fields["stop_ids"] = tuple(header["stop_ids"])
        constraint = cls(**fields)
        check_contents(constraint, path)
        if vocabulary is not None:
            check_vocabulary(constraint, vocabulary, where=str(path))
        return constraint


ARRAYS: dict[str, tuple[type, int]] = {
    "accept": (np.bool_, 1),
    "distance": (np.int32, 1),
    "rows": (np.uint32, 2),
    "group_offset": (np.int32, 1),
    "group_row": (np.int32, 1),
    "group_next": (np.int32, 1),
    "arc_offset": (np.int32, 1),
    "arc_token": (np.int32, 1),
    "arc_next": (np.int32, 1),
    "level_offset": (np.int32, 1),
    "level_cost": (np.int32, 1),
    "level_row": (np.int32, 1),
}
"""Array fields of `CompiledConstraint`: dtype and number of dimensions."""

_SCALARS: dict[str, type] = {
    "vocab_size": int,
    "fingerprint": str,
    "stop_ids": list,
    "source": str,
    "start": int,
    "extra": dict,
}


class HostWalk:
    """Executes a constraint token by token in NumPy, with the semantics of the device step.

    End-of-text ids are allowed exactly where the text so far is accepted; after one the walk is `finished` and allows
    nothing more.
    """

    def __init__(self, constraint: CompiledConstraint) -> None:
        self.constraint = constraint
        self._history: list[tuple[int, bool]] = [(constraint.start, False)]

    @property
    def node(self) -> int:
        """Current node; 0 only for a constraint that accepts nothing."""
        return self._history[-1][0]

    @property
    def accepting(self) -> bool:
        """Whether the text so far belongs to the language."""
        return bool(self.constraint.accept[self.node])

    @property
    def finished(self) -> bool:
        """Whether an end-of-text id was taken."""
        return self._history[-1][1]

    @property
    def num_tokens(self) -> int:
        """Tokens taken so far, the end-of-text id included."""
        return len(self._history) - 1

    @property
    def distance(self) -> int:
        """Least number of further tokens to an accepted text."""
        return int(self.constraint.distance[self.node])

    def allowed(self, remaining: int | None = None) -> np.ndarray:
        """The mask of the next token.

        Args:
          remaining: how many more tokens may be taken in all, or None for no limit. With a limit, only tokens after
            which the text can still be completed inside it are allowed. When even the shortest completion does not
            fit, the limit is disregarded, as on the device.

        Returns:
          bool[V].
        """
        c, n = self.constraint, self.node
        mask = np.zeros(c.vocab_size, bool)
        if self.finished:
            return mask
        limit = int(UNREACHABLE) if remaining is None or remaining < c.distance[n] else remaining
        levels = slice(c.level_offset[n], c.level_offset[n + 1])
        if levels.stop > levels.start:
            fitting = int((c.level_cost[levels] <= limit).sum())
            if fitting:
                mask = _unpack(c.rows[c.level_row[levels.start + fitting - 1]], c.vocab_size)
        else:
            arcs = slice(c.arc_offset[n], c.arc_offset[n + 1])
            fits = c.distance[c.arc_next[arcs]] < limit
            mask[c.arc_token[arcs][fits]] = True
        if c.accept[n]:
            mask[list(c.stop_ids)] = True
        return mask

    def next_node(self, token: int) -> int:
        """The node after `token` (0 when it is forbidden); end-of-text ids keep the node."""
        c, n = self.constraint, self.node
        if self.finished or not 0 <= token < c.vocab_size:
            return 0
        if token in c.stop_ids:
            return n if c.accept[n] else 0
        lo, hi = int(c.arc_offset[n]), int(c.arc_offset[n + 1])
        at = lo + int(np.searchsorted(c.arc_token[lo:hi], token))
        if at < hi and c.arc_token[at] == token:
            return int(c.arc_next[at])
        for g in range(c.group_offset[n], c.group_offset[n + 1]):
            if c.rows[c.group_row[g], token >> 5] >> np.uint32(token & 31) & 1:
                return int(c.group_next[g])
        return 0

    def advance(self, token: int) -> None:
        """Takes one token.

        Raises:
          ValueError: the token is not allowed here; the walk is unchanged.
        """
        token = int(token)
        node = self.next_node(token)
        if node == 0:
            raise ValueError(f"token {token} is not allowed after {self.num_tokens} tokens")
        self._history.append((node, token in self.constraint.stop_ids))

    def rewind(self, n: int) -> None:
        """Takes back the last n tokens.

        Raises:
          ValueError: n is negative or larger than `num_tokens`.
        """
        if not 0 <= n <= self.num_tokens:
            raise ValueError(f"cannot rewind {n} of {self.num_tokens} tokens")
        del self._history[len(self._history) - n :]


def check_vocabulary(constraint: CompiledConstraint, vocabulary: Any, *, where: str = "") -> None:
    """Raises `ArtifactError` unless the constraint was compiled for this vocabulary (or tokenizer)."""
    vocabulary = getattr(vocabulary, "vocabulary", vocabulary)
    if not hasattr(vocabulary, "fingerprint"):
        what = f"a vocabulary or tokenizer is needed to check the constraint, not {type(vocabulary).__name__}"
        raise ArtifactError(what, where=where, fix="Pass what fsa_compile.load_tokenizer(path) returns.")
    if constraint.fingerprint != vocabulary.fingerprint:
        raise ArtifactError(
            f"the constraint was compiled for vocabulary {constraint.fingerprint[:12]} "
            f"({constraint.vocab_size:,} tokens); this one is {vocabulary.fingerprint[:12]} ({vocabulary.size:,})",
            where=where,
            fix="Compile it again for this tokenizer.",
        )


def _unpack(words: np.ndarray, size: int) -> np.ndarray:
    return np.unpackbits(words.view(np.uint8), bitorder="little", count=size).view(bool)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file, every size checked before it is allocated."""

    def bad(what: str, fix: str = "Compile and save the constraint again.") -> ArtifactError:
        return ArtifactError(what, where=str(path), fix=fix)

    try:
        length = path.stat().st_size
        archive = zipfile.ZipFile(path)
    except FileNotFoundError as e:
        raise bad("there is no such file", "Check the path.") from e
    except (OSError, zipfile.BadZipFile, NotImplementedError) as e:
        raise bad(f"this is not a constraint file, or it was cut short ({e})") from e
    with archive:
        infos = {info.filename: info for info in archive.infolist()}
        if len(infos) > 4 * len(ARRAYS):
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
        arrays = {}
        for name, (dtype, ndim) in ARRAYS.items():
            if f"{name}.npy" not in infos:
                raise bad(f"array '{name}' is missing")
            value = _member(archive, infos[f"{name}.npy"], length, bad)
            if value.dtype != dtype or value.ndim != ndim:
                raise bad(
                    f"array '{name}' is {value.dtype} of {value.ndim} dimensions, "
                    f"not {np.dtype(dtype)} of {ndim}"
                )
            if [str(value.dtype), list(value.shape)] != header["arrays"].get(name):
                raise bad(f"array '{name}' has not the shape its header promises")
            arrays[name] = value
    return header, arrays


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
        shape, fortran, dtype = reader(stream)
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError, SyntaxError, RuntimeError) as e:
        raise bad(f"array '{name}' is corrupt ({e})") from e
    if dtype.hasobject or dtype.fields is not None or fortran:
        raise bad(f"array '{name}' is not a plain numeric array")
    count = 1
    for extent in shape:
        count *= extent
    if min(shape, default=0) < 0 or count * dtype.itemsize != len(data) - stream.tell():
        raise bad(f"array '{name}' does not hold as many values as its shape says")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape)


def _check_header(header: Any, bad: Any) -> None:
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise bad("this is not a constraint file: its header does not say so")
    version = header.get("format_version")
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        raise bad(
            f"the file has format version {version}; this constrax reads version {FORMAT_VERSION}",
            "Upgrade constrax." if newer else "Compile and save the constraint again.",
        )
    for name, kind in _SCALARS.items():
        value = header.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise bad(f"the header's '{name}' is missing or not of type {kind.__name__}")
    if not isinstance(header.get("arrays"), dict):
        raise bad("the header does not list the arrays")
    if not 0 < header["vocab_size"] < 2**24:
        raise bad(f"the header's vocab_size {header['vocab_size']} is out of range")
    for token in header["stop_ids"]:
        if not isinstance(token, int) or not 0 <= token < header["vocab_size"]:
            raise bad(f"stop id {token!r} is not an id of the vocabulary")


def check_contents(c: CompiledConstraint, path: Path) -> None:
    """Raises `ArtifactError` for the first id, offset or bit that a device step could trip over; `path` is named in it."""
    n, r = c.num_nodes, len(c.rows)

    def need(condition: Any, sentence: str) -> None:
        if not condition:
            raise ArtifactError(sentence, where=str(path), fix="Compile and save the constraint again.")

    need(n >= 2 and len(c.distance) == n, "'accept' and 'distance' must describe the same nodes, at least 2")
    need(0 < c.start < n, f"start node {c.start} is not one of nodes 1..{n - 1}")
    words = (c.vocab_size + 31) // 32
    need(r >= 1 and c.rows.shape[1] == words, f"'rows' must have {words} words for {c.vocab_size:,} tokens")
    need(not c.rows[0].any(), "row 0 must be empty")
    spare = words * 32 - c.vocab_size
    if spare:
        need(not (c.rows[:, -1] >> np.uint32(32 - spare)).any(), "a row has bits past the end of the vocabulary")
    for kind, length in (("group", len(c.group_row)), ("arc", len(c.arc_token)), ("level", len(c.level_row))):
        offset = getattr(c, f"{kind}_offset")
        need(len(offset) == n + 1, f"'{kind}_offset' must have one entry per node and one more")
        ascending = offset[0] == 0 and offset[-1] == length and (np.diff(offset) >= 0).all()
        need(ascending, f"'{kind}_offset' must rise from 0 to the number of {kind}s ({length})")
        need(offset[1] == 0, f"the dead node must have no {kind}s")
    for name, bound, ids in (
        ("group_row", r, c.group_row),
        ("group_next", n, c.group_next),
        ("arc_token", c.vocab_size, c.arc_token),
        ("arc_next", n, c.arc_next),
        ("level_row", r, c.level_row),
    ):
        low = 0 if name == "arc_token" else 1
        inside = not len(ids) or (ids.min() >= low and ids.max() < bound)
        need(inside, f"'{name}' has an id outside {low}..{bound - 1}")
    need(len(c.group_next) == len(c.group_row), "'group_row' and 'group_next' differ in length")
    need(len(c.arc_next) == len(c.arc_token), "'arc_token' and 'arc_next' differ in length")
    need(len(c.level_cost) == len(c.level_row), "'level_cost' and 'level_row' differ in length")
    need(_ascending(c.arc_token, c.arc_offset), "the arcs of a node are not sorted by token")
    need(_ascending(c.level_cost, c.level_offset), "the levels of a node are not sorted by cost")
    no_level = np.diff(c.level_offset) == 0
    need(not np.diff(c.group_offset)[no_level].any(), "a node has groups but no mask row")
    need((np.diff(c.arc_offset)[no_level] <= ARC_BURST).all(), f"a node without mask row has over {ARC_BURST} arcs")
    need(not c.accept[0], "the dead node accepts")
    need(((c.distance == 0) == c.accept).all(), "'distance' is not 0 exactly where 'accept' says")
    need((c.distance[1:] < n).all() and (c.distance >= 0).all(), "a node cannot reach an accepting one")


def _ascending(values: np.ndarray, offset: np.ndarray) -> bool:
    """Whether values rise strictly within each segment."""
    if len(values) < 2:
        return True
    first = np.zeros(len(values) + 1, bool)
    first[offset] = True
    return bool(((np.diff(values) > 0) | first[1:-1]).all())
