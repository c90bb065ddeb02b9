"""What the controls of arrays and objects of every kind have in common: white space, keys, and calls of values."""

from __future__ import annotations

import abc
import bisect
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from fsa_compile.json_schema.atoms import ARRAY, OBJECT, Contains, Count, Found, Items, Members, Names, Once
from fsa_compile.json_schema.decision_diagrams import Decisions
from fsa_compile.json_schema.derivatives import Case, Derivatives
from fsa_compile.json_schema.documents import REFERENCES, Document
from fsa_compile.json_schema.key_classes import KeyAutomaton, KeyClasses
from fsa_compile.json_schema.keywords import Keywords
from fsa_compile.json_schema.machine_builder import Bounds, Controls, Moves
from fsa_compile.json_schema.scalars import Scalars
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.json_schema.string_spelling import QUOTE, Speller, encoded, is_plain
from fsa_compile.json_schema.values import Meets, Value, Values

_COMMA, _COLON, _SPACE, _NEWLINE = b",: \n"
_CLOSE_OBJECT = ord("}")
_INDENTED = 1 << 7
"""Outcome of white space, above those of values and below those of counted frames, in which white space may stand."""
_COUNTING = frozenset(("minProperties", "maxProperties"))
_OF_OTHERS = ("additionalProperties", "unevaluatedProperties", "patternProperties")
_OTHERS, _REFERENCE = "others", "reference"


class Repetitions:
    """Finds the outcomes of values that repeated keys leave open.

    Keys that the schema does not name may be written again, and a reader keeps the last. Where the value of such a key shows
    something and another one follows, both may be one key. Then it is not sure to which of several cases the object belongs,
    and what is left of the container around it is what is left in all of them.

    Args:
      most: cases of one member.
    """

    def __init__(self, document: Document, decisions: Decisions, keywords: Keywords, most: int) -> None:
        self._document, self._decisions, self._keywords, self._most = document, decisions, keywords, most
        self._known: dict[int, frozenset[str]] = {}

    def meets(self, values: list[Value], left: dict[int, int], control: Callable[[int], int]) -> Meets:
        """What pairs of cases have in common.

        Args:
          values: of the cases.
          left: the container's formula after each case, by the control that goes on with it, in the order of the cases. Added are
            those that go on after values which might belong to several cases.
          control: the control that goes on with a formula; 0 where nothing can follow.
        """
        pairs: dict[tuple[int, int], int] = {}
        formulas, number = list(left.values()), {at: i for i, at in enumerate(left)}
        for kind in (ARRAY, OBJECT):
            open_cases = [i for i, value in enumerate(values) if value.formulas[kind]]
            if len(open_cases) < 2 or not any(self._may_be_unsure(kind, values[i].formulas[kind]) for i in open_cases):
                continue
            for count, last in enumerate(open_cases):  # which grow
                for other in open_cases[:count]:
                    pair = min(other, last), max(other, last)
                    formula = self._decisions.agreed(formulas[other], formulas[last])
                    at = control(formula) if formula else 0
                    if not at or (at not in number and len(number) == self._most):
                        continue
                    if at not in number:
                        number[at] = len(number)
                        left[at] = formula
                        formulas.append(formula)
                    pairs[pair] = number[at]
                    if number[at] not in open_cases:
                        open_cases.append(number[at])
        return tuple([(i, j, k) for (i, j), k in sorted(pairs.items())])

    def _may_be_unsure(self, kind: int, formula: int) -> bool:
        """Whether a repeated key might take back what has shown about arrays or objects; True where that is not plain."""
        d, k = self._decisions, self._keywords
        below: list[int] = []
        for v in d.support(formula):
            atom = d.atoms[v]
            if isinstance(atom, Members):
                table = k.tables[atom.table]
                below += table.properties.values()
                if table.patterns or not (k.accepts_anything(table.additional) or k.accepts_nothing(table.additional)):
                    return True
            elif isinstance(atom, Items):
                below += [*atom.prefix, atom.rest]
            elif isinstance(atom, (Contains, Once)):
                below.append(atom.schema)
            elif isinstance(atom, Count) and kind == OBJECT:
                return True
        return any(self._speaks_of_others(k.text(number)) for number in below)

    def _speaks_of_others(self, schema: Any) -> bool:
        """Whether a subschema, or a document that it refers to, counts keys or asks for anything under those without a name."""
        found = self._found_in(schema)
        return _OTHERS in found or (_REFERENCE in found and _OTHERS in self._found_in(self._document.root))

    def _found_in(self, part: Any) -> frozenset[str]:
        """Which of both a part of a schema holds at any depth."""
        if not isinstance(part, (dict, list)):
            return frozenset()
        found = self._known.get(id(part))
        if found is None:
            found = frozenset().union(*map(self._found_in, part.values() if isinstance(part, dict) else part))
            if isinstance(part, dict):
                asks = any(isinstance(part.get(name), dict) and part[name] for name in _OF_OTHERS)
                found |= {_OTHERS} if asks or not _COUNTING.isdisjoint(part) else frozenset()
                found |= {_REFERENCE} if any(name in part for name in REFERENCES) else frozenset()
            self._known[id(part)] = found
        return found


