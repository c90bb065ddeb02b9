"""Python expressions to values of a shape and back: read with `ast`, nothing is run."""

from __future__ import annotations

import ast
import collections
import datetime
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NoReturn

from fsa_compile.python_types import python_literals, shapes, spellings
from fsa_compile.python_types import value_checks as checks
from fsa_compile.python_types.shapes import Shape, TypeShape
from fsa_compile.python_types.type_errors import TypeTextError

_LONG_NUMBER = re.compile(r"[0-9]{600}")


def read_python(shape: TypeShape, text: str) -> Any:
    """The value that an expression denotes.

    Raises:
      TypeTextError: the text is no expression, or no value of the type. Python's own reader gives up on more than 200
        open brackets.
    """
    try:
        with _long_integers(text), warnings.catch_warnings():
            warnings.simplefilter("error", SyntaxWarning)
            warnings.simplefilter("error", DeprecationWarning)
            tree = ast.parse(text, mode="eval").body
        return _Reader(shape, text).read(shape.root, tree, shape.name)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        if isinstance(error, TypeTextError):
            raise
        raise TypeTextError(f"the text is no Python expression ({error})", place=shape.name) from None


@contextmanager
def _long_integers(text: str) -> Iterator[None]:
    """Python refuses integers of more than 4,300 digits unless told otherwise."""
    if _LONG_NUMBER.search(text) is None:
        yield
        return
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


