"""The engine: rows are those of `generate`, whoever their neighbours are; nothing is compiled, and cancelled rows leave nothing."""

from __future__ import annotations

import functools
import gc
import json
import random

import jax
import jsonschema
import numpy as np
import pytest
from oracles.toy_decoder import toy

import fsa_compile
import jax_decode
import models
from jax_decode import ConstraintPool, DecodeError, Engine, Status
from jax_decode.decoding.inputs import bucket
from jax_decode.errors import PoolFullError

LIMIT = 24
SAMPLER = jax_decode.Categorical(1.2)
PROMPTS = ["A person: ", "Is the sky blue? ", "2 + 2 = ", "One day"]
SCHEMAS = [
    {"type": "object", "properties": {f"k{i}": {"enum": ["a", "bb", i]}, "n": {"type": "integer", "minimum": 0, "maximum": i}}, "required": ["n"], "additionalProperties": False}
    for i in range(12)
]  # fmt: skip


@pytest.fixture(autouse=True)
def _lenient():
    """The package's models rely on promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@functools.cache
def _tokenizer():
    return fsa_compile.load_tokenizer(models.small_tokenizer_path())


@functools.cache
def _constraints():
    patterns = ["[a-z]{3,8}", "(yes|no), because [a-z ]{3,20}\\.", "[0-9]{4}-[0-9]{2}"]
    made = [fsa_compile.compile_json_schema(schema, _tokenizer()) for schema in SCHEMAS]
    return [None, *(fsa_compile.compile_regex(p, _tokenizer()) for p in patterns), *made]


@functools.cache
def _model():
    return models.load_small()


def _engine(pool, **sizes) -> Engine:
    return Engine(
        _model(),
        pool,
        **{"rows": 4, "max_prompt": 16, "max_new_tokens": LIMIT, "steps": 4, "together": 2, "sampler": SAMPLER} | sizes,
    )


@pytest.fixture(scope="module")
def pool():
    return ConstraintPool(_tokenizer(), profile="regular", slots=64)


def test_rows_are_those_of_generate_and_nothing_is_compiled(pool, compiled):
    engine, rng = _engine(pool), random.Random(4)
    asked, done, last = {}, [], None
    compiled.clear()
    for i in range(24):  # arrivals between turns
        prompt, constraint = _tokenizer().encode(rng.choice(PROMPTS)), rng.choice(_constraints())
        samples = 2 if i % 5 == 0 else 1
        asked[engine.submit(prompt, constraint, seed=i, samples=samples)] = (prompt, constraint, i, samples)
        last = constraint
        if i % 3 == 0:
            done += engine.turn()
    done += engine.run()
    assert compiled == []
    assert last is not None
    assert sorted((d.request, d.sample) for d in done) == sorted((n, s) for n, a in asked.items() for s in range(a[3]))
    assert len(pool) == 0
    for number, (prompt, constraint, seed, samples) in list(asked.items())[:8]:
        tables = None if constraint is None else jax_decode.to_device(constraint, profile=pool.profile)
        stops = {} if tables is not None else {"stop_ids": list(pool.stop_ids)}
        due = jax_decode.generate(
            _model(),
            prompt,
            tables,
            key=jax.random.key(seed),
            max_new_tokens=LIMIT,
            sampler=SAMPLER,
            num_samples=samples,
            **stops,
        )
        for one in (d for d in done if d.request == number):
            assert one.tokens == due.tokens[one.sample].tolist(), (number, one)
            assert one.status == due.status[one.sample]
    for one in done:
        constraint = asked[one.request][1]
        if constraint is not None:
            walk = constraint.walk()
            for token in one.tokens:
                walk.advance(token)
            assert walk.accepting
            assert one.status is Status.ACCEPTED


def test_requests_cancelled_at_any_time_leave_nothing(pool):
    engine, rng = _engine(pool), random.Random(7)
    numbers, done, live = [], [], []
    gc.collect()
    for i in range(60):
        numbers.append(engine.submit(_tokenizer().encode(rng.choice(PROMPTS)), rng.choice(_constraints()), seed=i))
        done += engine.turn()
        if rng.random() < 0.6:
            engine.cancel(rng.choice(numbers))
        if i in (30, 59):
            gc.collect()
            live.append(sum(x.nbytes for x in jax.live_arrays()))
    done += engine.run()
    assert sorted(d.request for d in done) == numbers
    assert {Status.STOPPED, Status.ACCEPTED} <= {d.status for d in done}
    assert engine.pending == 0
    assert len(pool) == 0
    assert live[1] <= live[0] * 1.01
    for one in done:
        if one.status is Status.ACCEPTED:
            continue
        assert one.status in (Status.STOPPED, Status.FINISHED, Status.TRUNCATED)


def test_values_are_valid_by_jsonschema(pool):
    engine = _engine(pool)
    schemas = {engine.submit(_tokenizer().encode("A person: "), c, seed=i): SCHEMAS[i] for i, c in enumerate(_constraints()[4:])}
    done = engine.run()
    assert len(done) == len(SCHEMAS)
    for one in done:
        jsonschema.validate(json.loads(_tokenizer().vocabulary.decode(one.tokens)), schemas[one.request])


def test_a_request_waits_for_room_in_the_pool():
    small = ConstraintPool(_tokenizer(), profile="regular", slots=2)
    engine = _engine(small)
    for i, c in enumerate(_constraints()[1:7]):
        engine.submit([5], c, seed=i)
    assert len(engine.run()) == 6
    for c in _constraints()[1:3]:
        small.add(c)
    engine.submit([5], _constraints()[3])
    with pytest.raises(PoolFullError, match="slots: 1 needed, 0 free"):
        engine.turn()


def test_more_wait_together_than_the_pool_holds():
    """A pool that is full of requests which enter in the same turn: those before them go in, and they wait."""
    small = ConstraintPool(_tokenizer(), profile="regular", slots=2)
    engine = _engine(small, together=4)
    numbers = [engine.submit([5], c, seed=i) for i, c in enumerate([*_constraints()[1:6], None])]
    done = engine.run()
    assert sorted(d.request for d in done) == numbers
    assert len(small) == 0
    for c in _constraints()[1:3]:
        small.add(c)
    free, full = engine.submit([5]), engine.submit([5], _constraints()[3])
    engine.turn()
    with pytest.raises(PoolFullError, match="slots: 1 needed, 0 free"):
        engine.run()
    engine.cancel(full)
    assert sorted(d.request for d in engine.run()) == [free, full]


def test_the_stop_token_is_no_text_of_a_cancelled_row(pool):
    """The row has ended by itself, in the turn that the host has not read yet."""
    engine = _engine(pool, steps=LIMIT)
    number = engine.submit(_tokenizer().encode("One day"), _constraints()[3], seed=1)
    engine.turn()
    engine.cancel(number)
    (done,) = engine.run()
    assert done.status is Status.STOPPED
    assert _tokenizer().decode(done.tokens).count("-") == 1
    assert not {*done.tokens} & {*pool.stop_ids}


@pytest.mark.parametrize("wide", [False, True])
def test_seeds_are_those_of_jax_random(wide):
    """Whether JAX has 64 bits or not."""
    with jax.enable_x64(wide):
        sizes = {"rows": 4, "max_prompt": 4, "max_new_tokens": 8, "together": 4, "sampler": SAMPLER, "steps": 8}
        decoder, seeds = toy(32), [0, -1, 2**32 + 7, -(2**40), 2**63 - 1]
        engine = Engine(decoder, None, stop_ids=[], **sizes)
        numbers = [engine.submit([5], seed=seed) for seed in seeds]
        done = {one.request: one.tokens for one in engine.run()}
        for number, seed in zip(numbers, seeds):
            due = jax_decode.generate(decoder, [5], key=jax.random.key(seed), max_new_tokens=8, sampler=SAMPLER)
            assert done[number] == due.tokens[0].tolist()
        assert len({*map(tuple, done.values())}) == (5 if wide else 3)


WRONG = {
    "prompt": [None, "text", b"x", 5, [1.5], ["a"], [[1]], [-1], [2048], [True]],
    "stop_ids": ["a", 5, [1.5], [-1], [2048], [None]],
    "seed": [None, "a", 1.5, [1], True, 2**64],
    "samples": [None, 0, 1.5, True, "a", [1]],
    "max_new_tokens": [0, -1, 1.5, "a", True],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values], ids=repr)
def test_arguments_are_checked_when_they_are_given(pool, name, value):
    """Else the turn fails in which the request would have entered, with all that entered beside it."""
    engine = _engine(pool)
    with pytest.raises(DecodeError) as caught:
        engine.submit(**{"prompt": [5], "constraint": None} | {name: value})
    assert caught.value.fix
    assert engine.pending == 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"pool": "general"}, "the pool is a str"),
        ({"stop_ids": 5}, "'stop_ids' is int 5"),
        ({"stop_ids": [2048]}, "outside 0..2047"),
        ({"max_depth": -1}, "max_depth is -1"),
        ({"max_depth": None}, "max_depth is None"),
    ],
)
def test_sizes_of_an_engine_are_checked(arguments, match):
    pool = arguments.pop("pool", None)
    with pytest.raises(DecodeError, match=match):
        _engine(pool, **arguments)


@pytest.mark.parametrize("number", [None, "1", 1.5, True, [1], np.zeros(2), jax.random.key(0)], ids=repr)
def test_what_is_no_request(pool, number):
    engine = _engine(pool)
    with pytest.raises(DecodeError, match="the request is"):
        engine.cancel(number)
    engine.cancel(99)  # one that has ended, or never was


def test_what_cannot_be_served_is_refused_when_it_is_submitted(pool):
    engine = _engine(pool)
    long = fsa_compile.compile_regex("(0|1)-" * 20, _tokenizer())
    for arguments, match in [
        (([], None), "0 prompt tokens"),
        ((list(range(5, 40)), None), "35 prompt tokens"),
        (([5], long), "shortest text takes"),
        (([5], "[a-z]"), "not a str"),
    ]:
        with pytest.raises(DecodeError, match=match):
            engine.submit(*arguments)
    with pytest.raises(DecodeError, match="3 samples"):
        engine.submit([5], samples=3)
    with pytest.raises(DecodeError, match="has no pool"):
        _engine(None).submit([5], _constraints()[1])
    assert engine.pending == 0


@pytest.mark.parametrize("longest", [1, 300, 16_384, 16_385, 100_000, 1 << 24])
def test_few_programs_serve_prompts_of_all_lengths(longest, monkeypatch):
    """One for every 256 tokens were 65,536 for the longest, compiled before the engine answered."""
    warmed = []
    monkeypatch.setattr(jax_decode.Engine, "_warm", lambda self, length: warmed.append(length))
    monkeypatch.setattr("jax_decode.serving.turns.no_rows", lambda *_, **__: None)
    engine = jax_decode.Engine(toy(8), None, rows=1, max_prompt=longest, max_new_tokens=2)
    assert len(warmed) <= 1 + 64 + 20
    assert warmed[0] == warmed[1]
    assert warmed[1:] == sorted(set(warmed))
    for length in (1, 16, 17, 200, 257, longest // 3, longest // 2, longest):
        if 0 < length <= longest:
            assert engine._bucket(length) == next(size for size in warmed[1:] if size >= length)
            assert longest > 16_384 or engine._bucket(length) == bucket(length)
