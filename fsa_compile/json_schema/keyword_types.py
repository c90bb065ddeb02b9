"""What the value of each keyword must be, and which draft has it: schemas are checked before they are read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fsa_compile.errors import SchemaError
from fsa_compile.inputs.json_input import escaped
from fsa_compile.json_schema.number_conditions import is_number
from fsa_compile.unicode.code_points import is_surrogate

_MOST_COUNT = 1 << 53
"""Counts from here on are refused: no text is that long."""


class _Kind(NamedTuple):
    """A kind of value: what to call it, whether a value is of it, and the parts of it that are schemas, by their names."""

    name: str
    fits: Callable[[Any], bool]
    parts: Callable[[Any], Iterator[tuple[str, Any]]] = lambda value: iter(())


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_count(value: Any) -> bool:
    return is_number(value) and 0 <= value < _MOST_COUNT and value == int(value)


def _has_text_keys(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _named(value: Any) -> Iterator[tuple[str, Any]]:
    return iter(value.items())


def _numbered(value: Any) -> Iterator[tuple[str, Any]]:
    return ((str(i), item) for i, item in enumerate(value))


_SCHEMA = _Kind("a schema (an object, true or false)", _is_schema)
_SCHEMAS = _Kind("a list of schemas", lambda value: isinstance(value, list), _numbered)
_BRANCHES = _Kind("a list of schemas, at least one", lambda value: isinstance(value, list) and len(value) > 0, _numbered)
_MAP = _Kind("an object of schemas", _has_text_keys, _named)
_COUNT = _Kind("an integer from 0 to 2**53 - 1", _is_count)
_NUMBER = _Kind("a number", is_number)
_POSITIVE = _Kind("a positive number", lambda value: is_number(value) and value > 0)
_TEXT = _Kind("a string", lambda value: isinstance(value, str))
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_BOUND = _Kind("a number, or true or false", lambda value: isinstance(value, bool) or is_number(value))
_LIST = _Kind("a list", lambda value: isinstance(value, list))
_TYPE = _Kind("a name or a list of names", lambda value: isinstance(value, (str, list)))
_REQUIRED = _Kind("a list of strings", lambda value: isinstance(value, bool) or _are_texts(value))
_ITEMS = _Kind("a schema or a list of schemas", lambda value: _is_schema(value) or isinstance(value, list))
_TEXTS_BY_NAME = _Kind("an object of lists of strings", lambda v: _has_text_keys(v) and all(map(_are_texts, v.values())))
_EITHER_BY_NAME = _Kind(
    "an object of schemas and lists of strings",
    lambda value: _has_text_keys(value) and all(_is_schema(x) or isinstance(x, str) or _are_texts(x) for x in value.values()),
)

_KINDS: dict[str, tuple[int, _Kind]] = {
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), (3, _COUNT)),
    **dict.fromkeys(("minContains", "maxContains"), (2019, _COUNT)),
    **dict.fromkeys(("minimum", "maximum"), (3, _NUMBER)),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), (3, _BOUND)),
    **dict.fromkeys(("properties", "patternProperties"), (3, _MAP)),
    **dict.fromkeys(("additionalProperties", "additionalItems"), (3, _SCHEMA)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), (4, _BRANCHES)),
    **dict.fromkeys(("if", "then", "else"), (7, _SCHEMA)),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), (2019, _SCHEMA)),
    **dict.fromkeys(("contains", "propertyNames"), (6, _SCHEMA)),
    "not": (4, _SCHEMA),
    "items": (3, _ITEMS),
    "prefixItems": (2020, _SCHEMAS),
    "dependentSchemas": (2019, _MAP),
    "dependentRequired": (2019, _TEXTS_BY_NAME),
    "dependencies": (3, _EITHER_BY_NAME),
    **dict.fromkeys(("multipleOf", "divisibleBy"), (3, _POSITIVE)),
    "uniqueItems": (3, _FLAG),
    "type": (3, _TYPE),
    "enum": (3, _LIST),
    "required": (3, _REQUIRED),
    "pattern": (3, _TEXT),
    "format": (3, _TEXT),
    **dict.fromkeys(("$ref", "$schema"), (3, _TEXT)),
    **dict.fromkeys(("$id", "$anchor", "$dynamicAnchor"), (2019, _TEXT)),
    "definitions": (4, _MAP),
    "$defs": (2019, _MAP),
    "$recursiveRef": (2019, _TEXT),
    "$dynamicRef": (2019, _TEXT),
}
"""The draft that a keyword came with, and the kind of its value."""
KEYWORDS = frozenset(_KINDS)
"""Keywords whose values are checked."""


DATA = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose value is an instance and no schema."""
NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose value has names for keys, and no keywords."""
_LATER = {
    4: ("allOf", "anyOf", "oneOf", "not", "minProperties", "maxProperties", "multipleOf"),
    6: ("const", "contains", "propertyNames"),
    7: ("if", "then", "else"),
    2019: (
        "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains",
        "$recursiveRef",
    ),
    2020: ("prefixItems", "$dynamicRef"),
}  # fmt: skip
"""Keywords that say something of values, by the draft that they came with."""
_LAST = {"$recursiveRef": 2019, "dependencies": 7}
"""The last draft of those that a later one has no more."""

_TEXTS = {"enum", "const", "required", "dependentRequired"}
_COMPARED = {"properties", "dependentSchemas", "dependencies"}
"""Keywords whose values, and those whose members' names, texts are compared with."""


