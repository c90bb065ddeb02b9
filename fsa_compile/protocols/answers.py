"""What an answer may be, as users give it: a schema, a type, a pattern, a language or a grammar."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from fsa_compile.errors import named_fields
from fsa_compile.formats.grammar_constraints import grammar_format
from fsa_compile.formats.tree import Format, Json, Words
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.languages.constructors import regex
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.python_types import json_schema, parse
from fsa_compile.python_types.type_errors import TypeTextError

_POINTER = "#/response"


@named_fields
@dataclasses.dataclass(frozen=True)
class GrammarText:
    """A grammar in Lark's syntax or in GBNF, as an answer.

    Attributes:
      text, start: see `compile_grammar`.
    """

    text: str
    start: str | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer that is no free text.

    Attributes:
      format: the tree, for the options of schemas and bounds of the compilation.
      read: the value of an answer's text.
    """

    format: Callable[[SchemaOptions | None, CompileLimits, Deadline], Format]
    read: Callable[[str], Any]


def answer_of(response: Any) -> Answer:
    """What a user asks for, with what reads it."""
    if isinstance(response, str):
        response = regex(response)
    if isinstance(response, Language):
        words = Words(response, _POINTER)
        return Answer(lambda options, limits, deadline: words, str)
    if isinstance(response, GrammarText):
        given, start = response.text, response.start
        return Answer(lambda options, limits, deadline: grammar_format(given, start, _POINTER, limits, deadline), str)
    if isinstance(response, Mapping):
        schema = Json(response, _POINTER)
        return Answer(lambda options, limits, deadline: schema, json_value)
    of_type = json_schema(response)
    return Answer(lambda options, limits, deadline: Json(of_type, _POINTER), lambda text: parse(response, text))


def json_value(text: str) -> Any:
    """What a JSON text says, or an error of ours: Python reads no whole number of more than 4,300 digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TypeTextError(f"the answer is no JSON ({error})", place="response") from None
