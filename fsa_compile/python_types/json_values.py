"""Decoded JSON to values of a shape and back. Checks everything, so that it reads any text, not only accepted ones."""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

from fsa_compile.python_types import shapes, spellings
from fsa_compile.python_types import value_checks as checks
from fsa_compile.python_types.shapes import Shape, TypeShape
from fsa_compile.python_types.type_errors import TypeTextError


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


def read_json(shape: TypeShape, text: str) -> Any:
    """The value that a JSON text denotes. Raises `TypeTextError`: the text is no JSON, or no value of the type."""
    try:
        raw = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise TypeTextError(f"the text is no JSON ({error})", place=shape.name) from None
    return _Reader(shape).read(shape.root, raw, shape.name)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object."""


class _Reader(checks.UnionReader):
    def __init__(self, types: TypeShape) -> None:
        super().__init__()
        self._types = types

    def read(self, shape: Shape, raw: Any, place: str) -> Any:
        """The value of decoded JSON."""
        match shape:
            case shapes.Reference():
                return self.read(self._types.definitions[shape.name], raw, place)
            case shapes.Nothing():
                return None if raw is None else _wrong(raw, "null", place)
            case shapes.Truth():
                return raw if isinstance(raw, bool) else _wrong(raw, "true or false", place)
            case shapes.Anything():
                return self._anything(raw, place)
            case shapes.Number():
                text = raw if isinstance(raw, _Number) else _wrong(raw, "a number", place)
                return checks.number(shape, text, place, self.exact)
            case shapes.Text():
                return checks.text(shape, _string(raw, place), place)
            case shapes.Binary():
                return _binary(_string(raw, place), place)
            case shapes.Special():
                return checks.special(shape, _string(raw, place), place)
            case shapes.Options():
                return _option(shape, raw, place)
            case shapes.Wrapped():
                return checks.built(shape.build, self.read(shape.inner, raw, place), place)
            case shapes.Either():
                return self._either(shape, raw, place)
            case shapes.Many():
                items = [self.read(shape.item, x, f"{place}[{i}]") for i, x in enumerate(_list(raw, place))]
                return checks.collected(shape, items, place)
            case shapes.Row():
                items = _list(raw, place)
                if len(items) != len(shape.items):
                    raise TypeTextError(f"{len(shape.items)} elements are needed, not {len(items)}", place=place)
                return tuple([self.read(s, x, f"{place}[{i}]") for i, (s, x) in enumerate(zip(shape.items, items))])
            case shapes.Mapping():
                return self._mapping(shape, raw, place)
            case shapes.Record():
                if shape.kind == "row":
                    return self._row(shape, raw, place)
                return checks.record(shape, _object(raw, place), self.read, place, "key")

    def _either(self, shape: shapes.Either, raw: Any, place: str) -> Any:
        members = shape.members
        if isinstance(raw, _Number) and raw.lstrip("-").isdigit():
            members = tuple(sorted(members, key=lambda m: self._types.resolve(m) != shapes.Number("int")))
        return self.either(shape, members, lambda member: self.read(member, raw, place), raw, place)

    def _anything(self, raw: Any, place: str) -> Any:
        if isinstance(raw, _Number):
            return checks.untyped_number(raw, place, self.exact)
        if isinstance(raw, _Pairs):
            return {key: self._anything(x, f"{place}{{{key!r:.30}}}") for key, x in raw}
        return [self._anything(x, f"{place}[{i}]") for i, x in enumerate(raw)] if isinstance(raw, list) else raw

    def _mapping(self, shape: shapes.Mapping, raw: Any, place: str) -> Any:
        key = self._types.resolve(shape.key)
        out = {}
        for name, below in _object(raw, place):
            as_key = _Number(name) if isinstance(key, shapes.Number) else name
            out[self.read(key, as_key, f"{place}{{key}}")] = self.read(shape.value, below, f"{place}{{{name!r:.30}}}")
        return checks.collected(shape, out, place)

    def _row(self, shape: shapes.Record, raw: Any, place: str) -> Any:
        items = _list(raw, place)
        if not sum(f.required for f in shape.fields) <= len(items) <= len(shape.fields):
            raise TypeTextError(f"{len(items)} elements are the wrong number", place=place)
        values = {f.key: self.read(f.shape, x, f"{place}.{f.name}") for f, x in zip(shape.fields, items)}
        return checks.built(shape.build, values, place)


def _wrong(raw: Any, needed: str, place: str) -> NoReturn:
    shown = "an object" if isinstance(raw, _Pairs) else "an array" if isinstance(raw, list) else f"{raw!r:.40}"
    raise TypeTextError(f"{needed} is needed, not {shown}", place=place)


def _string(raw: Any, place: str) -> str:
    return raw if type(raw) is str else _wrong(raw, "a string", place)


def _list(raw: Any, place: str) -> list[Any]:
    return raw if isinstance(raw, list) and not isinstance(raw, _Pairs) else _wrong(raw, "an array", place)


def _object(raw: Any, place: str) -> _Pairs:
    return raw if isinstance(raw, _Pairs) else _wrong(raw, "an object", place)


def _binary(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise TypeTextError(f"{text!r:.40} is not base64", place=place) from None


def _option(shape: shapes.Options, raw: Any, place: str) -> Any:
    number = None
    if isinstance(raw, _Number):
        if re.fullmatch(spellings.FLOAT, raw) is None:
            _wrong(raw, "one of the listed numbers", place)
        number = Fraction(raw)
    for option in shape.options:
        constant = option.constant
        if number is not None:
            if isinstance(constant, (int, float)) and not isinstance(constant, bool) and _same(constant, number):
                return option.value
        elif type(constant) is type(raw) and constant == raw:
            return option.value
    _wrong(raw, "one of the listed values", place)


def _same(constant: int | float, number: Fraction) -> bool:
    return Fraction(Decimal(repr(constant))) == number


# writing


def write_json(shape: TypeShape, value: Any) -> str:
    """The canonical JSON text of a value. Raises `TypeTextError`: it is no value of the type."""
    return _Writer(shape).write(shape.root, value, shape.name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Writer:
    def __init__(self, types: TypeShape) -> None:
        self._types = types

    def write(self, shape: Shape, value: Any, place: str) -> str:
        """The text of a value."""
        match shape:
            case shapes.Reference():
                return self.write(self._types.definitions[shape.name], value, place)
            case shapes.Nothing() if value is None:
                return "null"
            case shapes.Truth() if isinstance(value, bool):
                return "true" if value else "false"
            case shapes.Anything():
                return self.write(checks.untyped(value, place), value, place)
            case shapes.Number() if checks.is_number(shape, value):
                return spellings.number_text(shape, checks.number_value(shape, value, place))
            case shapes.Text() if isinstance(value, str):
                return _quoted(checks.text(shape, value, place))
            case shapes.Binary() if isinstance(value, bytes):
                return _quoted(base64.b64encode(value).decode())
            case shapes.Special():
                return _quoted(checks.special_text(shape, value, place))
            case shapes.Options():
                return json.dumps(checks.option(shape, value, place).constant, ensure_ascii=False)
            case shapes.Wrapped() if isinstance(value, shape.type):
                return self.write(shape.inner, shape.unwrap(value), place)
            case shapes.Either():
                return checks.first(shape.members, lambda member: self.write(member, value, place), place)
            case shapes.Many() if checks.is_a(value, shape.build):
                checks.sized(shape, value, place)
                return "[" + ", ".join([self.write(shape.item, x, f"{place}[]") for x in value]) + "]"
            case shapes.Row() if isinstance(value, tuple) and len(value) == len(shape.items):
                return "[" + ", ".join([self.write(s, x, f"{place}[]") for s, x in zip(shape.items, value)]) + "]"
            case shapes.Mapping() if isinstance(value, dict):
                return self._mapping(shape, checks.sized(shape, value, place), place)
            case shapes.Record():
                return self._record(shape, value, place)
        raise TypeTextError(f"{checks.shown(value)} is no value of the type", place=place)

    def _mapping(self, shape: shapes.Mapping, value: dict[Any, Any], place: str) -> str:
        key_shape = self._types.resolve(shape.key)
        items = list(value.items())
        if isinstance(key_shape, shapes.Options):
            order = [checks.option(key_shape, option.value, place) for option in key_shape.options]
            items.sort(key=lambda pair: order.index(checks.option(key_shape, pair[0], place)))
            if shape.build is not dict and [key for key, _ in items] != list(value):
                raise TypeTextError("this order cannot be written: listed keys come in the order of their list", place=place)
        texts = []
        for key, below in items:
            name = self.write(key_shape, key, f"{place}{{key}}")
            quoted = name if name.startswith('"') else _quoted(name)
            texts.append(f"{quoted}: {self.write(shape.value, below, place + '{}')}")
        return "{" + ", ".join(texts) + "}"

    def _record(self, shape: shapes.Record, value: Any, place: str) -> str:
        values = checks.field_values(shape, value, place)
        if shape.kind == "row":
            return "[" + ", ".join([self.write(f.shape, x, f"{place}.{f.name}") for f, x in values]) + "]"
        return "{" + ", ".join([f"{_quoted(f.key)}: {self.write(f.shape, x, f'{place}.{f.name}')}" for f, x in values]) + "}"
