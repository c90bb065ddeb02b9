"""Which texts a parsed grammar holds, character by character: sets of spans grown until nothing is new. Slow and plain.

For mode "characters" only, and for grammars whose patterns have no lookaround. Python's `re` judges each pattern.
"""

from __future__ import annotations

import re

from fsa_compile.grammar.grammar_tree import Choice, Expression, FreeText, Grammar, Literal, Pattern, Reference, Repeat, Sequence

_FLAGS = {"i": re.I, "m": re.M, "s": re.S, "x": re.X}


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether the whole text belongs to the grammar's language."""
    ends: dict[tuple[str, int], set[int]] = {(name, i): set() for name in grammar.rules for i in range(len(text) + 1)}
    while True:
        before = sum(map(len, ends.values()))
        for (name, i), found in ends.items():
            found |= _ends(grammar.rules[name].body, i, text, ends)
        if sum(map(len, ends.values())) == before:
            return len(text) in ends[grammar.start, 0]


def _ends(node: Expression, i: int, text: str, ends: dict[tuple[str, int], set[int]]) -> set[int]:
    match node:
        case Reference():
            return ends[node.name, i]
        case Literal():
            there = text[i : i + len(node.text)]
            same = there.lower() == node.text.lower() if node.ignore_case else there == node.text
            return {i + len(node.text)} if same else set()
        case Pattern():
            flags = sum(_FLAGS[letter] for letter in node.flags)
            return {j for j in range(i, len(text) + 1) if re.fullmatch(node.pattern, text[i:j], flags)}
        case Sequence():
            here = {i}
            for part in node.parts:
                here = set().union(*(_ends(part, j, text, ends) for j in here))
            return here
        case Choice():
            return set().union(*(_ends(branch, i, text, ends) for branch in node.branches))
        case Repeat():
            return _repeated(node, i, text, ends)
        case FreeText():
            stops = [j for j in range(i, len(text) + 1) if text[i:j].endswith(node.until)]
            return {stops[0]} if stops else set()
    raise AssertionError(f"no text: {node}")


def _repeated(node: Repeat, i: int, text: str, ends: dict[tuple[str, int], set[int]]) -> set[int]:
    here, out, seen = {i}, set(), set()
    for count in range(node.low + len(text) + 1 if node.high is None else node.high + 1):
        out |= here if count >= node.low else set()
        if count >= node.low and here <= seen:
            break
        seen |= here if count >= node.low else set()
        here = set().union(*(_ends(node.part, j, text, ends) for j in here))
    return out
