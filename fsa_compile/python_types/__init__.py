"""Python types as constraints: dataclasses, pydantic models, typed dicts, enums, unions, containers, scalars.

    constraint = compile_type(Person, tokenizer)
    person = parse(Person, text)

Every text that the constraint accepts reads as a value of the type; what cannot be promised is refused, with the place in the
type. Two styles:

* "json" (default): objects for dataclasses, pydantic models (by alias) and typed dicts, with their fields in order and no
  others; arrays for lists, tuples, sets and named tuples; enum members by value; dates, times and UUIDs in ISO 8601 and RFC 9562,
  timedelta as an ISO 8601 duration; bytes in base64. Fields with a default may be left out.
* "python": constructor calls such as `Person(name='Ada', age=36)` (Koo et al. 2024, §5.2), read without running anything.

Numbers: an int is digits; a float is finite, and has no exponent where multiples are asked for; a Decimal has no
exponent. Bounds hold for the value that is read, rounding included. Elements of a set and keys of a dict may be written twice
(then they count once), except where they come from a list of at most 10 values. A union's text reads as the first
member that it fits without losing digits, else as the first that it fits; an int comes before a float.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Canonical, Request
from fsa_compile.compiler.machines import compile_machine
from fsa_compile.errors import ConstraintError, is_word
from fsa_compile.formats.free_text import text_then
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.inputs.guard import guarded
from fsa_compile.json_schema import SchemaOptions, schema_machine
from fsa_compile.json_schema.bounded_depth import without_counters
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.python_types.calls import Call, shape_of_calls, split_text
from fsa_compile.python_types.json_values import read_json, write_json
from fsa_compile.python_types.marks import Ge, Gt, Le, Length, Lt, MultipleOf, Pattern
from fsa_compile.python_types.python_values import read_python, write_python
from fsa_compile.python_types.reader import read_type
from fsa_compile.python_types.scopes import check_size
from fsa_compile.python_types.shapes import TypeShape
from fsa_compile.python_types.to_grammar import grammar_of
from fsa_compile.python_types.to_json_schema import schema_of
from fsa_compile.python_types.type_errors import TypeTextError, UnsupportedTypeError
from fsa_compile.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fsa_compile.filters import Filter

Style: TypeAlias = Literal["json", "python"]


@guarded
def compile_type(
    T: Any,
    tokenizer: Any,
    *,
    style: Style = "json",
    options: SchemaOptions | None = None,
    namespace: dict[str, Any] | None = None,
    allow_code: bool = False,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles a Python type over a tokenizer's vocabulary.

    Args:
      T: a dataclass, pydantic model, TypedDict, NamedTuple, Enum, Literal, union, container, scalar, or `Annotated` one.
      tokenizer: from `load_tokenizer`, a `Vocabulary`, or anything `load_tokenizer` takes.
      style: "json", or "python" for constructor calls.
      options: how JSON is written (`style="json"` only).
      namespace: names for forward references that the type's own modules do not know, such as `locals()`.
      allow_code: accept types with validators or `__post_init__`; `parse` runs them, and they may refuse an accepted text.
      canonical, filters, starts_text, max_depth: see `compile_language` and `compile_grammar`; types that contain themselves
        need `max_depth` where stacks are written out.
      limits: bounds of the compilation.

    Returns:
      The artifact. `parse(T, text, style=style)` reads every text that it accepts.

    Raises:
      UnsupportedTypeError: a part of the type cannot be enforced exactly; says where.
      ConstraintError: the vocabulary cannot spell it, or a limit is exceeded.

    Examples:
      >>> from fsa_compile.vocabulary.vocabulary import Vocabulary
      >>> vocabulary = Vocabulary.from_tokens([b"true", b"t", b"null", b""], stop_ids=[3])
      >>> compile_type(bool | None, vocabulary).walk().allowed().tolist()
      [True, False, True, False]
    """
    shape = shape_of(T, namespace, allow_code, limits)
    request = Request.of(
        tokenizer, shape.name, canonical=canonical, filters=filters, starts_text=starts_text, max_depth=max_depth, limits=limits
    )
    return _compiled(shape, request, _checked(style), options)


