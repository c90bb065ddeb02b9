"""Random boolean combinations of small schemas against `jsonschema`: nothing invalid accepted, nothing valid impossible."""

from __future__ import annotations

import collections
import json
import random

import jsonschema
import pytest
from json_schema.random_schemas import instances, random_schema, without_order

from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, UnsupportedSchemaError, schema_machine

INSTANCES = instances()
TEXTS = [json.dumps(x, ensure_ascii=False).encode() for x in INSTANCES]
GROUPS: dict[str, list[int]] = collections.defaultdict(list)
for number, instance in enumerate(INSTANCES):
    GROUPS[without_order(instance)].append(number)
OPTIONS = SchemaOptions(draft="2020-12")


def counts_unnamed(schema: object) -> bool:
    """Whether the second of two keys that a schema does not name might have to count (docs/limits.md)."""
    text = json.dumps(schema)
    negates = any(f'"{keyword}"' in text for keyword in ("not", "oneOf", "if"))
    return '"minProperties": 2' in text or (negates and any(f'"{k}"' in text for k in ("maxProperties", "additionalProperties")))


def disagreements(schema: object) -> list[str]:
    """Instances that are judged wrongly: accepted though invalid, or valid and refused in every order of their keys."""
    validator = jsonschema.Draft202012Validator(schema)  # type: ignore[arg-type]
    try:
        machine = schema_machine(schema, options=OPTIONS)
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
    return wrong


@pytest.mark.parametrize("block", range(4))
def test_random_schemas_agree_with_jsonschema(block, exhaustive):
    rng = random.Random(block)
    for _ in range(25_000 if exhaustive else 12):
        schema = random_schema(rng, rng.choice([2, 3, 3, 4]))
        assert disagreements(schema) == [], schema
