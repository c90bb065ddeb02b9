"""Inputs that are nearly valid: a valid one with one, two or three structured changes."""

from __future__ import annotations

import copy
import random
from typing import Any

KEYWORDS = [
    "type", "properties", "items", "prefixItems", "required", "enum", "const", "anyOf", "allOf", "oneOf", "not", "if", "then", "else", "$ref",
    "$defs", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minItems", "maxItems",
    "uniqueItems", "contains", "minContains", "propertyNames", "patternProperties", "additionalProperties", "dependentRequired",
    "dependentSchemas", "minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems", "$id", "$anchor", "$schema", "nullable",
    "$dynamicRef", "definitions", "additionalItems", "dependencies", "title", "default",
]  # fmt: skip
"""Names that mean something in a schema, to be put where they do not belong."""

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 40, 2**28, 2**31 - 1, 2**31, 2**53 - 1, 2**63, 2**70, -(2**70), 0.1, 1e-7, 1e300, float("inf"), float("nan"), "", "a", "#", "#/$defs/a",
    "#/nowhere", "/a~2", "^a*$", "(", "[z-a]", "\\", "(?<=a", "a{99999}", "\ud800", "\0", "é" * 40, "date", "uuid", "string", "integer",
    "object", "array", "http://[", [], [[]], [None], ["a", "a"], [{}], {}, {"": {}}, {"a": 5}, {"type": "string"}, b"a", (1,), {1: 2}, {"a"},
    object, 1j, {"const": {"\udc00": [1]}}, {"minLength": 40}, {"minItems": 2**27, "items": {"minLength": 2**27}},
]  # fmt: skip
"""Values of wrong types, of extreme sizes, and of other keywords."""

SCHEMAS: list[Any] = [
    {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["x", 1, None]}, "minItems": 1, "maxItems": 3, "uniqueItems": True},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"c": {"$ref": "#/$defs/a"}}, "maxProperties": 2}}},
    {"anyOf": [{"type": "number", "multipleOf": 0.5}, {"type": "string", "pattern": "^[a-c]+$"}], "not": {"const": 1}},
    {"if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["l"]}, "else": {"required": ["m"]}},
    {"oneOf": [{"type": "string", "format": "date"}, {"type": "array", "prefixItems": [{"type": "boolean"}], "items": False}]},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "propertyNames": {"maxLength": 3}, "minProperties": 1},
    {"allOf": [{"properties": {"a": {}}, "dependentRequired": {"a": ["b"]}}, {"properties": {"b": {}}}], "unevaluatedProperties": False},
    {"type": "array", "contains": {"const": 1}, "minContains": 1, "maxContains": 2, "maxItems": 4},
]

PATTERNS = [
    r"(yes|no), because [a-z ]{3,30}\.", r"\d{4}-\d\d-\d\d", r"(?i)[a-f]+\b(?!x)", r"(?P<n>a|b)*?c{2,5}", r"(?x) a # c", r"[^\W\d_]+(?:\.\w+)*",
    r"^(?:a(?=b)b|(?<!c)d)$", r"\p{Lu}\p{Ll}{1,8}", r"[[:alpha:]]+|\u00e9?",
]  # fmt: skip

GRAMMARS = [
    'start: expr\nexpr: term (("+" | "-") term)*\nterm: NUMBER | "(" expr ")"\nNUMBER: /[0-9]+/\n%ignore " "\n',
    'start: pair ("," pair)*\npair: KEY "=" value\nKEY: /[a-z]{1,4}/\nvalue: ESCAPED_STRING | KEY\n%import common.ESCAPED_STRING\n',
    'start: _list{item}\n_list{x}: "[" x ("," x)* "]"\nitem: "a".."f" | start\n',
    'start: "x"~2..4 [tail]\ntail: T.2 | U\nT: "t"i\nU: /u+?v/ | "w" -> w\n',
]

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "g", "strict": True, "parameters": {"properties": {"b": {"enum": [1, "x"]}}, "required": ["b"]}}},
    {"type": "function", "function": {"name": "h"}},
]

FORMATS: list[Any] = [
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type": "null"}}}}},
    {"type": "json_object"},
    {"type": "regex", "pattern": "a|b"},
    {"type": "grammar", "grammar": 'start: "a"'},
    {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": ["<f"],
            "tags": [{"begin": "<f>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}}, "end": "</f>"}],
        },
    },
]

_MARKS = [
    *"()[]{}|*+?^$\\.-:,=<>!~\"'/#@&%\n\t\0 a9é", "(?", "(?=", "(?P<", "{,", "{2}", "..", "->", "%import ", "\\p{", "\\u", "[^", "\ud800",
]  # fmt: skip


def nodes(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values in a value, itself among them."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, child in inner for path in nodes(child, (*at, key)))]


def changed_value(rng: random.Random, value: Any, keywords: list[str] = KEYWORDS) -> Any:
    """A JSON value with one to three members replaced, renamed, removed, moved or wrapped."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 2, 3])):
        path = rng.choice(nodes(value))
        if not path:
            value = rng.choice([value, [value], {rng.choice(keywords): value}]) if rng.random() < 0.8 else rng.choice(VALUES)
            continue
        holder, key = value, path[-1]
        for name in path[:-1]:
            holder = holder[name]
        kind = rng.randrange(6)
        if kind < 2:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 2:
            holder[key] = {rng.choice(keywords): holder[key]}
        elif kind == 3 and isinstance(holder, dict):
            holder[rng.choice(keywords)] = holder.pop(key)
        elif kind == 4:
            del holder[key]
        elif isinstance(holder, dict):
            holder[rng.choice(keywords)] = copy.deepcopy(holder[key])
        else:
            holder.append(copy.deepcopy(rng.choice(VALUES)))
    return value


def changed_text(rng: random.Random, text: str) -> str:
    """A text with one to three marks of its syntax put in, left out or doubled, or a piece of it moved."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        mark = rng.choice(_MARKS)
        text = rng.choice([text[:i] + mark + text[i:], text[:i] + text[i + 1 :], text[:i] + text[i:j] * 2 + text[j:], text[j:] + text[:j]])
        if rng.random() < 0.1:
            text = text.replace("2", rng.choice(["99999999999", "1e9", "65536", "0"]))
    return text


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes of a file with some replaced, left out or doubled, or cut short."""
    for _ in range(rng.choice([1, 2, 4])):
        i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        j = min(j, i + rng.choice([1, 4, 64]))
        data = rng.choice([data[:i] + rng.randbytes(j - i) + data[j:], data[:i] + data[j:], data[:j] + data[i:], data[:i]])
    return data


def byte_level_tokenizer() -> dict[str, Any]:
    """A `tokenizer.json` of bytes and two merges."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printed]
    letters = [chr(b) for b in printed] + [chr(256 + i) for i in range(len(others))]
    return {
        "version": "1.0",
        "added_tokens": [{"id": 258, "content": "<end>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate([*letters, "ab", "abc"])},
            "merges": ["a b", "ab c"],
            "unk_token": None,
            "fuse_unk": False,
        },
    }
