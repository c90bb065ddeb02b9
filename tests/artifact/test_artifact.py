"""The artifact's file form: round trips, every kind of damage has its own sentence, a hostile file harms nothing."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from oracles import hand_pushdown as by_hand
from oracles.toy import every_byte

import fsa_compile
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact import file as artifact_file
from fsa_compile.artifact.arrays import ARRAYS, OPTIONAL_ARRAYS
from fsa_compile.artifact.canonical_part import CanonicalPart
from fsa_compile.errors import ArtifactError

VOCABULARY = every_byte()


@pytest.fixture(scope="module")
def constraint() -> CompiledConstraint:
    return fsa_compile.compile_regex(r'"[^"]{0,9}"|[a-z]+@(a|b|--)*', VOCABULARY)


@pytest.fixture
def saved(constraint: CompiledConstraint, tmp_path: Path) -> Path:
    constraint.save(tmp_path / "c.npz")
    return tmp_path / "c.npz"


def rewrite(path: Path, change) -> None:
    """Applies `change(members: dict[str, bytes])` to the file's members."""
    with zipfile.ZipFile(path) as z:
        members = {n: z.read(n) for n in z.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as z:
        for name, data in members.items():
            z.writestr(name, data)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def set_header(path: Path, **changes) -> None:
    def change(members):
        header = json.loads(np.load(io.BytesIO(members["header.npy"])).tobytes())
        header.update(changes)
        members["header.npy"] = npy(np.frombuffer(json.dumps(header).encode(), np.uint8))

    rewrite(path, change)


def set_array(path: Path, name: str, value: np.ndarray) -> None:
    """Replaces an array, and what the header says of it."""

    def change(members):
        header = json.loads(np.load(io.BytesIO(members["header.npy"])).tobytes())
        header["arrays"][name] = [str(value.dtype), list(value.shape)]
        members["header.npy"] = npy(np.frombuffer(json.dumps(header).encode(), np.uint8))
        members[f"{name}.npy"] = npy(value)

    rewrite(path, change)


def test_round_trip(constraint: CompiledConstraint, saved: Path) -> None:
    again = CompiledConstraint.load(saved, VOCABULARY)
    for field in dataclasses.fields(CompiledConstraint):
        a, b = getattr(constraint, field.name), getattr(again, field.name)
        assert (a == b).all() if field.name in ARRAYS else a == b
    with np.load(saved) as plain:  # anyone can open it with NumPy
        assert (plain["rows"] == constraint.rows).all()


def test_arrays_are_frozen(constraint: CompiledConstraint, saved: Path) -> None:
    for c in (constraint, CompiledConstraint.load(saved)):
        with pytest.raises(ValueError, match="read-only"):
            c.rows[0] = 1


def test_save_replaces_whole_files_only(constraint: CompiledConstraint, saved: Path, monkeypatch) -> None:
    before = saved.read_bytes()

    def interrupted(file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(artifact_file.np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        constraint.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["c.npz"]


def test_other_vocabulary(saved: Path) -> None:
    with pytest.raises(ArtifactError, match=r"compiled for vocabulary \w+ .*; this one is"):
        CompiledConstraint.load(saved, every_byte([b"zzz"]))
    with pytest.raises(ArtifactError, match=r"a vocabulary or tokenizer is needed .*, not str"):
        CompiledConstraint.load(saved, "tokenizer.model")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such file"):
        CompiledConstraint.load(tmp_path / "none.npz")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x93NUMPY", b"x" * 1000])
def test_not_an_archive(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ArtifactError, match="not a constraint file"):
        CompiledConstraint.load(tmp_path / "x")


def test_truncated_at_every_place(saved: Path) -> None:
    data = saved.read_bytes()
    for size in range(0, len(data), max(1, len(data) // 60)):
        saved.write_bytes(data[:size])
        with pytest.raises(ArtifactError):
            CompiledConstraint.load(saved)


def test_flipped_bytes_never_load_silently(saved: Path, constraint: CompiledConstraint) -> None:
    data = bytearray(saved.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), 150).tolist():
        changed = bytearray(data)
        changed[place] ^= 0xFF
        saved.write_bytes(changed)
        try:
            again = CompiledConstraint.load(saved)
        except ArtifactError:
            continue
        # Zip metadata such as time stamps may change; contents may not.
        assert all((getattr(again, n) == getattr(constraint, n)).all() for n in ARRAYS)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"magic": "other"}, "its header does not say so"),
        ({"format_version": 0}, "format version 0"),
        ({"format_version": 99}, "Upgrade constrax"),
        ({"vocab_size": "many"}, "'vocab_size' is missing or not of type int"),
        ({"vocab_size": 0}, "vocab_size 0 is out of range"),
        ({"vocab_size": 10**12}, "out of range"),
        ({"stop_ids": [10**6]}, "stop id 1000000 is not an id"),
        ({"stop_ids": ["x"]}, "stop id 'x'"),
        ({"source": 3}, "'source' is missing"),
        ({"arrays": []}, "does not list the arrays"),
        ({"start": 0}, "start node 0 is not one of"),
        ({"start": 10**9}, "start node 1000000000"),
    ],
)
def test_header_errors(changes: dict, sentence: str, saved: Path) -> None:
    set_header(saved, **changes)
    with pytest.raises(ArtifactError, match=re.escape(sentence)):
        CompiledConstraint.load(saved)


