"""What a text shall be: reads the second argument of a `LanguageModel` and says how to compile it and how to read the text.

| Given | Text | Value |
| --- | --- | --- |
| a string, `Regex`, `re.Pattern` | a full match of the pattern | the text |
| a list of strings | one of them | the text |
| `Grammar(text)` | a text of the grammar | the text |
| a dict | JSON of this JSON Schema | the JSON value |
| a type | JSON of the type | a value of the type |
| a function, a list of functions | a call, as JSON | a `Call`, which can be run |
| a `Language`, an automaton, a `CompiledConstraint`, `CompiledItems` | what they accept | the text |
| a `Constraint`, from `LanguageModel.compile` | as compiled | as compiled |
| None | anything | the text |

A string is always a pattern: where one looks like a grammar, JSON or a file's name, an error asks which is meant.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import types
import typing
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import fsa_compile
from constrax.errors import UseError
from fsa_compile.compiler.grammars import is_grammar
from fsa_compile.errors import named_fields
from fsa_compile.protocols.answers import json_value

FORMS = (
    "Give a regular expression, a list of strings, a JSON Schema (a dict), a type such as a dataclass, a function to call, "
    "constrax.Grammar(text), a compiled constraint, or nothing for free text."
)


@named_fields
@dataclasses.dataclass(frozen=True)
class Regex:
    """A pattern, where a plain string might be taken for something else.

    Attributes:
      pattern: see `fsa_compile.compile_regex`.
      flags: of `re`.
    """

    pattern: str
    flags: int = 0


@named_fields
@dataclasses.dataclass(frozen=True)
class Grammar:
    """A grammar in Lark's syntax or in GBNF.

    Attributes:
      text: see `fsa_compile.compile_grammar`.
      start: the start rule; None: `start`, in GBNF `root`.
    """

    text: str
    start: str | None = None


@named_fields
class Each:
    """A constraint of its own for every prompt of a list, `None` for free text.

    Args:
      wanted: one per prompt, each as for a single prompt.
    """

    def __init__(self, *wanted: Any) -> None:
        self.wanted = wanted


def same(text: str) -> str:
    """The text itself: what is read where the text is the value."""
    return text


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Constraint:
    """A compiled constraint that knows how its texts are read.

    Attributes:
      artifact: a `CompiledConstraint`, or `CompiledItems`.
      read: text → value.
      name: what it was made from, for people.
    """

    artifact: Any
    read: Callable[[str], Any] = same
    name: str = ""

    def __repr__(self) -> str:
        return f"Constraint({self.name}: {self.artifact!r})"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How to compile what was given.

    Attributes:
      name: for people.
      compile: `(tokenizer, **options) -> artifact`.
      read: text → value.
      key: equal for what compiles to the same; None where that is not known.
      shared: names of options that reading takes as well.
    """

    name: str
    compile: Callable[..., Any]
    read: Callable[..., Any] = same
    key: Hashable = None
    shared: tuple[str, ...] = ()

    def made(self, tokenizer: Any, options: Mapping[str, Any]) -> Constraint:
        """The constraint, compiled now."""
        reading = {name: options[name] for name in self.shared if name in options}
        read = functools.partial(self.read, **reading) if reading else self.read
        return Constraint(self.compile(tokenizer, **options), read, self.name)


def plan_of(wanted: Any) -> Plan:
    """How what the user gave is compiled and read.

    Raises:
      UseError: it is nothing that can be compiled, or may be meant in two ways; the error says what to write.
    """
    if isinstance(wanted, str):
        _check_pattern(wanted)
        return _regex(wanted, 0)
    if isinstance(wanted, (Regex, re.Pattern)):
        return _regex(wanted.pattern, wanted.flags & ~re.UNICODE)
    if isinstance(wanted, Grammar):
        compiled = functools.partial(fsa_compile.compile_grammar, wanted.text, start=wanted.start)
        return Plan("grammar", compiled, key=wanted if isinstance(wanted.text, str) else None)
    if isinstance(wanted, fsa_compile.Language):
        return Plan("language", functools.partial(fsa_compile.compile_language, wanted), key=wanted)
    if isinstance(wanted, Mapping):
        return _schema(wanted)
    if isinstance(wanted, (Sequence, Set)) and not isinstance(wanted, (bytes, bytearray)):
        return _several(list(wanted))
    if _is_type(wanted):
        compiled = functools.partial(fsa_compile.compile_type, wanted)
        read = functools.partial(fsa_compile.parse, wanted)
        return Plan(_named(wanted), compiled, read, _hashable(wanted), ("style", "namespace", "allow_code"))
    if inspect.isroutine(wanted):
        return _calls([wanted])
    if type(wanted).__module__.partition(".")[0] in ("pynini", "_pynini", "_pywrapfst", "pywrapfst", "interegular"):
        return Plan("automaton", functools.partial(fsa_compile.compile_acceptor, wanted))
    raise _unknown(wanted)


def _regex(pattern: Any, flags: int) -> Plan:
    compiled = functools.partial(fsa_compile.compile_regex, pattern, flags=flags)
    return Plan(f"pattern {pattern!r:.60}", compiled, key=("pattern", _hashable(pattern), flags))


