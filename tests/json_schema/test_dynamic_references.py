"""`$dynamicRef` and `$recursiveRef` against `jsonschema`: what they refer to depends on the resources that were entered before."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import jsonschema_specifications
import pytest
import referencing
from json_schema.random_schemas import random_schema

from fsa_compile import Vocabulary, compile_json_schema
from fsa_compile.errors import LimitError, SchemaError, UnsupportedSchemaError
from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, schema_machine

LEAVES = (None, True, 1, "x")
VALIDATORS = {
    "4": jsonschema.Draft4Validator, "7": jsonschema.Draft7Validator, "2019-09": jsonschema.Draft201909Validator,
    "2020-12": jsonschema.Draft202012Validator,
}  # fmt: skip
TYPES = ("null", "boolean", "integer", "string")


def values() -> list[Any]:
    """Leaves, and what nests them in arrays and objects."""
    arrays = [[], *([x] for x in LEAVES), *([x, y] for x, y in itertools.product(LEAVES, repeat=2))]
    objects = [{}, *({key: x} for key in "ab" for x in LEAVES), *({"a": x, "b": y} for x, y in itertools.product(LEAVES, repeat=2))]
    nested = [x for part in [*arrays[:8], *objects[:8]] for x in ([part], [1, part], {"a": part}, {"a": 1, "b": part}, [[part]])]
    return [*LEAVES, *arrays, *objects, *nested]


VALUES = values()
TEXTS = [json.dumps(x).encode() for x in VALUES]


class Random:
    """Resources that refer to each other, by the draft's dynamic reference and by `$ref`, or with texts that mean something else in
    each of them."""

    def __init__(self, rng: random.Random, draft: str, dynamic: bool) -> None:
        self.rng, self.recursive, self.dynamic, self.count = rng, draft == "2019-09", dynamic, rng.randint(1, 3)
        self.shared = [{"$ref": "#/$defs/d"}, {"$ref": "#n"}]  # one Python object in several resources

    def schema(self) -> dict[str, Any]:
        """The whole document."""
        resources = [self._resource(i) for i in range(self.count + 1)]
        root = resources.pop()
        root["$defs"] |= {f"r{i}": resource for i, resource in enumerate(resources)}
        return root

    def _resource(self, number: int) -> dict[str, Any]:
        self.own = f"https://x.org/{number}"  # behind a dynamic jump the oracle reads relative references elsewhere
        kinds = ["$anchor"] if self.recursive or not self.dynamic else ["$anchor", "$dynamicAnchor", "$dynamicAnchor"]
        parts = {key: self._content() | {self.rng.choice(kinds): name} for key, name in ("dm", "en")}
        own = {"$recursiveAnchor": True} if self.recursive and self.rng.random() < 0.6 else {}
        return {"$id": self.own, **own, **self._content(), "$defs": parts}

    def _content(self) -> dict[str, Any]:
        items = "items" if self.recursive else "prefixItems"
        of = [
            lambda: {"type": "array", "items": self._reference()},
            lambda: {"anyOf": [self._leaf(), {"type": "array", "items": self._reference()}]},
            lambda: {"type": "object", "properties": {"a": self._reference(), "b": self._reference()}},
            lambda: {"oneOf": [self._leaf(), {"properties": {"a": self._reference()}, "required": ["a"], "type": "object"}]},
            lambda: {"type": "array", items: [self._reference()], "unevaluatedItems": self._reference()},
            self._reference,
            self._leaf,
        ]
        if not self.recursive:  # the oracle knows neither that of 2019-09 nor that `contains` evaluates nothing there
            of.append(lambda: {"allOf": [self._reference()], "unevaluatedProperties": self._reference()})
            of.append(lambda: {items: [True], "contains": self._reference(), "unevaluatedItems": self._reference()})
        return self.rng.choice(of)()

    def _reference(self) -> dict[str, Any]:
        other = f"https://x.org/{self.rng.randrange(self.count)}"
        if not self.dynamic:
            return self.rng.choice([*self.shared, {"$ref": other}])
        dynamic = [{"$dynamicRef": f"{x}#n"} for x in (self.own, other)]
        dynamic.append({"$dynamicRef": f"{other}#m", "$ref": f"{self.own}#/$defs/d", "allOf": [self._leaf()]})
        dynamic = [{"$recursiveRef": "#"}] if self.recursive else dynamic
        plain = [{"$ref": other}, {"$ref": f"{other}#/$defs/d"}, {"$ref": f"{other}#/$defs/e"}, self._leaf()]
        return self.rng.choice(plain if self.rng.random() < 0.5 else dynamic)

    def _leaf(self) -> dict[str, Any]:
        return {"type": self.rng.choice(TYPES)}


def validator_of(draft: str, schema: Any) -> Any:
    """The validator of the package `jsonschema`."""
    return VALIDATORS[draft](schema)


def compare(draft: str, dynamic: bool, rng: random.Random, tally: Any) -> None:
    """One schema; where it is refused, a reference leads nowhere or round in circles, or was reached in an unclear way."""
    schema = Random(rng, draft, dynamic).schema()
    options = SchemaOptions(draft=draft, key_order=rng.choice(["declared", "any"]))  # type: ignore[arg-type]
    try:
        machine = schema_machine(schema, options=options)
        judged = [machine.accepts(text) for text in TEXTS]
    except UnsatisfiableSchemaError:
        judged = [False] * len(TEXTS)
    except LimitError:
        tally["refused"] += 1
        return
    except SchemaError as error:
        if not any(x in str(error) for x in ("refers to itself", "without $recursiveAnchor")):
            raise
        tally["refused"] += 1
        return
    tally["made"] += 1
    tally["checks"] += len(TEXTS)
    for text, ours in zip(TEXTS, judged):
        try:
            theirs = validator_of(draft, schema).is_valid(json.loads(text))
        except RecursionError:  # a circle below a schema that nothing satisfies
            continue
        assert ours == theirs, (schema, text, ours)
        tally[f"texts {theirs}"] += 1


@pytest.mark.parametrize(("draft", "dynamic"), [("2019-09", True), ("2020-12", True), ("2020-12", False)])
def test_random_resources(draft, dynamic, tally):
    for rng in tally.cases(120, least=3_000):
        compare(draft, dynamic, rng, tally)
    assert tally["made"] > tally["refused"]
    assert min(tally["texts True"], tally["texts False"]) > tally["made"]


def test_a_plain_reference_to_a_dynamic_anchor_is_not_dynamic():
    """Section 8.2.2 of the draft; the package `jsonschema` reads it as a dynamic one where resources nest."""
    inner = {"$id": "https://x.org/in", "items": {"$ref": "#n"}, "$defs": {"n": {"$dynamicAnchor": "n", "type": "null"}}}
    outer = {"$ref": "https://x.org/in", "type": "array", "$defs": {"i": inner, "n": {"$dynamicAnchor": "n", "type": "string"}}}
    dynamic = json.loads(json.dumps(outer).replace('"items": {"$ref"', '"items": {"$dynamicRef"'))
    for schema, text in ((outer, b"[null]"), (dynamic, b'["x"]')):
        machine = schema_machine(schema)
        assert [machine.accepts(x) for x in (b"[null]", b'["x"]')] == [text == b"[null]", text == b'["x"]']


def test_a_relative_reference_behind_a_dynamic_one_is_read_where_it_stands():
    inner = {"$id": "https://x.org/in", "$dynamicRef": "#n", "$defs": {"a": {"type": "null"}, "n": {"$dynamicAnchor": "n"}}}
    own = {"$dynamicAnchor": "n", "type": "array", "items": {"$ref": "#/$defs/a"}}
    outer = {"$id": "https://x.org/out", "$ref": "in", "$defs": {"i": inner, "n": own, "a": {"type": "string"}}}
    machine = schema_machine(outer)
    assert [machine.accepts(x) for x in (b"[null]", b'["x"]', b"[]")] == [False, True, True]


@pytest.mark.parametrize(("levels", "more"), [(24, 0), (10, 1_000)])
def test_too_many_sets_of_resources_are_refused(levels, more):
    """Each of the names may have been met in the first resource, or only in the second; the root has more in all sets."""
    names = [f"n{i}" for i in range(levels)]
    resources = {}
    for i, name in enumerate(names):
        for which in "ab":
            go_on = {"properties": {w: {"$ref": f"https://x.org/{names[i + 1]}{w}"} for w in "ab"}} if i + 1 < levels else {"$dynamicRef": "#n0"}
            resources[f"{name}{which}"] = {
                "$id": f"https://x.org/{name}{which}", **go_on, "$defs": {"n": {"$dynamicAnchor": name, "type": "null"}},
            }  # fmt: skip
    resources |= {f"m{i}": {"$dynamicAnchor": f"m{i}"} for i in range(more)}
    with pytest.raises(UnsupportedSchemaError, match=r"dynamic references .* more than 50,000 parts"):
        schema_machine({"$ref": "https://x.org/n0a", "$defs": resources})


def test_what_two_resources_leave_unevaluated_is_told_apart():
    """Their schemas are made from equal texts, whose references lead to different parts."""

    def resource(name: str, rest: str) -> dict[str, Any]:
        defs = {"c": {"type": "null"}, "rest": {"type": rest}}
        parts = {"contains": {"$ref": "#/$defs/c"}, "unevaluatedItems": {"$ref": "#/$defs/rest"}}
        return {"$id": f"https://x.org/{name}", "type": "array", **parts, "$defs": defs}

    defs = {"p": resource("p", "string"), "q": resource("q", "boolean")}
    schema = {"type": "object", "properties": {x: {"$ref": f"https://x.org/{x}"} for x in defs}, "$defs": defs}
    machine = schema_machine(schema)
    for value in ({"p": [None, "x"]}, {"p": [None, True]}, {"q": [None, "x"]}, {"q": [None, True]}):
        assert machine.accepts(json.dumps(value).encode()) == validator_of("2020-12", schema).is_valid(value), value


def damaged(value: Any, rng: random.Random) -> Any:
    """With one part replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return value | {key: damaged(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], damaged(value[at], rng), *value[at + 1 :]]
    return rng.choice([None, True, -1, 0, 1.5, "a", "string", [], ["a"], [{}], {}, {"a": 1}, {"a": {"type": "x"}}, {"not": []}])


