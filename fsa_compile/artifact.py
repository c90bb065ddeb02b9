"""`CompiledConstraint`: the frozen NumPy arrays that carry a constraint to the device, and their file form.

Imports NumPy and the standard library only, so that a decoding process needs neither pynini nor a tokenizer library. The
layout is written down here once; the compiler fills it, `jax_decode.tables` repacks it, `host_walk` executes it in NumPy.

A *node* stands for a control of a pushdown automaton over tokens (for a control of a counted frame: together with a class
of its register), or for what remains of tokens that have popped stack symbols (an *inner node*). Node 0 is dead.

A *configuration* is a node, a register, and a stack of cells, each holding an effective symbol and the register of the
frame it suspends. Its *sources* are n_0 = the node, and n_(d+1) = `delta[delta_offset[n_d] + symbol]`, where the symbol is
that of the d-th cell from the top: the tokens of source n_d pop exactly d cells. Its register is the current one for d = 0,
else that of the last cell popped. The text so far belongs to the language if any source accepts. A regular constraint is
the case without symbols: its only source is its node.

The outgoing tokens of a node are sets, one per effect (target, push string, registers), stored in one of two ways: *wide*
sets are bit rows shared by all nodes (`group_*`), *narrow* ones are arcs sorted by token (`arc_*`). A node whose tokens
are all narrow and few (`ARC_BURST` at most) has no mask row: its arcs are its mask. Every other node has *levels*: bit
rows of all its tokens that can still finish within a number of tokens and a number of stack cells. In deterministic
constraints (`stacks == 1`) all token sets of all sources of a configuration are disjoint.

The effect of a token taken at source n_d, in a frame whose register is n: d cells are popped; the register becomes
n' = n + add. Without a push string, the target frame is the same one: its register is n'. With one, the frame is suspended
in the first cell of the string (register n'), the further cells hold `push_register`, and the register of the target frame
is `set`. The new node is the target's base node plus its ladder of the final register. Symbols in push strings are base
symbols: the effective symbol is the base symbol plus its ladder of the register of the frame it suspends. A *ladder*
(a0, b0, a1, b1) maps a register n to clip(n - a0, 0, b0) + clip(n - a1, 0, b1). `add` and `set` are constants where they
are not negative; a value k < 0 is looked up per token: `increments[-1 - k, token]`.

Costs count tokens, needs count stack cells. The text can be finished in `distance[node]` + cost of all cells tokens. The
tokens of a level of source n_d need, themselves included, at most `level_cost` tokens besides the cost of the cells left
after the d pops, and at most `level_need` cells besides those left. Where a counter is far below its lower bound, a
*slope* (a, k, w) adds w * ceil(max(0, a - n) / k) to `distance` and to the cost of every level and arc of its node.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import secrets
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fsa_compile.errors import ArtifactError

if TYPE_CHECKING:
    from fsa_compile.host_walk import HostWalk

MAGIC = "constrax constraint"
FORMAT_VERSION = 2
ARC_BURST = 64
"""Most arcs a node without a mask row may have; the device reads them in one burst."""
UNREACHABLE = np.int32(2**30)
"""Distance of a node from which no accepting node can be reached (node 0 only)."""
MAX_REGISTER = 2**29
"""Registers stop here; every bound of a counter is smaller."""
_MAX_HEADER = 64 << 20
_REGULAR = np.zeros(0, np.int32)
"""Stands for the array of a regular constraint, which `__post_init__` puts in its place."""


def _regular() -> np.ndarray:
    return _REGULAR


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CompiledConstraint:
    """A constraint over one vocabulary, ready for the host walk and for the device.

    Axes: N nodes, R rows, W = ceil(V / 32) words, G wide groups, A narrow arcs, L levels, V tokenizer ids, P effective stack
    symbols, S push strings, U symbols in them, I per-token tables. The arrays from `group_push` on have defaults, which are
    those of a regular constraint.

    Attributes:
      vocab_size: V.
      fingerprint: of the vocabulary it was compiled for (hex).
      stop_ids: default end-of-text ids of that vocabulary; never part of a token set.
      source: what was compiled, for people (a pattern, a description).
      start: initial node (a base node; the register is 0).
      accept: bool[N], the text may end when this node is a source of the configuration.
      distance: int32[N], least number of further tokens to the end of the node's own frame (0 when it may return or end
        here); of inner nodes 0.
      rows: uint32[R, W], token sets; token t is bit t % 32 of word t // 32; row 0 is empty.
      group_offset: int32[N + 1]; groups of node n are `group_offset[n]:group_offset[n + 1]`.
      group_row, group_next: int32[G], token set and target's base node of each wide group.
      arc_offset: int32[N + 1]; arcs of node n, sorted by token.
      arc_token, arc_next: int32[A].
      level_offset: int32[N + 1]; levels of node n, by ascending (cost, need); none when the node's arcs are its mask.
      level_cost: int32[L], tokens that the level's costliest token and the rest of its completion take.
      level_row: int32[L], row of all tokens whose cost is at most `level_cost` and whose need is at most `level_need`. The
        levels of a node form a grid: where (c, n) and (c', n') are levels, so is (max c, c'; max n, n') unless it adds nothing,
        so that the last level within two limits holds every token within them.
      group_push, arc_push: int32[G], int32[A], push string, 0 for none.
      group_add, arc_add: int32[G], int32[A], added to the register of the frame the token set starts in.
      group_set, arc_set: int32[G], int32[A], register of the target frame where something is pushed.
      arc_cost, arc_need: int32[A], what `level_cost` and `level_need` are to sets.
      level_need: int32[L], stack cells beyond those left after the pops.
      level_slope: int32[N, 3], slope of `distance` and of the costs of a node, by the register of its frame.
      need: int32[N], least number of cells beyond the present ones to the end of the node's own frame; of inner nodes 0.
      ladder: int32[N, 4], of base nodes.
      increments: uint16[I, V].
      push_offset: int32[S + 1]; symbols of push string s, bottom first, are `push_offset[s]:push_offset[s + 1]`.
      push_symbol: int32[U], base symbols.
      push_register: int32[U], registers of the frames they suspend; that of a string's first symbol is not used, except in
        `initial_push`.
      symbol_ladder: int32[P, 4], of base symbols.
      symbol_cost: int32[P], tokens to the end of the suspended frame after the return to it.
      symbol_need: int32[P], cells beyond those below the symbol that this may take.
      symbol_slope: int32[P, 3], slope of `symbol_cost`, by the register of the suspended frame.
      delta_offset: int32[N], where the P children of each node begin in `delta`.
      delta: int32[*], source after popping one symbol, 0 for none.
      initial_push: push string of the stack at the start.
      max_pops: D, the longest path in `delta`: most cells one token pops.
      max_push: length of the longest push string.
      stacks: how many configurations are followed at once; 1 for a deterministic constraint.
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
    group_push: np.ndarray = dataclasses.field(default_factory=_regular)
    group_add: np.ndarray = dataclasses.field(default_factory=_regular)
    group_set: np.ndarray = dataclasses.field(default_factory=_regular)
    arc_push: np.ndarray = dataclasses.field(default_factory=_regular)
    arc_add: np.ndarray = dataclasses.field(default_factory=_regular)
    arc_set: np.ndarray = dataclasses.field(default_factory=_regular)
    arc_cost: np.ndarray = dataclasses.field(default_factory=_regular)
    arc_need: np.ndarray = dataclasses.field(default_factory=_regular)
    level_need: np.ndarray = dataclasses.field(default_factory=_regular)
    level_slope: np.ndarray = dataclasses.field(default_factory=_regular)
    need: np.ndarray = dataclasses.field(default_factory=_regular)
    ladder: np.ndarray = dataclasses.field(default_factory=_regular)
    increments: np.ndarray = dataclasses.field(default_factory=_regular)
    push_offset: np.ndarray = dataclasses.field(default_factory=_regular)
    push_symbol: np.ndarray = dataclasses.field(default_factory=_regular)
    push_register: np.ndarray = dataclasses.field(default_factory=_regular)
    symbol_ladder: np.ndarray = dataclasses.field(default_factory=_regular)
    symbol_cost: np.ndarray = dataclasses.field(default_factory=_regular)
    symbol_need: np.ndarray = dataclasses.field(default_factory=_regular)
    symbol_slope: np.ndarray = dataclasses.field(default_factory=_regular)
    delta_offset: np.ndarray = dataclasses.field(default_factory=_regular)
    delta: np.ndarray = dataclasses.field(default_factory=_regular)
    initial_push: int = 0
    max_pops: int = 0
    max_push: int = 0
    stacks: int = 1
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [name for name in ARRAYS if getattr(self, name) is _REGULAR]
        if missing:
            defaults = _regular_arrays(self)
            for name in missing:
                object.__setattr__(self, name, defaults[name])
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
    def num_symbols(self) -> int:
        """P, effective stack symbols; 0 for a regular constraint."""
        return len(self.symbol_cost)

    @property
    def shortest_completion(self) -> int:
        """Number of tokens within which some accepted text is complete (the end-of-text token not counted); the least one
        for a regular constraint, at most a little more for others."""
        return self.walk().distance

    @property
    def shortest_depth(self) -> int:
        """Number of stack cells within which some accepted text is complete."""
        return self.walk().need

    @property
    def max_groups(self) -> int:
        """The largest number of wide groups of a node."""
        return int(np.diff(self.group_offset).max())

    def __repr__(self) -> str:
        source = self.source if len(self.source) <= 60 else self.source[:57] + "..."
        return (
            f"CompiledConstraint({source!r}, {self.num_nodes:,} nodes, {self.num_rows:,} rows, "
            f"{self.nbytes / 1e6:.2f} MB, {self.vocab_size:,} tokens)"
        )

    def walk(self) -> HostWalk:
        """A new host executor at the start of the text."""
        from fsa_compile.host_walk import HostWalk

        return HostWalk(self)

    def outgoing(self, node: int) -> np.ndarray:
        """Base target of every token of one node, int32[V], 0 where it has none. Slow and plain: for tests and drawings."""
        out = np.zeros(self.vocab_size, np.int32)
        for g in range(self.group_offset[node], self.group_offset[node + 1]):
            out[self.row_tokens(self.group_row[g])] = self.group_next[g]
        arcs = slice(self.arc_offset[node], self.arc_offset[node + 1])
        out[self.arc_token[arcs]] = self.arc_next[arcs]
        return out

    def row_tokens(self, row: int) -> np.ndarray:
        """Token ids of a bit row, ascending, int64."""
        return np.flatnonzero(unpack_row(self.rows[row], self.vocab_size))

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
    "group_push": (np.int32, 1),
    "group_add": (np.int32, 1),
    "group_set": (np.int32, 1),
    "arc_push": (np.int32, 1),
    "arc_add": (np.int32, 1),
    "arc_set": (np.int32, 1),
    "arc_cost": (np.int32, 1),
    "arc_need": (np.int32, 1),
    "level_need": (np.int32, 1),
    "level_slope": (np.int32, 2),
    "need": (np.int32, 1),
    "ladder": (np.int32, 2),
    "increments": (np.uint16, 2),
    "push_offset": (np.int32, 1),
    "push_symbol": (np.int32, 1),
    "push_register": (np.int32, 1),
    "symbol_ladder": (np.int32, 2),
    "symbol_cost": (np.int32, 1),
    "symbol_need": (np.int32, 1),
    "symbol_slope": (np.int32, 2),
    "delta_offset": (np.int32, 1),
    "delta": (np.int32, 1),
}
"""Array fields of `CompiledConstraint`: dtype and number of dimensions."""

