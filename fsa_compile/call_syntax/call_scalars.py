"""Scalars of a call's arguments: those of JSON, strings and literals written otherwise."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from fsa_compile.automata.labelled_dfa import TextDfa
from fsa_compile.automata.labelled_product import product
from fsa_compile.call_syntax.call_spelling import PythonSpeller, RawSpeller
from fsa_compile.call_syntax.syntax import MARK
from fsa_compile.json_schema.machine_builder import Controls, Moves
from fsa_compile.json_schema.scalars import Scalars

_PYTHON = ("None", "True", "False")


class OwnControls:
    """A pool of controls, in which what is made on demand has keys of its own."""

    def __init__(self, controls: Controls, name: Hashable) -> None:
        self._pool, self._name = controls, name

    def later(self, key: Hashable, make: Callable[[int], None]) -> int:
        """As `Controls.later`."""
        return self._pool.later((self._name, key), make)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


class CallScalars(Scalars):
    """Scalars whose strings hold none of some texts.

    Args:
      without: the automaton of the strings that do not; None for all strings.
    """

    def __init__(self, without: TextDfa | None, *parts: Any) -> None:
        super().__init__(*parts)
        self._without = without

    def string_dfa(self, formula: int) -> TextDfa:
        if self._without is None or formula in self._strings:
            return super().string_dfa(formula)
        both = [self._string_dfa(formula), self._without]
        found = product(both, lambda said: said[0] if said[1] else 0, self._options.max_product, "the strings of a call")
        self._strings[formula] = found
        return found

    def words(self, formula: int) -> dict[str, int] | None:
        found, without = super().words(formula), self._without
        if found is None or without is None:
            return found
        return {word: outcome for word, outcome in found.items() if without.label(word)}


class PythonScalars(CallScalars):
    """Python literals; strings between quotes of one kind."""

    _speller: PythonSpeller

    def literal(self, kind: int, outcome: int) -> Moves:
        text = _PYTHON[kind].encode()
        return ((text[0], text[0], self._controls.chain(text[1:], self._controls.final(outcome))),)

    def _encoded(self, word: str) -> bytes:
        return self._speller.encoded(word)


class MarkedScalars(CallScalars):
    """Strings between marks that are one byte; null also as `None`, which templates write."""

    _speller: RawSpeller

    def literal(self, kind: int, outcome: int) -> Moves:
        moves = super().literal(kind, outcome)
        if kind:
            return moves
        return (*moves, (ord("N"), ord("N"), self._controls.chain(b"one", self._controls.final(outcome))))

    def _encoded(self, word: str) -> bytes:
        return self._speller.encoded(word)

    def opened(self, formula: int) -> Moves:
        """The moves that read a string with its marks."""
        return ((MARK, MARK, self.string(formula)),)


class TextMarkedScalars(MarkedScalars):
    """Strings between marks that are text: the first mark in it ends a string, so that no string holds one. `mark`: not empty."""

    def __init__(self, mark: str, *parts: Any) -> None:
        super().__init__(*parts)
        self._mark = mark
        self._fallback = _borders(mark)

    def opened(self, formula: int) -> Moves:
        control = self.string(formula)
        first, rest = self._mark.encode()[:1], self._mark.encode()[1:]
        return ((first[0], first[0], self._controls.chain(rest, control)),) if control else ()

    def string(self, formula: int) -> int:
        dfa = self.string_dfa(formula)
        return self._state(formula, dfa, 0, 0) if dfa.rows else 0

    def _state(self, formula: int, dfa: TextDfa, state: int, read: int) -> int:
        """The control after `read` characters of a mark that may not be one, which the automaton has not read yet."""
        if read == len(self._mark):
            return self._controls.final(dfa.labels[state])

        def make(control: int) -> None:
            pieces = [(low, high, self._state(formula, dfa, *at)) for low, high, at in self._next(dfa, state, read)]
            self._controls.moves[control] = self._speller.body(tuple(pieces), 0, "shortest")

        return self._controls.later(("marked string", formula, state, read), make)

    def _next(self, dfa: TextDfa, state: int, read: int) -> list[tuple[int, int, tuple[int, int]]]:
        """(first, last character, (state, read) after it)."""
        out: list[tuple[int, int, tuple[int, int]]] = []
        passed = _run(dfa, state, self._mark[:read])
        special = sorted(set(map(ord, self._mark)))
        for low, high, target in () if passed is None else dfa.rows[passed]:
            for a, z in _without(low, high, special):
                out.append((a, z, (target, 0)))
        for c in special:
            at: int | None = state
            k = read
            while self._mark[k] != chr(c):
                if not k:  # the character itself is no beginning of a mark
                    at = None if at is None else _run(dfa, at, chr(c))
                    k = -1
                    break
                shorter = self._fallback[k]
                at = None if at is None else _run(dfa, at, self._mark[: k - shorter])
                k = shorter
            if at is not None and (k + 1 < len(self._mark) or dfa.labels[at]):
                out.append((c, c, (at, k + 1)))
        return sorted(out)


def _borders(mark: str) -> list[int]:
    """By length of a beginning of the mark: the longest shorter beginning that it ends with (Knuth, Morris and Pratt)."""
    out = [0, 0]
    for i in range(1, len(mark)):
        k = out[i]
        while k and mark[k] != mark[i]:
            k = out[k]
        out.append(k + 1 if mark[k] == mark[i] else 0)
    return out


def _run(dfa: TextDfa, state: int, text: str) -> int | None:
    for character in text:
        code = ord(character)
        found = next((t for low, high, t in dfa.rows[state] if low <= code <= high), None)
        if found is None:
            return None
        state = found
    return state


def _without(low: int, high: int, removed: list[int]) -> list[tuple[int, int]]:
    """The parts of a range without some characters, ascending."""
    out = []
    for c in removed:
        if low <= c <= high:
            if low < c:
                out.append((low, c - 1))
            low = c + 1
    if low <= high:
        out.append((low, high))
    return out
