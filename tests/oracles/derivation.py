"""Whether a short text is derived by a grammar over characters: least sets of ends per rule and place, with Python's `re`."""

from __future__ import annotations

import re

from fsa_compile.grammar.grammar_tree import Choice, Expression, Grammar, Literal, Pattern, Reference, Repeat, Sequence


def derives(grammar: Grammar, text: str) -> bool:
    """Whether the start rule derives the text. Scannerless grammars without special tokens and free text."""
    ends: dict[str, list[set[int]]] = {name: [set() for _ in range(len(text) + 1)] for name in grammar.rules}
    changed = True
    while changed:
        changed = False
        for name, rule in grammar.rules.items():
            for i in range(len(text) + 1):
                found = _ends(rule.body, i, text, ends)
                if not found <= ends[name][i]:
                    ends[name][i] |= found
                    changed = True
    return len(text) in ends[grammar.start][0]


def _ends(node: Expression, i: int, text: str, ends: dict[str, list[set[int]]]) -> set[int]:
    match node:
        case Literal():
            return {i + len(node.text)} if text.startswith(node.text, i) else set()
        case Pattern():
            return {j for j in range(i, len(text) + 1) if re.fullmatch(node.pattern, text[i:j])}
        case Reference():
            return ends[node.name][i]
        case Sequence():
            places = {i}
            for part in node.parts:
                places = {k for j in places for k in _ends(part, j, text, ends)}
            return places
        case Choice():
            return {j for branch in node.branches for j in _ends(branch, i, text, ends)}
        case Repeat():
            return _repeated(node, i, text, ends)
    raise NotImplementedError(type(node).__name__)


def _repeated(node: Repeat, i: int, text: str, ends: dict[str, list[set[int]]]) -> set[int]:
    places, out, rounds = {i}, {i} if node.low == 0 else set(), 0
    while places and (node.high is None or rounds < node.high) and rounds <= len(text) + node.low + 1:
        places = {k for j in places for k in _ends(node.part, j, text, ends)}
        rounds += 1
        if rounds >= node.low:
            out |= places
    return out