def _schema(schema: Mapping[str, Any]) -> Plan:
    if schema.get("type") in ("json_schema", "json_object", "structural_tag"):
        what = "this dict is a response format of a server's API, not a JSON Schema"
        fix = "Pass the schema in it, or lm.compile(fsa_compile.compile_response_format(given, lm.tokenizer))."
        raise UseError(what, fix=fix)
    try:
        key: Hashable = ("schema", json.dumps(schema))
    except (TypeError, ValueError, RecursionError):
        key = None  # the compiler says what is wrong with it
    given = schema if isinstance(schema, dict) else dict(schema)
    _warn_of_mistakes(given)
    return Plan("JSON Schema", functools.partial(fsa_compile.compile_json_schema, given), json_value, key)


def _warn_of_mistakes(schema: dict[str, Any]) -> None:
    """A misspelt keyword says nothing, and the model then writes what the schema was to exclude."""
    try:
        notes = fsa_compile.inspect.lint(schema)
    except fsa_compile.ConstraintError:
        return  # the compiler says what is wrong
    for note in notes:
        if not note.is_open:
            warnings.warn(f"in the JSON Schema, {note}", stacklevel=2)


def _several(given: list[Any]) -> Plan:
    if not given:
        raise UseError("the list of choices is empty", fix="Give at least one string.")
    if all(isinstance(one, str) for one in given):
        compiled = functools.partial(fsa_compile.compile_choices, given)
        return Plan(f"one of {len(given)} texts", compiled, key=("choices", frozenset(given)))
    if all(inspect.isroutine(one) for one in given):
        return _calls(given)
    other = next(one for one in given if not isinstance(one, str))
    what = f"a list is one of choices, so it holds strings, not {type(other).__name__} ({other!r:.40})"
    fix = "For other values write typing.Literal[1, 2] or a union of types; for a constraint per prompt constrax.Each(a, b)."
    raise UseError(what, fix=fix)


def _calls(functions: list[Any]) -> Plan:
    compiled = functools.partial(fsa_compile.compile_call, functions)
    read = functools.partial(fsa_compile.parse_call, functions)
    names = ", ".join(getattr(f, "__name__", "?") for f in functions)
    return Plan(f"call of {names}", compiled, read, _hashable(tuple(functions)), ("style", "trigger", "namespace", "allow_code"))


def _is_type(wanted: Any) -> bool:
    special = (types.UnionType, typing.NewType, typing.TypeVar, typing.ForwardRef, *_aliases())
    return wanted is Any or isinstance(wanted, (type, *special)) or typing.get_origin(wanted) is not None


def _aliases() -> tuple[type, ...]:
    """The class of `type X = ...`, from Python 3.12 on."""
    alias = getattr(typing, "TypeAliasType", None)
    return () if alias is None else (alias,)


def _named(T: Any) -> str:
    return str(getattr(T, "__name__", None) or T)


def _hashable(value: Any) -> Hashable:
    """The value with its type where it can be a key, else None."""
    try:
        hash(value)
    except TypeError:
        return None
    return type(value), value


_START = re.compile(r"^[ \t]*\??start[ \t]*:", re.M)
"""How a grammar begins, though there may be a mistake in it."""


def _check_pattern(text: str) -> None:
    """Raises `UseError` where a string looks like something else than a pattern."""
    way = "For the pattern itself write constrax.Regex(...)."
    if _START.search(text) or is_grammar(text):
        raise UseError("this string may be a grammar or a pattern", where=_line(text), fix=f"Write constrax.Grammar(...). {way}")
    if text.lstrip()[:1] == "{":
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            what = "this string is JSON, and a string is taken as a pattern"
            raise UseError(what, where=_line(text), fix=f"For a JSON Schema pass json.loads(text). {way}")
    if re.fullmatch(r"[\w./\\~-]+\.(npz|json|lark|gbnf|yaml|yml|txt)", text):
        ways = {
            "npz": "fsa_compile.CompiledConstraint.load(path)",
            "json": "json.loads(Path(path).read_text())",
            "lark": "constrax.Grammar(Path(path).read_text())",
            "gbnf": "constrax.Grammar(Path(path).read_text())",
        }
        opened = ways.get(text.rpartition(".")[2], "Path(path).read_text()")
        what = "this string looks like the name of a file, and a string is taken as a pattern"
        raise UseError(what, where=_line(text), fix=f"Read the file first: {opened}. {way}")


def _line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 76 else line[:75] + "…"


def _unknown(wanted: Any) -> UseError:
    kind = type(wanted).__name__
    if isinstance(wanted, bool):
        return UseError(f"{wanted} is nothing that a text can be held to", fix="For true or false write bool, the type. " + FORMS)
    if isinstance(wanted, (bytes, bytearray)):
        return UseError("a pattern is a str, not bytes", fix="Decode it first: pattern.decode().")
    if isinstance(wanted, Path):
        return UseError("a path says nothing about texts", where=str(wanted), fix="Read the file first. " + FORMS)
    if isinstance(wanted, Each):
        return UseError("Each(...) is for a list of prompts", fix="Give one prompt for each of its constraints.")
    if dataclasses.is_dataclass(wanted) or hasattr(type(wanted), "model_fields"):
        return UseError(f"this is a value, {wanted!r:.60}; its type is needed", fix=f"Pass {kind}, without parentheses.")
    return UseError(f"a text cannot be held to a {kind} ({wanted!r:.60})", fix=FORMS)
