"""Composition of a DFA."""
