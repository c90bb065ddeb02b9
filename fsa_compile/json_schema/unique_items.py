"""Arrays whose elements differ, over a finite list of values: their frames remember the values that have come in a bit set.

What the set of keys is to an object (`unordered_objects`), this is to an array: an element is read in the array's own frame,
and the move that ends it can be taken once. So `uniqueItems` over n values takes as many states as the values have characters,
not 2^n.

A string or a literal ends with its last character. An integer, in any of its spellings (`1`, `1.0`, `1.00`), ends where a comma
or a bracket follows; where it must be a comma, because elements are missing, the bounds on the rest of a text do not see that one
can follow, so integers are left to states in arrays of two elements and more.
"""

from __future__ import annotations

from typing import NamedTuple

from fsa_compile.artifact.arrays import MAX_KEYS
from fsa_compile.json_schema.atoms import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE, Count, Differ, Once, Spelled
from fsa_compile.json_schema.container_base import ContainerBase
from fsa_compile.json_schema.decision_diagrams import Decisions
from fsa_compile.json_schema.derivatives import Derivatives
from fsa_compile.json_schema.keywords import Keywords
from fsa_compile.json_schema.machine_builder import Controls
from fsa_compile.json_schema.scalars import Scalars
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.json_schema.string_spelling import encoded
from fsa_compile.json_schema.values import Value

_COMMA = ord(",")
_CLOSE_ARRAY = ord("]")
_ZERO, _POINT = b"0."
_LITERALS = {NULL: b"null", TRUE: b"true", FALSE: b"false"}


class _Array(NamedTuple):
    """An array of `low` to `high` different ones of some values (None: of as many as there are); its outcome.

    Values are known by their text, strings and literals before integers.
    """

    texts: tuple[bytes, ...]
    integers: tuple[bytes, ...]
    low: int
    high: int | None
    outcome: int


