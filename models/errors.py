"""Exceptions of the model half. Imports nothing of the package.

Every text has three parts, in this order: what is wrong, where, what to do; they are attributes too. This package does
not import the compiling half, so its base class is its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind")
_INSTALL = (
    'Install it with: pip install "constrax[models] @ git+https://github.com/constrax/constrax" '
    '(in a clone: pip install ".[models]")'
)


class ModelError(ValueError):
    """Base of every error that building, loading or saving a model can raise.

    Args:
      what: one sentence that says what is wrong.
      where: the place in the user's input (a file, a parameter), or "".
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__("\n  ".join(part for part in (what, where, fix) if part))

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors pass between processes."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class MissingPackageError(ModelError, ModuleNotFoundError):
    """A package of the extra `models` is needed and not installed.

    Args:
      package: what is missing.
    """

    def __init__(self, package: str) -> None:
        what = f"models of this package need the package {package}, which is not installed"
        super().__init__(what, fix=_INSTALL)
        self.name = package


class ConfigError(ModelError):
    """A model configuration that contradicts itself, or a name that is not in the registry."""


class CheckpointError(ModelError):
    """A checkpoint that is missing, incomplete, or does not fit the configuration."""


class CallError(ModelError, TypeError):
    """A call whose arguments do not fit the function: an unknown name, one too many, one too few."""


def named_arguments(function: _Function) -> _Function:
    """A public function whose calls with wrong arguments raise `CallError`, which names the right ones."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        signature = inspect.signature(function)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            known = [name for name in signature.parameters if name != "self"]
            name = function.__qualname__.removesuffix(".__init__")
            raise CallError(f"{name}: {error}", fix=f"{name} takes {', '.join(known)}.") from None
        return function(*args, **kwargs)

    return run  # type: ignore[return-value]


def named_fields(kind: type[_Kind]) -> type[_Kind]:
    """A class whose constructor is one of the `named_arguments`."""
    kind.__init__ = named_arguments(kind.__init__)  # type: ignore[method-assign]
    return kind
