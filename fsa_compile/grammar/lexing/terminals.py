"""Terminals of a grammar as byte automata over common byte classes: what one lexeme may be.

A terminal expression becomes one pattern tree and with it one minimal automaton; equal expressions are one terminal. All
automata of a grammar are then written over the same classes of bytes, as bit sets, so that the frame construction never looks
at single bytes. Special tokens are classes of their own after those of the bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.letter_dfa import LetterDfa
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
    Rule,
    Sequence,
    Size,
    SpecialToken,
    Tempered,
)
from fsa_compile.grammar.lexing.terminal_automata import (  # fmt: skip
    Automaton,
    Key,
    automaton_of,
    before_of,
    behind,
    byte_dfa_of,
    ends_of,
    parts_of,
    widest,
    without_empty,
)
from fsa_compile.grammar.lexing.terminal_sizes import UNKNOWN, size_of
from fsa_compile.grammar.lexing.text_ahead import HOLDS, Ahead, History, Look, history_of, looks_at
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.patterns.match_ends import MatchEnd
from fsa_compile.patterns.trailing_guards import (  # fmt: skip
    END_OF_TEXT,
    WORD_BYTES,
    all_words,
    forbidden_bytes,
    glued_bytes,
)
from fsa_compile.unicode.code_points import NONE, CodePointSet

_LOOKED_AT = 100
"""Most conditions whose automata are made together."""
_UNNAMED = "__ANON"
"""How Lark's names of terminals without one begin."""
_DIGITS = sum(1 << ord(digit) for digit in "0123456789")
_kept_looks: SizedMemo[list[Look]] = SizedMemo(1 << 16, lambda found: sum(len(look.ahead.arcs) for look in found))


class End(NamedTuple):
    """An alternative with a condition at its end (`trailing_guards`).

    Attributes:
      automaton: its texts, like a terminal's.
      guard: the symbols before which the lexeme may not end; the bit behind all symbols is the end of the text.
      look: that its conditions hold, where more than the next symbol decides that.
    """

    automaton: Automaton
    guard: int
    look: Look | None = None


@dataclasses.dataclass(eq=False)
class Terminal:
    """One kind of lexeme.

    Attributes:
      name: the rule's name, or the expression as written.
      priority: as in the grammar.
      size: as it was written.
      sort_name: the rule's name, or what Lark calls a terminal without one, as far as that can be told from other names.
      literal: whether it is a plain string; those win over patterns.
      key: its expression.
      start, end: a place in the grammar's text that stands for it.
      automaton: over bytes until the lexicon is closed, then over symbol classes. Never accepts the empty text.
      nullable: whether the empty text belongs to the terminal besides.
      ends: alternatives with a condition at their end.
      guard: by final state, symbols before which the lexeme may not end there; `longest_match` says which.
      ahead: by final state, that a condition on the text behind the lexeme holds, which the next symbol may leave undecided.
      follow: the symbols that something may begin with behind it, and the end of the text; -1 where that is not asked for.
      begin: number of the condition on the text before it (`Lexicon.history`); -1 without one.
      failing: by final state with a condition, the symbols at which a shorter lexeme may have to be read instead.
      rank: of terminals that begin together and match the same text, the one with the least rank it is.
      precedes: terminals (a bit set) of which no longer match is read where this one has matched.
      within: of a string, the patterns of its priority that match it: where one of them may stand, it is read as that would be.
      ties: whether another terminal may match the same text at the same place.
      reserved: states in which the text is a word that another terminal has taken from this one.
      sure: states within a character at whose end, whichever it is, the text is a lexeme.
    """

    name: str
    priority: int
    literal: bool
    key: Key
    start: int
    end: int
    automaton: Automaton
    nullable: bool
    ends: list[End] = dataclasses.field(default_factory=list)
    guard: dict[int, int] = dataclasses.field(default_factory=dict)
    ahead: dict[int, Look] = dataclasses.field(default_factory=dict)
    follow: int = -1
    begin: int = -1
    failing: dict[int, int] = dataclasses.field(default_factory=dict)
    rank: int = 0
    precedes: int = 0
    within: int = 0
    ties: bool = False
    reserved: frozenset[int] = frozenset()
    sure: frozenset[int] = frozenset()
    size: Size = UNKNOWN
    sort_name: str = ""

    @property
    def temperature(self) -> float | None:
        """Of the rule's option; None without it."""
        return self.key[2] if self.key[0] == "tempered" else None

    @property
    def soonest(self) -> bool:
        """Whether a lexeme ends as soon as the condition at its end holds."""
        return (self.key[1] if self.key[0] == "tempered" else self.key)[0] == "soonest"

    def doubt(self, q: int) -> int:
        """The symbols before which it is not sure that the lexeme may end in a final state."""
        return self.guard.get(q, 0) | (self.ahead[q].undecided() if q in self.ahead else 0)


