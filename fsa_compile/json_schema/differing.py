"""Arrays whose elements differ, over a finite list of values: their frames remember the values that have come in a bit set.

What the set of keys is to an object (`any_order`), this is to an array: an element is read in the array's own frame, and the
move that ends it can be taken once. So `uniqueItems` over n values takes as many states as the values have characters, not 2^n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fsa_compile.artifact import MAX_KEYS
from fsa_compile.json_schema.atoms import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE, Count, Differ, Once
from fsa_compile.json_schema.controls import Controls
from fsa_compile.json_schema.decisions import Decisions
from fsa_compile.json_schema.keywords import Keywords
from fsa_compile.json_schema.options import SchemaOptions
from fsa_compile.json_schema.residuals import Residuals
from fsa_compile.json_schema.scalars import Scalars
from fsa_compile.json_schema.spelling import encoded
from fsa_compile.json_schema.values import Value

if TYPE_CHECKING:
    from fsa_compile.json_schema.frames import Frames

_COMMA = ord(",")
_CLOSE_ARRAY = ord("]")
_LITERALS = {NULL: b"null", TRUE: b"true", FALSE: b"false"}


class _Array(NamedTuple):
    """An array of `low` to `high` different ones of some texts (None: of as many as there are); its outcome."""

    texts: tuple[bytes, ...]
    low: int
    high: int | None
    outcome: int


class Differing:
    """Makes the controls of such arrays."""

    def __init__(
        self,
        frames: Frames,
        controls: Controls,
        scalars: Scalars,
        decisions: Decisions,
        keywords: Keywords,
        residuals: Residuals,
        options: SchemaOptions,
    ) -> None:
        self._frames, self._controls, self._scalars, self._decisions = frames, controls, scalars, decisions
        self._keywords, self._residuals, self._options = keywords, residuals, options
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
        cases = self._residuals.array_step(rest)
        outcome = self._residuals.at_end(rest)
        if len(cases) != 1 or cases[0].formula != rest or not outcome:
            return None
        texts = self._texts(cases[0].condition)
        if texts is None or not options.max_unique_states < len(texts) <= MAX_KEYS:
            return None
        if not any(isinstance(d.atoms[v], Differ) for v in unique):
            once = {self._constant_text(atom.schema) for v in unique if isinstance(atom := d.atoms[v], Once) and not atom.seen}
            if not once >= set(texts):
                return None
        return _Array(texts, low, high, outcome)

    def _texts(self, value: Value) -> tuple[bytes, ...] | None:
        """The texts of a finite list of strings and literals, None for other values."""
        formulas = value.formulas
        words = self._scalars.words(formulas[STRING]) if formulas[STRING] else {}
        if words is None or formulas[NUMBER] or formulas[ARRAY] or formulas[OBJECT]:
            return None
        literals = [text for kind, text in _LITERALS.items() if formulas[kind]]
        return tuple(sorted([*literals, *(_written(word) for word in words)]))

    def _constant_text(self, number: int) -> bytes | None:
        """How the only value of a numbered subschema is written, None for numbers."""
        texts = self._texts(self._keywords.numbered(number))
        return texts[0] if texts else None

    # controls

    def _control(self, array: _Array, count: int, phase: str) -> int:
        """The control after some elements: `first` after "[", `next` after ",", `after` an element."""
        controls, frames = self._controls, self._frames
        most = len(array.texts) if array.high is None else min(array.high, len(array.texts))
        if array.low > most:
            return 0
        told_apart = array.low if most == len(array.texts) else most
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
                after = self._control(array, count + 1, "after")
                moves += self._elements(control, array.texts, after)
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

    def _elements(self, control: int, texts: tuple[bytes, ...], after: int) -> list[tuple[int, int, int]]:
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


def _written(word: str) -> bytes:
    """A string as it is written, in the shortest way."""
    return b'"' + encoded(word) + b'"'
