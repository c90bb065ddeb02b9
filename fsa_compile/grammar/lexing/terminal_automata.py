"""Terminal expressions as automata over bytes: what one lexeme may be, and the conditions at its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.bit_sets import disjoint, union
from fsa_compile.arrays.graphs import Numbers, leading, longest_path
from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.acyclic import choices_dfa
from fsa_compile.automata.aho_corasick import text_until_automaton
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.letter_dfa import LetterDfa
from fsa_compile.automata.minimize import minimize
from fsa_compile.automata.suffix_automaton import chunks_dfa
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import PatternError
from fsa_compile.languages.group_syntax import parse_with_groups
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns import regex_tree as syntax_tree
from fsa_compile.patterns.first_match import first_match
from fsa_compile.patterns.match_ends import MatchEnd, Matches, matches_within, rest_without
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.unicode.code_points import NONE, CodePointSet

Key: TypeAlias = "tuple[Any, ...]"
"""A terminal expression without places and names; equal keys are equal languages."""

_MOST_KEPT = 1 << 19
"""Arcs of all automata that are kept for other grammars."""
_NOTHING = syntax_tree.Text("", 0, 0)
_FLAGS = {"i": re.I, "m": re.M, "s": re.S, "x": re.X}


class Automaton(NamedTuple):
    """A trimmed deterministic automaton; state 0 is initial.

    Attributes:
      arcs: per state (set of symbols, next state) pairs with disjoint sets. Sets are bit sets: of bytes, or of symbol classes.
      final: per state whether the lexeme may end there.
    """

    arcs: list[list[tuple[int, int]]]
    final: list[bool]


def widest(automaton: Automaton) -> float:
    """Length of the longest text in symbols; infinite if there is none."""
    longest = longest_path([[target for _, target in arcs] for arcs in automaton.arcs], 0)
    return float("inf") if longest is None else longest


_cache: SizedMemo[tuple[Automaton, bool]] = SizedMemo(_MOST_KEPT, lambda found: sum(map(len, found[0].arcs)))


def automaton_of(key: Key, limits: CompileLimits, deadline: Deadline) -> tuple[Automaton, bool]:
    """The automaton of a terminal over bytes without the empty text, and whether the empty text belongs to it."""
    if key[0] == "tempered":
        return automaton_of(key[1], limits, deadline)
    if key[0] == "literal":
        return text_automaton(key[1].encode())

    def made() -> tuple[Automaton, bool]:
        dfa = byte_dfa_of(key, limits, deadline)
        return (Automaton([[]], [False]), False) if dfa is None or dfa.start == 0 else without_empty(dfa)

    return _cache.get((key, limits), made)


_First: TypeAlias = "tuple[LetterDfa | None, list[tuple[LetterDfa, CodePointSet]]]"
_first_matches: SizedMemo[_First] = SizedMemo(_MOST_KEPT, lambda found: sum(map(len, found[0].arcs)) if found[0] else 1)


def _first_match(key: Key, limits: CompileLimits, deadline: Deadline) -> _First:
    """`first_match` of a terminal; made once."""
    return _first_matches.get((key, limits), lambda: first_match(_tree(key, limits), limits, deadline))


def ends_of(key: Key, limits: CompileLimits, deadline: Deadline) -> list[MatchEnd]:
    """The texts of a terminal by what must follow them; none without conditions, unless it ends as soon as they hold."""
    if key[0] in ("bounded", "tempered"):
        return ends_of(key[1], limits, deadline)
    if key[0] == "ordered":
        _, ends = _first_match(key, limits, deadline)
        found = [MatchEnd(dfa, forbidden, rest_without(forbidden, limits, deadline)) for dfa, forbidden in ends]
    else:
        found = matches_of(key[1], key[2], limits, deadline).ends if key[0] in ("looking", "soonest") else []
    return found if key[0] == "soonest" or any(end.forbidden != NONE for end in found) else []


_matches: SizedMemo[Matches] = SizedMemo(_MOST_KEPT, lambda found: sum(map(len, found.texts.arcs)) if found.texts else 1)


def matches_of(pattern: str, flags: str, limits: CompileLimits, deadline: Deadline) -> Matches:
    """What a pattern matches within longer texts (`matches_within`); made once."""
    key = pattern, "".join(sorted(flags))
    return _matches.get((*key, limits), lambda: matches_within(_tree(("looking", *key), limits), limits, deadline))


def before_of(key: Key, limits: CompileLimits, deadline: Deadline) -> LetterDfa | None:
    """The texts behind which a terminal may begin; None for all."""
    if key[0] in ("bounded", "tempered"):
        return before_of(key[1], limits, deadline)
    return matches_of(key[1], key[2], limits, deadline).before if key[0] in ("looking", "soonest") else None


def text_automaton(data: bytes) -> tuple[Automaton, bool]:
    """The automaton of one string."""
    n = len(data)
    if n == 0:
        return Automaton([[]], [False]), True
    return Automaton([[(1 << data[i], i + 1)] for i in range(n)] + [[]], [False] * n + [True]), False


def byte_dfa_of(key: Key, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
    """The language of a terminal expression; None when it has no member."""
    if key[0] == "tempered":
        return byte_dfa_of(key[1], limits, deadline)
    if key[0] == "pattern" or not any(map(_stands_alone, parts_of(key))):
        dfa = build_automaton(_tree(key, limits), limits, deadline)
        return None if dfa is None else to_byte_dfa(dfa, limits)
    if key[0] == "ordered":
        first, _ = _first_match(key, limits, deadline)
        return None if first is None else to_byte_dfa(first, limits)
    if key[0] in ("looking", "soonest"):
        texts = matches_of(key[1], key[2], limits, deadline).texts
        return None if texts is None else to_byte_dfa(texts, limits)
    if key[0] == "free":
        return _free_text(key[1], limits)
    if key[0] == "chunks":
        return chunks_dfa([chunk.encode() for chunk in key[1]], limits, deadline)
    if key[0] == "bounded":
        one, most = (byte_dfa_of(part, limits, deadline) for part in (key[1], ("pattern", f".{{0,{key[2]}}}", "s")))
        return None if one is None or most is None else algebra.combine("&", one, most, limits, deadline)
    if key[0] in ("sequence", "choice"):
        whole: ByteDfa | None = None
        for part in key[1:]:
            one = byte_dfa_of(part, limits, deadline)
            if one is None or whole is None:
                if key[0] == "sequence" and one is None:
                    return None
                whole = whole or one
            else:
                whole = algebra.combine("+" if key[0] == "sequence" else "|", whole, one, limits, deadline)
        return whole
    return _repeated_free_text(key, limits, deadline)


def _stands_alone(part: Key) -> bool:
    """Whether a part of a terminal is compiled without the others: conditions of a shortest match do not see what follows it."""
    alone = ("free", "chunks", "bounded", "ordered", "soonest", "looking")
    return part[0] in alone or (part[0] == "pattern" and part[1].startswith("(?!"))


def _repeated_free_text(key: Key, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
    _, part, low, high = key
    if high is None:
        raise PatternError(
            "free text cannot be repeated without bound inside a terminal", pattern="", start=0, fix="Repeat it in a rule."
        )
    empty = choices_dfa([b""], limits, deadline)
    one = byte_dfa_of(part, limits, deadline)
    if one is None:
        return empty if low == 0 else None
    whole = empty
    optional = algebra.combine("|", one, empty, limits, deadline)
    for i in range(high):
        whole = algebra.combine("+", whole, one if i < low else optional, limits, deadline)
    return whole


def _free_text(until: tuple[str, ...], limits: CompileLimits) -> ByteDfa:
    """Texts with a trigger at their end and nowhere before."""
    return to_byte_dfa(minimize(text_until_automaton(until, limits)), limits)


def _tree(key: Key, limits: CompileLimits) -> syntax_tree.Node:
    """The expression as one pattern tree."""
    match key[0]:
        case "literal":
            return syntax_tree.Text(key[1], 0, 0) if key[1] else syntax_tree.Concat([], 0, 0)
        case "pattern" | "ordered" | "soonest" | "looking":
            flags = 0
            for letter in key[2]:
                flags |= int(_FLAGS[letter])
            return parse_with_groups(key[1], flags, limits)
        case "sequence":
            return syntax_tree.Concat([_tree(part, limits) for part in key[1:]], 0, 0)
        case "choice":
            return syntax_tree.Alternate([_tree(part, limits) for part in key[1:]], 0, 0)
        case _:
            return syntax_tree.Repeat(_tree(key[1], limits), key[2], key[3], 0, 0)


def parts_of(key: Key) -> Iterable[Key]:
    """The expression and everything inside it."""
    todo = [key]
    while todo:
        one = todo.pop()
        yield one
        if one[0] in ("sequence", "choice"):
            todo += one[1:]
        elif one[0] in ("repeat", "bounded", "tempered"):
            todo.append(one[1])


def without_empty(dfa: ByteDfa) -> tuple[Automaton, bool]:
    """The automaton without the empty text; the initial state first."""
    full = dfa.table if dfa.identity_classes else dfa.table[:, dfa.byte_class]
    nullable = bool(dfa.final[dfa.start])
    number = {dfa.start: 0}
    arcs: list[list[tuple[int, int]]] = []
    final: list[bool] = []
    again = nullable and bool((full == dfa.start).any())  # then the initial state stays final for those who come back
    order = [dfa.start]
    for q in order:
        row, out = full[q], []
        for target in dict.fromkeys(row.tolist()):
            if not target:
                continue
            symbols = int.from_bytes(np.packbits(row == target, bitorder="little").tobytes(), "little")
            if target not in number or (again and target == dfa.start and number[target] == 0):
                number[target] = len(order)
                order.append(target)
            out.append((symbols, number[target]))
        arcs.append(out)
        final.append(bool(dfa.final[q]))
    final[0] = False
    if nullable and not arcs[0]:
        return Automaton([[]], [False]), True
    return Automaton(arcs, final), nullable


def difference(whole: Automaton, others: list[Automaton]) -> tuple[Automaton, frozenset[int]]:
    """The texts of one automaton that no other one accepts, initial state 0, trimmed; and the states of texts that one does."""
    order, arcs = read_beside(whole, others)
    taken = [whole.final[p] and any(others[i].final[q] for i, q in beside) for p, beside in order]
    final = [whole.final[p] and not lost for (p, _), lost in zip(order, taken)]
    left, place = trimmed(Automaton(arcs, final))
    return left, frozenset(place[q] for q, lost in enumerate(taken) if lost and q in place)


_Place: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]


def read_beside(whole: Automaton, others: list[Automaton]) -> tuple[list[_Place], list[list[tuple[int, int]]]]:
    """Reads the texts of an automaton, and with them others as far as these go on: states, the initial one first, and arcs."""
    number = Numbers[_Place]([(0, tuple((i, 0) for i in range(len(others))))])
    arcs: list[list[tuple[int, int]]] = []
    for p, beside in number.order:
        own: list[tuple[int, list[Any]]] = [(symbols, [target]) for symbols, target in whole.arcs[p]]
        read = union(symbols for symbols, _ in own)
        own += [(symbols & read, [(i, target)]) for i, q in beside for symbols, target in others[i].arcs[q]]
        arcs.append([(symbols, number[target, tuple(rest)]) for symbols, (target, *rest) in disjoint(own)])
    return number.order, arcs


def trimmed(automaton: Automaton) -> tuple[Automaton, dict[int, int]]:
    """The automaton without states that lead nowhere, arcs to one state joined; and the new numbers of the states."""
    live = leading([[q for _, q in arcs] for arcs in automaton.arcs], [q for q, final in enumerate(automaton.final) if final])
    number = {q: i for i, q in enumerate(sorted({0, *live}))}
    left: list[list[tuple[int, int]]] = []
    for q in number:
        joined: dict[int, int] = {}
        for symbols, target in automaton.arcs[q]:
            if target in live:
                joined[number[target]] = joined.get(number[target], 0) | symbols
        left.append([(symbols, target) for target, symbols in joined.items()])
    return Automaton(left, [automaton.final[q] for q in number]), number


def share_text(a: Automaton, b: Automaton) -> bool:
    """Whether two automata have a text in common."""
    return any(a.final[p] and b.final[q] for p, q in _together(a, b))


def behind(a: Automaton, b: Automaton) -> Iterator[int]:
    """The states of an automaton behind texts of another one, the first, that begin longer ones of it."""
    return (q for p, q in _together(a, b) if a.final[p] and b.arcs[q])


def _together(a: Automaton, b: Automaton) -> Iterator[tuple[int, int]]:
    """The states that two automata are in behind a text."""
    seen, todo = {(0, 0)}, [(0, 0)]
    while todo:
        p, q = todo.pop()
        yield p, q
        for x, p2 in a.arcs[p]:
            for y, q2 in b.arcs[q]:
                if x & y and (p2, q2) not in seen:
                    seen.add((p2, q2))
                    todo.append((p2, q2))