@guarded
def parse(
    T: Any, text: str, *, style: Style = "json", namespace: dict[str, Any] | None = None, allow_code: bool = False
) -> Any:
    """The value of type T that a text denotes.

    Args:
      T, style, namespace, allow_code: as for `compile_type`.
      text: usually what was generated.

    Raises:
      TypeTextError: the text is no value of the type; says where.
      UnsupportedTypeError: see `compile_type`.

    Examples:
      >>> parse(list[int | None], "[1, null]")
      [1, None]
    """
    _check_text(text, "parse")
    return _read(shape_of(T, namespace, allow_code), text, _checked(style))


@guarded
def dump(
    T: Any, value: Any, *, style: Style = "json", namespace: dict[str, Any] | None = None, allow_code: bool = False
) -> str:
    """The canonical text of a value, which the constraint of its type accepts: for examples in a prompt.

    Args:
      T, style, namespace, allow_code: as for `compile_type`.
      value: of type T.

    Raises:
      TypeTextError: it is no value of the type, or one of the few that have no text (NaN, infinities, halves of surrogates).

    Examples:
      >>> dump(dict[str, float], {"a": 1.5})
      '{"a": 1.5}'
    """
    shape = shape_of(T, namespace, allow_code)
    return write_json(shape, value) if _checked(style) == "json" else write_python(shape, value)


@guarded
def compile_call(
    functions: Callable[..., Any] | Sequence[Callable[..., Any]],
    tokenizer: Any,
    *,
    style: Style = "json",
    trigger: str | None = None,
    options: SchemaOptions | None = None,
    namespace: dict[str, Any] | None = None,
    allow_code: bool = False,
    canonical: Canonical = False,
    filters: Iterable[Filter] = (),
    starts_text: bool = False,
    max_depth: int | None = None,
    limits: CompileLimits | None = None,
) -> CompiledConstraint:
    """Compiles calls of one function, or of one of several, from their signatures.

    `style="json"` writes `{"name": "add_item", "arguments": {"item": "stool"}}`, `style="python"` `add_item(item='stool')`.
    Parameters with a default may be left out; those without an annotation take any value.

    Args:
      functions: a function, or a list of functions with different names.
      tokenizer, style, options, namespace, allow_code, canonical, filters, starts_text, max_depth, limits: as for `compile_type`.
      trigger: None for a call and nothing else. A string such as "<tool_call>" allows any text, too, and where the string occurs
        first a call must follow, which ends the text.

    Returns:
      The artifact. `parse_call(functions, text, style=style, trigger=trigger)` reads every text that it accepts.

    Raises:
      UnsupportedTypeError: a signature cannot be enforced exactly; says where.
      ConstraintError: the vocabulary cannot spell it, or a limit is exceeded.
    """
    shape = shape_of_calls(functions, _checked(style), namespace, allow_code)
    request = Request.of(
        tokenizer, f"call of {shape.name}", canonical=canonical, filters=filters, starts_text=starts_text, max_depth=max_depth,
        limits=limits,
    )  # fmt: skip
    return _compiled(shape, request, style, options, trigger)


@guarded
def parse_call(
    functions: Callable[..., Any] | Sequence[Callable[..., Any]],
    text: str,
    *,
    style: Style = "json",
    trigger: str | None = None,
    namespace: dict[str, Any] | None = None,
    allow_code: bool = False,
) -> Call | str:
    """The call in a text, or the text itself when there is a trigger to look for and none in it.

    Args:
      functions, style, trigger, namespace, allow_code: as for `compile_call`.
      text: usually what was generated.

    Returns:
      A `Call`: its `function`, `arguments` and the `text` before it; calling it runs the function.

    Raises:
      TypeTextError: there should be a call, and there is none.

    Examples:
      >>> def add(x: int, y: int = 1): return x + y
      >>> parse_call(add, '{"name": "add", "arguments": {"x": 3}}')()
      4
    """
    shape = shape_of_calls(functions, _checked(style), namespace, allow_code)
    _check_text(text, shape.name)
    before, call = ("", text) if trigger is None else split_text(text, trigger)
    if call is None:
        return text
    found = _read(shape, call, _checked(style))
    return dataclasses.replace(found, text=before)


