"""Exceptions of the compiling half. Imports nothing of the package; every error derives from `ConstraintError`.

An error text has three parts, in this order: what was wrong, where in the user's input, what to do. The parts are kept
as attributes so that a program can show them its own way.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import itertools
import numbers
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind")


class PartsError(ValueError):
    """Base of the errors of all packages but `models`: their texts have three parts.

    Args:
      what: one sentence that says what is wrong.
      where: the place in the user's input (an offset, a file, a line, a row), or "".
      fix: what the user can do about it, or "".
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        text = "\n  ".join(part for part in (what, where, fix) if part)
        super().__init__(text.encode("utf-8", "backslashreplace").decode())  # what it quotes may hold lone surrogates

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors pass between processes: keyword arguments are more than an exception can restore by itself."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class ConstraintError(PartsError):
    """Base of every error that compiling or loading a constraint can raise; its arguments are those of every error."""


def shown(value: Any, width: int = 60) -> str:
    """What Python prints of a value, cut to a width; its type where Python cannot print it."""
    try:
        return f"{value!r:.{width}}"
    except Exception:
        return f"a value of type {type(value).__name__:.{width}}"


def is_whole(value: Any, least: int, most: int = (1 << 31) - 1) -> bool:
    """Whether a value is a whole number between two bounds, both allowed; no truth value and no array is one."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= int(value) <= most


def is_word(value: Any, words: Iterable[Any]) -> bool:
    """Whether a value is one of several texts, or None where that is among them; no array is one."""
    return (value is None or isinstance(value, str)) and value in words


def whole(value: Any, name: str, most: int = (1 << 31) - 1, least: int = 0) -> int:
    """A whole number between two bounds, both allowed, as an int; raises `ConstraintError` for anything else."""
    if not is_whole(value, least, most):
        raise ConstraintError(f"{name} is {shown(value)}", fix=f"Give a whole number from {least:,} to {most:,}.")
    return int(value)


def checked_flag(value: Any, name: str) -> bool:
    """A truth value as given; raises `ConstraintError` for anything else, such as the text "no"."""
    if value.__class__ is not bool and type(value).__name__ not in ("bool", "bool_"):
        raise ConstraintError(f"{name} is {shown(value)}", fix="Give True or False.")
    return bool(value)


def listed(values: Any, name: str, most: int = 1 << 24) -> list[Any]:
    """The members of what holds several, `most` at most, and is no text; raises `ConstraintError` for anything else."""
    try:
        found = None if isinstance(values, (str, bytes, Mapping)) else list(itertools.islice(values, most + 1))
    except TypeError:
        found = None
    if found is None or len(found) > most:
        raise ConstraintError(f"{name} is {shown(values)}", fix=f"Give a list of {most:,} at most." if found else "Give a list.")
    return found


class CallError(ConstraintError, TypeError):
    """A call whose arguments do not fit the function: an unknown name, one too many, one too few."""


_MEANT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("max_tokens", "max_length", "max_completion_tokens", "max_output_tokens"), ("max_new_tokens",)),
    **dict.fromkeys(("n", "num_samples", "samples", "num_return_sequences", "best_of"), ("samples", "num_samples")),
    **dict.fromkeys(("schema", "json_schema", "regex", "pattern", "grammar", "choices", "type", "constraint"), ("wanted",)),
    **dict.fromkeys(("response_format", "response_model", "output_type", "guide", "constraints"), ("wanted", "tables")),
    **dict.fromkeys(("text", "texts", "prompts", "input", "inputs", "question"), ("prompt", "messages")),
    **dict.fromkeys(("rng", "random_state", "prng", "random_seed", "key"), ("seed", "key")),
    **dict.fromkeys(("functions", "tool"), ("tools",)),
    **dict.fromkeys(("path", "model_path", "folder", "weights"), ("checkpoint",)),
    **dict.fromkeys(("name", "size", "model_name", "model_id"), ("model",)),
    **dict.fromkeys(("vocab", "vocabulary", "tok"), ("tokenizer",)),
    **dict.fromkeys(("config", "settings"), ("options",)),
}
"""What arguments are called elsewhere, and here."""
_WRITTEN = {
    "top_k": {"sampler": "sampler=jax_decode.TopK({})"},
    "top_p": {"sampler": "sampler=jax_decode.TopP({})"},
    "min_p": {"sampler": "sampler=jax_decode.MinP({})"},
    "temperature": {"sampler": "sampler=jax_decode.Categorical({})"},
    "seed": {"key": "key=jax.random.key({})"},
    "do_sample": {"temperature": "temperature=1", "sampler": "sampler=jax_decode.Categorical()"},
    "stop": {"stopping": "stopping=jax_decode.StopStrings({})", "wanted": "lm.stream(prompt, wanted, stop={}).value"},
    "whitespace": {"options": "options=SchemaOptions(whitespace={})"},
    "additional_properties": {"options": "options=SchemaOptions(additional_properties={})"},
}
"""What is written in another way here, by an argument that the function must have for it."""


def right_name(name: str, value: Any, known: list[str]) -> str:
    """What to write for an argument that a function does not have, "" where nothing like it is known."""
    for argument, pattern in _WRITTEN.get(name, {}).items():
        if argument in known:
            return pattern.format(shown(value, 30))
    close = difflib.get_close_matches(name, known, 1, 0.75)
    found = next((other for other in _MEANT.get(name, ()) if other in known), close[0] if close else "")
    written = shown(value, 30)
    return f"{found}={written if len(written) < 30 else '...'}" if found else ""


def naming(error: Callable[..., Exception], name: str = "") -> Callable[[_Function], _Function]:
    """Makes functions say which argument was probably meant where a call does not fit.

    Args:
      error: makes the error from a sentence and `fix=`.
      name: what the user calls the function; "" for its own name.
    """

    def decorated(function: _Function) -> _Function:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError as found:
                wrong = None if isinstance(found, ValueError) else misfit(function, args, kwargs, name or function.__name__)
                if wrong is None:
                    raise
                raise error(wrong[0], fix=wrong[1]) from None

        return run  # type: ignore[return-value]

    return decorated


def named_fields(kind: type[_Kind]) -> type[_Kind]:
    """A class of options that says which one was probably meant, as `naming` does for functions."""
    kind.__init__ = naming(CallError, kind.__name__)(kind.__init__)  # type: ignore[method-assign]
    return kind


def misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    """What is wrong with a call and what to do, None where it fits the signature.

    Args:
      function: what is called.
      args, kwargs: with what.
      name: what the user calls it.
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        kinds = inspect.Parameter
        several = (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
        known = [key for key, one in signature.parameters.items() if key != "self" and one.kind not in several]
        takes = f"{name} takes {', '.join(known[:16])}{' and others' if len(known) > 16 else ''}."
        unknown = [key for key in kwargs if key not in known]
        if unknown:
            right = right_name(unknown[0], kwargs[unknown[0]], known)
            return f"{name} has no argument {unknown[0]!r}", f"Write {right}. {takes}" if right else takes
        return f"{name}: {error}", takes
    return None


def in_options(text: str, names: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """An error's text for a command line: arguments of functions become the command's options.

    Args:
      text: of the error.
      names: arguments as Python has them, `max_seconds`, that are options of the command, `--max-seconds`.
      others: more words, and what they are replaced by; first.
    """
    for word, other in (others or {}).items():
        text = text.replace(word, other)
    for name in sorted(names, key=len, reverse=True):
        end = r"(=True\b|\b)" if "_" in name else "=True"
        text = re.sub(rf"(?<![\w.-])(CompileLimits\.|SchemaOptions\.)?{name}{end}", "--" + name.replace("_", "-"), text)
    return text


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
        place = f"line {self.line}, column {self.column}"
        if modules := list(re.finditer(r"^[ \t]*%module[ \t]+([\w.]+)", text[: self.start], re.M)):
            place += f", in line {text.count(chr(10), modules[-1].start(), begin)} of module {modules[-1][1]}"
        super().__init__(f"{what} ({place})", where=shown, fix=fix)


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


class NoBoundError(ConstraintError):
    """Objects with their keys in any order, of which the rest of a text has no bound that was found."""

    def __init__(self) -> None:
        what = "no bound was found for objects whose keys come in every order"
        super().__init__(what, fix='Use SchemaOptions(key_order="declared").')


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
