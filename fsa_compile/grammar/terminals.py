"""Terminals of a grammar as byte automata over common byte classes: what one lexeme may be.

A terminal expression becomes one pattern tree and with it one minimal automaton; equal expressions are one terminal. All
automata of a grammar are then written over the same classes of bytes, as bit sets, so that the frame construction never looks
at single bytes. Special tokens are classes of their own after those of the bytes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fsa_compile.arrays.graphs import longest_path
from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.automata import boolean as algebra
from fsa_compile.automata.acyclic import choices_dfa
from fsa_compile.automata.aho_corasick import text_until_automaton
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.letter_dfa import LetterDfa
from fsa_compile.automata.minimize import minimize
from fsa_compile.automata.suffix_automaton import chunks_dfa
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import PatternError, UnsupportedGrammarError
from fsa_compile.grammar.grammar_tree import (  # fmt: skip
    Bounded,
    Choice,
    Chunks,
    Expression,
    FreeText,
    Grammar,
    Literal,
    Pattern,
    Reference,
    Repeat,
    Sequence,
    SpecialToken,
    Tempered,
)
from fsa_compile.languages.group_syntax import parse_with_groups
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns import regex_tree as syntax_tree
from fsa_compile.patterns.first_match import first_match
from fsa_compile.patterns.regex_automaton import build_automaton
from fsa_compile.patterns.trailing_guards import END_OF_TEXT, WORD_BYTES, all_words, forbidden_bytes, glued_bytes, split_guard
from fsa_compile.unicode.code_points import NONE, CodePointSet

Key: TypeAlias = "tuple[Any, ...]"
"""A terminal expression without places and names; equal keys are equal languages."""

_MOST_KEPT = 1 << 19
"""Arcs of all automata that are kept for other grammars."""
_FLAGS = {"i": re.I, "m": re.M, "s": re.S, "x": re.X}


class Automaton(NamedTuple):
    """A trimmed deterministic automaton; state 0 is initial.

    Attributes:
      arcs: per state (set of symbols, next state) pairs with disjoint sets. Sets are bit sets: of bytes, or of symbol classes.
      final: per state whether the lexeme may end there.
    """

    arcs: list[list[tuple[int, int]]]
    final: list[bool]


@dataclasses.dataclass(eq=False)
class Terminal:
    """One kind of lexeme.

    Attributes:
      name: the rule's name, or the expression as written.
      priority: as in the grammar.
      literal: whether it is a plain string; those win over patterns.
      key: its expression.
      start, end: a place in the grammar's text that stands for it.
      automaton: over bytes until the lexicon is closed, then over symbol classes. Never accepts the empty text.
      nullable: whether the empty text belongs to the terminal besides.
      ends: alternatives with a condition at their end (`trailing_guards`): their automata, like `automaton`, and the symbols
        before which the lexeme may not end; the bit behind all symbols is the end of the text.
      guard: by final state, symbols before which the lexeme may not end there; `longest_match` says which.
      failing: by final state with a condition, the symbols at which a shorter lexeme may have to be read instead.
      rank: of terminals that begin together and match the same text, the one with the least rank it is.
      ties: whether another terminal may match the same text at the same place.
      reserved: states in which the text is a word that another terminal has taken from this one.
    """

    name: str
    priority: int
    literal: bool
    key: Key
    start: int
    end: int
    automaton: Automaton
    nullable: bool
    ends: list[tuple[Automaton, int]] = dataclasses.field(default_factory=list)
    guard: dict[int, int] = dataclasses.field(default_factory=dict)
    failing: dict[int, int] = dataclasses.field(default_factory=dict)
    rank: int = 0
    ties: bool = False
    reserved: frozenset[int] = frozenset()

    @property
    def temperature(self) -> float | None:
        """Of the rule's option; None without it."""
        return self.key[2] if self.key[0] == "tempered" else None


