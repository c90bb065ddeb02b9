"""Keys that a schema does not name, written more than once: what is written must be valid for the value that `json.loads` makes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable

import jsonschema
import pytest
from json_schema.random_schemas import counts_unnamed

from fsa_compile.errors import ConstraintError
from fsa_compile.json_schema import SchemaOptions, UnsupportedSchemaError, schema_machine

MEMBERS = [{"type": "integer"}, {"type": "string"}, {"const": 1}, {"enum": ["x", 2]}, True, {"minimum": 2}]


def schema_of(rng: random.Random, depth: int = 0) -> dict:
    """An object's schema that counts keys, or tells branches apart by what stands under those that it does not name."""
    out: dict = {"type": "object"} if depth == 0 else {}
    if rng.random() < 0.5:
        out["properties"] = {key: rng.choice(MEMBERS) for key in rng.sample("ab", rng.randint(1, 2))}
    if rng.random() < 0.6:
        out["additionalProperties"] = rng.choice([*MEMBERS, False])
    for keyword in ("minProperties", "maxProperties"):
        if rng.random() < 0.35:
            out[keyword] = rng.randint(0, 3)
    if rng.random() < 0.2:
        out["patternProperties"] = {rng.choice(["^c", "d", "^[a-c]$"]): rng.choice(MEMBERS)}
    if rng.random() < 0.2:
        out["propertyNames"] = rng.choice([{"enum": ["a", "c", "d"]}, {"pattern": "^[abc]"}])
    if rng.random() < 0.2:
        out["required"] = [rng.choice("abc")]
    kind = rng.random()
    if depth < 2 and kind < 0.6:
        below = [schema_of(rng, depth + 1) for _ in range(3)]
        if kind < 0.25:
            out["not"] = below[0]
        elif kind < 0.5:
            out["oneOf" if kind < 0.4 else "anyOf"] = below[:2]
        else:
            out.update(zip(("if", "then", "else"), below))
    return out


def spelled(pairs: Iterable[tuple[str, object]]) -> bytes:
    """The text of an object."""
    return ("{" + ", ".join(f'"{key}": {json.dumps(value)}' for key, value in pairs) + "}").encode()


TAGGED = [{"type": "object"}, {"type": "object", "additionalProperties": {"type": "integer"}}]


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("below", ["v", "v.w", "v[]"])
def test_what_shows_against_a_branch_of_any_of_stands_anywhere(order, below):
    """The second of two keys could take back what the first one showed. What is left then is what either reading leaves."""
    inner = {"v": lambda x: x, "v.w": lambda x: {"properties": {"w": x}}, "v[]": lambda x: {"items": x}}[below]
    branches = [{"properties": {"v": inner(kind), "t": {"const": i}}} for i, kind in enumerate(TAGGED)]
    schema = {"type": "object", "properties": {"v": True}, "anyOf": branches, "required": ["v", "t"]}
    machine = schema_machine(schema, options=SchemaOptions(key_order=order))

    def accepts(pairs, tag):
        value = {"v": b"%s", "v.w": b'{"w": %s}', "v[]": b"[{}, %s]"}[below] % spelled(pairs)
        return machine.accepts(b'{"v": %s, "t": %d}' % (value, tag))

    for pairs in itertools.permutations([("c", 1), ("b", "x"), ("d", 2)]):
        assert accepts(pairs, 0)
        assert not accepts(pairs, 1)
        assert all(accepts([(key, 1) for key, _ in pairs], tag) for tag in (0, 1))
    assert accepts([("b", "x"), ("b", 1)], 0)
    assert not accepts([("b", "x"), ("b", 1)], 1), "not known to be one key, and told as a limit"
    assert not accepts([("b", 1), ("b", "x")], 1)


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("keyword", ["oneOf", "not", "if"])
def test_what_shows_against_another_branch_stands_last_or_does_not_matter(order, keyword):
    whole, integers = ({"properties": {"v": kind}} for kind in TAGGED)
    first, second = ({"properties": {"t": {"enum": tags}}} for tags in ([0, 1], [0, 2]))
    schema = {
        "oneOf": {"oneOf": [{"allOf": [integers, first]}, {"allOf": [{"not": integers}, second]}]},
        "not": {"not": {"anyOf": [{"allOf": [integers, {"not": first}]}, {"not": {"anyOf": [integers, second]}}]}},
        "if": {"if": integers, "then": first, "else": second},
    }[keyword]
    schema = {"type": "object", "properties": {"v": whole["properties"]["v"], "t": True}, "required": ["v", "t"], **schema}
    machine = schema_machine(schema, options=SchemaOptions(key_order=order))

    def accepted(*pairs):
        return [tag for tag in (0, 1, 2) if machine.accepts(b'{"v": ' + spelled(pairs) + b', "t": %d}' % tag)]

    assert accepted(("b", 1), ("c", 1)) == [0, 1]
    assert accepted(("b", 1), ("c", "x")) == [0, 2]
    assert accepted(("b", "x"), ("c", 1)) == [0], "a limit: 2 is valid, but would not be if both keys were one"


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["declared", "any"])
def test_random_keys(order, tally):
    for rng in tally.cases(36, least=3_000, name=order):
        schema = schema_of(rng)
        try:
            machine = schema_machine(schema, options=SchemaOptions(key_order=order))
        except ConstraintError:
            continue
        validator = jsonschema.Draft202012Validator(schema)
        tally.update(made=1, checks=100)
        for _ in range(100):
            pairs = [(rng.choice("aabbcd"), rng.choice([1, 2, "x", "y", 3])) for _ in range(rng.randint(0, 4))]
            valid = validator.is_valid(dict(pairs))
            accepted = machine.accepts(spelled(pairs))
            assert valid or not accepted, (schema, pairs)
            tally[f"accepted {accepted}"] += 1
            if len(dict(pairs)) == len(pairs) and not counts_unnamed(schema):
                assert valid == any(machine.accepts(spelled(some)) for some in itertools.permutations(pairs)), (schema, pairs)
                tally["both ways"] += 1
    assert min(tally["accepted True"], tally["both ways"]) > 300


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"not": {"additionalProperties": {"type": "integer"}}}, ['{"a": 1, "b": "x"}', '{"b": "x"}'], ['{"a": "x", "a": 1}', '{"a": 1}']),
        ({"properties": {"a": True}, "minProperties": 2}, ['{"a": 1, "b": 2}'], ['{"b": 1, "b": 2}', '{"a": 1}']),
        ({"propertyNames": {"enum": ["a", "b"]}, "minProperties": 2}, ['{"a": 1, "b": 2}'], ['{"a": 1, "a": 2}']),
        ({"not": {"maxProperties": 1}, "properties": {"a": True}}, ['{"a": 1, "b": 2}'], ['{"b": 1, "b": 2}']),
    ],
)
def test_each_by_itself(schema, accepted, refused):
    machine = schema_machine({"type": "object", **schema})
    assert [text for text in accepted if not machine.accepts(text.encode())] == []
    assert [text for text in refused if machine.accepts(text.encode())] == []


