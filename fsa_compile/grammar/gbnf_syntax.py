"""GBNF, as llama.cpp writes it, to a `Grammar` over characters.

Beyond llama.cpp: a line may begin with `|`, names may hold `_`, `{,n}` counts from none, and the atoms `%token(...)` and
`%until(...)` of `lark_syntax`. Refused are negated tokens (`!<name>`), a rule defined twice, and empty or backward ranges,
which llama.cpp lets pass.

Source: https://github.com/ggml-org/llama.cpp, grammars/README.md.
"""

from __future__ import annotations

import re
from typing import NoReturn

from fsa_compile.errors import LimitError
from fsa_compile.grammar.grammar_tree import Expression, FreeText, Grammar, Literal, Pattern, Reference, Rule, SpecialToken
from fsa_compile.grammar.names import check_names
from fsa_compile.grammar.source import MAX_DEPTH, GrammarText, choice, class_char, sequence
from fsa_compile.limits import CompileLimits

_NAME = re.compile(r"[A-Za-z0-9_-]+").match
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*").match
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*").match
_ALTERNATIVE_AHEAD = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*\|").match
_RULE_AHEAD = re.compile(r"[A-Za-z0-9_-]+[ \t]*::=").match
_DIGITS = re.compile(r"[0-9]+").match
_CALL = re.compile(r"%(until|token)\b").match
_PLAIN_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_MAX_OPERATORS = 3
_ESCAPE_HELP = r"Known are \n \t \r \" \\ \[ \] \- \xHH \uHHHH \UHHHHHHHH; other characters stand for themselves."


def parse_gbnf(text: str, *, start: str = "root", limits: CompileLimits | None = None) -> Grammar:
    """Reads a grammar.

    Args:
      start: name of the start rule.
      limits: `max_pattern` bounds the text, `max_repeat` counts, `max_rules` the number of rules.

    Returns:
      The grammar, in mode "characters".

    Raises:
      GrammarSyntaxError, UnsupportedGrammarError: with line and column.
    """
    return _Parser(text, limits).parse(start)


