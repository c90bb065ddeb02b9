"""Named limits on everything that can blow up while compiling. Imports the standard library only."""

from __future__ import annotations

import dataclasses
import time

from fsa_compile.errors import LimitError


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileLimits:
    """Upper bounds for one compilation; exceeding one raises `LimitError` with the field's name.

    Attributes:
      max_states: byte-automaton states, before and after determinization.
      max_rows: distinct token sets stored as bit rows in the artifact.
      max_bytes: bytes of working memory of one step, and of the finished artifact.
      max_seconds: wall-clock seconds for the whole compilation.
      max_pattern: characters in a pattern.
      max_repeat: largest bound in a counted repetition such as `x{0,500}`.
    """

    max_states: int = 2_000_000
    max_rows: int = 65_536
    max_bytes: int = 2 << 30
    max_seconds: float = 300.0
    max_pattern: int = 1_000_000
    max_repeat: int = 100_000


class Deadline:
    """A wall-clock budget that long loops ask with `check`."""

    __slots__ = ("_end", "_seconds")

    def __init__(self, limits: CompileLimits) -> None:
        self._seconds = limits.max_seconds
        self._end = time.monotonic() + limits.max_seconds

    def check(self, doing: str) -> None:
        """Raises `LimitError` when the time is used up.

        Args:
          doing: what is being computed, for the message.
        """
        if time.monotonic() > self._end:
            raise LimitError("max_seconds", self._seconds, doing)
