"""Objects and strings of a call's arguments that are not written as in JSON: bare keys, keyword arguments, either quote."""

from __future__ import annotations

import bisect
import functools
import keyword
from collections.abc import Sequence
from typing import Any

from fsa_compile.call_syntax.call_scalars import MarkedScalars, PythonScalars
from fsa_compile.call_syntax.call_spelling import PythonSpeller, RawSpeller
from fsa_compile.errors import UnsupportedSchemaError
from fsa_compile.json_schema.atoms import OBJECT
from fsa_compile.json_schema.container_base import SchemaParts
from fsa_compile.json_schema.containers import Frames, Place
from fsa_compile.json_schema.decision_diagrams import FIRST_NODE
from fsa_compile.json_schema.key_classes import KeyAutomaton
from fsa_compile.json_schema.machine_builder import Moves
from fsa_compile.json_schema.values import UNORDERED, Value, widest

Targets = tuple[tuple[int, int], ...]

_COLON, _EQUALS = b":="
_OPEN, _CLOSE = b"()"
_EXCLUDED = ':,{}[]<>|"'
"""Characters that no bare key has, besides control characters."""
_PUNCTUATION = ":,{}[]"
_BARE = (*((c, c) for c in range(0x20, 0x7F) if chr(c) not in _EXCLUDED), (0x80, 0xD7FF), (0xE000, 0x10FFFF))


@functools.lru_cache(1024)
def _bare_within(low: int, high: int) -> tuple[tuple[int, int], ...]:
    """The characters of bare keys in a range."""
    return tuple([(max(a, low), min(z, high)) for a, z in _BARE if a <= high and z >= low])


class _BareKeys(Frames):
    """Objects whose keys stand without quotes."""

    def _bare_moves(self, speller: RawSpeller, classes: KeyAutomaton, targets: Targets, state: int, first: bool) -> Moves:
        """The moves inside a key, which is not empty and begins with no space."""
        label = classes.labels[state]
        at = bisect.bisect_left(targets, (label,))
        close = targets[at][1] if not first and at < len(targets) and targets[at][0] == label else 0
        row: list[tuple[int, int, int]] = []
        for low, high, after in classes.row_to(state, targets):
            if below := self._bare(speller, classes, targets, after):
                row += [(a, z, below) for a, z in _bare_within(low, high) if not (first and a == 0x20)]
        return speller.body(tuple(row), close, "shortest")

    def _bare(self, speller: RawSpeller, classes: KeyAutomaton, targets: Targets, state: int) -> int:
        """The control inside a key; 0 where none can be completed."""
        targets = classes.within(state, targets)
        if not targets:
            return 0
        rest = classes.rest_of(state, targets[0][0])
        if len(targets) == 1 and rest is not None:
            return self._controls.chain(speller.encoded(rest) + bytes([speller.quote]), targets[0][1])

        def make(control: int) -> None:
            self._controls.moves[control] = self._bare_moves(speller, classes, targets, state, False)

        return self._controls.later(("bare key", speller.quote, classes.number, state, targets), make)


class MarkedFrames(_BareKeys):
    """Objects with bare keys, strings between marks."""

    def __init__(self, parts: SchemaParts, strings: MarkedScalars) -> None:
        super().__init__(parts)
        self._strings = strings
        self._keys = RawSpeller(parts.controls, _COLON)

    def string_moves(self, formula: int) -> Moves:
        return self._strings.opened(formula)

    def begin_key(self, place: Any, classes: KeyAutomaton, targets: Targets) -> Moves:
        for label, _ in targets:
            key = classes.classes[label].key
            if key is not None and (not key or key[0] == " " or not all(_is_bare(c) for c in key)):
                what = f"the key {key!r:.80} cannot be written without quotes"
                raise UnsupportedSchemaError(what, pointer="#", fix=f"Rename it: no spaces first, and none of {_EXCLUDED}.")
        return self._bare_moves(self._keys, classes, targets, 0, True)

    def before_value(self, place: Any, value: int) -> int:
        return value


def is_apart(mark: str) -> bool:
    """Whether a mark begins with a character that no key, bracket, number or literal has."""
    return not _is_bare(mark[0]) and mark[0] not in _PUNCTUATION


