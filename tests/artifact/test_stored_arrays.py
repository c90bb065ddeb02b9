"""Arrays in parts: they hold what they were made of, wherever they are read, and damaged ones are refused."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from oracles.saved_artifacts import KINDS, VOCABULARY, in_parts

import fsa_compile
import jax_decode
from fsa_compile import library
from fsa_compile.artifact import file as artifact_file
from fsa_compile.artifact import row_pieces, stored_arrays
from fsa_compile.artifact.arrays import ARRAYS
from fsa_compile.artifact.stored_arrays import StoredArray, StoredChildren, StoredEffects, StoredRows, StoredTokens
from fsa_compile.composition import compose
from fsa_compile.composition.pushdown import pushdown_artifact

NAMES = ("regular", "counter", "stack", "stack_and_counter", "temperatures")


def equal(a, b):
    return all(np.array_equal(np.asarray(getattr(a, name)), np.asarray(getattr(b, name))) for name in ARRAYS)


@pytest.fixture(scope="module", autouse=True)
def read_as_large_ones():
    """What is read of small files stays in parts, as it does of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifact_file, "LEAST_BYTES", 1)
        yield


@pytest.fixture(scope="module")
def json_grammar():
    """A grammar compiled as large ones are, and as it is."""
    tokenizer = fsa_compile.Vocabulary.from_tokens(
        [b"", *(bytes([b]) for b in range(256)), *(f"{i}".encode() for i in range(10, 400)), b'":', b'", "', b"}}", b"]}"], stop_ids=[0]
    )
    plain = fsa_compile.compile_grammar(library.grammar_text("json"), tokenizer, **library.options("json"))
    with pytest.MonkeyPatch.context() as patch:
        for module in (compose, pushdown_artifact):
            patch.setattr(module, "LEAST_BYTES", 1)
        for module in (stored_arrays, pushdown_artifact):
            patch.setattr(module, "is_smaller", lambda array: True)
        stored = fsa_compile.compile_grammar(library.grammar_text("json"), tokenizer, **library.options("json"))
    return plain, stored


@pytest.mark.parametrize("name", NAMES)
def test_reading(name, tmp_path):
    plain = KINDS[name].compile()
    stored = in_parts(plain)
    assert equal(plain, stored)
    stored.save(tmp_path / "a.npz")
    again = fsa_compile.CompiledConstraint.load(tmp_path / "a.npz", VOCABULARY)
    assert isinstance(again.rows, StoredRows)
    assert equal(plain, again)
    for c in (stored, again):
        rng = np.random.default_rng(1)
        walks = plain.walk(), c.walk()
        for _ in range(40):
            allowed = walks[0].allowed(remaining=walks[0].distance + 3)
            assert (walks[1].allowed(remaining=walks[1].distance + 3) == allowed).all()
            assert (walks[1].allowed() == walks[0].allowed()).all()
            token = int(rng.choice(np.flatnonzero(allowed)))
            for walk in walks:
                walk.advance(token)
            if walks[0].finished:
                break


