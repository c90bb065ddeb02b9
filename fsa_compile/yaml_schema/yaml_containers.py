"""Values, lists and mappings of YAML to frames of the byte machine.

What a member leaves open is `json_schema.derivatives`' matter, as for JSON; here is the layout. In flow style frames are those of
JSON. In block style a collection is a frame that knows its column, and what the collections around it can do: after a line break
the spaces are read by the innermost frame, which returns with the column that it found, so that the frame of that column goes on.
It therefore reads no further spaces than some frame can use, and no text that it reads is a dead end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fsa_compile.json_schema.atoms import ARRAY, OBJECT, Has
from fsa_compile.json_schema.container_base import SchemaParts
from fsa_compile.json_schema.containers import Frames, Place
from fsa_compile.json_schema.decision_diagrams import FIRST_NODE
from fsa_compile.json_schema.key_classes import KeyAutomaton
from fsa_compile.json_schema.machine_builder import Moves
from fsa_compile.json_schema.values import UNORDERED, Value, widest
from fsa_compile.yaml_schema.yaml_options import YamlOptions
from fsa_compile.yaml_schema.yaml_scalars import Texts

_COMMA, _SPACE, _NEWLINE, _DASH = b", \n-"
_BRACKETS = {"array": b"[]", "object": b"{}"}
_NUMBERED = 1 << 10
"""Outcomes that are made here are above this."""
AT_END = -1
"""The "column" of the end of the text."""
Ends = tuple[tuple[int, frozenset[int]], ...]
"""Per outcome of a frame the columns at which a line may go on after it, AT_END among them."""


class Codes:
    """Numbers outcomes of frames that are no values: a key was read, or a block collection ended at some column."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def __call__(self, *key: Any) -> int:
        """The outcome of a key."""
        return self._known.setdefault(key, _NUMBERED + len(self._known))


class State(NamedTuple):
    """What is still to come in a collection; `place` is None in an array."""

    kind: str
    place: Place | None
    formula: int


class At(NamedTuple):
    """Where a collection stands: its column (None: in flow style), and what may follow it."""

    column: int | None
    ends: Ends

    def after(self, outcome: int) -> frozenset[int]:
        """The columns at which a line may go on after an outcome."""
        return dict(self.ends).get(outcome, frozenset())


FLOW = At(None, ())


