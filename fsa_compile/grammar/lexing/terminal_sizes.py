r"""Sizes of terminals by which Lark orders them: the longest text in characters, and the length of the regular expression.

Lark joins a terminal that is built from others to one regular expression, and orders terminals by its length. So that the same
one wins here, lengths are those of Lark's expressions: with its parentheses, escapes, flags, and terminals written out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from fsa_compile.grammar.front.common_terminals import COMMON_LENGTHS
from fsa_compile.grammar.grammar_tree import (  # fmt: skip
    Bounded,
    Choice,
    Expression,
    Literal,
    Pattern,
    Reference,
    Repeat,
    Rule,
    Sequence,
    Size,
)
from fsa_compile.grammar.source import flag_bits
from fsa_compile.languages.group_syntax import parse_with_groups as parse_pattern
from fsa_compile.limits import CompileLimits
from fsa_compile.patterns.regex_tree import widths

_ESCAPE = re.compile(r'\\(?:x..|u.{4}|U.{8}|[nftr"])', re.DOTALL)
"""What Lark decodes to one character before a regular expression is read."""
_SIGNS: dict[tuple[int, int | None], str] = {(0, 1): "?", (0, None): "*", (1, None): "+"}
UNKNOWN = Size(math.inf, 0, 0)


def sizes_of(rules: Mapping[str, Rule], text: str, limits: CompileLimits) -> dict[str, Size]:
    """Of all terminals, by name; none of them uses itself. `text`: the grammar's, in which offsets count."""
    found: dict[str, Size] = {}

    def named(name: str) -> Size:
        if name not in found:
            found[name] = size_of(rules[name].body, named, text, limits)
        return found[name]

    for rule in rules.values():
        if rule.terminal:
            named(rule.name)
    return found


def size_of(node: Expression, named: Callable[[str], Size], text: str, limits: CompileLimits) -> Size:
    """Of an expression. `named`: the size of a terminal by its name; `text`: the grammar's, in which offsets count."""

    def below(part: Expression) -> Size:
        return size_of(part, named, text, limits)

    match node:
        case Literal(text=word, ignore_case=ignore_case):
            return Size(len(word), len(word), len(re.escape(word)) + 5 * ignore_case)
        case Pattern(pattern=pattern, flags=flags):
            width = widths(parse_pattern(pattern, flag_bits(flags), limits))[1]
            if text.startswith("%import", node.start):
                length = COMMON_LENGTHS[pattern]
                return Size(width, length, length)
            length = len(_ESCAPE.sub(".", pattern.replace(r"\\", "..")))
            return Size(width, length, length + 5 * len(flags))
        case Bounded(name=name, most=most):
            size = named(name)
            return size._replace(width=min(size.width, most))
        case Reference(name=name):
            return named(name)
        case Sequence(parts=parts):
            sizes = [below(part) for part in parts]
            length = sum(size.joined for size in sizes)
            return Size(sum(size.width for size in sizes), length, length)
        case Choice(branches=branches):
            sizes = [below(branch) for branch in branches]
            length = sum(size.joined for size in sizes) + len(sizes) + 3
            return Size(max(size.width for size in sizes), length, length)
        case Repeat(part=part, low=low, high=high):
            size = below(part)
            sign = _SIGNS.get((low, high)) or (f"{{{low}}}" if low == high else f"{{{low},{high}}}")
            length = size.joined + 4 + len(sign)
            return Size(size.width and (math.inf if high is None else size.width * high), length, length)
    return UNKNOWN
