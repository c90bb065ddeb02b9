"""Arrays to OpenFst and back, whole automata at a time. Nothing else may serialise an FST.

OpenFst's binary formats are written and read with NumPy, which costs microseconds; adding or iterating arcs one by one from
Python costs a call per arc. The layouts are those of OpenFst 1.7 and later ("vector" version 2, "const" version 2); both are
checked when read, and `tests/automata/test_openfst.py` compares with arc-by-arc construction.
"""

from __future__ import annotations

import importlib.util
import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fsa_compile.automata.byte_dfa import ByteDfa, dfa_from_arcs
from fsa_compile.automata.labels import FIRST_BYTE
from fsa_compile.automata.subsets import deterministic_arcs
from fsa_compile.errors import ConstraintError, LimitError, MissingPackageError
from fsa_compile.limits import CompileLimits, Deadline


def ways_to_compile(platform: str) -> str:
    """What is said where pynini is missing; its wheels are for Linux on x86-64. `platform`: as `sys.platform`."""
    here = {
        "darwin": "\n  On macOS pynini comes from conda-forge: conda install -c conda-forge pynini.",
        "win32": "\n  On Windows compile under WSL, or on a Linux machine, and copy the .npz file.",
    }.get(platform, "\n  Wheels are for Linux on x86-64; elsewhere: conda install -c conda-forge pynini.")
    return here + " What is compiled already needs NumPy only: fsa_compile.CompiledConstraint.load(path)."


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


if TYPE_CHECKING:
    import pynini
elif not _is_installed("pynini"):  # imported by the functions that need it: most schemas never do
    raise MissingPackageError("pynini", "Compiling", "compile", otherwise=ways_to_compile(sys.platform))

_MAGIC = 2125659606
_INFINITY = 0x7F800000  # bits of float32 infinity: the tropical weight of a state that is not final
_VECTOR_HEAD = struct.pack("<ii6si8sii", _MAGIC, 6, b"vector", 8, b"standard", 2, 0)
_ACCEPTOR = 0x10003  # properties: expanded, mutable, acceptor
_CONST_STATE = np.dtype([("weight", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("ieps", "<u4"), ("oeps", "<u4")])
_CONST_ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("next", "<i4")])

_DETERMINIZING = "Making the automaton deterministic"


class Arcs(NamedTuple):
    """An unweighted acceptor as arrays.

    Attributes:
      start: initial state, or -1 when there is none.
      final: bool[S].
      source, label, target: int64[E], sorted by source.
    """

    start: int
    final: np.ndarray
    source: np.ndarray
    label: np.ndarray
    target: np.ndarray


def fst_from_arcs(arcs: Arcs) -> pynini.Fst:
    """The acceptor as an OpenFst vector FST over the tropical semiring."""
    import pynini

    final, source = arcs.final, arcs.source
    S, E = len(final), len(source)
    count = np.bincount(source, minlength=S)
    size = 3 + 4 * count
    offset = size.cumsum() - size
    words = np.zeros(3 * S + 4 * E, np.int32)
    words[offset] = np.where(final, 0, _INFINITY)
    words[offset + 1] = count
    at = 4 * np.arange(E) + 3 * (source + 1)
    words[at] = words[at + 1] = arcs.label
    words[at + 3] = arcs.target
    head = _VECTOR_HEAD + struct.pack("<Qqqq", _ACCEPTOR, arcs.start, S, E)
    return pynini.Fst.read_from_string(head + words.tobytes())


def arcs_from_fst(fst: pynini.Fst) -> Arcs:
    """The states and input labels of an acceptor; weights other than "final or not" are dropped."""
    import pywrapfst

    data = pywrapfst.convert(fst, "const").write_to_string()
    magic, length = struct.unpack_from("<ii", data)
    at = 8 + length
    kind = data[8:at]
    (length,) = struct.unpack_from("<i", data, at)
    arc_type = data[at + 4 : at + 4 + length]
    at += 4 + length
    version, flags = struct.unpack_from("<ii", data, at)
    if (magic, kind, arc_type, version) != (_MAGIC, b"const", b"standard", 2) or flags & 3:
        raise ConstraintError(
            f"OpenFst wrote a {kind!r} automaton over {arc_type!r} (version {version}, flags {flags}), which is not understood",
            fix="Give an unweighted acceptor over the standard (tropical) arc type, without symbol tables.",
        )
    start, S, E = struct.unpack_from("<qqq", data, at + 16)
    at += 40
    if flags & 4:  # aligned to 16 bytes
        at = -(-at // 16) * 16
    states = np.frombuffer(data, _CONST_STATE, S, at)
    at += 20 * S
    if flags & 4:
        at = -(-at // 16) * 16
    raw = np.frombuffer(data, _CONST_ARC, E, at)
    source = np.repeat(np.arange(S), states["arcs"])
    final = np.isfinite(states["weight"])
    return Arcs(start, final, source, raw["ilabel"].astype(np.int64), raw["next"].astype(np.int64))


def to_pynini(dfa: ByteDfa) -> pynini.Fst:
    """The byte automaton as a pynini acceptor; byte b has label b + 1, state q of `dfa` is state q - 1."""
    import pynini

    if dfa.start == 0:
        return pynini.Fst()
    source, byte, target = dfa.arcs
    return fst_from_arcs(Arcs(dfa.start - 1, dfa.final[1:], source - 1, byte + FIRST_BYTE, target - 1))


def determinize(fst: pynini.Fst, limits: CompileLimits, deadline: Deadline | None = None) -> pynini.Fst:
    """A trimmed, epsilon-free, deterministic and minimal copy."""
    import pywrapfst

    out = fst.copy()
    if not out.properties(pywrapfst.NO_EPSILONS, True):
        out.rmepsilon()
    if not out.properties(pywrapfst.I_DETERMINISTIC, True):
        out.connect()
        if out.num_states():
            start, final, *arcs = arcs_from_fst(out)
            clock = deadline or Deadline(limits)
            made, final = deterministic_arcs((arcs[0], arcs[1], arcs[2]), final, start, limits, clock, _DETERMINIZING)
            out = fst_from_arcs(Arcs(0, final, *made))
    if out.num_states() > limits.max_states:
        raise LimitError("max_states", limits.max_states, _DETERMINIZING)
    out.connect()
    out.arcsort()  # OpenFst's minimisation tells states apart by the order of their arcs too
    out.minimize()
    return out


def byte_dfa_from_arcs(arcs: Arcs, limits: CompileLimits | None = None) -> ByteDfa:
    """A deterministic trimmed acceptor over byte labels as a `ByteDfa`: state q becomes q + 1."""
    order = (arcs.source << 9 | arcs.label).argsort(kind="stable")
    source, byte, target = arcs.source[order], arcs.label[order] - FIRST_BYTE, arcs.target[order]
    return dfa_from_arcs(source, byte, target, arcs.final, arcs.start, limits)
