"""Composition where tokens themselves are symbols of the language."""
