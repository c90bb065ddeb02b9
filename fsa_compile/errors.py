"""Exceptions of the compiling half. Imports nothing of the package; every error derives from `ConstraintError`.

An error text has three parts, in this order: what was wrong, where in the user's input, what to do. The parts are kept
as attributes so that a program can show them its own way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class ConstraintError(ValueError):
    """Base of every error that compiling or loading a constraint can raise.

    Args:
      what: one sentence that says what is wrong.
      where: the place in the user's input (an offset, a file, a line), or "".
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        text = "\n  ".join(part for part in (what, where, fix) if part)
        super().__init__(text.encode("utf-8", "backslashreplace").decode())  # what it quotes may hold lone surrogates

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors pass between processes: keyword arguments are more than an exception can restore by itself."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[ConstraintError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ConstraintError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


def shown(value: Any, width: int = 60) -> str:
    """What Python prints of a value, cut to a width; its type where Python cannot print it."""
    try:
        return f"{value!r:.{width}}"
    except Exception:
        return f"a value of type {type(value).__name__:.{width}}"


class PatternError(ConstraintError):
    """A pattern that is not well formed, or not a regular language we can enforce exactly.

    The text shows the pattern with a caret line under `pattern[start:end]`.
    """

    def __init__(self, what: str, *, pattern: str, start: int, end: int | None = None, fix: str = "") -> None:
        self.pattern, self.start = pattern, start
        self.end = max(start + 1, start + 1 if end is None else end)
        super().__init__(f"{what} (offset {start})", where=_caret(pattern, self.start, self.end), fix=fix)


class RegexSyntaxError(PatternError):
    """The pattern is not a well-formed regular expression."""


class UnsupportedPatternError(PatternError):
    """The pattern is well formed, but what it asks for is not a regular language (or not one we enforce)."""


class GrammarError(ConstraintError):
    """A grammar that cannot become a constraint.

    The text shows the line of the grammar with carets under `text[start:end]`, and its number.

    Attributes:
      text: the whole grammar.
      start, end: the span that is meant; offsets in `text`.
      line, column: where it begins, both from 1.
    """

    def __init__(self, what: str, *, text: str, start: int, end: int | None = None, fix: str = "") -> None:
        self.text, self.start = text, min(max(start, 0), len(text))
        self.end = max(self.start + 1, self.start + 1 if end is None else end)
        begin = text.rfind("\n", 0, self.start) + 1
        self.line, self.column = text.count("\n", 0, begin) + 1, self.start - begin + 1
        line = text[begin:].partition("\n")[0].removesuffix("\r").replace("\t", " ")
        shown = _caret(line, self.start - begin, max(min(self.end - begin, len(line)), self.column))
        super().__init__(f"{what} (line {self.line}, column {self.column})", where=shown, fix=fix)


class GrammarSyntaxError(GrammarError):
    """The grammar's text is not well formed, or a name in it means nothing."""


class UnsupportedGrammarError(GrammarError):
    """The grammar is well formed, but it asks for what cannot be enforced exactly, or what is not offered."""


class GrammarConflictError(GrammarError):
    """After some text the next byte can be read in two ways that one stack cannot follow both.

    Attributes:
      example: a shortest text (UTF-8) after which it happens.
      symbol: the byte or the special token that is then read; "" for the end of the text.
      readings: the two ways, in terms of the grammar's rules.
    """

    def __init__(
        self, what: str, *, text: str, start: int, end: int | None = None, example: bytes, symbol: bytes | str,
        readings: tuple[str, str], fix: str = "",
    ) -> None:  # fmt: skip
        self.example, self.symbol, self.readings = example, symbol, readings
        super().__init__(what, text=text, start=start, end=end, fix=fix)


class UnsatisfiableError(ConstraintError):
    """The constraint accepts no text at all."""


class UnspellableError(ConstraintError):
    """The constraint accepts text, but no sequence of this vocabulary's tokens spells any of it."""


