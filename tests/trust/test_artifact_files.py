"""No file makes loading hang, run out of memory or raise anything but `ArtifactError`; what loads can be walked and decoded with."""

import dataclasses
import os
import time
import zipfile

import numpy as np
import pytest

import fsa_compile
import jax_decode
from fsa_compile import ArtifactError, CompiledConstraint, CompiledItems, TokenizerError, Vocabulary
from fsa_compile.artifact import artifact_checks
from fsa_compile.artifact.arrays import ARRAYS
from fsa_compile.artifact.artifact_checks import MAX_POPS, check_contents, longest_path
from fsa_compile.artifact.canonical_part import CanonicalPart

VOCABULARY = Vocabulary.from_tokens([*(bytes([b]) for b in range(128)), b"]]", b"]]]", b'","', b""], stop_ids=[131])
SCHEMAS = {
    "regular": lambda: fsa_compile.compile_regex("[a-z]{2,9}|x*y", VOCABULARY),
    "stack": lambda: fsa_compile.compile_grammar('root ::= "[" (root ("," root)*)? "]" | [0-9]+', VOCABULARY),
    "counters": lambda: fsa_compile.compile_json_schema({"type": "array", "items": {"maxLength": 300}, "maxItems": 90}, every_byte()),
    "sets": lambda: fsa_compile.compile_json_schema(
        {"properties": {"a": True, "b": True}, "required": ["a"]}, every_byte(), options=fsa_compile.SchemaOptions(key_order="any")
    ),
}  # fmt: skip


def every_byte() -> Vocabulary:
    return Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])


@pytest.fixture(scope="module")
def made() -> dict[str, CompiledConstraint]:
    return {name: make() for name, make in SCHEMAS.items()}


def members_of(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, members) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def changed(c: CompiledConstraint, **changes) -> CompiledConstraint:
    return dataclasses.replace(c, **{name: np.asarray(value, ARRAYS[name][0]) if name in ARRAYS else value for name, value in changes.items()})


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode("latin-1")
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + data


@pytest.mark.parametrize("kind", ["group", "arc", "level", "push"])
def test_offsets_that_wrap_around(kind, made, tmp_path):
    c = made["stack"]
    name = f"{kind}_offset"
    offset = getattr(c, name).tolist()
    offset[2:5] = offset[2:5] if kind == "push" else []
    offset = [*offset[:2], 2**31 - 1, -(2**31), -1, *offset[2:]]
    with pytest.raises(ArtifactError, match=f"'{name}' must"):
        check_contents(changed(c, **{name: offset}), tmp_path)


