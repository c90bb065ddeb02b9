"""Schema-guided YAML: what is accepted parses and validates, valid values can be written, and there are no dead ends."""

from __future__ import annotations

import collections
import itertools
import json
import random

import jsonschema
import numpy as np
import pytest
from json_schema.random_schemas import instances, random_schema, without_order
from json_schema.test_random_schemas import counts_unnamed
from yaml_schema.layouts import DuplicateKeyError, block, flow, pyyaml_block, quoted, read
from yaml_schema.texts import random_text

import fsa_compile
from benchmarks.yaml_conformance import judge
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.json_schema import SchemaOptions, UnsatisfiableSchemaError, UnsupportedSchemaError
from fsa_compile.limits import CompileLimits
from fsa_compile.vocabulary import Vocabulary
from fsa_compile.yaml_schema import YamlOptions, compile_yaml_schema, yaml_machine

SMALL = YamlOptions(max_indent=4, max_key_length=5, schema=SchemaOptions(draft="2020-12"))
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "home": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": False},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def accepts(machine, text: str) -> bool:
    return machine.accepts(text.encode())


@pytest.mark.parametrize("style", ["block", "flow"])
@pytest.mark.parametrize("block_of_seeds", range(3))
def test_every_text_parses_and_validates(style, block_of_seeds, exhaustive):
    rng = random.Random(f"{style} {block_of_seeds}")
    texts = 0
    for _ in range(60 if exhaustive else 3):
        schema = random_schema(rng, rng.choice([2, 3, 3]))
        validator = jsonschema.Draft202012Validator(schema)
        try:
            machine = yaml_machine(schema, style=style, options=SMALL)
        except UnsatisfiableSchemaError:
            continue
        for _ in range(20):
            text = random_text(machine, rng)
            if text is None:
                continue
            try:
                value = read(text.decode())
            except DuplicateKeyError:  # additional keys are not remembered
                continue
            json.dumps(value)
            assert validator.is_valid(value) or exotic(value), (schema, text)
            texts += 1
    assert texts > 20