class Attempts:
    """What the attempts to build one machine have in common: numbers of formulas and orders mean the same in all of them.

    Attributes:
      decisions, values, keywords, repetitions: of the document.
      orders: numbers of the orders of keys.
      dead: array and object states known to lead nowhere, by their key; they are treated as false.
    """

    def __init__(self, document: Document, options: SchemaOptions, *, apart: bool = False) -> None:
        self.decisions = Decisions(options.max_formula)
        self.values = Values(self.decisions, options.max_orders, apart=apart)
        self.keywords = Keywords(document, self.decisions, self.values, options)
        self.repetitions = Repetitions(document, self.decisions, self.keywords, options.max_outcomes)
        self.orders: dict[Any, int] = {}
        self.dead: set[Any] = set()

    def are_over(self, poisoned: Collection[int], keys: Iterable[tuple[int, Any]]) -> bool:
        """Whether no state of an attempt leads nowhere; those that do are dead from then on.

        Args:
          poisoned: controls of the attempt where nothing can follow.
          keys: controls, and what they stand for.
        """
        found = {key for control, key in keys if control in poisoned}
        self.dead |= found
        return not found

    def release(self) -> None:
        """Empties the parts, which know each other, for the sake of Python's cycle collector."""
        for part in (self.decisions, self.values, self.keywords, self.repetitions):
            vars(part).clear()


class SchemaParts(NamedTuple):
    """What the controls of containers are made with."""

    controls: Controls
    speller: Speller
    scalars: Scalars
    attempts: Attempts
    derivatives: Derivatives
    options: SchemaOptions