CANONICAL = CanonicalPart(tables="a" * 64, last=3, shortest=2, state=5, excepted=((1, 2), (4,)), unless=((1, 1, 1), (2, 1, 0)))


@pytest.fixture
def saved_canonical(constraint: CompiledConstraint, tmp_path: Path) -> Path:
    dataclasses.replace(constraint, canonical=CANONICAL).save(tmp_path / "canonical.npz")
    return tmp_path / "canonical.npz"


def test_canonical_fields_make_the_round_trip(saved_canonical: Path, saved: Path) -> None:
    assert CompiledConstraint.load(saved_canonical).canonical == CANONICAL
    assert not CompiledConstraint.load(saved).is_canonical


def test_canonical_fields_of_earlier_formats(saved: Path) -> None:
    set_header(saved, extra={"name": "x", **CANONICAL.header()})
    read = CompiledConstraint.load(saved)
    assert (read.canonical, read.extra) == (CANONICAL, {"name": "x"})
    set_header(saved, extra={"canonical": "a" * 64})  # the first ones did not say where they begin
    with pytest.raises(ArtifactError, match="earlier version"):
        _ = CompiledConstraint.load(saved).canonical_start


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"canonical": 3}, "'canonical' is not the identity"),
        ({"canonical": None}, "'canonical' is not the identity"),
        ({"canonical_partners": 1}, "'canonical_partners' is neither true nor false"),
        ({"canonical_start": "begin"}, "'canonical_start' is not three numbers"),
        ({"canonical_start": [-1, 0]}, "'canonical_start' is not three numbers"),
        ({"canonical_start": [-1, 0, 0.5]}, "'canonical_start' is not three numbers"),
        ({"canonical_start": [-1, 0, True]}, "'canonical_start' is not three numbers"),
        ({"canonical_start": [10**6, 0, 0]}, "begins is out of range"),
        ({"canonical_unless": [[1, 1, 0]]}, "'canonical_unless' is not lists of states and rows"),
        ({"canonical_unless": {"behaviours": [], "rows": []}}, "an earlier version's"),
        ({"canonical_unless": {"states": [3], "rows": []}}, "'canonical_unless' has states"),
        ({"canonical_unless": {"states": [["x"]], "rows": []}}, "'canonical_unless' has states"),
        ({"canonical_unless": {"states": [[3]], "rows": [[1, 1]]}}, "'canonical_unless' has rows"),
        ({"canonical_unless": {"states": [[-3]], "rows": [[1, 1, 0]]}}, "has no state"),
        ({"canonical_unless": {"states": [[3]], "rows": [[10**6, 1, 0]]}}, "node 1000000"),
        ({"canonical_unless": {"states": [[3]], "rows": [[1, 10**6, 0]]}}, "row 1000000"),
        ({"canonical_unless": {"states": [[3]], "rows": [[1, 1, 1]]}}, "list 1 is out of range"),
    ],
)
def test_canonical_fields_are_checked(
    changes: dict, sentence: str, earlier: bool, saved: Path, saved_canonical: Path
) -> None:
    path = saved if earlier else saved_canonical
    set_header(path, **({"extra": CANONICAL.header() | changes} if earlier else changes))
    with pytest.raises(ArtifactError, match=re.escape(sentence)):
        CompiledConstraint.load(path)