def exotic(value: object) -> bool:
    """Whether a value holds a float that stands for another number: too large, or too small."""
    if isinstance(value, dict | list):
        return any(map(exotic, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and (value == 0 or abs(value) > 1e15 or abs(value) < 1e-15)


INSTANCES = instances()
GROUPS: dict[str, list[int]] = collections.defaultdict(list)
for number, instance in enumerate(INSTANCES):
    GROUPS[without_order(instance)].append(number)


@pytest.mark.parametrize("style", ["block", "flow"])
def test_random_schemas_agree_with_jsonschema(style, exhaustive):
    """Instances written in the layout are accepted, in some order of their keys, exactly when they are valid."""
    rng = random.Random(style)
    written = [flow(x) if style == "flow" else block(x, max_indent=4, indented=i % 2 > 0) for i, x in enumerate(INSTANCES)]
    for _ in range(60 if exhaustive else 4):
        schema = random_schema(rng, 3)
        validator = jsonschema.Draft202012Validator(schema)
        try:
            machine = yaml_machine(schema, style=style, options=SMALL)
        except UnsupportedSchemaError as error:
            if "may be repeated" not in str(error):
                raise
            continue
        except UnsatisfiableSchemaError:
            machine = None
        for members in rng.sample(list(GROUPS.values()), 60):
            valid = validator.is_valid(INSTANCES[members[0]])
            accepted = any(machine is not None and accepts(machine, written[i]) for i in members)
            assert accepted == valid or (valid and counts_unnamed(schema)), (schema, written[members[0]])


def test_real_schemas(data_dir, exhaustive):
    """Dev schemas: no invalid instance is accepted, and valid ones are, in two layouts of our own."""
    from benchmarks.schema_conformance import rows_of

    rows = [row for row in rows_of("dev", data_dir) if row["tests"] and len(json.dumps(row["schema"])) < 2_000]
    random.Random(4).shuffle(rows)
    for row in rows[: 100 if exhaustive else 2]:
        verdict = judge(row, "block", CompileLimits())
        assert not verdict.get("false_accept"), row["name"]
        assert not verdict.get("false_reject"), row["name"]


BLOCK = [
    ({"name": "a b"}, True),
    ({"name": "true", "age": 3}, True),
    ({"name": "x", "age": 3, "tags": ["a", "1", "Hello, world: x"], "home": {"x": 1.5}}, True),
    ({"name": "http://x.org/#a", "tags": []}, True),
    ({"name": "it's \"so\"", "home": {"x": -2}}, True),
    ({"name": ""}, True),
    ({"name": "2020-01-01"}, True),
    ({"age": 1}, False),
    ({"name": 1}, False),
    ({"name": None}, False),
    ({"name": "x", "tags": [1]}, False),
    ({"name": "x", "home": {}}, False),
]


@pytest.mark.parametrize(("value", "valid"), BLOCK, ids=str)
def test_what_pyyaml_writes(value, valid):
    machine = yaml_machine(PERSON)
    assert accepts(machine, pyyaml_block(value)) == valid
    assert accepts(machine, block(value)) == valid
    assert accepts(machine, block(value, indented=True)) == valid
    assert accepts(yaml_machine(PERSON, style="flow"), flow(value)) == valid


def test_free_values_of_every_shape():
    machine = yaml_machine(True, options=YamlOptions(max_indent=6, max_key_length=6))
    shapes = [
        {"a": [1, {"b": [[1], []]}, {}], "c": {"d": {"e": None}}}, [[1, [2, 3]], [{"a": 1, "b": 2}]], [], {}, "x", 1.5e250, -0.5,
        {"null": {"1": [True]}}, ["- a", "a: b", "#", "'", '"'],
    ]  # fmt: skip
    deep = [{"a": {"b": {"c": {"d": {"e": [1, {"f": 2}]}}}}}, [[[[[[1]]]]]]]
    for value in [*shapes, *deep, {"": 0}]:
        for text in (block(value, max_indent=6), block(value, max_indent=6, indented=True)):
            assert accepts(machine, text), text
            assert accepts(machine, text.removesuffix("\n")), text
            assert read(text) == value
    for value in shapes:
        assert accepts(machine, pyyaml_block(value)), pyyaml_block(value)
    for value in deep:
        assert not accepts(machine, pyyaml_block(value)), "begins beyond max_indent"
    for text in ("a:\n", "a:\n b: 1", "- 1\n2", "a: 1\n  b: 2", "- a: 1\n   b: 2", "a: 1\n\n", "a: b: c", "[1,2]", "{a: 1}", "- \n", " a: 1", "a: -", "\n"):
        assert not accepts(machine, text), text


def test_dedent_over_several_levels():
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "object", "properties": {"c": {"type": "integer"}},
              "required": ["c"], "additionalProperties": False}}, "required": ["b"], "additionalProperties": False}, "z": {"type": "integer"}},
              "required": ["a", "z"], "additionalProperties": False}  # fmt: skip
    machine = yaml_machine(schema)
    assert accepts(machine, "a:\n  b:\n    c: 1\nz: 2\n")
    after = machine.run(b"a:\n  b:\n    c: 1\n")
    assert after
    assert not machine.may_end(after), "z is still required"
    assert not machine.step(after, ord(" ")), "no frame that is open can go on further to the right"
    assert machine.step(after, ord("z"))


def test_lists_at_either_column_and_only_one():
    machine = yaml_machine({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "additionalProperties": False})
    assert accepts(machine, "a:\n- 1\n- 2\n")
    assert accepts(machine, "a:\n  - 1\n  - 2\n")
    assert not accepts(machine, "a:\n- 1\n  - 2\n")
    assert not accepts(machine, "a:\n  - 1\n- 2\n")