def _check_text(value: Any, pointer: str) -> None:
    """Raises `SchemaError` for a string in a JSON value that holds half of a surrogate pair: no text does."""
    if isinstance(value, str):
        half = None if value.isascii() else next((c for c in value if is_surrogate(ord(c))), None)
        if half is not None:
            fix = "Write the character, or both halves of it; a text that was cut may have lost one."
            raise SchemaError(f"a string holds a lone surrogate (U+{ord(half):04X}), which no text has", pointer=pointer, fix=fix)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, str) or not item.isascii():
                _check_text(item, f"{pointer}/{i}")
    elif isinstance(value, dict):
        for name, item in value.items():
            if not name.isascii() or item is not None:
                _check_text(name, f"{pointer}/{escaped(name)}")
                _check_text(item, f"{pointer}/{escaped(name)}")


def check_keywords(schema: dict[str, Any], draft: int, pointer: str) -> None:
    """Raises `SchemaError` for the first keyword of a schema object whose value is of a kind that it cannot be.

    Args:
      draft: keywords that came with later ones are not looked at.
      pointer: of the schema object.
    """
    for keyword, value in schema.items():
        if keyword in _TEXTS:
            _check_text(value, f"{pointer}/{keyword}")
        elif keyword in _COMPARED and isinstance(value, dict):
            _check_text({name: None if _is_schema(part) else part for name, part in value.items()}, f"{pointer}/{keyword}")
        since, kind = _KINDS.get(keyword, (9_999, _FLAG))
        if draft < since:
            continue
        if not kind.fits(value):
            raise SchemaError(f"{keyword!r} must be {kind.name}, not {value!r:.60}", pointer=f"{pointer}/{keyword}")
        parts = _numbered(value) if kind is _ITEMS and isinstance(value, list) else kind.parts(value)
        for name, part in parts:
            if not _is_schema(part):
                name = escaped(name)
                what = f"a schema must be an object or a boolean, not {type(part).__name__}"
                raise SchemaError(what, pointer=f"{pointer}/{keyword}/{name}")


def of_draft(schema: Any, draft: int) -> Any:
    """A schema without the keywords that a draft does not have; parts that have none of them, and data, are shared."""
    alien = {keyword for keyword, last in _LAST.items() if last < draft}
    alien.update(*(keywords for since, keywords in _LATER.items() if since > draft))
    made: dict[tuple[int, bool], Any] = {}

    def kept(part: Any, names: bool) -> Any:
        if not isinstance(part, (dict, list)):
            return part
        if (id(part), names) not in made:
            if isinstance(part, list):
                out: Any = [kept(x, names) for x in part]
                same = all(map(operator.is_, out, part))
            else:
                out = {
                    key: x if not names and key in DATA else kept(x, not names and key in NAMES and isinstance(x, dict))
                    for key, x in part.items() if names or key not in alien
                }  # fmt: skip
                same = len(out) == len(part) and all(map(operator.is_, out.values(), part.values()))
            made[id(part), names] = part if same else out
        return made[id(part), names]

    return kept(schema, False)
