"""Named limits on everything that can blow up while compiling. Imports the standard library only."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Self

from fsa_compile.errors import ConstraintError, LimitError, named_fields


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileLimits:
    """Upper bounds for one compilation; exceeding one raises `LimitError` with the field's name.

    Attributes:
      max_states: byte-automaton states, before and after determinization.
      max_rows: distinct token sets stored as bit rows in the artifact.
      max_bytes: bytes of working memory of one step, and of the finished artifact; also (on Linux) what the process may grow by
        while it compiles, whatever else runs in it included.
      max_seconds: wall-clock seconds for the whole compilation.
      max_pattern: characters in a pattern or a grammar.
      max_input: characters of a schema, or of a request.
      max_values: values in a schema or a request, those that Python objects share counted as often as its text would have them.
      max_nesting: how deep objects and arrays of a schema or a request may stand within each other.
      max_digits: digits of a number in them, written without an exponent; 4,000 at most. Floats need up to 400
        as they are printed, and up to 1,100 as the bounds of a Python type.
      max_repeat: largest bound in a counted repetition such as `x{0,500}`.
      max_rules: rules and terminals of a grammar, instances of templates included.
    """

    max_states: int = 2_000_000
    max_rows: int = 65_536
    max_bytes: int = 4 << 30
    max_seconds: float = 120.0
    max_pattern: int = 1_000_000
    max_input: int = 16 << 20
    max_values: int = 1_000_000
    max_nesting: int = 500
    max_digits: int = 1_200
    max_repeat: int = 100_000
    max_rules: int = 20_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not is_number or not value >= 0:
                raise ConstraintError(
                    f"CompileLimits.{field.name} must be a number that is not negative, not {value!r}",
                    fix="Leave it out for the default.",
                )
            kind: Any = int if isinstance(value, numbers.Integral) else float
            object.__setattr__(self, field.name, kind(value))  # NumPy's become Python's
        if self.max_digits > MOST_DIGITS:
            raise ConstraintError(f"CompileLimits.max_digits may be {MOST_DIGITS:,} at most, not {self.max_digits:,}")

    @classmethod
    def for_requests(cls, **changes: Any) -> Self:
        """Limits for what strangers send to a server: about 2 seconds, 200 MB, and 256 kB of input.

        Args:
          changes: limits that are to be other than these.

        Examples:
          >>> CompileLimits.for_requests(max_seconds=1).max_input
          262144
        """
        return cls(**_FOR_REQUESTS | changes)


MOST_DIGITS = 4_000
"""Python converts no integers of more than 4,300 digits."""
_FOR_REQUESTS: dict[str, Any] = {
    "max_states": 200_000, "max_rows": 16_384, "max_bytes": 200 << 20, "max_seconds": 2.0, "max_pattern": 64 << 10,
    "max_repeat": 10_000, "max_rules": 2_000, "max_input": 256 << 10, "max_values": 20_000, "max_nesting": 64, "max_digits": 400,
}  # fmt: skip


_NOT_BEGUN = object()
_running: ContextVar[Any] = ContextVar("running", default=None)
"""The deadline of the compilation that runs in this thread; `_NOT_BEGUN` until it has one; None outside of compilations."""


@contextlib.contextmanager
def one_compilation(limits: Any = None) -> Iterator[None]:
    """All deadlines within belong to one compilation, unless one runs already. Its time begins now, where limits are given."""
    if _running.get() is not None:
        yield
        return
    token = _running.set(_NOT_BEGUN)
    try:
        if limits is not None:
            Deadline(limits)
        yield
    finally:
        _running.reset(token)


def check_time(doing: str) -> None:
    """Raises `LimitError` when the budget of the running compilation is used up.

    For loops whose results are kept by what they are made from, so that they have no argument for a deadline.

    Args:
      doing: what is being computed, for the message.
    """
    deadline = _running.get()
    if isinstance(deadline, Deadline):
        deadline.check(doing)


_LOOK_EVERY = 0.05
"""Seconds between two looks at the process's memory, each of which takes some 10 microseconds."""
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int:
    """Bytes of memory that this process has now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def checked_limits(limits: Any) -> CompileLimits:
    """Limits as users give them; raises `ConstraintError` for what is none."""
    if not isinstance(limits, CompileLimits):
        what = f"limits must be CompileLimits, not {type(limits).__name__}"
        raise ConstraintError(what, fix="Write limits=CompileLimits(max_seconds=10), for example.")
    return limits


class Deadline:
    """The budget of one running compilation: a wall clock that long loops ask with `check`, and a bound on memory.

    What Python's own objects take is not counted one by one: from time to time `check` looks how much the process has grown.
    Within a public function (`one_compilation`) the first deadline is that of all steps: later ones end when it does.

    Args:
      limits: `max_seconds` and `max_bytes` are kept to.
      anew: whether the time starts anew, whatever was used before.

    Attributes:
      max_bytes: `CompileLimits.max_bytes`.
    """

    __slots__ = ("_before", "_end", "_look", "_seconds", "max_bytes")

    def __init__(self, limits: CompileLimits, *, anew: bool = False) -> None:
        checked_limits(limits)
        self._seconds = limits.max_seconds
        self._look = time.monotonic()
        self._end = self._look + limits.max_seconds
        outer = _running.get()
        if isinstance(outer, Deadline) and not anew:
            self._end, before = min(self._end, outer._end), outer._before
        else:
            before = resident_bytes()
            self._look += _LOOK_EVERY
            if outer is not None:
                _running.set(self)
        self._before: int = before
        self.max_bytes = limits.max_bytes

    def check(self, doing: str) -> None:
        """Raises `LimitError` when the time is used up, or the process has grown by more than `max_bytes`.

        Args:
          doing: what is being computed, for the message.
        """
        now = time.monotonic()
        if now > self._end:
            raise LimitError("max_seconds", self._seconds, doing)
        if now > self._look:
            self._look = now + _LOOK_EVERY
            self.check_bytes(resident_bytes() - self._before, doing)


    def check_bytes(self, size: int, doing: str) -> None:
        """Raises `LimitError` when a step is about to need more than `max_bytes`.

        Args:
          size: bytes about to be allocated.
          doing: what is being computed, for the message.
        """
        if size > self.max_bytes:
            fix = "Use smaller bounds in counted repetitions, or raise CompileLimits.max_bytes if memory allows."
            raise LimitError("max_bytes", self.max_bytes, doing, fix=fix)