COUNTS = {
    "characters": lambda low, high: {"type": "string", "minLength": low, "maxLength": high},
    "characters of a pattern": lambda low, high: {"type": "string", "pattern": "^[a-c]*$", "minLength": low, "maxLength": high},
    "elements": lambda low, high: {"type": "array", "minItems": low, "maxItems": high},
    "elements of one kind": lambda low, high: {"type": "array", "items": {"type": "null"}, "minItems": low, "maxItems": high},
    "within each other": lambda low, high: {"type": "array", "minItems": 40, "items": {"minLength": low, "maxLength": high}},
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("bounds", [(40, None), (0, 40), (0, 2**28 - 1), (0, 2**31), (0, 2**53 - 1), (40, 2**32), (2**22, None), (500, 600)])
def test_what_counts_is_read_back(name, bounds, tmp_path):
    schema = {key: value for key, value in COUNTS[name](*bounds).items() if value is not None}
    if isinstance(schema.get("items"), dict):
        schema["items"] = {key: value for key, value in schema["items"].items() if value is not None}
    made = fsa_compile.compile_json_schema(schema, every_byte())
    made.save(tmp_path / "c.npz")
    read = CompiledConstraint.load(tmp_path / "c.npz")
    assert all(np.array_equal(getattr(read, array), getattr(made, array)) for array in ARRAYS)
    assert read.walk().allowed().any()


def test_texts_that_are_too_long():
    for schema in ({"type": "array", "minItems": 2**28 - 1}, {"type": "array", "minItems": 9**5, "items": {"type": "string", "minLength": 9**5}}):
        with pytest.raises(fsa_compile.ConstraintError, match="more tokens than counters hold"):
            fsa_compile.compile_json_schema(schema, every_byte())


def test_push_strings_that_do_not_fit_into_memory(made, tmp_path):
    c = made["stack"]
    count, longest = 20_000, 20_000
    offset = np.concatenate([c.push_offset, c.push_offset[-1] + np.r_[np.zeros(count), longest]])
    symbols = np.zeros(int(offset[-1]), np.int32)
    with pytest.raises(ArtifactError, match="do not fit into memory"):
        check_contents(changed(c, push_offset=offset, push_symbol=symbols, push_register=symbols, max_push=longest), tmp_path)


def edges(children):
    """Segments and children of a table of them."""
    segment, symbol = children.nonzero()
    return segment, children[segment, symbol]


def test_paths_in_delta_are_measured_in_linear_time():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, p = int(rng.integers(2, 9)), int(rng.integers(1, 3))
        children = np.where(rng.random((n, p)) < 0.5, rng.integers(0, n, (n, p)), 0)
        children[0] = 0
        segments = rng.integers(0, n, (int(rng.integers(1, 3)), n))
        segments[:, 0] = 0
        reached, length = np.arange(n) > 0, 0
        while length <= n and (reached := (reached[children] & (children > 0)).any(1)[segments].any(0)).any():
            length += 1
        assert min(longest_path(*edges(children), segments, n), n) == min(length, n)
    n = 200_000
    chain = np.r_[0, np.arange(2, n), 0][:, None]
    start = time.perf_counter()
    assert longest_path(*edges(chain), np.arange(n)[None], MAX_POPS) == MAX_POPS + 1
    assert time.perf_counter() - start < 20


def test_a_long_chain_is_refused(made, tmp_path):
    with pytest.raises(ArtifactError, match="'max_pops' 5000 is out of range"):
        check_contents(changed(made["stack"], max_pops=5_000), tmp_path)


HEADERS = {
    "nested": npy("(" * 5000),
    "signs": npy("-" * 9000 + "1"),
    "no size": npy("{'descr': '<U0', 'fortran_order': False, 'shape': (3,), }"),
    "huge shape": npy("{'descr': '<i4', 'fortran_order': False, 'shape': (9223372036854775808, 0), }"),
    "parts": npy("{'descr': ('<i4', (2,)), 'fortran_order': False, 'shape': (1,), }", b"\0" * 8),
    "fields": npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }", b"\0" * 4),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8),
    "no tuple": npy("{'descr': '<i4', 'fortran_order': False, 'shape': 3, }"),
    "no text": npy("{'descr': '\xff', 'fortran_order': False, 'shape': (3,), }"),
    "long": npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }" + " " * 70_000, b"\0" * 4),
    "empty": b"",
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_arrays(name, made, tmp_path):
    path = tmp_path / "c.npz"
    made["regular"].save(path)
    members = members_of(path)
    for member in ("accept.npy", "header.npy"):
        write(path, members | {member: HEADERS[name]})
        with pytest.raises(ArtifactError):
            CompiledConstraint.load(path)
        with pytest.raises(ArtifactError):
            CompiledItems.load(path)


def test_names_that_are_no_text(made, tmp_path):
    path = tmp_path / "c.npz"
    made["regular"].save(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"accept.npy", b"\xff\xfeccpt.npy"))
    with pytest.raises(ArtifactError):
        CompiledConstraint.load(path)
    start = data.rindex(b"PK\x01\x02")
    flagged = data[: start + 9] + b"\x08" + data[start + 10 : start + 46] + b"\xff\xfe" + data[start + 48 :]  # says it is UTF-8
    path.write_bytes(flagged)
    with pytest.raises(ArtifactError):
        CompiledConstraint.load(path)


@pytest.mark.parametrize("path", [None, 5, b"c.npz", "a\0b", "/dev/zero", ".", ["c.npz"]])
def test_what_is_no_file(path):
    for load in (CompiledConstraint.load, CompiledItems.load):
        with pytest.raises(ArtifactError):
            load(path)
    with pytest.raises(TokenizerError):
        fsa_compile.load_tokenizer(path)


def test_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(ArtifactError, match="no regular file"):
        CompiledConstraint.load(tmp_path / "pipe.npz")
    with pytest.raises(TokenizerError, match="no regular file"):
        fsa_compile.load_tokenizer(tmp_path / "pipe.npz")


