"""Tokens that are no text, and tokens that may be any text, as letters of a byte automaton.

On its way through automata such a letter is spelt with the four bytes that UTF-8's scheme gives to code points past the last one,
which no text holds; union, concatenation and the rest then need no special case. Before the token walk these strings are taken
out again and become arcs.
"""

from __future__ import annotations

import itertools

import numpy as np

from fsa_compile.arrays.graphs import useful
from fsa_compile.arrays.ranges import ranges
from fsa_compile.automata.byte_dfa import ByteDfa, dfa_from_arcs
from fsa_compile.automata.letter_dfa import LetterDfa
from fsa_compile.automata.utf8 import to_byte_dfa
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.languages.language import Language
from fsa_compile.languages.symbols import Symbol, SymbolArcs
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.unicode.code_points import LAST, normal

_FIRST, _END = LAST + 1, 0x140000
_LEAD, _SECOND = 0xF4, 0x90  # in UTF-8, second bytes from here on would spell what is past the last code point
_DOING = "Separating special tokens from text"


_numbers: dict[Symbol, int] = {}
_next_number = itertools.count()


class OneSymbol(Language):
    """Exactly one token out of some."""

    def __init__(self, symbols: frozenset[Symbol], description: str) -> None:
        self._symbols, self.description = symbols, description

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self._symbols

    def _build(self, limits: CompileLimits, deadline: Deadline) -> ByteDfa | None:
        codes = normal((_code(symbol), _code(symbol)) for symbol in self._symbols)
        return to_byte_dfa(LetterDfa([[(1 << 128, 1)], []], [False, True], [codes]), limits)


def _code(symbol: Symbol) -> int:
    """The code point past the last that stands for a symbol in this process."""
    code = _numbers.get(symbol)
    if code is None:
        code = _numbers.setdefault(symbol, _FIRST + next(_next_number))
    if code >= _END:
        raise LimitError(
            "special tokens", _END - _FIRST, "Naming special tokens", fix="Use fewer different ones in one process."
        )
    return code


def without_symbols(dfa: ByteDfa, language: Language, limits: CompileLimits, deadline: Deadline) -> tuple[ByteDfa, SymbolArcs]:
    """Splits an automaton into its bytes and its symbols.

    Args:
      dfa: from a language with symbols.
      language: it itself, for its symbols and the error.

    Returns:
      The byte automaton, in which every state lies on a path of bytes and symbols from its start to a final state, and the
      arcs that read symbols.

    Raises:
      ConstraintError: an automaton over bytes takes part, whose bytes could be mistaken for symbols.
    """
    if language.holds_bytes:
        raise ConstraintError(
            "an automaton over bytes cannot stand together with special tokens", where=f"  {language.description:.200}",
            fix='Give it as one over characters: acceptor(..., alphabet="code points").',
        )  # fmt: skip
    deadline.check(_DOING)
    source, byte, target = dfa.arcs
    S = dfa.num_states
    past = np.zeros(S, bool)
    past[target[byte == _LEAD]] = True  # states after the lead byte; other lead bytes may lead there too
    second = past[source] & (byte >= _SECOND)
    begin = np.searchsorted(source, np.arange(S + 1))
    lead = (byte == _LEAD).nonzero()[0]
    state, code = target[lead], np.zeros(len(lead), np.int64)
    origin = source[lead]
    for depth in range(3):
        which, at = ranges(begin[state], begin[state + 1])
        on = byte[at] >= _SECOND if depth == 0 else np.ones(len(at), bool)
        which, at = which[on], at[on]
        origin, state, code = origin[which], target[at], code[which] << 6 | (byte[at] & 0x3F)
    symbols = sorted(language.symbols, key=_code)
    symbol = np.searchsorted(np.array([_code(s) for s in symbols]), code + 0x100000)

    # The text after the lead byte, in states of its own.
    rest = past[source] & ~second
    copy = np.zeros(S, np.int64)
    kept = np.unique(source[rest])
    copy[kept] = np.arange(S, S + len(kept))
    target = np.where(byte == _LEAD, copy[target], target)
    on = target > 0
    text = (
        np.concatenate([source[on], copy[source[rest]]]),
        np.concatenate([byte[on], byte[rest]]),
        np.concatenate([target[on], target[rest]]),
    )
    final = np.concatenate([dfa.final, np.zeros(len(kept), bool)])
    every = np.concatenate([text[0], origin]), np.concatenate([text[2], state])
    kept = useful(*every, final, dfa.start)
    number = kept.cumsum() - 1
    on = kept[text[0]] & kept[text[2]]
    source, byte, target = number[text[0][on]], text[1][on], number[text[2][on]]
    order = (source << 8 | byte).argsort(kind="stable")
    small = dfa_from_arcs(source[order], byte[order], target[order], final[kept], int(number[dfa.start]), limits)
    on = kept[origin] & kept[state]
    return small, SymbolArcs(number[origin[on]] + 1, symbol[on], number[state[on]] + 1, symbols)
