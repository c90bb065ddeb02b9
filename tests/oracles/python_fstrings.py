"""Random f-strings of Python in lines of code, valid ones and others."""

from __future__ import annotations

import random

NAMES = ("x", "y", "a.b", "f", "self.x", "_", "notx", "iff", "ina", "isx", "lambda_", "fo", "r", "R")
NUMBERS = ("1", "0", "1.5", "-0.", "1e5", "0x1f", "1j", "1_0")
OPERATORS = (" + ", "-", "*", "**", "/", "//", " % ", "@", "|", "&", "^", "<<", ">>", " and ", " or ", "<", ">", "<=", "==", "!=")
WORDS = (" in ", " not in ", " is ", " is not ")
PIECES = ("", "a", " ", "{{", "}}", "#", "é", "in", "%s", "{{x}}", "\t", "\\\\", "\\'")
ODD_PIECES = ("\\N{DIGIT ONE}", "'", '"', "\n", "\\", "\\{", "# x\n", "'''", '""', "\\x4", "{", "}")
FORMATS = (">5", ".2f", "", "%Y-%m", "{w}", ">{w}", "{w}.{p}f", "{a.b}", "{5}", "=5", " ", "!r", "x{w}y{z - 2}v", "{len(x)}")
ODD_FORMATS = ("'>3", '"<3', "{w!r}", "{f(1)}", "{", "}", "{{", "\\n", "\n", "{w:{p}}", "{ w }", "{w}}", "{}")
LINES = (
    "{}", "x = {}", "print({})", "[{},\n  1]", "{} 'a'", "'a' {}", "print(\n{})", "f(a, {} )", "x[{}]", "({} # c\n)", "{}.format(1)", "{} % x",
    "{} if {} else 1", "{} {}", "return {}", "x = {} + \\\n {}",
)  # fmt: skip


class FStrings:
    """Draws f-strings.

    Args:
      odd: also what the library's `python` leaves out, and what is an error. Else `python` takes whatever Python takes.
    """

    def __init__(self, rng: random.Random, odd: bool) -> None:
        self.rng, self.odd, self.quote = rng, odd, "'"

    def pick(self, usual: tuple[str, ...], odd: tuple[str, ...] = ()) -> str:
        return self.rng.choice(usual + odd if self.odd else usual)

    def line(self) -> str:
        text = self.pick(LINES, ("b'a' {}", "{}{}"))
        for _ in range(text.count("{}")):
            text = text.replace("{}", self.fstring().replace("{}", "{\0}"), 1)
        text = text.replace("\0", "")
        if self.odd and self.rng.random() < 0.3:
            k = self.rng.randrange(len(text))
            text = text[:k] + self.rng.choice(("", *"'\"{}!:= \n#\\a(),")) + text[k + self.rng.randrange(2) :]
        return text + "\n"

    def fstring(self) -> str:
        self.quote = self.pick(("'", '"', "'''", '"""'))
        parts = [self.text() + self.field() for _ in range(self.rng.randint(1, 2))]
        return self.pick(("f", "f", "F", "rf", "fR")) + self.quote + "".join(parts) + self.text() + self.quote

    def text(self) -> str:
        return "".join(self.pick(PIECES, ODD_PIECES) for _ in range(self.rng.choice((0, 0, 1, 2))))

    def field(self) -> str:
        text = "{" + self.pick(("", "", " ")) + self.value() + self.pick(("", "", "", " ", "=", " = "), ("==", "\n"))
        text += self.pick(("", "", "!r", "!s", "!a"), ("!x", " !r", "!r ", "! r"))
        if self.rng.random() < 0.3:
            text += ":" + self.pick(FORMATS, ODD_FORMATS)
        return text + "}"

    def value(self, depth: int = 0) -> str:
        rng, kind = self.rng, self.rng.randrange(15 + 3 * self.odd)
        if kind < 3 or depth > 3:
            return rng.choice(NAMES)

        def inner() -> str:
            return self.value(depth + 1)

        match kind:
            case 3:
                return rng.choice(NUMBERS)
            case 4:
                return self.string()
            case 5 | 6:
                return inner() + self.pick(OPERATORS + WORDS, ("=", " := ")) + inner()
            case 7:
                return f"{inner()} if {inner()} else {inner()}"
            case 8:
                return self.pick(("not ", "-", "+", "~", "await "), ("*", "**", "not", "yield ", "lambda: ")) + inner()
            case 9 | 10:
                keys = [self.pick(("", "", "k=", "*"), ("**",)) + inner() for _ in range(rng.randint(0, 3))]
                return rng.choice(NAMES) + "(" + rng.choice((", ", ",")).join(keys) + rng.choice(("", "", ",")) + ")"
            case 11:
                parts = ", ".join(inner() for _ in range(rng.randint(0, 3))) + rng.choice(("", ","))
                return f"({parts})" if rng.random() < 0.5 else f"[{parts}]"
            case 12:
                return rng.choice(NAMES) + "[" + self.pick((inner(), ":", "1:", ":1", "::2", "a, b", "a:b,c"), ("", "*a", "x:=1")) + "]"
            case 13:
                target = self.pick(("x", "x, y"), ("x.y", "(a, b)", "x,"))
                clauses = f"{inner()} for {target} in {inner()}" + rng.choice((" if x", " for a in b", ""))
                return self.pick(("sum(", "(", "max(")) + clauses + ")"
            case 14:
                return rng.choice(NAMES) + rng.choice((".", ". ", " .")) + rng.choice(("x", "y", "if"))
            case 15:
                return rng.choice(("{", " {")) + rng.choice((inner(), "1: 2", "")) + "}"
            case 16:
                return rng.choice(("\n", "#", "\\\n", "# a\n", " \n ")).join((inner(), rng.choice(("", ".x", "()", " + 1"))))
            case _:
                return f"{inner()}, {inner()}"

    def string(self) -> str:
        other = '"' if self.quote[0] == "'" else "'"
        content = self.pick(("a", "a b", "#", "{", "}", "!", ":"), ("", "\\n", "é"))
        quote = self.pick((other,), (self.quote[0],)) if len(self.quote) == 3 else other
        return self.pick(("", "", "r", "b"), ("u", "f", "B", "rb")) + quote + content + quote
