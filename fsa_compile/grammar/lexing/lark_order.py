"""The mode "lark": which terminal Lark's contextual lexer takes, where that is not the one with the longest match.

Lark tries the terminals that may stand one after another, as alternatives of one regular expression: by priority, then by the
longest text that they can match, by the length of the expression, by name. The first that matches is taken, even where one behind
it would match more. A string that a pattern of its priority matches, too, is not among the alternatives where that pattern may
stand: the pattern is read, and is the string if it has read no more and no less.

So a match *precedes* what stands behind it: that is not read on. What Lark reads in a way that is not followed here is refused.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from typing import Any

from fsa_compile.arrays.bit_sets import members, union
from fsa_compile.automata.symbol_dfa import SymbolDfa
from fsa_compile.errors import UnsupportedGrammarError
from fsa_compile.grammar.grammar_checks import GrammarWarning, line_of, outside
from fsa_compile.grammar.grammar_tree import Grammar
from fsa_compile.grammar.lexing.terminal_automata import Automaton, behind, difference, share_text, trimmed
from fsa_compile.grammar.lexing.terminals import Lexicon, Terminal
from fsa_compile.grammar.transition_network import Network
from fsa_compile.limits import Deadline


def place_in_lark(terminal: Terminal, number: int) -> tuple[int, float, int, str, int, int]:
    """Where a terminal stands among the alternatives; of a string only where no pattern of its priority matches it."""
    size = terminal.size
    return -terminal.priority, -size.width, -size.length, terminal.sort_name, terminal.start, number


def set_precedence(
    lexicon: Lexicon,
    original: list[Automaton],
    contexts: set[int],
    ignore: list[int],
    grammar: Grammar,
    deadline: Deadline,
) -> None:
    """Finds which terminals precede others, and as which patterns strings are read, in place.

    Of a string in any case that a pattern matches, spellings with letters beyond ASCII are left out if the pattern does not match
    them (`ı` for `i`).

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
    terminals = lexicon.terminals
    places = [place_in_lark(t, i) for i, t in enumerate(terminals)]
    others = [list(members(union(c for c in contexts if c >> i & 1) & ~(1 << i))) for i in range(len(terminals))]
    for i in range(len(terminals)):
        deadline.check("Comparing the grammar's terminals")
        _find_hosts(lexicon, i, original, others[i], ignore, grammar)
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


def _find_hosts(
    lexicon: Lexicon, i: int, original: list[Automaton], others: list[int], ignore: list[int], grammar: Grammar
) -> None:
    """Finds as which patterns a string is read, in place; raises as `set_precedence` does. `others`: what may stand beside it."""
    terminals = lexicon.terminals
    t, places, ascii_ = terminals[i], {j: place_in_lark(terminals[j], j) for j in (i, *others)}, lexicon.class_set((1 << 128) - 1)
    alike = [j for j in others if t.literal and not terminals[j].literal and terminals[j].priority == t.priority]
    written, any_case = _as_written(lexicon, i, original[i]), t.key[0] == "pattern"
    hosts = sorted((j for j in alike if share_text(original[j], written)), key=lambda j: places[j])
    spelled = [j for j in alike if any_case and hosts and j not in hosts and share_text(original[j], original[i])]
    for j in hosts if any_case else ():
        left, _ = difference(original[i], [original[j]])
        arcs = [[(symbols & ascii_, q) for symbols, q in some if symbols & ascii_] for some in left.arcs]
        if trimmed(Automaton(arcs, left.final))[0].arcs[0]:
            spelled.append(j)
        original[i] = t.automaton = difference(original[i], [left])[0]
    t.within = union(1 << j for j in hosts)
    what = ""
    if spelled or (any_case and hosts and places[hosts[-1]] > places[i]):
        what = f"which spellings of {t.name} Lark reads as {terminals[[*hosts, *spelled][-1]].name} is not followed"
    elif any(terminals[j].ends or terminals[j].begin >= 0 for j in hosts):
        what = f"whether {t.name} is read where a pattern matches it depends on a condition of the pattern"
    elif hosts and hosts[0] not in ignore and (i in ignore or any(j in ignore for j in hosts)):
        what = f"whether {t.name} is ignored is a matter of what else may stand"
    if what:
        fix = f"Give it a name and a priority: WORD.{t.priority + 1}: {grammar.text[t.start : t.end]}"
        raise UnsupportedGrammarError(what, text=grammar.text, start=t.start, end=t.end, fix=fix)


def _as_written(lexicon: Lexicon, t: int, automaton: Automaton) -> Automaton:
    """Of a string in any case the text as it is written, which alone tells whether a pattern matches it; else all texts."""
    terminal = lexicon.terminals[t]
    if not terminal.literal or terminal.key[0] != "pattern":
        return automaton
    text = re.sub(r"\\(.)", r"\1", str(terminal.key[1]), flags=re.DOTALL).encode()
    classes = lexicon.byte_class[list(text)].tolist()
    arcs = [[(1 << kind, q)] for q, kind in enumerate(classes, 1)]
    return Automaton([*arcs, []], [*[False] * len(arcs), True])


def rank_in_lark(terminals: list[Terminal], ignore: list[int]) -> Callable[[int], tuple[Any, ...]]:
    """Orders the numbers of terminals by which of two it is where both match the same text."""
    places = [place_in_lark(t, i) for i, t in enumerate(terminals)]

    def rank(i: int) -> tuple[Any, ...]:
        host = min(members(terminals[i].within), key=lambda j: places[j], default=i)
        return places[host], 0 if host == i else 1 if host in ignore else -1, places[i]

    return rank


def without_ignored(network: Network, grammar: Grammar) -> Network:
    """The network without the ignored terminals in its rules: Lark's lexer drops them wherever they stand.

    What needs one leads nowhere, but stays: Lark's lexer looks for what may stand before it.

    Warns:
      GrammarWarning: there are such terminals.
    """
    arcs = [[{s: to for s, to in one.items() if s not in network.ignore} for one in f.dfa.arcs] for f in network.frames]
    for i in network.ignore:
        rules = dict.fromkeys(rule for f in network.frames if any(i in one for one in f.dfa.arcs) for rule in f.homes.get(i, ()))
        if rules:
            where = ", ".join(f"{name} (line {line_of(grammar, grammar.rules[name])})" for name in rules)
            name = network.lexicon.terminals[i].name
            what = f"{name} is ignored, so Lark reads it in no rule: what needs it in {where} is never read"
            warnings.warn(what, GrammarWarning, stacklevel=outside())
    frames = [dataclasses.replace(f, dfa=SymbolDfa(left, f.dfa.final)) for f, left in zip(network.frames, arcs)]
    return dataclasses.replace(network, frames=frames)
