"""Constraints of forms that are known: put together from parts that were compiled before, where they can be.

A turn with 500 tools, each of which was in some turn of the same form, is one join of arrays (`part_joins`); of others, what is
new is compiled by itself, many of them in several parts. Where parts do not fit together, everything is compiled at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Collection, Hashable, Mapping
from typing import Protocol

import numpy as np

from fsa_compile.arrays.pages import kept_memory
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.compiler.arguments import Request
from fsa_compile.composition.compose import PLENTY
from fsa_compile.composition.tokens.row_pool import RowPool
from fsa_compile.formats.known_parts import Part, Roles, part_of
from fsa_compile.formats.part_joins import Chosen, join_parts
from fsa_compile.formats.text_labels import TextAutomaton
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables, tables_for

_BYTES = 128 << 20
"""What the parts of all forms take together."""
_MOST_NAMES = 256
"""More names are compiled in several parts: tables of controls by symbols of the stack grow with the square of their number."""
_MANY = 100
"""With as many new names, memory is kept from one step to the next."""


@dataclasses.dataclass(frozen=True, eq=False)
class Compiled:
    """A constraint with what tells its parts: see `part_of`."""

    constraint: CompiledConstraint
    automaton: TextAutomaton
    states: tuple[str, ...]
    pointers: Mapping[str, str]
    closing: bytes


class Make(Protocol):
    """Compiles the constraint of a form with some of the names; `sketch`: one that only parts are taken of will do."""

    def __call__(self, names: Collection[str], *, sketch: bool = False) -> Compiled: ...


class _Form:
    """The parts of a form."""

    def __init__(self) -> None:
        self.roles = Roles()
        self.rows: dict[int, np.ndarray] = {}
        self.tables: dict[bytes, bytes] = {}
        self.at: dict[tuple[str, str], Part] = {}
        self.nbytes = 0
        self.fits = True
        """Whether parts fit together, as far as is known."""
        self.lock = threading.Lock()

    def made(self, own: Mapping[str, str], request: Request, tables: VocabularyTables, make: Make) -> CompiledConstraint:
        """The constraint of some names: of parts, where these fit together."""
        new = [name for name, content in own.items() if (name, content) not in self.at]
        large = len(new) >= _MANY and request.limits.max_bytes >= PLENTY
        with kept_memory() if large else contextlib.nullcontext():
            return self._made(own, new if 2 * len(new) <= len(own) else list(own), request, tables, make)

    def _made(
        self, own: Mapping[str, str], some: list[str], request: Request, tables: VocabularyTables, make: Make
    ) -> CompiledConstraint:
        """The constraint of some names; those of which parts are made before."""
        size = -(-len(some) // -(-len(some) // _MOST_NAMES)) if some and self.fits else len(own)
        for first in range(0, len(some), size):
            share = some[first : first + size]
            compiled = make(share, sketch=self.fits)
            self.add(compiled, own, request, tables)
            if len(share) == len(own) and not compiled.automaton.is_sketch:
                return compiled.constraint
            if any((name, own[name]) not in self.at for name in share):
                break
        found = self.joined(own, request, tables) if all(one in self.at for one in own.items()) else None
        if found is None:
            self.fits = False
            compiled = make(own)
            self.add(compiled, own, request, tables)
        return compiled.constraint if found is None else found

    def add(self, compiled: Compiled, own: Mapping[str, str], request: Request, tables: VocabularyTables) -> None:
        """Takes the parts of a constraint."""
        before = self.roles.rests.token.nbytes
        part = part_of(
            compiled.constraint, compiled.automaton, compiled.states, compiled.pointers, self.roles, request.vocabulary,
            RowPool(tables, request.limits), compiled.closing,
        )
        if part is None:
            return
        for number in part.rows_in_use.tolist():
            row_hash = int(part.hashes[number])
            if row_hash not in self.rows:
                row = part.more[row_hash] if row_hash in part.more else compiled.constraint.rows[number]
                self.rows[row_hash] = row.copy()
                self.nbytes += row.nbytes
        part = dataclasses.replace(part, increments=tuple(self.tables.setdefault(one, one) for one in part.increments), more={})
        self.nbytes += part.nbytes + self.roles.rests.token.nbytes - before
        self.at |= {(name, own[name]): part for name in compiled.pointers.values()}

    def joined(self, own: Mapping[str, str], request: Request, tables: VocabularyTables) -> CompiledConstraint | None:
        """The constraint of some names, all of which are known."""
        names: dict[int, set[bytes]] = {}
        parts: dict[int, Part] = {}
        for one in own.items():
            part = self.at[one]
            parts[id(part)] = part
            names.setdefault(id(part), set()).add(one[0].encode())
        chosen = [Chosen(part, frozenset(names[number])) for number, part in parts.items()]
        made = join_parts(chosen, self.roles, self.rows, tables, RowPool(tables, request.limits), request.source)
        return None if made is None or made.num_nodes > request.limits.max_states else made


_FORMS: dict[Hashable, _Form] = {}
_LOCK = threading.Lock()


def constraint(key: Hashable, own: Mapping[str, str], request: Request, make: Make) -> CompiledConstraint:
    """The constraint of a form with some names.

    Args:
      key: tells forms apart: everything that a constraint depends on but the names and what stands behind each.
      own: what stands behind each name.
      request: what it is compiled for.
      make: compiles the constraint.
    """
    tables = tables_for(request.vocabulary)
    if not tables.spells_every_byte:
        return make(own).constraint
    with _LOCK:
        form = _FORMS[key] = _FORMS.pop(key) if key in _FORMS else _Form()
    with form.lock:
        made = form.made(own, request, tables, make)
    with _LOCK:
        while sum(one.nbytes for one in _FORMS.values()) > _BYTES:
            del _FORMS[next(iter(_FORMS))]  # in the end, one that is too large by itself
    return made
