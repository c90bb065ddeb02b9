"""`CanonicalWalk`: executes a canonical constraint token by token in NumPy, with the semantics of the device step."""

from __future__ import annotations

import bisect
from typing import NamedTuple

import numpy as np

from fsa_compile.artifact.arrays import UNREACHABLE
from fsa_compile.artifact.bitmask import BitmaskWalk, packed, token_id, whole_limit, words_of
from fsa_compile.artifact.configurations import Configuration
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.host_walk import HostWalk
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.canonical.filter.token_filter import NONE
from fsa_compile.errors import ArtifactError, BudgetError, ConstraintError, named_fields, shown


class _Position(NamedTuple):
    at: Configuration
    last: int
    state: int
    finished: bool


@named_fields
class CanonicalWalk(BitmaskWalk):
    """Where a token sequence stands in a canonical constraint.

    A token is allowed exactly when the sequence with it can be completed to the tokens that the tokenizer's encoder makes of some
    accepted text. End-of-text ids are allowed where the sequence so far is such a one.

    Args:
      constraint: compiled with `canonical=True`, or behind a prompt, whose last token is then the one before the first.
      tables: of the same tokenizer.
      max_depth: most stack cells, or None for no limit; see `HostWalk`.

    Raises:
      ArtifactError: the constraint is not canonical, for other tables, or followed on several stacks.
    """

    def __init__(self, constraint: CompiledConstraint, tables: CanonicalTables, max_depth: int | None = None) -> None:
        check_tables(constraint, tables)
        if constraint.stacks > 1:
            raise ArtifactError("a canonical constraint cannot be followed on several stacks", fix="Compile it with max_depth=.")
        self.constraint, self.tables = constraint, tables
        last, _, state = constraint.canonical_start
        if state >= tables.filter_table.num_states:
            raise ArtifactError(f"the tokenizer's filter has no state {state}", fix="Compile the constraint again.")
        self._own = HostWalk.of_arrays(constraint, max_depth)
        (first,) = self._own.configurations
        self._history = [_Position(first, last, state, False)]
        lists, self._unless = constraint.canonical_unless
        self._excepted = np.zeros((max(1, len(lists)), tables.filter_table.num_states), bool)
        for number, states in enumerate(lists):
            if not all(0 <= state < tables.filter_table.num_states for state in states):
                raise ArtifactError("the tokenizer's filter lacks a state of an exception", fix="Compile the constraint again.")
            self._excepted[number, states] = True

    @property
    def node(self) -> int:
        """Current node. Where places have two nodes, tokens that the last one forbids are those of the next node."""
        return self.configuration.node

    @property
    def configuration(self) -> Configuration:
        """Current node and stack."""
        return self._history[-1].at

    @property
    def state(self) -> int:
        """State of the tokenizer's filter, of `CanonicalTables.filter_table`."""
        return self._history[-1].state

    @property
    def accepting(self) -> bool:
        """Whether the sequence so far is what the encoder makes of an accepted text."""
        here = self._history[-1]
        return self._own.accepts_at(here.at) and bool(self.tables.filter_table.final[here.state])

    def allowed_words(self, remaining: int | None = None) -> np.ndarray:
        """The mask of the next token as bits, uint32[ceil(V / 32)]; see `allowed`."""
        c, here, remaining = self.constraint, self._history[-1], whole_limit(remaining, "remaining")
        if here.finished:
            return np.zeros(c.rows.shape[1], np.uint32)
        words = self._tokens(here, int(UNREACHABLE) if remaining is None else remaining)
        if remaining is not None and not words.any() and not (self.accepting and remaining >= 0):
            raise BudgetError(remaining, self._needed(here), where=f"after {self.num_tokens} tokens")
        return words | words_of(c.stop_ids, c.vocab_size) if self.accepting else words

    def advance(self, token: int, remaining: int | None = None) -> None:
        """Takes one token; `remaining` as in `HostWalk.advance`.

        Raises:
          ConstraintError: the token is not allowed here, within the limit of tokens; the walk is unchanged. (A ValueError.) The
            limit of depth is for masks alone.
        """
        here, c = self._history[-1], self.constraint
        token = token_id(token)
        limited = remaining is not None and 0 <= token < c.vocab_size
        if limited and not self.allowed_words(remaining)[token >> 5] >> np.uint32(token & 31) & 1:
            raise self._refused(token)
        if not here.finished and token in c.stop_ids and self.accepting:
            self._history.append(here._replace(finished=True))
            return
        after, state = None, NONE
        if not here.finished and 0 <= token < c.vocab_size and token not in c.stop_ids:
            apart = here.last >= 0 and bool(self.tables.rule.forbidden(np.array(here.last), np.array(token)))
            state = self.tables.filter_table.step(here.state, token, apart)
            after = self._own.after(self._partner(here.at) if apart else here.at, int(token)) if state != NONE else None
            for row, number in self._unless[here.at.node].tolist():
                if c.rows[row, token >> 5] >> np.uint32(token & 31) & 1 and self._excepted[number, state]:
                    after = None
        if after is None:
            raise self._refused(token)
        self._history.append(_Position(after, int(token), state, False))

    def shortest(self) -> list[int]:
        """A shortest sequence of tokens from the start to the end of an accepted text; among equals the one of lowest ids. With a
        stack it may take a little more; see `CompiledConstraint.shortest_completion`."""
        walk = CanonicalWalk(self.constraint, self.tables)
        for left in range(self.constraint.shortest_completion, 0, -1):
            if walk.accepting:
                break
            walk.advance(int(np.argmax(walk.allowed(left))))
        return [position.last for position in walk._history[1:]]

    def _refused(self, token: int) -> ConstraintError:
        what = f"token {token} is not allowed after {self.num_tokens} tokens"
        return ConstraintError(what, fix="Ask walk.allowed() first: only the tokenizer's own tokens of a text are.")

    def _needed(self, here: _Position) -> int:
        """The least limit under which some token is allowed, `UNREACHABLE` where there is none."""
        return bisect.bisect_left(range(int(UNREACHABLE)), True, key=lambda limit: bool(self._tokens(here, limit).any()))

    def _tokens(self, here: _Position, limit: int) -> np.ndarray:
        together, apart = (packed(can) for can in self.tables.filter_table.may_follow(here.state))
        for row, number in self._unless[here.at.node].tolist():
            if row:
                unless = self.constraint.rows[row]
                excepted = self.tables.filter_table.leads_to(here.state, self._excepted[number])
                together, apart = (can & ~(packed(not_now) & unless) for can, not_now in zip((together, apart), excepted))
        row = self._own.words_at(here.at, limit)
        if here.last < 0:
            return row & together
        forbidden = packed(self.tables.rule.forbidden_row(here.last))
        behind = self._own.words_at(self._partner(here.at), limit) if self.constraint.canonical.partners else row
        return (row & together & ~forbidden) | (behind & apart & forbidden)

    def _partner(self, at: Configuration) -> Configuration:
        """Where the tokens lie that the last one forbids."""
        return at._replace(node=at.node + 1) if self.constraint.canonical.partners else at


def check_tables(constraint: CompiledConstraint, tables: CanonicalTables) -> None:
    """Raises `ArtifactError` unless a constraint is canonical and made with these tables."""
    if not isinstance(constraint, CompiledConstraint) or not isinstance(tables, CanonicalTables):
        what = f"constraint and tables are {shown(constraint, 40)} and {shown(tables, 40)}"
        raise ArtifactError(what, fix="Give a compiled constraint and canonical_tables(tokenizer).")
    wanted = constraint.canonical.tables
    if not wanted:
        fix = "Compile it with canonical=True, or use constraint.walk()."
        raise ArtifactError("the constraint allows every tokenization", fix=fix)
    if wanted != tables.identity or constraint.fingerprint != tables.fingerprint:
        raise ArtifactError(
            f"the constraint was made with canonical tables {wanted[:12]}; these are {tables.identity[:12]}",
            fix="Use the same tokenizer and the same version of its encoder's package, or compile the constraint again.",
        )