def test_missing_members(saved: Path) -> None:
    data = saved.read_bytes()
    for name in [*(name for name in ARRAYS if name not in OPTIONAL_ARRAYS), "header"]:
        saved.write_bytes(data)
        rewrite(saved, lambda members, name=name: members.pop(f"{name}.npy"))
        with pytest.raises(ArtifactError, match=f"array '{name}' is missing|has no header"):
            CompiledConstraint.load(saved)


def changed(array: np.ndarray, index, value) -> np.ndarray:
    out = array.copy()
    out[index] = value
    return out


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("rows", lambda a: a.astype(np.int64), "'rows' is int64"),
        ("rows", lambda a: a[:, :-1].copy(), "'rows' must have"),
        ("rows", lambda a: changed(a, (0, 0), 1), "row 0 must be empty"),
        ("rows", lambda a: changed(a, (1, -1), 0xFFFFFFFF), "bits past the end"),
        ("rows", lambda a: a[0].copy(), "'rows' is uint32 of 1 dimensions"),
        ("accept", lambda a: a[:-1].copy(), "must describe the same nodes"),
        ("accept", lambda a: changed(a, 0, True), "the dead node accepts"),
        ("distance", lambda a: changed(a, 1, 10**6), "cannot reach an accepting one"),
        ("distance", lambda a: changed(a, slice(None), 5), "'distance' is not 0 exactly"),
        ("group_offset", lambda a: changed(a, -1, 10**6), "'group_offset' must rise"),
        ("group_offset", lambda a: a[:-1].copy(), "'group_offset' must have one entry"),
        ("arc_offset", lambda a: changed(a, 2, 10**6), "'arc_offset' must rise"),
        ("arc_offset", lambda a: changed(a, 1, 1), "dead node must have no arcs"),
        ("arc_token", lambda a: changed(a, 0, -1), "'arc_token' has an id outside"),
        ("arc_token", lambda a: changed(a, 0, 10**7), "'arc_token' has an id outside"),
        ("arc_token", lambda a: a[::-1].copy(), "not sorted by token"),
        ("arc_effect", lambda a: changed(a, 0, 10**7), "'arc_effect' has an id outside"),
        ("arc_effect", lambda a: changed(a, 0, 0), "'arc_effect' has an id outside"),
        ("arc_effect", lambda a: a[1:].copy(), "'arc_token' and 'arc_effect' differ"),
        ("effects", lambda a: changed(a, (1, 0), 10**7), "'effects: target' has an id outside"),
        ("effects", lambda a: changed(a, (1, 0), 0), "'effects: target' has an id outside"),
        ("effects", lambda a: a[:, :5].copy(), "'effects' must have 6 columns"),
        ("effects", lambda a: a[:0].copy(), "'arc_effect' has an id outside"),
        ("group_row", lambda a: changed(a, 0, 10**7), "'group_row' has an id outside"),
        ("group_next", lambda a: changed(a, 0, -5), "'group_next' has an id outside"),
        ("level_row", lambda a: changed(a, 0, 10**7), "'level_row' has an id outside"),
        ("level_cost", lambda a: a[:-1].copy(), "'level_row' and 'level_cost' differ"),
    ],
)
def test_array_errors(name: str, change, sentence: str, saved: Path) -> None:
    with np.load(saved) as plain:
        set_array(saved, name, change(plain[name]))
    with pytest.raises(ArtifactError, match=re.escape(sentence)):
        CompiledConstraint.load(saved)


@pytest.fixture(scope="module")
def stacked() -> CompiledConstraint:
    return by_hand.counted(7, 9)


