"""Promotion (Koo et al. 2024, §2.4): a byte automaton becomes a token automaton over one vocabulary, as an artifact."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from fsa_compile.arrays.garbage import collected_rarely
from fsa_compile.arrays.pages import kept_memory, small_pages
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.stored_arrays import LEAST_BYTES, stored_arrays
from fsa_compile.automata.byte_dfa import ByteDfa
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.automata.unfold_stacks import flattened
from fsa_compile.composition.regular.regular_artifact import assemble
from fsa_compile.composition.regular.trie_walk import walk_tokens
from fsa_compile.errors import UnsatisfiableError, UnspellableError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables, tables_for


@collected_rarely
def compose(
    dfa: ByteDfa,
    vocabulary: Vocabulary,
    *,
    source: str,
    limits: CompileLimits | None = None,
    deadline: Deadline | None = None,
    extra: dict[str, Any] | None = None,
    keep_loops: bool = False,
    levels: bool = True,
) -> CompiledConstraint:
    """The artifact of a byte automaton over a vocabulary.

    Every mask of the result is exact: a token is allowed if and only if some accepted text continues with it, spelled by
    any sequence of further tokens.

    Args:
      dfa: trimmed byte automaton.
      vocabulary: exact bytes per token id.
      source: what was compiled, for people.
      limits: defaults to `CompileLimits()`.
      deadline: an already running time budget.
      extra: small JSON values kept in the artifact.
      keep_loops: keep what is found of loops such as string bodies for other automata, and use what was kept.
      levels: with the rows that limits on the number of tokens need; an artifact without them is a step of other compilations.

    Raises:
      UnsatisfiableError: the automaton accepts nothing.
      UnspellableError: no token sequence spells an accepted text.
      LimitError: a limit would be exceeded.
    """
    limits = limits or CompileLimits()
    deadline = deadline or Deadline(limits)
    if dfa.start == 0:
        raise UnsatisfiableError("the constraint accepts no text at all", where=source)
    tables = tables_for(vocabulary)
    known = None
    if keep_loops:
        from fsa_compile.composition.shared_loops import known_tokens

        known = known_tokens(dfa, tables, limits, deadline)
    arcs = walk_tokens(dfa, tables, deadline, known)
    return assemble(dfa, arcs, tables, source=source, limits=limits, deadline=deadline, extra=extra or {}, levels=levels)


_LARGE, PLENTY = 2_000, 2 << 30
"""A machine with as many controls takes gigabytes of arrays that live for a moment. Kept, they count as what the process has
grown by: only where the limits leave so many bytes."""


@collected_rarely
@small_pages()
def compose_machine(
    machine: ByteMachine,
    vocabulary: Vocabulary,
    *,
    source: str,
    limits: CompileLimits | None = None,
    deadline: Deadline | None = None,
    extra: dict[str, Any] | None = None,
    stacks: int = 1,
    flat_states: int = 0,
) -> CompiledConstraint:
    """The artifact of a machine with a stack over a vocabulary.

    Every mask of the result is exact: a token is allowed if and only if some accepted text continues with it. Without a token
    for each byte, that may depend on the whole stack, which is an error; machines with sets of keys then need a token for each
    byte that they read.

    Args:
      machine: trimmed.
      vocabulary: exact bytes per token id.
      source: what was compiled, for people.
      limits: defaults to `CompileLimits()`; `max_states` bounds the artifact's nodes.
      deadline: an already running time budget.
      extra: small JSON values kept in the artifact.
      stacks: how many configurations of a machine that is not deterministic are followed at once.
      flat_states: a machine that needs at most this many states with its stacks written out becomes a regular artifact.

    Raises:
      UnsatisfiableError: the machine accepts nothing.
      UnspellableError: no token sequence spells an accepted text, or which text can be completed depends on the whole stack.
      ConstraintError: a special token that is text; a token that could pop any number of cells.
      LimitError: a limit would be exceeded.
    """
    limits = limits or CompileLimits()
    deadline = deadline or Deadline(limits)
    if machine.start == 0:
        raise UnsatisfiableError("the constraint accepts no text at all", where=source)
    flat = flattened(machine, flat_states) if flat_states and machine.sets is None else None
    if flat is not None:
        return compose(flat, vocabulary, source=source, limits=limits, deadline=deadline, extra=extra, keep_loops=True)
    # Most of the compiler's modules are for stacks alone, and take longer to load than a pattern does to compile.
    from fsa_compile.composition.pushdown.pushdown_artifact import assemble_machine
    from fsa_compile.composition.pushdown.pushdown_walk import walk_machine
    from fsa_compile.composition.pushdown.stack_contexts import with_contexts

    tables = tables_for(vocabulary)
    if machine.sets is not None:
        _check_spelling(machine, tables, source)
    with kept_memory() if machine.num_controls >= _LARGE and limits.max_bytes >= PLENTY else contextlib.nullcontext():
        made = assemble_machine(  # the walk has no other name: its tokens are let go of on the way
            machine, walk_machine(machine, tables, limits, deadline), tables, source=source, limits=limits, deadline=deadline,
            extra=extra or {}, stacks=stacks,
        )  # fmt: skip
    made = with_contexts(made)
    stored = stored_arrays(made.rows, made.delta, LEAST_BYTES)
    return dataclasses.replace(made, **stored) if stored else made


def _check_spelling(machine: ByteMachine, tables: VocabularyTables, source: str) -> None:
    """Raises `UnspellableError` where a byte that a machine with sets reads has no token of its own.

    Whether what follows can be spelled would then depend on which keys are still open, which no mask of a node says.
    """
    from fsa_compile.composition.pushdown.spelling import bytes_not_alone

    missing = bytes_not_alone(machine, tables)
    if len(missing):
        raise UnspellableError(
            f"the vocabulary has no token for the byte {bytes([missing[0]])!r} alone, and sets of keys or elements need one",
            where=source[:200],
            fix='Use key_order="declared" and few values for uniqueItems, or a tokenizer with a token for each byte.',
        )