class BudgetError(ConstraintError):
    """A limit on tokens or on stack cells within which no text can be completed, as far as the bound on its rest tells.

    Args:
      limit: what is left, or allowed in all.
      needed: within how much a text is complete for certain.
      unit: "tokens" or "stack cells".

    Attributes:
      limit, needed: as given.
    """

    def __init__(self, limit: int, needed: int, unit: str = "tokens", *, where: str = "") -> None:
        self.limit, self.needed = limit, needed
        what = f"the limit is {limit} {unit}, below the bound on the rest of the text, {needed}"
        super().__init__(what, where=where, fix=f"Allow {needed} {unit} or more.")


class LimitError(ConstraintError):
    """A step would exceed a named limit of `CompileLimits`.

    Args:
      limit: field name in `CompileLimits`.
      allowed: its value.
      doing: what was being computed, in a few words.
      fix: a way out besides raising the limit.
    """

    def __init__(self, limit: str, allowed: float, doing: str, *, fix: str = "") -> None:
        self.limit, self.allowed = limit, allowed
        way = fix or f"Raise CompileLimits.{limit}, or simplify the constraint."
        super().__init__(f"{doing} needs more than {limit}={allowed:,}", fix=way)


class TokenizerError(ConstraintError):
    """A tokenizer file or object that cannot be read exactly."""


class SchemaError(ConstraintError):
    """A schema that is not well formed.

    Args:
      what: one sentence that says what is wrong.
      pointer: JSON pointer of the place in the schema, as a URI fragment such as `#/properties/age`.
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, pointer: str, fix: str = "") -> None:
        self.pointer = pointer
        super().__init__(what, where=f"at {pointer}", fix=fix)


class UnsupportedSchemaError(SchemaError):
    """The schema is well formed, but asks for what is not enforced exactly, so it is refused."""


@contextlib.contextmanager
def flat_enough() -> Iterator[None]:
    """Turns a RecursionError into an error of the schema: formulas are as deep as an object has keys."""
    try:
        yield
    except RecursionError:
        raise UnsupportedSchemaError("the schema is nested too deeply", pointer="#", fix="Flatten it.") from None


class UnsatisfiableSchemaError(SchemaError, UnsatisfiableError):
    """No JSON value satisfies the schema."""


class ArtifactError(ConstraintError):
    """A compiled constraint that cannot be loaded, or does not belong to this vocabulary."""


class DefectError(ConstraintError):
    """An exception that no input should cause; the one that was meant is its `__cause__`.

    Args:
      function: the public function that was called.
      error: what was raised in it, here or in an object that was passed.
      digest: of the function's first argument.
    """

    def __init__(self, function: str, error: Exception, digest: str) -> None:
        self.function, self.digest = function, digest
        said = shown(error, 200)
        fix = "Please report it, with this text and the input; an object that you passed may also have raised it."
        super().__init__(f"{function} met a defect of this package: {said}", where=f"input {digest}", fix=fix)


def install_command(extra: str) -> str:
    """What installs an extra of this distribution, from its address and in a clone; it is in no package index."""
    return f'pip install "constrax[{extra}] @ git+https://github.com/constrax/constrax" (in a clone: pip install ".[{extra}]")'


class MissingPackageError(ConstraintError, ModuleNotFoundError):
    """A package of one of the extras is needed and not installed.

    Args:
      package: what is missing.
      doing: what needs it, the beginning of a sentence.
      extra: the extra of this distribution that installs it, or "" where the package is to be installed by its name.
      otherwise: other ways out.
    """

    def __init__(self, package: str, doing: str, extra: str = "", *, otherwise: str = "") -> None:
        fix = f"Install it with: {install_command(extra) if extra else f'pip install {package}'}{otherwise}"
        super().__init__(f"{doing} needs the package {package}, which is not installed", fix=fix)
        self.name = package


def _caret(pattern: str, start: int, end: int, width: int = 76) -> str:
    """The pattern's line around `start` with carets below the span, cut to `width` columns."""
    shown = "".join(c if c.isprintable() else "�" for c in pattern)
    lo = max(0, start - width // 2)
    hi = min(len(shown), lo + width)
    prefix, suffix = ("…" if lo else ""), ("…" if hi < len(shown) else "")
    carets = " " * (start - lo + len(prefix)) + "^" * max(1, min(end, hi) - start)
    return f"  {prefix}{shown[lo:hi]}{suffix}\n    {carets}"
