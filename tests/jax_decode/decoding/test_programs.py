"""Compiled programs in files: another process runs them without compiling; what they do not fit is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
from jax_decode.decoding import programs
from jax_decode.errors import DecodeError
from models.tiny import tiny_gemma

SIZE = 8
WORDS = fsa_compile.Vocabulary.from_tokens([b"", *(bytes([c]) for c in b"abcdefg")], stop_ids=[0])
MODEL = tiny_gemma(4, "gemma1-mqa", SIZE)
TABLES = jax_decode.to_device(fsa_compile.compile_regex("[a-g]{0,9}", WORDS))
ROOT = Path(__file__).parents[3]
PROCESS = """
import json, sys
import jax
import fsa_compile, jax_decode
from models.tiny import tiny_gemma
names, (kind, path, *patterns) = [], sys.argv[1:]
def heard(event, seconds, **facts):
    if event in ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_trace_duration"):
        names.append(facts.get("fun_name", "").removeprefix("jit(").removesuffix(")"))
jax.monitoring.register_event_duration_secs_listener(heard)
words = fsa_compile.Vocabulary.from_tokens([b"", *(bytes([c]) for c in b"abcdefg")], stop_ids=[0])
decoder = tiny_gemma(5, "gemma1-mqa", 8)
def texts(pattern):
    tables = jax_decode.to_device(fsa_compile.compile_regex(pattern, words))
    given = {"key": jax.random.key(3), "max_new_tokens": 8, "bos_id": False}
    made = jax_decode.generate(decoder, [1, 2], tables, sampler=jax_decode.Categorical(0.7), **given)
    beams = jax_decode.beam_search(decoder, [1], tables, beams=2, max_new_tokens=8, bos_id=False)
    return [made.tokens[0].tolist(), [row.tolist() for row in beams.tokens]]
if kind == "write":
    with jax_decode.export_programs(path):
        out = [texts(patterns[0])]
    out += [texts(pattern) for pattern in patterns[1:]]
else:
    jax_decode.load_programs(path)
    out = [texts(pattern) for pattern in patterns]
print(json.dumps({"texts": out, "names": names}))
"""


def process(kind: str, path: Path, *patterns: str) -> dict:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROCESS, kind, str(path), *patterns]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_another_process_runs_the_programs_without_tracing_or_compiling(tmp_path):
    """For a constraint that nothing was exported for, too; the tokens are those of the first process, which compiles."""
    path, patterns = tmp_path / "programs.bin", ("[a-c]{2,4}d", "(ab|cd){1,3}")
    written = process("write", path, *patterns)
    loops = {"prefill", "decode", "search", "_first_rows"}
    assert loops <= set(written["names"])
    read = process("read", path, *patterns)
    assert not loops & set(read["names"])
    assert read["texts"] == written["texts"]


@pytest.fixture(autouse=True)
def _as_models_need_it():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """A file of the programs of one call, and what the call gives."""
    path = tmp_path / "programs.bin"
    for program in programs._PROGRAMS.values():
        monkeypatch.setattr(program, "loaded", {})
    with jax_decode.export_programs(path):
        expected = generated(tiny_gemma(4, "gemma1-mqa", SIZE))
    return path, expected


def generated(decoder, most: int = 6):
    tables = jax_decode.to_device(fsa_compile.compile_regex("[a-g]{3}", WORDS))
    return jax_decode.generate(decoder, [1], tables, max_new_tokens=most, bos_id=False)


def test_calls_of_other_sizes_or_decoders_compile_as_ever(exported):
    path, expected = exported
    assert jax_decode.load_programs(path) >= 3
    assert generated(tiny_gemma(4, "gemma1-mqa", SIZE)).tokens[0].tolist() == expected.tokens[0].tolist()
    assert len(generated(tiny_gemma(4, "gemma1-mha", SIZE)).tokens[0]) == 3
    assert len(generated(tiny_gemma(4, "gemma1-mqa", SIZE), most=40).tokens[0]) == 3
    assert jax.jit(lambda x: x + 1)(1) == 2


@pytest.fixture
def cached(tmp_path):
    """JAX's cache of programs on disk, in a folder of its own, for every program."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: jax.config.values[name] for name in names}
    compilation_cache.reset_cache()  # of a folder that was set before
    jax_decode.keep_programs(tmp_path / "cache")
    jax.config.update(names[1], 0.0)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_programs_that_came_from_a_cache_or_a_file_are_exported_whole(cached, exported, tmp_path):
    decoder, (path, expected) = tiny_gemma(4, "gemma1-mqa", SIZE), exported
    for _ in range(2):
        jax.clear_caches()
        generated(decoder)  # the second time from JAX's cache
    jax_decode.load_programs(path)
    for name in ("once", "twice"):
        jax.clear_caches()
        with jax_decode.export_programs(tmp_path / name):
            generated(decoder)
        assert jax_decode.load_programs(tmp_path / name) >= 3
        assert generated(decoder).tokens[0].tolist() == expected.tokens[0].tolist()


