"""The words of Lark's grammar language: names, strings, regular expressions, operators, line ends that mean something."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from fsa_compile.grammar.front.blocks import BLOCKS, block_span
from fsa_compile.grammar.source import GrammarText

Kind: TypeAlias = Literal["name", "number", "string", "regex", "special", "directive", "block", "line end", "end"] | str


class Token(NamedTuple):
    """A word and its span; operators are their own kind."""

    kind: Kind
    start: int
    end: int


_BLANK = re.compile(r"(?:[ \t\f\r]|//[^\n]*|#[^\n]*|\\[ \t]*\r?\n)+").match
_LINES = re.compile(r"\n(?:[ \t\f\r\n]|//[^\n]*|#[^\n]*)*").match
_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"').match
_REGEX = re.compile(r"/(?:[^/\\]|\\.)+/", re.DOTALL).match
_WORD = re.compile(r"[A-Za-z0-9_]+").match
_SIMPLE = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[+-]?[0-9]+)|(?P<directive>%[A-Za-z_]*)|->|\.\.|[][:|(){},?*+~.!]"
).match


def tokenize(source: GrammarText) -> list[Token]:
    """All tokens of a grammar, the last of kind "end". Line ends inside brackets and before `|` are left out."""
    text, at, depth, out = source.text, 0, 0, list[Token]()
    while at < len(text):
        if blank := _BLANK(text, at):
            at = blank.end()
        elif lines := _LINES(text, at):
            if not depth and not text.startswith("|", lines.end()):
                out.append(Token("line end", at, at + 1))
            at = lines.end()
        else:
            out.append(_token(source, at, depth > 0))
            at = out[-1].end
            if out[-1].kind == "directive" and (name := text[out[-1].start : at]) in BLOCKS:
                out.append(Token("block", *block_span(source, name, at)))
                at = out[-1].end
            elif out[-1].kind == "directive" and name == "%module":
                depth = 0  # no bracket goes on in another file
            depth = max(0, depth + (out[-1].kind in "([{") - (out[-1].kind in ")]}"))
    out.append(Token("end", len(text), len(text)))
    return out


def _token(source: GrammarText, at: int, inside: bool) -> Token:
    text = source.text
    c = text[at]
    if c == '"':
        return _string(source, at)
    if c == "/":
        return _regex(source, at)
    if c == "<":
        return Token("special", at, source.special_token(at).end)
    if c == "=" and inside:
        return Token("=", at, at + 1)
    found = _SIMPLE(text, at)
    if not found:
        fix = "Text stands in double quotes, patterns between slashes."
        if c == "=":
            fix = 'Definitions are written name: expression; a grammar with name ::= expression is GBNF (syntax="gbnf").'
        source.syntax(f"unexpected {c!r}", at, fix=fix)
    return Token(found.lastgroup or found[0], at, found.end())


def _string(source: GrammarText, at: int) -> Token:
    found = _STRING(source.text, at)
    if not found:
        end = source.text.find("\n", at)
        fix = r'Add the missing ". A backslash is written \\, a line end \n.'
        source.syntax("this string is never closed in its line", at, end if end >= 0 else len(source.text), fix=fix)
    return Token("string", at, _after_flags(source, found.end(), "i"))


def _regex(source: GrammarText, at: int) -> Token:
    found = _REGEX(source.text, at)
    end = _after_flags(source, found.end(), "imslux") if found else at
    line_end = source.text.find("\n", at)
    if not found or (0 <= line_end < found.end() and "x" not in source.text[found.end() : end]):
        fix = r"Add the missing /. A slash inside is written \/, a line end \n; only with the flag x may there be several lines."
        shown = line_end if line_end >= 0 else len(source.text)
        source.syntax("this regular expression is never closed in its line", at, shown, fix=fix)
    return Token("regex", at, end)


def _after_flags(source: GrammarText, at: int, known: str) -> int:
    """The offset after the flags that stand directly behind a string or regular expression; a terminal's name is none."""
    found = _WORD(source.text, at)
    if not found or not found[0][0].islower():
        return at
    if wrong := next((c for c in found[0] if c not in known), ""):
        source.syntax(
            f"unknown flag {wrong!r}", at, found.end(), fix=f"Flags are {', '.join(known)}; before a name write a space."
        )
    return found.end()
