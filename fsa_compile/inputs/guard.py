"""The guard at public functions: an exception that is not our own becomes one that says it is a defect, and of which input."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from fsa_compile.errors import CallError, ConstraintError, DefectError, misfit
from fsa_compile.limits import one_compilation

_Function = TypeVar("_Function", bound=Callable[..., Any])


def guarded(function: _Function) -> _Function:
    """A public function that raises errors of our own only, and `OSError` of files; all its steps have one budget.

    Calls that do not fit the signature raise `CallError`, a TypeError that names the argument that was probably meant.
    """
    return _wrapped(function, one_compilation)


def guarded_loop(function: _Function) -> _Function:
    """The same for a function that compiles many constraints, each with a budget of its own."""
    return _wrapped(function, contextlib.nullcontext)


def _wrapped(function: _Function, scope: Callable[[Any], Any]) -> _Function:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with scope(kwargs.get("limits")):
                return function(*args, **kwargs)
        except (ConstraintError, OSError):
            raise
        except RecursionError as error:
            what = f"{function.__name__}: the input is nested too deeply for Python's stack"
            raise ConstraintError(what, fix="Flatten it, or lower CompileLimits.max_nesting.") from error
        except MemoryError as error:
            what = f"{function.__name__}: memory ran out"
            raise ConstraintError(what, fix="Lower CompileLimits.max_bytes, or simplify the constraint.") from error
        except Exception as error:
            if isinstance(error, TypeError) and (wrong := misfit(function, args, kwargs, function.__name__)):
                raise CallError(wrong[0], fix=wrong[1]) from None
            raise DefectError(function.__name__, error, _digest(args, kwargs)) from error

    return run  # type: ignore[return-value]


def _digest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Digest of a call's first argument: that of its text or bytes where it is one, else of what Python prints of it."""
    given = args[0] if args else next(iter(kwargs.values()), None)
    try:
        text = given if isinstance(given, (str, bytes)) else repr(given)
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    except Exception:
        return "of a value that Python cannot print"
    return hashlib.sha256(data).hexdigest()[:16]