class YamlFrames(Frames):
    """Makes the controls of values on demand.

    Args:
      dead: states known to lead nowhere, by their key.
      code: outcome of (outcome of the value, column at which the next line begins, column and kind of the collection).

    Attributes:
      member_keys: controls after a colon or a dash, each with the state and the class of keys; one control may stand for many.
    """

    def __init__(self, parts: SchemaParts, texts: Texts, options: YamlOptions, code: Codes) -> None:
        super().__init__(parts)
        self._texts, self._layout, self._code = texts, options, code
        texts.others = self.classes.of((), ())
        self._members_of: dict[Any, Any] = {}
        self.member_keys: set[tuple[int, Any]] = set()

    # values

    def root(self, value: Value, block: bool) -> tuple[tuple[int, int] | None, tuple[int, int]]:
        """The stack symbol and entry of the whole text, None when there is no value; and the controls at its end."""
        controls = self._controls
        end = controls.new()
        last = controls.new(((_NEWLINE, _NEWLINE, end),))
        returns = {1: last, **{self._code(1, AT_END, 0, kind): end for kind in _BRACKETS}}
        at: Any = ("item", -2, ((1, frozenset([AT_END])),)) if block else ("flow",)
        if not any(value.formulas):
            return None, (last, end)
        return (controls.symbol(tuple(returns.items())), self._entry_at(value, at)), (last, end)

    def _entry_at(self, value: Value, at: Any) -> int:
        """The control that reads a value from its first byte.

        Args:
          at: ("flow",); ("item", column of the dash, ends); ("line", column of the mapping) after a key's colon and a space;
            ("below", column of the mapping, ends) after a key's colon and a line break.
        """
        formulas, orders = value
        orders = UNORDERED if formulas[OBJECT] < FIRST_NODE else widest(orders)

        def make(control: int) -> None:
            if at[0] == "flow":
                self._controls.moves[control] = self._on_line(control, formulas, orders, "flow", True, True)
            elif at[0] == "line":
                deep = self._too_deep(at[1] + 2)
                self._controls.moves[control] = self._on_line(control, formulas, orders, "block", False, deep)
            elif at[0] == "item":
                self._controls.moves[control] = self._item(control, formulas, orders, at[1] + 2, at[2])
            else:
                self._controls.moves[control] = self._below(control, formulas, orders, at[1], 0, at[2])

        return self._controls.later(("yaml", formulas, orders, at), make)

    def _too_deep(self, column: int) -> bool:
        return column > self._layout.max_indent

    def _states(self, formulas: tuple[int, ...], orders: Any) -> list[State]:
        """The array and the object of a value, before their first member."""
        out = [State("array", None, formulas[ARRAY])] if formulas[ARRAY] else []
        if formulas[OBJECT]:
            self._derivatives.refuse_repetitions(formulas[OBJECT], max(map(len, orders), default=0))
            out = [*out, State("object", self._start(orders), formulas[OBJECT])]
        return out

    def _on_line(
        self, control: int, formulas: tuple[int, ...], orders: Any, style: Any, flow_arrays: bool, flow_objects: bool
    ) -> Moves:
        """A scalar, an empty collection, and collections in flow style as far as they are wanted."""
        moves = list(self._texts.begin(control, style, formulas, None, ()))
        return (*moves, *self._brackets(formulas, orders, {"array": flow_arrays, "object": flow_objects}))

    def _brackets(self, formulas: tuple[int, ...], orders: Any, flow: dict[str, bool]) -> Moves:
        moves: list[tuple[int, int, int]] = []
        for state in self._states(formulas, orders):
            opening, closing = _BRACKETS[state.kind]
            outcome = self._derivatives.at_end(state.formula)
            if flow[state.kind]:
                moves.append((opening, opening, self._in_flow(state, "first")))
            elif outcome:
                empty = self._controls.node(((closing, closing, self._controls.final(outcome)),))
                moves.append((opening, opening, empty))
        return tuple(moves)

    def _item(self, control: int, formulas: tuple[int, ...], orders: Any, column: int, ends: Ends) -> Moves:
        """What begins on the line of a dash, or the text: a scalar, or a collection whose column this is."""
        deep = self._too_deep(column)
        brackets = self._brackets(formulas, orders, {"array": deep, "object": deep})
        keys: KeyAutomaton | None = None
        targets: tuple[tuple[int, int], ...] = ()
        dash = 0
        for state in [] if deep else self._states(formulas, orders):
            if state.kind == "object":
                keys, targets = self._keys(state, At(column, ends))
            else:
                dash = self._element(state, At(column, ends))
        return (*self._texts.begin(control, "block", formulas, keys, targets, dash), *brackets)

    def _below(self, control: int, formulas: tuple[int, ...], orders: Any, column: int, read: int, ends: Ends) -> Moves:
        """The lines of a collection under its key, `read` spaces having been read of the first."""
        moves: list[tuple[int, int, int]] = []
        for state in self._states(formulas, orders):
            if (read == column and state.kind == "array") or (read == column + 2 and not self._too_deep(read)):
                moves += self._first(control, state, At(read, ends))
        if read < column + 2:

            def make(control: int) -> None:
                self._controls.moves[control] = self._below(control, formulas, orders, column, read + 1, ends)

            key = ("below", formulas, orders, column, read + 1, ends)
            moves.append((_SPACE, _SPACE, self._controls.later(key, make)))
        return tuple(moves)

    # members

    def _first(self, control: int, state: State, at: At) -> Moves:
        """The moves that begin a member of a block collection at its column."""
        if state.kind == "object":
            classes, targets = self._keys(state, at)
            return self._texts.begin(control, "block", None, classes, targets) if targets else ()
        element = self._element(state, at)
        return ((_DASH, _DASH, self._controls.node(((_SPACE, _SPACE, element),))),) if element else ()

    def _element(self, state: State, at: At) -> int:
        """The control that reads an element, 0 when none may come."""
        cases = self._possible(self._members(state)[1][0][1], at) if self._more(state, at) else []
        if not cases:
            return 0
        symbol, value, first = self._called(cases, at)
        control = self._controls.caller(symbol, self._entry_at(value, ("item", at.column, self._ends(cases, at, first))))
        self.member_keys.add((control, ("member", state, 0, at)))
        return control

    def _keys(self, state: State, at: At) -> tuple[KeyAutomaton, tuple[tuple[int, int], ...]]:
        """The automaton of keys, and (class of key, control after its colon) of those that may come."""
        classes, members = self._members(state)
        if not self._more(state, at):
            return classes, ()
        targets = []
        for of_key, every in members:
            cases = self._possible(every, at) if ("member", state, of_key, at) not in self._dead else []
            if cases:
                control = self._after_colon_at(cases, at)
                self.member_keys.add((control, ("member", state, of_key, at)))
                targets.append((of_key, control))
        return classes, tuple(targets)

    def _after_colon_at(self, cases: Sequence[tuple[State, Value]], at: At) -> int:
        symbol, value, first = self._called(cases, at)
        caller, node = self._controls.caller, self._controls.node
        if at.column is None:
            return node(((_SPACE, _SPACE, caller(symbol, self._entry_at(value, ("flow",)))),))
        line = self._entry_at(value, ("line", at.column))
        below = self._entry_at(value, ("below", at.column, self._ends(cases, at, first)))
        return node(((_NEWLINE, _NEWLINE, caller(symbol, below)), (_SPACE, _SPACE, caller(symbol, line))))

    def _after(self, state: State, at: At) -> int:
        """The control after a member."""
        if at.column is None:
            return self._in_flow(state, "after")

        def make(control: int) -> None:
            controls, closed = self._controls, self._derivatives.at_end(state.formula)
            controls.moves[control] = ((_NEWLINE, _NEWLINE, self._line(state, at, 0)),)
            if AT_END in at.after(closed):
                assert at.column is not None
                controls.outcome[control] = self._code(closed, AT_END, at.column, state.kind)

        control = self._controls.later(("after", state, at), make)
        self.state_keys[control] = ("state", state, at)
        return control

    def _line(self, state: State, at: At, read: int) -> int:
        """The control at the beginning of a line, `read` spaces having been read."""
        column = at.column
        assert column is not None

        def make(control: int) -> None:
            closed = self._derivatives.at_end(state.formula)
            ends = at.after(closed)
            line = read if read in ends else AT_END
            if line in ends and (line >= 0 or not read):
                self._controls.outcome[control] = self._code(closed, line, column, state.kind)
            if read < column:
                self._controls.moves[control] = ((_SPACE, _SPACE, self._line(state, at, read + 1)),)
            else:
                self._controls.moves[control] = self._first(control, state, at)

        control = self._controls.later(("line", state, at, read), make)
        if read == column:
            self.state_keys[control] = ("more", state, at)
        return control

    def _in_flow(self, state: State, phase: str) -> int:
        """The control of a collection in flow style: `first` after the bracket, `next` after ", ", `after` a member."""

        def make(control: int) -> None:
            controls = self._controls
            moves: list[tuple[int, int, int]] = []
            outcome, closing = self._derivatives.at_end(state.formula), _BRACKETS[state.kind][1]
            if phase != "next" and outcome:
                moves.append((closing, closing, controls.final(outcome)))
            if not self._more(state, FLOW):
                pass
            elif phase == "after":
                moves.append((_COMMA, _COMMA, controls.node(((_SPACE, _SPACE, self._in_flow(state, "next")),))))
            elif state.kind == "object":
                moves += self._texts.begin(control, "flow", None, *self._keys(state, FLOW))
            else:
                symbol, value, _ = self._called(self._possible(self._members(state)[1][0][1], FLOW), FLOW)
                controls.add_call(control, symbol, self._entry_at(value, ("flow",)))
            controls.moves[control] = tuple(moves)

        control = self._controls.later(("flow", state, phase), make)
        if phase == "after":
            self.state_keys[control] = ("state", state, FLOW)
        return control

    def _called(self, cases: Sequence[tuple[State, Value]], at: At) -> tuple[int, Value, int]:
        """The stack symbol for a member, the value to read, and its first outcome; others follow in the cases' order."""
        first, value = self._values.classify([condition for _, condition in cases])
        returns: dict[int, int] = {}
        for i, (state, _) in enumerate(cases):
            returns[first + i] = self._after(state, at)
            if at.column is None:
                continue
            closed = self._derivatives.at_end(state.formula)
            for kind, column in self._inside(state.kind, at.column):
                for line in self._allowed(state, at):
                    code = self._code(first + i, line, column, kind)
                    if line == at.column and (self._more(state, at) or state.kind == "array"):
                        returns[code] = self._line(state, at, line)
                    elif closed:
                        returns[code] = self._controls.final(self._code(closed, line, at.column, state.kind))
        return self._controls.symbol(tuple(sorted(returns.items()))), value, first

    def _inside(self, kind: str, column: int) -> list[tuple[str, int]]:
        """Kind and column of the block collections that may be a member of one."""
        out = [(inner, column + 2) for inner in _BRACKETS]
        return [*out, ("array", column)] if kind == "object" else out

    def _ends(self, cases: Sequence[tuple[State, Value]], at: At, first: int) -> Ends:
        return tuple([(first + i, self._allowed(state, at)) for i, (state, _) in enumerate(cases)])

    def _allowed(self, state: State, at: At) -> frozenset[int]:
        """The columns at which a line may go on when a state is reached."""
        closed = self._derivatives.at_end(state.formula)
        out = at.after(closed) if closed else frozenset()
        return out | {at.column} if at.column is not None and self._more(state, at) else out

    def _more(self, state: State, at: At) -> bool:
        """Whether another member may come."""
        if ("more", state, at) in self._dead:
            return False
        members = self._members(state)[1]
        return any(self._possible(every, at) for of_key, every in members if ("member", state, of_key, at) not in self._dead)

    def _possible(self, cases: list[tuple[State, Value]], at: At) -> list[tuple[State, Value]]:
        return [case for case in cases if ("state", case[0], at) not in self._dead]

    def _members(self, state: State) -> tuple[Any, list[tuple[int, list[tuple[State, Value]]]]]:
        """The automaton of keys, and per class of key the states after such a member, with the values that lead there."""
        found = self._members_of.get(state)
        if found is None:
            found = self._members_of[state] = self._find_members(state)
        return found

    def _find_members(self, state: State) -> tuple[Any, list[tuple[int, list[tuple[State, Value]]]]]:
        if state.kind == "array":
            cases = [(State("array", None, g), c) for g, c in self._derivatives.array_step(state.formula) if any(c.formulas)]
            return None, [(0, cases)] if cases else []
        assert state.place is not None
        place, rest = state.place, state.formula
        every = self._orders[place.at[0][0]]
        classes = self.classes.of(tuple(sorted(every)), self.string_atoms(rest))
        one = len(place.at) == 1
        keys = self._orders[place.at[0][0]][place.at[0][1] :] if one else [k for k in every if k in self._left(place)]
        out: list[tuple[int, list[tuple[State, Value]]]] = []
        d = self._decisions
        for key in keys:
            after = self._passed(place, key)
            out += [(c, self._after_member(after, rest, key, classes.classes[c])) for c in classes.by_key.get(key, ())]
            if one and (v := d.known(Has(key))) is not None:
                rest = d.substitute(rest, {v: 0})  # the key was passed over
                if not rest:
                    break
        if rest:
            after = self._passed(place, None)
            rest = rest if one else self._derivatives.settle(rest, lambda _: False)
            if rest:
                out += [(c, self._after_member(after, rest, None, classes.classes[c])) for c in classes.other]
        return classes, sorted([(c, cases) for c, cases in out if cases], key=lambda member: member[0])

    def _after_member(self, after: Place, formula: int, key: str | None, of_class: Any) -> list[tuple[State, Value]]:
        left = self._left(after)
        formula = self._derivatives.settle(formula, lambda k: k == key or k in left)
        cases: dict[State, Value] = {}
        for g, condition in self._derivatives.object_step(formula, key, of_class.holds, left.__contains__):
            place, rest = self._feasible(after, g)
            if rest and any(condition.formulas):
                state = State("object", place, rest)
                known = cases.get(state)
                cases[state] = condition if known is None else self._values.any_of([known, condition])
        return list(cases.items())
