"""`Protocol`: how a chat model writes a turn, as a description: reasoning, content, calls, and what ends it.

Marks are written as their text, such as `<think>`. Where a vocabulary has a special token of a name in `Protocol.tokens`, the
mark is that token; where it has none, the mark is its text, and no content imitates it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fsa_compile.call_syntax.syntax import JSON, PYTHON, CallSyntax
from fsa_compile.errors import ConstraintError, named_fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a turn and what stands around it.

    Attributes:
      begin, end: marks and text.
    """

    begin: str = ""
    end: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builtin:
    """A tool that a model knows from its training, and writes in a form of its own.

    Attributes:
      begin, middle, end: what stands before its name, between name and arguments, and behind them.
      parameters: JSON Schema of its arguments.
      arguments: how they are written.
      text: name of the one argument that is free text up to the end of the turn, and then the tool's name is not written; "" for
        arguments of a schema.
    """

    begin: str
    middle: str = ""
    end: str = ""
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arguments: CallSyntax = PYTHON
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calls:
    """How calls are written: `all_begin`, a call, `separator`, another, `all_end`; a call: `begin NAME middle ARGUMENTS end`.

    Attributes:
      all_begin, all_end: around all calls.
      begin, middle, end: around the name and the arguments of one.
      separator: between calls.
      arguments: how they are written.
      many: whether a turn may hold several.
      call_id: the mark before an id of 9 letters and digits that may stand between name and `middle`; "" for none.
      id_behind: the text before an id, in quotation marks, that may stand behind the arguments; "" for none.
      preamble: how content before calls is written; None: a turn is content or calls.
      builtins: tools that are asked for by their name alone.
      also: other ways to write the same calls, one of them for a whole turn; their openings begin with text, or with the token
        that this one's does. `many`, `preamble` and `builtins` are this one's.
    """

    all_begin: str = ""
    all_end: str = ""
    begin: str = ""
    middle: str = ""
    end: str = ""
    separator: str = ""
    arguments: CallSyntax = JSON
    many: bool = True
    call_id: str = ""
    id_behind: str = ""
    preamble: Section | None = None
    builtins: Mapping[str, Builtin] = dataclasses.field(default_factory=dict)
    also: tuple[Calls, ...] = ()

    @property
    def ways(self) -> tuple[Calls, ...]:
        """Every way to write the calls."""
        return (self, *self.also)

    @property
    def opening(self) -> str:
        """What stands before the name of the first call."""
        return self.all_begin + self.begin


@named_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a model writes a turn.

    Attributes:
      name: for errors, and for `protocol=`.
      calls: how calls are written.
      reasoning: around what it thinks; None: it does not.
      content: around the answer.
      join: what stands between two parts of a turn; "" where line breaks may (at most two).
      tokens: names of the special tokens that it writes or that mark its turns; content holds none of them.
      stops: names of those that end a turn.
      source: where the format is published, and when.
    """

    name: str
    calls: Calls
    reasoning: Section | None = None
    content: Section = Section()
    join: str = ""
    tokens: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        for name in (*self.tokens, *self.stops):
            if not isinstance(name, str) or not name:
                raise ConstraintError(f"the protocol {self.name!r} names the token {name!r}", fix="Give its printed name.")
        if self.calls.preamble is not None and not self.calls.preamble.begin and not self.is_marked:
            what = f"in the protocol {self.name!r} content may stand before calls, and no token begins a call"
            raise ConstraintError(what, fix="Let calls begin with a name of `tokens`, or leave the preamble out.")

    @property
    def is_marked(self) -> bool:
        """Whether a token begins the calls."""
        return any(self.calls.opening.startswith(name) for name in self.tokens)
