"""Random boolean combinations of small schemas against `jsonschema`: nothing invalid accepted, nothing valid impossible."""

from __future__ import annotations

import collections
import json
import random
import re
from collections.abc import Callable

import jsonschema
import pytest
from json_schema.random_schemas import counts_unnamed, instances, random_schema, without_order
from oracles.tallies import Tally
from oracles.text_walks import written

from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, UnsupportedSchemaError, schema_machine

INSTANCES = instances()
TEXTS = [json.dumps(x, ensure_ascii=False).encode() for x in INSTANCES]
GROUPS: dict[str, list[int]] = collections.defaultdict(list)
for number, instance in enumerate(INSTANCES):
    GROUPS[without_order(instance)].append(number)
LETTERS = '{}[]":, 0123456789abcxtrulefsn.-é'


def random_options(rng: random.Random) -> SchemaOptions:
    """Ways to write that all take what `json.dumps` writes."""
    return SchemaOptions(
        draft="2020-12", key_order=rng.choice(["declared", "any"]), whitespace=rng.choice(["optional", "spaced", "indented"]),
        integers=rng.choice(["plain", "all"]), string_escapes=rng.choice(["all", "where needed", "shortest"]),
    )  # fmt: skip


def disagreements(schema: object, rng: random.Random, tally: Tally) -> list[str]:
    """Instances that are judged wrongly: accepted though invalid, or valid and refused in every order of their keys; invalid texts."""
    tally["checks"] += len(GROUPS)
    validator = jsonschema.Draft202012Validator(schema)  # type: ignore[arg-type]
    try:
        machine = schema_machine(schema, options=random_options(rng))
    except UnsupportedSchemaError as error:
        if "may be repeated" not in str(error):
            raise
        return []
    except UnsatisfiableSchemaError:
        return [text.decode() for text, x in zip(TEXTS, INSTANCES) if validator.is_valid(x)]
    wrong = []
    for members in GROUPS.values():
        valid = validator.is_valid(INSTANCES[members[0]])
        accepted = [machine.accepts(TEXTS[i]) for i in members]
        if any(accepted) != valid and not (valid and counts_unnamed(schema)):
            wrong.append(TEXTS[members[0]].decode())
    tally["made"] += 1
    for _ in range(5):
        text = written(machine, rng, LETTERS, 60)
        if machine.accepts(text.encode()) and not re.search(r"[\d.]{12}|e[+-]?\d{3}", text):  # what floating point holds
            tally.update(["checks", "texts"])
            if not validator.is_valid(json.loads(text)):
                wrong.append(text)
    return wrong


@pytest.mark.exhaustive
def test_random_schemas_agree_with_jsonschema(tally):
    for rng in tally.cases(30, least=5_000):
        schema = random_schema(rng, rng.choice([2, 3, 3, 4]))
        assert disagreements(schema, rng, tally) == [], schema
    assert tally["texts"] > tally["made"]


def ordered(rng: random.Random, depth: int) -> tuple[dict, Callable[[], object]]:
    """An object, or branches whose members are such, and what makes instances of one branch in the order of its keys."""
    if not depth:
        keys = rng.sample("abcd", rng.randint(2, 3))
        parts = {key: rng.choice([({"type": "integer"}, 1), ({"enum": ["x", 1]}, "x"), ({"type": "null"}, None)]) for key in keys}
        needed = [key for key in keys if rng.random() < 0.3]
        schema = {"type": "object", "properties": {key: part for key, (part, _) in parts.items()}, "required": needed, "additionalProperties": False}
        return schema, lambda: {key: value for key, (_, value) in parts.items() if key in needed or rng.random() < 0.7}
    branches = []
    for _ in range(rng.randint(2, 3)):
        inner, make = ordered(rng, rng.randint(0, depth - 1))
        forms = [
            ({"type": "array", "items": inner}, lambda make=make: [make(), make()]), ({"type": "array", "prefixItems": [inner, True]}, lambda make=make: [make(), 1]),
            ({"type": "object", "properties": {"x": inner, "y": {"enum": [1, 2]}}}, lambda make=make: {"x": make(), "y": 1}), (inner, make),
        ]  # fmt: skip
        branches.append(rng.choice(forms))
    return {rng.choice(["anyOf", "anyOf", "oneOf"]): [schema for schema, _ in branches]}, lambda: rng.choice(branches)[1]()


def test_members_keep_to_the_order_of_their_branch(tally):
    """The branch may be known long after the member: each branch's order is kept, by what breaks others too."""
    for rng in tally.cases(40):
        schema, make = ordered(rng, rng.choice([1, 2, 2]))
        validator = jsonschema.Draft202012Validator(schema)
        try:
            machine = schema_machine(schema)
        except UnsatisfiableSchemaError:
            continue
        tally["made"] += 1
        for instance in [make() for _ in range(8)]:
            accepted = machine.accepts(json.dumps(instance).encode())
            assert accepted == validator.is_valid(instance), (schema, instance)
            tally["checks"] += 1
    assert tally["checks"] > 200
