"""Random small grammars: recursion at either end and inside, nullable and useless parts, lexemes that begin alike."""

from __future__ import annotations

import random

from fsa_compile.grammar.grammar_tree import (  # fmt: skip
    Choice,
    Expression,
    Grammar,
    LexicalMode,
    Literal,
    Pattern,
    Reference,
    Repeat,
    Rule,
    Sequence,
)

_LEXEMES = ["a", "b", "ab", "(", ")", "[", "]", ",", "aé"]
_PATTERNS = ["[ab]+", "a*b", "[0-9]+", r"[0-9]+(\.[0-9]+)?", "(ab)*a", "[aé€]", "b{1,3}", "a?"]
_KINDS = ["lexeme", "pattern", "rule", "rule", "bracket", "bracket", "sequence", "sequence", "sequence", "choice", "choice", "repeat"]


def random_grammar(rng: random.Random, mode: LexicalMode) -> Grammar:
    """A grammar of two to five rules; longest-match ones ignore spaces."""
    names = ["start", *(f"r{i}" for i in range(rng.randint(1, 4)))]
    rules = {name: Rule(name, _body(rng, names), False, 0, 0, 0) for name in names}
    if rng.random() < 0.5:
        rules["WORD"] = Rule("WORD", Pattern("[ab0-9]+", 0, 0), True, rng.randint(-1, 1), 0, 0)
    ignore = (Pattern(" +", 0, 0),) if mode == "longest" else ()
    return Grammar(rules=_defined(rules), start="start", ignore=ignore, mode=mode, text="")


def _body(rng: random.Random, names: list[str]) -> Expression:
    """Most rules have a way out of their recursion."""
    body = _expression(rng, names, rng.randint(2, 3))
    return Choice((body, Literal(rng.choice(_LEXEMES), 0, 0)), 0, 0) if rng.random() < 0.7 else body


def _expression(rng: random.Random, names: list[str], depth: int) -> Expression:
    def deeper() -> Expression:
        return _expression(rng, names, depth - 1)

    kind = rng.choice(_KINDS if depth else _KINDS[:4])
    if kind == "lexeme":
        return Literal(rng.choice(_LEXEMES), 0, 0)
    if kind == "pattern":
        return Pattern(rng.choice(_PATTERNS), 0, 0) if rng.random() < 0.7 else Reference("WORD", 0, 0)
    if kind == "rule":
        return Reference(rng.choice(names), 0, 0)
    if kind == "bracket":
        left, right = rng.choice(["()", "[]", "()", "ab"])
        return Sequence((Literal(left, 0, 0), deeper(), Literal(right, 0, 0)), 0, 0)
    if kind == "sequence":
        return Sequence(tuple(deeper() for _ in range(rng.choice([0, 1, 2, 2, 3, 3]))), 0, 0)
    if kind == "choice":
        return Choice(tuple(deeper() for _ in range(rng.choice([1, 2, 2, 3]))), 0, 0)
    low = rng.randint(0, 2)
    return Repeat(deeper(), low, rng.choice([None, low + 1]), 0, 0)


def _defined(rules: dict[str, Rule]) -> dict[str, Rule]:
    """With the terminal that expressions may name."""
    return {"WORD": Rule("WORD", Pattern("[ab]+", 0, 0), True, 0, 0, 0), **rules}
