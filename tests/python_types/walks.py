"""Random texts of a byte machine, and deep checks that a value has a type."""

from __future__ import annotations

import collections
import dataclasses
import enum
import random
import re
import types
import typing
from fractions import Fraction
from typing import Any

from fsa_compile.automata.pushdown import ByteMachine


def random_text(machine: ByteMachine, seed: int, eager: int = 40, limit: int = 4000) -> str | None:
    """A text that the machine accepts: random bytes for a while, then the likeliest ways out; None if none was found in time.

    Bytes are chosen among all that can be read, with classes of bytes equally likely.
    """
    rng = random.Random(seed)
    here = {machine.initial}
    data = bytearray()
    classes: dict[int, list[int]] = {}
    for byte in range(256):
        classes.setdefault(int(machine.byte_class[byte]), []).append(byte)
    while len(data) < limit:
        if machine.may_end(here) and (len(data) > eager or rng.random() < 0.15):
            return data.decode()
        options = []
        for members in classes.values():
            byte = rng.choice(members)
            after = machine.step(here, byte)
            if after:
                options.append((byte, after))
        if not options:
            return data.decode() if machine.may_end(here) else None
        if len(data) > eager:  # prefer what closes
            options.sort(key=lambda o: (min(len(c.stack) for c in o[1]), o[0] not in b"\"']})", rng.random()))
            byte, here = options[0] if rng.random() < 0.6 else rng.choice(options)
        else:
            byte, here = rng.choice(options)
        data.append(byte)
    return None


def has_type(value: Any, T: Any, variables: dict[Any, Any] | None = None) -> bool:
    """Whether a value has a type, down to its elements; conditions of `Annotated` are checked too."""
    variables = variables or {}
    if isinstance(T, typing.TypeVar):
        return has_type(value, variables[T], variables)
    if isinstance(T, (typing.ForwardRef, str)):
        from python_types import sample_types

        return has_type(value, getattr(sample_types, T if isinstance(T, str) else T.__forward_arg__), variables)
    if hasattr(T, "__supertype__"):
        return has_type(value, T.__supertype__, variables)
    origin, args = typing.get_origin(T), typing.get_args(T)
    if origin is typing.Annotated:
        return has_type(value, args[0], variables) and all(_keeps(value, mark) for mark in args[1:])
    if origin in (typing.NotRequired, typing.Required):
        return has_type(value, args[0], variables)
    if origin in (typing.Union, types.UnionType):
        return any(has_type(value, x, variables) for x in args)
    if origin is typing.Literal:
        return any(type(x) is type(value) and x == value for x in args)
    if T in (Any, object):
        return value is None or isinstance(value, (bool, int, float, str, list, dict))
    if T is None:
        return value is None
    if origin in (list, set, frozenset, collections.deque):
        return type(value) is origin and all(has_type(x, args[0], variables) for x in value)
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return type(value) is tuple and all(has_type(x, args[0], variables) for x in value)
        return type(value) is tuple and len(value) == len(args) and all(map(lambda x, t: has_type(x, t, variables), value, args))
    if origin in (dict, collections.OrderedDict):
        return type(value) is origin and all(has_type(k, args[0], variables) and has_type(x, args[1], variables) for k, x in value.items())
    return _has_class(value, T, origin, args, variables)


def _has_class(value: Any, T: Any, origin: Any, args: tuple[Any, ...], variables: dict[Any, Any]) -> bool:
    cls = origin or T
    inner = {**variables, **dict(zip(getattr(cls, "__parameters__", ()), args))}
    if typing.is_typeddict(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        required = {k for k, hint in hints.items() if typing.get_origin(hint) is not typing.NotRequired}
        return type(value) is dict and required <= set(value) <= set(hints) and all(has_type(x, hints[k], inner) for k, x in value.items())
    if isinstance(cls, type) and issubclass(cls, enum.Enum):
        return type(value) is cls
    if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields"):
        hints = typing.get_type_hints(cls, include_extras=True)
        return type(value) is cls and all(has_type(getattr(value, name), hint, inner) for name, hint in hints.items())
    return type(value) is cls


def _keeps(value: Any, mark: Any) -> bool:
    name = type(mark).__name__
    if name == "Length":
        return mark.min_length <= len(value) and (mark.max_length is None or len(value) <= mark.max_length)
    if name == "Pattern":
        return re.fullmatch(mark.pattern, value) is not None
    bound = next(iter(vars(mark).values()))
    if name == "MultipleOf":
        return (Fraction(value) / Fraction(bound)).denominator == 1
    return bool({"Gt": value > bound, "Ge": value >= bound, "Lt": value < bound, "Le": value <= bound}[name])

