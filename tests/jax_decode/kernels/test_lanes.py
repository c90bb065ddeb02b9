"""Kernels of one row in every lane, or program, by Pallas's interpreter: the numbers of XLA's form, of functions and whole steps."""

import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile as fc
import jax_decode
from jax_decode.kernels import lanes, row_cells, row_program, rows_gpu
from jax_decode.kernels.gather import fields, last_of, read
from jax_decode.kernels.target import compiled_for, target
from jax_decode.step import masking, transition
from jax_decode.step.packing import packed, unpacked
from jax_decode.tables import tables as tables_module

TOKENS = [b"", *(bytes([c]) for c in range(256)), b'{"', b'":', b'"a', b'"}', b", ", b"[[", b"]]", b"ab", b"aa", b"bb", b"123"]
MANY = fc.Vocabulary.from_tokens(TOKENS, stop_ids=[0])
KINDS = {
    "regular": lambda: fc.compile_regex("[a-z ]{2,9}(,[0-9]+)*|12", MANY),
    "stack": lambda: fc.compile_json_schema({"type": "array", "items": {"type": ["null", "array"]}}, MANY),
    "counters": lambda: fc.compile_json_schema({"type": "array", "items": {"type": ["integer", "string"], "maxLength": 9}}, MANY),
}


@pytest.fixture(autouse=True)
def _sizes_of_their_own(monkeypatch, exhaustive):
    """Tables in no profile: in the steps of a profile there are more levels, and each is compiled."""
    if not exhaustive:
        monkeypatch.setattr(tables_module, "choose_profile", lambda *_: None)


def _some_work(tables, rows):
    table, deep, line, long = tables
    index, other, flags, words = rows
    first, third = fields(table, (0, 2), index)
    far = read(table, index[:, :1] + 1, jnp.int32(9))
    entry, _ = fields(deep, (0, 1), index[:, 0], other)
    some = read(line, index[:, None] + jnp.arange(3, dtype=jnp.int32)[None, :, None])
    list_of, next_to = fields(long, (0, 2), index[..., None] * 57 + jnp.arange(5, 16, dtype=jnp.int32)[None, None])
    found = last_of(lambda i: (first[..., None] > i, third[..., None] & 255), 5, first.shape)
    kept = jnp.where(flags[:, None], first, third)
    bits = (words >> other.astype(jnp.uint32)) & 1
    pair = jnp.stack([bits, bits + 1], 1).astype(jnp.int32)
    return {"a": kept.max(1), "b": some.sum(1), "c": found, "d": far + entry[:, None], "e": pair, "f": list_of, "g": next_to}


@pytest.mark.parametrize("batch", [5, 200])
def test_a_function_of_rows(batch):
    rng = np.random.default_rng(0)
    tables = [jnp.asarray(rng.integers(0, 9, shape), jnp.int32) for shape in [(300, 11), (400, 2, 3), (5000,), (20000, 3)]]

    def draw(most, shape):
        return jnp.asarray(rng.integers(0, most, shape), jnp.int32)

    rows = draw(299, (batch, 2)), draw(2, batch), draw(2, batch) > 0, draw(2**30, batch).astype(jnp.uint32)
    expected = jax.jit(_some_work)(tables, rows)
    for by_kernel in (lanes.by_lanes, rows_gpu.by_programs):
        found = jax.jit(functools.partial(by_kernel, _some_work, interpret=True))(tables, rows)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_row_reads_and_writes_its_own_memory_where_it_lies():
    """What is read before and after a write; tables and other rows are left alone."""
    rng = np.random.default_rng(3)
    table, memory = (jnp.asarray(rng.integers(0, 7, shape), jnp.int32) for shape in ((9, 2), (5, 11)))
    place = jnp.asarray(rng.integers(0, 9, 5), jnp.int32)

    def changed(table, place, memory):
        first, second = fields(table, (0, 1), place)
        own = jnp.arange(len(memory))[:, None]
        old = read(memory, own, first[:, None])
        memory = memory.at[own, place[:, None] + jnp.arange(2)[None]].set(
            jnp.stack([old[:, 0] + 1, second], 1), mode="promise_in_bounds", unique_indices=True
        )
        return {"read": old, "again": read(memory, own, place[:, None] + 1)}, memory

    found = rows_gpu.by_programs(changed, table, place, memory, interpret=True)
    jax.tree.map(np.testing.assert_array_equal, found, changed(table, place, memory))

    def too_late(table, place, memory):
        """Reads what was there before a write."""
        after = changed(table, place, memory)[1]
        return read(memory, jnp.arange(len(memory))[:, None], place[:, None]), after

    with pytest.raises(row_program.NotARowProgramError):
        rows_gpu.by_programs(too_late, table, place, memory, interpret=True)


