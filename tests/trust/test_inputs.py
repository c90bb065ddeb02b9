"""Whatever a stranger sends gives a constraint or an error of our own, soon: numbers, types, keys, cycles and depths of inputs."""

import json
import time
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest

import fsa_compile
from fsa_compile import CompileLimits, ConstraintError, DefectError, LimitError, SchemaError, Vocabulary
from fsa_compile.formats.request import FormatError
from fsa_compile.inputs.guard import guarded
from fsa_compile.inputs.json_input import check_json, digits_of, json_text, parse_json
from fsa_compile.python_types import TypeTextError, UnsupportedTypeError
from fsa_compile.python_types.marks import Ge, Le, MultipleOf

LETTERS = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], stop_ids=[256])
LIMITS = CompileLimits(max_seconds=2)


class Hostile:
    """A value that fails whatever one does with it."""

    def __repr__(self):
        raise RuntimeError("hostile")

    def __eq__(self, other):
        raise RuntimeError("hostile")

    __hash__ = object.__hash__


def nested(depth: int, key: str = "items") -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {key: schema}
    return schema


def shared(depth: int) -> dict[str, Any]:
    """A schema of few objects whose text has 2 ** depth."""
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema, "b": schema}}
    return schema


def shared_type(depth: int) -> Any:
    """A type of few objects that has 2 ** depth parts."""
    found: Any = int
    for _ in range(depth):
        found = tuple[found, found]
    return found


def nested_type(depth: int) -> Any:
    found: Any = int
    for _ in range(depth):
        found = list[found]
    return found


def takes(given: Any) -> Any:
    def called(value): ...

    called.__annotations__["value"] = given
    return called


CYCLE: dict[str, Any] = {}
CYCLE["properties"] = {"a": CYCLE}

