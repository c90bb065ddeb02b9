"""Names in a grammar: that each is defined, that the start rule exists, and what a mistyped one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NoReturn

from fsa_compile.errors import ConstraintError, GrammarSyntaxError
from fsa_compile.grammar.grammar_tree import Embedded, Expression, Reference, Rule
from fsa_compile.grammar.source import GrammarText, walk


def check_names(source: GrammarText, rules: Mapping[str, Rule], start: str, extra: Iterable[Expression] = ()) -> None:
    """Refuses undefined names and a missing start rule.

    Args:
      rules: rules and terminals by name.
      start: name of the start rule.
      extra: expressions that stand outside the rules.
    """
    for expression in [*(rule.body for rule in rules.values()), *extra]:
        for node in walk(expression):
            if isinstance(node, Reference) and node.name not in rules:
                undefined(source, node, rules)
    if not isinstance(start, str):
        raise ConstraintError(f"the start rule is given by its name, a str, not {type(start).__name__}")
    if not rules:
        fix = 'Write at least one rule, such as start: "yes" | "no" (Lark) or root ::= "yes" | "no" (GBNF).'
        raise GrammarSyntaxError("the grammar has no rules", text=source.text, start=0, fix=fix)
    if start not in rules:
        named = [rule.name for rule in rules.values() if not rule.terminal] or list(rules)
        first = rules[named[0]]
        fix = f"There are: {enumeration(named)}. Name one of them with start=..., or define {start}.{suggestion(start, named)}"
        raise GrammarSyntaxError(f"there is no start rule {start!r}", text=source.text, start=first.start, end=first.end, fix=fix)


def undefined(source: GrammarText, node: Reference | Embedded, known: Iterable[str]) -> NoReturn:
    """Refuses a name that means nothing."""
    name = str(node.name)
    fix = f"Define it, or write it in quotes if it is text.{suggestion(name, known)}"
    source.syntax(f"{'terminal' if name.isupper() else 'rule'} {name!r} is not defined", node.start, node.end, fix=fix)


def suggestion(name: str, known: Iterable[str]) -> str:
    """A sentence with the closest known name, or ""."""
    close = difflib.get_close_matches(name.lower()[:80], [k.lower() for k in known], n=1, cutoff=0.6)
    exact = [k for k in known if close and k.lower() == close[0]]
    return f" Did you mean {exact[0]}?" if exact else ""


def enumeration(names: list[str], most: int = 12) -> str:
    """Names for an error text."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
