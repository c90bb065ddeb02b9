"""Host walks of every kind of artifact, and the checks that go with them. Imports NumPy only."""

from __future__ import annotations

from typing import Any

from fsa_compile.artifact.arrays import check_vocabulary
from fsa_compile.artifact.bitmask import BitmaskWalk
from fsa_compile.artifact.constraint import CompiledConstraint
from fsa_compile.artifact.item_trie import CompiledItems
from fsa_compile.errors import ArtifactError, BudgetError, ConstraintError, is_whole


def walk_of(constraint: Any, tables: Any = None, max_depth: int | None = None, max_tokens: int | None = None) -> BitmaskWalk:
    """A new walk of a constraint.

    Args:
      constraint: a `CompiledConstraint` or `CompiledItems`.
      tables: canonical tables, for canonical constraints.
      max_depth: most cells of a stack.
      max_tokens: most tokens of its text. Both limits are only checked to be wide enough for some text.

    Raises:
      ConstraintError: it is neither; `BudgetError` where no text is known to fit into a limit.
      ArtifactError: a canonical constraint without its tables, or tables for another.
    """
    if not isinstance(constraint, CompiledItems | CompiledConstraint):
        what = f"a compiled constraint is needed, not {type(constraint).__name__}"
        raise ConstraintError(what, fix="Make one with fsa_compile.compile_regex, compile_json_schema, compile_items, ...")
    for name, limit in (("max_tokens", max_tokens), ("max_depth", max_depth)):
        if limit is not None and not is_whole(limit, 0):
            raise ConstraintError(f"{name} is {limit!r:.60}", fix="Give a whole number, or leave it out for no limit.")
    if max_tokens is not None and max_tokens < constraint.shortest_completion:
        raise BudgetError(max_tokens, constraint.shortest_completion)
    if isinstance(constraint, CompiledItems):
        return constraint.walk()
    if max_depth is not None and max_depth < constraint.shortest_depth:
        raise BudgetError(max_depth, constraint.shortest_depth, "stack cells")
    if not constraint.is_canonical:
        return constraint.walk(max_depth)
    if tables is None:
        fix = "Pass tables=fsa_compile.canonical_tables(tokenizer)."
        raise ArtifactError("a constraint on canonical tokens is walked together with its tokenizer's tables", fix=fix)
    from fsa_compile.canonical.canonical_walk import CanonicalWalk

    return CanonicalWalk(constraint, tables, max_depth)


def check_tokenizer(constraint: Any, tokenizer: Any) -> Any:
    """The vocabulary of a tokenizer; raises `ArtifactError` unless the constraint was compiled for it."""
    check_vocabulary(constraint, tokenizer)
    return getattr(tokenizer, "vocabulary", tokenizer)
