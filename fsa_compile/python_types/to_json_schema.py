"""Shapes to JSON Schema, exactly: what the schema accepts is what `json_values` reads.

`x-fsa-spelling` is our own keyword: a pattern for the whole string, or the whole text of a number (`int` has no fraction).
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from fsa_compile.python_types import shapes, spellings
from fsa_compile.python_types.shapes import Shape, TypeShape
from fsa_compile.python_types.type_errors import UnsupportedTypeError

SPELLING = "x-fsa-spelling"
_FINITE = 10
"""A set whose element type has at most this many values is kept free of repetitions."""


def schema_of(shape: TypeShape) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a type. Raises `UnsupportedTypeError`: JSON has no exact form for a part."""
    writer = _Writer(shape)
    root = writer.schema(shape.root, shape.name)
    definitions = {_key(name): writer.schema(found, name) for name, found in shape.definitions.items()}
    if writer.needs_anything:
        definitions[_ANYTHING] = _anything()
    return {**root, "$defs": definitions} if definitions else root


def _key(name: str) -> str:
    """A definition's name without characters that references would have to escape."""
    return "".join(c if c.isalnum() or c == "_" else f".{ord(c):x}." for c in name)


class _Writer:
    def __init__(self, shape: TypeShape) -> None:
        self._shape = shape
        self.needs_anything = False

    def schema(self, shape: Shape, place: str) -> dict[str, Any]:
        match shape:
            case shapes.Nothing():
                return {"type": "null"}
            case shapes.Truth():
                return {"type": "boolean"}
            case shapes.Anything():
                self.needs_anything = True
                return {"$ref": f"#/$defs/{_ANYTHING}"}
            case shapes.Number():
                return _number(shape)
            case shapes.Text():
                return _text(shape)
            case shapes.Binary():
                return {"type": "string", SPELLING: spellings.BASE64}
            case shapes.Special():
                return {"type": "string", SPELLING: shape.pattern}
            case shapes.Options():
                return _options(shape, place)
            case shapes.Many():
                return self._many(shape, place)
            case shapes.Row():
                items = [self.schema(x, f"{place}[{i}]") for i, x in enumerate(shape.items)]
                return _row(items, len(items))
            case shapes.Mapping():
                return self._mapping(shape, place)
            case shapes.Record():
                return self._record(shape, place)
            case shapes.Wrapped():
                return self.schema(shape.inner, place)
            case shapes.Either():
                return {"anyOf": [self.schema(x, place) for x in shape.members]}
            case shapes.Reference():
                return {"$ref": f"#/$defs/{_key(shape.name)}"}

    def _many(self, shape: shapes.Many, place: str) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "array", "items": self.schema(shape.item, f"{place}[]"), **_sizes(shape, "Items")}
        if shape.is_set:
            count = _finite(self._shape, shape.item)
            if count is not None and count <= _FINITE:
                out["uniqueItems"] = True
            elif shape.low > 1:
                raise UnsupportedTypeError(
                    "elements of a set may be written twice, so that it may become smaller than its least size", place=place,
                    fix=f"Leave the least size out, or let the elements be a Literal or an Enum of at most {_FINITE} values.",
                )  # fmt: skip
        return out

    def _mapping(self, shape: shapes.Mapping, place: str) -> dict[str, Any]:
        key = self._shape.resolve(shape.key)
        value = self.schema(shape.value, f"{place}{{}}")
        sizes = _sizes(shape, "Properties")
        if isinstance(key, shapes.Options):
            if not all(isinstance(x.constant, str) for x in key.options):
                raise _bad_key(place)
            keys = {x.constant: value for x in key.options}
            return {"type": "object", "properties": keys, "additionalProperties": False, **sizes}
        if shape.low > 1:
            raise UnsupportedTypeError(
                "a key may be written twice, so that the dict may become smaller than its least size", place=place,
                fix="Leave the least size out, or let the keys be a Literal or an Enum of strings.",
            )  # fmt: skip
        names = self._names(key, place)
        return {"type": "object", **({"propertyNames": names} if names else {}), "additionalProperties": value, **sizes}

    def _names(self, key: Shape, place: str) -> dict[str, Any]:
        """The schema of keys, which are strings."""
        if isinstance(key, shapes.Text):
            return {k: v for k, v in _text(key).items() if k != "type"}
        if isinstance(key, shapes.Special):
            return {SPELLING: key.pattern}
        if isinstance(key, shapes.Number) and key.kind == "int" and key == shapes.Number("int"):
            return {SPELLING: spellings.INTEGER}
        raise _bad_key(place)

    def _record(self, shape: shapes.Record, place: str) -> dict[str, Any]:
        if hasattr(shape.type, "__pydantic_fields__") and any(_holds_bytes(f.shape) for f in shape.fields):
            raise UnsupportedTypeError(
                "pydantic reads bytes in JSON in its own way", place=place, fix="Use str, or a dataclass (base64)."
            )
        if shape.kind == "row":
            items = [self.schema(f.shape, f"{place}.{f.name}") for f in shape.fields]
            return _row(items, sum(f.required for f in shape.fields))
        return {
            "type": "object",
            "properties": {f.key: self.schema(f.shape, f"{place}.{f.name}") for f in shape.fields},
            "required": [f.key for f in shape.fields if f.required],
            "additionalProperties": False,
        }


