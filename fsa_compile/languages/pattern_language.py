"""The language of one pattern's syntax tree."""

from __future__ import annotations

import re

from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.inputs.guard import guarded
from fsa_compile.languages.language import DEFAULT_LIMITS, Language, checked_text
from fsa_compile.limits import CompileLimits, Deadline, checked_limits
from fsa_compile.patterns.counting.counted_regex import counted_machine
from fsa_compile.patterns.python_syntax import GroupReader, parse
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.patterns.regex_tree import Concat, Node, Text


def plain_pattern(pattern: str) -> Language:
    """The language of a pattern that holds no extension group."""
    return PatternLanguage(parse(pattern), pattern, 0, None)


@guarded
def literal(text: str) -> Language:
    """Exactly one text."""
    checked = checked_text(text, "the literal")
    tree = Text(checked, 0, len(checked)) if checked else Concat([], 0, 0)
    return PatternLanguage(tree, repr(text), 0, None)


class PatternLanguage(Language):
    """The texts of a pattern in which nothing is embedded."""

    def __init__(
        self, tree: Node, source: str, flags: int, limits: CompileLimits | None, groups: GroupReader | None = None
    ) -> None:
        self._tree, self._source, self._flags, self._limits, self._groups = tree, source, flags, limits, groups
        self.description = source if not flags else f"{source} (flags {re.RegexFlag(flags)!s})"

    def to_byte_machine(self, limits: CompileLimits | None = None, deadline: Deadline | None = None) -> ByteMachine | None:
        limits = DEFAULT_LIMITS if limits is None else checked_limits(limits)
        self._check(limits)
        return counted_machine(self._tree, limits, deadline or Deadline(limits))

    def _check(self, limits: CompileLimits) -> None:
        if self._limits is not None and limits is not self._limits and limits != self._limits:
            parse(self._source, self._flags, limits, self._groups)  # other bounds on size and repetition may hold now

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        self._check(limits)
        dfa = build_automaton(self._tree, limits, deadline)
        return None if dfa is None else to_byte_dfa(dfa, limits)

    def _why_empty(self) -> str:
        return "the pattern matches no text at all"


def from_tree(tree: Node, description: str) -> Language:
    """The language of a syntax tree without text."""
    return PatternLanguage(tree, description, 0, None)


def tree_of(language: Language) -> Node | None:
    """The syntax tree of a language that is one pattern, else None."""
    return language._tree if isinstance(language, PatternLanguage) else None
