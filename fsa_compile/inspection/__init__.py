"""Explanations and pictures of compiled constraints. `fsa_compile.inspect` is `explain` here."""

from fsa_compile.inspection import draw as draw
from fsa_compile.inspection import draw_grammar as draw_grammar
from fsa_compile.inspection import explain as inspect

__all__ = ["draw", "draw_grammar", "inspect"]