class Differing:
    """Makes the controls of such arrays."""

    def __init__(
        self,
        frames: ContainerBase,
        controls: Controls,
        scalars: Scalars,
        decisions: Decisions,
        keywords: Keywords,
        derivatives: Derivatives,
        options: SchemaOptions,
    ) -> None:
        self._frames, self._controls, self._scalars, self._decisions = frames, controls, scalars, decisions
        self._keywords, self._derivatives, self._options = keywords, derivatives, options
        self._kind: dict[_Array, int] = {}

    def first(self, formula: int) -> int | None:
        """The control after "[" of an array of a formula; None where a set of values is not needed, or does not say all."""
        array = self._array_of(formula)
        return None if array is None else self._control(array, 0, "first")

    def _array_of(self, formula: int) -> _Array | None:
        d, options = self._decisions, self._options
        unique = [v for v in d.support(formula) if isinstance(d.atoms[v], (Differ, Once))]
        if not unique or options.word_escapes != "shortest" or any(d.substitute(formula, {v: 0}) for v in unique):
            return None
        rest = d.substitute(formula, dict.fromkeys(unique, 1))
        counts = [v for v in d.support(rest) if isinstance(d.atoms[v], Count)]
        low, high = 0, None
        if counts:
            (v, *others), atom = counts, d.atoms[counts[0]]
            assert isinstance(atom, Count)
            if others or atom.seen or d.substitute(rest, {v: 0}):
                return None
            rest, low, high = d.substitute(rest, {v: 1}), atom.low, atom.high
        cases = self._derivatives.array_step(rest)
        outcome = self._derivatives.at_end(rest)
        if len(cases) != 1 or cases[0].formula != rest or not outcome:
            return None
        values = self._values(cases[0].condition)
        if values is None or not options.max_unique_states < len(values[0]) + len(values[1]) <= MAX_KEYS:
            return None
        if values[1] and (low > 1 or options.whitespace == "indented"):
            return None
        if not any(isinstance(d.atoms[v], Differ) for v in unique):
            once = [atom.schema for v in unique if isinstance(atom := d.atoms[v], Once) and not atom.seen]
            if not {self._values(self._keywords.numbered(number)) for number in once} >= _singly(*values):
                return None
        return _Array(*values, low, high, outcome)

    def _values(self, value: Value) -> tuple[tuple[bytes, ...], tuple[bytes, ...]] | None:
        """The texts of a finite list of strings and literals, and of integers; None for other values."""
        formulas = value.formulas
        words = self._scalars.words(formulas[STRING]) if formulas[STRING] else {}
        numbers = self._keywords.few_numbers(formulas[NUMBER])
        d = self._decisions
        if any(isinstance(d.atoms[v], Spelled) for v in d.support(formulas[NUMBER])):
            return None  # not in every spelling
        if words is None or numbers is None or any(x.denominator > 1 for x in numbers) or formulas[ARRAY] or formulas[OBJECT]:
            return None
        literals = [text for kind, text in _LITERALS.items() if formulas[kind]]
        texts = sorted([*literals, *(_written(word) for word in words)])
        return tuple(texts), tuple(str(x.numerator).encode() for x in numbers)

    # controls

    def _control(self, array: _Array, count: int, phase: str) -> int:
        """The control after some elements: `first` after "[", `next` after ",", `after` an element."""
        controls, frames = self._controls, self._frames
        size = len(array.texts) + len(array.integers)
        most = size if array.high is None else min(array.high, size)
        if array.low > most:
            return 0
        told_apart = array.low if most == size else most
        count = min(count, told_apart)

        def make(control: int) -> None:
            moves: list[tuple[int, int, int]] = []
            if phase != "next" and count >= array.low:
                close = ((_CLOSE_ARRAY, _CLOSE_ARRAY, controls.final(array.outcome)),)
                moves += close
                if phase == "after":
                    frames.allow_newline(control, controls.node(close))
            if phase == "after":
                controls.closing[control] = 0
                if count < most:
                    moves.append((_COMMA, _COMMA, frames.after_comma(self._control(array, count, "next"))))
            elif most:
                controls.before.add(control)
                moves += self._texts(control, array.texts, self._control(array, count + 1, "after"))
                more = frames.after_comma(self._control(array, count + 1, "next")) if count + 1 < most else 0
                moves += self._integers(control, array, more)
                if phase == "first":
                    frames.allow_newline(control, self._control(array, count, "next"))
            controls.moves[control] = tuple(moves)

        control = controls.later(("differing", array, count, phase), make)
        if array not in self._kind:
            self._kind[array] = controls.new_kind(0)
        controls.kind[control] = self._kind[array]
        if phase == "first":
            controls.firsts.add(control)
        return control

    def _texts(self, control: int, texts: tuple[bytes, ...], after: int) -> list[tuple[int, int, int]]:
        """The moves of a control that read one of some sorted texts, none of which begins another; bit i is that of text i."""
        controls = self._controls

        def read(at: int, begin: int, end: int, depth: int) -> list[tuple[int, int, int]]:
            moves = []
            while begin < end:
                byte, bit = texts[begin][depth], begin
                while begin < end and texts[begin][depth] == byte:
                    begin += 1
                if depth + 1 < len(texts[bit]):
                    target = controls.new()
                    controls.moves[target] = tuple(read(target, bit, begin, depth + 1))
                else:
                    target = after
                    controls.value_ends[at, after] = bit
                moves.append((byte, byte, target))
            return moves

        return read(control, 0, len(texts), 0)

    def _integers(self, control: int, array: _Array, more: int) -> list[tuple[int, int, int]]:
        """The moves of a control that read an integer, and what follows it: a comma to the control `more` (0: none), or "]"."""
        controls, close = self._controls, self._controls.final(array.outcome)
        spelt = [(text, len(array.texts) + i) for i, text in enumerate(array.integers)]
        plain = self._options.integers == "plain"
        spelt = sorted([*spelt, *((b"-0", bit) for text, bit in spelt if text == b"0" and not plain)])

        def ends(at: int, bit: int) -> list[tuple[int, int, int]]:
            moves = [(byte, byte, target) for byte, target in ((_COMMA, more), (_CLOSE_ARRAY, close)) if target]
            controls.value_ends.update({(at, target): bit for _, _, target in moves})
            return moves

        def read(at: int, begin: int, end: int, depth: int) -> list[tuple[int, int, int]]:
            moves = []
            if depth == len(spelt[begin][0]):
                bit = spelt[begin][1]
                moves = ends(at, bit)
                if not plain:
                    zeros = controls.new()
                    controls.moves[zeros] = ((_ZERO, _ZERO, zeros), *ends(zeros, bit))
                    moves.append((_POINT, _POINT, controls.new(((_ZERO, _ZERO, zeros),))))
                begin += 1
            while begin < end:
                byte, first = spelt[begin][0][depth], begin
                while begin < end and spelt[begin][0][depth] == byte:
                    begin += 1
                target = controls.new()
                controls.moves[target] = tuple(read(target, first, begin, depth + 1))
                moves.append((byte, byte, target))
            return moves

        return read(control, 0, len(spelt), 0) if spelt else []


def _singly(texts: tuple[bytes, ...], integers: tuple[bytes, ...]) -> set[tuple[tuple[bytes, ...], tuple[bytes, ...]]]:
    """Lists of each value alone."""
    return {((text,), ()) for text in texts} | {((), (text,)) for text in integers}


def _written(word: str) -> bytes:
    """A string as it is written, in the shortest way."""
    return b'"' + encoded(word) + b'"'
