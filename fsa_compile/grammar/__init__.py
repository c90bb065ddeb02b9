"""Lark and GBNF text to a deterministic pushdown automaton over bytes."""
