"""Rules that end a row of `stream` by its text or by the time, between two chunks of the loop. They see text, not tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from fsa_compile.errors import named_fields
from jax_decode.errors import DecodeError, check_function, checked_flag, is_number, shown


class StoppingRule(Protocol):
    """What `stream` asks of a rule. A rule keeps no state: it may serve several streams."""

    def cut(self, row: int, text: str, seconds: float) -> int | None:
        """How many characters of a row's text to keep, which ends the row; None to go on.

        Args:
          row: index of the row.
          text: all of its text so far.
          seconds: since the stream was started.
        """

    def held(self, text: str) -> int:
        """How many characters at the end of a text must not be shown yet, because the next ones may have them cut off."""


@named_fields
@dataclasses.dataclass(frozen=True, init=False)
class StopStrings:
    """Ends a row at the first place where one of some strings is complete, wherever tokens begin and end.

    Attributes:
      strings: not empty.
      keep: whether the string itself belongs to the text.
    """

    strings: tuple[str, ...]
    keep: bool

    def __init__(self, *strings: str, keep: bool = False) -> None:
        if not strings or not all(isinstance(s, str) and s for s in strings):
            fix = 'Give strings that are not empty: StopStrings("\\n\\n").'
            raise DecodeError(f"the stop strings are {shown(strings)}", fix=fix)
        object.__setattr__(self, "strings", strings)
        object.__setattr__(self, "keep", checked_flag(keep, "keep"))

    def cut(self, row: int, text: str, seconds: float) -> int | None:
        """See `StoppingRule.cut`. Of several strings the one that is complete first counts, of those the longest."""
        del row, seconds
        places = ((text.find(s), len(s)) for s in self.strings)
        ends = [(at + size, at) for at, size in places if at >= 0]
        if not ends:
            return None
        end, start = min(ends)
        return end if self.keep else start

    def held(self, text: str) -> int:
        """See `StoppingRule.held`: the longest end of the text that begins a stop string; 0 where strings are kept."""
        if self.keep:
            return 0
        sizes = (n for s in self.strings for n in range(min(len(s) - 1, len(text)), 0, -1) if text.endswith(s[:n]))
        return max(sizes, default=0)


@named_fields
@dataclasses.dataclass(frozen=True)
class StopWhen:
    """Ends a row when a function of its text says so; asked once per chunk.

    Attributes:
      predicate: `(row, text) -> bool`.
    """

    predicate: Callable[[int, str], bool]

    def __post_init__(self) -> None:
        check_function(self.predicate, "the predicate", "Give a function of a row's number and its text.")

    def cut(self, row: int, text: str, seconds: float) -> int | None:
        """See `StoppingRule.cut`; keeps all of the text."""
        del seconds
        return len(text) if self.predicate(row, text) else None

    def held(self, text: str) -> int:
        """See `StoppingRule.held`."""
        del text
        return 0


@named_fields
@dataclasses.dataclass(frozen=True)
class TimeLimit:
    """Ends all rows after some time; they keep what they have. The chunk that is running is finished first.

    Attributes:
      seconds: positive.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not is_number(self.seconds, 0) or not self.seconds:
            raise DecodeError(f"the time limit is {shown(self.seconds)}", fix="Give a positive number of seconds.")

    def cut(self, row: int, text: str, seconds: float) -> int | None:
        """See `StoppingRule.cut`."""
        del row
        return len(text) if seconds >= self.seconds else None

    def held(self, text: str) -> int:
        """See `StoppingRule.held`."""
        del text
        return 0