class Lexicon:
    """The terminals of one grammar.

    Attributes:
      terminals: in the order in which they were met.
      byte_class: int32[256 + T], class of every byte and special token; set by `close`.
      num_classes: their number.
      specials: token ids of the special tokens, in the order of their symbols.
    """

    def __init__(
        self, grammar: Grammar, specials: Mapping[str | int, int], limits: CompileLimits, deadline: Deadline,
        values: Mapping[int, tuple[int, bool]] | None = None,
    ) -> None:  # fmt: skip
        self._grammar, self._token_of, self._limits, self._deadline = grammar, specials, limits, deadline
        self._values = values or {}
        self._number: dict[tuple[Key, int], int] = {}
        self.terminals: list[Terminal] = []
        self.specials: tuple[int, ...] = ()
        self.byte_class = np.zeros(256, np.int32)
        self.num_classes = 0
        self._alone: list[bool] = []
        self._bytes: list[list[list[tuple[int, int]]]] = []
        self.apart: tuple[int, ...] = ()
        """Sets of bytes that are classes, or several classes, of their own."""

    def number(self, node: Expression, name: str = "", priority: int = 0) -> int:
        """Number of the terminal that an expression is.

        Args:
          name: its name, if it has one.
          priority: of the named terminal.

        Raises:
          UnsupportedGrammarError: the expression is no regular language of text.
          GrammarError: a pattern in it is wrong.
        """
        key = self._key(node, ())
        found = self._number.get((key, priority))
        if found is None:
            found = self._number[key, priority] = len(self.terminals)
            automaton, nullable = self._automaton(key, node)
            shown = name or self._grammar.text[node.start : node.end]
            literal = self._is_literal(node)
            self.terminals.append(Terminal(shown, priority, literal, key, node.start, node.end, automaton, nullable))
        return found

    def _is_literal(self, node: Expression) -> bool:
        while not isinstance(node, Literal):
            match node:
                case Reference():
                    node = self._grammar.rules[node.name].body
                case Sequence(parts=(one,)) | Choice(branches=(one,)):
                    node = one
                case _:
                    return False
        return True

    def names_special_token(self, node: Expression) -> bool:
        """Whether a special token stands in an expression or in the terminals it refers to."""
        return any(part[0] == "special" for part in _parts(self._key(node, ())))

    def close(self) -> None:
        """Finds the symbol classes of all terminals and writes their automata over them."""
        self._forbid()
        automata = [a for t in self.terminals for a in (t.automaton, *(end for end, _ in t.ends))]
        guards = [guard for t in self.terminals for _, guard in t.ends]
        masks = [WORD_BYTES, *self.apart, *guards, *(m for automaton in automata for arcs in automaton.arcs for m, _ in arcs)]
        sets = list(dict.fromkeys(masks))
        width = 32 + len(self.specials) // 8 + 1
        packed = np.frombuffer(b"".join(m.to_bytes(width, "little") for m in sets), np.uint8).reshape(len(sets), width)
        bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : 256 + len(self.specials)]
        weights = np.random.default_rng(7).integers(1, 1 << 62, len(sets), dtype=np.int64)
        _, first, kind = np.unique(weights @ bits.astype(np.int64), return_index=True, return_inverse=True)
        self.byte_class, self.num_classes = kind.astype(np.int32).ravel(), len(first)
        rows = np.packbits(bits[:, first], axis=1, bitorder="little")
        of_classes = {m: int.from_bytes(row.tobytes(), "little") for m, row in zip(sets, rows)}

        def closed(automaton: Automaton) -> Automaton:
            return Automaton([[(of_classes[m], q) for m, q in arcs] for arcs in automaton.arcs], automaton.final)

        def closed_guard(guard: int) -> int:
            return of_classes[guard] | (guard >> 256 + len(self.specials)) << self.num_classes

        for t in self.terminals:
            t.automaton, t.ends = closed(t.automaton), [(closed(end), closed_guard(guard)) for end, guard in t.ends]

    def _forbid(self) -> None:
        """Finds the bytes before which terminals, or alternatives, with a condition at their end may not end."""
        known: dict[CodePointSet, int | None] = {NONE: 0}
        automata = self._bytes = [t.automaton.arcs for t in self.terminals]
        for t in self.terminals:
            for dfa, forbidden in _ends(t.key, self._limits, self._deadline):
                if forbidden not in known:
                    known[forbidden] = forbidden_bytes(forbidden, automata)
                found = known[forbidden]
                if found is None:
                    what = f"the condition at the end of {t.name} divides characters that begin with the same byte and may follow"
                    fix = r"Let it speak of ASCII only: write (?a:\b), or a class such as (?![A-Za-z0-9_])."
                    raise UnsupportedGrammarError(what, text=self._grammar.text, start=t.start, end=t.end, fix=fix)
                begins = [self._values.get(token, (0, False))[0] for token in self.specials]
                demands = forbidden[1][-1:] != () and forbidden[1][-1][1] == END_OF_TEXT
                more = [k for k, first in enumerate(begins) if first & found or (demands and not first)]
                more += [len(self.specials)] * demands
                end = _without_empty(to_byte_dfa(dfa, self._limits))[0]
                t.ends.append((end, found | sum(1 << 256 + k for k in more)))

    def stands_alone(self, t: int) -> bool:
        """Whether no other terminal begins with a symbol with which this one begins."""
        if not self._alone:
            first = [sum(m for m, _ in terminal.automaton.arcs[0]) for terminal in self.terminals]
            self._alone = [not any(a & b for j, b in enumerate(first) if j != i) for i, a in enumerate(first)]
        return self._alone[t]

    def class_set(self, symbols: int) -> int:
        """The symbol classes that lie within a set of bytes."""
        within, outside = 0, 0
        for b, kind in enumerate(self.byte_class.tolist()):
            if symbols >> b & 1:
                within |= 1 << kind
            else:
                outside |= 1 << kind
        return within & ~outside

    def is_keyword(self, t: int) -> bool:
        """Whether a terminal has finitely many texts, all of two word characters and more."""
        if t >= len(self._bytes):  # a newline with a column, made after `close`
            return False
        final = self.terminals[t].automaton.final
        return widest(self.terminals[t].automaton) != float("inf") and all_words(self._bytes[t], final)

    def ends_as_word(self, t: int) -> bool:
        """Whether the conditions at the end of a terminal forbid nothing but word characters and bytes beyond ASCII."""
        words = self.class_set(WORD_BYTES | ~((1 << 128) - 1))
        return not any(symbols & ~words for _, symbols in self.terminals[t].ends)

    def glued(self, t: int, state: int) -> int:
        """The symbol classes before which a keyword may not end, if terminal t goes on behind it in a state."""
        return self.class_set(glued_bytes(self._bytes[t], state, self._bytes))

    def _key(self, node: Expression, inside: tuple[str, ...]) -> Key:
        match node:
            case Literal():
                return ("literal", node.text) if not node.ignore_case else ("pattern", re.escape(node.text), "i")
            case Pattern():
                return "ordered" if node.ordered else "pattern", node.pattern, "".join(sorted(node.flags))
            case SpecialToken():
                return "special", self._token_of[node.name]
            case FreeText():
                return "free", tuple(sorted(node.until))
            case Chunks():
                return "chunks", node.chunks
            case Bounded():
                return "bounded", self._key(self._grammar.rules[node.name].body, inside), node.most
            case Tempered():
                return "tempered", self._key(self._grammar.rules[node.name].body, inside), float(node.temperature)
            case Sequence():
                parts = tuple(self._key(part, inside) for part in node.parts)
                return parts[0] if len(parts) == 1 else ("sequence", *parts)
            case Choice():
                branches = tuple(self._key(branch, inside) for branch in node.branches)
                return branches[0] if len(branches) == 1 else ("choice", *branches)
            case Repeat():
                return "repeat", self._key(node.part, inside), node.low, node.high
            case Reference():
                if node.name in inside:
                    what = f"terminal {node.name!r} refers to itself"
                    raise UnsupportedGrammarError(
                        what, text=self._grammar.text, start=node.start, end=node.end,
                        fix="Write it as a rule (in lower case), or with repetitions only.",
                    )  # fmt: skip
                return self._key(self._grammar.rules[node.name].body, (*inside, node.name))

    def _automaton(self, key: Key, node: Expression) -> tuple[Automaton, bool]:
        if key[0] == "special":
            if key[1] not in self.specials:
                self.specials += (key[1],)
            _, nullable = self._values.get(key[1], (0, False))
            return Automaton([[(1 << (256 + self.specials.index(key[1])), 1)], []], [False, True]), nullable
        if any(part[0] == "special" for part in _parts(key)):
            what = "a special token stands inside a terminal"
            fix = "Name it in a rule: a terminal is text only."
            raise UnsupportedGrammarError(what, text=self._grammar.text, start=node.start, end=node.end, fix=fix)
        try:
            return automaton_of(key, self._limits, self._deadline)
        except PatternError as error:
            what = f"{error.what} in the pattern {error.pattern!r}"
            raise UnsupportedGrammarError(what, text=self._grammar.text, start=node.start, end=node.end, fix=error.fix) from error


