"""Bounds on what a chat template may compute: Jinja's sandbox bounds neither time nor memory.

Operations that make much of little (powers, repetition, formatting, padding, replacing) are looked at before they run; everything
else takes time in proportion to what is there, and the clock and the process's memory are looked at line by line.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from fsa_compile.errors import LimitError
from fsa_compile.limits import CompileLimits, Deadline

MOST_CHARACTERS = 1 << 24
"""Longest text that a template may write, or hold in between."""
_MOST_NUMBER = 100_000
"""Largest width, count or indentation."""
_MOST_BITS = 4_096
_LIMITS = CompileLimits(max_seconds=5.0, max_bytes=512 << 20)
_TEMPLATE = "<template>"
_WIDTH = re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\*|\d{5})|\{[^{}]*\d{5}")
BINARY = frozenset({"**", "*", "%", "+"})
"""Operators that the sandbox lets pass through `check_operator`."""
_Refusal = Callable[[str], Exception]
_HOLDERS = (list, tuple, dict)
_ENOUGH = 1 << 40


def _size(value: Any) -> int:
    """Characters and items of a value written out: what it holds twice counts twice, as in its text or in comparing it."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if not isinstance(value, _HOLDERS):
        return 0
    sizes: dict[int, int] = {}
    todo, opened = [value], set[int]()
    while todo:
        held = todo[-1]
        parts = [*held.keys(), *held.values()] if isinstance(held, dict) else held
        inner = [part for part in parts if isinstance(part, _HOLDERS)]
        if id(held) not in opened:
            opened.add(id(held))
            todo += [part for part in inner if id(part) not in opened]
            continue
        todo.pop()
        texts = sum([len(part) for part in parts if isinstance(part, (str, bytes))])
        sizes[id(held)] = min(len(parts) + texts + sum([sizes.get(id(part), 0) for part in inner]), _ENOUGH)
    return sizes[id(value)]


def check_size(value: Any, refusal: _Refusal) -> Any:
    """A value that a template makes of others; raises where it is too large."""
    if _size(value) > MOST_CHARACTERS:
        raise refusal("a value of the template is too large")
    return value


def check_operator(operator: str, left: Any, right: Any, refusal: _Refusal) -> None:
    """Raises where an operation's result would be too large."""
    bits = [abs(x).bit_length() for x in (left, right) if isinstance(x, int)]
    if operator == "**":
        large = len(bits) == 2 and (bits[1] > 16 or bits[0] * abs(right) > _MOST_BITS)
    elif operator == "*":
        repeats = [x for x in (left, right) if isinstance(x, int)]
        copies = max(_size(left), _size(right)) * max(repeats, default=0)
        large = sum(bits) > _MOST_BITS if len(bits) == 2 else copies > MOST_CHARACTERS
    elif operator == "%":
        large = isinstance(left, str) and (
            _WIDTH.search(left) is not None or left.count("%") * max(_size(right), 1) > MOST_CHARACTERS
        )
    else:
        large = _size(left) + _size(right) > MOST_CHARACTERS
    if large:
        raise refusal(f"the result of {operator} is too large")


def check_arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], refusal: _Refusal) -> None:
    """Raises where a function or filter is called with numbers or texts that make its result too large."""
    values = [*args, *kwargs.values()]
    if any(isinstance(x, int) and abs(x) > _MOST_NUMBER for x in values) and name not in _OF_NUMBERS:
        raise refusal(f"an argument of {name} is too large")
    if name in ("format", "format_map") and any(isinstance(x, str) and _WIDTH.search(x) for x in values):
        raise refusal(f"a width in {name} is too large")
    check_size((args, kwargs), refusal)
    texts = [x for x in values if isinstance(x, str)]
    if name in ("format", "format_map") and texts:
        fields = texts[0].count("{") + texts[0].count("%")
        if fields * max(map(_size, values)) > MOST_CHARACTERS:
            raise refusal(f"the result of {name} is too large")
    if name in ("batch", "slice") and any(isinstance(x, _HOLDERS) for x in values[2:]):
        raise refusal(f"{name} fills with texts and numbers only")
    if name == "replace" and len(texts) > 2 and (texts[0].count(texts[1]) + 1) * len(texts[2]) > MOST_CHARACTERS:
        raise refusal("the result of replace is too large")
    if name == "join" and _size(values[0]) * max((len(x) for x in texts), default=0) > MOST_CHARACTERS:
        raise refusal("the result of join is too large")


_OF_NUMBERS = frozenset({"abs", "int", "float", "string", "tojson", "filesizeformat", "default", "d", "pprint", "list", "length"})
"""Filters of values that may themselves be large numbers."""


def bounded_filter(name: str, function: Callable[..., Any], refusal: _Refusal) -> Callable[..., Any]:
    """A filter whose arguments are looked at first."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        check_arguments(name, args, kwargs, refusal)
        return check_size(function(*args, **kwargs), refusal)

    return run


@contextlib.contextmanager
def bounded_time(refusal: _Refusal) -> Iterator[None]:
    """Stops a template, in this thread, when the time or the memory for it is used up: in its own lines, and in all calls."""
    deadline, before = Deadline(_LIMITS), sys.gettrace()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        try:
            deadline.check("the chat template")
        except LimitError as error:
            raise refusal(str(error)) from None
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        line(frame, event, argument)
        return line if frame.f_code.co_filename == _TEMPLATE else None

    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)
