"""Profiles: new constraints compile nothing, whatever decodes them, and the tokens are those of sizes of their own."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import random
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from corpus.patterns import PATTERNS
from jax.experimental.compilation_cache import compilation_cache
from oracles.block_decoder import block_toy
from oracles.markdown import python_blocks
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
import models
from jax_decode import Status
from jax_decode.decoding import compilation, programs
from jax_decode.errors import DecodeError
from jax_decode.step.masking import mask
from jax_decode.tables import profiles, tables

WORDS = fsa_compile.Vocabulary.from_tokens(
    [b"", *(bytes([c]) for c in b'abcdefghij0123456789 .{}":,'), b"ab", b"12", *[b""] * 34], stop_ids=[0]
)
SIZE = 64
SMALL = ["[a-j]{2,4}", "(ab|cd)*\\.", "[0-9]{1,3}", "a", "(12)+( ab)?"]
POOL = "general x4"


@pytest.fixture
def kept_programs():
    """JAX's settings for programs on disk, put back afterwards."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # or what compiles longest is still written to the test's folder


@functools.cache
def small_tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


def pattern(text: str) -> fsa_compile.CompiledConstraint:
    return fsa_compile.compile_regex(text, WORDS)


def several(data_dir, schemas: int, patterns: int) -> list[fsa_compile.CompiledConstraint]:
    """Constraints as people compile them: schemas of MaskBench, patterns, and the library's grammars."""
    with gzip.open(data_dir / "maskbench_dev.jsonl.gz", "rt") as file:
        rows = [json.loads(line)["schema"] for line in file]
    tokenizer, found = small_tokenizer(), []
    for schema in rows[:: max(len(rows) // schemas, 1)]:
        if len(found) < schemas:
            with contextlib.suppress(fsa_compile.ConstraintError):  # a few are refused
                found.append(fsa_compile.compile_json_schema(schema, tokenizer))
    plain = sorted({case.pattern for case in PATTERNS if case.oracle == "re" and not case.flags})
    for text in plain[:: max(len(plain) // patterns, 1)][:patterns]:
        found.append(fsa_compile.compile_regex(text, tokenizer))
    return found + of_library()


@functools.cache
def of_library() -> list[fsa_compile.CompiledConstraint]:
    """The library's grammars, but those that have sizes of their own."""
    library, large = fsa_compile.library, ("c", "go", "java", "javascript", "python", "sql", "typescript")
    names = [name for name in library.names() if name not in large]
    return [fsa_compile.compile_grammar(library.grammar_text(name), small_tokenizer(), **library.options(name)) for name in names]


@pytest.mark.exhaustive
def test_all_constraints_of_a_server_run_in_one_program_for_each_number_of_rows(data_dir, exhaustive, compiled):
    """One after another, then in batches of 1 and 4, in full 16 too, with free rows between: a program for every number of rows.

    The one grammar that is followed on several stacks at once has the profile of its kind, and so a program of its own.
    """
    every = several(data_dir, 1000, 200) if exhaustive else several(data_dir, 8, 4)
    size = small_tokenizer().vocabulary.size
    run = functools.partial(jax_decode.generate, toy(size), max_new_tokens=8, chunk=4, allow_truncation=True)
    pool = [c for c in every if c.stacks == 1]
    assert len(pool) == len(every) - 1
    for c in every:
        out = run([1], jax_decode.to_device(c, profile=POOL if c.stacks == 1 else None))
        assert out.status[0] in (Status.ACCEPTED, Status.TRUNCATED)
    assert compiled.count("decode") == 2
    rng, sizes = random.Random(0), [1, 4, 16] if exhaustive else [1, 4]
    for _ in range(200 if exhaustive else 6):
        rows = rng.choice(sizes)
        batch = jax_decode.to_device([rng.choice(pool) for _ in range(rows)], profile=POOL)
        which = [i if rng.random() < 0.8 else None for i in range(rows)]
        run([[1]] * rows, batch, constraint=which)
    assert compiled.count("decode") <= 1 + len(sizes)


def test_without_a_name_constraints_share_few_programs(data_dir, compiled, exhaustive):
    """Each gets the smallest profile that fits, and nothing is compiled twice: tables of one profile are one kind of argument."""
    every = [jax_decode.to_device(c) for c in several(data_dir, 12, 4)]
    found = {str(t.profile) for t in every}
    assert found <= {*profiles.PROFILES, "parallel"}  # larger scales are for one in a hundred
    assert len({(jax.tree.structure(t), tuple(map(str, map(jax.typeof, jax.tree.leaves(t))))) for t in every}) == len(found)
    if exhaustive:
        decoder = toy(small_tokenizer().vocabulary.size)
        for t in every * 2:
            jax_decode.generate(decoder, [1], t, max_new_tokens=8, chunk=4, allow_truncation=True)
        assert compiled.count("decode") <= len(found)


def test_a_larger_scale_that_would_be_nearly_empty_is_not_chosen_but_may_be_named():
    """As for `java` of the library, which is large in one table: it took 1.2 GB on the device."""
    used = {"nodes": 9401, "groups": 2700, "arcs": 339_215, "levels": 10_766, "rows": 766, "delta": 809_136, "pushes": 4310}
    statics = dict(profiles.PROFILES["general"].statics) | {"key_words": 0}
    assert profiles.choose_profile(None, statics, used, False, SIZE) is None
    assert str(profiles.choose_profile("general", statics, used, False, SIZE)) == "general x64"
    full = {name: 5 * size for name, size in profiles.PROFILES["general"].room}
    assert str(profiles.choose_profile(None, statics, full, False, SIZE)) == "general x16"


def ways():
    """Whatever decodes."""
    decoder, draft, key = block_toy(SIZE), jax_decode.PromptLookup(2), jax.random.key(1)
    given, at = {"max_new_tokens": 8, "constraint": 0}, {"constraint": 0}
    return {
        "beams": lambda t: jax_decode.beam_search(decoder, [1], t, beams=3, **given),
        "distinct": lambda t: jax_decode.sample_without_replacement(decoder, [1], t, key=key, num_samples=3, **given),
        "drafts": lambda t: jax_decode.generate(decoder, [1], t, draft=draft, **given),
        "forced": lambda t: jax_decode.generate(decoder, [1], t, forced=4, **given),
        "mass": lambda t: jax_decode.log_mass(decoder, [1], t, key=key, samples=4, **given),
        "particles": lambda t: jax_decode.generate_smc(decoder, [1], t, key=key, particles=4, **given),
        "scores": lambda t: jax_decode.score(decoder, [1], t, tokens=[[1, 2], [3]], **at),
        "stream": lambda t: list(jax_decode.stream(decoder, [1], t, tokenizer=WORDS, **given)),
    }


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", sorted(ways()))
def test_whatever_decodes_compiles_nothing_for_another_constraint(name, compiled, exhaustive):
    """By JAX's own events: not one program, however small."""
    for profile in profiles.PROFILES if exhaustive else ["regular"]:
        made = [jax_decode.to_device(pattern(text), profile=profile) for text in SMALL]
        ways()[name](made[0])
        del compiled[:]
        for tables_of_another in made[1:]:
            ways()[name](tables_of_another)
        assert compiled == []


def test_the_same_tokens_in_every_profile_and_without(monkeypatch):
    constraints = [pattern(text) for text in SMALL]
    made = [jax_decode.to_device(constraints, profile=name) for name in (*profiles.PROFILES, "regular x4")]
    with monkeypatch.context() as patch:
        patch.setattr(tables, "choose_profile", lambda *_: None)
        made.append(jax_decode.to_device(constraints))
    assert [str(t.profile) for t in made] == ["regular", "wide", "nested", "general", "regular x4", "None"]
    texts = []
    for t in made:
        given = {"key": jax.random.key(3), "max_new_tokens": 12, "sampler": jax_decode.Categorical(1.3)}
        out = jax_decode.generate(toy(SIZE), [[i + 1] for i in range(len(SMALL))], t, **given)
        assert set(out.status) == {Status.ACCEPTED}
        texts.append(([row.tolist() for row in out.tokens], np.concatenate(out.logprobs)))
    assert len({str(tokens) for tokens, _ in texts}) == 1
    for _, logprobs in texts[1:]:
        np.testing.assert_allclose(logprobs, texts[0][1], rtol=1e-5, atol=1e-6)


def special(kind: str):
    """Three constraints of a kind that the four profiles have no room for, as arguments of `to_device`, and a vocabulary."""
    compiler = fsa_compile
    if kind == "items":
        sets = ([[1, 2], [3]], [[a, b, 7] for a in range(1, 9) for b in range(1, 25)], [[5], [6, 5, 4, 3, 2, 1]])
        return [(compiler.compile_items(items, WORDS), {}) for items in sets], WORDS
    if kind == "parallel":
        rules = (('x: "a" x "a" | "a"', 2), ('x: "a" x "a" | "b" x "b" | "a" | "b"', 3), ('x: "b" x "b" | "b"', 4))
        return [(compiler.compile_grammar(f'start: "dd" x\n{rule}', WORDS, stacks=k), {}) for rule, k in rules], WORDS
    tokenizer = small_tokenizer()

    def record(*names: str) -> dict:
        fields = {name: {"type": "string", "maxLength": 4} for name in names}
        return {"type": "object", "properties": fields, "required": [names[0]], "additionalProperties": False}

    schemas = [record("a", "b"), record("name", "age", "city"), record(*"xyz")]
    if kind == "keys":
        any_order = compiler.SchemaOptions(key_order="any")
        return [
            (compiler.compile_json_schema(schema, tokenizer, options=any_order), {}) for schema in schemas
        ], tokenizer.vocabulary
    given = {"canonical": compiler.canonical_tables(tokenizer)}
    return [(compiler.compile_json_schema(schema, tokenizer, canonical=True), given) for schema in schemas], tokenizer.vocabulary


@pytest.mark.parametrize("kind", ["items", "parallel", "keys", "canonical"])
def test_another_constraint_of_a_special_kind_compiles_nothing(kind, compiled, monkeypatch):
    """And its tokens are those of sizes of its own."""
    constraints, vocabulary = special(kind)
    given = {"key": jax.random.key(2), "sampler": jax_decode.Categorical(1.2), "bos_id": False, "constraint": [0] * 4}
    sizes = {"max_new_tokens": 48, "chunk": 8, "allow_truncation": True}
    decoder, texts = toy(vocabulary.size), []

    def run(t):
        out = jax_decode.generate(decoder, [[1], [2], [3], [4]], t, **given, **sizes)
        return [row.tolist() for row in out.tokens]

    for c, how in constraints:
        tables_of = jax_decode.to_device(c, **how)
        assert str(tables_of.profile) == {"canonical": "regular"}.get(kind, kind)
        texts.append(run(tables_of))
    assert compiled.count("decode") == 1
    monkeypatch.setattr(tables, "choose_profile", lambda *_: None)
    c, how = constraints[1]
    own = jax_decode.to_device(c, **how)
    assert own.profile is None
    assert run(own) == texts[1]
    assert max(map(len, texts[1])) > 1


def test_a_row_keeps_as_many_stacks_as_its_constraint_is_followed_on():
    """The profile has room for eight; what a constraint of two drops is dropped there as well, as its walk does."""
    constraint = fsa_compile.compile_grammar('start: x\nx: "a" x "a" | "a"', WORDS, stacks=2)
    made = jax_decode.to_device(constraint)
    assert made.stacks == 8
    state, walk = jax_decode.init_state(made, np.zeros(1, np.int32), max_tokens=16), constraint.walk()
    see, step, dropped = jax.jit(mask), jax.jit(jax_decode.advance), False
    for _ in range(9):
        nodes = np.asarray(state.node[0])
        assert np.count_nonzero(nodes) == len(walk.configurations) <= 2
        words = np.ascontiguousarray(walk.allowed_words(16)).view(np.uint8)
        allowed = np.asarray(see(made, state))[0][1:SIZE]  # 0 ends the text
        np.testing.assert_array_equal(allowed, np.unpackbits(words, bitorder="little")[1:SIZE] == 1)
        state = step(made, state, jax.numpy.array([1], jax.numpy.int32))
        walk.advance(1)
        dropped |= walk.dropped
    assert dropped


def test_profiles_are_named_chosen_and_refused():
    small, large = pattern("[a-j]{2}"), pattern("([a-j]{3}[0-9 ]{2}){1,300}")
    assert jax_decode.to_device(small).profile == profiles.REGULAR
    assert str(jax_decode.to_device(large).profile) == "wide"
    named = jax_decode.to_device(small, profile="wide")
    assert named.profile == jax_decode.to_device(large).profile
    shapes = [[leaf.shape for leaf in jax.tree.leaves(t)] for t in (named, jax_decode.to_device(large))]
    assert shapes[0] == shapes[1]
    with pytest.raises(DecodeError, match=r"do not fit the profile 'regular': nodes [\d,]+ > 1,024"):
        jax_decode.to_device(large, profile=profiles.REGULAR)
    for name in ("huge", "regular x5", "regular x256"):
        with pytest.raises(DecodeError, match=f"no profile '{name}'"):
            jax_decode.to_device(small, profile=name)
    items = fsa_compile.compile_items([[1, 2], [3]], WORDS)
    with pytest.raises(DecodeError, match="do not fit the profile 'general': sets of items"):
        jax_decode.to_device(items, profile="general")
    with pytest.raises(DecodeError, match="do not fit the profile 'items': anything but sets of items"):
        jax_decode.to_device(small, profile="items")
    with pytest.raises(DecodeError, match="no profile has room for sets of items beside other constraints"):
        jax_decode.to_device([items, small], profile="items")


def test_every_profile_contains_the_smaller_ones():
    """So a constraint of a smaller profile runs in the program of a larger one."""
    for small, large in (("regular", "wide"), ("regular", "nested"), ("nested", "general"), ("wide", "general")):
        inner, outer = profiles.PROFILES[small], profiles.PROFILES[large]
        statics = {name: size for name, size in inner.statics if name != "search_depth"}
        assert not outer.lacks(statics, {}, inner.counters), (small, large)


def test_why_constraints_fit_no_profile(caplog):
    with caplog.at_level("INFO", logger="jax_decode"):
        jax_decode.to_device(pattern("[a-j]{2}"))
        assert not caplog.messages
        jax_decode.to_device([fsa_compile.compile_items([[1, 2], [3]], WORDS), pattern("a")])
        jax_decode.to_device(fsa_compile.compile_grammar('start: x\nx: "a" x "a" | "a"', WORDS, stacks=9))
    why = ["sets of items beside others", "'parallel', the closest, lacks stacks 9 > 8"]
    assert [text.split(": ")[1] for text in caplog.messages] == why


def test_tables_say_what_is_static():
    text = repr(jax_decode.to_device(pattern("[a-j]{2}")))
    assert "profile 'regular'" in text
    for name, size in profiles.REGULAR.statics:
        assert f"{name} {size}" in text
    assert "profile 'none'" in repr(jax_decode.to_device([fsa_compile.compile_items([[1, 2], [3]], WORDS), pattern("a")]))


def test_what_was_warmed_up_compiles_nothing(compiled):
    decoder = toy(SIZE, 5)
    options = {"sampler": jax_decode.Categorical(0.7), "chunk": 8}
    sizes = {"batch": [1, 3], "prompt": 4, "max_new_tokens": 20, "quiet": True, "threads": 1}  # these tests set JAX by `with`
    assert jax_decode.warm_up(decoder, profile=["regular", None], vocabulary=WORDS, **sizes, **options) == 4
    jax_decode.announce_compilation(True)
    del compiled[:]
    given = options | {"key": jax.random.key(0), "max_new_tokens": 20}
    jax_decode.generate(decoder, [1, 2], jax_decode.to_device(pattern(SMALL[0])), **given)
    jax_decode.generate(decoder, [[1], [2], [3]], jax_decode.to_device([pattern(text) for text in SMALL[:3]]), **given)
    jax_decode.generate(decoder, [[1], [2], [3]], **given)
    assert not {"prefill", "decode", "_first_state", "_first_rows"} & set(compiled)
    with pytest.raises(DecodeError, match="does not say over which vocabulary"):
        jax_decode.warm_up(decoder, profile="regular")


def test_a_line_says_so_while_a_program_compiles_for_long(monkeypatch):
    """Of this package's programs only, not where it ends soon, not where it is silenced, and not under pytest."""
    monkeypatch.setattr(compilation, "PATIENCE", 0.05)
    before, after = compilation._BEFORE, compilation._AFTER

    def said(*events, enabled: bool = True) -> str:
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        announcer = compilation._Announcer()
        announcer.enabled = enabled
        for event, name in events:
            announcer(event, 0.01, fun_name=name)
        time.sleep(0.3)
        announcer(after, 0.01, fun_name="")
        return stream.getvalue()

    assert said((before, "jit(decode)")) == ""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert said((before, "jit(decode)")).startswith("jax_decode: XLA compiles 'decode'")
    assert said((before, "decode"), (after, "decode")) == ""
    assert said((before, "jit(anything)")) == ""
    assert said((before, "decode"), enabled=False) == ""


def test_programs_are_kept_where_jax_was_told_or_in_the_users_cache(kept_programs, monkeypatch, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert jax_decode.keep_programs() == tmp_path / "own"
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jax_decode.keep_programs() == tmp_path / "constrax" / "xla"
    assert jax_decode.keep_programs(tmp_path / "here") == tmp_path / "here"
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "here")


@pytest.mark.filterwarnings("error")
def test_the_page_runs(kept_programs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for program in programs._PROGRAMS.values():
        monkeypatch.setattr(program, "loaded", {})
    names: dict = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as a reader has it
        for block in python_blocks((Path(__file__).parents[3] / "docs" / "profiles.md").read_text(encoding="utf-8")):
            exec(compile(block, "profiles.md", "exec", dont_inherit=True), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("True ConstraintTables(profile 'regular'")
    assert lines[2] in ("red", "dark green", "blue")
    assert lines[3].startswith("general x4 ['max_groups'")
    assert lines[4:] == ["1 program", "programs", "True"]
