"""Values, arrays and objects to frames of the byte machine.

A value is read by a callee that ends with an outcome: which of several disjoint languages the value belongs to. An array or an
object is a frame whose controls are formulas about what is still to come; `derivatives` says how a member changes them, and each
member is one call whose outcomes lead to what is left. All equal frames are one, so recursion and repeated `$ref` cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from fsa_compile.automata.pushdown import UNCOUNTED
from fsa_compile.json_schema.atoms import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, Count, Has
from fsa_compile.json_schema.container_base import ContainerBase, SchemaParts
from fsa_compile.json_schema.decision_diagrams import FIRST_NODE
from fsa_compile.json_schema.derivatives import Case
from fsa_compile.json_schema.key_classes import KeyClass
from fsa_compile.json_schema.machine_builder import Moves
from fsa_compile.json_schema.string_spelling import QUOTE
from fsa_compile.json_schema.values import UNORDERED, Order, Orders, Value, widest

if TYPE_CHECKING:
    from fsa_compile.json_schema.unique_items import Differing
    from fsa_compile.json_schema.unordered_objects import AnyOrder

_COMMA, _SPACE, _NEWLINE = b", \n"
_OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT = b"[]{"
_INDENTED = 1 << 7
"""Outcome of white space, above those of values and below those of counted frames, in which white space may stand."""
_IN_ARRAY = 1 << 9
"""Outcome of the counted elements of an array, so that it is not mistaken for one of values."""


class Place(NamedTuple):
    """Where an object stands in its key orders: (order number, keys passed) for every order that is still possible."""

    at: tuple[tuple[int, int], ...]


class Frames(ContainerBase):
    """Makes the controls of values on demand."""

    def __init__(self, parts: SchemaParts) -> None:
        super().__init__(parts)
        self._parts, (controls, _, _, attempts, derivatives, options) = parts, parts
        self._order_number = attempts.orders
        self._orders: dict[int, Order] = {}
        self._sorted: dict[int, tuple[str, ...]] = {}
        self._positions: dict[int, dict[str, int]] = {}
        self._places: dict[int, list[Place]] = {}
        self._rests: dict[tuple[int, int], int] = {}
        self._rest_number: dict[Order, int] = {}
        self._coming: dict[Any, Any] = {}
        self._targets: dict[Any, int] = {}
        self._any_order: AnyOrder | None = None
        if options.key_order == "any":
            from fsa_compile.json_schema.unordered_objects import AnyOrder

            self._any_order = AnyOrder(self, controls, attempts, derivatives)

    # values

    def entry(self, value: Value) -> int:
        """The control that reads a value from its first byte; it ends with the value's outcome."""
        formulas, orders = value
        if formulas[OBJECT] < FIRST_NODE:
            orders = UNORDERED
        elif self._any_order is not None:
            orders = (tuple(sorted(orders[0])),)
        else:
            orders = widest(orders)

        def make(control: int) -> None:
            self._controls.moves[control] = self._entry_moves(formulas, orders)

        return self._controls.later(("value", formulas, orders), make)

    def _entry_moves(self, formulas: tuple[int, ...], orders: Orders) -> Moves:
        moves: list[tuple[int, int, int]] = []
        for kind in range(NULL, FALSE + 1):
            if formulas[kind]:
                moves += self._scalars.literal(kind, formulas[kind])
        if formulas[NUMBER]:
            moves += self._scalars.number(formulas[NUMBER])
        if formulas[STRING]:
            moves += self.string_moves(formulas[STRING])
        if formulas[ARRAY]:
            moves.append((_OPEN_ARRAY, _OPEN_ARRAY, self._first_of_array(formulas[ARRAY])))
        if formulas[OBJECT]:
            self._derivatives.refuse_repetitions(formulas[OBJECT], max(map(len, orders), default=0))
            if self._any_order is not None and orders[0]:
                first = self._any_order.first(orders[0], formulas[OBJECT])
            else:
                first = self._object(self._start(orders), formulas[OBJECT], "first")
            moves.append((_OPEN_OBJECT, _OPEN_OBJECT, first))
        return tuple(moves)

    def string_moves(self, formula: int) -> Moves:
        """The moves that read the strings of a formula."""
        return ((QUOTE, QUOTE, self._scalars.string(formula)),)

    # arrays

    @cached_property
    def _differing(self) -> Differing:
        from fsa_compile.json_schema.unique_items import Differing  # many schemas have no arrays

        controls, _, scalars, attempts, derivatives, options = self._parts
        return Differing(self, controls, scalars, attempts.decisions, attempts.keywords, derivatives, options)

    def _first_of_array(self, formula: int) -> int:
        """The control after "[" of an array."""
        first = self._differing.first(formula)
        if first is None:
            counted = self._counted(formula)
            first = self._array(formula, "first") if counted is None else self._counted_array(*counted)
        return first

    def _array(self, formula: int, phase: str) -> int:
        """The control of an array: `first` after "[", `next` after ",", `after` an element."""

        def make(control: int) -> None:
            controls = self._controls
            moves: list[tuple[int, int, int]] = []
            if phase != "next" and (outcome := self._derivatives.at_end(formula)):
                close = ((_CLOSE_ARRAY, _CLOSE_ARRAY, controls.final(outcome)),)
                moves += close
                if phase == "after":
                    self.allow_newline(control, controls.node(close))
            if phase == "after":
                if self._array_cases(formula):
                    moves.append((_COMMA, _COMMA, self.after_comma(self._array(formula, "next"))))
            elif call := self.call_member(self._derivatives.array_step(formula), self._after_item, "item"):
                controls.add_call(control, *call)
                if phase == "first":
                    self.allow_newline(control, self._array(formula, "next"))
            controls.moves[control] = tuple(moves)

        key = ("array", formula, phase)
        control = self._controls.later(key, make)
        if phase == "after":
            self.state_keys[control] = ("array", formula)
        return control

    def _counted(self, formula: int) -> tuple[int, int, int] | None:
        """(rest, low, high) when an array has low to high elements that are all alike, so that a register can count them.

        `UNCOUNTED` stands for no upper bound.
        """
        d = self._decisions
        for v in d.support(formula):
            atom = d.atoms[v]
            if not isinstance(atom, Count) or atom.seen:
                continue
            if (atom.low if atom.high is None else atom.high) <= self._options.max_chain:
                continue
            rest = d.substitute(formula, {v: 1})
            alike = {case.formula for case in self._array_cases(rest)} == {rest}
            if alike and not d.substitute(formula, {v: 0}) and self._derivatives.at_end(rest):
                return rest, atom.low, UNCOUNTED if atom.high is None else atom.high
        return None

    def _counted_array(self, rest: int, low: int, high: int) -> int:
        """The control after "["; the elements are a frame of their own, which counts commas and returns where "]" may stand."""
        controls = self._controls

        def begin(control: int) -> None:
            bounds = (max(0, low - 1), UNCOUNTED if high == UNCOUNTED else high - 1)
            bracket = ((_CLOSE_ARRAY, _CLOSE_ARRAY, controls.final(self._derivatives.at_end(rest))),)
            if not low:
                controls.moves[control] = bracket
            close = controls.new(bracket)
            self.allow_newline(close, controls.node(bracket))
            after, element = controls.new((), _IN_ARRAY, bounds), controls.new((), 0, bounds)
            call = self.call_member(self._array_cases(rest), lambda _: after, "item")
            if call is None:
                return
            controls.add_call(element, *call)
            controls.adds.add(after)
            controls.moves[after] = ((_COMMA, _COMMA, self.after_comma(element, bounds)),)
            begun = controls.symbol(((_IN_ARRAY, close),), "items")
            controls.add_call(control, begun, element)
            if self._options.whitespace == "indented":
                indented = controls.new()
                controls.add_call(indented, begun, element)
                self.allow_newline(control, indented)

        return controls.later(("counted array", rest, low, high), begin)

    def _after_item(self, formula: int) -> int:
        return 0 if ("array", formula) in self._dead else self._array(formula, "after")

    def _array_cases(self, formula: int) -> list[Case]:
        return [case for case in self._derivatives.array_step(formula) if ("array", case.formula) not in self._dead]

    # objects

    def _start(self, orders: Orders) -> Place:
        """The place before the first key; every order is made to hold every key."""
        every = orders[0]
        at = []
        for order in orders:
            known = set(order)
            order = order + tuple(key for key in every if key not in known)
            at.append((self._numbered(order), 0))
        return Place(tuple(dict.fromkeys(at)))

    def _numbered(self, order: Order, kind: str = "") -> int:
        """The number of an order of one kind of object."""
        number = self._order_number.setdefault((order, kind), len(self._order_number))
        if number not in self._orders:
            self._orders[number], self._sorted[number] = order, tuple(sorted(order))
            self._positions[number] = {key: i for i, key in enumerate(order)}
        return number

    def _left(self, place: Place) -> frozenset[str]:
        """The keys that may still come."""
        found = self._coming.get(place)
        if found is None:
            found = self._coming[place] = frozenset().union(*(self._orders[n][p:] for n, p in place.at))
        return found

    def _places_of(self, number: int) -> list[Place]:
        """The places after each key of an order that is the only one."""
        found = self._places.get(number)
        if found is None:
            found = self._places[number] = [Place(((number, i),)) for i in range(1, len(self._orders[number]) + 1)]
        return found

    def _passed(self, place: Place, key: str | None) -> Place:
        """The place after a key; None for a key that no order names."""
        if key is None:
            return Place(((place.at[0][0], len(self._orders[place.at[0][0]])),))
        if len(place.at) == 1:
            number, position = place.at[0]
            index = self._positions[number][key]
            return Place(((number, index + 1),) if index >= position else ())
        at: dict[int, tuple[int, int]] = {}
        for number, position in place.at:
            index = self._positions[number][key]
            if index >= position:
                at.setdefault(self._rest(number, index + 1), (number, index + 1))
        return Place(tuple(at.values()))

    def _rest(self, number: int, position: int) -> int:
        """A number of the keys of an order from a position on."""
        found = self._rests.get((number, position))
        if found is None:
            rest = self._orders[number][position:]
            found = self._rests[number, position] = self._rest_number.setdefault(rest, len(self._rest_number))
        return found

    def _object(self, place: Place, formula: int, phase: str) -> int:
        """The control of an object: `first` after "{", `next` after ",", `after` a member."""

        def make(control: int) -> None:
            moves: list[tuple[int, int, int]] = []
            if phase != "next" and (outcome := self._derivatives.at_end(formula)):
                bracket = self.closing_bracket(place)
                close = ((bracket, bracket, self._controls.final(outcome)),)
                moves += close
                if phase == "after":
                    self.allow_newline(control, self._controls.node(close))
            classes, targets = self._next_keys(place, formula)
            if targets:
                if phase == "after":
                    moves.append((_COMMA, _COMMA, self.after_comma(self._object(place, formula, "next"))))
                else:
                    moves += self.begin_key(place, classes, targets)
                    if phase == "first":
                        self.allow_newline(control, self._object(place, formula, "next"))
            self._controls.moves[control] = tuple(moves)

        control = self._controls.later(("object", place, formula, phase), make)
        if phase == "after":
            self.state_keys[control] = ("object", place, formula)
        return control

    def _next_keys(self, place: Place, formula: int) -> tuple[Any, tuple[tuple[int, int], ...]]:
        """The automaton of keys, and the (class of key, control after the key) pairs of keys that may come."""
        memo = ("next", place, formula)
        found = self._coming.get(memo)
        if found is None:
            found = self._coming[memo] = self._find_next_keys(place, formula)
        return found

    def _find_next_keys(self, place: Place, formula: int) -> tuple[Any, tuple[tuple[int, int], ...]]:
        every = self._orders[place.at[0][0]]
        classes = self.classes.of(self._sorted[place.at[0][0]], self.string_atoms(formula))
        targets: list[tuple[int, int]] = []
        d = self._decisions
        keys: Sequence[str]
        places: Iterable[Place]
        one = len(place.at) == 1
        if one:
            number, position = place.at[0]
            keys, places = self._orders[number][position:], self._places_of(number)[position:]
        else:
            left = self._left(place)
            keys = [key for key in every if key in left]
            places = (self._passed(place, key) for key in keys)
        rest = formula
        for key, after in zip(keys, places):
            for c in classes.by_key.get(key, ()):
                if target := self._after_key(after, rest, key, classes.classes[c]):
                    targets.append((c, target))
            if one and (v := d.known(Has(key))) is not None:
                rest = d.substitute(rest, {v: 0})  # the key was passed over
                if not rest:
                    break
        if rest:
            after = self._passed(place, None)
            rest = rest if one else self._derivatives.settle(rest, lambda _: False)
            for c in classes.other:
                if rest and (target := self._after_key(after, rest, None, classes.classes[c])):
                    targets.append((c, target))
        return classes, tuple(sorted(targets))

    def _after_key(self, after: Place, formula: int, key: str | None, of_class: KeyClass) -> int:
        """The control after a key's closing quote, 0 when no value may follow."""
        memo = (after, formula, key, of_class)
        found = self._targets.get(memo)
        if found is None:
            found = self._targets[memo] = self._find_after_key(after, formula, key, of_class)
        return found

    def _find_after_key(self, after: Place, formula: int, key: str | None, of_class: KeyClass) -> int:
        left = self._left(after)
        formula = self._derivatives.settle(formula, lambda k: k == key or k in left)
        cases = self._derivatives.object_step(formula, key, of_class.holds, left.__contains__)

        def control(formula: int) -> int:
            state = self._feasible(after, formula)
            return self._object(*state, "after") if state[1] and ("object", *state) not in self._dead else 0

        call = self.call_member(cases, control, "other keys" if key is None else key)
        if call is None:
            return 0
        return self.before_value(after, self._controls.caller(*call))

    def _feasible(self, place: Place, formula: int) -> tuple[Place, int]:
        """The place without the orders in which the formula can no longer come true, and the formula for those that are left."""
        if len(place.at) == 1:
            return place, formula
        possible = []
        for number, position in place.at:
            coming = frozenset(self._orders[number][position:]).__contains__
            if self._derivatives.settle(formula, coming):
                possible.append((number, position))
        if len(possible) == len(place.at):
            return place, formula
        place = Place(tuple(possible))
        return place, self._derivatives.settle(formula, self._left(place).__contains__) if possible else 0
