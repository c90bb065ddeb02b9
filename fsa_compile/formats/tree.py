"""What an output looks like, as a tree: texts, free text, JSON values, and how they follow each other.

Requests become such trees (`structural_tags`, `response_format`), and trees machines (`framing`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.languages.language import Language


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Regex:
    """The texts of a regular expression, in Python's dialect."""

    pattern: str
    pointer: str


@dataclasses.dataclass(frozen=True, slots=True)
class FreeText:
    """Any text in which none of these occurs, and that begins with no lead.

    Attributes:
      leads: what stands before a name, the name, and what stands behind it, at the beginning of a call; none is empty.
    """

    without: tuple[str, ...]
    pointer: str
    leads: tuple[tuple[str, str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FewTokens:
    """Any text of so many tokens at most, in which none of these occurs; a special token or the end of all text ends it."""

    without: tuple[str, ...]
    most: int
    pointer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """The texts of a language."""

    language: Language
    pointer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Until:
    """Free text up to and including `end`, in which no other of the `marks` ends, and none of `without` occurs.

    Attributes:
      end: one of the marks.
      marks: of which none contains another.
    """

    end: str
    marks: tuple[str, ...]
    without: tuple[str, ...]
    pointer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Json:
    """The JSON texts of a schema's values."""

    schema: Any
    pointer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """One token out of some that write no text, by their ids."""

    ids: frozenset[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Special:
    """One special token, by names or ids of a vocabulary that is not known yet.

    Attributes:
      tokens: names and ids.
      excluded: whether it is none of these, and none that begins or ends a text.
    """

    tokens: tuple[str | int, ...]
    pointer: str
    excluded: bool = False


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What a machine reads, from a control of it on."""

    machine: ByteMachine
    start: int
    pointer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """One after the other."""

    parts: tuple[Format, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """One of several; none of them: nothing at all can be written."""

    branches: tuple[Format, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """One of several names, and what stands behind each; what other trees of the same form may have others of."""

    branches: tuple[tuple[str, Format], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeated:
    """`low` to `high` times; `high` None: any number."""

    part: Format
    low: int
    high: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """One or more times a part, with something between neighbours."""

    part: Format
    between: Format


Format: TypeAlias = (
    Text | Regex | Words | FreeText | FewTokens | Until | Json | Token | Special | Value | Parts | OneOf | Named
    | Repeated | Joined
)

NOTHING = Parts(())
"""The empty text."""


def separated(part: Format, separator: str, *, least: int) -> Format:
    """Any number of parts, at least 0 or 1, with a text between them."""
    some = Joined(part, Text(separator))
    return some if least else Repeated(some, 0, 1)