def terminal_dfa(grammar: Grammar, node: Reference | SpecialToken, limits: CompileLimits, deadline: Deadline) -> ByteDfa:
    """The automaton of the terminal that a node names.

    Raises:
      UnsupportedGrammarError: it has no text, or a condition on what follows it.
    """
    key = Lexicon(grammar, {}, limits, deadline)._key(grammar.rules[str(node.name)].body, ())
    dfa = byte_dfa_of(key, limits, deadline)
    if dfa is None or _ends(key, limits, deadline):
        what = "it has no text" if dfa is None else "a condition on what follows cannot be kept where tokens are counted"
        raise UnsupportedGrammarError(what, text=grammar.text, start=node.start, end=node.end, fix="Change the terminal.")
    return dfa


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
        return (Automaton([[]], [False]), False) if dfa is None or dfa.start == 0 else _without_empty(dfa)

    return _cache.get((key, limits), made)


_First: TypeAlias = "tuple[LetterDfa | None, list[tuple[LetterDfa, CodePointSet]]]"
_first_matches: SizedMemo[_First] = SizedMemo(_MOST_KEPT, lambda found: sum(map(len, found[0].arcs)) if found[0] else 1)


def _first_match(key: Key, limits: CompileLimits, deadline: Deadline) -> _First:
    """`first_match` of a terminal; made once."""
    return _first_matches.get((key, limits), lambda: first_match(_tree(key, limits), limits, deadline))