def test_forms_of_strings():
    machine = yaml_machine({"enum": ["no", "it's", "a\nb", "é", "\U0001f600", 5, "x: y"]})
    for text in ('"no"', "'no'", "it's", "'it''s'", '"a\\nb"', "é", "'é'", "\U0001f600", "5", "'x: y'"):
        assert accepts(machine, text), text
    for text in ("no", "'it's'", "a\nb", '"5"', "5.5", "x: y", '"\\ud83d\\ude00"', "'a\nb'"):
        assert not accepts(machine, text), text
    free = yaml_machine({"type": "string"})
    assert accepts(free, '"\\xE9 \\u2028 \\U0001F600 \\N\\_\\e"')
    for bad in ('"\x7f"', '"\u2028"', '"\\ud83d"', "'\x85'", '"\\/x"', '"\\x41"', "a\xa0\ufeff"):
        assert not accepts(free, bad), bad


def test_numbers_are_numbers_to_every_reader():
    machine = yaml_machine({"type": "number"})
    for text, accepted in (("1", 1), ("-0", 1), ("1.5", 1), ("1.0e+3", 1), ("1e3", 0), ("1.0e3", 0), ("01", 0), ("1_0", 0), ("1.0e+999", 0)):
        assert accepts(machine, text) == bool(accepted), text
    assert not accepts(yaml_machine({"type": "string"}), "1e3")


def test_keys_that_need_quotes():
    machine = yaml_machine({"properties": {"null": {}, "a: b": {}, "-x": {}, "1": {}, "ok then": {}}, "additionalProperties": False})
    for key in ("'null'", '"null"', '"a: b"', "'-x'", "'1'", "ok then", '"ok then"'):
        assert accepts(machine, f"{key}: 1"), key
    for key in ("null", "a: b", "-x", "1", "ok", "other"):
        assert not accepts(machine, f"{key}: 1"), key


def test_lengths_of_keys_and_strings():
    machine = yaml_machine({"additionalProperties": {"type": "string", "minLength": 40, "maxLength": 100}, "type": "object"})
    for n in (40, 41):
        assert accepts(machine, f'{quoted("k" * n)}: "{"x" * 40}"') == accepts(machine, f'{"k" * n}: "{"x" * 40}"') == (n == 40)
    for n in (39, 40, 100, 101):
        assert accepts(machine, f'k: "{"x" * n}"') == (40 <= n <= 100)