class _Reader(checks.UnionReader):
    def __init__(self, types: TypeShape, text: str) -> None:
        super().__init__()
        self._types, self._text = types, text

    def read(self, shape: Shape, node: ast.expr, place: str) -> Any:
        """The value of a node."""
        match shape:
            case shapes.Reference():
                return self.read(self._types.definitions[shape.name], node, place)
            case shapes.Nothing():
                return None if _is_constant(node, type(None)) else self._wrong(node, "None", place)
            case shapes.Truth():
                return node.value if _is_constant(node, bool) else self._wrong(node, "True or False", place)  # type: ignore[attr-defined]
            case shapes.Anything():
                return self._anything(node, place)
            case shapes.Number():
                return checks.number(shape, self._number_text(shape, node, place), place, self.exact)
            case shapes.Text():
                return checks.text(shape, self._constant(node, str, place), place)
            case shapes.Binary():
                return self._constant(node, bytes, place)
            case shapes.Special():
                return self._special(shape, node, place)
            case shapes.Options():
                return self._option(shape, node, place)
            case shapes.Wrapped():
                inner = self._single(node, shapes.constructor(shape.type), place)
                return checks.built(shape.build, self.read(shape.inner, inner, place), place)
            case shapes.Either():
                return self.either(shape, self._ordered(shape, node), lambda member: self.read(member, node, place), node, place)
            case shapes.Many():
                items = self._elements(shape, node, place)
                return checks.collected(shape, [self.read(shape.item, x, f"{place}[{i}]") for i, x in enumerate(items)], place)
            case shapes.Row():
                items = node.elts if isinstance(node, ast.Tuple) else self._wrong(node, "a tuple", place)
                if len(items) != len(shape.items):
                    raise TypeTextError(f"{len(shape.items)} elements are needed, not {len(items)}", place=place)
                return tuple([self.read(s, x, f"{place}[{i}]") for i, (s, x) in enumerate(zip(shape.items, items))])
            case shapes.Mapping():
                pairs = self._pairs(node, place)
                out = {self.read(shape.key, k, f"{place}{{key}}"): self.read(shape.value, v, f"{place}{{}}") for k, v in pairs}
                return checks.collected(shape, out, place)
            case shapes.Record():
                return self._record(shape, node, place)

    def _wrong(self, node: ast.AST, needed: str, place: str) -> NoReturn:
        shown = ast.get_source_segment(self._text, node) or ""
        raise TypeTextError(f"{needed} is needed, not {shown:.60}", place=place)

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ""

    def _constant(self, node: ast.expr, kind: type, place: str) -> Any:
        if not _is_constant(node, kind):
            self._wrong(node, f"a {kind.__name__}", place)
        return node.value  # type: ignore[attr-defined]

    def _number_text(self, shape: shapes.Number, node: ast.expr, place: str) -> str:
        if shape.kind == "Decimal":
            return self._constant(self._single(node, "Decimal", place), str, place)
        number = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
        if not _is_constant(number, int) and not _is_constant(number, float):
            self._wrong(node, f"a number of type {shape.kind}", place)
        return self._source(node)

    def _ordered(self, shape: shapes.Either, node: ast.expr) -> tuple[Shape, ...]:
        """The members, int before float."""
        number = node.operand if isinstance(node, ast.UnaryOp) else node
        if not _is_constant(number, int):
            return shape.members
        return tuple(sorted(shape.members, key=lambda m: self._types.resolve(m) != shapes.Number("int")))

    def _anything(self, node: ast.expr, place: str) -> Any:
        if isinstance(node, ast.List):
            return [self._anything(x, place) for x in node.elts]
        if isinstance(node, ast.Dict):
            return {self._constant(k, str, place): self._anything(v, place) for k, v in self._pairs(node, place)}
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, str))):
            return node.value
        return checks.untyped_number(self._source(node), place, self.exact)

    # calls

    def _call(self, node: ast.expr, name: str, place: str) -> ast.Call:
        if not isinstance(node, ast.Call) or _dotted(node.func) != name:
            self._wrong(node, f"{name}(...)", place)
        return node

    def _single(self, node: ast.expr, name: str, place: str) -> ast.expr:
        """The only argument of a call."""
        call = self._call(node, name, place)
        if len(call.args) != 1 or call.keywords:
            self._wrong(node, f"{name}(...) with one argument", place)
        return call.args[0]

    def _special(self, shape: shapes.Special, node: ast.expr, place: str) -> Any:
        if shape.name == "date":
            call = self._call(node, "date", place)
            return self._made(datetime.date, [self._integer(x, place) for x in call.args], call.keywords, 3, place)
        if shape.name == "timedelta":
            call = self._call(node, "timedelta", place)
            return self._made(datetime.timedelta, [self._integer(x, place) for x in call.args], call.keywords, None, place)
        return checks.special(shape, self._constant(self._single(node, shape.call, place), str, place), place)

    def _integer(self, node: ast.expr, place: str) -> int:
        return checks.number(shapes.Number("int"), self._number_text(shapes.Number("int"), node, place), place)  # type: ignore[return-value]

    def _made(self, build: Any, args: list[int], keywords: list[ast.keyword], count: int | None, place: str) -> Any:
        named = {k.arg: self._integer(k.value, place) for k in keywords if k.arg in ("days", "seconds", "microseconds")}
        if len(named) != len(keywords) or (count is not None and (named or len(args) != count)) or (count is None and any(args)):
            raise TypeTextError(f"these are not the arguments of a {build.__name__}", place=place)
        return checks.built(lambda _: build(*args, **named), None, place)

    def _option(self, shape: shapes.Options, node: ast.expr, place: str) -> Any:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            value = None
            name = _dotted(node)
            for option in shape.options:
                if option.source == name:
                    return option.value
            self._wrong(node, "one of the listed values", place)
        for option in shape.options:
            if type(option.value) is type(value) and option.value == value:
                return option.value
        self._wrong(node, "one of the listed values", place)

    # collections

    def _elements(self, shape: shapes.Many, node: ast.expr, place: str) -> list[ast.expr]:
        if shape.build is list and isinstance(node, ast.List):
            return node.elts
        if shape.build is tuple and isinstance(node, ast.Tuple):
            return node.elts
        if shape.build is collections.deque:
            inner = self._single(node, "deque", place)
            return inner.elts if isinstance(inner, ast.List) else self._wrong(inner, "a list", place)
        if shape.is_set:
            if isinstance(node, ast.Call) and not node.args and not node.keywords and _dotted(node.func) == shape.build.__name__:
                return []
            inner = self._single(node, "frozenset", place) if shape.build is frozenset else node
            if isinstance(inner, ast.Set):
                return inner.elts
        self._wrong(node, f"a {shape.build.__name__}", place)

    def _pairs(self, node: ast.expr, place: str) -> list[tuple[ast.expr, ast.expr]]:
        if not isinstance(node, ast.Dict):
            self._wrong(node, "a dict", place)
        out = []
        for key, value in zip(node.keys, node.values):
            if key is None:
                self._wrong(node, "a dict without **", place)
            out.append((key, value))
        return out

    def _record(self, shape: shapes.Record, node: ast.expr, place: str) -> Any:
        if shape.kind == "dict":
            pairs = [(self._constant(k, str, place), v) for k, v in self._pairs(node, place)]
        else:
            call = self._call(node, shapes.constructor(shape.type), place)
            if call.args:
                self._wrong(node, "arguments by name", place)
            pairs = [(k.arg, k.value) for k in call.keywords]
        return checks.record(shape, pairs, self.read, place, "argument")


