"""Arrays kept as bits: they come back as they were, in the room they need; files that say something else are refused."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from oracles.saved_artifacts import KINDS, in_parts

import fsa_compile
from fsa_compile.artifact import file as artifact_file
from fsa_compile.artifact.arrays import ARRAYS
from fsa_compile.artifact.bit_columns import column_bits, packed, packed_size, unpacked

DTYPES = st.sampled_from([np.int32, np.uint32, np.uint16])
SHAPES = npst.array_shapes(min_dims=1, max_dims=2, max_side=40).filter(lambda shape: len(shape) == 1 or shape[1] <= 8)


@st.composite
def numbers(draw):
    """Arrays of all widths; some of their columns never fall."""
    dtype, shape = np.dtype(draw(DTYPES)), draw(SHAPES)
    bits = draw(st.integers(0, 8 * dtype.itemsize))
    whole = draw(npst.arrays(dtype, shape)) & dtype.type((1 << bits) - 1 if dtype.kind == "u" else ((1 << bits) - 1) & 0x7FFFFFFF)
    negative = draw(st.booleans()) and dtype.kind == "i"
    return np.sort(whole, 0) if draw(st.booleans()) else -whole if negative else whole


@given(numbers())
def test_round_trip(array):
    bits = column_bits(array)
    if bits is None:
        return
    data = packed(array, bits)
    assert data.dtype == np.uint8
    assert data.shape == (packed_size(array.shape, bits),)
    assert len(data) < array.nbytes
    again = unpacked(data, array.dtype, array.shape, bits)
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


@pytest.mark.parametrize(
    ("values", "bits"),
    [
        ([0, 0, 0], [0]),
        ([5, 7, 1], [3]),
        ([1 << 20, *[0] * 7], [21]),
        ([100, 150, 203, 203], [-7]),  # the first one is a difference, too
        ([0, 1000, 2000, 3000], [-10]),
        ([2, 1], [2]),
        ([-1, 5], None),
        ([1 << 29, 0], None),
        ([], None),
        ([[1, 900], [0, 901]], [1, 10]),
        ([[0] * 9], None),
    ],
)
def test_bits_of_columns(values, bits):
    array = np.array(values, np.int32)
    assert column_bits(array) == bits
    assert column_bits(array.astype(np.float32)) is None


def saved(path):
    """The header and the members of a file kept as bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifact_file, "LEAST_BYTES", 1)
        in_parts(KINDS["stack"].compile()).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(np.load(io.BytesIO(members["header.npy"])).tobytes()), members


def rewritten(path, header, members):
    out = io.BytesIO()
    np.save(out, np.frombuffer(json.dumps(header).encode(), np.uint8))
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | {"header.npy": out.getvalue()}).items():
            archive.writestr(name, data)


def test_large_files_take_the_bits_they_need(tmp_path, monkeypatch):
    for kind in ("counter", "stack", "keys"):
        c = KINDS[kind].compile()
        c.save(tmp_path / "wide.npz")
        monkeypatch.setattr(artifact_file, "LEAST_BYTES", 1)
        c.save(tmp_path / "bits.npz")
        monkeypatch.undo()
        a, b = (artifact_file.read_header(tmp_path / f"{name}.npz", (artifact_file.MAGIC,)) for name in ("wide", "bits"))
        assert (b["format_version"], b["contents"]) == (artifact_file.BITS_VERSION, a["format_version"])
        assert "bits" not in a
        again = fsa_compile.CompiledConstraint.load(tmp_path / "bits.npz")
        for name, (dtype, _) in ARRAYS.items():
            assert getattr(again, name).dtype == dtype
            assert np.array_equal(getattr(again, name), getattr(c, name))


CHANGES = {
    "no bits": lambda shape, bits: 5,
    "one list": lambda shape, bits: [shape],
    "numbers": lambda shape, bits: [shape, 3],
    "truth values": lambda shape, bits: [shape, [True] * len(bits)],
    "fractions": lambda shape, bits: [shape, [float(b) for b in bits]],
    "another count": lambda shape, bits: [[shape[0] + 9, *shape[1:]], bits],
    "a negative count": lambda shape, bits: [[-shape[0], *shape[1:]], bits],
    "no entries": lambda shape, bits: [[0, *shape[1:]], bits],
    "too few columns": lambda shape, bits: [shape, []],
    "more bits": lambda shape, bits: [shape, [abs(b) + 1 for b in bits]],
    "too many bits": lambda shape, bits: [shape, [33] * len(bits)],
    "more than fits": lambda shape, bits: [[1 << 34, *shape[1:]], [0] * len(bits)],
    "more than can be": lambda shape, bits: [[1 << 80, *shape[1:]], [0] * len(bits)],
    "no shape": lambda shape, bits: [[], bits],
}


@pytest.mark.parametrize("name", CHANGES)
def test_headers_that_say_something_else(name, tmp_path):
    path = tmp_path / "a.npz"
    header, members = saved(path)
    assert {"arc_token.token", "arc_effect.class", "delta_offset", "effects"} <= set(header["bits"])
    for array, told in header["bits"].items():
        rewritten(path, header | {"bits": header["bits"] | {array: CHANGES[name](*told)}}, members)
        with pytest.raises(fsa_compile.errors.ArtifactError, match=array.split(".")[0]):
            fsa_compile.CompiledConstraint.load(path)
    for bits in (None, [], 7):
        rewritten(path, header | {"bits": bits}, members)
        with pytest.raises(fsa_compile.errors.ArtifactError, match="which arrays are kept as bits"):
            fsa_compile.CompiledConstraint.load(path)
    rewritten(path, header, members)
    fsa_compile.CompiledConstraint.load(path)


def test_flipped_bits_are_refused_or_read(tmp_path):
    path = tmp_path / "a.npz"
    header, members = saved(path)
    rng = np.random.default_rng(0)
    for name in header["bits"]:
        for _ in range(10):
            data = bytearray(members[f"{name}.npy"])
            if len(data) > 128:  # behind NumPy's header
                data[rng.integers(128, len(data))] ^= 1 << rng.integers(8)
            rewritten(path, header, members | {f"{name}.npy": bytes(data)})
            with contextlib.suppress(fsa_compile.errors.ArtifactError):
                fsa_compile.CompiledConstraint.load(path).walk().allowed()
