"""The mode "lark": which terminal Lark's contextual lexer takes, where that is not the one with the longest match.

Lark tries the terminals that may stand one after another, as alternatives of one regular expression: by priority, then by the
longest text that they can match, by the length of the expression, by name. The first that matches is taken, even where one behind
it would match more. A string that a pattern of its priority matches, too, is not among the alternatives where that pattern may
stand: the pattern is read, and is the string if it has read no more and no less.

So a match *precedes* what stands behind it: that is not read on. What Lark reads in a way that is not followed here is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.automata.symbol_dfa import SymbolDfa
from fsa_compile.errors import UnsupportedGrammarError
from fsa_compile.grammar.grammar_tree import Grammar
from fsa_compile.grammar.lexing.terminal_automata import Automaton, behind, share_text
from fsa_compile.grammar.lexing.terminals import Terminal
from fsa_compile.limits import Deadline


def place_in_lark(terminal: Terminal, number: int) -> tuple[int, float, int, str, int, int]:
    """Where a terminal stands among the alternatives; of a string only where no pattern of its priority matches it."""
    size = terminal.size
    return -terminal.priority, -size.width, -size.length, terminal.sort_name, terminal.start, number


def set_precedence(
    terminals: list[Terminal],
    original: list[Automaton],
    contexts: set[int],
    ignore: list[int],
    grammar: Grammar,
    deadline: Deadline,
) -> None:
    """Finds which terminals precede others, and as which patterns strings are read, in place.

    Args:
      original: the terminals' automata before texts were taken from them.
      contexts: sets of terminals that may begin together.
      ignore: terminals that are ignored.
      grammar: for errors.

    Raises:
      UnsupportedGrammarError: Lark reads some spellings of a string in any case otherwise than the rest, or a string as a pattern
        with conditions, or as one of several patterns, of which only some are ignored; it orders two terminals by names that it
        makes up.
    """
    places = [place_in_lark(t, i) for i, t in enumerate(terminals)]
    others = [list(members(union(c for c in contexts if c >> i & 1) & ~(1 << i))) for i in range(len(terminals))]
    for i, t in enumerate(terminals):
        deadline.check("Comparing the grammar's terminals")
        alike = [j for j in others[i] if t.literal and not terminals[j].literal and terminals[j].priority == t.priority]
        hosts = sorted((j for j in alike if share_text(original[j], original[i])), key=lambda j: places[j])
        t.within = union(1 << j for j in hosts)
        what = ""
        if hosts and t.key[0] == "pattern":
            what = f"of {t.name} Lark tells what is written exactly so from {terminals[hosts[0]].name}, nothing else"
        elif any(terminals[j].ends or terminals[j].begin >= 0 for j in hosts):
            what = f"whether {t.name} is read where a pattern matches it depends on a condition of the pattern"
        elif hosts and hosts[0] not in ignore and (i in ignore or any(j in ignore for j in hosts)):
            what = f"whether {t.name} is ignored is a matter of what else may stand"
        if what:
            fix = f"Give it a name and a priority: WORD.{t.priority + 1}: {grammar.text[t.start : t.end]}"
            raise UnsupportedGrammarError(what, text=grammar.text, start=t.start, end=t.end, fix=fix)
    for i, t in enumerate(terminals):
        deadline.check("Comparing the grammar's terminals")
        hosted = t.within | union(1 << j for j in others[i] if terminals[j].within >> i & 1)
        tied = [j for j in others[i] if places[j][:4] == places[i][:4] and not hosted >> j & 1]
        for j in (j for j in tied if terminals[j].start != t.start):  # ends of lines before blocks are one terminal to Lark
            if share_text(original[i], original[j]) or any(True for _ in behind(original[i], original[j])):
                what = f"which of {t.name} and {terminals[j].name} Lark tries first depends on names that it makes up"
                fix = "Define both as terminals with names."
                raise UnsupportedGrammarError(what, text=grammar.text, start=t.start, end=t.end, fix=fix)
        after = [j for j in others[i] if places[i] < places[j] and not terminals[j].within >> i & 1]
        t.precedes = union(1 << j for j in after if any(True for _ in behind(original[i], original[j])))


def rank_in_lark(terminals: list[Terminal], ignore: list[int]) -> Callable[[int], tuple[Any, ...]]:
    """Orders the numbers of terminals by which of two it is where both match the same text."""
    places = [place_in_lark(t, i) for i, t in enumerate(terminals)]

    def rank(i: int) -> tuple[Any, ...]:
        host = min(members(terminals[i].within), key=lambda j: places[j], default=i)
        return places[host], 0 if host == i else 1 if host in ignore else -1, places[i]

    return rank


def refuse_other_readings(terminals: list[Terminal], frames: list[SymbolDfa], ignore: list[int], grammar: Grammar) -> None:
    """Raises `UnsupportedGrammarError` for what Lark reads in a way that is followed in no mode."""
    in_rules = {symbol for dfa in frames for arcs in dfa.arcs for symbol in arcs if symbol >= 0}
    for i in ignore:
        if i in in_rules:
            t = terminals[i]
            what = f"{t.name} is ignored, so that Lark reads it in no rule"
            fix = "Ignore another terminal, or take it out of the rules."
            raise UnsupportedGrammarError(what, text=grammar.text, start=t.start, end=t.end, fix=fix)