def _is_bare(character: str) -> bool:
    return any(a <= ord(character) <= z for a, z in _BARE)


class CallFrames(_BareKeys):
    """Keyword arguments of the call itself, in parentheses; their values are JSON."""

    def __init__(self, parts: SchemaParts) -> None:
        super().__init__(parts)
        self._names = RawSpeller(parts.controls, _EQUALS)
        self._argument_kinds: set[int] = set()
        self._argument_orders: set[int] = set()

    def arguments(self, value: Value) -> int:
        """The control that reads the arguments of a call, with their parentheses; it ends with the value's outcome."""
        formula, orders = value.formulas[OBJECT], value.orders
        if not formula:
            return 0
        orders = UNORDERED if formula < FIRST_NODE else widest(orders)
        self._derivatives.refuse_repetitions(formula, max(map(len, orders), default=0))
        if self._any_order is not None and orders[0]:
            first = self._any_order.first(orders[0], formula, self._argument_kinds.add)
        else:
            first = self._object(Place(tuple([(self._own_order(n), at) for n, at in self._start(orders).at])), formula, "first")
        return self._controls.node(((_OPEN, _OPEN, first),))

    def _own_order(self, number: int) -> int:
        """An order like another, of arguments."""
        own = self._numbered(self._orders[number], "arguments")
        self._argument_orders.add(own)
        return own

    def _is_call(self, place: Any) -> bool:
        if isinstance(place, Place):
            return bool(place.at) and place.at[0][0] in self._argument_orders
        return place.kind in self._argument_kinds

    def begin_key(self, place: Any, classes: KeyAutomaton, targets: Targets) -> Moves:
        if not self._is_call(place):
            return super().begin_key(place, classes, targets)
        for label, _ in targets:
            key = classes.classes[label].key
            if key is None or not key.isascii() or not key.isidentifier() or keyword.iskeyword(key):
                what = "an argument of any name" if key is None else f"an argument called {key!r:.80}"
                fix = "Close the object with additionalProperties: false, and give arguments names that Python has."
                raise UnsupportedSchemaError(f"{what} cannot be written as Python's keyword argument", pointer="#", fix=fix)
        return self._bare_moves(self._names, classes, targets, 0, True)

    def before_value(self, place: Any, value: int) -> int:
        return value if self._is_call(place) else super().before_value(place, value)

    def closing_bracket(self, place: Any) -> int:
        return _CLOSE if self._is_call(place) else super().closing_bracket(place)


class PythonFrames(CallFrames):
    """Keyword arguments whose values are Python literals. `strings`: of the values, one for each quote, with their spellers."""

    def __init__(self, parts: SchemaParts, strings: Sequence[tuple[PythonSpeller, PythonScalars]]) -> None:
        super().__init__(parts)
        self._strings = strings

    def string_moves(self, formula: int) -> Moves:
        return tuple([(speller.quote, speller.quote, scalars.string(formula)) for speller, scalars in self._strings])

    def begin_key(self, place: Any, classes: KeyAutomaton, targets: Targets) -> Moves:
        if not self._is_call(place):
            return tuple([(s.quote, s.quote, self._quoted(s, classes, targets, 0)) for s, _ in self._strings])
        return super().begin_key(place, classes, targets)

    def _quoted(self, speller: PythonSpeller, classes: KeyAutomaton, targets: Targets, state: int) -> int:
        """The control inside a key in quotes; 0 where none can be completed."""
        targets = classes.within(state, targets)
        if not targets:
            return 0

        def make(control: int) -> None:
            label = classes.labels[state]
            at = bisect.bisect_left(targets, (label,))
            close = targets[at][1] if at < len(targets) and targets[at][0] == label else 0
            row = [(a, z, self._quoted(speller, classes, targets, after)) for a, z, after in classes.row_to(state, targets)]
            escapes = self._options.word_escapes
            self._controls.moves[control] = speller.body(tuple([piece for piece in row if piece[2]]), close, escapes)

        return self._controls.later(("quoted key", speller.quote, classes.number, state, targets), make)
