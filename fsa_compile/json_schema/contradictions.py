"""Which conjunctions of conditions on objects no object satisfies, as far as that shows key by key.

Without this, the values of one member are sorted into kinds that do not exist: of k closed objects with different keys, 2^k
instead of the few that can hold at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fsa_compile.json_schema.atoms import Has, Members, MemberTable
from fsa_compile.json_schema.decisions import FIRST_NODE, Decisions
from fsa_compile.json_schema.keywords import Keywords

_MOST_STEPS = 2_000
"""Steps through a formula after which it counts as possible."""


class _Literals(NamedTuple):
    """What a path through a formula asks: tables that members satisfy, tables that some member does not, keys that are there and
    keys that are not."""

    kept: tuple[MemberTable, ...] = ()
    broken: tuple[MemberTable, ...] = ()
    there: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Contradictions:
    """Finds object formulas that cannot hold.

    Args:
      together: whether some value may satisfy all of some numbered subschemas; True where that is not plain.
    """

    def __init__(self, decisions: Decisions, keywords: Keywords, together: Callable[[frozenset[int]], bool]) -> None:
        self._decisions, self._keywords, self._together = decisions, keywords, together
        self._steps = 0

    def impossible(self, formula: int) -> bool:
        """Whether no object satisfies a formula; False where that does not show at once."""
        d = self._decisions
        if sum(isinstance(d.atoms[v], Members) for v in d.support(formula)) < 2:
            return False
        self._steps = 0
        return not self._possible(formula, _Literals())

    def _possible(self, formula: int, known: _Literals) -> bool:
        """Whether some path to a leaf that is not false is free of contradictions."""
        if formula < FIRST_NODE:
            return formula > 0
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return True
        variable, low, high = self._decisions.node(formula)
        for after, holds in ((high, True), (low, False)):
            if after:
                literals = self._with(known, self._decisions.atoms[variable], holds)
                if (literals is known or self._consistent(literals)) and self._possible(after, literals):
                    return True
        return False

    def _with(self, known: _Literals, atom: Any, holds: bool) -> _Literals:
        """The literals with one more; those about other things than keys and their values are left out."""
        if isinstance(atom, Has):
            keys = (*(known.there if holds else known.missing), atom.key)
            return known._replace(there=keys) if holds else known._replace(missing=keys)
        if isinstance(atom, Members) and not (table := self._keywords.tables[atom.table]).patterns:
            tables = (*(known.kept if holds else known.broken), table)
            return known._replace(kept=tables) if holds else known._replace(broken=tables)
        return known

    def _consistent(self, literals: _Literals) -> bool:
        return all(self._together(_asked(literals.kept, key)) for key in literals.there) and all(
            self._can_break(table, literals) for table in literals.broken
        )

    def _can_break(self, table: MemberTable, literals: _Literals) -> bool:
        """Whether some member may have a value that a table refuses, and no table does that is kept."""
        keys: dict[str | None, None] = dict.fromkeys(table.properties)
        for other in literals.kept:
            keys.update(dict.fromkeys(other.properties))
        for key in (*(key for key in keys if key not in literals.missing), None):
            refused = table.additional if key is None else table.properties.get(key, table.additional)
            asked = _asked(literals.kept, key)
            if not self._keywords.accepts_anything(refused) and refused not in asked and self._together(asked):
                return True
        return False


def _asked(tables: Iterable[MemberTable], key: str | None) -> frozenset[int]:
    """The subschemas that tables ask of the value of a key, None for one that no table names."""
    return frozenset(t.additional if key is None else t.properties.get(key, t.additional) for t in tables)
