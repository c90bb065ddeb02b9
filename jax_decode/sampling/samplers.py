"""The samplers a user chooses from: small frozen configurations. How they are carried out is `sampling`'s business."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

from fsa_compile.errors import named_fields
from jax_decode.errors import DecodeError, is_number, is_whole, shown

_T = TypeVar("_T")
_LEAST = 1e-30
"""Least probability or temperature, and the inverse of the largest temperature."""


@dataclass_transform(frozen_default=True)
def _sampler(*static: str) -> Callable[[type[_T]], type[_T]]:
    """Registers a frozen dataclass; every field not named is a traced leaf, so changing it compiles nothing."""

    def register(cls: type[_T]) -> type[_T]:
        cls = dataclasses.dataclass(frozen=True)(cls)
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        data = [n for n in names if n not in static]
        return jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=list(static))

    return register


@named_fields
@_sampler()
class Greedy:
    """The most probable allowed token; among equals the lowest id."""


@named_fields
@_sampler()
class Categorical:
    """A draw from the model's distribution over the allowed tokens.

    Attributes:
      temperature: logits are divided by it; positive.
    """

    temperature: Any = 1.0


@named_fields
@_sampler("k")
class TopK:
    """A draw among the k most probable allowed tokens; ties with the k-th are all kept.

    Attributes:
      k: how many; static.
      temperature: as in `Categorical`.
    """

    k: int
    temperature: Any = 1.0


@named_fields
@_sampler()
class TopP:
    """A draw from the smallest set of most probable allowed tokens whose probability is at least p.

    Attributes:
      p: in (0, 1], of the distribution over the allowed tokens at this temperature; ties at the border are all kept.
      temperature: as in `Categorical`.
    """

    p: Any
    temperature: Any = 1.0


@named_fields
@_sampler()
class MinP:
    """A draw among the allowed tokens at least p times as probable as the most probable one.

    Attributes:
      p: in (0, 1], at this temperature.
      temperature: as in `Categorical`.
    """

    p: Any
    temperature: Any = 1.0


Sampler = Greedy | Categorical | TopK | TopP | MinP


def check_sampler(sampler: Any, *, traced: bool = False) -> None:
    """Raises `DecodeError` unless it is a sampler whose numbers make sense; `traced`: it may be `prepared`, or hold arrays."""
    if not isinstance(sampler, Sampler):
        names = "Greedy(), Categorical(temperature), TopK(k), TopP(p), MinP(p)"
        raise DecodeError(f"the sampler is {shown(sampler)}", fix=f"Give one of {names}.")
    name = type(sampler).__name__
    if isinstance(sampler, TopK) and not is_whole(sampler.k, 1):
        fix = "Give how many tokens may be drawn, such as 50."
        raise DecodeError(f"k must be a whole number of at least 1, not {shown(sampler.k)}", where=name, fix=fix)
    for what, most, fix in (
        ("p", 1.0, "Give a probability in (0, 1]."),
        ("temperature", math.inf, "Give a positive finite number; for temperature 0 use Greedy()."),
    ):
        value = getattr(sampler, what, 1.0)
        if traced and (_holds_one(value) or (what == "temperature" and value is None)):
            continue  # a value of the device is not waited for
        check_number(value, what, most, name, fix)


def prepared(sampler: Sampler) -> Sampler:
    """The sampler as it is traced: numbers become float32 scalars; the temperature 1.0 becomes None.

    None is part of the compiled program, which then needs one exponential per logit where another temperature needs two
    (log-probabilities are always of temperature 1).
    """
    if isinstance(sampler, Greedy):
        return sampler
    changes: dict[str, Any] = {"temperature": None if is_one(sampler.temperature) else np.float32(sampler.temperature)}
    if isinstance(sampler, (TopP, MinP)):
        changes["p"] = np.float32(sampler.p)
    return dataclasses.replace(sampler, **changes)


def is_one(temperature: Any) -> bool:
    """Whether a temperature is known to be 1 while a program is traced; None stands for that."""
    return temperature is None or (isinstance(temperature, numbers.Real) and float(temperature) == 1.0)


def _holds_one(value: Any) -> bool:
    return isinstance(value, jax.Array) and value.shape == () and jax.dtypes.issubdtype(value.dtype, np.number)


def check_number(value: Any, what: str, most: float, where: str, fix: str) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        if _holds_one(value) and not isinstance(value, jax.core.Tracer):
            value = float(value)
        else:
            raise DecodeError(f"the {what} is {shown(value)}, not a number", where=where, fix=fix)
    if not is_number(value, 0, most) or not value:
        raise DecodeError(f"the {what} {shown(value)} is out of range", where=where, fix=fix)
    if not _LEAST <= value <= 1 / _LEAST:  # it becomes a float32, and so does its inverse times a logit
        raise DecodeError(f"the {what} {value} is too {'small' if value < 1 else 'large'} for a float32", where=where, fix=fix)
