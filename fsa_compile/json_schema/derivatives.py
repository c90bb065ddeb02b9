"""What is left of a frame's formula after one more member: derivatives of formulas over atoms.

Reading a member rewrites every atom to `condition ? then : other`, where the condition is about the member's value. The
distinct formulas that can come out are the frame's next states, each with the values that lead to it; these are disjoint, so one
callee can read the value and say which case it was. Product, complement and determinisation of frames are this one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fsa_compile.artifact.arrays import MAX_KEYS
from fsa_compile.errors import LimitError, SchemaError, UnsatisfiableSchemaError, UnsupportedSchemaError
from fsa_compile.json_schema.atoms import (
    NUMBER,
    OBJECT,
    STRING,
    Before,
    Contains,
    Count,
    Differ,
    Equals,
    Found,
    Has,
    HasFormat,
    Items,
    Members,
    Names,
    NoneUnnamed,
    Once,
    OneOf,
    Spelled,
    holds_of,
)
from fsa_compile.json_schema.contradictions import Contradictions
from fsa_compile.json_schema.decision_diagrams import FIRST_NODE, Decisions
from fsa_compile.json_schema.keywords import Keywords
from fsa_compile.json_schema.schema_options import SchemaOptions
from fsa_compile.json_schema.values import ANYTHING, NOTHING, UNORDERED, Orders, Value, Values
from fsa_compile.limits import check_time

_FEW_CASES = 8
"""Cases of one member up to which none is looked at for contradictions."""


class Rewrite(NamedTuple):
    """An atom's variable becomes `then` for member values in `condition`, `other` for the rest."""

    variable: int
    condition: Value
    then: int
    other: int
    repairs: bool = False
    """Whether a later member may make up for a value that is not in `condition`: the same key again, of which the last counts."""


class Case(NamedTuple):
    """What is left when the member's value is in `condition`."""

    formula: int
    condition: Value


