"""Expressions of Lark's grammar language, from words to nodes: what stands behind the colon of a definition."""

from __future__ import annotations

import difflib
import re
from typing import NoReturn

from fsa_compile.grammar.front.blocks import BLOCKS, block_value
from fsa_compile.grammar.grammar_tree import Expression, FreeText, Literal, Pattern, Reference, Repeat, SpecialToken
from fsa_compile.grammar.lark_tokens import Kind, Token
from fsa_compile.grammar.source import MAX_DEPTH, GrammarText, choice, class_char, sequence
from fsa_compile.grammar.templates import TemplateUse
from fsa_compile.limits import CompileLimits

DIRECTIVES = ("%ignore", "%import", "%declare", "%indent", "%call", "%one_line", "%override", "%extend", "%module")
_RULE_NAME = re.compile(r"_?[a-z][_a-z0-9]*").fullmatch
_TERMINAL_NAME = re.compile(r"_?[A-Z][_A-Z0-9]*").fullmatch
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "\\": "\\", '"': '"'}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_ATOMS = ("%until", "%token", *BLOCKS)
_COUNTS: dict[Kind, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class ExpressionReader(GrammarText):
    """The words of a grammar's text, read one by one."""

    def __init__(self, text: str, limits: CompileLimits | None, tokens: list[Token]) -> None:
        super().__init__(text, limits)
        self.tokens = tokens
        self.at = 0
        self.open: list[Token] = []

    @property
    def peek(self) -> Token:
        return self.tokens[self.at]

    def taken(self, *kinds: Kind) -> Token | None:
        """The next token if it is of one of the kinds; moves past it."""
        token = self.tokens[self.at]
        if token.kind not in kinds or token.kind == "end":
            return None
        self.at += 1
        return token

    def expect(self, kind: Kind, where: str) -> Token:
        return self.taken(kind) or self.unexpected(f"{kind} is expected {where}")

    def spelled(self, token: Token) -> str:
        return self.text[token.start : token.end]

    @property
    def last_end(self) -> int:
        return self.tokens[self.at - 1].end if self.at else 0

    def is_terminal(self, token: Token) -> bool:
        """Whether a name is a terminal's; refuses those that are neither a rule's nor a terminal's."""
        name = self.spelled(token)
        if _TERMINAL_NAME(name):
            return True
        if not _RULE_NAME(name):
            fix = "Rules are lower case (expr), terminals upper case (NUMBER); one _ may stand in front."
            self.syntax(f"{name!r} names neither a rule nor a terminal", token.start, token.end, fix=fix)
        return False

    def alternatives(self) -> Expression:
        begin = self.peek.start
        branches = [self.branch()]
        while self.taken("|"):
            branches.append(self.branch())
        return choice(branches, begin, max(begin, self.last_end))

    def branch(self) -> Expression:
        begin, parts = self.peek.start, list[Expression]()
        while self.peek.kind not in ("|", "->", ")", "]", "line end", "end"):
            parts.append(self.repeated())
        end = max(begin, self.last_end)
        if self.taken("->"):
            self.is_terminal(self.expect("name", "after ->"))
        return sequence(parts, begin, end)

    def repeated(self) -> Expression:
        part = self.atom()
        operator = self.taken("?", "*", "+", "~")
        if not operator:
            return part
        if operator.kind == "~":
            part = self.tilde(part, operator)
        else:
            part = self.counted(part, *_COUNTS[operator.kind], operator.start, operator.end)
        if second := self.taken("?", "*", "+", "~"):
            fix = "Put the inner repetition in parentheses; lazy loops exist in /regular expressions/ only."
            self.syntax("two repetitions follow each other", operator.start, second.end, fix=fix)
        return part

    def tilde(self, part: Expression, operator: Token) -> Repeat:
        low = high = self.repeat_count()
        if self.taken(".."):
            if self.peek.kind != "number":
                fix = f"For {low} or more write the item ~{low} and once more with *."
                self.syntax("a repetition ~n..m has no end", operator.start, self.last_end, fix=fix)
            high = self.repeat_count()
        return self.counted(part, low, high, operator.start, self.last_end)

    def repeat_count(self) -> int:
        token = self.expect("number", "after ~, as in ~3 or ~2..5,")
        if self.text[token.start] == "-":
            self.syntax("a repetition count is negative", token.start, token.end, fix="Counts begin at 0.")
        return self.number(token.start + (self.text[token.start] == "+"), token.end, "The repetition count")

    def atom(self) -> Expression:
        token = self.peek
        if self.taken("("):
            return self.group(token)
        if self.taken("["):
            body = self.group(token)
            return Repeat(body, 0, 1, token.start, self.last_end)
        return self.value()

    def group(self, opening: Token) -> Expression:
        self.enter(opening)
        body = self.alternatives()
        self.expect(_CLOSING[opening.kind], "here")
        self.open.pop()
        return body

    def enter(self, opening: Token) -> None:
        self.open.append(opening)
        if len(self.open) > MAX_DEPTH:
            self.too_deep(opening.start)

    def value(self) -> Expression:
        """An atom that is no group: what may be a template's argument."""
        token = self.peek
        if self.taken("name"):
            self.is_terminal(token)
            return self.template_use(token) if self.peek.kind == "{" else Reference(self.spelled(token), token.start, token.end)
        if self.taken("string"):
            return self.range_from(token) if self.peek.kind == ".." else self.literal(token)
        if self.taken("regex"):
            return self.regex(token)
        if self.taken("special"):
            return self.special_token(token.start)
        if token.kind == "directive" and self.spelled(token) in _ATOMS:
            self.at += 1
            return self.call(token)
        self.unexpected("a name, a string, a pattern or a group is expected here")

    def template_use(self, token: Token) -> Expression:
        opening = self.expect("{", "here")
        if self.peek.kind in ("number", ","):
            fix = "Write ~2..5 for a repetition; braces hold the arguments of templates."
            self.syntax("a number is no argument", opening.start, self.peek.end, fix=fix)
        self.enter(opening)
        arguments = [self.value()]
        while self.taken(","):
            arguments.append(self.value())
        self.expect("}", "after a template's arguments (names and texts; give a longer expression a rule of its own)")
        self.open.pop()
        return TemplateUse(self.spelled(token), token.start, self.last_end, tuple(arguments))

    def call(self, token: Token) -> Expression:
        """`%until("a", "b")`, `%token("name")`, or a directive with a block."""
        name, texts = self.spelled(token), list[str]()
        if block := self.taken("block"):
            return block_value(self, name, token.start, block.start, block.end)
        self.enter(self.expect("(", f"after {name}"))
        while not texts or self.taken(","):
            text = self.expect("string", f"in {name}")
            texts.append(self.decoded(text, flags_allowed=False))
        self.expect(")", f"after the texts of {name}")
        self.open.pop()
        if "" in texts or (name == "%token" and len(texts) > 1):
            what = "%token takes one name" if name == "%token" else "%until needs texts that are not empty"
            self.syntax(what, token.start, self.last_end, fix="Names and texts are strings in double quotes.")
        if name == "%token":
            return SpecialToken(texts[0], token.start, self.last_end)
        return FreeText(tuple(texts), token.start, self.last_end)

    def literal(self, token: Token) -> Expression:
        text = self.decoded(token)
        if not text:
            return sequence([], token.start, token.end)
        return Literal(text, token.start, token.end, self.text[token.end - 1] == "i")

    def decoded(self, token: Token, flags_allowed: bool = True) -> str:
        """The text that a string stands for."""
        begin, end = token.start + 1, self.text.rindex('"', token.start, token.end)
        if end + 1 < token.end and not flags_allowed:
            self.syntax("a flag has no meaning here", end + 1, token.end, fix="Remove it.")
        out, at = list[str](), begin
        while at < end:
            stop = self.text.find("\\", at, end)
            stop = end if stop < 0 else stop
            out.append(self.text[at:stop])
            at = stop
            if at < end:
                character, at = self.escape(at)
                out.append(character)
        return "".join(out)

    def escape(self, at: int) -> tuple[str, int]:
        letter = self.text[at + 1]
        if letter in _HEX_ESCAPES:
            return self.code_point(at, at + 2, _HEX_ESCAPES[letter])
        if letter not in _ESCAPES:
            fix = (
                rf"Write \\{letter} for a backslash and the character, {letter} or \x{ord(letter) & 255:02x} for "
                r"the character alone; known are \n \t \r \f \\ \" \xHH \uHHHH \UHHHHHHHH. Patterns stand between slashes."
            )
            self.syntax(f"unknown escape \\{letter} in a string", at, at + 2, fix=fix)
        return _ESCAPES[letter], at + 2

    def range_from(self, first: Token) -> Pattern:
        self.at += 1
        last = self.expect("string", "after ..")
        low, high = (self.decoded(token, flags_allowed=False) for token in (first, last))
        if len(low) != 1 or len(high) != 1 or high < low:
            fix = 'Ranges are written "a".."z": two single characters, the smaller one first.'
            self.syntax("this is no range of characters", first.start, last.end, fix=fix)
        return Pattern(f"[{class_char(low)}-{class_char(high)}]", first.start, last.end)

    def regex(self, token: Token) -> Pattern:
        end = self.text.rindex("/", token.start, token.end)
        given = self.text[end + 1 : token.end]
        if "l" in given:
            self.unsupported("the flag l depends on the machine's settings", end + 1, token.end, fix="Remove it.")
        flags = "".join(flag for flag in "imsx" if flag in given)
        self.pattern(token.start + 1, end, flags)
        return Pattern(self.text[token.start + 1 : end], token.start, token.end, flags)

    def unknown_directive(self, token: Token) -> NoReturn:
        name = self.spelled(token)
        close = difflib.get_close_matches(name, DIRECTIVES, n=1)
        fix = f"Known are {', '.join(DIRECTIVES)}; inside rules {', '.join(_ATOMS)}."
        self.syntax(
            f"unknown directive {name}", token.start, token.end, fix=fix + (f" Did you mean {close[0]}?" if close else "")
        )

    def unexpected(self, what: str) -> NoReturn:
        """Refuses the next token."""
        token = self.peek
        if self.open and token.kind in (":", "end", "directive", "line end", "number"):
            opening = self.open[-1]
            self.syntax(f"this {opening.kind} is never closed", opening.start, fix=f"Add the missing {_CLOSING[opening.kind]}.")
        if token.kind == "directive" and self.spelled(token) not in DIRECTIVES + _ATOMS:
            self.unknown_directive(token)
        fix = self.advice(token)
        shown = {"line end": "the line ends", "end": "the grammar ends"}.get(token.kind, f"there is {self.spelled(token)[:30]}")
        self.syntax(f"{what}, but {shown}", token.start, max(token.end, token.start + 1), fix=fix)

    def advice(self, token: Token) -> str:
        before = self.tokens[self.at - 1].kind if self.at else ""
        if token.kind in ("*", "+", "?", "~"):
            return "Repetitions stand behind what they repeat."
        if token.kind in (")", "]", "}"):
            return f"Remove the {token.kind}, or add what opens it."
        if before in ("line end", "name", ":"):
            return "Definitions are written name: expression, begun on one line; further lines begin with |."
        if token.kind == ":":
            return "A definition begins on a line of its own."
        return "Definitions are written name: expression, with | between alternatives."
