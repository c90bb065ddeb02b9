"""Exceptions of the decoding half, and checks of single arguments. Imports nothing but those of the compiling half and NumPy.

As in `fsa_compile.errors`, an error text says what was wrong, where in the user's input, and what to do; the parts are kept as
attributes.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fsa_compile.errors import PartsError, install_command, naming
from fsa_compile.errors import is_whole as is_whole
from fsa_compile.errors import shown as shown


class DecodeError(PartsError):
    """Base of every error that moving a constraint to the device, sampling or generating can raise.

    Args: `what`, `where` and `fix`, as of all errors.
    """


class CallError(DecodeError, TypeError):
    """A call whose arguments do not fit the function: an unknown name, one too many, one too few."""


named_arguments = naming(CallError)
"""A public function whose calls with wrong arguments raise `CallError`, which names the right ones."""


class MissingPackageError(DecodeError, ModuleNotFoundError):
    """A package of one of the extras is needed and not installed.

    Args:
      package: what is missing.
      doing: what needs it, the beginning of a sentence.
      extra: the extra of this distribution that installs it, or "" where the package is to be installed by its name.
    """

    def __init__(self, package: str, doing: str, extra: str = "") -> None:
        fix = "Install it with: " + (install_command(extra) if extra else f"pip install {package}")
        super().__init__(f"{doing} needs the package {package}, which is not installed", fix=fix)
        self.name = package


class PoolFullError(DecodeError):
    """A pool of constraints has no room for one more beside those in use.

    Args:
      what: one sentence that names what is missing.
      missing: entries needed and free, by the name of the table.
      fix: what the user can do about it.
    """

    def __init__(self, what: str, *, missing: Mapping[str, tuple[int, int]], fix: str = "") -> None:
        super().__init__(what, where="pool", fix=fix)
        self.missing = dict(missing)


def is_number(value: Any, least: float, most: float = math.inf) -> bool:
    """Whether a value is a finite number between two bounds, both allowed; no truth value and no array is one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value) and least <= float(value) <= most
    except OverflowError:  # a whole number that no float holds
        return False


def checked_flag(value: Any, name: str) -> bool:
    """A truth value as given; raises `DecodeError` for anything else, such as the text "no"."""
    if not isinstance(value, (bool, np.bool_)):
        raise DecodeError(f"{name} is {shown(value)}", fix="Give True or False.")
    return bool(value)


def path_of(path: Any, of: str) -> Path:
    """A path as users give it; raises `DecodeError` for anything else, such as the number of an open file."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    try:
        held = isinstance(text, str) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        held = False
    if not held:
        raise DecodeError(f"{shown(path)} is no path", fix=f"Give the path of {of}.")
    return Path(path)


def check_function(value: Any, name: str, fix: str) -> None:
    """Raises `DecodeError` for what cannot be called."""
    if not callable(value):
        raise DecodeError(f"{name} is {shown(value)}, which cannot be called", fix=fix)


MOST_LOGITS = 1 << 22
"""Most logits of a model, as many as a vocabulary may have ids."""


def no_numbers(where: str) -> DecodeError:
    """The error of a model whose logits are all NaN (or -inf) at a place: no probability can be computed from them."""
    fix = "Check its parameters and their dtype: float16 overflows where bfloat16 and float32 do not."
    return DecodeError("none of the model's logits is a number", where=where, fix=fix)
