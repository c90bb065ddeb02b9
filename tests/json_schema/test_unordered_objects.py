"""Objects with keys in every order: byte machine, masks, budgets and the device step against slow and plain judges."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fsa_compile
import jax_decode
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.artifact.guards import Guard, composed
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.composition.compose import compose_machine
from fsa_compile.composition.pushdown.guarded_pops import possible_cases
from fsa_compile.errors import ArtifactError, LimitError
from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, UnsupportedSchemaError, schema_machine
from fsa_compile.vocabulary import Vocabulary

ANY = SchemaOptions(key_order="any")
INTEGER, STRING = {"type": "integer"}, {"type": "string"}
INNER = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": False}
OUTER = {"type": "object", "properties": {"a": INTEGER, "ab": INTEGER, "o": INNER}, "additionalProperties": False}
TREE = {
    "type": "object",
    "properties": {"x": {"$ref": "#"}, "a": INTEGER, "b": STRING},
    "required": ["a"],
    "additionalProperties": False,
}
DAY = {"enum": ["a", "ab", "b", "ba", "bab", "abb", True, None]}
WALKED = [
    OUTER | {"required": ["a", "ab"]},
    OUTER | {"required": ["a", "o"], "additionalProperties": True},
    OUTER | {"required": ["a"], "minProperties": 2},
    TREE,
    {"type": "array", "items": OUTER | {"required": ["a"]}, "maxItems": 2},
    {"type": "object", "properties": {"a": INNER | {"properties": {"a": INTEGER, "b": INTEGER}}, "b": INTEGER}, "required": ["a"]},
    {"type": "array", "items": DAY, "uniqueItems": True, "minItems": 2},
    {"type": "array", "items": {"enum": [*range(12), "a", True]}, "uniqueItems": True, "minItems": 1, "maxItems": 4},
    {"type": "object", "properties": {"a": {"type": "array", "items": DAY, "uniqueItems": True, "maxItems": 3}}, "required": ["a"]},
]
LONG = [b'": ', b'", "', b'"}', b"}}", b'{"a', b"},", b'": 1}', b'":1}}', b'":1}},', b'{"a": 1, "', b',"ab":1}', b"1}}", b'"a"', b'","', b'a","', b'"b', b'", "ab', b"0,1", b"1]"]
TOKENS = [*(bytes([i]) for i in range(256)), *LONG, b'{"o":{"a":1}', b'"ab"', b", ", b""]
STOP = len(TOKENS) - 1


def judged_by(schema: dict[str, Any], keys: tuple[str, ...], declared: tuple[str, ...]) -> tuple[list[bytes], list[bool]]:
    """Objects of up to three members, repeated keys too, and whether they are valid with no declared key twice."""
    jsonschema = pytest.importorskip("jsonschema")
    judge = jsonschema.Draft202012Validator(schema)
    texts, verdicts = [], []
    for size in range(4):
        for chosen in itertools.product(keys, repeat=size):
            again = {key for key in chosen if chosen.count(key) > 1}
            if again - set(declared):
                continue  # keys that are not declared are not remembered
            for values in itertools.product(("1", '"x"'), repeat=size):
                text = "{" + ", ".join(f'"{key}": {value}' for key, value in zip(chosen, values)) + "}"
                texts.append(text.encode())
                verdicts.append(not again and judge.is_valid(json.loads(text)))
    return texts, verdicts


FREE = {"a": True, "b": True, "c": True}
ABC = {"properties": {"a": INTEGER, "ab": STRING, "b": INTEGER}}


@pytest.mark.parametrize(
    ("schema", "declared"),
    [
        (ABC | {"required": ["a", "b"]}, "a ab b"),
        (ABC | {"required": ["a", "b"], "additionalProperties": False}, "a ab b"),
        (ABC | {"minProperties": 2, "additionalProperties": False}, "a ab b"),
        (ABC | {"required": ["b"], "additionalProperties": INTEGER, "minProperties": 2, "maxProperties": 2}, "a ab b"),
        (ABC | {"patternProperties": {"^a": INTEGER}, "required": ["b"], "additionalProperties": False}, "a ab b"),
        ({"oneOf": [{"properties": {"a": INTEGER, "b": INTEGER}}, {"properties": {"a": STRING, "c": INTEGER}}]}, "a b c"),
        ({"not": {"properties": {"a": INTEGER, "b": INTEGER}}, "properties": FREE, "additionalProperties": False}, "a b c"),
        (
            {"if": {"properties": {"a": INTEGER}}, "then": {"required": ["b"]}, "else": {"required": ["c"]}, "properties": FREE},
            "a b c",
        ),
        ({"properties": FREE, "dependentRequired": {"a": ["b"]}, "maxProperties": 2, "additionalProperties": False}, "a b c"),
        ({"properties": FREE, "unevaluatedProperties": False, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "a b c"),
    ],
)
def test_every_order_and_nothing_twice(schema: dict[str, Any], declared: str):
    schema = {"type": "object"} | schema
    names = tuple(declared.split())
    texts, verdicts = judged_by(schema, ("a", "b", "c") if "c" in names else ("a", "ab", "b", "d"), names)
    machine = schema_machine(schema, options=ANY)
    wrong = [text for text, verdict in zip(texts, verdicts) if machine.accepts(text) != verdict]
    assert not wrong
    assert any(verdicts)


def test_counts_that_no_object_can_have():
    schema = {"type": "object", "properties": FREE, "additionalProperties": False, "minProperties": 3}
    both = {"not": {"required": ["a", "b"]}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert schema_machine(schema, options=ANY).accepts(b'{"b":1,"c":1,"a":1}')
    with pytest.raises(UnsatisfiableSchemaError):
        schema_machine(schema | both, options=ANY)


def test_objects_that_must_hold_one_like_themselves_have_no_end():
    endless = {"type": "object", "properties": {"a": {"$ref": "#/$defs/e"}, "b": INTEGER}, "required": ["a"]}
    with pytest.raises(UnsatisfiableSchemaError):
        schema_machine({"$defs": {"e": endless}, "$ref": "#/$defs/e"}, options=ANY)
    choice = {"anyOf": [INTEGER, {"$ref": "#/$defs/e"}]}
    schema = {"$defs": {"e": endless}, "type": "object", "properties": {"v": choice, "w": choice}, "required": ["v"]}
    machine = schema_machine(schema, options=ANY)
    assert machine.accepts(b'{"w":1,"v":2}')
    assert not machine.run(b'{"v":{', {machine.initial})
    machine = schema_machine(schema | {"$defs": {"e": {"$ref": "#"}}}, options=ANY)
    assert machine.accepts(b'{"v":{"v":1},"w":{"w":{"v":1},"v":2}}')


def test_too_many_outcomes_name_the_place():
    branches = [{"properties": {"k": {"minimum": i}, "v": {"const": i}}} for i in range(9)]
    schema = {"type": "object", "properties": {"in": {"type": "object", "oneOf": branches}}}
    with pytest.raises(LimitError, match="#/properties/in/oneOf/0/properties") as caught:
        schema_machine(schema, options=SchemaOptions(key_order="any", max_outcomes=4))
    assert caught.value.limit == "max_outcomes"


def test_disguised_keys_are_the_same_keys():
    machine = schema_machine(WALKED[1], options=SchemaOptions(key_order="any", word_escapes="all"))
    text = rb'{"o":{"a":1},"\u0061":1%s}'
    assert machine.accepts(text % b"")
    assert machine.accepts(text % rb',"\u0062":2')
    assert not machine.accepts(text % b',"a":2')
    assert not machine.accepts(text % rb',"\u0061":2')


def test_size_is_linear_in_the_number_of_keys():
    def controls(count: int) -> int:
        names = [f"key_{i:03}" for i in range(count)]
        schema = {"type": "object", "properties": dict.fromkeys(names, INTEGER), "required": names[::2]}
        return schema_machine(schema | {"additionalProperties": False}, options=ANY).num_controls

    assert controls(200) < 5 * controls(50)
    assert controls(256) < 3_000
    with pytest.raises(UnsupportedSchemaError, match="257 declared keys") as caught:
        controls(257)
    assert caught.value.pointer == "#/properties"


def test_composition_of_guards():
    masks = range(8)
    guards = [Guard((u,) if u else (), a, s) for u in (0, 1, 3, 6) for a in (0, 2, 5) for s in (0, 1, 6)]
    for first, second in itertools.product(guards, guards):
        both = composed(first, second)
        for used in masks:
            passes = first.allows(used) and second.allows(used | first.set)
            assert passes == (both is not None and both.allows(used))
            assert both is None or not passes or used | both.set == used | first.set | second.set


@pytest.fixture(scope="module", params=range(len(WALKED)))
def compiled(request: pytest.FixtureRequest) -> tuple[ByteMachine, CompiledConstraint]:
    machine = schema_machine(WALKED[request.param], options=ANY)
    return machine, compose_machine(machine, Vocabulary.from_tokens(TOKENS, stop_ids=[STOP]), source="toy")


def _nicer(rng: random.Random, tokens: list[int]) -> int:
    """One of some tokens, rather one that is about structure."""
    nice = [t for t in tokens if t > 255 or chr(t) in '",:{}[]1ab']
    return rng.choice(nice or tokens)


def test_masks_are_exact(compiled: tuple[ByteMachine, CompiledConstraint]):
    machine, constraint = compiled
    rng = random.Random(3)
    for _ in range(12):
        walk, at = constraint.walk(), {machine.initial}
        for _ in range(16):
            truth = [bool(token) and bool(machine.run(token, at)) for token in TOKENS[:-1]] + [machine.may_end(at)]
            allowed = walk.allowed()
            assert allowed.tolist() == truth
            tokens = np.flatnonzero(allowed[:-1]).tolist()
            if not tokens:
                break
            token = _nicer(rng, tokens)
            walk.advance(token)
            at = machine.run(TOKENS[token], at)


def test_tokens_that_end_an_object_under_many_conditions():
    keys = dict.fromkeys("abcd", INTEGER)
    inner = {"type": "object", "properties": keys, "required": list("abcd"), "additionalProperties": False}
    schema = {"type": "object", "properties": {"o": inner}, "required": ["o"], "additionalProperties": False}
    ends = [",".join(f'"{key}":1' for key in some) + "}}" for n in (1, 2) for some in itertools.permutations("abcd", n)]
    tokens = [*TOKENS[:256], *map(str.encode, ends[:8]), b""]
    machine = schema_machine(schema, options=ANY)
    constraint = compose_machine(machine, Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1]), source="toy")
    assert constraint.pop_guard.shape[1] > 3
    for size in range(4):
        for some in itertools.permutations("abcd", size):
            text = ('{"o":{' + "".join(f'"{key}":1,' for key in some)).encode()
            walk = constraint.walk()
            for byte in text:
                walk.advance(byte)
            expected = [machine.accepts(text + token) for token in tokens[256:-1]]
            assert walk.allowed()[256:-1].tolist() == expected
    tokens = [*tokens[:256], *map(str.encode, ends), b""]
    with pytest.raises(LimitError, match="MAX_CONDITIONS"):
        compose_machine(machine, Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1]), source="toy")


def test_counted_arrays_in_objects():
    items = {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 200}
    schema = {"type": "object", "properties": {"a": items, "b": INTEGER}, "required": ["a", "b"], "additionalProperties": False}
    machine = schema_machine(schema, options=ANY)
    more = [(",1" * n + "]}").encode() for n in range(12)]
    tokens = [*TOKENS[:256], *more, b""]
    constraint = compose_machine(machine, Vocabulary.from_tokens(tokens, stop_ids=[len(tokens) - 1]), source="toy")
    for text in (b'{"a":[1', b'{"b":1,"a":[1', b'{"a":[1,1,1'):
        walk = constraint.walk()
        for byte in text:
            walk.advance(byte)
        assert walk.allowed()[256:-1].tolist() == [machine.accepts(text + token) for token in more]


def test_possible_cases_are_those_of_some_set():
    guards = [Guard(u, a) for u in ((), (1,), (6,), (1, 2)) for a in (0, 2, 5) if u or a]
    rng = random.Random(4)
    for _ in range(50):
        some = rng.sample(guards, 4)
        seen = {sum(1 << i for i, guard in enumerate(some) if guard.allows(used)) for used in range(8)}
        assert seen - {0} <= set(possible_cases(tuple(some)))
    assert possible_cases((Guard((1,)), Guard((), 1))) == [1, 2]


def test_every_budget_and_depth_is_kept(compiled: tuple[ByteMachine, CompiledConstraint]):
    machine, constraint = compiled
    rng = random.Random(5)
    shortest, depth = constraint.shortest_completion, constraint.shortest_depth
    assert shortest < 40
    for _ in range(30):
        walk, left = constraint.walk(rng.choice([None, depth, depth + 1])), shortest + rng.choice([0, 1, 2, 5, 13])
        text = b""
        while left and not (walk.accepting and rng.random() < 0.3):
            assert walk.distance <= left
            tokens = np.flatnonzero(walk.allowed(left)[:-1]).tolist()
            if not tokens:
                break
            token = _nicer(rng, tokens)
            walk.advance(token)
            text, left = text + TOKENS[token], left - 1
        assert walk.accepting, text
        assert machine.accepts(text)


def test_saved_and_loaded(compiled: tuple[ByteMachine, CompiledConstraint], tmp_path):
    _, constraint = compiled
    path = tmp_path / "constraint.npz"
    constraint.save(path)
    again = CompiledConstraint.load(path)
    assert again.has_sets
    assert (again.guards == constraint.guards).all()
    assert again.walk().allowed().tolist() == constraint.walk().allowed().tolist()
    damaged = np.load(path)
    arrays = {name: damaged[name].copy() for name in damaged.files}
    arrays["guards"][-1, 0] = len(constraint.keys)
    np.savez(path, **arrays)
    with pytest.raises(ArtifactError, match="mask is not one of 'keys'"):
        CompiledConstraint.load(path)


def test_device_and_host_agree():
    vocabulary = Vocabulary.from_tokens(TOKENS, stop_ids=[STOP])
    both = [compose_machine(schema_machine(WALKED[i], options=ANY), vocabulary, source="toy") for i in (1, 7)]
    rng, rows = random.Random(1), 10
    of_row = [both[b % 5 > 2] for b in range(rows)]
    extra = [(0, 1, 4, 20)[b % 4] for b in range(rows)]
    left = [constraint.shortest_completion + more for constraint, more in zip(of_row, extra)]
    depths = [constraint.shortest_depth + b % 3 for b, constraint in enumerate(of_row)]
    tables = jax_decode.to_device(both)
    state = jax_decode.init_state(
        tables, np.array([b % 5 > 2 for b in range(rows)], np.int32), np.array(left, np.int32), max_depth=np.array(depths, np.int32), max_tokens=max(left)
    )
    mask, advance = jax.jit(jax_decode.mask), jax.jit(jax_decode.advance)
    walks = [constraint.walk(depth) for constraint, depth in zip(of_row, depths)]
    seen, first = np.zeros((0, len(TOKENS)), bool), state.position
    for step in range(max(left)):
        allowed, tokens = np.asarray(mask(tables, state)), np.full(rows, -1, np.int32)
        if step == 1:
            seen, first = allowed, state.position
        for b, walk in enumerate(walks):
            if walk.finished or not left[b]:
                continue
            expected = walk.allowed(left[b])
            assert (expected == allowed[b]).all()
            choice = np.flatnonzero(expected).tolist()
            tokens[b] = rng.choice(choice) if rng.random() < 0.2 else _nicer(rng, [t for t in choice if t != STOP] or choice)
            walk.advance(int(tokens[b]), left[b])
            left[b] -= 1
        if step == 3:
            assert (np.asarray(mask(tables, state.rewound(first))) == seen).all()
        state = advance(tables, state, jnp.asarray(tokens))
    assert (np.asarray(state.status) == jax_decode.Status.ACCEPTED).all()


def test_a_byte_without_a_token_is_an_error():
    """Otherwise a key could be begun of which only the others can be spelled to the end."""
    tokens = [b"", *(bytes([c]) for c in b'{}:,01'), *(b'%s":' % key for key in (b'"a', b'"b', b'"c', b"a", b"b")), b'"']
    schema = {
        "type": "object",
        "properties": {key: {"enum": [0, 1]} for key in "abc"},
        "additionalProperties": False,
        "required": ["a"],
    }
    options = fsa_compile.SchemaOptions(key_order="any", whitespace="compact")
    with pytest.raises(fsa_compile.UnspellableError, match="alone"):
        fsa_compile.compile_json_schema(schema, fsa_compile.Vocabulary.from_tokens(tokens, stop_ids=[0]), options=options)
    others = [bytes([c]) for c in range(256) if bytes([c]) not in tokens]
    complete = fsa_compile.Vocabulary.from_tokens([*tokens, *others], stop_ids=[0])
    assert fsa_compile.compile_json_schema(schema, complete, options=options).has_sets