def _is_constant(node: ast.AST, kind: type) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is kind


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# writing


def write_python(shape: TypeShape, value: Any) -> str:
    """The canonical expression of a value. Raises `TypeTextError`: it is no value of the type."""
    return _Writer(shape).write(shape.root, value, shape.name)


class _Writer:
    def __init__(self, types: TypeShape) -> None:
        self._types = types

    def write(self, shape: Shape, value: Any, place: str) -> str:
        """The text of a value."""
        match shape:
            case shapes.Reference():
                return self.write(self._types.definitions[shape.name], value, place)
            case shapes.Nothing() if value is None:
                return "None"
            case shapes.Truth() if isinstance(value, bool):
                return repr(value)
            case shapes.Anything():
                return self.write(checks.untyped(value, place), value, place)
            case shapes.Number() if checks.is_number(shape, value):
                text = spellings.number_text(shape, checks.number_value(shape, value, place))
                return f"Decimal('{text}')" if isinstance(value, Decimal) else text
            case shapes.Text() if isinstance(value, str):
                return str.__repr__(checks.text(shape, value, place)) if not shape.patterns else _plain(value)
            case shapes.Binary() if isinstance(value, bytes):
                return repr(value)
            case shapes.Special() if shape.name == "date" and type(value) is datetime.date:
                return python_literals.date_text(value)
            case shapes.Special() if shape.name == "timedelta" and isinstance(value, datetime.timedelta):
                return python_literals.timedelta_text(value)
            case shapes.Special():
                return f"{shape.call}({checks.special_text(shape, value, place)!r})"
            case shapes.Options():
                option = checks.option(shape, value, place)
                return _plain(option.value) if type(option.value) is str else option.source
            case shapes.Wrapped() if isinstance(value, shape.type):
                return f"{shapes.constructor(shape.type)}({self.write(shape.inner, shape.unwrap(value), place)})"
            case shapes.Either():
                return checks.first(shape.members, lambda member: self.write(member, value, place), place)
            case shapes.Many() if checks.is_a(value, shape.build):
                checks.sized(shape, value, place)
                return _collected(shape, [self.write(shape.item, x, f"{place}[]") for x in value])
            case shapes.Row() if isinstance(value, tuple) and len(value) == len(shape.items):
                return _tuple_text([self.write(s, x, f"{place}[]") for s, x in zip(shape.items, value)])
            case shapes.Mapping() if isinstance(value, dict):
                checks.sized(shape, value, place)
                pairs = [f"{self.write(shape.key, k, place)}: {self.write(shape.value, v, place)}" for k, v in value.items()]
                return "{" + ", ".join(pairs) + "}"
            case shapes.Record():
                return self._record(shape, value, place)
        raise TypeTextError(f"{checks.shown(value)} is no value of the type", place=place)

    def _record(self, shape: shapes.Record, value: Any, place: str) -> str:
        values = [(f, self.write(f.shape, x, f"{place}.{f.name}")) for f, x in checks.field_values(shape, value, place)]
        if shape.kind == "dict":
            return "{" + ", ".join([f"{_plain(f.key)}: {text}" for f, text in values]) + "}"
        arguments = ", ".join([f"{f.key}={text}" for f, text in values])
        return f"{shapes.constructor(shape.type)}({arguments})"


def _plain(text: str) -> str:
    """A string in single quotes with only those characters escaped that must be."""
    return "'" + "".join([python_literals.escaped(ord(c), "'") or c for c in text]) + "'"


def _tuple_text(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _collected(shape: shapes.Many, items: list[str]) -> str:
    joined = ", ".join(items)
    if shape.build is tuple:
        return _tuple_text(items)
    if shape.is_set:
        name = shape.build.__name__
        full = f"{{{joined}}}"
        return f"{name}()" if not items else full if name == "set" else f"frozenset({full})"
    return f"[{joined}]" if shape.build is list else f"deque([{joined}])"

