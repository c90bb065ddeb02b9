"""Fewer runs of Python's cycle collector while something is compiled.

A compilation makes hundreds of thousands of small tuples and lists that live until it ends. The collector would look at all of
them again and again, a tenth to a fifth of the whole time, and find next to nothing.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_THRESHOLD = 1_000_000
"""New objects between two collections of the youngest generation; Python's own default is 700 to 2,000."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Raises the collector's threshold within; what a user has set, higher or off, stays."""
    before = gc.get_threshold()
    if not 0 < before[0] < _THRESHOLD:
        yield
        return
    gc.set_threshold(_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collected_rarely(function: _Function) -> _Function:
    """A function that runs within `rare_collections`."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with rare_collections():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]