def test_stacks_and_counters_make_the_round_trip(stacked: CompiledConstraint, tmp_path: Path) -> None:
    for name, c in (("counted", stacked), ("brackets", by_hand.composed(by_hand.brackets(), by_hand.BRACKET_TOKENS))):
        c.save(tmp_path / name)
        again = CompiledConstraint.load(tmp_path / name)
        for field in dataclasses.fields(CompiledConstraint):
            a, b = getattr(c, field.name), getattr(again, field.name)
            assert (a == b).all() if field.name in ARRAYS else a == b
        assert (again.shortest_completion, again.shortest_depth) == (c.shortest_completion, c.shortest_depth)


def test_arrays_left_out_are_those_of_a_regular_constraint(constraint: CompiledConstraint) -> None:
    assert (constraint.num_symbols, constraint.max_pops, constraint.max_push, constraint.stacks) == (0, 0, 0, 1)
    assert (constraint.arc_cost == 1 + constraint.distance[constraint.arc_next]).all()
    assert (constraint.level_slope == [0, 1, 0]).all()
    for name, (dtype, ndim) in ARRAYS.items():
        assert getattr(constraint, name).dtype == dtype
        assert getattr(constraint, name).ndim == ndim


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("group_push", lambda a: changed(a, 0, 10**6), "'group_push' has an id outside"),
        ("group_push", lambda a: a[:-1].copy(), "'group_row' and 'group_push' differ"),
        ("effects", lambda a: changed(a, (1, 1), -1), "'effects: push' has an id outside"),
        ("effects", lambda a: changed(a, (1, 2), -2), "'effects: add' has an id outside -1.."),
        ("effects", lambda a: changed(a, (1, 2), 2**30), "'effects: add' has an id outside"),
        ("group_add", lambda a: changed(a, 0, -9), "'group_add' has an id outside"),
        ("group_set", lambda a: changed(a, 0, -9), "'group_set' has an id outside"),
        ("effects", lambda a: changed(a, (1, 3), 2**29), "'effects: set' has an id outside"),
        ("effects", lambda a: changed(a, (1, 4), -1), "'effects: cost' has a number out of range"),
        ("effects", lambda a: changed(a, (1, 5), 2**30), "'effects: need' has a number out of range"),
        ("level_need", lambda a: changed(a, 0, -1), "'level_need' has a number out of range"),
        ("level_need", lambda a: a[1:].copy(), "'level_row' and 'level_need' differ"),
        ("level_slope", lambda a: changed(a, (1, 1), 0), "'level_slope' divides by zero"),
        ("level_slope", lambda a: changed(a, 1, (2**27, 1, 2**10)), "'level_slope' is too steep"),
        ("level_slope", lambda a: a[1:].copy(), "'level_slope' must have one entry per node"),
        ("need", lambda a: changed(a, 1, -1), "'need' has a number out of range"),
        ("ladder", lambda a: changed(a, (-1, 1), 1), "a rung of 'ladder' lies outside"),
        ("ladder", lambda a: changed(a, (1, 0), -5), "'ladder' has a number out of range"),
        ("ladder", lambda a: changed(a, (1, 3), 2**27), "a rung of 'ladder' lies outside"),
        ("ladder", lambda a: a[:, :3].copy(), "'ladder' must have one entry per node"),
        ("increments", lambda a: a[:, 1:].copy(), "'increments' must have 12 columns"),
        ("push_offset", lambda a: changed(a, 1, 1), "must begin with the empty push string"),
        ("push_offset", lambda a: changed(a, -1, 99), "'push_offset' must rise"),
        ("push_symbol", lambda a: changed(a, 0, 99), "'push_symbol' has an id outside"),
        ("push_register", lambda a: changed(a, 0, -1), "'push_register' has a number out of range"),
        ("symbol_ladder", lambda a: changed(a, (1, 1), 5), "a rung of 'symbol_ladder' lies outside"),
        ("symbol_cost", lambda a: changed(a, 0, -1), "'symbol_cost' has a number out of range"),
        ("symbol_need", lambda a: a[1:].copy(), "'symbol_need' must have one entry per symbol"),
        ("symbol_slope", lambda a: changed(a, (0, 1), 0), "'symbol_slope' divides by zero"),
        ("delta_offset", lambda a: changed(a, 1, 10**6 * 5), "'delta_offset' has an id outside"),
        ("delta_offset", lambda a: changed(a, 1, 1), "'delta' must be segments of 5"),
        ("delta", lambda a: changed(a, -1, 10**6), "'delta' has an id outside"),
        ("delta", lambda a: a[:-1].copy(), "'delta' must be segments of 5"),
        ("delta", lambda a: np.full_like(a, 1), "the dead node has children"),
        ("delta", lambda a: np.where(a > 0, 3, 0).astype(np.int32), "'max_pops' 1 is not the length of the longest path"),
        ("distance", lambda a: changed(a, 1, 2**29), "a node cannot reach an accepting one"),
    ],
)
def test_stack_array_errors(name: str, change, sentence: str, stacked: CompiledConstraint, tmp_path: Path) -> None:
    stacked.save(tmp_path / "c.npz")
    set_array(tmp_path / "c.npz", name, change(getattr(stacked, name)))
    with pytest.raises(ArtifactError, match=re.escape(sentence)):
        CompiledConstraint.load(tmp_path / "c.npz")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"max_pops": 0}, "'max_pops' 0 is not the length of the longest path"),
        ({"max_pops": 2}, "'max_pops' 2 is not the length of the longest path"),
        ({"max_pops": 10**9}, "'max_pops' 1000000000 is out of range"),
        ({"max_push": 7}, "'max_push' is 7; the longest push string has 1 symbols"),
        ({"initial_push": 44}, "initial push string 44"),
        ({"stacks": 0}, "'stacks' must be in 1..64"),
        ({"stacks": 1000}, "'stacks' must be in 1..64"),
        ({"stacks": True}, "'stacks' is missing or not of type int"),
    ],
)
def test_stack_header_errors(changes: dict, sentence: str, stacked: CompiledConstraint, tmp_path: Path) -> None:
    stacked.save(tmp_path / "c.npz")
    set_header(tmp_path / "c.npz", **changes)
    with pytest.raises(ArtifactError, match=re.escape(sentence)):
        CompiledConstraint.load(tmp_path / "c.npz")


