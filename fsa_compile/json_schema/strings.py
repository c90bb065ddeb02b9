"""String formulas to automata with outcomes, and those to controls: written out as states, or with a register that counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from fsa_compile.arrays.graphs import leading
from fsa_compile.automata.labelled_dfa import (
    TextDfa,
    any_text,
    from_letters,
    lengths,
    longest_text,
    shortest_rests,
    steps,
    words_trie,
)
from fsa_compile.automata.labelled_product import product
from fsa_compile.automata.pushdown import UNCOUNTED
from fsa_compile.errors import ConstraintError, LimitError, UnsupportedSchemaError
from fsa_compile.json_schema.atoms import Found, HasFormat, Length, OneOf, Spelled
from fsa_compile.json_schema.decision_diagrams import Decisions
from fsa_compile.json_schema.formats import UNDECIDED, decided_format_dfa, format_dfa
from fsa_compile.json_schema.keywords import Keywords
from fsa_compile.json_schema.machine_builder import Bounds, Controls
from fsa_compile.json_schema.schema_options import Escapes, SchemaOptions
from fsa_compile.json_schema.string_spelling import Speller, encoded
from fsa_compile.limits import CompileLimits, Deadline

_IN_STRING = 1 << 8
"""Outcomes of the counted characters of a string are above this, so that they are not mistaken for outcomes of values."""
_FEW_STATES, _SPELLED = 8_000, 20
"""Joint states of a string's conditions and its length up to which they are written out, and how many times fewer they may be
where every state has its own characters beyond ASCII."""
_MOST_ADDED = 100
"""What one character may add to a register."""


class Strings:
    """Automata and controls of string values."""

    def __init__(
        self,
        controls: Controls,
        speller: Speller,
        decisions: Decisions,
        keywords: Keywords,
        options: SchemaOptions,
        limits: CompileLimits,
    ) -> None:
        self._controls, self._speller = controls, speller
        self._decisions, self._keywords, self._options, self._limits = decisions, keywords, options, limits
        self._dfas: dict[Any, TextDfa] = {}
        self._strings: dict[int, TextDfa] = {}
        self._asked: dict[int, None] = {}

    def matches(self, atom: Any, text: str) -> bool | None:
        """Whether a string satisfies a string atom; None where a format is undecided for it."""
        if isinstance(atom, OneOf):
            return text in atom.words
        if isinstance(atom, Length):
            return atom.low <= len(text) and (atom.high is None or len(text) <= atom.high)
        label = self.dfa(atom).label(text)
        return None if isinstance(atom, HasFormat) and label == UNDECIDED else label > 0

    def dfa(self, atom: Any) -> TextDfa:
        """The automaton of a string atom."""
        found = self._dfas.get(atom)
        if found is None:
            found = self._dfas[atom] = self._atom_dfa(atom)
        return found

    def _atom_dfa(self, atom: Any) -> TextDfa:
        where = self._keywords.origin.get(atom, "#")
        if isinstance(atom, OneOf):
            return words_trie(atom.words)
        if isinstance(atom, HasFormat):
            return decided_format_dfa(atom.name, atom.length_apart)
        if isinstance(atom, Length):
            if max(atom.low, atom.high or 0) > self._options.max_length:
                raise LimitError(
                    "max_length", self._options.max_length, f"The length at {where}",
                    fix="Use a smaller bound, or raise SchemaOptions.max_length.",
                )  # fmt: skip
            return lengths(atom.low, atom.high)
        assert isinstance(atom, (Found, Spelled))
        try:
            if isinstance(atom, Spelled):
                from fsa_compile.languages.group_syntax import parse_with_groups  # a schema of its own has no such patterns
                from fsa_compile.patterns.regex_automaton import build_automaton

                tree = parse_with_groups(atom.pattern, 0, self._limits)
                return from_letters(build_automaton(tree, self._limits, Deadline(self._limits)))
            from fsa_compile.json_schema.patterns import search_dfa  # what reads patterns is slow to load

            return search_dfa(atom.pattern, self._limits)
        except LimitError:
            raise
        except ConstraintError as error:
            raise UnsupportedSchemaError(f"{error}", pointer=where, fix=error.fix) from error

    def string_dfa(self, formula: int) -> TextDfa:
        """The decoded strings by their outcome."""
        found = self._strings.get(formula)
        if found is None:
            found = self._strings[formula] = self._string_dfa(formula)
        return found

    def _string_dfa(self, formula: int) -> TextDfa:
        d = self._decisions
        support = d.support(formula)
        if not support:
            return any_text(formula)
        atoms = [d.atoms[v] for v in support]
        label = self._labels(formula, atoms, [])
        if len(atoms) > 2:
            for atom, rest in self._lengths(formula):  # many states: what the rest leaves of them comes first
                both = [self.string_dfa(rest), self.dfa(atom)]
                where = self._keywords.origin.get(atom, "#")
                return product(both, lambda said: said[0] if said[1] else 0, self._options.max_product, where)
        dfas = [self.dfa(atom) for atom in atoms]
        if len(dfas) == 1 and not label((0,)):  # then nothing is accepted that is undecided
            if isinstance(atoms[0], HasFormat):
                dfas = [format_dfa(atoms[0].name, atoms[0].length_apart)]
            return TextDfa(dfas[0].rows, [label((1,)) if x else 0 for x in dfas[0].labels])
        return product(dfas, label, self._options.max_product, self._keywords.origin.get(atoms[-1], "#"))

    def _labels(self, formula: int, atoms: list[Any], unclear: list[HasFormat]) -> Callable[[tuple[int, ...]], int]:
        """The outcome by what the atoms of the formula say, in their order; none where it depends on a format that is undecided,
        which is added to `unclear`."""
        d = self._decisions
        index = {v: i for i, v in enumerate(d.support(formula))}

        def label(said: tuple[int, ...]) -> int:
            for i, atom in enumerate(atoms):
                if isinstance(atom, HasFormat) and said[i] == UNDECIDED:
                    either = {label((*said[:i], way, *said[i + 1 :])) for way in (0, 1)}
                    if len(either) == 1:
                        return either.pop()
                    unclear.append(atom)
                    return 0
            return d.evaluate(formula, lambda v: said[index[v]])

        return label

    def undecided(self) -> HasFormat | None:
        """A format because of which no strings were found somewhere, since it is undecided for all that there may be."""
        unclear: list[HasFormat] = []
        for formula in self._asked:
            atoms = [self._decisions.atoms[v] for v in self._decisions.support(formula)]
            if formula in self._strings and not any(self._strings[formula].labels):
                with contextlib.suppress(LimitError):
                    label = self._labels(formula, atoms, unclear)
                    product([self.dfa(atom) for atom in atoms], label, self._options.max_product, "#")
        return unclear[0] if unclear else None

    def string(self, formula: int) -> int:
        """The control after the opening quote."""
        formula = self._without_implied(self._with_one_length(formula))
        if not formula:
            return 0
        self._asked[formula] = None
        counted = self._counted(formula)
        if counted is not None:
            return self._counted_string(*counted)
        words = self.words(formula)
        if words is None:
            bounded = self._bounded(formula)
            if bounded is not None:
                return self._bounded_string(formula, *bounded)
            return self._string_state(formula, 0, self._text_escapes(self.string_dfa(formula)))
        if self._options.word_escapes == "all":
            return self._string_state(formula, 0, "all")
        return self._listed(words)

    def words(self, formula: int) -> dict[str, int] | None:
        """The strings of a formula with their outcomes, when they are a finite list."""
        d = self._decisions
        atoms = [d.atoms[v] for v in d.support(formula)]
        lists = [atom for atom in atoms if isinstance(atom, OneOf)]
        if len(lists) < len(atoms) or d.evaluate(formula, lambda _: False):
            return None
        sets = {d.variable(atom): frozenset(atom.words) for atom in lists}
        return {
            word: outcome
            for word in dict.fromkeys(word for atom in lists for word in atom.words)
            if (outcome := d.evaluate(formula, lambda v, w=word: w in sets[v]))  # type: ignore
        }

    def _listed(self, words: dict[str, int]) -> int:
        """The control after the opening quote of listed words; equal ends are shared."""
        spelt = sorted((self._encoded(word) + bytes((self._speller.quote,)), outcome) for word, outcome in words.items())
        return self._branches(spelt, 0, len(spelt), 0) if spelt else 0

    def _branches(self, spelt: list[tuple[bytes, int]], begin: int, end: int, depth: int) -> int:
        """The control that reads what is left of some of the sorted words."""
        node = self._controls.node
        if end - begin == 1:
            text, outcome = spelt[begin]
            control = self._controls.final(outcome)
            for byte in reversed(text[depth:]):
                control = node(((byte, byte, control),))
            return control
        moves = []
        while begin < end:
            byte, after = spelt[begin][0][depth], begin + 1
            while after < end and spelt[after][0][depth] == byte:
                after += 1
            moves.append((byte, byte, self._branches(spelt, begin, after, depth + 1)))
            begin = after
        return node(moves)

    def _encoded(self, word: str) -> bytes:
        """A listed string as it is written, without quotes."""
        return encoded(word)

    def _text_escapes(self, dfa: TextDfa) -> Escapes:
        escapes = self._options.string_escapes
        if escapes != "where needed":
            return escapes
        plain = all(low >= 0x20 and high < 0x7F for row in dfa.rows for low, high, _ in row)
        return "shortest" if plain else "all"

    def _string_state(self, formula: int, state: int, escapes: Escapes) -> int:
        def make(control: int) -> None:
            dfa = self.string_dfa(formula)
            row = tuple([(a, z, self._string_state(formula, t, escapes)) for a, z, t in dfa.rows[state]])
            label = dfa.labels[state]
            close = self._controls.final(label) if label else 0
            self._controls.moves[control] = self._speller.body(row, close, escapes)

        return self._controls.later(("string", formula, state), make)

    # strings whose length is counted in a register

    def _counted(self, formula: int) -> tuple[int, int, int] | None:
        """(rest, low, high) when the formula is "low to high code points, and the rest" and a register can count them.

        `UNCOUNTED` stands for no upper bound.

        After a bounded beginning, every state of the rest must accept and be able to go on: then a string can be completed
        whatever its length so far.
        """
        for atom, rest in self._lengths(formula):
            most = atom.low if atom.high is None else atom.high
            if most <= (self._options.max_string_chain if atom.high is not None else self._options.max_chain):
                continue
            if _settles(self.string_dfa(rest), min(most, self._options.max_chain) - 1):
                return rest, atom.low, UNCOUNTED if atom.high is None else atom.high
        return None

    def _counted_string(self, rest: int, low: int, high: int) -> int:
        """The control after the opening quote.

        The beginning is written out; the characters from a settled state on are a frame of their own, which counts them and
        returns at the closing quote.
        """
        controls, dfa, quote = self._controls, self.string_dfa(rest), self._speller.quote
        settled, escapes = _settled(dfa), self._text_escapes(dfa)
        returns = {label: controls.node(((quote, quote, controls.final(label)),)) for label in sorted(set(dfa.labels) - {0})}
        symbol = controls.symbol(tuple((_IN_STRING + label, control) for label, control in returns.items()), "text")

        def begin(state: int, read: int) -> int:
            def make(control: int) -> None:
                label = dfa.labels[state]
                close = controls.final(label) if label and read >= low else 0
                if settled[state]:
                    most = UNCOUNTED if high == UNCOUNTED else high - read
                    controls.add_call(control, symbol, body(state, (max(0, low - read), most)))
                    controls.moves[control] = ((quote, quote, close),) if close else ()
                else:
                    row = tuple([(a, z, begin(t, read + 1)) for a, z, t in dfa.rows[state]])
                    controls.moves[control] = self._speller.body(row, close, escapes)

            return controls.later(("beginning", rest, low, high, state, read), make)

        def body(state: int, bounds: Bounds) -> int:
            def make(control: int) -> None:
                controls.outcome[control] = _IN_STRING + dfa.labels[state]
                controls.bounds[control] = bounds
                controls.adds.add(control)
                row = tuple([(a, z, body(t, bounds)) for a, z, t in dfa.rows[state]])
                controls.moves[control] = self._speller.body(row, 0, escapes, bounds)

            return controls.later(("counted", rest, bounds, state), make)

        return begin(0, 0)


    # strings of other shapes whose length is bounded by a register

    def _lengths(self, formula: int) -> Iterator[tuple[Length, int]]:
        """(length, rest) for every way to read the formula as "texts of this length, and the rest"."""
        d = self._decisions
        for v in d.support(formula):
            atom = d.atoms[v]
            if isinstance(atom, Length):
                others = d.substitute(formula, {v: 0})
                words = self.words(others) if others else {}
                if words is not None and all(atom.low <= len(w) and (atom.high is None or len(w) <= atom.high) for w in words):
                    yield atom, d.substitute(formula, {v: 1})  # the listed texts have this length, too

    def _with_one_length(self, formula: int) -> int:
        """The formula with one length for several that are asked for together, as by the branches of allOf."""
        d = self._decisions
        lengths_ = {v: a for v in d.support(formula) if isinstance(a := d.atoms[v], Length) and not d.substitute(formula, {v: 0})}
        if len(lengths_) < 2:
            return formula
        low = max(atom.low for atom in lengths_.values())
        high = min((atom.high for atom in lengths_.values() if atom.high is not None), default=None)
        if high is not None and low > high:
            return 0
        both = Length(low, high)
        self._keywords.origin.setdefault(both, self._keywords.origin.get(next(iter(lengths_.values())), "#"))
        return d.choose(d.atom(both), d.substitute(formula, dict.fromkeys(lengths_, 1)), 0)

    def _without_implied(self, formula: int) -> int:
        """The formula without a length that all texts of a bounded rest have: a host name is never longer than 253."""
        for atom, rest in self._lengths(formula):
            if atom.high is None or not self._decisions.support(rest):
                continue
            dfa = self.string_dfa(rest)
            longest = longest_text(dfa)
            if longest is not None and longest <= atom.high and shortest_rests(dfa)[0] >= atom.low:
                return self._without_implied(rest)
        return formula

    def _bounded(self, formula: int) -> tuple[TextDfa, int, list[int]] | None:
        """(automaton, high, shortest rests) when the formula is "what the automaton accepts, in at most `high` code points", and
        states for all lengths would be many."""
        for atom, rest in self._lengths(formula):
            if atom.high is None or atom.high <= self._options.max_string_chain:
                continue
            dfa = self.string_dfa(rest)
            few = _FEW_STATES if self._text_escapes(dfa) == "shortest" else _FEW_STATES // _SPELLED
            if len(dfa.rows) * atom.high <= few or len(set(dfa.labels) - {0}) != 1:
                continue
            if longest_text(dfa) is not None and _joint_states(dfa, atom.high) <= _FEW_STATES:
                continue  # its states tell most lengths apart already
            if atom.low:
                where = self._keywords.origin.get(atom, "#")
                both = [dfa, lengths(atom.low, None)]
                dfa = product(both, lambda said: said[0] if said[1] else 0, self._options.max_product, where)
            rests = shortest_rests(dfa)
            if max(steps(dfa, rests), default=0) <= _MOST_ADDED:
                return dfa, atom.high, rests
        return None

    def _bounded_string(self, formula: int, dfa: TextDfa, high: int, rests: list[int]) -> int:
        """The control after the opening quote.

        The body is a frame. Its register counts the characters so far and the fewest that have to follow, so that no more than
        `high` says that the string can still be completed in time: a character raises it by what it makes the string longer
        than it has to be. (A potential, as in Johnson's algorithm; the fewest to follow are 0 at the end.)
        """
        controls, escapes = self._controls, self._text_escapes(dfa)
        if rests[0] < 0 or rests[0] > high:
            return 0
        label = max(dfa.labels)
        bounds = (0, high - rests[0])
        quote = self._speller.quote
        close = controls.node(((quote, quote, controls.final(label)),))
        symbol = controls.symbol(((_IN_STRING + label, close),), "text")

        def begin(control: int) -> None:
            controls.add_call(control, symbol, body(0))
            controls.moves[control] = controls.moves[close] if dfa.labels[0] else ()

        def body(state: int) -> int:
            def make(control: int) -> None:
                controls.outcome[control] = _IN_STRING + label if dfa.labels[state] else 0
                controls.bounds[control] = bounds
                controls.adds.add(control)
                controls.potential[control] = rests[state]
                row = tuple([(a, z, body(t)) for a, z, t in dfa.rows[state] if rests[t] >= 0])
                controls.moves[control] = self._speller.body(row, 0, escapes, bounds)

            return controls.later(("bounded", formula, state), make)

        return controls.later(("bounded beginning", formula), begin)


def _joint_states(dfa: TextDfa, most: int) -> int:
    """Pairs of a state and a length up to `most` with which it is reached, of an automaton without loops."""
    before = [0] * len(dfa.rows)  # moves into each state that are still to be followed
    for row in dfa.rows:
        for _, _, t in row:
            before[t] += 1
    reached, within = [1] + [0] * (len(dfa.rows) - 1), (2 << most) - 1  # sets of lengths, as bits
    todo, count = [q for q, moves in enumerate(before) if not moves], 0
    while todo:
        q = todo.pop()
        count += reached[q].bit_count()
        for _, _, t in dfa.rows[q]:
            reached[t] |= reached[q] << 1 & within
            before[t] -= 1
            if not before[t]:
                todo.append(t)
    return count


def _settled(dfa: TextDfa) -> list[bool]:
    """Whether every state that is reached from a state accepts and can go on."""
    stuck = [q for q, (label, row) in enumerate(zip(dfa.labels, dfa.rows)) if not (label and row)]
    unsettled = leading([[t for _, _, t in row] for row in dfa.rows], stuck)
    return [q not in unsettled for q in range(len(dfa.rows))]


def _settles(dfa: TextDfa, most: int) -> bool:
    """Whether some states are settled, and every run is in one, or at its end, after at most `most` characters."""
    settled = _settled(dfa)
    frontier, seen = {0}, 0
    for _ in range(most + 1):
        frontier = {q for q in frontier if not settled[q]}
        seen += len(frontier)
        if not frontier or seen > 8 * most:
            break
        frontier = {t for q in frontier for _, _, t in dfa.rows[q]}
    return any(settled) and not frontier
