"""The nodes of a parsed grammar, whatever syntax it was written in. They know their place in the text, and no automata.

Front ends (`lark_syntax`, `gbnf_syntax`) make a `Grammar`; `transition_network` reads one. Aliases, tree-shaping marks
and templates are gone: a node says what may be written and nothing else.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

LexicalMode: TypeAlias = OneOf["characters", "longest", "lark"]
"""How terminals become text: concatenated as they are, or as a lexer cuts it (longest match, ignored text in between)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """A string; `ignore_case` follows the pattern flag `i`."""

    text: str
    start: int
    end: int
    ignore_case: bool = False


class Match(enum.Enum):
    """Which match of a pattern the lexeme is: the longest, with conditions that see the lexeme alone, or the text around it; the
    first when alternatives and loops are tried in order (`first_match`); or the shortest behind which conditions hold."""

    LONGEST, LOOKING, FIRST, SOONEST = "pattern", "looking", "ordered", "soonest"


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression in Python's dialect; flags is a subset of "imsx"."""

    pattern: str
    start: int
    end: int
    flags: str = ""
    match: Match = Match.LONGEST


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialToken:
    """One id of the vocabulary that is no text: by its name, such as `<start_of_turn>`, or by its number."""

    name: str | int
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class FreeText:
    """Any text up to and including the first occurrence of one of the triggers (strings)."""

    until: tuple[str, ...]
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Embedded(SpecialToken):
    """A value that a machine of its own reads. The rest of the grammar takes it for a token that is no text.

    Attributes:
      kind: "json" (content: a schema's text), "lark" (a grammar's text), or "tokens" (the terminal called `name`, of so many
        tokens at most).
      content: see `kind`.
    """

    kind: OneOf["json", "lark", "tokens"]
    content: str


@dataclasses.dataclass(frozen=True, slots=True)
class Chunks:
    """Any number of the chunks that follow each other in a list, none included."""

    chunks: tuple[str, ...]
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A rule or a terminal by its name."""

    name: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Bounded(Reference):
    """The texts of a terminal with at most so many characters."""

    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tempered(Reference):
    """The texts of a terminal, as a lexeme of their own with a temperature."""

    temperature: float


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after the other; none stand for the empty text."""

    parts: tuple[Expression, ...]
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One of several branches, at least one."""

    branches: tuple[Expression, ...]
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times the part; `high` None: any number."""

    part: Expression
    low: int
    high: int | None
    start: int
    end: int


Expression: TypeAlias = Literal | Pattern | SpecialToken | FreeText | Chunks | Reference | Sequence | Choice | Repeat


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A named expression.

    Attributes:
      name: as written (instances of templates: as written at their use, such as `_separated{value, ","}`).
      body: its expression.
      terminal: whether it is a terminal (one lexeme in longest-match mode) rather than a rule.
      priority: of a terminal, higher wins where two match the same text; 0 by default.
      start, end: offsets of the definition's name in the grammar's text.
    """

    name: str
    body: Expression
    terminal: bool
    priority: int
    start: int
    end: int


class Size(NamedTuple):
    """Of a terminal, as Lark has it.

    Attributes:
      width: characters of the longest text.
      length: of the regular expression, or of the string.
      joined: length of the expression as part of another one.
    """

    width: float
    length: int
    joined: int


@dataclasses.dataclass(frozen=True, slots=True)
class Indentation:
    """Blocks by indentation.

    Attributes:
      newline: name of the terminal that reads a line's end, blank lines and the spaces that begin the next line.
      indent, dedent: names of the declared terminals for the begin and the end of a block.
      unit: spaces for each block that a line stands in.
      levels: most blocks that are open at once.
    """

    newline: str
    indent: str
    dedent: str
    unit: int = 4
    levels: int = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """A whole grammar.

    Attributes:
      rules: rules and terminals by name, in the order of their definition.
      start: name of the start rule.
      ignore: expressions that may stand between lexemes, before the first and after the last (longest-match mode only).
      mode: the lexical mode.
      text: source text; all offsets count in it. Nodes that come from an import carry the span of the import statement.
      indentation: where blocks are told by indentation.
      called: rules that are frames of their own, whether or not their recursion needs one.
      one_line: rules among them in whose texts newlines are not ignored, in brackets neither.
      captures: rules whose texts are given back, each with the name for them.
      sizes: of terminals as they were written, by name; those of other terminals are their bodies'.
    """

    rules: dict[str, Rule]
    start: str
    ignore: tuple[Expression, ...]
    mode: LexicalMode
    text: str
    indentation: Indentation | None = None
    called: tuple[str, ...] = ()
    one_line: tuple[str, ...] = ()
    captures: tuple[tuple[str, str], ...] = ()
    sizes: Mapping[str, Size] = dataclasses.field(default_factory=dict)


def inside(body: Expression) -> Iterator[Expression]:
    """An expression and everything in it."""
    todo = [body]
    while todo:
        node = todo.pop()
        yield node
        match node:
            case Sequence(parts=children) | Choice(branches=children):
                todo += children
            case Repeat(part=child):
                todo.append(child)