@pytest.mark.parametrize(
    ("kind", "platform", "many"),
    [
        ("regular", "tpu", None),
        ("stack", "tpu", None),
        ("regular", "tpu", 1),
        ("stack", "tpu", 1),
        ("counters", "tpu", None),
        ("regular", "gpu", None),
        ("stack", "gpu", None),
        ("counters", "gpu", None),
    ],
)
def test_steps_are_those_of_xla(kind, platform, many, monkeypatch, exhaustive):
    """With tables that are large, or taken for large: there, entries that lie one after another are read together."""
    if not exhaustive and (kind == "counters" or (kind, many) == ("stack", 1)):
        pytest.skip("half a minute and more: run with --exhaustive")

    @functools.partial(jax.jit, static_argnums=0)
    def step(kernels, tables, rows, key):
        state = unpacked(rows)
        at = masking.located(tables, state)
        assert (at.known is not None) == kernels
        allowed = masking.dense(masking.mask_parts(tables, state, at), tables.vocab_size)
        token = jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)).astype(jnp.int32)
        tokens = jnp.where(allowed.any(1), token, -1)
        tokens = jnp.where(jax.random.uniform(key, tokens.shape) < 0.05, jnp.asarray([3, 400, -2, 5, 70]), tokens)
        rows = packed(jax_decode.advance(tables, state, tokens, at))
        return rows, (allowed, tokens)

    tables = jax_decode.to_device(KINDS[kind]())
    rows = packed(jax_decode.init_state(tables, [0, 0, 0, -1, 0], [24, 20, 9, 24, 2], max_tokens=24))
    monkeypatch.setenv("JAX_DECODE_KERNELS", "pallas")
    monkeypatch.setattr(lanes, "_MANY", many or lanes._MANY)
    taken = set()

    def by_programs(function, *arguments):
        taken.add(function.__name__)
        return rows_gpu.by_programs(function, *arguments, interpret=True)

    for module in (masking, transition):
        monkeypatch.setattr(module, "by_lanes", functools.partial(lanes.by_lanes, interpret=True))
        monkeypatch.setattr(module, "by_programs", by_programs)
        monkeypatch.setattr(module, "in_programs", lambda: target() == "gpu")
    monkeypatch.setattr(transition, "written_and_followed", functools.partial(row_cells.written_and_followed, interpret=True))
    drawn = set()
    for key in jax.random.split(jax.random.key(1), 16 if kind == "regular" or exhaustive else 8):
        after, (allowed, tokens) = step(False, tables, rows, key)
        with compiled_for(platform):
            other, made = step(True, tables, rows, key)
        jax.tree.map(np.testing.assert_array_equal, (after, allowed, tokens), (other, *made))
        rows = after
        drawn |= set(tokens.tolist())
    assert len(drawn) > 5, "short texts show little"
    assert taken == ({"_located_row", "_stepped_row"} if platform == "gpu" else set())


@pytest.mark.parametrize("kind", ["regular", "counters"])
def test_steps_are_lowered_for_a_gpu(kind, monkeypatch):
    """On this machine, up to Triton's own code: an operation that it does not have is refused by then."""

    def step(tables, rows, tokens):
        state = unpacked(rows)
        at = masking.located(tables, state)
        return masking.mask_parts(tables, state, at).words, packed(jax_decode.advance(tables, state, tokens, at))

    tables = jax_decode.to_device(KINDS[kind]())
    rows = packed(jax_decode.init_state(tables, [0, -1], [9, 9], max_tokens=9))
    for module in (masking, transition):
        monkeypatch.setattr(module, "in_programs", lambda: target() == "gpu")
    with compiled_for("gpu"):
        text = jax.jit(step).trace(tables, rows, jnp.zeros(2, jnp.int32)).lower(lowering_platforms=("cuda",)).as_text()
    assert len(set(re.findall(r"rows_(_located_row|_stepped_row)", text))) == 2


def test_what_cannot_be_read_is_left_to_xla(monkeypatch):
    """Operations that are not known, as another version of JAX may write them, and tables that are too large."""
    tables = jax_decode.to_device(KINDS["stack"]())
    state = jax_decode.init_state(tables, [0, 0], [9, 9], max_tokens=9)
    table, rows = jnp.zeros((300, 3), jnp.int32), jnp.zeros(2, jnp.int32)
    monkeypatch.setenv("JAX_DECODE_KERNELS", "pallas")
    for module in (masking, transition):
        monkeypatch.setattr(module, "by_lanes", functools.partial(lanes.by_lanes, interpret=True))
    with pytest.raises(row_program.NotARowProgramError):
        lanes.by_lanes(lambda _, x: jnp.sort(x), table, rows, interpret=True)
    with compiled_for("tpu"):
        known = jax.eval_shape(masking.located, tables, state)
        assert known.known is not None
        for module, name, value in ((row_program, "_KNOWN", row_program._KNOWN - {"add"}), (lanes, "MOST_ENTRIES", 64)):
            with monkeypatch.context() as changed:
                changed.setattr(module, name, value)
                assert jax.eval_shape(lambda: masking.located(tables, state)).known is None
                text = str(jax.make_jaxpr(jax_decode.advance)(tables, state, rows, known))
                assert "pallas" not in text


@pytest.mark.parametrize(("kind", "meant"), [("TPU v2", False), ("TPU v3", False), ("TPU v4", True), ("TPU v5 lite", True)])
def test_old_tpus_have_no_reads_along_lanes(kind, meant, monkeypatch):
    """Their compiler refuses such a kernel."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    monkeypatch.setattr(jax, "devices", lambda: [types.SimpleNamespace(device_kind=kind)])
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert lanes.in_lanes(jnp.zeros((9, 3), jnp.int32)) == meant


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_beside_an_accelerator_the_cpu_takes_xlas_form(platform, monkeypatch):
    """What is traced where there is a TPU or GPU has kernels, and may still run on the CPU."""
    tables = jax_decode.to_device(KINDS["stack"]())
    state, tokens = jax_decode.init_state(tables, [0, 0], [9, 9], max_tokens=9), jnp.asarray([ord("["), 70], jnp.int32)
    monkeypatch.setenv("JAX_DECODE_KERNELS", "pallas")
    for module in (masking, transition):
        monkeypatch.setattr(module, "in_programs", lambda: target() == "gpu")

    def step(state, tokens):
        at = masking.located(tables, state)
        return jax_decode.advance(tables, state, tokens, at), at.known is not None

    expected, _ = jax.jit(step)(state, tokens)
    with compiled_for(platform):
        assert "pallas" in str(jax.make_jaxpr(step)(state, tokens))
        found, has_kernels = jax.jit(step)(state, tokens)
    assert has_kernels
    jax.tree.map(np.testing.assert_array_equal, found, expected)