def test_a_cycle_of_pops_is_refused(stacked: CompiledConstraint, tmp_path: Path) -> None:
    """A node that is its own child would have a token pop without bound."""
    stacked.save(tmp_path / "c.npz")
    node = int(np.flatnonzero(stacked.delta_offset)[0])
    cycle = changed(stacked.delta, slice(stacked.delta_offset[node], stacked.delta_offset[node] + 5), node)
    set_array(tmp_path / "c.npz", "delta", cycle)
    for pops in (1, 3, stacked.num_nodes - 1):
        set_header(tmp_path / "c.npz", max_pops=pops)
        with pytest.raises(ArtifactError, match="not the length of the longest path"):
            CompiledConstraint.load(tmp_path / "c.npz")


def test_regular_constraints_have_no_children(saved: Path) -> None:
    set_array(saved, "delta", np.zeros(3, np.int32))
    with pytest.raises(ArtifactError, match="'delta' must be empty"):
        CompiledConstraint.load(saved)
    set_array(saved, "delta", np.zeros(0, np.int32))
    set_header(saved, max_pops=1)
    with pytest.raises(ArtifactError, match="'max_pops' is 1, but there are no symbols"):
        CompiledConstraint.load(saved)


def test_groups_need_mask_rows(saved: Path, constraint: CompiledConstraint) -> None:
    assert constraint.max_groups
    for name in ("level_cost", "level_need", "level_row"):
        set_array(saved, name, np.zeros(0, np.int32))
    set_array(saved, "level_offset", np.zeros(constraint.num_nodes + 1, np.int32))
    with pytest.raises(ArtifactError, match=r"has groups but no mask row|over 64 arcs"):
        CompiledConstraint.load(saved)