def _holds_bytes(shape: Shape) -> bool:
    """Whether bytes stand in a shape, not looking into other classes."""
    match shape:
        case shapes.Many(item=part) | shapes.Wrapped(inner=part) | shapes.Mapping(value=part):
            return _holds_bytes(part)
        case shapes.Row(items=parts) | shapes.Either(members=parts):
            return any(map(_holds_bytes, parts))
        case _:
            return isinstance(shape, shapes.Binary)


_ANYTHING = "any-value"


def _anything() -> dict[str, Any]:
    """Any JSON value whose numbers are ints or finite floats."""
    itself = {"$ref": f"#/$defs/{_ANYTHING}"}
    return {
        "anyOf": [
            {"type": ["null", "boolean", "string"]},
            _number(shapes.Number("int")),
            _number(shapes.Number("float")),
            {"type": "array", "items": itself},
            {"type": "object", "additionalProperties": itself},
        ]
    }


def _bad_key(place: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        "keys of JSON objects are strings", place=f"{place}{{key}}",
        fix="Use str, int, a date, time or UUID, or a Literal or Enum of strings; or a list of pairs.",
    )  # fmt: skip


def _row(items: list[dict[str, Any]], least: int) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "items": False, "minItems": least}


def _sizes(shape: shapes.Many | shapes.Mapping, what: str) -> dict[str, int]:
    out = {f"min{what}": shape.low} if shape.low else {}
    return out if shape.high is None else {**out, f"max{what}": shape.high}


def _exact(value: Fraction) -> int | Decimal:
    """A finite decimal as a number of JSON."""
    if value.denominator == 1:
        return value.numerator
    twos = (value.denominator & -value.denominator).bit_length() - 1
    fives, rest = 0, value.denominator >> twos
    while rest > 1:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    return Decimal((value < 0, tuple(map(int, str(abs(value.numerator) * 10**places // value.denominator))), -places))


def _number(shape: shapes.Number) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "integer" if shape.kind == "int" else "number", SPELLING: spellings.number_pattern(shape)}
    if shape.low is not None:
        out["exclusiveMinimum" if shape.low_open else "minimum"] = _exact(shape.low)
    if shape.high is not None:
        out["exclusiveMaximum" if shape.high_open else "maximum"] = _exact(shape.high)
    factors = [_exact(m) for m in shape.multiples]
    if len(factors) == 1:
        out["multipleOf"] = factors[0]
    elif factors:
        out["allOf"] = [{"multipleOf": m} for m in factors]
    return out


def _text(shape: shapes.Text) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "string"}
    if shape.low:
        out["minLength"] = shape.low
    if shape.high is not None:
        out["maxLength"] = shape.high
    if len(shape.patterns) == 1:
        out[SPELLING] = shape.patterns[0]
    elif shape.patterns:
        out["allOf"] = [{SPELLING: pattern} for pattern in shape.patterns]
    return out


def _options(shape: shapes.Options, place: str) -> dict[str, Any]:
    constants = [x.constant for x in shape.options]
    seen: set[Any] = set()
    for constant in constants:
        if not (constant is None or isinstance(constant, (bool, int, float, str))) or constant != constant:
            raise UnsupportedTypeError(
                f"JSON has no word for the value {constant!r:.40}", place=place, fix='Use strings or numbers, or style="python".'
            )
        key = (isinstance(constant, bool), constant)
        if key in seen:
            raise UnsupportedTypeError(f"two members are written {constant!r:.40}", place=place, fix="Give them other values.")
        seen.add(key)
    numbers = [x for x in constants if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if not numbers:
        return {"enum": constants}
    pattern = "|".join("-?0(?:[.]0)?" if x == 0 else repr(x).replace(".", "[.]").replace("+", "[+]") for x in numbers)
    if any(isinstance(x, float) and "e" in repr(x) for x in numbers):
        raise UnsupportedTypeError("listed numbers must not need an exponent", place=place, fix="Use other values.")
    out: dict[str, Any] = {"enum": constants}
    others = [x for x in constants if not isinstance(x, (int, float)) or isinstance(x, bool)]
    if any(isinstance(x, str) for x in others):
        return {"anyOf": [{"enum": numbers, SPELLING: pattern}, {"enum": others}]}
    return {**out, SPELLING: pattern}


def _finite(types: TypeShape, shape: Shape) -> int | None:
    """How many values a shape has, when they are few and plain."""
    shape = types.resolve(shape)
    if isinstance(shape, shapes.Options):
        return len(shape.options)
    if isinstance(shape, (shapes.Nothing, shapes.Truth)):
        return 1 + isinstance(shape, shapes.Truth)
    if isinstance(shape, shapes.Either):
        counts = [_finite(types, x) for x in shape.members]
        return sum(x for x in counts if x is not None) if None not in counts else None
    return None
