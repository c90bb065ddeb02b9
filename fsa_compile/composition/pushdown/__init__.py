"""Composition of a pushdown automaton."""
