"""What an answer may be, as users give it: a schema, a type, a pattern, a language or a grammar."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fsa_compile.automata.pushdown import END_HERE, END_RETURN, UNCOUNTED, ByteMachine
from fsa_compile.compiler.grammars import parse_grammar
from fsa_compile.formats.tree import NOTHING, Format, Json, OneOf, Value, Words
from fsa_compile.grammar.grammar_machine import machine_of
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.languages.constructors import regex
from fsa_compile.languages.language import Language
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.python_types import json_schema, parse
from fsa_compile.python_types.type_errors import TypeTextError

_POINTER = "#/response"


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
        return Answer(lambda options, limits, deadline: _grammar(response, limits, deadline), str)
    if isinstance(response, Mapping):
        schema = Json(response, _POINTER)
        return Answer(lambda options, limits, deadline: schema, _json)
    of_type = json_schema(response)
    return Answer(lambda options, limits, deadline: Json(of_type, _POINTER), lambda text: parse(response, text))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TypeTextError(f"the answer is no JSON ({error})", place="response") from None


def _grammar(given: GrammarText, limits: CompileLimits, deadline: Deadline) -> Format:
    machine = machine_of(parse_grammar(given.text, start=given.start, limits=limits), limits=limits, deadline=deadline)
    value = as_value(machine)
    read = Value(value, value.start, _POINTER)
    return OneOf((NOTHING, read)) if machine.may_end([machine.initial]) else read


def as_value(machine: ByteMachine) -> ByteMachine:
    """A machine whose texts end by a return through one symbol into one control, as those of schemas do.

    Args:
      machine: without a stack at first.
    """
    assert not machine.stack
    size, symbols = machine.ret.shape
    ret = np.zeros((size + 1, symbols + 1), machine.ret.dtype)
    ret[:size, :symbols] = machine.ret
    ends = np.flatnonzero(machine.end == END_HERE)
    ret[ends, symbols] = size
    end = np.append(machine.end, END_HERE).astype(machine.end.dtype)
    end[ends] = END_RETURN
    sets = machine.sets and machine.sets.extended(1, 0)
    names = (*machine.control_names, "end") if machine.control_names else ()
    return dataclasses.replace(
        machine, action=np.vstack([machine.action, np.zeros((1, machine.action.shape[1]), machine.action.dtype)]), ret=ret,
        end=end, bounds=np.vstack([machine.bounds, np.full((1, 2), UNCOUNTED, machine.bounds.dtype)]), stack=(symbols,),
        control_names=names, symbol_names=(*machine.symbol_names, "end") if machine.symbol_names else (), sets=sets,
    )  # fmt: skip