class Lexicon:
    """The terminals of one grammar.

    Attributes:
      terminals: in the order in which they were met.
      byte_class: int32[256 + T], class of every byte and special token; set by `close`.
      num_classes: their number.
      specials: token ids of the special tokens, in the order of their symbols.
      history: which conditions at the begin of terminals hold; None without any.
    """

    def __init__(
        self, grammar: Grammar, specials: Mapping[str | int, int], limits: CompileLimits, deadline: Deadline,
        values: Mapping[int, tuple[int, bool]] | None = None,
    ) -> None:  # fmt: skip
        self._grammar, self._token_of, self._limits, self._deadline = grammar, specials, limits, deadline
        self._values = values or {}
        self._number: dict[tuple[Key, int, str], int] = {}
        self.terminals: list[Terminal] = []
        self.specials: tuple[int, ...] = ()
        self.byte_class = np.zeros(256, np.int32)
        self.num_classes = 0
        self._alone: list[bool] = []
        self._bytes: list[list[list[tuple[int, int]]]] = []
        self.history: History | None = None
        self.apart: tuple[int, ...] = ()
        """Sets of bytes that are classes, or several classes, of their own."""

    def number(self, node: Expression, name: str = "", priority: int = 0, *, ignored: bool = False) -> int:
        """Number of the terminal that an expression is.

        Args:
          name: its name, if it has one.
          priority: of the named terminal.
          ignored: whether it stands behind `%ignore`, where to Lark it is never a named terminal.

        Raises:
          UnsupportedGrammarError: the expression is no regular language of text.
          GrammarError: a pattern in it is wrong.
        """
        key = self._key(node, ())
        own = bool(name) or (ignored and self._grammar.mode == "lark")
        if not own and key in self._named:  # the same expression is that terminal
            name = self._named[key].name
            node, priority = self._named[key].body, self._named[key].priority
        told = key, priority, name if self._grammar.mode == "lark" else ""  # to Lark names of one expression are two terminals
        found = self._number.get(told)
        if found is None:
            found = self._number[told] = len(self.terminals)
            automaton, nullable = self._automaton(key, node)
            shown = name or self._grammar.text[node.start : node.end]
            made = Terminal(shown, priority, self._is_literal(node), key, node.start, node.end, automaton, nullable)
            made.size = self._size(node, name)
            made.sort_name = name or (f"__IGNORE_{found}" if own else self._name_in_lark(node))
            self.terminals.append(made)
        return found

    @functools.cached_property
    def _named(self) -> dict[Key, Rule]:
        """Terminals that are one string or pattern, by that; of equal ones the last. They have the priority of their name."""
        rules = [rule for rule in self._grammar.rules.values() if rule.terminal and isinstance(rule.body, Literal | Pattern)]
        return {self._key(rule.body, ()): rule for rule in rules} if self._grammar.mode != "characters" else {}

    def _size(self, node: Expression, name: str) -> Size:
        rules, text = self._grammar.rules, self._grammar.text

        def named(name: str) -> Size:
            return self._grammar.sizes.get(name) or size_of(rules[name].body, named, text, self._limits)

        return self._grammar.sizes.get(name) or size_of(node, named, text, self._limits)

    @staticmethod
    def _name_in_lark(node: Expression) -> str:
        return node.text.upper() if isinstance(node, Literal) and node.text.isidentifier() else _UNNAMED

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
        return any(part[0] == "special" for part in parts_of(self._key(node, ())))

    def close(self) -> None:
        """Finds the symbol classes of all terminals and writes their automata over them."""
        self._forbid()
        self._look_back()
        automata = [a for t in self.terminals for a in (t.automaton, *(end.automaton for end in t.ends))]
        guards = [end.guard for t in self.terminals for end in t.ends]
        conditions = list({id(end.look.ahead): end.look.ahead for t in self.terminals for end in t.ends if end.look}.values())
        for ahead in [*conditions, self.history.ahead] if self.history else conditions:
            guards += [symbols for arcs in ahead.arcs for symbols, _ in arcs]
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

        for ahead in [*conditions, self.history.ahead] if self.history else conditions:
            ahead.arcs = [[(closed_guard(symbols), target) for symbols, target in arcs] for arcs in ahead.arcs]
        for t in self.terminals:
            t.automaton = closed(t.automaton)
            t.ends = [
                end._replace(automaton=closed(end.automaton), guard=closed_guard(end.guard)) for end in t.ends
            ]

    def _forbid(self) -> None:
        """Finds what terminals, or alternatives, with a condition at their end may not be followed by."""
        known: dict[tuple[CodePointSet, frozenset[tuple[int, int]]], int | None] = {}
        automata = self._bytes = [t.automaton.arcs for t in self.terminals]
        values = [self._values.get(token, (0, False)) for token in self.specials]
        for t in self.terminals:
            found = ends_of(t.key, self._limits, self._deadline)
            texts = [without_empty(to_byte_dfa(end.texts, self._limits))[0] for end in found]
            first: list[int | None] = []
            for end, automaton in zip(found, texts):
                key = end.forbidden or NONE, self._going_on(t, automaton)
                if key not in known:
                    inside = [[automata[u][q], *automata[u][1:]] for u, q in key[1]]
                    known[key] = forbidden_bytes(key[0], [*automata, *inside])
                first.append(None if end.forbidden is None else known[key])
            further = iter(self._looks(t.key, [end for end, symbols in zip(found, first) if symbols is None]))
            for end, automaton, symbols in zip(found, texts, first):
                look = next(further) if symbols is None else None
                if symbols is None or end.forbidden is None:
                    assert look is not None
                    guard = (1 << 257 + len(values)) - 1 & ~look.before(HOLDS) & ~look.undecided()
                else:
                    demands = end.forbidden[1][-1:] != () and end.forbidden[1][-1][1] == END_OF_TEXT
                    more = [k for k, (begin, _) in enumerate(values) if begin & symbols or (demands and not begin)]
                    more += [len(self.specials)] * demands
                    guard = symbols | sum(1 << 256 + k for k in more)
                t.ends.append(End(automaton, guard, look))

    def _going_on(self, t: Terminal, texts: Automaton) -> frozenset[tuple[int, int]]:
        """(terminal, state) of others in which these go on behind some texts of a terminal; where the longest match is taken, no
        condition at the end of that has a say in it."""
        others = enumerate(self.terminals) if self._grammar.mode == "lark" else ()
        return frozenset((u, q) for u, other in others if other is not t for q in behind(texts, other.automaton))

    def _looks(self, key: Key, ends: list[MatchEnd]) -> list[Look]:
        """That the conditions at ends of one terminal hold."""
        values = tuple(self._values.get(token, (0, False)) for token in self.specials)

        def made() -> list[Look]:
            parts = [ends[at : at + _LOOKED_AT] for at in range(0, len(ends), _LOOKED_AT)]
            return [x for part in parts for x in looks_at([end.rest for end in part], values, self._limits, self._deadline)]

        kept = _kept_looks.get((key, tuple(end.forbidden for end in ends), values, self._limits), made) if ends else []
        own = {id(look.ahead): Ahead(look.ahead.arcs) for look in kept}  # `close` writes it over classes
        return [look._replace(ahead=own[id(look.ahead)]) for look in kept]

    def _look_back(self) -> None:
        """Numbers the conditions on the text before terminals."""
        numbers: dict[str, int] = {}
        found: list[LetterDfa] = []
        for t in self.terminals:
            before = before_of(t.key, self._limits, self._deadline)
            if before is None:
                continue
            if any(first for first, _ in self._values.values()):
                what = f"the condition on the text before {t.name} would look at values whose text is not known here"
                fix = "Remove it, or write the values as rules."
                raise UnsupportedGrammarError(what, text=self._grammar.text, start=t.start, end=t.end, fix=fix)
            t.begin = numbers.setdefault(repr(before), len(found))
            if t.begin == len(found):
                found.append(before)
        if found:
            self.history = history_of(found, len(self.specials), self._limits, self._deadline)

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
        """Whether a terminal has finitely many texts, all of two word characters and more, and none begins with a digit."""
        if t >= len(self._bytes) or any(symbols & _DIGITS for symbols, _ in self._bytes[t][0]):
            return False  # the first: a newline with a column, made after `close`
        final = self.terminals[t].automaton.final
        return widest(self.terminals[t].automaton) != float("inf") and all_words(self._bytes[t], final)

    def ends_as_word(self, t: int) -> bool:
        """Whether the conditions at the end of a terminal forbid nothing but word characters and bytes beyond ASCII."""
        words = self.class_set(WORD_BYTES | ~((1 << 128) - 1))
        return not any(end.guard & ~words or end.look for end in self.terminals[t].ends)

    def glued(self, t: int, state: int) -> int:
        """The symbol classes before which a keyword may not end, if terminal t goes on behind it in a state."""
        return self.class_set(glued_bytes(self._bytes[t], state, self._bytes))

    def _key(self, node: Expression, inside: tuple[str, ...]) -> Key:
        match node:
            case Literal():
                return ("literal", node.text) if not node.ignore_case else ("pattern", re.escape(node.text), "i")
            case Pattern():
                return node.match.value, node.pattern, "".join(sorted(node.flags))
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
        if any(part[0] == "special" for part in parts_of(key)):
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
      UnsupportedGrammarError: it has no text, or a condition on the text around it.
    """
    key = Lexicon(grammar, {}, limits, deadline)._key(grammar.rules[str(node.name)].body, ())
    dfa = byte_dfa_of(key, limits, deadline)
    if dfa is None or ends_of(key, limits, deadline) or before_of(key, limits, deadline):
        what = "it has no text" if dfa is None else "a condition on the text around it cannot be kept where tokens are counted"
        raise UnsupportedGrammarError(what, text=grammar.text, start=node.start, end=node.end, fix="Change the terminal.")
    return dfa
