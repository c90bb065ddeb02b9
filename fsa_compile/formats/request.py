"""Reading what a client sent: every value is checked, unknown fields are refused, and errors name the JSON pointer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fsa_compile.errors import ConstraintError
from fsa_compile.inputs.json_input import parse_json
from fsa_compile.limits import CompileLimits


class FormatError(ConstraintError):
    """A request that is not well formed, or asks for what is not enforced exactly.

    Args:
      what: one sentence that says what is wrong.
      pointer: JSON pointer of the place, as a URI fragment; its first part is the argument, as in `#/tools/0/function/name`.
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, pointer: str, fix: str = "") -> None:
        self.pointer = pointer
        super().__init__(what, where=f"at {pointer}", fix=fix)


def child(pointer: str, key: str | int) -> str:
    """The pointer of a member or an element."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def members(value: Any, pointer: str, *, required: Iterable[str] = (), optional: Iterable[str] = ()) -> dict[str, Any]:
    """An object's members, once it is known to have the required ones and no others than those named.

    Args:
      optional: members that may be missing, or None.

    Raises:
      FormatError: it is no object, or has other members.
    """
    needed, known = list(required), [*required, *optional]
    if not isinstance(value, Mapping):
        raise FormatError(f"this must be an object, not {kind_of(value)}", pointer=pointer, fix=f"It has {', '.join(known)}.")
    for name in value:
        if name not in known:
            fix = f"Fields here are {', '.join(known)}."
            raise FormatError(f"the field {name!r} is not known", pointer=child(pointer, name), fix=fix)
    for name in needed:
        if name not in value:
            raise FormatError(f"the field {name!r} is missing", pointer=pointer, fix=f"Fields here are {', '.join(known)}.")
    return {str(name): content for name, content in value.items() if content is not None or name in needed}


def text(value: Any, pointer: str, *, empty: bool = True) -> str:
    """A string; raises `FormatError` for anything else, or where it is empty and must not be."""
    if not isinstance(value, str):
        raise FormatError(f"this must be a string, not {kind_of(value)}", pointer=pointer)
    if not value and not empty:
        raise FormatError("this string must not be empty", pointer=pointer)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FormatError("this string has half of a surrogate pair, which no text has", pointer=pointer) from None
    return value


def texts(value: Any, pointer: str, *, least: int = 0) -> list[str]:
    """A list of strings that are not empty."""
    return [text(item, child(pointer, i), empty=False) for i, item in enumerate(elements(value, pointer, least=least))]


def elements(value: Any, pointer: str, *, least: int = 0) -> list[Any]:
    """A list with a least number of elements."""
    if not isinstance(value, (list, tuple)):
        raise FormatError(f"this must be an array, not {kind_of(value)}", pointer=pointer)
    if len(value) < least:
        raise FormatError("this array must not be empty", pointer=pointer)
    return list(value)


def flag(value: Any, pointer: str) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise FormatError(f"this must be true or false, not {kind_of(value)}", pointer=pointer)
    return value


def decoded(value: Any, pointer: str, limits: CompileLimits | None = None) -> Any:
    """A value, or what the JSON text in a string denotes."""
    if not isinstance(value, str):
        return value
    return parse_json(value, limits or CompileLimits(), FormatError, pointer=pointer, what="this string")


def kind_of(value: Any) -> str:
    """What a value is called in JSON."""
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type, str] = {
    dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number",
    type(None): "null",
}  # fmt: skip