def test_what_needs_keys_to_differ_is_refused():
    with pytest.raises(UnsupportedSchemaError, match="may be repeated") as caught:
        schema_machine({"type": "object", "properties": {"o": {"type": "object", "minProperties": 2}}, "required": ["o"]})
    assert caught.value.pointer == "#/properties/o/minProperties"


@pytest.mark.parametrize("key_order", ["declared", "any"])
@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"not": {"maxProperties": 1}}, "#/not/maxProperties"),
        ({"type": "object", "minProperties": 1, "not": {"maxProperties": 2}}, "#/not/maxProperties"),
        ({"oneOf": [{"maxProperties": 1}, {"type": "object"}]}, "#/oneOf/0/maxProperties"),
        ({"not": {"anyOf": [{"maxProperties": 1}, {"type": "string"}]}}, "#/not/anyOf/0/maxProperties"),
    ],
)
def test_negated_counts_of_keys_without_a_name_are_refused(schema, pointer, key_order):
    """As `minProperties` is: they can be kept only if keys differ. They were unsatisfiable, or narrowed without a word."""
    with pytest.raises(UnsupportedSchemaError, match="may be repeated") as caught:
        schema_machine(schema, options=SchemaOptions(key_order=key_order))
    assert pointer in str(caught.value)


@pytest.mark.parametrize("key_order", ["declared", "any"])
@pytest.mark.parametrize(("low", "high"), [(2, 2), (2, 3), (2, None), (1, 1)])
def test_one_key_without_a_name_counts_beside_named_ones(low, high, key_order):
    """States that lead nowhere were known by numbers that meant something else in the next attempt to build the machine."""
    schema = {"type": "object", "properties": {"c": {}}, "minProperties": low} | ({} if high is None else {"maxProperties": high})
    machine = schema_machine(schema, options=SchemaOptions(key_order=key_order))
    assert machine.accepts(b'{"c":1,"a":2}') == (high != 1)
    assert machine.accepts(b'{"a":1}') == (low == 1)
    assert not machine.accepts(b'{"a":1,"a":2,"a":3}') or low == 1


@pytest.mark.parametrize("key_order", ["declared", "any"])
@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"not": {"anyOf": [{"maxProperties": 1}, {"required": ["a"]}, {"type": "array"}]}}, "maxProperties"),
        ({"type": "object", "properties": {"a": False}, "minProperties": 2}, "minProperties"),
    ],
)
def test_what_is_satisfied_only_if_keys_differ_is_refused_not_called_empty(schema, pointer, key_order):
    with pytest.raises(UnsupportedSchemaError, match="may be repeated") as caught:
        schema_machine(schema, options=SchemaOptions(key_order=key_order))
    assert pointer in caught.value.pointer


def test_negated_counts_of_named_keys_are_kept():
    machine = schema_machine({"properties": {"a": {}, "b": {}}, "not": {"maxProperties": 1}})
    assert machine.accepts(b'{"a":1,"b":2}')
    assert not machine.accepts(b'{"a":1}')
