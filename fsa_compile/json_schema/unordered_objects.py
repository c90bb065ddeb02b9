"""Objects whose keys come in every order: their frames remember the keys read in a bit set, not in their states.

The formula of a frame says what is still asked of it, as for declared order; but which declared keys have come is a matter of
the frame's bit set wherever the formula does not depend on it. It depends on it

* for a key that is required unconditionally: not at all, the set is compared with all of them where the object closes;
* for a key of some other `Has` atom: the atom is decided when the key comes, so while it is there, the key has not come;
* for a key that might make false an atom of whose falsity the formula could profit (`not`, `oneOf`): these keys, and only while
  they matter, are remembered in the state;
* for a count of members: only members that are not required are counted. A count that is not met yet, next to conditions
  other than plain ones, remembers all keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from fsa_compile.artifact.arrays import MAX_KEYS
from fsa_compile.errors import UnsupportedSchemaError
from fsa_compile.json_schema.atoms import Count, Has, Members, Names
from fsa_compile.json_schema.container_base import Attempts, ContainerBase
from fsa_compile.json_schema.decision_diagrams import FIRST_NODE
from fsa_compile.json_schema.derivatives import Derivatives
from fsa_compile.json_schema.key_classes import KeyAutomaton, KeyClass
from fsa_compile.json_schema.machine_builder import Controls
from fsa_compile.json_schema.values import Order

_COMMA = ord(",")
_FEW_KEYS = 6
"""Declared keys of objects whose states remember all keys that have come, where a bound is not found otherwise."""


class _Frame(NamedTuple):
    """A kind of object: its declared keys, sorted (key i is bit i), and those that are required unconditionally.

    Objects of other conditions are of another kind, the same keys or not: bounds belong to a kind (`guard_costs`), and what an
    object needs must not be asked of one inside it. `formula` is what is asked of such an object.
    """

    kind: int
    keys: Order
    number: dict[str, int]
    required: int
    formula: int

    def key(self, seen: int, formula: int) -> Hashable:
        """Tells a state of such objects from others, whichever number the kind has."""
        return "free object", self.keys, self.required, self.formula, seen, formula


class Place(NamedTuple):
    """Kind of frame, and which of the keys that matter to its formula have come."""

    kind: int
    seen: int


class AnyOrder:
    """Makes the controls of objects with declared keys."""

    def __init__(
        self,
        frames: ContainerBase,
        controls: Controls,
        attempts: Attempts,
        derivatives: Derivatives,
    ) -> None:
        self._frames, self._controls, self._derivatives = frames, controls, derivatives
        self._decisions, self._keywords = attempts.decisions, attempts.keywords
        self._dead, self._apart = attempts.dead, attempts.values.apart
        self._kinds: dict[tuple[Order, int, int], _Frame] = {}
        self._of_kind: dict[int, _Frame] = {}
        self._matters: dict[tuple[int, int], int] = {}
        self._after: dict[Any, int] = {}
        self._exclusive: dict[tuple[int, int], bool] = {}

    def first(self, keys: Order, formula: int, note: Callable[[int], None] | None = None) -> int:
        """The control after "{" of an object that declares some keys.

        Args:
          note: told the kind of frame, which is then one of its own.
        """
        frame, formula = self._frame(tuple(sorted(keys)), formula)
        if note is not None:
            frame = frame._replace(kind=self._controls.new_kind(frame.required))
            self._of_kind[frame.kind] = frame
            note(frame.kind)
        return self._object(Place(frame.kind, 0), formula, "first") if formula else 0

    def _frame(self, keys: Order, formula: int) -> tuple[_Frame, int]:
        """The kind of frame, and the formula without the keys that are required unconditionally; 0 where it cannot hold."""
        if len(keys) > MAX_KEYS:
            raise UnsupportedSchemaError(
                f'key_order="any" for an object with {len(keys)} declared keys; {MAX_KEYS} are the most',
                pointer=self._pointer(formula), fix='Leave key_order at "declared", or group the keys in objects of their own.',
            )  # fmt: skip
        d = self._decisions
        count = next((v for v in d.support(formula) if isinstance(d.atoms[v], Count)), None)
        required = 0
        if (count is None or self._is_plain(formula, count)) and not self._in_states(keys):
            for i, key in enumerate(keys):
                v = d.known(Has(key))
                if v is not None and v in d.support(formula) and not d.substitute(formula, {v: 0}):
                    formula = d.substitute(formula, {v: 1})
                    required |= 1 << i
        if required and count is not None and formula:
            formula = self._without_required(formula, count, required.bit_count())
        formula = self._without_contradictions(formula, [key for i, key in enumerate(keys) if required >> i & 1])
        known = self._kinds.get((keys, required, formula))
        if known is None:
            index = {key: i for i, key in enumerate(keys)}
            known = self._kinds[keys, required, formula] = _Frame(
                self._controls.new_kind(required), keys, index, required, formula
            )
            self._of_kind[known.kind] = known
        return known, formula

    def _without_contradictions(self, formula: int, required: list[str]) -> int:
        """The formula, but possible wherever two tables hold that have no common value for a required key: no object is like
        that at its end, so this says nothing, and `oneOf` becomes a condition that profits from no falsity."""
        d, k = self._decisions, self._keywords
        tables = [(v, k.tables[atom.table].properties) for v in d.support(formula) if isinstance(atom := d.atoms[v], Members)]
        for (v, first), (w, second) in itertools.combinations(tables, 2):
            common = [key for key in required if key in first and key in second and first[key] != second[key]]
            if formula >= FIRST_NODE and any(self._excluded(first[key], second[key]) for key in common):
                together = d.both(d.atom(d.atoms[v]), d.atom(d.atoms[w]))
                formula = d.choose(together, max(d.leaves(formula)), formula)
        return formula

    def _excluded(self, first: int, second: int) -> bool:
        """Whether no value satisfies both of two numbered subschemas; False where that does not show at once."""
        pair = (min(first, second), max(first, second))
        found = self._exclusive.get(pair)
        if found is None:
            both = self._frames.both(*map(self._keywords.numbered, pair))
            found = self._exclusive[pair] = not any(self._derivatives.pruned(both).formulas)
        return found

    def _is_plain(self, formula: int, variable: int) -> bool:
        """Whether an atom is asked for whatever else is, and the only one of its type."""
        d = self._decisions
        counts = [v for v in d.support(formula) if isinstance(d.atoms[v], Count)]
        return counts == [variable] and not d.substitute(formula, {variable: 0})

    def _without_required(self, formula: int, variable: int, number: int) -> int:
        """The formula whose count leaves out the required keys."""
        d = self._decisions
        atom = d.atoms[variable]
        assert isinstance(atom, Count)
        high = None if atom.high is None else atom.high - number
        low = max(0, atom.low - number)
        if high is not None and (high < 0 or low > high):
            return 0
        return d.substitute(formula, {variable: d.atom(Count(low, high)) if low or high is not None else 1})

    def _in_states(self, keys: Order) -> bool:
        """Whether all keys that have come are remembered in the state, where bounds could not be found otherwise."""
        return self._apart and len(keys) <= _FEW_KEYS

    def _pointer(self, formula: int) -> str:
        d = self._decisions
        places = [self._keywords.origin.get(d.atoms[v]) for v in d.support(formula)]
        return next((place for place in places if place), "#")

    # controls

    def _object(self, place: Place, formula: int, phase: str) -> int:
        """The control of an object: `first` after "{", `next` after ",", `after` a member."""
        controls, frames = self._controls, self._frames
        frame = self._of_kind[place.kind]

        def make(control: int) -> None:
            owner = (phase == "first", self._counts_on(formula)) if self._apart else None
            classes, ends = self._next_keys(place, formula, owner)
            if not self._can_be_met(control, frame, place, formula, classes, dict(ends)):
                return
            moves: list[tuple[int, int, int]] = []
            outcome = 0 if phase == "next" or (phase == "first" and frame.required) else self._derivatives.at_end(formula)
            if outcome:
                bracket = frames.closing_bracket(place)
                close = ((bracket, bracket, controls.final(outcome)),)
                moves += close
                if phase == "after":
                    controls.closing[control] = frame.required
                    frames.allow_newline(control, controls.node(close))
            if ends:
                if phase == "after":
                    moves.append((_COMMA, _COMMA, frames.after_comma(self._object(place, formula, "next"))))
                else:
                    controls.before.add(control)
                    moves += frames.begin_key(place, classes, ends)
                    if phase == "first":
                        frames.allow_newline(control, self._object(place, formula, "next"))
            controls.moves[control] = tuple(moves)

        control = controls.later(("free object", place, formula, phase), make)
        controls.kind[control] = place.kind
        if phase == "first":
            controls.firsts.add(control)
        if phase == "after":
            frames.state_keys[control] = frame.key(place.seen, formula)
        return control

    def _can_be_met(
        self, control: int, frame: _Frame, place: Place, formula: int, classes: KeyAutomaton, ends: dict[int, int]
    ) -> bool:
        """Whether every required key may still come, and enough others for a count; notes the controls that this rests on."""
        d = self._decisions
        needed: list[tuple[tuple[int, ...], int]] = []
        spare: list[int] = []
        for key, labels in classes.by_key.items():
            bit = 1 << frame.number[key]
            found = tuple(ends[c] for c in labels if c in ends)
            if not frame.required & bit:
                spare += found
            elif not place.seen & bit:
                needed.append((found, 1))
        if not any(c in ends for c in classes.other):
            counts = [atom for v in d.support(formula) if isinstance(atom := d.atoms[v], Count)]
            if len(counts) == 1 and counts[0].low > counts[0].seen and self._is_simple(formula):
                needed.append((tuple(spare), counts[0].low - counts[0].unnamed))
        self._controls.needed[control] = needed
        return all(len(found) >= least for found, least in needed)

    def _next_keys(self, place: Place, formula: int, owner: Hashable) -> tuple[KeyAutomaton, tuple[tuple[int, int], ...]]:
        """The automaton of keys, and (class of key, control that a key of it ends in) of the keys that may come.

        Args:
          owner: the declared keys of different owners have controls of their own, where it is known which keys have come.
        """
        frame = self._of_kind[place.kind]
        classes = self._frames.classes.of(frame.keys, self._frames.string_atoms(formula))
        ends: list[tuple[int, int]] = []
        for i, key in enumerate(frame.keys):
            if not place.seen >> i & 1:
                for c in classes.by_key.get(key, ()):
                    self._add_end(ends, c, self._after_key(place, formula, i, classes.classes[c]), i, owner)
        for c in classes.other:
            self._add_end(ends, c, self._after_key(place, formula, -1, classes.classes[c]), -1, None)
        return classes, tuple(sorted(ends))

    def _add_end(self, ends: list[tuple[int, int]], label: int, colon: int, key: int, owner: Hashable) -> None:
        if colon:
            ends.append((label, self._controls.key_end(key, colon, owner)))

    def _after_key(self, place: Place, formula: int, key: int, of_class: KeyClass) -> int:
        """The control that reads ":" and a key's value, 0 when no value may follow."""
        memo = (place, formula, key, of_class)
        found = self._after.get(memo)
        if found is None:
            found = self._after[memo] = self._find_after_key(*memo)
        return found

    def _find_after_key(self, place: Place, formula: int, key: int, of_class: KeyClass) -> int:
        frame, d = self._of_kind[place.kind], self._decisions
        name = frame.keys[key] if key >= 0 else None
        seen = place.seen | (1 << key if key >= 0 else 0)
        if key >= 0 and frame.required >> key & 1:
            counts = {v: atom for v in d.support(formula) if isinstance(atom := d.atoms[v], Count)}
            formula = d.substitute(formula, {v: d.atom(atom._replace(seen=atom.seen - 1)) for v, atom in counts.items()})

        def coming(k: str) -> bool:
            i = frame.number.get(k)
            return i is not None and not seen >> i & 1

        formula = self._derivatives.settle(formula, lambda k: k == name or coming(k))
        cases = self._derivatives.object_step(formula, name, of_class.holds, coming)

        def control(formula: int) -> int:
            after = Place(frame.kind, seen & self._relevant(frame, formula))
            return 0 if frame.key(after.seen, formula) in self._dead else self._object(after, formula, "after")

        call = self._frames.call_member(cases, control, "other keys" if name is None else name)
        if call is None:
            return 0
        return self._frames.before_value(place, self._controls.caller(*call))

    # what matters

    def _counts_on(self, formula: int) -> bool:
        """Whether a count of keys is not met yet."""
        d = self._decisions
        return any(isinstance(atom := d.atoms[v], Count) and atom.low > atom.seen for v in d.support(formula))

    def _is_simple(self, formula: int) -> bool:
        """Whether all its atoms are asked for together."""
        d = self._decisions
        formula = d.possible(formula)
        return all(not d.substitute(formula, {v: 0}) for v in d.support(formula))

    def _relevant(self, frame: _Frame, formula: int) -> int:
        """The keys of which a formula needs to know whether they have come."""
        found = self._matters.get((frame.kind, formula))
        if found is None:
            found = self._matters[frame.kind, formula] = self._find_relevant(frame, formula)
        return found

    def _find_relevant(self, frame: _Frame, formula: int) -> int:
        d = self._decisions
        formula = d.possible(formula)
        every = (1 << len(frame.keys)) - 1
        if self._in_states(frame.keys):
            return every
        if self._counts_on(formula) and (self._apart or not self._is_simple(formula)):
            return every
        out = 0
        for v in d.support(formula):
            atom = d.atoms[v]
            if isinstance(atom, (Members, Names)):
                if not d.both(d.substitute(formula, {v: 0}), d.negated(d.substitute(formula, {v: 1}))):
                    continue  # it does no harm that this atom is true
                if isinstance(atom, Names):
                    return every
                out |= self._tested(frame, atom)
        return out

    def _tested(self, frame: _Frame, atom: Members) -> int:
        """The keys whose values a table of members may refuse."""
        k = self._keywords
        table = k.tables[atom.table]
        others = not all(k.accepts_anything(schema) for schema in [table.additional, *(s for _, s in table.patterns)])
        out = 0
        for i, key in enumerate(frame.keys):
            asks = others if key not in table.properties else not k.accepts_anything(table.properties[key])
            if asks or (table.patterns and others):
                out |= 1 << i
        return out