@pytest.mark.parametrize(("low", "high"), [(0, 60), (40, 120), (3, 33)])
@pytest.mark.parametrize("style", ["block", "flow"])
def test_counted_plain_strings(style, low, high, exhaustive):
    """Plain strings are never longer or shorter than the schema says; words of up to half the bound are plain."""
    pattern = "a: {}\n" if style == "block" else "{{a: {}}}"
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": low, "maxLength": high}}, "required": ["a"]}
    machine = yaml_machine(schema | {"additionalProperties": False}, style=style)
    rng = random.Random(high)
    for _ in range(60 if exhaustive else 20):
        text = "".join(rng.choice("abcde é:12") for _ in range(rng.choice([low, high, high + 1, max(1, low - 1), high // 2])))
        if accepts(machine, pattern.format(text)):
            value = read(pattern.format(text))["a"]
            assert isinstance(value, str)
            assert low <= len(value) <= high
        assert accepts(machine, pattern.format(f'"{text}"')) == (low <= len(text) <= high)
        made = random_text(machine, rng, soft=rng.choice([20, high]))
        assert made is None or low <= len(read(made.decode())["a"]) <= high
    words = ("words and more " * 10)[: high // 2].strip()
    assert accepts(machine, pattern.format(words)) == (low <= len(words))


TREE = {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["v"], "additionalProperties": False}  # fmt: skip
COUNTED = {"type": "array", "items": {"type": "string", "maxLength": 40}}


@pytest.mark.parametrize("schema", [PERSON, TREE, COUNTED], ids=["written out", "stack", "counted"])
def test_masks_are_the_machine_s(schema, data_dir, exhaustive):
    """Over a real vocabulary: along random walks a token is allowed exactly when the machine can read it."""
    vocabulary = fsa_compile.load_tokenizer(data_dir / "tokenizers" / "gpt2").vocabulary
    constraint, machine = compile_yaml_schema(schema, vocabulary), yaml_machine(schema)
    assert (constraint.max_pops == 0) == (schema is PERSON)
    rng = random.Random(5)
    stops = set(vocabulary.stop_ids)
    for _ in range(3 if exhaustive else 1):
        walk, current = constraint.walk(), {machine.initial}
        for _ in range(20):
            allowed = walk.allowed()
            assert walk.accepting == machine.may_end(current)
            for token in rng.sample(range(vocabulary.size), 25):
                if token not in stops:
                    assert bool(allowed[token]) == bool(vocabulary.tokens[token] and machine.run(vocabulary.tokens[token], current))
            choices = [t for t in np.nonzero(allowed)[0].tolist() if t not in stops]
            if not choices:
                break
            structural = [t for t in choices if vocabulary.tokens[t].strip(b" ")[:1] in (b"\n", b":", b"-", b'"')]
            token = rng.choice(structural if structural and rng.random() < 0.5 else choices)
            walk.advance(token)
            current = machine.run(vocabulary.tokens[token], current)


def test_every_token_sequence_of_a_toy_vocabulary():
    tokens = [b"a", b"b", b": ", b":", b"\n", b" ", b"  ", b"- ", b"-", b"1", b"\n  ", b":\n", b"\n- ", b": 1\n", b"[]", b""]
    vocabulary = Vocabulary.from_tokens(tokens, stop_ids=[15])
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer"}},
              "required": ["b"], "additionalProperties": False}}, "b": {"type": "integer"}}, "additionalProperties": False}  # fmt: skip
    constraint, machine = compile_yaml_schema(schema, vocabulary), yaml_machine(schema)
    live: list[tuple[int, ...]] = [()]
    for _ in range(6):
        longer = []
        for ids in live:
            walk = constraint.walk()
            for token in ids:
                walk.advance(token)
            text = b"".join(tokens[i] for i in ids)
            assert walk.accepting == accepts(machine, text.decode()), text
            allowed = walk.allowed()
            for token in range(15):
                if allowed[token]:
                    longer.append((*ids, token))
                assert not allowed[token] or machine.run(text + tokens[token])
        live = longer
    assert any(accepts(machine, b"".join(tokens[i] for i in ids).decode()) for ids in live)


def test_refusals():
    with pytest.raises(UnsupportedSchemaError, match="uniqueItems") as error:
        yaml_machine({"properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}})
    assert error.value.pointer == "#/properties/a/uniqueItems"
    with pytest.raises(UnsatisfiableSchemaError):
        yaml_machine({"type": "array", "minItems": 2, "maxItems": 1})
    with pytest.raises(LimitError, match="max_count"):
        yaml_machine({"type": "array", "maxItems": 1000})
    with pytest.raises(ConstraintError, match="unknown style"):
        yaml_machine(True, style="json")
    with pytest.raises(ConstraintError, match="must be even"):
        YamlOptions(max_indent=3)
    with pytest.raises(ConstraintError, match="max_key_length must be"):
        YamlOptions(max_key_length=500)
    for option in ({"whitespace": "compact"}, {"max_object_depth": 2}):
        with pytest.raises(ConstraintError, match="about JSON texts"):
            YamlOptions(schema=SchemaOptions(**option))


def test_recursion_goes_on_in_flow_style():
    machine = yaml_machine(TREE, options=YamlOptions(max_indent=4))
    value: dict = {"v": 0}
    for n in itertools.islice(itertools.count(1), 8):
        value = {"v": n, "kids": [value, {"v": -1}]}
        assert accepts(machine, block(value, max_indent=4))
        assert accepts(machine, pyyaml_block(value)) == (n <= 2)
        assert accepts(yaml_machine(TREE, style="flow"), flow(value))
