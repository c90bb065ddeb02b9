"""Random boolean combinations of small schemas against `jsonschema`: nothing invalid accepted, nothing valid impossible."""

from __future__ import annotations

import collections
import json
import random

import jsonschema
import pytest
from json_schema.random_schemas import instances, random_schema, without_order

from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, schema_machine

INSTANCES = instances()
TEXTS = [json.dumps(x, ensure_ascii=False).encode() for x in INSTANCES]
GROUPS: dict[str, list[int]] = collections.defaultdict(list)
for number, instance in enumerate(INSTANCES):
    GROUPS[without_order(instance)].append(number)
OPTIONS = SchemaOptions(draft="2020-12")


def disagreements(schema: object) -> list[str]:
    """Instances that are judged wrongly: accepted though invalid, or valid and refused in every order of their keys."""
    validator = jsonschema.Draft202012Validator(schema)  # type: ignore[arg-type]
    try:
        machine = schema_machine(schema, options=OPTIONS)
    except UnsatisfiableSchemaError:
        return [text.decode() for text, x in zip(TEXTS, INSTANCES) if validator.is_valid(x)]
    wrong = []
    for members in GROUPS.values():
        valid = validator.is_valid(INSTANCES[members[0]])
        accepted = [machine.accepts(TEXTS[i]) for i in members]
        if any(accepted) != valid:
            wrong.append(TEXTS[members[0]].decode())
    return wrong


@pytest.mark.parametrize("block", range(4))
def test_random_schemas_agree_with_jsonschema(block, exhaustive):
    rng = random.Random(block)
    for _ in range(300 if exhaustive else 12):
        schema = random_schema(rng, rng.choice([2, 3, 3, 4]))
        assert disagreements(schema) == [], schema