def _read(shape: TypeShape, text: str, style: Style) -> Any:
    _check_text(text, shape.name)
    try:
        return read_json(shape, text) if style == "json" else read_python(shape, text)
    except RecursionError:
        raise TypeTextError("the text is nested too deeply", place=shape.name) from None


def _check_text(text: Any, place: str) -> None:
    if not isinstance(text, str):
        what = f"the text is of type {type(text).__name__}, not str"
        raise TypeTextError(what, place=place, fix="Pass the type first, then what was generated: parse(T, out.text()).")


def json_schema(T: Any, *, namespace: dict[str, Any] | None = None, allow_code: bool = False) -> dict[str, Any]:
    """The JSON Schema that `compile_type(T, style="json")` compiles, with `x-fsa-spelling` for what no keyword says."""
    return schema_of(shape_of(T, namespace, allow_code))


def _compiled(
    shape: TypeShape, request: Request, style: Style, options: SchemaOptions | None, trigger: str | None = None
) -> CompiledConstraint:
    if not request.is_plain and style == "json":
        options = without_counters(options or SchemaOptions())
    machine = machine_of_type(shape, style, options, request.limits, request.deadline)
    if trigger is not None:
        machine = text_then(machine, trigger, request.limits, request.deadline)
    return compile_machine(machine, request)


def machine_of_type(
    shape: TypeShape, style: Style, options: SchemaOptions | None, limits: CompileLimits, deadline: Deadline
) -> ByteMachine:
    """The byte machine of a type's texts."""
    if style == "json":
        return schema_machine(schema_of(shape), options=options, limits=limits, deadline=deadline)
    if options is not None:
        raise ConstraintError('options are for style="json"', fix="Leave them out.")
    return machine_of(grammar_of(shape, limits, deadline), limits=limits, deadline=deadline)


def shape_of(
    T: Any, namespace: dict[str, Any] | None = None, allow_code: bool = False, limits: CompileLimits | None = None
) -> TypeShape:
    """The shape of a type, kept for the last few types."""
    _check_type(T)
    check_size(T, limits or CompileLimits())
    if namespace is not None or limits is not None:
        return read_type(T, namespace=namespace, allow_code=allow_code, limits=limits)
    try:
        return _known_shape(T, allow_code)
    except TypeError:  # it cannot be hashed
        return read_type(T, allow_code=allow_code)


def _check_type(T: Any) -> None:
    """Raises `UnsupportedTypeError` for what is often given in a type's place."""
    place = "the type"
    if isinstance(T, Mapping):
        what = "this is a dict, such as a JSON Schema, not a type"
        raise UnsupportedTypeError(what, place=place, fix="Use compile_json_schema(schema, tokenizer), or pass a class.")
    if isinstance(T, list | set | int | float | bytes | Vocabulary) or isinstance(getattr(T, "vocabulary", None), Vocabulary):
        fix = "Pass a type, such as a dataclass, list[int] or Literal[1, 2]; the tokenizer or text comes second."
        raise UnsupportedTypeError(f"this is a {type(T).__name__}, {T!r:.60}, not a type", place=place, fix=fix)
    if not isinstance(T, type) and (dataclasses.is_dataclass(T) or hasattr(type(T), "model_fields") or isinstance(T, enum.Enum)):
        what = f"this is a value, {T!r:.60}, not its type"
        raise UnsupportedTypeError(what, place=place, fix=f"Pass the class itself: {type(T).__name__}.")


@functools.lru_cache(maxsize=128, typed=True)
def _known_shape(T: Any, allow_code: bool) -> TypeShape:
    return read_type(T, allow_code=allow_code)


def _checked(style: str) -> Style:
    if not is_word(style, ("json", "python")):
        raise ConstraintError(f"unknown style {style!r}", fix='Write style="json" or style="python".')
    return "json" if style == "json" else "python"


__all__ = [
    "Call", "Ge", "Gt", "Le", "Length", "Lt", "MultipleOf", "Pattern", "TypeTextError", "UnsupportedTypeError",
    "compile_call", "compile_type", "dump", "json_schema", "parse", "parse_call",
]  # fmt: skip
