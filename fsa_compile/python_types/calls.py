"""Functions as tools: signatures to shapes, and texts to calls that can be run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fsa_compile.errors import LimitError
from fsa_compile.python_types.reader import Reader
from fsa_compile.python_types.scopes import Scope, hints_of
from fsa_compile.python_types.shapes import Either, Field, Option, Options, Record, TypeShape
from fsa_compile.python_types.type_errors import TypeTextError, UnsupportedTypeError


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that was read and has not been run.

    Attributes:
      function: what it calls.
      arguments: by name; those that were left out are missing.
      text: what stands before the call.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    text: str = ""

    def __call__(self) -> Any:
        """Runs the function with the arguments."""
        return self.function(**self.arguments)


def shape_of_calls(
    functions: Callable[..., Any] | Sequence[Callable[..., Any]], style: str, namespace: dict[str, Any] | None, allow_code: bool
) -> TypeShape:
    """The shape of one call of one of some functions; its values are `Call`s.

    Raises:
      UnsupportedTypeError: a signature cannot be enforced exactly.
    """
    listed = list(functions) if isinstance(functions, Sequence) else [functions]
    if not listed:
        raise UnsupportedTypeError("no function is given", place="compile_call", fix="Pass a function, or a list of them.")
    names = [_name(function) for function in listed]
    for name in names:
        if names.count(name) > 1:
            raise UnsupportedTypeError("two functions have this name", place=name, fix="Rename one of them.")
    reader = Reader({} if namespace is None else namespace, allow_code)
    records = [_record(reader, function, name) for function, name in zip(listed, names)]
    if style == "json":
        records = [_named(record) for record in records]
    root = Either(tuple(records)) if len(records) > 1 else records[0]
    return TypeShape(" | ".join(names), root, reader.definitions)


def _name(function: Any) -> str:
    name = getattr(function, "__name__", "")
    if not callable(function) or isinstance(function, type) or not name.isidentifier() or not name.isascii():
        raise UnsupportedTypeError(f"{function!r:.60} is not a function with a name", place="compile_call", fix="Write a def.")
    return str(name)


def _record(reader: Reader, function: Any, name: str) -> Record:
    """The arguments of a function."""
    names = {**getattr(inspect.unwrap(function), "__globals__", {}), **reader.namespace}
    try:
        hints = hints_of(function, names)
    except LimitError:
        raise
    except Exception as error:
        raise UnsupportedTypeError(
            f"its annotations cannot be resolved ({error})", place=name, fix="Pass namespace={...} with the missing names."
        ) from None
    fields = []
    for parameter in inspect.signature(function).parameters.values():
        place = f"{name}.{parameter.name}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UnsupportedTypeError(
                f"the parameter is {parameter.kind.description}", place=place, fix="Use parameters that have names."
            )
        shape = reader.read(hints.get(parameter.name, Any), place, Scope(names, {}))
        fields.append(Field(parameter.name, parameter.name, shape, parameter.default is parameter.empty))
    return Record(name, function, "object", tuple(fields), lambda values: Call(function, values))


def _named(record: Record) -> Record:
    """`{"name": ..., "arguments": {...}}` around the arguments of a function."""
    name = Options((Option(record.name, record.name, repr(record.name)),))
    fields = (Field("name", "name", name, True), Field("arguments", "arguments", record, True))
    return Record(record.name, Call, "object", fields, lambda values: values["arguments"])


def split_text(text: str, trigger: str) -> tuple[str, str | None]:
    """The text before the first trigger, and the call after it, or None when there is no trigger.

    Raises:
      TypeTextError: nothing follows the trigger.
    """
    before, found, call = text.partition(trigger)
    if found and not call:
        raise TypeTextError("no call follows the trigger", place="text")
    return before, call if found else None
