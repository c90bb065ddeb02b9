"""Named limits on everything that can blow up while compiling. Imports the standard library only."""

from __future__ import annotations

import dataclasses
import time

from fsa_compile.errors import ConstraintError, LimitError


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileLimits:
    """Upper bounds for one compilation; exceeding one raises `LimitError` with the field's name.

    Attributes:
      max_states: byte-automaton states, before and after determinization.
      max_rows: distinct token sets stored as bit rows in the artifact.
      max_bytes: bytes of working memory of one step, and of the finished artifact.
      max_seconds: wall-clock seconds for the whole compilation.
      max_pattern: characters in a pattern or a grammar.
      max_repeat: largest bound in a counted repetition such as `x{0,500}`.
      max_rules: rules and terminals of a grammar, instances of templates included.
    """

    max_states: int = 2_000_000
    max_rows: int = 65_536
    max_bytes: int = 2 << 30
    max_seconds: float = 60.0
    max_pattern: int = 1_000_000
    max_repeat: int = 100_000
    max_rules: int = 20_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise ConstraintError(
                    f"CompileLimits.{field.name} must be a number that is not negative, not {value!r}",
                    fix="Leave it out for the default.",
                )


class Deadline:
    """The budget of one running compilation: a wall clock that long loops ask with `check`, and a bound on memory.

    Attributes:
      max_bytes: `CompileLimits.max_bytes`.
    """

    __slots__ = ("_end", "_seconds", "max_bytes")

    def __init__(self, limits: CompileLimits) -> None:
        self._seconds = limits.max_seconds
        self._end = time.monotonic() + limits.max_seconds
        self.max_bytes = limits.max_bytes

    def check(self, doing: str) -> None:
        """Raises `LimitError` when the time is used up.

        Args:
          doing: what is being computed, for the message.
        """
        if time.monotonic() > self._end:
            raise LimitError("max_seconds", self._seconds, doing)

    def check_bytes(self, size: int, doing: str) -> None:
        """Raises `LimitError` when a step is about to need more than `max_bytes`.

        Args:
          size: bytes about to be allocated.
          doing: what is being computed, for the message.
        """
        if size > self.max_bytes:
            fix = "Use smaller bounds in counted repetitions, or raise CompileLimits.max_bytes if memory allows."
            raise LimitError("max_bytes", self.max_bytes, doing, fix=fix)