_SCALARS: dict[str, type] = {
    "vocab_size": int,
    "fingerprint": str,
    "stop_ids": list,
    "source": str,
    "start": int,
    "initial_push": int,
    "max_pops": int,
    "max_push": int,
    "stacks": int,
    "extra": dict,
}


def _regular_arrays(c: CompiledConstraint) -> dict[str, np.ndarray]:
    """What the arrays with defaults are for a regular constraint."""
    n, groups, arcs, levels = len(c.accept), len(c.group_row), len(c.arc_token), len(c.level_row)
    sizes = {
        "group_push": (groups,),
        "group_add": (groups,),
        "group_set": (groups,),
        "arc_push": (arcs,),
        "arc_add": (arcs,),
        "arc_set": (arcs,),
        "arc_need": (arcs,),
        "level_need": (levels,),
        "need": (n,),
        "ladder": (n, 4),
        "push_offset": (2,),
        "push_symbol": (0,),
        "push_register": (0,),
        "symbol_ladder": (0, 4),
        "symbol_cost": (0,),
        "symbol_need": (0,),
        "symbol_slope": (0, 3),
        "delta_offset": (n,),
        "delta": (0,),
    }
    out = {name: np.zeros(size, np.int32) for name, size in sizes.items()}
    out["arc_cost"] = (1 + c.distance[c.arc_next]).astype(np.int32)
    out["level_slope"] = np.tile(np.array([0, 1, 0], np.int32), (n, 1))
    out["increments"] = np.zeros((0, c.vocab_size), np.uint16)
    return out


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


def unpack_row(words: np.ndarray, size: int) -> np.ndarray:
    """A bit row as booleans, bool[size]."""
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
