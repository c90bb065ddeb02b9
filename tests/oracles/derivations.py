"""Random texts of a grammar, derived from its rules: no machine is asked, so what a rule says is written, be it in the language or not."""

from __future__ import annotations

import math
import random
import re
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Pattern, Reference, Repeat, Sequence
from fsa_compile.grammar.source import flag_bits

_OTHERS = "ab 01\"'\\/*<>${}[]nx\n"
"""What a set of all but some characters is drawn from."""
INDENT, DEDENT, NEWLINE = "_INDENT", "_DEDENT", "_NEWLINE"


class Derivation:
    """Draws texts. Alternatives are taken at random while a budget of lexemes lasts, then the shortest.

    Attributes:
      texts: what stands for a terminal, by its name; other terminals are drawn from their patterns.
    """

    def __init__(self, grammar: Grammar, rng: random.Random, texts: dict[str, list[str]]) -> None:
        self.grammar, self.rng, self.texts = grammar, rng, texts
        self.least: dict[str, float] = {INDENT: 1, DEDENT: 1}
        while True:
            found = {r.name: 1 if r.terminal else 1 + self._cost(r.body) for r in grammar.rules.values()}
            found = {name: cost for name, cost in found.items() if cost < self.least.get(name, math.inf)}
            if not found:
                break
            self.least |= found

    def _cost(self, node: Expression) -> float:
        """The fewest lexemes and rules of an expression."""
        match node:
            case Reference(name=name):
                return self.least.get(name, math.inf)
            case Sequence(parts=parts):
                return sum(map(self._cost, parts))
            case Choice(branches=branches):
                return min(map(self._cost, branches))
            case Repeat(part=part, low=low):
                return self._cost(part) * low if low else 0
        return 1

    def lexemes(self, rule: str, budget: int) -> list[str]:
        """The lexemes of a text of a rule."""
        self.left, self.out = budget, list[str]()
        self._derive(Reference(rule, 0, 0))
        return self.out

    def _derive(self, node: Expression) -> None:
        rules = self.grammar.rules
        match node:
            case Reference(name=name) if name in rules and not rules[name].terminal:
                self._derive(rules[name].body)
            case Sequence(parts=parts):
                for part in parts:
                    self._derive(part)
            case Choice(branches=branches):
                least = min(map(self._cost, branches))
                most = least if self.left <= 0 else max(self.left, least)
                self._derive(self.rng.choice([branch for branch in branches if self._cost(branch) <= most]))
            case Repeat(part=part, low=low, high=high):
                count = low
                while self.left > 0 and (high is None or count < high) and self.rng.random() < 0.45:
                    count += 1
                for _ in range(count):
                    self._derive(part)
            case _:
                self.left -= 1
                self.out.append(self._lexeme(node))

    def _lexeme(self, node: Expression) -> str:
        match node:
            case Literal(text=text):
                return text
            case Pattern(pattern=pattern, flags=flags):
                return self._matched(parser.parse(pattern.replace("(?ai:", "(?i:"), flag_bits(flags)))
            case Reference(name=name):
                if name in self.texts:
                    return self.rng.choice(self.texts[name])
                return name if name in (INDENT, DEDENT) else self._lexeme(self.grammar.rules[name].body)
            case Sequence(parts=parts):
                return "".join(map(self._lexeme, parts))
            case Choice(branches=branches):
                return self._lexeme(self.rng.choice(branches))
            case Repeat(part=part, low=low):
                return "".join(self._lexeme(part) for _ in range(low + self.rng.randint(0, 1)))
        raise AssertionError(node)

    def _matched(self, pattern: Any) -> str:
        """A text of a pattern, conditions aside."""
        out, rng = "", self.rng
        for code, value in pattern:
            if code is codes.LITERAL:
                out += chr(value)
            elif code is codes.IN:
                out += self._member(value)
            elif code is codes.NOT_LITERAL:
                out += rng.choice([c for c in _OTHERS if ord(c) != value])
            elif code is codes.ANY:
                out += rng.choice("ab ")
            elif code is codes.BRANCH:
                out += self._matched(rng.choice(value[1]))
            elif code is codes.SUBPATTERN:
                out += self._matched(value[3])
            elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
                low, high, part = value
                out += "".join(self._matched(part) for _ in range(min(high, low + rng.choice([0, 0, 0, 1, 2]))))
        return out

    def _member(self, parts: Any) -> str:
        """A character of a set; those of its first part are the commonest."""
        if parts[0][0] is codes.NEGATE:
            out = [c for c in _OTHERS if not any(_is_in(c, *part) for part in parts[1:])]
            return self.rng.choice(out or ["é"])
        code, value = parts[0] if self.rng.random() < 0.8 else self.rng.choice(parts)
        if code is codes.RANGE:
            return chr(self.rng.randint(value[0], min(value[1], value[0] + 3)))
        return chr(value) if code is codes.LITERAL else "0"


def _is_in(character: str, code: Any, value: Any) -> bool:
    """Whether a part of a set has a character."""
    if code is codes.CATEGORY:
        return bool(re.match({codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_WORD: r"\w", codes.CATEGORY_SPACE: r"\s"}.get(value, r"\W"), character))
    low, high = value if code is codes.RANGE else (value, value)
    return low <= ord(character) <= high


def joined(lexemes: list[str], gap: str) -> str:
    """A text of lexemes: spaces between them, or only where two words meet; blocks are indented by four spaces."""
    text, level, line_ends = "", 0, False
    for lexeme in lexemes:
        if lexeme in (INDENT, DEDENT):
            level += 1 if lexeme == INDENT else -1
        elif lexeme == NEWLINE:
            line_ends = True
        else:
            words = re.search(r"[\w$]\Z", text) and re.match(r"[\w$]", lexeme)
            text += "\n" + "    " * level if line_ends else (gap or (" " if words else "")) if text else ""
            text, line_ends = text + lexeme, False
    return text + "\n" * line_ends
