"""Which conjunctions of conditions on objects no object satisfies, as far as that shows key by key.

Without this, the values of one member are sorted into kinds that do not exist: of k closed objects with different keys, 2^k
instead of the few that can hold at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fsa_compile.json_schema.atoms import Has, Members
from fsa_compile.json_schema.decision_diagrams import FIRST_NODE, Decisions
from fsa_compile.json_schema.keywords import Keywords

_MOST_STEPS, _MOST_STEPS_IN_ALL = 10_000, 300_000
"""Steps through one formula, and through all, after which formulas count as possible."""


class _Asked(NamedTuple):
    """What a path through a formula asks: numbers of tables that all members satisfy, and of tables that some member does not;
    keys that are there, and keys that are not."""

    kept: frozenset[int] = frozenset()
    broken: tuple[int, ...] = ()
    there: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()


class Contradictions:
    """Finds object formulas that cannot hold.

    Args:
      together: whether some value may satisfy all of some numbered subschemas; True where that is not plain.
    """

    def __init__(self, decisions: Decisions, keywords: Keywords, together: Callable[[frozenset[int]], bool]) -> None:
        self._decisions, self._keywords, self._together = decisions, keywords, together
        self._steps, self._all_steps = 0, 0
        self._of_all: dict[int, frozenset[tuple[int, bool]] | None] = {}
        self._of_formula: dict[int, bool] = {}
        self._of_key: dict[tuple[frozenset[int], str | None], bool] = {}
        self._of_table: dict[tuple[int, frozenset[int], frozenset[str]], bool] = {}

    def impossible(self, formula: int) -> bool:
        """Whether no object satisfies a formula; False where that does not show at once."""
        found = self._of_formula.get(formula)
        if found is None:
            self._steps = 0
            asked = self._asked_always(formula)
            found = self._of_formula[formula] = asked is None or not self._possible(formula, asked)
            self._all_steps += self._steps
        return found

    def _asked_always(self, formula: int) -> _Asked | None:
        """What every path to a leaf that is not false asks, None for a contradiction. What is sure comes first: otherwise each of
        the choices before it would be tried in turn."""
        asked: _Asked | None = _Asked()
        for variable, holds in sorted(self._literals(formula) or (), key=lambda literal: (not literal[1], literal[0])):
            if asked is not None:
                asked = self._with(asked, self._decisions.atoms[variable], holds)
        return asked

    def _literals(self, formula: int) -> frozenset[tuple[int, bool]] | None:
        """(variable, value) pairs of all paths to leaves that are not false; None where there is no such path."""
        if formula < FIRST_NODE:
            return frozenset() if formula else None
        found = self._of_all.get(formula, ())
        if isinstance(found, tuple):
            variable, low, high = self._decisions.node(formula)
            below, above = self._literals(low), self._literals(high)
            below = below if below is None else below | {(variable, False)}
            above = above if above is None else above | {(variable, True)}
            found = self._of_all[formula] = above if below is None else below if above is None else below & above
        return found

    def _possible(self, formula: int, asked: _Asked) -> bool:
        """Whether some path to a leaf that is not false is free of contradictions."""
        if formula < FIRST_NODE:
            return formula > 0
        self._steps += 1
        if self._steps > _MOST_STEPS or self._all_steps + self._steps > _MOST_STEPS_IN_ALL:
            return True
        variable, low, high = self._decisions.node(formula)
        for after, holds in ((high, True), (low, False)):
            if after:
                more = self._with(asked, self._decisions.atoms[variable], holds)
                if more is not None and self._possible(after, more):
                    return True
        return False

    def _with(self, asked: _Asked, atom: object, holds: bool) -> _Asked | None:
        """What is asked with one atom more, None for a contradiction; atoms about other things say nothing."""
        kept, broken, there, missing = asked
        if isinstance(atom, Has):
            if holds:
                return asked._replace(there=(*there, atom.key)) if self._has_value(kept, atom.key) else None
            missing |= {atom.key}
            return asked._replace(missing=missing) if self._can_break(broken, kept, missing) else None
        if not isinstance(atom, Members) or self._keywords.tables[atom.table].patterns:
            return asked
        if not holds:
            return asked._replace(broken=(*broken, atom.table)) if self._can_break((atom.table,), kept, missing) else None
        kept |= {atom.table}
        fits = all(self._has_value(kept, key) for key in there) and self._can_break(broken, kept, missing)
        return asked._replace(kept=kept) if fits else None

    def _has_value(self, kept: frozenset[int], key: str | None) -> bool:
        """Whether a key may have a value, None: one that no table names."""
        found = self._of_key.get((kept, key))
        if found is None:
            found = self._of_key[kept, key] = self._together(self._schemas(kept, key))
        return found

    def _schemas(self, kept: Iterable[int], key: str | None) -> frozenset[int]:
        """The subschemas that tables ask of a key's value."""
        tables = [self._keywords.tables[number] for number in kept]
        return frozenset(t.additional if key is None else t.properties.get(key, t.additional) for t in tables)

    def _can_break(self, broken: Iterable[int], kept: frozenset[int], missing: frozenset[str]) -> bool:
        """Whether for each of some tables a member may have a value that it refuses, and that all tables allow that are kept."""
        for number in broken:
            key = (number, kept, missing)
            found = self._of_table.get(key)
            if found is None:
                found = self._of_table[key] = self._may_refuse(number, kept, missing)
            if not found:
                return False
        return True

    def _may_refuse(self, number: int, kept: frozenset[int], missing: frozenset[str]) -> bool:
        tables, table = self._keywords.tables, self._keywords.tables[number]
        keys: dict[str | None, None] = {None: None}
        keys.update(dict.fromkeys(table.properties))
        for other in kept:
            keys.update(dict.fromkeys(tables[other].properties))
        self._steps += len(keys)
        for key in keys:
            refusing = table.additional if key is None else table.properties.get(key, table.additional)
            if key in missing or self._keywords.accepts_anything(refusing):
                continue
            if refusing not in self._schemas(kept, key) and self._has_value(kept, key):
                return True
        return False