@pytest.mark.parametrize("words", [5, 16, 40, 71])
@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_rows_stand_once_in_order(words, seed):
    """Rows that are the one before, that differ in some pieces from it, and that are an earlier one again."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 3, words, np.uint32)]
    for _ in range(60):
        row = rows[rng.integers(len(rows))].copy() if rng.random() < 0.3 else rows[-1].copy()
        row[rng.integers(0, words, rng.integers(0, 3))] = rng.integers(0, 3)
        rows.append(row)
    stored = StoredRows.of(np.stack(rows).__getitem__, (len(rows), words))
    padded = np.zeros((len(rows), -(-words // 16) * 16), np.uint32)
    padded[:, :words] = rows
    known: dict[bytes, int] = {}
    index = [[known.setdefault(piece.tobytes(), len(known)) for piece in row.reshape(-1, 16)] for row in padded]
    assert stored.parts["index"].tolist() == index
    assert b"".join(known) == stored.parts["piece"].tobytes()
    assert np.array_equal(np.asarray(stored), rows)


def test_single_entries_and_slices(json_grammar):
    plain, stored = json_grammar
    rng = np.random.default_rng(2)
    for name, kind in stored_arrays.KINDS.items():
        a, b = getattr(plain, name), getattr(stored, name)
        assert isinstance(b, kind)
        assert (b.shape, b.dtype, b.ndim, len(b)) == (a.shape, a.dtype, a.ndim, len(a))
        some = rng.integers(-len(a), len(a), 50)
        assert np.array_equal(a[some], b[some])
        assert np.array_equal(a[some.reshape(5, 10)], b[some.reshape(5, 10)])
        for begin, end in rng.integers(0, len(a), (50, 2)).tolist():
            assert np.array_equal(a[begin:end], b[begin:end])
            assert np.array_equal(a[begin], b[begin])
        with pytest.raises(IndexError):
            b[len(a)]
    assert np.array_equal(plain.rows[:, -1], stored.rows[:, -1])
    assert np.array_equal(plain.rows[:, :2], stored.rows[:, :2])
    for node in range(plain.num_nodes):
        arcs = slice(plain.arc_offset[node], plain.arc_offset[node + 1])
        assert np.array_equal(plain.arc_token[arcs], stored.arc_token[arcs])
        assert np.array_equal(plain.arc_effect[arcs], stored.arc_effect[arcs])


def test_effects_of_nodes(json_grammar):
    plain, stored = json_grammar
    nodes = np.append(np.random.default_rng(3).permutation(plain.num_nodes), [1, 1])
    which, effect = stored.arc_effect.of_nodes(nodes)
    for place, node in enumerate(nodes.tolist()):
        arcs = plain.arc_effect[plain.arc_offset[node] : plain.arc_offset[node + 1]]
        assert sorted(effect[which == place].tolist()) == sorted(set(arcs.tolist()))


def test_large_grammars_are_stored_so(json_grammar):
    plain, stored = json_grammar
    assert equal(plain, stored)
    assert stored.arc_token.nbytes < plain.arc_token.nbytes
    a, b = (jax.tree.leaves(jax_decode.to_device(c)) for c in (plain, stored))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def damaged(array: StoredArray, part: str, values: np.ndarray) -> StoredArray:
    """The array with other values in one of its parts."""
    parts = array.parts | {part: values.astype(array.PARTS[part][0])}
    out = object.__new__(type(array))
    out.__dict__.update(array.__dict__, parts=parts)
    return out


@pytest.mark.parametrize(
    ("name", "part", "change"),
    [
        ("rows", "index", lambda x: x + 10_000),
        ("rows", "index", lambda x: x - 1),
        ("rows", "index", lambda x: x[:, :-1]),
        ("rows", "piece", lambda x: x[:, :8]),
        ("delta", "at", lambda x: x[::-1]),
        ("delta", "at", lambda x: x + (1 << 20)),
        ("delta", "value", lambda x: x[1:]),
        ("delta", "value", lambda x: x + 10_000),
        ("arc_token", "list", lambda x: x + 10_000),
        ("arc_token", "list", lambda x: x[1:]),
        ("arc_token", "list", lambda x: np.append(x, [1] * 9)),
        ("arc_token", "offset", lambda x: x[::-1]),
        ("arc_token", "offset", lambda x: x - 1),
        ("arc_token", "token", lambda x: x[::-1]),
        ("arc_token", "token", lambda x: x + 100_000),
        ("arc_effect", "class", lambda x: x + 9_000),
        ("arc_effect", "class", lambda x: x[1:]),
        ("arc_effect", "first", lambda x: x - 1),
        ("arc_effect", "first", lambda x: x + 9_000),
        ("arc_effect", "effect", lambda x: x + 90_000),
        ("arc_effect", "effect", lambda x: x[:3]),
    ],
)
def test_damaged_parts_are_refused(name, part, change, json_grammar, tmp_path):
    stored = json_grammar[1]
    array = getattr(stored, name)
    dataclasses.replace(stored, **{name: damaged(array, part, change(array.parts[part]))}).save(tmp_path / "a.npz")
    with pytest.raises(fsa_compile.errors.ArtifactError):
        fsa_compile.CompiledConstraint.load(tmp_path / "a.npz")


def test_a_small_file_does_not_fill_the_memory(json_grammar, tmp_path):
    stored = json_grammar[1]
    delta = StoredChildren({"at": np.zeros(1, np.int32), "value": np.ones(1, np.int32)}, (1 << 34,))
    lists = {"list": np.zeros(1 << 16, np.int32), "offset": np.array([0, 1 << 16]), "token": np.arange(1 << 16)}
    tokens = StoredTokens({part: values.astype(np.int32) for part, values in lists.items()})
    offsets = np.minimum(np.arange(stored.num_nodes + 1), 1).astype(np.int32)
    assert isinstance(stored.arc_effect, StoredEffects)
    for changes in ({"delta": delta}, {"arc_token": tokens, "arc_offset": offsets}):
        dataclasses.replace(stored, **changes).save(tmp_path / "a.npz")
        with pytest.raises(fsa_compile.errors.ArtifactError, match="much longer than its parts"):
            fsa_compile.CompiledConstraint.load(tmp_path / "a.npz")


@pytest.mark.parametrize("hashes", [lambda x: np.zeros(np.shape(x), np.uint64), lambda x: np.asarray(x, np.uint64) & np.uint64(1)])
def test_pieces_of_one_hash_are_told_apart(hashes, monkeypatch):
    monkeypatch.setattr(row_pieces, "mixed", hashes)
    rows = np.random.default_rng(4).integers(0, 3, (50, 40), np.uint32)
    table = row_pieces.PieceTable(40)
    index = [table.cut(rows[begin : begin + 20].__getitem__, len(rows[begin : begin + 20])) for begin in (0, 20, 40)]
    assert np.array_equal(table.rows(np.concatenate(index)), rows)
    piece, among = table.among(index[1])
    assert np.array_equal(row_pieces.rows_of(piece, among, 40), rows[20:40])
    assert np.array_equal(np.asarray(StoredRows.of(rows.__getitem__, rows.shape)), rows)


def test_pieces_stand_once_however_few_rows_are_cut_at_a_time():
    rng = np.random.default_rng(70)
    rows = np.repeat(rng.integers(0, 1 << 32, (400, 4), np.uint32)[rng.integers(0, 400, (600, 4)), np.arange(4)], 16, axis=1)
    table, begin, index = row_pieces.PieceTable(64), 0, []
    while begin < len(rows):
        some = rows[begin : begin + int(rng.integers(1, 20))]
        index.append(table.cut(some.__getitem__, len(some)))
        begin += len(some)
    assert np.array_equal(table.rows(np.concatenate(index)), rows)
    every = [piece.tobytes() for piece in rows.reshape(-1, 16)]
    assert [piece.tobytes() for piece in table.piece[: table.size]] == list(dict.fromkeys(every))
    some = np.concatenate(index)[300:340]
    piece, _ = table.among(some)
    assert [one.tobytes() for one in piece] == list(dict.fromkeys(every[1200:1360]))
