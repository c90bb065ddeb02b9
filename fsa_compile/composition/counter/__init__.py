"""Composition of a DFA with one counter."""
