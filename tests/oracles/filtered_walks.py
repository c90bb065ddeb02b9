"""Canonical constraints by definition: what a constraint's own walk allows, and the tokenizer's filter lets through; slow and plain.

Also stands in for a compiler of canonical constraints with stacks: `marked` adds to any constraint what makes it canonical. Nothing is
taken out of it, so its texts may run into dead ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from oracles.device_limits import allowed_on_the_device, met

from fsa_compile import CompiledConstraint
from fsa_compile.artifact.canonical_part import EVERY_SEQUENCE, CanonicalPart
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.composition.pushdown.stack_contexts import without_contexts


def marked(constraint: CompiledConstraint, tables: CanonicalTables, prompt: Sequence[int] = ()) -> CompiledConstraint:
    """The constraint, to be followed beside the tokenizer's filter, behind a prompt."""
    state, last = tables.after(prompt)
    constraint = without_contexts(constraint)
    own = CanonicalPart(tables=tables.identity, last=last, shortest=constraint.shortest_completion, state=state)
    return dataclasses.replace(constraint, canonical=own)


class FilteredWalk:
    """A walk of a canonical constraint without partners and without exceptions.

    Args:
      constraint: `marked`, or compiled so.
      tables: of the tokenizer.
      limit: the limit of tokens at the start, which is kept only where it is at least `shortest_completion`.
      max_depth: most stack cells.
    """

    def __init__(
        self, constraint: CompiledConstraint, tables: CanonicalTables, limit: int | None = None, max_depth: int | None = None
    ) -> None:
        assert not constraint.canonical.partners
        assert not constraint.canonical_unless[0]
        self.constraint, self.tables = constraint, tables
        self.bounded = limit is None or limit >= constraint.shortest_completion
        self.own = dataclasses.replace(constraint, canonical=EVERY_SEQUENCE).walk(max_depth)
        last, _, state = constraint.canonical_start
        self.history = [(last, state)]

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return self.own.accepting and bool(self.tables.filter_table.final[self.history[-1][1]])

    @property
    def finished(self) -> bool:
        """Whether a stop id was taken."""
        return self.own.finished

    def allowed(self, remaining: int | None = None) -> np.ndarray:
        """bool[V], the tokens that may come next, `remaining` tokens before the limit."""
        last, state = self.history[-1]
        together, apart = self.tables.filter_table.may_follow(state)
        own = allowed_on_the_device(self.own, remaining if self.bounded else None)
        text = own & np.where(self._forbidden(last), apart, together)
        text[list(self.constraint.stop_ids)] = self.accepting and not self.finished
        return text

    def advance(self, token: int, remaining: int | None = None) -> None:
        """Takes a token."""
        assert self.allowed()[token]
        last, state = self.history[-1]
        self.own.advance(token, met(self.own, remaining))
        if token not in self.constraint.stop_ids:
            last, state = token, self.tables.filter_table.step(state, token, bool(self._forbidden(last)[token]))
        self.history.append((last, state))

    def rewind(self, n: int) -> None:
        """Takes back n tokens."""
        self.own.rewind(n)
        del self.history[len(self.history) - n :]

    def _forbidden(self, last: int) -> np.ndarray:
        return self.tables.rule.forbidden_row(last) if last >= 0 else np.zeros(self.constraint.vocab_size, bool)