def test_files_that_do_not_fit_are_refused_with_the_reason(exported, tmp_path):
    path, _ = exported
    magic, header, body = path.read_bytes().split(b"\n", 2)
    said = json.loads(header)

    def written(header: bytes, body: bytes) -> Path:
        other = tmp_path / "other.bin"
        other.write_bytes(magic + b"\n" + header + b"\n" + body)
        return other

    for name in ("jax", "device", "options", "code"):
        with pytest.raises(DecodeError, match=f"compiled elsewhere: {name} another, here"):
            jax_decode.load_programs(written(json.dumps(said | {name: "another"}).encode(), body))
    for bad in (written(header, body[:-1]), written(b"[]", body), written(b"{", body), written(b"", b"")):
        with pytest.raises(DecodeError, match="no whole file of programs"):
            jax_decode.load_programs(bad)
    with pytest.raises(DecodeError, match="cannot be read: No such file"):
        jax_decode.load_programs(tmp_path / "missing.bin")


def test_what_cannot_be_exported_says_why_and_leaves_the_file_alone(tmp_path):
    path = tmp_path / "programs.bin"
    path.write_bytes(b"old")
    with pytest.raises(DecodeError, match="no program has run"), jax_decode.export_programs(path):
        pass
    with pytest.raises(DecodeError, match="max_new_tokens"), jax_decode.export_programs(path):
        generated(tiny_gemma(4, "gemma1-mqa", SIZE), most=0)
    assert path.read_bytes() == b"old"
    with pytest.raises(DecodeError, match=r"cannot be written: .*lambda"), jax_decode.export_programs(path):
        generated(toy(SIZE, 4))
    nowhere = tmp_path / "no folder" / "programs.bin"
    with pytest.raises(DecodeError, match="cannot be written: No such file"), jax_decode.export_programs(nowhere):
        generated(tiny_gemma(4, "gemma1-mqa", SIZE))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_sizes_that_memory_does_not_hold_are_errors_of_ours():
    @programs.program()
    def filled(x, *, size):
        return jnp.full(size, x)

    @programs.program()
    def summed(x, *, size):  # holds what it does not return
        return jnp.cumsum(jnp.full(size, x))[-1]

    with pytest.raises(DecodeError, match=r"the results of .*filled take 4,398 GB, and the devices have .*\n  Ask for fewer rows"):
        filled(jnp.ones(()), size=(1 << 20, 1 << 20))
    with pytest.raises(DecodeError, match=r"has not the memory that .* takes\n.*RESOURCE_EXHAUSTED.*\n  Ask for fewer rows"):
        programs.to_host(summed(jnp.ones(()), size=1 << 40))


@pytest.mark.parametrize(
    "asked",
    [
        lambda: jax_decode.generate(MODEL, [1], None, max_new_tokens=2, chunk=1 << 24, num_samples=1 << 14),
        lambda: jax_decode.beam_search(MODEL, [1], None, max_new_tokens=1 << 23, beams=1 << 16, stop_ids=[0]),
        lambda: jax_decode.log_mass(MODEL, [1], TABLES, max_new_tokens=(1 << 24) - 1),
        lambda: jax_decode.log_mass(MODEL, [1], TABLES, max_new_tokens=1 << 10, max_prefixes=1 << 24),
        lambda: jax_decode.generate_smc(MODEL, [1], TABLES, max_new_tokens=1 << 20, particles=1 << 16, key=jax.random.key(0)),
        lambda: jax_decode.Engine(MODEL, None, rows=1 << 12, max_prompt=1 << 24, max_new_tokens=2),
    ],
)
def test_calls_that_memory_does_not_hold_are_refused_before_they_are_compiled(asked):
    with pytest.raises(DecodeError, match=r"^the results of jax_decode\..* take [\d,]+ GB, and the devices have [\d,]+ GB\n  Ask for"):
        asked()


def test_prefixes_whose_children_32_bits_do_not_number():
    with pytest.raises(DecodeError, match=r"268,435,456 prefixes over 8 ids are more places .*\n  Use 268,435,455 prefixes"):
        jax_decode.enumerate_sequences(MODEL, [1], TABLES, max_new_tokens=4, max_prefixes=1 << 28)