# schema: the error, the pointer, and words of the message
SCHEMAS: dict[str, tuple[Any, type[ConstraintError], str]] = {
    "huge exponent of a count": ('{"minLength":1e99999999}', LimitError, "#/minLength needs more than max_digits"),
    "huger": ('{"minLength":1e999999999}', LimitError, "max_digits"),
    "exponent past Decimal's": ('{"const":1e9999999999999999999999}', LimitError, "#/const"),
    "bound": ('{"maximum":1e999999999}', LimitError, "#/maximum"),
    "small bound": ('{"minimum":1e-99999}', LimitError, "max_digits"),
    "factor": ('{"multipleOf":1e-999999}', LimitError, "max_digits"),
    "member of a list": ('{"enum":[0, 1e999999999]}', LimitError, "#/enum/1"),
    "annotation": ('{"default":{"a/b":-1e999999999}}', LimitError, "#/default/a~1b"),
    "integer": ({"minimum": 10**1500}, LimitError, "max_digits"),
    "past Python's conversion": ({"enum": [10**5000]}, LimitError, "max_digits"),
    "past Python's conversion, in text": ('{"minimum":%s}' % ("9" * 5000), LimitError, "max_digits"),
    "exact decimal": ({"minimum": Decimal("1e-99999999")}, LimitError, "max_digits"),
    "NaN": ({"const": Decimal("NaN")}, SchemaError, "#/const"),
    "infinite": ({"minimum": Decimal("Infinity")}, SchemaError, "#/minimum"),
    "count of 2**64": ({"maxLength": 2**64}, SchemaError, "#/maxLength"),
    "count of 1e30": ({"maxLength": 1e30}, SchemaError, "#/maxLength"),
    "count of 1e400": ('{"maxItems":1e400}', SchemaError, "#/maxItems"),
    "count of null": ({"minLength": None}, SchemaError, "#/minLength"),
    "items": ({"items": 5}, SchemaError, "#/items"),
    "properties": ({"properties": {"a": 5}}, SchemaError, "#/properties/a"),
    "additionalProperties": ({"additionalProperties": None}, SchemaError, "#/additionalProperties"),
    "contains": ({"contains": 3}, SchemaError, "#/contains"),
    "unevaluatedItems": ({"unevaluatedItems": 5}, SchemaError, "#/unevaluatedItems"),
    "prefixItems": ({"prefixItems": [True, None]}, SchemaError, "#/prefixItems/1"),
    "address": ({"$id": "http://a/", "$defs": {"x": {"$id": "//[::1"}}}, SchemaError, "#/$defs/x/$id"),
    "reference": ({"$id": "http://a/", "$ref": "//[::1"}, ConstraintError, "#"),
    "reference with a negative index": ({"$ref": "#/enum/-1", "enum": [{}, {}]}, SchemaError, "refers to nothing"),
    "dynamic reference": ({"$dynamicRef": "#x"}, SchemaError, "$dynamicRef '#x' refers to nothing"),
    "nested": (nested(2_000), LimitError, "max_nesting"),
    "nested text": ('{"items":' * 100_000, LimitError, "max_nesting"),
    "cycle": (CYCLE, SchemaError, "#/properties/a"),
    "shared": (shared(24), LimitError, "max_values"),
    "shared and nested": (shared(400), LimitError, "max_nesting"),
    "tuple as a key": ({"properties": {("a",): {}}}, SchemaError, "#/properties"),
    "bytes as a key": ({b"a": 1}, SchemaError, "a key is of type bytes"),
    "number as a key": ({"properties": {1: {}}}, SchemaError, "a key is of type int"),
    "set": ({"enum": {1, 2}}, SchemaError, "#/enum"),
    "hostile value": ({"const": Hostile()}, SchemaError, "#/const"),
    "bytes that are no text": (b"\xff{}", SchemaError, "utf-8"),
    "long": ({"const": "x" * (17 << 20)}, LimitError, "max_input"),
    "count that no text has": ({"minLength": 2**31}, SchemaError, "#/minLength"),
    "elements that no text has": ('{"items":{"minItems":1e15}}', SchemaError, "#/items/minItems"),
    "half of a character in a key": ({"properties": {"a": {"required": ["b", "\ud800"]}}}, SchemaError, "#/properties/a/required/1"),
    "half of a character in a name": ({"properties": {"\udc00/": {}}}, SchemaError, "#/properties/\\udc00~1"),
    "half of a character in a list": ('{"enum":["a", {"b": ["\\ud83d"]}]}', SchemaError, "#/enum/1/b/0"),
    "half of a character in a value": ({"not": {"const": {"\ud800": 1}}}, SchemaError, "#/not/const/\\ud800"),
    "half of a character in a need": ({"dependentRequired": {"a": ["\ud800"]}}, SchemaError, "#/dependentRequired/a/0"),
    "half of a character in a dependency": ({"dependencies": {"\ud800": ["a"]}}, SchemaError, "#/dependencies/\\ud800"),
    "half of a character in a pattern": ({"patternProperties": {"\ud800": {}}}, SchemaError, "#/patternProperties"),
    "pattern that is none": ({"x-fsa-spelling": 5}, ConstraintError, "#/x-fsa-spelling"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas(name):
    schema, kind, words = SCHEMAS[name]
    start = time.perf_counter()
    with pytest.raises(kind) as caught:
        fsa_compile.compile_json_schema(schema, LETTERS, limits=LIMITS)
    assert time.perf_counter() - start < 20
    assert words in str(caught.value)
    assert not isinstance(caught.value, DefectError)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("name", ["bound", "items", "cycle", "tuple as a key", "hostile value", "nested", "past Python's conversion"])
def test_schemas_in_requests(name):
    schema, kind, _ = SCHEMAS[name]
    kind = FormatError if kind is SchemaError and name != "items" else kind
    with pytest.raises(ConstraintError):
        fsa_compile.compile_yaml_schema(schema, LETTERS, limits=LIMITS)
    with pytest.raises(ConstraintError):
        fsa_compile.compile_structured_outputs({"json": schema}, LETTERS, limits=LIMITS)
    if not isinstance(schema, str):
        wrapped = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        with pytest.raises(kind, match="response_format"):
            fsa_compile.compile_response_format(wrapped, LETTERS, limits=LIMITS)
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        with pytest.raises(kind, match="tools"):
            fsa_compile.compile_response_format(None, LETTERS, tools=tools, tool_choice="required", limits=LIMITS)


CALLS: dict[str, tuple[Any, type[ConstraintError]]] = {
    "items past int64": (lambda: fsa_compile.compile_items([[2**70]], 2048), ConstraintError),
    "no text": (lambda: fsa_compile.parse(list[int], 5), TypeTextError),
    "no text at all": (lambda: fsa_compile.parse_call(len, None), ConstraintError),
    "nested text": (lambda: fsa_compile.parse(Any, "[" * 200_000 + "]" * 200_000), TypeTextError),
    "exponent": (lambda: fsa_compile.parse(float, "1e999999999"), TypeTextError),
    "exponent of an int": (lambda: fsa_compile.parse(Annotated[int, Ge(0)], "1e999999999"), TypeTextError),
    "bound of a Decimal": (lambda: fsa_compile.compile_type(Annotated[Decimal, Ge(Decimal("1e999999999"))], LETTERS), UnsupportedTypeError),
    "bound that is none": (lambda: fsa_compile.compile_type(Annotated[int, Le(Hostile())], LETTERS), UnsupportedTypeError),
    "factor": (lambda: fsa_compile.compile_type(Annotated[Decimal, MultipleOf(Decimal("1e-99999"))], LETTERS), UnsupportedTypeError),
    "literal": (lambda: fsa_compile.compile_type(Literal[10**5000], LETTERS), UnsupportedTypeError),
    "keywords that are no list": (lambda: fsa_compile.SchemaOptions(unenforced=5), ConstraintError),
    "type that is none": (lambda: fsa_compile.compile_type(Hostile(), LETTERS), ConstraintError),
    "type of few objects": (lambda: fsa_compile.compile_type(shared_type(24), LETTERS, limits=LIMITS), LimitError),
    "type of few objects that is read": (lambda: fsa_compile.parse(shared_type(60), "[]"), LimitError),
    "type of few objects in a call": (lambda: fsa_compile.compile_call(takes(shared_type(24)), LETTERS, limits=LIMITS), LimitError),
    "deep type": (lambda: fsa_compile.compile_type(nested_type(100_000), LETTERS, limits=LIMITS), LimitError),
    "half of a character in a tag": (lambda: fsa_compile.ToolTags(begin="<a>", end="\ud800"), ConstraintError),
    "folder that is none": (lambda: fsa_compile.read_manifest(None), ConstraintError),
    "cache that is none": (lambda: fsa_compile.CompileCache(5), ConstraintError),
    "registry that is none": (lambda: fsa_compile.Registry(b"a"), ConstraintError),
    "limits of a folder": (lambda: fsa_compile.compile_folder({"a": {"regex": "a"}}, LETTERS, ".", workers=1, limits=5), ConstraintError),
    "limits": (lambda: fsa_compile.compile_json_schema({}, LETTERS, limits=5), ConstraintError),
    "options": (lambda: fsa_compile.compile_json_schema({}, LETTERS, options=5), ConstraintError),
    "schema as text": (lambda: fsa_compile.compile_structured_outputs({"json": '{"minimum":1e999999}'}, LETTERS), LimitError),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    call, kind = CALLS[name]
    with pytest.raises(kind):
        call()


def test_long_numbers_that_are_read():
    assert fsa_compile.parse(int, "9" * 5000) == 10**5000 - 1
    assert fsa_compile.dump(int, 10**5000) == "1" + "0" * 5000
    assert fsa_compile.compile_type(Annotated[int, Hostile()], LETTERS).num_nodes > 1  # a mark that nobody knows says nothing


def test_numbers_keep_their_meaning():
    value = parse_json('[1.50, 1e2, 0.1000000000000000055511151231257827, 12345678901234567890, -0.0]', LIMITS, SchemaError)
    assert value == [1.5, 100.0, Decimal("0.1000000000000000055511151231257827"), 12345678901234567890, 0.0]
    assert [digits_of(x) for x in (10**99, Decimal("1e-7"), Decimal("123e5"), 7, True)] == [99, 7, 8, 0, 0]


def test_texts_tell_values_apart():
    values = [Decimal("1.5"), "1.5", {"a": Decimal("1.25")}, {"a": "1.25"}, True, 1, "true", [None], ["null"]]
    texts = [json_text(value) for value in values]
    assert len(set(texts)) == len(texts)
    assert [json.loads(text) for text in texts] == [1.5, "1.5", {"a": 1.25}, {"a": "1.25"}, True, 1, "true", [None], ["null"]]


def test_counts_are_those_of_the_text():
    for limit, allowed in (("max_values", 2**5 - 1 + 2**4 - 1), ("max_nesting", 9)):
        assert check_json(shared(4), CompileLimits(**{limit: allowed}), SchemaError) == shared(4)
        with pytest.raises(LimitError, match=limit):
            check_json(shared(4), CompileLimits(**{limit: allowed - 1}), SchemaError)


def test_limits_for_requests():
    limits = CompileLimits.for_requests(max_seconds=1)
    assert (limits.max_seconds, limits.max_input, limits.max_bytes) == (1, 256 << 10, 200 << 20)
    with pytest.raises(ConstraintError, match="max_digits"):
        CompileLimits(max_digits=5_000)


def test_other_exceptions_become_defects():
    @guarded
    def broken(text, *, how=0):
        return {}[text]

    with pytest.raises(DefectError, match=r"broken met a defect(.|\n)*KeyError(.|\n)*input 2c26b46b68ffc68f") as caught:
        broken("foo")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(DefectError, match="cannot print"):
        broken(Hostile())
    with pytest.raises(TypeError, match="no argument 'other'"):
        broken("foo", other=1)