def test_shape_must_be_the_promised_one(saved: Path) -> None:
    rewrite(saved, lambda m: m.update({"arc_token.npy": npy(np.zeros(3, np.int32))}))
    with pytest.raises(ArtifactError, match="not the shape its header promises"):
        CompiledConstraint.load(saved)


def test_pickles_are_refused(saved: Path, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "owned"),))

    stream = io.BytesIO()
    np.save(stream, np.array([Hostile()], object), allow_pickle=True)
    rewrite(saved, lambda m: m.update({"rows.npy": stream.getvalue()}))
    with pytest.raises(ArtifactError):
        CompiledConstraint.load(saved)
    assert not (tmp_path / "owned").exists()


def test_bombs_are_refused_before_they_are_read(saved: Path) -> None:
    with zipfile.ZipFile(saved) as z:
        members = {n: z.read(n) for n in z.namelist()}
    members["rows.npy"] = npy(np.zeros((1000, 10000), np.uint32))
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in members.items():
            z.writestr(name, data)
    with pytest.raises(ArtifactError, match="compressed or larger than the file"):
        CompiledConstraint.load(saved)


def test_a_file_holds_a_header_and_arrays(saved: Path) -> None:
    """And nothing else: what older versions of NumPy take for an array's name is none."""
    with zipfile.ZipFile(saved) as archive:
        header, *names = archive.namelist()
    assert header == "header.npy"
    assert {name.removesuffix(".npy") for name in names} <= set(ARRAYS)


@pytest.mark.parametrize(("field", "value"), [(6, 210), (8, 1)], ids=["unknown zip version", "encrypted"])
def test_archives_that_cannot_be_read(field: int, value: int, saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[data.index(b"PK\x01\x02") + field] = value
    saved.write_bytes(data)
    with pytest.raises(ArtifactError):
        CompiledConstraint.load(saved)


def test_headers_promising_huge_arrays_allocate_nothing(saved: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<u4", "fortran_order": False, "shape": (10**9, 10**6)})
    rewrite(saved, lambda m: m.update({"rows.npy": head.getvalue()}))
    with pytest.raises(ArtifactError, match="does not hold as many values"):
        CompiledConstraint.load(saved)


def test_importing_the_artifact_needs_numpy_only() -> None:
    code = "import sys, fsa_compile.artifact.arrays; print([m for m in ('jax', 'pynini', 'regex', 'tiktoken') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_host_walk(constraint: CompiledConstraint) -> None:
    walk = constraint.walk()
    for token in (b"a", b"@", b"--", b"a"):
        walk.advance(VOCABULARY.tokens.index(token))
    assert walk.accepting
    assert not walk.finished
    assert walk.num_tokens == 4
    node = walk.node
    with pytest.raises(ValueError, match="not allowed after 4 tokens"):
        walk.advance(VOCABULARY.tokens.index(b"z"))
    assert walk.node == node
    walk.advance(VOCABULARY.stop_ids[1])
    assert walk.finished
    assert not walk.allowed().any()
    walk.rewind(2)
    assert walk.num_tokens == 3
    assert not walk.finished
    walk.rewind(3)
    assert walk.node == constraint.start
    with pytest.raises(ValueError, match="cannot rewind 1 of 0"):
        walk.rewind(1)
    assert walk.next_node(-1) == 0
    assert walk.next_node(10**9) == 0


def test_description(constraint: CompiledConstraint) -> None:
    assert "nodes" in repr(constraint)
    assert constraint.shortest_completion == 1  # the token a@b
    assert constraint.nbytes == sum(getattr(constraint, n).nbytes for n in ARRAYS)


def test_a_walk_says_where_it_stands():
    vocabulary = fsa_compile.Vocabulary.from_tokens([b"", b"a", b"b"], stop_ids=[0])
    walk = fsa_compile.compile_regex("ab?b", vocabulary).walk()
    assert repr(walk) == "HostWalk(after 0 tokens: 1 may come next; 2 more are enough)"
    walk.advance(1)
    walk.advance(2)
    assert repr(walk) == "HostWalk(after 2 tokens: 2 may come next; may end here)"
    walk.advance(0)
    assert repr(walk) == "HostWalk(ended after 3 tokens)"