def _ends(key: Key, limits: CompileLimits, deadline: Deadline) -> list[tuple[LetterDfa, CodePointSet]]:
    """The alternatives of a terminal with the characters that conditions at their end forbid to follow; none without any."""
    if key[0] in ("bounded", "tempered"):
        return _ends(key[1], limits, deadline)
    if key[0] == "ordered":
        _, ends = _first_match(key, limits, deadline)
        return ends if any(forbidden != NONE for _, forbidden in ends) else []
    guards = split_guard(_tree(key, limits)) if key[0] == "pattern" else []
    if all(forbidden == NONE for _, forbidden in guards):
        return []
    automata = [(build_automaton(tree, limits, deadline), forbidden) for tree, forbidden in guards]
    return [(dfa, forbidden) for dfa, forbidden in automata if dfa is not None]


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
    if key[0] == "pattern" or not any(map(_stands_alone, _parts(key))):
        tree = _tree(key, limits)
        if key[0] == "pattern":
            tree = syntax_tree.Alternate([bare for bare, _ in split_guard(tree)], 0, 0)
        dfa = build_automaton(tree, limits, deadline)
        return None if dfa is None else to_byte_dfa(dfa, limits)
    if key[0] == "ordered":
        first, _ = _first_match(key, limits, deadline)
        return None if first is None else to_byte_dfa(first, limits)
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
    return part[0] in ("free", "chunks", "bounded", "ordered") or (part[0] == "pattern" and part[1].startswith("(?!"))


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
        case "pattern" | "ordered":
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


def _parts(key: Key) -> Iterable[Key]:
    """The expression and everything inside it."""
    todo = [key]
    while todo:
        one = todo.pop()
        yield one
        if one[0] in ("sequence", "choice"):
            todo += one[1:]
        elif one[0] in ("repeat", "bounded", "tempered"):
            todo.append(one[1])


def _without_empty(dfa: ByteDfa) -> tuple[Automaton, bool]:
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