class _Parser(GrammarText):
    def __init__(self, text: str, limits: CompileLimits | None) -> None:
        super().__init__(text, limits)
        self.at = 0
        self.rules: dict[str, Rule] = {}
        self.open: list[int] = []

    def parse(self, start: str) -> Grammar:
        self.skip(lines=True)
        while self.at < len(self.text):
            self.rule()
        check_names(self, self.rules, start)
        return Grammar(rules=self.rules, start=start, ignore=(), mode="characters", text=self.text)

    @property
    def next(self) -> str:
        """The next character, "" at the end."""
        return self.text[self.at : self.at + 1]

    def skip(self, *, lines: bool) -> None:
        """Skips white space and comments, and line ends where they mean nothing."""
        found = (_SPACE_AND_LINES if lines or self.open else _SPACE)(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def rule(self) -> None:
        begin = self.at
        found = _NAME(self.text, begin)
        if not found:
            self.syntax("a rule is expected here", begin, fix='Rules are written name ::= "text" other-rule.')
        self.at = found.end()
        self.skip(lines=False)
        if not self.text.startswith("::=", self.at):
            self.syntax("::= is expected after the name of a rule", self.at, fix="Or put several alternatives in ( ).")
        if (name := found[0]) in self.rules:
            line = self.line_of(self.rules[name].start)
            self.syntax(
                f"rule {name!r} is defined a second time (first in line {line})", begin, found.end(), fix="Join them with |."
            )
        if len(self.rules) >= self.limits.max_rules:
            raise LimitError("max_rules", self.limits.max_rules, "This grammar")
        self.at += 3
        self.skip(lines=True)
        body = self.alternatives()
        if self.next and self.next not in "\r\n":
            self.unexpected()
        self.rules[name] = Rule(name, body, False, 0, begin, found.end())
        self.skip(lines=True)

    def alternatives(self) -> Expression:
        begin = self.at
        branches = [self.sequence()]
        while self.alternative_follows():
            self.at += 1
            self.skip(lines=True)
            branches.append(self.sequence())
        return choice(branches, begin, self.at)

    def alternative_follows(self) -> bool:
        """Whether `|` comes next, possibly on a later line; moves to it."""
        found = _ALTERNATIVE_AHEAD(self.text, self.at)
        if found:
            self.at = found.end() - 1
        return found is not None

    def sequence(self) -> Expression:
        begin, end, operators, parts = self.at, self.at, 0, list[Expression]()
        while self.next and self.next not in "|)\r\n":
            if self.open and _RULE_AHEAD(self.text, self.at):
                break  # the group was never closed
            if self.next in "*+?{":
                if not parts:
                    self.syntax(f"there is nothing that {self.next} could repeat", self.at, fix="Write it after an item.")
                operators += 1
                if operators > _MAX_OPERATORS:
                    what = f"more than {_MAX_OPERATORS} repetitions follow each other"
                    self.syntax(what, self.at, fix="One of them says as much.")
                parts[-1] = self.repeated(parts[-1])
            else:
                parts.append(self.item())
                operators = 0
            end = self.at
            self.skip(lines=False)
        return sequence(parts, begin, end)

    def repeated(self, part: Expression) -> Expression:
        begin, c = self.at, self.next
        self.at += 1
        if c != "{":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
            return self.counted(part, low, high, begin, self.at)
        low_count, has_comma = self.count(), False
        if self.next == ",":
            has_comma = True
            self.at += 1
        high_count = self.count() if has_comma else low_count
        if self.next != "}" or (low_count is None and high_count is None):
            self.syntax("a repetition is {m}, {m,}, {,n} or {m,n}", begin, self.at, fix="Give the counts as numbers.")
        self.at += 1
        return self.counted(part, low_count or 0, high_count, begin, self.at)

    def count(self) -> int | None:
        self.skip(lines=False)
        found = _DIGITS(self.text, self.at)
        if not found:
            return None
        self.at = found.end()
        value = self.number(found.start(), found.end(), "The repetition count")
        self.skip(lines=False)
        return value

    def item(self) -> Expression:
        begin, c = self.at, self.next
        if c == '"':
            return Literal(self.string(), begin, self.at)
        if c == "[":
            return Pattern(self.char_class(), begin, self.at)
        if c == ".":
            self.at += 1
            return Pattern(".", begin, self.at, "s")
        if c == "(":
            return self.group()
        if c == "<":
            token = self.special_token(begin)
            self.at = token.end
            return token
        if c == "!":
            fix = "Tokens that are no text cannot be text: for a thinking block write .* before the closing token."
            self.unsupported("a negated token is not supported", begin, fix=fix)
        if found := _NAME(self.text, begin):
            self.at = found.end()
            if _RULE_AHEAD(self.text, begin):
                self.syntax("a new rule begins in the middle of a line", begin, self.at, fix="Begin it on a line of its own.")
            return Reference(found[0], begin, self.at)
        if found := _CALL(self.text, begin):
            return self.call(found[1], found.end())
        self.unexpected()

    def group(self) -> Expression:
        self.open.append(self.at)
        if len(self.open) > MAX_DEPTH:
            self.too_deep(self.at)
        self.at += 1
        self.skip(lines=True)
        body = self.alternatives()
        if self.next != ")":
            if self.next and not _RULE_AHEAD(self.text, self.at):
                self.unexpected()
            self.syntax("this ( is never closed", self.open[-1], fix="Add the missing ).")
        self.open.pop()
        self.at += 1
        return body

    def call(self, name: str, at: int) -> Expression:
        """`%until("a", "b")` or `%token("name")`."""
        begin, texts = self.at, list[str]()
        self.at = at
        self.open.append(at)
        self.skip(lines=True)
        opened = self.next == "("
        while opened and (self.next == "," if texts else True):
            self.at += 1
            self.skip(lines=True)
            if self.next != '"':
                break
            texts.append(self.string())
            self.skip(lines=True)
        self.open.pop()
        if not texts or self.next != ")" or "" in texts or (name == "token" and len(texts) > 1):
            self.bad_call(name, begin)
        self.at += 1
        return SpecialToken(texts[0], begin, self.at) if name == "token" else FreeText(tuple(texts), begin, self.at)

    def string(self) -> str:
        begin, out = self.at, list[str]()
        self.at += 1
        while self.next != '"':
            if not self.next:
                self.syntax("this string is never closed", begin, self.line_end(begin), fix='Add the missing ".')
            out.append(self.char())
        self.at += 1
        return "".join(out)

    def char_class(self) -> str:
        """The class at the current offset as a class of `re`."""
        begin, out = self.at, list[str]()
        self.at += 1
        negated = self.next == "^"
        self.at += negated
        while self.next != "]":
            first_at = self.at
            if not self.next:
                self.syntax("this [ is never closed", begin, self.line_end(begin), fix="Add the missing ].")
            first = last = self.char()
            if self.next == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self.char()
            if last < first:
                self.syntax(f"the range {first}-{last} runs backwards", first_at, self.at, fix=f"Write {last}-{first}.")
            out.append(class_char(first) if first == last else f"{class_char(first)}-{class_char(last)}")
        self.at += 1
        if not out:
            self.syntax("a character class is empty", begin, self.at, fix='Any character is a dot, the empty text is "".')
        return f"[{'^' if negated else ''}{''.join(out)}]"

    def char(self) -> str:
        """One character of a string or class, escaped or not."""
        begin, c = self.at, self.next
        self.at += 1
        if c != "\\":
            return c
        letter = self.next
        if letter in _HEX_ESCAPES:
            value, self.at = self.code_point(begin, self.at + 1, _HEX_ESCAPES[letter])
            return value
        if letter not in _PLAIN_ESCAPES:
            self.syntax(f"unknown escape \\{letter}", begin, begin + 2, fix=_ESCAPE_HELP)
        self.at += 1
        return _PLAIN_ESCAPES[letter]

    def line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def bad_call(self, name: str, begin: int) -> NoReturn:
        shown = '%token("<name>"), with one name' if name == "token" else '%until("text", "other text"), texts not empty'
        self.syntax(f"%{name} is written {shown}", begin, max(self.at, begin + 1), fix="Strings stand in double quotes.")

    def unexpected(self) -> NoReturn:
        c, fix = self.next, ""
        if c == ")":
            self.syntax("this ) closes nothing", self.at, fix="Remove it, or add the missing (.")
        if c == "'":
            fix = "Strings stand in double quotes."
        elif c == "/":
            fix = 'Regular expressions are Lark\'s; write a class such as [a-z]+, or use syntax="lark".'
        elif c == ":" or c == "=":
            fix = "Rules are written name ::= ..."
        self.syntax(f"unexpected {c!r}", self.at, fix=fix or "Items are strings, classes, names and groups.")
