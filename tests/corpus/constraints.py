"""The table of corpus x executor: one row per constraint, with texts of its language and others, and who can judge them.

A new case is one row here; every executor of `oracles.executors` then runs it.
"""

from __future__ import annotations

import datetime
import json
import re
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jsonschema
import regex
from corpus.grammars import RIGHT, GrammarCase
from corpus.patterns import PATTERNS, Case

import fsa_compile
from fsa_compile.artifact import CompiledConstraint
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.grammar.grammar_checks import GrammarWarning
from fsa_compile.vocabulary import Vocabulary

Judge = Callable[[str], bool]


class Row(NamedTuple):
    """One constraint.

    Attributes:
      name: of the case.
      compile: makes the artifact.
      accepted, rejected: texts.
      judge: another implementation's verdict on a text; None where the samples were written by hand.
      dfa: the language's automaton over bytes; None where it is not regular.
    """

    name: str
    compile: Callable[[Vocabulary], CompiledConstraint]
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    judge: Judge | None = None
    dfa: Callable[[], ByteDfa] | None = None


def _pattern(case: Case) -> Row:
    def judge(text: str) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            package = re if case.oracle == "re" else regex
            return package.fullmatch(case.pattern, text, case.flags) is not None

    language = fsa_compile.regex(case.pattern, flags=case.flags)
    return Row(
        f"pattern {case.feature}: {case.pattern[:40]!a}",
        lambda vocabulary: fsa_compile.compile_language(language, vocabulary),
        case.accepted,
        case.rejected,
        judge,
        language.to_byte_dfa,
    )


def _grammar(case: GrammarCase) -> Row:
    def compiled(vocabulary: Vocabulary) -> CompiledConstraint:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrammarWarning)
            return fsa_compile.compile_grammar(case.text, vocabulary, syntax=case.syntax, stacks=case.stacks)

    texts = [tuple(s for s in samples if isinstance(s, str)) for samples in (case.accepted, case.rejected)]
    return Row(f"grammar {case.name}", compiled, *texts)


def _schema(name: str, schema: dict[str, Any], accepted: tuple[str, ...], rejected: tuple[str, ...], **options: Any) -> Row:
    def judge(text: str) -> bool:
        try:
            value = json.loads(text)
        except ValueError:
            return False
        return jsonschema.Draft202012Validator(schema).is_valid(value)

    return Row(
        f"schema {name}",
        lambda vocabulary: fsa_compile.compile_json_schema(schema, vocabulary, **options),
        accepted,
        rejected,
        judge,
    )


def _type(name: str, kind: Any, accepted: tuple[str, ...], rejected: tuple[str, ...]) -> Row:
    def judge(text: str) -> bool:
        try:
            fsa_compile.parse(kind, text)
        except ValueError:
            return False
        return True

    return Row(f"type {name}", lambda vocabulary: fsa_compile.compile_type(kind, vocabulary), accepted, rejected, judge)


_TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}},
    "required": ["v"],
    "additionalProperties": False,
}
_ANY = fsa_compile.SchemaOptions(key_order="any")

ROWS: tuple[Row, ...] = (
    *map(_pattern, PATTERNS),
    *(_grammar(case) for case in RIGHT if not case.specials),
    _schema("boolean", {"type": "boolean"}, ("true", "false"), ("True", "1", "null", '"true"')),
    _schema("bounds", {"type": "integer", "minimum": -3, "exclusiveMaximum": 12}, ("-3", "0", "11"), ("12", "-4", "1.5", '"1"')),
    _schema("lengths", {"type": "string", "minLength": 2, "maxLength": 3}, ('"ab"', '"é日x"', r'"\u00e9b"'), ('"a"', '"abcd"', "ab")),
    _schema("enum", {"enum": ["a", 1, None, [True]]}, ('"a"', "1", "null", "[true]"), ('"b"', "2", "[false]", "")),
    _schema(
        "array",
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        ("[1]", "[1, 2, 3]"),
        ("[]", "[1, 2, 3, 4]", '["1"]', "[1"),
    ),
    _schema(
        "unique items",
        {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True},
        ("[]", "[1, 3]", "[3, 2, 1]"),
        ("[1, 1]", "[2, 3, 2]"),
    ),
    _schema("a linked list", _TREE, ('{"v": 1}', '{"v": 1, "next": {"v": 2, "next": {"v": 3}}}'), ("{}", '{"v": 1, "next": 2}')),
    _schema(
        "one of two",
        {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]},
        ("2", "3", "-4"),
        ("6", "1", "0"),
    ),
    _schema(
        "keys in any order",
        {
            "type": "object",
            "properties": {k: {"type": "boolean"} for k in "abc"},
            "required": ["a", "c"],
            "additionalProperties": False,
        },
        ('{"a": true, "c": false}', '{"c": true, "b": false, "a": true}'),
        ('{"a": true}', '{"b": true, "c": true}', '{"a": true, "c": 1}'),
        options=_ANY,
    ),
    _type("list of dates", list[datetime.date], ("[]", '["2024-02-29"]'), ('["2023-02-29"]', "2024-02-29", "[1]")),
    _type("literal or number", Literal["x", "y"] | int, ('"x"', "-7"), ('"z"', "1.5", "x")),
    _type("tuple", tuple[bool, str], ('[true, ""]', '[false, "a\\n"]'), ("[true]", '[1, ""]', '[true, "", 1]')),
)
