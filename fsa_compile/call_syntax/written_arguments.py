"""Arguments as they were written to JSON text: piece by piece while they come, and as a whole."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator

from fsa_compile.call_syntax.syntax import CallSyntax
from fsa_compile.errors import ConstraintError

_OPENING, _CLOSING = "([{", ")]}"


class ArgumentsError(ConstraintError):
    """Arguments that are not well formed."""


class ArgumentsEnd:
    """Finds where the arguments of a call end, however they are cut into pieces.

    Args:
      mark: what a mark of strings looks like in the text.
    """

    def __init__(self, syntax: CallSyntax, mark: str = "") -> None:
        self._style, self._mark = syntax.style, mark
        self._depth = 0
        self._quote = ""
        self._escaped = False
        self._begun = False

    def feed(self, text: str) -> int | None:
        """How many characters of a text belong to the arguments, with the one that ends them; None: all, and more follow."""
        at = 0
        while at < len(text):
            if self._style == "marked" and text.startswith(self._mark, at):
                self._quote = "" if self._quote else self._mark
                at += len(self._mark)
                continue
            if self._step(text[at]):
                return at + 1
            at += 1
        return None

    def held(self, text: str) -> int:
        """Characters at the end of a text that may be the beginning of a mark."""
        if self._style != "marked":
            return 0
        return next((n for n in range(min(len(self._mark) - 1, len(text)), 0, -1) if text.endswith(self._mark[:n])), 0)

    def _step(self, c: str) -> bool:
        """Whether a character ends the arguments."""
        if self._quote:
            if self._style == "marked":
                return False
            if self._escaped:
                self._escaped = False
            elif c == "\\":
                self._escaped = True
            elif c == self._quote:
                self._quote = ""
        elif c == '"' or (c == "'" and self._style == "python"):
            self._quote = c
        elif c in "()" and self._style == "marked" and self._begun:
            pass  # of a bare key
        elif c in _OPENING:
            self._depth += 1
            self._begun = True
        elif c in _CLOSING:
            self._depth -= 1
            return self._depth <= 0
        elif not self._begun:
            raise ArgumentsError(f"arguments begin with a bracket, not with {c!r}")
        return False


def json_of(syntax: CallSyntax, text: str, mark: str = "") -> str:
    """The JSON text of some arguments; numbers keep their digits.

    Args:
      text: the arguments with their brackets.
      mark: what a mark of strings looks like in the text.

    Raises:
      ArgumentsError: they are not well formed.
    """
    try:
        if syntax.style == "json":
            json.loads(text)
            return text
        if syntax.style == "python":
            return _of_python(text)
        if syntax.style == "keywords":
            return _of_keywords(text)
        parts = _Marked(text, mark)
        out = "".join(parts.value())
        if parts.at != len(text):
            raise ArgumentsError(f"something follows the arguments: {text[parts.at :]!r:.40}")
        return out
    except (ValueError, SyntaxError, RecursionError, MemoryError, IndexError) as error:
        if isinstance(error, ArgumentsError):
            raise
        raise ArgumentsError(f"the arguments are not well formed ({error})", where=f"  {text:.200}") from None


def _of_python(text: str) -> str:
    source = f"f{text}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call = ast.parse(source, mode="eval").body
    if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
        raise ArgumentsError("these are no keyword arguments", where=f"  {text:.200}")
    members = []
    for argument in call.keywords:
        if argument.arg is None:
            raise ArgumentsError("an argument has no name", where=f"  {text:.200}")
        members.append(f"{json.dumps(argument.arg)}: {''.join(_literal(argument.value, source))}")
    return "{" + ", ".join(members) + "}"


def _of_keywords(text: str) -> str:
    decoder, members = json.JSONDecoder(), list[str]()
    if text[0] != "(":
        raise ArgumentsError("arguments begin with a parenthesis", where=f"  {text:.200}")
    at = _behind_space(text, 1)
    while text[at] != ")":
        begin = at + 1 if members and text[at] == "," else at
        name, equals, _ = text[begin:].partition("=")
        if not equals or not name.strip(_SPACE).isidentifier() or (members and text[at] != ","):
            raise ArgumentsError(f"there is no argument's name before {text[at:]!r:.40}")
        begin = _behind_space(text, text.index("=", begin) + 1)
        _, at = decoder.raw_decode(text, begin)
        members.append(f"{json.dumps(name.strip(_SPACE))}: {text[begin:at]}")
        at = _behind_space(text, at)
    if at + 1 != len(text):
        raise ArgumentsError(f"something follows the arguments: {text[at + 1 :]!r:.40}")
    return "{" + ", ".join(members) + "}"


_SPACE = " \t\n\r"
"""What may stand around names and values, as `SchemaOptions.whitespace` has it."""


def _behind_space(text: str, at: int) -> int:
    """The first place from one on where no white space stands."""
    while text[at] in _SPACE:
        at += 1
    return at


_WORDS = {None: "null", True: "true", False: "false"}


def _literal(node: ast.expr, source: str) -> Iterator[str]:
    match node:
        case ast.Constant(value=None | True | False):
            yield _WORDS[node.value]  # type: ignore[index]
        case ast.Constant(value=str(value)):
            yield json.dumps(value)
        case ast.Constant(value=int() | float()) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            yield ast.get_source_segment(source, node) or ""
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            yield "["
            for place, element in enumerate(elements):
                yield ", " if place else ""
                yield from _literal(element, source)
            yield "]"
        case ast.Dict(keys=keys, values=values):
            yield "{"
            for place, (key, member) in enumerate(zip(keys, values)):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    raise ArgumentsError("a key is no string")
                yield f"{', ' if place else ''}{json.dumps(key.value)}: "
                yield from _literal(member, source)
            yield "}"
        case _:
            raise ArgumentsError(f"{ast.unparse(node):.60} is no literal")


class _Marked:
    """Reads bare keys and strings between marks."""

    def __init__(self, text: str, mark: str) -> None:
        self.text, self.mark, self.at = text, mark, 0

    def value(self) -> Iterator[str]:
        """The JSON text of the value that begins here."""
        text = self.text
        if text.startswith(self.mark, self.at):
            end = text.index(self.mark, self.at + len(self.mark))
            yield json.dumps(text[self.at + len(self.mark) : end])
            self.at = end + len(self.mark)
        elif text[self.at] == "{":
            yield from self._several("}", True)
        elif text[self.at] == "[":
            yield from self._several("]", False)
        else:
            begin = self.at
            while self.at < len(text) and text[self.at] not in ",]}":
                self.at += 1
            word = text[begin : self.at]
            word = "null" if word == "None" else word
            json.loads(word)
            yield word

    def _several(self, close: str, keys: bool) -> Iterator[str]:
        yield self.text[self.at]
        self.at += 1
        first = True
        while self.text[self.at] != close:
            if not first:
                if self.text[self.at] != ",":
                    raise ArgumentsError(f"a comma is missing before {self.text[self.at :]!r:.40}")
                self.at += 1
                yield ", "
            first = False
            if keys:
                colon = self.text.index(":", self.at)
                yield json.dumps(self.text[self.at : colon]) + ": "
                self.at = colon + 1
            yield from self.value()
        self.at += 1
        yield close
