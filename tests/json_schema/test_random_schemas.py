"""Random boolean combinations of small schemas against `jsonschema`: nothing invalid accepted, nothing valid impossible."""

from __future__ import annotations

import collections
import json
import random
import re

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
