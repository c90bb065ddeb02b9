"""The form in which a byte automaton is restricted to canonical tokenizations."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.automata.pushdown import ByteMachine
from fsa_compile.compiler.arguments import Canonical
from fsa_compile.composition.compose import compose_machine
from fsa_compile.errors import ConstraintError, LimitError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary import Vocabulary
from fsa_compile.vocabulary.vocabulary_tables import tables_for

if TYPE_CHECKING:
    pass


def canonical_form(
    constraint: CompiledConstraint, tokenizer: Any, vocabulary: Vocabulary, limits: CompileLimits, canonical: Canonical = True
) -> CompiledConstraint:
    """A constraint restricted to the token sequences that the tokenizer itself makes of a text.

    Args:
      constraint: a regular one, over `vocabulary`.
      tokenizer: it must know its merges, so a `Vocabulary` is not enough.
      vocabulary: the tokenizer's.
      limits: bounds of this step; its time starts anew.
      canonical: True, or the tokens of a prompt; see `compile_language`.

    Raises:
      ConstraintError: the constraint has a stack or counters, the tokenizer is no byte-pair encoder, the prompt is not its own
        encoding, a limit is exceeded.
    """
    from fsa_compile.canonical.filter.canonical_tables import canonical_tables
    from fsa_compile.canonical.restrict import canonical_product

    tables = canonical_tables(tokenizer)
    if isinstance(canonical, str):
        if canonical != "heal":
            raise ConstraintError(f"canonical is {canonical!r}", fix='Give True, False, "heal", or the token ids of a prompt.')
        return constraint
    prompt = [] if isinstance(canonical, bool) else [int(token) for token in canonical]
    try:
        return canonical_product(constraint, tables, tables_for(vocabulary), limits, Deadline(limits), prompt=prompt)
    except LimitError as error:
        fix = (
            "Counts, stacks and the states of the tokenizer's splitter are written out as states: leave out upper bounds on the "
            f"length of free text, lower bounds on depth, or raise CompileLimits.{error.limit}."
        )
        raise LimitError(error.limit, error.allowed, "a canonical constraint", fix=fix) from error


def canonical_stack(
    machine: ByteMachine,
    tokenizer: Any,
    vocabulary: Vocabulary,
    source: str,
    limits: CompileLimits,
    deadline: Deadline,
    canonical: Canonical,
) -> CompiledConstraint | None:
    """The canonical constraint of a machine that nests without a bound, stack and all; None where it is not certain what can be
    completed. The arguments are those of `compile_machine` and `canonical_form`."""
    if not machine.deterministic or machine.sets is not None or canonical is False:
        return None
    from fsa_compile.automata.unfold_counters import without_registers
    from fsa_compile.canonical.encoder.normal_form import check_machine_normal
    from fsa_compile.canonical.filter.canonical_tables import canonical_tables
    from fsa_compile.canonical.restrict import with_stack

    tables, prompt = canonical_tables(tokenizer), [] if isinstance(canonical, bool) else [int(token) for token in canonical]
    if tables.unicode_form is not None:
        check_machine_normal(machine, tables.unicode_form)
    fewer = dataclasses.replace(limits, max_states=min(limits.max_states, _MOST_CONTROLS))
    try:
        counting_nothing = without_registers(machine, fewer, deadline)
    except LimitError as error:
        if error.limit != "max_states":
            raise
        return None
    plain = compose_machine(counting_nothing, vocabulary, source=source, limits=limits, deadline=deadline)
    if plain.is_regular:
        return canonical_form(plain, tokenizer, vocabulary, limits, canonical)
    return with_stack(plain, tables, tables_for(vocabulary), limits, deadline, prompt=prompt)


_MOST_CONTROLS = 20_000
"""Most controls of a machine whose canonical constraint keeps its stack."""
