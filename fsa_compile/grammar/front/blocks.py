"""Blocks in braces behind `%json`, `%lark` and `%regex`: where they end, and what they stand for.

`%json` takes a JSON Schema, `%lark` a grammar with names and ignored text of its own, `%regex` one of `substring_chars`,
`substring_words` and `substring_chunks`. Source: llguidance, docs/syntax.md (the notation).
"""

from __future__ import annotations

import re

from fsa_compile.errors import ConstraintError
from fsa_compile.grammar.grammar_tree import Chunks, Embedded, Expression
from fsa_compile.grammar.source import GrammarText
from fsa_compile.inputs.json_input import parse_json

BLOCKS = ("%json", "%lark", "%regex")
"""Directives that stand in rules, each with a block."""

_IN_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_IN_LARK = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|//[^\n]*|#[^\n]*|/(?:[^/\\\n]|\\.)+/|[{}]')
_SPACE = re.compile(r"\s*").match
_OF_CHUNKS = {"substring_chars": r"(?s).", "substring_words": r"(?s)\w+|\W"}


def block_span(source: GrammarText, directive: str, at: int) -> tuple[int, int]:
    """Where a block begins and ends. `directive`: the one that it belongs to. `at`: the offset behind that."""
    begin = _SPACE(source.text, at).end()  # type: ignore[union-attr]
    if not source.text.startswith("{", begin):
        what = "a schema" if directive == "%json" else "a grammar" if directive == "%lark" else "an object"
        source.syntax(f"{directive} takes {what} in braces", begin, fix=f"Write {directive} {{ ... }}.")
    depth = 0
    for found in (_IN_LARK if directive == "%lark" else _IN_JSON).finditer(source.text, begin):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return begin, found.end()
    source.syntax("this { is never closed", begin, fix="Add the missing }.")


def block_value(source: GrammarText, directive: str, start: int, begin: int, end: int) -> Expression:
    """The expression of a directive that begins at `start`, with its block.

    Raises:
      GrammarSyntaxError: the block is no JSON, or has keys that mean nothing.
    """
    text = source.text[begin:end]
    if directive == "%lark":
        # Blank lines and columns in front, so that errors inside name places of the whole grammar.
        text = re.sub(r"[^\n]", " ", source.text[: begin + 1]) + text[1:-1]
        return Embedded(f"%lark {begin}", start, end, "lark", text)
    value = parse_json(text, source.limits, lambda what, **_: _problem(source, what, start, end), what=directive)
    if directive == "%json":
        return Embedded(f"%json {text}", start, end, "json", text)
    return Chunks(_chunks(source, value, start, end), start, end)


def _problem(source: GrammarText, what: str, start: int, end: int) -> ConstraintError:
    source.syntax(what, start, end, fix='The block is JSON, as in %json {"type": "integer"}.')


def _chunks(source: GrammarText, value: object, start: int, end: int) -> tuple[str, ...]:
    """The pieces of which `%regex` takes any number that follow each other."""
    name, given = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", None)
    if name in _OF_CHUNKS and isinstance(given, str):
        return tuple(re.findall(_OF_CHUNKS[name], given))
    if name == "substring_chunks" and isinstance(given, list) and all(isinstance(part, str) for part in given):
        return tuple(given)
    fix = 'Write %regex {"substring_words": "a text"}, or substring_chars, or {"substring_chunks": ["a", "b"]}.'
    source.syntax("%regex takes one key, for a text or a list of texts", start, end, fix=fix)