def without_unique(part: Any) -> Any:
    """A schema without `uniqueItems`, which no pushdown automaton keeps."""
    if isinstance(part, dict):
        return {key: without_unique(x) for key, x in part.items() if key != "uniqueItems" or not isinstance(x, bool)}
    return [without_unique(x) for x in part] if isinstance(part, list) else part


@pytest.mark.parametrize("draft", ["4", "7", "2019-09", "2020-12"])
def test_schemas_are_written_by_the_schema_of_their_draft(draft, tally):
    of_standard = jsonschema_specifications.REGISTRY
    documents = [without_unique(of_standard[uri].contents) for uri in of_standard if draft in uri]
    top = validator_of(draft, {}).META_SCHEMA["$id" if draft != "4" else "id"]
    schema = {"$ref": top, "$defs": {f"d{i}": document for i, document in enumerate(documents)}}
    machine = schema_machine(schema, options=SchemaOptions(draft=draft, key_order="any", formats="annotate"))
    registry = referencing.Registry().with_resources(
        (document["id" if draft == "4" else "$id"], referencing.Resource.from_contents(document)) for document in documents
    )
    judge = VALIDATORS[draft]({"$ref": top}, registry=registry)
    for rng in tally.cases(40, least=2_000):
        value = random_schema(rng, 3)
        for instance in (value, damaged(value, rng), damaged(value, rng)):
            valid = judge.is_valid(instance)
            assert machine.accepts(json.dumps(instance).encode()) == valid, instance
            tally.update(["checks", f"schemas {valid}"])
        tally["made"] += 1
    assert min(tally["schemas True"], tally["schemas False"]) > tally["made"] // 8


def test_properties_called_like_keywords_do_not_turn_a_schema_round():
    """What is left out of a schema must not be below `not`; a property of that name may hold anything."""
    vocabulary = Vocabulary.from_tokens([b"", *(bytes([b]) for b in range(256))], stop_ids=[0])
    names = {"not": {"$ref": "#/$defs/a"}, "if": {"uniqueItems": True}}
    options = SchemaOptions(unenforced=["uniqueItems"])
    allowed = compile_json_schema({"properties": names, "$defs": {"a": {"uniqueItems": True}}}, vocabulary, options=options)
    assert sorted(allowed.unenforced) == ["#/$defs/a/uniqueItems", "#/properties/if/uniqueItems"]
    for turned in ({"not": names["not"]}, {"not": {"properties": names}}, {"properties": {"a": {"not": names["if"]}}}):
        with pytest.raises(UnsupportedSchemaError, match="uniqueItems"):
            compile_json_schema(turned | {"$defs": {"a": {"uniqueItems": True}}}, vocabulary, options=options)
