"""`canonical_product`: a regular constraint whose sequences are canonical, for a walk beside the filter.

Two forms, chosen by what the constraint needs:

* *Factored*: the artifact has the constraint's own nodes, without the tokens after which nothing can be completed; the filter
  does the rest while decoding. It is about as large as the constraint, and made about as fast, however many states the filter
  has. It is exact where a token can be completed in all the states that it may lead to, or in none: `decision` proves
  that (`DecidedDistances.decided`), `lazy_artifact` makes the arrays.
* *Multiplied*, elsewhere: a product node stands for (node of the constraint, state of the filter). It has two nodes in the
  artifact: the first holds the tokens that may come when the pair rule allows the last token and the next, the second, right
  behind it, those when it forbids them (a cut must then lie between). `product_graph` finds the nodes, `product_distances` what
  can be completed, `product_artifact` makes the arrays.

In both the mask is (row of the first node AND tokens that the filter lets follow AND NOT forbidden(last)) OR (row of the second,
or of the same, node AND tokens that it lets follow behind a cut AND forbidden(last)). There are no dead ends.

Source: Tran-Thien 2024 (CartesianMerge, relevant states; the product simulated while decoding); Cognetta et al. 2025, §3.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fsa_compile.arrays.garbage import collected_rarely
from fsa_compile.artifact.canonical_part import CanonicalPart
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.canonical.encoder.normal_form import check_normal
from fsa_compile.canonical.explicit_product.product_artifact import assemble_product
from fsa_compile.canonical.explicit_product.product_distances import ProductDistances
from fsa_compile.canonical.explicit_product.product_graph import explore
from fsa_compile.canonical.filter.canonical_tables import CanonicalTables
from fsa_compile.canonical.lazy_product.completions import FAR
from fsa_compile.canonical.lazy_product.decision import DecidedDistances
from fsa_compile.canonical.lazy_product.lazy_artifact import assemble_lazy
from fsa_compile.canonical.stacks.stack_artifact import assemble_stack
from fsa_compile.canonical.stacks.stack_search import decided_distances
from fsa_compile.composition.pushdown.stack_contexts import without_contexts
from fsa_compile.errors import ConstraintError, UnspellableError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary.vocabulary_tables import VocabularyTables


@collected_rarely
def canonical_product(
    constraint: CompiledConstraint,
    tables: CanonicalTables,
    vocabulary: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    *,
    prompt: Sequence[int] = (),
) -> CompiledConstraint:
    """The canonical sequences of a constraint.

    Args:
      constraint: a regular one, over the tables' vocabulary; see `with_stack` for others.
      prompt: tokens that stand before the text; see `CanonicalTables.after`.

    Returns:
      An artifact whose `canonical` names the tables it needs, and says where it begins.

    Raises:
      ConstraintError: the constraint has a stack or a register, or texts that the encoder's normal form may change.
      UnspellableError: no accepted text has canonical tokens.
    """
    if not constraint.is_regular:
        raise ConstraintError(
            "a canonical constraint is made of one without a stack and without counters here",
            fix="Compile it with canonical=True from the start.",
        )
    if tables.unicode_form is not None:
        check_normal(constraint, tables.single_bytes, tables.unicode_form)
    state, last = tables.after(prompt)
    made = factored(constraint, tables, vocabulary, limits, deadline, state, last)
    return made or multiplied(constraint, tables, vocabulary, limits, deadline, state, last)


def with_stack(
    constraint: CompiledConstraint,
    tables: CanonicalTables,
    vocabulary: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    *,
    prompt: Sequence[int] = (),
) -> CompiledConstraint | None:
    """The factored form of a constraint with a stack, deterministic and without counters and sets of keys; None where it is not
    certain to be exact. The arguments are those of `canonical_product`. Encoders with a normal form are the caller's matter
    (`check_machine_normal`).

    Raises:
      UnspellableError: no accepted text has canonical tokens.
    """
    state, last = tables.after(prompt)
    found = decided_distances(without_contexts(constraint), tables, deadline, state, last)
    if found is None:
        return None
    narrowed, distances = found
    own = _beginning(constraint, tables, distances.start, state, last)
    return assemble_stack(narrowed, distances, vocabulary, limits, deadline, own)


def factored(
    constraint: CompiledConstraint,
    tables: CanonicalTables,
    vocabulary: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    state: int,
    last: int,
) -> CompiledConstraint | None:
    """The factored form, None where it would not be exact; `state` and `last` as `CanonicalTables.after` gives them."""
    distances = DecidedDistances(constraint, tables.contexts, deadline, state, last)
    if not (distances.fits and distances.decided()):
        return None
    own = _beginning(constraint, tables, distances.start, state, last)
    return assemble_lazy(constraint, distances, vocabulary, limits, deadline, own)


def multiplied(
    constraint: CompiledConstraint,
    tables: CanonicalTables,
    vocabulary: VocabularyTables,
    limits: CompileLimits,
    deadline: Deadline,
    state: int,
    last: int,
) -> CompiledConstraint:
    """The multiplied form; the arguments are those of `factored`."""
    graph = explore(constraint, tables, limits, deadline, state)
    distances = ProductDistances(graph, tables.rule, int(tables.rule.set_of[last]) if last >= 0 else 0, deadline)
    own = _beginning(constraint, tables, distances.start, state, last)
    return assemble_product(constraint, distances, vocabulary, limits, deadline, dataclasses.replace(own, partners=True))


def _beginning(constraint: CompiledConstraint, tables: CanonicalTables, shortest: int, state: int, last: int) -> CanonicalPart:
    """Where the texts begin; `shortest` is their least number of tokens. Raises `UnspellableError`: there is no text."""
    if shortest < FAR:
        return CanonicalPart(tables=tables.identity, last=last, shortest=shortest, state=state)
    raise UnspellableError(
        f"no text that the constraint accepts has a canonical tokenization{' behind the prompt' if last >= 0 else ''}",
        where=constraint.source[:200],
        fix="Back up over the prompt's last tokens (token healing), or compile without canonical=True."
        if last >= 0
        else "Check the texts' Unicode form and characters, or compile without canonical=True.",
    )
