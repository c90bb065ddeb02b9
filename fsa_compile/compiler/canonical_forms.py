"""The form in which a byte automaton is restricted to canonical tokenizations."""

from __future__ import annotations

import dataclasses

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Request
from fsa_compile.composition.compose import compose_machine
from fsa_compile.errors import LimitError
from fsa_compile.limits import Deadline
from fsa_compile.vocabulary.vocabulary_tables import tables_for

_MOST_CONTROLS = 20_000
"""Most controls of a machine whose canonical constraint keeps its stack."""


def canonical_form(constraint: CompiledConstraint, request: Request) -> CompiledConstraint:
    """A constraint restricted to the token sequences that the tokenizer itself makes of a text, if that is asked for.

    Args:
      constraint: a regular one, over the request's vocabulary.
      request: its tokenizer must know its merges, so a `Vocabulary` is not enough; the time of this step starts anew.

    Raises:
      ConstraintError: the constraint has a stack or counters, the tokenizer is no byte-pair encoder, the prompt is not its own
        encoding, a limit is exceeded.
    """
    if request.canonical is False:
        return constraint
    from fsa_compile.canonical.filter.canonical_tables import canonical_tables
    from fsa_compile.canonical.restrict import canonical_product

    tables = canonical_tables(request.tokenizer)
    if isinstance(request.canonical, str):
        return constraint
    limits, vocabulary = request.limits, tables_for(request.vocabulary)
    try:
        return canonical_product(constraint, tables, vocabulary, limits, Deadline(limits, anew=True), prompt=_prompt(request))
    except LimitError as error:
        fix = (
            "Counts, stacks and the states of the tokenizer's splitter are written out as states: leave out upper bounds on the "
            f"length of free text, lower bounds on depth, or raise CompileLimits.{error.limit}."
        )
        raise LimitError(error.limit, error.allowed, "a canonical constraint", fix=fix) from error


def canonical_stack(machine: ByteMachine, request: Request) -> CompiledConstraint | None:
    """The canonical constraint of a machine that nests without a bound, stack and all; None where it is not certain what can be
    completed."""
    if not machine.deterministic or machine.sets is not None or request.canonical is False:
        return None
    from fsa_compile.automata.unfold_counters import without_registers
    from fsa_compile.canonical.encoder.normal_form import check_machine_normal
    from fsa_compile.canonical.filter.canonical_tables import canonical_tables
    from fsa_compile.canonical.restrict import with_stack

    tables, limits, deadline = canonical_tables(request.tokenizer), request.limits, request.deadline
    if tables.unicode_form is not None:
        check_machine_normal(machine, tables.unicode_form)
    fewer = dataclasses.replace(limits, max_states=min(limits.max_states, _MOST_CONTROLS))
    try:
        counting_nothing = without_registers(machine, fewer, deadline)
    except LimitError as error:
        if error.limit != "max_states":
            raise
        return None
    plain = compose_machine(counting_nothing, request.vocabulary, source=request.source, limits=limits, deadline=deadline)
    if plain.is_regular:
        return canonical_form(plain, request)
    return with_stack(plain, tables, tables_for(request.vocabulary), limits, deadline, prompt=_prompt(request))


def _prompt(request: Request) -> list[int]:
    """Token ids of the prompt that a canonical text continues."""
    return [] if isinstance(request.canonical, bool) else [int(token) for token in request.canonical]
