"""Number formulas to automata with outcomes, and those to controls; strings: see `strings`."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from functools import cached_property
from typing import Any

from fsa_compile.arrays.sized_memo import SizedMemo
from fsa_compile.automata.labelled_dfa import TextDfa, num_moves
from fsa_compile.errors import LimitError
from fsa_compile.json_schema import number_conditions as numbers
from fsa_compile.json_schema.atoms import AtLeast, Equals, IsInteger, IsMultiple, Spelled
from fsa_compile.json_schema.machine_builder import Moves
from fsa_compile.json_schema.strings import Strings

_LITERALS = ("null", "true", "false")
_FEW_ATOMS, _MOST_KEPT, _FEW_BOUNDS, _MOST_ATOMS = 8, 1 << 18, 16, 40
_MOST_STATES = 50_000
"""Joint states of conditions from which on spellings with exponents are left out."""
_NUMBERS: SizedMemo[TextDfa] = SizedMemo(_MOST_KEPT, num_moves)
"""Automata of numbers, kept for other schemas: most ask for an integer, or for one with a bound."""


class Scalars(Strings):
    """Controls for values that are no arrays and no objects."""

    @cached_property
    def _number_moves(self) -> dict[int, Moves]:
        """The moves of numbers by formula, as far as they are made."""
        return {}

    def literal(self, kind: int, outcome: int) -> Moves:
        """The moves that read null, true or false."""
        text = _LITERALS[kind].encode()
        target = self._controls.final(outcome)
        for byte in reversed(text[1:]):
            target = self._controls.node(((byte, byte, target),))
        return ((text[0], text[0], target),)

    def number(self, formula: int) -> Moves:
        """The moves that read a number of a formula."""
        found = self._number_moves.get(formula)
        if found is None:
            dfa = self._number_dfa(formula)
            ids = [self._controls.new((), label) for label in dfa.labels]
            for number, row in zip(ids, dfa.rows):
                self._controls.moves[number] = tuple((a, z, ids[t]) for a, z, t in row)
            found = self._number_moves[formula] = self._controls.moves[ids[0]]
        return found

    def _number_dfa(self, formula: int) -> TextDfa:
        d = self._decisions
        atoms = [d.atoms[v] for v in d.support(formula)]
        if len(atoms) > _FEW_ATOMS:
            return self._make_number_dfa(formula, atoms)
        options, limits = self._options, self._limits if any(isinstance(atom, Spelled) for atom in atoms) else None
        key = d.outline(formula), options.max_product, options.max_modulus, options.integers, limits
        return _NUMBERS.get(key, lambda: self._make_number_dfa(formula, atoms))

    def _make_number_dfa(self, formula: int, atoms: list[Any]) -> TextDfa:
        d = self._decisions
        where = self._keywords.origin.get(atoms[-1], "#") if atoms else "#"
        conditions: dict[Any, Any] = {}
        for atom in atoms:
            conditions.setdefault(_condition_key(atom), atom)
        order = {key: i for i, key in enumerate(conditions)}

        def made(universe: numbers.Universe, most: int) -> TextDfa:
            every = [self._condition(atom, where, exponents=universe == "all") for atom in conditions.values()]
            return numbers.number_dfa(every, universe, label, most, where)

        def label(said: tuple[int, ...]) -> int:
            """The outcome; none where it depends on what a condition leaves undecided."""
            if numbers.UNDECIDED in said:
                each = [(atom, of(atom, said)) for atom in atoms]
                known = {d.variable(atom): int(holds(atom, says)) for atom, says in each if says != numbers.UNDECIDED}
                left = d.leaves(d.substitute(formula, known))
                return left.pop() if len(left) == 1 else 0
            return d.evaluate(formula, lambda v: holds(d.atoms[v], of(d.atoms[v], said)))

        def of(atom: Any, said: tuple[int, ...]) -> int:
            return said[order[_condition_key(atom)]]

        def holds(atom: Any, says: int) -> bool:
            return says >= 0 if isinstance(atom, AtLeast) else says == 0 if isinstance(atom, Equals) else says == 1

        most = self._options.max_product
        if self._is_whole(formula, atoms):
            return made("digits", most)
        if self._has_exponents(formula, atoms):
            with contextlib.suppress(LimitError):
                return made("all", min(_MOST_STATES, most))
        return made("plain", most)

    def _is_whole(self, formula: int, atoms: list[Any]) -> bool:
        """Whether all numbers of a formula are integers, and these are written plainly: without what makes one an integer, the
        formula has no number."""
        if self._options.integers == "all":
            return False
        d = self._decisions
        made = [a for a in atoms if isinstance(a, IsInteger) or _number_of(a).denominator == 1]
        return not d.substitute(formula, {d.variable(a): 0 for a in made})

    def _has_exponents(self, formula: int, atoms: list[Any]) -> bool:
        """Whether spellings with exponents are looked at: not where all numbers of the formula are multiples, or integers with
        bounds, and not where conditions are many."""
        d = self._decisions
        needed = [a for a in atoms if isinstance(a, (IsInteger, IsMultiple)) and not d.substitute(formula, {d.variable(a): 0})]
        bounds = {a.bound for a in atoms if isinstance(a, (AtLeast, Equals)) and a.bound}
        multiple = any(isinstance(a, IsMultiple) for a in needed)
        few = len(bounds) <= _FEW_BOUNDS and len(atoms) <= _MOST_ATOMS
        return few and not multiple and not (bounds and needed)

    def _condition(self, atom: Any, where: str, *, exponents: bool) -> numbers.Condition:
        if isinstance(atom, IsInteger):
            return numbers.Integer()
        if isinstance(atom, Spelled):
            return numbers.Written(self.dfa(atom))
        if isinstance(atom, IsMultiple):
            return numbers.MultipleOf(atom.divisor, self._options.max_modulus, where)
        return numbers.Compare(atom.bound, exponents=exponents) if atom.bound else numbers.Sign()


def _number_of(atom: Any) -> Fraction:
    """What an atom makes its numbers a multiple of, or equal to; 1/2 for others, which make no integers."""
    return atom.divisor if isinstance(atom, IsMultiple) else atom.bound if isinstance(atom, Equals) else Fraction(1, 2)


def _condition_key(atom: Any) -> Any:
    """AtLeast and Equals with one bound are answered by one comparison."""
    return ("bound", atom.bound) if isinstance(atom, (AtLeast, Equals)) else atom
