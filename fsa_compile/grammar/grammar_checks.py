"""What can be wrong with a grammar before any automaton is made: rules without texts, rules without use, circles.

A rule without a finite text is an error wherever the start needs it: nothing could ever use that rule, so its author meant
something else. Rules that the start does not need, and rules that can stand for themselves (so that a text has infinitely many
trees; its language is as good as any other), are `GrammarWarning`s.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator

from fsa_compile.errors import GrammarError, UnsatisfiableError
from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Reference, Repeat, Rule, Sequence, inside
from fsa_compile.grammar.rule_expressions import strong_components
from fsa_compile.limits import check_time


class GrammarWarning(UserWarning):
    """A grammar that is probably not what its author meant."""


def check_grammar(grammar: Grammar) -> None:
    """Checks productivity and use of all rules.

    Raises:
      UnsatisfiableError: the start rule has no finite text.
      GrammarError: a rule that the start needs has none.

    Warns:
      GrammarWarning: rules that nothing uses; rules that can stand for themselves.
    """
    needed = _needed(grammar)
    productive = _least(grammar, _is_productive)
    barren = [grammar.rules[name] for name in needed if name not in productive]
    if grammar.start not in productive:
        rule = grammar.rules[grammar.start]
        shown = GrammarError("", text=grammar.text, start=rule.start, end=rule.end).where
        what = f"the start rule {rule.name} has no finite text: {_chain(grammar, rule, productive)}"
        raise UnsatisfiableError(what, where=shown, fix="Give one of them a branch that ends.")
    for rule in barren:
        what = f"rule {rule.name} has no finite text: {_chain(grammar, rule, productive)}"
        fix = "Give it a branch without itself, or take it out."
        raise GrammarError(what, text=grammar.text, start=rule.start, end=rule.end, fix=fix)
    unused = [rule for name, rule in grammar.rules.items() if name not in needed and not rule.terminal]
    if unused:
        names = ", ".join(f"{rule.name} (line {line_of(grammar, rule)})" for rule in unused)
        warnings.warn(f"{grammar.start} does not need these rules: {names}", GrammarWarning, stacklevel=outside())
    for component in _circles(grammar, needed):
        names = " → ".join([*component, component[0]])
        line = line_of(grammar, grammar.rules[component[0]])
        what = f"{names} (line {line}) is a circle: each stands for itself, and a text has infinitely many trees"
        warnings.warn(f"{what}. The language is not changed by it.", GrammarWarning, stacklevel=outside())


def outside() -> int:
    """The `stacklevel` of a caller's warning that names the line outside this package which called it."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fsa_compile"):
        level, frame = level + 1, frame.f_back
    return level


def line_of(grammar: Grammar, rule: Rule) -> int:
    """Line of a rule's definition, from 1."""
    return grammar.text.count("\n", 0, rule.start) + 1


def _needed(grammar: Grammar) -> dict[str, None]:
    found: dict[str, None] = {}
    todo: list[Expression] = [Reference(grammar.start, 0, 0), *grammar.ignore]
    while todo:
        for node in inside(todo.pop()):
            if isinstance(node, Reference) and node.name not in found:
                found[node.name] = None
                todo.append(grammar.rules[node.name].body)
    return found


def _least(grammar: Grammar, test: Callable[[Expression, set[str]], bool]) -> set[str]:
    """The least set of rules that contains every rule whose body passes a test that may ask for the set."""
    known: set[str] = set()
    while True:
        check_time("Looking for rules without a text")
        more = {name for name, rule in grammar.rules.items() if name in known or test(rule.body, known)}
        if more == known:
            return known
        known = more


def _is_productive(node: Expression, known: set[str]) -> bool:
    return _holds(node, known, lambda leaf: True)


def _is_nullable(node: Expression, known: set[str]) -> bool:
    return _holds(node, known, lambda leaf: isinstance(leaf, Literal) and not leaf.text)


def _holds(node: Expression, known: set[str], leaf: Callable[[Expression], bool]) -> bool:
    """Whether an expression has a text of known rules and of leaves that pass a test."""
    match node:
        case Reference(name=name):
            return name in known
        case Sequence(parts=parts):
            return all(_holds(part, known, leaf) for part in parts)
        case Choice(branches=branches):
            return any(_holds(branch, known, leaf) for branch in branches)
        case Repeat(part=part, low=low):
            return low == 0 or _holds(part, known, leaf)
        case _:
            return leaf(node)


def _chain(grammar: Grammar, rule: Rule, productive: set[str]) -> str:
    """Rules that need one another without an end."""
    path = [rule.name]
    while True:
        names = [n.name for n in inside(grammar.rules[path[-1]].body) if isinstance(n, Reference) and n.name not in productive]
        following = min(names, key=lambda name: (name not in path, name))
        if following in path:
            return f"{' needs '.join([*path[path.index(following) :], following])}, without an end"
        path.append(following)


def _circles(grammar: Grammar, needed: dict[str, None]) -> list[list[str]]:
    nullable = _least(grammar, _is_nullable)
    alone = {
        name: [other for other in _alone(grammar.rules[name].body, nullable) if other in needed]
        for name in needed
        if not grammar.rules[name].terminal
    }
    alone = {name: [other for other in others if other in alone] for name, others in alone.items()}
    order = list(grammar.rules)
    return [sorted(c, key=order.index) for c in strong_components(alone) if len(c) > 1 or any(name in alone[name] for name in c)]


def _alone(node: Expression, nullable: set[str]) -> Iterator[str]:
    """Rules that an expression can stand for with nothing around them."""
    match node:
        case Reference(name=name):
            yield name
        case Sequence(parts=parts):
            for i, part in enumerate(parts):
                if all(_is_nullable(other, nullable) for j, other in enumerate(parts) if j != i):
                    yield from _alone(part, nullable)
        case Choice(branches=branches):
            for branch in branches:
                yield from _alone(branch, nullable)
        case Repeat(part=part, low=low):
            if low <= 1 or _is_nullable(part, nullable):
                yield from _alone(part, nullable)
