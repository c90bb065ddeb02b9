"""Schemas with texts that belong to them and texts that do not: one group per construction, and the traps of each."""

from __future__ import annotations

import itertools
import json
import random

import jsonschema
import pytest

from fsa_compile.automata.pushdown import RETURN
from fsa_compile.errors import LimitError
from fsa_compile.json_schema import SchemaError, SchemaOptions, UnsatisfiableSchemaError, UnsupportedSchemaError, schema_machine

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}
CASES = {
    "types": ({"type": ["integer", "null"]}, ["1", "-0", "null", "1.0", "1e2", "10E+2"], ["true", '"1"', "1.5", "1e-2", "01", "+1", ""]),
    "any": (True, ["{}", '{"a": [1, {"b": null}], "c": "\\u00e9"}', "-1.5E-3", '" "'], ["{", "[1,]", "nul", "1.", '"\\x"', '"\n"', " 1"]),
    "recursion": (
        PERSON,
        ['{"name": "a"}', '{"name":"a","age":1,"kids":[{"name":"b","kids":[]}, {"name":"c"}]}', '{"name":"a","x":{"y":[]}}'],
        ["{}", '{"age":1,"name":"a"}', '{"name":"a","kids":[{}]}', '{"name":"a","kids":[{"name":"b"}}', '{"name":"a","age":1.5}'],
    ),
    "no key twice": (PERSON, ['{"name":"a"}'], ['{"name":"a","name":"b"}', '{"name":"a","\\u006eame":"b"}', '{"name":"a","x":1,"name":"b"}']),
    "closed": (
        {"properties": {"a": {}, "b": {}}, "additionalProperties": False, "type": "object"},
        ["{}", '{"a":1}', '{"b":1}', '{"a":1,"b":2}'], ['{"b":1,"a":2}', '{"c":1}', '{"a":1,}', '{,"a":1}'],
    ),
    "key conditions": (
        {"patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}}, "propertyNames": {"maxLength": 3}},
        ['{"x":1}', '{"xy":5}', '{"y":7.5}', '{"abc":null}'], ['{"x":1.5}', '{"xy":4}', '{"y":4}', '{"abcd":1}'],
    ),
    "no comma without a key": ({"propertyNames": {"pattern": "^a?$"}, "maxProperties": 1}, ['{"a":1}', "{}"], ['{"a":1,"":2}', '{"b":1}']),
    "enum": ({"enum": ["a", "ab", 1, None, [1, {"b": "c"}]]}, ['"a"', '"ab"', "1", "1.0", "null", '[1, {"b":"c"}]'], ['"b"', "1.5", "[1]", "true"]),
    "one of excludes": ({"oneOf": [{"minimum": 2}, {"multipleOf": 3}], "type": "integer"}, ["2", "0", "-3", "4"], ["3", "6", "1"]),
    "not": ({"not": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}, ["{}", '{"a":1}'], ["1", '{"a":"b"}', '{"a":"b","c":1}']),
    "if": (
        {"if": {"properties": {"t": {"const": "n"}}, "required": ["t"]}, "then": {"required": ["n"]}, "else": {"required": ["m"]}},
        ['{"t":"n","n":1}', '{"t":"o","m":1}', '{"m":1}', "1"], ['{"t":"n","m":1}', '{"t":"o","n":1}', "{}"],
    ),
    "each branch keeps its order": (
        {"anyOf": [{"properties": {"x": {"const": 1}, "y": {}}, "required": ["x"]}, {"properties": {"y": {"const": 2}, "x": {}}, "required": ["y"]}]},
        ['{"x":1,"y":3}', '{"y":2,"x":3}', '{"x":3,"y":2}'], ['{"x":2,"y":3}', '{"y":2,"x":3,"y":2}', '{"x":1,"z":1,"y":2}'],
    ),
    "order of required": (
        {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b", "a"]},
        ['{"a":1,"b":1}', '{"b":1,"a":1,"c":1}'], ['{"b":1}', '{"c":1,"b":1,"a":1}', '{"b":1,"a":1,"b":1}'],
    ),
    "alike branches told apart by a number": (
        {"anyOf": [{"properties": {"a": {"const": i}, "b": {"maxLength": i + 1}}, "required": ["a", "b"]} for i in range(12)]},
        ['{"a":3,"b":"abcd"}', '{"a":11.0,"b":"abcdefghijkl"}'], ['{"a":3,"b":"abcde"}', '{"a":3.5,"b":""}', '{"a":12,"b":""}'],
    ),
    "many words": (
        {"enum": [f"value {i * 7919 % 1009}" for i in range(1009)]}, ['"value 0"', '"value 1008"'], ['"value 1009"', '"value "', '"value 00"'],
    ),
    "items": (
        {"prefixItems": [{"type": "string"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 3},
        ['["a"]', '["a", null]', '["a",null,null]'], ["[]", "[null]", '["a",1]', '["a",null,null,null]', '["a",]'],
    ),
    "contains": ({"contains": {"type": "null"}, "minContains": 2, "maxContains": 2}, ["[null,null]", "[1,null,2,null]"], ["[]", "[null]", "[null,null,null]"]),
    "unique": ({"items": {"enum": [1, "a", True]}, "uniqueItems": True}, ["[]", '[1,"a"]', '[true,"a",1]'], ["[1,1.0]", '["a","a"]', "[true,1,true]"]),
    "long strings": ({"type": "string", "minLength": 2, "maxLength": 40}, ['"ab"', '"\\"\\u00e9"', json.dumps("é" * 40)], ['"a"', '""', json.dumps("a" * 41), '"\\ud83d\\ude00"']),
    "long arrays": (
        {"items": {"type": "integer"}, "minItems": 2, "maxItems": 50, "type": "array"},
        [json.dumps([1] * 50), "[1,2]"], ["[]", "[1]", json.dumps([1] * 51), "[1,1.5]"],
    ),
    "long arrays of long arrays": (
        {"items": {"items": {"maxLength": 99}, "maxItems": 40, "type": "array"}, "maxItems": 40, "type": "array"},
        ["[]", "[[],[1]]", json.dumps([["a"] * 40] * 3)], [json.dumps([["a"] * 41]), json.dumps([[]] * 41), json.dumps([["a" * 100]])],
    ),
    "length beside a pattern": ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, ['"abc"'], ['"abcd"', '""', '"A"']),
    "long strings with a beginning": (
        {"type": "string", "pattern": "^x?[a-z][a-z0-9]*$", "minLength": 3, "maxLength": 40},
        ['"abc"', '"xab"', '"x12"', json.dumps("a" * 40), json.dumps("x" * 40)], ['"xa"', '"ab"', '"1bc"', json.dumps("a" * 41), json.dumps("x" + "a" * 40)],
    ),
    "a beginning that may be too short": (
        {"type": "string", "pattern": "^(?:no|[a-z]{3}.*)$", "minLength": 4, "maxLength": 50}, ['"abcd"', '"abc "'], ['"no"', '"abc"', json.dumps("a" * 51)],
    ),
    "exact decimals": ({"multipleOf": 0.01, "minimum": -0.5, "exclusiveMaximum": 1}, ["0.07", "-0.50", "0.990", '"x"'], ["0.071", "1", "1.0", "-0.51"]),
    "sign of any spelling": ({"exclusiveMinimum": 0}, ["1e-400", "0.1", "1E5"], ["0", "-0.0", "0e5", "-1e-4"]),
    "surrogate pairs": ({"type": "string", "pattern": "^.$"}, ['"\\ud83d\\ude00"', '"\U0001f600"', '"\\u0061"'], ['"\\ud83d"', '"\\ude00"', '"ab"', '"\\n"']),
    "dependencies": ({"dependentRequired": {"a": ["b"]}}, ['{"a":1,"b":1}', '{"b":1,"a":1}', '{"b":1}', "{}"], ['{"a":1}', '{"a":1,"c":1}']),
    "unevaluated": (
        {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, True], "unevaluatedProperties": False},
        ['{"a":1}', '{"a":1,"b":1}', "{}"], ['{"c":1}', '{"b":2}'],
    ),
    "no items of their own": ({"prefixItems": [], "items": False, "type": "array"}, ["[]"], ["[1]"]),
    "date": ({"format": "date", "type": "string"}, ['"2024-02-29"'], ['"2023-02-29"', '"2024-2-29"', '""']),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_texts(name):
    schema, accepted, rejected = CASES[name]
    machine = schema_machine(schema, options=SchemaOptions(integers="all"))
    assert [text for text in accepted if not machine.accepts(text.encode())] == []
    assert [text for text in rejected if machine.accepts(text.encode())] == []


WHOLE = ["0", "7", "-3", "10", "1815"]
OTHERWISE = ["-0", "0.0", "7.0", "-3.00", "1e1", "10e0", "1815.000", "07", "+7"]
"""The same numbers, as no `json.dumps` writes an int."""


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"type": "integer", "minimum": -3},
        {"type": "integer", "minimum": -3, "maximum": 2000},
        {"type": ["integer", "null"]},
        {"enum": [0, 7, -3, 10, 1815]},
        {"anyOf": [{"const": value} for value in (0, 7, -3, 10, 1815)]},
        {"type": "number", "multipleOf": 1},
        {"allOf": [{"type": "number"}, {"type": "integer"}]},
        {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    ],
)
def test_integers_are_written_plainly(schema):
    """By default, so that `json.loads` gives an int, with bounds and without; the standard's other spellings by option."""
    machine = schema_machine(schema)
    assert [text for text in WHOLE if not machine.accepts(text.encode())] == []
    assert [text for text in OTHERWISE if machine.accepts(text.encode())] == []
    every = schema_machine(schema, options=SchemaOptions(integers="all"))
    assert all(every.accepts(text.encode()) for text in [*WHOLE, "-0", "0.0", "7.0", "-3.00"])


@pytest.mark.parametrize("draft", [3, 4, 6, 7])
def test_integers_of_every_draft(draft):
    """In drafts 3 and 4 an integer is written without a fraction and an exponent; since draft 6 it is a value."""
    texts = ["4", "-0", "4.0", "-4.00", "4e3", "0.0", "1.5", "100", "1e-1"]
    judge, name = getattr(jsonschema, f"Draft{draft}Validator"), "divisibleBy" if draft == 3 else "multipleOf"
    for schema in (
        {"type": "integer"}, {"type": ["integer", "string"]}, {"type": "integer", "maximum": 50}, {"type": "integer", name: 4},
        {"type": "number"}, {"enum": [4, 1.5]},
        *([{"not": {"type": "integer"}}, {"type": "number", "not": {"type": "integer", "minimum": 3}}] if draft > 3 else [{"disallow": "integer"}]),
    ):
        machine = schema_machine({"$schema": f"http://json-schema.org/draft-0{draft}/schema#"} | schema, options=SchemaOptions(integers="all"))
        narrowed = "maximum" in schema or name in schema or "enum" in schema  # no exponents: docs/limits.md
        for text in texts:
            if not ("e-" in text if "not" in schema else narrowed and "e" in text):
                assert machine.accepts(text.encode()) == judge(schema).is_valid(json.loads(text)), (schema, text)


def test_other_numbers_are_the_standards():
    for schema in ({"type": "number"}, {"minimum": 0}, {}, {"type": "number", "not": {"type": "integer"}}):
        machine = schema_machine(schema)
        assert machine.accepts(b"1.50")
        assert machine.accepts(b"1.0") == ("not" not in schema)


@pytest.mark.parametrize("name", CASES)
def test_no_dead_ends(name):
    """Every control can end its frame, and wherever a called frame may end, its caller can go on and end too."""
    check_ends(schema_machine(CASES[name][0]))


def check_ends(machine):
    """Fails where a frame may end and its caller has no way on."""
    moves = [sorted({(int(machine.entry_next[e]), machine.pushes[machine.entry_push[e]]) for e in entries(machine, c)}) for c in range(machine.num_controls)]  # fmt: skip
    ends = frame_ends(machine, moves)
    for control in range(1, machine.num_controls):
        assert ends[control], control
        for target, push in moves[control]:
            for symbol, _ in reversed(push):
                for end in ends[target]:
                    assert ends[machine.ret[end, symbol]], (control, target, symbol, end)
                target = next(int(machine.ret[end, symbol]) for end in ends[target])
    assert all(machine.end[machine.ret[end, machine.stack[0]]] for end in ends[machine.start])


def entries(machine, control):
    """Entries of a control that are moves."""
    return [
        e
        for action in set(machine.action[control].tolist())
        for e in range(machine.entry_offset[action], machine.entry_offset[action + 1])
        if machine.entry_next[e] != RETURN
    ]


def frame_ends(machine, moves):
    """Per control the controls of its frame, reached from it, at which the frame may end."""
    returns = [(machine.entry_next[machine.entry_offset[:-1][row]] == RETURN).any() for row in machine.action]
    ends = [{c} if c and (returns[c] or machine.end[c]) else set() for c in range(machine.num_controls)]
    changed = True
    while changed:
        changed = False
        for control in range(machine.num_controls - 1, 0, -1):
            before = len(ends[control])
            for target, push in moves[control]:
                after = {target}
                for symbol, _ in reversed(push):
                    after = {int(machine.ret[end, symbol]) for t in after for end in ends[t]} - {0}
                for t in after:
                    ends[control] |= ends[t]
            changed |= len(ends[control]) > before
    return ends


def test_white_space():
    schema = {"properties": {"a": {"items": {}}}}
    texts = {
        "compact": '{"a":[1,2],"b":3}',
        "spaced": '{"a": [1, 2], "b": 3}',
        "mixed": '{"a":[1, 2],"b": 3}',
        "wide": '{"a":  1}',
    }
    accepted = {
        kind: [name for name, text in texts.items() if schema_machine(schema, options=SchemaOptions(whitespace=kind)).accepts(text.encode())]
        for kind in ("compact", "optional", "spaced")
    }  # fmt: skip
    assert accepted == {"compact": ["compact"], "optional": ["compact", "spaced", "mixed"], "spaced": ["spaced"]}


@pytest.mark.parametrize("schema", [True, PERSON, {"items": {"items": {"maxLength": 40}, "maxItems": 99}, "maxItems": 50}])
def test_indented(schema):
    machine = schema_machine(schema, options=SchemaOptions(whitespace="indented", max_indent=8))
    values = (
        [{"name": "a", "kids": [{"name": "b"}]}, {"name": "c", "x": [[], {}]}] if schema == PERSON else [[["a"], [], [1, 2]], []]
    )
    for value in values:
        for indent in (None, 0, 2):
            assert machine.accepts(json.dumps(value, indent=indent).encode()), (value, indent)
        text = json.dumps(value, indent=2)
        for wrong in (text.replace("\n", "\n" + " " * 9, 1), text.replace("\n", "\n\n", 1), text + "\n", "\n" + text):
            assert wrong == text or not machine.accepts(wrong.encode()), wrong
    assert not schema_machine(schema).accepts(json.dumps(values[0], indent=2).encode())


def test_no_dead_ends_in_indented_texts():
    for schema in (
        PERSON,
        {"items": {"items": {"maxLength": 40}, "maxItems": 99}, "minItems": 3, "maxItems": 50, "type": "array"},
    ):
        check_ends(schema_machine(schema, options=SchemaOptions(whitespace="indented", max_indent=3)))


def test_escapes():
    schema = {"properties": {"é": {"enum": ["a\n"]}, "f": {"format": "date"}, "g": {"type": "string"}}}
    texts = ['{"é":"a\\n"}', '{"\\u00e9":"a\\n"}', '{"é":"\\u0061\\n"}', '{"f":"2024-01-0\\u0031"}', '{"g":"\\u0061\\/"}']
    accepted = {}
    for words, strings in (("shortest", "where needed"), ("all", "all"), ("shortest", "shortest")):
        machine = schema_machine(schema, options=SchemaOptions(word_escapes=words, string_escapes=strings))
        accepted[words, strings] = [machine.accepts(text.encode()) for text in texts]
    assert accepted == {
        ("shortest", "where needed"): [True, False, False, False, True],
        ("all", "all"): [True, True, True, True, True],
        ("shortest", "shortest"): [True, False, False, False, False],
    }


def test_disguised_keys_are_declared_keys():
    machine = schema_machine({"properties": {"a": {"type": "null"}}}, options=SchemaOptions(word_escapes="all"))
    assert machine.accepts(b'{"\\u0061": null, "b": 1}')
    assert not machine.accepts(b'{"\\u0061": 1}')
    assert not machine.accepts(b'{"a": null, "\\u0061": null}')


ERRORS = {
    "not a schema": ([1], SchemaError, "#", "an object or a boolean"),
    "no JSON": ("{", SchemaError, "#", "not JSON"),
    "type": ({"properties": {"a/b": {"type": "int"}}}, SchemaError, "#/properties/a~1b/type", "unknown type 'int'"),
    "definitions": ({"$defs": 5}, SchemaError, "#/$defs", "an object of schemas"),
    "a definition": ({"items": {"definitions": {"a": [{}]}}}, SchemaError, "#/items/definitions/a", "not list"),
    "the standard": ({"$schema": 5}, SchemaError, "#/$schema", "must be a string"),
    "an anchor": ({"properties": {"a": {"$anchor": {}}}}, SchemaError, "#/properties/a/$anchor", "must be a string"),
    "nothing of all": ({"not": {"allOf": []}}, SchemaError, "#/not/allOf", "at least one"),
    "minimum": ({"items": {"minimum": "1"}}, SchemaError, "#/items/minimum", "must be a number"),
    "reference": ({"$ref": "#/$defs/a"}, SchemaError, "#", "refers to nothing"),
    "other document": ({"$ref": "http://example.org/a"}, UnsupportedSchemaError, "#", "another document"),
    "recursion": ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, SchemaError, "#", "without reading anything"),
    "unique": ({"properties": {"a": {"uniqueItems": True}}}, UnsupportedSchemaError, "#/properties/a/uniqueItems", "not context-free"),
    "pattern": ({"properties": {"a": {"pattern": r"(a)\1"}}}, UnsupportedSchemaError, "#/properties/a/pattern", "back-reference"),
    "format": ({"format": "idn-hostname"}, UnsupportedSchemaError, "#/format", "cannot be enforced"),
    "unsatisfiable": ({"type": "string", "minLength": 2, "maxLength": 1}, UnsatisfiableSchemaError, "#", "no JSON value"),
    "required member impossible": ({"type": "object", "required": ["a"], "properties": {"a": False}}, UnsatisfiableSchemaError, "#", "no JSON value"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_place(name):
    schema, kind, pointer, words = ERRORS[name]
    with pytest.raises(kind, match=words) as caught:
        schema_machine(schema)
    assert type(caught.value) is kind
    assert caught.value.pointer == pointer
    assert f"at {pointer}" in str(caught.value)


def test_limits_are_named():
    for schema, limit in (
        ({"multipleOf": 4001}, "max_modulus"),
        ({"minLength": 2000, "pattern": "x$"}, "max_length"),
        ({"type": "object", "maxProperties": 300}, "max_count"),
    ):
        with pytest.raises(LimitError) as caught:
            schema_machine(schema)
        assert caught.value.limit == limit


@pytest.mark.parametrize(
    ("draft", "schema", "accepted", "rejected"),
    [
        ("4", {"minimum": 1, "exclusiveMinimum": True}, ["2"], ["1"]),
        ("4", {"const": 1, "extends": {"type": "null"}}, ["2"], []),
        ("7", {"$ref": "#/definitions/a", "type": "null", "definitions": {"a": {"type": "integer"}}}, ["1"], ["null"]),
        ("2019-09", {"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {"type": "integer"}}}, ["1"], ["4", "null"]),
        ("7", {"prefixItems": [False]}, ["[1]"], []),
        ("2020-12", {"items": {"$anchor": "x", "type": "null"}, "not": {"$ref": "#x"}}, ["[null]", "1"], ["null", "[1]"]),
        ("2020-12", {"$id": "http://a.org/b/c", "$ref": "d", "$defs": {"x": {"$id": "d", "type": "null"}}}, ["null"], ["1"]),
        ("2020-12", {"$ref": "a:d", "$defs": {"x": {"$id": "a:d", "const": 1}, "y": {"other": {"$id": "a:d", "const": 2}}}}, ["1"], ["2"]),
        ("7", {"$ref": "#x", "definitions": {"x": {"$id": "#x", "const": 1}}, "other": {"$id": "#x", "const": 2}}, ["1"], ["2"]),
        ("3", {"type": ["string", {"type": "array", "items": {"divisibleBy": 2}}], "disallow": []}, ['"a"', "[2]"], ["[1]", "1"]),
    ],
)
def test_drafts(draft, schema, accepted, rejected):
    machine = schema_machine(schema, options=SchemaOptions(draft=draft))
    assert [machine.accepts(text.encode()) for text in accepted] == [True] * len(accepted)
    assert [machine.accepts(text.encode()) for text in rejected] == [False] * len(rejected)


def ordered(rng, depth):
    """A random schema of objects, and the key orders of its branches: one from each part of allOf, merged in turn."""
    if not depth or rng.random() < 0.2:
        keys = tuple(rng.sample("abcde", rng.randint(1, 4)))
        return {"properties": {key: {"const": 0} for key in keys}}, {keys}
    schemas, orders = zip(*(ordered(rng, depth - 1) for _ in range(2)))
    if rng.random() < 0.5:
        return {"anyOf": list(schemas)}, orders[0] | orders[1]
    return {"allOf": list(schemas)}, {tuple(dict.fromkeys(a + b)) for a, b in itertools.product(*orders)}


def test_objects_may_keep_to_the_order_of_any_branch():
    """Of branches inside others, too, where one branch's keys stand in another's in the same order."""
    rng, contained = random.Random(1), 0
    for _ in range(40):
        schema, orders = ordered(rng, 3)
        machine = schema_machine({"type": "object"} | schema, options=SchemaOptions(whitespace="compact"))
        for order in orders:
            assert machine.accepts(b"{%s}" % b",".join(b'"%s":0' % key.encode() for key in order)), (schema, order)
            contained += any(order != other and all(key in keys for key in order) for other in orders for keys in [iter(other)])
    assert contained > 20


def test_text_of_a_schema_keeps_its_decimals():
    machine = schema_machine('{"const": 0.10000000000000000001}')
    assert machine.accepts(b"0.10000000000000000001")
    assert not machine.accepts(b"0.1")


def test_decimals_do_not_look_like_strings():
    machine = schema_machine('{"properties": {"a": {"const": 0.10000000000000000001}, "b": {"const": "Decimal"}}}')
    assert machine.accepts(b'{"a": 0.10000000000000000001, "b": "Decimal"}')
    assert not machine.accepts(b'{"a": "Decimal"}')


def test_long_word_lists_share_their_ends():
    words = [f"{i:04d} and the same end of every word" for i in range(2000)]
    assert schema_machine({"enum": words}).num_controls < 200


def test_machine_is_deterministic_and_shares_references():
    tree = {
        "$defs": {"t": PERSON | {"properties": {"l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}}}},
        "$ref": "#/$defs/t",
    }
    machine = schema_machine(tree)
    assert machine.deterministic
    assert (machine.entry_offset[1:] - machine.entry_offset[:-1] <= 1).all()
    both = schema_machine({"properties": {"a": tree["$defs"]["t"], "b": tree["$defs"]["t"]}, "$defs": tree["$defs"]})
    assert both.num_controls < machine.num_controls + 200