class Derivatives:
    """Steps of array and object formulas. `matches`: whether a string satisfies a string atom; None where that is undecided."""

    def __init__(
        self,
        decisions: Decisions,
        values: Values,
        keywords: Keywords,
        options: SchemaOptions,
        matches: Callable[[Any, str], bool | None],
    ) -> None:
        self._decisions, self._values, self._keywords, self._options = decisions, values, keywords, options
        self._matches = matches
        self._array_cases: dict[int, list[Case]] = {}
        self._pruned: dict[tuple[int, int], int] = {}
        self._asking: dict[int, tuple[bool, list[str]]] = {}
        self._contradictions = Contradictions(decisions, keywords, self._together)
        self._known_together: dict[frozenset[int], bool] = {}

    def nothing(self, what: str, undecided: HasFormat | None, pointer: str = "#") -> SchemaError:
        """The error for a schema of which nothing can be written.

        Args:
          what: said where nothing satisfies it.
          undecided: see `Strings.undecided`.
          pointer: its place.
        """
        if undecided is not None:
            return UnsupportedSchemaError(
                f"whether any string that the schema leaves has the format {undecided.name!r} is not decided here",
                pointer=self._keywords.origin.get(undecided, pointer), fix="Remove the format, or allow other strings.",
            )  # fmt: skip
        if self._keywords.uncertain is None:
            return UnsatisfiableSchemaError(what, pointer=pointer, fix="Loosen its conditions.")
        return UnsupportedSchemaError(
            "what satisfies the schema has several keys that it does not name, and such keys may be repeated",
            pointer=self._keywords.uncertain, fix="Name the properties, or ask for fewer members.",
        )  # fmt: skip

    # ends

    def at_end(self, formula: int) -> int:
        """The outcome of a frame whose members have all been read."""
        d = self._decisions
        for v in d.support(formula):
            atom = d.atoms[v]
            if isinstance(atom, Count) and atom.repeated and not self._is_sure(atom) and self._may_hold(atom):
                return self.at_end(d.agreed(d.substitute(formula, {v: 0}), d.substitute(formula, {v: 1})))

        def holds(variable: int) -> bool:
            atom = d.atoms[variable]
            if isinstance(atom, Count):
                return self._is_sure(atom)
            if isinstance(atom, Contains):
                return atom.low <= atom.seen and (atom.high is None or atom.seen <= atom.high)
            return not isinstance(atom, Has)

        return d.evaluate(formula, holds)

    def _is_sure(self, atom: Count) -> bool:
        """Whether a count is kept however many keys are repetitions."""
        return atom.low <= atom.sure and (atom.high is None or atom.seen <= atom.high)

    def _may_hold(self, atom: Count) -> bool:
        """Whether a count holds for some number of repeated keys, between none and as many as may be."""
        return atom.low <= atom.seen and (atom.high is None or atom.sure <= atom.high)

    def refuse_repetitions(self, formula: int, named: int) -> None:
        """Refuses an object that only has enough members if keys which the schema does not name differ.

        Args:
          named: number of keys that it does name.

        Raises:
          UnsupportedSchemaError: naming `minProperties`, or the `maxProperties` that must not hold.
        """
        d = self._decisions
        for v in d.support(formula):
            atom = d.atoms[v]
            if not isinstance(atom, Count):
                continue
            for holds, least in ((1, atom.low), (0, 0 if atom.high is None or atom.low else atom.high + 1)):
                if least <= named + 1:
                    continue
                with_it, without = (d.possible(d.substitute(formula, {v: value})) for value in (holds, 1 - holds))
                if d.both(with_it, d.negated(without)):
                    raise UnsupportedSchemaError(
                        f"of {least} members the schema names {named}, and keys that it does not name may be repeated",
                        pointer=self._keywords.origin.get(atom, "#"), fix="Name the properties, or ask for fewer members.",
                    )  # fmt: skip

    # arrays

    def array_step(self, formula: int) -> list[Case]:
        """What is left of an array's formula after one more element."""
        found = self._array_cases.get(formula)
        if found is None:
            found = self._array_cases[formula] = self._array_step(formula)
        return found

    def _array_step(self, formula: int) -> list[Case]:
        d, k = self._decisions, self._keywords
        fixed: dict[int, int] = {}
        rewrites = []
        for v in d.support(formula):
            atom = d.atoms[v]
            if isinstance(atom, Count):
                fixed[v] = self._counted(atom)
            elif isinstance(atom, Items):
                if atom.prefix:
                    after = Items(atom.prefix[1:], atom.rest)
                    left = 1 if not after.prefix and k.accepts_anything(after.rest) else d.atom(after)
                    rewrites.append(Rewrite(v, k.numbered(atom.prefix[0]), left, 0))
                else:
                    rewrites.append(Rewrite(v, k.numbered(atom.rest), d.atom(atom), 0))
            elif isinstance(atom, Once):
                then = 0 if atom.seen else d.atom(atom._replace(seen=True))
                rewrites.append(Rewrite(v, k.numbered(atom.schema), then, d.atom(atom)))
            elif isinstance(atom, Contains):
                seen = atom.seen + 1
                if atom.high is None and seen >= atom.low:
                    then = 1
                else:
                    then = 0 if atom.high is not None and seen > atom.high else d.atom(atom._replace(seen=seen))
                rewrites.append(Rewrite(v, k.numbered(atom.schema), then, d.atom(atom)))
            elif isinstance(atom, Differ):
                most, values = self._options.max_unique, "values without a finite list is not context-free"
                if atom.values is not None:
                    values = f"{atom.values} values, beside other conditions or with fractions (SchemaOptions.max_unique={most})"
                raise UnsupportedSchemaError(
                    f"uniqueItems over {values}", pointer=atom.place,
                    fix=f"List at most {MAX_KEYS} strings or integers in an enum, or check the value after parsing.",
                )  # fmt: skip
        return self._split(formula, fixed, rewrites)

    def _counted(self, atom: Count, unnamed: bool = False) -> int:
        """A count after one more member; `unnamed`: its key may be a repetition."""
        if max(atom.low, atom.high or 0) > self._options.max_count:
            raise LimitError(
                "max_count", self._options.max_count, f"Counting members for {self._keywords.origin.get(atom, '#')}",
                fix="Use smaller bounds on the number of members, or raise SchemaOptions.max_count.",
            )  # fmt: skip
        after = Count(
            atom.low, atom.high, atom.seen + 1, atom.repeated + (unnamed and atom.unnamed), unnamed or atom.unnamed
        )  # fmt: skip
        if after.repeated and self._keywords.uncertain is None:
            self._keywords.uncertain = self._keywords.origin.get(Count(atom.low, atom.high), "#")
        if after.high is None and after.sure >= after.low:
            return 1
        if after.high is not None and after.sure > after.high:
            return 0
        beyond = max(0, after.seen - (after.low if after.high is None else after.high + 1))  # no difference from here on
        return self._decisions.atom(after._replace(seen=after.seen - beyond, repeated=after.repeated - beyond))

    # objects

    def object_step(
        self, formula: int, key: str | None, truth: Callable[[Any], bool], coming: Callable[[str], bool]
    ) -> list[Case]:
        """What is left of an object's formula after one more member.

        Args:
          key: the member's key when it is one that the object names, else None.
          truth: whether a string atom holds for the key.
          coming: whether a key may still come after this member.
        """
        d = self._decisions
        fixed: dict[int, int] = {}
        rewrites = []
        for v in d.support(formula):
            atom = d.atoms[v]
            if isinstance(atom, Has):
                if atom.key == key:
                    fixed[v] = 1
            elif isinstance(atom, Count):
                fixed[v] = self._counted(atom, key is None)
                if atom.high is not None and atom.seen >= atom.high and fixed[v]:  # too many, but for repetitions
                    formula = d.agreed(d.substitute(formula, {v: 0}), formula)
            elif isinstance(atom, NoneUnnamed):
                if key is None:
                    fixed[v] = 0
            elif isinstance(atom, Names):
                if not d.evaluate(atom.formula, lambda x: truth(d.atoms[x])):
                    fixed[v] = 0
            elif isinstance(atom, Members):
                condition = self._member(atom, key, truth)
                if condition != ANYTHING:
                    left = 1 if self._harmless(atom, coming) else d.atom(atom)
                    rewrites.append(Rewrite(v, condition, left, 0, repairs=key is None and condition != NOTHING))
        return [Case(g, c) for g, c in self._merged(self._split(formula, fixed, rewrites), coming)]

    def _member(self, atom: Members, key: str | None, truth: Callable[[Any], bool]) -> Value:
        """What a table of members asks of the value under a key."""
        table = self._keywords.tables[atom.table]
        asked = [table.properties[key]] if key is not None and key in table.properties else []
        asked += [schema for pattern, schema in table.patterns if truth(Found(pattern))]
        return self._values.all_of(map(self._keywords.numbered, asked or [table.additional]))

    def _merged(self, cases: list[Case], coming: Callable[[str], bool]) -> list[tuple[int, Value]]:
        """The cases with their formulas settled, those that became equal joined."""
        out: dict[int, Value] = {}
        for formula, condition in cases:
            formula = self.settle(formula, coming)
            if formula:
                known = out.get(formula)
                out[formula] = condition if known is None else self._values.any_of([known, condition])
        return list(out.items())

    def settle(self, formula: int, coming: Callable[[str], bool]) -> int:
        """The formula with atoms decided that no coming key can change.

        Without this, branches that differ only in what cannot come any more stay apart, and contradictions are seen too late.
        """
        check_time("Building the byte machine of the schema")
        d = self._decisions
        settled = {}
        for v in d.support(formula):
            atom = d.atoms[v]
            if isinstance(atom, Has):
                if not coming(atom.key):
                    settled[v] = 0
            elif isinstance(atom, Members) and self._harmless(atom, coming):
                settled[v] = 1
        return d.substitute(formula, settled)

    def _harmless(self, atom: Members, coming: Callable[[str], bool]) -> bool:
        """Whether every coming key may have any value."""
        found = self._asking.get(atom.table)
        if found is None:
            found = self._asking[atom.table] = self._find_asking(atom.table)
        others, keys = found
        return not others and not any(map(coming, keys))

    def _find_asking(self, number: int) -> tuple[bool, list[str]]:
        """(whether a table of members asks something of keys that it does not name; the keys of whose values it does, the last
        one first: more of these are still to come)."""
        anything, table = self._keywords.accepts_anything, self._keywords.tables[number]
        others = [table.additional, *(schema for _, schema in table.patterns)]
        return not all(map(anything, others)), [key for key, schema in reversed(table.properties.items()) if not anything(schema)]

    # the step itself

    def _split(self, formula: int, fixed: dict[int, int], rewrites: list[Rewrite]) -> list[Case]:
        """The cases of one member; false formulas are dropped. Its objects keep to the key orders of what holds."""
        d = self._decisions
        asked = [r.variable for r in rewrites]
        # An atom may become one that is still to be rewritten: then the old ones are moved aside.
        if len(rewrites) > 1 and _entangled(d, rewrites):
            aside = {r.variable: d.atom(Before(r.variable)) for r in rewrites}
            formula = d.substitute(formula, aside)
            rewrites = [r._replace(variable=d.variable(Before(r.variable))) for r in rewrites]
        formula = d.substitute(formula, fixed)
        cases = {formula: (ANYTHING, UNORDERED)} if formula else {}
        for variable, condition, then, other, repairs in rewrites:
            after: dict[int, tuple[Value, Orders]] = {}
            breaks: Value | None = None
            for f, (known, behind) in cases.items():
                if variable not in d.support(f):
                    self._add(after, f, known, behind)
                    continue
                stays = then >= FIRST_NODE and d.node(then) == (variable, 0, 1)
                if g := f if stays else d.substitute(f, {variable: then}):
                    self._add(after, g, self.pruned(self._values.met(known, condition)), behind)
                if g := self._repaired(f, variable, then) if repairs else d.substitute(f, {variable: other}):
                    breaks = breaks or self._values.negated(condition)._replace(orders=UNORDERED)
                    ways = self._values.in_turn(behind, condition.orders)
                    self._add(after, g, self.pruned(self._values.met(known, breaks)), ways)
            if len(after) > _FEW_CASES:
                after = {f: known for f, known in after.items() if any(self._without_contradictions(known[0]).formulas)}
            cases = after
            if len(cases) > self._options.max_outcomes:
                where = next((place for v in asked if (place := self._keywords.origin.get(d.atoms[v]))), "#")
                raise LimitError(
                    "max_outcomes", self._options.max_outcomes,
                    f"Sorting the values of one member by what they leave open of {where}",
                    fix="Tell the branches of anyOf and oneOf apart by an early key, such as a constant type.",
                )  # fmt: skip
        return [Case(f, self._values.before(*found)) for f, found in cases.items()]

    def _repaired(self, formula: int, variable: int, then: int) -> int:
        """The formula after a value that is not what `variable` asks: false from now on, unless the same key comes again."""
        d = self._decisions
        false = d.substitute(formula, {variable: 0})
        return d.choose(d.atom(NoneUnnamed()), false, d.agreed(false, d.substitute(formula, {variable: then})))

    def _add(self, cases: dict[int, tuple[Value, Orders]], formula: int, condition: Value, behind: Orders) -> None:
        """Adds a case. `behind`: orders of keys behind those of the condition, which are named by what does not hold."""
        if any(condition.formulas):
            v, known = self._values, cases.get(formula)
            joined = known and v.any_of([v.before(*known), v.before(condition, behind)])
            cases[formula] = (joined, UNORDERED) if joined else (condition, behind)

    def pruned(self, value: Value) -> Value:
        """The value without cases that contradict each other: words of finite lists exclude each other, and single numbers."""
        formulas = list(value.formulas)
        for kind, prune in ((STRING, self._prune_strings), (NUMBER, self._prune_numbers)):
            if formulas[kind] < FIRST_NODE:
                continue
            found = self._pruned.get((kind, formulas[kind]))
            if found is None:
                found = self._pruned[kind, formulas[kind]] = prune(formulas[kind])
            formulas[kind] = found
        return Value(tuple(formulas), value.orders) if any(formulas) else NOTHING

    def _prune_strings(self, formula: int) -> int:
        d = self._decisions
        atoms = [d.atoms[v] for v in d.support(formula)]
        lists = [atom for atom in atoms if isinstance(atom, OneOf)]
        if not lists:
            return formula
        words = dict.fromkeys(word for atom in lists for word in atom.words)
        other = d.substitute(formula, {d.variable(atom): 0 for atom in lists})
        if other > 1:
            return formula
        leaf = []
        for word in words:
            said = {v: self._matches(d.atoms[v], word) for v in d.support(formula)}
            leaf.append(d.substitute(formula, {v: int(says) for v, says in said.items() if says is not None}))
        if any(held > 1 for held in leaf):
            return formula  # a format is undecided for a word, which is left out where strings are written
        if other == 0:
            inside = tuple(word for word, held in zip(words, leaf) if held)
            return d.atom(OneOf(inside)) if inside else 0
        outside = tuple(word for word, held in zip(words, leaf) if not held)
        return d.negated(d.atom(OneOf(outside))) if outside else 1

    def _prune_numbers(self, formula: int) -> int:
        d = self._decisions
        atoms = [d.atoms[v] for v in d.support(formula)]
        bounds = [atom.bound for atom in atoms if isinstance(atom, Equals)]
        if len(bounds) < 2:
            return formula
        out = d.substitute(formula, {d.variable(Equals(bound)): 0 for bound in bounds})
        for bound in bounds:
            known = {d.variable(a): int(holds_of(a, bound)) for a in atoms if not isinstance(a, Spelled)}
            leaf = d.substitute(formula, known)
            out = d.choose(d.atom(Equals(bound)), leaf, out)
        return out

    def _without_contradictions(self, value: Value) -> Value:
        """The value without objects whose members would have to satisfy what excludes each other."""
        formulas = value.formulas
        if formulas[OBJECT] < FIRST_NODE or not self._contradictions.impossible(formulas[OBJECT]):
            return value
        return Value((*formulas[:OBJECT], 0, *formulas[OBJECT + 1 :]), value.orders)

    def _together(self, schemas: frozenset[int]) -> bool:
        """Whether some value may satisfy all of some numbered subschemas; arrays and objects count as if some did."""
        found = self._known_together.get(schemas)
        if found is None:
            both = self._values.all_of(map(self._keywords.numbered, sorted(schemas)))
            found = self._known_together[schemas] = any(self.pruned(both).formulas)
        return found


def _entangled(decisions: Decisions, rewrites: list[Rewrite]) -> bool:
    """Whether some rewritten atom yields another atom that is rewritten too."""
    moved = {r.variable for r in rewrites}
    return any(
        v in moved and v != r.variable for r in rewrites for g in (r.then, r.other) for v in decisions.support(g)
    )  # fmt: skip
