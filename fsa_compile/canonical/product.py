"""`canonical_product`: a regular constraint whose sequences are canonical, as an artifact for a walk that knows the pair rule.

A product node stands for (node of the constraint, state of the filter). It has two nodes in the artifact: the first holds the
tokens that may come when the pair rule allows the last token and the next, the second, right behind it, those when it forbids
them (a cut must then lie between). The mask is (row of the first AND NOT forbidden(last)) OR (row of the second AND
forbidden(last)); `last` is all that a walk keeps besides the node.

A token stays only where some text can be completed behind it, so there are no dead ends: `product_graph` finds the nodes,
`product_distances` what can be completed, `product_artifact` makes the arrays.

Source: Tran-Thien 2024 (CartesianMerge, relevant states); Cognetta et al. 2025, §3.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsa_compile.artifact import CompiledConstraint
from fsa_compile.canonical.factored_artifact import assemble_factored
from fsa_compile.canonical.factored_distances import FactoredDistances
from fsa_compile.canonical.normal_form import check_normal
from fsa_compile.canonical.product_artifact import assemble_product
from fsa_compile.canonical.product_distances import FAR, ProductDistances
from fsa_compile.canonical.product_graph import explore
from fsa_compile.canonical.tables import CanonicalTables
from fsa_compile.errors import ConstraintError, UnspellableError
from fsa_compile.limits import CompileLimits, Deadline
from fsa_compile.vocabulary_tables import VocabularyTables


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
      constraint: a regular one, over the tables' vocabulary.
      tables: of the tokenizer.
      vocabulary: tables of the vocabulary, for bit rows.
      limits, deadline: of the compilation.
      prompt: tokens that stand before the text; see `CanonicalTables.after`.

    Returns:
      An artifact whose `extra["canonical"]` names the tables it needs. Behind a prompt, `X
      prompt's last token and the tokens of a shortest text.

    Raises:
      ConstraintError: the constraint has a stack or a register.
      UnspellableError: no accepted text has canonical tokens.
      LimitError: too many states, or out of time.
    """
    if not constraint.is_regular:
        raise ConstraintError(
            "canonical=True is offered for constraints without a stack and without counters only",
            fix="Compile it without canonical=True, or bound its nesting so that it becomes regular.",
        )
    if tables.unicode_form is not None:
        check_normal(constraint, tables.packed, tables.unicode_form)
    state, last = tables.after(prompt)
    factored = FactoredDistances(constraint, tables.contexts, deadline, state, last)
    if factored.fits and factored.decided():
        if factored.start >= FAR:
            raise _unspellable(constraint, bool(prompt))
        extra = {**constraint.extra, "canonical": tables.identity, "canonical_start": [last, factored.start, state]}
        return assemble_factored(constraint, factored, vocabulary, limits, deadline, extra)
    graph = explore(constraint, tables, limits, deadline, state)
    distances = ProductDistances(graph, tables.rule, int(tables.rule.set_of[last]) if last >= 0 else 0, deadline)
    if distances.start >= FAR:
        raise _unspellable(constraint, bool(prompt))
    extra = {**constraint.extra, "canonical": tables.identity, "canonical_start": [last, distances.start, state]}
    return assemble_product(constraint, distances, vocabulary, limits, deadline, extra | {"canonical_partners": True})


def _unspellable(constraint: CompiledConstraint, behind_prompt: bool) -> UnspellableError:
    return UnspellableError(
        f"no text that the constraint accepts has a canonical tokenization{' behind the prompt' if behind_prompt else ''}",
        where=constraint.source[:200],
        fix="Back up over the prompt's last tokens (token healing), or compile without canonical=True."
        if behind_prompt
        else "Check the texts' Unicode form and characters, or compile without canonical=True.",
    )