def test_what_is_not_replaced(made, tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "folder.npz").mkdir()
    for path in (tmp_path / "pipe.npz", tmp_path / "folder.npz", ""):
        with pytest.raises(OSError, match="not replaced"):
            made["regular"].save(path)
    for path in (None, 5, "a\0b", "\ud800"):
        with pytest.raises(ArtifactError, match="path is needed"):
            made["regular"].save(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.npz", "pipe.npz"]


EXTRAS = {
    "start of texts": {"canonical_start": ["a", 1, 2]},
    "no start": {"canonical_start": 5},
    "exceptions": {"canonical_start": [-1, 1, 0], "canonical_unless": {"states": 5, "rows": []}},
    "rows": {"canonical_start": [-1, 1, 0], "canonical_unless": {"states": [[0]], "rows": [5]}},
    "long numbers": {"canonical_start": [-1, 1, 0], "canonical_unless": {"states": [[0]], "rows": [[1, 10**30, 0]]}},
    "too many": {"canonical_start": [-1, 1, 0], "canonical_unless": {"states": [[0]], "rows": [[1, 1, 0]] * 10_000}},
    "identity": {"canonical": [1], "canonical_start": [-1, 1, 0]},
}


@pytest.mark.parametrize("name", EXTRAS)
def test_what_canonical_constraints_say(name, made, tmp_path, monkeypatch):
    monkeypatch.setattr("fsa_compile.artifact.arrays.MOST_EXCEPTIONS", 100_000)

    def loaded() -> None:
        part = CanonicalPart.of_header({"canonical": "0"} | EXTRAS[name], ArtifactError)
        check_contents(changed(made["regular"], canonical=part), tmp_path)

    with pytest.raises(ArtifactError):
        loaded()


def damaged(c: CompiledConstraint, rng: np.random.Generator) -> CompiledConstraint:
    """A constraint with one or two changes that are nearly right: a number, a length, or numbers of extreme size."""
    changes = {}
    for _ in range(int(rng.integers(1, 3))):
        name = str(rng.choice([*ARRAYS, "max_pops", "max_push", "start", "stacks", "initial_push"]))
        value = getattr(c, name)
        if name not in ARRAYS:
            changes[name] = int(rng.choice([value - 1, value + 1, -1, 0, 2**31, 2**70]))
            continue
        value = value.copy()
        extreme = rng.choice([-1, 0, 1, 2**31 - 1, -(2**31), 2**30, len(value)])
        if value.size and rng.random() < 0.7:
            flat = value.reshape(-1)
            at = int(rng.integers(len(flat)))
            flat[at : at + int(rng.integers(1, 4))] = np.array(extreme).astype(value.dtype)
        elif value.size and rng.random() < 0.5:
            value = value[: int(rng.integers(len(value)))]
        else:
            value = np.zeros([int(rng.choice([0, 1, extent, 2 * extent])) for extent in value.shape], value.dtype)
        changes[name] = value
    return changed(c, **changes)


def test_damaged_constraints_are_refused_or_can_be_used(made, tmp_path, exhaustive):
    rng = np.random.default_rng(7)
    refused = 0
    for i in range(6_000 if exhaustive else 160):
        with np.errstate(over="ignore"):
            c = damaged(list(made.values())[i % len(made)], rng)
        start = time.perf_counter()
        try:
            c.save(tmp_path / "c.npz")
            c = CompiledConstraint.load(tmp_path / "c.npz")
        except ArtifactError:
            refused += 1
            continue
        walk = c.walk()
        for _ in range(12):
            allowed = np.flatnonzero(walk.allowed())
            if not len(allowed) or walk.finished:
                break
            walk.advance(int(rng.choice(allowed)))
        if i % 8 == 0 or exhaustive:
            jax_decode.to_device(c)
        assert time.perf_counter() - start < 20
    assert refused > 40


def test_only_what_is_in_delta_counts(made, tmp_path, monkeypatch):
    """Large languages have far more places in `delta` than children."""
    c = made["stack"]
    edges_of = c.max_pops * (c.num_nodes + np.count_nonzero(c.delta))
    assert edges_of < c.max_pops * (c.num_nodes + len(c.delta))
    monkeypatch.setattr(artifact_checks, "_MOST_POPPED", edges_of)
    check_contents(c, tmp_path)
    monkeypatch.setattr(artifact_checks, "_MOST_POPPED", edges_of - 1)
    with pytest.raises(ArtifactError, match=f"'max_pops' {c.max_pops} is out of range"):
        check_contents(c, tmp_path)