class ContainerBase(abc.ABC):
    """White space, keys and calls of values, as the options have them.

    Attributes:
      classes: of keys.
      state_keys: what the control of a container's state stands for.
    """

    def __init__(self, parts: SchemaParts) -> None:
        controls, speller, scalars, attempts, derivatives, options = parts
        self._controls, self._speller, self._scalars = controls, speller, scalars
        self._decisions, self._values, self._keywords = attempts.decisions, attempts.values, attempts.keywords
        self._derivatives, self._options, self._dead = derivatives, options, attempts.dead
        self._repetitions = attempts.repetitions
        self.classes = KeyClasses(self._decisions, scalars, options)
        self._newline = 0
        self._looked_at = 0  # number of variables that were searched for conditions on keys
        self._about_keys: set[int] = set()
        self.state_keys: dict[int, Any] = {}

    @abc.abstractmethod
    def entry(self, value: Value) -> int:
        """The control that reads a value from its first byte; it ends with the value's outcome."""

    def call_member(self, cases: Iterable[Case], control: Callable[[int], int], name: str) -> tuple[int, int] | None:
        """The stack symbol and entry that read a member of a container and go on with what is left of its formula.

        Args:
          cases: what is left, with the values that leave it.
          control: the control that goes on with a formula; 0 where nothing can follow.
          name: what the member is called, for people.

        Returns:
          None when no value belongs to any case.
        """
        values: dict[int, Value] = {}
        left: dict[int, int] = {}
        for formula, condition in cases:
            if at := control(formula):
                known = values.get(at)
                values[at] = condition if known is None else self._values.any_of([known, condition])
                left.setdefault(at, formula)
        if len(values) == 1:
            (at, value), = values.items()
            return self.call(value, at, name)
        meets = self._repetitions.meets(list(values.values()), left, control)
        first, value = self._values.classify(list(values.values()), meets)
        used = {first + k for _, _, k in meets}.union(*map(self._decisions.leaves, value.formulas))
        returns = tuple((first + i, at) for i, at in enumerate(left) if first + i in used)
        return (self._controls.symbol(returns, name), self.entry(value)) if returns else None

    def call(self, value: Value, control: int, name: str) -> tuple[int, int] | None:
        """The stack symbol and entry that read a value and go on as a control; None where there is no such value."""
        return (self._controls.symbol(((1, control),), name), self.entry(value)) if any(value.formulas) else None

    # what other ways to write objects replace

    def begin_key(self, place: Any, classes: KeyAutomaton, targets: tuple[tuple[int, int], ...]) -> Moves:
        """The moves that begin a key of an object, at a place of `Frames` or of `AnyOrder`.

        Args:
          targets: (class of key, control after the key), sorted.
        """
        return ((QUOTE, QUOTE, self.key(classes, 0, targets)),)

    def before_value(self, place: Any, value: int) -> int:
        """The control after a key, from which a value is read."""
        return self._controls.node(((_COLON, _COLON, self.after_colon(value)),))

    def closing_bracket(self, place: Any) -> int:
        """The byte that ends an object."""
        return _CLOSE_OBJECT

    # values

    def both(self, a: Value, b: Value) -> Value:
        """The values in a and in b."""
        return self._values.both(a, b)

    def after_comma(self, control: int, bounds: Bounds | None = None) -> int:
        """What stands after a comma: white space as the options have it, then the control.

        Args:
          bounds: of the counted frame that all this belongs to.
        """
        spaced = self.after_colon(control, bounds)
        self.allow_newline(spaced, control)
        return spaced

    def after_colon(self, control: int, bounds: Bounds | None = None) -> int:
        """What stands after a colon."""
        if self._options.whitespace == "compact":
            return control
        if self._options.whitespace == "spaced":
            return self._controls.node(((_SPACE, _SPACE, control),), bounds)
        return self._controls.spaced(_SPACE, control, bounds)

    def allow_newline(self, control: int, target: int) -> None:
        """Lets a control read a newline with its indentation, which is a frame of its own, and go on as another control."""
        if self._options.whitespace != "indented":
            return
        call = self._controls.symbol(((_INDENTED, target),), "indentation"), self._indentation()
        if call not in self._controls.calls.get(control, ()):
            self._controls.add_call(control, *call)

    def _indentation(self) -> int:
        """The entry of the frame that reads a newline and up to `max_indent` spaces."""
        if not self._newline:
            controls = self._controls
            at = controls.new((), _INDENTED)
            for _ in range(self._options.max_indent):
                at = controls.new(((_SPACE, _SPACE, at),), _INDENTED)
            self._newline = controls.node(((_NEWLINE, _NEWLINE, at),))
        return self._newline

    def string_atoms(self, formula: int) -> tuple[Any, ...]:
        """The conditions on keys in a formula."""
        d = self._decisions
        for v in range(self._looked_at, len(d.atoms)):
            atom = d.atoms[v]
            if isinstance(atom, Names) or (isinstance(atom, Members) and self._keywords.tables[atom.table].patterns):
                self._about_keys.add(v)
        self._looked_at = len(d.atoms)
        out: dict[Any, None] = {}
        for v in self._about_keys.intersection(d.support(formula)) if self._about_keys else ():
            atom = d.atoms[v]
            if isinstance(atom, Members):
                out.update((Found(pattern), None) for pattern, _ in self._keywords.tables[atom.table].patterns)
            elif isinstance(atom, Names):
                out.update((d.atoms[x], None) for x in d.support(atom.formula))
        return tuple(sorted(out, key=repr))

    def key(self, classes: KeyAutomaton, state: int, targets: tuple[tuple[int, int], ...]) -> int:
        """The control inside a key, cut to the keys that can still be completed; 0 when there are none."""
        targets = classes.within(state, targets)
        if not targets:
            return 0
        if len(targets) == 1 and self._options.word_escapes == "shortest":
            rest = classes.rest_of(state, targets[0][0])
            if rest is not None:
                return self._spelled(rest, targets[0][1])

        def make(control: int) -> None:
            label = classes.labels[state]
            at = bisect.bisect_left(targets, (label,))
            close = targets[at][1] if at < len(targets) and targets[at][0] == label else 0
            self._controls.moves[control] = self._key_moves(classes, state, targets, close)

        return self._controls.later(("key", classes.number, state, targets), make)

    def _key_moves(self, classes: KeyAutomaton, state: int, targets: tuple[tuple[int, int], ...], close: int) -> Moves:
        escapes = self._options.word_escapes
        if classes.branches and escapes == "shortest":
            others = self.key(classes, len(classes.branches) - 1, targets)
            ahead = classes.branches[state]
            if ahead and is_plain(ahead):
                branches = [(c, self.key(classes, t, targets)) for c, _, t in ahead]
                return self._speller.branching(branches, others, close)
        row: list[tuple[int, int, int]] = []
        known: dict[int, int] = {}
        for low, high, after in classes.row(state):
            below = known.get(after, -1)
            if below < 0:
                below = known[after] = self.key(classes, after, targets)
            if below:
                if row and row[-1][2] == below and row[-1][1] + 1 == low:
                    row[-1] = (row[-1][0], high, below)
                else:
                    row.append((low, high, below))
        return self._speller.body(tuple(row), close, escapes)

    def _spelled(self, rest: str, target: int) -> int:
        """The control that reads the rest of a key and its closing quote."""
        return self._controls.chain(encoded(rest) + b'"', target)
